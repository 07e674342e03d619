/* MAP: random programs against the reference, bit by bit, at every level; against the separate
 * operations; what building refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/map.h"
#include "base/half.h"
#include "kernel_test.h"
#include "runner.h"

/* A stream of numbers that depend on its seed alone. */
typedef struct draws {
    uint64_t seed;
    size_t next;
} draws;

static int below(draws *d, int limit)
{
    double u = (random_unit(d->seed, 3, d->next++) + 1.0) / 2.0;
    int value = (int)(u * limit);
    return value < limit ? value : limit - 1;
}

/* A value that steps and stores may read: a tensor, or one of the steps so far. */
static int some_value(draws *d, const by_map_program *map)
{
    int tensors = map->inputs - 1;
    int value = below(d, tensors + map->steps);
    return value < tensors ? value : BY_MAP_MAX_INPUTS + value - tensors;
}

/* Of tensors and one operand of four scalars, the last; every kind whose result is exact. */
static by_map_program random_program(draws *d)
{
    by_map_program map = {.inputs = 2 + below(d, 4)};
    int steps = 1 + below(d, 40);
    map.scalars = 1u << (map.inputs - 1);
    for (int k = 0; k < steps; k++) {
        by_map_instruction step = {.kind = (by_map_kind)below(d, BY_MAP_FUNCTION)};
        for (int i = 0; i < 3; i++) {
            step.operand[i] = some_value(d, &map);
        }
        step.constant = (float)(below(d, 9) - 4) / 2.0f;
        if (step.kind == BY_MAP_SCALAR) {
            step.operand[0] = map.inputs - 1;
            step.operand[1] = below(d, 4);
        }
        map.step[map.steps++] = step;
    }
    map.results = 1 + below(d, BY_MAX_OUTPUTS);
    for (int i = 0; i < map.results; i++) {
        map.result[i].value = some_value(d, &map);
        map.result[i].dtype = below(d, 2) == 0 ? BY_F32 : BY_BF16;
    }
    map.random.input = map.inputs - 1;
    map.random.index = below(d, 4);
    map.random.key[0] = (uint32_t)below(d, 1 << 30);
    map.random.first = (below(d, 2) == 0 ? INT64_C(0xfffffff0) : 0) + below(d, 99);
    for (int i = 0; i < map.inputs - 1; i++) {
        if (below(d, 2) == 0) {
            map.update[map.updates].input = i;
            map.update[map.updates].value = some_value(d, &map);
            map.update[map.updates++].word = below(d, 2) == 0 ? 0 : 1 + below(d, BY_MAP_WORDS);
        }
    }
    return map;
}

/* Equal bits, or both not a number. */
static bool same_values(const result *a, const result *b)
{
    for (int t = 0; t < MAX_TENSORS; t++) {
        for (int64_t i = 0; a->data[t] != NULL && i < by_shape_count(&a->type[t].shape); i++) {
            double x = element(a->data[t], a->type[t].dtype, i);
            double y = element(b->data[t], b->type[t].dtype, i);
            if (!(x == y && signbit(x) == signbit(y)) && !(isnan(x) && isnan(y))) {
                return false;
            }
        }
    }
    return true;
}

/* Every output on each operand of its type that is not updated. */
static void check_overlays(const by__device_kernel *kernel, const problem *p, const result *want)
{
    for (int o = 0; o < p->attrs.map->results; o++) {
        for (int i = 0; i < p->attrs.map->inputs - 1; i++) {
            run_options options = plain_run;
            result got;
            if ((p->mutates >> i & 1) != 0 || p->in[i].dtype != p->out[o].dtype) {
                continue;
            }
            options.overlay[o] = i;
            assert_null(kernel_run(kernel, p, &options, &got));
            assert_true(same_values(&got, want));
            result_close(&got);
        }
    }
}

static void check_levels(const problem *p, uint64_t seed)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    result want;
    assert_null(kernel_run(by__cpu_kernel_at(&call, BY__ISA_REFERENCE), p, &plain_run, &want));
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
        for (int threads = 1; threads <= 3; threads += 2) {
            run_options options = plain_run;
            options.threads = threads;
            result got;
            const char *wrong = kernel_run(kernel, p, &options, &got);
            if (wrong != NULL || !same_values(&got, &want)) {
                fail_msg("program %d, %s, %d threads: %s", (int)seed, kernel->name, threads,
                         wrong == NULL ? "other values than the reference's" : wrong);
            }
            result_close(&got);
        }
        check_overlays(kernel, p, &want);
    }
    result_close(&want);
}

static void test_random_programs(void **state)
{
    BY_UNUSED(state);
    static const int64_t sizes[] = {1, 7, 127, 128, 129, 1500, 40001};
    for (uint64_t seed = 0; seed < 140; seed++) {
        draws d = {.seed = seed};
        by_map_program map = random_program(&d);
        operand in[BY_MAP_MAX_INPUTS] = {0};
        int64_t size = sizes[seed % BY_ARRAY_LENGTH(sizes)];
        for (int i = 0; i < map.inputs - 1; i++) {
            in[i].type = (by__graph_type){below(&d, 3) == 0 ? BY_BF16 : BY_F32, BY_SHAPE(size)};
        }
        in[map.inputs - 1].type = (by__graph_type){BY_F32, BY_SHAPE(4)};
        op_case source = {BY_OP_MAP, {.map = &map}, in, map.inputs, FOR_KERNELS};
        problem p;
        problem_open(&p, &source, BY_F32, (pattern)(seed % PATTERN_COUNT));
        check_levels(&p, seed);
        problem_close(&p);
    }
}

#define LARGE ((1 << 20) + 77)

/* Results of bf16 that are large and new are written past the caches, and no bit differs. */
static void test_large_results(void **state)
{
    BY_UNUSED(state);
    by_map_program map = {.inputs = 2, .results = 2, .steps = 1, .scalars = 1u << 1};
    operand in[2] = {{.type = {BY_F32, BY_SHAPE(LARGE)}}, {.type = {BY_F32, BY_SHAPE(4)}}};
    const op_case source = {BY_OP_MAP, {.map = &map}, in, 2, FOR_KERNELS};
    problem p;
    map.step[0] = (by_map_instruction){.kind = BY_MAP_SQUARE};
    map.result[0].value = BY_MAP_MAX_INPUTS;
    map.result[0].dtype = map.result[1].dtype = BY_BF16; /* the second: the operand, rounded */
    problem_open(&p, &source, BY_F32, PATTERN_WIDE);
    check_levels(&p, 0);
    problem_close(&p);
}

/* ---- stochastic rounding ---- */

enum { COUNT = 40000 };

/* Elements [first, first + count) of numbers that bf16 has, plus a part of the distance to the next
 * one, rounded. */
static void round_part(uint16_t *out, by__cpu_isa isa, float part, float step, int64_t first,
                       int64_t count)
{
    by_map_program map = {.inputs = 2, .steps = 2, .updates = 1, .scalars = 2};
    map.step[0] = (by_map_instruction){.kind = BY_MAP_CONSTANT, .constant = part * 0x1p-7f};
    map.step[1] = (by_map_instruction){.kind = BY_MAP_ADD, .operand = {0, BY_MAP_MAX_INPUTS, 0}};
    map.update[0].value = BY_MAP_MAX_INPUTS + 1;
    map.update[0].word = 1 + 6;
    map.random.input = 1;
    map.random.key[0] = 5;
    map.random.first = first;
    for (int64_t i = 0; i < count; i++) {
        out[i] = by__f32_to_bf16(1.0f + (float)((first + i) % 128) * 0x1p-7f);
    }
    by__device_tensor in[2] = {{out, BY_BF16, BY_SHAPE(count)}, {&step, BY_F32, BY_SHAPE(1)}};
    by__device_call call = {.op = BY_OP_MAP, .input_count = 2, .in = in, .attrs = {.map = &map}};
    by__device_context context = {.threads = 2};
    const by__device_kernel *kernel = by__cpu_kernel_at(&call, isa);
    check_ok(kernel->prepare == NULL ? BY_OK : kernel->prepare(&call, &context, NULL), NULL);
    check_ok(kernel->run(&call, &context), NULL);
    if (kernel->release != NULL) {
        kernel->release(&call);
    }
}

/* Elements that went up. */
static double share_up(const uint16_t *values)
{
    int64_t up = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double whole = 1.0 + (double)(i % 128) * 0x1p-7;
        double step = (double)by__bf16_to_f32(values[i]) - whole;
        assert_true(step == 0.0 || step == (whole + 0x1p-7 > 2.0 ? 0x1p-6 : 0x1p-7));
        up += step > 0.0;
    }
    return (double)up / COUNT;
}

/* Up with the probability of what is cut off, with other bits at each step, and with the same
 * wherever the map begins. */
static void test_stochastic_rounding(void **state)
{
    BY_UNUSED(state);
    static uint16_t whole[COUNT];
    static uint16_t other[COUNT];
    static const float parts[] = {0.0f, 0.25f, 0.5f, 0.9375f};
    for (int level = BY__ISA_REFERENCE; level <= (int)by__cpu_best_isa(); level++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(parts); k++) {
            round_part(whole, (by__cpu_isa)level, parts[k], 7.0f, 0, COUNT);
            double share = share_up(whole);
            assert_true(fabs(share - (double)parts[k]) <= (k == 0 ? 0.0 : 0.0125)); /* 5 sigma */
        }
        round_part(whole, (by__cpu_isa)level, 0.5f, 7.0f, 0, COUNT);
        round_part(other, (by__cpu_isa)level, 0.5f, 7.0f, 0, 12345);
        round_part(other + 12345, (by__cpu_isa)level, 0.5f, 7.0f, 12345, COUNT - 12345);
        assert_memory_equal(whole, other, sizeof whole);
        round_part(other, (by__cpu_isa)level, 0.5f, 8.0f, 0, COUNT);
        assert_memory_not_equal(whole, other, sizeof whole);
    }
}

/* ---- in a graph ---- */

/* y = gelu(a * b * s) - tanh(a), as operations or as one map. */
static by_graph *expression(bool as_map)
{
    by_graph *graph = open_graph();
    by_value a = by_graph_input(graph, "a", BY_F32, BY_SHAPE(37, 51));
    by_value b = by_graph_input(graph, "b", BY_F32, BY_SHAPE(37, 51));
    by_value s = by_graph_input(graph, "s", BY_F32, BY_SHAPE(1));
    if (!as_map) {
        by_value x = by_unary(graph, by_scale(graph, by_mul(graph, a, b), s), BY_FN_GELU);
        by_graph_output(graph, by_sub(graph, x, by_unary(graph, a, BY_FN_TANH)), "y");
        return graph;
    }
    by_map map;
    by_value y[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int in_a = by_map_input(&map, a);
    int x = by_map_step(&map, BY_MAP_MUL, in_a, by_map_input(&map, b), 0);
    x = by_map_step(&map, BY_MAP_MUL, x, by_map_scalar(&map, s, 0), 0);
    x = by_map_function(&map, BY_FN_GELU, x);
    x = by_map_step(&map, BY_MAP_SUB, x, by_map_function(&map, BY_FN_TANH, in_a), 0);
    by_map_result(&map, x, BY_F32);
    by_map_end(&map, y);
    by_graph_output(graph, y[0], "y");
    return graph;
}

static void test_separate_operations(void **state)
{
    BY_UNUSED(state);
    static const char *const levels[] = {"baseline", "avx2", "native"};
    for (size_t l = 0; l < BY_ARRAY_LENGTH(levels); l++) {
        runner r[2];
        by_graph *graph[2];
        set_isa(levels[l]);
        for (int k = 0; k < 2; k++) {
            graph[k] = expression(k == 1);
            runner_open(&r[k], graph[k], 1);
            runner_fill(&r[k], 5, 1);
            runner_run(&r[k]);
        }
        assert_memory_equal(runner_data(&r[0], "y"), runner_data(&r[1], "y"),
                            runner_count(&r[0], "y") * sizeof(float));
        for (int k = 0; k < 2; k++) {
            runner_close(&r[k]);
            by_graph_close(&graph[k]);
        }
    }
    set_isa("native");
}

/* p -= rate * p / |p| where that is finite: updates stand without any result. */
static void test_update_in_place(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value p = by_graph_parameter(graph, "p", NULL, BY_SHAPE(3), (by_init){0});
    by_value rate = by_graph_input(graph, "rate", BY_F32, BY_SHAPE(2));
    by_map map;
    by_map_begin(&map, graph);
    int x = by_map_input(&map, p);
    int size = by_map_step(&map, BY_MAP_ABS, x, 0, 0);
    int step = by_map_step(&map, BY_MAP_DIV, x, size, 0);
    int finite = by_map_step(&map, BY_MAP_FINITE, step, 0, 0);
    int zero = by_map_constant(&map, 0.0f);
    step = by_map_step(&map, BY_MAP_SELECT, finite, step, zero);
    step = by_map_step(&map, BY_MAP_MUL, step, by_map_scalar(&map, rate, 1), 0);
    by_map_update(&map, x, by_map_step(&map, BY_MAP_SUB, x, step, 0));
    by_map_end(&map, NULL);
    char *text;
    check_ok(by_graph_print(graph, &text, &error), &error);
    assert_non_null(strstr(text, "map(p, rate) {0 = abs in0; 1 = div in0 0; 2 = finite 1; 3 = 0; "
                                 "4 = select 2 1 3; 5 = in1[1]; 6 = mul 4 5; 7 = sub in0 6; "
                                 "in0 = 7}"));
    free(text);
    runner r;
    runner_open(&r, graph, 1);
    memcpy(runner_data(&r, "p"), (float[]){2.0f, 0.0f, -1.0f}, 3 * sizeof(float));
    memcpy(runner_data(&r, "rate"), (float[]){9.0f, 0.5f}, 2 * sizeof(float));
    runner_run(&r);
    const float *got = runner_data(&r, "p");
    assert_true(got[0] == 1.5f && got[1] == 0.0f && got[2] == -0.5f);
    runner_close(&r);
    by_graph_close(&graph);
}

static void expect_refused(by_map *map, const char *text)
{
    by_error error = {0};
    by_map_end(map, NULL);
    check_error(by_graph_check(map->graph, &error), BY_EARG, &error, text);
    by_graph_close(&map->graph);
}

static by_value input(by_map *map, const char *name, by_shape shape)
{
    return by_graph_input(map->graph, name, BY_F32, shape);
}

static void test_refuses(void **state)
{
    BY_UNUSED(state);
    by_map map;
    by_map_begin(&map, open_graph());
    (void)by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    expect_refused(&map, "neither makes nor updates");

    by_map_begin(&map, open_graph());
    by_map_update_random(&map, by_map_input(&map, input(&map, "x", BY_SHAPE(2))), 0, 0);
    expect_refused(&map, "needs the number of the step");

    by_map_begin(&map, open_graph());
    int x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    (void)by_map_step(&map, BY_MAP_ADD, x, BY_MAP_MAX_INPUTS, 0);
    expect_refused(&map, "not there yet");

    by_map_begin(&map, open_graph());
    x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    by_map_result(&map, by_map_input(&map, input(&map, "y", BY_SHAPE(3))), BY_F32);
    expect_refused(&map, "of one shape");

    by_map_begin(&map, open_graph());
    x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    by_map_result(&map, by_map_scalar(&map, input(&map, "s", BY_SHAPE(2)), 2), BY_F32);
    expect_refused(&map, "within their operand");

    by_map_begin(&map, open_graph());
    x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    by_map_result(&map, x, BY_I32);
    expect_refused(&map, "in f32, bf16 or f16");

    by_map_begin(&map, open_graph());
    x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    by_map_update(&map, x, x);
    by_map_update(&map, x, x);
    expect_refused(&map, "an update must be of a tensor operand, once");

    by_map_begin(&map, open_graph());
    x = by_map_input(&map, input(&map, "x", BY_SHAPE(2)));
    for (int k = 0; k <= BY_MAP_MAX_STEPS; k++) {
        (void)by_map_constant(&map, 1.0f);
    }
    expect_refused(&map, "too many steps");

    by_map_begin(&map, open_graph());
    (void)by_map_constant(&map, (float)NAN);
    expect_refused(&map, "not a number");
}

/* An update of what an operation makes, or of what another node reads, is refused as AdamW's is. */
static void test_verify(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_map map;
    by_map_begin(&map, open_graph());
    by_value p = by_graph_parameter(map.graph, "p", NULL, BY_SHAPE(2), (by_init){0});
    int x = by_map_input(&map, p);
    by_map_update(&map, x, by_map_step(&map, BY_MAP_SQUARE, x, 0, 0));
    by_map_end(&map, NULL);
    check_ok(by_graph_verify(map.graph, &error), &error);
    by_graph_output(map.graph, by_add(map.graph, p, p), "y");
    check_error(by_graph_verify(map.graph, &error), BY_ESTATE, &error, "read elsewhere");
    by_graph_close(&map.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_large_results),
        cmocka_unit_test(test_stochastic_rounding),
        cmocka_unit_test(test_separate_operations),
        cmocka_unit_test(test_update_in_place),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
