/* RUN/events.jsonl: one JSON object a line. `banyan plot` and the mlflow sink read it, so it has
 * every number. It leaves out what is in run.json, config.yaml and checkpoints, and histograms. */
#include <stdlib.h>

#include "base/paths.h"
#include "track/mlflow_client.h"
#include "track/sinks/sink.h"

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    char *path;
    by_events *events = NULL;
    BY_TRY(by__path_make(&path, options->run, "events.jsonl", error));
    by_status status = options->is_resumed
                           ? by_events_rewind(path, options->step, options->eval_pending, error)
                           : BY_OK;
    if (status == BY_OK && options->is_resumed) {
        /* Done even if this process has no mlflow sink, because a later one may have. */
        status = by__track_mlflow_rewind(options->run, error);
    }
    if (status == BY_OK) {
        status = by_events_open(&events, path, error);
    }
    free(path);
    *sink = events;
    return status;
}

static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    by_events *events = sink;
    by_events_begin(events, event->name, event->step);
    for (size_t i = 0; i < event->count; i++) {
        const by__track_event_value *v = &event->values[i];
        if (v->text != NULL) {
            by_events_string(events, v->key, v->text);
        } else if (v->is_whole) {
            by_events_integer(events, v->key, v->whole);
        } else {
            by_events_number(events, v->key, v->number);
        }
    }
    return by__track_events_end_at(events, event->time, error);
}

static by_status flush(void *sink, by_error *error)
{
    return by_events_flush(sink, error);
}

static void close_sink(void *sink)
{
    by_events *events = sink;
    by_events_close(&events);
}

const by__sink_row by__sink_jsonl = {
    .name = "jsonl",
    .is_always_on = true,
    .kinds = 1u << BY__EVENT_STEP | 1u << BY__EVENT_EVALUATION | 1u << BY__EVENT_LAYERS |
             1u << BY__EVENT_SYSTEM | 1u << BY__EVENT_TEXT | 1u << BY__EVENT_ALERT,
    .then = "training continues; the events are kept and written later",
    .open = open_sink,
    .put = put,
    .flush = flush,
    .close = close_sink};
