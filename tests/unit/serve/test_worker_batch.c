/* Batches of a worker: whose examples they take, and what becomes of jobs that nobody waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/worker/worker.h"

/* What the batcher's thread has done; the first batch waits until it may go on. */
typedef struct ran {
    uv_sem_t began;
    uv_sem_t go;
    size_t batches;
    size_t examples[2]; /* of the jobs "a" and "b" */
} ran;

static by_status compute(void *user, const by__worker_batch_place *places, size_t count,
                         by_error *error)
{
    ran *r = user;
    BY_UNUSED(error);
    for (size_t i = 0; i < count; i++) {
        r->examples[places[i].job->id[0] == 'b']++;
    }
    if (r->batches++ == 0) {
        uv_sem_post(&r->began);
        uv_sem_wait(&r->go);
    }
    return BY_OK;
}

static void give(by__worker_batcher *batcher, const char *id, size_t count)
{
    by__worker_job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    (void)snprintf(job->id, sizeof job->id, "%s", id);
    job->count = count;
    by__worker_batcher_submit(batcher, job);
}

static void on_wake(uv_async_t *async)
{
    BY_UNUSED(async);
}

/* Gives the job "a" of 100 examples, and "b" of 3 when the first batch of "a" runs. Calls `ended`
 * with each job as it ends. */
static void run_two(ran *r, bool cancels, void (*ended)(void *user, const by__worker_job *job),
                    void *user)
{
    uv_loop_t loop;
    uv_async_t wake;
    by__worker_batcher *batcher;
    by_error error = {0};
    const by__worker_batch_options options = {.most = 2, .compute = compute, .user = r};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_async_init(&loop, &wake, on_wake), 0);
    assert_int_equal(uv_sem_init(&r->began, 0), 0);
    assert_int_equal(uv_sem_init(&r->go, 0), 0);
    assert_int_equal(by__worker_batcher_open(&batcher, &options, &wake, &error), BY_OK);
    give(batcher, "a", 100);
    uv_sem_wait(&r->began);
    give(batcher, "b", 3);
    if (cancels) {
        by__worker_batcher_cancel(batcher, "a");
    }
    uv_sem_post(&r->go);
    for (int count = 0; count < 2;) {
        by__worker_job *job = by__worker_batcher_next(batcher);
        if (job == NULL) {
            (void)uv_run(&loop, UV_RUN_ONCE);
            continue;
        }
        ended(user, job);
        by__worker_job_free(job);
        count++;
    }
    by__worker_batcher_close(&batcher);
    uv_close((uv_handle_t *)&wake, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    uv_sem_destroy(&r->began);
    uv_sem_destroy(&r->go);
}

static void note_cancelled(void *user, const by__worker_job *job)
{
    ((bool *)user)[job->id[0] == 'b'] = job->cancelled;
}

/* A job that is cancelled takes no further batch from those behind it. */
static void test_cancelled(void **state)
{
    ran r = {.batches = 0};
    bool cancelled[2] = {false, false};
    BY_UNUSED(state);
    run_two(&r, true, note_cancelled, cancelled);
    assert_true(cancelled[0] && !cancelled[1]);
    assert_int_equal(r.examples[0], 2);
    assert_int_equal(r.examples[1], 3);
}

static void note_order(void *user, const by__worker_job *job)
{
    char *order = user;
    order[strlen(order)] = job->id[0];
}

/* A short job ends before a long one that came first. */
static void test_turns(void **state)
{
    ran r = {.batches = 0};
    char order[3] = "";
    BY_UNUSED(state);
    run_two(&r, false, note_order, order);
    assert_string_equal(order, "ba");
    assert_int_equal(r.examples[0], 100);
    assert_int_equal(r.examples[1], 3);
}

/* ---- preparing ---- */

/* Prepares a request in as many steps as its message says; the first waits until all are given. */
typedef struct preparing {
    uv_sem_t go;
    char steps[64]; /* the id of each, in order */
} preparing;

static by_status prepare(void *user, by__worker_job *job, by_error *error)
{
    preparing *p = user;
    BY_UNUSED(error);
    if (p->steps[0] == '\0') {
        uv_sem_wait(&p->go);
    }
    (void)strncat(p->steps, job->id, 1);
    job->count = (size_t)json_integer_value(json_object_get(job->message, "steps"));
    job->more = ++job->batched < job->count;
    job->rest = 1000 * (job->count - job->batched);
    return BY_OK;
}

/* A request of many images takes turns with others, and each image counts as progress. */
static void test_preparing_in_turn(void **state)
{
    uv_loop_t loop;
    uv_async_t wake;
    by__worker_preparer *preparer;
    by__worker_job *job;
    preparing p = {.steps = ""};
    by_error error = {0};
    char ended[8] = "";
    size_t count;
    uint64_t steps;
    BY_UNUSED(state);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_async_init(&loop, &wake, on_wake), 0);
    assert_int_equal(uv_sem_init(&p.go, 0), 0);
    assert_int_equal(by__worker_preparer_open(&preparer, 8, prepare, &p, &wake, &error), BY_OK);
    for (int i = 0; i < 3; i++) {
        json_t *message = json_pack("{ss si}", "id",
                                    i == 0   ? "a"
                                    : i == 1 ? "b"
                                             : "c",
                                    "steps", i == 0 ? 9 : 2);
        assert_int_equal(by__worker_job_new(&job, message, &error), BY_OK);
        assert_int_equal(by__worker_preparer_submit(preparer, job, &error), BY_OK);
        json_decref(message);
    }
    uv_sem_post(&p.go);
    while (strlen(ended) < 3) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        while ((job = by__worker_preparer_next(preparer)) != NULL) {
            assert_false(job->more);
            (void)strncat(ended, job->id, 1);
            by__worker_job_free(job);
        }
    }
    by__worker_preparer_count(preparer, &count, &steps);
    assert_int_equal(count, 0);
    assert_int_equal(steps, 13);
    assert_int_equal(strlen(p.steps), 13);
    assert_int_equal(ended[2], 'a');
    assert_true(strchr(p.steps, 'c') - p.steps <= 4);
    by__worker_preparer_close(&preparer);
    uv_close((uv_handle_t *)&wake, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    uv_sem_destroy(&p.go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_preparing_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
