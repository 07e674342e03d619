/* Profiles: when the nodes of programs ran, summed up by operation, by layer and by shape, against
 * the machine's roofline; and the same as a trace for https://ui.perfetto.dev. On several ranks
 * also what they exchanged, how long they waited for each other, and one trace of all of them.
 *
 * A profile hangs on programs by their hooks. A program that no profile watches runs as fast as
 * ever.
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

typedef struct by_profile by_profile;

/* What the nodes of a program do in a training step. */
typedef enum by_profile_part {
    BY_PROFILE_FORWARD = 0,
    BY_PROFILE_BACKWARD,
    BY_PROFILE_UPDATE,
    BY_PROFILE_PARTS
} by_profile_part;

/* What a program is in a training step. */
typedef enum by_profile_work {
    BY_PROFILE_WORK_UPDATE = 0, /* all nodes are update */
    BY_PROFILE_WORK_MODEL,      /* nodes are forward or backward as the graph says */
    /* The same, of a micro-batch at a stage of a pipeline. */
    BY_PROFILE_PASS_FORWARD,
    BY_PROFILE_PASS_BACKWARD,
    BY_PROFILE_PASS_WEIGHTS /* the gradients of weights, where they are apart */
} by_profile_work;

BY_API by_status by_profile_open(by_profile **out, by_error *error);
/* Takes the hooks off the programs, which must still be open. */
BY_API void by_profile_close(by_profile **profile);

/* Records the nodes of a program from now on, on the thread that runs it. `name` is copied. */
BY_API by_status by_profile_watch(by_profile *profile, by_program *program, const char *name,
                                  by_profile_work work, by_error *error);
/* Records what this rank exchanges with others on the job of `comm`, which is open until the
 * profile is closed, and watched by no one else. */
BY_API void by_profile_watch_comm(by_profile *profile, by_comm *comm);
/* Records a span of the caller's own on the same thread: a step ("step"), a wait. Times are
 * by_clock's. */
BY_API by_status by_profile_span(by_profile *profile, const char *name, double begin, double end,
                                 by_error *error);
/* Forgets what was recorded, not what is watched: after a step that warms up. */
BY_API void by_profile_clear(by_profile *profile);

typedef enum by_profile_key {
    BY_PROFILE_BY_OP = 0, /* "matmul", "attention_grad", ... */
    BY_PROFILE_BY_LAYER,  /* "block 0", ...; "outside blocks"; the names of programs that are update
                           */
    BY_PROFILE_BY_SHAPE   /* by_program_node_signature: equal work */
} by_profile_key;

/* Nodes that agree in the key, over all recorded runs. */
typedef struct by_profile_row {
    char *name;
    const char *kernel; /* of the first of them */
    by_op op;           /* the same */
    bool collective;    /* ran beside the others: its seconds are not part of their sum */
    int nodes;
    uint64_t runs;
    double seconds;
    double part_seconds[BY_PROFILE_PARTS];
    double median_seconds; /* of one run of a node */
    double flops;          /* of all runs, as is the rest */
    double bytes;
    double roof_seconds; /* sum of by_machine_roof: seconds / roof_seconds is what a roofline would
                            save */
} by_profile_row;

/* Sums up, longest first (layers: in the order in which they first ran). Freed with
 * by_profile_rows_free. */
BY_API by_status by_profile_rows(by_profile_row **rows, size_t *count, const by_profile *profile,
                                 by_profile_key key, const by_machine *machine, by_error *error);
BY_API void by_profile_rows_free(by_profile_row *rows, size_t count);

/* What a picture of a profile shows. */
typedef struct by_profile_picture {
    const by_profile_row *rows; /* by operation, the longest first */
    size_t row_count;
    double seconds; /* of all steps */
    int64_t steps;
    const by_machine *machine;
} by_profile_picture;

/* Draws the rows as a table with bars, to a name in .svg or .png, written atomically. BY_EARG:
 * another name. */
BY_API by_status by_profile_draw(const by_profile_picture *what, const char *path, by_error *error);

/* Writes a Chrome trace (JSON): complete events, in which spans contain runs of programs and these
 * contain nodes with kernel, block, shapes and GFLOP/s; collectives on a track of their own; and a
 * counter of the live bytes of activations. */
BY_API by_status by_profile_trace(const by_profile *profile, const char *path, by_error *error);

/* ---- many ranks ---- */

/* Where a step's seconds went on one rank. Nodes ran for `compute`, exchanges for hidden + exposed;
 * compute + exposed is the time in which either did. */
typedef struct by_profile_step {
    double seconds;
    double compute;
    double hidden;  /* exchanges beside which nodes ran */
    double exposed; /* exchanges beside which none did ... */
    double waiting; /* ... and of them, the time until all ranks had come */
    /* In a pipeline: from the first pass of any of its ranks to the last, but for what this rank
     * computed. */
    double bubble;
    double passes[3]; /* of each kind, BY_PROFILE_PASS_FORWARD first */
} by_profile_step;

typedef struct by_profile_rank {
    char host[64];
    char place[96]; /* in the layout: "pipeline 0, data 1" */
    double clock;   /* what its by_clock() is ahead of rank 0's */
    by_profile_step mean;
    uint64_t planned; /* bytes */
    uint64_t resident;
} by_profile_rank;

/* What a rank says of itself. */
typedef struct by_profile_place {
    const char *place;
    int pipeline; /* equal on the ranks of one pipeline; -1: none */
    uint64_t planned;
    uint64_t resident;
} by_profile_place;

typedef struct by_profile_ranks by_profile_ranks;

/* Collective on the communicator of by_profile_watch_comm, whose ranks have recorded equally many
 * spans named "step": sums up on each rank, and gathers on all. Ends the record of exchanges.
 * Between hosts it measures what clocks differ by: of several messages there and back, the fastest
 * (as NTP does, RFC 5905). */
BY_API by_status by_profile_gather(by_profile_ranks **out, by_profile *profile,
                                   const by_profile_place *place, by_error *error);
BY_API void by_profile_ranks_close(by_profile_ranks **ranks);
BY_API int by_profile_rank_count(const by_profile_ranks *ranks);
BY_API const by_profile_rank *by_profile_rank_of(const by_profile_ranks *ranks, int rank);
/* Its steps, in order; owned by `ranks`. */
BY_API const by_profile_step *by_profile_steps_of(const by_profile_ranks *ranks, int rank,
                                                  size_t *count);
/* Collective: the trace of all ranks in one file, which rank 0 writes: a process for each rank, and
 * in it a track of nodes, and one of exchanges, within which a slice says how long it waited for
 * other ranks. Times are those of rank 0's clock. */
BY_API by_status by_profile_trace_ranks(const by_profile *profile, const by_profile_ranks *ranks,
                                        const char *path, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
