/* trainer/plan: plans within limits of memory. */
#ifndef BY_TRAINER_PLAN_TRAINER_PLAN_H
#define BY_TRAINER_PLAN_TRAINER_PLAN_H

#include "trainer/state/trainer.h"

/* ---- plan_changes.c ---- */

/* Sets *out to the largest micro-batch below the config's whose plan takes at most `limit` bytes;
 * 0: none. Not collective. */
by_status by__trainer_micro_batch_within(int64_t *out, const by_config *config,
                                         const by_trainer_options *options, uint64_t limit,
                                         by_error *error);

/* ---- trainer_budget.c ---- */

/* by_trainer_open without the other ranks: the choice that this rank would make. */
by_status by__trainer_open_unconnected(by_trainer **out, const by_config *config,
                                       const by_trainer_options *options, by_error *error);
/* Total memory of the run, including loaders, data and staging that are planned later. */
by_status by__trainer_needs(uint64_t *out, by_trainer *t, const by_trainer_options *o,
                            by_error *error);

#endif
