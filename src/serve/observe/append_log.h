/* Lines that are appended to files by another thread, so that a loop never waits for a disk.
 *
 * Files are DIRECTORY/NAME-000001.jsonl and so on: a file that is full is followed by the next, and
 * the oldest is removed when there are too many. A line is in a file whole or not at all, also when
 * the disk is full. */
#ifndef BY_SERVE_APPEND_LOG_H
#define BY_SERVE_APPEND_LOG_H

#include "serve/serve.h"

typedef struct by__append_log by__append_log;

typedef struct by__append_options {
    const char *directory; /* made where there is none, for this user alone */
    const char *name;
    size_t bytes; /* of a file, after which the next begins; 0: 64 MiB */
    size_t files; /* that are kept; 0: all */
    bool sync;    /* lines are on the disk before `done` is called for them */
    /* Lines up to number `upto` are written, or are lost (not BY_OK, `error` says why). May be
     * NULL. */
    void (*done)(void *user, uint64_t upto, by_status status, const by_error *error);
    void *user;
} by__append_options;

/* Goes on behind the newest file. BY_EIO: the directory cannot be had. */
by_status by__append_log_open(by__append_log **out, uv_loop_t *loop,
                              const by__append_options *options, by_error *error);
/* The number of the line, from 1 on; 0: too much waits for the disk (4 MiB), and it is dropped. The
 * line ends with LF. */
uint64_t by__append_log_add(by__append_log *log, const char *line, size_t length);
/* Adds a record as a line, and takes it. NULL, one that memory ran out for, is dropped and counted
 * as one that the disk has no time for. */
uint64_t by__append_log_record(by__append_log *log, json_t *record);
/* Lines that were dropped or lost so far. */
uint64_t by__append_log_lost(const by__append_log *log);
/* Writes what waits; `done` is called for it. The loop must not be running, and is turned. */
void by__append_log_close(by__append_log **log);

#endif
