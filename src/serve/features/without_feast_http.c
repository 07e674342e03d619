#include "base/build.h"
#include "serve/features/feature_store.h"

static by_status refuse(by__feature_store **out, uv_loop_t *loop, const by__feature_map *map,
                        by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(loop);
    BY_UNUSED(map);
    return by__build_lacks(BY_BUILD_CURL, "features.store", error);
}

const by__feature_store_form by__feature_feast_http_form = {.open = refuse};
