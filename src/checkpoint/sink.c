/* A file being written: buffered, hashed on the way, with direct I/O if it is large, synced and
 * renamed at commit. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint/storage.h"

/* Large files bypass the page cache (O_DIRECT): on many virtual machines filling it costs more than
 * the disk, and it would evict the training data. Data are gathered in one aligned buffer, which is
 * also the piece that is hashed while it is in the processor's cache. */
enum {
    buffer_bytes = 4 << 20,
    direct_from_bytes = 1 << 20, /* not worth it for smaller files */
    direct_unit = 4096           /* offsets, lengths and addresses must be multiples of this */
};

struct by__checkpoint_sink {
    int fd;
    char *name;
    char *path;      /* final name */
    char *temporary; /* name while it is being written */
    by__hasher *hasher;
    uint8_t *memory; /* owns the buffer */
    uint8_t *buffer; /* the aligned part of it */
    size_t capacity;
    size_t buffered;
    uint64_t written; /* bytes of content given to the kernel */
    bool direct;
};

void by__checkpoint_file_list_free(by__checkpoint_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].name);
        free(list->items[i].in);
    }
    free(list->items);
    *list = (by__checkpoint_file_list){0};
}

const by__checkpoint_file_record *
by__checkpoint_file_list_find(const by__checkpoint_file_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

by_status by__checkpoint_file_list_add(by__checkpoint_file_list *list, const char *name,
                                       uint64_t size, const char hash[33], const char *in,
                                       by_error *error)
{
    BY_TRY(by__reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items,
                       error));
    by__checkpoint_file_record item = {
        .name = by__strdup(name), .size = size, .in = in == NULL ? NULL : by__strdup(in)};
    if (item.name == NULL || (in != NULL && item.in == NULL)) {
        free(item.name);
        free(item.in);
        return by_error_set(error, BY_EMEMORY, "out of memory: file list");
    }
    memcpy(item.hash, hash, sizeof item.hash);
    list->items[list->count++] = item;
    return BY_OK;
}

static by_status sink_error(const by__checkpoint_sink *sink, const char *verb, by_error *error)
{
    return by_error_set(error, BY_EIO, "cannot %s %s: %s", verb, sink->temporary, strerror(errno));
}

/* A file system that cannot reserve space reports that; then the writes themselves detect a full
 * disk. */
by_status by__checkpoint_reserve_space(int fd, const char *path, uint64_t size, by_error *error)
{
    if (size == 0 || size > INT64_MAX || fallocate(fd, 0, 0, (off_t)size) == 0) {
        return BY_OK;
    }
    if (errno == ENOSPC) {
        struct statvfs info;
        char need[32];
        char have[32];
        uint64_t free_bytes = 0;
        if (fstatvfs(fd, &info) == 0) {
            free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
        }
        return by_error_set(error, BY_EIO, "cannot write %s: the disk is full (%s needed, %s free)",
                            path, by_format_bytes(need, size), by_format_bytes(have, free_bytes));
    }
    return errno == EFBIG || errno == EDQUOT ? by__io_error(error, "write", path) : BY_OK;
}

static void sink_free(by__checkpoint_sink **sink)
{
    if ((*sink)->fd >= 0) {
        (void)close((*sink)->fd);
    }
    by__hasher_close(&(*sink)->hasher);
    free((*sink)->memory);
    free((*sink)->temporary);
    free((*sink)->path);
    free((*sink)->name);
    free(*sink);
    *sink = NULL;
}

static by_status create(by__checkpoint_sink *sink, by_error *error)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    if (sink->direct) {
        sink->fd = open(sink->temporary, flags | O_DIRECT, 0666);
    }
    if (sink->fd < 0) { /* small, or a file system without direct I/O */
        sink->direct = false;
        sink->fd = open(sink->temporary, flags, 0666);
    }
    return sink->fd >= 0 ? BY_OK : sink_error(sink, "create", error);
}

by_status by__checkpoint_sink_open(by__checkpoint_sink **out, const char *directory,
                                   const char *name, uint64_t size, by_error *error)
{
    by__checkpoint_sink *sink;
    by_string temporary = {0};
    BY_TRY(by__alloc((void **)&sink, 1, sizeof *sink, "file writer", error));
    sink->fd = -1;
    sink->direct = size >= direct_from_bytes;
    sink->capacity =
        size < buffer_bytes ? by__round_up((size_t)size + 1, direct_unit) : buffer_bytes;
    sink->name = by__strdup(name);
    sink->path = by__path_join(directory, name);
    by_status status = BY_OK;
    if (sink->name == NULL || sink->path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
        goto fail;
    }
    by_string_format(&temporary, "%s.tmp", sink->path);
    status = by__string_release(&temporary, &sink->temporary, error);
    if (status == BY_OK) {
        status = by__hasher_open(&sink->hasher, error);
    }
    if (status == BY_OK) {
        status = by__alloc_aligned((void **)&sink->memory, sink->capacity + direct_unit,
                                   "write buffer", error);
    }
    if (status == BY_OK) {
        sink->buffer = sink->memory + (-(uintptr_t)sink->memory & (direct_unit - 1));
        status = create(sink, error);
    }
    if (status != BY_OK) {
        goto fail;
    }
    status = by__checkpoint_reserve_space(sink->fd, sink->path, size, error);
    if (status != BY_OK) {
        by__checkpoint_sink_discard(&sink);
        return status;
    }
    *out = sink;
    return BY_OK;
fail:
    sink_free(&sink);
    return status;
}

/* Switches to the page cache: for unaligned data, or a device that refuses direct I/O. */
static bool stop_direct(by__checkpoint_sink *sink)
{
    int flags = sink->direct ? fcntl(sink->fd, F_GETFL) : -1;
    if (flags < 0 || fcntl(sink->fd, F_SETFL, flags & ~O_DIRECT) != 0) {
        return false;
    }
    sink->direct = false;
    return true;
}

/* Hashes and writes the buffer. A direct write is padded to whole units; only the last one needs
 * that, and commit truncates the padding. */
static by_status flush(by__checkpoint_sink *sink, by_error *error)
{
    size_t n = sink->buffered;
    const uint8_t *data = sink->buffer;
    by__hasher_add(sink->hasher, sink->buffer, n);
    sink->written += n;
    sink->buffered = 0;
    if (sink->direct) {
        size_t padded = by__round_up(n, direct_unit);
        memset(sink->buffer + n, 0, padded - n);
        n = padded;
    }
    while (n > 0) {
        ssize_t done = write(sink->fd, data, n);
        if (done < 0 && (errno == EINTR || (errno == EINVAL && stop_direct(sink)))) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            return sink_error(sink, "write", error);
        }
        data += done;
        n -= (size_t)done;
    }
    return BY_OK;
}

by_status by__checkpoint_sink_add(by__checkpoint_sink *sink, const void *data, size_t n,
                                  by_error *error)
{
    const uint8_t *bytes = data;
    while (n > 0) {
        size_t room = sink->capacity - sink->buffered;
        size_t piece = n < room ? n : room;
        memcpy(sink->buffer + sink->buffered, bytes, piece);
        sink->buffered += piece;
        bytes += piece;
        n -= piece;
        if (sink->buffered == sink->capacity) {
            BY_TRY(flush(sink, error));
        }
    }
    return BY_OK;
}

by_status by__checkpoint_sink_release(by__checkpoint_sink **sink, int *fd, by_error *error)
{
    by__checkpoint_sink *s = *sink;
    by_status status = flush(s, error);
    /* The padding of a direct write is not part of the content. */
    if (status == BY_OK && s->direct && !stop_direct(s)) {
        status = sink_error(s, "write", error);
    }
    if (status == BY_OK && rename(s->temporary, s->path) != 0) {
        status = sink_error(s, "rename", error);
    }
    if (status != BY_OK) {
        by__checkpoint_sink_discard(sink);
        return status;
    }
    *fd = s->fd;
    s->fd = -1;
    sink_free(sink);
    return BY_OK;
}

by_status by__checkpoint_sink_commit(by__checkpoint_sink **sink, by__checkpoint_file_list *written,
                                     by_error *error)
{
    by__checkpoint_sink *s = *sink;
    by_status status = flush(s, error);
    /* Truncates padding and space that was reserved beyond the content. */
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
    if (status == BY_OK && written != NULL) {
        char hash[33];
        by__hasher_hex(s->hasher, hash);
        status = by__checkpoint_file_list_add(written, s->name, s->written, hash, NULL, error);
    }
    /* Last: if this fails, the former file, or none, is still there. */
    if (status == BY_OK && rename(s->temporary, s->path) != 0) {
        status = sink_error(s, "rename", error);
    }
    if (status != BY_OK) {
        by__checkpoint_sink_discard(sink);
    } else {
        sink_free(sink);
    }
    return status;
}

void by__checkpoint_sink_discard(by__checkpoint_sink **sink)
{
    if (*sink != NULL) {
        (void)unlink((*sink)->temporary);
        sink_free(sink);
    }
}

by_status by__checkpoint_sink_put(const char *directory, const char *name, const void *data,
                                  size_t n, by__checkpoint_file_list *written, by_error *error)
{
    by__checkpoint_sink *sink;
    BY_TRY(by__checkpoint_sink_open(&sink, directory, name, n, error));
    by_status status = by__checkpoint_sink_add(sink, data, n, error);
    if (status != BY_OK) {
        by__checkpoint_sink_discard(&sink);
        return status;
    }
    return by__checkpoint_sink_commit(&sink, written, error);
}

by_status by__checkpoint_sink_copy(const char *directory, const char *name, const char *source,
                                   by__checkpoint_file_list *written, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, source, error));
    by_status status = by__checkpoint_sink_put(directory, name, map.data, map.size, written, error);
    by__map_close(&map);
    return status;
}
