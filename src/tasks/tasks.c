/* The table of tasks, and the functions of by_task_data that check arguments and call the
 * task's. */
#include "tasks/tasks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "banyan/train_events.h"
#include "data/loader/damage.h"

/* One row per task: by__task_NAME of NAME.c. */
#define TASKS(ROW)                                                                                 \
    ROW(language)                                                                                  \
    ROW(chat)                                                                                      \
    ROW(preference)                                                                                \
    ROW(reward)                                                                                    \
    ROW(masked)                                                                                    \
    ROW(reinforce)                                                                                 \
    ROW(classify)                                                                                  \
    ROW(regress)                                                                                   \
    ROW(tag)                                                                                       \
    ROW(contrast)                                                                                  \
    ROW(segment)                                                                                   \
    ROW(diffuse)                                                                                   \
    ROW(forecast)                                                                                  \
    ROW(nodes)                                                                                     \
    ROW(links)                                                                                     \
    ROW(graphs)

#define DECLARE(name) extern const by__task_row by__task_##name;
#define ADDRESS(name) &by__task_##name,
TASKS(DECLARE)
static const by__task_row *const tasks[] = {TASKS(ADDRESS)};

const by__config_kind *by__task_kind(size_t index)
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

/* ---- damaged data ---- */

#define SHOWN_DAMAGE 20

static void note(const by_train_options *to, const char *format, ...) BY_PRINTF(2, 3);
static void note(const by_train_options *to, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
    if (to != NULL && to->event != NULL) {
        to->event(to->user, &event);
    }
}

/* The part with the most damaged examples. */
static const by_damage *find_worst(const by_task_data *data, uint64_t *count)
{
    const by_damage *worst = NULL;
    *count = 0;
    for (size_t i = 0; i < data->damage_count; i++) {
        uint64_t sum = 0;
        size_t first = i;
        for (;
             i < data->damage_count && strcmp(data->damage[i].path, data->damage[first].path) == 0;
             i++) {
            sum += data->damage[i].count;
        }
        i--;
        if (sum > *count) {
            *count = sum;
            worst = &data->damage[first];
        }
    }
    return worst;
}

static void describe_damage(const by_train_options *to, const by_damage *d, const char *examples)
{
    if (strncmp(d->reason, d->path, strlen(d->path)) == 0) { /* a picture that is the whole file */
        note(to, "left out: %s", d->reason);
    } else if (d->count == 1) {
        note(to, "left out: %s, at %llu: %.*s number %llu: %s", d->path,
             (unsigned long long)d->place, (int)strlen(examples) - 1, examples,
             (unsigned long long)d->begin, d->reason);
    } else {
        note(to, "left out: %s, at %llu: %llu %s from number %llu on: %s", d->path,
             (unsigned long long)d->place, (unsigned long long)d->count, examples,
             (unsigned long long)d->begin, d->reason);
    }
}

static by_status judge_damage(const by_task_data *data, const by_task_request *request,
                              by_error *error)
{
    const char *examples = data->task->examples;
    double budget = request->config->data.corrupt_budget;
    double most = by__loader_damage_allowed(budget, data->all);
    uint64_t count;
    const by_damage *worst = find_worst(data, &count);
    /* What is predicted teaches nothing, however much of it is left out. */
    if ((double)data->damaged > most && request->purpose != BY_TASK_PREDICT) {
        return by_error_set(
            error, BY_EFORMAT,
            "%llu of %llu %s are damaged, and data.corrupt_budget %g allows %.0f; the most, %llu, "
            "are in %s, first at %llu: %s (mend them, or raise the budget: below 1 it is a share, "
            "from 1 on their number)",
            (unsigned long long)data->damaged, (unsigned long long)data->all, examples, budget,
            floor(most), (unsigned long long)count, worst->path, (unsigned long long)worst->place,
            worst->reason);
    }
    /* Who has predictions must know of which examples there is none. */
    size_t shown = request->purpose == BY_TASK_PREDICT ? SIZE_MAX : SHOWN_DAMAGE;
    for (size_t i = 0; i < data->damage_count && i < shown; i++) {
        describe_damage(request->progress, &data->damage[i], examples);
    }
    if (data->damage_count > shown) {
        note(request->progress, "left out: %zu more; %llu of %llu %s altogether",
             data->damage_count - shown, (unsigned long long)data->damaged,
             (unsigned long long)data->all, examples);
    }
    return BY_OK;
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
        bool texts = strcmp(by_model_reads(&request->config->model), "tokens") == 0;
        bool rates = strcmp(task->name, "reward") == 0;
        return by_error_set(
            error, BY_EARG, "task.kind %s has no predictions to print%s", task->name,
            rates   ? "; `banyan classify RUN --batch FILE` gives the rewards of texts"
            : texts ? "; `banyan embed RUN --batch FILE` makes vectors of texts"
                    : "");
    }
    if (request->test && !task->keeps_test) {
        return by_error_set(error, BY_EARG,
                            "task %s keeps no part of its data for a test: name other data",
                            task->name);
    }
    if (request->more_count > 0 && strcmp(by_model_reads(&request->config->model), "images") != 0) {
        return by_error_set(error, BY_EARG, "%s: several files at once are images; give one file%s",
                            request->more[0],
                            strcmp(by_model_reads(&request->config->model), "table") == 0
                                ? ", or a directory of the parts of a table"
                                : "");
    }
    by_task_data *data;
    if (request->purpose == BY_TASK_TRAIN) {
        bool resumed = request->progress != NULL && request->progress->resume != NULL;
        BY_TRY(by__task_named_files_exist(request->config, resumed, error));
    }
    BY_TRY(task->open(&data, request, error));
    by_status status = data->damage_count == 0 ? BY_OK : judge_damage(data, request, error);
    if (status != BY_OK) {
        by_task_close(&data);
        return status;
    }
    *out = data;
    return BY_OK;
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
    BY_TRY(by_config_inherit_model(config, error));
    return data->task->complete == NULL ? BY_OK : data->task->complete(data, config, error);
}

void by_task_metrics(const by_task_data *data, const double *const *sums, by_evaluation *evaluation)
{
    const by_task *task = evaluation->task;
    bool known = sums != NULL || task->sum_count == 0;
    for (size_t i = 0; i < BY_TASK_METRICS; i++) {
        evaluation->metrics[i] = known && i < task->metric_count && task->metrics[i].value != NULL
                                     ? task->metrics[i].value(data, sums, evaluation)
                                     : (double)NAN;
    }
    evaluation->output_metric_count = known && data != NULL ? data->output_metric_count : 0;
    evaluation->output_metrics = data != NULL ? data->output_metrics : NULL;
    for (size_t i = 0; i < evaluation->output_metric_count; i++) {
        by_output_metric *m = &data->output_metrics[i];
        m->value = task->output_metric(data, sums, m->metric, m->output);
    }
}

static by_loader_options loader_options(const by_config *config, bool training)
{
    int64_t batch = training ? config->train.batch : config->train.micro_batch;
    return (by_loader_options){
        .batch = (size_t)batch, .seed = config->seed, .threads = by__task_loader_threads(config)};
}

by_status by_task_loader(by_loader **out, by_task_data *data, const by_config *config,
                         bool training, by_error *error)
{
    by_source *source;
    const by_loader_options options = loader_options(config, training);
    BY_TRY(data->task->source(&source, data, config, training, error));
    return by_loader_open(out, source, &options, error);
}

by_status by_task_plain_loader(by_loader **out, by_task_data *data, const by_config *config,
                               by_error *error)
{
    by_source *source;
    const by_loader_options options = loader_options(config, true);
    if (data->task->plain == NULL) {
        return by_error_set(error, BY_EARG, "task %s does not augment its data", data->task->name);
    }
    BY_TRY(data->task->plain(&source, data, error));
    return by_loader_open(out, source, &options, error);
}
