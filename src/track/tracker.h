/* The events of a run, and the sinks that put them down.
 *
 * The loop of training describes an event once: what it is, the step, values by name. A tracker
 * hands it to every sink that is open (src/track/sinks/, one file each; the table is in tracker.c).
 * No sink stops or slows a run: one that fails is reported once, by `note`, and is called again
 * with the next event. Only rank 0 has a tracker.
 *
 * An event is built by by__track_begin, any number of values, and by__track_end. Keys and texts
 * must live until then. */
#ifndef BY_TRACK_TRACKER_H
#define BY_TRACK_TRACKER_H

#include "track/track.h"

typedef enum by__event_kind {
    BY__EVENT_BEGIN,      /* the run begins or goes on behind `step`: "config" (YAML), "config_hash"
                             and "environment" (JSON), all texts */
    BY__EVENT_STEP,       /* what a step has given */
    BY__EVENT_EVALUATION, /* ... and an evaluation after it */
    BY__EVENT_LAYERS,     /* a number for each tensor or layer; its name is what was measured */
    BY__EVENT_SYSTEM,     /* what the machine does */
    BY__EVENT_TEXT,       /* texts for people */
    BY__EVENT_HISTOGRAM,  /* one of a tensor */
    BY__EVENT_CHECKPOINT, /* one is on the disk: "path", seconds */
    BY__EVENT_ALERT,      /* what a user should look at: a slow rank, a step that was left out */
    BY__EVENT_END,        /* "status": done, stopped, failed */
    BY__EVENT_KINDS
} by__event_kind;

typedef struct by__event_value {
    const char *key;
    const char *text; /* NULL: a number */
    double number;
    bool is_whole; /* the number is an integer, ... */
    int64_t whole; /* ... this */
} by__event_value;

/* The distribution of a tensor's values: count[i] of them are in (limit[i - 1], limit[i]], those of
 * count[0] from `min` on. */
typedef struct by__histogram {
    double min;
    double max;
    double sum;
    double squares; /* sum of squares */
    const double *limit;
    const double *count;
    size_t buckets;
} by__histogram;

typedef struct by__run_event {
    by__event_kind kind;
    const char *name; /* "train", "eval", ... */
    uint64_t step;
    /* Seconds since 1970: of the system's clock when the tracker was opened, and what has passed
     * since. A clock that is set meanwhile changes nothing. */
    double time;
    const by__event_value *values;
    size_t count;
    const by__histogram *histogram; /* of the tensor that the only value, a text, is named after */
    const void *report;             /* for the terminal; NULL: none */
} by__run_event;

typedef struct by__tracker_options {
    const char *run;          /* its directory, with config.yaml and environment.json */
    const char *const *sinks; /* names of those that are not always on */
    size_t sink_count;
    const char *project;    /* the experiment or project that a run is one of */
    const char *mlflow;     /* URL of the server */
    const char *prometheus; /* address to serve metrics on; "" */
    bool is_resumed;
    uint64_t step;     /* that the run begins after */
    bool eval_pending; /* a resumed run evaluates the weights of `step` before it trains */
    double time;       /* for sinks: of the first event, later than all that the run has */
    /* Shows a report to whoever started the run; may be NULL. */
    void (*show)(void *user, const void *report);
    /* Tells of a sink that fails. */
    void (*note)(void *user, const char *text);
    void *user;
} by__tracker_options;

typedef struct by__tracker by__tracker;

/* BY_ECONFIG names a sink that there is not, or what cannot be a server or an address. */
by_status by__tracker_check(const by__tracker_options *options, by_error *error);
/* Fails only when the events file cannot be opened or memory ends; other sinks that cannot be
 * opened are reported, and the run goes on without. The options are copied, what they point to is
 * not. */
by_status by__tracker_open(by__tracker **out, const by__tracker_options *options, by_error *error);
/* At the end of a run: lets sinks hand on what waits, those with a network for a few seconds at
 * most. The error is that of the events file alone. */
by_status by__tracker_flush(by__tracker *tracker, by_error *error);
void by__tracker_close(by__tracker **tracker);

void by__track_begin(by__tracker *tracker, by__event_kind kind, const char *name, uint64_t step);
void by__track_number(by__tracker *tracker, const char *key, double value);
void by__track_integer(by__tracker *tracker, const char *key, int64_t value);
void by__track_text(by__tracker *tracker, const char *key, const char *text);
void by__track_histogram(by__tracker *tracker, const by__histogram *histogram);
void by__track_report(by__tracker *tracker, const void *report);
void by__track_end(by__tracker *tracker);

#endif
