/* Sums over ranks, in the order of the sum tree.
 *
 * The range is divided into one slice per rank. A rank sums its slice chunk by chunk: it reads the
 * chunk of every holder (from near ranks' memory, and from messages of far hosts, comm_relay.c),
 * and runs the plan's merges on it, in f32. Chunks are small enough for operands and results to
 * stay in the cache. If all slices are wanted everywhere, the rank writes each chunk of the result
 * to its near ranks, and sends its slice to far ones.
 *
 * In-place results: the result may overwrite a holder's buffer, on any rank. Only the slice's own
 * rank, and one relay on each far host, reads a slice of any holder. The slice's rank writes a
 * chunk, on any rank, only after it has read this chunk of all holders; a relay writes the slice
 * only after it has received the result, for which the slice's rank needed everything that the
 * relay has read. A rank returns when no other rank accesses its memory any more. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "comm/reduction.h"

enum {
    CACHE_BYTES = 512 << 10, /* for the chunks of all holders */
    MAX_CHUNK = 32 << 10,    /* elements */
    MIN_CHUNK = 1 << 10,
};

static bool is_half(by_dtype dtype)
{
    return dtype == BY_BF16 || dtype == BY_F16;
}

static void add_f32(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + b[i];
    }
}

static void add_i32(uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + b[i];
    }
}

static void widen(float *out, const uint16_t *in, size_t n, by_dtype dtype)
{
    if (dtype == BY_BF16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = by__bf16_to_f32(in[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            out[i] = by__f16_to_f32(in[i]);
        }
    }
}

static void narrow(uint16_t *out, const float *in, size_t n, by_dtype dtype)
{
    if (dtype == BY_BF16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = by__f32_to_bf16(in[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            out[i] = by__f32_to_f16(in[i]);
        }
    }
}

int by__comm_host_of_holder(const by__comm_reduction *r, int holder)
{
    int owner = r->sum->plan->owners[holder];
    return owner == BY__EVERY_RANK ? -1 : r->comm->host_of[owner];
}

/* Value of a holder in the chunk of n elements at `at`. */
static const void *chunk_of(by__comm_reduction *r, int holder, size_t at, size_t n, by_error *error)
{
    if (r->now[holder] != NULL) {
        return r->now[holder];
    }
    bool sliced = r->sum->plan->owners[holder] == BY__EVERY_RANK;
    size_t begin = ((sliced ? 0 : r->base) + at) * r->size;
    const void *raw;
    if (r->source[holder] != NULL) {
        raw = r->source[holder] + begin;
    } else if (r->staged[holder] != NULL) {
        size_t size = r->merged[holder] ? sizeof(float) : r->size;
        raw = r->staged[holder] + at % BY__SEGMENT * size;
    } else {
        raw = by__comm_map_remote(r->comm, r->sum->plan->owners[holder], r->address[holder] + begin,
                                  r->raw[holder], n * r->size, error);
    }
    bool is_sum = r->staged[holder] != NULL && r->merged[holder];
    if (raw != NULL && is_half(r->sum->dtype) && !is_sum) {
        widen(r->work[holder], raw, n, r->sum->dtype);
        raw = r->work[holder];
    }
    r->now[holder] = raw;
    return raw;
}

by_status by__comm_merge_chunk(by__comm_reduction *r, size_t at, size_t n, bool all, void *out,
                               by_error *error)
{
    const by__comm_holder_plan *plan = r->sum->plan;
    int here = r->comm->host_of[r->comm->rank];
    memset(r->now, 0, (size_t)plan->holders * sizeof *r->now);
    for (size_t m = 0; m < plan->merge_count; m++) {
        const by__sum_merge *merge = &plan->merges[m];
        if (r->local[m] != here && (r->local[m] >= 0 || !all)) {
            continue;
        }
        const void *left = chunk_of(r, merge->left, at, n, error);
        const void *right = chunk_of(r, merge->right, at, n, error);
        if (left == NULL || right == NULL) {
            return BY_EPEER;
        }
        bool last = out != NULL && m + 1 == plan->merge_count;
        void *result = last ? out : r->work[merge->left];
        if (r->sum->dtype == BY_I32) {
            add_i32(result, left, right, n);
        } else {
            add_f32(result, left, right, n);
        }
        r->now[merge->left] = result;
    }
    return BY_OK;
}

/* Writes the chunk of the result to the near ranks at once, while it is in the cache. */
static by_status push_chunk(by__comm_reduction *r, size_t at, size_t n, by_error *error)
{
    by_comm *comm = r->comm;
    const unsigned char *chunk = (const unsigned char *)r->sum->own + at * r->size;
    uint64_t begin = (r->offset + at) * r->size;
    for (int i = 1; i < comm->near_count; i++) {
        int to = comm->near[(comm->my_near + i) % comm->near_count];
        BY_TRY(by__comm_write(comm, to, chunk, by__comm_record_of(comm, to)->header.target + begin,
                              n * r->size, error));
    }
    return BY_OK;
}

/* Stores partial sums. All of them are read before one is written. */
static by_status keep_chunk(by__comm_reduction *r, size_t at, size_t n, by_error *error)
{
    const by__comm_sum *sum = r->sum;
    BY_TRY(by__comm_merge_chunk(r, at, n, true, NULL, error));
    for (int i = 0; i < sum->kept_count; i++) {
        if (chunk_of(r, sum->kept[i], at, n, error) == NULL) {
            return BY_EPEER;
        }
    }
    for (int i = 0; i < sum->kept_count; i++) {
        const void *value = r->now[sum->kept[i]];
        if (value != sum->results[i] + at) {
            memcpy(sum->results[i] + at, value, n * sizeof(float));
        }
    }
    return BY_OK;
}

static by_status sum_chunk(by__comm_reduction *r, size_t at, size_t n, by_error *error)
{
    void *out = (unsigned char *)r->sum->own + at * r->size;
    bool half = is_half(r->sum->dtype);
    BY_TRY(by__comm_merge_chunk(r, at, n, true, half ? NULL : out, error));
    const void *root = chunk_of(r, r->sum->plan->root, at, n, error);
    if (root == NULL) {
        return BY_EPEER;
    }
    if (half) {
        narrow(out, root, n, r->sum->dtype);
    } else if (root != out) {
        memcpy(out, root, n * r->size);
    }
    return r->push ? push_chunk(r, at, n, error) : BY_OK;
}

by_status by__comm_sum_range(by__comm_reduction *r, size_t begin, size_t end, by_error *error)
{
    for (size_t at = begin; at < end; at += r->chunk) {
        size_t n = end - at < r->chunk ? end - at : r->chunk;
        BY_TRY(by__comm_begin_access(r->comm, error));
        by_status status =
            r->sum->kept != NULL ? keep_chunk(r, at, n, error) : sum_chunk(r, at, n, error);
        by__comm_end_access(r->comm);
        BY_TRY(status);
    }
    return BY_OK;
}

/* ---- the whole sum ---- */

/* Finds the merges that add holders of a single host, and the hosts of the results. */
static void find_local_merges(by__comm_reduction *r)
{
    const by__comm_holder_plan *plan = r->sum->plan;
    int *host = r->host;
    for (int h = 0; h < plan->holders; h++) {
        host[h] = by__comm_host_of_holder(r, h);
    }
    for (size_t m = 0; m < plan->merge_count; m++) {
        int left = plan->merges[m].left;
        int right = plan->merges[m].right;
        r->used[left] = true;
        r->used[right] = true;
        r->local[m] = host[left] == host[right] ? host[left] : -1; /* -1: not of one host */
        if (r->local[m] >= 0) {
            r->merged[left] = true;
            r->gone[right] = true;
        } else {
            host[left] = -1;
        }
    }
}

/* Finds the address of each holder's buffer, and allocates memory for the chunks. */
static by_status prepare(by__comm_reduction *r, by_error *error)
{
    const by__comm_holder_plan *plan = r->sum->plan;
    size_t holders = (size_t)plan->holders;
    size_t chunk = CACHE_BYTES / (holders * 8);
    chunk = chunk > MAX_CHUNK ? MAX_CHUNK : chunk < MIN_CHUNK ? MIN_CHUNK : chunk & ~15u;
    r->chunk = chunk;
    size_t tables = holders * (6 * sizeof(void *) + sizeof(int) + 3 * sizeof(bool));
    size_t bytes;
    unsigned char *memory;
    if (!by__size_mul(plan->merge_count, sizeof *r->local, &bytes) ||
        !by__size_add(bytes, tables + BY_CACHE_LINE, &tables) ||
        !by__size_mul(holders, chunk * (4 + r->size), &bytes) ||
        !by__size_add(bytes, by__round_up(tables, BY_CACHE_LINE), &bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: a sum over %zu buffers", holders);
    }
    BY_TRY(by__comm_scratch(r->comm, bytes, (void **)&memory, error));
    memset(memory, 0, tables);
    r->source = (void *)memory;
    r->address = (void *)(r->source + holders);
    r->staged = (void *)(r->address + holders);
    r->work = (void *)(r->staged + holders);
    r->raw = (void *)(r->work + holders);
    r->now = (void *)(r->raw + holders);
    r->host = (void *)(r->now + holders);
    r->local = r->host + holders;
    r->used = (void *)(r->local + plan->merge_count);
    r->merged = r->used + holders;
    r->gone = r->merged + holders;
    memory += by__round_up(tables, BY_CACHE_LINE);
    int own = 0;
    for (int h = 0; h < plan->holders; h++) {
        r->work[h] = memory;
        r->raw[h] = memory + chunk * 4;
        memory += chunk * (4 + r->size);
        if (plan->owners[h] == r->comm->rank || plan->owners[h] == BY__EVERY_RANK) {
            r->source[h] = r->sum->mine[own++];
        }
    }
    if (r->sum->kept == NULL) {
        r->used[plan->root] = true;
    } else {
        for (int i = 0; i < r->sum->kept_count; i++) {
            r->used[r->sum->kept[i]] = true;
        }
    }
    find_local_merges(r);
    if (r->in_records) {
        /* All data are available. */
        for (size_t m = 0; m < plan->merge_count; m++) {
            r->local[m] = -1;
        }
    }
    return BY_OK;
}

/* Reads what near ranks published: addresses of their holders, or the data. */
static void find_holders(by__comm_reduction *r)
{
    const by__comm_holder_plan *plan = r->sum->plan;
    for (int h = 0; h < plan->holders; h++) {
        int owner = plan->owners[h];
        if (r->in_records) {
            r->source[h] = by__comm_record_of(r->comm, owner)->payload;
        } else if (owner != BY__EVERY_RANK && owner != r->comm->rank &&
                   r->comm->members[owner].near >= 0) {
            int place = 0;
            for (int k = 0; k < h; k++) {
                place += plan->owners[k] == owner;
            }
            memcpy(&r->address[h],
                   by__comm_record_of(r->comm, owner)->payload + (size_t)place * sizeof(uint64_t),
                   sizeof(uint64_t));
        }
    }
}

static uint64_t check_of(const by_comm *comm, const by__comm_sum *sum)
{
    const by__comm_holder_plan *plan = sum->plan;
    uint64_t parts[] = {
        by__hash64(sum->slices, (size_t)comm->size * sizeof *sum->slices),
        sum->first == NULL ? 0 : by__hash64(sum->first, (size_t)comm->size * sizeof *sum->first),
        by__hash64(plan->owners, (size_t)plan->holders * sizeof *plan->owners),
        plan->merge_count == 0 ? 0
                               : by__hash64(plan->merges, plan->merge_count * sizeof *plan->merges),
        (uint64_t)plan->root,
        sum->all != NULL,
        (uint64_t)sum->kept_count,
    };
    return by__hash64(parts, sizeof parts);
}

static by_status reduce_small(by__comm_reduction *r, by__comm_header *header, by_error *error)
{
    const by__comm_sum *sum = r->sum;
    by__comm_sum whole = *sum;
    BY_TRY(prepare(r, error));
    BY_TRY(by__comm_enter(r->comm, header, sum->what, sum->mine[0], sum->count * r->size, error));
    find_holders(r);
    if (sum->all != NULL) {
        whole.own = sum->all;
        r->sum = &whole;
        r->offset = 0;
        r->base = 0;
        r->mine = sum->count;
    }
    return by__comm_sum_range(r, 0, r->mine, error);
}

static by_status reduce_large(by__comm_reduction *r, by__comm_header *header, by_error *error)
{
    by_comm *comm = r->comm;
    const by__comm_sum *sum = r->sum;
    uint64_t addresses[BY__COMM_PAYLOAD / sizeof(uint64_t)];
    size_t own = 0;
    size_t held = 0;
    BY_TRY(prepare(r, error));
    for (int h = 0; h < sum->plan->holders; h++) {
        if (sum->plan->owners[h] == comm->rank) {
            addresses[own++] = (uint64_t)(uintptr_t)sum->mine[held];
        }
        held += sum->plan->owners[h] == comm->rank || sum->plan->owners[h] == BY__EVERY_RANK;
    }
    header->target = (uint64_t)(uintptr_t)sum->all;
    BY_TRY(by__comm_enter(comm, header, sum->what, addresses, own * sizeof *addresses, error));
    find_holders(r);
    r->push = sum->all != NULL;
    if (comm->hosts == 1) {
        BY_TRY(by__comm_sum_range(r, 0, r->mine, error));
    } else {
        BY_TRY(by__comm_sum_with_far(r, error));
    }
    by__comm_step(comm);
    return by__comm_await_all(comm, error);
}

size_t by__comm_slice_first(const by__comm_sum *sum, int rank)
{
    size_t first = 0;
    if (sum->first != NULL) {
        return sum->first[rank];
    }
    for (int k = 0; k < rank; k++) {
        first += sum->slices[k];
    }
    return first;
}

by_status by__comm_reduce(by_comm *comm, const by__comm_sum *sum, by_error *error)
{
    by__comm_reduction r = {.comm = comm, .sum = sum, .size = by_dtype_size(sum->dtype)};
    size_t bytes = sum->count * r.size;
    r.offset = by__comm_slice_first(sum, comm->rank);
    r.base = r.offset;
    r.mine = sum->slices[comm->rank];
    by__comm_header header = {.kind = (int32_t)sum->kind,
                              .bytes = bytes,
                              .dtype = (int32_t)sum->dtype,
                              .check = check_of(comm, sum)};
    r.in_records = sum->plan == &comm->plan && bytes <= comm->payload_bytes;
    by_status status =
        r.in_records ? reduce_small(&r, &header, error) : reduce_large(&r, &header, error);
    return by__comm_leave(comm, status, error);
}

void by__comm_even_slices(size_t *slices, size_t count, int ranks)
{
    size_t lines = count / 16 + (count % 16 != 0);
    size_t done = 0;
    for (int r = 0; r < ranks; r++) {
        size_t n = lines / (size_t)ranks + ((size_t)r < lines % (size_t)ranks);
        n = n * 16 < count - done ? n * 16 : count - done;
        slices[r] = n;
        done += n;
    }
}

by_status by__comm_reduce_holders(by_comm *comm, const by__comm_holder_sum *sum, by_error *error)
{
    by_error local;
    int own = 0;
    for (int h = 0; h < sum->plan->holders; h++) {
        own += sum->plan->owners[h] == comm->rank;
    }
    error = error == NULL ? &local : error;
    if (own > (int)(BY__COMM_PAYLOAD / sizeof(uint64_t))) {
        return by_error_set(error, BY_EARG, "a rank with %d buffers of a sum: at most %d", own,
                            (int)(BY__COMM_PAYLOAD / sizeof(uint64_t)));
    }
    by__comm_sum all = {.plan = sum->plan,
                        .dtype = BY_F32,
                        .count = sum->count,
                        .slices = sum->slices,
                        .first = sum->first,
                        .mine = (const void *const *)sum->mine,
                        .all = sum->gather ? sum->out : NULL,
                        .kept = sum->kept,
                        .kept_count = sum->kept_count,
                        .results = sum->results,
                        .kind = BY__COMM_REDUCE_HOLDERS,
                        .what = sum->what};
    all.own = sum->kept != NULL ? NULL : sum->out + by__comm_slice_first(&all, comm->rank);
    return by__comm_reduce(comm, &all, error);
}
