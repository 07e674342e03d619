/* The public collectives, except sums (comm_reduce.c). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* ---- arguments ---- */

static by_status check_dtype(by_dtype dtype, bool sum, const char *what, by_error *error)
{
    if (by_dtype_size(dtype) == 0) {
        return by_error_set(error, BY_EARG, "\"%s\": %d is no dtype", what, (int)dtype);
    }
    if (sum && !by_dtype_is_float(dtype) && dtype != BY_I32) {
        return by_error_set(error, BY_EARG, "\"%s\": sums of %s over ranks: f32, bf16, f16 or i32",
                            what, by_dtype_name(dtype));
    }
    return BY_OK;
}

/* Bytes of all slices together. */
static by_status total_bytes(size_t *bytes, const size_t *counts, int ranks, by_dtype dtype,
                             const char *what, by_error *error)
{
    size_t total = 0;
    bool fits = true;
    for (int r = 0; r < ranks; r++) {
        fits = fits && by__size_add(total, counts[r], &total);
    }
    if (!fits || !by__size_mul(total, by_dtype_size(dtype), bytes)) {
        return by_error_set(error, BY_EARG, "\"%s\": the size overflows", what);
    }
    return BY_OK;
}

static by_status check_rank(const by_comm *comm, int rank, const char *role, const char *what,
                            by_error *error)
{
    if (rank < 0 || rank >= comm->size) {
        return by_error_set(error, BY_EARG, "\"%s\": %s is rank %d, there are %d ranks", what, role,
                            rank, comm->size);
    }
    return BY_OK;
}

static const char *name_of(const char *what)
{
    return what == NULL ? "" : what;
}

/* ---- sums ---- */

by_status by_comm_all_reduce(by_comm *comm, void *data, size_t count, by_dtype dtype,
                             const char *what, by_error *error)
{
    by_error local;
    size_t bytes;
    size_t *slices = comm->slices;
    error = error == NULL ? &local : error;
    by_status status = check_dtype(dtype, true, name_of(what), error);
    if (status == BY_OK) {
        status = total_bytes(&bytes, &count, 1, dtype, name_of(what), error);
    }
    if (status != BY_OK) {
        return by__comm_leave(comm, status, error);
    }
    by__comm_even_slices(slices, count, comm->size);
    size_t offset = 0;
    for (int r = 0; r < comm->rank; r++) {
        offset += slices[r];
    }
    const void *mine = data;
    by__comm_sum sum = {.plan = &comm->plan,
                        .dtype = dtype,
                        .count = count,
                        .slices = slices,
                        .mine = &mine,
                        .own = (unsigned char *)data + offset * by_dtype_size(dtype),
                        .all = data,
                        .kind = BY__COMM_ALL_REDUCE,
                        .what = what};
    return by__comm_reduce(comm, &sum, error);
}

by_status by_comm_reduce_scatter(by_comm *comm, const void *in, void *out, const size_t *counts,
                                 by_dtype dtype, const char *what, by_error *error)
{
    by_error local;
    size_t bytes;
    error = error == NULL ? &local : error;
    by_status status = check_dtype(dtype, true, name_of(what), error);
    if (status == BY_OK) {
        status = total_bytes(&bytes, counts, comm->size, dtype, name_of(what), error);
    }
    if (status != BY_OK) {
        return by__comm_leave(comm, status, error);
    }
    by__comm_sum sum = {.plan = &comm->plan,
                        .dtype = dtype,
                        .count = bytes / by_dtype_size(dtype),
                        .slices = counts,
                        .mine = &in,
                        .own = out,
                        .kind = BY__COMM_REDUCE_SCATTER,
                        .what = what};
    return by__comm_reduce(comm, &sum, error);
}

by_status by_comm_native_all_reduce(by_comm *comm, float *data, size_t count, by_error *error)
{
    if (comm->job->link->native == NULL || comm->id != 0 || count > INT_MAX) {
        return by_error_set(error, BY_EARG,
                            "MPI_Allreduce of %zu elements: at most %d of them, and the "
                            "communicator of all ranks over MPI",
                            count, INT_MAX);
    }
    return comm->job->link->native(comm->job, data, count, error);
}

/* ---- all-gather ---- */

static by_status gather_large(by_comm *comm, const void *in, unsigned char *out,
                              const size_t *counts, size_t size, by_error *error)
{
    size_t *begin = comm->begin;
    size_t *bytes = comm->bytes;
    size_t at = 0;
    for (int r = 0; r < comm->size; r++) {
        begin[r] = at;
        bytes[r] = counts[r] * size;
        at += bytes[r];
    }
    /* Each rank begins with its neighbour, so that not all read the same rank. */
    for (int i = 1; i < comm->near_count; i++) {
        int r = comm->near[(comm->my_near + i) % comm->near_count];
        BY_TRY(by__comm_read(comm, r, out + begin[r], by__comm_record_of(comm, r)->header.address,
                             bytes[r], error));
    }
    if (comm->hosts > 1) {
        BY_TRY(by__comm_spread(comm, in, out, begin, bytes, error));
    }
    by__comm_step(comm);
    return by__comm_await_all(comm, error);
}

static by_status gather(by_comm *comm, const void *in, unsigned char *out, const size_t *counts,
                        by_dtype dtype, const char *what, by_error *error)
{
    size_t size = by_dtype_size(dtype);
    size_t bytes;
    size_t most = 0;
    BY_TRY(check_dtype(dtype, false, name_of(what), error));
    BY_TRY(total_bytes(&bytes, counts, comm->size, dtype, name_of(what), error));
    for (int r = 0; r < comm->size; r++) {
        most = counts[r] > most ? counts[r] : most;
    }
    bool small = most * size <= comm->payload_bytes;
    size_t mine = counts[comm->rank] * size;
    by__comm_header header = {.kind = BY__COMM_ALL_GATHER,
                              .bytes = bytes,
                              .dtype = (int32_t)dtype,
                              .address = (uint64_t)(uintptr_t)in,
                              .target = (uint64_t)(uintptr_t)out,
                              .check = by__hash64(counts, (size_t)comm->size * sizeof *counts)};
    BY_TRY(by__comm_enter(comm, &header, what, in, small ? mine : 0, error));
    size_t begin = 0;
    for (int r = 0; r < comm->size; begin += counts[r++] * size) {
        if (small && counts[r] > 0) {
            memcpy(out + begin, by__comm_record_of(comm, r)->payload, counts[r] * size);
        } else if (!small && r == comm->rank && mine > 0 && in != out + begin) {
            memcpy(out + begin, in, mine);
        }
    }
    return small ? BY_OK : gather_large(comm, in, out, counts, size, error);
}

by_status by_comm_all_gather(by_comm *comm, const void *in, void *out, const size_t *counts,
                             by_dtype dtype, const char *what, by_error *error)
{
    by_error local;
    error = error == NULL ? &local : error;
    return by__comm_leave(comm, gather(comm, in, out, counts, dtype, what, error), error);
}

/* ---- broadcast ---- */

static by_status broadcast(by_comm *comm, void *data, size_t count, by_dtype dtype, int root,
                           const char *what, by_error *error)
{
    size_t bytes;
    BY_TRY(check_dtype(dtype, false, name_of(what), error));
    BY_TRY(check_rank(comm, root, "the root", name_of(what), error));
    BY_TRY(total_bytes(&bytes, &count, 1, dtype, name_of(what), error));
    bool small = bytes <= comm->payload_bytes;
    bool is_root = comm->rank == root;
    by__comm_header header = {.kind = BY__COMM_BROADCAST,
                              .bytes = bytes,
                              .dtype = (int32_t)dtype,
                              .root = root,
                              .address = (uint64_t)(uintptr_t)data,
                              .target = (uint64_t)(uintptr_t)data};
    BY_TRY(by__comm_enter(comm, &header, what, data, small && is_root ? bytes : 0, error));
    if (small) {
        if (!is_root && bytes > 0) {
            memcpy(data, by__comm_record_of(comm, root)->payload, bytes);
        }
        return BY_OK;
    }
    if (comm->members[root].near >= 0 && !is_root) {
        BY_TRY(by__comm_read(comm, root, data, by__comm_record_of(comm, root)->header.address,
                             bytes, error));
    }
    if (comm->hosts > 1) {
        memset(comm->begin, 0, (size_t)comm->size * sizeof *comm->begin);
        memset(comm->bytes, 0, (size_t)comm->size * sizeof *comm->bytes);
        comm->bytes[root] = bytes;
        BY_TRY(by__comm_spread(comm, data, data, comm->begin, comm->bytes, error));
    }
    by__comm_step(comm);
    return by__comm_await_all(comm, error);
}

by_status by_comm_broadcast(by_comm *comm, void *data, size_t count, by_dtype dtype, int root,
                            const char *what, by_error *error)
{
    by_error local;
    error = error == NULL ? &local : error;
    return by__comm_leave(comm, broadcast(comm, data, count, dtype, root, what, error), error);
}

/* ---- all-to-all ---- */

/* Element counts published by a rank: those it sends, then those it receives. */
static uint64_t count_of(const by_comm *comm, int rank, bool receives, int other)
{
    uint64_t count;
    size_t index = (size_t)other + (receives ? (size_t)comm->size : 0);
    memcpy(&count, by__comm_record_of(comm, rank)->payload + index * sizeof count, sizeof count);
    return count;
}

static by_status compare_counts(by_comm *comm, by_error *error)
{
    for (int s = 0; s < comm->size; s++) {
        for (int r = 0; r < comm->size; r++) {
            uint64_t sent = count_of(comm, s, false, r);
            uint64_t received = count_of(comm, r, true, s);
            if (sent != received) {
                return by_error_set(error, BY_EPEER,
                                    "all-to-all \"%s\": rank %d (%s) sends %llu elements to rank "
                                    "%d (%s), which expects %llu",
                                    comm->called.what, s, by_comm_host(comm, s),
                                    (unsigned long long)sent, r, by_comm_host(comm, r),
                                    (unsigned long long)received);
            }
        }
    }
    return BY_OK;
}

static by_status exchange_slices(by_comm *comm, const unsigned char *in, const size_t *send,
                                 unsigned char *out, const size_t *receive, size_t size,
                                 by_error *error)
{
    for (int r = 0; r < comm->size; r++) {
        unsigned char *slice = (unsigned char *)(uintptr_t)in;
        if (r == comm->rank) {
            memcpy(out, slice, send[r] * size);
        } else if (comm->members[r].near < 0) {
            BY_TRY(by__comm_post(comm, &comm->receives[0], true, r, BY__COMM_TAG_DATA, out,
                                 receive[r] * size, error));
            BY_TRY(by__comm_post(comm, &comm->sends, false, r, BY__COMM_TAG_DATA, slice,
                                 send[r] * size, error));
        } else {
            const by__comm_record *record = by__comm_record_of(comm, r);
            uint64_t begin = 0;
            for (int k = 0; k < comm->rank; k++) {
                begin += count_of(comm, r, false, k) * size;
            }
            BY_TRY(by__comm_read(comm, r, out, record->header.address + begin, receive[r] * size,
                                 error));
        }
        in += send[r] * size;
        out += receive[r] * size;
    }
    BY_TRY(by__comm_wait_all(comm, &comm->receives[0], error));
    BY_TRY(by__comm_wait_all(comm, &comm->sends, error));
    by__comm_step(comm);
    return by__comm_await_all(comm, error);
}

static by_status all_to_all(by_comm *comm, const void *in, const size_t *send, void *out,
                            const size_t *receive, by_dtype dtype, const char *what,
                            by_error *error)
{
    size_t bytes;
    size_t size = (size_t)comm->size;
    BY_TRY(check_dtype(dtype, false, name_of(what), error));
    BY_TRY(total_bytes(&bytes, send, comm->size, dtype, name_of(what), error));
    BY_TRY(total_bytes(&bytes, receive, comm->size, dtype, name_of(what), error));
    uint64_t *counts;
    BY_TRY(by__comm_scratch(comm, 2 * size * sizeof *counts, (void **)&counts, error));
    for (size_t r = 0; r < size; r++) {
        counts[r] = send[r];
        counts[size + r] = receive[r];
    }
    by__comm_header header = {
        .kind = BY__COMM_ALL_TO_ALL, .dtype = (int32_t)dtype, .address = (uint64_t)(uintptr_t)in};
    BY_TRY(by__comm_enter(comm, &header, what, counts, 2 * size * sizeof *counts, error));
    comm->called.bytes = bytes; /* differs between ranks, so it is not part of the header */
    BY_TRY(compare_counts(comm, error));
    return exchange_slices(comm, in, send, out, receive, by_dtype_size(dtype), error);
}

by_status by_comm_all_to_all(by_comm *comm, const void *in, const size_t *send, void *out,
                             const size_t *receive, by_dtype dtype, const char *what,
                             by_error *error)
{
    by_error local;
    error = error == NULL ? &local : error;
    return by__comm_leave(comm, all_to_all(comm, in, send, out, receive, dtype, what, error),
                          error);
}

/* ---- barrier ---- */

by_status by_comm_barrier(by_comm *comm, const char *what, by_error *error)
{
    by_error local;
    by__comm_header header = {.kind = BY__COMM_BARRIER};
    error = error == NULL ? &local : error;
    return by__comm_leave(comm, by__comm_enter(comm, &header, what, NULL, 0, error), error);
}
