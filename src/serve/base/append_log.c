#include "serve/base/append_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WAITING ((size_t)4 << 20)
#define MAX_BYTES   ((size_t)64 << 20)

struct by__serve_append_log {
    by__serve_append_options options;
    char *directory;
    char *name;
    uv_loop_t *loop;
    uv_work_t work;
    bool busy;
    by_string waiting; /* lines of the next batch */
    uint64_t waiting_lines;
    uint64_t added;
    uint64_t lost;
    /* Owned by the thread while `busy`, else by the loop. */
    by_string batch;
    uint64_t batch_lines;
    uint64_t number; /* number of the file */
    int fd;          /* -1: no file is open */
    by_status status;
    by_error error;
};

/* ---- files ---- */

static char *path_of(const by__serve_append_log *log, uint64_t number)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s-%06llu.jsonl", log->directory, log->name,
                    (unsigned long long)number) < 0
               ? NULL
               : path;
}

/* The number in the name of a file of this log; 0: it is not one. */
static uint64_t number_of(const by__serve_append_log *log, const char *file)
{
    size_t length = strlen(log->name);
    char *end;
    if (strncmp(file, log->name, length) != 0 || file[length] != '-' || file[length + 1] < '0' ||
        file[length + 1] > '9') {
        return 0;
    }
    uint64_t number = strtoull(file + length + 1, &end, 10);
    return strcmp(end, ".jsonl") == 0 ? number : 0;
}

/* Locks an open file until it is closed. Returns false if another process writes it. On a file
 * system without locks nothing is locked. */
static bool lock_file(int fd)
{
    int code;
    while ((code = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
    }
    return code == 0 || errno != EWOULDBLOCK;
}

/* Removes a file unless another process writes it. */
static void remove_unused(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || lock_file(fd)) {
        (void)unlink(path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Removes files that are too old once `newest` is written. */
static by_status remove_old(const by__serve_append_log *log, uint64_t newest, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    if (log->options.files == 0) {
        return BY_OK;
    }
    BY_TRY(by__list_dir(&names, &count, log->directory, error));
    for (size_t i = 0; i < count; i++) {
        uint64_t number = number_of(log, names[i]);
        char *path =
            number > 0 && number + log->options.files <= newest ? path_of(log, number) : NULL;
        if (path != NULL) {
            remove_unused(path);
        }
        free(path);
    }
    by__names_free(names, count);
    return BY_OK;
}

/* Finds the number of the first file behind all that have lines: an empty one, so that starts
 * without lines push no others out, or a new one. A file that cannot be looked at may have some. */
static by_status find_next(uint64_t *next, const by__serve_append_log *log, by_error *error)
{
    char **names;
    size_t count;
    uint64_t used = 0;
    uint64_t empty = 0;
    BY_TRY(by__list_dir(&names, &count, log->directory, error));
    for (size_t i = count; i > 0; i--) { /* newest first: few are looked at */
        uint64_t number = number_of(log, names[i - 1]);
        char *path = number > used ? path_of(log, number) : NULL;
        struct stat info;
        if (path != NULL && stat(path, &info) == 0 && info.st_size == 0) {
            empty = empty == 0 || number < empty ? number : empty;
        } else if (number > used) {
            used = number;
        }
        free(path);
    }
    by__names_free(names, count);
    *next = empty > used ? empty : used + 1;
    return BY_OK;
}

/* Opens and locks a file if it has no lines and no other process writes it; else log->fd stays
 * -1. */
static by_status try_file(by__serve_append_log *log, by_error *error)
{
    struct stat info;
    char *path = path_of(log, log->number);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    by_status status = fd < 0 ? by__io_error(error, "open", path) : BY_OK;
    /* Another process may have filled or removed it before the lock was taken. */
    if (fd >= 0 && lock_file(fd) && (fstat(fd, &info) != 0 || info.st_size == 0) &&
        by__path_exists(path)) {
        log->fd = fd;
    } else if (fd >= 0) {
        (void)close(fd);
    }
    free(path);
    return status;
}

/* Opens a file without lines, so that a partial line left by a crash stays the last of its file. */
static by_status open_file(by__serve_append_log *log, by_error *error)
{
    uint64_t next;
    BY_TRY(find_next(&next, log, error));
    log->number = log->number > next ? log->number : next;
    BY_TRY(try_file(log, error));
    while (log->fd < 0) {
        log->number++;
        BY_TRY(try_file(log, error));
    }
    if (log->options.sync) {
        BY_TRY(by__sync_dir(log->directory, error));
    }
    return remove_old(log, log->number, error);
}

/* Appends the whole batch, or leaves the file unchanged. */
static by_status append(const by__serve_append_log *log, by_error *error)
{
    struct stat info;
    size_t done = 0;
    if (fstat(log->fd, &info) != 0) {
        return by__io_error(error, "look at", log->directory);
    }
    while (done < log->batch.length) {
        ssize_t n = write(log->fd, log->batch.data + done, log->batch.length - done);
        if (n < 0 && errno != EINTR) {
            by_status status = by__io_error(error, "write to", log->directory);
            (void)ftruncate(log->fd, info.st_size);
            return status;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return !log->options.sync || fdatasync(log->fd) == 0
               ? BY_OK
               : by__io_error(error, "sync", log->directory);
}

static by_status write_batch(by__serve_append_log *log, by_error *error)
{
    struct stat info;
    /* A file that was deleted still accepts lines, but nobody can read them. */
    if (log->fd >= 0 && fstat(log->fd, &info) == 0 &&
        ((size_t)info.st_size >= log->options.bytes || info.st_nlink == 0)) {
        (void)close(log->fd);
        log->fd = -1;
        log->number++;
    }
    if (log->fd < 0) {
        BY_TRY(open_file(log, error));
    }
    return append(log, error);
}

/* ---- batches ---- */

static void on_write(uv_work_t *work)
{
    by__serve_append_log *log = work->data;
    log->status = write_batch(log, &log->error);
}

static void start(by__serve_append_log *log);

static void on_written(uv_work_t *work, int code)
{
    by__serve_append_log *log = work->data;
    uint64_t upto = log->added - log->waiting_lines; /* queued while the batch was being written */
    BY_UNUSED(code);
    log->busy = false;
    log->lost += log->status == BY_OK ? 0 : log->batch_lines;
    log->batch.length = 0;
    if (log->options.done != NULL) {
        log->options.done(log->options.user, upto, log->status, &log->error);
    }
    start(log);
}

static void start(by__serve_append_log *log)
{
    if (log->busy || log->waiting_lines == 0) {
        return;
    }
    by_string batch = log->batch;
    log->batch = log->waiting;
    log->batch_lines = log->waiting_lines;
    log->waiting = batch;
    log->waiting_lines = 0;
    log->work.data = log;
    log->busy = uv_queue_work(log->loop, &log->work, on_write, on_written) == 0;
    if (!log->busy) { /* only after a wrong call */
        log->lost += log->batch_lines;
        log->batch.length = 0;
    }
}

uint64_t by__serve_append_log_add(by__serve_append_log *log, const char *line, size_t length)
{
    if (log->waiting.length + length > MAX_WAITING) {
        log->lost++;
        return 0;
    }
    by_string_add(&log->waiting, line, length);
    if (log->waiting.failed) {
        log->waiting.failed = false; /* earlier lines are unchanged */
        log->lost++;
        return 0;
    }
    log->waiting_lines++;
    log->added++;
    uint64_t number = log->added;
    start(log);
    return number;
}

uint64_t by__serve_append_log_record(by__serve_append_log *log, json_t *record)
{
    by_string line = {0};
    by__json_write(&line, record, JSON_COMPACT);
    json_decref(record);
    by__string_append(&line, "\n");
    uint64_t number = 0;
    if (line.failed) {
        log->lost++;
    } else {
        number = by__serve_append_log_add(log, line.data, line.length);
    }
    by_string_free(&line);
    return number;
}

uint64_t by__serve_append_log_lost(const by__serve_append_log *log)
{
    return log->lost;
}

/* ---- opening ---- */

by_status by__serve_append_log_open(by__serve_append_log **out, uv_loop_t *loop,
                                    const by__serve_append_options *options, by_error *error)
{
    by__serve_append_log *log;
    BY_TRY(by__alloc((void **)&log, 1, sizeof *log, "a log", error));
    log->options = *options;
    log->options.bytes = options->bytes == 0 ? MAX_BYTES : options->bytes;
    log->loop = loop;
    log->fd = -1;
    log->directory = by__strdup(options->directory);
    log->name = by__strdup(options->name);
    by_status status = log->directory == NULL || log->name == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a log")
                           : by__make_dirs(log->directory, error);
    if (status == BY_OK) {
        status = open_file(log, error);
    }
    if (status != BY_OK) {
        by__serve_append_log_close(&log);
        return status;
    }
    *out = log;
    return BY_OK;
}

void by__serve_append_log_close(by__serve_append_log **log)
{
    by__serve_append_log *l = *log;
    if (l == NULL) {
        return;
    }
    while (l->busy) {
        (void)uv_run(l->loop, UV_RUN_ONCE);
    }
    *log = NULL;
    if (l->fd >= 0) {
        (void)close(l->fd);
    }
    by_string_free(&l->waiting);
    by_string_free(&l->batch);
    free(l->directory);
    free(l->name);
    free(l);
}
