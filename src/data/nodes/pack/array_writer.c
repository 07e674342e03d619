#include "data/nodes/pack/array_writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/paths.h"

static by_status write_all(const by__nodes_writer *w, const void *data, size_t bytes,
                           by_error *error)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = write(w->file, at, bytes);
        if (n < 0) {
            return by__io_error(error, "write", w->path);
        }
        at += n;
        bytes -= (size_t)n;
    }
    return BY_OK;
}

by_status by__nodes_writer_open(by__nodes_writer *w, const char *directory, by__nodes_array which,
                                by_error *error)
{
    static const char page[BY__NODES_PAGE];
    *w = (by__nodes_writer){.file = -1, .which = which};
    BY_TRY(by__hasher_open(&w->hasher, error));
    BY_TRY(by__path_make(&w->path, directory, by__nodes_array_name(which), error));
    w->file = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->file < 0 ? by__io_error(error, "create", w->path)
                       : write_all(w, page, sizeof page, error);
}

by_status by__nodes_writer_add(by__nodes_writer *w, const void *data, size_t bytes, by_error *error)
{
    by__hasher_add(w->hasher, data, bytes);
    return write_all(w, data, bytes, error);
}

by_status by__nodes_writer_finish(by__nodes_writer *w, by__nodes_manifest *manifest,
                                  by_error *error)
{
    char page[BY__NODES_PAGE];
    by__nodes_array_header(page, manifest, w->which);
    by__hasher_hex(w->hasher, manifest->hashes[w->which]);
    if (pwrite(w->file, page, sizeof page, 0) != (ssize_t)sizeof page || fsync(w->file) != 0) {
        return by__io_error(error, "write", w->path);
    }
    return BY_OK;
}

void by__nodes_writer_close(by__nodes_writer *w)
{
    if (w->file >= 0) {
        (void)close(w->file);
    }
    if (w->hasher != NULL) {
        by__hasher_close(&w->hasher);
    }
    free(w->path);
    *w = (by__nodes_writer){.file = -1};
}

by_status by__nodes_array_write(by__nodes_manifest *manifest, const char *directory,
                                by__nodes_array which, const void *data, size_t bytes,
                                by_error *error)
{
    by__nodes_writer w;
    by_status status = by__nodes_writer_open(&w, directory, which, error);
    if (status == BY_OK) {
        status = by__nodes_writer_add(&w, data, bytes, error);
    }
    if (status == BY_OK) {
        status = by__nodes_writer_finish(&w, manifest, error);
    }
    by__nodes_writer_close(&w);
    return status;
}
