/* Threads that share one piece of work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/threads.h"

#define PARTS 6

typedef struct parts {
    int done[PARTS];
    size_t fails_from;
} parts;

static by_status work(void *context, size_t i, by_error *error)
{
    parts *p = context;
    p->done[i]++;
    return i < p->fails_from ? BY_OK : by_error_set(error, BY_EIO, "part %zu", i);
}

static void check(void)
{
    by_error error = {0};
    parts p = {.fails_from = PARTS};
    assert_int_equal(by__threads_run(PARTS, work, &p, &error), BY_OK);
    for (size_t i = 0; i < PARTS; i++) {
        assert_int_equal(p.done[i], 1);
    }
    p = (parts){.fails_from = 3};
    assert_int_equal(by__threads_run(PARTS, work, &p, &error), BY_EIO);
    assert_string_equal(error.message, "part 3");
}

static void test_every_part_once(void **state)
{
    BY_UNUSED(state);
    check();
}

/* A stack larger than the address space: no thread can be started. */
static void test_no_thread_can_be_started(void **state)
{
    BY_UNUSED(state);
    pthread_attr_t normal;
    pthread_attr_t huge;
    assert_int_equal(pthread_getattr_default_np(&normal), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 48), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    check();
    assert_int_equal(pthread_setattr_default_np(&normal), 0);
    (void)pthread_attr_destroy(&huge);
    (void)pthread_attr_destroy(&normal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_part_once),
                                       cmocka_unit_test(test_no_thread_can_be_started)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
