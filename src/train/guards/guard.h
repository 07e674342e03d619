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
 * Who decides alike. Norm and losses are the same on all ranks of a job, so all ranks skip a step
 * or none does. Replicas with sync.every above 1 have a norm each and skip steps of their own.
 *
 * Who counts: by__guard_collected, called once a step in the order of steps, on all ranks with the
 * same values. What adapts to skipped steps (the scale of losses) is changed there and nowhere
 * else; what it decides for a step that is submitted before an earlier one was collected is as if
 * that one were applied, because else it is forgotten.
 *
 * What is logged: the job (loop.c) writes an event `skip` with the reason, loss, norm and samples.
 *
 * Never put here: changes of weights or gradients, files.
 */
#ifndef BY_TRAIN_GUARD_H
#define BY_TRAIN_GUARD_H

#include "banyan/train.h"

typedef struct by__guard {
    int64_t skipped; /* steps that were not applied, since step 0 */
    int64_t in_row;  /* of them those behind the last one that was */
} by__guard;

/* A step was read back: `failed` says that it was not applied. Fills result->skipped and counts.
 * BY_EDIVERGED where the config wants no step skipped, or too many were in a row: this step is
 * taken back then. */
by_status by__guard_collected(by_trainer *trainer, by_step_result *result, bool failed,
                              by_error *error);

/* The counts, which are saved with a checkpoint when they are not 0. */
const by__guard *by__trainer_guard(const by_trainer *trainer);
/* Behind by_trainer_load_optimizer. */
void by__trainer_set_guard(by_trainer *trainer, const by__guard *guard);

#endif
