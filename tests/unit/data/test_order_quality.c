/* Measures of an order: against sums over all pairs, and known values of sorted, mixed and random
 * orders. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader/order.h"
#include "data/loader/order_quality.h"

#define SAMPLES 240
#define FILES   6
#define CLASSES 4

typedef struct made {
    uint64_t places[SAMPLES];
    uint32_t files[SAMPLES];
    int32_t classes[SAMPLES];
    by__loader_drawn drawn;
} made;

/* Files of 40 examples; the classes are in stretches of 60. */
static void make(made *m, size_t batch, size_t window)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        m->files[i] = (uint32_t)(m->places[i] / 40);
        m->classes[i] = (int32_t)(m->places[i] / 60);
    }
    m->drawn = (by__loader_drawn){.count = SAMPLES,
                                  .places = m->places,
                                  .examples = SAMPLES,
                                  .files = m->files,
                                  .file_count = FILES,
                                  .classes = m->classes,
                                  .class_count = CLASSES,
                                  .batch = batch,
                                  .window = window};
}

/* Half the sum of absolute differences of shares, which is the definition. */
static double distance_of(const made *m, size_t length)
{
    double sum = 0.0;
    for (size_t begin = 0; begin < SAMPLES; begin += length) {
        size_t end = begin + length < SAMPLES ? begin + length : SAMPLES;
        double away = 0.0;
        for (int32_t c = 0; c < CLASSES; c++) {
            double inside = 0.0;
            double all = 0.0;
            for (size_t i = 0; i < SAMPLES; i++) {
                all += m->classes[i] == c;
                inside += i >= begin && i < end && m->classes[i] == c;
            }
            away += fabs(inside / (double)(end - begin) - all / SAMPLES);
        }
        sum += away / 2.0 * (double)(end - begin) / SAMPLES;
    }
    return sum;
}

static void check_definitions(const made *m)
{
    by_order_quality q;
    double same = 0.0;
    double pairs = 0.0;
    double files = 0.0;
    double batches = 0.0;
    double ranks = 0.0;
    size_t batch = (size_t)m->drawn.batch;
    assert_int_equal(by__loader_order_measure(&q, &m->drawn, NULL), BY_OK);
    for (size_t i = 0; i < SAMPLES; i++) {
        bool first = true;
        batches += i % batch == 0;
        for (size_t k = i / batch * batch; k < i; k++) {
            pairs += 1.0;
            same += m->files[i] == m->files[k];
            first = first && m->files[i] != m->files[k];
        }
        files += first;
        ranks += ((double)m->places[i] - (double)i) * ((double)m->places[i] - (double)i);
    }
    double n = SAMPLES;
    assert_true(fabs(q.same_file - same / pairs) < 1e-12);
    assert_true(fabs(q.files_per_batch - files / batches) < 1e-12);
    /* Spearman's formula for a permutation. */
    assert_true(fabs(q.rank_correlation - (1.0 - 6.0 * ranks / (n * (n * n - 1.0)))) < 1e-12);
    assert_true(fabs(q.batch_class_distance - distance_of(m, batch)) < 1e-12);
    if (m->drawn.window > 0) {
        assert_true(fabs(q.window_class_distance - distance_of(m, (size_t)m->drawn.window)) <
                    1e-12);
    } else {
        assert_true(isnan(q.window_class_distance));
    }
}

static void test_definitions(void **state)
{
    made m;
    by__loader_order order;
    by__loader_windows windows;
    (void)state;
    by__loader_order_init(&order, SAMPLES, 3, 1);
    by__loader_windows_init(&windows, SAMPLES, 40, 2, 3, 1);
    for (size_t i = 0; i < SAMPLES; i++) {
        m.places[i] = by__loader_order_at(&order, i);
    }
    make(&m, 16, 0);
    check_definitions(&m);
    make(&m, 7, 100); /* the last batch and window are shorter */
    check_definitions(&m);
    for (size_t i = 0; i < SAMPLES; i++) {
        m.places[i] = by__loader_windows_at(&windows, i);
    }
    make(&m, 16, 80);
    check_definitions(&m);
}

static void test_extremes(void **state)
{
    made m;
    by_order_quality q;
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        m.places[i] = i;
    }
    make(&m, 20, 60);
    assert_int_equal(by__loader_order_measure(&q, &m.drawn, NULL), BY_OK);
    assert_true(q.displacement == 0.0 && fabs(q.rank_correlation - 1.0) < 1e-12);
    assert_true(q.neighbor_correlation > 0.95);
    assert_true(q.same_file == 1.0 && q.files_per_batch == 1.0);
    assert_true(fabs(q.window_class_distance - 0.75) < 1e-12); /* one of four classes */
    for (size_t i = 0; i < SAMPLES; i++) {
        m.places[i] = SAMPLES - 1 - i;
    }
    make(&m, 20, 60);
    assert_int_equal(by__loader_order_measure(&q, &m.drawn, NULL), BY_OK);
    assert_true(fabs(q.rank_correlation + 1.0) < 1e-12 && fabs(q.displacement - 0.5) < 0.01);
    /* Each class and file in turn. */
    for (size_t i = 0; i < SAMPLES; i++) {
        m.places[i] = i % 4 * 60 + i / 4;
    }
    make(&m, 8, 80);
    m.drawn.classes = NULL;
    assert_int_equal(by__loader_order_measure(&q, &m.drawn, NULL), BY_OK);
    assert_true(isnan(q.batch_class_distance) && isnan(q.window_class_distance));
    assert_true(q.files_per_batch >= 4.0 && fabs(q.rank_correlation) < 0.3);
}

/* Windows of one file never mix files, and windows of all files mix them as a full shuffle does. */
static void test_windows_mix(void **state)
{
    made m;
    by_order_quality q[3];
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        by__loader_windows windows;
        by__loader_windows_init(&windows, SAMPLES, 40, k == 0 ? 1 : k == 1 ? 3 : FILES, 9, 0);
        for (size_t i = 0; i < SAMPLES; i++) {
            m.places[i] = by__loader_windows_at(&windows, i);
        }
        make(&m, 20, 0);
        assert_int_equal(by__loader_order_measure(&q[k], &m.drawn, NULL), BY_OK);
    }
    assert_true(q[0].same_file == 1.0 && q[0].files_per_batch == 1.0);
    assert_true(q[1].same_file > 0.25 && q[1].same_file < 0.45); /* of three files: about a third */
    assert_true(q[2].same_file > 0.12 && q[2].same_file < 0.22); /* of six */
    assert_true(q[0].batch_class_distance > q[1].batch_class_distance);
    assert_true(q[1].batch_class_distance > q[2].batch_class_distance);
    assert_true(fabs(q[2].displacement - 1.0 / 3.0) < 0.05);
    assert_true(fabs(q[2].neighbor_correlation) < 0.2 && q[0].neighbor_correlation > 0.7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definitions),
                                       cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_windows_mix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
