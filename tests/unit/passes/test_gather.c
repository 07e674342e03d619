/* Parameters in parts: forward and backward of whole models on ranks that are threads give the
 * bits of one rank that has all parameters, and need less memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_run.h"
#include "runner.h"
#include "trainer/state/train.h"

#define LAYERS 3

typedef struct problem {
    const char *kind;
    const char *compute;
    const char *recompute;
    bool keep;
    int ranks;
    runner whole;
} problem;

static by_status configure(by_config **out, const problem *p, by_error *error)
{
    char assignments[3][64];
    static const char *const settings[] = {"model.layers=3",  "model.heads=2",  "model.width=16",
                                           "model.context=8", "model.vocab=29", "model.dropout=0.1",
                                           "train.batch=2"};
    by_config *config;
    BY_TRY(by_config_default(&config, error));
    *out = config;
    (void)snprintf(assignments[0], 64, "model.kind=%s", p->kind);
    (void)snprintf(assignments[1], 64, "precision.compute=%s", p->compute);
    (void)snprintf(assignments[2], 64, "memory.recompute=%s", p->recompute);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        BY_TRY(by_config_set(config, settings[i], error));
    }
    for (size_t i = 0; i < 3; i++) {
        BY_TRY(by_config_set(config, assignments[i], error));
    }
    return by_config_resolve(config, error);
}

/* The graph of a rank; ranks 1: the whole. */
static by_status build(by_graph **out, const problem *p, int ranks, by_error *error)
{
    by_config *config = NULL;
    by_gather_options options = {.mesh = RANK_MESH, .ranks = ranks, .keep = p->keep};
    by_status status = configure(&config, p, error);
    if (status == BY_OK) {
        status = by_train_graph(out, NULL, config, NULL, NULL, "fuse", error);
    }
    by_config_close(&config);
    BY_TRY(status);
    status = by_pass_gather(*out, &options, error);
    if (status == BY_OK) {
        status = by_pass_order(*out, error);
    }
    if (status == BY_OK) {
        status = by_pass_overlap(*out, 4096, error);
    }
    if (status == BY_OK) {
        status = by_graph_verify(*out, error);
    }
    if (status != BY_OK) {
        by_graph_close(out);
    }
    return status;
}

/* ---- one rank ---- */

typedef struct rank_check {
    const problem *p;
    const rank_run *r;
    by_comm *comm;
    int gathered;
} rank_check;

/* The whole parameter, and a message to the other ranks as one would need for it. */
static by_status give_parameter(void *user, const by__device_call *call, by_error *error)
{
    rank_check *c = user;
    const by_graph *graph = c->r->graph;
    int64_t number = -1;
    size_t v = 0;
    for (; v < graph->value_count && number < call->attrs.bucket; v++) {
        number += graph->values[v].role == BY_ROLE_PARAMETER;
    }
    const by__graph_value *value = &graph->values[v - 1];
    by_value whole = by_graph_find(c->p->whole.graph, value->name);
    EXPECT(value->role == BY_ROLE_PARAMETER && value->shape.rank >= 2);
    EXPECT(by_shape_equal(&value->shape, &call->out[0].shape));
    memcpy(call->out[0].data, c->p->whole.buffers[whole], by__graph_value_bytes(value));
    c->gathered++;
    return by_comm_barrier(c->comm, value->name, error);
}

/* Inputs as the whole has them; nothing of a parameter that is gathered. */
static void fill(const rank_run *r, const problem *p)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        bool gathered = value->role == BY_ROLE_PARAMETER && value->shape.rank >= 2;
        if (by__role_is_external(value->role) && value->producer < 0 && !gathered) {
            by_value whole = by_graph_find(p->whole.graph, value->name);
            memcpy((void *)r->memory[v].address, p->whole.buffers[whole], r->memory[v].bytes);
        }
    }
}

static by_status compare(const rank_run *r, const problem *p, by_error *error)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        if (by__role_is_external(value->role) && value->producer >= 0) {
            by_value whole = by_graph_find(p->whole.graph, value->name);
            if (memcmp((const void *)r->memory[v].address, p->whole.buffers[whole],
                       r->memory[v].bytes) != 0) {
                return by_error_set(error, BY_ESTATE, "'%s' differs", value->name);
            }
        }
    }
    return BY_OK;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    const problem *p = user;
    rank_run r = {0};
    rank_check check = {.p = p, .r = &r, .comm = comm};
    by_graph *graph = NULL;
    BY_TRY(build(&graph, p, p->ranks, error));
    by_status status = rank_open(&r, comm, graph, error);
    if (status == BY_OK) {
        r.collectives->parameters = give_parameter;
        r.collectives->user = &check;
        fill(&r, p);
    }
    for (int run = 0; run < 2 && status == BY_OK; run++) {
        check.gathered = 0;
        status = by_program_run(r.program, error);
        if (status == BY_OK) {
            status = compare(&r, p, error);
        }
    }
    if (status == BY_OK && check.gathered < (p->keep ? 1 : 2) * 4 * LAYERS) {
        status = by_error_set(error, BY_ESTATE, "%d parameters were gathered", check.gathered);
    }
    rank_close(&r);
    return status;
}

/* ---- memory ---- */

/* Bytes of whole parameters and activations. */
static size_t bytes_of(const by_graph *graph, bool gathered)
{
    by_error error = {0};
    by__pass_memory_plan plan;
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    size_t bytes = plan.bytes;
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        bool whole = value->role == BY_ROLE_PARAMETER && !(gathered && value->shape.rank >= 2);
        bytes += whole ? by__graph_value_bytes(value) : 0;
    }
    by__pass_memory_plan_free(&plan);
    return bytes;
}

static size_t count_communicating(const by_graph *graph, by__graph_phase phase)
{
    size_t count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        count += node->op == BY_OP_GATHER_PARAMETER && node->phase == phase;
    }
    return count;
}

static void check_graph(const problem *p)
{
    by_error error = {0};
    by_graph *graph = NULL;
    check_ok(build(&graph, p, p->ranks, &error), &error);
    assert_true(p->keep || bytes_of(graph, true) < bytes_of(p->whole.graph, false));
    assert_true(count_communicating(graph, BY__FORWARD) >= 4 * LAYERS);
    assert_true(p->keep ? count_communicating(graph, BY__BACKWARD) <= 1
                        : count_communicating(graph, BY__BACKWARD) >= 4 * LAYERS);
    by_graph_close(&graph);
}

static void check_model(problem *p)
{
    by_error error = {0};
    by_graph *graph = NULL;
    check_ok(build(&graph, p, 1, &error), &error);
    runner_open(&p->whole, graph, 1);
    runner_fill(&p->whole, 5, 29);
    runner_run(&p->whole);
    for (p->ranks = 2; p->ranks <= 4; p->ranks++) {
        check_graph(p);
        run_ranks(p->ranks, run_rank, p);
    }
    runner_close(&p->whole);
    by_graph_close(&graph);
}

static void test_models(void **state)
{
    BY_UNUSED(state);
    static const problem problems[] = {
        {.kind = "gpt2", .compute = "f32", .recompute = "none"},
        {.kind = "gpt2", .compute = "bf16", .recompute = "block"},
        {.kind = "llama", .compute = "bf16", .recompute = "none"},
        {.kind = "llama", .compute = "f32", .recompute = "none", .keep = true}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(problems); i++) {
        problem p = problems[i];
        check_model(&p);
    }
}

/* Parameters have the numbers of a graph that lists them, in whatever order. */
static void test_numbers(void **state)
{
    BY_UNUSED(state);
    static const char *const names[] = {"a", "b", "c"};
    by_error error = {0};
    by_graph *list = open_graph();
    by_graph *graph = open_graph();
    by_gather_options options = {.mesh = RANK_MESH, .ranks = 2, .parameters = list};
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 4));
    for (int i = 0; i < 2; i++) {
        (void)by_graph_parameter(list, names[i], "", BY_SHAPE(4, 4), (by_init){0});
        by_value w = by_graph_parameter(graph, names[1 - i], "", BY_SHAPE(4, 4), (by_init){0});
        x = by_matmul(graph, x, w, false, false);
    }
    by_graph_output(graph, x, "y");
    check_ok(by_pass_gather(graph, &options, &error), &error);
    int64_t wanted = 1; /* "b" is read first */
    for (size_t n = 0; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            assert_int_equal(graph->nodes[n].attrs.bucket, wanted--);
        }
    }
    assert_int_equal(wanted, -1);
    by_graph_close(&graph);

    graph = open_graph();
    x = by_graph_parameter(graph, names[2], "", BY_SHAPE(4, 4), (by_init){0});
    by_graph_output(graph, by_add(graph, x, x), "y");
    by_status status = by_pass_gather(graph, &options, &error);
    check_error(status, BY_EARG, &error, "no parameter 'c'");
    by_graph_close(&graph);
    by_graph_close(&list);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_gather_options options = {.ranks = 2};
    by_status status = by_pass_gather(graph, &options, &error);
    check_error(status, BY_EARG, &error, "2 ranks over no axis");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
