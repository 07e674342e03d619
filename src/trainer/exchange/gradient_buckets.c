/* Buckets: ranges of gradients that are summed between ranks together, and the nodes of the graph
 * that compute them. */
#include <stdlib.h>
#include <string.h>

#include "trainer/exchange/exchange.h"

/* ---- the plan ---- */

/* The last position in a group, at most `at`, where a tensor begins. */
static int64_t tensor_border(const by__store *store, int group, int64_t at)
{
    const by__store_part before = {group, 0, at + 1};
    int64_t border = 0;
    for (by__store_handle i = 0; by__store_next_entry(store, before, &i).count > 0; i++) {
        border = by__store_entry_part(store, i).first;
    }
    return border;
}

/* Default size of a bucket in elements: an eighth of the gradients, so that even in a small model
 * most of them are summed during the backward pass, but at least 256 KiB, below which the cost is
 * that of messages, and at most 4 MiB; and at least two blocks for each of the ranks that it is
 * divided among. */
#define MIN_BUCKET ((int64_t)1 << 16)
#define MAX_BUCKET ((int64_t)1 << 20)

static int64_t default_bucket(const by_trainer *t, const by__store *store)
{
    int64_t least = (int64_t)t->layout.size[BY_MESH_SHARD] * 2 * BY_SUM_BLOCK;
    int64_t elements = 0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        elements += by__store_group_part(store, group).count;
    }
    elements = elements / 8 < MIN_BUCKET   ? MIN_BUCKET
               : elements / 8 > MAX_BUCKET ? MAX_BUCKET
                                           : elements / 8;
    return elements > least ? elements : least;
}

static int64_t bucket_elements(const by_trainer *t, const by__store *store)
{
    double mib = t->config->parallel.bucket_mib;
    int64_t elements =
        mib >= 0.0 ? (int64_t)(mib * 1048576.0 / sizeof(float)) : default_bucket(t, store);
    int64_t blocks = elements / BY_SUM_BLOCK;
    return (blocks < 1 ? 1 : blocks) * BY_SUM_BLOCK;
}

/* First gradient of the pipeline stage that computes the gradients before `end`. */
static int64_t stage_begin(const by_trainer *t, const by__store *store, int group, int64_t end)
{
    const by__store_part before = {group, 0, end};
    by__store_part next;
    int last = -1;
    int64_t begin = 0;
    for (by__store_handle i = 0; (next = by__store_next_entry(store, before, &i)).count > 0; i++) {
        int stage = by__trainer_stage_of(t, by__store_entry(store, i)->name);
        begin = stage != last ? next.first : begin;
        last = stage;
    }
    return begin;
}

/* Beginning of the bucket that ends at `end`. If ranks divide the state of an optimizer that needs
 * whole tensors, a bucket contains whole tensors only. */
static int64_t bucket_begin(const by_trainer *t, const by__store *store, int group, int64_t end,
                            int64_t size)
{
    bool whole = t->shard.states != 0 && by_optimizer_needs_tensors(t->config);
    int64_t least = stage_begin(t, store, group, end);
    if (end - least <= size) {
        return least;
    }
    int64_t begin = whole ? tensor_border(store, group, end - size)
                          : (end - size + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK * BY_SUM_BLOCK;
    return begin > least ? begin : least;
}

/* Buckets of all groups, from the end of each group, because the backward pass completes the last
 * layers first. */
by_status by__trainer_buckets_list(by__trainer_bucket **out, size_t *count, const by_trainer *t,
                                   const by__store *store, by_error *error)
{
    int64_t size = bucket_elements(t, store);
    size_t capacity = 0;
    int64_t offset = 0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        int64_t elements = by__store_group_part(store, group).count;
        for (int64_t end = elements; end > 0;) {
            int64_t first = bucket_begin(t, store, group, end, size);
            BY_TRY(by__reserve((void **)out, &capacity, *count + 1, sizeof **out, error));
            (*out)[(*count)++] =
                (by__trainer_bucket){.part = {group, first, end - first}, .offset = offset + first};
            end = first;
        }
        offset += elements;
    }
    return BY_OK;
}

by_status by__trainer_buckets_plan(by_trainer *t, by_error *error)
{
    return by__trainer_ranks_adders(t) == 1 || t->flats.sets == 0
               ? BY_OK
               : by__trainer_buckets_list(&t->ranks.buckets, &t->ranks.bucket_count, t, t->store,
                                          error);
}

/* ---- parts of buckets ---- */

/* Lists the gradients of a bucket, after those of the previous bucket. */
static by_status list_bucket(by__trainer_bucket_parts *p, size_t *capacity, const by_trainer *t,
                             const by__trainer_bucket *b, by_error *error)
{
    by__store_part part;
    for (by__store_handle i = 0; (part = by__store_next_entry(t->store, b->part, &i)).count > 0;
         i++) {
        BY_TRY(by__reserve((void **)&p->parts, capacity, p->count + 1, sizeof *p->parts, error));
        p->parts[p->count++] = (by__trainer_bucket_part){i, part};
    }
    return BY_OK;
}

by_status by__trainer_bucket_parts_list(by__trainer_bucket_parts *out, const by_trainer *t,
                                        by_error *error)
{
    size_t buckets = t->ranks.bucket_count;
    size_t capacity = 0;
    BY_TRY(by__alloc((void **)&out->first, buckets + 1, sizeof *out->first, "buckets", error));
    for (size_t k = 0; k < buckets; k++) {
        BY_TRY(list_bucket(out, &capacity, t, &t->ranks.buckets[k], error));
        out->first[k + 1] = out->count;
    }
    return BY_OK;
}

void by__trainer_bucket_parts_free(by__trainer_bucket_parts *parts)
{
    free(parts->parts);
    free(parts->first);
    *parts = (by__trainer_bucket_parts){0};
}

by_value by__trainer_part_gradient(const by_trainer *t, const by_graph *graph,
                                   const by__trainer_bucket_part *part)
{
    char name[300];
    (void)snprintf(name, sizeof name, "grad.%s", by__store_entry(t->store, part->entry)->name);
    return by_graph_find(graph, name);
}

/* ---- order of completion ---- */

/* Finds the node that completes a bucket. Returns false if the graph, that of a pipeline stage,
 * does not have its gradients. Inputs of the graph are complete before any node. */
static bool find_completion(const by_trainer *t, const by__trainer_bucket_parts *parts,
                            const by_graph *graph, by__trainer_bucket_order *out)
{
    out->node = 0;
    for (size_t i = parts->first[out->bucket]; i < parts->first[out->bucket + 1]; i++) {
        by_value gradient = by__trainer_part_gradient(t, graph, &parts->parts[i]);
        if (gradient == BY_NONE) {
            return false;
        }
        int node = graph->values[gradient].producer;
        out->node = node > (int)out->node ? (size_t)node : out->node;
    }
    out->offset = t->ranks.buckets[out->bucket].offset;
    return true;
}

static int earlier(const void *a, const void *b)
{
    const by__trainer_bucket_order *x = a;
    const by__trainer_bucket_order *y = b;
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return x->offset > y->offset ? -1 : x->offset < y->offset;
}

by_status by__trainer_buckets_order(by__trainer_bucket_order **out, size_t *count,
                                    const by_trainer *t, const by__trainer_bucket_parts *parts,
                                    const by_graph *graph, by_error *error)
{
    BY_TRY(by__alloc((void **)out, t->ranks.bucket_count + 1, sizeof **out, "buckets", error));
    *count = 0;
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        by__trainer_bucket_order *next = &(*out)[*count];
        next->bucket = k;
        *count += find_completion(t, parts, graph, next) ? 1 : 0;
    }
    qsort(*out, *count, sizeof **out, earlier);
    return BY_OK;
}
