/* track: records of runs for people to read.
 *
 * What it is for: the events file of a run (written line by line, truncated at a resume, read back
 * as series), the sinks that events go to (tracker.h), the fingerprint of the environment, run.json
 * and the SQLite registry of all runs.
 *
 * Types: by_events is an open events file; by_series is what is read from one. by_registry is a
 * connection to RUNS/registry.sqlite. run.json in each run directory is authoritative and the
 * registry only an index, so losing or damaging the registry loses nothing.
 *
 * Who owns what: handles own their buffers and connections; series and lists belong to the caller
 * and have their own free functions.
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

/* Waits until no other process has locked a directory, and locks it (directory_lock.c). Not the
 * lock of a run, which lasts as long as it trains. -1, or a file without a lock: the file system
 * has none. */
int by__track_directory_lock(const char *directory);
void by__track_directory_unlock(int fd);

/* Updates the row in the registry only, not run.json. */
by_status by__track_registry_put(by_registry *registry, const by_run_record *run, by_error *error);
/* Removes the row of a run. */
by_status by__track_registry_drop(by_registry *registry, const char *name, by_error *error);

#endif
