/* The order in which the broker's requests and tasks wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "serve/broker/job_list.h"
#include "serve/protocol/task_turn.h"

static by__broker_job *job_of(int64_t priority, double since, bool task)
{
    by__broker_job *job = NULL;
    by_error error = {0};
    assert_int_equal(by__alloc((void **)&job, 1, sizeof *job, "a job", &error), BY_OK);
    job->priority = priority;
    job->since = since;
    job->sequences = 1;
    if (task) {
        assert_int_equal(by__protocol_gather_open(&job->gather, &error), BY_OK);
    }
    return job;
}

static by__broker_job *add(by__broker_job_list *list, int64_t priority, double since, bool task)
{
    by__broker_job *job = job_of(priority, since, task);
    by__broker_job_enqueue(list, job, false);
    return job;
}

/* The list holds these, in this order, and they are freed. */
static void expect_order(by__broker_job_list *list, by__broker_job **jobs, size_t count)
{
    assert_int_equal(list->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(list->first, jobs[i]);
        by__broker_job_unlink(list, jobs[i]);
        by__broker_job_free(jobs[i]);
    }
    assert_null(list->first);
    assert_null(list->last);
}

static void test_priorities(void **state)
{
    BY_UNUSED(state);
    by__broker_job_list list = {0};
    by__broker_job *task = add(&list, 0, 0.0, true);
    by__broker_job *low = add(&list, -1, 0.0, false);
    by__broker_job *first = add(&list, 0, 0.0, false);
    by__broker_job *second = add(&list, 0, 0.0, false);
    by__broker_job *urgent = add(&list, 1, 0.0, true);
    assert_int_equal(by__broker_job_ahead(&list, 0, false), 3);
    assert_int_equal(by__broker_job_ahead(&list, 0, true), 4);
    by__broker_job *back = job_of(0, 0.0, false);
    by__broker_job_enqueue(&list, back, true);
    expect_order(&list, (by__broker_job *[]){urgent, back, first, second, task, low}, 6);
}

/* The oldest of those that have waited for long, whatever its priority, each once. */
static void test_promoted(void **state)
{
    BY_UNUSED(state);
    by__broker_job_list list = {0};
    const double now = 1000.0;
    by__broker_job *urgent = add(&list, 100, 0.0, false);
    by__broker_job *request = add(&list, 0, 0.0, false);
    by__broker_job *young = add(&list, 3, now - 0.9 * BY__TASK_WAIT, true);
    by__broker_job *old = add(&list, -3, now - 3.0 * BY__TASK_WAIT, true);
    by__broker_job *newer = add(&list, 2, now - BY__TASK_WAIT, true);
    assert_true(by__broker_job_promote(&list, now));
    assert_ptr_equal(list.first, old);
    /* A new request comes behind it. */
    assert_int_equal(by__broker_job_ahead(&list, 100, false), 2);
    assert_true(by__broker_job_promote(&list, now));
    assert_false(by__broker_job_promote(&list, now));
    expect_order(&list, (by__broker_job *[]){old, newer, urgent, young, request}, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_priorities),
                                       cmocka_unit_test(test_promoted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
