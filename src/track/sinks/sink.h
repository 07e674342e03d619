/* What every sink is: a row of the table in tracker.c and one file here.
 *
 * A sink puts down the events of a run somewhere: a file, a server, a port. It is called on the
 * thread that trains, so that it must return at once: what takes longer (a network) goes to a
 * thread of its own. It may fail; then the run is told once and goes on. */
#ifndef BY_TRACK_SINK_H
#define BY_TRACK_SINK_H

#include "track/tracker.h"

typedef struct by__sink_row {
    const char *name;
    bool is_always_on; /* else where the options name it */
    unsigned kinds;    /* of events that it takes: bits of by__event_kind */
    const char *then;  /* ends the note when it fails: "training continues; ..." */
    /* *sink is NULL on entry; close releases what a failed open has left. */
    by_status (*open)(void **sink, const by__tracker_options *options, by_error *error);
    by_status (*put)(void *sink, const by__run_event *event, by_error *error);
    /* At the end of a run: hands on what still waits. BY_OK: nothing is lost. NULL: nothing waits.
     * */
    by_status (*flush)(void *sink, by_error *error);
    void (*close)(void *sink);
} by__sink_row;

extern const by__sink_row by__sink_terminal;
extern const by__sink_row by__sink_jsonl;
extern const by__sink_row by__sink_tensorboard;
extern const by__sink_row by__sink_wandb;
extern const by__sink_row by__sink_mlflow;
extern const by__sink_row by__sink_prometheus;

/* The name of a value among all values of a run: "train/loss". */
void by__event_tag(by__text *out, const by__run_event *event, const char *key);

/* Calls `take` for each key of a resolved config as by_config_print has it: "section.key" and the
 * value as JSON (numbers, true and false, else a string). */
void by__config_items(const char *yaml, void (*take)(void *user, const char *key, const char *json),
                      void *user);

#endif
