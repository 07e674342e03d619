/* Compiled programs: what must be bound and checked, rebinding, hooks, the same bits for any number
 * of threads, no allocation while running, and no reference kernel where an optimised one
 * exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/pages.h"
#include "runner.h"
#include "trainer/state/train.h"

/* ---- counting allocations: this program's own allocator entry points, over glibc's ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)
#define COUNTS_ALLOCATIONS 1
static atomic_size_t allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
    allocations++;
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __libc_memalign(alignment, size);
}
#endif

static by_graph *train_graph(const char *kind, const char *compute)
{
    by_error error = {0};
    by_config *config;
    by_graph *graph;
    char assignments[2][64];
    static const char *const settings[] = {
        "model.layers=2",  "model.heads=4",     "model.width=64", "model.context=48",
        "model.vocab=211", "model.dropout=0.1", "train.batch=3",  "model.mlp_width=160"};
    check_ok(by_config_default(&config, &error), &error);
    (void)snprintf(assignments[0], 64, "model.kind=%s", kind);
    (void)snprintf(assignments[1], 64, "precision.compute=%s", compute);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_set(config, assignments[0], &error), &error);
    check_ok(by_config_set(config, assignments[1], &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "order", &error), &error);
    by_config_close(&config);
    return graph;
}

/* y = table[ids] */
static by_graph *lookup(void)
{
    by_graph *graph = open_graph();
    by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(4));
    by_value table = by_graph_parameter(graph, "table", NULL, BY_SHAPE(5, 8), (by_init){0});
    by_graph_output(graph, by_embedding(graph, ids, table), "y");
    return graph;
}

static void test_ids(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    by_graph *graph = lookup();
    runner_open(&r, graph, 1);
    int32_t *ids = runner_data(&r, "ids");
    ids[2] = 4;
    runner_run(&r);
    ids[2] = 5;
    by_status status = by_program_run(r.program, &error);
    check_error(status, BY_EARG, &error, "'ids' holds 5 at place 2");
    ids[2] = -1;
    status = by_program_run(r.program, &error);
    check_error(status, BY_EARG, &error, "'ids' holds -1 at place 2");
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_targets(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value w = by_graph_input(graph, "w", BY_F32, BY_SHAPE(5, 8));
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(3));
    by_graph_output(graph, by_linear_cross_entropy(graph, x, w, targets), "loss");
    runner_open(&r, graph, 1);
    int32_t *data = runner_data(&r, "targets");
    data[0] = data[1] = data[2] = -1; /* nothing counts */
    runner_run(&r);
    assert_true(*(const float *)runner_data(&r, "loss") == 0.0f);
    data[1] = 5;
    by_status status = by_program_run(r.program, &error);
    check_error(status, BY_EARG, &error, "'targets' holds 5 at place 1");
    runner_close(&r);
    by_graph_close(&graph);
}

/* A position that would write beyond the cache. */
static void test_cache_position(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    by_graph *graph = open_graph();
    by_value qkv = by_graph_input(graph, "qkv", BY_F32, BY_SHAPE(1, 3, 24));
    by_value k = by_graph_state(graph, "k", BY_F32, BY_SHAPE(1, 2, 8, 4));
    by_value v = by_graph_state(graph, "v", BY_F32, BY_SHAPE(1, 2, 8, 4));
    by_value position = by_graph_input(graph, "position", BY_I32, BY_SHAPE(1));
    by_graph_output(graph,
                    by_attention_cached(graph, qkv, BY_NONE, BY_NONE, k, v, position, 2, 2,
                                        &BY_ATTENTION_CAUSAL),
                    "y");
    runner_open(&r, graph, 1);
    int32_t *at = runner_data(&r, "position");
    *at = 5;
    runner_run(&r);
    *at = 6;
    by_status status = by_program_run(r.program, &error);
    check_error(status, BY_EARG, &error, "'position' holds 6");
    *at = -1;
    status = by_program_run(r.program, &error);
    check_error(status, BY_EARG, &error, "'position' holds -1");
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_binding(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device;
    by_program *program;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(16));
    by_value a = by_unary(graph, x, BY_FN_RELU);
    by_graph_output(graph, by_mul(graph, a, by_mul(graph, a, a)), "y");
    by_value y = by_graph_find(graph, "y");
    _Alignas(64) float in[17] = {2.0f, -1.0f};
    _Alignas(64) float out[2][16];
    _Alignas(64) char memory[4096];
    by_memory all = by_host_memory(memory, sizeof memory);
    check_ok(by_device_open(&device, "cpu", 1, &error), &error);
    check_ok(by_program_compile(&program, graph, device, "square", &error), &error);
    assert_true(by_program_arena_bytes(program) <= sizeof memory);

    by_status status = by_program_bind(program, a, by_host_memory(in, 64), &error);
    check_error(status, BY_EARG, &error, "square: value 1 is not an external one");
    status = by_program_bind(program, 1000, by_host_memory(in, 64), &error);
    check_error(status, BY_EARG, &error, "1000");
    status = by_program_bind(program, x, by_host_memory(in + 1, 64), &error);
    check_error(status, BY_EARG, &error, "square: the buffer of 'x' is not 64-byte aligned");
    status = by_program_bind(program, x, by_host_memory(in, 60), &error);
    check_error(status, BY_EARG, &error, "the buffer of 'x' has 60 B; it needs 64 B");

    by_program_set_memory(program, all, all);
    check_ok(by_program_bind(program, y, by_host_memory(out[0], 64), &error), &error);
    status = by_program_run(program, &error);
    check_error(status, BY_ESTATE, &error, "square: 'x' is not bound");
    check_ok(by_program_bind(program, x, by_host_memory(in, 64), &error), &error);
    by_program_set_memory(program, (by_memory){0}, all);
    status = by_program_run(program, &error);
    check_error(status, BY_ESTATE, &error, "no memory");
    by_program_set_memory(program, by_memory_at(all, 8, 4000), all);
    status = by_program_run(program, &error);
    check_error(status, BY_EARG, &error, "the arena is not 64-byte aligned");
    by_program_set_memory(program, by_memory_at(all, 0, 1), all);
    status = by_program_run(program, &error);
    check_error(status, BY_EARG, &error, "the arena has 1 B");

    by_program_set_memory(program, all, all);
    check_ok(by_program_run(program, &error), &error);
    assert_true(out[0][0] == 8.0f && out[0][1] == 0.0f);
    in[0] = 3.0f;
    check_ok(by_program_bind(program, y, by_host_memory(out[1], 64), &error), &error);
    check_ok(by_program_run(program, &error), &error);
    assert_true(out[0][0] == 8.0f && out[1][0] == 27.0f);
    by_program_close(&program);
    by_program_close(&program);
    by_device_close(&device);
    by_graph_close(&graph);
}

typedef struct trace {
    int next;
    double last;
} trace;

static void record(void *user, int node, double begin, double end)
{
    trace *t = user;
    assert_int_equal(node, t->next);
    assert_true(begin >= t->last && end >= begin);
    t->next++;
    t->last = end;
}

static void test_hook(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    runner r;
    trace t = {0, 0.0};
    by_node_info info;
    by_graph *graph = train_graph("gpt2", "f32");
    runner_open(&r, graph, 1);
    by_program_set_hook(r.program, record, &t);
    runner_run(&r);
    assert_int_equal(t.next, by_graph_node_count(graph));
    by_program_set_hook(r.program, NULL, NULL);
    runner_run(&r);
    assert_int_equal(t.next, by_graph_node_count(graph));
    size_t most = 0;
    for (int n = 0; n < t.next; n++) {
        check_ok(by_program_node(r.program, n, &info, &error), &error);
        assert_string_equal(info.op_name, by_op_name(info.op));
        assert_true(info.flops >= 0.0 && info.bytes_written > 0.0);
        assert_true(info.workspace <= by_program_workspace_bytes(r.program));
        most = info.live_bytes > most ? info.live_bytes : most;
    }
    assert_true(most > 0 && most <= by_program_live_bytes(r.program));
    by_status status = by_program_node(r.program, t.next, &info, &error);
    check_error(status, BY_EARG, &error, "no node");
    runner_close(&r);
    by_graph_close(&graph);
}

/* Inputs of a training graph: small weights, ids, some targets that do not count. */
static void fill(runner *r)
{
    runner_fill(r, 3, 211);
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        for (size_t i = 0;
             value->role == BY_ROLE_PARAMETER && i < (size_t)by_shape_count(&value->shape); i++) {
            double u = get_element(r->buffers[v], value->dtype, i);
            set_element(r->buffers[v], value->dtype, i, 0.1 * u);
        }
    }
    ((int32_t *)runner_data(r, "targets"))[7] = -1;
    *(float *)runner_data(r, "loss_scale") = 1.0f / 143.0f;
}

static void compare_threads(const char *kind, const char *compute)
{
    by_graph *graph = train_graph(kind, compute);
    runner one;
    runner_open(&one, graph, 1);
    fill(&one);
    runner_run(&one);
    for (int threads = 2; threads <= 3; threads++) {
        runner many;
        runner_open(&many, graph, threads);
        assert_int_equal(by_program_threads(many.program), threads);
        fill(&many);
        runner_run(&many);
        for (size_t v = 0; v < graph->value_count; v++) {
            if (one.buffers[v] != NULL && memcmp(one.buffers[v], many.buffers[v],
                                                 by__graph_value_bytes(&graph->values[v])) != 0) {
                fail_msg("%s %s: '%s' differs with %d threads", kind, compute,
                         graph->values[v].name, threads);
            }
        }
        runner_close(&many);
    }
    runner_close(&one);
    by_graph_close(&graph);
}

static void test_threads(void **state)
{
    BY_UNUSED(state);
    compare_threads("gpt2", "f32");
    compare_threads("gpt2", "bf16");
    compare_threads("llama", "f32");
    compare_threads("llama", "bf16");
}

/* Bytes that a micro-batch of a GPT-2 in bf16 reads and writes, by the op table. */
static double bytes_moved(int layers)
{
    static const char *const settings[] = {
        "model.kind=gpt2",  "model.heads=4", "model.width=64",        "model.vocab=211",
        "model.context=48", "train.batch=3", "precision.compute=bf16"};
    by_error error = {0};
    by_config *config;
    by_graph *graph;
    by_node_info info;
    runner r;
    char assignment[32];
    double bytes = 0.0;
    (void)snprintf(assignment, sizeof assignment, "model.layers=%d", layers);
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, assignment, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "order", &error), &error);
    runner_open(&r, graph, 1);
    for (int n = 0; n < by_graph_node_count(graph); n++) {
        check_ok(by_program_node(r.program, n, &info, &error), &error);
        bytes += info.bytes_read + info.bytes_written;
    }
    runner_close(&r);
    by_graph_close(&graph);
    by_config_close(&config);
    return bytes;
}

/* What one block more moves, counted by hand. A fusion that is lost, or a cast that slips in
 * between, is a pass over [tokens, width] more. */
static void test_bytes_moved(void **state)
{
    BY_UNUSED(state);
    const double n = 3 * 48; /* tokens */
    const double c = 64;
    const double h = 4;
    /* In passes over [tokens, width]: norm, qkv, attention, projection with residual, norm, up,
     * gelu, down with residual. */
    const double forward =
        2 + (1 + 3) + (3 + 1) + (1 + 1 + 1) + 2 + (1 + 4) + (4 + 4) + (4 + 1 + 1);
    /* For each linear layer, from the last: gradient of its input, of its weight, of its bias.
     * Between them gelu, norm (x, dy, residual's gradient, dx), attention (qkv, y, dy, dqkv),
     * norm. */
    const double backward = (1 + 4) + (4 + 1) + 1 + (4 + 4 + 4) + (4 + 1) + (1 + 4) + 4 + 4 +
                            (1 + 1) + (1 + 1) + 1 + (3 + 1 + 1 + 3) + (3 + 1) + (1 + 3) + 3 + 4;
    const double activations = (forward + backward) * n * c * 2;
    /* Means and deviations of two norms, and the logarithms of the softmax: f32, written and
     * read. */
    const double rows = 2 * (2 * 2 * n + h * n) * 4;
    /* 12 c^2 weights in bf16, forward and backward, and their gradients in f32. */
    const double weights = 12 * c * c * (2 + 2 + 4);
    /* Vectors in f32: biases (3 + 1 + 4 + 1) and their gradients; weight and bias of two norms, the
     * weights again in the backward pass, and gradients of both. */
    const double vectors = (9 + 9 + 4 + 2 + 4) * c * 4;
    assert_true(bytes_moved(3) - bytes_moved(2) == activations + rows + weights + vectors);
}

static void test_no_allocation(void **state)
{
    BY_UNUSED(state);
#ifdef COUNTS_ALLOCATIONS
    static const char *const computes[] = {"f32", "bf16"};
    for (size_t k = 0; k < 2; k++) {
        runner r;
        by_graph *graph = train_graph(k == 0 ? "gpt2" : "llama", computes[k]);
        runner_open(&r, graph, 2);
        fill(&r);
        size_t before = allocations;
        void *volatile probe = malloc(1);
        free(probe);
        assert_int_equal(allocations, before + 1); /* counting works */
        runner_run(&r);                            /* the first run starts the threads */
        before = allocations;
        runner_run(&r);
        assert_int_equal(allocations, before);
        runner_close(&r);
        by_graph_close(&graph);
    }
#else
    skip();
#endif
}

/* The reference kernels are oracles; where optimised kernels exist no node of a model falls to
 * one. */
static void test_no_reference_kernel(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama"};
    static const char *const computes[] = {"f32", "bf16"};
    for (size_t k = 0; k < 4; k++) {
        by_error error = {0};
        by_device *device;
        by_program *program;
        by_graph *graph = train_graph(kinds[k / 2], computes[k % 2]);
        check_ok(by_device_open(&device, "cpu", 1, &error), &error);
        check_ok(by_program_compile(&program, graph, device, "test", &error), &error);
        for (int n = 0; n < by_graph_node_count(graph); n++) {
            by_node_info info;
            check_ok(by_program_node(program, n, &info, &error), &error);
            if (strstr(info.kernel, "reference") != NULL) {
                fail_msg("%s %s: node %d (%s) runs on the reference kernel", kinds[k / 2],
                         computes[k % 2], n, info.op_name);
            }
        }
        by_program_close(&program);
        by_graph_close(&graph);
        by_device_close(&device);
    }
}

static void test_unknown_isa(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = NULL;
    set_isa("fastest");
    by_status status = by_device_open(&device, "cpu", 1, &error);
    check_error(status, BY_EARG, &error, "BANYAN_ISA is 'fastest'");
    assert_null(device);
    set_isa("native");
}

/* Blocks that hold a huge page begin with one; every byte of all of them can be written. */
static void test_pages(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 5000, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)5 << 20) + 12345};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sizes); i++) {
        by__cpu_pages pages;
        by_error error;
        assert_int_equal(by__cpu_pages_open(&pages, sizes[i], "a test", &error), BY_OK);
        assert_int_equal(pages.bytes, sizes[i]);
        if (sizes[i] >= (size_t)2 << 20) {
            assert_int_equal((uintptr_t)pages.data % ((size_t)2 << 20), 0);
        }
        if (sizes[i] > 0) {
            memset(pages.data, 1, sizes[i]);
        }
        by__cpu_pages_close(&pages);
        assert_null(pages.data);
    }
    by__cpu_pages pages;
    by_error error = {0};
    assert_int_equal(by__cpu_pages_open(&pages, SIZE_MAX - 4096, "a test", &error), BY_EMEMORY);
    assert_non_null(strstr(error.message, "a test"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_cache_position),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_hook),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_bytes_moved),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_no_reference_kernel),
        cmocka_unit_test(test_unknown_isa),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
