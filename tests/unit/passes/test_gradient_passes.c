/* The passes that come first: formats of a forward graph, and its backward pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pass_graph.h"
#include "passes/passes.h"
#include "runner.h"

/* ---- precision ---- */

static void check_precision(by_dtype compute)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value w = pass_parameter(graph, "w", BY_SHAPE(8, 8));
    by_value g = pass_parameter(graph, "g", BY_SHAPE(8));
    by_value cache = by_graph_state(graph, "cache", BY_F32, BY_SHAPE(2, 8));
    by_value scalar = by_graph_input(graph, "scalar", BY_F32, BY_SHAPE(1));
    by_value h = by_linear(graph, x, w, g, false);
    by_value n = by_rms_norm(graph, h, g, 1e-5f);
    by_value y = by_scale(graph, n, scalar);
    by_value z = by_unary(graph, y, BY_FN_TANH);
    by_graph_output(graph, y, "y");
    by_graph_output(graph, z, "z");
    check_ok(by_pass_precision(graph, compute, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_dtype(graph, x), BY_F32); /* the caller's buffer; a cast reads it */
    assert_int_equal(pass_dtype(graph, w), compute);
    assert_int_equal(pass_dtype(graph, g), BY_F32);
    assert_int_equal(pass_dtype(graph, cache), compute);
    assert_int_equal(pass_dtype(graph, scalar), BY_F32);
    assert_int_equal(pass_dtype(graph, h), compute);
    assert_int_equal(pass_dtype(graph, n), compute);
    assert_int_equal(pass_dtype(graph, graph->nodes[graph->values[n].producer].out[1]), BY_F32);
    /* Outputs keep what the caller was promised, and their readers compute narrow. */
    assert_int_equal(pass_dtype(graph, y), BY_F32);
    assert_int_equal(pass_dtype(graph, z), BY_F32);
    assert_int_equal(pass_count_ops(graph, BY_OP_CAST), 3);
    by_value tanh_in =
        graph->nodes[graph->values[graph->nodes[graph->values[z].producer].in[0]].producer].in[0];
    assert_int_equal(pass_dtype(graph, tanh_in), compute);
    by_graph_close(&graph);
}

static void test_precision(void **state)
{
    BY_UNUSED(state);
    check_precision(BY_BF16);
    check_precision(BY_F16);
}

/* What a row keeps in f32 is not rounded, however wide: a parameter that such an operand reads
 * stays f32 and its other readers get a cast; a result that was made narrow is widened for it. */
static void test_precision_keeps_f32(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    by_value factor = by_graph_input(graph, "factor", BY_F32, BY_SHAPE(1, 1));
    by_value kept = pass_parameter(graph, "kept", BY_SHAPE(8, 8));
    by_value y = by_scale(graph, by_matmul(graph, x, kept, false, false), factor);
    by_value of_result = by__op_build_sum_squares(graph, y);
    by_value of_parameter = by__op_build_sum_squares(graph, kept);
    by_graph_output(graph, y, "y");
    by_graph_output(graph, of_result, "of_result");
    by_graph_output(graph, of_parameter, "of_parameter");
    check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_dtype(graph, factor), BY_F32);
    assert_int_equal(pass_dtype(graph, kept), BY_F32);
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->op == BY_OP_MATMUL) {
            assert_int_equal(pass_dtype(graph, node->in[0]), BY_BF16);
            assert_int_equal(pass_dtype(graph, node->in[1]), BY_BF16);
        }
        if (node->op == BY_OP_SCALE) {
            assert_int_equal(node->in[1], factor);
            assert_int_equal(pass_dtype(graph, node->in[0]), BY_BF16);
        }
    }
    by_graph_close(&graph);
}

/* What a loss compares with is not rounded, forward or backward: targets and weights are read as
 * the caller's own f32, dloss too, and the loss is f32; logits and predictions are bf16. */
static void test_precision_of_losses(void **state)
{
    BY_UNUSED(state);
    enum { KINDS = 3 };
    static const by_op losses[KINDS] = {BY_OP_SQUARED_ERROR, BY_OP_SMOOTH_L1, BY_OP_CROSS_ENTROPY};
    static const by_op gradients[KINDS] = {BY_OP_SQUARED_ERROR_GRAD, BY_OP_SMOOTH_L1_GRAD,
                                           BY_OP_CROSS_ENTROPY_GRAD};
    for (int kind = 0; kind < KINDS; kind++) {
        by_error error = {0};
        by_graph *graph = open_graph();
        by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(2, 3, 8));
        by_value targets = by_graph_input(graph, "targets", kind < 2 ? BY_F32 : BY_I32,
                                          kind < 2 ? BY_SHAPE(2, 3, 8) : BY_SHAPE(2, 3));
        by_value weights = by_graph_input(graph, "weights", BY_F32, BY_SHAPE(2, 3));
        by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
        by_value y =
            by_linear(graph, x, pass_parameter(graph, "w", BY_SHAPE(8, 8)), BY_NONE, false);
        by_value loss = kind == 0   ? by_squared_error(graph, y, targets, weights)
                        : kind == 1 ? by_smooth_l1(graph, y, targets, weights, 0.5f)
                                    : by_cross_entropy(graph, y, targets, 0.0f);
        by_graph_output(graph, loss, "loss");
        check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
        check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
        check_ok(by_graph_verify(graph, &error), &error);
        assert_int_equal(pass_dtype(graph, loss), BY_F32);
        assert_int_equal(pass_count_ops(graph, losses[kind]), 1);
        assert_int_equal(pass_count_ops(graph, gradients[kind]), 1);
        for (size_t n = 0; n < graph->node_count; n++) {
            const by__graph_node *node = &graph->nodes[n];
            if (node->op != losses[kind] && node->op != gradients[kind]) {
                continue;
            }
            assert_int_equal(pass_dtype(graph, node->in[0]), BY_BF16);
            assert_int_equal(node->in[1], targets);
            assert_true(kind == 2 || node->in[2] == weights);
            assert_true(node->op == losses[kind] || node->in[3] == seed);
        }
        by_graph_close(&graph);
    }
}

/* An output that is made narrow: later nodes read what its node makes, the first as well as the
 * last, and those that keep f32 the output itself. */
static void test_precision_of_read_outputs(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    by_value y = by_unary(graph, x, BY_FN_TANH);
    by_graph_output(graph, y, "y");
    by_graph_output(graph, by_unary(graph, y, BY_FN_TANH), "first");
    by_graph_output(graph, by__op_build_sum_squares(graph, y), "squares");
    by_graph_output(graph, by_mul(graph, y, y), "last");
    check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    by_value inner = graph->nodes[graph->values[y].producer].in[0];
    assert_int_equal(pass_dtype(graph, inner), BY_BF16);
    int narrow = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            narrow += node->in[i] == inner;
            assert_true(node->in[i] != y || node->op == BY_OP_SUM_SQUARES);
        }
    }
    assert_int_equal(narrow, 4); /* the cast, tanh, both operands of the product */
    by_graph_close(&graph);
}

static void test_precision_refuses(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_status status = by_pass_precision(graph, BY_I32, &error);
    check_error(status, BY_EARG, &error, "i32");
    check_ok(by_pass_precision(graph, BY_F32, &error), &error);
    by_graph_close(&graph);
}

/* A weight that is put together of parameters has a gradient in f32 all the way to them. */
static void test_gradients_of_moved_parameters(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(8, 4));
    by_value parts[2] = {
        pass_parameter(graph, "a", BY_SHAPE(3, 4)),
        by_reshape(graph, pass_parameter(graph, "b", BY_SHAPE(2, 2, 4)), BY_SHAPE(4, 4))};
    by_value y = by_linear(graph, x, by_concat(graph, parts, 2, 0), BY_NONE, true);
    by_value targets = by_graph_input(graph, "targets", BY_F32, BY_SHAPE(8, 7));
    by_value loss = by_squared_error(graph, y, targets, BY_NONE);
    by_graph_output(graph, loss, "loss");
    check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
    check_ok(by_pass_gradients(graph, loss, by_fill(graph, BY_F32, BY_SHAPE(1), 1.0f), &error),
             &error);
    for (int k = 0; k < 2; k++) {
        by_value value = by_graph_find(graph, k == 0 ? "grad.a" : "grad.b");
        const by__graph_node *node;
        do {
            assert_int_equal(pass_dtype(graph, value), BY_F32);
            node = &graph->nodes[graph->values[value].producer];
            value = node->in[0];
        } while (node->op != BY_OP_MATMUL);
    }
    by_graph_close(&graph);
}

/* Every parameter's gradient is f32 and has its shape, in every family and precision. */
static void test_gradients_are_f32(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][2] = {{"model.kind=gpt2", "precision.compute=bf16"},
                                              {"model.kind=gpt2", "precision.compute=fp16"},
                                              {"model.kind=llama", "precision.compute=bf16"}};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(settings); k++) {
        by_config *config = pass_config(settings[k], 2);
        by_graph *graph = pass_graph(config, "order");
        by_dtype compute;
        int parameters = 0;
        check_ok(by_precision_parse(&compute, config->precision.compute, NULL), NULL);
        for (size_t v = 0; v < graph->value_count; v++) {
            char name[128];
            if (graph->values[v].role != BY_ROLE_PARAMETER) {
                continue;
            }
            (void)snprintf(name, sizeof name, "grad.%s", graph->values[v].name);
            by_value gradient = by_graph_find(graph, name);
            assert_int_not_equal(gradient, BY_NONE);
            assert_int_equal(graph->values[gradient].role, BY_ROLE_GRADIENT);
            assert_int_equal(pass_dtype(graph, gradient), BY_F32);
            assert_true(by_shape_equal(&graph->values[gradient].shape, &graph->values[v].shape));
            assert_int_equal(pass_dtype(graph, (by_value)v),
                             graph->values[v].shape.rank >= 2 ? compute : BY_F32);
            parameters++;
        }
        assert_true(parameters > 20);
        by_graph_close(&graph);
        by_config_close(&config);
    }
}

/* ---- gradients ---- */

/* sum over rows of the cross-entropy of softmax(x w^T) for 5 classes. */
static by_value head(by_graph *graph, by_value x, by_value w)
{
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(3));
    by_value loss = by_linear_cross_entropy(graph, x, w, targets);
    by_graph_output(graph, loss, "loss");
    return loss;
}

static void expect_refused(by_graph *graph, by_value loss, const char *text)
{
    by_error error = {0};
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_status status = by_pass_gradients(graph, loss, seed, &error);
    check_error(status, BY_EARG, &error, text);
    by_graph_close(&graph);
}

static void test_gradients_refuse(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    (void)pass_parameter(graph, "alone", BY_SHAPE(4));
    expect_refused(graph, head(graph, x, pass_parameter(graph, "w", BY_SHAPE(5, 8))),
                   "does not depend on parameter 'alone'");

    /* A trained factor: scale has no gradient for it, and dropping it would be silent. */
    graph = open_graph();
    x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value y = by_scale(graph, x, pass_parameter(graph, "s", BY_SHAPE(1)));
    expect_refused(graph, head(graph, y, pass_parameter(graph, "w", BY_SHAPE(5, 8))),
                   "scale has no gradient");

    /* w [2, 4, 5] is flattened to [8, 5] by the product; its gradient would not have its shape. */
    graph = open_graph();
    x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    y = by_matmul(graph, x, pass_parameter(graph, "deep", BY_SHAPE(2, 4, 8)), false, false);
    expect_refused(graph, head(graph, y, pass_parameter(graph, "w", BY_SHAPE(5, 8))), "[2, 4, 8]");

    /* A loss that reads the statistics of a norm. */
    graph = open_graph();
    x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 3));
    y = by_rms_norm(graph,
                    by_linear(graph, x, pass_parameter(graph, "v", BY_SHAPE(3, 3)), BY_NONE, false),
                    pass_parameter(graph, "g", BY_SHAPE(3)), 1e-5f);
    by_value rstd = graph->nodes[graph->values[y].producer].out[1];
    y = by_add(graph, y, rstd);
    expect_refused(graph, head(graph, y, pass_parameter(graph, "w", BY_SHAPE(5, 3))),
                   "rms_norm has no gradient");

    graph = open_graph();
    x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    expect_refused(graph, x, "single f32");
}

/* The same parameter as a matrix in bf16 and added as it is: contributions of both dtypes. */
static void test_gradients_of_mixed_uses(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    float reference[3 * 8];
    for (int k = 0; k < 2; k++) {
        by_graph *graph = open_graph();
        by_value w = pass_parameter(graph, "w", BY_SHAPE(5, 8));
        by_value p = pass_parameter(graph, "p", BY_SHAPE(3, 8));
        by_value q = pass_parameter(graph, "q", BY_SHAPE(8, 8));
        by_value x =
            by_unary(graph, by_add(graph, p, by_linear(graph, p, q, BY_NONE, false)), BY_FN_TANH);
        x = by_add(graph, by_mul(graph, x, p), p);
        /* The last use comes first in the backward pass: f32, to which bf16 is added. */
        x = by_add(graph, x, by_linear(graph, p, q, BY_NONE, true));
        by_value loss = head(graph, x, w);
        by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
        check_ok(by_pass_precision(graph, k == 0 ? BY_F32 : BY_BF16, &error), &error);
        check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
        check_ok(by_pass_fuse(graph, &error), &error);
        check_ok(by_graph_verify(graph, &error), &error);
        assert_int_equal(pass_dtype(graph, by_graph_find(graph, "grad.p")), BY_F32);
        runner_open(&r, graph, 1);
        runner_fill(&r, 2, 5);
        *(float *)runner_data(&r, "seed") = 1.0f;
        runner_run(&r);
        if (k == 0) {
            memcpy(reference, runner_data(&r, "grad.p"), sizeof reference);
        } else {
            assert_true(relative_distance(runner_data(&r, "grad.p"), reference, 24) < 0.02);
        }
        runner_close(&r);
        by_graph_close(&graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_precision_of_losses),
        cmocka_unit_test(test_precision_of_read_outputs),
        cmocka_unit_test(test_precision_keeps_f32),
        cmocka_unit_test(test_precision_refuses),
        cmocka_unit_test(test_gradients_of_moved_parameters),
        cmocka_unit_test(test_gradients_are_f32),
        cmocka_unit_test(test_gradients_refuse),
        cmocka_unit_test(test_gradients_of_mixed_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
