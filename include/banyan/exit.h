/* Exit codes of banyan's programs: what a supervisor, a batch system or a script may do next. The
 * one table of them; README.md and `banyan --help` print it. */
#ifndef BANYAN_EXIT_H
#define BANYAN_EXIT_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_exit {
    BY_EXIT_DONE = 0,
    BY_EXIT_FAILED = 1,       /* an error at run time */
    BY_EXIT_CONFIG = 2,       /* a wrong flag or configuration */
    BY_EXIT_SAVED = 3,        /* preempted or interrupted, and everything was saved */
    BY_EXIT_HANG = 4,         /* a rank or a worker made no progress and was ended */
    BY_EXIT_CORRUPT = 5,      /* values that must be equal differ: a fault of the hardware */
    BY_EXIT_PEER = 6,         /* another rank failed; its code says why */
    BY_EXIT_DIVERGED = 7,     /* the training diverged */
    BY_EXIT_INTERRUPTED = 130 /* interrupted, and nothing could be saved */
} by_exit;

typedef struct by_exit_row {
    int code;
    const char *name;    /* "saved" */
    const char *meaning; /* "preempted or interrupted, and everything was saved: resume it" */
    bool retry;          /* starting again, from the newest checkpoint, may help */
} by_exit_row;

/* The table, by code. */
BY_API const by_exit_row *by_exit_rows(size_t *count);
/* Name of a code: of the table, else "crash" (128 + the number of the signal that ended the
 * process, or a code that banyan does not give). */
BY_API const char *by_exit_name(int code);
/* Whether a supervisor starts again after this code; true for a crash. */
BY_API bool by_exit_retry(int code);
/* The code of a program that ends because of an error. */
BY_API by_exit by_exit_of(by_status status);

#ifdef __cplusplus
}
#endif
#endif
