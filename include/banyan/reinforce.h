/* Reinforcement learning (task.kind reinforce): what makes the batches of by_train. */
#ifndef BANYAN_REINFORCE_H
#define BANYAN_REINFORCE_H

#include "banyan/train_events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a maker for by_train_options.rollouts: it completes prompts with an engine
 * (banyan/engine.h) in the same process, which gets the weights of the trainer before each step,
 * and rewards them as the section `task` says. A completion is a function of weights, seed, its
 * prompt and how often that was drawn, whichever rank writes it. `open` returns BY_ECONFIG if no
 * rank has all weights, or ranks exchange late (sync), BY_EFORMAT for a pattern that is none;
 * `make` returns BY_EFORMAT for an answer of the command that is no number, BY_EIO if it ends or
 * is late. */
BY_API const by_rollout_maker *by_reinforce_maker(void);

#ifdef __cplusplus
}
#endif
#endif
