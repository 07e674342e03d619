/* Takes the file system, and TCP but for one port, away from a thread (Landlock, Linux 5.13). The
 * seccomp filter of sandbox.c already refuses the calls; this holds where one was forgotten. */
#ifndef BY_SERVE_WORKER_LANDLOCK_H
#define BY_SERVE_WORKER_LANDLOCK_H

#include "serve/base/serve.h"

typedef struct by__worker_landlock {
    uint16_t port;              /* TCP port that may still be connected to; 0: none */
    const char *const *devices; /* files that may still be opened, ending with NULL; NULL: none */
} by__worker_landlock;

/* Restricts the calling thread and those that it will start, as far as the kernel can. *version
 * becomes that of the kernel's Landlock; 0: it has none, and nothing changes. */
by_status by__worker_landlock_enter(int *version, const by__worker_landlock *rules,
                                    by_error *error);

#endif
