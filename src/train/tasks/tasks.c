#include "train/tasks/tasks.h"

#include <string.h>

/* One row a task: by__task_NAME of NAME.c. */
#define TASKS(ROW) ROW(language)

#define DECLARE(name) extern const by__task_row by__task_##name;
#define ADDRESS(name) &by__task_##name,
TASKS(DECLARE)
static const by__task_row *const tasks[] = {TASKS(ADDRESS)};

const by__kind *by__task_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(tasks) ? &tasks[index]->kind : NULL;
}

by_status by_task_find(const by_task **out, const by_config *config, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(tasks); i++) {
        if (strcmp(config->task.kind, tasks[i]->kind.name) == 0) {
            *out = &tasks[i]->task;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_ECONFIG, "task.kind: unknown task '%s'", config->task.kind);
}
