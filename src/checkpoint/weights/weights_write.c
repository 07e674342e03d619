/* Writes weights into a directory in Hugging Face format. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

/* True for STEM.safetensors, its index and its shards. */
static bool is_weight_file(const char *name, const char *stem)
{
    size_t n = strlen(stem);
    const char *rest = name + n;
    size_t length = strlen(name);
    const char suffix[] = ".safetensors";
    if (strncmp(name, stem, n) != 0) {
        return false;
    }
    if (strcmp(rest, suffix) == 0 || strcmp(rest, ".safetensors.index.json") == 0) {
        return true;
    }
    return rest[0] == '-' && strstr(rest, "-of-") != NULL && length > sizeof suffix &&
           strcmp(name + length - (sizeof suffix - 1), suffix) == 0;
}

/* Removes weight files in the directory that were not just written, the single file first, because
 * readers look for it first. */
static by_status remove_stale(const char *directory, const by__checkpoint_file_list *written,
                              by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, directory, error));
    by_status status = BY_OK;
    for (int pass = 0; pass < 2 && status == BY_OK; pass++) {
        for (size_t i = 0; i < count && status == BY_OK; i++) {
            bool single = strcmp(names[i], "model.safetensors") == 0;
            bool keep = !is_weight_file(names[i], "model") || single != (pass == 0);
            for (size_t k = 0; k < written->count && !keep; k++) {
                keep = strcmp(written->items[k].name, names[i]) == 0;
            }
            if (!keep) {
                char *path = by__path_join(directory, names[i]);
                status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                      : by__remove_tree(path, error);
                free(path);
            }
        }
    }
    by__names_free(names, count);
    return status;
}

by_status by_weights_write(const char *directory, const by_tensor_view *tensors, size_t count,
                           uint64_t shard_bytes, by_error *error)
{
    by__checkpoint_file_list written = {0};
    if (count == 0) {
        return by_error_set(error, BY_EARG, "%s: there are no tensors to write", directory);
    }
    by_status status =
        by__weights_write(directory, "model", tensors, count, shard_bytes, &written, error);
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    if (status == BY_OK) {
        status = remove_stale(directory, &written, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    by__checkpoint_file_list_free(&written);
    return status;
}

static by_status add_bytes(void *sink, const void *bytes, size_t n, by_error *error)
{
    return by__checkpoint_sink_add(sink, bytes, n, error);
}

static by_status write_file(const char *directory, const by__checkpoint_weights_plan *plan,
                            size_t file, const by__checkpoint_tensor_entry *const *entries,
                            by__checkpoint_file_list *written, by_error *error)
{
    const by__checkpoint_planned_file *f = &plan->files[file];
    by__checkpoint_sink *sink;
    BY_TRY(by__checkpoint_sink_open(&sink, directory, f->name, f->size, error));
    by_status status = by__checkpoint_sink_add(sink, f->header.data, f->header.length, error);
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        status =
            by__checkpoint_entry_bytes(entries[plan->order[f->first + i]], add_bytes, sink, error);
    }
    if (status != BY_OK) {
        by__checkpoint_sink_discard(&sink);
        return status;
    }
    return by__checkpoint_sink_commit(&sink, written, error);
}

by_status by__checkpoint_entries_write(const char *directory, const char *stem,
                                       const by_tensor_view *views,
                                       const by__checkpoint_tensor_entry *const *entries,
                                       size_t count, uint64_t shard_bytes,
                                       by__checkpoint_file_list *written, by_error *error)
{
    by__checkpoint_weights_plan plan = {0};
    BY_TRY(by__weights_plan_make(&plan, stem, views, count, shard_bytes, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < plan.file_count && status == BY_OK; i++) {
        status = write_file(directory, &plan, i, entries, written, error);
    }
    if (status == BY_OK && plan.index != NULL) {
        status = by__checkpoint_sink_put(directory, plan.index_name, plan.index, plan.index_length,
                                         written, error);
    }
    by__weights_plan_free(&plan);
    return status;
}
