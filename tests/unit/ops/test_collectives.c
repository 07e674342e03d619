/* Collectives in graphs: shapes, gradients, what verification refuses, memory that stays until a
 * collective was waited for, and programs that run them on a queue of their own: with the same bits
 * for every order that events allow, on a device that finds every missing event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/staging.h"
#include "exec/exec.h"
#include "late_device.h"
#include "ops/ops.h"
#include "runner.h"

#define SEEDS 6
#define MESH  (1u << 5)

static void expect_error(by_graph *graph, const char *text)
{
    by_error error = {0};
    by_status status = by_graph_check(graph, &error);
    check_error(status, BY_EARG, &error, text);
    by_graph_close(&graph);
}

static by_value input(by_graph *graph, const char *name, by_shape shape)
{
    return by_graph_input(graph, name, BY_F32, shape);
}

static void check_shape(const by_graph *graph, by_value value, by_shape want)
{
    assert_true(value != BY_NONE);
    assert_true(by_shape_equal(&graph->values[value].shape, &want));
}

static size_t count_ops(const by_graph *graph, by_op op)
{
    size_t count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op;
    }
    return count;
}

/* ---- shapes ---- */

static void test_shapes(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(4, 7, 6));
    by_value w = by_graph_parameter(graph, "w", NULL, BY_SHAPE(3, 5), (by_init){0});
    check_shape(graph, by_all_reduce(graph, x, MESH, 3), BY_SHAPE(4, 7, 6));
    check_shape(graph, by_replicate(graph, x, MESH, 3), BY_SHAPE(4, 7, 6));
    /* The first rank of three has three entries of seven. */
    check_shape(graph, by_all_gather(graph, w, 0, 7, MESH, 3), BY_SHAPE(7, 5));
    check_shape(graph, by_all_gather(graph, w, -1, 14, MESH, 3), BY_SHAPE(3, 14));
    check_shape(graph, by_reduce_scatter(graph, x, 1, MESH, 3, 0), BY_SHAPE(4, 3, 6));
    check_shape(graph, by_reduce_scatter(graph, x, 1, MESH, 3, 2), BY_SHAPE(4, 2, 6));
    check_shape(graph, by_all_to_all(graph, x, 2, 1, MESH, 3), BY_SHAPE(4, 21, 2));
    check_shape(graph, by_ring_shift(graph, x, MESH, 3), BY_SHAPE(4, 7, 6));
    check_ok(by_graph_verify(graph, &error), &error);
    size_t nodes = graph->node_count;
    assert_int_equal(by_all_reduce(graph, x, MESH, 1), x);
    assert_int_equal(by_replicate(graph, x, MESH, 1), x);
    assert_int_equal(by_all_gather(graph, x, 0, 4, MESH, 1), x);
    assert_int_equal(by_reduce_scatter(graph, x, 0, MESH, 1, 0), x);
    assert_int_equal(by_all_to_all(graph, x, 0, 1, MESH, 1), x);
    assert_int_equal(by_ring_shift(graph, x, MESH, 1), x);
    assert_int_equal(graph->node_count, nodes);
    char *text;
    check_ok(by_graph_print(graph, &text, &error), &error);
    assert_non_null(strstr(text, "all_gather(w) mesh 5 ranks 3 axis 0 : f32 [7, 5]"));
    assert_non_null(strstr(text, "all_to_all(x) mesh 5 ranks 3 axis 2 to 1"));
    free(text);
    by_graph_close(&graph);
}

static void test_refused_shapes(void **state)
{
    BY_UNUSED(state);
    for (int k = 0; k < 10; k++) {
        static const char *const texts[10] = {"no mesh axis",
                                              "no ranks",
                                              "no such axis",
                                              "the operand is no rank's part",
                                              "the operand is no rank's part",
                                              "the result is no rank's part",
                                              "the result is no rank's part",
                                              "do not divide",
                                              "are added",
                                              "gradients must be f32"};
        by_graph *graph = open_graph();
        by_value x = input(graph, "x", BY_SHAPE(4, 6));
        by_value bytes = by_graph_input(graph, "bytes", BY_U8, BY_SHAPE(4));
        switch (k) {
        case 0:
            (void)by_all_reduce(graph, x, 0, 2);
            break;
        case 1:
            (void)by_all_reduce(graph, x, MESH, 0);
            break;
        case 2:
            (void)by_all_gather(graph, x, 2, 8, MESH, 2);
            break;
        case 3:
            (void)by_all_gather(graph, x, 0, 13, MESH, 2);
            break;
        case 4:
            (void)by_all_gather(graph, x, 0, -8, MESH, 2);
            break;
        case 5:
            (void)by_reduce_scatter(graph, x, 0, MESH, 5, 4); /* nothing is left for it */
            break;
        case 6:
            (void)by_reduce_scatter(graph, x, 0, MESH, 2, 2);
            break;
        case 7:
            (void)by_all_to_all(graph, x, 0, 1, MESH, 3);
            break;
        case 8:
            (void)by_all_reduce(graph, bytes, MESH, 2);
            break;
        default:
            (void)by__op_build_reduce_gradients(graph, &bytes, 1, 0, 0, MESH, 2, false);
        }
        expect_error(graph, texts[k]);
    }
    by_graph *graph = open_graph();
    (void)by__op_build_wait(graph, input(graph, "x", BY_SHAPE(4)));
    expect_error(graph, "no collective's result");
}

/* ---- gradients ---- */

/* Each collective's gradient is its adjoint, and what it keeps has none. */
static void test_gradients(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    const int all[2] = {0, 1};
    by_value seed = input(graph, "seed", BY_SHAPE(1));
    by_value w = by_graph_parameter(graph, "w", NULL, BY_SHAPE(6, 4), (by_init){0});
    by_value y = by_replicate(graph, w, MESH, 3);
    y = by_reduce_scatter(graph, y, 0, MESH, 3, 1); /* [2, 4] */
    y = by_unary(graph, y, BY_FN_TANH);
    y = by_all_gather(graph, y, 0, 6, MESH, 3); /* [6, 4] */
    y = by_all_to_all(graph, y, 0, 1, MESH, 3); /* [2, 12] */
    y = by_all_reduce(graph, y, MESH, 3);
    y = by_ring_shift(graph, y, MESH, 3);
    by_value loss = by_reshape(graph, by_sum(graph, y, all, 2, false), BY_SHAPE(1));
    size_t forward = graph->node_count;
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    static const by_op want[] = {BY_OP_RING_SHIFT,     BY_OP_RING_SHIFT, BY_OP_ALL_TO_ALL,
                                 BY_OP_REDUCE_SCATTER, BY_OP_ALL_GATHER, BY_OP_ALL_REDUCE};
    size_t found = 0;
    for (size_t n = forward; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            assert_true(found < BY_ARRAY_LENGTH(want));
            assert_int_equal(graph->nodes[n].op, want[found++]);
            assert_int_equal(graph->nodes[n].phase, BY__BACKWARD);
        }
    }
    assert_int_equal(found, BY_ARRAY_LENGTH(want));
    by_graph_close(&graph);
}

/* bf16: collectives move what the model computes in. */
static void test_precision(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_all_reduce(graph, input(graph, "x", BY_SHAPE(6, 4)), MESH, 3);
    by_graph_output(graph, by_unary(graph, x, BY_FN_TANH), "y");
    check_ok(by_pass_precision(graph, BY_BF16, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    for (size_t n = 0; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            assert_int_equal(graph->values[graph->nodes[n].out[0]].dtype, BY_BF16);
        }
    }
    by_graph_close(&graph);
}

/* ---- verification ---- */

static by_graph *reduced(void)
{
    by_graph *graph = open_graph();
    by_value x = by_unary(graph, input(graph, "x", BY_SHAPE(4)), BY_FN_TANH);
    by_value y = by_all_reduce(graph, x, MESH, 2);
    by_graph_output(graph, by_unary(graph, y, BY_FN_TANH), "y");
    return graph;
}

static void expect_broken(by_graph *graph, const char *text)
{
    by_error error = {0};
    by_status status = by_graph_verify(graph, &error);
    check_error(status, BY_ESTATE, &error, text);
    by_graph_close(&graph);
}

static void test_verify(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = reduced(); /* tanh, all_reduce, wait, tanh */
    check_ok(by_graph_verify(graph, &error), &error);
    check_ok(by__pass_graph_prune(graph, &error), &error);
    assert_int_equal(graph->node_count, 4);
    graph->nodes[3].in[0] = graph->nodes[1].out[0];
    expect_broken(graph, "which was not waited for");

    graph = reduced();
    graph->nodes[2].in[0] = graph->nodes[0].out[0];
    expect_broken(graph, "is no collective's result");

    graph = reduced();
    graph->nodes[2].in[1] = by_graph_find(graph, "x");
    expect_broken(graph, "does not keep");

    graph = open_graph();
    (void)by__op_start_collective(graph, BY_OP_ALL_REDUCE, &(by_attrs){.mesh = 1, .ranks = 2},
                                  input(graph, "x", BY_SHAPE(4)));
    expect_broken(graph, "nothing waits for node 0 (all_reduce)");

    /* Gradients that are exchanged in place are read by nothing else. */
    for (int reader = 0; reader < 2; reader++) {
        graph = open_graph();
        by_value g = by_unary(graph, input(graph, "x", BY_SHAPE(4)), BY_FN_TANH);
        by_graph_output(graph, g, "grad.w");
        if (reader == 1) {
            by_graph_output(graph, by_unary(graph, g, BY_FN_TANH), "y");
        }
        (void)by__op_build_wait(graph,
                                by__op_build_reduce_gradients(graph, &g, 1, 0, 0, MESH, 2, true));
        if (reader == 1) {
            expect_broken(graph, "which is read elsewhere");
        } else {
            check_ok(by_graph_verify(graph, &error), &error);
            by_graph_close(&graph);
        }
    }
}

/* The collectives of a graph keep their order, which is that of every rank. */
static void test_order(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(64, 64));
    by_value small = input(graph, "small", BY_SHAPE(8));
    by_value sum = by_all_gather(graph, x, 0, 128, MESH, 2); /* much memory: the last if it may */
    by_value other = by_all_reduce(graph, by_unary(graph, small, BY_FN_TANH), MESH, 2);
    by_graph_output(graph, by_sum(graph, sum, (const int[]){0, 1}, 2, false), "a");
    by_graph_output(graph, by_unary(graph, other, BY_FN_TANH), "b");
    check_ok(by_pass_order(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    by_op first = BY_OP_COUNT;
    for (size_t n = graph->node_count; n-- > 0;) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            first = graph->nodes[n].op;
        }
    }
    assert_int_equal(first, BY_OP_ALL_GATHER);
    by_graph_close(&graph);
}

/* ---- memory ---- */

/* A sum takes the place of an operand that nothing else reads, also through the wait; it does not
 * while another collective still reads the operand, and nothing else takes its place before. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_memory_plan plan;
    by_graph *graph = open_graph();
    by_value x = input(graph, "x", BY_SHAPE(16));
    by_value a = by_unary(graph, x, BY_FN_TANH);
    by_value b = by_all_reduce(graph, a, MESH, 2);
    by_graph_output(graph, by_unary(graph, b, BY_FN_GELU), "b");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.owner[a], by_graph_find(graph, "b"));
    assert_int_equal(plan.bytes, 0);
    by__pass_memory_plan_free(&plan);
    by_graph_close(&graph);

    graph = open_graph();
    x = input(graph, "x", BY_SHAPE(16));
    a = by_unary(graph, x, BY_FN_TANH);
    by_attrs attrs = {.mesh = MESH, .ranks = 2};
    by_value first = by__op_start_collective(graph, BY_OP_ALL_REDUCE, &attrs, a);
    by_value second = by__op_start_collective(graph, BY_OP_ALL_REDUCE, &attrs, a);
    by_value c = by_scale(graph, a, input(graph, "s", BY_SHAPE(1)));
    by_graph_output(graph, by_unary(graph, c, BY_FN_GELU), "c");
    by_graph_output(graph, by__op_build_wait(graph, second), "second");
    by_graph_output(graph, by__op_build_wait(graph, first), "first");
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    assert_int_equal(plan.owner[a], a);
    assert_int_equal(plan.owner[first], by_graph_find(graph, "first"));
    assert_int_equal(plan.owner[second], by_graph_find(graph, "second"));
    by__pass_memory_plan_free(&plan);
    by_graph_close(&graph);
}

/* ---- running ---- */

/* Doubles gradients where they are. */
static by_status add_alike(by_device *device, const by__device_exchange *e, by_error *error)
{
    by__device_staging copies = {0};
    BY_TRY(by__device_staging_begin(&copies, device, error));
    for (int k = 0; k < e->call->input_count; k++) {
        const by__device_tensor *g = &e->call->in[k];
        size_t count = (size_t)by_shape_count(&g->shape);
        const by_memory memory = {device, (uintptr_t)g->data, count * sizeof(float)};
        void *copy;
        BY_TRY(by__device_stage(&copies, memory, true, &copy, error));
        BY_TRY(by__device_staging_wait(&copies, error));
        for (size_t i = 0; i < count; i++) {
            ((float *)copy)[i] *= (float)e->ranks;
        }
        BY_TRY(by__device_unstage(&copies, memory, copy, error));
    }
    by__device_staging_close(&copies);
    return BY_OK;
}

/* Ranks that all have the same data: every result follows from this rank's. `user` is the device
 * (NULL: the host). */
static by_status run_alike(void *user, const by__device_exchange *e, by_error *error)
{
    size_t size = by_dtype_size(e->dtype);
    size_t bytes = (size_t)(e->entries * e->elements) * size;
    if (e->kind == BY__EXCHANGE_ALL_REDUCE || e->kind == BY__EXCHANGE_REDUCE_SCATTER) {
        size_t count = e->kind == BY__EXCHANGE_ALL_REDUCE
                           ? bytes / size
                           : (size_t)(e->entries / e->ranks * e->elements);
        for (size_t i = 0; i < count; i++) {
            ((float *)e->out)[i] = ((const float *)e->in)[i] * (float)e->ranks;
        }
    } else if (e->kind == BY__EXCHANGE_GRADIENTS) {
        return add_alike(user, e, error);
    } else {
        for (int r = 0; r < e->ranks; r++) {
            memcpy((char *)e->out + (size_t)r * (bytes / (size_t)e->ranks), e->in,
                   bytes / (size_t)e->ranks);
        }
    }
    return BY_OK;
}

#define NODES 30

/* Tensors [4, 8 k]: nodes of the compute queue, collectives, and waits that come at any time after
 * them. */
static by_graph *random_graph(uint64_t seed)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value pool[NODES + 2];
    by_value started[NODES];
    int held = 0;
    int waiting = 0;
    pool[held++] = input(graph, "x", BY_SHAPE(4, 8));
    pool[held++] = input(graph, "z", BY_SHAPE(4, 8));
    by_value w = by_graph_parameter(graph, "w", NULL, BY_SHAPE(8, 8), (by_init){0});
    for (size_t n = 0; n < NODES; n++) {
        int draw = (int)((random_unit(seed, 1, n) + 1.0) * 4.0);
        by_value a = pool[(int)((random_unit(seed, 2, n) + 1.0) / 2.0 * held)];
        by_value b = pool[(int)((random_unit(seed, 3, n) + 1.0) / 2.0 * held)];
        by_attrs attrs = {.mesh = MESH, .ranks = 2};
        if (draw < 3) {
            pool[held++] = draw == 0   ? by_add(graph, a, b)
                           : draw == 1 ? by_unary(graph, a, BY_FN_TANH)
                                       : by_linear(graph, a, w, BY_NONE, false);
        } else if (draw < 6) {
            by_op op = draw == 3   ? BY_OP_ALL_REDUCE
                       : draw == 4 ? BY_OP_ALL_TO_ALL
                                   : BY_OP_REDUCE_SCATTER;
            attrs.axis = draw == 4 ? 0 : 1;
            attrs.to = 1;
            attrs.rows = graph->values[a].shape.dim[1] / 2;
            started[waiting++] = by__op_start_collective(graph, op, &attrs, a);
        } else if (waiting > 0) {
            by_value y = by__op_build_wait(graph, started[--waiting]);
            /* Back to the first shape. */
            pool[held++] =
                by_sum(graph, by_reshape(graph, y, BY_SHAPE(1, -1)), (int[]){1}, 1, true);
            pool[held - 1] = by_expand(graph, pool[held - 1], BY_SHAPE(4, 8));
        }
    }
    while (waiting > 0) {
        (void)by__op_build_wait(graph, started[--waiting]);
    }
    by_value g = by_unary(graph, pool[held - 1], BY_FN_TANH);
    by_graph_output(graph, g, "grad.w");
    (void)by__op_build_wait(graph,
                            by__op_build_reduce_gradients(graph, &g, 1, 0, 0, MESH, 2, true));
    by_graph_output(graph, by_mul(graph, pool[held - 1], pool[held / 2]), "y");
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

typedef struct late_run {
    by_device *device;
    by_program *program;
    by__device_collectives collectives;
    by_memory memory[64]; /* of external values */
    by_memory arena, workspace;
} late_run;

static void late_open(late_run *r, const runner *like, uint64_t seed)
{
    by_error error = {0};
    *r = (late_run){.collectives = {.run = run_alike}};
    check_ok(late_device_open(&r->device, seed, 1, &error), &error);
    r->collectives.user = r->device;
    by__device_set_collectives(r->device, &r->collectives);
    check_ok(by_program_compile(&r->program, like->graph, r->device, "late", &error), &error);
    check_ok(
        by_device_alloc(&r->arena, r->device, by_program_arena_bytes(r->program), "a test", &error),
        &error);
    check_ok(by_device_alloc(&r->workspace, r->device, by_program_workspace_bytes(r->program),
                             "a test", &error),
             &error);
    by_program_set_memory(r->program, r->arena, r->workspace);
    size_t used = 0;
    for (size_t v = 0; v < like->graph->value_count; v++) {
        if (like->buffers[v] != NULL) {
            by_memory *memory = &r->memory[used++];
            size_t bytes = by__graph_value_bytes(&like->graph->values[v]);
            assert_true(used <= 64);
            check_ok(by_device_alloc(memory, r->device, bytes, "a test", &error), &error);
            check_ok(by_device_write(*memory, like->buffers[v], &error), &error);
            check_ok(by_program_bind(r->program, (by_value)v, *memory, &error), &error);
        }
    }
}

static void late_close(late_run *r)
{
    by_program_close(&r->program);
    by_device_free(&r->arena);
    by_device_free(&r->workspace);
    for (size_t i = 0; i < 64; i++) {
        by_device_free(&r->memory[i]);
    }
    by_device_close(&r->device);
}

static void late_compare(late_run *r, const runner *like)
{
    by_error error = {0};
    float got[8 * 8];
    size_t used = 0;
    for (size_t v = 0; v < like->graph->value_count; v++) {
        if (like->buffers[v] != NULL) {
            size_t bytes = r->memory[used].bytes;
            assert_true(bytes <= sizeof got);
            check_ok(by_device_read(got, r->memory[used++], &error), &error);
            assert_memory_equal(got, like->buffers[v], bytes);
        }
    }
}

/* The bits of the CPU, for every seed. */
static void test_late(void **state)
{
    BY_UNUSED(state);
    size_t collectives = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        by_error error = {0};
        by__device_collectives alike = {.run = run_alike};
        runner r;
        by_graph *graph = random_graph(seed);
        collectives += count_ops(graph, BY_OP_WAIT);
        if (seed % 2 == 1) {
            check_ok(by_pass_order(graph, &error), &error);
            check_ok(by_pass_overlap(graph, seed << 4, &error), &error);
        }
        runner_open(&r, graph, 1);
        by__device_set_collectives(r.device, &alike);
        runner_fill(&r, seed, 1);
        late_run late[SEEDS];
        for (uint64_t k = 0; k < SEEDS; k++) {
            late_open(&late[k], &r, k);
        }
        runner_run(&r);
        for (uint64_t k = 0; k < SEEDS; k++) {
            check_ok(by_program_run(late[k].program, &error), &error);
            late_compare(&late[k], &r);
            assert_string_equal(late_device_fault(late[k].device), "");
            late_close(&late[k]);
        }
        runner_close(&r);
        by_graph_close(&graph);
    }
    assert_true(collectives > 40 * 4);
}

static by_status peer_is_late(void *user, const by__device_exchange *e, by_error *error)
{
    BY_UNUSED(user);
    return by_error_set(error, BY_EPEER, "rank 1 is late for %s", e->what);
}

static void test_errors(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__device_collectives failing = {.run = peer_is_late};
    runner r;
    by_graph *graph = reduced();
    runner_open(&r, graph, 1);
    by_status status = by_program_run(r.program, &error);
    check_error(status, BY_ESTATE, &error, "test: all_reduce 1: there are no other ranks");
    by__device_set_collectives(r.device, &failing);
    status = by_program_run(r.program, &error);
    check_error(status, BY_EPEER, &error,
                "node 1: test: all_reduce 1: rank 1 is late for test: all_reduce 1");
    runner_close(&r);
    by_graph_close(&graph);
}

/* ---- a call that fails while a collective waits for other ranks ---- */

static atomic_bool told;
static atomic_bool gave_up;

static void tell(void *user, by_status status, const by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(status);
    BY_UNUSED(error);
    atomic_store(&told, true);
}

/* A collective that ends when other ranks hear of the failure, or after minutes. */
static by_status run_until_told(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(call);
    BY_UNUSED(context);
    for (double begin = by__now(); !atomic_load(&told);) {
        if (by__now() - begin > 300.0) {
            atomic_store(&gave_up, true);
            break;
        }
    }
    return BY_OK;
}

static by_status run_failing(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(call);
    BY_UNUSED(context);
    return BY_EDEVICE;
}

static void test_failure_is_told(void **state)
{
    BY_UNUSED(state);
    static const by__device_kernel kernels[2] = {{.name = "collective", .run = run_until_told},
                                                 {.name = "broken", .run = run_failing}};
    static const by__device_kernel *const chosen[2] = {&kernels[0], &kernels[1]};
    static const by__device_command commands[] = {
        {BY__COMMAND_CALL, BY__QUEUE_COLLECTIVE, 0, 0},
        {BY__COMMAND_RECORD, BY__QUEUE_COLLECTIVE, 0, SIZE_MAX},
        {BY__COMMAND_CALL, BY__QUEUE_COMPUTE, 1, 1},
        {BY__COMMAND_ORDER, BY__QUEUE_COMPUTE, 0, SIZE_MAX},
    };
    static const by__device_call calls[2];
    const by__device_command_list list = {.name = "test",
                                          .calls = calls,
                                          .kernels = chosen,
                                          .call_count = 2,
                                          .commands = commands,
                                          .command_count = BY_ARRAY_LENGTH(commands),
                                          .event_count = 1};
    by_error error = {0};
    by_device *device = NULL;
    by__device_recording *recording;
    check_ok(by_device_open(&device, "cpu", 1, &error), &error);
    by__device_on_error(device, tell, NULL);
    check_ok(by__device_recording_open(&recording, device, &list, &error), &error);
    by_status status = by__device_recording_submit(recording, true, NULL, NULL, &error);
    check_error(status, BY_EDEVICE, &error, "test: node 1: kernel broken failed");
    assert_true(atomic_load(&told) && !atomic_load(&gave_up));
    by__device_recording_close(&recording);
    by_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_precision),
        cmocka_unit_test(test_verify),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_failure_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
