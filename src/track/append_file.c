#include "track/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_BYTES ((size_t)16 << 20)

by_status by__track_append_open(by__track_append_file *out, const char *path, by_error *error)
{
    *out = (by__track_append_file){.fd = -1, .path = by__strdup(path)};
    if (out->path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    struct stat info;
    out->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (out->fd < 0 || fstat(out->fd, &info) != 0) {
        return by__io_error(error, "open", path);
    }
    return S_ISREG(info.st_mode)
               ? BY_OK
               : by_error_set(error, BY_EIO, "cannot write %s: it is not a regular file", path);
}

void by__track_append_close(by__track_append_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    by_string_free(&file->kept);
    free(file->path);
    *file = (by__track_append_file){.fd = -1};
}

/* Writes the whole text or, on an error, nothing. */
static by_status write_whole(const by__track_append_file *file, const by_string *text,
                             by_error *error)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0) {
        return by__io_error(error, "stat", file->path);
    }
    const char *data = text->data;
    size_t left = text->length;
    while (left > 0) {
        ssize_t n = write(file->fd, data, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            by_status status = by__io_error(error, "write", file->path);
            (void)ftruncate(file->fd, info.st_size);
            return status;
        }
        data += n;
        left -= (size_t)n;
    }
    return BY_OK;
}

/* Keeps the record for later. */
static void keep(by__track_append_file *file, const by_string *record)
{
    if (file->kept.length + record->length > KEEP_BYTES) {
        file->lost++;
        return;
    }
    size_t before = file->kept.length;
    by_string_add(&file->kept, record->data, record->length);
    if (file->kept.failed) { /* the records kept before are still there */
        file->kept.failed = false;
        file->kept.length = before;
        file->lost++;
    }
}

by_status by__track_append(by__track_append_file *file, by_string *record, by_error *error)
{
    if (record->failed) {
        by_string_free(record);
        file->lost++;
        return by_error_set(error, BY_EMEMORY, "out of memory: an event of %s", file->path);
    }
    if (file->kept.length == 0) {
        by_status status = write_whole(file, record, error);
        if (status != BY_OK) {
            keep(file, record);
        }
        return status;
    }
    keep(file, record);
    return by__track_append_flush(file, error);
}

by_status by__track_append_flush(by__track_append_file *file, by_error *error)
{
    if (file->kept.length > 0) {
        BY_TRY(write_whole(file, &file->kept, error));
        by_string_free(&file->kept);
    }
    return file->lost == 0 ? BY_OK
                           : by_error_set(error, BY_EIO, "%" PRIu64 " events of %s were lost",
                                          file->lost, file->path);
}
