/* ZeRO-2 (Rajbhandari et al. 2020): gradients are divided among the ranks of `shard`, too.
 *
 * Micro-batches go round: in round j the ranks compute micro-batches j R .. j R + R - 1. Gradients
 * of a micro-batch are activations of the program. When those of a bucket are complete, a
 * collective hands them over, beside the rest of the backward pass, and their memory is free behind
 * it: the owner of a slice adds the slice of all ranks' micro-batches to what it holds of earlier
 * rounds (reducer.h), which is all that gradient sets have room for.
 *
 * In a last round that has no micro-batch for a rank, it computes one again and gives nothing, so
 * that all ranks run the same collectives. */
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "train/trainer.h"

bool by__is_in_turn(const by_trainer *t)
{
    return t->sets > 0 && t->layout.size[BY_MESH_SHARD] > 1 && t->config->parallel.zero > 1;
}

int64_t by__trainer_leaf(const by_trainer *t, int64_t i)
{
    return by__is_in_turn(t) ? i * t->layout.replicas + t->layout.replica
                             : t->first_micro_batch + i;
}

int64_t by__turns_rounds(const by_trainer *t)
{
    int64_t ranks = t->layout.replicas;
    return (t->all_micro_batches + ranks - 1) / ranks;
}

by_status by__turns_build(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by__recipe recipe = {o->builder, o->user, t->task};
    by__turns *turns = &t->shard.turns;
    BY_TRY(by__train_forward(&turns->graph, &t->model, t->config, &recipe, BY_MODEL_TRAIN, error));
    by_pass_options options = by__trainer_pass_options(t, &t->model);
    by__gathered_options(t, turns->graph, &options);
    turns->ahead = options.prefetch_bytes;
    return by_passes_run(turns->graph, BY_PURPOSE_TRAIN, &options, "order", error);
}

/* ---- buckets ---- */

static by_value gradient_of(const by_trainer *t, const by_graph *graph, by__handle entry)
{
    char name[300];
    (void)snprintf(name, sizeof name, "grad.%s", by__store_entry(t->store, entry)->name);
    return by_graph_find(graph, name);
}

static by_status list_parts(by_trainer *t, const by_graph *graph, by_error *error)
{
    by__turns *turns = &t->shard.turns;
    size_t capacity = 0;
    BY_TRY(by__alloc((void **)&turns->first, t->ranks.bucket_count + 1, sizeof *turns->first,
                     "buckets", error));
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        const by__bucket *b = &t->ranks.buckets[k];
        turns->first[k] = turns->part_count;
        turns->most = b->count > turns->most ? b->count : turns->most;
        for (size_t i = 0; i < by__store_count(t->store); i++) {
            const by__stored_tensor *entry = by__store_entry(t->store, (by__handle)i);
            if (entry->group != b->group) {
                continue;
            }
            int64_t begin = by__store_begin(t->store, (by__handle)i);
            int64_t end = begin + by_shape_count(&entry->local);
            int64_t low = begin > b->first ? begin : b->first;
            int64_t high = end < b->first + b->count ? end : b->first + b->count;
            if (low < high) {
                BY_TRY(by__reserve((void **)&turns->parts, &capacity, turns->part_count + 1,
                                   sizeof *turns->parts, error));
                turns->parts[turns->part_count++] =
                    (by__bucket_part){.gradient = gradient_of(t, graph, (by__handle)i),
                                      .from = low - begin,
                                      .at = low - b->first,
                                      .count = high - low};
            }
        }
        turns->first[k + 1] = turns->part_count;
    }
    return BY_OK;
}

/* ---- the program ---- */

/* Appends start and wait of each bucket. *bytes: those of the largest one's gradients. */
static by_status append_collectives(by_trainer *t, by_graph *graph, size_t *bytes, by_error *error)
{
    const uint32_t mesh = 1u << BY_MESH_DATA | 1u << BY_MESH_SHARD;
    const by__turns *turns = &t->shard.turns;
    by_value *values;
    BY_TRY(
        by__alloc((void **)&values, by__store_count(t->store), sizeof *values, "buckets", error));
    *bytes = 0;
    graph->phase = BY__BACKWARD;
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        size_t size = 0;
        int count = 0;
        for (size_t i = turns->first[k]; i < turns->first[k + 1]; i++) {
            by_value gradient = turns->parts[i].gradient;
            graph->values[gradient].role = BY_ROLE_ACTIVATION;
            values[count++] = gradient;
            size += by__value_bytes(&graph->values[gradient]);
        }
        *bytes = size > *bytes ? size : *bytes;
        (void)by__wait(graph, by__reduce_gradients(graph, values, count, (int64_t)k, mesh,
                                                   t->layout.replicas, false));
    }
    free(values);
    return by_graph_check(graph, error);
}

/* The node that completes a bucket. */
static size_t completion(const by_trainer *t, const by_graph *graph, size_t bucket)
{
    const by__turns *turns = &t->shard.turns;
    size_t last = 0;
    for (size_t i = turns->first[bucket]; i < turns->first[bucket + 1]; i++) {
        size_t node = (size_t)graph->values[turns->parts[i].gradient].producer;
        last = node > last ? node : last;
    }
    return last;
}

/* Whether the node gathers a parameter, or waits for one. */
static bool gathers(const by_graph *graph, size_t node)
{
    const by__op_row *row = by__op_row_of(graph->nodes[node].op);
    return row->communicates || row->waits;
}

/* Moves the collectives, which stand behind the first `before` nodes, behind what completes them.
 * Buckets are in the order of completion. Collectives keep their order, so that what is gathered
 * for the next nodes comes first, where it may overlap with those before. */
static by_status place_collectives(by_trainer *t, by_graph *graph, size_t before, by_error *error)
{
    by__node *ordered;
    size_t kept = 0;
    size_t k = 0;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count, sizeof *ordered, "buckets", error));
    for (size_t n = 0; n < before; n++) {
        bool later = t->config->parallel.overlap != 0 && n + 1 < before && gathers(graph, n + 1);
        ordered[kept++] = graph->nodes[n];
        for (; !later && k < t->ranks.bucket_count && completion(t, graph, k) <= n; k++) {
            ordered[kept++] = graph->nodes[before + 2 * k];
            ordered[kept++] = graph->nodes[before + 2 * k + 1];
        }
    }
    memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    free(ordered);
    by__graph_compact(graph);
    return BY_OK;
}

by_status by__turns_plan(by_trainer *t, by_error *error)
{
    by__turns *turns = &t->shard.turns;
    by_graph *graph = turns->graph;
    size_t before = graph->node_count;
    size_t bytes;
    BY_TRY(by__gathered_check(t, graph, error));
    BY_TRY(by__gathered_check(t, t->forward, error));
    BY_TRY(by__overlap_sort_buckets(t, graph, error));
    BY_TRY(list_parts(t, graph, error));
    BY_TRY(append_collectives(t, graph, &bytes, error));
    BY_TRY(place_collectives(t, graph, before, error));
    if (t->config->parallel.overlap != 0) {
        BY_TRY(by_pass_overlap(graph, bytes > turns->ahead ? bytes : turns->ahead, error));
    }
    turns->graph = NULL; /* the set's from here on */
    return by__set_add(&t->programs, "gradients", graph, (by_purpose)0, NULL, error);
}

size_t by__turns_bytes(const by_trainer *t)
{
    return (size_t)t->shard.turns.most * sizeof(float);
}

/* ---- a step ---- */

/* The gradients of a bucket one behind the other, as they are in a gradient set. */
static float *pack(const by_trainer *t, const by__call *call, size_t bucket)
{
    const by__turns *turns = &t->shard.turns;
    const by__bucket_part *parts = turns->parts + turns->first[bucket];
    size_t count = turns->first[bucket + 1] - turns->first[bucket];
    int64_t at = 0;
    if (count == 1 && parts[0].count == t->ranks.buckets[bucket].count) {
        return (float *)call->in[0].data + parts[0].from;
    }
    for (size_t i = 0; i < count; i++) {
        const float *gradient = call->in[i].data;
        memset(turns->packed + at, 0, (size_t)(parts[i].at - at) * sizeof *gradient);
        memcpy(turns->packed + parts[i].at, gradient + parts[i].from,
               (size_t)parts[i].count * sizeof *gradient);
        at = parts[i].at + parts[i].count;
    }
    memset(turns->packed + at, 0,
           (size_t)(t->ranks.buckets[bucket].count - at) * sizeof *turns->packed);
    return turns->packed;
}

/* This rank's slice of a bucket; of no elements: none. */
static by__slice slice_of(const by_trainer *t, size_t bucket)
{
    const by__bucket *b = &t->ranks.buckets[bucket];
    int rank = t->layout.place[BY_MESH_SHARD];
    by__slice slice = {.group = b->group, .first = b->first, .count = (int64_t)b->slices[rank]};
    for (int r = 0; r < rank; r++) {
        slice.first += (int64_t)b->slices[r];
    }
    return slice;
}

static by_status hand_over(void *user, const by__call *call, by_error *error)
{
    by_trainer *t = user;
    by__turns *turns = &t->shard.turns;
    size_t k = (size_t)call->attrs.bucket;
    by__slice own = slice_of(t, k);
    float *sums[BY__MAX_SETS] = {NULL};
    for (int i = 0; i < t->sets && own.count > 0; i++) {
        sums[i] = (float *)by__shard_memory(t, t->gradient_sets[i], &own).address;
    }
    return by__reducer_add(t->ranks.reducer, turns->round, k,
                           turns->gives ? pack(t, call, k) : NULL, sums, error);
}

by_status by__turns_open(by_trainer *t, by_error *error)
{
    by__turns *turns = &t->shard.turns;
    t->ranks.collectives->gradients = hand_over;
    t->ranks.collectives->parameters = by__gathered_run;
    t->ranks.collectives->user = t;
    BY_TRY(by__alloc((void **)&turns->losses, (size_t)t->all_micro_batches, sizeof *turns->losses,
                     "losses", error));
    return by__alloc_aligned((void **)&turns->packed, by__turns_bytes(t), "a bucket of gradients",
                             error);
}

void by__turns_close(by_trainer *t)
{
    by__turns *turns = &t->shard.turns;
    by_graph_close(&turns->graph);
    free(turns->parts);
    free(turns->first);
    free(turns->packed);
    free(turns->losses);
}

by_status by__turns_step(by_trainer *t, const by_batch *batch, by_error *error)
{
    by__turns *turns = &t->shard.turns;
    int64_t examples = t->micro_batches * t->config->train.micro_batch;
    for (turns->round = 0; turns->round < by__turns_rounds(t); turns->round++) {
        turns->gives = turns->round < t->micro_batches;
        int64_t i = turns->gives ? turns->round : t->micro_batches - 1;
        int64_t kept_as = turns->gives ? by__trainer_leaf(t, i) : t->all_micro_batches;
        BY_TRY(by__trainer_feed(t, t->gradients, batch, examples, i, kept_as, error));
    }
    return BY_OK;
}

by_status by__turns_losses(by_trainer *t, by_error *error)
{
    by__turns *turns = &t->shard.turns;
    float *losses = by__trainer_losses(t);
    size_t *counts = t->ranks.counts;
    int64_t ranks = t->layout.replicas;
    size_t mine = 0;
    for (int r = 0; r < t->layout.replica; r++) {
        mine += counts[r];
    }
    for (int64_t i = 0; i < t->micro_batches; i++) {
        turns->losses[mine + (size_t)i] = losses[by__trainer_leaf(t, i)];
    }
    BY_TRY(by_comm_all_gather(t->ranks.peers, turns->losses + mine, turns->losses, counts, BY_F32,
                              "losses", error));
    const float *next = turns->losses;
    for (int64_t r = 0; r < ranks; r++) {
        for (int64_t leaf = r; leaf < t->all_micro_batches; leaf += ranks) {
            losses[leaf] = *next++;
        }
    }
    return BY_OK;
}
