/* ZeRO-2 (Rajbhandari et al. 2020): gradients, too, are divided among the ranks of `shard`.
 *
 * Ranks take micro-batches in turn: in round j the R ranks compute micro-batches j R .. j R + R -
 * 1. Gradients of a micro-batch are activations of the program. When those of a bucket are
 * complete, a collective hands them over, during the rest of the backward pass, and their memory is
 * free afterwards: the owner of a slice adds the slice of all ranks' micro-batches to its sums of
 * earlier rounds (reducer.h), which is all that gradient sets have room for.
 *
 * If the last round has no micro-batch for a rank, the rank computes one again without contributing
 * it, so that all ranks run the same collectives.
 *
 * A rank of a pipeline hands over the gradients of a stage in the program that completes them
 * (trainer/pipeline/pipe_plan.c); its rounds are the micro-batches of its schedule. */
#include <stdlib.h>
#include <string.h>

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"

by_status by__trainer_zero2_build(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    by__trainer_zero2 *turns = &t->shard.zero2;
    BY_TRY(by__trainer_forward_graph(&turns->graph, &t->model.values, t->config, &recipe,
                                     BY_MODEL_TRAIN, error));
    t->model.parameters = turns->graph;
    by_pass_options options = by__trainer_pass_options(t, &t->model.values);
    by__trainer_gathered_options(t, turns->graph, &options);
    turns->ahead = options.prefetch_bytes;
    return by_passes_run(turns->graph, BY_PURPOSE_TRAIN, &options, "order", error);
}

/* ---- the program ---- */

/* Appends start and wait of each bucket. *bytes: of the gradients of the largest one. */
static by_status append_collectives(by_trainer *t, by_graph *graph,
                                    const by__trainer_bucket_order *order, size_t buckets,
                                    size_t *bytes, by_error *error)
{
    const uint32_t mesh = by__trainer_ranks_adding_axes(t);
    const by__trainer_bucket_parts *parts = &t->shard.zero2.parts;
    by_value *values;
    BY_TRY(
        by__alloc((void **)&values, by__store_count(t->store), sizeof *values, "buckets", error));
    *bytes = 0;
    graph->phase = BY__BACKWARD;
    for (size_t k = 0; k < buckets; k++) {
        size_t bucket = order[k].bucket;
        size_t size = 0;
        int64_t entries = 0;
        int count = 0;
        for (size_t i = parts->first[bucket]; i < parts->first[bucket + 1]; i++) {
            by_value gradient = by__trainer_part_gradient(t, graph, &parts->parts[i]);
            by__graph_value *value = &graph->values[gradient];
            value->role = value->producer < 0 ? BY_ROLE_INPUT : BY_ROLE_ACTIVATION;
            values[count++] = gradient;
            entries += parts->parts[i].part.count;
            size += by__graph_value_bytes(value);
        }
        *bytes = size > *bytes ? size : *bytes;
        (void)by__op_build_wait(
            graph, by__op_build_reduce_gradients(graph, values, count, (int64_t)bucket, entries,
                                                 mesh, by__trainer_ranks_adders(t), false));
    }
    free(values);
    return by_graph_check(graph, error);
}

/* Returns true if the node gathers a parameter, or waits for one. */
static bool gathers(const by_graph *graph, size_t node)
{
    const by__op_row *row = by__op_row_of(graph->nodes[node].op);
    return row->communicates || row->waits;
}

/* Moves the collectives, which were inserted after the first `before` nodes, to after the nodes
 * that complete their buckets. Collectives keep their order, so that parameters gathered for the
 * next nodes come first, where they may overlap with earlier nodes. */
static by_status place_collectives(by_trainer *t, by_graph *graph, size_t before,
                                   const by__trainer_bucket_order *order, size_t buckets,
                                   by_error *error)
{
    by__graph_node *ordered;
    size_t kept = 0;
    size_t k = 0;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count, sizeof *ordered, "buckets", error));
    for (size_t n = 0; n < before || k < buckets; n++) {
        bool later = t->config->parallel.overlap != 0 && n + 1 < before && gathers(graph, n + 1);
        if (n < before) {
            ordered[kept++] = graph->nodes[n];
        }
        for (; !later && k < buckets && order[k].node <= n; k++) {
            ordered[kept++] = graph->nodes[before + 2 * k];
            ordered[kept++] = graph->nodes[before + 2 * k + 1];
        }
    }
    memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    free(ordered);
    by__graph_compact(graph);
    return BY_OK;
}

by_status by__trainer_zero2_hand_over(by_trainer *t, by_graph *graph, by_error *error)
{
    const by__trainer_zero2 *turns = &t->shard.zero2;
    by__trainer_bucket_order *order = NULL;
    size_t before = graph->node_count;
    size_t buckets = 0;
    size_t bytes = 0;
    by_status status = by__trainer_buckets_order(&order, &buckets, t, &turns->parts, graph, error);
    if (status == BY_OK) {
        status = append_collectives(t, graph, order, buckets, &bytes, error);
    }
    if (status == BY_OK) {
        status = place_collectives(t, graph, before, order, buckets, error);
    }
    free(order);
    BY_TRY(status);
    return t->config->parallel.overlap != 0
               ? by_pass_overlap(graph, bytes > turns->ahead ? bytes : turns->ahead, error)
               : BY_OK;
}

by_status by__trainer_zero2_list_parts(by_trainer *t, by_error *error)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        int64_t count = t->ranks.buckets[k].part.count;
        turns->most = count > turns->most ? count : turns->most;
    }
    return by__trainer_bucket_parts_list(&turns->parts, t, error);
}

by_status by__trainer_zero2_plan(by_trainer *t, by_error *error)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    by_graph *graph = turns->graph;
    BY_TRY(by__trainer_zero2_list_parts(t, error));
    BY_TRY(by__trainer_zero2_hand_over(t, graph, error));
    turns->graph = NULL; /* owned by the set from here on */
    return by__exec_set_add(&t->programs, "gradients", graph, (by_purpose)0, NULL,
                            &t->model.gradients, error);
}

size_t by__trainer_zero2_bytes(const by_trainer *t)
{
    return (size_t)t->shard.zero2.most * sizeof(float);
}

/* ---- a step ---- */

/* The gradient of a part of a bucket, in the device's memory. */
static by_memory gradient_of(const by_trainer *t, const by__device_call *call, size_t i,
                             const by__trainer_bucket_part *part)
{
    int64_t before = part->part.first - by__store_entry_part(t->store, part->entry).first;
    return (by_memory){t->device, (uintptr_t)call->in[i].data + (size_t)before * sizeof(float),
                       (size_t)part->part.count * sizeof(float)};
}

/* Copies the gradients of a bucket to contiguous memory, as they are in a gradient set. */
static by_status pack(by_trainer *t, const by__device_call *call, size_t bucket, float **out,
                      by_error *error)
{
    const by__trainer_zero2 *turns = &t->shard.zero2;
    by__device_staging *staging = &t->ranks.staging;
    const by__trainer_bucket_part *parts = turns->parts.parts + turns->parts.first[bucket];
    size_t count = turns->parts.first[bucket + 1] - turns->parts.first[bucket];
    const by__store_part all = t->ranks.buckets[bucket].part;
    void *copy = turns->packed;
    int64_t end = 0;
    if (count == 1 && parts[0].part.count == all.count) {
        BY_TRY(by__device_stage(staging, gradient_of(t, call, 0, &parts[0]), true, &copy, error));
        *out = copy;
        return by__device_staging_wait(staging, error);
    }
    if (!t->device->host_memory) {
        BY_TRY(by__device_staging_take(staging, (size_t)all.count * sizeof(float), &copy, error));
    }
    float *packed = copy;
    for (size_t i = 0; i < count; i++) {
        int64_t at = parts[i].part.first - all.first;
        memset(packed + end, 0, (size_t)(at - end) * sizeof *packed);
        BY_TRY(
            by__device_stage_into(staging, packed + at, gradient_of(t, call, i, &parts[i]), error));
        end = at + parts[i].part.count;
    }
    memset(packed + end, 0, (size_t)(all.count - end) * sizeof *packed);
    *out = packed;
    return by__device_staging_wait(staging, error);
}

static by_status hand_over(void *user, const by__device_call *call, by_error *error)
{
    by_trainer *t = user;
    by__trainer_zero2 *turns = &t->shard.zero2;
    size_t k = (size_t)call->attrs.bucket;
    by__store_part own = by__trainer_shard_slice(t, k, t->layout.place[BY_MESH_SHARD]).part;
    by_memory sums[BY__MAX_SETS] = {{0}};
    float *leaf = NULL;
    for (int i = 0; i < t->flats.sets && own.count > 0; i++) {
        sums[i] = by__store_memory(t->store, t->flats.gradient_sets[i], own);
    }
    BY_TRY(by__device_staging_begin(&t->ranks.staging, t->device, error));
    BY_TRY(turns->contributes ? pack(t, call, k, &leaf, error) : BY_OK);
    return by__trainer_reducer_add(t->ranks.reducer, turns->round, k, leaf, sums, error);
}

static by_status open(by_trainer *t, by_error *error)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    t->ranks.collectives->gradients = hand_over;
    t->ranks.collectives->parameters = by__trainer_gathered_run;
    t->ranks.collectives->user = t;
    BY_TRY(by__alloc((void **)&turns->losses, (size_t)t->part.most_micro_batches,
                     sizeof *turns->losses, "losses", error));
    return by__alloc_aligned((void **)&turns->packed, by__trainer_zero2_bytes(t),
                             "a bucket of gradients", error);
}

void by__trainer_zero2_close(by_trainer *t)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    by_graph_close(&turns->graph);
    by__trainer_bucket_parts_free(&turns->parts);
    free(turns->packed);
    free(turns->losses);
}

static int64_t count_rounds(const by_trainer *t)
{
    int64_t ranks = by__trainer_ranks_members(t);
    return (t->part.leaves + ranks - 1) / ranks;
}

static bool begin(by_trainer *t, int64_t *i, int64_t *kept_as)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    turns->round = *i;
    turns->contributes = *i < t->part.micro_batches;
    *kept_as = turns->contributes ? by__trainer_leaf(t, *i) : t->part.most_micro_batches;
    *i = turns->contributes ? *i : t->part.micro_batches - 1;
    return turns->contributes;
}

static by_status gather_losses(by_trainer *t, by_error *error)
{
    by__trainer_zero2 *turns = &t->shard.zero2;
    const by_memory memory = by__trainer_losses(t);
    by__device_staging *staging = &t->ranks.staging;
    size_t *counts = t->ranks.counts;
    size_t mine = 0;
    void *copy;
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by__device_staging_begin(staging, t->device, error));
    BY_TRY(by__device_stage(staging, memory, true, &copy, error));
    BY_TRY(by__device_staging_wait(staging, error));
    float *losses = copy;
    for (int r = 0; r < t->layout.replica; r++) {
        mine += counts[r];
    }
    for (int64_t i = 0; i < t->part.micro_batches; i++) {
        turns->losses[mine + (size_t)i] = losses[by__trainer_leaf(t, i)];
    }
    BY_TRY(by_comm_all_gather(t->ranks.peers, turns->losses + mine, turns->losses, counts, BY_F32,
                              "losses", error));
    const float *next = turns->losses;
    for (int r = 0; r < t->layout.replicas; r++) {
        const by__trainer_leaves leaves = by__trainer_replica_leaves(t, r);
        for (int64_t i = 0; i < leaves.count; i++) {
            losses[leaves.first + i * leaves.stride] = *next++;
        }
    }
    BY_TRY(by__device_unstage(staging, memory, losses, error));
    return by__device_staging_wait(staging, error);
}

/* Gradients were handed over during the rounds, to set 0. */
static by_status sum(by_trainer *t, const by__sum_tree *tree, int *set, by_error *error)
{
    BY_UNUSED(tree);
    *set = 0;
    return gather_losses(t, error);
}

static by__trainer_leaves leaves(by__trainer_leaves all, int members, int member)
{
    return (by__trainer_leaves){.first = all.first + member,
                                .count = (all.count - member + members - 1) / members,
                                .stride = members};
}

static int sets(const by_trainer *t)
{
    return by__trainer_reducer_sets(t->part.leaves, by__trainer_ranks_members(t));
}

const by__trainer_summation by__exchange_rounds = {.in_rounds = true,
                                                   .axes = 1u << BY_MESH_DATA,
                                                   .leaves = leaves,
                                                   .sets = sets,
                                                   .rounds = count_rounds,
                                                   .begin = begin,
                                                   .open = open,
                                                   .sum = sum};
