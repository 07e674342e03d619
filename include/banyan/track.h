/* Tracking of runs: the events file, the environment's fingerprint, the registry of runs, charts.
 *
 * A run directory holds `events.jsonl` (one JSON object a line) and `run.json` (what the run is and
 * how far it came). The registry, RUNS/registry.sqlite, indexes the run directories in RUNS and is
 * made anew from them when it is lost.
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

typedef struct by_events by_events;

/* Opens an events file for appending and makes it if missing. A last line that a crash cut short
 * is removed. */
BY_API by_status by_events_open(by_events **out, const char *path, by_error *error);
BY_API void by_events_close(by_events **events);
/* One event: begin, any number of values, end. `event` says what it is ("train", "eval", ...).
 * Numbers read back as the same double; nan, inf and -inf are written as strings. Problems of
 * memory are reported by by_events_end. Up to 16 MiB of events that could not be written are
 * kept. */
BY_API void by_events_begin(by_events *events, const char *event, uint64_t step);
BY_API void by_events_number(by_events *events, const char *key, double value);
BY_API void by_events_integer(by_events *events, const char *key, int64_t value);
BY_API void by_events_string(by_events *events, const char *key, const char *value);
/* Adds "time" (seconds since 1970) and hands the whole line to the kernel in one write. On an error
 * (full disk) the file holds no part of the line; the event is kept in memory and written in front
 * of the next one, so the caller may go on. */
BY_API by_status by_events_end(by_events *events, by_error *error);
/* Tries once more to write what is kept. BY_OK: nothing is kept any longer and nothing was lost. */
BY_API by_status by_events_flush(by_events *events, by_error *error);

/* Drops the events after `step` and a last line cut short, atomically, so that a run which goes on
 * from that step leaves the events of a run that was never interrupted (apart from times).
 * `eval_pending`: the run will evaluate the weights of `step` first, so that an evaluation of them
 * and a sample of text that are in the file already are dropped too. A file that does not exist is
 * fine. It must not be open. BY_EFORMAT names a line that is not an event. */
BY_API by_status by_events_rewind(const char *path, uint64_t step, bool eval_pending,
                                  by_error *error);

/* Values of one key over steps. */
typedef struct by_series {
    uint64_t *steps;
    double *values;
    size_t count;
} by_series;

/* Reads key `key` of all events called `event` (NULL: of all) from an events file, or from the
 * events.jsonl of a run directory, in file order. Events without the key, or whose value is not a
 * number, are passed over, and so is a last line cut short; any other line that is not an event is
 * BY_EFORMAT with its number. The caller releases `out` with by_series_free. */
BY_API by_status by_events_read(by_series *out, const char *path, const char *event,
                                const char *key, by_error *error);
BY_API void by_series_free(by_series *series);

/* A number of an event, as by_events_follow hands it out: `event` and `key` live as long as the
 * call. */
typedef void by_event_number(void *user, const char *event, uint64_t step, const char *key,
                             double value);

/* Hands out all numbers of the events that begin at byte *offset (0: the first) of a run
 * directory's events.jsonl, or of an events file, in order, "time" included and "step" not, and
 * moves *offset behind the last whole line. Called again it goes on from there, so that a program
 * may follow a run that another process, or another host, is writing. *restarted (may be NULL) says
 * that the file is shorter than *offset, since its run was set back to a checkpoint: nothing was
 * handed out, and *offset is 0 again. A file that is not there yet has no events. BY_EFORMAT: a
 * line is not an event; BY_EIO. */
BY_API by_status by_events_follow(const char *path, uint64_t *offset, bool *restarted,
                                  by_event_number *number, void *user, by_error *error);

/* ---- environment ---- */

/* A version or another fact, for by_environment_json. */
typedef struct by_environment_fact {
    const char *name;
    const char *value;
} by_environment_fact;

/* What a result depends on apart from config, data and seed, as JSON text: banyan's version, the
 * revision of its sources, the hash of the program, host, CPU model, instruction sets, cores (and
 * those this process may use), memory, kernel, system, compiler, time, the versions of the
 * libraries that are loaded and those given, and as "job" the facts given. Unknown facts are
 * empty. Freed with free(). */
BY_API by_status by_environment_json(char **out, const by_environment_fact *libraries,
                                     size_t library_count, const by_environment_fact *job,
                                     size_t job_count, by_error *error);

/* XXH3-128 of the running program's file: equal builds have equal ones. */
BY_API by_status by_build_hash(char out[33], by_error *error);

/* ---- servers ---- */

typedef struct by_mlflow_sync_options {
    const char *run;     /* its directory */
    const char *server;  /* URL */
    const char *project; /* the experiment that it is a run of */
    /* Called before each batch with the bytes of events that wait. May be NULL. */
    void (*progress)(void *user, uint64_t waiting);
    /* Asked about once a second; true ends the call with BY_ESTOPPED. May be NULL. */
    bool (*stop)(void *user);
    void *user;
} by_mlflow_sync_options;

/* Sends an MLflow server what a run has recorded and the server did not get while it trained: it
 * was away, or the run had no sink for it. RUN/mlflow.json says how far it got. BY_ESTATE for a
 * run that is going on, which sends by itself; BY_EIO when the server is away or refuses. */
BY_API by_status by_mlflow_sync(const by_mlflow_sync_options *options, by_error *error);

/* ---- the registry of runs ---- */

/* A run as run.json and the registry hold it. Strings are the caller's on the way in and owned by
 * the list on the way out. NULL counts as "". */
typedef struct by_run_record {
    const char *name; /* the directory's name below RUNS: its key */
    const char *path; /* filled by the registry: RUNS/NAME */
    const char *config_hash;
    const char *started; /* UTC, "2026-01-31T23:59:59Z" */
    const char *updated; /* filled by the registry when "" */
    const char *status;  /* "running", "done", "stopped", "failed"; by_registry_open_view adds
                            "killed" */
    uint64_t step;       /* steps done */
    uint64_t steps;      /* steps wanted */
    double best_loss;    /* NaN when there is none yet */
} by_run_record;

typedef struct by_registry by_registry;

/* Opens RUNS/registry.sqlite, made from the run directories in RUNS when it is missing or damaged
 * (the damaged file is kept as registry.sqlite.broken). Any number of processes may use it at once.
 */
BY_API by_status by_registry_open(by_registry **out, const char *runs, by_error *error);
/* The run directories in RUNS as they are now, for reading only: nothing is written anywhere, and
 * registry.sqlite is not needed. A run that says "running" while no process holds its lock has the
 * status "killed". BY_EIO when RUNS is not a directory. */
BY_API by_status by_registry_open_view(by_registry **out, const char *runs, by_error *error);
BY_API void by_registry_close(by_registry **registry);
/* Writes RUNS/NAME/run.json (the directory exists) and the registry's row. It syncs the file: for
 * the start, saves and the end of a run, not for each step. */
BY_API by_status by_registry_update(by_registry *registry, const by_run_record *run,
                                    by_error *error);
/* Forgets all rows and reads the run directories again. A directory whose run.json cannot be read
 * is listed with status "unreadable". */
BY_API by_status by_registry_rebuild(by_registry *registry, by_error *error);

/* Which runs: those whose name contains `name`, with that status; NULL or "" for any. */
typedef struct by_run_query {
    const char *name;
    const char *status;
} by_run_query;

typedef struct by_run_list {
    by_run_record *items; /* most recently updated first */
    size_t count;
} by_run_list;

/* `query` may be NULL for all. Released with by_run_list_free. */
BY_API by_status by_registry_list(by_registry *registry, const by_run_query *query,
                                  by_run_list *out, by_error *error);
/* The record of one run directory, without a registry: a list of one, with the path as given and
 * the status "killed" as by_registry_open_view has it. BY_EIO: there is no run.json; BY_EFORMAT. */
BY_API by_status by_run_read(by_run_list *out, const char *run, by_error *error);
BY_API void by_run_list_free(by_run_list *list);

/* ---- tags ---- */

typedef struct by_tag {
    char *key;
    char *value;
} by_tag;

typedef struct by_tag_list {
    by_tag *items; /* ascending by key */
    size_t count;
} by_tag_list;

/* What tags.json in a run directory says; no file, no tags. Released with by_tag_list_free.
 * BY_EFORMAT: the file is not an object of strings. */
BY_API by_status by_tags_read(by_tag_list *out, const char *run, by_error *error);
/* Sets a tag, or removes it (value NULL). The file is replaced as a whole. BY_EARG: no name, or not
 * UTF-8. */
BY_API by_status by_tags_set(const char *run, const char *key, const char *value, by_error *error);
BY_API void by_tag_list_free(by_tag_list *list);

/* ---- charts ---- */

typedef struct by_plot_series {
    const char *name; /* NULL or "": no entry in the legend */
    const double *x;
    const double *y; /* points that are not finite (or not positive, with log_y) break the line */
    size_t count;
    double smooth; /* 0: the line as it is; 0 < s < 1: a thin raw line under an exponential moving
                      average with weight s on the past (0.9: over about 10 points) */
} by_plot_series;

typedef struct by_plot_options {
    const char *title; /* each text may be NULL */
    const char *x_label;
    const char *y_label;
    bool log_y;
    int width; /* pixels, or points for SVG; 0: 1200 x 720; 200 to 10000 */
    int height;
    const by_plot_series *series;
    size_t series_count;
} by_plot_options;

/* Draws a line chart to `path`, which ends in .png or .svg, written atomically. Works without any
 * installed font (a built-in one is used then). BY_EARG names what is wrong with the options. */
BY_API by_status by_plot_write(const by_plot_options *options, const char *path, by_error *error);
/* Draws `count` charts, 1 to 16, in rows of two (of one chart: alone) into one file; each has the
 * size of its options. BY_EARG as above, or charts of different sizes. */
BY_API by_status by_plot_write_all(const by_plot_options *charts, size_t count, const char *path,
                                   by_error *error);

#ifdef __cplusplus
}
#endif
#endif
