#include "serve/http/cors.h"

#include <string.h>

/* The value of Access-Control-Allow-Origin; NULL: the origin is not in the config. */
static const char *allowed(const by_serve_cors_config *config, const by__http_request *r)
{
    const char *origin = by__http_header_of(r, "origin");
    for (size_t i = 0; origin != NULL && i < config->origins.count; i++) {
        const char *item = config->origins.items[i];
        if (strcmp(item, "*") == 0 || strcmp(item, origin) == 0) {
            return item;
        }
    }
    return NULL;
}

void by__http_cors_allow(const by_serve_cors_config *config, by__http_connection *x,
                         const by__http_request *r)
{
    const char *origin = allowed(config, r);
    if (config->origins.count > 0) {
        by__http_connection_header(x, "Vary", "Origin");
    }
    if (origin != NULL) {
        by__http_connection_header(x, "Access-Control-Allow-Origin", origin);
        by__http_connection_header(
            x, "Access-Control-Expose-Headers",
            "X-Request-Id, X-Banyan-Run, X-Banyan-Version, Retry-After, Location, "
            "X-RateLimit-Limit-Requests, "
            "X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, "
            "X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, "
            "X-RateLimit-Reset-Tokens");
    }
}

/* True if an origin ("http://HOST:PORT") is the server as this request names it. */
static bool is_own(const char *origin, const by__http_request *r)
{
    const char *host = by__http_header_of(r, "host");
    const char *name = strstr(origin, "://");
    return host != NULL && name != NULL && strcasecmp(name + 3, host) == 0;
}

bool by__http_cors_forged(const by_serve_cors_config *config, const by__http_request *r)
{
    const char *site = by__http_header_of(r, "sec-fetch-site");
    const char *origin = by__http_header_of(r, "origin");
    if (strcmp(r->method, "POST") != 0 || by__http_is_type(r, "application/json") ||
        allowed(config, r) != NULL) {
        return false;
    }
    if (site != NULL) {
        /* none: the user has typed the address */
        return strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
    }
    return origin != NULL && !is_own(origin, r);
}

bool by__http_cors_preflight(const by_serve_cors_config *config, by__http_connection *x,
                             const by__http_request *r)
{
    char seconds[24];
    if (strcmp(r->method, "OPTIONS") != 0 || allowed(config, r) == NULL ||
        by__http_header_of(r, "access-control-request-method") == NULL) {
        return false;
    }
    (void)snprintf(seconds, sizeof seconds, "%.0f", config->max_age);
    by__http_cors_allow(config, x, r);
    by__http_connection_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    by__http_connection_header(
        x, "Access-Control-Allow-Headers",
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Api-Key, "
        "X-Request-Id");
    by__http_connection_header(x, "Access-Control-Max-Age", seconds);
    by__http_connection_reply(x, 204, NULL, "", 0);
    return true;
}
