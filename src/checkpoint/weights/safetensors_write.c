/* Writes tensors of the caller to safetensors files: one, or shards and an index. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/storage.h"

by_status by_tensor_size(const by_tensor_view *tensor, size_t *elements, size_t *bytes,
                         by_error *error)
{
    const char *name = tensor->name == NULL ? "" : tensor->name;
    size_t count = 1;
    size_t total;
    bool empty = false;
    bool fits = true;
    if (by_dtype_size(tensor->dtype) == 0 || tensor->rank < 0 ||
        tensor->rank > BY_TENSOR_MAX_RANK) {
        return by_error_set(error, BY_EARG, "tensor '%.200s': dtype %d or rank %d is not valid",
                            name, (int)tensor->dtype, tensor->rank);
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0) {
            return by_error_set(error, BY_EARG, "tensor '%.200s': dimension %d is %" PRId64, name,
                                i, tensor->shape[i]);
        }
        empty = empty || tensor->shape[i] == 0;
        fits = fits && by__size_mul(count, (size_t)tensor->shape[i], &count);
    }
    count = empty ? 0 : count;
    if ((!fits && !empty) || !by__size_mul(count, by_dtype_size(tensor->dtype), &total)) {
        return by_error_set(error, BY_EMEMORY, "tensor '%.200s': its size overflows", name);
    }
    if (elements != NULL) {
        *elements = count;
    }
    if (bytes != NULL) {
        *bytes = total;
    }
    return BY_OK;
}

by_status by_tensor_read_f32(const by_tensor_view *tensor, float *out, size_t count,
                             by_error *error)
{
    size_t elements;
    BY_TRY(by_tensor_size(tensor, &elements, NULL, error));
    if (elements != count) {
        return by_error_set(error, BY_EARG, "tensor '%.200s' has %zu elements, expected %zu",
                            tensor->name, elements, count);
    }
    const uint8_t *bytes = tensor->data;
    switch (tensor->dtype) {
    case BY_F32:
        if (count > 0) {
            memcpy(out, bytes, count * sizeof *out);
        }
        return BY_OK;
    case BY_BF16:
    case BY_F16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = tensor->dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
        }
        return BY_OK;
    default:
        return by_error_set(error, BY_EFORMAT, "tensor '%.200s' is %s, expected f32, bf16 or f16",
                            tensor->name, by_dtype_name(tensor->dtype));
    }
}

static by_status write_file(const char *directory, const by__checkpoint_weights_plan *plan,
                            size_t file, const by_tensor_view *tensors,
                            by__checkpoint_file_list *written, by_error *error)
{
    const by__checkpoint_planned_file *f = &plan->files[file];
    by__checkpoint_sink *sink;
    BY_TRY(by__checkpoint_sink_open(&sink, directory, f->name, f->size, error));
    by_status status = by__checkpoint_sink_add(sink, f->header.data, f->header.length, error);
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        size_t tensor = plan->order[f->first + i];
        status = by__checkpoint_sink_add(sink, tensors[tensor].data,
                                         (size_t)plan->tensors[tensor].bytes, error);
    }
    if (status != BY_OK) {
        by__checkpoint_sink_discard(&sink);
        return status;
    }
    return by__checkpoint_sink_commit(&sink, written, error);
}

static by_status path_of(char **out, const char *directory, const char *name, by_error *error)
{
    *out = by__path_join(directory, name);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
}

static by_status any_exists(bool *out, const char *directory,
                            const by__checkpoint_weights_plan *plan, by_error *error)
{
    *out = false;
    for (size_t i = 0; i < plan->file_count; i++) {
        char *path;
        BY_TRY(path_of(&path, directory, plan->files[i].name, error));
        *out = *out || by__path_exists(path);
        free(path);
    }
    return BY_OK;
}

/* Gives the shards names that do not exist in the directory. */
static by_status choose_names(const char *directory, const char *stem,
                              by__checkpoint_weights_plan *plan, const by_tensor_view *tensors,
                              by_error *error)
{
    bool taken;
    BY_TRY(any_exists(&taken, directory, plan, error));
    for (int version = 2; taken; version++) {
        char other[256];
        (void)snprintf(other, sizeof other, "%.180s-v%d", stem, version);
        BY_TRY(by__weights_plan_rename(plan, other, tensors, error));
        BY_TRY(any_exists(&taken, directory, plan, error));
    }
    return BY_OK;
}

/* Writes the files of a plan, the index last. On failure the shards are removed, since no index
 * names them. */
static by_status write_files(const char *directory, const by__checkpoint_weights_plan *plan,
                             const by_tensor_view *tensors, by__checkpoint_file_list *written,
                             by_error *error)
{
    by_status status = BY_OK;
    size_t file = 0;
    for (; file < plan->file_count && status == BY_OK; file++) {
        status = write_file(directory, plan, file, tensors, written, error);
    }
    if (status == BY_OK && plan->index != NULL) {
        status = by__checkpoint_sink_put(directory, plan->index_name, plan->index,
                                         plan->index_length, written, error);
    }
    for (; file > 0 && status != BY_OK && plan->index != NULL; file--) {
        char *path;
        if (path_of(&path, directory, plan->files[file - 1].name, NULL) == BY_OK) {
            (void)by__remove_tree(path, NULL);
            free(path);
        }
    }
    return status;
}

by_status by__weights_write(const char *directory, const char *stem, const by_tensor_view *tensors,
                            size_t count, uint64_t shard_bytes, by__checkpoint_file_list *written,
                            by_error *error)
{
    by__checkpoint_weights_plan plan;
    BY_TRY(by__weights_plan_make(&plan, stem, tensors, count, shard_bytes, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (plan.tensors[i].bytes > 0 && tensors[i].data == NULL) {
            status = by_error_set(error, BY_EARG, "tensor '%.200s' has no data", tensors[i].name);
        }
    }
    if (status == BY_OK && plan.index != NULL) {
        status = choose_names(directory, stem, &plan, tensors, error);
    }
    if (status == BY_OK) {
        status = write_files(directory, &plan, tensors, written, error);
    }
    by__weights_plan_free(&plan);
    return status;
}

by_status by_tensors_write(const char *path, const by_tensor_view *tensors, size_t count,
                           by_error *error)
{
    static const char suffix[] = ".safetensors";
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    size_t length = strlen(file);
    size_t stem_length = length - (sizeof suffix - 1);
    if (length <= sizeof suffix - 1 || strcmp(file + stem_length, suffix) != 0) {
        return by_error_set(error, BY_EARG, "'%s' does not end in .safetensors", path);
    }
    char *directory =
        slash == NULL ? by__strdup(".") : by__strndup(path, (size_t)(slash - path) + 1);
    char *stem = by__strndup(file, stem_length);
    by_status status =
        directory == NULL || stem == NULL
            ? by_error_set(error, BY_EMEMORY, "out of memory: path")
            : by__weights_write(directory, stem, tensors, count, UINT64_MAX, NULL, error);
    free(directory);
    free(stem);
    return status;
}
