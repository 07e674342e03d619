/* Events of a run, and the sinks that record them.
 *
 * The training loop describes an event once: its kind, the step, named values. A tracker passes it
 * to every open sink (src/track/sinks/, one file each; the table is in tracker.c). No sink stops or
 * slows a run: a failing one is reported once, by `note`, and is called again with the next event.
 * Only rank 0 has a tracker.
 *
 * An event is built by by__track_begin, any number of values, and by__track_end. Keys and texts
 * must live until then. */
#ifndef BY_TRACK_TRACKER_H
#define BY_TRACK_TRACKER_H

#include "track/track.h"

typedef enum by__track_event_kind {
    BY__EVENT_BEGIN,      /* the run begins, or continues after `step`: "config" (YAML),
                             "config_hash" and "environment" (JSON), all texts */
    BY__EVENT_STEP,       /* results of a step */
    BY__EVENT_EVALUATION, /* of an evaluation after a step */
    BY__EVENT_LAYERS,     /* a number for each tensor or layer; its name says what was measured */
    BY__EVENT_SYSTEM,     /* load of the machine */
    BY__EVENT_TEXT,       /* texts for people */
    BY__EVENT_HISTOGRAM,  /* a histogram of a tensor */
    BY__EVENT_CHECKPOINT, /* a checkpoint was written: "path", seconds */
    BY__EVENT_ALERT,      /* something to look at: a slow rank, a skipped step */
    BY__EVENT_END,        /* "status": done, stopped, failed */
    BY__EVENT_KINDS
} by__track_event_kind;

typedef struct by__track_event_value {
    const char *key;
    const char *text; /* NULL: a number */
    double number;
    bool is_whole; /* the number is the integer `whole` */
    int64_t whole;
} by__track_event_value;

/* The distribution of a tensor's values: count[i] of them are in (limit[i - 1], limit[i]]; the
 * range of count[0] starts at `min`. */
typedef struct by__track_histogram {
    double min;
    double max;
    double sum;
    double squares; /* sum of squares */
    const double *limit;
    const double *count;
    size_t buckets;
} by__track_histogram;

typedef struct by__track_run_event {
    by__track_event_kind kind;
    const char *name; /* "train", "eval", ... */
    uint64_t step;
    /* Seconds since 1970: the system's clock when the tracker was opened plus the time since then,
     * so that adjustments of the clock have no effect. */
    double time;
    const by__track_event_value *values;
    size_t count;
    const by__track_histogram
        *histogram;     /* of the tensor named by the event's only value, a text */
    const void *report; /* for the terminal; NULL: none */
} by__track_run_event;

typedef struct by__track_tracker_options {
    const char *run;          /* its directory, with config.yaml and environment.json */
    const char *const *sinks; /* names of sinks besides those that are always on */
    size_t sink_count;
    const char *project;    /* the experiment or project that the run belongs to */
    const char *mlflow;     /* URL of the server */
    const char *prometheus; /* address to serve metrics on; "": none */
    bool is_resumed;
    uint64_t step;     /* that the run begins after */
    bool eval_pending; /* a resumed run evaluates the weights of `step` before it trains */
    double time;       /* for sinks: of the first event, later than all that the run has */
    /* Shows a report to whoever started the run; may be NULL. */
    void (*show)(void *user, const void *report);
    /* Reports a sink that fails. */
    void (*note)(void *user, const char *text);
    void *user;
} by__track_tracker_options;

typedef struct by__track_tracker by__track_tracker;

/* Checks the options. BY_ECONFIG names an unknown sink, or an invalid server or address. */
by_status by__track_tracker_check(const by__track_tracker_options *options, by_error *error);
/* Fails only if the events file cannot be opened or memory is exhausted. Other sinks that cannot be
 * opened are reported, and the run goes on without them. The options are copied, but not what they
 * point to. */
by_status by__track_tracker_open(by__track_tracker **out, const by__track_tracker_options *options,
                                 by_error *error);
/* At the end of a run: lets sinks deliver what is pending, those with a network for at most a few
 * seconds. Errors are reported only for the events file. */
by_status by__track_tracker_flush(by__track_tracker *tracker, by_error *error);
void by__track_tracker_close(by__track_tracker **tracker);

void by__track_begin(by__track_tracker *tracker, by__track_event_kind kind, const char *name,
                     uint64_t step);
void by__track_number(by__track_tracker *tracker, const char *key, double value);
void by__track_integer(by__track_tracker *tracker, const char *key, int64_t value);
void by__track_text(by__track_tracker *tracker, const char *key, const char *text);
void by__track_add_histogram(by__track_tracker *tracker, const by__track_histogram *histogram);
void by__track_report(by__track_tracker *tracker, const void *report);
void by__track_end(by__track_tracker *tracker);

#endif
