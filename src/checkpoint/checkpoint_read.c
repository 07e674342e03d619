/* Opens checkpoints for reading: verification, weights, optimizer states and values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "checkpoint/storage.h"

struct by_checkpoint {
    char *path;
    by_weights *model;
    by_weights *optimizer;
    by__checkpoint_state state;
};

static by_status read_state(by_checkpoint *checkpoint, uint64_t step, by_error *error)
{
    char *text = NULL;
    size_t length;
    char *path;
    BY_TRY(by__path_make(&path, checkpoint->path, "state.json", error));
    by_status status = by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, error);
    if (status == BY_OK) {
        status = by__checkpoint_state_parse(&checkpoint->state, path, text, length, error);
    }
    if (status == BY_OK && checkpoint->state.step != step) {
        status =
            by_error_set(error, BY_EFORMAT, "%s is of step %" PRIu64 ", the manifest of %" PRIu64,
                         path, checkpoint->state.step, step);
    }
    free(text);
    free(path);
    return status;
}

static bool has_optimizer(const by__checkpoint_manifest *manifest)
{
    for (size_t i = 0; i < manifest->files.count; i++) {
        if (strncmp(manifest->files.items[i].name, "optimizer", 9) == 0) {
            return true;
        }
    }
    return false;
}

/* Finds the checkpoint directory that `path` refers to; clears `verify` if it was verified
 * already. */
static by_status resolve(char **directory, const char *path, bool *verify, by_error *error)
{
    uint64_t step;
    const char *slash = strrchr(path, '/');
    char *manifest;
    BY_TRY(by__path_make(&manifest, path, "manifest.json", error));
    bool is_checkpoint = by__path_exists(manifest) ||
                         by__checkpoint_step_of_name(slash == NULL ? path : slash + 1, &step);
    free(manifest);
    if (!is_checkpoint) {
        *verify = false;
        return by_checkpoint_latest(path, directory, NULL, error);
    }
    char *copy = by__strdup(path);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    *directory = copy;
    return BY_OK;
}

by_status by_checkpoint_open(by_checkpoint **out, const char *path, bool verify, by_error *error)
{
    by_checkpoint *checkpoint;
    by__checkpoint_manifest manifest = {0};
    BY_TRY(by__alloc((void **)&checkpoint, 1, sizeof *checkpoint, "checkpoint", error));
    by_status status = resolve(&checkpoint->path, path, &verify, error);
    if (status == BY_OK) {
        status = by__checkpoint_manifest_check(&manifest, checkpoint->path, verify, error);
    }
    if (status == BY_OK) {
        status = read_state(checkpoint, manifest.step, error);
    }
    if (status == BY_OK) {
        status = by__weights_open(&checkpoint->model, checkpoint->path, "model", error);
    }
    if (status == BY_OK && has_optimizer(&manifest)) {
        status = by__weights_open(&checkpoint->optimizer, checkpoint->path, "optimizer", error);
    }
    by__checkpoint_manifest_free(&manifest);
    if (status != BY_OK) {
        by_checkpoint_close(&checkpoint);
        return status;
    }
    *out = checkpoint;
    return BY_OK;
}

void by_checkpoint_close(by_checkpoint **checkpoint)
{
    by_checkpoint *c = *checkpoint;
    if (c != NULL) {
        by_weights_close(&c->model);
        by_weights_close(&c->optimizer);
        by__checkpoint_state_free(&c->state);
        free(c->path);
        free(c);
        *checkpoint = NULL;
    }
}

const char *by_checkpoint_path(const by_checkpoint *checkpoint)
{
    return checkpoint->path;
}

uint64_t by_checkpoint_step(const by_checkpoint *checkpoint)
{
    return checkpoint->state.step;
}

const by_weights *by_checkpoint_model(const by_checkpoint *checkpoint)
{
    return checkpoint->model;
}

const by_weights *by_checkpoint_optimizer(const by_checkpoint *checkpoint)
{
    return checkpoint->optimizer;
}

size_t by_checkpoint_value_count(const by_checkpoint *checkpoint)
{
    return checkpoint->state.count;
}

const by_checkpoint_value *by_checkpoint_value_at(const by_checkpoint *checkpoint, size_t i)
{
    return &checkpoint->state.values[i];
}

static by_status find_value(const by_checkpoint_value **out, const by_checkpoint *checkpoint,
                            const char *key, by_value_kind kind, by_error *error)
{
    static const char *const kinds[] = {"u64", "f64", "string"};
    for (size_t i = 0; i < checkpoint->state.count; i++) {
        const by_checkpoint_value *value = &checkpoint->state.values[i];
        if (strcmp(value->key, key) == 0) {
            if (value->kind != kind) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s/state.json: value '%s' is a %s, not a %s", checkpoint->path,
                                    key, kinds[value->kind], kinds[kind]);
            }
            *out = value;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s/state.json has no value '%s'", checkpoint->path,
                        key);
}

by_status by_checkpoint_value_u64(const by_checkpoint *checkpoint, const char *key, uint64_t *out,
                                  by_error *error)
{
    const by_checkpoint_value *value;
    BY_TRY(find_value(&value, checkpoint, key, BY_VALUE_U64, error));
    *out = value->as.u64;
    return BY_OK;
}

by_status by_checkpoint_value_f64(const by_checkpoint *checkpoint, const char *key, double *out,
                                  by_error *error)
{
    const by_checkpoint_value *value;
    BY_TRY(find_value(&value, checkpoint, key, BY_VALUE_F64, error));
    *out = value->as.f64;
    return BY_OK;
}

by_status by_checkpoint_value_string(const by_checkpoint *checkpoint, const char *key,
                                     const char **out, by_error *error)
{
    const by_checkpoint_value *value;
    BY_TRY(find_value(&value, checkpoint, key, BY_VALUE_STRING, error));
    *out = value->as.string;
    return BY_OK;
}
