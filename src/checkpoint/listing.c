/* Lists checkpoints, with their defects. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/paths.h"
#include "checkpoint/storage.h"

double by__checkpoint_loss(const char *directory)
{
    char *text = NULL;
    size_t length;
    by__checkpoint_state state;
    double loss = (double)NAN;
    char *path = by__path_join(directory, "state.json");
    if (path == NULL || by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, NULL) != BY_OK) {
        free(path);
        return loss;
    }
    if (by__checkpoint_state_parse(&state, path, text, length, NULL) == BY_OK) {
        for (size_t i = 0; i < state.count; i++) {
            const by_checkpoint_value *v = &state.values[i];
            if (strcmp(v->key, "valid_loss") == 0 && v->kind == BY_VALUE_F64) {
                loss = v->as.f64;
            }
        }
        by__checkpoint_state_free(&state);
    }
    free(text);
    free(path);
    return loss;
}

/* Bytes of the files, and of those that are in no other directory. */
static void measure(by_checkpoint_info *out, const char *directory,
                    const by__checkpoint_manifest *manifest)
{
    out->files = manifest->files.count;
    for (size_t i = 0; i < manifest->files.count; i++) {
        const by__checkpoint_file_record *f = &manifest->files.items[i];
        struct stat info;
        char *path = by__path_join(directory, f->name);
        out->bytes += f->size;
        if (path != NULL && lstat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            info.st_nlink == 1) {
            out->own_bytes += f->size;
        }
        free(path);
    }
}

static by_status describe(by_checkpoint_info *out, const char *path, bool verify, by_error *error)
{
    by__checkpoint_manifest manifest;
    by_error reason = {0};
    *out = (by_checkpoint_info){.path = by__strdup(path), .loss = (double)NAN};
    if (out->path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    const char *slash = strrchr(path, '/');
    bool named = by__checkpoint_step_of_name(slash == NULL ? path : slash + 1, &out->step);
    by_status status = by__checkpoint_manifest_check(&manifest, path, verify, &reason);
    if (status == BY_OK && named && manifest.step != out->step) {
        status = by_error_set(&reason, BY_EFORMAT, "%s: its manifest is that of step %" PRIu64,
                              path, manifest.step);
    } else if (status == BY_OK) {
        out->step = manifest.step;
    }
    if (status != BY_OK) {
        out->reason = by__strdup(reason.message);
        if (out->reason == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %s", reason.message);
        }
        return BY_OK;
    }
    out->loss = by__checkpoint_loss(path);
    measure(out, path, &manifest);
    by__checkpoint_manifest_free(&manifest);
    return BY_OK;
}

static by_status add_all(by_checkpoint_list *list, const char *root, const uint64_t *steps,
                         size_t count, bool verify, by_error *error)
{
    bool marked;
    uint64_t best = 0;
    double loss;
    if (by__checkpoint_root_best(&marked, &best, &loss, root, NULL) != BY_OK) {
        marked = false;
    }
    BY_TRY(by__alloc((void **)&list->items, count, sizeof *list->items, "checkpoints", error));
    for (size_t i = count; i > 0; i--) {
        char *path;
        BY_TRY(by__checkpoint_step_path(&path, root, steps[i - 1], error));
        by_checkpoint_info *info = &list->items[list->count++];
        by_status status = describe(info, path, verify, error);
        info->is_best = marked && info->step == best;
        free(path);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status list_root(by_checkpoint_list *list, const char *root, bool verify, by_error *error)
{
    uint64_t *steps;
    size_t count;
    BY_TRY(by__checkpoint_root_steps(&steps, &count, root, error));
    by_status status = count > 0
                           ? add_all(list, root, steps, count, verify, error)
                           : by_error_set(error, BY_ESTATE, "%.300s holds no checkpoint", root);
    free(steps);
    return status;
}

by_status by_checkpoint_list_make(by_checkpoint_list *out, const char *path, bool verify,
                                  by_error *error)
{
    by_checkpoint_list list = {0};
    char *manifest;
    uint64_t step;
    const char *slash = strrchr(path, '/');
    BY_TRY(by__path_make(&manifest, path, "manifest.json", error));
    bool one = by__path_exists(manifest) ||
               (by__checkpoint_step_of_name(slash == NULL ? path : slash + 1, &step) &&
                by__path_is_dir(path));
    free(manifest);
    by_status status;
    if (one) {
        status = by__alloc((void **)&list.items, 1, sizeof *list.items, "checkpoints", error);
        if (status == BY_OK) {
            list.count = 1;
            status = describe(&list.items[0], path, verify, error);
        }
    } else {
        status = list_root(&list, path, verify, error);
    }
    if (status != BY_OK) {
        by_checkpoint_list_free(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}

void by_checkpoint_list_free(by_checkpoint_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].path);
        free(list->items[i].reason);
    }
    free(list->items);
    *list = (by_checkpoint_list){0};
}
