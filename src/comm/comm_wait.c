/* Waiting for other ranks, and the errors when they do not arrive. */
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

/* Spinning is right for a rank that is a few microseconds late; after that the core is better used
 * by others. A sleeper is woken by the rank that it waits for. It also wakes up at intervals to
 * check for the failure of other ranks, and frequently if messages need it to make progress. */
enum { SPINS = 400, YIELDS = 8 };
#define NAP_NEAR 20e-3
#define NAP_FAR  200e-6

static const char *const kind_names[BY__COMM_KINDS] = {
    "nothing",    "all-reduce", "reduce-scatter", "reduction of gradients",
    "all-gather", "broadcast",  "all-to-all",     "barrier",
    "split",      "close",      "send",           "receive",
};

const char *by__comm_kind_name(int kind)
{
    return kind >= 0 && kind < BY__COMM_KINDS ? kind_names[kind] : "?";
}

/* ---- the job's failure ---- */

size_t by__comm_job_block_bytes(int near_ranks)
{
    return sizeof(by__comm_job_block) + (size_t)near_ranks * sizeof(by__comm_activity);
}

bool by__comm_job_failed(const by__comm_job *job)
{
    return atomic_load_explicit(&job->block->failed, memory_order_acquire) == 2;
}

void by__comm_job_fail(by__comm_job *job, int rank, by_status status, const char *message,
                       bool tell)
{
    by__comm_job_block *block = job->block;
    uint32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&block->failed, &nobody, 1)) {
        return;
    }
    block->rank = rank;
    block->status = status;
    (void)snprintf(block->message, sizeof block->message, "%s", message);
    atomic_store_explicit(&block->failed, 2, memory_order_release);
    if (tell && job->link->notify_failure != NULL) {
        job->link->notify_failure(job);
    }
}

by_status by__comm_failed_error(const by__comm_job *job, by_error *error)
{
    const by__comm_job_block *block = job->block;
    return by_error_set(error, BY_EPEER, "rank %d (%s): %s", block->rank,
                        job->ranks[block->rank].host, block->message);
}

by_status by_comm_fail(by_comm *comm, by_status status, const by_error *error)
{
    if (status != BY_OK) {
        const char *message =
            error != NULL && error->message[0] != '\0' ? error->message : by_status_name(status);
        by__comm_job_fail(comm->job, comm->members[comm->rank].world, status, message, true);
    }
    return status;
}

by_status by_comm_failure(const by_comm *comm)
{
    return by__comm_job_failed(comm->job) ? (by_status)comm->job->block->status : BY_OK;
}

/* ---- last activity of a rank ---- */

/* The first word of an activity: the number of collectives, above the kind of the last one and
 * whether it is done. */
#define ACTIVITY_BITS 8

void by__comm_set_activity(by_comm *comm, bool done)
{
    by__comm_job *job = comm->job;
    if (comm->background) {
        return; /* on another thread: a rank's activity is that of its computing thread */
    }
    by__comm_activity *mine = &job->block->activity[job->ranks[job->rank].near];
    uint64_t text[BY__COMM_WHAT / 8];
    memcpy(text, comm->called.what, sizeof text);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(text); i++) {
        atomic_store_explicit(&mine->words[1 + i], text[i], memory_order_relaxed);
    }
    uint64_t number = atomic_load_explicit(&mine->words[0], memory_order_relaxed) >> ACTIVITY_BITS;
    number += done ? 0 : 1;
    atomic_store_explicit(&mine->words[0],
                          number << ACTIVITY_BITS | (uint64_t)comm->called.kind << 1 |
                              (done ? 1 : 0),
                          memory_order_relaxed);
}

/* For a rank of this host: the number of collectives, and kind and name of the last one. */
static int read_activity(const by__comm_job *job, int world, uint64_t *number, bool *done,
                         char what[BY__COMM_WHAT])
{
    const by__comm_activity *its = &job->block->activity[job->ranks[world].near];
    uint64_t words[1 + BY__COMM_WHAT / 8];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        words[i] = atomic_load_explicit(&its->words[i], memory_order_relaxed);
    }
    memcpy(what, words + 1, BY__COMM_WHAT);
    what[BY__COMM_WHAT - 1] = '\0';
    *number = words[0] >> ACTIVITY_BITS;
    *done = (words[0] & 1) != 0;
    return (int)(words[0] >> 1 & ((1u << (ACTIVITY_BITS - 1)) - 1));
}

void by_comm_last(const by_comm *comm, uint64_t *number, char *text, size_t size)
{
    char what[BY__COMM_WHAT];
    bool done;
    int kind = read_activity(comm->job, comm->job->rank, number, &done, what);
    (void)snprintf(text, size, "%s%s \"%s\"", done ? "" : "waits in ", by__comm_kind_name(kind),
                   what);
    if (kind == BY__COMM_NOTHING && size > 0) {
        text[0] = '\0';
    }
}

/* Formats what a rank did last, as far as it is known. */
static void describe_last(char text[160], by_comm *comm, int rank)
{
    const by__comm_member *member = &comm->members[rank];
    char what[BY__COMM_WHAT];
    if (member->near < 0) {
        const by__comm_header *last = &by__comm_record_of(comm, rank)->header;
        if (last->sequence == 0) {
            (void)snprintf(text, 160, "nothing was heard of it");
            return;
        }
        (void)snprintf(text, 160, "the last that was heard of it: %s \"%s\"",
                       by__comm_kind_name(last->kind), last->what);
        return;
    }
    uint64_t number;
    bool done;
    int kind = read_activity(comm->job, member->world, &number, &done, what);
    if (kind == BY__COMM_NOTHING) {
        (void)snprintf(text, 160, "it has not communicated yet");
    } else {
        (void)snprintf(text, 160, "%s %s \"%s\"",
                       done ? "the last thing that it did:" : "it waits in",
                       by__comm_kind_name(kind), what);
    }
}

by_status by__comm_late_error(by_comm *comm, int rank, by_error *error)
{
    char last[160];
    describe_last(last, comm, rank);
    return by_error_set(error, BY_EPEER,
                        "rank %d (%s) did not %s %s \"%s\" (collective %llu) in %g s; %s", rank,
                        by_comm_host(comm, rank), comm->entered ? "finish its part of" : "come to",
                        by__comm_kind_name(comm->called.kind), comm->called.what,
                        (unsigned long long)comm->called.sequence, comm->job->timeout, last);
}

/* ---- waiting ---- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

void by__comm_wake(_Atomic uint32_t *word, _Atomic uint32_t *waiters)
{
    if (atomic_load(waiters) != 0) {
        (void)syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

static void nap(_Atomic uint32_t *word, _Atomic uint32_t *waiters, uint32_t seen, double seconds)
{
    struct timespec time = {0, (long)(seconds * 1e9)};
    if (word == NULL) {
        (void)nanosleep(&time, NULL);
        return;
    }
    atomic_fetch_add(waiters, 1);
    if (atomic_load(word) == seen) {
        (void)syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, &time, NULL, 0);
    }
    atomic_fetch_sub(waiters, 1);
}

by__comm_pause by__comm_pause_once(by_comm *comm, _Atomic uint32_t *word, _Atomic uint32_t *waiters,
                                   uint32_t seen, int round)
{
    by__comm_job *job = comm->job;
    bool far = job->link->pump != NULL;
    int spins = comm->spins ? SPINS : 0;
    if (far && (round < YIELDS || round % 16 == 0 || round >= spins)) {
        job->link->pump(job);
    }
    if (by__comm_job_failed(job)) {
        return BY__PAUSE_FAILED;
    }
    if (round < spins) {
        relax();
    } else if (round < spins + YIELDS) {
        (void)sched_yield();
    } else if (by__now() > comm->deadline) {
        return BY__PAUSE_LATE;
    } else {
        nap(word, waiters, seen, far ? NAP_FAR : NAP_NEAR);
    }
    return BY__PAUSE_AGAIN;
}

void by__comm_step(by_comm *comm)
{
    by__comm_slot *slot = by__comm_slot_of(comm, comm->my_near);
    atomic_store(&slot->phase, ++comm->phase);
    by__comm_wake(&slot->phase, &slot->waiters);
}

/* Waits until the phase of a near rank has reached this rank's. */
static by_status await_rank(by_comm *comm, int rank, by_error *error)
{
    by__comm_slot *slot = by__comm_slot_of(comm, comm->members[rank].near);
    double began = 0.0;
    by_status status = BY_OK;
    for (int round = 0;; round++) {
        uint32_t seen = atomic_load(&slot->phase);
        if ((int32_t)(seen - comm->phase) >= 0) {
            break;
        }
        if (round == 0) {
            began = by__now();
            comm->deadline = began + comm->job->timeout;
        }
        by__comm_pause pause = by__comm_pause_once(comm, &slot->phase, &slot->waiters, seen, round);
        if (pause != BY__PAUSE_AGAIN) {
            status = pause == BY__PAUSE_LATE ? by__comm_late_error(comm, rank, error)
                                             : by__comm_failed_error(comm->job, error);
            break;
        }
    }
    if (began > 0.0) {
        comm->counters.waited += by__now() - began;
    }
    return status;
}

by_status by__comm_await_all(by_comm *comm, by_error *error)
{
    for (int i = 0; i < comm->near_count; i++) {
        BY_TRY(await_rank(comm, comm->near[i], error));
    }
    return BY_OK;
}

/* ---- messages ---- */

/* Size of the messages that data are sent in. Before a message of more than 64 KiB MPI libraries
 * perform a handshake with the receiver, at least over TCP, which costs a round trip; short data
 * are sent in pieces below that limit. Long data are not, since nothing would bound what is queued
 * at the receiver. */
static size_t message_bytes(size_t bytes, uint32_t tag)
{
    enum {
        PIECE = 60 << 10,
        SHORT_MESSAGE = 1 << 20,
        LONG_PIECE = 1 << 30
    }; /* MPI counts in int */
    /* The receiver of a record has room for more than is sent. */
    return bytes <= SHORT_MESSAGE && tag != BY__COMM_TAG_RECORD ? PIECE : LONG_PIECE;
}

by_status by__comm_post(by_comm *comm, by__comm_flight *flight, bool receive, int rank,
                        uint32_t tag, void *data, size_t bytes, by_error *error)
{
    size_t most = message_bytes(bytes, tag);
    int world = comm->members[rank].world;
    flight->job = comm->job;
    for (size_t at = 0; at < bytes; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;
        BY_TRY(by__reserve((void **)&flight->entries, &flight->capacity, flight->count + 1,
                           sizeof *flight->entries, error));
        flight->entries[flight->count] = (by__comm_flight_entry){world, receive, false};
        BY_TRY(comm->job->link->post(flight, receive, world, comm->id * BY__COMM_TAGS + tag,
                                     (unsigned char *)data + at, n, error));
        flight->count++;
        flight->left++;
    }
    if (!receive) {
        comm->counters.bytes_sent += bytes;
    }
    return BY_OK;
}

/* The rank at the other end of the first message in flight. */
static int late_rank(const by_comm *comm, const by__comm_flight *flight)
{
    for (size_t i = 0; i < flight->count; i++) {
        for (int r = 0; !flight->entries[i].done && r < comm->size; r++) {
            if (comm->members[r].world == flight->entries[i].world) {
                return r;
            }
        }
    }
    return comm->rank;
}

by_status by__comm_wait_all(by_comm *comm, by__comm_flight *flight, by_error *error)
{
    double began = 0.0;
    by_status status = BY_OK;
    for (int round = 0; flight->left > 0; round++) {
        size_t left = flight->left;
        status = comm->job->link->test(flight, error);
        if (status != BY_OK || flight->left == 0) {
            break;
        }
        if (round == 0 || flight->left < left) {
            double now = by__now();
            began = round == 0 ? now : began;
            comm->deadline = now + comm->job->timeout;
            round = 0;
        }
        by__comm_pause pause = by__comm_pause_once(comm, NULL, NULL, 0, round);
        if (pause != BY__PAUSE_AGAIN) {
            status = pause == BY__PAUSE_LATE
                         ? by__comm_late_error(comm, late_rank(comm, flight), error)
                         : by__comm_failed_error(comm->job, error);
            break;
        }
    }
    if (began > 0.0) {
        comm->counters.waited += by__now() - began;
    }
    if (status == BY_OK) {
        flight->count = 0;
    }
    return status;
}
