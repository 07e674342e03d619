/* Ensures that one process at a time listens on a path. With two, each would get some of the peers,
 * or the later one all. */
#ifndef BY_SERVE_BASE_SOCKET_LOCK_H
#define BY_SERVE_BASE_SOCKET_LOCK_H

#include "serve/base/serve.h"

/* Locks the file PATH.lock, which is never removed, until `out` is closed or the process ends in
 * any way: a socket found at PATH is then stale. Returns 0 or an error of libuv; UV_EADDRINUSE:
 * another process has the lock; `out` is then -1. */
int by__serve_socket_lock(int *out, const char *path);

#endif
