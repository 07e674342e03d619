/* Batch norm against its formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "runner.h"

enum { ROWS = 37, WIDTH = 19 };
static const float eps = 1e-3f;

/* What is compared. */
typedef struct variant {
    bool fixed; /* with given statistics */
    bool added; /* with a tensor that is added */
    bool rectify;
    float limit;
} variant;

/* y, and the loss sum(y c), of rows x with their own statistics or with given ones. */
static by_graph *make_graph(const variant *v)
{
    static const int axes[] = {0, 1};
    by_value mean;
    by_value variance;
    by_error error = {0};
    by_graph *g = open_graph();
    by_value x = by_graph_parameter(g, "x", "", BY_SHAPE(ROWS, WIDTH), (by_init){0});
    by_value weight = by_graph_parameter(g, "weight", "", BY_SHAPE(WIDTH), (by_init){0});
    by_value bias = by_graph_parameter(g, "bias", "", BY_SHAPE(WIDTH), (by_init){0});
    by_value c = by_graph_input(g, "c", BY_F32, BY_SHAPE(ROWS, WIDTH));
    by_norm_end end = {BY_NONE, v->rectify, v->limit};
    if (v->added) {
        end.add = by_graph_parameter(g, "add", "", BY_SHAPE(ROWS, WIDTH), (by_init){0});
    }
    by_value y;
    if (v->fixed) {
        mean = by_graph_input(g, "mean", BY_F32, BY_SHAPE(WIDTH));
        variance = by_graph_input(g, "variance", BY_F32, BY_SHAPE(WIDTH));
        y = by_batch_norm_fixed(g, x, mean, variance, weight, bias, eps, &end);
    } else {
        y = by_batch_norm(g, x, weight, bias, eps, &end, &mean, &variance);
        by_graph_output(g, mean, "mean");
        by_graph_output(g, variance, "variance");
    }
    by_value loss = by_reshape(g, by_sum(g, by_mul(g, y, c), axes, 2, false), BY_SHAPE(1));
    by_graph_output(g, y, "y");
    by_graph_output(g, loss, "loss");
    by_value seed = by_graph_input(g, "seed", BY_F32, BY_SHAPE(1));
    check_ok(by_pass_gradients(g, loss, seed, &error), &error);
    check_ok(by_graph_verify(g, &error), &error);
    return g;
}

static double at(const runner *r, const char *name, size_t row, size_t column)
{
    return (double)((const float *)runner_data(r, name))[row * WIDTH + column];
}

static void near(double have, double want, double bound)
{
    if (!(fabs(have - want) <= bound * (1.0 + fabs(want)))) {
        fail_msg("%.9g instead of %.9g", have, want);
    }
}

/* Statistics of a column: its mean and its variance with divisor ROWS. */
static void statistics_of(const runner *r, size_t column, double *mean, double *variance)
{
    *mean = *variance = 0.0;
    for (size_t i = 0; i < ROWS; i++) {
        *mean += at(r, "x", i, column) / ROWS;
    }
    for (size_t i = 0; i < ROWS; i++) {
        double d = at(r, "x", i, column) - *mean;
        *variance += d * d / ROWS;
    }
}

/* Of row i of a column: its sum before the rectifier, and what the rectifier makes of it and lets
 * through. */
static double sum_at(const runner *r, const variant *v, size_t i, size_t column, double normal)
{
    double z = at(r, "weight", 0, column) * normal + at(r, "bias", 0, column);
    return z + (v->added ? at(r, "add", i, column) : 0.0);
}

static double rectified(const variant *v, double z)
{
    double y = v->rectify && z < 0.0 ? 0.0 : z;
    return v->limit > 0.0f && y > (double)v->limit ? (double)v->limit : y;
}

static double through(const runner *r, const variant *v, size_t i, size_t column, double z)
{
    bool passes = !v->rectify || (z > 0.0 && rectified(v, z) == z);
    return passes ? at(r, "c", i, column) : 0.0;
}

/* The gradients of a column (Ioffe and Szegedy 2015, section 3), without the terms of mean and
 * variance if they are given. */
static void compare_column(const runner *r, size_t column, const variant *v, double mean,
                           double variance)
{
    double rstd = 1.0 / sqrt(variance + (double)eps);
    double w = at(r, "weight", 0, column);
    double sum = 0.0;
    double scaled = 0.0;
    for (size_t i = 0; i < ROWS; i++) {
        double normal = (at(r, "x", i, column) - mean) * rstd;
        double z = sum_at(r, v, i, column, normal);
        near(at(r, "y", i, column), rectified(v, z), 1e-5);
        sum += through(r, v, i, column, z);
        scaled += through(r, v, i, column, z) * normal;
    }
    near(at(r, "grad.bias", 0, column), sum, 1e-5);
    near(at(r, "grad.weight", 0, column), scaled, 1e-5);
    for (size_t i = 0; i < ROWS; i++) {
        double normal = (at(r, "x", i, column) - mean) * rstd;
        double g = through(r, v, i, column, sum_at(r, v, i, column, normal));
        double moved = v->fixed ? 0.0 : (sum + normal * scaled) / ROWS;
        near(at(r, "grad.x", i, column), w * rstd * (g - moved), 1e-5);
        if (v->added) {
            near(at(r, "grad.add", i, column), g, 1e-6);
        }
    }
}

static void compare(const variant *v)
{
    runner r;
    by_graph *g = make_graph(v);
    runner_open(&r, g, 2);
    runner_fill(&r, 11, 0);
    *(float *)runner_data(&r, "seed") = 1.0f;
    for (size_t k = 0; k < WIDTH && v->fixed; k++) {
        ((float *)runner_data(&r, "variance"))[k] = 0.5f + (float)k;
    }
    for (size_t i = 0; i < ROWS; i++) { /* a column without variance, and one with a large mean */
        ((float *)runner_data(&r, "x"))[i * WIDTH + 3] = 0.25f;
        ((float *)runner_data(&r, "x"))[i * WIDTH + 5] += 20.0f;
    }
    runner_run(&r);
    for (size_t k = 0; k < WIDTH; k++) {
        double mean;
        double variance;
        if (v->fixed) {
            mean = at(&r, "mean", 0, k);
            variance = at(&r, "variance", 0, k);
        } else {
            statistics_of(&r, k, &mean, &variance);
            near(at(&r, "mean", 0, k), mean, 1e-6);
            near(at(&r, "variance", 0, k), variance * ROWS / (ROWS - 1), 1e-5);
        }
        compare_column(&r, k, v, mean, variance);
    }
    runner_close(&r);
    by_graph_close(&g);
}

static void compare_all(bool fixed)
{
    static const struct {
        bool rectify;
        float limit;
    } ends[] = {{false, 0.0f}, {true, 0.0f}, {true, 0.75f}};
    for (size_t i = 0; i < 2 * BY_ARRAY_LENGTH(ends); i++) {
        const variant v = {fixed, i % 2 != 0, ends[i / 2].rectify, ends[i / 2].limit};
        compare(&v);
    }
}

static void test_own_statistics(void **state)
{
    BY_UNUSED(state);
    compare_all(false);
}

/* One row has no variance: running statistics would be NaN. */
static void test_one_row(void **state)
{
    by_value mean;
    by_value variance;
    by_error error = {0};
    by_graph *g = open_graph();
    by_value x = by_graph_parameter(g, "x", "", BY_SHAPE(1, 1, 1, WIDTH), (by_init){0});
    by_value weight = by_graph_parameter(g, "weight", "", BY_SHAPE(WIDTH), (by_init){0});
    by_value bias = by_graph_parameter(g, "bias", "", BY_SHAPE(WIDTH), (by_init){0});
    (void)state;
    assert_int_equal(by_batch_norm(g, x, weight, bias, eps, NULL, &mean, &variance), BY_NONE);
    assert_int_not_equal(by_graph_verify(g, &error), BY_OK);
    if (strstr(error.message, "raise train.micro_batch") == NULL) {
        fail_msg("%s", error.message);
    }
    by_graph_close(&g);
}

static void test_given_statistics(void **state)
{
    BY_UNUSED(state);
    compare_all(true);
}

/* What can be declared and published, and what is refused by name. */
static void test_statistics(void **state)
{
    static const struct {
        int64_t width;
        bool statistic;
        const char *message;
    } rows[] = {{WIDTH, false, "wanted are a statistic and an f32 value of its shape"},
                {WIDTH + 1, true, "wanted are a statistic and an f32 value of its shape"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        by_graph *g = open_graph();
        by_shape shape = BY_SHAPE(WIDTH);
        by_value s = rows[i].statistic ? by_graph_statistic(g, "s", "", shape, (by_init){0})
                                       : by_graph_parameter(g, "s", "", shape, (by_init){0});
        by_graph_increment(g, s, by_fill(g, BY_F32, BY_SHAPE(rows[i].width), 1.0f));
        check_error(by_graph_check(g, &error), BY_EARG, &error, rows[i].message);
        by_graph_close(&g);
    }
    by_error error = {0};
    by_graph *g = open_graph();
    (void)by_graph_statistic(g, "matrix", "", BY_SHAPE(2, 2), (by_init){0});
    check_error(by_graph_check(g, &error), BY_EARG, &error, "its shape must have one axis");
    by_graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_statistics),
        cmocka_unit_test(test_given_statistics),
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
