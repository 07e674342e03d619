/* A connection of hiredis on a loop of libuv. hiredis' own adapter takes no notice of a socket in
 * error, such as a connection that is refused. */
#ifndef BY_SERVE_REDIS_POLL_H
#define BY_SERVE_REDIS_POLL_H

#include <hiredis/async.h>

#include "serve/serve.h"

/* The handle is freed by the loop when hiredis frees the context. */
by_status by__redis_attach(redisAsyncContext *context, uv_loop_t *loop, by_error *error);

#endif
