/* Order and memory plan are near-linear in the graph's size and give what the plain quadratic
 * methods give, which are written out here: the same order, offset by offset the same arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/program.h"
#include "passes/passes.h"
#include "passes/placement.h"
#include "runner.h"

/* A sequence of random numbers below n, from a state of the test's own. */
static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* ---- placement ---- */

enum { MOST = 120 };

static int by_offset(const void *a, const void *b)
{
    const by__pass_interval *x = *(const by__pass_interval *const *)a;
    const by__pass_interval *y = *(const by__pass_interval *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Looks at every interval placed before. */
static size_t plain_offset(const by__pass_interval *intervals, size_t k)
{
    const by__pass_interval *it = &intervals[k];
    const by__pass_interval *near[MOST];
    size_t count = 0;
    size_t cursor = 0;
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    for (size_t j = 0; j < k; j++) {
        if (intervals[j].first <= it->last && it->first <= intervals[j].last) {
            near[count++] = &intervals[j];
        }
    }
    qsort(near, count, sizeof *near, by_offset);
    for (size_t j = 0; j < count; j++) {
        if (near[j]->offset >= cursor + it->bytes && near[j]->offset - cursor < best_gap) {
            best = cursor;
            best_gap = near[j]->offset - cursor;
        }
        size_t end = near[j]->offset + near[j]->bytes;
        cursor = end > cursor ? end : cursor;
    }
    return best == SIZE_MAX ? cursor : best;
}

/* The intervals come back in the order in which they were placed. */
static void test_placement(void **state)
{
    BY_UNUSED(state);
    uint64_t seed = 3;
    for (int round = 0; round < 400; round++) {
        by_error error = {0};
        by__pass_interval intervals[MOST];
        size_t total;
        size_t expected_total = 0;
        size_t count = 1 + draw(&seed, MOST);
        uint32_t times = 1 + draw(&seed, round % 2 == 0 ? 40 : 1000);
        for (size_t k = 0; k < count; k++) {
            size_t a = draw(&seed, times);
            size_t b = draw(&seed, 4) == 0 ? draw(&seed, times) : a + draw(&seed, 4);
            intervals[k] = (by__pass_interval){
                .root = (by_value)k,
                .bytes = 64 * (size_t)(1 + draw(&seed, 1 + (uint32_t)count % 9)),
                .first = a < b ? a : b,
                .last = a < b ? b : a};
        }
        check_ok(by__pass_place_intervals(&total, intervals, count, &error), &error);
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(intervals[k].offset, plain_offset(intervals, k));
            size_t end = intervals[k].offset + intervals[k].bytes;
            expected_total = end > expected_total ? end : expected_total;
        }
        assert_int_equal(total, expected_total);
    }
}

/* ---- order ---- */

static by_graph *random_graph(uint64_t *seed, int nodes)
{
    by_graph *graph = open_graph();
    by_value made[512];
    int count = 0;
    assert_true(nodes < 500);
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        made[count++] = by_graph_input(graph, name, BY_F32, BY_SHAPE(4, 8));
    }
    by_value wide = by_graph_parameter(graph, "wide", NULL, BY_SHAPE(8, 24), (by_init){0});
    by_value narrow = by_graph_parameter(graph, "narrow", NULL, BY_SHAPE(24, 8), (by_init){0});
    while (count < nodes) {
        int window = draw(seed, 4) == 0 ? count : 12;
        int low = count > window ? count - window : 0;
        by_value a = made[low + (int)draw(seed, (uint32_t)(count - low))];
        by_value b = made[low + (int)draw(seed, (uint32_t)(count - low))];
        int64_t width = graph->values[a].shape.dim[1];
        switch (draw(seed, 3)) {
        case 0:
            made[count++] = by_linear(graph, a, width == 8 ? wide : narrow, BY_NONE, false);
            break;
        case 1:
            made[count++] = by_unary(graph, a, BY_FN_TANH);
            break;
        default:
            b = graph->values[b].shape.dim[1] == width ? b : a;
            made[count++] = by_add(graph, a, b);
        }
    }
    by_graph_output(graph, made[count - 1], "y");
    return graph;
}

static size_t activation_bytes(const by_graph *graph, by_value value)
{
    const by__graph_value *v = &graph->values[value];
    return v->role == BY_ROLE_ACTIVATION ? by__graph_value_bytes(v) : 0;
}

/* True when only node n, of those that have not run, reads the value. */
static bool dies_with(const by_graph *graph, const bool *done, by_value value, size_t n)
{
    for (size_t k = 0; k < graph->node_count; k++) {
        for (int i = 0; i < graph->nodes[k].input_count && !done[k] && k != n; i++) {
            if (graph->nodes[k].in[i] == value) {
                return false;
            }
        }
    }
    return true;
}

static int64_t plain_growth(const by_graph *graph, const bool *done, size_t n)
{
    const by__graph_node *node = &graph->nodes[n];
    int64_t growth = 0;
    for (int i = 0; i < node->output_count; i++) {
        if (!dies_with(graph, done, node->out[i], n)) {
            growth += (int64_t)activation_bytes(graph, node->out[i]);
        }
    }
    for (int i = 0; i < node->input_count; i++) {
        bool again = node->in[i] == BY_NONE;
        for (int k = 0; k < i; k++) {
            again = again || node->in[k] == node->in[i];
        }
        if (!again && dies_with(graph, done, node->in[i], n)) {
            growth -= (int64_t)activation_bytes(graph, node->in[i]);
        }
    }
    return growth;
}

static bool can_run(const by_graph *graph, const bool *done, size_t n)
{
    for (int i = 0; i < graph->nodes[n].input_count; i++) {
        by_value value = graph->nodes[n].in[i];
        int producer = value == BY_NONE ? -1 : graph->values[value].producer;
        if (producer >= 0 && !done[producer]) {
            return false;
        }
    }
    return !done[n];
}

/* Asks every node at every step. first_result[k] is the first output of the k-th node to run. */
static void plain_order(const by_graph *graph, by_value *first_result)
{
    bool done[512] = {false};
    for (size_t k = 0; k < graph->node_count; k++) {
        size_t best = SIZE_MAX;
        int64_t best_growth = 0;
        for (size_t n = 0; n < graph->node_count; n++) {
            if (can_run(graph, done, n)) {
                int64_t growth = plain_growth(graph, done, n);
                if (best == SIZE_MAX || growth < best_growth) {
                    best = n;
                    best_growth = growth;
                }
            }
        }
        assert_true(best != SIZE_MAX);
        done[best] = true;
        first_result[k] = graph->nodes[best].out[0];
    }
}

static void test_order(void **state)
{
    BY_UNUSED(state);
    uint64_t seed = 11;
    int changed = 0;
    for (int round = 0; round < 40; round++) {
        by_error error = {0};
        by_value expected[512];
        by_value present[512];
        size_t before;
        size_t after;
        by_graph *graph = random_graph(&seed, 20 + (int)draw(&seed, 100));
        plain_order(graph, expected);
        for (size_t n = 0; n < graph->node_count; n++) {
            present[n] = graph->nodes[n].out[0];
        }
        check_ok(by__pass_peak_bytes(&before, graph, &error), &error);
        check_ok(by_pass_order(graph, &error), &error);
        check_ok(by_graph_verify(graph, &error), &error);
        check_ok(by__pass_peak_bytes(&after, graph, &error), &error);
        const by_value *want = after < before ? expected : present;
        for (size_t n = 0; n < graph->node_count; n++) {
            assert_int_equal(graph->nodes[n].out[0], want[n]);
        }
        changed += after < before;
        by_graph_close(&graph);
    }
    assert_true(changed > 10);
}

/* ---- size ---- */

/* A model of 2,500 layers, 50,000 nodes with its backward pass, takes all passes and is compiled:
 * within the suite's patience only while nothing of it is quadratic. */
static void test_deep_model(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device;
    by_program *program;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    for (int layer = 0; layer < 2500; layer++) {
        char name[3][32];
        by_graph_set_block(graph, layer);
        (void)snprintf(name[0], sizeof name[0], "%d.norm", layer);
        (void)snprintf(name[1], sizeof name[1], "%d.up", layer);
        (void)snprintf(name[2], sizeof name[2], "%d.down", layer);
        by_value g = by_graph_parameter(graph, name[0], NULL, BY_SHAPE(8), (by_init){0});
        by_value up = by_graph_parameter(graph, name[1], NULL, BY_SHAPE(8, 16), (by_init){0});
        by_value down = by_graph_parameter(graph, name[2], NULL, BY_SHAPE(16, 8), (by_init){0});
        by_value h = by_linear(graph, by_rms_norm(graph, x, g, 1e-5f), up, BY_NONE, false);
        h = by_linear(graph, by_unary(graph, h, BY_FN_GELU), down, BY_NONE, false);
        x = by_add(graph, x, by_mul(graph, h, x));
    }
    by_graph_set_block(graph, -1);
    by_value head = by_graph_parameter(graph, "head", NULL, BY_SHAPE(5, 8), (by_init){0});
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(4));
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value loss = by_linear_cross_entropy(graph, x, head, targets);
    by_graph_output(graph, loss, "loss");
    check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_pass_rematerialize(graph, 1, &error), &error);
    check_ok(by_pass_recompute(graph, NULL, &error), &error);
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_pass_order(graph, &error), &error);
    check_ok(by_device_open(&device, "cpu", 1, &error), &error);
    check_ok(by_program_compile(&program, graph, device, "deep", &error), &error);
    assert_true(by_program_node_count(program) > 40000);
    assert_true(by_program_arena_bytes(program) >= by_program_live_bytes(program));
    assert_int_not_equal(by_graph_find(graph, "grad.2499.up"), BY_NONE);
    assert_int_equal(by_graph_find(graph, "grad.2500.up"), BY_NONE);
    by_program_close(&program);
    by_device_close(&device);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_deep_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
