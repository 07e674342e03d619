/* How many cores the ranks of a job have together: those that several ranks may use count once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "job/job.h"

/* A rank of `host` with so many threads that may use the cores of the mask. */
static by__job_rank_cores rank_on(int32_t host, int32_t threads, uint32_t mask)
{
    by__job_rank_cores rank = {.host = host, .threads = threads};
    rank.cores.bits[1] = mask;
    return rank;
}

#define CHECK(wanted, ...)                                                                         \
    do {                                                                                           \
        const by__job_rank_cores ranks[] = {__VA_ARGS__};                                          \
        assert_true(fabs(by__job_cores_of_ranks(ranks, BY_ARRAY_LENGTH(ranks)) - (wanted)) <       \
                    1e-12);                                                                        \
    } while (0)

static void test_cores_of_ranks(void **state)
{
    BY_UNUSED(state);
    CHECK(1.0, rank_on(0, 2, 3));
    /* Cores of their own. */
    CHECK(2.0, rank_on(0, 1, 1), rank_on(0, 1, 2));
    /* Two of them may use the same two; a thread each. */
    CHECK(2.0, rank_on(0, 1, 3), rank_on(0, 1, 3));
    /* Four ranks on two cores; two ranks with two threads each on them. */
    CHECK(2.0, rank_on(0, 1, 3), rank_on(0, 1, 3), rank_on(0, 1, 3), rank_on(0, 1, 3));
    CHECK(1.0, rank_on(0, 2, 3), rank_on(0, 2, 3));
    /* More threads than cores: the peak was measured on those. */
    CHECK(1.0, rank_on(0, 4, 3), rank_on(0, 4, 3));
    /* Another host has cores of its own, and perhaps more of them. */
    CHECK(2.0, rank_on(0, 2, 3), rank_on(1, 2, 3));
    CHECK(3.0, rank_on(0, 2, 3), rank_on(1, 4, 15));
    CHECK(2.0, rank_on(0, 2, 3), rank_on(1, 2, 3), rank_on(0, 2, 3), rank_on(1, 2, 3));
    /* Nobody knows. */
    CHECK(3.0, rank_on(0, 1, 0), rank_on(0, 1, 0), rank_on(0, 1, 0));
}

static void test_usable(void **state)
{
    BY_UNUSED(state);
    by__cores cores;
    assert_true(by__cores_usable(&cores));
    assert_in_range(by__cores_count(&cores), 1, by__thread_count(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_of_ranks),
        cmocka_unit_test(test_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
