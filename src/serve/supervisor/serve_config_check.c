/* Checks what single keys of a server's configuration cannot, and what they name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/infer.h"
#include "config/kind.h"
#include "serve/base/serve.h"
#include "serve/features/feature_map.h"
#include "serve/gateway/core/gateway_trace.h"
#include "serve/gateway/core/keys.h"
#include "serve/gateway/tasks/webhook.h"
#include "serve/http/client_address.h"
#include "serve/http/http_server.h"
#include "serve/link/core/link.h"
#include "serve/link/core/redis_address.h"

static bool has_name(const by__gateway_keys *file, const char *name)
{
    for (size_t i = 0; i < by__gateway_keys_count(file); i++) {
        if (strcmp(by__gateway_keys_at(file, i)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static by_status check_limits(const by_serve_config *c, const by__gateway_keys *file,
                              by_error *error)
{
    const by_limit_config *rows = c->limits.keys.items;
    const char *where = by__config_where(c->config, "limits.keys", "limits.keys");
    for (size_t i = 0; i < c->limits.keys.count; i++) {
        if (file == NULL || !has_name(file, rows[i].name)) {
            return by_error_set(
                error, BY_ECONFIG, "%s: limits.keys names %s, %s%s", where, rows[i].name,
                file == NULL ? "but gateway.keys, the file of the keys and their names, is not set"
                             : "which is not in gateway.keys ",
                file == NULL ? "" : c->gateway.keys);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(rows[k].name, rows[i].name) == 0) {
                return by_error_set(error, BY_ECONFIG, "%s: limits.keys names %s twice", where,
                                    rows[i].name);
            }
        }
    }
    return BY_OK;
}

static by_status check_origins(const by_serve_config *c, by_error *error)
{
    for (size_t i = 0; i < c->cors.origins.count; i++) {
        const char *origin = c->cors.origins.items[i];
        const char *host = strncmp(origin, "https://", 8) == 0  ? origin + 8
                           : strncmp(origin, "http://", 7) == 0 ? origin + 7
                                                                : "";
        if (strcmp(origin, "*") != 0 && (host[0] == '\0' || strpbrk(host, "/?#* ") != NULL)) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: cors.origins has %s, which is not an origin: write it as "
                                "https://app.example.com, without a path, or *",
                                by__config_where(c->config, "cors.origins", "cors.origins"),
                                origin);
        }
    }
    return BY_OK;
}

static by_status check_scaling(const by_serve_config *c, by_error *error)
{
    if (c->scaling.most == 0 ? c->worker.count > 0 : c->scaling.most >= c->worker.count) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: scaling.most is %lld, but worker.count is %lld: scaling.most must be "
                        "at least worker.count, and at least 1 if that is 0",
                        by__config_where(c->config, "scaling.most", "worker.count"),
                        (long long)c->scaling.most, (long long)c->worker.count);
}

static by_status check_tracing(const by_serve_config *c, by_error *error)
{
    by_status status = by__gateway_trace_endpoint_check(c->tracing.endpoint, error);
    return status == BY_OK ? BY_OK
                           : by_error_prefix(error, status, "%s",
                                             by__config_where(c->config, "tracing.endpoint",
                                                              "tracing.endpoint"));
}

static by_status check_metrics(const by_serve_config *c, by_error *error)
{
    const char *names = c->gateway.metrics_names;
    return strcmp(names, "banyan") == 0 || strcmp(names, "vllm") == 0
               ? BY_OK
               : by_error_set(
                     error, BY_ECONFIG, "%s: gateway.metrics_names is %s: must be banyan or vllm",
                     by__config_where(c->config, "gateway.metrics_names", "gateway.metrics_names"),
                     names);
}

static by_status check_proxies(const by_serve_config *c, by_error *error)
{
    by__http_addresses *addresses = NULL;
    by_status status = by__http_addresses_open(&addresses, 0, &c->gateway.proxies, error);
    by__http_addresses_close(&addresses);
    return status;
}

static by_status check_broker(const by_serve_config *c, by_error *error)
{
    const char *address = c->broker.address;
    const char *where = by__config_where(c->config, "broker.address", "broker.address");
    if (address[0] == '\0') {
        return BY_OK;
    }
    if (!by__link_redis_is_address(address)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: broker.address %s: must be redis://HOST[:PORT]; without it, the "
                            "server starts a broker on this host",
                            where, address);
    }
    by_status status = by__link_check(address, error);
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "%s: broker.address", where);
}

static by_status check_precision(const by_serve_config *c, by_error *error)
{
    by_dtype dtype;
    if (c->worker.precision[0] == '\0') {
        return BY_OK;
    }
    by_status status = by_infer_precision(&dtype, c->worker.precision, error);
    return status == BY_OK ? BY_OK
                           : by_error_prefix(error, status, "%s: worker.precision",
                                             by__config_where(c->config, "worker.precision",
                                                              "worker.precision"));
}

static by_status check_device(const by_serve_config *c, by_error *error)
{
    char found[BY_DEVICE_NAME];
    if (by_device_resolve(found, c->worker.device, error) != BY_OK) {
        return by_error_prefix(error, BY_ECONFIG, "%s: worker.device",
                               by__config_where(c->config, "worker.device", "worker.device"));
    }
    for (size_t i = 0; i < c->models.count; i++) {
        const char *own = ((const by_served_model_config *)c->models.items)[i].device;
        if (own[0] != '\0' && by_device_resolve(found, own, error) != BY_OK) {
            return by_error_prefix(error, BY_ECONFIG, "%s: models[%zu].device",
                                   by__config_where(c->config, "models", "models"), i);
        }
    }
    return BY_OK;
}

/* Cuts a path back to its longest part that exists. */
static void cut_to_existing(char *path)
{
    while (path[1] != '\0' && !by__path_exists(path)) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            path[0] = '.';
        }
        path[slash == NULL || slash == path ? 1 : slash - path] = '\0';
    }
    if (!by__path_exists(path)) { /* a name of one letter */
        path[0] = '.';
    }
}

/* Refuses a directory in which no file can be created, or that cannot be created itself. Tries it:
 * permissions do not tell, since root has all of them even where the file system takes nothing. */
static by_status check_directory(const by_serve_config *c, const char *key, const char *path,
                                 by_error *error)
{
    by_string probe = {0};
    if (path[0] == '\0') {
        return BY_OK;
    }
    char *existing = by__strdup(path);
    if (existing != NULL) {
        cut_to_existing(existing);
        by_string_format(&probe, "%s/.banyan-XXXXXX", existing);
    }
    by_status status = BY_OK;
    if (existing == NULL || probe.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
    } else if (mkdtemp(probe.data) == NULL) {
        status = by_error_set(error, BY_ECONFIG, "%s: %s %s: cannot create anything in %s: %s",
                              by__config_where(c->config, key, key), key, path, existing,
                              strerror(errno));
    } else {
        (void)rmdir(probe.data);
    }
    by_string_free(&probe);
    free(existing);
    return status;
}

static by_status check_webhooks(const by_serve_config *c, by_error *error)
{
    by__gateway_webhook_rules *rules = NULL;
    by_status status = by__gateway_webhook_rules_open(&rules, &c->webhooks, error);
    by__gateway_webhook_rules_close(&rules);
    return status;
}

by_status by_serve_config_check(const by_serve_config *config, by_error *error)
{
    const by_serve_config *c = config;
    by__gateway_keys *file = NULL;
    by__feature_map *features = NULL;
    struct sockaddr_storage address;
    by_status status = by__http_listen_address(&address, c->gateway.listen, error);
    if (status != BY_OK) {
        return by_error_prefix(error, status, "%s: gateway.listen",
                               by__config_where(c->config, "gateway.listen", "gateway.listen"));
    }
    if (c->gateway.keys[0] == '\0' && c->gateway.insecure == 0 &&
        !by__http_listens_locally(c->gateway.listen)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: gateway.listen %s is reachable by other machines: give "
                            "gateway.keys (--keys), listen on 127.0.0.1, or set gateway.insecure: "
                            "true (--insecure)",
                            by__config_where(c->config, "gateway.listen", "gateway.keys"),
                            c->gateway.listen);
    }
    if (c->gateway.keys[0] != '\0') {
        status = by__gateway_keys_open(&file, c->gateway.keys, error);
    }
    if (status == BY_OK) {
        status = check_limits(c, file, error);
    }
    if (status == BY_OK) {
        status = check_origins(c, error);
    }
    if (status == BY_OK) {
        status = check_tracing(c, error);
    }
    if (status == BY_OK) {
        status = check_webhooks(c, error);
    }
    if (status == BY_OK) {
        status = check_scaling(c, error);
    }
    if (status == BY_OK) {
        status = check_proxies(c, error);
    }
    if (status == BY_OK) {
        status = check_metrics(c, error);
    }
    if (status == BY_OK) {
        status = by__feature_map_open(&features, c, error);
    }
    if (status == BY_OK) {
        status = check_broker(c, error);
    }
    if (status == BY_OK) {
        status = check_precision(c, error);
    }
    if (status == BY_OK) {
        status = check_device(c, error);
    }
    if (status == BY_OK) {
        status = check_directory(c, "payload.directory", c->payload.directory, error);
    }
    if (status == BY_OK) {
        status = check_directory(c, "feedback.directory", c->feedback.directory, error);
    }
    by__feature_map_close(&features);
    by__gateway_keys_close(&file);
    return status;
}
