/* The interface of sinks. Each sink is a row of the table in tracker.c and a file here.
 *
 * A sink records the events of a run in a file, on a server or at a port. It is called on the
 * training thread and must return at once, so slow work (a network) is done by the sink's own
 * thread. It may fail; the run then reports that once and goes on. */
#ifndef BY_TRACK_SINKS_SINK_H
#define BY_TRACK_SINKS_SINK_H

#include "track/tracker.h"

typedef struct by__sink_row {
    const char *name;
    bool is_always_on; /* otherwise only if the options name it */
    unsigned kinds;    /* kinds of events that it takes: bits of by__track_event_kind */
    const char *then;  /* ends the note when it fails: "training continues; ..." */
    /* *sink is NULL on entry; close releases what a failed open has left. */
    by_status (*open)(void **sink, const by__track_tracker_options *options, by_error *error);
    by_status (*put)(void *sink, const by__track_run_event *event, by_error *error);
    /* At the end of a run: delivers what is pending. BY_OK: nothing was lost. NULL: nothing is ever
     * pending. */
    by_status (*flush)(void *sink, by_error *error);
    void (*close)(void *sink);
} by__sink_row;

extern const by__sink_row by__sink_terminal;
extern const by__sink_row by__sink_jsonl;
extern const by__sink_row by__sink_tensorboard;
extern const by__sink_row by__sink_wandb;
extern const by__sink_row by__sink_mlflow;
extern const by__sink_row by__sink_prometheus;

/* Appends the name of a value among all values of a run: "train/loss". */
void by__track_event_tag(by_string *out, const by__track_run_event *event, const char *key);

/* Calls `take` for each key of a resolved config in the format of by_config_print: "section.key"
 * and the value as JSON (a number, true, false, or else a string). */
void by__track_config_items(const char *yaml,
                            void (*take)(void *user, const char *key, const char *json),
                            void *user);

#endif
