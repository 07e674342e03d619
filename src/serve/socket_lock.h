/* One process at a time listens on a path: two would each have half of the peers, or the later one
 * all. */
#ifndef BY_SERVE_SOCKET_LOCK_H
#define BY_SERVE_SOCKET_LOCK_H

#include "serve/serve.h"

/* Locks the file PATH.lock, which stays, until `out` is closed or the process ends, however it
 * does: a socket that then lies at PATH is of nobody. An error of libuv: UV_EADDRINUSE, another
 * process has the lock; `out` is -1 then. */
int by__socket_lock(int *out, const char *path);

#endif
