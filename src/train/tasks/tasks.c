#include "train/tasks/tasks.h"

#include "train/train.h"

#include <string.h>

/* One row a task: by__task_NAME of NAME.c. */
#define TASKS(ROW)                                                                                 \
    ROW(language)                                                                                  \
    ROW(classify)                                                                                  \
    ROW(regress)

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

by_status by_task_open(by_task_data **out, const by_task *task, const by_task_request *request,
                       by_error *error)
{
    if (task == NULL) {
        BY_TRY(by_task_find(&task, request->config, error));
    }
    if (task->open == NULL || task->source == NULL) {
        return by_error_set(error, BY_EARG, "task %s opens no data", task->name);
    }
    if (request->purpose == BY_TASK_PREDICT && task->predict == NULL) {
        return by_error_set(error, BY_EARG, "task %s has no predictions to print", task->name);
    }
    return task->open(out, request, error);
}

void by_task_close(by_task_data **data)
{
    if (data != NULL && *data != NULL) {
        if ((*data)->task->close != NULL) {
            (*data)->task->close(*data);
        }
        *data = NULL;
    }
}

by_status by_task_complete(by_task_data *data, by_config *config, by_error *error)
{
    BY_TRY(by_config_take_model(config, error));
    return data->task->complete == NULL ? BY_OK : data->task->complete(data, config, error);
}

by_status by_task_loader(by_loader **out, by_task_data *data, const by_config *config,
                         bool training, by_error *error)
{
    by_source *source;
    int64_t batch = training ? config->train.batch : config->train.micro_batch;
    const by_loader_options options = {.batch = (size_t)batch, .seed = config->seed};
    BY_TRY(data->task->source(&source, data, config, training, error));
    return by_loader_open(out, source, &options, error);
}
