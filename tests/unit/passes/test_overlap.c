/* by_pass_overlap: what stands between the start of a collective and the wait for it, the bytes
 * that are gathered ahead, the peak of memory, and the order of collectives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "passes/passes.h"
#include "runner.h"

#define MESH   (1u << 5)
#define LAYERS 4
#define WIDTH  32

/* The node that waits for collective n. */
static size_t wait_of(const by_graph *graph, size_t n)
{
    for (size_t k = n + 1; k < graph->node_count; k++) {
        if (by__op_row_of(graph->nodes[k].op)->waits &&
            graph->nodes[k].in[0] == graph->nodes[n].out[0]) {
            return k;
        }
    }
    fail_msg("nothing waits for node %zu", n);
    return 0;
}

/* Nodes that compute between a collective and the wait for it. */
static int hidden_by(const by_graph *graph, size_t n)
{
    int nodes = 0;
    for (size_t k = n + 1; k < wait_of(graph, n); k++) {
        const by__op_row *row = by__op_row_of(graph->nodes[k].op);
        nodes += !row->communicates && !row->waits;
    }
    return nodes;
}

static size_t peak_of(const by_graph *graph)
{
    by_error error = {0};
    by__pass_memory_plan plan;
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    size_t peak = plan.lower_bound;
    by__pass_memory_plan_free(&plan);
    return peak;
}

/* Operations of the collectives in their order. */
static size_t list_collectives(const by_graph *graph, by_value *out, size_t capacity)
{
    size_t count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            assert_true(count < capacity);
            out[count++] = graph->nodes[n].out[0];
        }
    }
    return count;
}

/* The pass, and what holds of every result of it. */
static void overlap(by_graph *graph, size_t prefetch)
{
    by_error error = {0};
    by_value before[64];
    by_value after[64];
    size_t count = list_collectives(graph, before, 64);
    size_t peak = peak_of(graph);
    check_ok(by_pass_overlap(graph, prefetch, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(list_collectives(graph, after, 64), count);
    assert_memory_equal(before, after, count * sizeof *before);
    assert_true(peak_of(graph) <= peak + prefetch);
}

static by_value parameter(by_graph *graph, const char *name, int layer, by_shape shape)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s.%d", name, layer);
    return by_graph_parameter(graph, text, NULL, shape, (by_init){0});
}

static by_value loss_of(by_graph *graph, by_value y)
{
    return by_reshape(graph, by_sum(graph, y, (const int[]){0, 1}, 2, false), BY_SHAPE(1));
}

/* Layers that are split over ranks as in Megatron-LM: x + (sum over ranks of gelu(x A) B); rows of
 * x over the ranks, too, when `sequence`. */
static by_graph *split_layers(bool sequence)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(sequence ? 8 : 16, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        by_value a = parameter(graph, "a", layer, BY_SHAPE(WIDTH, WIDTH / 2));
        by_value b = parameter(graph, "b", layer, BY_SHAPE(WIDTH / 2, WIDTH));
        by_graph_set_block(graph, layer);
        by_value y =
            sequence ? by_all_gather(graph, x, 0, 16, MESH, 2) : by_replicate(graph, x, MESH, 2);
        y = by_linear(graph, y, a, BY_NONE, false);
        y = by_linear(graph, by_unary(graph, y, BY_FN_GELU), b, BY_NONE, false);
        y = sequence ? by_reduce_scatter(graph, y, 0, MESH, 2, 0)
                     : by_all_reduce(graph, y, MESH, 2);
        x = by_add(graph, x, y);
    }
    by_graph_set_block(graph, -1);
    check_ok(by_pass_gradients(graph, loss_of(graph, x), seed, &error), &error);
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_pass_order(graph, &error), &error);
    return graph;
}

/* The gradient of a layer's input is summed while the gradient of its weight is computed. */
static void test_gradients_of_weights(void **state)
{
    BY_UNUSED(state);
    for (int sequence = 0; sequence < 2; sequence++) {
        by_graph *graph = split_layers(sequence == 1);
        overlap(graph, 0);
        int sums = 0;
        int hidden = 0;
        for (size_t n = 0; n < graph->node_count; n++) {
            const by__graph_node *node = &graph->nodes[n];
            if (node->op == (sequence ? BY_OP_REDUCE_SCATTER : BY_OP_ALL_REDUCE) &&
                node->phase == BY__BACKWARD) {
                sums++;
                hidden += hidden_by(graph, n) >= 1;
            }
        }
        assert_int_equal(sums, LAYERS - 1); /* the first layer's input needs no gradient */
        assert_int_equal(hidden, sums);
        by_graph_close(&graph);
    }
}

/* Layers whose weights are gathered: the bytes of the weights that are there before they are waited
 * for, and how many collectives had something to hide them. */
typedef struct gathering {
    size_t most_ahead;
    int hidden;
} gathering;

static gathering gather_layers(size_t prefetch)
{
    by_error error = {0};
    gathering g = {0};
    size_t ahead = 0;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(16, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        by_value w = parameter(graph, "w", layer, BY_SHAPE(WIDTH / 2, WIDTH));
        by_value whole = by_all_gather(graph, w, 0, WIDTH, MESH, 2);
        x = by_unary(graph, by_linear(graph, x, whole, BY_NONE, false), BY_FN_GELU);
    }
    by_graph_output(graph, loss_of(graph, x), "loss");
    check_ok(by_pass_order(graph, &error), &error);
    overlap(graph, prefetch);
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        size_t more = WIDTH * WIDTH * sizeof(float);
        if (by__op_row_of(node->op)->communicates) {
            ahead += more;
            g.most_ahead = ahead > g.most_ahead ? ahead : g.most_ahead;
            g.hidden += hidden_by(graph, n) > 0;
        } else if (by__op_row_of(node->op)->waits) {
            ahead -= more;
        }
    }
    by_graph_close(&graph);
    return g;
}

static void test_prefetch(void **state)
{
    BY_UNUSED(state);
    const size_t more = WIDTH * WIDTH * sizeof(float);
    assert_int_equal(gather_layers(0).most_ahead, more);
    assert_int_equal(gather_layers(0).hidden, 0);
    assert_int_equal(gather_layers(2 * more).most_ahead, 2 * more);
    assert_int_equal(gather_layers(2 * more).hidden, LAYERS - 1); /* not the first */
    assert_int_equal(gather_layers(100 * more).most_ahead, LAYERS * more);
}

/* Buckets of gradients start behind the last gradient in them and are waited for at the end. */
static void test_buckets(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(16, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        by_value w = parameter(graph, "w", layer, BY_SHAPE(WIDTH, WIDTH));
        x = by_unary(graph, by_linear(graph, x, w, BY_NONE, false), BY_FN_GELU);
    }
    check_ok(by_pass_gradients(graph, loss_of(graph, x), seed, &error), &error);
    check_ok(by_pass_fuse(graph, &error), &error);
    for (int layer = LAYERS; layer-- > 0;) {
        char name[32];
        (void)snprintf(name, sizeof name, "grad.w.%d", layer);
        by_value g = by_graph_find(graph, name);
        (void)by__op_build_wait(
            graph, by__op_build_reduce_gradients(graph, &g, 1, layer, 0, MESH, 2, true));
    }
    check_ok(by_pass_order(graph, &error), &error);
    overlap(graph, 0);
    int found = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (by__op_row_of(node->op)->communicates) {
            assert_int_equal(graph->values[node->in[0]].producer, n - 1);
            assert_true(wait_of(graph, n) >= graph->node_count - LAYERS);
            found++;
        }
    }
    assert_int_equal(found, LAYERS);
    by_graph_close(&graph);
}

/* A graph without collectives is left as it is. */
static void test_nothing_to_do(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4));
    by_value a = by_unary(graph, x, BY_FN_TANH);
    by_graph_output(graph, by_unary(graph, x, BY_FN_GELU), "y");
    by_graph_output(graph, a, "a");
    check_ok(by_pass_overlap(graph, SIZE_MAX, &error), &error);
    assert_int_equal(graph->values[a].producer, 0);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_weights),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
