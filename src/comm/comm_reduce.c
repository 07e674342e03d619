/* Sums over ranks, in the order of the sum tree.
 *
 * The range is cut into a slice a rank. A rank sums its slice chunk by chunk: it reads the chunk of
 * every holder (near ranks' memory; messages of far ranks, which come segment by segment while the
 * segment before is summed), and runs the plan's merges on it, in f32. Chunks are small enough for
 * what is read and what is made of it to stay in the cache. If all slices are wanted everywhere, the
 * rank writes each chunk of the result to its near ranks, and sends its slice to far ones.
 *
 * Overwriting: the result may go to where a holder's buffer is, on any rank. Only the slice's own
 * rank reads a slice of any holder, and it writes a chunk of it, wherever that is, after it has read
 * this chunk of all holders. It returns when no other rank touches its memory. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "comm/comm.h"

enum {
    CACHE_BYTES = 512 << 10, /* for the chunks of all holders */
    CHUNK_MOST = 32 << 10,   /* elements */
    CHUNK_LEAST = 1 << 10,
    SEGMENT = 128 << 10, /* elements of a holder in one message */
};

typedef struct reduction {
    by_comm *comm;
    const by__comm_sum *sum;
    size_t size;   /* bytes of an element */
    size_t offset; /* of my slice, in elements */
    size_t mine;   /* elements of it */
    bool in_records;
    bool push; /* the result goes to near ranks */
    size_t chunk;
    /* of each holder */
    const unsigned char **source; /* my own buffer, or the record's payload; NULL: elsewhere */
    uint64_t *address;            /* on its near rank */
    unsigned char **staged;       /* segment of a far rank that is summed now */
    void **work;                  /* f32 or i32, a chunk */
    void **raw;                   /* a chunk as its rank has it */
    const void **now;             /* value in this chunk; NULL: not read yet */
    bool *used;
    unsigned char *stage[2]; /* segments of far ranks, all holders */
} reduction;

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

/* Value of a holder in the chunk of n elements at `at` of my slice. */
static const void *value_of(reduction *r, int holder, size_t at, size_t n, by_error *error)
{
    if (r->now[holder] != NULL) {
        return r->now[holder];
    }
    size_t begin = (r->offset + at) * r->size;
    const void *raw;
    if (r->source[holder] != NULL) {
        raw = r->source[holder] + begin;
    } else if (r->staged[holder] != NULL) {
        raw = r->staged[holder] + at % SEGMENT * r->size;
    } else {
        raw = by__comm_peek(r->comm, r->sum->plan->owners[holder], r->address[holder] + begin,
                            r->raw[holder], n * r->size, error);
    }
    if (raw != NULL && is_half(r->sum->dtype)) {
        widen(r->work[holder], raw, n, r->sum->dtype);
        raw = r->work[holder];
    }
    r->now[holder] = raw;
    return raw;
}

/* The chunk of the result goes to the near ranks at once, while it is in the cache. */
static by_status push_chunk(reduction *r, size_t at, size_t n, by_error *error)
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

static by_status sum_chunk(reduction *r, size_t at, size_t n, by_error *error)
{
    const by__holder_plan *plan = r->sum->plan;
    void *out = (unsigned char *)r->sum->own + at * r->size;
    for (int h = 0; h < plan->holders; h++) {
        r->now[h] = NULL;
    }
    for (size_t m = 0; m < plan->merge_count; m++) {
        const by__sum_merge *merge = &plan->merges[m];
        const void *left = value_of(r, merge->left, at, n, error);
        const void *right = value_of(r, merge->right, at, n, error);
        if (left == NULL || right == NULL) {
            return BY_EPEER;
        }
        bool last = m + 1 == plan->merge_count && !is_half(r->sum->dtype);
        void *result = last ? out : r->work[merge->left];
        if (r->sum->dtype == BY_I32) {
            add_i32(result, left, right, n);
        } else {
            add_f32(result, left, right, n);
        }
        r->now[merge->left] = result;
    }
    const void *root = value_of(r, plan->root, at, n, error);
    if (root == NULL) {
        return BY_EPEER;
    }
    if (is_half(r->sum->dtype)) {
        narrow(out, root, n, r->sum->dtype);
    } else if (root != out) {
        memcpy(out, root, n * r->size);
    }
    return r->push ? push_chunk(r, at, n, error) : BY_OK;
}

/* [begin, end) of my slice. */
static by_status sum_range(reduction *r, size_t begin, size_t end, by_error *error)
{
    for (size_t at = begin; at < end; at += r->chunk) {
        size_t n = end - at < r->chunk ? end - at : r->chunk;
        BY_TRY(by__comm_hold(r->comm, error));
        by_status status = sum_chunk(r, at, n, error);
        by__comm_release(r->comm);
        BY_TRY(status);
    }
    return BY_OK;
}

/* ---- far ranks ---- */

static bool is_far(const reduction *r, int rank)
{
    return r->comm->members[rank].near < 0;
}

/* Sends far ranks their slices of my holders. */
static by_status send_slices(reduction *r, by_error *error)
{
    by_comm *comm = r->comm;
    const by__holder_plan *plan = r->sum->plan;
    size_t most = 0;
    for (int to = 0; to < comm->size; to++) {
        most = r->sum->slices[to] > most ? r->sum->slices[to] : most;
    }
    for (size_t at = 0; at < most; at += SEGMENT) {
        size_t offset = 0;
        for (int to = 0; to < comm->size; offset += r->sum->slices[to++]) {
            size_t slice = r->sum->slices[to];
            if (!is_far(r, to) || at >= slice) {
                continue;
            }
            size_t n = slice - at < SEGMENT ? slice - at : SEGMENT;
            for (int h = 0; h < plan->holders; h++) {
                if (plan->owners[h] != comm->rank || !r->used[h]) {
                    continue;
                }
                unsigned char *data = (unsigned char *)(uintptr_t)r->source[h];
                BY_TRY(by__comm_post(comm, &comm->sends, false, to, BY__COMM_TAG_DATA,
                                     data + (offset + at) * r->size, n * r->size, error));
            }
        }
    }
    return BY_OK;
}

static unsigned char *stage_of(const reduction *r, size_t segment, int holder)
{
    return r->stage[segment % 2] + (size_t)holder * SEGMENT * r->size;
}

static by_status receive_segment(reduction *r, size_t segment, by_error *error)
{
    const by__holder_plan *plan = r->sum->plan;
    size_t at = segment * SEGMENT;
    if (at >= r->mine) {
        return BY_OK;
    }
    size_t n = r->mine - at < SEGMENT ? r->mine - at : SEGMENT;
    for (int h = 0; h < plan->holders; h++) {
        if (is_far(r, plan->owners[h]) && r->used[h]) {
            BY_TRY(by__comm_post(r->comm, &r->comm->receives[segment % 2], true, plan->owners[h],
                                 BY__COMM_TAG_DATA, stage_of(r, segment, h), n * r->size, error));
        }
    }
    return BY_OK;
}

static by_status sum_with_far(reduction *r, by_error *error)
{
    BY_TRY(receive_segment(r, 0, error));
    BY_TRY(send_slices(r, error));
    for (size_t k = 0; k * SEGMENT < r->mine; k++) {
        BY_TRY(receive_segment(r, k + 1, error));
        BY_TRY(by__comm_land(r->comm, &r->comm->receives[k % 2], error));
        for (int h = 0; h < r->sum->plan->holders; h++) {
            bool far = is_far(r, r->sum->plan->owners[h]);
            r->staged[h] = far && r->used[h] ? stage_of(r, k, h) : NULL;
        }
        size_t end = (k + 1) * SEGMENT < r->mine ? (k + 1) * SEGMENT : r->mine;
        BY_TRY(sum_range(r, k * SEGMENT, end, error));
    }
    /* What was sent may be overwritten by what is gathered. */
    return by__comm_land(r->comm, &r->comm->sends, error);
}

/* ---- the whole ---- */

/* Slices that far ranks have summed, and mine to them. */
static by_status gather_far(reduction *r, by_error *error)
{
    by_comm *comm = r->comm;
    unsigned char *all = r->sum->all;
    size_t offset = 0;
    for (int from = 0; from < comm->size; offset += r->sum->slices[from++]) {
        if (is_far(r, from)) {
            BY_TRY(by__comm_post(comm, &comm->receives[0], true, from, BY__COMM_TAG_DATA,
                                 all + offset * r->size, r->sum->slices[from] * r->size, error));
            BY_TRY(by__comm_post(comm, &comm->sends, false, from, BY__COMM_TAG_DATA, r->sum->own,
                                 r->mine * r->size, error));
        }
    }
    BY_TRY(by__comm_land(comm, &comm->receives[0], error));
    return by__comm_land(comm, &comm->sends, error);
}

/* Where each holder's buffer is, and memory for the chunks. */
static by_status prepare(reduction *r, by_error *error)
{
    const by__holder_plan *plan = r->sum->plan;
    size_t holders = (size_t)plan->holders;
    size_t chunk = CACHE_BYTES / (holders * 8);
    chunk = chunk > CHUNK_MOST ? CHUNK_MOST : chunk < CHUNK_LEAST ? CHUNK_LEAST : chunk & ~15u;
    r->chunk = chunk;
    bool far = !r->in_records && r->comm->near_count < r->comm->size;
    size_t pointers = by__round_up(holders * (6 * sizeof(void *) + sizeof(bool)), BY_CACHE_LINE);
    size_t each = chunk * 4 + chunk * r->size + (far ? 2 * SEGMENT * r->size : 0);
    size_t bytes;
    unsigned char *memory;
    if (!by__size_mul(holders, each, &bytes) || !by__size_add(bytes, pointers, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: a sum over %zu buffers", holders);
    }
    BY_TRY(by__comm_scratch(r->comm, bytes, (void **)&memory, error));
    r->source = (void *)memory;
    r->address = (void *)(r->source + holders);
    r->staged = (void *)(r->address + holders);
    r->work = (void *)(r->staged + holders);
    r->raw = (void *)(r->work + holders);
    r->now = (void *)(r->raw + holders);
    r->used = (void *)(r->now + holders);
    memset(memory, 0, pointers);
    memory += pointers;
    int own = 0;
    for (int h = 0; h < plan->holders; h++) {
        r->work[h] = memory;
        r->raw[h] = memory + chunk * 4;
        memory += chunk * 4 + chunk * r->size;
        r->used[h] = h == plan->root;
        if (plan->owners[h] == r->comm->rank) {
            r->source[h] = r->sum->mine[own++];
        }
    }
    for (size_t m = 0; m < plan->merge_count; m++) {
        r->used[plan->merges[m].left] = true;
        r->used[plan->merges[m].right] = true;
    }
    r->stage[0] = memory;
    r->stage[1] = memory + holders * SEGMENT * r->size;
    return BY_OK;
}

/* What near ranks published: addresses of their holders, or the data. */
static void find_holders(reduction *r)
{
    const by__holder_plan *plan = r->sum->plan;
    for (int h = 0; h < plan->holders; h++) {
        int owner = plan->owners[h];
        const by__comm_record *record = by__comm_record_of(r->comm, owner);
        if (r->in_records) {
            r->source[h] = record->payload;
        } else if (owner != r->comm->rank && !is_far(r, owner)) {
            int place = 0;
            for (int k = 0; k < h; k++) {
                place += plan->owners[k] == owner;
            }
            memcpy(&r->address[h], record->payload + (size_t)place * sizeof(uint64_t),
                   sizeof(uint64_t));
        }
    }
}

static uint64_t check_of(const by_comm *comm, const by__comm_sum *sum)
{
    const by__holder_plan *plan = sum->plan;
    uint64_t parts[] = {
        by__hash64(sum->slices, (size_t)comm->size * sizeof *sum->slices),
        by__hash64(plan->owners, (size_t)plan->holders * sizeof *plan->owners),
        plan->merge_count == 0 ? 0
                               : by__hash64(plan->merges, plan->merge_count * sizeof *plan->merges),
        (uint64_t)plan->root,
        sum->all != NULL,
    };
    return by__hash64(parts, sizeof parts);
}

static by_status reduce_small(reduction *r, by__comm_header *header, by_error *error)
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
        r->mine = sum->count;
    }
    return sum_range(r, 0, r->mine, error);
}

static by_status reduce_large(reduction *r, by__comm_header *header, by_error *error)
{
    by_comm *comm = r->comm;
    const by__comm_sum *sum = r->sum;
    uint64_t addresses[BY__COMM_PAYLOAD / sizeof(uint64_t)];
    size_t own = 0;
    BY_TRY(prepare(r, error));
    for (int h = 0; h < sum->plan->holders; h++) {
        if (sum->plan->owners[h] == comm->rank) {
            addresses[own] = (uint64_t)(uintptr_t)sum->mine[own];
            own++;
        }
    }
    header->target = (uint64_t)(uintptr_t)sum->all;
    BY_TRY(by__comm_enter(comm, header, sum->what, addresses, own * sizeof *addresses, error));
    find_holders(r);
    r->push = sum->all != NULL;
    if (comm->near_count < comm->size) {
        BY_TRY(sum_with_far(r, error));
    } else {
        BY_TRY(sum_range(r, 0, r->mine, error));
    }
    by__comm_step(comm);
    if (sum->all != NULL && comm->near_count < comm->size) {
        BY_TRY(gather_far(r, error));
    }
    return by__comm_await_all(comm, error);
}

by_status by__comm_reduce(by_comm *comm, const by__comm_sum *sum, by_error *error)
{
    reduction r = {.comm = comm, .sum = sum, .size = by_dtype_size(sum->dtype)};
    size_t bytes = sum->count * r.size;
    for (int k = 0; k < comm->rank; k++) {
        r.offset += sum->slices[k];
    }
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

by_status by__comm_reduce_holders(by_comm *comm, const by__holder_plan *plan, float *const *mine,
                                  float *out, size_t count, const size_t *slices, bool gather,
                                  const char *what, by_error *error)
{
    by_error local;
    size_t offset = 0;
    int own = 0;
    for (int k = 0; k < comm->rank; k++) {
        offset += slices[k];
    }
    for (int h = 0; h < plan->holders; h++) {
        own += plan->owners[h] == comm->rank;
    }
    error = error == NULL ? &local : error;
    if (own > (int)(BY__COMM_PAYLOAD / sizeof(uint64_t))) {
        return by_error_set(error, BY_EARG, "a rank with %d buffers of a sum: at most %d", own,
                            (int)(BY__COMM_PAYLOAD / sizeof(uint64_t)));
    }
    by__comm_sum sum = {.plan = plan,
                        .dtype = BY_F32,
                        .count = count,
                        .slices = slices,
                        .mine = (const void *const *)mine,
                        .own = out + offset,
                        .all = gather ? out : NULL,
                        .kind = BY__COMM_REDUCE_HOLDERS,
                        .what = what};
    return by__comm_reduce(comm, &sum, error);
}
