/* Tracking of runs: events files, environment, registry of runs, charts.
 *
 * A run directory contains `events.jsonl` (one JSON object per line) and `run.json` (what the run
 * is and its progress). The registry, RUNS/registry.sqlite, indexes the run directories in RUNS and
 * is rebuilt from them if it is lost.
 */
#ifndef BANYAN_TRACK_H
#define BANYAN_TRACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- events ---- */

/* An events file open for writing. */
typedef struct by_events by_events;

/* Opens an events file for appending, creating it if necessary. Removes a last line truncated by a
 * crash. */
BY_API by_status by_events_open(by_events **out, const char *path, by_error *error);
/* Closes the file. Call by_events_flush before, to learn whether events were lost. */
BY_API void by_events_close(by_events **events);
/* Begins an event of type `event` ("train", "eval", ...); add values and end it with by_events_end.
 * Numbers are written so that they read back as the same double; nan, inf and -inf are written as
 * strings. Lack of memory is reported by by_events_end. Up to 16 MiB of events that could not be
 * written are kept. */
BY_API void by_events_begin(by_events *events, const char *event, uint64_t step);
BY_API void by_events_number(by_events *events, const char *key, double value);
BY_API void by_events_integer(by_events *events, const char *key, int64_t value);
BY_API void by_events_string(by_events *events, const char *key, const char *value);
/* Adds "time" (Unix time in seconds) and writes the complete line with one system call. On an error
 * (full disk) the file contains no part of the line; the event is kept in memory and written before
 * the next one, so the caller may continue. */
BY_API by_status by_events_end(by_events *events, by_error *error);
/* Retries writing the events kept in memory. BY_OK: none are left and none were lost. */
BY_API by_status by_events_flush(by_events *events, by_error *error);

/* Removes the events after `step` and a truncated last line, atomically, so that a run resumed from
 * that step produces the events of an uninterrupted run (except for times). `eval_pending`: the run
 * evaluates the weights of `step` before it trains, so an evaluation of them and a sample of text
 * that the file already has are removed too. The file must not be open; it need not exist. Returns
 * BY_EFORMAT with the line that is not an event. */
BY_API by_status by_events_rewind(const char *path, uint64_t step, bool eval_pending,
                                  by_error *error);

/* Writes a picture for TensorBoard, a PNG file of up to 256 MiB, under `tag` at `step`: an event in
 * a new file of RUN/tensorboard/plots, which does not disturb the files that the run itself is
 * writing. Returns BY_EFORMAT if it is no PNG, BY_EIO. */
BY_API by_status by_track_image(const char *run, const char *tag, uint64_t step, const char *path,
                                by_error *error);

/* Values of a key over steps. */
typedef struct by_series {
    uint64_t *steps;
    double *values;
    size_t count;
} by_series;

/* Reads the values of `key` in all events of type `event` (NULL: all) from an events file, or the
 * events.jsonl of a run directory, in file order; release them with by_series_free. Events without
 * the key or with a value that is not a number are skipped, as is a truncated last line. Returns
 * BY_EFORMAT with the number of any other line that is not an event, BY_EIO. */
BY_API by_status by_events_read(by_series *out, const char *path, const char *event,
                                const char *key, by_error *error);
/* Frees a series and zeroes it. */
BY_API void by_series_free(by_series *series);

/* Receives a number of an event. `event` and `key` are valid during the call. */
typedef void by_event_number(void *user, const char *event, uint64_t step, const char *key,
                             double value);

/* Passes all numbers of the events from byte *offset on (0: the first) in a run directory's
 * events.jsonl, or in an events file, to `number`, including "time" but not "step", and advances
 * *offset past the last complete line. Repeated calls thus follow a run that another process or
 * host is writing. *restarted (may be NULL) reports that the file is shorter than *offset, or that
 * no line ends there, because the run went back to a checkpoint: nothing was passed on, and *offset
 * is 0 again. A file that does not exist has no events. Returns BY_EFORMAT if a line is not an
 * event, BY_EIO. */
BY_API by_status by_events_follow(const char *path, uint64_t *offset, bool *restarted,
                                  by_event_number *number, void *user, by_error *error);

/* ---- environment ---- */

/* A version or another fact for by_environment_json. */
typedef struct by_environment_fact {
    const char *name;
    const char *value;
} by_environment_fact;

/* Makes a JSON text of what a result depends on besides config, data and seed: banyan's version,
 * the revision of its sources, the hash of the program, host, CPU model, instruction sets, cores
 * (and those available to the process), memory, kernel, system, compiler, time, versions of loaded
 * libraries and of those given, and under "job" the facts given. Unknown facts are empty. Free it
 * with free(). */
BY_API by_status by_environment_json(char **out, const by_environment_fact *libraries,
                                     size_t library_count, const by_environment_fact *job,
                                     size_t job_count, by_error *error);

/* Writes the XXH3-128 of the running program's file as 32 hex digits. Returns BY_EIO if it cannot
 * be read. */
BY_API by_status by_build_hash(char out[33], by_error *error);

/* ---- tracking servers ---- */

typedef struct by_mlflow_sync_options {
    const char *run;     /* run directory */
    const char *server;  /* URL */
    const char *project; /* name of the experiment */
    /* Called before each batch with the bytes of events to be sent; may be NULL. */
    void (*progress)(void *user, uint64_t waiting);
    /* Polled about once per second; may be NULL. Returning true stops with BY_ESTOPPED. */
    bool (*stop)(void *user);
    void *user;
} by_mlflow_sync_options;

/* Sends an MLflow server what a run has recorded and the server has not received, because it was
 * unavailable or the run did not use that sink. RUN/mlflow.json records the progress. Returns
 * BY_ECONFIG for an invalid URL, BY_ESTATE if the run is in progress (it then sends events itself),
 * BY_EIO if the server is unavailable or refuses, BY_ESTOPPED. */
BY_API by_status by_mlflow_sync(const by_mlflow_sync_options *options, by_error *error);

/* ---- the registry of runs ---- */

/* A run, as in run.json and the registry. Strings are the caller's on input and owned by the list
 * on output. NULL counts as "". */
typedef struct by_run_record {
    const char *name; /* name of the run directory; the key */
    const char *path; /* set by the registry: RUNS/NAME */
    const char *config_hash;
    const char *started; /* UTC, "2026-01-31T23:59:59Z" */
    const char *updated; /* UTC; set by the registry if "" */
    /* "running", "done", "stopped" or "failed"; by_registry_open_view and by_run_read add
     * "killed". */
    const char *status;
    uint64_t step;    /* steps done */
    uint64_t steps;   /* steps planned */
    double best_loss; /* NaN: none yet */
} by_run_record;

/* The runs in a directory. */
typedef struct by_registry by_registry;

/* Opens RUNS/registry.sqlite, creating it from the run directories in RUNS if it is missing or
 * damaged (the damaged file is kept as registry.sqlite.broken). Any number of processes may use it
 * at the same time. */
BY_API by_status by_registry_open(by_registry **out, const char *runs, by_error *error);
/* Opens a read-only view of the run directories in RUNS as they are now; writes nothing and does
 * not need registry.sqlite. A run with status "running" whose lock no process holds is listed as
 * "killed". Returns BY_EIO if RUNS is not a directory. */
BY_API by_status by_registry_open_view(by_registry **out, const char *runs, by_error *error);
BY_API void by_registry_close(by_registry **registry);
/* Writes RUNS/NAME/run.json (the directory must exist) and the registry's row. Syncs the file to
 * disk, so call it at the start, at saves and at the end of a run, not at each step. Returns
 * BY_EARG if the name is not that of a directory, BY_ESTATE for a view. */
BY_API by_status by_registry_update(by_registry *registry, const by_run_record *run,
                                    by_error *error);
/* Discards all rows and reads the run directories again. A directory with an unreadable run.json is
 * listed with status "unreadable". */
BY_API by_status by_registry_rebuild(by_registry *registry, by_error *error);

/* Selects runs whose name contains `name` and whose status is `status`; NULL or "": any. */
typedef struct by_run_query {
    const char *name;
    const char *status;
} by_run_query;

typedef struct by_run_list {
    by_run_record *items; /* most recently updated first */
    size_t count;
} by_run_list;

/* Lists the runs that match a query (NULL: all). Release the list with by_run_list_free. */
BY_API by_status by_registry_list(by_registry *registry, const by_run_query *query,
                                  by_run_list *out, by_error *error);
/* Reads the record of one run directory without a registry: a list of one, with `path` as given and
 * status "killed" as in by_registry_open_view. Returns BY_EIO if there is no run.json, BY_EFORMAT
 * if it is malformed. */
BY_API by_status by_run_read(by_run_list *out, const char *run, by_error *error);
/* Frees a list and zeroes it. */
BY_API void by_run_list_free(by_run_list *list);

/* ---- tags ---- */

/* A tag of a run. */
typedef struct by_tag {
    char *key;
    char *value;
} by_tag;

typedef struct by_tag_list {
    by_tag *items; /* ascending by key */
    size_t count;
} by_tag_list;

/* Reads tags.json of a run directory; without the file there are no tags. Release the list with
 * by_tag_list_free. Returns BY_EFORMAT if it is not an object of strings. */
BY_API by_status by_tags_read(by_tag_list *out, const char *run, by_error *error);
/* Sets a tag, or removes it (value NULL), replacing the file atomically. Returns BY_EARG if the key
 * is empty or a text is not UTF-8. */
BY_API by_status by_tags_set(const char *run, const char *key, const char *value, by_error *error);
/* Frees a list and zeroes it. */
BY_API void by_tag_list_free(by_tag_list *list);

#ifdef __cplusplus
}
#endif
#endif
