/* Appends lines to files on another thread, so that a loop never waits for a disk.
 *
 * Files are DIRECTORY/NAME-000001.jsonl and so on: a full file is followed by the next, and the
 * oldest is removed when there are too many. A line is written completely or not at all, also when
 * the disk is full.
 *
 * Processes may share a directory: each writes files of its own, which it has locked meanwhile, and
 * removes none that another writes. */
#ifndef BY_SERVE_BASE_APPEND_LOG_H
#define BY_SERVE_BASE_APPEND_LOG_H

#include "serve/base/serve.h"

typedef struct by__serve_append_log by__serve_append_log;

typedef struct by__serve_append_options {
    const char *directory; /* created if missing, accessible by this user alone */
    const char *name;
    size_t bytes; /* size of a file after which the next begins; 0: 64 MiB */
    size_t files; /* files that are kept, of all processes together; 0: all */
    bool sync;    /* lines are synced to disk before `done` is called for them */
    /* Lines up to number `upto` are written, or are lost (not BY_OK, `error` says why). May be
     * NULL. */
    void (*done)(void *user, uint64_t upto, by_status status, const by_error *error);
    void *user;
} by__serve_append_options;

/* Continues after the newest file with lines. BY_EIO: the directory cannot be opened. */
by_status by__serve_append_log_open(by__serve_append_log **out, uv_loop_t *loop,
                                    const by__serve_append_options *options, by_error *error);
/* Queues a line, which ends with LF. Returns its number, from 1 on; 0: too much is pending (4 MiB),
 * and the line was dropped. */
uint64_t by__serve_append_log_add(by__serve_append_log *log, const char *line, size_t length);
/* Queues a record as a line, and takes it. NULL, a record for which memory was exhausted, counts as
 * dropped. */
uint64_t by__serve_append_log_record(by__serve_append_log *log, json_t *record);
/* Number of lines that were dropped or lost. */
uint64_t by__serve_append_log_lost(const by__serve_append_log *log);
/* Writes pending lines and calls `done` for them. The loop must not be running; it is turned. */
void by__serve_append_log_close(by__serve_append_log **log);

#endif
