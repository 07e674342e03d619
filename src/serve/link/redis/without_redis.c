#include "base/build.h"
#include "serve/link/redis/redis_link.h"

by_status by__redis_link_connect(by__link **out, uv_loop_t *loop, const char *url,
                                 by__link_dialer *dialer, const by__link_handler *handler,
                                 by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(loop);
    BY_UNUSED(dialer);
    BY_UNUSED(handler);
    return by__build_lacks(BY_BUILD_REDIS, url, error);
}
