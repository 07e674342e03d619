/* A connection of hiredis on a loop of libuv. hiredis' own adapter takes no notice of a socket in
 * error, such as a connection that is refused. */
#ifndef BY_SERVE_REDIS_POLL_H
#define BY_SERVE_REDIS_POLL_H

#include <hiredis/async.h>

#include "serve/link/redis_address.h"

/* Begins to connect to the first host of `list`, which is that of the address, and sends AUTH and
 * SELECT where it has them; `login` gets their answers, with `user`, which is also the context's
 * `data`. The context has no callbacks of its own yet. BY_EIO. */
by_status by__redis_connect(redisAsyncContext **out, uv_loop_t *loop,
                            const by__redis_address *address, const struct addrinfo *list,
                            redisCallbackFn *login, void *user, by_error *error);

#endif
