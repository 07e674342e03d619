/* Runs a connection of hiredis on a loop of libuv. hiredis' own adapter ignores errors of the
 * socket, such as a refused connection. */
#ifndef BY_SERVE_LINK_REDIS_REDIS_POLL_H
#define BY_SERVE_LINK_REDIS_REDIS_POLL_H

#include <hiredis/async.h>

#include "serve/link/core/redis_address.h"

/* Starts to connect to the first host of `list`, which is that of the address, and sends AUTH and
 * SELECT if the address has them; `login` gets their replies, with `user`, which is also the
 * context's `data`. The context must have no other callbacks. Fails with BY_EIO. */
by_status by__redis_connect(redisAsyncContext **out, uv_loop_t *loop,
                            const by__link_redis_address *address, const struct addrinfo *list,
                            redisCallbackFn *login, void *user, by_error *error);

#endif
