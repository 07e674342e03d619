/* Building, verifying, printing and sorting graphs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "runner.h"

static by_value input(by_graph *graph, const char *name, by_shape shape)
{
    return by_graph_input(graph, name, BY_F32, shape);
}

static void expect_build_error(by_graph *graph, const char *text)
{
    by_error error = {0};
    by_status status = by_graph_check(graph, &error);
    check_error(status, BY_EARG, &error, text);
    by_graph_close(&graph);
}

static void test_errors_name_op_and_shapes(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    assert_int_equal(by_matmul(graph, input(graph, "a", BY_SHAPE(4, 8)),
                               input(graph, "b", BY_SHAPE(9, 3)), false, false),
                     BY_NONE);
    by_error error = {0};
    assert_int_equal(by_graph_check(graph, &error), BY_EARG);
    assert_non_null(strstr(error.message, "matmul"));
    assert_non_null(strstr(error.message, "[4, 8]"));
    assert_non_null(strstr(error.message, "[9, 3]"));
    /* The first error stays; later calls change nothing. */
    int values = by_graph_value_count(graph);
    assert_int_equal(input(graph, "c", BY_SHAPE(1)), BY_NONE);
    assert_int_equal(by_add(graph, 0, 1), BY_NONE);
    by_graph_output(graph, 0, "d");
    assert_int_equal(by_graph_value_count(graph), values);
    expect_build_error(graph, "matmul");
}

static void test_external_values(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    (void)input(graph, "x", BY_SHAPE(2));
    (void)by_graph_state(graph, "x", BY_F32, BY_SHAPE(2));
    expect_build_error(graph, "two values are named 'x'");

    graph = open_graph();
    (void)input(graph, NULL, BY_SHAPE(2));
    expect_build_error(graph, "needs a name");

    graph = open_graph();
    (void)input(graph, "zero", BY_SHAPE(2, 0));
    expect_build_error(graph, "zero");

    graph = open_graph();
    (void)input(graph, "negative", BY_SHAPE(-1));
    expect_build_error(graph, "[-1]");

    graph = open_graph();
    (void)input(graph, "huge", BY_SHAPE(INT64_MAX, INT64_MAX));
    expect_build_error(graph, "huge");

    graph = open_graph();
    (void)input(graph, "wraps", BY_SHAPE((int64_t)1 << 32, (int64_t)1 << 32));
    expect_build_error(graph, "wraps");

    graph = open_graph();
    (void)input(graph, "deep", (by_shape){.rank = 100});
    expect_build_error(graph, "deep");

    graph = open_graph();
    (void)by_graph_input(graph, "type", (by_dtype)77, BY_SHAPE(1));
    expect_build_error(graph, "type");
}

static void test_outputs(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_graph_output(graph, input(graph, "x", BY_SHAPE(2)), "y");
    expect_build_error(graph, "'y' is not the result");

    graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(2));
    by_graph_output(graph, by_add(graph, x, x), "x");
    expect_build_error(graph, "two values are named 'x'");

    graph = open_graph();
    x = input(graph, "x", BY_SHAPE(2));
    by_value y = by_add(graph, x, x);
    by_graph_output(graph, y, "y");
    by_graph_output(graph, y, "again");
    expect_build_error(graph, "already the output 'y'");

    graph = open_graph();
    x = input(graph, "x", BY_SHAPE(2));
    by_graph_output(graph, by_add(graph, x, x), "");
    expect_build_error(graph, "name");
}

/* Every operand that an op needs is asked for: an absent one is an error, never a NULL in a
 * kernel. */
static void test_missing_operands(void **state)
{
    BY_UNUSED(state);
    for (int op = 0; op < BY_OP_COUNT; op++) {
        const by__op_row *row = by__op_row_of((by_op)op);
        by_graph *graph = open_graph();
        by_attrs attrs = {.heads = 1, .kv_heads = 1, .rows = 1};
        by_value in[8] = {BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE};
        assert_int_equal(by__op_add_node(graph, (by_op)op, &attrs, in, row->min_inputs, NULL),
                         BY_NONE);
        expect_build_error(graph, by_op_name((by_op)op));
    }
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(2));
    assert_int_equal(by_add(graph, x, BY_NONE), BY_NONE);
    expect_build_error(graph, "missing");

    graph = open_graph();
    x = input(graph, "x", BY_SHAPE(2));
    assert_int_equal(by_scale(graph, x, BY_NONE), BY_NONE);
    expect_build_error(graph, "missing");

    graph = open_graph();
    assert_int_equal(by_add(graph, 5, 6), BY_NONE);
    expect_build_error(graph, "not a value of this graph");
}

static void check_mask(const by__op_row *row, uint32_t mask)
{
    for (int i = 0; i < 32 && row->max_inputs >= 0 && mask != UINT32_MAX; i++) {
        assert_true(!by__mask_has(mask, i) || i < row->max_inputs);
    }
}

/* What a row says of operands is of operands that the op has. */
static void test_rows(void **state)
{
    BY_UNUSED(state);
    assert_null(by__op_row_of(BY_OP_COUNT));
    assert_string_equal(by_op_name(BY_OP_COUNT), "?");
    for (int op = 0; op < BY_OP_COUNT; op++) {
        const by__op_row *row = by__op_row_of((by_op)op);
        assert_non_null(row);
        assert_non_null(row->infer);
        assert_true(row->max_inputs < 0 || row->max_inputs >= row->min_inputs);
        assert_in_range(row->outputs, 1, BY_MAX_OUTPUTS);
        for (int other = 0; other < op; other++) {
            assert_string_not_equal(by_op_name((by_op)op), by_op_name((by_op)other));
        }
        const uint32_t masks[] = {row->optional,   row->factors,   row->gathers,
                                  row->mutates,    row->keeps_f32, row->overlay[0],
                                  row->overlay[1], row->overlay[2]};
        for (size_t k = 0; k < BY_ARRAY_LENGTH(masks); k++) {
            check_mask(row, masks[k]);
        }
        for (int k = 0; k < BY__MAX_INDICES && row->indices[k].limit != NULL; k++) {
            assert_in_range(row->indices[k].input, 0, row->max_inputs - 1);
        }
        assert_true(row->addend == 0 || by__mask_has(row->optional, row->addend));
        assert_true(row->transposed == NULL || row->transposed->type == BY__ATTR_FLAG);
        assert_true(row->differentiable >> row->outputs == 0);
    }
}

/* A node holds the attributes that its row lists and no others. */
static void test_attributes(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(1, 2, 8));
    by_attrs attrs = {.heads = 2, .theta = 100.0f, .inverse = true, .eps = 1.0f, .rows = 7};
    (void)by__op_add_node(graph, BY_OP_ROPE, &attrs, &x, 1, NULL);
    const by_attrs *have = &graph->nodes[0].attrs;
    assert_int_equal(have->heads, 2);
    assert_true(have->inverse);
    assert_true(have->theta == 100.0f && have->eps == 0.0f && have->rows == 0);
    by_string text = {0};
    char *line;
    by_error error = {0};
    by__op_attrs_print(&text, by__op_row_of(BY_OP_ROPE), have, false);
    check_ok(by__string_release(&text, &line, &error), &error);
    assert_string_equal(line, " heads 2 theta 100 inverse");
    free(line);
    attrs.theta = (float)NAN;
    (void)by__op_add_node(graph, BY_OP_ROPE, &attrs, &x, 1, NULL);
    expect_build_error(graph, "rope: an attribute is not a finite number");

    graph = open_graph();
    (void)by_cast(graph, input(graph, "x", BY_SHAPE(2)), (by_dtype)99);
    expect_build_error(graph, "cast: unknown dtype");
}

static void test_hostile_attributes(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    (void)by_attention_packed(graph, input(graph, "x", BY_SHAPE(1, 2, 6)), INT64_MAX, INT64_MAX);
    expect_build_error(graph, "attention");

    graph = open_graph();
    (void)by_rope(graph, input(graph, "x", BY_SHAPE(1, 2, 6)), BY_NONE, INT64_MAX,
                  &(by_rotation){.theta = 1e4f});
    expect_build_error(graph, "rope");

    graph = open_graph();
    by_value rng = by_graph_input(graph, "rng", BY_I32, BY_SHAPE(4));
    (void)by_dropout(graph, input(graph, "x", BY_SHAPE(1, 2, 6)), rng, 1.0f, 0);
    expect_build_error(graph, "dropout");

    graph = open_graph();
    (void)by_unary(graph, input(graph, "x", BY_SHAPE(2)), (by_function)99);
    expect_build_error(graph, "unary");
}

/* x [4, 8], w [8, 8]: tanh(x w) w -> "y". */
static by_graph *small(void)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(4, 8));
    by_value w = by_graph_parameter(graph, "w", "in out", BY_SHAPE(8, 8), (by_init){0});
    by_graph_set_block(graph, 3);
    by_value y = by_unary(graph, by_linear(graph, x, w, BY_NONE, false), BY_FN_TANH);
    by_graph_output(graph, by_linear(graph, y, w, BY_NONE, true), "y");
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

static void expect_broken(by_graph *graph, by_status want, const char *text)
{
    by_error error = {0};
    by_status status = by_graph_verify(graph, &error);
    check_error(status, want, &error, text);
    by_graph_close(&graph);
}

static void test_verify(void **state)
{
    BY_UNUSED(state);
    by_graph *graph = small();
    by__graph_node first = graph->nodes[0];
    graph->nodes[0] = graph->nodes[1];
    graph->nodes[1] = first;
    expect_broken(graph, BY_ESTATE, "before it is made");

    graph = small();
    graph->values[graph->nodes[1].out[0]].shape = BY_SHAPE(4, 9);
    expect_broken(graph, BY_ESTATE, "another type");

    graph = small();
    graph->values[graph->nodes[1].out[0]].dtype = BY_BF16;
    expect_broken(graph, BY_ESTATE, "another type");

    graph = small();
    graph->nodes[1].in[0] = 1000;
    expect_broken(graph, BY_ESTATE, "does not exist");

    graph = small();
    graph->nodes[1].out[0] = 1000;
    expect_broken(graph, BY_ESTATE, "does not exist");

    graph = small();
    graph->nodes[1].out[0] = graph->nodes[0].out[0];
    expect_broken(graph, BY_ESTATE, "made twice");

    graph = small();
    graph->nodes[2].op = (by_op)1234;
    expect_broken(graph, BY_ESTATE, "no valid operation");

    graph = small();
    graph->nodes[2].dead = true;
    by__graph_compact(graph);
    expect_broken(graph, BY_ESTATE, "nothing makes 'y'");

    graph = small();
    strcpy(graph->values[by_graph_find(graph, "y")].name, "x");
    expect_broken(graph, BY_ESTATE, "two values are named 'x'");
}

/* p, m and v of an AdamW node; `p_of_result` puts an activation where the parameter belongs. */
static by_graph *update(bool p_of_result, bool reader)
{
    by_graph *graph = open_graph();
    by_value p = by_graph_parameter(graph, "p", NULL, BY_SHAPE(8), (by_init){0});
    by_value g = input(graph, "g", BY_SHAPE(8));
    by_value m = by_graph_state(graph, "m", BY_F32, BY_SHAPE(8));
    by_value v = by_graph_state(graph, "v", BY_F32, BY_SHAPE(8));
    by_value hyper = input(graph, "hyper", BY_SHAPE(4));
    by_value scale = input(graph, "scale", BY_SHAPE(1));
    if (reader) {
        by_graph_output(graph, by_add(graph, p, g), "sum");
    }
    (void)by__op_build_adamw(graph, p_of_result ? by_add(graph, p, g) : p, g, m, v, hyper, scale,
                             &(by_attrs){.beta1 = 0.9f, .beta2 = 0.99f}, BY_F32);
    return graph;
}

/* An AdamW node whose gradient is made from the square norms of p and of m; `twice` makes p itself
 * the gradient. */
static by_graph *update_of_norms(bool twice)
{
    by_graph *graph = open_graph();
    by_value p = by_graph_parameter(graph, "p", NULL, BY_SHAPE(8), (by_init){0});
    by_value m = by_graph_state(graph, "m", BY_F32, BY_SHAPE(8));
    by_value v = by_graph_state(graph, "v", BY_F32, BY_SHAPE(8));
    by_value hyper = input(graph, "hyper", BY_SHAPE(4));
    by_value g = input(graph, "g", BY_SHAPE(8));
    g = by_scale(graph, g, by__op_build_sum_squares(graph, p));
    g = by_scale(graph, g, by__op_build_sum_squares(graph, m));
    (void)by__op_build_adamw(graph, p, twice ? p : g, m, v, hyper,
                             input(graph, "scale", BY_SHAPE(1)),
                             &(by_attrs){.beta1 = 0.9f, .beta2 = 0.99f}, BY_F32);
    return graph;
}

static void test_updates_in_place(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = update(false, false);
    check_ok(by_graph_verify(graph, &error), &error);
    by_graph_close(&graph);
    expect_broken(update(true, false), BY_ESTATE, "not external");
    /* Nothing orders a reader before or after the update. */
    expect_broken(update(false, true), BY_ESTATE, "'p' in place, which is read elsewhere");
    /* What feeds the update comes before it. */
    graph = update_of_norms(false);
    check_ok(by_graph_verify(graph, &error), &error);
    by_graph_close(&graph);
    expect_broken(update_of_norms(true), BY_ESTATE, "'p' in place, which is read elsewhere");
}

static void test_print(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = small();
    char *text;
    check_ok(by_graph_print(graph, &text, &error), &error);
    assert_string_equal(text, "input x : f32 [4, 8]\n"
                              "parameter w : f32 [8, 8]  # in out\n"
                              "%2 = matmul(x, w) : f32 [4, 8]  # block 3\n"
                              "%3 = unary(%2) tanh : f32 [4, 8]  # block 3\n"
                              "%4 = matmul(%3, w) trans_b : f32 [4, 8] output 'y'  # block 3\n");
    free(text);
    by_graph_close(&graph);
}

static void test_sort(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = small();
    by__graph_node last = graph->nodes[2];
    graph->nodes[2] = graph->nodes[0];
    graph->nodes[0] = last;
    graph->values[graph->nodes[2].out[0]].producer = 2;
    graph->values[graph->nodes[0].out[0]].producer = 0;
    check_ok(by__graph_sort(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(graph->nodes[1].op, BY_OP_UNARY);
    graph->nodes[0].in[0] = graph->nodes[2].out[0];
    by_status status = by__graph_sort(graph, &error);
    check_error(status, BY_ESTATE, &error, "depends on itself");
    by_graph_close(&graph);
}

/* A chain far deeper than the C stack could recurse. */
static void test_sort_deep(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(2));
    for (int i = 0; i < 200000; i++) {
        x = by_unary(graph, x, BY_FN_TANH);
    }
    size_t count = graph->node_count;
    for (size_t i = 0; i < count / 2; i++) {
        by__graph_node node = graph->nodes[i];
        graph->nodes[i] = graph->nodes[count - 1 - i];
        graph->nodes[count - 1 - i] = node;
    }
    for (size_t i = 0; i < count; i++) {
        graph->values[graph->nodes[i].out[0]].producer = (int)i;
    }
    check_ok(by__graph_sort(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_op_and_shapes),
        cmocka_unit_test(test_external_values),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_missing_operands),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_hostile_attributes),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_updates_in_place),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_sort_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
