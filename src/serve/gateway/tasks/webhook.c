#include "serve/gateway/tasks/webhook.h"

#include <curl/curl.h>
#include <nettle/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/http/ip_network.h"

/* Most secrets in a file; there are several while one is being replaced. */
#define SECRETS    4
#define MAX_SECRET 64
#define MAX_FILE   ((size_t)4096)
#define MAX_PAUSE  3600.0

/* Scheme, host and port of a URL, as parsed by libcurl. */
typedef struct origin {
    char *scheme;
    char *host;
    char *port;
} origin;

struct by__gateway_webhook_rules {
    origin *origins;
    size_t origin_count;
    by__http_network *networks;
    size_t network_count;
    uint8_t secrets[SECRETS][MAX_SECRET];
    size_t lengths[SECRETS];
    size_t secret_count;
};

/* ---- URLs ---- */

static void free_origin(origin *o)
{
    curl_free(o->scheme);
    curl_free(o->host);
    curl_free(o->port);
}

static bool read_origin(origin *out, const char *url)
{
    origin o = {0};
    CURLU *u = curl_url();
    bool good = u != NULL &&
                curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_SCHEME, &o.scheme, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_HOST, &o.host, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_PORT, &o.port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                (strcmp(o.scheme, "https") == 0 || strcmp(o.scheme, "http") == 0);
    curl_url_cleanup(u);
    if (!good) {
        free_origin(&o);
        return false;
    }
    *out = o;
    return true;
}

/* Refuses characters that no URL needs and on which parsers disagree. */
static bool is_plain(const char *url)
{
    size_t length = strlen(url);
    for (size_t i = 0; i < length; i++) {
        if (url[i] <= 0x20 || url[i] >= 0x7f || url[i] == '\\') {
            return false;
        }
    }
    return length > 0 && length <= BY__WEBHOOK_URL;
}

by_status by__gateway_webhook_check_url(const by__gateway_webhook_rules *rules, const char *url,
                                        by_error *error)
{
    origin o;
    bool listed = false;
    if (rules == NULL) {
        return by_error_set(error, BY_EARG,
                            "this server sends no webhooks: its configuration has no "
                            "'webhooks.origins'");
    }
    if (!is_plain(url) || !read_origin(&o, url)) {
        return by_error_set(error, BY_EARG,
                            "'webhook' must be a URL such as https://hooks.example.com/path, "
                            "without a user, of at most %d bytes",
                            BY__WEBHOOK_URL);
    }
    for (size_t i = 0; i < rules->origin_count; i++) {
        const origin *l = &rules->origins[i];
        listed = listed || (strcmp(l->scheme, o.scheme) == 0 && strcmp(l->port, o.port) == 0 &&
                            strcasecmp(l->host, o.host) == 0);
    }
    free_origin(&o);
    return listed ? BY_OK
                  : by_error_set(error, BY_EARG,
                                 "'webhook': this server sends nothing to that scheme, host and "
                                 "port: they are not in its 'webhooks.origins'");
}

/* ---- addresses ---- */

/* Networks that are not on the public internet (IANA's registries of special-purpose addresses), or
 * whose addresses embed an IPv4 address, as 6to4's do. Of IPv6 only 2000::/3 is public. */
static const char *const special[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",    "2001::/23",
    "2001:db8::/32", "2002::/16",       "3fff::/20",
};

static bool is_public(const struct in6_addr *address)
{
    by__http_network n;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(special); i++) {
        if (by__http_network_read(&n, special[i]) && by__http_network_has(&n, address)) {
            return false;
        }
    }
    return IN6_IS_ADDR_V4MAPPED(address) || (address->s6_addr[0] >> 5) == 1;
}

bool by__gateway_webhook_check_address(const by__gateway_webhook_rules *rules,
                                       const struct sockaddr *address)
{
    struct in6_addr a;
    if (!by__http_network_address(&a, address)) {
        return false;
    }
    for (size_t i = 0; i < rules->network_count; i++) {
        if (by__http_network_has(&rules->networks[i], &a)) {
            return true;
        }
    }
    return is_public(&a);
}

/* ---- signatures ---- */

/* Parses "whsec_" and base64 of 24 to 64 bytes, as the specification says. */
static bool read_secret(by__gateway_webhook_rules *r, const char *text, size_t length)
{
    static const char prefix[] = "whsec_";
    uint8_t bytes[256];
    size_t n = sizeof prefix - 1;
    size_t count = 0;
    if (length < n || memcmp(text, prefix, n) != 0 || r->secret_count == SECRETS ||
        BY__BASE64_BYTES(length - n) > sizeof bytes ||
        !by__read_base64(text + n, length - n, bytes, &count) || count < 24 || count > MAX_SECRET) {
        return false;
    }
    memcpy(r->secrets[r->secret_count], bytes, count);
    r->lengths[r->secret_count++] = count;
    return true;
}

static by_status read_secrets(by__gateway_webhook_rules *r, const char *path, by_error *error)
{
    char *text = NULL;
    size_t length = 0;
    bool good = true;
    /* A restart would not help. */
    if (!by__path_exists(path)) {
        return by_error_set(error, BY_ECONFIG, "webhooks.secret: there is no file %s", path);
    }
    BY_TRY(by__file_read_text(&text, &length, path, MAX_FILE, error));
    for (size_t at = 0; at < length && good;) {
        size_t n = strcspn(text + at, "\r\n");
        good = n == 0 || read_secret(r, text + at, n);
        at += n + 1;
    }
    explicit_bzero(text, length);
    free(text);
    if (!good || r->secret_count == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s does not hold the secrets of webhooks: 1 to %d lines, each whsec_ "
                            "and base64 of 24 to %d bytes",
                            path, SECRETS, MAX_SECRET);
    }
    return BY_OK;
}

void by__gateway_webhook_sign(const by__gateway_webhook_rules *rules, const char *id,
                              int64_t timestamp, const char *body, size_t length, by_string *out)
{
    char head[160];
    int n = snprintf(head, sizeof head, "%.100s.%lld.", id, (long long)timestamp);
    for (size_t i = 0; i < rules->secret_count; i++) {
        struct hmac_sha256_ctx context;
        uint8_t digest[SHA256_DIGEST_SIZE];
        hmac_sha256_set_key(&context, rules->lengths[i], rules->secrets[i]);
        hmac_sha256_update(&context, (size_t)n, (const uint8_t *)head);
        hmac_sha256_update(&context, length, (const uint8_t *)body);
        hmac_sha256_digest(&context, sizeof digest, digest);
        by__string_append(out, i == 0 ? "v1," : " v1,");
        by__string_add_base64(out, digest, sizeof digest);
    }
}

double by__gateway_webhook_pause(double first, int64_t tries, double random)
{
    double pause = first;
    for (int64_t i = 1; i < tries && pause < MAX_PAUSE; i++) {
        pause *= 2.0;
    }
    pause = pause < MAX_PAUSE ? pause : MAX_PAUSE;
    return pause * (1.0 - 0.5 * random);
}

/* ---- opening ---- */

static by_status read_lists(by__gateway_webhook_rules *r, const by_serve_webhooks_config *c,
                            by_error *error)
{
    for (size_t i = 0; i < c->origins.count; i++) {
        const char *text = c->origins.items[i];
        const char *host = strstr(text, "://");
        if (!is_plain(text) || host == NULL || strpbrk(host + 3, "/?#") != NULL ||
            !read_origin(&r->origins[i], text)) {
            return by_error_set(error, BY_ECONFIG,
                                "webhooks.origins has %s, which is not an origin: write it as "
                                "https://hooks.example.com, without a path",
                                text);
        }
        r->origin_count++;
    }
    for (size_t i = 0; i < c->networks.count; i++) {
        if (!by__http_network_read(&r->networks[i], c->networks.items[i])) {
            return by_error_set(
                error, BY_ECONFIG,
                "webhooks.networks has %s, which is not a network: write it as 10.0.0.0/8",
                c->networks.items[i]);
        }
        r->network_count++;
    }
    if (c->secret[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "webhooks.origins needs webhooks.secret, a file with the secret by "
                            "which receivers check messages");
    }
    return read_secrets(r, c->secret, error);
}

by_status by__gateway_webhook_rules_open(by__gateway_webhook_rules **out,
                                         const by_serve_webhooks_config *config, by_error *error)
{
    by__gateway_webhook_rules *r = NULL;
    *out = NULL;
    if (config->origins.count == 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "webhooks", error));
    by_status status = by__alloc((void **)&r->origins, config->origins.count, sizeof *r->origins,
                                 "webhooks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r->networks, config->networks.count + 1, sizeof *r->networks,
                           "webhooks", error);
    }
    if (status == BY_OK) {
        status = read_lists(r, config, error);
    }
    if (status != BY_OK) {
        by__gateway_webhook_rules_close(&r);
    }
    *out = r;
    return status;
}

void by__gateway_webhook_rules_close(by__gateway_webhook_rules **rules)
{
    by__gateway_webhook_rules *r = *rules;
    if (r == NULL) {
        return;
    }
    *rules = NULL;
    for (size_t i = 0; i < r->origin_count; i++) {
        free_origin(&r->origins[i]);
    }
    free(r->origins);
    free(r->networks);
    explicit_bzero(r->secrets, sizeof r->secrets);
    free(r);
}
