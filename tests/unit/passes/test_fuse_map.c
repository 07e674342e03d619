/* Element-wise nodes that the fuse pass makes into maps: the bits of the separate nodes, on every
 * instruction-set level, and what must stay separate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "passes/passes.h"
#include "runner.h"

enum { VALUES = 40, COUNT = 3 * 1031 };

static int count_ops(const by_graph *graph, by_op op)
{
    int count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op;
    }
    return count;
}

static uint32_t draw(uint64_t seed, size_t i, uint32_t below)
{
    return (uint32_t)((random_unit(seed, 77, i) + 1.0) * 0.5 * below) % below;
}

/* A random graph of element-wise nodes over f32, with casts to bf16 and back, scalars and a
 * broadcast row, which no map takes. */
static by_graph *random_graph(uint64_t seed)
{
    by_graph *graph = open_graph();
    by_value v[VALUES];
    by_value s = by_graph_input(graph, "s", BY_F32, BY_SHAPE(1));
    by_value row = by_graph_input(graph, "row", BY_F32, BY_SHAPE(1031));
    for (int i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        v[i] = by_graph_input(graph, name, BY_F32, BY_SHAPE(3, 1031));
    }
    for (size_t i = 4; i < VALUES; i++) {
        /* Mostly recent ones, so that many are read once. */
        size_t reach = i < 8 ? i : 8;
        by_value a = v[i - 1 - draw(seed, 3 * i, (uint32_t)reach)];
        by_value b = v[i - 1 - draw(seed, 3 * i + 1, (uint32_t)reach)];
        switch (draw(seed, 3 * i + 2, 9)) {
        case 0:
            v[i] = by_add(graph, a, b);
            break;
        case 1:
            v[i] = by_sub(graph, a, b);
            break;
        case 2:
            v[i] = by_mul(graph, a, b);
            break;
        case 3:
            v[i] = by_scale(graph, a, s);
            break;
        case 4:
            v[i] = by_add(graph, a, s);
            break;
        case 5:
            v[i] = by_mul(graph, a, row);
            break;
        case 6:
            v[i] = by_cast(graph, by_cast(graph, a, BY_BF16), BY_F32);
            break;
        default:
            v[i] = by_unary(graph, a, (by_function)draw(seed, 500 + i, BY_FN_COUNT));
        }
        if (i % 7 == 0) {
            char name[16];
            (void)snprintf(name, sizeof name, "y%zu", i);
            by_graph_output(graph, by_unary(graph, v[i], BY_FN_TANH), name);
        }
    }
    by_error error = {0};
    check_ok(by_graph_check(graph, &error), &error);
    check_ok(by__pass_graph_prune(graph, &error), &error);
    return graph;
}

static void test_same_bits(void **state)
{
    BY_UNUSED(state);
    size_t level_count;
    const char *const *levels = by__cpu_host_levels(&level_count);
    int maps = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        by_error error = {0};
        runner plain;
        runner fused;
        by_graph *one = random_graph(seed);
        by_graph *other = random_graph(seed);
        check_ok(by_pass_fuse(other, &error), &error);
        check_ok(by_graph_verify(other, &error), &error);
        maps += count_ops(other, BY_OP_MAP);
        assert_true(other->node_count < one->node_count);
        set_isa(levels[seed % level_count]);
        runner_open(&plain, one, 2);
        runner_open(&fused, other, 2);
        runner_fill(&plain, seed, 1);
        runner_fill(&fused, seed, 1);
        runner_run(&plain);
        runner_run(&fused);
        for (size_t i = 7; i < VALUES; i += 7) {
            char name[16];
            (void)snprintf(name, sizeof name, "y%zu", i);
            assert_memory_equal(runner_data(&plain, name), runner_data(&fused, name),
                                COUNT * sizeof(float));
        }
        runner_close(&plain);
        runner_close(&fused);
        by_graph_close(&one);
        by_graph_close(&other);
    }
    set_isa("native");
    assert_true(maps > 24);
}

/* More operands than a map has: several maps, all of the work done. */
static void test_many_operands(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    float want[16] = {0};
    by_graph *graph = open_graph();
    by_value sum = BY_NONE;
    for (int i = 0; i < 30; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        by_value x = by_graph_input(graph, name, BY_F32, BY_SHAPE(16));
        sum = i == 0 ? x : by_add(graph, sum, x);
    }
    by_graph_output(graph, sum, "sum");
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(count_ops(graph, BY_OP_ADD), 0);
    assert_in_range(count_ops(graph, BY_OP_MAP), 4, 6);
    runner_open(&r, graph, 1);
    runner_fill(&r, 3, 1);
    runner_run(&r);
    for (int i = 0; i < 30; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        const float *x = runner_data(&r, name);
        for (int k = 0; k < 16; k++) {
            want[k] = i == 0 ? x[k] : want[k] + x[k];
        }
    }
    assert_memory_equal(runner_data(&r, "sum"), want, sizeof want);
    runner_close(&r);
    by_graph_close(&graph);
}

/* A value that is read twice or is an output stays a tensor; one node alone stays itself; bf16
 * functions keep their own kernels. */
static void test_left_alone(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(8));
    by_value h = by_graph_input(graph, "h", BY_BF16, BY_SHAPE(8));
    by_value twice = by_unary(graph, x, BY_FN_TANH);
    by_graph_output(graph, by_mul(graph, twice, twice), "a");
    by_value named = by_unary(graph, x, BY_FN_RELU);
    by_graph_output(graph, named, "named");
    by_graph_output(graph, by_add(graph, named, x), "b");
    by_graph_output(graph, by_unary(graph, by_unary(graph, h, BY_FN_GELU), BY_FN_TANH), "c");
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(count_ops(graph, BY_OP_MAP), 0);
    assert_int_equal(graph->node_count, 6);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_many_operands),
        cmocka_unit_test(test_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
