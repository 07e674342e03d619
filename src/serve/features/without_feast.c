#include "base/build.h"
#include "serve/features/features.h"

by_status by__feature_map_open(by__feature_map **out, const by_serve_config *config,
                               by_error *error)
{
    *out = NULL;
    return config->features.store[0] == '\0'
               ? BY_OK
               : by__build_lacks(BY_BUILD_FEAST, "features.store", error);
}

void by__feature_map_close(by__feature_map **map)
{
    *map = NULL;
}

by_status by__features_open(by__features **out, uv_loop_t *loop, const by_serve_config *config,
                            const by__telemetry_log *log, by_error *error)
{
    by__feature_map *map;
    BY_UNUSED(loop);
    BY_UNUSED(log);
    *out = NULL;
    return by__feature_map_open(&map, config, error);
}

void by__features_close(by__features **features)
{
    *features = NULL;
}

by_status by__feature_fetch_begin(by__feature_fetch **out, by__features *features,
                                  const by__feature_request *request, by__feature_done *done,
                                  void *user, const char **param, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(features);
    BY_UNUSED(request);
    BY_UNUSED(done);
    BY_UNUSED(user);
    *param = "entities";
    return by_error_set(error, BY_EARG,
                        "this server has no feature store: send 'rows' with all "
                        "columns instead of 'entities'");
}

void by__feature_fetch_cancel(by__feature_fetch *fetch)
{
    BY_UNUSED(fetch);
}

double by__feature_fetch_since(const by__feature_fetch *fetch)
{
    BY_UNUSED(fetch);
    return 0;
}

void by__features_print(const by__features *features, by_string *out)
{
    BY_UNUSED(features);
    BY_UNUSED(out);
}
