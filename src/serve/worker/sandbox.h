/* Restricts a worker once it is warm. A worker computes on untrusted input; an attacker who takes
 * it over gets a process that holds a model and one connection. What the worker may still do is a
 * list of system calls, with their arguments where these matter (seccomp): memory, threads,
 * waiting, and reading and writing what is open. Everything else fails with EPERM and is reported.
 * Landlock and dropped capabilities stand behind the list.
 *
 * Never put here: connections (dialer.h) and the environment (kept_environment.c), which a worker
 * gives up earlier. */
#ifndef BY_SERVE_WORKER_SANDBOX_H
#define BY_SERVE_WORKER_SANDBOX_H

#include "serve/worker/landlock.h"

typedef struct by__worker_sandbox {
    /* Port of a Redis server, which the worker connects to by itself; 0: it opens no sockets. */
    uint16_t port;
    /* Files of devices that are opened late, such as an accelerator's, ending with NULL; NULL:
     * none. They need Landlock. */
    const char *const *devices;
} by__worker_sandbox;

/* The part that is done before the first event loop and the threads that will compute: takes away
 * files and capabilities, and makes io_uring fail as on a kernel that lacks it, because a loop with
 * a ring could not go on in the sandbox. *version: as by__worker_landlock_enter. BY_ESTATE: the
 * kernel does not support it. */
by_status by__worker_sandbox_prepare(const by__worker_sandbox *sandbox, int *version,
                                     by_error *error);
/* Enables the list of calls for all threads of this process, permanently. */
by_status by__worker_sandbox_enter(const by__worker_sandbox *sandbox, by_error *error);

#define BY__SANDBOX_CALL 48
/* Copies the name of a forbidden call that was tried since the last query. Returns false if there
 * was none. */
bool by__worker_sandbox_violation(char name[BY__SANDBOX_CALL]);

#endif
