/* Summation of gradients between ranks during the backward pass.
 *
 * The last micro-batch of a rank runs a separate program, "last gradients": the usual one with a
 * collective for each bucket, which starts when the last gradient in it is complete. The collective
 * queue runs it concurrently with the rest of the backward pass. The sums of the rank's earlier
 * micro-batches and the last one are holders of one sum (reducer.h), so that the additions which
 * the last one permits are part of the collective, and the bits are those without overlap. */
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/trainer.h"

/* Sorts the buckets in the order in which the graph completes them, and lists their parts. */
static by_status sort_buckets(by__trainer_bucket_parts *parts, by_trainer *t, const by_graph *graph,
                              by_error *error)
{
    by__trainer_ranks *r = &t->ranks;
    by__trainer_bucket_order *order = NULL;
    by__trainer_bucket *sorted = NULL;
    size_t count;
    BY_TRY(by__trainer_bucket_parts_list(parts, t, error));
    by_status status = by__trainer_buckets_order(&order, &count, t, parts, graph, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&sorted, count + 1, sizeof *sorted, "buckets", error);
    }
    for (size_t k = 0; k < count && status == BY_OK; k++) {
        sorted[k] = r->buckets[order[k].bucket];
    }
    if (status == BY_OK) {
        memcpy(r->buckets, sorted, count * sizeof *sorted);
    }
    free(sorted);
    free(order);
    by__trainer_bucket_parts_free(parts);
    return status == BY_OK ? by__trainer_bucket_parts_list(parts, t, error) : status;
}

/* A gradient with elements in several buckets is an operand of the first: collectives keep their
 * order, so the others come later. */
static int operands(by_value *out, const by_trainer *t, const by_graph *graph,
                    const by__trainer_bucket_parts *parts, size_t bucket)
{
    int count = 0;
    for (size_t i = parts->first[bucket]; i < parts->first[bucket + 1]; i++) {
        bool known = false;
        for (size_t k = 0; k < parts->first[bucket]; k++) {
            known = known || parts->parts[k].entry == parts->parts[i].entry;
        }
        if (!known) {
            out[count++] = by__trainer_part_gradient(t, graph, &parts->parts[i]);
        }
    }
    return count;
}

static by_status add_collectives(by_trainer *t, const by__trainer_bucket_parts *parts,
                                 by_graph *graph, by_error *error)
{
    by_value *values;
    BY_TRY(
        by__alloc((void **)&values, by__store_count(t->store), sizeof *values, "buckets", error));
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        int count = operands(values, t, graph, parts, k);
        t->ranks.buckets[k].is_joined = count == 0; /* within a tensor of several buckets */
        if (count > 0) {
            (void)by__op_build_wait(
                graph, by__op_build_reduce_gradients(graph, values, count, (int64_t)k, 0,
                                                     by__trainer_ranks_adding_axes(t),
                                                     by__trainer_ranks_adders(t), true));
        }
    }
    free(values);
    return by_graph_check(graph, error);
}

static by_status finish_graph(by_trainer *t, by_graph *graph, const by_model *model,
                              by_error *error)
{
    by_pass_options options = by__trainer_pass_options(t, model);
    by__trainer_bucket_parts parts = {0};
    BY_TRY(by_passes_run(graph, BY_PURPOSE_TRAIN, &options, NULL, error));
    by_status status = sort_buckets(&parts, t, graph, error);
    if (status == BY_OK) {
        status = add_collectives(t, &parts, graph, error);
    }
    by__trainer_bucket_parts_free(&parts);
    return status == BY_OK ? by_pass_overlap(graph, 0, error) : status;
}

by_status by__trainer_overlap_plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    by_graph *graph;
    by_model model;
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    if (t->ranks.bucket_count == 0 || t->config->parallel.overlap == 0) {
        return BY_OK;
    }
    BY_TRY(by__trainer_forward_graph(&graph, &model, t->config, &recipe, BY_MODEL_TRAIN, error));
    by_status status = finish_graph(t, graph, &model, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    return by__exec_set_add(&t->programs, BY__LAST_GRADIENTS, graph, (by_purpose)0, NULL,
                            &t->model.last, error);
}

/* ---- a step ---- */

static by_status reduce(void *user, const by__device_call *call, by_error *error)
{
    by_trainer *t = user;
    by__trainer_ranks *r = &t->ranks;
    size_t k = (size_t)call->attrs.bucket;
    do {
        BY_TRY(by__trainer_reducer_run(r->reducer, k++, r->held, error));
    } while (k < r->bucket_count && r->buckets[k].is_joined);
    return BY_OK;
}

by_status by__trainer_overlap_open(by_trainer *t, by_error *error)
{
    BY_UNUSED(error);
    if (t->model.last != NULL) {
        t->ranks.collectives->gradients = reduce;
        t->ranks.collectives->user = t;
    }
    return BY_OK;
}
