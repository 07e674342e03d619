/* The scan of texts finds sizes, characters and hashes; and whether they have changed since. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host/file_kind.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "data/corpus/text_source.h"

#define BLOCK           ((size_t)1 << 20)
#define MARK_BYTES      (sizeof BY__BYTE_ORDER_MARK - 1)
#define SETTLED_SECONDS 2.0 /* longer than a tick of any file system's clock */

/* The file that is read. */
static const char *content_path(const by__data_source_file *file)
{
    return file->content == NULL ? file->path : file->content;
}

by_status by__data_source_open_file(int *fd, const by__data_source_file *file, by_error *error)
{
    *fd = open(content_path(file), O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? BY_OK : by__io_error(error, "open", file->path);
}

typedef struct text_scan {
    by__data_source *source;
    bool (*progress)(void *user, uint64_t done);
    void *user;
    pthread_mutex_t lock; /* protects the following members */
    size_t next;
    uint64_t done;
    bool stopped;
} text_scan;

/* Adds to the progress; returns false if the caller wants to stop. */
static bool report(text_scan *s, uint64_t bytes)
{
    (void)pthread_mutex_lock(&s->lock);
    s->done += bytes;
    if (!s->stopped && s->progress != NULL && !s->progress(s->user, s->done)) {
        s->stopped = true;
    }
    bool go_on = !s->stopped;
    (void)pthread_mutex_unlock(&s->lock);
    return go_on;
}

/* Whether a file's content is the lines that were made of it, and not its own bytes. */
static bool is_converted(const by__data_source_file *file)
{
    return file->content != NULL && file->content_file >= 0;
}

static by_status scan_file(text_scan *s, by__data_source_file *file, char *block, by_error *error)
{
    int fd;
    by__hasher *hasher;
    double age;
    if (!by__file_stamp(file->stamp, &age, content_path(file)) || !(age > SETTLED_SECONDS)) {
        file->stamp[0] = '\0';
    }
    BY_TRY(by__hasher_open(&hasher, error));
    by_status status = by__data_source_open_file(&fd, file, error);
    if (status != BY_OK) {
        by__hasher_close(&hasher);
        return status;
    }
    bool go_on = true;
    for (uint64_t at = 0; at < file->bytes && status == BY_OK && go_on;) {
        size_t n = file->bytes - at < BLOCK ? (size_t)(file->bytes - at) : BLOCK;
        status = by__read_at(fd, file->path, at, block, n, error);
        if (status == BY_OK && at == 0 && !is_converted(file)) {
            status = by__file_check_text(file->path, (const uint8_t *)block, n, "text", error);
        }
        if (status == BY_OK) {
            by__hasher_add(hasher, block, n);
            if (at == 0 && n >= MARK_BYTES && memcmp(block, BY__BYTE_ORDER_MARK, MARK_BYTES) == 0) {
                file->mark_bytes = MARK_BYTES;
                file->characters--; /* the mark counts as one */
            }
            file->characters += by__utf8_count(block, n);
            at += n;
            go_on = report(s, n);
        }
    }
    by__hasher_hex(hasher, file->hash);
    (void)close(fd);
    by__hasher_close(&hasher);
    return status;
}

static by_status scan_files(void *context, size_t thread, by_error *error)
{
    text_scan *s = context;
    char *block;
    BY_UNUSED(thread);
    BY_TRY(by__alloc((void **)&block, BLOCK, 1, "read buffer", error));
    by_status status = BY_OK;
    while (status == BY_OK) {
        (void)pthread_mutex_lock(&s->lock);
        size_t next = s->stopped ? s->source->count : s->next;
        s->next = next < s->source->count ? next + 1 : next;
        (void)pthread_mutex_unlock(&s->lock);
        if (next == s->source->count) {
            break;
        }
        status = scan_file(s, &s->source->files[next], block, error);
    }
    free(block);
    return status;
}

by_status by__data_source_scan(by__data_source *source, size_t threads,
                               bool (*progress)(void *user, uint64_t done), void *user,
                               by_error *error)
{
    text_scan s = {
        .source = source, .progress = progress, .user = user, .lock = PTHREAD_MUTEX_INITIALIZER};
    BY_TRY(
        by__threads_run(threads < source->count ? threads : source->count, scan_files, &s, error));
    return s.stopped ? by_error_set(error, BY_ESTOPPED, "stopped while reading the texts") : BY_OK;
}

/* Whether a file has certainly not changed since its scan. */
static bool is_unchanged(const by__data_source_file *file)
{
    char stamp[BY__FILE_STAMP_SIZE];
    return file->stamp[0] != '\0' && by__file_stamp(stamp, NULL, content_path(file)) &&
           strcmp(stamp, file->stamp) == 0;
}

by_status by__data_source_check(const by__data_source *source, size_t threads, const char *way_out,
                                by_error *error)
{
    by__data_source again = *source;
    again.count = 0;
    BY_TRY(by__alloc((void **)&again.files, source->count, sizeof *again.files, "files", error));
    for (size_t i = 0; i < source->count; i++) {
        if (!is_unchanged(&source->files[i])) {
            again.files[again.count++] = source->files[i];
        }
    }
    by_status status =
        again.count == 0 ? BY_OK : by__data_source_scan(&again, threads, NULL, NULL, error);
    for (size_t i = 0, k = 0; i < source->count && k < again.count && status == BY_OK; i++) {
        if (again.files[k].path != source->files[i].path) {
            continue;
        }
        if (strcmp(again.files[k].hash, source->files[i].hash) != 0) {
            status = by_error_set(error, BY_EFORMAT, "%s changed while it was packed; %s",
                                  source->files[i].path, way_out);
        }
        k++;
    }
    free(again.files);
    return status;
}
