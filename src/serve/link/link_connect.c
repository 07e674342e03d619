#include "serve/link/link_connect.h"

#include "serve/link/redis/redis_link.h"

by_status by__link_connect(by__link **out, uv_loop_t *loop, const char *broker,
                           by__link_dialer *dialer, const by__link_handler *handler,
                           by_error *error)
{
    if (by__link_redis_is_address(broker)) {
        return by__redis_link_connect(out, loop, broker, dialer, handler, error);
    }
    return by__link_socket_connect(out, loop, broker, dialer, handler, error);
}
