/* Cuts the graphs of a model into stages. */
#include <stdlib.h>
#include <string.h>

#include "trainer/graphs/graphs.h"
#include "trainer/pipeline/pipe.h"

/* ---- the whole graphs ---- */

/* Builds the graph of a rank whose positions on the axes that split tensors are this one's, or
 * (first) 0. */
static by_status build_whole(by_graph **out, by_trainer *t, const by_trainer_options *o,
                             bool training, bool first, by_error *error)
{
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    by_model_mode mode = training ? BY_MODEL_TRAIN : BY_MODEL_LOSS;
    BY_TRY(by__trainer_forward_graph(out, &t->model.values, t->config, &recipe, mode, error));
    by_pass_options options = by__trainer_pass_options(t, &t->model.values);
    for (int kind = 0; kind < BY_SHARD_KINDS && first; kind++) {
        options.shard[kind].rank = 0;
    }
    return by_passes_run(*out, training ? BY_PURPOSE_TRAIN : BY_PURPOSE_LOSS, &options, NULL,
                         error);
}

/* Cuts the model into stages by the cost of the parts of the first rank along the axes that split
 * tensors. These ranks may have parts of uneven size, but all must cut alike. */
static by_status map_stages(by__trainer_pipe_cut *cut, by_trainer *t, const by_trainer_options *o,
                            by_error *error)
{
    by_graph *first = NULL;
    bool is_first = true;
    int stages = t->pipe->ranks * t->pipe->chunks;
    for (int axis = BY_MESH_EXPERT; axis < BY_MESH_AXES; axis++) {
        is_first = is_first && t->layout.place[axis] == 0;
    }
    if (is_first) {
        const by_graph *whole = cut->train.whole;
        return by__pass_map_stages(&cut->map, whole, by_graph_find(whole, "loss_scale"), stages,
                                   error);
    }
    by_status status = build_whole(&first, t, o, true, true, error);
    if (status == BY_OK) {
        status = by__pass_map_stages(&cut->map, first, by_graph_find(first, "loss_scale"), stages,
                                     error);
    }
    by_graph_close(&first);
    return status;
}

static int by_value_then_stage(const void *a, const void *b)
{
    const by__trainer_pipe_move *x = a;
    const by__trainer_pipe_move *y = b;
    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Lists the values that cross between stages, each once per stage. */
static by_status list_moves(by__trainer_pipe_graph *g, by_error *error)
{
    size_t kept = 0;
    BY_TRY(
        by__alloc((void **)&g->moves, g->crossing_count + 1, sizeof *g->moves, "pipeline", error));
    for (size_t i = 0; i < g->crossing_count; i++) {
        const by__pass_crossing *x = &g->crossings[i];
        by__trainer_pipe_move move = {x->value, by__stage_of_part(x->from),
                                      by__stage_of_part(x->to)};
        if (move.from != move.to) {
            g->moves[g->move_count++] = move;
        }
    }
    qsort(g->moves, g->move_count, sizeof *g->moves, by_value_then_stage);
    for (size_t i = 0; i < g->move_count; i++) {
        if (kept == 0 || by_value_then_stage(&g->moves[kept - 1], &g->moves[i]) != 0) {
            g->moves[kept++] = g->moves[i];
        }
    }
    g->move_count = kept;
    return BY_OK;
}

static by_status cut_whole(by__trainer_pipe_graph *g, const by__pass_stage_map *map, by_value seed,
                           bool apart, by_error *error)
{
    BY_TRY(
        by__alloc((void **)&g->part, g->whole->node_count + 1, sizeof *g->part, "pipeline", error));
    BY_TRY(by__pass_assign_parts(g->part, g->whole, seed, map, apart, error));
    BY_TRY(by__pass_list_crossings(&g->crossings, &g->crossing_count, g->whole, g->part, error));
    return list_moves(g, error);
}

static void free_graph(by__trainer_pipe_graph *g)
{
    by_graph_close(&g->whole);
    free(g->part);
    free(g->crossings);
    free(g->moves);
}

/* ---- parameters ---- */

static int by_parameter_then_stage(const void *a, const void *b)
{
    const by__trainer_pipe_reading *x = a;
    const by__trainer_pipe_reading *y = b;
    if (x->parameter != y->parameter) {
        return x->parameter < y->parameter ? -1 : 1;
    }
    return x->stage < y->stage ? -1 : x->stage > y->stage;
}

static by_status list_readings(by__trainer_pipe_cut *cut, by_error *error)
{
    const by_graph *whole = cut->train.whole;
    size_t most = 1;
    size_t kept = 0;
    for (size_t n = 0; n < whole->node_count; n++) {
        most += (size_t)whole->nodes[n].input_count;
    }
    BY_TRY(by__alloc((void **)&cut->readings, most, sizeof *cut->readings, "pipeline", error));
    by__trainer_pipe_reading *r = cut->readings;
    for (size_t n = 0; n < whole->node_count; n++) {
        const by__graph_node *node = &whole->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && whole->values[node->in[i]].role == BY_ROLE_PARAMETER) {
                r[cut->reading_count++] =
                    (by__trainer_pipe_reading){node->in[i], by__stage_of_part(cut->train.part[n])};
            }
        }
    }
    qsort(r, cut->reading_count, sizeof *r, by_parameter_then_stage);
    for (size_t i = 0; i < cut->reading_count; i++) {
        if (kept == 0 || by_parameter_then_stage(&r[kept - 1], &r[i]) != 0) {
            r[kept++] = r[i];
        }
    }
    cut->reading_count = kept;
    return BY_OK;
}

static by_status find_stages(by__trainer_pipe_cut *cut, by_error *error)
{
    const by_graph *whole = cut->train.whole;
    BY_TRY(by__alloc((void **)&cut->stage_of, whole->value_count + 1, sizeof *cut->stage_of,
                     "pipeline", error));
    for (size_t v = 0; v < whole->value_count; v++) {
        bool is_parameter = whole->values[v].role == BY_ROLE_PARAMETER;
        cut->stage_of[v] =
            is_parameter ? by__pass_stage_of_parameter(whole, cut->train.part, (by_value)v) : -1;
    }
    return list_readings(cut, error);
}

/* ---- the cut ---- */

static by_status make(by__trainer_pipe_cut *cut, by_trainer *t, const by_trainer_options *o,
                      by_error *error)
{
    bool apart = t->pipe->apart;
    memcpy(cut->place, t->layout.place, sizeof cut->place);
    cut->arena_bytes = t->plan.arena_bytes;
    BY_TRY(build_whole(&cut->train.whole, t, o, true, false, error));
    by_value seed = by_graph_find(cut->train.whole, "loss_scale");
    BY_TRY(map_stages(cut, t, o, error));
    BY_TRY(cut_whole(&cut->train, &cut->map, seed, apart, error));
    BY_TRY(build_whole(&cut->loss.whole, t, o, false, false, error));
    BY_TRY(cut_whole(&cut->loss, &cut->map, BY_NONE, apart, error));
    cut->values = t->model.values;
    return find_stages(cut, error);
}

/* Returns true if a rank's cut is that of this one: other stages and replicas have the same. */
static bool is_alike(const by_trainer *t, const by__trainer_pipe_cut *cut)
{
    bool alike = t->plan.arena_bytes == cut->arena_bytes;
    for (int axis = BY_MESH_EXPERT; axis < BY_MESH_AXES; axis++) {
        alike = alike && t->layout.place[axis] == cut->place[axis];
    }
    return alike;
}

by_status by__pipeline_cut(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    by_trainer *like = o->like;
    if (like != NULL && like->pipe != NULL && is_alike(t, like->pipe->cut)) {
        t->pipe->cut = like->pipe->cut;
        t->pipe->cut->users++;
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&t->pipe->cut, 1, sizeof *t->pipe->cut, "pipeline", error));
    t->pipe->cut->users = 1;
    return make(t->pipe->cut, t, o, error);
}

void by__pipeline_cut_close(by__trainer_pipe_cut **cut)
{
    by__trainer_pipe_cut *c = *cut;
    *cut = NULL;
    if (c == NULL || --c->users > 0) {
        return;
    }
    by__pass_stage_map_free(&c->map);
    free_graph(&c->train);
    free_graph(&c->loss);
    free(c->stage_of);
    free(c->readings);
    free(c);
}
