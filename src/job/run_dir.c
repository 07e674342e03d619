/* Run directories: creates or finds one, locks it, and writes its records. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/path_hint.h"
#include "base/paths.h"
#include "job/job.h"
#include "schema/config_history.h"
#include "trainer/state/trainer.h"

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: path");
}

/* Creates DIR/NAME, or DIR/NAME-2, -3, ...: mkdir is atomic, so two jobs never share one. */
static by_status make_directory(char **out, const char *runs, const char *name, by_error *error)
{
    BY_TRY(by__make_dirs(runs, error));
    for (int attempt = 1; attempt < 10000; attempt++) {
        by_string text = {0};
        char *path;
        by_string_format(&text, attempt == 1 ? "%s/%s" : "%s/%s-%d", runs, name, attempt);
        BY_TRY(by__string_release(&text, &path, error));
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

static by_status write_inside(const by__job *job, const char *name, const char *text,
                              by_error *error)
{
    char *path = by__path_join(job->dir.path, name);
    by_status status =
        path == NULL ? no_memory(error) : by__file_write(path, text, strlen(text), error);
    free(path);
    return status;
}

static void show(void *user, const void *report)
{
    const by__job *job = user;
    job->options->event(job->options->user, report);
}

static void note(void *user, const char *text)
{
    by__job_note(user, "%s", text);
}

/* The tracker options of a config. */
static by__track_tracker_options tracker_options(const by_config *config)
{
    const by_track_config *c = &config->track;
    return (by__track_tracker_options){.sinks = (const char *const *)c->sinks.items,
                                       .sink_count = c->sinks.count,
                                       .project = c->project,
                                       .mlflow = c->mlflow,
                                       .prometheus = c->prometheus};
}

by_status by__job_run_dir_check(const by_config *config, by_error *error)
{
    const by__track_tracker_options options = tracker_options(config);
    return by__track_tracker_check(&options, error);
}

static by_status open_tracker(by__job *job, by_error *error)
{
    by__track_tracker_options options = tracker_options(job->config);
    options.run = job->dir.path;
    options.is_resumed = job->options->resume != NULL;
    options.step = (uint64_t)job->at.first_step;
    options.eval_pending = job->valid.is_pending;
    options.show = job->options->event == NULL ? NULL : show;
    options.note = note;
    options.user = job;
    return by__track_tracker_open(&job->tracker, &options, error);
}

by_status by__job_run_dir_name(by__job *job, by_error *error)
{
    return by__path_make(&job->dir.checkpoints, job->dir.path, "checkpoints", error);
}

static by_status lock_directory(by__job *job, by_error *error)
{
    BY_TRY(by__job_run_dir_name(job, error));
    BY_TRY(by__track_run_lock(&job->dir.lock, job->dir.path, error));
    /* Held open, so that no other directory gets its number. */
    job->dir.handle = open(job->dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return job->dir.handle < 0 ? by__io_error(error, "open", job->dir.path) : BY_OK;
}

by_status by__job_run_dir_check_exists(const by__job *job, by_error *error)
{
    struct stat ours;
    struct stat named;
    if (fstat(job->dir.handle, &ours) != 0) {
        return by__io_error(error, "look at", job->dir.path);
    }
    bool found = stat(job->dir.path, &named) == 0;
    if (found && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino) {
        return BY_OK;
    }
    return by_error_set(error, BY_EIO,
                        "the run directory %s was moved or removed while it was trained%s: nothing "
                        "is written there; where the directory was moved to, resume it from its "
                        "newest checkpoint",
                        job->dir.path, found ? ", and another is in its place" : "");
}

by_status by__job_run_dir_find(by__job *job, by_error *error)
{
    BY_TRY(by_run_find(&job->dir.path, job->options->resume, error));
    return lock_directory(job, error);
}

by_status by__job_run_dir_make(by__job *job, by_error *error)
{
    BY_TRY(make_directory(&job->dir.path, job->config->run.dir, job->config->name, error));
    return lock_directory(job, error);
}

/* by_run_find returns a path whose last component is the run's name. */
static by_run_record describe_progress(const by__job *job, const char *status)
{
    const char *slash = strrchr(job->dir.path, '/');
    return (by_run_record){.name = slash == NULL ? job->dir.path : slash + 1,
                           .config_hash = job->config_hash,
                           .started = job->dir.started,
                           .status = status,
                           .step = (uint64_t)by_trainer_updates(job->trainer),
                           .steps = (uint64_t)job->config->train.steps,
                           .best_loss = job->best.loss};
}

/* Updates the registry, an index that can be rebuilt from the run directories. */
static by_status index_run(const by__job *job, const by_run_record *record, by_error *error)
{
    by_registry *registry;
    const char *slash = strrchr(job->dir.path, '/');
    char *runs = slash == NULL
                     ? by__strdup(".")
                     : by__strndup(job->dir.path,
                                   slash == job->dir.path ? 1 : (size_t)(slash - job->dir.path));
    if (runs == NULL) {
        return no_memory(error);
    }
    by_status status = by_registry_open(&registry, runs, error);
    free(runs);
    if (status == BY_OK) {
        status = by__track_registry_put(registry, record, error);
        by_registry_close(&registry);
    }
    return status;
}

static by_status write_record(const by__job *job, by_run_record *record, by_error *error)
{
    char now[24];
    by__utc_now(now);
    record->updated = now;
    by_status status = by__track_run_write(job->dir.path, record, error);
    record->updated = NULL;
    return status;
}

static void update_index(by__job *job, const by_run_record *record)
{
    by_error error = {0};
    if (index_run(job, record, &error) != BY_OK && !job->dir.index_failing) {
        job->dir.index_failing = true;
        by__job_note(job, "%s; the run continues without this index of runs", error.message);
    }
}

/* Number of hosts of the ranks. */
static int count_hosts(const by_comm *comm)
{
    int hosts = 1;
    for (int r = 1; comm != NULL && r < by_comm_size(comm); r++) {
        bool is_new = true;
        for (int k = 0; k < r; k++) {
            is_new = is_new && strcmp(by_comm_host(comm, k), by_comm_host(comm, r)) != 0;
        }
        hosts += is_new;
    }
    return hosts;
}

/* Describes the machine, the ranks and their topology, and the hashes of the data. */
static by_status describe_environment(by__job *job, by_error *error)
{
    enum { own = 6 };
    char ranks[16];
    char hosts[16];
    char threads[16];
    char mesh[256];
    by_task_kept kept = {0};
    const by_task *task = job->data->task;
    by_environment_fact facts[own + BY_TASK_FILES] = {
        {"ranks", ranks},
        {"hosts", hosts},
        {"transport", job->comm == NULL ? "none" : by_comm_backend(job->comm)},
        {"threads_per_rank", threads},
        {"mesh", mesh},
        {"loss", task->loss_label == NULL ? "loss" : task->loss_label(job->config)}};
    size_t count = own;
    (void)snprintf(ranks, sizeof ranks, "%d", job->comm == NULL ? 1 : by_comm_size(job->comm));
    (void)snprintf(hosts, sizeof hosts, "%d", count_hosts(job->comm));
    (void)snprintf(threads, sizeof threads, "%d", job->trainer->threads);
    const by__trainer_layout *layout = &job->trainer->layout;
    by__trainer_layout_describe(layout, layout->size, mesh, sizeof mesh);
    BY_TRY(task->keep == NULL ? BY_OK : task->keep(job->data, job->config, &kept, error));
    for (size_t i = 0; i < kept.value_count; i++) {
        if (kept.values[i].kind == BY_VALUE_STRING) { /* hashes of the training data */
            facts[count++] = (by_environment_fact){kept.values[i].key, kept.values[i].as.string};
        }
    }
    return by_environment_json(&job->dir.environment, NULL, 0, facts, count, error);
}

/* "optimizer.lr: 0.001, was 0.003; ..." */
static void add_change(void *user, const char *key, const char *before, const char *after)
{
    by_string *text = user;
    by_string_format(text, "%s%s: %s, was %s", text->length == 0 ? "" : "; ", key,
                     after == NULL ? "none" : after, before == NULL ? "none" : before);
}

/* What a resumed run changes in the config that it had; empty: nothing. */
static by_status find_changes(by_string *out, const by__job *job, by_error *error)
{
    char *before;
    BY_TRY(by__schema_config_before(&before, job->dir.path, (uint64_t)job->at.first_step, error));
    by_status status =
        by__schema_config_compare(before, job->dir.config_text, add_change, out, error);
    free(before);
    if (status == BY_OK && out->failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: configs of a run");
    }
    return status;
}

/* A run that is trained from its start has one config, another keeps those that it had. */
static by_status keep_config(by__job *job, by_string *changes, by_error *error)
{
    if (job->at.first_step > 0) {
        BY_TRY(find_changes(changes, job, error));
    }
    bool keeps = job->at.first_step == 0 || changes->length > 0;
    return by__schema_config_keep(job->dir.path, (uint64_t)job->at.first_step,
                                  keeps ? job->dir.config_text : NULL, error);
}

static void record_changes(by__job *job, const by_string *changes)
{
    if (changes->length > 0) {
        by__track_begin(job->tracker, BY__EVENT_TEXT, "config", (uint64_t)job->at.first_step);
        by__track_text(job->tracker, "changes", changes->data);
        by__track_end(job->tracker);
        by__job_note(job, "from step %lld on: %s", (long long)job->at.first_step, changes->data);
    }
}

by_status by__job_run_dir_start(by__job *job, by_error *error)
{
    by_string changes = {0};
    by__utc_now(job->dir.started);
    BY_TRY(by_config_print(job->config, &job->dir.config_text, error));
    BY_TRY(describe_environment(job, error));
    by_status status = keep_config(job, &changes, error);
    if (status == BY_OK) {
        status = write_inside(job, "environment.json", job->dir.environment, error);
    }
    if (status == BY_OK) {
        status = open_tracker(job, error);
    }
    if (status == BY_OK) {
        record_changes(job, &changes);
    }
    by_string_free(&changes);
    BY_TRY(status);
    by_run_record record = describe_progress(job, "running");
    BY_TRY(write_record(job, &record, error));
    update_index(job, &record);
    return BY_OK;
}

void by__job_run_dir_update(by__job *job, const char *status)
{
    by_error error = {0};
    by_run_record record = describe_progress(job, status);
    bool is_running = strcmp(status, "running") == 0;
    if (by__job_run_dir_check_exists(job, NULL) != BY_OK) {
        return; /* the next save says so; another run may be in its place */
    }
    bool failing = write_record(job, &record, &error) != BY_OK;
    if (failing && (!job->dir.record_failing || !is_running)) {
        by__job_note(job, "%s", error.message);
    }
    job->dir.record_failing = failing;
    if (!job->dir.index_failing || !is_running) { /* a held lock costs seconds each time */
        update_index(job, &record);
    }
}

static bool is_run(const char *path)
{
    char *config = by__path_join(path, "config.yaml");
    bool found = config != NULL && by__path_is_dir(path) && by__path_exists(config);
    free(config);
    return found;
}

/* The directory by a path whose last component is its name: "runs/a/" becomes "runs/a", and "." and
 * ".." are resolved. */
static by_status name_path(char **out, const char *path, by_error *error)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    char *named = by__strndup(path, length);
    if (named == NULL) {
        return no_memory(error);
    }
    const char *slash = strrchr(named, '/');
    const char *last = slash == NULL ? named : slash + 1;
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        free(named);
        named = realpath(path, NULL);
        if (named == NULL) {
            return by__io_error(error, "resolve", path);
        }
    }
    *out = named;
    return BY_OK;
}

/* Says what a path that is no directory is. */
static by_status refuse_file(const char *path, by_error *error)
{
    char near[BY_PATH_HINT];
    if (!by__path_exists(path)) {
        return by_error_set(error, BY_ECONFIG, "%s is not a run directory: it does not exist%s",
                            path, by_path_hint(near, path));
    }
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 1 : (int)(slash - path);
    const char *directory = slash == NULL ? "." : path;
    bool is_config = strcmp(slash == NULL ? path : slash + 1, "config.yaml") == 0 && length > 0;
    return by_error_set(error, BY_ECONFIG,
                        "%s is not a run directory: it is a file; name the directory of a run, "
                        "such as %.*s",
                        path, is_config ? length : 9, is_config ? directory : "runs/NAME");
}

by_status by_run_find(char **out, const char *path, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    char *newest = NULL;
    struct timespec latest = {0};
    if (is_run(path)) {
        return name_path(out, path, error);
    }
    if (!by__path_is_dir(path)) {
        return refuse_file(path, error);
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
        return by_error_set(error, BY_ECONFIG,
                            "%s is not a run directory (no config.yaml) and holds none", path);
    }
    *out = newest;
    return BY_OK;
}
