/* The order of samples: a bijection for every size, different by epoch and seed, without a bias
 * that a chi-square test sees, and the same values for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "data/loader/order.h"

static void check_bijection(uint64_t count, uint64_t seed, uint64_t epoch)
{
    by__loader_order order;
    uint8_t *seen = calloc(count, 1);
    assert_non_null(seen);
    by__loader_order_init(&order, count, seed, epoch);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = by__loader_order_at(&order, i);
        assert_true(at < count);
        assert_int_equal(seen[at], 0);
        seen[at] = 1;
    }
    free(seen);
}

static void test_bijection(void **state)
{
    BY_UNUSED(state);
    for (uint64_t count = 1; count <= 20; count++) {
        check_bijection(count, 1337, count);
    }
    static const uint64_t counts[] = {100,   255,   256,    257,    1000,   4095,   65535,
                                      65536, 65537, 131071, 262143, 262144, 262145, 1000003};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(counts); i++) {
        check_bijection(counts[i], i, 3 * i);
    }
}

static void test_large_counts(void **state)
{
    BY_UNUSED(state);
    static const uint64_t counts[] = {(uint64_t)1 << 32, ((uint64_t)1 << 40) + 7,
                                      ((uint64_t)1 << 62) + 1, UINT64_MAX};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(counts); k++) {
        by__loader_order order;
        uint64_t seen[64];
        by__loader_order_init(&order, counts[k], 5, 0);
        for (uint64_t i = 0; i < 64; i++) {
            seen[i] = by__loader_order_at(&order, i);
            assert_true(seen[i] < counts[k]);
            for (uint64_t j = 0; j < i; j++) {
                assert_true(seen[i] != seen[j]);
            }
        }
    }
}

static void test_epochs_and_seeds_differ(void **state)
{
    BY_UNUSED(state);
    by__loader_order a;
    by__loader_order b;
    by__loader_order c;
    size_t same_epoch = 0;
    size_t same_seed = 0;
    size_t fixed = 0;
    by__loader_order_init(&a, 10000, 1, 0);
    by__loader_order_init(&b, 10000, 1, 1);
    by__loader_order_init(&c, 10000, 2, 0);
    for (uint64_t i = 0; i < 10000; i++) {
        same_epoch += by__loader_order_at(&a, i) == by__loader_order_at(&b, i);
        same_seed += by__loader_order_at(&a, i) == by__loader_order_at(&c, i);
        fixed += by__loader_order_at(&a, i) == i;
    }
    /* One each is expected, Poisson: 12 or more has a probability below 1e-9. */
    assert_true(same_epoch < 12);
    assert_true(same_seed < 12);
    assert_true(fixed < 12);
}

/* Chi-square of observed counts against equal ones. */
static double chi_square(const uint32_t *counts, size_t bins, double expected)
{
    double sum = 0;
    for (size_t i = 0; i < bins; i++) {
        double difference = (double)counts[i] - expected;
        sum += difference * difference / expected;
    }
    return sum;
}

/* All 24 orders of 4 samples are equally likely over epochs. 23 degrees of freedom: above 70 with
 * probability 1e-6. */
static void test_all_orders_of_four(void **state)
{
    BY_UNUSED(state);
    uint32_t counts[256] = {0};
    uint32_t orders[24];
    size_t found = 0;
    for (uint64_t epoch = 0; epoch < 240; epoch++) {
        by__loader_order order;
        size_t code = 0;
        by__loader_order_init(&order, 4, 42, epoch);
        for (uint64_t i = 0; i < 4; i++) {
            code = code * 4 + by__loader_order_at(&order, i);
        }
        counts[code]++;
    }
    for (size_t i = 0; i < 256; i++) {
        if (counts[i] > 0) {
            assert_true(found < 24);
            orders[found++] = counts[i];
        }
    }
    assert_int_equal(found, 24);
    assert_true(chi_square(orders, 24, 10.0) < 70.0);
}

/* Where neighbours land relative to each other: the step between them falls equally into 64 bins.
 * 63 degrees of freedom: above 130 with probability 1e-6. */
static void test_steps_are_uniform(void **state)
{
    BY_UNUSED(state);
    const uint64_t count = 70000; /* just over a power of four: the most cycle walking */
    uint32_t steps[64] = {0};
    uint32_t places[64] = {0};
    by__loader_order order;
    by__loader_order_init(&order, count, 7, 9);
    uint64_t last = by__loader_order_at(&order, 0);
    for (uint64_t i = 1; i <= 64000; i++) {
        uint64_t at = by__loader_order_at(&order, i);
        steps[(at + count - last) % count * 64 / count]++;
        places[i <= 6400 ? at * 64 / count : 0] += i <= 6400;
        last = at;
    }
    assert_true(chi_square(steps, 64, 1000.0) < 130.0);
    assert_true(chi_square(places, 64, 100.0) < 130.0);
}

static void test_phase(void **state)
{
    BY_UNUSED(state);
    uint32_t counts[16] = {0};
    for (uint64_t epoch = 0; epoch < 16000; epoch++) {
        assert_true(by__loader_order_phase(1, 3, epoch) == 0);
        uint64_t phase = by__loader_order_phase(16, 3, epoch);
        assert_true(phase < 16);
        counts[phase]++;
    }
    assert_true(chi_square(counts, 16, 1000.0) < 58.0); /* 15 degrees, probability 1e-6 */
}

/* A checkpoint names a place in this order, so the order is part of the format. */
static void test_values_never_change(void **state)
{
    BY_UNUSED(state);
    static const uint64_t expected[] = {51305, 81293, 29346, 4550, 97964, 69080, 15766, 56448};
    by__loader_order order;
    by__loader_order_init(&order, 100000, 1337, 2);
    for (uint64_t i = 0; i < BY_ARRAY_LENGTH(expected); i++) {
        assert_int_equal(by__loader_order_at(&order, i), expected[i]);
    }
    assert_int_equal(by__loader_order_phase(1024, 1337, 2), 249);
}

/* ---- windows ---- */

/* A bijection, of whose stretches no more blocks are in use than a window has. */
static void check_windows(uint64_t count, uint64_t block, uint64_t window)
{
    by__loader_windows order;
    by__loader_windows again;
    uint8_t *seen = calloc(count, 1);
    uint64_t blocks = count / block;
    assert_non_null(seen);
    by__loader_windows_init(&order, count, block, window, 11, 2);
    by__loader_windows_init(&again, count, block, window, 11, 2);
    uint64_t begin = 0;
    while (begin < count) {
        uint64_t in_use[128] = {0};
        uint64_t used = 0;
        uint64_t end = begin + block * window < count ? begin + block * window : count;
        end = begin / (block * window) + 1 >= (blocks + window - 1) / window ? count : end;
        for (uint64_t i = begin; i < end; i++) {
            uint64_t at = by__loader_windows_at(&order, i);
            assert_true(at < count);
            assert_int_equal(seen[at], 0);
            seen[at] = 1;
            uint64_t k = 0;
            while (k < used && in_use[k] != at / block) {
                k++;
            }
            if (k == used) {
                in_use[used++] = at / block;
            }
        }
        assert_true(used <= window + 1); /* with what is left behind the last block */
        begin = end;
    }
    /* By position alone, from wherever it is asked. */
    for (uint64_t i = count; i > 0; i -= i < 7 ? i : 7) {
        by__loader_windows other = again;
        uint64_t at = by__loader_windows_at(&again, i - 1);
        assert_int_equal(by__loader_windows_at(&order, i - 1), at);
        assert_int_equal(by__loader_windows_at(&other, i - 1), at);
    }
    free(seen);
}

static void test_windows(void **state)
{
    static const uint64_t cases[][3] = {{1, 1, 1},       {5, 7, 3},     {1000, 10, 4},
                                        {1000, 10, 100}, {1003, 10, 4}, {1003, 10, 7},
                                        {4096, 64, 16},  {999, 1, 8}};
    by__loader_windows a;
    by__loader_windows b;
    size_t same = 0;
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        check_windows(cases[i][0], cases[i][1], cases[i][2]);
    }
    /* Windows and epochs have orders of their own. */
    by__loader_windows_init(&a, 10000, 100, 10, 1, 0);
    by__loader_windows_init(&b, 10000, 100, 10, 1, 1);
    for (uint64_t i = 0; i < 10000; i++) {
        same += by__loader_windows_at(&a, i) == by__loader_windows_at(&b, i);
    }
    assert_true(same < 12);
    same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same += by__loader_windows_at(&a, i) % 100 == by__loader_windows_at(&b, i + 1000) % 100;
    }
    assert_true(same < 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bijection),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_epochs_and_seeds_differ),
        cmocka_unit_test(test_all_orders_of_four),
        cmocka_unit_test(test_steps_are_uniform),
        cmocka_unit_test(test_phase),
        cmocka_unit_test(test_values_never_change),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
