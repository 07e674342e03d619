/* What the task reinforce gives to those that make its batches: its settings, its prompts, and the
 * arrays of a sample.
 *
 * A sample is a completion that the model is to write, so a batch of the loader says only of which
 * prompt: the room that can generate (reinforce) writes tokens, targets and weights. The samples of
 * a step are groups of task.group completions of one prompt, in the order of the samples.
 *
 * Never put here: sampling, rewards. */
#ifndef BY_TASKS_REINFORCE_DATA_H
#define BY_TASKS_REINFORCE_DATA_H

#include "banyan/task.h"
#include "tasks/text/prompts.h"

typedef struct by__task_reinforce_keys {
    by_string_list prompts;
    char *prompt_field;
    char *answer_field;
    char *prompt_form;
    int64_t group;
    int64_t max_tokens;
    double temperature;
    by_string_list stop;
    char *reward;
    char *reward_pattern;
    int64_t reward_tokens;
    by_string_list reward_command;
    double reward_timeout;
    double passes;
    char *advantage;
    char *normalize;
    double kl;
} by__task_reinforce_keys;

/* The settings of a config with this task. */
const by__task_reinforce_keys *by__task_reinforce_keys_of(const by_config *config);

/* Of data opened for training; owned by the data. */
const by__task_prompts *by__task_reinforce_prompts(const by_task_data *data);
const by_tokenizer *by__task_reinforce_tokenizer(const by_task_data *data);
/* Tokens that end a completion: *count of them. */
const int32_t *by__task_reinforce_stops(const by_task_data *data, size_t *count);

/* The array "sample" of a batch, i32 [batch, 4]. */
enum {
    BY__ROLLOUT_PROMPT = 0, /* its number in the list */
    BY__ROLLOUT_PLACE,      /* of the sample in its group */
    BY__ROLLOUT_LOW,        /* number of the group over all epochs: low and high 32 bits */
    BY__ROLLOUT_HIGH,
    BY__ROLLOUT_FIELDS
};

#endif
