/* What the files of the recompute pass share: recompute.c makes the copies, recompute_choice.c says
 * which values are dropped, recompute_budget.c finds the cheapest ones that fit. */
#ifndef BY_PASSES_RECOMPUTE_H
#define BY_PASSES_RECOMPUTE_H

#include "passes/passes.h"

/* Activations of the forward pass, by their value. */
typedef struct by__forward_values {
    bool *may;     /* may be computed again */
    bool *read;    /* by the backward pass */
    bool *crosses; /* forward nodes of another block read it too, or it is of no block */
    bool *foreign; /* backward nodes of another block read it */
    bool *pinned;  /* is there for the backward pass whoever reads it: see recompute.c */
} by__forward_values;

by_status by__forward_values_open(by__forward_values *out, const by_graph *graph, by_error *error);
void by__forward_values_close(by__forward_values *values);

/* Lets the backward pass compute the values in `dropped` (one flag a value; those that may not be
 * made again are kept) again, from what it keeps. */
by_status by__recompute_dropped(by_graph *graph, const by__forward_values *values,
                                const bool *dropped, by_error *error);
/* The values that kinds other than none drop, by whole blocks. */
by_status by__choose_blocks(bool *dropped, const by_graph *graph, const by__forward_values *values,
                            by_recompute_kind kind, int64_t every, by_error *error);
/* The values to drop so that the arena of the graph, behind all passes, has at most
 * options->recompute.arena_bytes, at the least cost; those that leave the least where it cannot. */
by_status by__choose_budget(bool *dropped, const by_graph *graph, const by__forward_values *values,
                            const by_pass_options *options, by_error *error);

#endif
