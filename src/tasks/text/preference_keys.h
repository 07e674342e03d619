/* The settings of the task preference. */
#ifndef BY_TASKS_PREFERENCE_KEYS_H
#define BY_TASKS_PREFERENCE_KEYS_H

#include "config/kind.h"
#include "tasks/text/conversation_data.h"

typedef struct by__task_preference_keys {
    by__task_chat_keys chat;
    char *loss;
    double beta;
    double margin;
    double smoothing;
    double nll;
    char *reduce;
    char *reference;
    char *reference_from; /* model.from, unless it is set */
} by__task_preference_keys;

extern const by__config_key_list by__task_preference_key_list;
/* The values of the keys; NULL: the task is another one. */
const by__task_preference_keys *by__task_preference_keys_of(const by_config *config);
/* The weights that are compared with, of a task that has a reference. */
const char *by__task_reference_path(const by_config *config);

#endif
