/* guards: decide that a step is not applied, and handle the consequences.
 *
 * A step that is *skipped* changes no bit of weights, compute copies or optimizer states. It counts
 * as a step in every other way: by_trainer_updates advances by one, and its batch, its place in the
 * learning-rate schedule and its random numbers (dropout) are used up. Only the optimizer's own
 * count of updates (bias correction) leaves it out: by_optimizer_hyper is given t->updates -
 * t->guard.skipped.
 *
 * Who can veto. The device: the norm's program sets its state `failed`, and its clip factor to NaN,
 * if the global norm or a loss is not finite. Every update selects the old values by that factor
 * (by__update_set), so the veto costs nothing and works for slices, stages, windows on disk and any
 * optimizer. `failed` stays set until the host has seen it: steps submitted in the meantime change
 * nothing either, are forgotten, and are submitted again by the caller (by_trainer_updates says
 * from where).
 *
 * The host: by__guard_decide, between norm and update, if a key of the config asks for it. It waits
 * for the step's losses (on the CPU they are complete) and passes its veto to the device.
 *
 * Agreement between ranks. Norm and losses are the same on all ranks of a job, so all ranks skip a
 * step or none does. Replicas with sync.every above 1 have separate norms and skip steps
 * separately; their counts become equal when their states do (by_trainer_settle).
 *
 * Counting: by__guard_collected is called once per step in the order of steps, on all ranks with
 * the same values. State that adapts to skipped steps (the loss scale) changes there and nowhere
 * else. What it decides for a step that is submitted before an earlier one was collected assumes
 * that the earlier one is applied; otherwise the later one is forgotten anyway.
 *
 * Logging: the job (job_guard.c) writes an event `skip` with the reason, loss, norm and samples.
 *
 * Types: by__guard, the trainer's state of all guards; by__loss_scale, the loss scale; by__found,
 * the origin of a value that is not finite. The trainer owns its guard.
 *
 * Never put here: changes of weights or gradients, files.
 */
#ifndef BY_TRAIN_GUARD_H
#define BY_TRAIN_GUARD_H

#include "banyan/train.h"
#include "base/base.h"

typedef struct by__node_watch by__node_watch; /* node_watch.h */
typedef struct by__replay by__replay;         /* guard_replay.c */
typedef struct by__abft by__abft;             /* guard_abft.c */

/* loss_scale.c */
typedef struct by__loss_scale {
    double scale;  /* for the next step; 1 if the config sets none */
    int64_t steps; /* steps applied since it last changed */
} by__loss_scale;

typedef struct by__guard {
    int64_t skipped; /* number of skipped steps since step 0 */
    int64_t in_row;  /* skipped steps since the last applied one, except those with overflows */
    by__loss_scale loss_scale;
    by_skip veto;                   /* of the step that was submitted, or skipped, last */
    double zscore;                  /* z-score of that step */
    int64_t count;                  /* number of losses in the window */
    double losses[BY_GUARD_WINDOW]; /* of applied steps, oldest first */
} by__guard;

bool by__scales_loss(const by_config *config);
bool by__scales_loss_dynamically(const by_config *config);
by__loss_scale by__loss_scale_first(const by_config *config);
/* Returns true if an overflow makes the scale smaller. */
bool by__loss_scale_backs_off(const by__loss_scale *s, const by_config *config);
/* Updates the scale after a step was read back, in the order of steps. */
void by__loss_scale_follow(by__loss_scale *s, const by_config *config, bool overflow);

/* Between norm and update of a step: applies the host's checks. */
by_status by__guard_decide(by_trainer *trainer, unsigned slot, uint64_t targets, by_error *error);
/* Handles a step that was read back: `failed` means that it was not applied. result->skipped is the
 * host's veto, if any, and on return the reason why the step was not applied. Updates the counts.
 * BY_EDIVERGED if the config does not allow skipped steps, or too many were skipped in a row: this
 * step is then rolled back. */
by_status by__guard_collected(by_trainer *trainer, by_step_result *result, bool failed,
                              by_error *error);

/* State that is saved in checkpoints if there is any. */
const by__guard *by__trainer_guard(const by_trainer *trainer);
/* Restores it, after by_trainer_load_optimizer. */
void by__trainer_set_guard(by_trainer *trainer, const by__guard *guard);

/* ---- node_watch.c ---- */

void by__node_watch_close(by_trainer *trainer);

/* ---- guard_replay.c ---- */

/* Returns true if the gradients of the next step are to be computed twice (guard.replay_every). */
bool by__replay_is_due(const by_trainer *trainer);
/* Called before the first computation, between the two, and after the second. Collective;
 * BY_ECORRUPT, on all ranks, if the results differ on one: names the first node, or the weight that
 * it read. */
by_status by__replay_begin(by_trainer *trainer, by_error *error);
by_status by__replay_again(by_trainer *trainer, by_error *error);
by_status by__replay_end(by_trainer *trainer, by_error *error);
void by__replay_close(by_trainer *trainer);

/* ---- guard_abft.c ---- */

/* Starts to check the sums of products, if guard.abft is set. */
by_status by__abft_open(by_trainer *trainer, by_error *error);
/* Bytes of these checksums. */
size_t by__abft_bytes(const by_trainer *trainer);
/* Collective, before an update: BY_ECORRUPT, on all ranks, if a checksum was wrong on one; names
 * the node. */
by_status by__abft_verdict(by_trainer *trainer, by_error *error);
void by__abft_close(by_trainer *trainer);

/* Returns true if no value is infinite or NaN; always true for dtypes without such values. */
bool by__all_finite(by_dtype dtype, const void *values, size_t count);

/* ---- guard_spike.c ---- */

/* The robust z-score of a loss relative to a window: (loss - median) / sigma, where sigma is 1.4826
 * times the median absolute deviation, which for a normal distribution is the standard deviation
 * (Rousseeuw and Croux 1993), or 1e-4 of the median if that is more. 0 for a window of fewer than
 * `least` losses. */
double by__robust_zscore(const double *losses, int64_t count, int64_t least, double loss);
/* Print the window as text, 16 hexadecimal digits per loss, and parse it. BY_EFORMAT: malformed. */
by_status by__window_print(by__text *out, const by__guard *guard);
by_status by__window_parse(by__guard *guard, const char *text, by_error *error);

/* ---- guard_find.c ---- */

/* The origin of a value that is not finite. */
typedef struct by__found {
    bool found;
    int64_t leaf; /* micro-batch of the step */
    int64_t row;  /* sample of it; -1: unknown */
    int32_t rank;
    char what[240]; /* "layer_norm of block 2 (h.2.ln_1.weight)" */
} by__found;

/* Returns true if by__guard_find can work: it needs device memory that is the host's, and all ranks
 * in the same step. */
bool by__guard_can_find(const by_trainer *trainer);
/* Collective: computes the gradients of step `step` again on its batch, and finds the first node,
 * in the order of micro-batches and of the graph, whose result is not finite; if an operand from
 * outside the graph (a parameter, the batch) is not finite, that operand. */
by_status by__guard_find(by_trainer *trainer, const by_batch *batch, int64_t step, by__found *out,
                         by_error *error);

#endif
