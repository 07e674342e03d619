/* Shared by the files of the recompute pass: recompute.c makes the copies, recompute_choice.c
 * chooses the values to drop, recompute_budget.c finds the cheapest ones to drop for a memory
 * limit. */
#ifndef BY_PASSES_RECOMPUTE_H
#define BY_PASSES_RECOMPUTE_H

#include "passes/passes.h"

/* Facts about the activations of the forward pass, indexed by value. */
typedef struct by__pass_forward_values {
    bool *may;     /* may be recomputed */
    bool *read;    /* read by the backward pass */
    bool *crosses; /* read by forward nodes of another block, or outside any block */
    bool *foreign; /* read by backward nodes of another block */
    bool *pinned;  /* always kept for the backward pass: see recompute.c */
} by__pass_forward_values;

by_status by__pass_forward_values_open(by__pass_forward_values *out, const by_graph *graph,
                                       by_error *error);
void by__pass_forward_values_close(by__pass_forward_values *values);

/* Makes the backward pass recompute the values in `dropped` (one flag a value) from kept ones.
 * Values that may not be recomputed are kept. */
by_status by__pass_recompute_dropped(by_graph *graph, const by__pass_forward_values *values,
                                     const bool *dropped, by_error *error);
/* Chooses the values to drop by whole blocks, for every kind but none. */
by_status by__pass_choose_blocks(bool *dropped, const by_graph *graph,
                                 const by__pass_forward_values *values, by_recompute_kind kind,
                                 int64_t every, by_error *error);
/* Chooses the cheapest values to drop so that the graph's arena after all passes has at most
 * options->recompute.arena_bytes; if that is impossible, those that leave the smallest arena. */
by_status by__pass_choose_budget(bool *dropped, const by_graph *graph,
                                 const by__pass_forward_values *values,
                                 const by_pass_options *options, by_error *error);

#endif
