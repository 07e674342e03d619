#include "track/tracker.h"
#include "base/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "track/address.h"
#include "track/mlflow_client.h"
#include "track/sinks/sink.h"

/* In the order in which they receive events. */
static const by__sink_row *const rows[] = {
    &by__sink_jsonl, &by__sink_terminal, &by__sink_tensorboard,
    &by__sink_wandb, &by__sink_mlflow,   &by__sink_prometheus,
};

typedef struct opened_sink {
    void *sink; /* NULL: not open */
    bool is_failing;
} opened_sink;

struct by__track_tracker {
    by__track_tracker_options options;
    opened_sink sinks[BY_ARRAY_LENGTH(rows)];
    by__track_run_event event; /* the event being built */
    by__track_event_value *values;
    size_t capacity;
    bool is_lost; /* one of its values was lost for lack of memory */
    double began; /* on the monotonic clock */
};

static by_status check_sinks(const by__track_tracker_options *options, by_error *error)
{
    const char *names[BY_ARRAY_LENGTH(rows)];
    size_t known = 0;
    by_string all = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (!rows[i]->is_always_on) {
            by_string_format(&all, "%s%s", known == 0 ? "" : ", ", rows[i]->name);
            names[known++] = rows[i]->name;
        }
    }
    by_status status = BY_OK;
    for (size_t i = 0; i < options->sink_count && status == BY_OK; i++) {
        const char *sink = options->sinks[i];
        bool found = false;
        for (size_t k = 0; k < known; k++) {
            found = found || strcmp(sink, names[k]) == 0;
        }
        if (!found) {
            const char *near = by_nearest_name(sink, names, known);
            status = by_error_set(error, BY_ECONFIG, "track.sinks: there is no sink '%s'; %s: %s",
                                  sink, near != NULL ? "nearest" : "there are",
                                  near != NULL ? near
                                  : all.failed ? ""
                                               : all.data);
        }
    }
    by_string_free(&all);
    return status;
}

static bool names_sink(const by__track_tracker_options *options, const char *name)
{
    bool named = false;
    for (size_t i = 0; i < options->sink_count; i++) {
        named = named || strcmp(options->sinks[i], name) == 0;
    }
    return named;
}

by_status by__track_tracker_check(const by__track_tracker_options *options, by_error *error)
{
    BY_TRY(check_sinks(options, error));
    /* Checked even if no sink uses it, because the config is stored with the run. */
    if (names_sink(options, "mlflow") || (options->mlflow != NULL && options->mlflow[0] != '\0')) {
        BY_TRY(by__track_mlflow_check(options->mlflow, error));
    }
    if (names_sink(options, "mlflow") && !by_build_has(BY_BUILD_CURL)) {
        return by__build_lacks(BY_BUILD_CURL, "the sink mlflow", error);
    }
    if (names_sink(options, "prometheus")) {
        by__track_address address;
        by_status status = by__track_address_parse(&address, options->prometheus, error);
        return status == BY_OK ? BY_OK : by_error_prefix(error, status, "track.prometheus");
    }
    return BY_OK;
}

static void note(const by__track_tracker *t, const char *message, const char *then)
{
    char text[sizeof(by_error) + 128];
    if (t->options.note != NULL) {
        (void)snprintf(text, sizeof text, "%s; %s", message, then);
        t->options.note(t->options.user, text);
    }
}

/* Returns the time of the first event that this process records: now, but later than all that the
 * run has, because files may be ordered by the second in their names. */
static double first_time(const by__track_tracker_options *options)
{
    double now = by__track_clock_now();
    char *path = options->is_resumed ? by__path_join(options->run, "events.jsonl") : NULL;
    double last = path == NULL ? 0.0 : by__track_events_last_time(path);
    free(path);
    return fmax(now, floor(last) + 1.0);
}

by_status by__track_tracker_open(by__track_tracker **out, const by__track_tracker_options *options,
                                 by_error *error)
{
    by__track_tracker *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "tracker", error));
    t->options = *options;
    t->options.time = first_time(options);
    t->began = by__now();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error problem = {0};
        if (!rows[i]->is_always_on && !names_sink(options, rows[i]->name)) {
            continue;
        }
        by_status status = rows[i]->open(&t->sinks[i].sink, &t->options, &problem);
        if (status == BY_OK) {
            continue;
        }
        rows[i]->close(t->sinks[i].sink);
        t->sinks[i].sink = NULL;
        if (rows[i]->is_always_on) {
            by__track_tracker_close(&t);
            return by_error_set(error, status, "%s", problem.message);
        }
        note(t, problem.message, "training continues without this sink");
    }
    *out = t;
    return BY_OK;
}

by_status by__track_tracker_flush(by__track_tracker *t, by_error *error)
{
    by_status result = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error problem = {0};
        if (t->sinks[i].sink == NULL || rows[i]->flush == NULL) {
            continue;
        }
        by_status status = rows[i]->flush(t->sinks[i].sink, &problem);
        if (status != BY_OK && rows[i]->is_always_on && result == BY_OK) {
            result = by_error_set(error, status, "%s", problem.message);
        } else if (status != BY_OK && t->options.note != NULL) {
            t->options.note(t->options.user, problem.message);
        }
    }
    return result;
}

void by__track_tracker_close(by__track_tracker **tracker)
{
    by__track_tracker *t = *tracker;
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (t->sinks[i].sink != NULL) {
            rows[i]->close(t->sinks[i].sink);
        }
    }
    free(t->values);
    free(t);
    *tracker = NULL;
}

/* ---- events ---- */

void by__track_begin(by__track_tracker *t, by__track_event_kind kind, const char *name,
                     uint64_t step)
{
    t->event = (by__track_run_event){.kind = kind, .name = name, .step = step};
    t->is_lost = false;
}

static void add(by__track_tracker *t, by__track_event_value value)
{
    if (by__reserve((void **)&t->values, &t->capacity, t->event.count + 1, sizeof *t->values,
                    NULL) != BY_OK) {
        t->is_lost = true;
        return;
    }
    t->values[t->event.count++] = value;
}

void by__track_number(by__track_tracker *t, const char *key, double value)
{
    add(t, (by__track_event_value){.key = key, .number = value});
}

void by__track_integer(by__track_tracker *t, const char *key, int64_t value)
{
    add(t, (by__track_event_value){
               .key = key, .number = (double)value, .is_whole = true, .whole = value});
}

void by__track_text(by__track_tracker *t, const char *key, const char *text)
{
    add(t, (by__track_event_value){.key = key, .text = text});
}

void by__track_add_histogram(by__track_tracker *t, const by__track_histogram *histogram)
{
    t->event.histogram = histogram;
}

void by__track_report(by__track_tracker *t, const void *report)
{
    t->event.report = report;
}

void by__track_end(by__track_tracker *t)
{
    t->event.time = t->options.time + (by__now() - t->began);
    t->event.values = t->values;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        opened_sink *s = &t->sinks[i];
        if (s->sink == NULL || (rows[i]->kinds >> t->event.kind & 1u) == 0) {
            continue;
        }
        bool failing = t->is_lost
                           ? by_error_set(&error, BY_EMEMORY, "out of memory: an event") != BY_OK
                           : rows[i]->put(s->sink, &t->event, &error) != BY_OK;
        if (failing && !s->is_failing) {
            note(t, error.message, rows[i]->then);
        }
        s->is_failing = failing;
    }
}
