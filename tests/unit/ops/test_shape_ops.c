/* Operations that move elements: patches in the order of a convolution's weight, views that share
 * memory, shapes that do not fit. And builders that no model of the library uses, but users' graphs
 * may. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "passes/passes.h"
#include "runner.h"

/* Against a convolution with stride 3 written out. */
static void test_patches_are_a_convolution(void **state)
{
    BY_UNUSED(state);
    enum { B = 2, C = 3, H = 6, W = 9, P = 3, OUT = 4 };
    runner r;
    by_graph *graph = open_graph();
    by_value images = by_graph_input(graph, "images", BY_F32, BY_SHAPE(B, C, H, W));
    by_value weight = by_graph_parameter(graph, "weight", NULL, BY_SHAPE(OUT, C, P, P),
                                         (by_init){BY_INIT_ZERO, 0.0f});
    by_value y = by_linear(graph, by_patches(graph, images, P),
                           by_reshape(graph, weight, BY_SHAPE(OUT, -1)), BY_NONE, true);
    by_graph_output(graph, y, "y");
    runner_open(&r, graph, 1);
    runner_fill(&r, 3, 1);
    runner_run(&r);
    const float *x = runner_data(&r, "images");
    const float *w = runner_data(&r, "weight");
    const float *got = runner_data(&r, "y");
    for (int i = 0; i < B * (H / P) * (W / P) * OUT; i++) {
        int o = i % OUT;
        int column = i / OUT % (W / P);
        int row = i / OUT / (W / P) % (H / P);
        int b = i / OUT / (W / P) / (H / P);
        double sum = 0.0;
        for (int k = 0; k < C * P * P; k++) {
            int c = k / (P * P);
            int at = ((b * C + c) * H + row * P + k / P % P) * W + column * P + k % P;
            sum += (double)x[at] * (double)w[o * C * P * P + k];
        }
        assert_true((double)got[i] - sum < 1e-5 && sum - (double)got[i] < 1e-5);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

/* a is read after its view v, which therefore shares a's memory and keeps it from being written
 * over: tanh(a) may take neither's place, as v is read last. */
static void test_views_share_memory(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_memory_plan plan;
    runner r;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6));
    by_value seen = by_reshape(graph, x, BY_SHAPE(24));
    by_value a = by_unary(graph, x, BY_FN_SIGMOID);
    by_value v = by_reshape(graph, a, BY_SHAPE(6, 4));
    by_value t = by_unary(graph, a, BY_FN_TANH);
    by_value u = by_unary(graph, v, BY_FN_RELU);
    by_value s = by_add(graph, by_reshape(graph, t, BY_SHAPE(24)),
                        by_add(graph, by_reshape(graph, u, BY_SHAPE(24)), seen));
    by_graph_output(graph, s, "s");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.owner[seen], x);
    assert_int_equal(plan.owner[v], plan.owner[a]);
    assert_int_not_equal(plan.owner[t], plan.owner[a]);
    assert_int_not_equal(plan.owner[u], plan.owner[a]);
    by__pass_memory_plan_free(&plan);
    runner_open(&r, graph, 1);
    runner_fill(&r, 5, 1);
    float want[24];
    set_isa("reference");
    runner_run(&r);
    memcpy(want, runner_data(&r, "s"), sizeof want);
    const float *from = runner_data(&r, "x");
    for (int i = 0; i < 24; i++) {
        double sigmoid = 1.0 / (1.0 + exp(-(double)from[i]));
        double sum = tanh(sigmoid) + sigmoid + (double)from[i];
        assert_true(fabs((double)want[i] - sum) < 1e-5);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

/* A reshape of what dies with it is no copy either: the whole chain is in the output's buffer. */
static void test_last_reader_is_a_view(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_memory_plan plan;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6));
    by_value a = by_unary(graph, x, BY_FN_SIGMOID);
    by_value b = by_unary(graph, by_reshape(graph, a, BY_SHAPE(24)), BY_FN_TANH);
    by_value y = by_reshape(graph, b, BY_SHAPE(2, 12));
    by_graph_output(graph, y, "y");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.bytes, 0);
    assert_int_equal(plan.owner[a], y);
    assert_int_equal(plan.owner[b], y);
    by__pass_memory_plan_free(&plan);
    by_graph_close(&graph);
}

static void expect_refusal(by_graph *graph, const char *text)
{
    by_error error = {0};
    check_error(by_graph_check(graph, &error), BY_EARG, &error, text);
    by_graph_close(&graph);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    static const int twice[2] = {1, 1};
    static const int far[1] = {2};
    by_graph *graph = open_graph();
    (void)by_reshape(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)), BY_SHAPE(5, -1));
    expect_refusal(graph, "another number of elements");
    graph = open_graph();
    (void)by_permute(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)), twice);
    expect_refusal(graph, "each axis once");
    graph = open_graph();
    (void)by_slice(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)), -1, 3, 4);
    expect_refusal(graph, "not within the axis");
    graph = open_graph();
    (void)by_patches(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(1, 1, 28, 28)), 5);
    expect_refusal(graph, "[1, 1, 28, 28]");
    graph = open_graph();
    (void)by_sum(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)), far, 1, false);
    expect_refusal(graph, "no axis 2");
    graph = open_graph();
    (void)by_add(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)),
                 by_graph_input(graph, "y", BY_F32, BY_SHAPE(4)));
    expect_refusal(graph, "cannot be broadcast");
    graph = open_graph();
    (void)by_cross_entropy(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)),
                           by_graph_input(graph, "t", BY_I32, BY_SHAPE(4)), 1.5f);
    expect_refusal(graph, "smoothing");
}

/* Class token and positions as a ViT has them, and a mean over the tokens: a graph with all the
 * pieces, its gradients by the pass, against finite differences in test_gradients op by op; here
 * that the pass accepts every shape. */
static void test_tokens_of_a_vision_transformer(void **state)
{
    BY_UNUSED(state);
    enum { B = 2, N = 4, C = 8 };
    static const int tokens[1] = {1};
    by_error error = {0};
    runner r;
    by_init ones = {BY_INIT_ONE, 0.0f};
    by_graph *graph = open_graph();
    by_value images = by_graph_input(graph, "images", BY_F32, BY_SHAPE(B, 1, 4, 4));
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(B));
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value weight = by_graph_parameter(graph, "weight", NULL, BY_SHAPE(C, 1, 2, 2), ones);
    by_value token = by_graph_parameter(graph, "token", NULL, BY_SHAPE(1, 1, C), ones);
    by_value places = by_graph_parameter(graph, "places", NULL, BY_SHAPE(1, N + 1, C), ones);
    by_value x = by_linear(graph, by_patches(graph, images, 2),
                           by_reshape(graph, weight, BY_SHAPE(C, -1)), BY_NONE, true);
    by_value parts[2] = {by_expand(graph, token, BY_SHAPE(B, 1, C)), x};
    x = by_add(graph, by_concat(graph, parts, 2, 1), places);
    by_value first = by_reshape(graph, by_slice(graph, x, 1, 0, 1), BY_SHAPE(B, C));
    by_value mean = by_mean(graph, x, tokens, 1, false);
    by_value loss = by_cross_entropy(graph, by_add(graph, first, mean), targets, 0.1f);
    by_graph_output(graph, loss, "loss");
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    runner_open(&r, graph, 2);
    runner_fill(&r, 9, C);
    *(float *)runner_data(&r, "seed") = 1.0f;
    runner_run(&r);
    /* Each sample's first token gets its gradient once directly and a fifth of it by the mean; the
     * other tokens a fifth: of the positions' gradient, the first is six times the others. */
    const float *d = runner_data(&r, "grad.places");
    const float *dt = runner_data(&r, "grad.token");
    for (int c = 0; c < C; c++) {
        assert_true(fabs((double)d[c] - 6.0 * (double)d[C + c]) < 1e-5);
        assert_true(fabs((double)d[c] - (double)dt[c]) < 1e-6);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_transpose(void **state)
{
    BY_UNUSED(state);
    enum { A = 2, B = 3, C = 4 };
    runner r;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(A, B, C));
    by_graph_output(graph, by_transpose(graph, x, -1, 0), "y");
    runner_open(&r, graph, 1);
    runner_fill(&r, 7, 1);
    runner_run(&r);
    const float *from = runner_data(&r, "x");
    const float *got = runner_data(&r, "y");
    for (int i = 0; i < A * B * C; i++) {
        int c = i / (B * A);
        int b = i / A % B;
        assert_true(got[i] == from[(i % A * B + b) * C + c]);
    }
    runner_close(&r);
    by_graph_close(&graph);
    graph = open_graph();
    (void)by_transpose(graph, by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 6)), 0, -3);
    expect_refusal(graph, "no axes 0 and -3");
}

static void test_softmax_and_its_logarithm(void **state)
{
    BY_UNUSED(state);
    enum { ROWS = 6, C = 5 };
    runner r;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(2, ROWS / 2, C));
    by_graph_output(graph, by_softmax(graph, x), "p");
    by_graph_output(graph, by_log_softmax(graph, x), "log");
    runner_open(&r, graph, 1);
    runner_fill(&r, 11, 1);
    runner_run(&r);
    const float *from = runner_data(&r, "x");
    const float *p = runner_data(&r, "p");
    const float *logarithm = runner_data(&r, "log");
    for (int i = 0; i < ROWS * C; i++) {
        double sum = 0.0;
        for (int c = 0; c < C; c++) {
            sum += exp((double)from[i / C * C + c]);
        }
        assert_true(fabs((double)p[i] - exp((double)from[i]) / sum) < 1e-6);
        assert_true(fabs((double)logarithm[i] - ((double)from[i] - log(sum))) < 1e-6);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

/* Two heads of queries share one of keys and values, with the equations written out. */
static void test_attention_of_separate_operands(void **state)
{
    BY_UNUSED(state);
    enum { T = 5, HEADS = 2, D = 4 };
    runner r;
    by_graph *graph = open_graph();
    by_value y = by_attention(graph, by_graph_input(graph, "q", BY_F32, BY_SHAPE(1, T, HEADS * D)),
                              by_graph_input(graph, "k", BY_F32, BY_SHAPE(1, T, D)),
                              by_graph_input(graph, "v", BY_F32, BY_SHAPE(1, T, D)), HEADS, 1);
    by_graph_output(graph, y, "y");
    runner_open(&r, graph, 1);
    runner_fill(&r, 13, 1);
    runner_run(&r);
    const float *q = runner_data(&r, "q");
    const float *k = runner_data(&r, "k");
    const float *v = runner_data(&r, "v");
    const float *got = runner_data(&r, "y");
    for (int i = 0; i < T * HEADS; i++) { /* query i / HEADS of head i % HEADS */
        double total = 0.0;
        double sum[D] = {0.0};
        for (int t = 0; t <= i / HEADS; t++) {
            double score = 0.0;
            for (int d = 0; d < D; d++) {
                score += (double)q[i * D + d] * (double)k[t * D + d];
            }
            double weight = exp(score / sqrt(D));
            total += weight;
            for (int d = 0; d < D; d++) {
                sum[d] += weight * (double)v[t * D + d];
            }
        }
        for (int d = 0; d < D; d++) {
            assert_true(fabs((double)got[i * D + d] - sum[d] / total) < 1e-5);
        }
    }
    runner_close(&r);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patches_are_a_convolution),
        cmocka_unit_test(test_views_share_memory),
        cmocka_unit_test(test_last_reader_is_a_view),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_tokens_of_a_vision_transformer),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_softmax_and_its_logarithm),
        cmocka_unit_test(test_attention_of_separate_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
