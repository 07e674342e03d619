/* Tasks divided among threads: each is taken once, one's own come first, and none is left
 * behind. */
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "device/cpu/work_range.h"

enum { TEAM = 4, TASKS = 1003 };

static void test_one_takes_all(void **state)
{
    BY_UNUSED(state);
    by__cpu_work_range ranges[TEAM];
    for (int me = 0; me < TEAM; me++) {
        by__work_range_open(ranges, TASKS, me, TEAM);
    }
    /* Thread 1 alone: its own part in order, then those of 2, 3 and 0. */
    for (int part = 0; part < TEAM; part++) {
        int64_t owner = (1 + part) % TEAM;
        for (int64_t task = TASKS * owner / TEAM; task < TASKS * (owner + 1) / TEAM; task++) {
            assert_int_equal(by__work_range_claim(ranges, 1, TEAM), task);
        }
    }
    for (int me = 0; me < TEAM; me++) {
        assert_int_equal(by__work_range_claim(ranges, me, TEAM), -1);
    }
}

/* Half of what is left, at most so many, first of the own part and then of the others'. */
static void test_some_at_a_time(void **state)
{
    BY_UNUSED(state);
    static const int64_t expected[][2] = {{0, 8},  {8, 8},  {16, 8}, {24, 4}, {28, 2},
                                          {30, 1}, {31, 1}, {32, 8}, {40, 8}, {48, 8},
                                          {56, 4}, {60, 2}, {62, 1}, {63, 1}};
    by__cpu_work_range ranges[2];
    int64_t count = 0;
    by__work_range_open(ranges, 64, 0, 2);
    by__work_range_open(ranges, 64, 1, 2);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(expected); i++) {
        assert_int_equal(by__work_range_claim_some(ranges, 0, 2, 8, &count), expected[i][0]);
        assert_int_equal(count, expected[i][1]);
    }
    assert_int_equal(by__work_range_claim_some(ranges, 0, 2, 8, &count), -1);
}

static void test_fewer_tasks_than_threads(void **state)
{
    BY_UNUSED(state);
    by__cpu_work_range ranges[TEAM];
    int taken[2] = {0, 0};
    for (int me = 0; me < TEAM; me++) {
        by__work_range_open(ranges, 2, me, TEAM);
    }
    for (int me = 0; me < TEAM; me++) {
        int64_t task = by__work_range_claim(ranges, me, TEAM);
        if (task >= 0) {
            taken[task]++;
        }
    }
    assert_true(taken[0] == 1 && taken[1] == 1);
}

/* All threads at once, over and over: every task is taken exactly once a round. */
static void test_threads(void **state)
{
    BY_UNUSED(state);
    by__cpu_work_range ranges[TEAM];
    unsigned char taken[TASKS] = {0};
    int wrong = 0;
#pragma omp parallel num_threads(TEAM)
    {
        int me = omp_get_thread_num();
        int team = omp_get_num_threads();
        for (int round = 1; round <= 50; round++) {
            by__work_range_open(ranges, TASKS, me, team);
#pragma omp barrier
            int64_t task;
            int64_t count;
            int64_t most = round % 2 == 0 ? 1 : 16;
            while ((task = by__work_range_claim_some(ranges, me, team, most, &count)) >= 0) {
                for (int64_t i = 0; i < count; i++) {
                    taken[task + i]++;
                }
            }
#pragma omp barrier
#pragma omp single
            for (int i = 0; i < TASKS; i++) {
                wrong += taken[i] != round;
            }
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_takes_all),
        cmocka_unit_test(test_some_at_a_time),
        cmocka_unit_test(test_fewer_tasks_than_threads),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
