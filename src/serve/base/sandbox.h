/* Restricts a process of a server to what it needs, so that an attacker who takes it over gets no
 * more. What a process may still do is a list of system calls, with their arguments where these
 * matter (seccomp, sandbox_calls.h); everything else fails with EPERM and is reported. Landlock and
 * dropped capabilities stand behind the list.
 *
 * A worker computes on untrusted input: once it is warm, it has memory, threads, waiting, and
 * reading and writing what is open. A gateway or broker reads untrusted bytes: it keeps its own
 * directories, and new connections; a broker those of this machine alone.
 *
 * Never put here: connections (dialer.h) and the environment (kept_environment.c), which a worker
 * gives up earlier. */
#ifndef BY_SERVE_BASE_SANDBOX_H
#define BY_SERVE_BASE_SANDBOX_H

#include "serve/base/landlock.h"

typedef enum by__serve_sandbox_kind {
    BY__SANDBOX_WORKER,
    BY__SANDBOX_BROKER,
    BY__SANDBOX_GATEWAY
} by__serve_sandbox_kind;

typedef struct by__serve_sandbox {
    by__serve_sandbox_kind kind;
    /* Port of a Redis server, which a worker connects to by itself; 0: it opens no sockets. */
    uint16_t port;
    /* A worker's files of devices that are opened late, such as an accelerator's, ending with NULL;
     * NULL: none. They need Landlock. */
    const char *const *devices;
    /* The files of a gateway or broker; a worker has none. */
    const by__serve_landlock_path *paths;
    size_t path_count;
} by__serve_sandbox;

/* The part that is done before the first event loop and the threads that will compute: takes away
 * files (and a worker's capabilities), and makes io_uring fail as on a kernel that lacks it,
 * because a loop with a ring could not go on in the sandbox. *version: as by__serve_landlock_enter.
 * BY_ESTATE: the kernel does not support it. */
by_status by__serve_sandbox_prepare(const by__serve_sandbox *sandbox, int *version,
                                    by_error *error);
/* Enables the list of calls for all threads of this process, permanently. */
by_status by__serve_sandbox_enter(const by__serve_sandbox *sandbox, by_error *error);

#define BY__SANDBOX_CALL 48
/* Copies the name of a forbidden call that was tried since the last query. Returns false if there
 * was none. */
bool by__serve_sandbox_violation(char name[BY__SANDBOX_CALL]);

#endif
