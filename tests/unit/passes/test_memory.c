/* The memory plan: no two values that live at the same time overlap, whatever the graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "passes/passes.h"
#include "runner.h"
#include "trainer/state/train.h"

#define GRAPHS 200
#define NODES  40

/* A random graph over tensors of three sizes: element-wise nodes, products and norms, some results
 * outputs. */
static by_graph *random_graph(uint64_t seed)
{
    static const int64_t widths[3] = {8, 24, 64};
    by_graph *graph = open_graph();
    by_value weight[3][3];
    by_value pool[NODES + 3];
    int held = 0;
    for (int i = 0; i < 3; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "x%d", i);
        pool[held++] = by_graph_input(graph, name, BY_F32, BY_SHAPE(6, widths[i]));
        for (int j = 0; j < 3; j++) {
            (void)snprintf(name, sizeof name, "w%d%d", i, j);
            weight[i][j] =
                by_graph_parameter(graph, name, NULL, BY_SHAPE(widths[i], widths[j]), (by_init){0});
        }
    }
    for (size_t n = 0; n < NODES; n++) {
        int draw = (int)((random_unit(seed, 1, n) + 1.0) * 3.0);
        by_value a = pool[(int)((random_unit(seed, 2, n) + 1.0) / 2.0 * held)];
        by_value b = pool[(int)((random_unit(seed, 3, n) + 1.0) / 2.0 * held)];
        int wide = graph->values[a].shape.dim[1] == 8    ? 0
                   : graph->values[a].shape.dim[1] == 24 ? 1
                                                         : 2;
        bool same = by_shape_equal(&graph->values[a].shape, &graph->values[b].shape);
        by_value y = draw < 2 && same   ? by_add(graph, a, b)
                     : draw < 3         ? by_unary(graph, a, BY_FN_TANH)
                     : draw < 4 && same ? by_swiglu(graph, a, b)
                                        : by_linear(graph, a, weight[wide][n % 3], BY_NONE, false);
        pool[held++] = y;
        if (n % 13 == 12) {
            char name[32];
            (void)snprintf(name, sizeof name, "y%zu", n);
            by_graph_output(graph, y, name);
        }
    }
    by_graph_output(graph, by_mul(graph, pool[held - 1], pool[held - 1]), "last");
    by_error error = {0};
    check_ok(by__pass_graph_prune(graph, &error), &error);
    return graph;
}

typedef struct life {
    size_t first;
    size_t last;
} life;

static life life_of(const by_graph *graph, by_value value)
{
    life l = {SIZE_MAX, 0};
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        bool touches = false;
        for (int i = 0; i < node->input_count; i++) {
            touches = touches || node->in[i] == value;
        }
        for (int i = 0; i < node->output_count; i++) {
            touches = touches || node->out[i] == value;
        }
        if (touches) {
            l.first = n < l.first ? n : l.first;
            l.last = n;
        }
    }
    return l;
}

/* True when b has the elements of a. */
static bool is_view(const by_graph *graph, by_value a, by_value b)
{
    const by__graph_node *node = &graph->nodes[graph->values[b].producer];
    return by__op_row_of(node->op)->view && node->out[0] == b && node->in[0] == a;
}

/* True when b is made by the node that reads a last, over an input that the op lets it overlay. */
static bool handed_over(const by_graph *graph, by_value a, by_value b)
{
    const by__graph_node *node = &graph->nodes[graph->values[b].producer];
    for (int o = 0; o < node->output_count; o++) {
        for (int i = 0; i < node->input_count; i++) {
            if (node->out[o] == b && node->in[i] == a &&
                (by__op_row_of(node->op)->overlay[o] >> i & 1u) != 0) {
                return true;
            }
        }
    }
    return false;
}

/* Every pair of values that live at the same node has disjoint bytes, but for an operand that dies
 * where its result takes its place. */
static void check_plan(const by_graph *graph, const by__pass_memory_plan *plan)
{
    for (size_t a = 0; a < graph->value_count; a++) {
        bool made = graph->values[a].producer >= 0;
        bool in_arena = plan->offset[a] != SIZE_MAX;
        assert_false(in_arena && by__role_is_external(graph->values[a].role));
        if (!made || graph->values[a].role != BY_ROLE_ACTIVATION) {
            continue;
        }
        /* Either in the arena, or in the buffer of an output that takes it over. */
        assert_true(in_arena || by__role_is_external(graph->values[plan->owner[a]].role));
        life la = life_of(graph, (by_value)a);
        size_t bytes_a = by__graph_value_bytes(&graph->values[a]);
        assert_true(!in_arena || plan->offset[a] + bytes_a <= plan->bytes);
        assert_true(!in_arena || plan->offset[a] % BY_CACHE_LINE == 0);
        for (size_t b = a + 1; b < graph->value_count; b++) {
            life lb = life_of(graph, (by_value)b);
            bool together =
                graph->values[b].producer >= 0 && la.first <= lb.last && lb.first <= la.last;
            bool same_place =
                in_arena ? plan->offset[b] != SIZE_MAX &&
                               plan->offset[a] <
                                   plan->offset[b] + by__graph_value_bytes(&graph->values[b]) &&
                               plan->offset[b] < plan->offset[a] + bytes_a
                         : plan->owner[a] == plan->owner[b];
            if (together && same_place) {
                bool forward = la.last == lb.first && handed_over(graph, (by_value)a, (by_value)b);
                bool back = lb.last == la.first && handed_over(graph, (by_value)b, (by_value)a);
                bool view = is_view(graph, (by_value)a, (by_value)b) ||
                            is_view(graph, (by_value)b, (by_value)a);
                if (!forward && !back && !view) {
                    fail_msg("values %zu and %zu overlap while both are alive", a, b);
                }
            }
        }
    }
}

static void test_random_graphs(void **state)
{
    BY_UNUSED(state);
    size_t in_place = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        by_error error = {0};
        by__pass_memory_plan plan;
        by_graph *graph = random_graph(seed);
        check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
        check_plan(graph, &plan);
        assert_true(plan.bytes >= plan.lower_bound);
        in_place += plan.in_place;
        by__pass_memory_plan_free(&plan);
        by_graph_close(&graph);
    }
    assert_true(in_place > GRAPHS);
}

/* The same numbers from the planned arena and from a graph in which every value is an output and so
 * has a buffer of its own. */
static void test_random_graphs_run(void **state)
{
    BY_UNUSED(state);
    for (uint64_t seed = 0; seed < 20; seed++) {
        by_graph *graph = random_graph(seed);
        by_graph *apart = random_graph(seed);
        for (size_t v = 0; v < apart->value_count; v++) {
            char name[32];
            (void)snprintf(name, sizeof name, "v%zu", v);
            if (apart->values[v].role == BY_ROLE_ACTIVATION && apart->values[v].producer >= 0) {
                by_graph_output(apart, (by_value)v, name);
            }
        }
        runner r;
        runner s;
        runner_open(&r, graph, 1);
        runner_open(&s, apart, 1);
        assert_int_equal(by_program_arena_bytes(s.program), 0);
        runner_fill(&r, seed, 1);
        runner_fill(&s, seed, 1);
        runner_run(&r);
        runner_run(&s);
        assert_memory_equal(runner_data(&r, "last"), runner_data(&s, "last"),
                            runner_count(&r, "last") * sizeof(float));
        runner_close(&r);
        runner_close(&s);
        by_graph_close(&graph);
        by_graph_close(&apart);
    }
}

/* A chain of in-place nodes that ends in an output is in the output's buffer from its start. */
static void test_output_takes_over(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_memory_plan plan;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(16));
    by_value a = by_unary(graph, x, BY_FN_TANH);
    by_value b = by_unary(graph, a, BY_FN_GELU);
    by_value c = by_add(graph, b, x);
    by_graph_output(graph, c, "c");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.bytes, 0);
    assert_int_equal(plan.owner[a], c);
    assert_int_equal(plan.owner[b], c);
    assert_int_equal(plan.owner[x], x);
    assert_int_equal(plan.in_place, 2);
    by__pass_memory_plan_free(&plan);
    /* A reader behind the chain: `a` must outlive `b`, and is the later output's. */
    by_value d = by_mul(graph, c, a);
    by_graph_output(graph, d, "d");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.owner[a], d);
    assert_int_equal(plan.owner[b], c);
    by__pass_memory_plan_free(&plan);
    by_graph_close(&graph);
}

/* y bf16 [2, 16] = x + v, v f32 [16]: as many bytes, but v is read again for the second row. */
static void test_equal_bytes_are_not_equal_types(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_memory_plan plan;
    runner r;
    set_isa("reference"); /* which reads one element after another */
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_BF16, BY_SHAPE(2, 16));
    by_value u = by_graph_input(graph, "u", BY_F32, BY_SHAPE(16));
    by_value v = by_unary(graph, u, BY_FN_RELU);
    by_graph_output(graph, by_add(graph, x, v), "y");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.owner[v], v);
    by__pass_memory_plan_free(&plan);
    runner_open(&r, graph, 1);
    for (size_t i = 0; i < 32; i++) {
        set_element(runner_data(&r, "x"), BY_BF16, i, 1.0);
        set_element(runner_data(&r, "u"), BY_F32, i % 16, (double)(i % 16));
    }
    runner_run(&r);
    for (size_t i = 0; i < 32; i++) {
        assert_true(get_element(runner_data(&r, "y"), BY_BF16, i) == 1.0 + (double)(i % 16));
    }
    set_isa("native");
    runner_close(&r);
    by_graph_close(&graph);
}

static void check_model(const char *kind, const char *recompute, const char *compute)
{
    by_error error = {0};
    by_config *config;
    by_graph *graph;
    by__pass_memory_plan plan;
    char assignments[3][64];
    static const char *const settings[] = {
        "model.layers=4",  "model.heads=4",     "model.width=64", "model.context=64",
        "model.vocab=300", "model.dropout=0.1", "train.batch=4"};
    check_ok(by_config_default(&config, &error), &error);
    (void)snprintf(assignments[0], 64, "model.kind=%s", kind);
    (void)snprintf(assignments[1], 64, "memory.recompute=%s", recompute);
    (void)snprintf(assignments[2], 64, "precision.compute=%s", compute);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    for (size_t i = 0; i < 3; i++) {
        check_ok(by_config_set(config, assignments[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "order", &error), &error);
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    check_plan(graph, &plan);
    assert_true(plan.bytes >= plan.lower_bound);
    if ((double)plan.bytes > 1.05 * (double)plan.lower_bound) {
        fail_msg("%s, recompute %s, %s: the arena has %zu bytes, %zu are alive at most", kind,
                 recompute, compute, plan.bytes, plan.lower_bound);
    }
    by__pass_memory_plan_free(&plan);
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_models(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama", "mixtral"};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        check_model(kinds[k], "none", "f32");
        check_model(kinds[k], "block", "f32");
        check_model(kinds[k], "none", "bf16");
        check_model(kinds[k], "block", "bf16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_random_graphs_run),
        cmocka_unit_test(test_output_takes_over),
        cmocka_unit_test(test_equal_bytes_are_not_equal_types),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
