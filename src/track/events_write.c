#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"
#include "track/append_file.h"
#include "track/track.h"

struct by_events {
    by__track_append_file file;
    by_string line; /* kept between events, so that it stops growing */
};

/* Truncates the file after its last newline, so that the next event begins on a new line. */
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
    by_status status = by__track_append_open(&events->file, path, error);
    if (status == BY_OK) {
        status = drop_torn_line(events->file.fd, path, error);
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
        by__track_append_close(&(*events)->file);
        by_string_free(&(*events)->line);
        free(*events);
        *events = NULL;
    }
}

static void add_key(by_events *events, const char *key)
{
    by__string_append(&events->line, ",");
    by_string_json(&events->line, key, strlen(key));
    by__string_append(&events->line, ":");
}

void by_events_begin(by_events *events, const char *event, uint64_t step)
{
    events->line.length = 0;
    by__string_append(&events->line, "{\"event\":");
    by_string_json(&events->line, event, strlen(event));
    by_string_format(&events->line, ",\"step\":%" PRIu64, step);
}

void by_events_number(by_events *events, const char *key, double value)
{
    char number[32];
    const char *quote = isfinite(value) ? "" : "\"";
    by__format_f64(number, value);
    add_key(events, key);
    by__string_append(&events->line, quote);
    by__string_append(&events->line, number);
    by__string_append(&events->line, quote);
}

void by_events_integer(by_events *events, const char *key, int64_t value)
{
    add_key(events, key);
    by_string_format(&events->line, "%" PRId64, value);
}

void by_events_string(by_events *events, const char *key, const char *value)
{
    add_key(events, key);
    by_string_json(&events->line, value, strlen(value));
}

by_status by__track_events_end_at(by_events *events, double time, by_error *error)
{
    by_string_format(&events->line, ",\"time\":%.3f}\n", time);
    return by__track_append(&events->file, &events->line, error);
}

by_status by_events_end(by_events *events, by_error *error)
{
    return by__track_events_end_at(events, by__track_clock_now(), error);
}

double by__track_events_last_time(const char *path)
{
    char text[96];
    double time = 0.0;
    int fd;
    size_t size;
    if (by__open_regular(&fd, &size, path, NULL) != BY_OK) {
        return 0.0;
    }
    off_t end = (off_t)size;
    off_t at = end < (off_t)sizeof text - 1 ? 0 : end - ((off_t)sizeof text - 1);
    ssize_t n = pread(fd, text, sizeof text - 1, at);
    (void)close(fd);
    text[n < 0 ? 0 : n] = '\0';
    for (const char *found = text; (found = strstr(found, ",\"time\":")) != NULL;) {
        found += strlen(",\"time\":");
        time = strtod(found, NULL);
    }
    return isfinite(time) && time > 0.0 ? time : 0.0;
}

by_status by_events_flush(by_events *events, by_error *error)
{
    return by__track_append_flush(&events->file, error);
}
