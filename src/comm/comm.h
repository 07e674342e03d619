/* comm: communicators, their collectives, and the mesh.
 *
 * What it is for: exchange of data between the ranks of a job, whichever way they are started. The
 * algorithms are written once, over a by__comm_link, which has two ways to move bytes:
 *
 *   near ranks (one host)   share a block of memory, in which they publish what they are about to
 *                           do and wait for one another, and read and write each other's buffers:
 *                           as pointers (threads of one process) or by process_vm_readv and writev;
 *   far ranks               exchange messages (MPI).
 *
 * A collective (by__comm_enter) begins with a record that every rank publishes: a header, which the
 * ranks compare, and a payload. Data that fit into the payload need nothing else, so small
 * collectives cost one exchange. For others the header says where the data are. Each rank counts
 * its progress in a phase (by__comm_step) that near ranks wait for (by__comm_await): "I am here and
 * my data may be read", "I touch nobody's memory any more".
 *
 * Types: by__comm_job, what the communicators of one rank share (link, ranks of the world,
 * failure); by__comm_block, the memory that the near ranks of one communicator share; by__flight,
 * messages under way; by__holder_plan, a sum over buffers that ranks hold.
 *
 * Who owns what: a communicator holds a reference to its job and its block, and scratch memory that
 * grows to what the largest call needed. Buffers are the caller's; other ranks touch them only
 * while the call lasts.
 *
 * Failure: the first rank that fails writes why into the job's block and tells far ranks; all calls
 * on all communicators of the job then return BY_EPEER with that text. Nothing is repaired.
 *
 * Never put here: anything that knows of graphs, parameters, steps or files.
 */
#ifndef BY_COMM_COMM_H
#define BY_COMM_COMM_H

#include <stdatomic.h>

#include "banyan/comm.h"
#include "base/base.h"
#include "base/sum_tree.h"

#define BY__COMM_PAYLOAD 4096 /* bytes that a record carries at least */
#define BY__COMM_WHAT    64
#define BY__COMM_HOST    64
#define BY__COMM_DEPTH   16 /* segments of a sum that are on their way to a far rank */
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
typedef struct by__flight by__flight;

/* How other ranks of this host find a region of shared memory. */
typedef struct by__comm_ticket {
    uint64_t words[4];
} by__comm_ticket;

typedef struct by__comm_link {
    const char *name;
    bool direct; /* near ranks are threads of this process */
    /* Zeroed memory for the near ranks; others attach with the ticket while the creator has it. */
    by_status (*region_create)(by__comm_job *job, size_t bytes, void **out, by__comm_ticket *ticket,
                               by_error *error);
    by_status (*region_attach)(by__comm_job *job, const by__comm_ticket *ticket, size_t bytes,
                               void **out, by_error *error);
    void (*region_release)(void *region, size_t bytes);
    /* Copies memory of a near rank, and to it. NULL in links that are direct. */
    by_status (*read)(by__comm_job *job, int world, void *out, uint64_t address, size_t bytes,
                      by_error *error);
    by_status (*write)(by__comm_job *job, int world, const void *data, uint64_t address,
                       size_t bytes, by_error *error);
    /* The rest is NULL in links that have no far ranks. Adds a message to the flight; `data` stays
     * as it is until it has landed. Messages of one pair of ranks and tag arrive in order. */
    by_status (*post)(by__flight *flight, bool receive, int world, uint32_t tag, void *data,
                      size_t bytes, by_error *error);
    /* Marks what has landed. */
    by_status (*test)(by__flight *flight, by_error *error);
    /* Gives up what has not. */
    void (*cancel)(by__flight *flight);
    /* Lets messages move, and takes in news of failures. */
    void (*pump)(by__comm_job *job);
    /* Tells far ranks what the job's block says. */
    void (*tell_failure)(by__comm_job *job);
    /* The library's own all-reduce over the world, of at most INT_MAX elements; NULL: none. */
    by_status (*native)(by__comm_job *job, float *data, size_t count, by_error *error);
    /* Ends the link, after all communicators. */
    void (*close)(by__comm_job *job);
} by__comm_link;

/* Messages under way, to and from far ranks. */
typedef struct by__flight_entry {
    int world;
    bool receive;
    bool landed;
} by__flight_entry;

struct by__flight {
    by__comm_job *job;
    by__flight_entry *entries;
    size_t capacity;
    size_t count;
    size_t left;
    void *requests; /* the link's own, as many as entries */
    size_t request_capacity;
};

/* ---- the job ---- */

typedef struct by__comm_rank {
    char host[BY__COMM_HOST];
    int near;  /* index among the ranks of this host, -1: far */
    int group; /* equal for ranks that are near to each other */
} by__comm_rank;

/* What a rank did last, written by it and read by others in error messages. */
typedef struct by__comm_activity {
    _Atomic uint64_t words[1 + BY__COMM_WHAT / 8];
} by__comm_activity;

/* Shared by the near ranks of the world. */
typedef struct by__comm_job_block {
    _Atomic uint32_t failed; /* 0: no, 1: being written, 2: what follows is set */
    int32_t rank;            /* of the world */
    int32_t status;
    char message[sizeof((by_error *)0)->message];
    _Atomic uint32_t gone; /* ranks that have closed a job that failed */
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
    uint32_t ids;     /* numbers of communicators that messages can tell apart */
    uint32_t next_id; /* of a communicator; used by one thread at a time, as splits are */
    double timeout;
    _Atomic uint64_t nanoseconds; /* spent in calls on communicators that are not `beside` */
    by_comm_watcher *watcher;     /* NULL: nobody */
    void *watcher_user;
    void *state; /* the link's own */
};

size_t by__comm_job_block_bytes(int near_ranks);
/* Writes down why the job failed, if nobody has. `tell`: also to far ranks. */
void by__comm_job_fail(by__comm_job *job, int rank, by_status status, const char *message,
                       bool tell);
bool by__comm_job_failed(const by__comm_job *job);
void by__comm_job_release(by__comm_job *job);

/* ---- communicators ---- */

typedef struct by__comm_header {
    uint64_t sequence;
    uint64_t bytes; /* of the whole data */
    uint64_t check; /* hash of what else must be equal: slices, plans */
    uint64_t address;
    uint64_t target; /* where others write their parts of the result */
    int32_t kind;
    int32_t dtype;
    int32_t root;
    uint32_t payload; /* bytes */
    char what[BY__COMM_WHAT];
} by__comm_header;

typedef struct by__comm_record {
    by__comm_header header;
    unsigned char payload[];
} by__comm_record;

/* What a near rank shows to others. Two records lie behind it: the one of this collective and that
 * of the one before, which slower ranks may still read. */
typedef struct by__comm_slot {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t phase;
    _Atomic uint32_t waiters;
    _Atomic uint32_t reading; /* memory of other threads */
} by__comm_slot;

/* A send that waits to be received. */
typedef struct by__comm_mail {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t state; /* 0: free, 1: sent, 2: received */
    int32_t tag;
    uint64_t order;
    uint64_t address;
    uint64_t bytes;
    int32_t dtype;
    char what[BY__COMM_WHAT];
} by__comm_mail;

typedef struct by__comm_box {
    _Alignas(BY_CACHE_LINE) _Atomic uint32_t changes;
    _Atomic uint32_t waiters;
    by__comm_mail mail[BY__COMM_RING];
} by__comm_box;

/* A send to a far rank: what comes and the data. */
typedef struct by__comm_letter {
    int to;
    void *copy; /* NULL: the place is free */
    uint64_t order;
    by__flight flight;
} by__comm_letter;

/* Slots, then boxes: near x near of them, [from * near + to]. */
typedef struct by__comm_block by__comm_block;

/* Owner of a holder of which every rank has the elements of its own slice, and no others. */
#define BY__EVERY_RANK (-1)

/* A sum over buffers, the holders, that ranks hold: the sum tree's merges over holders. All ranks
 * have the same plan. */
typedef struct by__holder_plan {
    int holders;
    const int *owners; /* [holders] ranks of the communicator, or BY__EVERY_RANK */
    const by__sum_merge *merges;
    size_t merge_count;
    int root; /* holder that has the sum after the merges */
} by__holder_plan;

typedef struct by__comm_member {
    int world;
    int near; /* index in the block, -1: far */
} by__comm_member;

struct by_comm {
    by__comm_job *job;
    uint32_t id;
    int rank;
    int size;
    by__comm_member *members;
    int near_count;
    int *near; /* [near_count] ranks of this host */
    int my_near;
    int hosts;       /* of the members, in the order of their first ranks */
    int *host_of;    /* [size] */
    int *host_begin; /* [hosts + 1] places in host_ranks */
    int *host_ranks; /* [size] */
    unsigned char *block;
    size_t block_bytes;
    size_t record_bytes;
    size_t payload_bytes;
    uint64_t sequence;
    uint32_t phase;
    double deadline;            /* of the wait under way */
    by__comm_header called;     /* the collective under way */
    double began;               /* when it was called, 0: none is under way */
    bool entered;               /* all ranks have come to it ... */
    double met;                 /* ... then */
    unsigned char *far_records; /* [size] records, those of far ranks */
    by__comm_record *mine;      /* my record, for far ranks */
    by__sum_merge *merges;      /* of the plan with one holder a rank */
    int *owners;
    by__holder_plan plan;
    size_t *slices; /* [size] of an all-reduce */
    size_t *begin;  /* [size] and */
    size_t *bytes;  /* [size] of what ranks gather */
    by__flight sends;
    by__flight receives[BY__COMM_DEPTH];
    by__flight relays[BY__COMM_DEPTH]; /* sends for far ranks' sums */
    by__flight results;                /* of them, to be received */
    by__comm_letter *letters;          /* sends of by_comm_send to far ranks */
    size_t letter_count;
    size_t letter_capacity;
    void **outbox; /* [near_count * BY__COMM_RING] */
    uint64_t mail_order;
    void *scratch;
    size_t scratch_bytes;
    unsigned char *stages; /* messages of sums */
    size_t stage_bytes;
    by_comm_counters counters;
    bool beside; /* by__comm_set_beside */
    bool spins;  /* there are cores enough for ranks that spin */
};

/* A communicator of `count` ranks of the world, `worlds`, of which this one is one. Its block is
 * not there yet. */
by_status by__comm_make(by_comm **out, by__comm_job *job, const int *worlds, int count, uint32_t id,
                        by_error *error);
/* Bytes of the block of a communicator with so many ranks, `near_ranks` of them on this host. */
size_t by__comm_block_bytes(int size, int near_ranks);
/* Frees it without a word to other ranks. */
void by__comm_free(by_comm **comm);
by_status by__comm_scratch(by_comm *comm, size_t bytes, void **out, by_error *error);

/* The first call of every collective: publishes header (kind, bytes, check, dtype, root, address,
 * target) and payload, waits for all ranks, and compares the headers. */
by_status by__comm_enter(by_comm *comm, const by__comm_header *header, const char *what,
                         const void *payload, size_t payload_bytes, by_error *error);
/* Whom the call waited for has come: by__comm_enter says so, and what moves data without it. */
void by__comm_meet(by_comm *comm);
/* The last: counts time, and makes an error known to the job, also one that came before the first
 * (an argument that is wrong on one rank). */
by_status by__comm_leave(by_comm *comm, by_status status, by_error *error);
const by__comm_record *by__comm_record_of(const by_comm *comm, int rank);

/* Seconds that this rank has spent in calls that are done, on all communicators of its job but
 * those that a thread uses beside the ones that wait for their calls. */
double by__comm_spent(const by_comm *comm);
void by__comm_set_beside(by_comm *comm);

/* Moves my phase on; near ranks have seen what was written before. */
void by__comm_step(by_comm *comm);
/* Waits until a near rank's phase is mine or a later one. */
by_status by__comm_await(by_comm *comm, int rank, by_error *error);
by_status by__comm_await_all(by_comm *comm, by_error *error);

/* Around what reads the memory of near ranks. A rank that leaves because the job failed waits until
 * no thread is in between, so that nothing is freed under a reader. BY_EPEER: the job failed. */
by_status by__comm_hold(by_comm *comm, by_error *error);
void by__comm_release(by_comm *comm);
/* Waits for the readers of a job that failed. */
void by__comm_let_go(by_comm *comm);
/* Memory of a near rank, held: in place, or copied to `scratch`; NULL: it failed. */
const void *by__comm_peek(by_comm *comm, int rank, uint64_t address, void *scratch, size_t bytes,
                          by_error *error);
/* Copies to memory of a near rank, held. */
by_status by__comm_write(by_comm *comm, int rank, const void *data, uint64_t address, size_t bytes,
                         by_error *error);
/* Copies memory of a near rank; holds it itself. */
by_status by__comm_read(by_comm *comm, int rank, void *out, uint64_t address, size_t bytes,
                        by_error *error);

/* Tags of messages of a communicator: data, results of sums, records, and those of by_comm_send. */
enum {
    BY__COMM_TAG_DATA = 0,
    BY__COMM_TAG_RESULT,
    BY__COMM_TAG_RECORD,
    BY__COMM_TAG_MAIL,
    BY__COMM_TAGS = 8192
};
#define BY__COMM_MAX_TAG (BY__COMM_TAGS - BY__COMM_TAG_MAIL - 1)
by_status by__comm_post(by_comm *comm, by__flight *flight, bool receive, int rank, uint32_t tag,
                        void *data, size_t bytes, by_error *error);
/* Waits until all messages have landed, and empties the flight. */
by_status by__comm_land(by_comm *comm, by__flight *flight, by_error *error);

/* The rank of a host that stands for it towards a far rank. */
int by__comm_relay(const by_comm *comm, int host, int far_rank);
/* Gathers between hosts: `mine` goes to all far hosts, and what far ranks have comes into `all`,
 * and that of near ranks (their header's target), at `begin` of each rank. The caller does what is
 * near.
 */
by_status by__comm_spread(by_comm *comm, const void *mine, void *all, const size_t *begin,
                          const size_t *bytes, by_error *error);

/* Waiting: `round` counts tries of one wait. */
typedef enum by__comm_pause {
    BY__PAUSE_AGAIN = 0,
    BY__PAUSE_FAILED,
    BY__PAUSE_LATE
} by__comm_pause;
/* Sleeps a little, at most until *word (may be NULL) is not `seen` any more. */
by__comm_pause by__comm_pause_once(by_comm *comm, _Atomic uint32_t *word, _Atomic uint32_t *waiters,
                                   uint32_t seen, int round);
void by__comm_wake(_Atomic uint32_t *word, _Atomic uint32_t *waiters);
/* The error of a job that failed, and that of a rank that is late. */
by_status by__comm_failed_error(const by__comm_job *job, by_error *error);
by_status by__comm_late_error(by_comm *comm, int rank, by_error *error);
void by__comm_set_activity(by_comm *comm, bool done);
by__comm_slot *by__comm_slot_of(const by_comm *comm, int near);
by__comm_box *by__comm_box_of(const by_comm *comm, int from, int to);

/* ---- sums ---- */

typedef struct by__comm_sum {
    const by__holder_plan *plan;
    by_dtype dtype;
    size_t count; /* of all slices */
    const size_t *slices;
    const size_t *first;     /* where each begins; NULL: one behind the other */
    const void *const *mine; /* buffers of this rank's holders, ascending */
    void *own;               /* where this rank's slice goes */
    void *all;               /* NULL, or where all slices go; own is its slice of it */
    const int *kept;         /* see by__holder_sum */
    int kept_count;
    float *const *results;
    by__comm_kind kind;
    const char *what;
} by__comm_sum;

by_status by__comm_reduce(by_comm *comm, const by__comm_sum *sum, by_error *error);

/* Where a rank's slice begins. */
size_t by__slice_first(const by__comm_sum *sum, int rank);

/* The sum of the holders' buffers, by the plan's merges. */
typedef struct by__holder_sum {
    const by__holder_plan *plan;
    /* Buffers of this rank's holders, and of those that every rank has a slice of, in ascending
     * order of holders. */
    float *const *mine;
    /* Each rank gets the sum of its slice in its place here, and with `gather` that of all slices.
     * It may be one of the rank's own buffers, and overlaps no other. */
    float *out;
    size_t count;         /* f32 of each buffer and of out */
    const size_t *slices; /* elements of each rank, together `count` ... */
    const size_t *first;  /* ... which begin here; NULL: one behind the other, as ranks are */
    bool gather;
    /* Sums that are not complete: the holders whose values are wanted when the merges have run
     * (kept_count of them, ascending), and where this rank's slice of each goes, without `out` and
     * `gather`. results[i] may be the buffer of a holder of every rank that is kept[i], or that is
     * merged into one of kept[0] .. kept[i]. */
    const int *kept;
    int kept_count;
    float *const *results;
    const char *what;
} by__holder_sum;

/* Collective, with the same plan, count, slices, gather and kept on all ranks. Holders that are in
 * no merge and are not wanted are not read and may be NULL. */
by_status by__comm_reduce_holders(by_comm *comm, const by__holder_sum *sum, by_error *error);
/* The usual slices: as equal as multiples of 16 elements allow. */
void by__comm_even_slices(size_t *slices, size_t count, int ranks);

/* ---- backends ---- */

by_status by__comm_open_mpi(by_comm **out, double timeout, by_error *error);
/* Whether mpirun, srun or another MPI launcher started this process. */
bool by__comm_launched(void);

#endif
