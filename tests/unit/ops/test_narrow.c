/* Activations kept as codes of 8 bits: what they may be off by, and what the gradients that are
 * made of them may. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/passes.h"
#include "ops/ops.h"
#include "rank_job.h"
#include "runner.h"

#define ROWS    40
#define COLUMNS 300 /* three blocks, the last one shorter */
#define OUTPUTS 20

/* Codes and back: x, y = decode(encode(x)). */
static void open_codes(runner *r, by_dtype dtype)
{
    by_graph *graph = open_graph();
    by_value scale;
    by_value x = by_graph_input(graph, "x", dtype, BY_SHAPE(ROWS, COLUMNS));
    by_value codes = by__op_build_encode8(graph, x, &scale);
    by_graph_output(graph, codes, "codes");
    by_graph_output(graph, scale, "scale");
    by_graph_output(graph, by__op_build_decode8(graph, codes, scale, dtype), "y");
    runner_open(r, graph, 1);
}

static void close_codes(runner *r)
{
    by_graph *graph = r->graph;
    runner_close(r);
    by_graph_close(&graph);
}

/* The largest magnitude of the block of element i. */
static double largest_of(const void *x, by_dtype dtype, size_t i)
{
    size_t column = i % COLUMNS / BY_ROW_CODE_BLOCK * BY_ROW_CODE_BLOCK;
    double largest = 0.0;
    for (size_t k = column; k < COLUMNS && k < column + BY_ROW_CODE_BLOCK; k++) {
        largest = fmax(largest, fabs(get_element(x, dtype, i / COLUMNS * COLUMNS + k)));
    }
    return largest;
}

/* At most 1/254 of the largest of a block, and the rounding of a format; the largest itself, and
 * zeros, are kept. */
static void test_codes(void **state)
{
    BY_UNUSED(state);
    static const by_dtype dtypes[] = {BY_F32, BY_BF16};
    static const double epsilon[] = {0x1p-22, 0x1p-8};
    for (size_t d = 0; d < BY_ARRAY_LENGTH(dtypes); d++) {
        runner r;
        open_codes(&r, dtypes[d]);
        runner_fill(&r, 5, 1);
        void *x = runner_data(&r, "x");
        const void *y = runner_data(&r, "y");
        for (size_t i = 0; i < COLUMNS; i++) {
            set_element(x, dtypes[d], i, 0.0);
        }
        runner_run(&r);
        for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
            double was = get_element(x, dtypes[d], i);
            double is = get_element(y, dtypes[d], i);
            double largest = largest_of(x, dtypes[d], i);
            double apart = largest / 254.0 + epsilon[d] * fabs(was);
            if (fabs(is - was) > apart * 1.000001 || (was == 0.0 && is != 0.0) ||
                (fabs(was) == largest && fabs(is - was) > epsilon[d] * largest)) {
                fail_msg("%s: %g became %g", by_dtype_name(dtypes[d]), was, is);
            }
        }
        close_codes(&r);
    }
}

/* What is not finite stays visible, in its block alone; magnitudes whose quotients would overflow
 * are zeros. */
static void test_ends(void **state)
{
    BY_UNUSED(state);
    static const char *const levels[] = {"reference", "baseline", "avx2", "native"};
    static const double ends[] = {NAN, INFINITY, -INFINITY};
    for (size_t level = 0; level < BY_ARRAY_LENGTH(levels); level++) {
        runner r;
        set_isa(levels[level]);
        open_codes(&r, BY_F32);
        float *x = runner_data(&r, "x");
        const float *y = runner_data(&r, "y");
        for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
            x[i] = i < COLUMNS ? 1e-37f : 3e38f; /* the first row's are below 2^-118 */
        }
        for (size_t k = 0; k < BY_ARRAY_LENGTH(ends); k++) {
            x[(k + 1) * COLUMNS + 129] = (float)ends[k];
        }
        runner_run(&r);
        for (size_t i = 0; i < (size_t)4 * COLUMNS; i++) {
            bool spoiled = i >= COLUMNS && i % COLUMNS / BY_ROW_CODE_BLOCK == 1;
            bool kept = i < COLUMNS ? y[i] == 0.0f : fabsf(y[i] - 3e38f) < 1e33f;
            assert_true(spoiled ? !isfinite(y[i]) : kept);
        }
        close_codes(&r);
    }
    set_isa("native");
}

/* loss = sum of (tanh(x v) w - t)^2. The gradient of w is h^T d with h = tanh(x v): kept in 8 bits,
 * each element is off by at most the sum over rows of |d| times 1/254 of the largest of the block
 * of h. */
static by_graph *open_product(by_dtype format)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(ROWS, 8));
    by_value t = by_graph_input(graph, "t", BY_F32, BY_SHAPE(ROWS, OUTPUTS));
    by_value v = by_graph_parameter(graph, "v", NULL, BY_SHAPE(8, COLUMNS), (by_init){0});
    by_value w = by_graph_parameter(graph, "w", NULL, BY_SHAPE(COLUMNS, OUTPUTS), (by_init){0});
    by_value h = by_unary(graph, by_linear(graph, x, v, BY_NONE, false), BY_FN_TANH);
    by_value y = by_linear(graph, h, w, BY_NONE, false);
    by_value loss = by_squared_error(graph, y, t, BY_NONE);
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_graph_output(graph, loss, "loss");
    by_graph_output(graph, y, "y");
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_pass_narrow(graph, format, &error), &error);
    return graph;
}

/* tanh(x v), for which the graph has no output: that would be kept as it is. */
static float *make_h(const runner *r)
{
    const float *x = runner_data(r, "x");
    const float *v = runner_data(r, "v");
    float *h = malloc((size_t)ROWS * COLUMNS * sizeof *h);
    assert_non_null(h);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        double sum = 0.0;
        for (size_t k = 0; k < 8; k++) {
            sum += (double)x[i / COLUMNS * 8 + k] * (double)v[k * COLUMNS + i % COLUMNS];
        }
        h[i] = (float)tanh(sum);
    }
    return h;
}

static void test_gradient(void **state)
{
    BY_UNUSED(state);
    runner runs[2];
    by_graph *graphs[2] = {open_product(BY_F32), open_product(BY_U8)};
    for (int k = 0; k < 2; k++) {
        runner_open(&runs[k], graphs[k], 1);
        runner_fill(&runs[k], 3, 1);
        *(float *)runner_data(&runs[k], "seed") = 1.0f;
        runner_run(&runs[k]);
    }
    float *h = make_h(&runs[0]);
    const float *y = runner_data(&runs[0], "y");
    const float *t = runner_data(&runs[0], "t");
    const float *exact = runner_data(&runs[0], "grad.w");
    const float *coded = runner_data(&runs[1], "grad.w");
    double worst = 0.0;
    assert_true(*(float *)runner_data(&runs[0], "loss") == *(float *)runner_data(&runs[1], "loss"));
    for (size_t i = 0; i < COLUMNS; i++) {
        for (size_t j = 0; j < OUTPUTS; j++) {
            double bound = 1e-5;
            for (size_t row = 0; row < ROWS; row++) {
                double d = 2.0 * fabs((double)y[row * OUTPUTS + j] - (double)t[row * OUTPUTS + j]);
                bound += d * largest_of(h, BY_F32, row * COLUMNS + i) / 254.0;
            }
            double apart = fabs((double)coded[i * OUTPUTS + j] - (double)exact[i * OUTPUTS + j]);
            worst = fmax(worst, apart / bound);
        }
    }
    print_message("the gradient is off by %.2f of its bound\n", worst);
    assert_true(worst > 0.0 && worst <= 1.0);
    /* Rows of 300 elements make errors that cancel: in all less than 1 %. */
    assert_true(relative_distance(coded, exact, (size_t)COLUMNS * OUTPUTS) < 0.01);
    free(h);
    for (int k = 0; k < 2; k++) {
        runner_close(&runs[k]);
        by_graph_close(&graphs[k]);
    }
}

/* The stages of a pipeline have the losses of one process, before and behind each update. */
static void check_stages(const char *const *alone, const char *const *stages)
{
    rank_job *one = rank_job_open(0, alone);
    rank_job *two = rank_job_open(2, stages);
    for (int r = 0; r < 2; r++) {
        check_ok(two->status[r], &two->errors[r]);
        for (int step = 0; step < RANK_JOB_STEPS; step++) {
            assert_true(two->results[r][step].loss == one->results[0][step].loss);
            assert_true(two->results[r][step].norm == one->results[0][step].norm);
        }
    }
    rank_job_close(one);
    rank_job_close(two);
}

/* Scales are of rows, so that ranks that share a batch, gradients, parameters or layers end as one
 * process does. */
static void test_any_ranks(void **state)
{
    BY_UNUSED(state);
    static const int three[] = {3};
    static const char *const formats[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(formats); i++) {
        const char *const data[] = {"memory.activations=int8", formats[i], NULL};
        const char *const parameters[] = {"memory.activations=int8", formats[i],
                                          "parallel.shard=3",        "parallel.zero=3",
                                          "memory.recompute=block",  NULL};
        const char *const stages[] = {"memory.activations=int8", formats[i], "parallel.pipeline=2",
                                      NULL};
        rank_job_compare(three, 1, data);
        rank_job_compare(three, 1, parameters);
        check_stages(data, stages);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_any_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
