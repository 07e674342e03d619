/* track: what a run leaves behind for people.
 *
 * What it is for: the events file of a run (written line by line, rewound at a resume, read back as
 * series), the fingerprint of the environment, run.json and the SQLite registry over all runs, and
 * line charts.
 *
 * Types: by_events is an open events file; by_series what is read from one. by_registry is a
 * connection to RUNS/registry.sqlite; run.json in each run directory is the truth and the registry
 * an index over it, so losing or damaging the registry loses nothing. by_plot_options describes a
 * chart as plain data.
 *
 * Who owns what: handles own their buffers and connections; series and lists are the caller's and
 * have their own free functions. Charts own nothing after the call.
 *
 * Never put here: terminal output, the training loop, anything that knows a model or a device. The
 * events path makes no allocation after the first lines and uses no JSON library.
 */
#ifndef BY_TRACK_TRACK_H
#define BY_TRACK_TRACK_H

#include "banyan/track.h"
#include "base/base.h"

/* The cores of by_events_rewind and by_events_read on text in memory; `path` names it in messages.
 * The filter appends the lines that stay to `out`, byte for byte. */
by_status by__events_filter(by__text *out, const char *path, const char *text, size_t length,
                            uint64_t step, bool eval_pending, by_error *error);
by_status by__events_series(by_series *out, const char *path, const char *text, size_t length,
                            const char *event, const char *key, by_error *error);

/* by_events_end with the time given. */
by_status by__events_end_at(by_events *events, double time, by_error *error);
/* The time of the last event of a file; 0: there is none. */
double by__events_last_time(const char *path);
/* Seconds since 1970 as the system's clock has them, which somebody may set. */
double by__clock_now(void);

/* run.json (run_file.c). Reading gives a record whose strings are owned (by__run_free). */
by_status by__run_write(const char *directory, const by_run_record *run, by_error *error);
by_status by__run_read(by_run_record *out, const char *directory, by_error *error);
by_status by__run_parse(by_run_record *out, const char *path, const char *text, size_t length,
                        by_error *error);
void by__run_free(by_run_record *run);

/* Takes the lock of a run directory for this process (run_lock.c); by__run_unlock, or the end of
 * the process, gives it back. BY_ESTATE names the run and who holds it. */
by_status by__run_lock(int *fd, const char *run, by_error *error);
void by__run_unlock(int *fd);
/* Whether a process holds it now; true too where this host cannot tell: the file system has no
 * locks, or the last holder was on another host. */
bool by__run_is_held(const char *run);

/* The registry's row alone, without run.json. */
by_status by__registry_put(by_registry *registry, const by_run_record *run, by_error *error);

/* Tick positions of an axis from low to high (low < high, finite): multiples of 1, 2 or 5 times a
 * power of ten, about `wanted` of them, at most 64. Returns the step between two. (plot_axis.c) */
double by__plot_ticks(double *ticks, size_t *count, double low, double high, int wanted);
/* Ticks of a logarithmic axis: powers of ten, with 2 and 5 between when there are few. */
void by__plot_log_ticks(double *ticks, size_t *count, double low, double high);
/* Text of a tick: no more digits than the step between ticks needs; "20k", "1.5M" for large ones.
 */
void by__plot_tick_text(char out[32], double value, double step);

#endif
