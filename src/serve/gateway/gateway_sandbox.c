#include "serve/gateway/gateway_sandbox.h"

#include <string.h>

#include "base/base.h"
#include "serve/base/sandbox_paths.h"
#include "serve/link/core/redis_address.h"

/* A directory that is made where it is missing: a rule needs one that exists. What is wrong with it
 * is said by those who write into it. */
static void add_made(by__serve_sandbox_paths *paths, const char *directory)
{
    by_error ignored = {0};
    if (directory[0] != '\0') {
        (void)by__make_dirs(directory, &ignored);
        by__serve_sandbox_paths_add(paths, directory, true);
    }
}

static void add_configured(by__serve_sandbox_paths *paths, const by_serve_config *config)
{
    add_made(paths, config->payload.directory);
    add_made(paths, config->feedback.directory);
    by__serve_sandbox_paths_add_file(paths, config->webhooks.secret, false);
    by__serve_sandbox_paths_add_file(paths, config->webhooks.certificates, false);
    by__serve_sandbox_paths_add_file(paths, config->features.password_file, false);
}

static void add_paths(by__serve_sandbox_paths *paths, const by_gateway_options *o)
{
    static const char local[] = "unix:";
    by__link_redis_address redis;
    by_error ignored = {0};
    by__serve_sandbox_paths_add_system(paths, true);
    by__serve_sandbox_paths_add_file(paths, o->keys, false);
    by__serve_sandbox_paths_add_file(paths, o->quota, true);
    by__serve_sandbox_paths_add_file(paths, o->ready_file, true);
    if (o->listen != NULL && strncmp(o->listen, local, sizeof local - 1) == 0) {
        by__serve_sandbox_paths_add_file(paths, o->listen + sizeof local - 1, true);
    }
    if (o->broker != NULL && by__link_redis_is_address(o->broker) &&
        by__link_redis_address_read(&redis, o->broker, &ignored) == BY_OK) {
        by__serve_sandbox_paths_add_file(paths, redis.password_file, false);
    }
    if (o->config != NULL) {
        add_configured(paths, o->config);
    }
}

by_status by__gateway_sandbox_prepare(by__serve_sandbox *out, int *version,
                                      const by_gateway_options *options, by_error *error)
{
    by__serve_sandbox_paths paths = {0};
    *out = (by__serve_sandbox){.kind = BY__SANDBOX_GATEWAY};
    if (options->open) {
        return BY_OK;
    }
    add_paths(&paths, options);
    return by__serve_sandbox_paths_prepare(out, &paths, version, error);
}
