/* link_connect: a link of the kind that a broker's address asks for. */
#ifndef BY_SERVE_LINK_LINK_CONNECT_H
#define BY_SERVE_LINK_LINK_CONNECT_H

#include "serve/link/core/link.h"

/* Connects to a broker: "redis://..." (redis_address.h), else the path of a socket. `ready` or
 * `lost` follows, unless the link is `connected` already. dialer: of the same broker, borrowed;
 * NULL: this process connects by itself. BY_ESTATE: the dialer has ended. */
by_status by__link_connect(by__link **out, uv_loop_t *loop, const char *broker,
                           by__link_dialer *dialer, const by__link_handler *handler,
                           by_error *error);

#endif
