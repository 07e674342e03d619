/* Profiles: when the nodes of programs ran, summed by operation, layer or shape and compared with
 * the machine's roofline; and the same as a trace for https://ui.perfetto.dev. With several ranks
 * also what they exchanged, how long they waited for each other, and one trace of all of them.
 *
 * A profile attaches to programs by their hooks; a program that is not watched runs at full speed.
 */
#ifndef BANYAN_PROFILE_H
#define BANYAN_PROFILE_H

#include <stdint.h>

#include "banyan/comm.h"
#include "banyan/machine.h"
#include "banyan/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A recording of program runs. */
typedef struct by_profile by_profile;

/* Part of a training step that a node belongs to. */
typedef enum by_profile_part {
    BY_PROFILE_FORWARD = 0,
    BY_PROFILE_BACKWARD,
    BY_PROFILE_UPDATE,
    BY_PROFILE_PARTS
} by_profile_part;

/* What a program does in a training step. */
typedef enum by_profile_work {
    BY_PROFILE_WORK_UPDATE = 0, /* all nodes belong to the update */
    BY_PROFILE_WORK_MODEL,      /* nodes are forward or backward as recorded in the graph */
    BY_PROFILE_PASS_FORWARD,    /* forward pass of a micro-batch in a pipeline stage */
    BY_PROFILE_PASS_BACKWARD,   /* backward pass of a micro-batch in a pipeline stage */
    BY_PROFILE_PASS_WEIGHTS     /* gradients of weights, if computed separately */
} by_profile_work;

/* Makes an empty profile. */
BY_API by_status by_profile_open(by_profile **out, by_error *error);
/* Closes a profile and removes its hooks from the programs, which must still be open. */
BY_API void by_profile_close(by_profile **profile);

/* Starts recording the nodes of a program. `name` is copied. */
BY_API by_status by_profile_watch(by_profile *profile, by_program *program, const char *name,
                                  by_profile_work work, by_error *error);
/* Starts recording what this rank exchanges with others in the job of `comm`, which must stay open
 * until the profile is closed and have no other watcher. */
BY_API void by_profile_watch_comm(by_profile *profile, by_comm *comm);
/* Records a span of the caller's own, such as a step ("step") or a wait. Times are by_clock() in
 * seconds. */
BY_API by_status by_profile_span(by_profile *profile, const char *name, double begin, double end,
                                 by_error *error);
/* Discards what has been recorded but keeps watching; for use after a warm-up step. */
BY_API void by_profile_clear(by_profile *profile);

/* How nodes are grouped. */
typedef enum by_profile_key {
    BY_PROFILE_BY_OP = 0, /* "matmul", "attention_grad", ... */
    /* "block 0", ..., "outside blocks", and names of programs that are updates. */
    BY_PROFILE_BY_LAYER,
    BY_PROFILE_BY_SHAPE /* by_program_node_signature: equal work */
} by_profile_key;

/* Nodes with the same key, over all recorded runs. */
typedef struct by_profile_row {
    char *name;
    const char *kernel;                    /* kernel of the first of them */
    by_op op;                              /* operation of the first of them */
    bool collective;                       /* ran concurrently with other nodes: its seconds are
                                              not part of their sum */
    int nodes;                             /* number of nodes */
    uint64_t runs;                         /* number of their runs */
    double seconds;                        /* total time */
    double part_seconds[BY_PROFILE_PARTS]; /* the same by part of the step */
    double median_seconds;                 /* of one run of a node */
    double flops;                          /* of all runs */
    double bytes;                          /* of all runs, read and written */
    /* Sum of by_machine_roof over all runs: seconds / roof_seconds is the possible speed-up. */
    double roof_seconds;
} by_profile_row;

/* Sums up the recording by `key`, longest first (layers: in order of their first run). Release the
 * rows with by_profile_rows_free. */
BY_API by_status by_profile_rows(by_profile_row **rows, size_t *count, const by_profile *profile,
                                 by_profile_key key, const by_machine *machine, by_error *error);
BY_API void by_profile_rows_free(by_profile_row *rows, size_t count);

/* Writes a Chrome trace (JSON) of complete events: spans contain runs of programs, which contain
 * nodes with kernel, block, shapes and GFLOP/s; collectives have a track of their own, and a
 * counter shows the live bytes of activations. */
BY_API by_status by_profile_trace(const by_profile *profile, const char *path, by_error *error);

/* ---- several ranks ---- */

/* Where the seconds of a step went on one rank. Nodes ran for `compute`, exchanges for
 * hidden + exposed; compute + exposed is the time in which either ran. */
typedef struct by_profile_step {
    double seconds; /* duration of the step */
    double compute; /* seconds during which nodes ran */
    double hidden;  /* exchanges during which nodes ran */
    double exposed; /* exchanges during which no node ran ... */
    double waiting; /* ... and the part of it until all ranks had arrived */
    /* In a pipeline: from the first pass of any of its ranks to the last, minus what this rank
     * computed. */
    double bubble;
    double passes[3]; /* seconds by kind of pass, from BY_PROFILE_PASS_FORWARD on */
} by_profile_step;

/* Summary of a rank. */
typedef struct by_profile_rank {
    char host[64];
    char place[96];       /* in the layout: "pipeline 0, data 1" */
    double clock;         /* seconds by which its by_clock() is ahead of rank 0's */
    by_profile_step mean; /* mean over its steps */
    uint64_t planned;     /* planned bytes of memory */
    uint64_t resident;    /* resident bytes of memory */
} by_profile_rank;

/* What a rank contributes about itself. */
typedef struct by_profile_place {
    const char *place; /* in the layout: "pipeline 0, data 1" */
    int pipeline;      /* equal on the ranks of one pipeline; -1: none */
    uint64_t planned;  /* planned bytes of memory */
    uint64_t resident; /* resident bytes of memory */
} by_profile_place;

typedef struct by_profile_ranks by_profile_ranks;

/* Collective on the communicator of by_profile_watch_comm, whose ranks must have recorded the same
 * number of spans named "step": sums up on each rank and gathers on all. Stops recording exchanges.
 * Measures clock differences between hosts by the fastest of several round trips (as NTP, RFC
 * 5905). Returns BY_ESTATE if no communicator is watched or the numbers of steps differ. */
BY_API by_status by_profile_gather(by_profile_ranks **out, by_profile *profile,
                                   const by_profile_place *place, by_error *error);
BY_API void by_profile_ranks_close(by_profile_ranks **ranks);
/* Returns the number of ranks. */
BY_API int by_profile_rank_count(const by_profile_ranks *ranks);
/* Returns the summary of a rank. */
BY_API const by_profile_rank *by_profile_rank_of(const by_profile_ranks *ranks, int rank);
/* Returns the steps of a rank, in order, and sets *count to their number. */
BY_API const by_profile_step *by_profile_steps_of(const by_profile_ranks *ranks, int rank,
                                                  size_t *count);
/* Collective: writes the trace of all ranks to one file, by rank 0. Each rank is a process with a
 * track of nodes and one of exchanges, in which a slice marks the time spent waiting for other
 * ranks. Times are those of rank 0's clock. */
BY_API by_status by_profile_trace_ranks(const by_profile *profile, const by_profile_ranks *ranks,
                                        const char *path, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
