/* process: child processes, for the supervisor of a job's ranks (launch), which has a loop of its
 * own, and that of a server (serve/supervisor), which has an event loop.
 *
 * A process that is to end gets SIGTERM, after its grace SIGKILL, and is left behind if it still
 * exists BY__PROCESS_KILL_SECONDS later: it hangs in the kernel, as on a mount that does not
 * answer.
 *
 * Never put here: what a process does, whether it is started again. */
#ifndef BY_PROCESS_PROCESS_H
#define BY_PROCESS_PROCESS_H

#include <sys/types.h>

#include "base/base.h"

#define BY__PROCESS_KILL_SECONDS 10.0

typedef struct by__process {
    pid_t pid;
    bool running;
    int code;     /* of the last end: the exit code, or 128 + signal; -1: it has not ended */
    double began; /* by__now when it was started */
    double due;   /* by__now of the next signal, or of giving up; 0: it is not to end */
    bool killed;  /* SIGKILL was sent */
} by__process;

typedef struct by__process_options {
    char *const *words; /* a program, found by PATH, and its arguments, ended by NULL */
    char *const *extra; /* "NAME=VALUE" added to the environment, ended by NULL; may be NULL */
    int input;          /* its standard input; -1: /dev/null */
    int output;         /* its standard output; 0: this process's */
    int errors;         /* the same of its standard error */
    bool session;       /* a session of its own; else a process group */
} by__process_options;

/* Starts a program with default signal handlers. Returns 0, or errno if it cannot be run. */
int by__process_start(by__process *process, const by__process_options *options);
/* Sends a running process SIGTERM, with SIGKILL after `grace` seconds. */
void by__process_stop(by__process *process, double grace);
/* Sends SIGKILL to a running process and to the rest of its group, which it has started. */
void by__process_kill(by__process *process);

typedef enum by__process_news {
    BY__PROCESS_NONE = 0,
    BY__PROCESS_ENDED, /* it has ended: `code` */
    BY__PROCESS_LEFT   /* SIGKILL has not ended it; reported every BY__PROCESS_KILL_SECONDS */
} by__process_news;

/* Finds out whether a process has ended, and sends SIGKILL if that is due. To be called after
 * SIGCHLD and at `due`. */
by__process_news by__process_watch(by__process *process, double now);

/* Seconds before the restart after that many exits in a row: `first`, doubled each time. */
double by__process_back_off(double first, double longest, unsigned exits);

/* Kills and reaps all descendants of this process, which should be their PR_SET_CHILD_SUBREAPER.
 * Returns false if one is still running after `seconds`. */
bool by__process_kill_descendants(double seconds);

#endif
