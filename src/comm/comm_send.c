/* Point-to-point messages. A send copies the data and does not wait for the receiver as long as
 * fewer than BY__COMM_RING sends to that rank are pending: two ranks may both send first and
 * receive afterwards. Near ranks find the copy through a ring in the shared block; far ranks get
 * two messages, a description and the data. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* Sent to a far rank before the data. */
typedef struct heading {
    uint64_t bytes;
    int32_t dtype;
    int32_t tag;
    char what[BY__COMM_WHAT];
} heading;

/* Begins a call on a pair of ranks; `called` is used in error messages. */
static by_status begin(by_comm *comm, by__comm_kind kind, size_t count, by_dtype dtype, int other,
                       int tag, const char *what, size_t *bytes, by_error *error)
{
    comm->called = (by__comm_header){.sequence = comm->sequence, .kind = (int32_t)kind};
    (void)snprintf(comm->called.what, sizeof comm->called.what, "%s", what == NULL ? "" : what);
    comm->began = by__now();
    comm->entered = false;
    if (by__comm_job_failed(comm->job)) {
        return by__comm_failed_error(comm->job, error);
    }
    by__comm_set_activity(comm, false);
    if (other < 0 || other >= comm->size) {
        return by_error_set(error, BY_EARG, "%s \"%s\": rank %d of %d ranks",
                            by__comm_kind_name((int)kind), comm->called.what, other, comm->size);
    }
    if (tag < 0 || tag > BY__COMM_MAX_TAG) {
        return by_error_set(error, BY_EARG, "%s \"%s\": tag %d is not from 0 to %d",
                            by__comm_kind_name((int)kind), comm->called.what, tag,
                            BY__COMM_MAX_TAG);
    }
    if (by_dtype_size(dtype) == 0 || !by__size_mul(count, by_dtype_size(dtype), bytes)) {
        return by_error_set(error, BY_EARG, "%s \"%s\": %zu elements of dtype %d",
                            by__comm_kind_name((int)kind), comm->called.what, count, (int)dtype);
    }
    comm->called.bytes = *bytes;
    return BY_OK;
}

static by_status copy_of(void **out, const void *data, size_t bytes, by_error *error)
{
    BY_TRY(by__alloc_aligned(out, bytes, "a send's copy", error));
    if (bytes > 0) {
        memcpy(*out, data, bytes);
    }
    return BY_OK;
}

/* ---- near ---- */

/* Waits until the ring changes. */
static by_status await_change(by_comm *comm, by__comm_send_ring *ring, uint32_t seen, int rank,
                              int *round, by_error *error)
{
    if ((*round)++ == 0) {
        comm->deadline = by__now() + comm->job->timeout;
    }
    by__comm_pause pause = by__comm_pause_once(comm, &ring->changes, &ring->waiters, seen, *round);
    if (pause == BY__PAUSE_AGAIN) {
        return BY_OK;
    }
    return pause == BY__PAUSE_LATE ? by__comm_late_error(comm, rank, error)
                                   : by__comm_failed_error(comm->job, error);
}

static void change(by__comm_send_ring *ring)
{
    (void)atomic_fetch_add(&ring->changes, 1);
    by__comm_wake(&ring->changes, &ring->waiters);
}

/* Frees copies that were received; returns the index of a free slot, or -1. */
static int free_place(by__comm_send_ring *ring, void **copies)
{
    int place = -1;
    for (int i = 0; i < BY__COMM_RING; i++) {
        if (atomic_load_explicit(&ring->slots[i].state, memory_order_acquire) == 2) {
            free(copies[i]);
            copies[i] = NULL;
            atomic_store_explicit(&ring->slots[i].state, 0, memory_order_relaxed);
        }
        if (atomic_load_explicit(&ring->slots[i].state, memory_order_relaxed) == 0) {
            place = i;
        }
    }
    return place;
}

static by_status send_near(by_comm *comm, const void *data, size_t bytes, by_dtype dtype, int to,
                           int tag, by_error *error)
{
    int near = comm->members[to].near;
    by__comm_send_ring *ring = by__comm_send_ring_of(comm, comm->my_near, near);
    void **copies = comm->near_copies + (size_t)near * BY__COMM_RING;
    int place;
    int round = 0;
    for (;;) {
        uint32_t seen = atomic_load(&ring->changes);
        place = free_place(ring, copies);
        if (place >= 0) {
            break;
        }
        BY_TRY(await_change(comm, ring, seen, to, &round, error));
    }
    by__comm_arrive(comm);
    BY_TRY(copy_of(&copies[place], data, bytes, error));
    by__comm_send_slot *slot = &ring->slots[place];
    slot->tag = tag;
    slot->order = comm->send_order++;
    slot->address = (uint64_t)(uintptr_t)copies[place];
    slot->bytes = bytes;
    slot->dtype = (int32_t)dtype;
    memcpy(slot->what, comm->called.what, sizeof slot->what);
    atomic_store_explicit(&slot->state, 1, memory_order_release);
    change(ring);
    return BY_OK;
}

by__comm_send_slot *by__comm_first_sent(by__comm_send_ring *ring, int tag, uint32_t *seen)
{
    by__comm_send_slot *first;
    do {
        *seen = atomic_load(&ring->changes);
        first = NULL;
        for (int i = 0; i < BY__COMM_RING; i++) {
            by__comm_send_slot *slot = &ring->slots[i];
            if (atomic_load_explicit(&slot->state, memory_order_acquire) == 1 && slot->tag == tag &&
                (first == NULL || slot->order < first->order)) {
                first = slot;
            }
        }
        /* A message that was sent into a slot after this pass had read it is earlier than one that
         * was sent next, into a slot still to read: only a ring that stood still has a first. */
    } while (first != NULL && atomic_load(&ring->changes) != *seen);
    return first;
}

static by_status check_sent(by_comm *comm, int from, int tag, uint64_t bytes, int dtype,
                            const char *what, size_t expected, by_dtype expected_dtype,
                            by_error *error)
{
    if (bytes == expected && dtype == (int)expected_dtype) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_EPEER,
        "rank %d (%s) sends \"%.63s\" (%s, %llu bytes) with tag %d, but rank %d (%s) receives "
        "\"%s\" (%s, %zu bytes)",
        from, by_comm_host(comm, from), what, by_dtype_name((by_dtype)dtype),
        (unsigned long long)bytes, tag, comm->rank, by_comm_host(comm, comm->rank),
        comm->called.what, by_dtype_name(expected_dtype), expected);
}

static by_status receive_near(by_comm *comm, void *data, size_t bytes, by_dtype dtype, int from,
                              int tag, by_error *error)
{
    by__comm_send_ring *ring = by__comm_send_ring_of(comm, comm->members[from].near, comm->my_near);
    by__comm_send_slot *slot;
    int round = 0;
    for (;;) {
        uint32_t seen;
        slot = by__comm_first_sent(ring, tag, &seen);
        if (slot != NULL) {
            break;
        }
        BY_TRY(await_change(comm, ring, seen, from, &round, error));
    }
    by__comm_arrive(comm);
    BY_TRY(check_sent(comm, from, tag, slot->bytes, slot->dtype, slot->what, bytes, dtype, error));
    BY_TRY(by__comm_read(comm, from, data, slot->address, bytes, error));
    atomic_store_explicit(&slot->state, 2, memory_order_release);
    change(ring);
    return BY_OK;
}

/* ---- far ---- */

/* Frees the copies of pending sends that were delivered. *under_way: number of those to rank `to`
 * that were not; *oldest: the first of these. */
static by_status free_delivered(by_comm *comm, int to, int *under_way,
                                by__comm_pending_send **oldest, by_error *error)
{
    *under_way = 0;
    *oldest = NULL;
    for (size_t i = 0; i < comm->pending_sends; i++) {
        by__comm_pending_send *pending = &comm->pending[i];
        if (pending->copy == NULL) {
            continue;
        }
        if (pending->flight.left > 0) {
            BY_TRY(comm->job->link->test(&pending->flight, error));
        }
        if (pending->flight.left == 0) {
            free(pending->copy);
            pending->copy = NULL;
            pending->flight.count = 0;
        } else if (pending->to == to) {
            ++*under_way;
            *oldest = *oldest == NULL || pending->order < (*oldest)->order ? pending : *oldest;
        }
    }
    return BY_OK;
}

/* Waits until fewer than BY__COMM_RING sends to that rank are in flight, and returns a free
 * slot. */
static by_status free_pending(by_comm *comm, int to, by__comm_pending_send **out, by_error *error)
{
    int under_way;
    by__comm_pending_send *oldest;
    BY_TRY(free_delivered(comm, to, &under_way, &oldest, error));
    while (under_way >= BY__COMM_RING) {
        BY_TRY(by__comm_wait_all(comm, &oldest->flight, error));
        BY_TRY(free_delivered(comm, to, &under_way, &oldest, error));
    }
    for (size_t i = 0; i < comm->pending_sends; i++) {
        if (comm->pending[i].copy == NULL) {
            *out = &comm->pending[i];
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&comm->pending, &comm->pending_room, comm->pending_sends + 1,
                       sizeof *comm->pending, error));
    *out = &comm->pending[comm->pending_sends++];
    **out = (by__comm_pending_send){0};
    return BY_OK;
}

static by_status send_far(by_comm *comm, const void *data, size_t bytes, by_dtype dtype, int to,
                          int tag, by_error *error)
{
    by__comm_pending_send *pending;
    uint32_t message = BY__COMM_TAG_SEND + (uint32_t)tag;
    BY_TRY(free_pending(comm, to, &pending, error));
    by__comm_arrive(comm);
    BY_TRY(by__alloc_aligned(&pending->copy, sizeof(heading) + bytes, "a send's copy", error));
    pending->to = to;
    pending->order = comm->send_order++;
    heading *head = pending->copy;
    *head = (heading){.bytes = bytes, .dtype = (int32_t)dtype, .tag = tag};
    memcpy(head->what, comm->called.what, sizeof head->what);
    unsigned char *body = (unsigned char *)pending->copy + sizeof *head;
    if (bytes > 0) {
        memcpy(body, data, bytes);
    }
    BY_TRY(by__comm_post(comm, &pending->flight, false, to, message, head, sizeof *head, error));
    return by__comm_post(comm, &pending->flight, false, to, message, body, bytes, error);
}

static by_status receive_far(by_comm *comm, void *data, size_t bytes, by_dtype dtype, int from,
                             int tag, by_error *error)
{
    heading head;
    uint32_t message = BY__COMM_TAG_SEND + (uint32_t)tag;
    by__comm_flight *flight = &comm->receives[0];
    BY_TRY(by__comm_post(comm, flight, true, from, message, &head, sizeof head, error));
    BY_TRY(by__comm_wait_all(comm, flight, error));
    by__comm_arrive(comm);
    BY_TRY(check_sent(comm, from, tag, head.bytes, head.dtype, head.what, bytes, dtype, error));
    BY_TRY(by__comm_post(comm, flight, true, from, message, data, bytes, error));
    return by__comm_wait_all(comm, flight, error);
}

/* ---- public ---- */

by_status by_comm_send(by_comm *comm, const void *data, size_t count, by_dtype dtype, int to,
                       int tag, const char *what, by_error *error)
{
    by_error local;
    size_t bytes = 0;
    error = error == NULL ? &local : error;
    by_status status = begin(comm, BY__COMM_SEND, count, dtype, to, tag, what, &bytes, error);
    if (status == BY_OK) {
        status = comm->members[to].near >= 0 ? send_near(comm, data, bytes, dtype, to, tag, error)
                                             : send_far(comm, data, bytes, dtype, to, tag, error);
    }
    return by__comm_leave(comm, status, error);
}

by_status by_comm_receive(by_comm *comm, void *data, size_t count, by_dtype dtype, int from,
                          int tag, const char *what, by_error *error)
{
    by_error local;
    size_t bytes = 0;
    error = error == NULL ? &local : error;
    by_status status = begin(comm, BY__COMM_RECEIVE, count, dtype, from, tag, what, &bytes, error);
    if (status == BY_OK) {
        status = comm->members[from].near >= 0
                     ? receive_near(comm, data, bytes, dtype, from, tag, error)
                     : receive_far(comm, data, bytes, dtype, from, tag, error);
    }
    return by__comm_leave(comm, status, error);
}
