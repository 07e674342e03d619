/* The commit of a checkpoint: every element was written once, each file is recorded with its
 * checksum, and the finished directory gets its name. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_writer.h"

bool by__checkpoint_reserved(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json", ".tmp"};
    size_t n = strlen(name);
    if (!by__plain_name(name) || n > 200 || strcmp(name, "manifest.json") == 0 ||
        strcmp(name, "state.json") == 0 || strncmp(name, "slices-", 7) == 0) {
        return true;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(endings); i++) {
        size_t m = strlen(endings[i]);
        if (n >= m && strcmp(name + n - m, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static by_status check_files(const by_checkpoint_writer *w, const by_checkpoint_file *files,
                             size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const by_checkpoint_file *file = &files[i];
        if (file->name == NULL || by__checkpoint_reserved(file->name)) {
            return by_error_set(error, BY_EARG,
                                "file %zu: '%.100s' is not a plain file name, or is reserved", i,
                                file->name == NULL ? "" : file->name);
        }
        bool twice = by__file_listed(&w->references, file->name);
        for (size_t k = 0; k < i; k++) {
            twice = twice || strcmp(files[k].name, file->name) == 0;
        }
        if (twice) {
            return by_error_set(error, BY_EARG, "two files are called '%.200s'", file->name);
        }
        if (file->data == NULL && file->path == NULL) {
            return by_error_set(error, BY_EARG, "file '%.200s' has neither data nor a path",
                                file->name);
        }
    }
    return BY_OK;
}

/* Takes the list that writer `rank` has left, and removes it. */
static by_status take_slices(by_checkpoint_writer *w, int rank, by_error *error)
{
    char name[32];
    char *bytes = NULL;
    size_t length = 0;
    by__slices_name(name, rank);
    char *path = by__path_join(w->temporary, name);
    by_status status = BY_OK;
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (!by__path_exists(path)) {
        status = by_error_set(error, BY_ESTATE, "writer %d of %d did not finish its part", rank,
                              w->writers);
    } else {
        status = by__file_read(&bytes, &length, path, SIZE_MAX / 2, error);
    }
    size_t count = length / sizeof *w->slices;
    if (status == BY_OK && length % sizeof *w->slices != 0) {
        status =
            by_error_set(error, BY_EFORMAT, "%s: %zu bytes are no list of slices", path, length);
    }
    if (status == BY_OK) {
        status = by__reserve((void **)&w->slices, &w->slice_capacity, w->slice_count + count,
                             sizeof *w->slices, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        by__written_slice *s = &w->slices[w->slice_count];
        memcpy(s, bytes + i * sizeof *s, sizeof *s);
        if (s->tensor >= w->count) {
            status = by_error_set(error, BY_EFORMAT, "%s: tensor %" PRIu64 " of %zu", path,
                                  s->tensor, w->count);
        }
        w->slice_count++;
    }
    if (status == BY_OK && unlink(path) != 0) {
        status = by__writer_error(error, "remove", w->temporary, name);
    }
    free(bytes);
    free(path);
    return status;
}

static int by_tensor(const void *a, const void *b)
{
    const by__written_slice *x = a;
    const by__written_slice *y = b;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor ? 1 : 0;
}

static by_status check_tensor(const by_checkpoint_writer *w, size_t tensor,
                              const by_tensor_slice *const *slices, size_t count, by_error *error)
{
    by__planned_tensor place;
    const by__weight_file *f = by__writer_file_of(w, tensor, &place);
    if (f->whole.count > 0 && f->whole.items[0].in != NULL) {
        return count == 0
                   ? BY_OK
                   : by_error_set(error, BY_EARG, "tensor '%.200s' was added, but %s is referenced",
                                  w->tensors[tensor].name, f->plan->name);
    }
    return by__slices_cover(&w->tensors[tensor], slices, count, error);
}

/* Each element of each tensor was written once, whoever wrote it. */
static by_status check_whole(by_checkpoint_writer *w, by_error *error)
{
    const by_tensor_slice **slices;
    size_t next = 0;
    for (int rank = 1; rank < w->writers; rank++) {
        BY_TRY(take_slices(w, rank, error));
    }
    if (w->slice_count > 1) {
        qsort(w->slices, w->slice_count, sizeof *w->slices, by_tensor);
    }
    BY_TRY(by__alloc((void **)&slices, w->slice_count, sizeof *slices, "slices", error));
    by_status status = BY_OK;
    for (size_t tensor = 0; tensor < w->count && status == BY_OK; tensor++) {
        size_t n = 0;
        for (; next + n < w->slice_count && w->slices[next + n].tensor == tensor; n++) {
            slices[n] = &w->slices[next + n].slice;
        }
        status = check_tensor(w, tensor, slices, n, error);
        next += n;
    }
    free(slices);
    return status;
}

/* Adds a weight file to the manifest: the record of its stream or reference, or its checksum as it
 * is read back. */
static by_status record_file(by_checkpoint_writer *w, by__weight_file *f, by__file_list *files,
                             by_error *error)
{
    char hash[33];
    if (f->whole.count > 0) {
        const by__file_record *r = &f->whole.items[0];
        return by__file_list_add(files, r->name, r->size, r->hash, r->in, error);
    }
    BY_TRY(by__writer_open_file(w, f, error)); /* no slice was in it: all its tensors are empty */
    if (fsync(f->fd) != 0) {
        return by__writer_error(error, "sync", w->temporary, f->plan->name);
    }
    char *path = by__path_join(w->temporary, f->plan->name);
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                    : by__hash_file_hex(hash, path, error);
    free(path);
    BY_TRY(status);
    return by__file_list_add(files, f->plan->name, f->plan->size, hash, NULL, error);
}

static by_status record_weights(by_checkpoint_writer *w, by__file_list *files, by_error *error)
{
    size_t next = 0;
    for (int k = 0; k < 2; k++) {
        const by__weights_plan *p = &w->plans[k];
        for (size_t i = 0; i < p->file_count; i++) {
            BY_TRY(record_file(w, &w->files[next++], files, error));
        }
        if (p->index != NULL) {
            BY_TRY(
                by__sink_put(w->temporary, p->index_name, p->index, p->index_length, files, error));
        }
    }
    return BY_OK;
}

static by_status put_state(const by_checkpoint_writer *w, const by_checkpoint_value *values,
                           size_t count, by__file_list *files, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__state_print(w->step, values, count, &text, &length, error));
    by_status status = by__sink_put(w->temporary, "state.json", text, length, files, error);
    free(text);
    return status;
}

static by_status put_manifest(const by_checkpoint_writer *w, const by__manifest *manifest,
                              by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__manifest_print(manifest, &text, &length, error));
    by_status status = by__sink_put(w->temporary, "manifest.json", text, length, NULL, error);
    free(text);
    return status;
}

static by_status put_files(const by_checkpoint_writer *w, const by_checkpoint_file *files,
                           size_t count, by__file_list *written, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const by_checkpoint_file *file = &files[i];
        BY_TRY(file->data != NULL
                   ? by__sink_put(w->temporary, file->name, file->data, file->size, written, error)
                   : by__sink_copy(w->temporary, file->name, file->path, written, error));
    }
    for (size_t i = 0; i < w->references.count; i++) {
        const by__file_record *r = &w->references.items[i];
        BY_TRY(by__file_list_add(written, r->name, r->size, r->hash, r->in, error));
    }
    return BY_OK;
}

/* Gives the finished directory its name. Where the name is taken the two change places in one
 * step, so that a crash finds the old one or the new one; the old one is then called `temporary`,
 * and is removed. */
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

by_status by_checkpoint_commit(by_checkpoint_writer **writer, const by_checkpoint_value *values,
                               size_t value_count, const by_checkpoint_file *files,
                               size_t file_count, by_error *error)
{
    by_checkpoint_writer *w = *writer;
    by__manifest manifest = {.step = w->step};
    by_status status = w->rank == 0 && !w->failed
                           ? check_files(w, files, file_count, error)
                           : by_error_set(error, BY_ESTATE,
                                          w->rank != 0 ? "only the writer that began commits"
                                                       : "a slice was not written");
    if (status == BY_OK) {
        status = check_whole(w, error);
    }
    if (status == BY_OK) {
        status = record_weights(w, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_state(w, values, value_count, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_files(w, files, file_count, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_manifest(w, &manifest, error);
    }
    by__manifest_free(&manifest);
    if (status == BY_OK) {
        status = by__sync_dir(w->temporary, error);
    }
    if (status == BY_OK) {
        status = publish(w->temporary, w->final, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(w->root, error);
    }
    if (status != BY_OK) {
        status = by__writer_not_saved(w, status, error);
    }
    /* Either the failed attempt or the checkpoint that was replaced. A failure here leaves a
     * directory that no reader looks at and that the next save removes. */
    by_checkpoint_abandon(writer);
    return status;
}
