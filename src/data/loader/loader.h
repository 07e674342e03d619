/* What a loader is made of, shared by the caller's side (loader.c) and the threads'
 * (loader_fill.c).
 *
 * The threads and the caller share a ring of slots. `opened`, `filled` and `released` count batches
 * since the last seek: slot k % slots holds batch k while released <= k < opened, and the batch is
 * complete while k < filled. The caller's current batch is released by its next call.
 *
 * Work is taken in order, under the lock: first the counts of a batch, then its rows, some at a
 * time, then the next batch. A row's content depends on its place alone, so batches are the same
 * for any number of threads. When something fails, no more work is taken; what was taken before is
 * finished, and the failure that comes first in the order of the work is the one that is reported,
 * behind the batches before it: it, too, is the same for any number of threads. */
#ifndef BY_DATA_LOADER_LOADER_H
#define BY_DATA_LOADER_LOADER_H

#include "banyan/data.h"
#include "base/worker_thread.h"
#include "data/loader/order.h"

typedef struct by__loader_slot {
    by_array *arrays; /* views into the buffer */
    uint64_t sample;  /* first sample of the global batch */
    uint64_t targets; /* of this part, and of the global batch */
    uint64_t global_targets;
    double weight; /* of these targets; unused without weights */
    double global_weight;
    uint64_t damaged; /* of the global batch */
    uint64_t first_damaged;
    size_t next_row; /* that nobody has taken */
    size_t undone;   /* rows, and 1 for the counts above */
} by__loader_slot;

/* A thread, and what it alone uses. */
typedef struct by__loader_thread {
    by_loader *loader;
    pthread_t id; /* of all but the first, which is the worker's */
    void **rows;  /* addresses for the sample being filled */
    void *scratch;
    by__loader_order order;     /* of its epoch, */
    by__loader_windows windows; /* or this one, where the source says so */
    uint64_t epoch;
    bool has_epoch;
} by__loader_thread;

/* The first failure. */
typedef struct by__loader_fault {
    by_status status; /* BY_OK: none */
    uint64_t batch;
    size_t place; /* in the work of the batch: 0 its counts, 1 + i row i */
    by_error error;
} by__loader_fault;

struct by_loader {
    by_source *source;
    size_t batch;
    size_t first;
    size_t count;
    size_t most;   /* largest `count` that there is room for */
    size_t block;  /* samples that are contiguous in the global batch, */
    size_t stride; /* and distance between such blocks */
    uint64_t seed;
    by__loader_slot *slots;
    size_t slot_count;
    by_array *arrays;  /* of all slots */
    size_t *row_bytes; /* of each array of a sample */
    char *buffer;      /* memory of all slots' arrays */
    by__loader_thread *threads;
    size_t thread_count;
    size_t started; /* threads to join, the worker's included */

    /* The worker's lock guards what follows, and the slots' numbers; their arrays belong to the
     * threads until the batch is counted in `filled`, then to the caller until it is counted in
     * `released`. */
    by__base_worker worker;
    uint64_t base; /* first sample after the last seek */
    uint64_t opened;
    uint64_t filled;
    uint64_t released;
    size_t working;  /* pieces of work that threads have */
    bool is_seeking; /* no more work may be taken */
    bool is_held;    /* the caller holds batch `released` */
    bool has_ended;  /* no batch follows the opened ones */
    by__loader_fault fault;
    by_status status; /* of the fault, once all work before it is done */
    by_error error;
    by_loader_statistics statistics;
};

/* ---- loader_fill.c ---- */

/* The body of a thread, whose by__loader_thread is the argument. */
void *by__loader_run(void *thread);

#endif
