/* The root of a run's checkpoints: its lock, the listing of steps, the search for the newest valid
 * checkpoint, and the mark of the best one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/storage.h"

enum { step_name_length = 32 };

static void step_name(char out[step_name_length], uint64_t step)
{
    (void)snprintf(out, step_name_length, "step-%08" PRIu64, step);
}

bool by__checkpoint_step_of_name(const char *name, uint64_t *step)
{
    char again[step_name_length];
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') {
        return false;
    }
    uint64_t value = strtoull(name + 5, &end, 10);
    step_name(again, value);
    if (strcmp(again, name) != 0) {
        return false;
    }
    *step = value;
    return true;
}

by_status by__checkpoint_step_path(char **out, const char *root, uint64_t step, by_error *error)
{
    char name[step_name_length];
    step_name(name, step);
    return by__path_make(out, root, name, error);
}

/* How long to wait for a process that removes checkpoints; one that writes a checkpoint holds the
 * lock for longer. */
#define LOCK_SECONDS 3.0

static bool acquire_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    double began = by__now();
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || by__now() - began > LOCK_SECONDS) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

by_status by__checkpoint_root_lock(int *fd, const char *root, by_error *error)
{
    char *path;
    by_status status = BY_OK;
    BY_TRY(by__path_make(&path, root, ".lock", error));
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) {
        status = by__io_error(error, "open", path);
    } else if (!acquire_lock(lock)) {
        if (errno == EWOULDBLOCK) {
            status = by_error_set(error, BY_ESTATE,
                                  "another process is writing checkpoints in %s; give this run "
                                  "another directory",
                                  root);
        }
        (void)close(lock);
        lock = -1;
    }
    free(path);
    if (status == BY_OK) {
        *fd = lock;
    }
    return status;
}

static bool is_leftover(const char *name)
{
    return (strncmp(name, "step-", 5) == 0 && strstr(name, ".tmp") != NULL) ||
           strncmp(name, ".trash-step-", 12) == 0;
}

by_status by__checkpoint_root_clean(const char *root, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, root, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (is_leftover(names[i])) {
            char *path = by__path_join(root, names[i]);
            status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                  : by__remove_tree(path, error);
            free(path);
        }
    }
    by__names_free(names, count);
    return status;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

by_status by__checkpoint_root_steps(uint64_t **out, size_t *count, const char *root,
                                    by_error *error)
{
    char **names;
    size_t name_count;
    uint64_t *steps;
    size_t n = 0;
    BY_TRY(by__list_dir(&names, &name_count, root, error));
    by_status status = by__alloc((void **)&steps, name_count, sizeof *steps, "step list", error);
    if (status == BY_OK) {
        for (size_t i = 0; i < name_count; i++) {
            n += by__checkpoint_step_of_name(names[i], &steps[n]) ? 1 : 0;
        }
        if (n > 1) {
            qsort(steps, n, sizeof *steps, newest_first);
        }
        *out = steps;
        *count = n;
    }
    by__names_free(names, name_count);
    return status;
}

by_status by__checkpoint_root_read(by__checkpoint_manifest *manifest, char **path, const char *root,
                                   uint64_t step, bool verify, by_error *error)
{
    char *directory = NULL;
    BY_TRY(by__checkpoint_step_path(&directory, root, step, error));
    by_status status = by__checkpoint_manifest_check(manifest, directory, verify, error);
    if (status == BY_OK && manifest->step != step) {
        status = by_error_set(error, BY_EFORMAT, "%s: its manifest is that of step %" PRIu64,
                              directory, manifest->step);
        by__checkpoint_manifest_free(manifest);
    }
    if (status == BY_OK) {
        *path = directory;
    } else {
        free(directory);
    }
    return status;
}

/* The same, but checks only the manifest itself. */
static by_status check_step(char **path, const char *root, uint64_t step, bool verify,
                            by_error *error)
{
    by__checkpoint_manifest manifest;
    BY_TRY(by__checkpoint_root_read(&manifest, path, root, step, verify, error));
    by__checkpoint_manifest_free(&manifest);
    return BY_OK;
}

by_status by_checkpoint_latest(const char *root, char **path, char **skipped, by_error *error)
{
    uint64_t *steps;
    size_t count;
    by_string report = {0};
    by_error reason = {0};
    by_error newest = {0};
    char *found = NULL;
    char *lines = NULL;
    BY_TRY(by__checkpoint_root_steps(&steps, &count, root, error));
    for (size_t i = 0; i < count && found == NULL; i++) {
        if (check_step(&found, root, steps[i], true, &reason) != BY_OK) {
            by_string_format(&report, "%s\n", reason.message);
            if (newest.status == BY_OK) {
                newest = reason;
            }
        }
    }
    free(steps);
    by_status status = by__string_release(&report, &lines, error);
    if (status == BY_OK && found == NULL) {
        status = by_error_set(error, BY_ESTATE, "%.150s holds no complete checkpoint%s%.250s", root,
                              count > 0 ? ": " : "", newest.message);
    }
    if (status != BY_OK || skipped == NULL) {
        free(lines);
    } else {
        *skipped = lines;
    }
    if (status != BY_OK) {
        free(found);
        return status;
    }
    *path = found;
    return BY_OK;
}

by_status by__checkpoint_run(char **out, const char *path, by_error *error)
{
    char *root;
    *out = NULL;
    BY_TRY(by__path_make(&root, path, "checkpoints", error));
    by_status status = by__path_is_dir(root) ? by_checkpoint_latest(root, out, NULL, error) : BY_OK;
    free(root);
    return status;
}

by_status by_checkpoint_mark_best(const char *root, uint64_t step, double loss, by_error *error)
{
    char *directory;
    char *path;
    char number[32];
    by_string text = {0};
    BY_TRY(check_step(&directory, root, step, false, error));
    free(directory);
    by__format_f64(number, loss);
    const char *quote = isfinite(loss) ? "" : "\"";
    by_string_format(&text, "{\"step\": %" PRIu64 ", \"loss\": %s%s%s}\n", step, quote, number,
                     quote);
    path = by__path_join(root, "best.json");
    by_status status = path == NULL || text.failed
                           ? by_error_set(error, BY_EMEMORY, "out of memory: best.json")
                           : by__file_write(path, text.data, text.length, error);
    free(path);
    by_string_free(&text);
    return status;
}

by_status by__checkpoint_root_best(bool *marked, uint64_t *step, double *loss, const char *root,
                                   by_error *error)
{
    char *text = NULL;
    size_t length;
    json_error_t json_error;
    char *path;
    by_status status = BY_OK;
    BY_TRY(by__path_make(&path, root, "best.json", error));
    *marked = by__path_exists(path);
    if (*marked) {
        status = by__file_read(&text, &length, path, 4096, error);
    }
    if (*marked && status == BY_OK) {
        json_t *root_value = by_json_load(text, length, JSON_REJECT_DUPLICATES, &json_error);
        const json_t *step_value = json_object_get(root_value, "step");
        const json_t *loss_value = json_object_get(root_value, "loss");
        *loss = json_number_value(loss_value);
        bool good =
            json_is_integer(step_value) && json_integer_value(step_value) >= 0 &&
            (json_is_number(loss_value) ||
             (json_is_string(loss_value) && by__parse_f64(json_string_value(loss_value), loss)));
        *step = good ? (uint64_t)json_integer_value(step_value) : 0;
        json_decref(root_value);
        if (!good) {
            status =
                by_error_set(error, BY_EFORMAT, "%s: expected {\"step\": N, \"loss\": X}", path);
        }
    }
    free(text);
    free(path);
    return status;
}

by_status by_checkpoint_best(const char *root, char **path, double *loss, by_error *error)
{
    bool marked;
    uint64_t step = 0;
    double value = 0;
    BY_TRY(by__checkpoint_root_best(&marked, &step, &value, root, error));
    if (!marked) {
        return by_error_set(error, BY_ESTATE, "%s: no checkpoint is marked as the best yet", root);
    }
    BY_TRY(check_step(path, root, step, true, error));
    if (loss != NULL) {
        *loss = value;
    }
    return BY_OK;
}

by_status by__checkpoint_path_is_weights(bool *out, const char *path, by_error *error)
{
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json",
                                        "model.slices.json"};
    char *manifest = by__path_join(path, "manifest.json");
    bool found = !by__path_is_dir(path);
    bool failed = manifest == NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files) && !found && !failed; i++) {
        char *file = by__path_join(path, files[i]);
        failed = file == NULL;
        found = !failed && by__path_exists(file) && !by__path_exists(manifest);
        free(file);
    }
    free(manifest);
    *out = found;
    return failed ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
}
