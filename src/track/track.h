/* track: records of runs for people to read.
 *
 * What it is for: the events file of a run (written line by line, truncated at a resume, read back
 * as series), the sinks that events go to (tracker.h), the fingerprint of the environment, run.json
 * and the SQLite registry of all runs, and line charts.
 *
 * Types: by_events is an open events file; by_series is what is read from one. by_registry is a
 * connection to RUNS/registry.sqlite. run.json in each run directory is authoritative and the
 * registry only an index, so losing or damaging the registry loses nothing. by_plot_options
 * describes a chart as plain data.
 *
 * Who owns what: handles own their buffers and connections; series and lists belong to the caller
 * and have their own free functions. Charts own nothing after the call.
 *
 * Never put here: terminal output, the training loop, anything that knows a model or a device. The
 * events path allocates nothing after the first lines and uses no JSON library.
 */
#ifndef BY_TRACK_TRACK_H
#define BY_TRACK_TRACK_H

#include "banyan/track.h"
#include "base/base.h"

/* Do the work of by_events_rewind and by_events_read on text in memory; `path` names it in
 * messages. The filter appends the lines that are kept to `out` unchanged. */
by_status by__track_events_filter(by_string *out, const char *path, const char *text, size_t length,
                                  uint64_t step, bool eval_pending, by_error *error);
by_status by__track_events_series(by_series *out, const char *path, const char *text, size_t length,
                                  const char *event, const char *key, by_error *error);

/* Does the work of by_events_end with a given time. */
by_status by__track_events_end_at(by_events *events, double time, by_error *error);
/* Returns the time of the last event of a file; 0: it has none. */
double by__track_events_last_time(const char *path);
/* Returns seconds since 1970 by the system's clock, which may be adjusted at any time. */
double by__track_clock_now(void);

/* Write and read run.json (run_file.c). The record that is read owns its strings
 * (by__track_run_free). */
by_status by__track_run_write(const char *directory, const by_run_record *run, by_error *error);
by_status by__track_run_read(by_run_record *out, const char *directory, by_error *error);
by_status by__track_run_parse(by_run_record *out, const char *path, const char *text, size_t length,
                              by_error *error);
void by__track_run_free(by_run_record *run);

/* Locks a run directory for this process (run_lock.c) until by__track_run_unlock or the end of the
 * process. BY_ESTATE names the run and the holder of the lock. */
by_status by__track_run_lock(int *fd, const char *run, by_error *error);
void by__track_run_unlock(int *fd);
/* Returns true if a process holds the lock, and also if this host cannot tell because the file
 * system has no locks or the last holder was on another host. */
bool by__track_run_is_held(const char *run);

/* Updates the row in the registry only, not run.json. */
by_status by__track_registry_put(by_registry *registry, const by_run_record *run, by_error *error);
/* Removes the row of a run. */
by_status by__track_registry_drop(by_registry *registry, const char *name, by_error *error);

/* Computes the ticks of an axis from low to high (low < high, finite): multiples of 1, 2 or 5 times
 * a power of ten, about `wanted` of them and at most 64, which are at least `least` apart. Returns
 * the distance between two. (plot_axis.c) */
double by__track_plot_ticks(double *ticks, size_t *count, double low, double high, int wanted,
                            double least);
/* Computes the ticks of a logarithmic axis: powers of ten, and if these are few also 2 and 5 times
 * them. */
void by__track_plot_log_ticks(double *ticks, size_t *count, double low, double high);
/* Formats a tick with no more digits than the distance between ticks needs; where the largest of an
 * axis, `most`, is large, all of them as "20k", "1.5M". */
void by__track_plot_tick_text(char out[32], double value, double step, double most);

/* Smooths y[count] into out[count]: the height at each point of the straight line fitted to the
 * points on both sides, whose weights fall by the factor `weight` from one to the next (0.9: over
 * about 10 points, fewer where the line is short). Unlike an average over the past it does not lag
 * behind a curve that falls. Returns false if nothing was smoothed: there are too few points, or no
 * memory. (plot_smooth.c) */
bool by__track_plot_smooth(double *out, const double *y, size_t count, double weight);

#endif
