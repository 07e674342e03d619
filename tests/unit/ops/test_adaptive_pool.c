/* Adaptive pools, which are composed of other ops: against their definition in double precision,
 * against PyTorch's numbers, and their gradients against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "runner.h"

enum { BATCH = 2, MOST = 20 };

/* Images [BATCH, in[0], in[1], channels], pooled to out[0] x out[1]. */
typedef struct pooling {
    int in[2], out[2];
    int channels;
    bool mean;
} pooling;

/* Sizes that divide each other, that do not, that repeat a pattern of windows, with more places
 * in the pattern than a concat has operands, and larger ones; sides that differ in this. */
static const int sizes[][2][2] = {
    {{7, 7}, {7, 7}}, {{7, 7}, {3, 3}},   {{5, 5}, {2, 2}},   {{2, 2}, {5, 5}}, {{6, 6}, {3, 3}},
    {{1, 1}, {1, 1}}, {{1, 1}, {3, 2}},   {{9, 6}, {6, 4}},   {{6, 7}, {3, 3}}, {{5, 6}, {2, 6}},
    {{3, 5}, {6, 1}}, {{20, 1}, {17, 1}}, {{2, 13}, {1, 10}},
};

/* x is a parameter, so that it has a gradient: of the sum of y times dy. */
static by_graph *open_pool(const pooling *p, by_dtype dtype)
{
    static const int axes[4] = {0, 1, 2, 3};
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x =
        by_graph_parameter(graph, "x", NULL, BY_SHAPE(BATCH, p->in[0], p->in[1], p->channels),
                           (by_init){BY_INIT_ZERO, 0.0f});
    by_value dy =
        by_graph_input(graph, "dy", BY_F32, BY_SHAPE(BATCH, p->out[0], p->out[1], p->channels));
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    x = dtype == BY_F32 ? x : by_cast(graph, x, dtype);
    by_value y = p->mean ? by_adaptive_average_pool(graph, x, p->out[0], p->out[1])
                         : by_adaptive_max_pool(graph, x, p->out[0], p->out[1]);
    y = dtype == BY_F32 ? y : by_cast(graph, y, BY_F32);
    by_graph_output(graph, y, "y");
    by_value loss =
        by_reshape(graph, by_sum(graph, by_mul(graph, y, dy), axes, 4, false), BY_SHAPE(1));
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

static size_t place(int width, int channels, int b, int height, int row, int column, int c)
{
    return (size_t)(((b * height + row) * width + column) * channels + c);
}

/* Window i of `windows` has the entries, of `extent`, that lie in [i, i + 1) at least in part when
 * the axis is scaled to that many units. */
static bool covers(int i, int windows, int entry, int extent)
{
    return entry * windows < (i + 1) * extent && (entry + 1) * windows > i * extent;
}

/* Pools one window; adds dy's gradient of it to dx, which may be NULL. */
static double reference_window(const pooling *p, const float *x, const int at[4], double dy,
                               double *dx)
{
    size_t best = 0;
    size_t inside[MOST * MOST];
    int count = 0;
    double sum = 0.0;
    for (int h = 0; h < p->in[0]; h++) {
        for (int w = 0; w < p->in[1]; w++) {
            if (covers(at[1], p->out[0], h, p->in[0]) && covers(at[2], p->out[1], w, p->in[1])) {
                size_t from = place(p->in[1], p->channels, at[0], p->in[0], h, w, at[3]);
                best = count == 0 || x[from] > x[best] ? from : best;
                sum += (double)x[from];
                inside[count++] = from;
            }
        }
    }
    for (int i = 0; i < count && dx != NULL; i++) {
        dx[inside[i]] += p->mean ? dy / count : inside[i] == best ? dy : 0.0;
    }
    return p->mean ? sum / count : (double)x[best];
}

static void reference(const pooling *p, const float *x, const float *dy, double *y, double *dx)
{
    size_t to = 0;
    for (int b = 0; b < BATCH; b++) {
        for (int row = 0; row < p->out[0]; row++) {
            for (int column = 0; column < p->out[1]; column++) {
                for (int c = 0; c < p->channels; c++, to++) {
                    const int at[4] = {b, row, column, c};
                    y[to] = reference_window(p, x, at, (double)dy[to], dx);
                }
            }
        }
    }
}

/* Few values, so that windows have several largest entries. */
static void fill(runner *r)
{
    float *x = runner_data(r, "x");
    runner_fill(r, 3, 1);
    for (size_t i = 0; i < runner_count(r, "x"); i++) {
        x[i] = floorf(8.0f * x[i]) / 4.0f;
    }
    *(float *)runner_data(r, "seed") = 1.0f;
}

/* Within `bound` of the largest number. */
static void check_near(const float *got, const double *want, size_t count, double bound)
{
    double most = 0.0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs(want[i]));
    }
    for (size_t i = 0; i < count; i++) {
        assert_true(fabs((double)got[i] - want[i]) <= bound * most);
    }
}

/* Results and gradients are the definition's, with the same bits for any number of threads. */
static void check_pool(const pooling *p, by_dtype dtype, const char *isa)
{
    /* bf16 rounds to 2^-9: a mean once for each side, gradients once more for windows that
     * share an entry. */
    double bound = dtype == BY_F32 ? 1e-6 : p->mean ? 0x1p-8 : 0.0;
    runner one;
    runner three;
    by_graph *graph = open_pool(p, dtype);
    set_isa(isa);
    runner_open(&one, graph, 1);
    runner_open(&three, graph, 3);
    fill(&one);
    fill(&three);
    runner_run(&one);
    runner_run(&three);
    size_t inputs = runner_count(&one, "x");
    size_t outputs = runner_count(&one, "y");
    double *y = calloc(outputs, sizeof *y);
    double *dx = calloc(inputs, sizeof *dx);
    assert_true(y != NULL && dx != NULL);
    reference(p, runner_data(&one, "x"), runner_data(&one, "dy"), y, dx);
    check_near(runner_data(&one, "y"), y, outputs, bound);
    check_near(runner_data(&one, "grad.x"), dx, inputs, dtype == BY_F32 ? 1e-6 : 2e-2);
    assert_memory_equal(runner_data(&one, "y"), runner_data(&three, "y"), outputs * sizeof(float));
    assert_memory_equal(runner_data(&one, "grad.x"), runner_data(&three, "grad.x"),
                        inputs * sizeof(float));
    free(dx);
    free(y);
    runner_close(&three);
    runner_close(&one);
    by_graph_close(&graph);
}

static void each_pool(void (*check)(const pooling *p))
{
    static const int channels[2] = {1, 19};
    for (size_t i = 0; i < 4 * BY_ARRAY_LENGTH(sizes); i++) {
        const pooling p = {.in = {sizes[i / 4][0][0], sizes[i / 4][0][1]},
                           .out = {sizes[i / 4][1][0], sizes[i / 4][1][1]},
                           .channels = channels[i % 2],
                           .mean = i / 2 % 2 == 0};
        check(&p);
    }
}

static void check_levels(const pooling *p)
{
    check_pool(p, BY_F32, "reference");
    check_pool(p, BY_F32, "native");
    check_pool(p, BY_BF16, "reference");
    check_pool(p, BY_BF16, "native");
}

static void test_definition(void **state)
{
    BY_UNUSED(state);
    each_pool(check_levels);
    set_isa("native");
}

static double loss_of(const runner *r)
{
    const float *y = runner_data(r, "y");
    const float *dy = runner_data(r, "dy");
    double sum = 0.0;
    for (size_t i = 0; i < runner_count(r, "y"); i++) {
        sum += (double)y[i] * (double)dy[i];
    }
    return sum;
}

/* The loss is linear between points where another entry becomes the largest, so that a difference
 * is as exact as f32: entries of an image and channel are 2^-4 apart, and the step is 2^-6. */
static void check_differences(const pooling *p)
{
    static const float step = 0x1p-6f;
    runner r;
    by_graph *graph = open_pool(p, BY_F32);
    runner_open(&r, graph, 1);
    fill(&r);
    float *x = runner_data(&r, "x");
    int pixels = p->in[0] * p->in[1];
    size_t count = runner_count(&r, "x");
    for (size_t i = 0; i < count; i++) {
        int pixel = (int)i / p->channels % pixels;
        int channel = (int)i % p->channels;
        x[i] = (float)((pixel * 101 + channel) % pixels) / 16.0f; /* 101 is prime */
    }
    runner_run(&r);
    float *gradient = malloc(count * sizeof *gradient);
    assert_non_null(gradient);
    memcpy(gradient, runner_data(&r, "grad.x"), count * sizeof *gradient);
    for (size_t i = 0; i < count; i += 1 + count / 40) {
        float middle = x[i];
        x[i] = middle + step;
        runner_run(&r);
        double above = loss_of(&r);
        x[i] = middle - step;
        runner_run(&r);
        double below = loss_of(&r);
        x[i] = middle;
        assert_true(fabs((above - below) / (2.0 * (double)step) - (double)gradient[i]) < 1e-4);
    }
    free(gradient);
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_finite_differences(void **state)
{
    BY_UNUSED(state);
    each_pool(check_differences);
}

/* What PyTorch 2.15 computes for both images of a batch, of x[i] = 13 i mod H W and dy[i] = i + 1.
 */
static void check_numbers(const pooling *p, const double *y, const double *dx)
{
    runner r;
    by_graph *graph = open_pool(p, BY_F32);
    runner_open(&r, graph, 1);
    fill(&r);
    size_t inputs = runner_count(&r, "x") / BATCH;
    size_t outputs = runner_count(&r, "y") / BATCH;
    for (size_t i = 0; i < BATCH * inputs; i++) {
        ((float *)runner_data(&r, "x"))[i] = (float)(i % inputs * 13 % inputs);
    }
    for (size_t i = 0; i < BATCH * outputs; i++) {
        ((float *)runner_data(&r, "dy"))[i] = (float)(i % outputs + 1);
    }
    runner_run(&r);
    for (size_t b = 0; b < BATCH; b++) {
        check_near((float *)runner_data(&r, "y") + b * outputs, y, outputs, 1e-6);
        check_near((float *)runner_data(&r, "grad.x") + b * inputs, dx, inputs, 1e-6);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_numbers_of_pytorch(void **state)
{
    static const double mean_y[6] = {18.444444, 17.222222, 16.0, 17.666667, 20.333333, 15.222222};
    static const double mean_dx[35] = {
        0.111111, 0.111111, 0.333333, 0.222222, 0.555556, 0.333333, 0.333333, 0.111111, 0.111111,
        0.333333, 0.222222, 0.555556, 0.333333, 0.333333, 0.555556, 0.555556, 1.333333, 0.777778,
        1.777778, 1.0,      1.0,      0.444444, 0.444444, 1.0,      0.555556, 1.222222, 0.666667,
        0.666667, 0.444444, 0.444444, 1.0,      0.555556, 1.222222, 0.666667, 0.666667};
    static const double most_y[15] = {3, 9, 9, 3, 9, 9, 8, 9, 9, 8, 8, 7, 8, 8, 7};
    static const double most_dx[10] = {0, 5, 0, 33, 0, 0, 55, 0, 0, 27};
    BY_UNUSED(state);
    check_numbers(&(pooling){{5, 7}, {2, 3}, 1, true}, mean_y, mean_dx);
    check_numbers(&(pooling){{2, 5}, {5, 3}, 1, false}, most_y, most_dx);
}

/* Where both sides are divided evenly, the graph is that of the pool with this window. */
static void test_equal_windows_are_one_pool(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(1, 6, 8, 3));
    (void)by_adaptive_average_pool(graph, x, 3, 2);
    assert_int_equal(graph->node_count, 1);
    assert_int_equal(graph->nodes[0].op, BY_OP_POOL);
    assert_true(graph->nodes[0].attrs.mean);
    assert_int_equal(graph->nodes[0].attrs.sliding.size[1], 4);
    by_graph_close(&graph);
}

static void expect_refusal(by_shape shape, int64_t height, const char *text)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, shape);
    assert_int_equal(by_adaptive_max_pool(graph, x, height, 2), BY_NONE);
    check_error(by_graph_check(graph, &error), BY_EARG, &error, text);
    by_graph_close(&graph);
}

static void test_refusals(void **state)
{
    by_error error = {0};
    BY_UNUSED(state);
    expect_refusal(BY_SHAPE(1, 5, 7), 2, "x is [1, 5, 7], the result 2 x 2");
    expect_refusal(BY_SHAPE(1, 5, 7, 3), 0, "x is [1, 5, 7, 3], the result 0 x 2");
    expect_refusal(BY_SHAPE(1, 5, 7, 3), INT64_MAX, "from 1 x 1 to 4096 x 4096");
    by_graph *graph = open_graph();
    by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(1, 5, 7, 3));
    assert_int_equal(by_adaptive_average_pool(graph, ids, 2, 3), BY_NONE);
    check_error(by_graph_check(graph, &error), BY_EARG, &error, "must be f32, bf16 or f16");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_numbers_of_pytorch),
        cmocka_unit_test(test_equal_windows_are_one_pool),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
