#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint/storage.h"

enum {
    buffer_bytes = 1 << 20, /* small tensors are gathered up to this much */
    piece_bytes = 4 << 20   /* large ones are hashed and written in pieces that the cache holds */
};

struct by__sink {
    int fd;
    char *name;
    char *path;      /* the final one */
    char *temporary; /* the one being written */
    by__hasher *hasher;
    uint8_t *buffer;
    size_t buffered;
    uint64_t written; /* bytes given to the kernel */
};

void by__file_list_free(by__file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].name);
    }
    free(list->items);
    *list = (by__file_list){0};
}

static by_status sink_error(const by__sink *sink, const char *verb, by_error *error)
{
    return by_error_set(error, BY_EIO, "cannot %s %s: %s", verb, sink->temporary, strerror(errno));
}

/* Asks for the blocks now. File systems that cannot reserve say so, and the writes decide then. */
static by_status reserve(const by__sink *sink, uint64_t size, by_error *error)
{
    if (size == 0 || size > INT64_MAX || fallocate(sink->fd, 0, 0, (off_t)size) == 0) {
        return BY_OK;
    }
    if (errno == ENOSPC) {
        struct statvfs info;
        char need[32];
        char have[32];
        uint64_t free_bytes = 0;
        if (fstatvfs(sink->fd, &info) == 0) {
            free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
        }
        return by_error_set(error, BY_EIO, "cannot write %s: the disk is full (%s needed, %s free)",
                            sink->path, by__format_bytes(need, size),
                            by__format_bytes(have, free_bytes));
    }
    return errno == EFBIG || errno == EDQUOT ? sink_error(sink, "write", error) : BY_OK;
}

static void sink_free(by__sink **sink)
{
    if ((*sink)->fd >= 0) {
        (void)close((*sink)->fd);
    }
    by__hasher_close(&(*sink)->hasher);
    free((*sink)->buffer);
    free((*sink)->temporary);
    free((*sink)->path);
    free((*sink)->name);
    free(*sink);
    *sink = NULL;
}

by_status by__sink_open(by__sink **out, const char *directory, const char *name, uint64_t size,
                        by_error *error)
{
    by__sink *sink;
    by__text temporary = {0};
    BY_TRY(by__alloc((void **)&sink, 1, sizeof *sink, "file writer", error));
    sink->fd = -1;
    sink->name = by__strdup(name);
    sink->path = by__path_join(directory, name);
    by_status status = BY_OK;
    if (sink->name == NULL || sink->path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
        goto fail;
    }
    by__text_format(&temporary, "%s.tmp", sink->path);
    status = by__text_take(&temporary, &sink->temporary, error);
    if (status == BY_OK) {
        status = by__hasher_open(&sink->hasher, error);
    }
    if (status == BY_OK) {
        status = by__alloc_aligned((void **)&sink->buffer, buffer_bytes, "write buffer", error);
    }
    if (status != BY_OK) {
        goto fail;
    }
    sink->fd = open(sink->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (sink->fd < 0) {
        status = sink_error(sink, "create", error);
        goto fail;
    }
    status = reserve(sink, size, error);
    if (status != BY_OK) {
        by__sink_discard(&sink);
        return status;
    }
    *out = sink;
    return BY_OK;
fail:
    sink_free(&sink);
    return status;
}

static by_status write_out(by__sink *sink, const uint8_t *data, size_t n, by_error *error)
{
    uint64_t start = sink->written;
    while (n > 0) {
        ssize_t done = write(sink->fd, data, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            return sink_error(sink, "write", error);
        }
        data += done;
        n -= (size_t)done;
        sink->written += (uint64_t)done;
    }
    /* Starts the disk on these pages while the next piece is hashed and copied; a hint only, fsync
     * at the end is what counts. */
    (void)sync_file_range(sink->fd, (off_t)start, (off_t)(sink->written - start),
                          SYNC_FILE_RANGE_WRITE);
    return BY_OK;
}

static by_status flush(by__sink *sink, by_error *error)
{
    size_t n = sink->buffered;
    sink->buffered = 0;
    by__hasher_add(sink->hasher, sink->buffer, n);
    return write_out(sink, sink->buffer, n, error);
}

by_status by__sink_add(by__sink *sink, const void *data, size_t n, by_error *error)
{
    const uint8_t *bytes = data;
    if (n == 0) {
        return BY_OK;
    }
    if (n > buffer_bytes - sink->buffered) {
        BY_TRY(flush(sink, error));
    }
    if (n <= buffer_bytes) {
        memcpy(sink->buffer + sink->buffered, bytes, n);
        sink->buffered += n;
        return BY_OK;
    }
    while (n > 0) {
        size_t piece = n < piece_bytes ? n : piece_bytes;
        by__hasher_add(sink->hasher, bytes, piece);
        BY_TRY(write_out(sink, bytes, piece, error));
        bytes += piece;
        n -= piece;
    }
    return BY_OK;
}

static by_status record(by__sink *sink, by__file_list *written, by_error *error)
{
    BY_TRY(by__reserve((void **)&written->items, &written->capacity, written->count + 1,
                       sizeof *written->items, error));
    by__file_record *item = &written->items[written->count++];
    item->name = sink->name;
    sink->name = NULL;
    item->size = sink->written;
    by__hasher_hex(sink->hasher, item->hash);
    return BY_OK;
}

by_status by__sink_commit(by__sink **sink, by__file_list *written, by_error *error)
{
    by__sink *s = *sink;
    by_status status = flush(s, error);
    /* What was reserved beyond the content must not become part of the file. */
    if (status == BY_OK && ftruncate(s->fd, (off_t)s->written) != 0) {
        status = sink_error(s, "truncate", error);
    }
    if (status == BY_OK && fsync(s->fd) != 0) {
        status = sink_error(s, "sync", error);
    }
    if (status == BY_OK) {
        int fd = s->fd;
        s->fd = -1;
        if (close(fd) != 0) {
            status = sink_error(s, "close", error);
        }
    }
    if (status == BY_OK && rename(s->temporary, s->path) != 0) {
        status = sink_error(s, "rename", error);
    }
    if (status == BY_OK && written != NULL) {
        status = record(s, written, error);
    }
    if (status != BY_OK) {
        by__sink_discard(sink);
    } else {
        sink_free(sink);
    }
    return status;
}

void by__sink_discard(by__sink **sink)
{
    if (*sink != NULL) {
        (void)unlink((*sink)->temporary);
        sink_free(sink);
    }
}

by_status by__sink_put(const char *directory, const char *name, const void *data, size_t n,
                       by__file_list *written, by_error *error)
{
    by__sink *sink;
    BY_TRY(by__sink_open(&sink, directory, name, n, error));
    by_status status = by__sink_add(sink, data, n, error);
    if (status != BY_OK) {
        by__sink_discard(&sink);
        return status;
    }
    return by__sink_commit(&sink, written, error);
}

by_status by__sink_copy(const char *directory, const char *name, const char *source,
                        by__file_list *written, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, source, error));
    by_status status = by__sink_put(directory, name, map.data, map.size, written, error);
    by__map_close(&map);
    return status;
}
