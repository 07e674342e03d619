/* comm: communicators, their collectives, and the mesh.
 *
 * What it is for: exchange of data between the ranks of a job, however they were started. The
 * algorithms are written once, over a by__comm_link, which moves bytes in two ways:
 *
 *   near ranks (one host)   share a block of memory, in which they publish what they are about to
 *                           do and wait for one another, and read and write each other's buffers:
 *                           as pointers (threads of one process) or by process_vm_readv and writev;
 *   far ranks               exchange messages (MPI).
 *
 * A collective (by__comm_enter) begins with a record that every rank publishes: a header, which the
 * ranks compare, and a payload. Data that fit into the payload need nothing else, so small
 * collectives cost one exchange. For larger data the header says where they are. Each rank counts
 * its progress in a phase (by__comm_step) that near ranks wait for (by__comm_await_all): "I
 * have arrived and my data may be read", "I no longer access another rank's memory".
 *
 * Types: by__comm_job, shared by the communicators of one rank (link, ranks of the world, failure);
 * by__comm_block, the memory that the near ranks of one communicator share; by__comm_flight,
 * messages in flight; by__comm_holder_plan, a sum over buffers that ranks hold.
 *
 * Who owns what: a communicator holds a reference to its job and its block, and scratch memory that
 * grows to what the largest call needed. Buffers belong to the caller; other ranks access them only
 * during the call.
 *
 * Failure: the first rank that fails writes the reason into the job's block and tells far ranks;
 * all calls on all communicators of the job then return BY_EPEER with that text. There is no
 * recovery.
 *
 * Never put here: anything that knows of graphs, parameters, steps or files.
 */
#ifndef BY_COMM_COMM_H
#define BY_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "banyan/comm.h"
#include "base/base.h"
#include "base/sum_tree.h"

#define BY__COMM_PAYLOAD 4096 /* least size in bytes of a record's payload */
#define BY__COMM_WHAT    64
#define BY__COMM_HOST    64
#define BY__COMM_DEPTH   16 /* segments of a sum in flight to a far rank */
#define BY__COMM_RING    16 /* sends to one rank that were not received yet */

typedef enum by__comm_kind {
    BY__COMM_NOTHING = 0,
    BY__COMM_ALL_REDUCE,
    BY__COMM_REDUCE_SCATTER,
    BY__COMM_REDUCE_HOLDERS,
    BY__COMM_ALL_GATHER,
    BY__COMM_BROADCAST,
    BY__COMM_ALL_TO_ALL,
    BY__COMM_BARRIER,
    BY__COMM_SPLIT,
    BY__COMM_CLOSE,
    BY__COMM_SEND,
    BY__COMM_RECEIVE,
    BY__COMM_KINDS
} by__comm_kind;

const char *by__comm_kind_name(int kind);

/* ---- links ---- */

typedef struct by__comm_job by__comm_job;
typedef struct by__comm_flight by__comm_flight;

/* Tells other ranks of this host how to find a region of shared memory. */
typedef struct by__comm_region_handle {
    uint64_t words[4];
} by__comm_region_handle;

typedef struct by__comm_link {
    const char *name;
    bool direct; /* near ranks are threads of this process */
    /* Creates zeroed memory for the near ranks; others attach with the handle while the creator has
     * it. */
    by_status (*region_create)(by__comm_job *job, size_t bytes, void **out,
                               by__comm_region_handle *handle, by_error *error);
    by_status (*region_attach)(by__comm_job *job, const by__comm_region_handle *handle,
                               size_t bytes, void **out, by_error *error);
    void (*region_release)(void *region, size_t bytes);
    /* Copy memory from and to a near rank. NULL in links that are direct. */
    by_status (*read)(by__comm_job *job, int world, void *out, uint64_t address, size_t bytes,
                      by_error *error);
    by_status (*write)(by__comm_job *job, int world, const void *data, uint64_t address,
                       size_t bytes, by_error *error);
    /* The rest is NULL in links without far ranks. Adds a message to the flight; `data` must not be
     * changed or read until it is done. Messages with one pair of ranks and tag arrive in
     * order. */
    by_status (*post)(by__comm_flight *flight, bool receive, int world, uint32_t tag, void *data,
                      size_t bytes, by_error *error);
    /* Marks the messages that are done. */
    by_status (*test)(by__comm_flight *flight, by_error *error);
    /* Cancels those that have not. */
    void (*cancel)(by__comm_flight *flight);
    /* Makes progress on messages, and checks for failures of other ranks. */
    void (*pump)(by__comm_job *job);
    /* Tells far ranks of the failure in the job's block. */
    void (*notify_failure)(by__comm_job *job);
    /* The library's own all-reduce over the world, of at most INT_MAX elements; NULL: not used. */
    by_status (*native)(by__comm_job *job, float *data, size_t count, by_error *error);
    /* Closes the link, after all communicators. */
    void (*close)(by__comm_job *job);
} by__comm_link;

/* Messages in flight, to and from far ranks. */
typedef struct by__comm_flight_entry {
    int world;
    bool receive;
    bool done;
} by__comm_flight_entry;

struct by__comm_flight {
    by__comm_job *job;
    by__comm_flight_entry *entries;
    size_t capacity;
    size_t count;
    size_t left;
    void *requests; /* owned by the link, one for each entry */
    size_t request_capacity;
};

/* ---- the job ---- */

typedef struct by__comm_rank {
    char host[BY__COMM_HOST];
    int near;  /* index among the ranks of this host; -1: far */
    int group; /* equal for ranks that are near to each other */
} by__comm_rank;

/* A rank's last call, written by it and read by others for error messages. */
typedef struct by__comm_activity {
    _Atomic uint64_t words[1 + BY__COMM_WHAT / 8];
} by__comm_activity;

/* Shared by the near ranks of the world. */
typedef struct by__comm_job_block {
    _Atomic uint32_t failed; /* 0: no, 1: being written, 2: the following members are set */
    int32_t rank;            /* of the world */
    int32_t status;
    char message[sizeof((by_error *)0)->message];
    _Atomic uint32_t gone; /* number of ranks that have closed a failed job */
    by__comm_activity activity[];
} by__comm_job_block;

struct by__comm_job {
    const by__comm_link *link;
    _Atomic int users; /* communicators */
    int rank;
    int size;
    by__comm_rank *ranks;
    by__comm_job_block *block;
    size_t block_bytes;
    uint32_t ids;     /* number of communicators that tags can distinguish */
    uint32_t next_id; /* id of the next communicator; used by one thread at a time, as splits are */
    double timeout;
    _Atomic uint64_t
        nanoseconds; /* time spent in calls on communicators that are not in the background */
    pthread_mutex_t watching; /* held while the watcher is called, and to set it */
    by_comm_watcher *watcher; /* NULL: none */
    void *watcher_user;
    void *state; /* owned by the link */
};

size_t by__comm_job_block_bytes(int near_ranks);
/* Records why the job failed, unless a failure is already recorded. `tell`: also tells far
 * ranks. */
void by__comm_job_fail(by__comm_job *job, int rank, by_status status, const char *message,
                       bool tell);
bool by__comm_job_failed(const by__comm_job *job);
void by__comm_job_release(by__comm_job *job);

/* ---- communicators ---- */

typedef struct by__comm_header {
    uint64_t sequence;
    uint64_t bytes; /* of all data */
    uint64_t check; /* hash of everything else that must be equal: slices, plans */
    uint64_t address;
    uint64_t target; /* address where others write their parts of the result */
    int32_t kind;
    int32_t dtype;
    int32_t root;
    uint32_t payload; /* bytes of the payload */
    char what[BY__COMM_WHAT];
} by__comm_header;

typedef struct by__comm_record {
    by__comm_header header;
    unsigned char payload[];
} by__comm_record;

/* What a near rank publishes. Two records follow it: that of this collective and that of the
 * previous one, which slower ranks may still be reading. */
typedef struct by__comm_slot {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t phase;
    _Atomic uint32_t waiters;
    _Atomic uint32_t reading; /* number of threads that read memory of other threads */
} by__comm_slot;

/* A send that was not received yet. */
typedef struct by__comm_send_slot {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t state; /* 0: free, 1: sent, 2: received */
    int32_t tag;
    uint64_t order;
    uint64_t address;
    uint64_t bytes;
    int32_t dtype;
    char what[BY__COMM_WHAT];
} by__comm_send_slot;

typedef struct by__comm_send_ring {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t changes;
    _Atomic uint32_t waiters;
    by__comm_send_slot slots[BY__COMM_RING];
} by__comm_send_ring;

/* A send to a far rank: a description, and the data. */
typedef struct by__comm_pending_send {
    int to;
    void *copy; /* NULL: the slot is free */
    uint64_t order;
    by__comm_flight flight;
} by__comm_pending_send;

/* The slots, followed by near x near rings, [from * near + to]. */
typedef struct by__comm_block by__comm_block;

/* Owner of a holder of which each rank has the elements of its own slice only. */
#define BY__EVERY_RANK (-1)

/* A sum over buffers, the holders, that ranks hold: the merges of the sum tree over holders. All
 * ranks have the same plan. */
typedef struct by__comm_holder_plan {
    int holders;
    const int *owners; /* [holders] ranks of the communicator, or BY__EVERY_RANK */
    const by__sum_merge *merges;
    size_t merge_count;
    int root; /* holder that has the sum after all merges */
} by__comm_holder_plan;

typedef struct by__comm_member {
    int world;
    int near; /* index in the block; -1: far */
} by__comm_member;

struct by_comm {
    by__comm_job *job;
    uint32_t id;
    int rank;
    int size;
    by__comm_member *members;
    int near_count;
    int *near; /* [near_count] ranks on this host */
    int my_near;
    int hosts;       /* number of hosts of the members, ordered by their first ranks */
    int *host_of;    /* [size] host of each rank */
    int *host_begin; /* [hosts + 1] indices into host_ranks */
    int *host_ranks; /* [size] ranks by host */
    unsigned char *block;
    size_t block_bytes;
    size_t record_bytes;
    size_t payload_bytes;
    uint64_t sequence;
    uint32_t phase;
    double deadline;            /* of the current wait */
    by__comm_header called;     /* the collective in progress */
    double began;               /* when it was called; 0: none in progress */
    bool entered;               /* all ranks have arrived, */
    double ready;               /* at this time */
    unsigned char *far_records; /* [size] records of far ranks */
    by__comm_record *mine;      /* this rank's record, for far ranks */
    by__sum_merge *merges;      /* merges of the plan with one holder per rank */
    int *owners;
    by__comm_holder_plan plan;
    size_t *slices; /* [size] slices of an all-reduce */
    size_t *begin;  /* [size] offsets and */
    size_t *bytes;  /* [size] bytes of what ranks gather */
    by__comm_flight sends;
    by__comm_flight receives[BY__COMM_DEPTH];
    by__comm_flight relays[BY__COMM_DEPTH]; /* sends for sums of far ranks */
    by__comm_flight results;                /* receives of their results */
    by__comm_pending_send *pending;         /* sends of by_comm_send to far ranks */
    size_t pending_sends;
    size_t pending_room;
    void **near_copies; /* [near_count * BY__COMM_RING] */
    uint64_t send_order;
    void *scratch;
    size_t scratch_bytes;
    unsigned char *stages; /* buffers for messages of sums */
    size_t stage_bytes;
    by_comm_counters counters;
    bool background; /* by__comm_set_background */
    bool spins;      /* there are enough cores for ranks to spin */
};

/* Makes a communicator of `count` ranks of the world, `worlds`, which include this one. Its block
 * does not exist yet. */
by_status by__comm_make(by_comm **out, by__comm_job *job, const int *worlds, int count, uint32_t id,
                        by_error *error);
/* Bytes of the block of a communicator with `size` ranks, `near_ranks` of them on this host. */
size_t by__comm_block_bytes(int size, int near_ranks);
/* Frees it without telling other ranks. */
void by__comm_free(by_comm **comm);
by_status by__comm_scratch(by_comm *comm, size_t bytes, void **out, by_error *error);

/* Begins every collective: publishes header (kind, bytes, check, dtype, root, address, target) and
 * payload, waits for all ranks, and compares the headers. */
by_status by__comm_enter(by_comm *comm, const by__comm_header *header, const char *what,
                         const void *payload, size_t payload_bytes, by_error *error);
/* Records that the ranks that the call waited for have arrived. Called by by__comm_enter, and by
 * functions that move data without it. */
void by__comm_arrive(by_comm *comm);
/* Ends every call: adds its time, and makes an error known to the job, including one from before
 * by__comm_enter (an argument that is wrong on one rank). */
by_status by__comm_leave(by_comm *comm, by_status status, by_error *error);
const by__comm_record *by__comm_record_of(const by_comm *comm, int rank);

/* Seconds that this rank has spent in completed calls, on all communicators of its job except those
 * marked by by__comm_set_background, which a separate thread uses concurrently with the threads
 * that wait for their calls. */
double by__comm_spent(const by_comm *comm);
void by__comm_set_background(by_comm *comm);

/* Advances this rank's phase; near ranks then see everything written before. */
void by__comm_step(by_comm *comm);
/* Waits until the phases of all near ranks have reached this rank's. */
by_status by__comm_await_all(by_comm *comm, by_error *error);

/* Bracket accesses to the memory of near ranks. A rank that leaves because the job failed waits
 * until no thread is between them, so that no memory is freed under a reader. BY_EPEER: the job
 * failed. */
by_status by__comm_begin_access(by_comm *comm, by_error *error);
void by__comm_end_access(by_comm *comm);
/* Waits for the readers of a failed job. */
void by__comm_wait_readers(by_comm *comm);
/* Memory of a near rank, between begin_access and end_access: in place, or copied to `scratch`;
 * NULL: the copy failed. */
const void *by__comm_map_remote(by_comm *comm, int rank, uint64_t address, void *scratch,
                                size_t bytes, by_error *error);
/* Copies to memory of a near rank, between begin_access and end_access. */
by_status by__comm_write(by_comm *comm, int rank, const void *data, uint64_t address, size_t bytes,
                         by_error *error);
/* Copies memory of a near rank; calls both itself. */
by_status by__comm_read(by_comm *comm, int rank, void *out, uint64_t address, size_t bytes,
                        by_error *error);

/* Tags of a communicator's messages: data, results of sums, records, and those of by_comm_send. */
enum {
    BY__COMM_TAG_DATA = 0,
    BY__COMM_TAG_RESULT,
    BY__COMM_TAG_RECORD,
    BY__COMM_TAG_SEND,
    BY__COMM_TAGS = 8192
};
#define BY__COMM_MAX_TAG (BY__COMM_TAGS - BY__COMM_TAG_SEND - 1)
by_status by__comm_post(by_comm *comm, by__comm_flight *flight, bool receive, int rank,
                        uint32_t tag, void *data, size_t bytes, by_error *error);
/* Waits until all messages are done, and clears the flight. */
by_status by__comm_wait_all(by_comm *comm, by__comm_flight *flight, by_error *error);

/* Gathers between hosts: sends `mine` to all far hosts, and receives the data of far ranks into
 * `all`, and into that of near ranks (their header's target), at `begin` of each rank. The caller
 * exchanges the data of near ranks.
 */
by_status by__comm_spread(by_comm *comm, const void *mine, void *all, const size_t *begin,
                          const size_t *bytes, by_error *error);

/* Result of a pause; `round` counts the pauses of one wait. */
typedef enum by__comm_pause {
    BY__PAUSE_AGAIN = 0,
    BY__PAUSE_FAILED,
    BY__PAUSE_LATE
} by__comm_pause;
/* Sleeps briefly, at most until *word (may be NULL) differs from `seen`. */
by__comm_pause by__comm_pause_once(by_comm *comm, _Atomic uint32_t *word, _Atomic uint32_t *waiters,
                                   uint32_t seen, int round);
void by__comm_wake(_Atomic uint32_t *word, _Atomic uint32_t *waiters);
/* Fill the error of a failed job, and of a rank that is late. */
by_status by__comm_failed_error(const by__comm_job *job, by_error *error);
by_status by__comm_late_error(by_comm *comm, int rank, by_error *error);
void by__comm_set_activity(by_comm *comm, bool done);
by__comm_slot *by__comm_slot_of(const by_comm *comm, int near);
by__comm_send_ring *by__comm_send_ring_of(const by_comm *comm, int from, int to);
/* The first message of a ring with a tag, or NULL; *seen: the ring's `changes` at that time. */
by__comm_send_slot *by__comm_first_sent(by__comm_send_ring *ring, int tag, uint32_t *seen);

/* ---- sums ---- */

typedef struct by__comm_sum {
    const by__comm_holder_plan *plan;
    by_dtype dtype;
    size_t count; /* elements of all slices */
    const size_t *slices;
    const size_t *first;     /* offset of each slice; NULL: contiguous */
    const void *const *mine; /* buffers of this rank's holders, in ascending order */
    void *own;               /* destination of this rank's slice */
    void *all;               /* NULL, or destination of all slices; own is within it */
    const int *kept;         /* see by__comm_holder_sum */
    int kept_count;
    float *const *results;
    by__comm_kind kind;
    const char *what;
} by__comm_sum;

by_status by__comm_reduce(by_comm *comm, const by__comm_sum *sum, by_error *error);

/* Number of this rank among those of its host; 0 without a communicator. */
int by__comm_local_rank(const by_comm *comm);

/* Offset of a rank's slice. */
size_t by__comm_slice_first(const by__comm_sum *sum, int rank);

/* The sum of the holders' buffers, in the order of the plan's merges. */
typedef struct by__comm_holder_sum {
    const by__comm_holder_plan *plan;
    /* Buffers of this rank's holders, and of holders of which every rank has a slice, in ascending
     * order of holders. */
    float *const *mine;
    /* Each rank gets the sum of its slice at the slice's place here, and with `gather` the sums of
     * all slices. It may be one of the rank's own buffers, and must not overlap any other. */
    float *out;
    size_t count;         /* f32 of each buffer and of out */
    const size_t *slices; /* elements of each rank's slice, in total `count` ... */
    const size_t *first;  /* ... and their offsets; NULL: contiguous, in the order of ranks */
    bool gather;
    /* Partial sums: the holders whose values after the merges are wanted (kept_count of them,
     * ascending), and where this rank's slice of each goes; without `out` and `gather`. results[i]
     * may be the buffer of a holder of every rank that is kept[i], or that is merged into one of
     * kept[0] .. kept[i]. */
    const int *kept;
    int kept_count;
    float *const *results;
    const char *what;
} by__comm_holder_sum;

/* Collective, with the same plan, count, slices, gather and kept on all ranks. Holders that are in
 * no merge and are not wanted are not read and may be NULL. */
by_status by__comm_reduce_holders(by_comm *comm, const by__comm_holder_sum *sum, by_error *error);
/* The default slices: as equal as multiples of 16 elements allow. */
void by__comm_even_slices(size_t *slices, size_t count, int ranks);

/* ---- backends ---- */

by_status by__comm_open_mpi(by_comm **out, double timeout, by_error *error);
/* Returns true if mpirun, srun or another MPI launcher started this process. */
bool by__comm_launched(void);

#endif
