/* Beginning and end of a collective: exchange of records and comparison of headers. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

const by__comm_record *by__comm_record_of(const by_comm *comm, int rank)
{
    int near = comm->members[rank].near;
    if (near < 0) {
        return (const by__comm_record *)(const void *)(comm->far_records +
                                                       (size_t)rank * comm->record_bytes);
    }
    unsigned char *slot = (unsigned char *)by__comm_slot_of(comm, near);
    return (const by__comm_record *)(const void *)(slot + sizeof(by__comm_slot) +
                                                   (comm->sequence & 1) * comm->record_bytes);
}

static void describe_call(char text[200], const by_comm *comm, int rank)
{
    const by__comm_header *header = &by__comm_record_of(comm, rank)->header;
    int n = snprintf(text, 200, "rank %d (%.40s) calls %s \"%s\"", rank, by_comm_host(comm, rank),
                     by__comm_kind_name(header->kind), header->what);
    if (header->kind == BY__COMM_ALL_TO_ALL) {
        (void)snprintf(text + n, 200 - (size_t)n, " (%s)", by_dtype_name((by_dtype)header->dtype));
    } else if (header->kind != BY__COMM_BARRIER && header->kind != BY__COMM_CLOSE) {
        (void)snprintf(text + n, 200 - (size_t)n, " (%s, %llu bytes)",
                       by_dtype_name((by_dtype)header->dtype), (unsigned long long)header->bytes);
    }
}

static by_status compare(by_comm *comm, by_error *error)
{
    char one[200];
    char other[200];
    const by__comm_header *first = &by__comm_record_of(comm, 0)->header;
    for (int r = 1; r < comm->size; r++) {
        const by__comm_header *its = &by__comm_record_of(comm, r)->header;
        const char *hint = "all ranks must make the same calls in the same order";
        bool same = its->sequence == first->sequence && its->kind == first->kind &&
                    its->bytes == first->bytes && its->dtype == first->dtype &&
                    its->root == first->root &&
                    memcmp(its->what, first->what, sizeof its->what) == 0;
        if (same && its->check == first->check) {
            continue;
        }
        if (same) {
            hint = "the sizes of their slices, or their plans, differ";
        } else if (its->root != first->root && its->kind == first->kind) {
            hint = "their root ranks differ";
        }
        describe_call(one, comm, 0);
        describe_call(other, comm, r);
        return by_error_set(error, BY_EPEER, "collective %llu: %s, but %s: %s",
                            (unsigned long long)comm->sequence, one, other, hint);
    }
    return BY_OK;
}

static by_status exchange_far(by_comm *comm, by_error *error)
{
    size_t bytes = sizeof(by__comm_header) + comm->mine->header.payload;
    for (int r = 0; r < comm->size; r++) {
        if (comm->members[r].near >= 0) {
            continue;
        }
        /* A call with different payload sizes is refused, but the buffer has room for any
         * payload. */
        BY_TRY(by__comm_post(comm, &comm->receives[0], true, r, BY__COMM_TAG_RECORD,
                             comm->far_records + (size_t)r * comm->record_bytes, comm->record_bytes,
                             error));
        BY_TRY(by__comm_post(comm, &comm->sends, false, r, BY__COMM_TAG_RECORD, comm->mine, bytes,
                             error));
    }
    return BY_OK;
}

by_status by__comm_enter(by_comm *comm, const by__comm_header *header, const char *what,
                         const void *payload, size_t payload_bytes, by_error *error)
{
    comm->called = *header;
    comm->called.sequence = ++comm->sequence;
    comm->called.payload = (uint32_t)payload_bytes;
    memset(comm->called.what, 0, sizeof comm->called.what);
    (void)snprintf(comm->called.what, sizeof comm->called.what, "%s", what == NULL ? "" : what);
    comm->began = by__now();
    comm->entered = false;
    if (by__comm_job_failed(comm->job)) {
        return by__comm_failed_error(comm->job, error);
    }
    by__comm_set_activity(comm, false);

    unsigned char *slot = (unsigned char *)by__comm_slot_of(comm, comm->my_near);
    by__comm_record *record =
        (by__comm_record *)(void *)(slot + sizeof(by__comm_slot) +
                                    (comm->sequence & 1) * comm->record_bytes);
    record->header = comm->called;
    if (payload_bytes > 0) {
        memcpy(record->payload, payload, payload_bytes);
    }
    by__comm_step(comm);
    if (comm->near_count < comm->size) {
        memcpy(comm->mine, record, sizeof record->header + payload_bytes);
        BY_TRY(exchange_far(comm, error));
        BY_TRY(by__comm_wait_all(comm, &comm->receives[0], error));
        BY_TRY(by__comm_wait_all(comm, &comm->sends, error));
    }
    BY_TRY(by__comm_await_all(comm, error));
    BY_TRY(compare(comm, error));
    by__comm_arrive(comm);
    return BY_OK;
}

void by__comm_arrive(by_comm *comm)
{
    comm->entered = true;
    comm->ready = by__now();
}

void by__comm_set_background(by_comm *comm)
{
    comm->background = true;
}

double by__comm_spent(const by_comm *comm)
{
    return 1e-9 * (double)atomic_load_explicit(&comm->job->nanoseconds, memory_order_relaxed);
}

void by_comm_watch(by_comm *comm, by_comm_watcher *watcher, void *user)
{
    (void)pthread_mutex_lock(&comm->job->watching);
    comm->job->watcher = watcher;
    comm->job->watcher_user = user;
    (void)pthread_mutex_unlock(&comm->job->watching);
}

/* Other threads, such as that of late exchanges, may end a watch meanwhile. */
static void call_watcher(const by_comm *comm, double end)
{
    by__comm_job *job = comm->job;
    const by_comm_call call = {.kind = by__comm_kind_name(comm->called.kind),
                               .what = comm->called.what,
                               .bytes = comm->called.bytes,
                               .begin = comm->began,
                               .ready = comm->entered ? comm->ready : end,
                               .end = end};
    (void)pthread_mutex_lock(&job->watching);
    if (job->watcher != NULL) {
        job->watcher(job->watcher_user, &call);
    }
    (void)pthread_mutex_unlock(&job->watching);
}

by_status by__comm_leave(by_comm *comm, by_status status, by_error *error)
{
    if (comm->began > 0.0) {
        double end = by__now();
        comm->counters.seconds += end - comm->began;
        if (!comm->background) {
            (void)atomic_fetch_add_explicit(&comm->job->nanoseconds,
                                            (uint64_t)(1e9 * (end - comm->began)),
                                            memory_order_relaxed);
        }
        comm->counters.collectives++;
        call_watcher(comm, end);
        comm->began = 0.0;
    }
    if (status != BY_OK) {
        by__comm_job_fail(comm->job, comm->members[comm->rank].world, status,
                          error != NULL ? error->message : by_status_name(status), true);
        by__comm_wait_readers(comm);
        return status;
    }
    by__comm_set_activity(comm, true);
    return BY_OK;
}

/* ---- memory of near ranks ---- */

by_status by__comm_begin_access(by_comm *comm, by_error *error)
{
    if (!comm->job->link->direct) {
        return BY_OK;
    }
    atomic_store(&by__comm_slot_of(comm, comm->my_near)->reading, 1);
    if (atomic_load(&comm->job->block->failed) != 0) {
        by__comm_end_access(comm);
        while (!by__comm_job_failed(comm->job)) {
            (void)sched_yield();
        }
        return by__comm_failed_error(comm->job, error);
    }
    return BY_OK;
}

void by__comm_end_access(by_comm *comm)
{
    if (comm->job->link->direct) {
        atomic_store(&by__comm_slot_of(comm, comm->my_near)->reading, 0);
    }
}

void by__comm_wait_readers(by_comm *comm)
{
    if (comm->block == NULL || !comm->job->link->direct ||
        atomic_load(&comm->job->block->failed) == 0) {
        return;
    }
    for (int i = 0; i < comm->near_count; i++) {
        while (atomic_load(&by__comm_slot_of(comm, i)->reading) != 0) {
            (void)sched_yield();
        }
    }
}

const void *by__comm_map_remote(by_comm *comm, int rank, uint64_t address, void *scratch,
                                size_t bytes, by_error *error)
{
    const by__comm_link *link = comm->job->link;
    comm->counters.bytes_read += rank == comm->rank ? 0 : bytes;
    if (link->direct) {
        return (const void *)(uintptr_t)address;
    }
    return link->read(comm->job, comm->members[rank].world, scratch, address, bytes, error) == BY_OK
               ? scratch
               : NULL;
}

by_status by__comm_write(by_comm *comm, int rank, const void *data, uint64_t address, size_t bytes,
                         by_error *error)
{
    const by__comm_link *link = comm->job->link;
    comm->counters.bytes_written += rank == comm->rank ? 0 : bytes;
    if (link->direct) {
        memcpy((void *)(uintptr_t)address, data, bytes);
        return BY_OK;
    }
    return link->write(comm->job, comm->members[rank].world, data, address, bytes, error);
}

by_status by__comm_read(by_comm *comm, int rank, void *out, uint64_t address, size_t bytes,
                        by_error *error)
{
    if (bytes == 0) {
        return BY_OK;
    }
    BY_TRY(by__comm_begin_access(comm, error));
    const void *its = by__comm_map_remote(comm, rank, address, out, bytes, error);
    if (its != NULL && its != out) {
        memcpy(out, its, bytes);
    }
    by__comm_end_access(comm);
    return its != NULL ? BY_OK : BY_EPEER;
}
