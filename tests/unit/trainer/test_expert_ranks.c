/* A mixture of experts over ranks that are threads: each has some of the experts and works on its
 * share of the examples. Loss and gradients against those of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "banyan/passes.h"
#include "rank_run.h"
#include "runner.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/train.h"

#define VOCAB 31

/* Sums in another order: no gradient is further away than 9e-7. */
#define BOUND 2e-6

/* What the ranks share. */
typedef struct world {
    const by_config *config;
    by_shard_kind kind;
    runner one; /* the whole, which was run */
} world;

static by_config *open_config(const char *const *settings, size_t count)
{
    by_error error = {0};
    by_config *config;
    static const char *const common[] = {"model.kind=mixtral",
                                         "model.layers=2",
                                         "model.heads=4",
                                         "model.width=16",
                                         "model.mlp_width=24",
                                         "model.experts=4",
                                         "model.context=6",
                                         "model.vocab=31",
                                         "model.init_std=0.3",
                                         "train.batch=4",
                                         "train.micro_batch=4",
                                         "model.kv_heads=2",
                                         "model.router_aux_loss_coef=0.5"};
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check_ok(by_config_set(config, common[i], &error), &error);
    }
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static by_status build(by_graph **out, const by_config *config, by_shard_kind kind, int ranks,
                       int rank, by_error *error)
{
    by_model model;
    const by__trainer_recipe recipe = {0};
    BY_TRY(by__trainer_forward_graph(out, &model, config, &recipe, BY_MODEL_TRAIN, error));
    by_pass_options options = by__trainer_graph_pass_options(config, &model);
    options.shard[kind] = (by_shard_axis){.ranks = ranks, .rank = rank, .mesh = RANK_MESH};
    options.prefetch_bytes = 1 << 20;
    return by_passes_run(*out, BY_PURPOSE_TRAIN, &options, NULL, error);
}

/* Copies a rank's part of a whole value, a slice of the axis in which their shapes differ. Returns
 * its elements. */
static size_t copy_part(const world *w, const by__graph_value *local, int ranks, int rank,
                        float *part)
{
    by_value whole = by_graph_find(w->one.graph, local->name);
    by_shape shape = w->one.graph->values[whole].shape;
    const float *all = runner_data(&w->one, local->name);
    int axis = 0;
    while (axis + 1 < shape.rank && shape.dim[axis] == local->shape.dim[axis]) {
        axis++;
    }
    bool split = shape.rank > 0 && shape.dim[axis] != local->shape.dim[axis];
    size_t inner = 1;
    for (int i = axis; i < shape.rank; i++) {
        inner *= (size_t)local->shape.dim[i];
    }
    size_t count = (size_t)by_shape_count(&local->shape);
    for (size_t k = 0; k < count / inner; k++) {
        size_t at = split ? (k * (size_t)ranks + (size_t)rank) * inner : k * inner;
        memcpy(part + k * inner, all + at, inner * sizeof(float));
    }
    return count;
}

static by_status compare(const world *w, const rank_run *r, int ranks, int rank, by_error *error)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        if (value->role != BY_ROLE_GRADIENT && value->role != BY_ROLE_OUTPUT) {
            continue;
        }
        float *want = malloc(by__graph_value_bytes(value));
        if (want == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory");
        }
        size_t count = copy_part(w, value, ranks, rank, want);
        double d = relative_distance(rank_data(r, value->name), want, count);
        free(want);
        if (!(d <= BOUND)) {
            return by_error_set(error, BY_ESTATE, "rank %d of %d: %s is %g away", rank, ranks,
                                value->name, d);
        }
    }
    return BY_OK;
}

static by_status rank_main(by_comm *comm, void *user, by_error *error)
{
    world *w = user;
    rank_run r = {0};
    by_graph *graph;
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    BY_TRY(build(&graph, w->config, w->kind, ranks, rank, error));
    by_status status = rank_open(&r, comm, graph, error);
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_PARAMETER || value->role == BY_ROLE_INPUT) {
            (void)copy_part(w, value, ranks, rank, rank_data(&r, value->name));
        }
    }
    if (status == BY_OK) {
        status = by_program_run(r.program, error);
    }
    if (status == BY_OK) {
        status = compare(w, &r, ranks, rank, error);
    }
    status = by_comm_fail(comm, status, error); /* others wait for this rank */
    rank_close(&r);
    return status;
}

static void open_world(world *w, const by_config *config, by_shard_kind kind)
{
    by_error error = {0};
    by_graph *graph;
    *w = (world){.config = config, .kind = kind};
    check_ok(build(&graph, config, BY_SHARD_EXPERT, 1, 0, &error), &error);
    runner_open(&w->one, graph, 1);
    runner_fill(&w->one, 3, VOCAB);
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].role == BY_ROLE_PARAMETER) {
            check_ok(by_parameter_init(w->one.buffers[v], graph, (by_value)v, 17, &error), &error);
        }
    }
    int32_t *targets = runner_data(&w->one, "targets");
    for (size_t i = 0; i < runner_count(&w->one, "targets"); i += 5) {
        targets[i] = -1;
    }
    *(float *)runner_data(&w->one, "loss_scale") = 0.05f;
    runner_run(&w->one);
}

static void check_setting(by_shard_kind kind, int most, const char *const *settings, size_t count)
{
    world w;
    by_config *config = open_config(settings, count);
    open_world(&w, config, kind);
    for (int ranks = 2; ranks <= most; ranks += 2) {
        run_ranks(ranks, rank_main, &w);
    }
    by_graph *graph = w.one.graph;
    runner_close(&w.one);
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    check_setting(BY_SHARD_EXPERT, 4, NULL, 0);
}

static void test_recomputed(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"memory.recompute=block", "model.tied=true"};
    check_setting(BY_SHARD_EXPERT, 4, settings, BY_ARRAY_LENGTH(settings));
}

/* A capacity that nobody reaches: rows with gaps give the same. */
static void test_capacity(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.capacity_factor=1.9"};
    check_setting(BY_SHARD_EXPERT, 4, settings, BY_ARRAY_LENGTH(settings));
}

/* Each rank has columns or rows of every expert. */
static void test_tensor(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.vocab=32"};
    check_setting(BY_SHARD_TENSOR, 2, settings, 1);
}

static int count_ops(const by_graph *graph, by_op op)
{
    int count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op;
    }
    return count;
}

/* A layer sends tokens and their ranges to the experts and results back, and in the backward pass
 * gradients the same ways. Parameters that all ranks have get the sum of their gradients. */
static void test_collectives(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph;
    by_config *config = open_config(NULL, 0);
    check_ok(build(&graph, config, BY_SHARD_EXPERT, 2, 1, &error), &error);
    assert_int_equal(count_ops(graph, BY_OP_ALL_TO_ALL), 2 * 5);
    assert_int_equal(count_ops(graph, BY_OP_ALL_GATHER), 0);
    by_value w1 = by_graph_find(graph, "model.layers.0.block_sparse_moe.experts.*.w1.weight");
    assert_int_equal(graph->values[w1].shape.dim[0], 2);
    assert_int_equal(graph->values[w1].part[0].rank, 1);
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_refuses(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = NULL;
    static const char *const settings[] = {"model.experts=6"};
    by_config *config = open_config(settings, 1);
    check_error(build(&graph, config, BY_SHARD_EXPERT, 4, 0, &error), BY_EARG, &error, "'expert'");
    by_graph_close(&graph);
    by_config_close(&config);
    config = open_config(NULL, 0);
    check_error(build(&graph, config, BY_SHARD_EXPERT, 3, 0, &error), BY_EARG, &error,
                "3 ranks cannot divide the 4 examples");
    by_graph_close(&graph);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_recomputed),
        cmocka_unit_test(test_capacity),    cmocka_unit_test(test_tensor),
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
