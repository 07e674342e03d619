/* The commit of a checkpoint: checks that every element was written once, records each file with
 * its checksum, and renames the finished directory. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_writer.h"

bool by__checkpoint_reserved(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json", ".slices.json",
                                          ".tmp"};
    size_t n = strlen(name);
    if (!by__checkpoint_plain_name(name) || n > 200 || strcmp(name, "manifest.json") == 0 ||
        strcmp(name, "state.json") == 0 || strncmp(name, "slices-", 7) == 0 ||
        strncmp(name, "files-", 6) == 0) {
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

/* Returns true if a caller's file has a name used by the checkpoint itself; a file of tensors may
 * not be called like the checkpoint's own weight files. */
static bool is_reserved(const by_checkpoint_file *file)
{
    bool own = strncmp(file->name, "model", 5) == 0 || strncmp(file->name, "optimizer", 9) == 0;
    const char *end = strstr(file->name, ".safetensors");
    bool tensors = file->trained_under != NULL && end != NULL && end[12] == '\0' && !own;
    return tensors ? !by__checkpoint_plain_name(file->name) : by__checkpoint_reserved(file->name);
}

static by_status check_files(const by_checkpoint_writer *w, const by_checkpoint_file *files,
                             size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const by_checkpoint_file *file = &files[i];
        if (file->name == NULL || is_reserved(file)) {
            return by_error_set(error, BY_EARG,
                                "file %zu: '%.100s' is not a plain file name, or is reserved", i,
                                file->name == NULL ? "" : file->name);
        }
        bool twice = by__checkpoint_file_list_find(&w->references, file->name) != NULL;
        for (size_t k = 0; k < i; k++) {
            twice = twice || strcmp(files[k].name, file->name) == 0;
        }
        if (twice) {
            return by_error_set(error, BY_EARG, "two files are called '%.200s'", file->name);
        }
        if (file->data == NULL && file->path == NULL && file->trained_under == NULL) {
            return by_error_set(error, BY_EARG, "file '%.200s' has neither data nor a path",
                                file->name);
        }
    }
    return BY_OK;
}

/* Compares by tensor, then by writer, then by position. */
static int by_place(const void *a, const void *b)
{
    const by__checkpoint_written_slice *x = a;
    const by__checkpoint_written_slice *y = b;
    if (x->tensor != y->tensor) {
        return x->tensor < y->tensor ? -1 : 1;
    }
    if (x->writer != y->writer) {
        return x->writer < y->writer ? -1 : 1;
    }
    for (int i = 0; i < BY_TENSOR_MAX_RANK; i++) {
        if (x->slice.offset[i] != y->slice.offset[i]) {
            return x->slice.offset[i] < y->slice.offset[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Checks that each element of each tensor was written exactly once, by any writer. Leaves the
 * slices sorted. */
static by_status check_whole(by_checkpoint_writer *w, by_error *error)
{
    const by_tensor_slice **slices;
    size_t next = 0;
    if (w->slice_count > 1) {
        qsort(w->slices, w->slice_count, sizeof *w->slices, by_place);
    }
    BY_TRY(by__alloc((void **)&slices, w->slice_count, sizeof *slices, "slices", error));
    by_status status = BY_OK;
    for (size_t tensor = 0; tensor < w->count && status == BY_OK; tensor++) {
        size_t n = 0;
        for (; next + n < w->slice_count && w->slices[next + n].tensor == tensor; n++) {
            slices[n] = &w->slices[next + n].slice;
        }
        status = by__checkpoint_slices_cover(&w->tensors[tensor], slices, n, error);
        next += n;
    }
    free(slices);
    return status;
}

/* ---- the files of weights ---- */

/* The tensors of a stem, "model" or "optimizer". */
typedef struct part_of_writer {
    const char *stem;
    size_t first;
    size_t end;
} part_of_writer;

/* The name of the file in which a writer has its part of a tensor. */
static const char *file_name(const by_checkpoint_writer *w, char out[256], size_t tensor,
                             uint64_t writer)
{
    char name[64];
    by__checkpoint_writer_stem(name, by__checkpoint_writer_group(w, tensor), (int)writer,
                               w->writers);
    (void)snprintf(out, 256, "%s.safetensors", name);
    return out;
}

/* Writes STEM.slices.json. The slices are sorted by tensor. */
static by_status put_slices(const by_checkpoint_writer *w, const part_of_writer *part,
                            by__checkpoint_file_list *files, by_error *error)
{
    by__checkpoint_slice_index index = {0};
    char name[256];
    char *text = NULL;
    size_t length;
    size_t next = 0;
    by_status status = BY_OK;
    for (size_t i = part->first; i < part->end && status == BY_OK; i++) {
        by_tensor_slice whole = by_tensor_whole(&w->tensors[i]);
        while (next < w->slice_count && w->slices[next].tensor < i) {
            next++;
        }
        status = by__checkpoint_slice_index_add_tensor(&index, &w->tensors[i], error);
        if (status == BY_OK && (next == w->slice_count || w->slices[next].tensor != i)) {
            status =
                by__checkpoint_slice_index_add(&index, &whole, file_name(w, name, i, 0), error);
        }
        for (; next < w->slice_count && w->slices[next].tensor == i && status == BY_OK; next++) {
            const by__checkpoint_written_slice *s = &w->slices[next];
            status = by__checkpoint_slice_index_add(&index, &s->slice,
                                                    file_name(w, name, i, s->writer), error);
        }
    }
    if (status == BY_OK) {
        status = by__checkpoint_slice_index_print(&index, &text, &length, error);
    }
    if (status == BY_OK) {
        (void)snprintf(name, sizeof name, "%s.slices.json", part->stem);
        status = by__checkpoint_sink_put(w->temporary, name, text, length, files, error);
    }
    free(text);
    by__checkpoint_slice_index_free(&index);
    return status;
}

/* Writes STEM.safetensors.index.json, as other programs read it: each tensor is in one file. */
static by_status put_index(const by_checkpoint_writer *w, const part_of_writer *part,
                           by__checkpoint_file_list *files, by_error *error)
{
    typedef char file_path[256];
    size_t count = part->end - part->first;
    size_t next = 0;
    const char **file_of = NULL;
    file_path *names = NULL;
    char *text = NULL;
    size_t length;
    by_status status = by__alloc((void **)&names, count, sizeof *names, "shard list", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&file_of, count, sizeof *file_of, "shard list", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        while (next < w->slice_count && w->slices[next].tensor < part->first + i) {
            next++;
        }
        bool found = next < w->slice_count && w->slices[next].tensor == part->first + i;
        file_of[i] = file_name(w, names[i], part->first + i, found ? w->slices[next].writer : 0);
    }
    if (status == BY_OK) {
        status = by__weights_index_print(&text, &length, w->tensors + part->first, file_of, count,
                                         error);
    }
    if (status == BY_OK) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s.safetensors.index.json", part->stem);
        status = by__checkpoint_sink_put(w->temporary, name, text, length, files, error);
    }
    free(text);
    free(file_of);
    free(names);
    return status;
}

/* Adds the files of a group of all writers to the manifest. */
static by_status add_records(const by_checkpoint_writer *w, int group,
                             const by__checkpoint_file_list *all, by__checkpoint_file_list *files,
                             by_error *error)
{
    for (int rank = 0; rank < w->writers; rank++) {
        char stem[64];
        char name[80];
        by__checkpoint_writer_stem(stem, group, rank, w->writers);
        (void)snprintf(name, sizeof name, "%s.safetensors", stem);
        const by__checkpoint_file_record *r = by__checkpoint_file_list_find(all, name);
        if (r != NULL) {
            BY_TRY(by__checkpoint_file_list_add(files, r->name, r->size, r->hash, r->in, error));
        }
    }
    return BY_OK;
}

/* Adds the weight files of several writers to the manifest, with the indices of tensors. `all`: the
 * records of all writers' files. */
static by_status record_several(const by_checkpoint_writer *w, const by__checkpoint_file_list *all,
                                by__checkpoint_file_list *files, by_error *error)
{
    const part_of_writer parts[2] = {{"model", 0, w->model_count},
                                     {"optimizer", w->model_count, w->count}};
    for (int k = 0; k < 2 && parts[k].end > parts[k].first; k++) {
        bool cut = false;
        BY_TRY(add_records(w, k == 0 ? BY__TRAINED : BY__OPTIMIZER, all, files, error));
        BY_TRY(k == 0 ? add_records(w, BY__FROZEN, all, files, error) : BY_OK);
        for (size_t i = 0; i < w->slice_count; i++) {
            const by__checkpoint_written_slice *s = &w->slices[i];
            cut = cut || (s->tensor >= parts[k].first && s->tensor < parts[k].end &&
                          !by__checkpoint_slice_is_whole(&w->tensors[s->tensor], &s->slice));
        }
        BY_TRY(cut ? put_slices(w, &parts[k], files, error)
                   : put_index(w, &parts[k], files, error));
    }
    return BY_OK;
}

/* Adds the weight files of a single writer to the manifest, and the index of its shards. */
static by_status record_one(const by_checkpoint_writer *w, const by__checkpoint_file_list *all,
                            by__checkpoint_file_list *files, by_error *error)
{
    size_t next = 0;
    for (int k = 0; k < BY__WEIGHT_GROUPS; k++) {
        const by__checkpoint_weights_plan *p = &w->plans[k];
        for (size_t i = 0; i < p->file_count; i++) {
            const by__checkpoint_file_record *r = &all->items[next++];
            BY_TRY(by__checkpoint_file_list_add(files, r->name, r->size, r->hash, r->in, error));
        }
        if (p->index != NULL) {
            BY_TRY(by__checkpoint_sink_put(w->temporary, p->index_name, p->index, p->index_length,
                                           files, error));
        }
    }
    return BY_OK;
}

static by_status record_weights(by_checkpoint_writer *w, by__checkpoint_file_list *files,
                                by_error *error)
{
    by__checkpoint_file_list all = {0};
    by_status status = BY_OK;
    for (int rank = 1; rank < w->writers && status == BY_OK; rank++) {
        status = by__checkpoint_writer_merge(w, rank, &all, error);
    }
    if (status == BY_OK) {
        status = check_whole(w, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_writer_record(w, &all, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_writer_is_cut(w) ? record_several(w, &all, files, error)
                                                 : record_one(w, &all, files, error);
    }
    by__checkpoint_file_list_free(&all);
    return status;
}

static by_status put_state(const by_checkpoint_writer *w, const by_checkpoint_value *values,
                           size_t count, by__checkpoint_file_list *files, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__checkpoint_state_print(w->step, values, count, &text, &length, error));
    by_status status =
        by__checkpoint_sink_put(w->temporary, "state.json", text, length, files, error);
    free(text);
    return status;
}

static by_status put_manifest(const by_checkpoint_writer *w,
                              const by__checkpoint_manifest *manifest, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__checkpoint_manifest_print(manifest, &text, &length, error));
    by_status status =
        by__checkpoint_sink_put(w->temporary, "manifest.json", text, length, NULL, error);
    free(text);
    return status;
}

/* Reads back the trained tensors, of all writers, and writes them again under other names. */
static by_status put_trained(const by_checkpoint_writer *w, const by_checkpoint_file *file,
                             by__checkpoint_file_list *written, by_error *error)
{
    typedef char tensor_name[512];
    char stem[256];
    by_weights *weights = NULL;
    by_tensor_view *views = NULL;
    tensor_name *names = NULL;
    const by__checkpoint_tensor_entry **entries = NULL;
    size_t count = 0;
    (void)snprintf(stem, sizeof stem, "%.*s", (int)(strlen(file->name) - strlen(".safetensors")),
                   file->name);
    BY_TRY(by__weights_open(&weights, w->temporary, "model", error));
    by_status status =
        by__alloc((void **)&views, w->model_count, sizeof *views, "tensor list", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&names, w->model_count, sizeof *names, "names", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&entries, w->model_count, sizeof *entries, "names", error);
    }
    for (size_t i = 0; i < w->model_count && status == BY_OK; i++) {
        if (by__checkpoint_writer_group(w, i) != BY__TRAINED) {
            continue;
        }
        (void)snprintf(names[count], sizeof *names, "%s%s", file->trained_under,
                       w->tensors[i].name);
        views[count] = w->tensors[i];
        views[count].name = names[count];
        entries[count++] = by__weights_find(weights, w->tensors[i].name);
    }
    if (status == BY_OK) {
        status = by__checkpoint_entries_write(w->temporary, stem, views, entries, count, UINT64_MAX,
                                              written, error);
    }
    free(entries);
    free(names);
    free(views);
    by_weights_close(&weights);
    return status;
}

/* Writes a file of the caller's, or links it to the equal one of an earlier checkpoint. */
static by_status put_file(by_checkpoint_writer *w, const by_checkpoint_file *file,
                          by__checkpoint_file_list *written, by_error *error)
{
    by__map map = {0};
    bool linked = false;
    if (file->data == NULL && file->path == NULL) {
        return put_trained(w, file, written, error);
    }
    if (file->data == NULL) {
        BY_TRY(by__map_open(&map, file->path, error));
    }
    const void *data = file->data != NULL ? file->data : map.data;
    size_t size = file->data != NULL ? file->size : map.size;
    by_status status =
        by__checkpoint_share_content(w, file->name, data, size, written, &linked, error);
    if (status == BY_OK && !linked) {
        status = by__checkpoint_sink_put(w->temporary, file->name, data, size, written, error);
    }
    by__map_close(&map);
    return status;
}

static by_status put_files(by_checkpoint_writer *w, const by_checkpoint_file *files, size_t count,
                           by__checkpoint_file_list *written, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        BY_TRY(put_file(w, &files[i], written, error));
    }
    for (size_t i = 0; i < w->references.count; i++) {
        const by__checkpoint_file_record *r = &w->references.items[i];
        BY_TRY(by__checkpoint_file_list_add(written, r->name, r->size, r->hash, r->in, error));
    }
    return BY_OK;
}

/* Renames the finished directory. If the name exists the two are exchanged atomically, so that
 * after a crash either the old or the new one is there; the old one, which is then called
 * `temporary`, is removed. */
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
    by__checkpoint_manifest manifest = {.step = w->step};
    by_status status = w->rank == 0 && !w->failed
                           ? check_files(w, files, file_count, error)
                           : by_error_set(error, BY_ESTATE,
                                          w->rank != 0 ? "only the writer that began commits"
                                                       : "a slice was not written");
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
    by__checkpoint_manifest_free(&manifest);
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
        status = by__checkpoint_writer_not_saved(w, status, error);
    }
    /* This removes either the failed attempt or the replaced checkpoint. If it fails, it leaves a
     * directory that no reader looks at and that the next save removes. */
    by_checkpoint_abandon(writer);
    return status;
}
