/* Profiles: when the nodes of programs ran, summed up by operation, by layer and by shape, against
 * the machine's roofline; and the same as a trace for https://ui.perfetto.dev.
 *
 * A profile hangs on programs by their hooks. A program that no profile watches runs as fast as
 * ever.
 */
#ifndef BANYAN_PROFILE_H
#define BANYAN_PROFILE_H

#include <stdint.h>

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

BY_API by_status by_profile_open(by_profile **out, by_error *error);
/* Takes the hooks off the programs, which must still be open. */
BY_API void by_profile_close(by_profile **profile);

/* Records the nodes of a program from now on, on the thread that runs it; at most 8 programs.
 * `name` is copied. model: its nodes are forward or backward as the graph says; else all of them
 * are update. */
BY_API by_status by_profile_watch(by_profile *profile, by_program *program, const char *name,
                                  bool model, by_error *error);
/* Records a span of the caller's own on the same thread: a step, a wait. Times are by_clock's. */
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

/* Writes a Chrome trace (JSON): complete events, in which spans contain runs of programs and these
 * contain nodes with kernel, block, shapes and GFLOP/s; collectives on a track of their own; and a
 * counter of the live bytes of activations. */
BY_API by_status by_profile_trace(const by_profile *profile, const char *path, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
