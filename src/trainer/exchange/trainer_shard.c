/* ZeRO (Rajbhandari et al. 2020): the ranks of `shard` divide the state of the optimizer and, where
 * programs compute in a narrower format, the f32 weights.
 *
 * Each bucket of a gradient set is divided into one slice per rank. A rank gets the sum of its own
 * slices, updates these, and the ranks then gather the values that programs compute with. For
 * optimizers that need whole tensors, slices begin and end at tensors. An element is updated by the
 * same operations on any owner, so the bits do not depend on the number of ranks. */
#include <stdlib.h>

#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

/* ---- the plan ---- */

void by__trainer_shard_choose(by_trainer *t)
{
    int64_t stage = t->layout.size[BY_MESH_SHARD] > 1 ? t->config->parallel.zero : 0;
    for (int group = 0; group < BY__TRAINED_GROUPS && t->flats.sets > 0; group++) {
        bool matrices = (group & BY__GROUP_VECTOR) == 0;
        t->shard.states |= stage > 0 ? 1u << group : 0;
        t->shard.gradients |= stage > 1 ? 1u << group : 0;
        t->shard.parameters |= stage > 2 && matrices ? 1u << group : 0;
    }
}

/* Lists the first elements of a bucket's tensors, and its end; returns the number of tensors. */
static size_t list_borders(const by__store *store, const by__trainer_bucket *b, int64_t *borders)
{
    by__store_part next;
    size_t count = 0;
    for (by__store_handle i = 0; (next = by__store_next_entry(store, b->part, &i)).count > 0; i++) {
        borders[count++] = next.first;
    }
    borders[count] = b->part.first + b->part.count;
    return count;
}

/* Elements are counted in this unit, so that sums of squares fit in 64-bit integers. */
#define LOAD_UNIT 1024

/* Cost of giving `elements` more to a rank with `load`: squares, whose sum is least when loads are
 * equal. */
static uint64_t cost_of(uint64_t load, int64_t elements)
{
    uint64_t all = load + (uint64_t)(elements + LOAD_UNIT - 1) / LOAD_UNIT;
    return all * all;
}

/* Ways to divide a bucket: best[r * (tensors + 1) + i] is the least cost of giving its first i
 * tensors to ranks 0 to r, where rank r gets those from `from` on. */
typedef struct cuts {
    int64_t *borders;
    size_t tensors;
    uint64_t *best;
    size_t *from;
} cuts;

static by_status open_cuts(cuts *c, const by__store *store, const by__trainer_bucket *b,
                           size_t ranks, by_error *error)
{
    size_t most = by__store_count(store) + 1;
    BY_TRY(by__alloc((void **)&c->borders, most, sizeof *c->borders, "slices", error));
    c->tensors = list_borders(store, b, c->borders);
    size_t ways = ranks * (c->tensors + 1);
    BY_TRY(by__alloc((void **)&c->best, ways, sizeof *c->best, "slices", error));
    return by__alloc((void **)&c->from, ways, sizeof *c->from, "slices", error);
}

static void close_cuts(cuts *c)
{
    free(c->borders);
    free(c->best);
    free(c->from);
}

static void find_best(cuts *c, const uint64_t *load, size_t ranks)
{
    size_t width = c->tensors + 1;
    for (size_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < width; i++) {
            uint64_t least = UINT64_MAX;
            for (size_t k = 0; k <= (r == 0 ? 0 : i); k++) {
                uint64_t cost = (r == 0 ? 0 : c->best[(r - 1) * width + k]) +
                                cost_of(load[r], c->borders[i] - c->borders[k]);
                if (cost < least) {
                    least = cost;
                    c->from[r * width + i] = k;
                }
            }
            c->best[r * width + i] = least;
        }
    }
}

/* Divides at tensors: of all ways to give consecutive tensors to the ranks in order, chooses the
 * one that makes the total loads, including earlier buckets, most equal. */
static by_status cut_at_tensors(const by__store *store, const by__trainer_bucket *b, size_t *slices,
                                uint64_t *load, size_t ranks, by_error *error)
{
    cuts c = {0};
    by_status status = open_cuts(&c, store, b, ranks, error);
    if (status == BY_OK) {
        find_best(&c, load, ranks);
    }
    size_t end = c.tensors;
    for (size_t r = ranks; r-- > 0 && status == BY_OK;) {
        size_t begin = c.from[r * (c.tensors + 1) + end];
        slices[r] = (size_t)(c.borders[end] - c.borders[begin]);
        load[r] += (slices[r] + LOAD_UNIT - 1) / LOAD_UNIT;
        end = begin;
    }
    close_cuts(&c);
    return status;
}

/* Divides at blocks whose squares are summed together, so that slices differ by at most one block.
 * `turn` is the rank that gets the first extra block: it rotates, so that one rank's excess does
 * not accumulate. */
static void cut_at_blocks(const by__trainer_bucket *b, size_t *slices, int ranks, int *turn)
{
    int64_t blocks = (b->part.count + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
    int more = (int)(blocks % ranks);
    int64_t begin = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t mine = blocks / ranks + ((r - *turn + ranks) % ranks < more);
        int64_t end = begin + mine * BY_SUM_BLOCK;
        end = end < b->part.count ? end : b->part.count;
        slices[r] = (size_t)(end - begin);
        begin = end;
    }
    *turn = (*turn + more) % ranks;
}

static int by_size(const void *a, const void *b)
{
    const by__trainer_bucket *x = *(by__trainer_bucket *const *)a;
    const by__trainer_bucket *y = *(by__trainer_bucket *const *)b;
    if (x->part.count != y->part.count) {
        return x->part.count > y->part.count ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Largest buckets first, so that small ones compensate for uneven tensors. */
static by_status cut_all_at_tensors(const by__store *store, by__trainer_bucket *buckets,
                                    size_t count, size_t ranks, size_t *slices, by_error *error)
{
    by__trainer_bucket **order;
    uint64_t *load;
    BY_TRY(by__alloc((void **)&order, count + 1, sizeof *order, "slices", error));
    by_status status = by__alloc((void **)&load, ranks, sizeof *load, "slices", error);
    for (size_t k = 0; k < count; k++) {
        order[k] = &buckets[k];
    }
    qsort(order, count, sizeof *order, by_size);
    for (size_t k = 0; k < count && status == BY_OK; k++) {
        size_t *own = slices + (size_t)(order[k] - buckets) * ranks;
        status = cut_at_tensors(store, order[k], own, load, ranks, error);
    }
    free(order);
    free(load);
    return status;
}

/* Whole tensors are distributed by the size of a rank's part, which must be equal on the ranks of
 * `tensor`, because they sum norms tensor by tensor. */
static by_status check_even_parts(const by_trainer *t, const by__store *store, by_error *error)
{
    int64_t tensor = t->layout.size[BY_MESH_TENSOR];
    for (size_t i = 0; i < by__store_count(store) && tensor > 1; i++) {
        const by__store_tensor *entry = by__store_entry(store, (by__store_handle)i);
        for (int k = 0; k < entry->shape.rank; k++) {
            if (entry->local.dim[k] != entry->shape.dim[k] && entry->shape.dim[k] % tensor != 0) {
                return by_error_set(
                    error, BY_ECONFIG,
                    "'%s' has %lld rows, which parallel.tensor %lld does not divide, and "
                    "optimizer.kind %s with parallel.shard wants equal parts: set "
                    "model.pad_vocab_to, or take adamw",
                    entry->name, (long long)entry->shape.dim[k], (long long)tensor,
                    t->config->optimizer.kind);
            }
        }
    }
    return BY_OK;
}

by_status by__trainer_shard_cut(size_t **out, const by_trainer *t, const by__store *store,
                                by__trainer_bucket *buckets, size_t count, by_error *error)
{
    int ranks = t->layout.size[BY_MESH_SHARD];
    int turn = 0;
    bool whole = by_optimizer_needs_tensors(t->config);
    BY_TRY(whole && ranks > 1 ? check_even_parts(t, store, error) : BY_OK);
    BY_TRY(by__alloc((void **)out, (count + 1) * (size_t)ranks, sizeof **out, "slices", error));
    for (size_t k = 0; k < count; k++) {
        buckets[k].slices = *out + k * (size_t)ranks;
    }
    if (whole) {
        return cut_all_at_tensors(store, buckets, count, (size_t)ranks, *out, error);
    }
    for (size_t k = 0; k < count; k++) {
        cut_at_blocks(&buckets[k], *out + k * (size_t)ranks, ranks, &turn);
    }
    return BY_OK;
}

by__trainer_slice by__trainer_bucket_slice(const by__trainer_bucket *bucket, int rank)
{
    by__trainer_slice slice = {.part = bucket->part, .owner = rank};
    slice.part.count = (int64_t)bucket->slices[rank];
    for (int r = 0; r < rank; r++) {
        slice.part.first += (int64_t)bucket->slices[r];
    }
    return slice;
}

by__trainer_slice by__trainer_shard_slice(const by_trainer *t, size_t bucket, int rank)
{
    by__trainer_slice slice = by__trainer_bucket_slice(&t->ranks.buckets[bucket], rank);
    (void)snprintf(slice.name, sizeof slice.name, "slice.%zu", bucket);
    return slice;
}

static by_status list_slices(by_trainer *t, by_error *error)
{
    by__trainer_shard *s = &t->shard;
    int ranks = t->layout.size[BY_MESH_SHARD];
    size_t most = t->ranks.bucket_count * (size_t)ranks;
    BY_TRY(by__alloc((void **)&s->all, most, sizeof *s->all, "slices", error));
    BY_TRY(by__alloc((void **)&s->own, t->ranks.bucket_count, sizeof *s->own, "slices", error));
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        for (int r = 0; r < ranks; r++) {
            const by__trainer_slice slice = by__trainer_shard_slice(t, k, r);
            if (slice.part.count > 0) {
                s->all[s->count++] = slice;
            }
            if (slice.part.count > 0 && r == t->layout.place[BY_MESH_SHARD]) {
                s->own[s->own_count++] = slice;
            }
        }
    }
    return BY_OK;
}

/* The trained groups of a rank that updates all of them. */
static by_status list_groups(by_trainer *t, by_error *error)
{
    by__trainer_shard *s = &t->shard;
    BY_TRY(by__alloc((void **)&s->own, BY__TRAINED_GROUPS, sizeof *s->own, "slices", error));
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        by__trainer_slice *own = &s->own[s->own_count];
        own->part = by__store_group_part(t->store, group);
        (void)snprintf(own->name, sizeof own->name, "%s", by__trainer_group_name(group));
        s->own_count += own->part.count > 0 ? 1 : 0;
    }
    return BY_OK;
}

by_status by__trainer_shard_plan(by_trainer *t, by_error *error)
{
    if (t->shard.states == 0) {
        return list_groups(t, error);
    }
    BY_TRY(by__alloc((void **)&t->shard.counts, (size_t)t->layout.size[BY_MESH_SHARD],
                     sizeof *t->shard.counts, "slices", error));
    BY_TRY(by__trainer_shard_cut(&t->shard.slices, t, t->store, t->ranks.buckets,
                                 t->ranks.bucket_count, error));
    return list_slices(t, error);
}

by_status by__trainer_shard_list_held(const by_trainer *t, unsigned whole, unsigned divided,
                                      by__store_part **out, size_t *count, by_error *error)
{
    BY_TRY(by__alloc((void **)out, t->shard.own_count + BY__GROUPS, sizeof **out, "slices", error));
    *count = 0;
    for (int g = 0; g < BY__GROUPS; g++) {
        if ((whole >> g & 1u) != 0) {
            (*out)[(*count)++] = by__store_group_part(t->store, g);
        }
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        if ((divided >> t->shard.own[i].part.group & 1u) != 0) {
            (*out)[(*count)++] = t->shard.own[i].part;
        }
    }
    return BY_OK;
}

by_status by__trainer_shard_add_flat(by_trainer *t, by__store_flat_spec spec, unsigned divided,
                                     int *out, by_error *error)
{
    by__store_part *held = NULL;
    divided &= t->shard.states;
    if (divided != 0) {
        BY_TRY(by__trainer_shard_list_held(t, ~divided, divided, &held, &spec.held_count, error));
        spec.held = held;
    }
    by_status status = by__store_add_flat(t->store, &spec, out, error);
    free(held);
    return status;
}

bool by__trainer_shard_owns(const by_trainer *t, by__store_handle handle)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        if (by__store_part_has(t->shard.own[i].part, by__store_entry_part(t->store, handle))) {
            return true;
        }
    }
    return false;
}

/* ---- collective operations ---- */

by_status by__trainer_shard_open(by_trainer *t, by_error *error)
{
    if (t->shard.states == 0) {
        t->shard.copies = t->ranks.peers;
        return BY_OK;
    }
    BY_TRY(by_mesh_comm(&t->shard.comm, t->ranks.mesh, 1u << BY_MESH_SHARD, error));
    return t->layout.size[BY_MESH_DATA] * by__trainer_ranks_parts(t) == 1
               ? BY_OK
               : by_mesh_comm(&t->shard.copies, t->ranks.mesh,
                              (by__trainer_ranks_adding_axes(t) | 1u << BY_MESH_DATA) &
                                  ~(1u << BY_MESH_SHARD),
                              error);
}

void by__trainer_shard_close(by_trainer *t)
{
    free(t->shard.slices);
    free(t->shard.counts);
    free(t->shard.all);
    free(t->shard.own);
}

/* Gathers a bucket in a flat buffer from the slices of all ranks. */
static by_status gather_bucket(by_trainer *t, int flat, size_t bucket, by_error *error)
{
    const by__trainer_bucket *b = &t->ranks.buckets[bucket];
    by_dtype dtype = by__store_group_dtype(t->store, flat, b->part.group);
    const by_memory memory = by__store_memory(t->store, flat, b->part);
    by__store_part own = by__trainer_shard_slice(t, bucket, t->layout.place[BY_MESH_SHARD]).part;
    by__device_staging *staging = &t->ranks.staging;
    void *all;
    char what[48];
    (void)snprintf(what, sizeof what, "bucket %zu of the weights", bucket);
    BY_TRY(by__device_staging_begin(staging, t->device, error));
    BY_TRY(by__device_stage(staging, memory, false, &all, error));
    size_t at = (size_t)(own.first - b->part.first) * by_dtype_size(dtype);
    size_t bytes = (size_t)own.count * by_dtype_size(dtype);
    char *mine = (char *)all + at;
    BY_TRY(by__device_stage_into(staging, mine, by_memory_at(memory, at, bytes), error));
    BY_TRY(by__device_staging_wait(staging, error));
    BY_TRY(by_comm_all_gather(t->shard.comm, mine, all, b->slices, dtype, what, error));
    BY_TRY(by__device_unstage(staging, memory, all, error));
    return by__device_staging_wait(staging, error);
}

by_status by__trainer_shard_gather(by_trainer *t, by_error *error)
{
    if (t->shard.states == 0) {
        return BY_OK;
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        int group = t->ranks.buckets[k].part.group;
        if ((t->shard.parameters >> group & 1u) == 0) {
            bool narrow = (group & BY__GROUP_WIDE) == 0;
            BY_TRY(gather_bucket(t, narrow ? t->flats.copies : t->flats.masters, k, error));
        }
    }
    return BY_OK;
}

/* ---- reading divided tensors ---- */

unsigned by__trainer_shard_masters(const by_trainer *t)
{
    unsigned groups = t->shard.parameters;
    bool narrow = by__trainer_copies_dtype(t->config) != BY_F32;
    for (int group = 0; group < BY__TRAINED_GROUPS && narrow; group++) {
        groups |= (group & BY__GROUP_WIDE) == 0 ? t->shard.states & 1u << group : 0u;
    }
    return groups;
}

bool by__trainer_shard_divides(const by_trainer *t, int flat, by__store_handle handle)
{
    unsigned groups = flat == t->flats.masters  ? by__trainer_shard_masters(t)
                      : flat == t->flats.copies ? t->shard.parameters
                                                : t->shard.states;
    return (groups >> by__store_entry(t->store, handle)->group & 1u) != 0;
}

/* The rank that owns a tensor. */
static int owner_of(const by_trainer *t, by__store_handle handle)
{
    for (size_t i = 0; i < t->shard.count; i++) {
        const by__trainer_slice *slice = &t->shard.all[i];
        if (by__store_part_has(slice->part, by__store_entry_part(t->store, handle))) {
            return slice->owner;
        }
    }
    return 0;
}

static by_status read_owned(const by_trainer *t, int flat, by__store_handle handle, void *out,
                            by_error *error)
{
    by_shape shape = by__store_shape(t->store, flat, handle);
    int owner = owner_of(t, handle);
    if (owner == t->layout.place[BY_MESH_SHARD]) {
        BY_TRY(by__store_read(t->store, flat, handle, out, error));
    }
    by_dtype dtype = by__store_dtype(t->store, flat, handle);
    return by_comm_broadcast(t->shard.comm, out, (size_t)by_shape_count(&shape),
                             by_dtype_is_float(dtype) ? BY_F32 : dtype, owner,
                             by__store_entry(t->store, handle)->name, error);
}

by_status by__trainer_shard_collect(const by_trainer *t, int flat, by__store_handle handle,
                                    void *out, by_error *error)
{
    const by__store_part tensor = by__store_entry_part(t->store, handle);
    const char *name = by__store_entry(t->store, handle)->name;
    by_dtype dtype = by__store_dtype(t->store, flat, handle);
    int ranks = t->layout.size[BY_MESH_SHARD];
    size_t *counts = t->shard.counts;
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        const by__store_part common = by__store_part_common(tensor, t->ranks.buckets[k].part);
        by__store_part mine = {0};
        if (common.count == 0) {
            continue;
        }
        for (int r = 0; r < ranks; r++) {
            by__store_part part =
                by__store_part_common(common, by__trainer_shard_slice(t, k, r).part);
            counts[r] = (size_t)part.count;
            mine = r == t->layout.place[BY_MESH_SHARD] ? part : mine;
        }
        char *to = (char *)out + (size_t)(common.first - tensor.first) * by_dtype_size(dtype);
        const void *in = out;
        if (mine.count > 0 && by__store_on_disk(t->store, flat, handle)) {
            int64_t first = mine.first - tensor.first;
            in = (float *)out + first;
            BY_TRY(by__store_read_part(t->store, flat, handle, first, mine.count,
                                       (float *)out + first, error));
        } else if (mine.count > 0) {
            /* Copies do not show from outside. */
            by__device_staging *staging = (by__device_staging *)(uintptr_t)&t->ranks.staging;
            void *copy;
            BY_TRY(by__device_staging_begin(staging, t->device, error));
            BY_TRY(by__device_stage(staging, by__store_memory(t->store, flat, mine), true, &copy,
                                    error));
            BY_TRY(by__device_staging_wait(staging, error));
            in = copy;
        }
        BY_TRY(by_comm_all_gather(t->shard.comm, in, to, counts, dtype, name, error));
    }
    return BY_OK;
}

by_status by__trainer_shard_read(const by_trainer *t, int flat, by__store_handle handle, void *out,
                                 by_error *error)
{
    by_dtype dtype = by__store_dtype(t->store, flat, handle);
    by_shape shape = by__store_shape(t->store, flat, handle);
    size_t count = (size_t)by_shape_count(&shape);
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    if (by_optimizer_needs_tensors(t->config)) {
        return read_owned(t, flat, handle, out, error);
    }
    size_t wide = by_dtype_is_float(dtype) ? sizeof(float) : by_dtype_size(dtype);
    char *raw = (char *)out + count * (wide - by_dtype_size(dtype));
    BY_TRY(by__trainer_shard_collect(t, flat, handle, raw, error));
    if (by_dtype_is_float(dtype)) {
        by__store_widen((float *)out, raw, dtype, count);
    }
    return BY_OK;
}
