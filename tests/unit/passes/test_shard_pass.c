/* by_pass_shard on whole models: which collectives it puts where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "banyan/passes.h"
#include "ops/ops.h"
#include "rank_run.h"
#include "runner.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/train.h"

enum { LAYERS = 2 };

static by_config *model_config(const char *kind)
{
    by_error error = {0};
    by_config *config;
    char assignment[64];
    static const char *const settings[] = {
        "model.layers=2",    "model.heads=12", "model.width=24",
        "model.context=12",  "model.vocab=11", "model.mlp_width=26",
        "model.dropout=0.2", "train.batch=3",  "train.micro_batch=3"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    (void)snprintf(assignment, sizeof assignment, "model.kind=%s", kind);
    check_ok(by_config_set(config, assignment, &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static by_graph *shard_both(const char *kind, by_dtype compute, by_shard_axis axis,
                            by_shard_axis time, const char *last)
{
    by_error error = {0};
    by_graph *graph;
    by_model model;
    const by__trainer_recipe recipe = {0};
    by_config *config = model_config(kind);
    check_ok(by__trainer_forward_graph(&graph, &model, config, &recipe, BY_MODEL_TRAIN, &error),
             &error);
    by_pass_options options = {.compute = compute, .loss = model.loss};
    options.shard[BY_SHARD_TENSOR] = axis;
    options.shard[BY_SHARD_SEQUENCE] = time;
    check_ok(by_passes_run(graph, BY_PURPOSE_TRAIN, &options, last, &error), &error);
    by_config_close(&config);
    return graph;
}

static by_graph *shard_model(const char *kind, by_dtype compute, by_shard_axis axis,
                             const char *last)
{
    return shard_both(kind, compute, axis, (by_shard_axis){0}, last);
}

static int count_ops(const by_graph *graph, by_op op)
{
    int count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op;
    }
    return count;
}

static by_shape shape_of(const by_graph *graph, const char *name)
{
    by_value value = by_graph_find(graph, name);
    assert_int_not_equal(value, BY_NONE);
    return graph->values[value].shape;
}

static void check_shape(const by_graph *graph, const char *name, by_shape want)
{
    by_shape have = shape_of(graph, name);
    char text[128];
    if (!by_shape_equal(&have, &want)) {
        fail_msg("%s is %s", name, by_shape_print(&have, text));
    }
}

/* One all-reduce behind the vocabulary, one behind each half of a block, and one where each of
 * these begins in the backward pass. */
static void test_tensor(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama"};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            by_shard_axis axis = {.ranks = ranks, .rank = ranks - 1, .mesh = 32};
            by_graph *graph = shard_model(kinds[k], BY_F32, axis, "shard");
            int split = ranks > 1;
            assert_int_equal(count_ops(graph, BY_OP_ALL_REDUCE), split * (4 * LAYERS + 2));
            assert_int_equal(count_ops(graph, BY_OP_ALL_GATHER), split);
            assert_int_equal(count_ops(graph, BY_OP_REDUCE_SCATTER), 0);
            by_graph_close(&graph);
        }
    }
}

/* In their place, what a sequence is cut into and put together from; gradients of norms and of the
 * biases behind split products are sums over pieces of the sequence. */
static void test_sequence(void **state)
{
    BY_UNUSED(state);
    by_shard_axis axis = {.ranks = 3, .rank = 1, .mesh = 32, .sequence = true};
    by_graph *graph = shard_model("llama", BY_BF16, axis, "shard");
    assert_int_equal(count_ops(graph, BY_OP_REDUCE_SCATTER), 4 * LAYERS + 2);
    assert_int_equal(count_ops(graph, BY_OP_ALL_REDUCE), 2 * LAYERS + 1);
    /* forward: before each half of a block and the head, and the two numbers a row; backward: what
     * these and what comes back, but for the head's operand, which is still there */
    assert_int_equal(count_ops(graph, BY_OP_ALL_GATHER), 2 * LAYERS + 2 + 4 * LAYERS + 1);
    by_graph_close(&graph);
}

static int count_collectives(const by_graph *graph, by_op op, unsigned mesh)
{
    int count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op && graph->nodes[n].attrs.mesh == mesh;
    }
    return count;
}

/* Logits, and the gradients of both factors: three products, whoever has the vocabulary. */
static void check_head_products(const by_graph *graph)
{
    double flops = 0.0;
    double product = 0.0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        by__op_cost cost;
        by_error error = {0};
        if (node->op == BY_OP_LINEAR_CROSS_ENTROPY_TRAIN ||
            node->op == BY_OP_LINEAR_CROSS_ENTROPY_PART ||
            node->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD) {
            check_ok(by__op_node_cost(graph, n, &cost, &error), &error);
            flops += cost.flops;
            product = 2.0 * (double)by_shape_count(&graph->values[node->in[0]].shape) *
                      (double)graph->values[node->in[1]].shape.dim[0];
        }
    }
    assert_true(product > 0.0 && flops == 3.0 * product);
}

/* Of chunks of the sequence only keys and values are exchanged, which go around the ring forward
 * and backward, their gradients behind them and home; and gradients are added up, one all-reduce
 * each. With split tensors, their collectives are as without. */
static void test_time(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama"};
    for (int i = 0; i < 8; i++) {
        by_shard_axis axis = {.ranks = 1 + i / 4, .rank = i / 4, .mesh = 32};
        by_shard_axis time = {.ranks = 3, .rank = i / 2 % 2 + 1, .mesh = 16};
        by_graph *graph = shard_both(kinds[i % 2], BY_F32, axis, time, "shard");
        int parameters = 0;
        for (size_t v = 0; v < graph->value_count; v++) {
            parameters += graph->values[v].role == BY_ROLE_PARAMETER;
        }
        assert_int_equal(count_collectives(graph, BY_OP_ALL_GATHER, 16), 0);
        assert_int_equal(count_collectives(graph, BY_OP_REDUCE_SCATTER, 16), 0);
        assert_int_equal(count_collectives(graph, BY_OP_RING_SHIFT, 16), (2 + 2 + 3) * LAYERS);
        assert_int_equal(count_collectives(graph, BY_OP_ALL_REDUCE, 16), parameters + 1);
        assert_int_equal(count_collectives(graph, BY_OP_ALL_REDUCE, 32), i / 4 * (4 * LAYERS + 2));
        assert_int_equal(count_collectives(graph, BY_OP_ALL_GATHER, 32), i / 4);
        assert_int_equal(count_ops(graph, BY_OP_LINEAR_CROSS_ENTROPY_TRAIN), 1 - i / 4);
        check_head_products(graph);
        assert_int_equal(count_ops(graph, BY_OP_ATTENTION), (1 + 2 * 2) * LAYERS);
        by_graph_close(&graph);
        time.addends = true; /* then the loss alone is */
        graph = shard_both(kinds[i % 2], BY_F32, axis, time, "shard");
        assert_int_equal(count_collectives(graph, BY_OP_ALL_REDUCE, 16), 1);
        by_graph_close(&graph);
    }
}

/* Experts work on whole sequences; routers, what is behind the experts and the blocks behind that
 * go on with chunks. */
static void test_time_of_mixtures(void **state)
{
    BY_UNUSED(state);
    by_shard_axis time = {.ranks = 3, .rank = 1, .mesh = 16, .addends = true};
    by_graph *graph = shard_both("mixtral", BY_F32, (by_shard_axis){0}, time, "shard");
    assert_int_equal(count_collectives(graph, BY_OP_RING_SHIFT, 16), (2 + 2 + 3) * LAYERS);
    assert_int_equal(count_ops(graph, BY_OP_ATTENTION), (1 + 2 * 2) * LAYERS);
    assert_int_equal(count_collectives(graph, BY_OP_REDUCE_SCATTER, 16), 0);
    /* Tokens, their experts and the weights of these; backward the weights again and the gradient
     * of what the experts make. */
    assert_int_equal(count_collectives(graph, BY_OP_ALL_GATHER, 16), 5 * LAYERS);
    assert_int_equal(count_collectives(graph, BY_OP_ALL_REDUCE, 16), 1);
    by_graph_close(&graph);
}

static double attention_flops(int ranks, int rank)
{
    by_error error = {0};
    by_shard_axis time = {.ranks = ranks, .rank = rank, .mesh = 16};
    by_graph *graph = shard_both("gpt2", BY_F32, (by_shard_axis){0}, time, "shard");
    double flops = 0.0;
    for (size_t n = 0; n < graph->node_count; n++) {
        by_op op = graph->nodes[n].op;
        by__op_cost cost;
        if (op == BY_OP_ATTENTION || op == BY_OP_ATTENTION_GRAD) {
            check_ok(by__op_node_cost(graph, n, &cost, &error), &error);
            flops += cost.flops;
        }
    }
    by_graph_close(&graph);
    return flops;
}

/* Every rank has the same share of causal attention, and no more than all together need. */
static void test_balance(void **state)
{
    BY_UNUSED(state);
    double all = attention_flops(1, 0);
    for (int ranks = 2; ranks <= 6; ranks++) {
        for (int rank = 0; rank < ranks && 12 % (2 * ranks) == 0; rank++) {
            assert_true(attention_flops(ranks, rank) * ranks == all);
        }
    }
}

/* Each rank's part of parameters and of their gradients, of extents that ranks do not divide. */
static void test_shapes(void **state)
{
    BY_UNUSED(state);
    static const int64_t words[4] = {3, 3, 3, 2};
    static const int64_t units[4] = {7, 7, 6, 6};
    for (int rank = 0; rank < 4; rank++) {
        by_shard_axis axis = {.ranks = 4, .rank = rank, .mesh = 32};
        by_graph *graph = shard_model("gpt2", BY_F32, axis, NULL);
        check_shape(graph, "wte.weight", BY_SHAPE(words[rank], 24));
        check_shape(graph, "grad.wte.weight", BY_SHAPE(words[rank], 24));
        check_shape(graph, "h.1.attn.c_attn.weight", BY_SHAPE(24, 18));
        check_shape(graph, "grad.h.1.attn.c_attn.bias", BY_SHAPE(18));
        check_shape(graph, "grad.h.1.attn.c_proj.weight", BY_SHAPE(6, 24));
        check_shape(graph, "grad.h.0.mlp.c_fc.weight", BY_SHAPE(24, units[rank]));
        check_shape(graph, "grad.h.0.mlp.c_proj.bias", BY_SHAPE(24));
        check_shape(graph, "grad.wpe.weight", BY_SHAPE(12, 24));
        const by__graph_value *packed =
            &graph->values[by_graph_find(graph, "h.1.attn.c_attn.weight")];
        assert_int_equal(packed->part_count, 1);
        assert_int_equal(packed->part[0].split.sections, 3);
        assert_int_equal(packed->whole.dim[1], 72);
        by_graph_close(&graph);
    }
}

enum { IN = 3, HEADS_OF_EACH = 4, OUT = 3 * HEADS_OF_EACH };

/* A result that has rows of q, of k and of v is put together in their order. */
static by_status run_packed(by_comm *comm, void *user, by_error *error)
{
    BY_UNUSED(user);
    by_graph *graph;
    rank_run r = {0};
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    by_shard_axis axis = {.ranks = ranks, .rank = rank, .mesh = RANK_MESH};
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(IN, IN));
    by_value w = by_graph_parameter(graph, "w", "qkv embed", BY_SHAPE(OUT, IN), (by_init){0});
    by_graph_output(graph, by_linear(graph, x, w, BY_NONE, true), "y");
    BY_TRY(by_pass_shard(graph, BY_SHARD_TENSOR, &axis, error));
    BY_TRY(rank_open(&r, comm, graph, error));
    int mine = HEADS_OF_EACH / ranks;
    float *part = rank_data(&r, "w");
    for (int i = 0; i < IN; i++) {
        ((float *)rank_data(&r, "x"))[i * IN + i] = 1.0f;
    }
    for (int k = 0; k < 3 * mine * IN; k++) { /* elements of w are their places in the whole */
        int row = k / IN / mine * HEADS_OF_EACH + rank * mine + k / IN % mine;
        part[k] = (float)(row * IN + k % IN);
    }
    BY_TRY(by_program_run(r.program, error));
    const float *y = rank_data(&r, "y");
    for (int i = 0; i < IN * OUT; i++) {
        int want = i % OUT * IN + i / OUT;
        EXPECT(y[i] == (float)want);
    }
    rank_close(&r);
    return BY_OK;
}

static void test_packed(void **state)
{
    BY_UNUSED(state);
    run_ranks(2, run_packed, NULL);
    run_ranks(4, run_packed, NULL);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    (void)by_graph_parameter(graph, "w", "heads embed", BY_SHAPE(10, 4), (by_init){0});
    by_shard_axis axis = {.ranks = 4, .rank = 0, .mesh = 32};
    check_error(by_pass_shard(graph, BY_SHARD_TENSOR, &axis, &error), BY_EARG, &error,
                "'heads' of parameter 'w' has 10 entries, which cannot be split over 4 ranks");
    axis.rank = 4;
    check_error(by_pass_shard(graph, BY_SHARD_TENSOR, &axis, &error), BY_EARG, &error,
                "no rank 4 of 4");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor),  cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_time),    cmocka_unit_test(test_time_of_mixtures),
        cmocka_unit_test(test_balance), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_packed),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
