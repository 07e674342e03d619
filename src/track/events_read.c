#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/paths.h"
#include "track/track.h"

/* Reads an events file line by line. */
typedef struct event_cursor {
    const char *path;
    const char *next;
    const char *end;
    size_t number; /* of the current line, from 1 */
    const char *line;
    size_t length; /* including its newline */
    json_t *event;
    uint64_t step;
} event_cursor;

/* Parses the next line. *more is false at the end, where a line without a newline counts as
 * incomplete. */
static by_status advance(event_cursor *at, bool *more, by_error *error)
{
    json_decref(at->event);
    at->event = NULL;
    size_t left = (size_t)(at->end - at->next);
    const char *newline = left == 0 ? NULL : memchr(at->next, '\n', left);
    *more = newline != NULL;
    if (!*more) {
        return BY_OK;
    }
    json_error_t json_error;
    at->number++;
    at->line = at->next;
    at->length = (size_t)(newline + 1 - at->next);
    at->next = newline + 1;
    at->event = by_json_load(at->line, at->length - 1, 0, &json_error);
    const json_t *step = json_object_get(at->event, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 0) {
        json_decref(at->event);
        at->event = NULL;
        return by_error_set(
            error, BY_EFORMAT,
            "%s:%zu: expected a JSON object with a \"step\"; remove the line to go on", at->path,
            at->number);
    }
    at->step = (uint64_t)json_integer_value(step);
    return BY_OK;
}

/* Returns true for what training records of a step's weights from their evaluation on. */
static bool follows_evaluation(const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    return name != NULL && (strcmp(name, "eval") == 0 || strcmp(name, "sample") == 0);
}

by_status by__track_events_filter(by_string *out, const char *path, const char *text, size_t length,
                                  uint64_t step, bool eval_pending, by_error *error)
{
    event_cursor at = {.path = path, .next = text, .end = text + length};
    bool more;
    for (;;) {
        BY_TRY(advance(&at, &more, error));
        if (!more) {
            return BY_OK;
        }
        bool again = eval_pending && at.step == step && follows_evaluation(at.event);
        if (at.step <= step && !again) {
            by_string_add(out, at.line, at.length);
        }
    }
}

by_status by_events_rewind(const char *path, uint64_t step, bool eval_pending, by_error *error)
{
    by__map map;
    by_string kept = {0};
    if (!by__path_exists(path)) {
        return BY_OK;
    }
    BY_TRY(by__map_open(&map, path, error));
    const char *text = map.size == 0 ? "" : (const char *)map.data;
    by_status status =
        by__track_events_filter(&kept, path, text, map.size, step, eval_pending, error);
    if (status == BY_OK && kept.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: events of %s", path);
    }
    if (status == BY_OK && kept.length != map.size) {
        status = by__file_write(path, kept.length == 0 ? "" : kept.data, kept.length, error);
    }
    by_string_free(&kept);
    by__map_close(&map);
    return status;
}

static bool number_of(double *out, const json_t *value)
{
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        return (strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 ||
                strcmp(text, "-inf") == 0) &&
               by__parse_f64(text, out);
    }
    *out = json_number_value(value);
    return json_is_number(value);
}

by_status by__track_events_series(by_series *out, const char *path, const char *text, size_t length,
                                  const char *event, const char *key, by_error *error)
{
    event_cursor at = {.path = path, .next = text, .end = text + length};
    by_series series = {0};
    size_t step_capacity = 0;
    size_t value_capacity = 0;
    by_status status;
    bool more;
    while ((status = advance(&at, &more, error)) == BY_OK && more) {
        const char *name = json_string_value(json_object_get(at.event, "event"));
        double value;
        if ((event != NULL && (name == NULL || strcmp(name, event) != 0)) ||
            !number_of(&value, json_object_get(at.event, key))) {
            continue;
        }
        status = by__reserve((void **)&series.steps, &step_capacity, series.count + 1,
                             sizeof *series.steps, error);
        if (status == BY_OK) {
            status = by__reserve((void **)&series.values, &value_capacity, series.count + 1,
                                 sizeof *series.values, error);
        }
        if (status != BY_OK) {
            break;
        }
        series.steps[series.count] = at.step;
        series.values[series.count++] = value;
    }
    json_decref(at.event);
    if (status != BY_OK) {
        by_series_free(&series);
        return status;
    }
    *out = series;
    return BY_OK;
}

by_status by_events_read(by_series *out, const char *path, const char *event, const char *key,
                         by_error *error)
{
    by__map map;
    char *file = by__path_is_dir(path) ? by__path_join(path, "events.jsonl") : by__strdup(path);
    if (file == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = by__map_open(&map, file, error);
    if (status == BY_OK) {
        const char *text = map.size == 0 ? "" : (const char *)map.data;
        status = by__track_events_series(out, file, text, map.size, event, key, error);
        by__map_close(&map);
    }
    free(file);
    return status;
}

void by_series_free(by_series *series)
{
    free(series->steps);
    free(series->values);
    *series = (by_series){0};
}

static void hand_out(const event_cursor *at, by_event_number *number, void *user)
{
    const char *event = json_string_value(json_object_get(at->event, "event"));
    const char *key;
    json_t *value;
    json_object_foreach(at->event, key, value)
    {
        double n;
        if (strcmp(key, "step") != 0 && strcmp(key, "event") != 0 && number_of(&n, value)) {
            number(user, event == NULL ? "" : event, at->step, key, n);
        }
    }
}

/* Whether a line of a file ends before `offset`: else it was written anew since that was read. */
static by_status ends_line(bool *out, int fd, const char *file, uint64_t offset, by_error *error)
{
    char last = '\n';
    BY_TRY(offset == 0 ? BY_OK : by__read_at(fd, file, offset - 1, &last, 1, error));
    *out = last == '\n';
    return BY_OK;
}

/* Reads the bytes of a file from `offset` on. Not mapped, because the run that writes the file may
 * truncate it. */
static by_status read_rest(char **out, size_t *length, const char *file, uint64_t *offset,
                           bool *restarted, by_error *error)
{
    int fd;
    size_t size;
    bool same = false;
    *length = 0;
    BY_TRY(by__open_regular(&fd, &size, file, error));
    by_status status =
        (uint64_t)size < *offset ? BY_OK : ends_line(&same, fd, file, *offset, error);
    if (status == BY_OK && !same) {
        *restarted = true;
        *offset = 0;
    } else if (status == BY_OK) {
        *length = (size_t)((uint64_t)size - *offset);
        status = by__alloc((void **)out, *length, 1, "events", error);
        if (status == BY_OK) {
            status = by__read_at(fd, file, *offset, *out, *length, error);
        }
    }
    (void)close(fd);
    return status;
}

static by_status follow(const char *file, uint64_t *offset, bool *restarted,
                        by_event_number *number, void *user, by_error *error)
{
    char *text = NULL;
    size_t length;
    bool more;
    by_status status = read_rest(&text, &length, file, offset, restarted, error);
    event_cursor at = {.path = file, .next = text, .end = text == NULL ? NULL : text + length};
    while (status == BY_OK && length > 0 && (status = advance(&at, &more, error)) == BY_OK &&
           more) {
        hand_out(&at, number, user);
        *offset += at.length;
    }
    json_decref(at.event);
    free(text);
    return status;
}

by_status by_events_follow(const char *path, uint64_t *offset, bool *restarted,
                           by_event_number *number, void *user, by_error *error)
{
    bool unused;
    bool *set_back = restarted == NULL ? &unused : restarted;
    char *file = by__path_is_dir(path) ? by__path_join(path, "events.jsonl") : by__strdup(path);
    if (file == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    *set_back = false;
    by_status status =
        by__path_exists(file) ? follow(file, offset, set_back, number, user, error) : BY_OK;
    free(file);
    return status;
}
