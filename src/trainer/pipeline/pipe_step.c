/* Runs a rank of a pipeline: the actions of a step, and evaluations; the table of its functions. */
#include <string.h>

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/pipeline/pipe.h"

/* Tags repeat after this many transfers, far more than are in flight. */
#define TAGS 4096

static by__trainer_pipe_stage *stage_at(const by__trainer_pipe *pipe, int stage)
{
    return &pipe->stages[stage / pipe->ranks];
}

static bool is_local(const by__trainer_pipe *pipe, int stage)
{
    return by__pipe_rank_of(pipe, stage) == pipe->rank;
}

/* Memory of a value in the slot of a micro-batch. */
static by_memory slot_of(const by__trainer_pipe *pipe, const by__trainer_pipe_graph *g,
                         const by__trainer_pipe_stage *stage, const by__trainer_pipe_value *value,
                         int64_t micro_batch)
{
    const by__trainer_pipe_ring *ring = &stage->rings[value->ring];
    size_t slot = ring->slots > 0 ? (size_t)(micro_batch % ring->slots) : 0;
    return by_memory_at(pipe->memory, ring->offset + slot * ring->slot_bytes + value->offset,
                        by__graph_value_bytes(&g->whole->values[value->source]));
}

static const by__trainer_pipe_value *find_value(const by__trainer_pipe_value *values, size_t count,
                                                by_value value)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i].source == value) {
            return &values[i];
        }
    }
    return NULL;
}

/* ---- transfers ---- */

/* The values of a stage to transfer, and the micro-batch; those of an evaluation are in the first
 * slot. */
typedef struct stage_transfer {
    int from;
    int to;
    int64_t micro_batch;
    int tag;
    bool loss;
} stage_transfer;

static by_memory moved(const by__trainer_pipe *pipe, const stage_transfer *x, by_value value,
                       int stage)
{
    const by__trainer_pipe_stage *s = stage_at(pipe, stage);
    const by__trainer_pipe_graph *g = x->loss ? &pipe->cut->loss : &pipe->cut->train;
    const by__trainer_pipe_value *v = x->loss ? find_value(s->loss_values, s->loss_count, value)
                                              : find_value(s->values, s->value_count, value);
    return slot_of(pipe, g, s, v, x->loss ? 0 : x->micro_batch);
}

/* Sends a value to another rank, or receives it. */
static by_status exchange_value(by_trainer *t, const stage_transfer *x, by_memory memory,
                                const by__graph_value *value, bool sends, const char *what,
                                by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    by__device_staging *staging = &t->ranks.staging;
    size_t count = (size_t)by_shape_count(&value->shape);
    void *copy;
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by__device_staging_begin(staging, t->device, error));
    BY_TRY(by__device_stage(staging, memory, sends, &copy, error));
    BY_TRY(by__device_staging_wait(staging, error));
    if (sends) {
        return by_comm_send(pipe->comm, copy, count, value->dtype, by__pipe_rank_of(pipe, x->to),
                            x->tag % TAGS, what, error);
    }
    BY_TRY(by_comm_receive(pipe->comm, copy, count, value->dtype, by__pipe_rank_of(pipe, x->from),
                           x->tag % TAGS, what, error));
    BY_TRY(by__device_unstage(staging, memory, copy, error));
    return by__device_staging_wait(staging, error);
}

/* Sends, receives or copies all values that go from one stage to another. */
static by_status move_values(by_trainer *t, const stage_transfer *x, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    const by__trainer_pipe_graph *g = x->loss ? &pipe->cut->loss : &pipe->cut->train;
    bool sends = is_local(pipe, x->from);
    bool receives = is_local(pipe, x->to);
    for (size_t i = 0; i < g->move_count; i++) {
        const by__trainer_pipe_move *move = &g->moves[i];
        char what[64];
        if (move->from != x->from || move->to != x->to) {
            continue;
        }
        const by__graph_value *value = &g->whole->values[move->value];
        (void)snprintf(what, sizeof what, "%s of micro-batch %lld, stage %d to %d",
                       x->from < x->to ? "activations" : "gradients", (long long)x->micro_batch,
                       x->from, x->to);
        if (sends && receives) {
            BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, moved(pipe, x, move->value, x->to),
                                   moved(pipe, x, move->value, x->from), error));
        } else {
            BY_TRY(exchange_value(t, x, moved(pipe, x, move->value, sends ? x->from : x->to), value,
                                  sends, what, error));
        }
    }
    return BY_OK;
}

/* Copies results of a pass to other stages of this rank. */
static by_status copy_to_neighbours(by_trainer *t, const by_pipeline_action *a, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    for (int chunk = 0; chunk < pipe->chunks; chunk++) {
        const stage_transfer x = {
            .from = a->stage, .to = pipe->stages[chunk].stage, .micro_batch = a->micro_batch};
        bool backward = x.from > x.to;
        bool made = a->kind == (backward ? BY_PIPELINE_BACKWARD : BY_PIPELINE_FORWARD);
        if (x.from != x.to && made) {
            BY_TRY(move_values(t, &x, error));
        }
    }
    return BY_OK;
}

/* ---- passes ---- */

static by_status bind_slot(const by__trainer_pipe *pipe, const by__trainer_pipe_stage *stage,
                           by__pass_part_kind kind, int64_t micro_batch, by_error *error)
{
    for (size_t i = 0; i < stage->value_count; i++) {
        const by__trainer_pipe_value *value = &stage->values[i];
        if (value->in[kind] != BY_NONE) {
            BY_TRY(by_program_bind(stage->row[kind]->program, value->in[kind],
                                   slot_of(pipe, &pipe->cut->train, stage, value, micro_batch),
                                   error));
        }
    }
    return BY_OK;
}

/* Runs a part of a stage; gradients of parameters go to `set` (-1: to the slot). */
static by_status run_part(by_trainer *t, const by__trainer_pipe_stage *stage,
                          by__pass_part_kind kind, const by_batch *batch, int64_t i, int set,
                          by_error *error)
{
    by__exec_program_row *row = stage->row[kind];
    if (row == NULL) {
        return BY_OK;
    }
    if (set >= 0) {
        int flat = t->flats.gradient_sets[set];
        BY_TRY(by__exec_row_bind_flat(row, t->store, BY_ROLE_GRADIENT, flat, flat, error));
    }
    BY_TRY(bind_slot(t->pipe, stage, kind, i, error));
    int64_t examples = t->part.micro_batches * t->config->train.micro_batch;
    int64_t kept;
    bool counts = t->summation->begin(t, &i, &kept);
    if (by_graph_find(row->graph, "loss") == BY_NONE) {
        kept = t->part.most_micro_batches;
    }
    BY_TRY(by__trainer_feed_micro_batch(t, row, batch, examples, i, kept, error));
    return kind == BY__PART_FORWARD && counts ? by__trainer_activations_keep(t, row, i, error)
                                              : BY_OK;
}

/* Copies gradients that the backward part has left in the slot. */
static by_status collect_early(by_trainer *t, const by__trainer_pipe_stage *stage, int64_t i,
                               int set, by_error *error)
{
    for (size_t k = 0; k < stage->value_count; k++) {
        const by__trainer_pipe_value *value = &stage->values[k];
        if (value->gradient != BY__NO_ENTRY) {
            BY_TRY(by__device_copy(
                BY__QUEUE_COMPUTE,
                by__store_buffer(t->store, t->flats.gradient_sets[set], value->gradient),
                slot_of(t->pipe, &t->pipe->cut->train, stage, value, i), error));
        }
    }
    return BY_OK;
}

static by_status add_sets(by_trainer *t, const by__trainer_pipe_stage *stage, int earlier, int set,
                          by_error *error)
{
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        by_memory sum = by__pipeline_gradients(t, stage, group, set);
        char name[32];
        (void)snprintf(name, sizeof name, "a.%d", group);
        BY_TRY(by__exec_row_bind(stage->sum, name, by__pipeline_gradients(t, stage, group, earlier),
                                 error));
        (void)snprintf(name, sizeof name, "b.%d", group);
        BY_TRY(by__exec_row_bind(stage->sum, name, sum, error));
        (void)snprintf(name, sizeof name, "sum.%d", group);
        BY_TRY(by__exec_row_bind(stage->sum, name, sum, error));
    }
    return by_program_submit(stage->sum->program, error);
}

/* Runs the pass that completes a micro-batch's gradients at a stage, and the additions that become
 * possible. */
static by_status run_last(by_trainer *t, by__trainer_pipe_stage *stage, by__pass_part_kind kind,
                          const by_batch *batch, int64_t i, by_error *error)
{
    by__sum_addition pair;
    if (t->summation->in_rounds) { /* the program hands gradients over */
        return run_part(t, stage, kind, batch, i, -1, error);
    }
    int set = by__sum_tree_acquire(&stage->tree);
    BY_TRY(run_part(t, stage, kind, batch, i, set, error));
    if (t->pipe->apart) {
        BY_TRY(collect_early(t, stage, i, set, error));
    }
    by__sum_tree_release(&stage->tree, set);
    while (by__sum_tree_add(&stage->tree, &pair)) {
        BY_TRY(add_sets(t, stage, pair.left, pair.right, error));
    }
    return BY_OK;
}

static by_status run_action(by_trainer *t, const by_pipeline_action *a, const by_batch *batch,
                            by_error *error)
{
    static const by__pass_part_kind kinds[] = {[BY_PIPELINE_FORWARD] = BY__PART_FORWARD,
                                               [BY_PIPELINE_BACKWARD] = BY__PART_BACKWARD,
                                               [BY_PIPELINE_WEIGHT] = BY__PART_WEIGHT};
    const by__trainer_pipe *pipe = t->pipe;
    if (a->kind == BY_PIPELINE_SEND || a->kind == BY_PIPELINE_RECEIVE) {
        const stage_transfer x = {
            .from = a->stage, .to = a->to, .micro_batch = a->micro_batch, .tag = a->tag};
        return move_values(t, &x, error);
    }
    by__trainer_pipe_stage *stage = stage_at(pipe, a->stage);
    bool last = a->kind == (pipe->apart ? BY_PIPELINE_WEIGHT : BY_PIPELINE_BACKWARD);
    BY_TRY(last ? run_last(t, stage, kinds[a->kind], batch, a->micro_batch, error)
                : run_part(t, stage, kinds[a->kind], batch, a->micro_batch, -1, error));
    return copy_to_neighbours(t, a, error);
}

/* ---- a step ---- */

static int last_rank(const by__trainer_pipe *pipe)
{
    return by__pipe_rank_of(pipe, pipe->ranks * pipe->chunks - 1);
}

/* Gives all ranks what the last stage has, f32. */
static by_status broadcast_last(by_trainer *t, by_memory memory, const char *what, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    by__device_staging *staging = &t->ranks.staging;
    void *copy;
    BY_TRY(by__device_staging_begin(staging, t->device, error));
    BY_TRY(by__device_stage(staging, memory, true, &copy, error));
    BY_TRY(by__device_staging_wait(staging, error));
    BY_TRY(by_comm_broadcast(pipe->comm, copy, memory.bytes / sizeof(float), BY_F32,
                             last_rank(pipe), what, error));
    BY_TRY(by__device_unstage(staging, memory, copy, error));
    return by__device_staging_wait(staging, error);
}

static by_status step(by_trainer *t, const by_batch *batch, by__sum_tree *tree, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    size_t count;
    const by_pipeline_action *actions = by_pipeline_actions(pipe->schedule, pipe->rank, &count);
    for (int i = 0; i < pipe->chunks; i++) {
        by__sum_tree_begin(&pipe->stages[i].tree, t->part.first_leaf, t->part.leaves,
                           t->flats.sets);
    }
    for (size_t i = 0; i < count; i++) {
        BY_TRY(run_action(t, &actions[i], batch, error));
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    /* The trees of all stages have ended with the same sets. */
    *tree = pipe->stages[0].tree;
    const size_t bytes = (size_t)t->part.all_micro_batches * sizeof(float);
    return broadcast_last(t, by_memory_at(by__trainer_losses(t), 0, bytes), "losses", error);
}

/* ---- an evaluation ---- */

static by_status run_loss(by_trainer *t, const by__trainer_pipe_stage *stage, const by_batch *batch,
                          by_error *error)
{
    if (stage->loss == NULL) {
        return BY_OK;
    }
    for (size_t i = 0; i < stage->loss_count; i++) {
        const by__trainer_pipe_value *value = &stage->loss_values[i];
        if (value->in[0] != BY_NONE) {
            BY_TRY(by_program_bind(stage->loss->program, value->in[0],
                                   slot_of(t->pipe, &t->pipe->cut->loss, stage, value, 0), error));
        }
    }
    return batch == NULL
               ? by_program_run(stage->loss->program, error)
               : by__trainer_feed_micro_batch(t, stage->loss, batch, t->config->train.micro_batch,
                                              0, t->part.most_micro_batches, error);
}

static by_status evaluate(by_trainer *t, const by_batch *batch, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    int stages = pipe->ranks * pipe->chunks;
    for (int i = 0; i < pipe->chunks; i++) {
        const by__trainer_pipe_stage *stage = &pipe->stages[i];
        stage_transfer x = {.to = stage->stage, .loss = true};
        for (x.from = 0; x.from < stage->stage; x.from++) {
            x.tag = x.from * stages + x.to;
            BY_TRY(is_local(pipe, x.from) ? BY_OK : move_values(t, &x, error));
        }
        BY_TRY(run_loss(t, stage, batch, error));
        x.from = stage->stage;
        for (x.to = stage->stage + 1; x.to < stages; x.to++) {
            x.tag = x.from * stages + x.to;
            BY_TRY(move_values(t, &x, error));
        }
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    const size_t at = (size_t)t->part.most_micro_batches * sizeof(float);
    BY_TRY(broadcast_last(t, by_memory_at(by__trainer_losses(t), at, sizeof(float)),
                          "loss of an evaluation", error));
    return broadcast_last(t, by__trainer_evaluated(t), "evaluated values", error);
}

/* ---- the strategy ---- */

static by_status measure(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_UNUSED(o);
    return by__trainer_measure(t, t->model.forward, error);
}

/* Stages forward, then backward. */
static int64_t place_of(const by_trainer *t, const by__exec_program_row *row)
{
    const by__trainer_pipe *pipe = t->pipe;
    for (int i = 0; i < pipe->chunks; i++) {
        const by__trainer_pipe_stage *stage = &pipe->stages[i];
        if (stage->row[BY__PART_FORWARD] == row) {
            return stage->stage;
        }
        if (stage->row[BY__PART_BACKWARD] == row || stage->row[BY__PART_WEIGHT] == row) {
            return 2 * t->model.stages - stage->stage;
        }
    }
    return -1;
}

const by__trainer_strategy by__pipeline_strategy = {.open = by__pipeline_open,
                                                    .plan = by__pipeline_plan,
                                                    .plan_sums = by__pipeline_plan_sums,
                                                    .measure = measure,
                                                    .bytes = by__pipeline_bytes,
                                                    .exchanged = by__pipeline_exchanged,
                                                    .allocate = by__pipeline_allocate,
                                                    .step = step,
                                                    .evaluate = evaluate,
                                                    .share = by__pipeline_share,
                                                    .part = place_of,
                                                    .close = by__pipeline_close};
