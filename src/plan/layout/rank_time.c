/* What one rank does in a step: its programs as often as they run, and the exchanges that no
 * program has. */
#include <string.h>

#include "plan/layout/layout.h"
#include "trainer/pipeline/pipe.h"

/* A program's graph, once. */
static by_status run_row(by__layout_time *out, const by__exec_program_row *row, const by_trainer *t,
                         by_layout_part part, const by__layout_job *job, by_error *error)
{
    by__layout_work work;
    *out = (by__layout_time){0};
    if (row == NULL) {
        return BY_OK;
    }
    BY_TRY(by__layout_graph_work(&work, row->graph, t->shard.states != 0, part, error));
    by_status status = by__layout_run(out, &work, job, error);
    by__layout_work_free(&work);
    return status;
}

static by_status add_row(by__layout_time *sum, const by__exec_program_row *row, const by_trainer *t,
                         by_layout_part part, double times, const by__layout_job *job,
                         by_error *error)
{
    by__layout_time once;
    size_t first = job->trace == NULL ? 0 : job->trace->count;
    BY_TRY(run_row(&once, row, t, part, job, error));
    by__layout_trace_repeat(job->trace, first, once.total, times);
    by__layout_add(sum, &once, times);
    return BY_OK;
}

/* ---- after the last micro-batch ---- */

/* What a compressed exchange sends of f32 values (docs/parallelism.md). */
static double coded_share(const by_sync_config *sync)
{
    static const struct {
        const char *name;
        double share;
    } codes[] = {{"bf16", 0.5},
                 {"int8", 0.254},
                 {"one_bit", 1.0 / 31.0},
                 {"top_k", 1.0 / 67.0},
                 {"power_sgd", 1.0 / 96.0}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(codes); i++) {
        if (strcmp(sync->compress, codes[i].name) == 0) {
            return codes[i].share;
        }
    }
    return 1.0;
}

static double gradient_bytes(const by_trainer *t)
{
    double elements = 0.0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        elements += (double)by__store_group_part(t->store, group).count;
    }
    return elements * sizeof(float);
}

/* Sums of gradients that no program has begun. */
static void add_gradients(by__layout_time *sum, const by_trainer *t, const by__layout_job *job)
{
    unsigned axes = by__trainer_ranks_adding_axes(t);
    double bytes = gradient_bytes(t);
    if (t->sync.is_on && t->config->sync.staleness == 0) {
        const by_sync_config *sync = &t->config->sync;
        by__layout_add_exchange(sum, job, BY_LAYOUT_GRADIENTS, BY_EXCHANGE_ALL_REDUCE,
                                bytes * coded_share(sync) / (double)sync->every,
                                1u << BY_MESH_DATA);
    }
    if (t->summation->in_rounds) { /* owners have the sums of their replica's group */
        double count = (double)(t->ranks.bucket_count > 0 ? t->ranks.bucket_count : 1);
        for (size_t k = 0; k < t->ranks.bucket_count; k++) {
            by__layout_add_exchange(sum, job, BY_LAYOUT_GRADIENTS, BY_EXCHANGE_ALL_REDUCE,
                                    bytes / (double)t->layout.size[BY_MESH_SHARD] / count,
                                    axes & ~(1u << BY_MESH_SHARD));
        }
    } else if (t->model.last == NULL && t->ranks.bucket_count > 0) {
        bool scatters = t->shard.states != 0;
        for (size_t k = 0; k < t->ranks.bucket_count; k++) {
            by__layout_add_exchange(sum, job, BY_LAYOUT_GRADIENTS,
                                    scatters ? BY_EXCHANGE_REDUCE_SCATTER : BY_EXCHANGE_ALL_REDUCE,
                                    4.0 * (double)t->ranks.buckets[k].part.count, axes);
        }
    }
}

/* What programs compute with is gathered after an update of slices. */
static void add_weights(by__layout_time *sum, const by_trainer *t, const by__layout_job *job)
{
    double size = (double)by_dtype_size(by__trainer_copies_dtype(t->config));
    double bytes = 0.0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        bool gathered = (t->shard.states & ~t->shard.parameters) >> group & 1u;
        bytes += gathered ? size * (double)by__store_group_part(t->store, group).count : 0.0;
    }
    if (bytes > 0.0) {
        by__layout_add_exchange(sum, job, BY_LAYOUT_WEIGHTS, BY_EXCHANGE_ALL_GATHER, bytes,
                                1u << BY_MESH_SHARD);
    }
}

/* Parameters that a stage trains and another one reads. */
static void add_shares(by__layout_time *sum, const by_trainer *t, const by__layout_job *job)
{
    double size = (double)by_dtype_size(by__trainer_copies_dtype(t->config));
    for (size_t i = 0; t->pipe != NULL && i < t->pipe->share_count; i++) {
        by_value value = by_graph_find(t->pipe->cut->train.whole, t->pipe->shares[i].name);
        if (value != BY_NONE) {
            const by_shape *shape = &t->pipe->cut->train.whole->values[value].shape;
            by__layout_add_exchange(sum, job, BY_LAYOUT_PIPELINE, BY_EXCHANGE_SHIFT,
                                    size * (double)by_shape_count(shape), 1u << BY_MESH_PIPELINE);
        }
    }
}

static by_status run_after(by__layout_time *out, const by_trainer *t, const by__layout_job *job,
                           by_error *error)
{
    *out = (by__layout_time){0};
    unsigned all = (1u << BY_MESH_AXES) - 1u;
    add_gradients(out, t, job);
    BY_TRY(add_row(out, by__exec_set_row(&t->programs, "gradient norm"), t, BY_LAYOUT_UPDATE, 1.0,
                   job, error));
    BY_TRY(add_row(out, by__exec_set_row(&t->programs, "gradient squares"), t, BY_LAYOUT_UPDATE,
                   1.0, job, error));
    /* The squares of the norm, and the losses. */
    by__layout_add_exchange(out, job, BY_LAYOUT_GRADIENTS, BY_EXCHANGE_ALL_GATHER, 0.0, all);
    by__layout_add_exchange(out, job, BY_LAYOUT_GRADIENTS, BY_EXCHANGE_ALL_GATHER, 0.0,
                            1u << BY_MESH_DATA | 1u << BY_MESH_SHARD);
    BY_TRY(add_row(out, t->update.row, t, BY_LAYOUT_UPDATE, 1.0, job, error));
    BY_TRY(add_row(out, t->update.average[0], t, BY_LAYOUT_UPDATE, 1.0, job, error));
    add_weights(out, t, job);
    add_shares(out, t, job);
    return BY_OK;
}

/* ---- the whole model on a rank ---- */

by_status by__layout_rank(by__layout_rank_time *out, const by_trainer *t, const by__layout_job *job,
                          by_error *error)
{
    *out = (by__layout_rank_time){0};
    by__layout_trace_begin(job->trace, &out->spans);
    if (t->pipe == NULL) {
        double runs = (double)t->summation->rounds(t);
        bool overlaps = t->model.last != NULL;
        BY_TRY(add_row(&out->micro, t->model.gradients, t, BY_LAYOUT_PARTS,
                       overlaps ? runs - 1.0 : runs, job, error));
        BY_TRY(add_row(&out->micro, t->model.last, t, BY_LAYOUT_PARTS, 1.0, job, error));
        BY_TRY(add_row(&out->micro, t->model.sum, t, BY_LAYOUT_SUMS,
                       (double)(t->part.micro_batches - 1), job, error));
    }
    BY_TRY(run_after(&out->after, t, job, error));
    by__layout_trace_end(job->trace, &out->spans);
    return BY_OK;
}

/* ---- stages ---- */

/* Bytes of a micro-batch that a stage sends to its neighbours. */
static void count_moves(by__layout_stage *stage, const by_trainer *t, int number)
{
    const by__trainer_pipe_graph *g = &t->pipe->cut->train;
    for (size_t i = 0; i < g->move_count; i++) {
        const by__trainer_pipe_move *move = &g->moves[i];
        double bytes = (double)by__graph_value_bytes(&g->whole->values[move->value]);
        if (move->from == number) {
            *(move->to > number ? &stage->sent : &stage->returned) += bytes;
        }
    }
}

by_status by__layout_rank_stages(by__layout_stage *stages, const by_trainer *t,
                                 const by__layout_job *job, by_error *error)
{
    static const int pass_of[BY__PART_KINDS] = {[BY__PART_FORWARD] = BY_PIPELINE_FORWARD,
                                                [BY__PART_BACKWARD] = BY_PIPELINE_BACKWARD,
                                                [BY__PART_WEIGHT] = BY_PIPELINE_WEIGHT};
    double count = (double)t->part.micro_batches;
    for (int chunk = 0; chunk < t->pipe->chunks; chunk++) {
        const by__trainer_pipe_stage *s = &t->pipe->stages[chunk];
        by__layout_stage *stage = &stages[s->stage];
        *stage = (by__layout_stage){0};
        for (int kind = 0; kind < BY__PART_KINDS; kind++) {
            by__layout_spans *spans = &stage->spans[pass_of[kind]];
            by__layout_trace_begin(job->trace, spans);
            BY_TRY(run_row(&stage->passes[pass_of[kind]], s->row[kind], t, BY_LAYOUT_PARTS, job,
                           error));
            by__layout_trace_end(job->trace, spans);
        }
        by__layout_time *last =
            &stage->passes[t->pipe->apart ? BY_PIPELINE_WEIGHT : BY_PIPELINE_BACKWARD];
        BY_TRY(add_row(last, s->sum, t, BY_LAYOUT_SUMS, count > 0.0 ? 1.0 - 1.0 / count : 0.0, job,
                       error));
        count_moves(stage, t, s->stage);
    }
    return BY_OK;
}
