/* The table of routes, access control and limits of each request, and its log entries
 * (gateway_routes.h). */
#include "serve/gateway/gateway_routes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/gateway/core/feedback.h"
#include "serve/gateway/gateway_admin.h"
#include "serve/gateway/openai/openai.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/http/cors.h"
#include "serve/http/ip_network.h"
#include "serve/protocol/messages.h"

const by__gateway_route by__gateway_routes[] = {
    {"GET", "/", BY__SCOPE_NONE, by__gateway_answer_page},
    {"GET", "/health", BY__SCOPE_NONE, by__gateway_answer_ready},
    {"GET", "/ping", BY__SCOPE_NONE, by__gateway_answer_ready},
    {"GET", "/health/live", BY__SCOPE_NONE, by__gateway_answer_live},
    {"GET", "/health/ready", BY__SCOPE_NONE, by__gateway_answer_ready},
    {"GET", "/metrics", BY__SCOPE_METRICS, by__gateway_answer_metrics},
    {"GET", "/version", BY__SCOPE_INFERENCE, by__gateway_answer_version},
    {"GET", "/v1/models", BY__SCOPE_INFERENCE, by__gateway_answer_models},
    {"GET", "/v1/models/", BY__SCOPE_INFERENCE, by__gateway_answer_model},
    {"POST", "/v1/completions", BY__SCOPE_INFERENCE, by__gateway_answer},
    {"POST", "/v1/chat/completions", BY__SCOPE_INFERENCE, by__gateway_answer},
    {"POST", "/v1/feedback", BY__SCOPE_INFERENCE, by__gateway_answer_feedback},
    {"POST", "/v1/responses", BY__SCOPE_INFERENCE, by__gateway_answer},
    {"GET", "/v1/responses/", BY__SCOPE_INFERENCE, by__openai_answer_response},
    {"DELETE", "/v1/responses/", BY__SCOPE_INFERENCE, by__openai_answer_response},
    {"POST", "/v1/responses/", BY__SCOPE_INFERENCE, by__openai_answer_response},
    {"POST", "/v1/embeddings", BY__SCOPE_INFERENCE, by__gateway_answer},
    {"POST", "/v1/predict", BY__SCOPE_INFERENCE, by__gateway_answer},
    {"POST", "/v1/tasks", BY__SCOPE_TASKS, by__gateway_answer_task_new},
    {"GET", "/v1/tasks/", BY__SCOPE_TASKS, by__gateway_answer_task},
    {"DELETE", "/v1/tasks/", BY__SCOPE_TASKS, by__gateway_answer_task_cancel},
    {"POST", "/v1/tasks/", BY__SCOPE_TASKS, by__gateway_answer_task_cancel},
    {"GET", "/v1/admin/versions", BY__SCOPE_ADMIN, by__gateway_answer_versions},
    {"POST", "/v1/admin/deploy", BY__SCOPE_ADMIN, by__gateway_answer_deploy},
    {"POST", "/v1/admin/rollback", BY__SCOPE_ADMIN, by__gateway_answer_rollback},
};
const size_t by__gateway_route_count = BY_ARRAY_LENGTH(by__gateway_routes);

/* ---- routing and access control ---- */

/* The part of a path that names a route is not encoded: a proxy that opens some routes only may not
 * decode it. */
static bool fits(const by__gateway_route *row, const char *path, size_t plain)
{
    size_t length = strlen(row->path);
    return plain >= length && length > 1 && row->path[length - 1] == '/'
               ? strncmp(path, row->path, length) == 0 && path[length] != 0
               : plain >= length && strcmp(path, row->path) == 0;
}

/* Size of a list of methods. */
#define METHODS 48

/* Finds the route of a request, treating HEAD as GET. Returns NULL if there is none, and lists the
 * methods of its path in `allowed`. */
static const by__gateway_route *find_route(const by__http_request *r, char allowed[METHODS])
{
    const char *method = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    size_t length = 0;
    allowed[0] = '\0';
    for (size_t i = 0; i < by__gateway_route_count; i++) {
        const by__gateway_route *row = &by__gateway_routes[i];
        if (!fits(row, r->path, r->plain)) {
            continue;
        }
        if (strcmp(method, row->method) == 0) {
            return row;
        }
        if (length < METHODS) {
            length += (size_t)snprintf(allowed + length, METHODS - length, "%s%s",
                                       length == 0 ? "" : ", ", row->method);
        }
    }
    return NULL;
}

/* The client of a request; NULL: it has no valid key. */
static const by__gateway_client *client_of(const by__gateway *g, const by__http_request *r)
{
    const char *bearer = by__http_header_of(r, "authorization");
    const char *plain = by__http_header_of(r, "x-api-key");
    if (g->keys == NULL) {
        return &g->anyone;
    }
    if (bearer != NULL && strncasecmp(bearer, "bearer ", 7) == 0) {
        return by__gateway_keys_find(g->keys, bearer + 7);
    }
    return plain == NULL ? NULL : by__gateway_keys_find(g->keys, plain);
}

static bool has_key(const by__http_request *r)
{
    return by__http_header_of(r, "authorization") != NULL ||
           by__http_header_of(r, "x-api-key") != NULL;
}

/* True if the request names this machine by an address or as localhost, or names no host. A page of
 * another site, whose name has been made to resolve to this machine (DNS rebinding), is to the
 * browser of one origin with the server; only the site's name in Host tells its requests apart. */
static bool has_own_host(const by__http_request *r)
{
    const char *host = by__http_header_of(r, "host");
    char name[INET6_ADDRSTRLEN + 16];
    struct in6_addr address;
    if (host == NULL) {
        return true; /* HTTP/1.0 */
    }
    bool is_ipv6 = host[0] == '[';
    host += is_ipv6 ? 1 : 0;
    size_t length = strcspn(host, is_ipv6 ? "]" : ":");
    if (length >= sizeof name || (is_ipv6 && host[length] != ']')) {
        return false;
    }
    memcpy(name, host, length);
    name[length] = '\0';
    return strcasecmp(name, "localhost") == 0 || by__http_network_read_address(&address, name);
}

/* Without keys, a server that other machines do not reach serves the programs of its machine, and
 * not the sites that a browser on it visits. Browsers do not open sockets in the file system. */
static bool takes_host(const by__gateway *g, const by__gateway_route *route,
                       const by__http_request *r)
{
    return (route != NULL && route->scope == BY__SCOPE_NONE) || g->keys != NULL ||
           g->options.insecure || strncmp(g->options.listen, "unix:", 5) == 0 || has_own_host(r);
}

/* Without keys, nothing else tells a page of another site from a program of this machine. */
static bool is_forged(const by__gateway *g, const by__http_request *r)
{
    static const by_serve_cors_config nobody = {0};
    return by__http_cors_forged(g->options.config == NULL ? &nobody : &g->options.config->cors, r);
}

/* Creates the record of a request without its trace; given: the id that the client gave, NULL for
 * none. NULL when memory or random numbers are exhausted. */
static by__gateway_request_log *new_log(by__http_connection *x, const char *given,
                                        const char *method, const char *path)
{
    size_t length = strlen(path);
    char id[BY__ID_BYTES];
    by__gateway_request_log *record = calloc(1, sizeof *record + length + 1);
    if (record == NULL) {
        return NULL;
    }
    if (given != NULL && by__serve_id_valid(given)) {
        memcpy(record->id, given, strlen(given) + 1);
    } else if (by__serve_request_id(id, "req_", NULL) == BY_OK) {
        memcpy(record->id, id, sizeof id);
    } else {
        free(record);
        return NULL;
    }
    (void)snprintf(record->method, sizeof record->method, "%s", method);
    memcpy(record->path, path, length + 1);
    record->since = by__now();
    by__http_connection_note(x, record);
    by__http_connection_header(x, "X-Request-Id", record->id);
    return record;
}

/* The same, with its trace. */
static by__gateway_request_log *open_log(const by__gateway *g, by__http_connection *x,
                                         const by__http_request *r)
{
    by__gateway_request_log *record =
        new_log(x, by__http_header_of(r, "x-request-id"), r->method, r->path);
    if (record != NULL &&
        by__gateway_request_trace_begin(&record->trace, &g->tracing, x, r, NULL) != BY_OK) {
        by__http_connection_note(x, NULL);
        free(record);
        return NULL;
    }
    return record;
}

/* ---- limits ---- */

/* Only requests that cause work are counted. */
static bool start_request(by__gateway *g, by__http_connection *x,
                          const by__gateway_request_log *record)
{
    bool counts =
        strcmp(record->route->method, "POST") == 0 &&
        (record->route->scope == BY__SCOPE_INFERENCE || record->route->scope == BY__SCOPE_TASKS);
    return !counts || by__gateway_charge_record(g, x, record, 1.0, 0.0);
}

/* ---- callbacks of the server ---- */

/* True if a request's body is compressed, or otherwise coded. */
static bool is_coded(const by__http_request *r)
{
    for (size_t i = 0; i < r->header_count; i++) {
        if (strcmp(r->headers[i].name, "content-encoding") == 0 &&
            strcasecmp(r->headers[i].value, "identity") != 0) {
            return true;
        }
    }
    return false;
}

bool by__gateway_head(void *user, by__http_connection *x, const by__http_request *r)
{
    by__gateway *g = user;
    char allowed[METHODS];
    char message[96];
    const by__gateway_route *route = find_route(r, allowed);
    by__gateway_request_log *record = open_log(g, x, r);
    if (record == NULL) {
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for a request");
        return false;
    }
    if (g->options.config != NULL) {
        if (by__http_cors_preflight(&g->options.config->cors, x, r)) {
            return false;
        }
        by__http_cors_allow(&g->options.config->cors, x, r);
    }
    record->route = route;
    record->client = route != NULL && route->scope == BY__SCOPE_NONE ? &g->anyone : client_of(g, r);
    if (record->client == NULL) {
        g->metrics.rejected_key++;
        by__http_connection_header(x, "WWW-Authenticate", "Bearer");
        by__gateway_reply_error(g, x, 401, "invalid_api_key", NULL,
                                has_key(r)
                                    ? "this key is not one of the server's: the header is "
                                      "Authorization: Bearer KEY, with the key itself, not its hash"
                                    : "a key is needed: Authorization: Bearer KEY");
    } else if (!takes_host(g, route, r)) {
        by__gateway_reply_error(
            g, x, 403, "host_not_allowed", NULL,
            "without keys, Host must be localhost or an IP address; start the server "
            "with --keys, or with --insecure to serve other names");
    } else if (g->keys == NULL && is_forged(g, r)) {
        by__gateway_reply_error(
            g, x, 403, "origin_not_allowed", NULL,
            "a page of another site sends this; cors.origins lists those that may");
    } else if (route == NULL && allowed[0] != '\0') {
        by__http_connection_header(x, "Allow", allowed);
        (void)snprintf(message, sizeof message, "this route takes %s", allowed);
        by__gateway_reply_error(g, x, 405, "method_not_allowed", NULL, message);
    } else if (route == NULL) {
        char hint[160];
        char near[BY__ROUTE_HINT];
        (void)snprintf(hint, sizeof hint, "there is no such route%s",
                       by__gateway_route_hint(near, r->path));
        by__gateway_reply_error(g, x, 404, "route_not_found", NULL, hint);
    } else if ((route->scope & ~record->client->scopes) != 0) {
        g->metrics.rejected_key++;
        (void)snprintf(message, sizeof message, "the key lacks the scope '%s' of this route",
                       by__gateway_scope_name(route->scope));
        by__gateway_reply_error(g, x, 403, "insufficient_scope", NULL, message);
    } else if (is_coded(r)) {
        by__http_connection_header(x, "Accept-Encoding", "identity");
        by__gateway_reply_error(g, x, 415, "encoded_body", NULL,
                                "a body with a Content-Encoding is not decoded: send it as it is");
    } else {
        return start_request(g, x, record);
    }
    return false;
}

void by__gateway_on_refused(void *user, by__http_connection *x, const char *code,
                            const char *reason)
{
    by__gateway_request_log *record = by__http_connection_noted(x);
    BY_UNUSED(user);
    if (record == NULL) {
        record = new_log(x, NULL, "", "");
    }
    if (record != NULL) {
        by__gateway_detail(x, json_pack("{ss ss}", "code", code, "reason", reason));
    }
}

void by__gateway_on_request(void *user, by__http_connection *x, const by__http_request *r)
{
    const by__gateway_request_log *record = by__http_connection_noted(x);
    record->route->answer(user, x, r, record->client->name);
}

void by__gateway_on_disconnect(void *user, by__http_connection *x)
{
    by__gateway_waiter *waiter = by__http_connection_get(x);
    BY_UNUSED(user);
    if (waiter != NULL) {
        waiter->disconnected(waiter);
    }
}

/* ---- logs ---- */

/* Probes, the page and scrapes of metrics are not user requests. */
static bool is_watching(const by__gateway_request_log *record)
{
    return record->route != NULL &&
           (record->route->scope == BY__SCOPE_NONE || record->route->scope == BY__SCOPE_METRICS);
}

/* True for user requests. */
static bool is_traced(const by__gateway_request_log *record)
{
    return record->route != NULL &&
           (record->route->scope == BY__SCOPE_INFERENCE || record->route->scope == BY__SCOPE_TASKS);
}

void by__gateway_done(void *user, by__http_connection *x, int status, size_t bytes)
{
    by__gateway *g = user;
    by__gateway_request_log *record = by__http_connection_noted(x);
    const char *peer = by__http_connection_peer(x);
    status = status == 0 ? 499 : status; /* the client disconnected first */
    if (record == NULL || !is_watching(record)) {
        g->metrics.requests[status / 100 < 6 ? status / 100 : 5]++;
    }
    if (record == NULL) {
        by__telemetry_log_event(&g->log, "request", "{ss si}", "peer", peer, "status", status);
        return;
    }
    if (g->limits != NULL && record->charged > 0) {
        by__gateway_limits_settle(g->limits, record->client->account, (double)record->charged,
                                  (double)record->used);
    }
    bool quiet = record->route != NULL && record->route->scope == BY__SCOPE_NONE && status < 400;
    const char *key = record->client == NULL ? "" : record->client->name;
    double seconds = by__now() - record->since;
    if (!quiet) {
        json_t *line =
            json_pack("{ss ss ss ss ss ss si sI sf}", "request_id", record->id, "trace_id",
                      record->trace.context.trace, "key", key, "peer", peer, "method",
                      record->method, "path", record->path, "status", status, "bytes",
                      (json_int_t)bytes, "seconds", by__telemetry_observe_seconds(seconds));
        (void)json_object_update(line, record->details);
        if (record->code[0] != '\0' && json_object_get(line, "code") == NULL) {
            (void)json_object_set_new(line, "code", json_string(record->code));
        }
        by__telemetry_log_object(&g->log, "request", line);
    }
    if (record->route != NULL && record->route->scope == BY__SCOPE_ADMIN) {
        json_t *line =
            json_pack("{ss ss ss ss ss si}", "request_id", record->id, "key", key, "peer", peer,
                      "method", record->method, "path", record->path, "status", status);
        (void)json_object_update(line, record->details);
        by__telemetry_log_object(&g->log, "audit", line);
    }
    if (is_traced(record)) {
        by__gateway_request_trace_end(&record->trace, &g->tracing,
                                      &(by__gateway_traced_answer){.since = record->since,
                                                                   .method = record->method,
                                                                   .route = record->route->path,
                                                                   .path = record->path,
                                                                   .peer = peer,
                                                                   .status = status,
                                                                   .details = record->details});
    }
    by__gateway_request_trace_free(&record->trace);
    json_decref(record->details);
    free(record);
    by__http_connection_note(x, NULL);
}
