/* Writes the model of a checkpoint as one directory that other programs can load. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "checkpoint/origin.h"
#include "checkpoint/weights/adapter.h"

by_status by__checkpoint_weights_copy(const char *directory, const by_weights *weights,
                                      uint64_t shard_bytes, by_error *error)
{
    by_tensor_view *views;
    const by__checkpoint_tensor_entry **entries = NULL;
    size_t count = by_weights_count(weights);
    BY_TRY(by__alloc((void **)&views, count, sizeof *views, "tensor list", error));
    by_status status = by__alloc((void **)&entries, count, sizeof *entries, "tensor list", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        entries[i] = by__weights_entry(weights, i);
        status = by__weights_describe(weights, by_weights_name(weights, i), &views[i], error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_entries_write(directory, "model", views, entries, count,
                                              shard_bytes, NULL, error);
    }
    free(entries);
    free(views);
    return status;
}

static by_status copy_file(const char *directory, const char *from, const char *name,
                           by_error *error)
{
    char *path = by__path_join(from, name);
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                    : by__checkpoint_sink_copy(directory, name, path, NULL, error);
    free(path);
    return status;
}

/* Copies the files that the run saved next to the weights. */
static by_status copy_files(const char *directory, const char *checkpoint, by_error *error)
{
    by__checkpoint_manifest manifest;
    BY_TRY(by__checkpoint_manifest_check(&manifest, checkpoint, false, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < manifest.files.count && status == BY_OK; i++) {
        const char *name = manifest.files.items[i].name;
        if (!by__checkpoint_reserved(name) && strcmp(name, BY_ADAPTER_CONFIG) != 0) {
            status = copy_file(directory, checkpoint, name, error);
        }
    }
    by__checkpoint_manifest_free(&manifest);
    return status;
}

bool by__checkpoint_goes_along(const char *name)
{
    static const char *const endings[] = {".json", ".txt", ".model", ".jinja", ".tiktoken"};
    const char *end = strrchr(name, '.');
    bool fits = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(endings) && end != NULL; i++) {
        fits = fits || strcmp(end, endings[i]) == 0;
    }
    return fits && !by__checkpoint_reserved(name) && strcmp(name, BY_ADAPTER_CONFIG) != 0;
}

by_status by__checkpoint_copy_along(const char *directory, const char *from, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, from, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by__checkpoint_goes_along(names[i]) ? copy_file(directory, from, names[i], error)
                                                     : BY_OK;
    }
    by__names_free(names, count);
    return status;
}

static by_status refuse(const char *directory, by_error *error)
{
    return by_error_set(error, BY_EARG, "%s already exists; name a new directory", directory);
}

by_status by__checkpoint_publish(const char *temporary, const char *directory, by_error *error)
{
    int failed = renameat2(AT_FDCWD, temporary, AT_FDCWD, directory, RENAME_NOREPLACE);
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) { /* not supported */
        failed = rename(temporary, directory);
    }
    if (failed != 0) {
        return errno == EEXIST ? refuse(directory, error)
                               : by_error_set(error, BY_EIO, "cannot rename %s to %s: %s",
                                              temporary, directory, strerror(errno));
    }
    char *slash = strrchr(directory, '/');
    char *parent =
        slash == NULL ? by__strdup(".") : by__strndup(directory, (size_t)(slash - directory) + 1);
    by_status status = parent == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                      : by__sync_dir(parent, error);
    free(parent);
    return status;
}

/* The weights to write, and their origin: a checkpoint, or (checkpoint NULL) a directory in Hugging
 * Face format. */
typedef struct merge_source {
    by_checkpoint *checkpoint;
    by_weights *weights;
    const char *path;
} merge_source;

static void close_source(merge_source *s)
{
    by_weights_close(&s->weights);
    by_checkpoint_close(&s->checkpoint);
}

/* The weights of a checkpoint are opened a second time, so that its own stay unchanged. */
static by_status open_source(merge_source *s, const char *path, bool average, const char *adapter,
                             by_error *error)
{
    char *config = by__path_join(path, "config.json");
    char *manifest = by__path_join(path, "manifest.json");
    by_adapter *added = NULL;
    by_status status = BY_OK;
    bool plain =
        config != NULL && manifest != NULL && by__path_exists(config) && !by__path_exists(manifest);
    if (config == NULL || manifest == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (by__path_exists(path) && !by__path_is_dir(path)) {
        status = by_error_set(error, BY_EARG,
                              "%s is a file; give a run, a checkpoint or a directory in Hugging "
                              "Face format (`banyan export FILE --format safetensors` converts a "
                              "GGUF file)",
                              path);
    } else if (!plain) {
        status = by_checkpoint_open(&s->checkpoint, path, true, error);
    }
    free(config);
    free(manifest);
    BY_TRY(status);
    s->path = plain ? path : by_checkpoint_path(s->checkpoint);
    if (average && by__checkpoint_adapter_is_in(s->path)) {
        return by_error_set(
            error, BY_EARG,
            "%s has adapters, and their moving average cannot be merged: leave out --ema", s->path);
    }
    BY_TRY((average ? by_weights_open_averages : by_weights_open)(&s->weights, s->path, error));
    adapter = adapter == NULL && by__checkpoint_adapter_is_in(s->path) ? s->path : adapter;
    if (adapter == NULL) {
        return BY_OK;
    }
    BY_TRY(by_adapter_open(&added, adapter, error));
    return by_weights_adapt(s->weights, &added, true, error);
}

/* Writes config.json with the origin of the weights, and without the quantization of codes, whose
 * values are written. */
static by_status write_config(const merge_source *s, const char *directory, by_error *error)
{
    by__checkpoint_origin origin = {0};
    const char *config = by_weights_config(s->weights);
    json_t *root = config == NULL ? NULL : by__json_read(config, 0, NULL);
    json_t *copied = json_deep_copy(root);
    if (by_weights_in_codes(s->weights)) {
        (void)json_object_del(root, "quantization_config");
    }
    by_status status = by__checkpoint_origin_read(&origin, s->weights, error);
    if (status == BY_OK && json_is_object(root)) {
        status = by__checkpoint_origin_put(root, &origin, error);
    }
    bool changes = status == BY_OK && !json_equal(root, copied) && json_is_object(root);
    char *text = changes ? by__json_dump(root, JSON_INDENT(2)) : NULL;
    if (changes) {
        status = text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: config.json")
                              : by__checkpoint_sink_put(directory, "config.json", text,
                                                        strlen(text), NULL, error);
    }
    by__checkpoint_origin_free(&origin);
    json_decref(copied);
    json_decref(root);
    free(text);
    return status;
}

/* Whether all of a tensor's values are finite; true for types other than f32, bf16 and f16. */
static bool is_finite(const by_tensor_view *tensor, size_t count)
{
    const uint32_t *words = tensor->data;
    const uint16_t *halves = tensor->data;
    uint32_t found = 0;
    if (tensor->dtype == BY_F32) {
        for (size_t i = 0; i < count; i++) {
            found |= (words[i] & 0x7f800000u) == 0x7f800000u;
        }
    } else if (tensor->dtype == BY_BF16 || tensor->dtype == BY_F16) {
        uint16_t mask = tensor->dtype == BY_BF16 ? 0x7f80 : 0x7c00;
        for (size_t i = 0; i < count; i++) {
            found |= (halves[i] & mask) == mask;
        }
    }
    return found == 0;
}

/* Refuses weights, just written, of which some are not finite: no model computes with them. */
static by_status check_finite(const char *directory, const char *from, by_error *error)
{
    by_weights *written;
    BY_TRY(by_weights_open(&written, directory, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < by_weights_count(written) && status == BY_OK; i++) {
        by_tensor_view view;
        size_t count;
        status = by_weights_tensor(written, by_weights_name(written, i), &view, error);
        if (status == BY_OK) {
            status = by_tensor_size(&view, &count, NULL, error);
        }
        if (status == BY_OK && !is_finite(&view, count)) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: tensor '%.200s' has values that are NaN or infinite in %s; "
                                  "nothing was written",
                                  from, view.name, by_dtype_name(view.dtype));
        }
    }
    by_weights_close(&written);
    return status;
}

static by_status write_source(const merge_source *s, const char *directory, const char *temporary,
                              uint64_t shard_bytes, by_error *error)
{
    if (mkdir(temporary, 0777) != 0) {
        return by_error_set(error, BY_EIO, "cannot create directory %s: %s", temporary,
                            strerror(errno));
    }
    by_status status = by__checkpoint_weights_copy(temporary, s->weights, shard_bytes, error);
    if (status == BY_OK) {
        status = check_finite(temporary, s->path, error);
    }
    if (status == BY_OK) {
        status = (s->checkpoint != NULL ? copy_files : by__checkpoint_copy_along)(temporary,
                                                                                  s->path, error);
    }
    if (status == BY_OK) {
        status = write_config(s, temporary, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(temporary, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_publish(temporary, directory, error);
    }
    if (status != BY_OK) {
        (void)by__remove_tree(temporary, NULL);
    }
    return status;
}

by_status by_checkpoint_merge(const char *path, const char *directory, uint64_t shard_bytes,
                              bool average, const char *adapter, by_error *error)
{
    merge_source from = {0};
    by_string text = {0};
    char *temporary = NULL;
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') {
        length--;
    }
    char *plain = by__strndup(directory, length);
    by_string_add(&text, directory, length);
    by_string_format(&text, ".tmp-%ld", (long)getpid());
    by_status status = by__string_release(&text, &temporary, error);
    if (status == BY_OK && plain == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK && by__path_exists(plain)) {
        status = refuse(plain, error);
    }
    if (status == BY_OK) {
        status = open_source(&from, path, average, adapter, error);
    }
    if (status == BY_OK) {
        status = write_source(&from, plain, temporary, shard_bytes, error);
    }
    close_source(&from);
    free(temporary);
    free(plain);
    return status;
}
