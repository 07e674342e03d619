/* Weights written into a directory in Hugging Face form. */
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

/* Removes the weight files in the directory that were not written just now, the single file first:
 * it is what a reader looks for first. */
static by_status remove_others(const char *directory, const by__file_list *written, by_error *error)
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
    by__file_list written = {0};
    if (count == 0) {
        return by_error_set(error, BY_EARG, "%s: there are no tensors to write", directory);
    }
    by_status status =
        by__weights_write(directory, "model", tensors, count, shard_bytes, &written, error);
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    if (status == BY_OK) {
        status = remove_others(directory, &written, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    by__file_list_free(&written);
    return status;
}
