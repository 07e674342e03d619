/* run.json: the description and state of a run, next to its config and events. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "track/track.h"

enum { max_run_file = 1 << 16 };

static void add_text(by_string *text, const char *key, const char *value)
{
    const char *shown = value == NULL ? "" : value;
    by_string_format(text, "  \"%s\": ", key);
    by_string_json(text, shown, strlen(shown));
    by__string_append(text, ",\n");
}

by_status by__track_run_write(const char *directory, const by_run_record *run, by_error *error)
{
    by_string text = {0};
    char loss[32];
    by__format_f64(loss, run->best_loss);
    by__string_append(&text, "{\n");
    add_text(&text, "name", run->name);
    add_text(&text, "config_hash", run->config_hash);
    add_text(&text, "started", run->started);
    add_text(&text, "updated", run->updated);
    add_text(&text, "status", run->status);
    by_string_format(&text, "  \"step\": %" PRIu64 ",\n  \"steps\": %" PRIu64 ",\n", run->step,
                     run->steps);
    by_string_format(&text, "  \"best_loss\": %s\n}\n", isfinite(run->best_loss) ? loss : "null");
    char *path = by__path_join(directory, "run.json");
    by_status status = text.failed || path == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: run.json")
                           : by__file_write(path, text.data, text.length, error);
    free(path);
    by_string_free(&text);
    return status;
}

static by_status copy_text(const char **out, const json_t *root, const char *key, const char *path,
                           by_error *error)
{
    const char *value = json_string_value(json_object_get(root, key));
    if (value == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: expected a string \"%s\"", path, key);
    }
    *out = by__strdup(value);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: run.json") : BY_OK;
}

static by_status copy_count(uint64_t *out, const json_t *root, const char *key, const char *path,
                            by_error *error)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return by_error_set(error, BY_EFORMAT, "%s: expected a count \"%s\"", path, key);
    }
    *out = (uint64_t)json_integer_value(value);
    return BY_OK;
}

static by_status read_root(by_run_record *run, const json_t *root, const char *path,
                           by_error *error)
{
    const json_t *loss = json_object_get(root, "best_loss");
    BY_TRY(copy_text(&run->name, root, "name", path, error));
    BY_TRY(copy_text(&run->config_hash, root, "config_hash", path, error));
    BY_TRY(copy_text(&run->started, root, "started", path, error));
    BY_TRY(copy_text(&run->updated, root, "updated", path, error));
    BY_TRY(copy_text(&run->status, root, "status", path, error));
    BY_TRY(copy_count(&run->step, root, "step", path, error));
    BY_TRY(copy_count(&run->steps, root, "steps", path, error));
    if (!json_is_number(loss) && !json_is_null(loss)) {
        return by_error_set(error, BY_EFORMAT, "%s: expected a number or null \"best_loss\"", path);
    }
    run->best_loss = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
    return BY_OK;
}

by_status by__track_run_parse(by_run_record *out, const char *path, const char *text, size_t length,
                              by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by_run_record run = {0};
    by_status status = read_root(&run, root, path, error);
    json_decref(root);
    if (status != BY_OK) {
        by__track_run_free(&run);
        return status;
    }
    *out = run;
    return BY_OK;
}

by_status by__track_run_read(by_run_record *out, const char *directory, by_error *error)
{
    char *text = NULL;
    size_t length;
    char *path;
    BY_TRY(by__path_make(&path, directory, "run.json", error));
    by_status status = by__file_read(&text, &length, path, max_run_file, error);
    if (status == BY_OK) {
        status = by__track_run_parse(out, path, text, length, error);
    }
    free(text);
    free(path);
    return status;
}

void by__track_run_free(by_run_record *run)
{
    const char *const texts[] = {run->name,    run->path,    run->config_hash,
                                 run->started, run->updated, run->status};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        free((void *)(uintptr_t)texts[i]);
    }
    *run = (by_run_record){0};
}
