#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/storage.h"

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static bool reserved(const char *name)
{
    return strcmp(name, "manifest.json") == 0 || strcmp(name, "state.json") == 0 ||
           ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json") ||
           ends_with(name, ".tmp");
}

static by_status check_content(uint64_t step, const by_checkpoint_content *content, by_error *error)
{
    if (step > INT64_MAX) {
        return by_error_set(error, BY_EARG, "step %" PRIu64 " is too large", step);
    }
    if (content->model_count == 0) {
        return by_error_set(error, BY_EARG, "the checkpoint has no model tensors");
    }
    for (size_t i = 0; i < content->file_count; i++) {
        const by_checkpoint_file *file = &content->files[i];
        if (file->name == NULL || !by__plain_name(file->name) || strlen(file->name) > 200 ||
            reserved(file->name)) {
            return by_error_set(error, BY_EARG,
                                "file %zu: '%.100s' is not a plain file name, or is reserved", i,
                                file->name == NULL ? "" : file->name);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(content->files[k].name, file->name) == 0) {
                return by_error_set(error, BY_EARG, "two files are called '%.200s'", file->name);
            }
        }
        if (file->data == NULL && file->path == NULL) {
            return by_error_set(error, BY_EARG, "file '%.200s' has neither data nor a path",
                                file->name);
        }
    }
    return BY_OK;
}

static by_status write_state(const char *directory, uint64_t step,
                             const by_checkpoint_content *content, by__file_list *written,
                             by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__state_print(step, content->values, content->value_count, &text, &length, error));
    by_status status = by__sink_put(directory, "state.json", text, length, written, error);
    free(text);
    return status;
}

static by_status write_manifest(const char *directory, const by__manifest *manifest,
                                by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__manifest_print(manifest, &text, &length, error));
    by_status status = by__sink_put(directory, "manifest.json", text, length, NULL, error);
    free(text);
    return status;
}

static by_status write_files(const char *directory, uint64_t step,
                             const by_checkpoint_content *content, by_error *error)
{
    by__manifest manifest = {.step = step};
    by_status status = by__weights_write(directory, "model", content->model, content->model_count,
                                         content->shard_bytes, &manifest.files, error);
    if (status == BY_OK && content->optimizer_count > 0) {
        status =
            by__weights_write(directory, "optimizer", content->optimizer, content->optimizer_count,
                              content->shard_bytes, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = write_state(directory, step, content, &manifest.files, error);
    }
    for (size_t i = 0; i < content->file_count && status == BY_OK; i++) {
        const by_checkpoint_file *file = &content->files[i];
        status = file->data != NULL
                     ? by__sink_put(directory, file->name, file->data, file->size, &manifest.files,
                                    error)
                     : by__sink_copy(directory, file->name, file->path, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = write_manifest(directory, &manifest, error);
    }
    by__manifest_free(&manifest);
    return status == BY_OK ? by__sync_dir(directory, error) : status;
}

/* Gives the finished directory its name. Where the name is taken the two change places in one
 * step, so that a crash finds the old one or the new one; the old one then stands in `temporary`,
 * which the caller removes. */
static by_status publish(const char *temporary, const char *final, by_error *error)
{
    if (rename(temporary, final) == 0) {
        return BY_OK;
    }
    if ((errno == EEXIST || errno == ENOTEMPTY) &&
        renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_EIO, "cannot rename %s to %s: %s", temporary, final,
                        strerror(errno));
}

static by_status write_locked(const char *root, uint64_t step, const by_checkpoint_content *content,
                              by_error *error)
{
    by__text text = {0};
    char *final;
    char *temporary = NULL;
    BY_TRY(by__step_path(&final, root, step, error));
    by__text_format(&text, "%s.tmp-%ld", final, (long)getpid());
    by_status status = by__text_take(&text, &temporary, error);
    if (status == BY_OK) {
        status = by__root_clean(root, error);
    }
    if (status != BY_OK) {
        goto free_paths;
    }
    if (mkdir(temporary, 0777) != 0) {
        status = by_error_set(error, BY_EIO, "cannot create directory %s: %s", temporary,
                              strerror(errno));
        goto free_paths;
    }
    status = write_files(temporary, step, content, error);
    if (status == BY_OK) {
        status = publish(temporary, final, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(root, error);
    }
    /* Either the failed attempt or the checkpoint that was replaced. A failure here leaves a
     * directory that no reader looks at and that the next save removes. */
    (void)by__remove_tree(temporary, NULL);
free_paths:
    free(temporary);
    free(final);
    return status;
}

by_status by_checkpoint_write(const char *root, uint64_t step, const by_checkpoint_content *content,
                              by_error *error)
{
    int lock = -1;
    by_status status = check_content(step, content, error);
    if (status == BY_OK) {
        status = by__make_dirs(root, error);
    }
    if (status == BY_OK) {
        status = by__root_lock(&lock, root, error);
    }
    if (status == BY_OK) {
        status = write_locked(root, step, content, error);
    }
    if (lock >= 0) {
        (void)close(lock);
    }
    return status == BY_OK
               ? BY_OK
               : by_error_prefix(error, status,
                                 "step %" PRIu64 " was not saved, earlier checkpoints are intact",
                                 step);
}
