#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/loop.h"

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: path");
}

/* Makes DIR/NAME, or DIR/NAME-2, -3, ...: mkdir decides, so two jobs never share one. */
static by_status make_directory(char **out, const char *runs, const char *name, by_error *error)
{
    BY_TRY(by__make_dirs(runs, error));
    for (int attempt = 1; attempt < 10000; attempt++) {
        by__text text = {0};
        char *path;
        by__text_format(&text, attempt == 1 ? "%s/%s" : "%s/%s-%d", runs, name, attempt);
        BY_TRY(by__text_take(&text, &path, error));
        if (mkdir(path, 0777) == 0) {
            *out = path;
            return BY_OK;
        }
        int reason = errno;
        by_status status = by_error_set(error, BY_EIO, "cannot create the run directory %s: %s",
                                        path, strerror(reason));
        free(path);
        if (reason != EEXIST) {
            return status;
        }
    }
    return by_error_set(error, BY_EIO, "%s holds 10000 runs named %s; choose another name", runs,
                        name);
}

static by_status write_inside(const by__job *job, const char *name, char *text, by_error *error)
{
    char *path = by__path_join(job->run, name);
    by_status status =
        path == NULL ? no_memory(error) : by__file_write(path, text, strlen(text), error);
    free(path);
    free(text);
    return status;
}

static by_status describe(const by__job *job, by_error *error)
{
    char *text;
    BY_TRY(by_config_print(job->config, &text, error));
    BY_TRY(write_inside(job, "config.yaml", text, error));
    BY_TRY(by_environment_json(&text, NULL, 0, error));
    return write_inside(job, "environment.json", text, error);
}

static by_status open_tracks(by__job *job, by_error *error)
{
    char *events = by__path_join(job->run, "events.jsonl");
    if (events == NULL) {
        return no_memory(error);
    }
    by_status status = BY_OK;
    if (job->options->resume != NULL) {
        status = by_events_rewind(events, (uint64_t)job->first_step, error);
    }
    if (status == BY_OK) {
        status = by_events_open(&job->events, events, error);
    }
    free(events);
    BY_TRY(status);
    char *slash = strrchr(job->run, '/');
    char *runs =
        slash == NULL ? by__strdup(".") : by__strndup(job->run, (size_t)(slash - job->run));
    if (runs == NULL) {
        return no_memory(error);
    }
    status = by_registry_open(&job->registry, runs, error);
    free(runs);
    return status;
}

by_status by__run_dir_open(by__job *job, by_error *error)
{
    if (job->options->resume == NULL) {
        BY_TRY(make_directory(&job->run, job->config->run.dir, job->config->name, error));
    }
    job->checkpoints = by__path_join(job->run, "checkpoints");
    return job->checkpoints == NULL ? no_memory(error) : BY_OK;
}

by_status by__run_dir_start(by__job *job, by_error *error)
{
    by__utc_now(job->started);
    BY_TRY(describe(job, error));
    BY_TRY(open_tracks(job, error));
    return by__run_dir_update(job, "running", error);
}

by_status by__run_dir_update(by__job *job, const char *status, by_error *error)
{
    const char *slash = strrchr(job->run, '/');
    by_run_record record = {.name = slash == NULL ? job->run : slash + 1,
                            .config_hash = job->config_hash,
                            .started = job->started,
                            .status = status,
                            .step = (uint64_t)by_trainer_updates(job->trainer),
                            .steps = (uint64_t)job->config->train.steps,
                            .best_loss = job->best_loss};
    return by_registry_update(job->registry, &record, error);
}

static bool is_run(const char *path)
{
    char *config = by__path_join(path, "config.yaml");
    bool found = config != NULL && by__path_is_dir(path) && by__path_exists(config);
    free(config);
    return found;
}

by_status by_run_find(char **out, const char *path, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    char *newest = NULL;
    struct timespec latest = {0};
    if (is_run(path)) {
        *out = by__strdup(path);
        return *out == NULL ? no_memory(error) : BY_OK;
    }
    if (!by__path_is_dir(path)) {
        return by_error_set(error, BY_EIO, "%s is not a run directory: it does not exist", path);
    }
    BY_TRY(by__list_dir(&names, &count, path, error));
    for (size_t i = 0; i < count; i++) {
        char *child = by__path_join(path, names[i]);
        struct stat info;
        if (child != NULL && is_run(child) && stat(child, &info) == 0 &&
            (newest == NULL || info.st_mtim.tv_sec > latest.tv_sec ||
             (info.st_mtim.tv_sec == latest.tv_sec && info.st_mtim.tv_nsec > latest.tv_nsec))) {
            free(newest);
            newest = child;
            latest = info.st_mtim;
            child = NULL;
        }
        free(child);
    }
    by__names_free(names, count);
    if (newest == NULL) {
        return by_error_set(error, BY_EIO,
                            "%s is not a run directory (no config.yaml) and holds none", path);
    }
    *out = newest;
    return BY_OK;
}
