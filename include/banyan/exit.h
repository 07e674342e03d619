/* Exit codes of banyan's programs, by which a supervisor, batch system or script decides what to do
 * next. README.md and `banyan --help` list the same table. */
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
    BY_EXIT_FAILED = 1,       /* run-time error */
    BY_EXIT_CONFIG = 2,       /* invalid flag or configuration */
    BY_EXIT_SAVED = 3,        /* preempted or interrupted; everything was saved */
    BY_EXIT_HANG = 4,         /* a rank or worker made no progress and was terminated */
    BY_EXIT_CORRUPT = 5,      /* values that must be equal differ: a hardware fault is likely */
    BY_EXIT_PEER = 6,         /* another rank failed; its exit code has the reason */
    BY_EXIT_DIVERGED = 7,     /* training diverged */
    BY_EXIT_INTERRUPTED = 130 /* interrupted; nothing could be saved */
} by_exit;

typedef struct by_exit_row {
    int code;
    const char *name;    /* "saved" */
    const char *meaning; /* one line for a person */
    bool retry;          /* restarting from the newest checkpoint may help */
} by_exit_row;

/* Returns the table, ascending by code, and sets *count to its number of rows. Static storage. */
BY_API const by_exit_row *by_exit_rows(size_t *count);
/* Returns the name of an exit code; "crash" for one that is not in the table, such as 128 + the
 * number of the signal that killed the process. */
BY_API const char *by_exit_name(int code);
/* Returns whether a supervisor should restart after this code; true for a crash. */
BY_API bool by_exit_retry(int code);
/* Returns the exit code of a program that ends with this status. BY_EARG and BY_ECONFIG give
 * BY_EXIT_CONFIG, BY_ESTOPPED gives BY_EXIT_INTERRUPTED. */
BY_API by_exit by_exit_of(by_status status);

#ifdef __cplusplus
}
#endif
#endif
