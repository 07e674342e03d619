/* Reuse of files of an earlier checkpoint in a new one of the same root. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_writer.h"

/* Checks that a referenced weight file begins with exactly the header that this one would have. */
static by_status check_alike(const by__checkpoint_weight_file *f, const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    bool alike = map.size == f->plan->size && map.size >= f->plan->header.length &&
                 memcmp(map.data, f->plan->header.data, f->plan->header.length) == 0;
    by__map_close(&map);
    return alike
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s holds other tensors than this checkpoint's %s",
                              path, f->plan->name);
}

static by_status link_file(by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                           const by__checkpoint_file_record *record, const char *in,
                           by_error *error)
{
    by_string target = {0};
    char *to = NULL;
    char *path = by__path_join(w->temporary, record->name);
    by_string_format(&target, "../%s/%s", in, record->name);
    by_status status = by__string_release(&target, &to, error);
    if (status == BY_OK && path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK && f != NULL && f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
        (void)unlink(path);
    }
    if (status == BY_OK && symlink(to, path) != 0) {
        status = by__checkpoint_writer_error(error, "link", w->temporary, record->name);
    }
    for (size_t i = 0; i < w->part_count && f != NULL && status == BY_OK; i++) {
        by__checkpoint_planned_tensor place;
        if (by__checkpoint_writer_file(w, i, &place) == f && place.bytes > 0) {
            status = by__checkpoint_writer_note(w, w->parts[i].tensor, &w->parts[i].slice, error);
        }
    }
    if (status == BY_OK) {
        status = by__checkpoint_file_list_add(f != NULL ? &f->whole : &w->references, record->name,
                                              record->size, record->hash, in, error);
    }
    free(to);
    free(path);
    return status;
}

/* Refers to a file that the manifest of the directory lists. */
static by_status refer(by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                       const char *directory, const by__checkpoint_manifest *manifest,
                       const char *name, by_error *error)
{
    const char *slash = strrchr(directory, '/');
    for (size_t i = 0; i < manifest->files.count; i++) {
        const by__checkpoint_file_record *record = &manifest->files.items[i];
        if (strcmp(record->name, name) == 0) {
            char *path = by__path_join(directory, name);
            by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                               : f == NULL  ? BY_OK
                                            : check_alike(f, path, error);
            free(path);
            BY_TRY(status);
            /* If that file is itself a reference, refers to the checkpoint that has its bytes. */
            return link_file(w, f, record, record->in != NULL ? record->in : slash + 1, error);
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s has no file '%.200s' to refer to", directory, name);
}

by_status by_checkpoint_reference(by_checkpoint_writer *w, const char *name, uint64_t from,
                                  by_error *error)
{
    by__checkpoint_manifest manifest = {0};
    char *directory;
    by__checkpoint_weight_file *f = NULL;
    for (size_t i = 0; i < w->file_count; i++) {
        f = strcmp(w->files[i].plan->name, name) == 0 ? &w->files[i] : f;
    }
    if (w->rank != 0 || from == w->step || w->started ||
        by__checkpoint_file_list_find(&w->references, name) != NULL ||
        (f != NULL && f->whole.count > 0) || (f == NULL && by__checkpoint_reserved(name))) {
        return by_error_set(error, BY_EARG, "'%.200s' of step %" PRIu64 " cannot be referred to",
                            name, from);
    }
    BY_TRY(by__checkpoint_step_path(&directory, w->root, from, error));
    by_status status = by__checkpoint_manifest_check(&manifest, directory, false, error);
    if (status == BY_OK) {
        status = refer(w, f, directory, &manifest, name, error);
        by__checkpoint_manifest_free(&manifest);
    }
    free(directory);
    return status;
}
