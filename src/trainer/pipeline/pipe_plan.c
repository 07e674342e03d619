/* Plans a rank of a pipeline: makes the schedule, and adds the programs of the rank's stages. */
#include <stdlib.h>
#include <string.h>

#include "config/kind.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/pipeline/pipe.h"

/* Indices of by__trainer_pipe_stage.name after those of the parts. */
enum { NAME_LOSS = BY__PART_KINDS, NAME_SUM };

/* ---- the schedule ---- */

/* Lists transfers between stages that are not neighbours. */
static by_status list_links(const by__trainer_pipe_graph *g, by_pipeline_link **links,
                            size_t *count, by_error *error)
{
    BY_TRY(by__alloc((void **)links, g->move_count + 1, sizeof **links, "pipeline", error));
    *count = 0;
    for (size_t i = 0; i < g->move_count; i++) {
        by_pipeline_link link = {g->moves[i].from, g->moves[i].to,
                                 g->moves[i].from > g->moves[i].to};
        bool known = abs(link.from - link.to) == 1;
        for (size_t k = 0; k < *count && !known; k++) {
            known = (*links)[k].from == link.from && (*links)[k].to == link.to;
        }
        if (!known) {
            (*links)[(*count)++] = link;
        }
    }
    return BY_OK;
}

static by_status make_schedule(by_trainer *t, by_pipeline_kind kind, by_error *error)
{
    by__trainer_pipe *pipe = t->pipe;
    by_pipeline_link *links;
    by_pipeline_options options = {.kind = kind,
                                   .ranks = pipe->ranks,
                                   .chunks = pipe->chunks,
                                   .micro_batches = t->summation->rounds(t)};
    BY_TRY(list_links(&pipe->cut->train, &links, &options.link_count, error));
    options.links = links;
    by_status status = by_pipeline_open(&pipe->schedule, &options, error);
    free(links);
    return status;
}

/* ---- programs ---- */

/* Returns true if the program completes the gradients of its stage. */
static bool is_last(const by__trainer_pipe *pipe, const by__trainer_pipe_graph *g, int part)
{
    return g == &pipe->cut->train &&
           part % BY__PART_KINDS == (pipe->apart ? BY__PART_WEIGHT : BY__PART_BACKWARD);
}

/* Adds gradients that the backward program computes to the weight-gradient program, which hands
 * them over: they are inputs from the slot. */
static by_status add_early_gradients(by_graph *graph, by_trainer *t, int part, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    const by_graph *whole = pipe->cut->train.whole;
    int backward = by__part_of(by__stage_of_part(part), BY__PART_BACKWARD);
    for (size_t v = 0; v < whole->value_count && pipe->apart; v++) {
        const by__graph_value *value = &whole->values[v];
        if (value->role == BY_ROLE_GRADIENT && value->producer >= 0 &&
            pipe->cut->train.part[value->producer] == backward) {
            (void)by_graph_input(graph, value->name, value->dtype, value->shape);
        }
    }
    return by_graph_check(graph, error);
}

/* Adds the collectives of a program if ranks of `shard` divide gradients or parameters. */
static by_status finish_part(by_trainer *t, const by__trainer_pipe_graph *g, int part,
                             by_graph *graph, by_error *error)
{
    by_pass_options options = {0};
    bool hands_over = t->summation->in_rounds && is_last(t->pipe, g, part);
    by__trainer_gathered_options(t, t->pipe->cut->train.whole, &options);
    BY_TRY(by_pass_gather(graph, &options.gather, error));
    BY_TRY(by_pass_order(graph, error));
    if (hands_over) {
        BY_TRY(add_early_gradients(graph, t, part, error));
        return by__trainer_zero2_hand_over(t, graph, error);
    }
    return t->config->parallel.overlap != 0 || !t->summation->in_rounds
               ? by_pass_overlap(graph, options.prefetch_bytes, error)
               : BY_OK;
}

static by_status add_part(by_trainer *t, const by__trainer_pipe_graph *g, int part,
                          const char *name, by__exec_program_row **row, by_error *error)
{
    by_graph *graph;
    BY_TRY(
        by__pass_cut_part(&graph, g->whole, g->part, part, g->crossings, g->crossing_count, error));
    by_status status = finish_part(t, g, part, graph, error);
    if (status != BY_OK || by_graph_node_count(graph) == 0) {
        by_graph_close(&graph);
        return status;
    }
    /* Its passes are done already. */
    return by__exec_set_add(&t->programs, name, graph, (by_purpose)0, NULL, row, error);
}

static by_status add_stage(by_trainer *t, by__trainer_pipe_stage *stage, int chunk, by_error *error)
{
    static const char *const names[] = {"forward", "backward", "weights", "evaluation",
                                        "stage sum"};
    const by__trainer_pipe *pipe = t->pipe;
    for (int i = 0; i < BY__PART_KINDS + 2; i++) {
        if (pipe->chunks > 1) {
            (void)snprintf(stage->name[i], sizeof stage->name[i], "%s %d", names[i], chunk);
        } else {
            (void)snprintf(stage->name[i], sizeof stage->name[i], "%s", names[i]);
        }
    }
    for (int kind = 0; kind < BY__PART_KINDS; kind++) {
        BY_TRY(add_part(t, &pipe->cut->train, by__part_of(stage->stage, (by__pass_part_kind)kind),
                        stage->name[kind], &stage->row[kind], error));
    }
    return add_part(t, &pipe->cut->loss, by__part_of(stage->stage, BY__PART_FORWARD),
                    stage->name[NAME_LOSS], &stage->loss, error);
}

/* ---- the plan ---- */

/* A model or schedule that does not fit is an error of the config. */
static by_status add_location(const by_config *config, by_status status, by_error *error)
{
    by_error plain = error == NULL ? (by_error){0} : *error;
    return status != BY_EARG
               ? status
               : by_error_set(error, BY_ECONFIG, "%s: parallel.pipeline %lld: %s",
                              by__config_where(config, "parallel.pipeline", "parallel.chunks"),
                              (long long)config->parallel.pipeline, plain.message);
}

by_status by__pipeline_open(by_trainer *t, const by_trainer_options *options, by_error *error)
{
    by__trainer_pipe *pipe;
    by_pipeline_kind kind;
    const by_parallel_config *parallel = &t->config->parallel;
    BY_TRY(by_pipeline_kind_find(&kind, parallel->schedule, error));
    BY_TRY(by__alloc((void **)&pipe, 1, sizeof *pipe, "pipeline", error));
    t->pipe = pipe;
    pipe->ranks = t->layout.size[BY_MESH_PIPELINE];
    pipe->rank = t->layout.place[BY_MESH_PIPELINE];
    pipe->chunks = (int)parallel->chunks;
    pipe->apart = kind == BY_PIPELINE_ZERO_BUBBLE;
    BY_TRY(add_location(t->config, by__pipeline_cut(t, options, error), error));
    t->model.values = pipe->cut->values;
    t->model.whole = pipe->cut->train.whole;
    t->model.stage_of = pipe->cut->stage_of;
    t->model.stages = pipe->ranks * pipe->chunks;
    BY_TRY(add_location(t->config, make_schedule(t, kind, error), error));
    BY_TRY(add_location(t->config, by__pipeline_list_parameters(t, error), error));
    t->model.parameters = pipe->parameters;
    t->model.forward = pipe->cut->loss.whole;
    return BY_OK;
}

by_status by__pipeline_plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_UNUSED(o);
    by__trainer_pipe *pipe = t->pipe;
    by_pass_options options = {0};
    BY_TRY(by__alloc((void **)&pipe->stages, (size_t)pipe->chunks, sizeof *pipe->stages, "pipeline",
                     error));
    if (t->summation->in_rounds) {
        by__trainer_gathered_options(t, pipe->cut->train.whole, &options);
        t->shard.zero2.ahead = options.prefetch_bytes;
        BY_TRY(by__trainer_zero2_list_parts(t, error));
    }
    for (int i = 0; i < pipe->chunks; i++) {
        pipe->stages[i].stage = i * pipe->ranks + pipe->rank;
        BY_TRY(add_stage(t, &pipe->stages[i], i, error));
    }
    for (int i = 0; i < pipe->chunks; i++) {
        BY_TRY(by__pipeline_plan_slots(t, &pipe->stages[i], error));
    }
    return BY_OK;
}

void by__pipeline_close(by_trainer *t)
{
    by__trainer_pipe *pipe = t->pipe;
    if (pipe == NULL) {
        return;
    }
    by_device_free(&pipe->memory);
    free(pipe->shared);
    by_pipeline_close(&pipe->schedule);
    by__pipeline_cut_close(&pipe->cut);
    by_graph_close(&pipe->parameters);
    free(pipe->shares);
    for (int i = 0; i < pipe->chunks && pipe->stages != NULL; i++) {
        free(pipe->stages[i].values);
        free(pipe->stages[i].loss_values);
    }
    free(pipe->stages);
    free(pipe);
    t->pipe = NULL;
}

/* ---- the part that needs the store ---- */

/* Finds the stage's gradients in a set: within a group they are contiguous. */
static void find_gradients(const by_trainer *t, by__trainer_pipe_stage *stage)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        if (entry->trainable && by__trainer_stage_of(t, entry->name) == stage->stage) {
            by__store_part own = by__store_entry_part(t->store, (by__store_handle)i);
            by__store_part *all = &stage->gradients[entry->group];
            *all = all->count == 0 ? (by__store_part){own.group, own.first, 0} : *all;
            all->count += by__store_padded(t->store, own.count);
        }
    }
}

by_memory by__pipeline_gradients(const by_trainer *t, const by__trainer_pipe_stage *stage,
                                 int group, int set)
{
    by__store_part part = stage->gradients[group];
    return part.count == 0 ? (by_memory){0}
                           : by__store_memory(t->store, t->flats.gradient_sets[set], part);
}

/* sum = a + b for the gradients of one stage, one value per group. */
static by_status build_sum(const by__trainer_pipe_stage *stage, by_graph *graph, by_error *error)
{
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        char name[32];
        if (stage->gradients[group].count == 0) {
            continue;
        }
        by_shape shape = BY_SHAPE(stage->gradients[group].count);
        (void)snprintf(name, sizeof name, "a.%d", group);
        by_value a = by_graph_input(graph, name, BY_F32, shape);
        (void)snprintf(name, sizeof name, "b.%d", group);
        by_value b = by_graph_input(graph, name, BY_F32, shape);
        (void)snprintf(name, sizeof name, "sum.%d", group);
        by_graph_output(graph, by_add(graph, a, b), name);
    }
    return by_graph_check(graph, error);
}

static by_status add_sum(by_trainer *t, by__trainer_pipe_stage *stage, by_error *error)
{
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_status status = build_sum(stage, graph, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    return by__exec_set_add(&t->programs, stage->name[NAME_SUM], graph, BY_PURPOSE_UPDATE, NULL,
                            &stage->sum, error);
}

by_status by__pipeline_plan_sums(by_trainer *t, by_error *error)
{
    by__trainer_pipe *pipe = t->pipe;
    for (int i = 0; i < pipe->chunks; i++) {
        by__trainer_pipe_stage *stage = &pipe->stages[i];
        find_gradients(t, stage);
        if (t->flats.sets > 1) {
            BY_TRY(add_sum(t, stage, error));
        }
    }
    return BY_OK;
}

static by_status bind_parameters(by_trainer *t, by__exec_program_row *row, by_error *error)
{
    if (row == NULL) {
        return BY_OK;
    }
    BY_TRY(by__exec_row_link(row, t->store, error));
    return by__exec_row_bind_flat(row, t->store, BY_ROLE_PARAMETER, t->flats.copies,
                                  t->flats.masters, error);
}

by_status by__pipeline_allocate(by_trainer *t, by_error *error)
{
    by__trainer_pipe *pipe = t->pipe;
    BY_TRY(by_mesh_comm(&pipe->comm, t->ranks.mesh, 1u << BY_MESH_PIPELINE, error));
    BY_TRY(by_device_alloc(&pipe->memory, t->device, pipe->bytes, "the pipeline's slots", error));
    if (by__pipeline_largest_share(t) > 0) {
        BY_TRY(by__alloc_aligned(&pipe->shared, by__pipeline_largest_share(t), "a shared parameter",
                                 error));
    }
    for (int i = 0; i < pipe->chunks; i++) {
        by__trainer_pipe_stage *stage = &pipe->stages[i];
        for (int kind = 0; kind < BY__PART_KINDS; kind++) {
            BY_TRY(bind_parameters(t, stage->row[kind], error));
        }
        BY_TRY(bind_parameters(t, stage->loss, error));
        for (size_t v = 0; v < stage->value_count; v++) {
            const by__graph_value *value = &pipe->cut->train.whole->values[stage->values[v].source];
            if (value->role == BY_ROLE_GRADIENT) {
                stage->values[v].gradient = by__store_find(t->store, value->name + strlen("grad."));
            }
        }
    }
    return BY_OK;
}
