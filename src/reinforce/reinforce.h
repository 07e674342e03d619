/* reinforce: learns from what a model writes. rollouts.c completes the prompts of a step with an
 * engine that has the trainer's weights; rewards.c rates completions; advantages.c turns the
 * rewards of all ranks into the weights of tokens in the loss. The job calls it through
 * by_train_options.rollouts, for the task reinforce, which has the settings and the prompts.
 *
 * Types: by__reinforce_completion, what all ranks know of a completion; by__reinforce_rewards, what
 * rates them; by_rollouts, all of it, for one call of by_train.
 *
 * Who owns what: by_rollouts owns engine, rewards and the arrays of the batch; trainer, data and
 * config are the job's and outlive it.
 *
 * Everything that depends on rewards of other completions is computed on every rank from the same
 * list, in the order of the batch, so that it is the same on any number of ranks.
 *
 * Never put here: the loss (the task's), the loop over steps, how prompts are read. */
#ifndef BY_REINFORCE_REINFORCE_H
#define BY_REINFORCE_REINFORCE_H

#include "banyan/reinforce.h"
#include "banyan/text.h"
#include "base/base.h"
#include "tasks/reinforce_data.h"

/* ---- advantages.c ---- */

typedef struct by__reinforce_completion {
    double reward;
    int64_t tokens; /* at least 1 */
    bool cut;       /* ended by its length */
    double kl;      /* sum over its tokens of the divergence from the start */
} by__reinforce_completion;

/* What the advantage of a completion and the divisor of the loss are. */
typedef struct by__reinforce_objective {
    int64_t group;
    int64_t max_tokens;
    bool deviation;
    enum { BY__REINFORCE_TOKENS = 0, BY__REINFORCE_SEQUENCES, BY__REINFORCE_CONSTANT } normalize;
    double kl;
    double passes;
} by__reinforce_objective;

by__reinforce_objective by__reinforce_objective_of(const by__task_reinforce_keys *keys);

/* Computes advantages [count] of the completions of a step, groups one after another. Those of a
 * group without variance are 0, and the group does not count: scales [count], by which the weights
 * of the tokens of a completion are multiplied, are 0 for it. Returns what the sum of the losses is
 * divided by, at least 1. */
double by__reinforce_weigh(double *advantages, double *scales, const by__reinforce_completion *list,
                           size_t count, const by__reinforce_objective *objective);
/* The weight in the cross-entropy of a token whose log-probability is `own`, and `start` under the
 * weights at the start, such that the gradient is that of the objective. */
double by__reinforce_token_weight(double advantage, double kl, double own, double start);
/* The estimate of the divergence in the objective (Schulman's k3): never negative. */
double by__reinforce_divergence(double own, double start);
/* Means over the completions of a step. */
by_rollout_report by__reinforce_report(const by__reinforce_completion *list, size_t count,
                                       const by__reinforce_objective *objective);

/* ---- completions to rate ---- */

/* A completion to rate. */
typedef struct by__reinforce_answered {
    by_text line;       /* of the file of prompts */
    bool is_object;     /* it is a JSON object */
    by_text answer;     /* the right one; followed by a NUL */
    by_text completion; /* without the token that ended it; followed by a NUL */
    int64_t tokens;
} by__reinforce_answered;

/* ---- reward_command.c: a program that rates ---- */

typedef struct by__reinforce_command by__reinforce_command;
/* Starts it; `words`, which must outlive it, are the program and its arguments. BY_ECONFIG: it
 * cannot be started. */
by_status by__reinforce_command_open(by__reinforce_command **out, const by_string_list *words,
                                     double timeout, by_error *error);
/* Closes its input, and kills it if it does not end then. */
void by__reinforce_command_close(by__reinforce_command **command);
/* Sets out [count]. BY_EIO if it ends or exceeds its time, with the end of what it wrote to its
 * errors; BY_EFORMAT if an answer is no number, there are more than questions, or it printed
 * anything since its last answer. */
by_status by__reinforce_command_rate(by__reinforce_command *command, double *out,
                                     const by__reinforce_answered *list, size_t count,
                                     by_error *error);
/* Ends it behind the last step. BY_EFORMAT if it gives an answer too many, which every step before
 * took for one of its own: one that answers more slowly than steps follow each other is told by
 * this only. A further step starts it again. */
by_status by__reinforce_command_finish(by__reinforce_command *command, by_error *error);

/* ---- rewards.c ---- */

typedef struct by__reinforce_rewards by__reinforce_rewards;
/* BY_EFORMAT: the pattern is not a regular expression. */
by_status by__reinforce_rewards_open(by__reinforce_rewards **out,
                                     const by__task_reinforce_keys *keys, by_error *error);
void by__reinforce_rewards_close(by__reinforce_rewards **rewards);
/* Sets out [count]. Returns what by__reinforce_command_rate does. */
by_status by__reinforce_reward(by__reinforce_rewards *rewards, double *out,
                               const by__reinforce_answered *list, size_t count, by_error *error);
/* Called behind the last step; returns what by__reinforce_command_finish does. */
by_status by__reinforce_rewards_finish(by__reinforce_rewards *rewards, by_error *error);

#endif
