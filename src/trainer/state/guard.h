/* guards: decide that a step is not applied, and handle the consequences.
 *
 * A step that is *skipped* changes no bit of weights, compute copies or optimizer states. It counts
 * as a step in every other way: by_trainer_updates advances by one, and its batch, its place in the
 * learning-rate schedule and its random numbers (dropout) are used up. Only the optimizer's own
 * count of updates (bias correction) leaves it out: by_optimizer_hyper is given t->steps.updates -
 * t->probes.guard.skipped.
 *
 * Who can veto. The device: the norm's program sets its state `failed`, and its clip factor to NaN,
 * if the global norm or a loss is not finite. Every update selects the old values by that factor
 * (by__optim_update_set), so the veto costs nothing and works for slices, stages, windows on disk
 * and any optimizer. `failed` stays set until the host has seen it: steps submitted in the meantime
 * change nothing either, are forgotten, and are submitted again by the caller (by_trainer_updates
 * says from where).
 *
 * The host: by__trainer_guard_decide, between norm and update, if a key of the config asks for it.
 * It waits for the step's losses (on the CPU they are complete) and passes its veto to the device.
 *
 * Agreement between ranks. Norm and losses are the same on all ranks of a job, so all ranks skip a
 * step or none does. Replicas with sync.every above 1 have separate norms and skip steps
 * separately; their counts become equal when their states do (by_trainer_settle).
 *
 * Counting: by__trainer_guard_collected is called once per step in the order of steps, on all ranks
 * with the same values. State that adapts to skipped steps (the loss scale) changes there and
 * nowhere else. What it decides for a step that is submitted before an earlier one was collected
 * assumes that the earlier one is applied; otherwise the later one is forgotten anyway.
 *
 * Logging: the job (job_guard.c) writes an event `skip` with the reason, loss, norm and samples.
 *
 * Types: by__trainer_guard, the trainer's state of all guards; by__trainer_loss_scale, the loss
 * scale; by__trainer_found, the origin of a value that is not finite. The trainer owns its guard.
 *
 * Never put here: changes of weights or gradients, files.
 */
#ifndef BY_TRAINER_STATE_GUARD_H
#define BY_TRAINER_STATE_GUARD_H

#include "banyan/trainer.h"
#include "base/base.h"

typedef struct by__trainer_node_watch by__trainer_node_watch; /* node_watch.h */
typedef struct by__trainer_replay by__trainer_replay;         /* guard_replay.c */
typedef struct by__trainer_abft by__trainer_abft;             /* guard_abft.c */

/* loss_scale.c */
typedef struct by__trainer_loss_scale {
    double scale;  /* for the next step; 1 if the config sets none */
    int64_t steps; /* steps applied since it last changed */
} by__trainer_loss_scale;

typedef struct by__trainer_guard {
    int64_t skipped; /* number of skipped steps since step 0 */
    int64_t in_row;  /* skipped steps since the last applied one, except those with overflows */
    by__trainer_loss_scale loss_scale;
    by_skip veto;                   /* of the step that was submitted, or skipped, last */
    double zscore;                  /* z-score of that step */
    int64_t count;                  /* number of losses in the window */
    double losses[BY_GUARD_WINDOW]; /* of applied steps, oldest first */
} by__trainer_guard;

bool by__trainer_scales_loss(const by_config *config);
bool by__trainer_scales_loss_dynamically(const by_config *config);
by__trainer_loss_scale by__trainer_loss_scale_first(const by_config *config);
/* Returns true if an overflow makes the scale smaller. */
bool by__trainer_loss_scale_backs_off(const by__trainer_loss_scale *s, const by_config *config);
/* Updates the scale after a step was read back, in the order of steps. */
void by__trainer_loss_scale_follow(by__trainer_loss_scale *s, const by_config *config,
                                   bool overflow);

/* ---- all_finite.c ---- */

/* Returns true if no value is infinite or NaN; always true for dtypes without such values. */
bool by__trainer_all_finite(by_dtype dtype, const void *values, size_t count);

/* The origin of a value that is not finite. */
typedef struct by__trainer_found {
    bool found;
    int64_t leaf; /* micro-batch of the step */
    int64_t row;  /* sample of it; -1: unknown */
    int32_t rank;
    char what[240]; /* "layer_norm of block 2 (h.2.ln_1.weight)" */
} by__trainer_found;

#endif
