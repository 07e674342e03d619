/* guards: what decides that a step is not applied, and what follows.
 *
 * A step that is *skipped* changes no bit of weights, compute copies or optimizer states. It counts
 * as a step in everything else: by_trainer_updates goes on by one, its batch is used up, its place
 * in the schedule of the learning rate and its random numbers (dropout) are used up. Only the
 * optimizer's own count of updates (bias correction) leaves it out: by_optimizer_hyper is told
 * t->updates - t->guard.skipped.
 *
 * Who may veto. The device: the norm's program sets its state `failed` when the global norm or a
 * loss is not finite, and its clip factor is NaN then. Every update selects the old values by that
 * factor (by__update_set), so the veto costs nothing and holds for slices, stages, windows on disk
 * and whatever an optimizer keeps. `failed` stays set until the host has seen it: steps that were
 * submitted behind change nothing either, are forgotten, and the caller submits them again
 * (by_trainer_updates says from where).
 *
 * The host: by__guard_decide, between norm and update, where a key of the config asks for it. It
 * waits for the step's losses (on the CPU they are there) and says the same to the device.
 *
 * Who decides alike. Norm and losses are the same on all ranks of a job, so all ranks skip a step
 * or none does. Replicas with sync.every above 1 have a norm each and skip steps of their own;
 * their counts become one where their states do (by_trainer_settle).
 *
 * Who counts: by__guard_collected, called once a step in the order of steps, on all ranks with the
 * same values. What adapts to skipped steps (the scale of losses) is changed there and nowhere
 * else; what it decides for a step that is submitted before an earlier one was collected is as if
 * that one were applied, because else it is forgotten.
 *
 * What is logged: the job (job_guard.c) writes an event `skip` with the reason, loss, norm and
 * samples.
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
    double scale;  /* of the next step; 1 where the config wants none */
    int64_t steps; /* that were applied since it last changed */
} by__loss_scale;

typedef struct by__guard {
    int64_t skipped; /* steps that were not applied, since step 0 */
    int64_t in_row;  /* of them those behind the last one that was, but for overflows */
    by__loss_scale loss_scale;
    by_skip veto;                   /* of the step that was submitted, or skipped, last */
    double zscore;                  /* of that step */
    int64_t count;                  /* losses in the window */
    double losses[BY_GUARD_WINDOW]; /* of steps that were applied, the oldest first */
} by__guard;

bool by__scales_loss(const by_config *config);
bool by__scales_loss_dynamically(const by_config *config);
by__loss_scale by__loss_scale_first(const by_config *config);
/* Whether an overflow is answered by a smaller scale. */
bool by__loss_scale_backs_off(const by__loss_scale *s, const by_config *config);
/* A step was read back, in the order of steps. */
void by__loss_scale_follow(by__loss_scale *s, const by_config *config, bool overflow);

/* Between norm and update of a step: judges what the host can judge. */
by_status by__guard_decide(by_trainer *trainer, unsigned slot, uint64_t targets, by_error *error);
/* A step was read back: `failed` says that it was not applied; result->skipped is the host's veto,
 * if there was one, and why it was not applied afterwards. Counts.
 * BY_EDIVERGED where the config wants no step skipped, or too many were in a row: this step is
 * taken back then. */
by_status by__guard_collected(by_trainer *trainer, by_step_result *result, bool failed,
                              by_error *error);

/* What is saved with a checkpoint when there is anything. */
const by__guard *by__trainer_guard(const by_trainer *trainer);
/* Behind by_trainer_load_optimizer. */
void by__trainer_set_guard(by_trainer *trainer, const by__guard *guard);

/* ---- node_watch.c ---- */

void by__node_watch_close(by_trainer *trainer);

/* ---- guard_replay.c ---- */

/* Whether the gradients of the next step are computed twice (guard.replay_every). */
bool by__replay_is_due(const by_trainer *trainer);
/* Before the first time, between both and behind the second. Collective; BY_ECORRUPT, on all ranks,
 * when results differ on one: names the first node, or the weight that it read. */
by_status by__replay_begin(by_trainer *trainer, by_error *error);
by_status by__replay_again(by_trainer *trainer, by_error *error);
by_status by__replay_end(by_trainer *trainer, by_error *error);
void by__replay_close(by_trainer *trainer);

/* ---- guard_abft.c ---- */

/* Checks the sums of products from here on, where guard.abft says so. */
by_status by__abft_open(by_trainer *trainer, by_error *error);
/* Bytes of these sums. */
size_t by__abft_bytes(const by_trainer *trainer);
/* Collective, before an update: BY_ECORRUPT, on all ranks, when a sum was wrong on one; names the
 * node. */
by_status by__abft_verdict(by_trainer *trainer, by_error *error);
void by__abft_close(by_trainer *trainer);

/* Whether none of the values is infinite or NaN; those of formats without such always are. */
bool by__all_finite(by_dtype dtype, const void *values, size_t count);

/* ---- guard_spike.c ---- */

/* The robust z-score of a loss against a window: (loss - median) / sigma with sigma = 1.4826 times
 * the median absolute deviation, which is the standard deviation of a normal distribution
 * (Rousseeuw and Croux 1993), or 1e-4 of the median where that is more. 0 for a window of fewer
 * than `least` losses. */
double by__robust_zscore(const double *losses, int64_t count, int64_t least, double loss);
/* The window as text, 16 hexadecimal digits a loss, and back. BY_EFORMAT: it is not one. */
by_status by__window_print(by__text *out, const by__guard *guard);
by_status by__window_parse(by__guard *guard, const char *text, by_error *error);

/* ---- guard_find.c ---- */

/* Where a value that is not finite came from. */
typedef struct by__found {
    bool found;
    int64_t leaf; /* micro-batch of the step */
    int64_t row;  /* sample of it; -1: not known */
    int32_t rank;
    char what[240]; /* "layer_norm of block 2 (h.2.ln_1.weight)" */
} by__found;

/* Whether by__guard_find can look: at memory of the host, and all ranks together. */
bool by__guard_can_find(const by_trainer *trainer);
/* Collective: computes the gradients of step `step` again on its batch, and finds the first node
 * in the order of micro-batches and of the graph whose result is not finite, or its operand from
 * outside the graph (a parameter, the batch) if that is it. */
by_status by__guard_find(by_trainer *trainer, const by_batch *batch, int64_t step, by__found *out,
                         by_error *error);

#endif
