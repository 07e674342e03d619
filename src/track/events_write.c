#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "track/track.h"

/* Bytes of events that wait for a disk with room. */
#define KEEP_BYTES ((size_t)16 << 20)

struct by_events {
    int fd;
    char *path;
    by__text line; /* kept from event to event, so that it stops growing */
    by__text kept; /* whole lines that could not be written yet */
    uint64_t lost; /* events that were too many to be kept */
};

/* Removes what stands behind the last newline: the next event must begin on a line of its own. */
static by_status drop_torn_line(int fd, const char *path, by_error *error)
{
    char block[4096];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t keep = 0;
    for (off_t at = end; at > 0 && keep == 0;) {
        size_t n = at < (off_t)sizeof block ? (size_t)at : sizeof block;
        if (pread(fd, block, n, at - (off_t)n) != (ssize_t)n) {
            return by__io_error(error, "read", path);
        }
        const char *newline = memrchr(block, '\n', n);
        if (newline != NULL) {
            keep = at - (off_t)n + (newline - block) + 1;
        }
        at -= (off_t)n;
    }
    if (end < 0 || (keep != end && ftruncate(fd, keep) != 0)) {
        return by__io_error(error, "truncate", path);
    }
    return BY_OK;
}

by_status by_events_open(by_events **out, const char *path, by_error *error)
{
    by_events *events;
    BY_TRY(by__alloc((void **)&events, 1, sizeof *events, "events", error));
    by_status status = BY_OK;
    events->path = by__strdup(path);
    events->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (events->path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (events->fd < 0) {
        status = by__io_error(error, "open", path);
    } else {
        status = drop_torn_line(events->fd, path, error);
    }
    if (status != BY_OK) {
        by_events_close(&events);
        return status;
    }
    *out = events;
    return BY_OK;
}

void by_events_close(by_events **events)
{
    if (*events != NULL) {
        if ((*events)->fd >= 0) {
            (void)close((*events)->fd);
        }
        by__text_free(&(*events)->line);
        by__text_free(&(*events)->kept);
        free((*events)->path);
        free(*events);
        *events = NULL;
    }
}

static void add_key(by_events *events, const char *key)
{
    by__text_add(&events->line, ",");
    by__text_json(&events->line, key, strlen(key));
    by__text_add(&events->line, ":");
}

void by_events_begin(by_events *events, const char *event, uint64_t step)
{
    events->line.length = 0;
    by__text_add(&events->line, "{\"event\":");
    by__text_json(&events->line, event, strlen(event));
    by__text_format(&events->line, ",\"step\":%" PRIu64, step);
}

void by_events_number(by_events *events, const char *key, double value)
{
    char number[32];
    const char *quote = isfinite(value) ? "" : "\"";
    by__format_f64(number, value);
    add_key(events, key);
    by__text_add(&events->line, quote);
    by__text_add(&events->line, number);
    by__text_add(&events->line, quote);
}

void by_events_integer(by_events *events, const char *key, int64_t value)
{
    add_key(events, key);
    by__text_format(&events->line, "%" PRId64, value);
}

void by_events_string(by_events *events, const char *key, const char *value)
{
    add_key(events, key);
    by__text_json(&events->line, value, strlen(value));
}

/* Writes all of it or nothing. */
static by_status append(const by_events *events, const by__text *text, by_error *error)
{
    struct stat info;
    if (fstat(events->fd, &info) != 0) {
        return by__io_error(error, "stat", events->path);
    }
    const char *data = text->data;
    size_t left = text->length;
    while (left > 0) {
        ssize_t n = write(events->fd, data, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            by_status status = by__io_error(error, "write", events->path);
            (void)ftruncate(events->fd, info.st_size);
            return status;
        }
        data += n;
        left -= (size_t)n;
    }
    return BY_OK;
}

/* Keeps the line for later. */
static void keep(by_events *events)
{
    if (events->kept.length + events->line.length > KEEP_BYTES) {
        events->lost++;
        return;
    }
    size_t before = events->kept.length;
    by__text_add_bytes(&events->kept, events->line.data, events->line.length);
    if (events->kept.failed) { /* what was kept before is still there */
        events->kept.failed = false;
        events->kept.length = before;
        events->lost++;
    }
}

by_status by_events_end(by_events *events, by_error *error)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    by__text_format(&events->line, ",\"time\":%lld.%03ld}\n", (long long)now.tv_sec,
                    now.tv_nsec / 1000000);
    if (events->line.failed) {
        by__text_free(&events->line);
        events->lost++;
        return by_error_set(error, BY_EMEMORY, "out of memory: an event of %s", events->path);
    }
    if (events->kept.length == 0) {
        by_status status = append(events, &events->line, error);
        if (status != BY_OK) {
            keep(events);
        }
        return status;
    }
    keep(events);
    return by_events_flush(events, error);
}

by_status by_events_flush(by_events *events, by_error *error)
{
    if (events->kept.length > 0) {
        BY_TRY(append(events, &events->kept, error));
        by__text_free(&events->kept);
    }
    return events->lost == 0 ? BY_OK
                             : by_error_set(error, BY_EIO, "%" PRIu64 " events of %s were lost",
                                            events->lost, events->path);
}
