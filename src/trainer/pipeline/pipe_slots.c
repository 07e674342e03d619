/* Plans the memory of activations of micro-batches between the programs of a stage, and between
 * stages. */
#include <stdlib.h>
#include <string.h>

#include "trainer/pipeline/pipe.h"

/* Returns true if an action at another stage of this rank produces a value for the stage. */
static bool copies_to(const by__trainer_pipe *pipe, const by_pipeline_action *a, int stage)
{
    bool found = false;
    for (size_t k = 0; k < pipe->cut->train.move_count && a->kind < BY_PIPELINE_SEND; k++) {
        const by__trainer_pipe_move *move = &pipe->cut->train.moves[k];
        found = found || (move->from == a->stage && move->to == stage && a->stage != stage);
    }
    return found;
}

/* Number of slots of a stage's ring: the largest number of micro-batches that hold one at the same
 * time, from their first pass at the stage, or the first transfer to it, to the last action
 * there. */
static by_status count_slots(by__trainer_pipe *pipe, by__trainer_pipe_stage *stage, int ring,
                             by_error *error)
{
    size_t count;
    const by_pipeline_action *actions = by_pipeline_actions(pipe->schedule, pipe->rank, &count);
    size_t batches = (size_t)by_pipeline_of(pipe->schedule)->micro_batches;
    size_t *begin;
    size_t *end;
    BY_TRY(by__alloc((void **)&begin, 2 * batches, sizeof *begin, "pipeline", error));
    end = begin + batches;
    for (size_t i = 0; i < batches; i++) {
        begin[i] = SIZE_MAX;
    }
    for (size_t i = 0; i < count; i++) {
        const by_pipeline_action *a = &actions[i];
        size_t batch = (size_t)a->micro_batch;
        bool arrives = (a->kind == BY_PIPELINE_RECEIVE && a->to == stage->stage) ||
                       copies_to(pipe, a, stage->stage);
        bool here = a->kind != BY_PIPELINE_RECEIVE && a->stage == stage->stage;
        if (begin[batch] == SIZE_MAX && (ring == BY__RING_RECEIVED ? arrives : here)) {
            begin[batch] = i;
        }
        end[batch] = here ? i : end[batch];
    }
    for (size_t i = 0; i < batches && begin[i] != SIZE_MAX; i++) {
        int64_t live = 1;
        for (size_t k = i + 1; k < batches && begin[k] < end[i]; k++) {
            live++;
        }
        stage->rings[ring].slots =
            live > stage->rings[ring].slots ? live : stage->rings[ring].slots;
    }
    free(begin);
    return BY_OK;
}

static by_status add_value(by__trainer_pipe_stage *stage, const by__trainer_pipe_graph *g,
                           by_value value, bool loss, by_error *error)
{
    by__trainer_pipe_value **values = loss ? &stage->loss_values : &stage->values;
    size_t *count = loss ? &stage->loss_count : &stage->value_count;
    char name[32];
    if (*count > 0 && (*values)[*count - 1].source == value) {
        return BY_OK;
    }
    by__trainer_pipe_value *grown = realloc(*values, (*count + 1) * sizeof **values);
    if (grown == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu values", *count + 1);
    }
    *values = grown;
    by__trainer_pipe_value *v = &grown[(*count)++];
    int producer = g->whole->values[value].producer;
    bool made = loss || by__stage_of_part(g->part[producer]) == stage->stage;
    *v = (by__trainer_pipe_value){.source = value,
                                  .gradient = BY__NO_ENTRY,
                                  .ring = made ? BY__RING_MADE : BY__RING_RECEIVED};
    for (int kind = 0; kind < BY__PART_KINDS; kind++) {
        const by__exec_program_row *row = loss && kind == 0 ? stage->loss
                                          : loss            ? NULL
                                                            : stage->row[kind];
        v->in[kind] =
            row == NULL ? BY_NONE
                        : by_graph_find(row->graph, by__pass_crossing_name(name, g->whole, value));
    }
    return BY_OK;
}

/* Lists the values that cross to or from a part of the stage; crossings ascend by value. */
static by_status list_values(by__trainer_pipe_stage *stage, const by__trainer_pipe_graph *g,
                             bool loss, by_error *error)
{
    for (size_t i = 0; i < g->crossing_count; i++) {
        const by__pass_crossing *x = &g->crossings[i];
        if (by__stage_of_part(x->from) == stage->stage ||
            by__stage_of_part(x->to) == stage->stage) {
            BY_TRY(add_value(stage, g, x->value, loss, error));
        }
    }
    return BY_OK;
}

/* Lists the parameter gradients of the backward program if the weight-gradient program runs later:
 * they are kept until the micro-batch gets a gradient set. */
static by_status list_early_gradients(by_trainer *t, by__trainer_pipe_stage *stage, by_error *error)
{
    const by__exec_program_row *row = stage->row[BY__PART_BACKWARD];
    const by_graph *whole = t->pipe->cut->train.whole;
    for (size_t v = 0; row != NULL && v < row->graph->value_count; v++) {
        const by__graph_value *value = &row->graph->values[v];
        if (value->role == BY_ROLE_GRADIENT && value->producer >= 0) {
            BY_TRY(add_value(stage, &t->pipe->cut->train, by_graph_find(whole, value->name), false,
                             error));
        }
    }
    return BY_OK;
}

/* Assigns offsets to values, at multiples of `unit`; returns the bytes of a slot. */
static size_t place_values(const by_graph *whole, by__trainer_pipe_value *values, size_t count,
                           int ring, size_t unit)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (values[i].ring == ring) {
            values[i].offset = end;
            end += by__round_up(by__graph_value_bytes(&whole->values[values[i].source]), unit);
        }
    }
    return end;
}

by_status by__pipeline_plan_slots(by_trainer *t, by__trainer_pipe_stage *stage, by_error *error)
{
    by__trainer_pipe *pipe = t->pipe;
    size_t first = pipe->bytes;
    size_t unit = by__device_unit(t->device);
    BY_TRY(list_values(stage, &pipe->cut->train, false, error));
    BY_TRY(pipe->apart ? list_early_gradients(t, stage, error) : BY_OK);
    BY_TRY(list_values(stage, &pipe->cut->loss, true, error));
    for (int i = 0; i < BY__RINGS; i++) {
        by__trainer_pipe_ring *ring = &stage->rings[i];
        BY_TRY(count_slots(pipe, stage, i, error));
        ring->slot_bytes =
            place_values(pipe->cut->train.whole, stage->values, stage->value_count, i, unit);
        ring->offset = pipe->bytes;
        pipe->bytes += (size_t)ring->slots * ring->slot_bytes;
    }
    size_t loss = place_values(pipe->cut->loss.whole, stage->loss_values, stage->loss_count,
                               BY__RING_MADE, unit);
    pipe->bytes = pipe->bytes - first > loss ? pipe->bytes : first + loss;
    return BY_OK;
}

/* Bytes of the largest message to another rank, or also from one. */
static size_t largest_message(const by__trainer_pipe *pipe, bool received)
{
    const by_graph *whole = pipe->cut->train.whole;
    size_t largest = 0;
    for (size_t i = 0; i < pipe->cut->train.move_count; i++) {
        const by__trainer_pipe_move *move = &pipe->cut->train.moves[i];
        size_t bytes = by__graph_value_bytes(&whole->values[move->value]);
        int from = by__pipe_rank_of(pipe, move->from);
        int to = by__pipe_rank_of(pipe, move->to);
        bool own = from == pipe->rank || (received && to == pipe->rank);
        largest = own && from != to && bytes > largest ? bytes : largest;
    }
    for (size_t i = 0; i < pipe->share_count; i++) {
        size_t bytes =
            by__graph_value_bytes(&whole->values[by_graph_find(whole, pipe->shares[i].name)]);
        bool own =
            pipe->shares[i].from == pipe->rank || (received && pipe->shares[i].to == pipe->rank);
        largest = own && bytes > largest ? bytes : largest;
    }
    return largest;
}

size_t by__pipeline_largest_share(const by_trainer *t)
{
    const by__trainer_pipe *pipe = t->pipe;
    size_t largest = 0;
    for (size_t i = 0; i < pipe->share_count && t->shard.parameters != 0; i++) {
        by_value value = by_graph_find(pipe->cut->train.whole, pipe->shares[i].name);
        size_t bytes = by__graph_value_bytes(&pipe->cut->train.whole->values[value]);
        largest = pipe->shares[i].from == pipe->rank && bytes > largest ? bytes : largest;
    }
    return largest;
}

uint64_t by__pipeline_bytes(const by_trainer *t)
{
    /* A communicator keeps a copy of a message until it is delivered. */
    return t->pipe->bytes + largest_message(t->pipe, false) + by__pipeline_largest_share(t);
}

size_t by__pipeline_exchanged(const by_trainer *t)
{
    return largest_message(t->pipe, true);
}
