/* The model of a checkpoint as one directory that other programs load. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/storage.h"

static by_status add_bytes(void *sink, const void *bytes, size_t n, by_error *error)
{
    return by__sink_add(sink, bytes, n, error);
}

static by_status write_file(const char *directory, const by__weights_plan *plan, size_t file,
                            const by_weights *weights, by_error *error)
{
    const by__planned_file *f = &plan->files[file];
    by__sink *sink;
    BY_TRY(by__sink_open(&sink, directory, f->name, f->size, error));
    by_status status = by__sink_add(sink, f->header.data, f->header.length, error);
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        const by__tensor_entry *entry = by__weights_entry(weights, plan->order[f->first + i]);
        status = by__entry_bytes(entry, add_bytes, sink, error);
    }
    if (status != BY_OK) {
        by__sink_discard(&sink);
        return status;
    }
    return by__sink_commit(&sink, NULL, error);
}

static by_status write_weights(const char *directory, const by_weights *weights,
                               uint64_t shard_bytes, by_error *error)
{
    by_tensor_view *views;
    by__weights_plan plan = {0};
    size_t count = by_weights_count(weights);
    BY_TRY(by__alloc((void **)&views, count, sizeof *views, "tensor list", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by__weights_describe(weights, by_weights_name(weights, i), &views[i], error);
    }
    if (status == BY_OK) {
        status = by__weights_plan_make(&plan, "model", views, count, shard_bytes, error);
    }
    for (size_t i = 0; i < plan.file_count && status == BY_OK; i++) {
        status = write_file(directory, &plan, i, weights, error);
    }
    if (status == BY_OK && plan.index != NULL) {
        status =
            by__sink_put(directory, plan.index_name, plan.index, plan.index_length, NULL, error);
    }
    by__weights_plan_free(&plan);
    free(views);
    return status;
}

/* The files that the run put next to the weights. */
static by_status copy_files(const char *directory, const char *checkpoint, by_error *error)
{
    by__manifest manifest;
    BY_TRY(by__manifest_check(&manifest, checkpoint, false, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < manifest.files.count && status == BY_OK; i++) {
        const char *name = manifest.files.items[i].name;
        if (!by__checkpoint_reserved(name)) {
            char *from = by__path_join(checkpoint, name);
            status = from == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                  : by__sink_copy(directory, name, from, NULL, error);
            free(from);
        }
    }
    by__manifest_free(&manifest);
    return status;
}

static by_status refuse(const char *directory, by_error *error)
{
    return by_error_set(error, BY_EARG, "%s exists already; name a directory that does not",
                        directory);
}

/* Gives the finished directory its name, and takes nobody else's. */
static by_status publish(const char *temporary, const char *directory, by_error *error)
{
    int failed = renameat2(AT_FDCWD, temporary, AT_FDCWD, directory, RENAME_NOREPLACE);
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) { /* a file system without it */
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

/* `weights`: the checkpoint's, or their averages. */
static by_status merge(const by_checkpoint *checkpoint, const by_weights *weights,
                       const char *directory, const char *temporary, uint64_t shard_bytes,
                       by_error *error)
{
    if (mkdir(temporary, 0777) != 0) {
        return by_error_set(error, BY_EIO, "cannot create directory %s: %s", temporary,
                            strerror(errno));
    }
    by_status status = write_weights(temporary, weights, shard_bytes, error);
    if (status == BY_OK) {
        status = copy_files(temporary, by_checkpoint_path(checkpoint), error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(temporary, error);
    }
    if (status == BY_OK) {
        status = publish(temporary, directory, error);
    }
    if (status != BY_OK) {
        (void)by__remove_tree(temporary, NULL);
    }
    return status;
}

by_status by_checkpoint_merge(const char *path, const char *directory, uint64_t shard_bytes,
                              bool average, by_error *error)
{
    by_checkpoint *checkpoint = NULL;
    by_weights *averages = NULL;
    by__text text = {0};
    char *temporary = NULL;
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') {
        length--;
    }
    char *plain = by__strndup(directory, length);
    by__text_add_bytes(&text, directory, length);
    by__text_format(&text, ".tmp-%ld", (long)getpid());
    by_status status = by__text_take(&text, &temporary, error);
    if (status == BY_OK && plain == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK && by__path_exists(plain)) {
        status = refuse(plain, error);
    }
    if (status == BY_OK) {
        status = by_checkpoint_open(&checkpoint, path, true, error);
    }
    if (status == BY_OK && average) {
        status = by_weights_open_averages(&averages, by_checkpoint_path(checkpoint), error);
    }
    if (status == BY_OK) {
        status = merge(checkpoint, average ? averages : by_checkpoint_model(checkpoint), plain,
                       temporary, shard_bytes, error);
    }
    by_weights_close(&averages);
    by_checkpoint_close(&checkpoint);
    free(temporary);
    free(plain);
    return status;
}
