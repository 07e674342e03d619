/* Takes the file system, and TCP but for one port, away from a thread (Landlock, Linux 5.13). The
 * seccomp filter of sandbox.c refuses the calls that a process has no use for; this says which
 * files the others reach, and holds where a call was forgotten. */
#ifndef BY_SERVE_BASE_LANDLOCK_H
#define BY_SERVE_BASE_LANDLOCK_H

#include "serve/base/serve.h"

typedef struct by__serve_landlock_path {
    const char
        *path;   /* a file, or a directory with all below it; one that is missing is left out */
    bool writes; /* it may also be written, and files made in it, renamed and removed */
} by__serve_landlock_path;

typedef struct by__serve_landlock {
    uint16_t port;              /* TCP port that may still be connected to; 0: none */
    bool network;               /* TCP is not restricted, whatever `port` is */
    const char *const *devices; /* files that may still be opened, ending with NULL; NULL: none */
    const by__serve_landlock_path *paths;
    size_t path_count;
} by__serve_landlock;

/* Restricts the calling thread and those that it will start, as far as the kernel can. *version
 * becomes that of the kernel's Landlock; 0: it has none, and nothing changes. */
by_status by__serve_landlock_enter(int *version, const by__serve_landlock *rules, by_error *error);

#endif
