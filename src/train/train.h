/* train: the engine that takes steps (trainer.c), the loop around it (loop.c), evaluation, saving
 * and resuming.
 *
 * The trainer turns a config into four programs: gradients (forward and backward of one
 * micro-batch), the gradient norm, the update, and the loss for evaluation. It owns a tensor store
 * with f32 masters, compute copies, gradient sets and optimizer states, and one arena and one
 * workspace that the programs share because they never run at the same time. Inputs go to the device
 * through pinned staging memory (trainer_feed.c).
 *
 * Accumulation is the fixed binary tree of the project's determinism rule: the micro-batches of a
 * step are its leaves; sets of equal height are added as soon as both exist, so k micro-batches
 * need 1 + max popcount(0 .. k-1) gradient sets, and k micro-batches equal k ranks bit for bit.
 *
 * Never put here: kernels, file formats, printing.
 */
#ifndef BY_TRAIN_TRAIN_H
#define BY_TRAIN_TRAIN_H

#include "banyan/optimizer.h"
#include "banyan/train.h"
#include "exec/exec.h"

/* Builds the model of a config, or the caller's own. */
by_status by__build_model(by_model *out, by_graph *graph, const by_config *config,
                          by_model_builder *builder, void *user, const by_model_request *request,
                          by_error *error);
by_dtype by__compute_dtype(const by_config *config);
/* The graph of one micro-batch in `mode`, before any pass. */
by_status by__train_forward(by_graph **out, by_model *model, const by_config *config,
                            by_model_builder *builder, void *user, by_model_mode mode,
                            by_error *error);
/* What a config tells the passes; model (may be NULL) has the loss to differentiate. */
by_pass_options by__pass_options(const by_config *config, const by_model *model);
/* Bytes that this process has in memory now, and at its peak; 0 where the system does not say. */
uint64_t by__resident_bytes(void);
uint64_t by__peak_resident_bytes(void);

/* BY_EMEMORY when what is planned beside the process and its data is not free (fit.c). */
by_status by__plan_fits(const by_memory_report *planned, by_error *error);

/* ---- accumulation.c ---- */

/* The sum tree over micro-batches: hands out gradient sets and says which pairs to add. */
typedef struct by__tree {
    int sets;      /* gradient sets that exist */
    int level[64]; /* set held at each height, -1 for none */
    int spare[65]; /* sets that hold nothing */
    int spare_count;
} by__tree;

/* Sets that `leaves` micro-batches need. */
int by__tree_sets(int64_t leaves);
void by__tree_begin(by__tree *tree, int sets);
/* A set for the next leaf to be computed into. */
int by__tree_take(by__tree *tree);
/* Called with the set of a finished leaf (or the sum so far): if a set of the same height waits,
 * returns it (the caller adds it to `set`: set = waiting + set, and calls again with *height + 1),
 * else keeps `set` at that height and returns -1. */
int by__tree_put(by__tree *tree, int set, int *height);
/* Collects what is left when all leaves are in, lowest height first: returns the set that
 * holds the sum so far and, in *other, one to be added in front of it (sum = other + sum), or
 * -1. */
int by__tree_finish(by__tree *tree, int *other);

#endif
