#include "serve/gateway/core/gateway_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/gateway/core/gateway_reply.h"
#include "serve/protocol/messages.h"

/* Bodies that are read at a time: libuv's pool has four threads. */
#define MAX_READERS 2
/* Bytes of bodies that are read or wait for it. */
#define MAX_BYTES ((size_t)256 << 20)

static void start_next(by__gateway *g);

static void free_reading(by__gateway_reading *r)
{
    json_decref((json_t *)(uintptr_t)r->state);
    json_decref(r->message);
    if (r->request != NULL) {
        by__gateway_request_free(r->request);
    }
    free(r->unknown);
    free(r->copy);
}

bool by__gateway_reading_knows_not(by__gateway_reading *r, const char *model)
{
    const json_t *models = json_object_get(r->state, "models");
    if (r->unknown == NULL && r->knows && json_array_size(models) > 0 &&
        by__gateway_model_state(r->state, model) == NULL) {
        r->unknown = by__strdup(model);
    }
    return r->unknown != NULL;
}

/* Finds the model of a large body without the rest of it. What is wrong is left to `read`. */
static bool asks_in_vain(by__gateway_reading *r)
{
    json_t *model = NULL;
    bool vain = false;
    if (by__http_is_type(&r->http, "application/json") &&
        by__json_member(&model, r->http.body, r->http.body_length, "model", JSON_ALLOW_NUL,
                        &(json_error_t){0})) {
        const char *name = by__json_string(model);
        vain = name != NULL && by__gateway_reading_knows_not(r, name);
    }
    json_decref(model);
    return vain;
}

/* ---- large ones ---- */

static void read_large(uv_work_t *work)
{
    by__gateway_reading *r = work->data;
    if (!asks_in_vain(r)) {
        r->status = r->kind->read(r);
    }
}

static void on_disconnect(by__gateway_waiter *waiter)
{
    by__gateway_reading *r = (by__gateway_reading *)(void *)waiter;
    r->connection = NULL;
    r->gateway->metrics.cancelled++;
}

static void answer(by__gateway_reading *r)
{
    by__gateway *g = r->gateway;
    if (r->unknown != NULL) {
        by__telemetry_metrics_refused(g->metrics.rejected, "model_not_found");
        by__gateway_reply_no_model(g, r->connection, r->unknown);
    } else {
        r->kind->answer(r);
    }
}

static void on_read(uv_work_t *work, int status)
{
    by__gateway_reading *r = work->data;
    by__gateway *g = r->gateway;
    BY_UNUSED(status);
    g->readers--;
    g->reading_bytes -= r->bytes;
    start_next(g);
    if (r->connection != NULL) {
        by__http_connection_set(r->connection, NULL);
        answer(r);
    }
    free_reading(r);
    free(r);
}

/* The link to the next one: in turn the oldest and the smallest. */
static by__gateway_reading **choose(by__gateway *g)
{
    by__gateway_reading **best = &g->readings;
    g->reads_smallest = !g->reads_smallest;
    for (by__gateway_reading **at = &g->readings; *at != NULL && g->reads_smallest;
         at = &(*at)->next) {
        best = (*at)->bytes < (*best)->bytes ? at : best;
    }
    return best;
}

static void start_next(by__gateway *g)
{
    while (g->readings != NULL && g->readers < MAX_READERS) {
        by__gateway_reading **at = choose(g);
        by__gateway_reading *r = *at;
        *at = r->next;
        if (r->connection == NULL) { /* nobody waits for it any more */
            g->reading_bytes -= r->bytes;
            free_reading(r);
            free(r);
            continue;
        }
        g->readers++;
        g->metrics.requests_apart++;
        r->work.data = r;
        if (uv_queue_work(&g->loop, &r->work, read_large, on_read) < 0) {
            read_large(&r->work);
            on_read(&r->work, 0);
        }
    }
}

/* Copies a text to *at, which moves behind it. */
static const char *copy_text(char **at, const char *text, size_t length)
{
    char *copy = *at;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *at += length + 1;
    return copy;
}

/* Copies what routes use of a request: the parser's own does not last. */
static bool copy_request(by__gateway_reading *r, const by__http_request *from)
{
    static const char *const names[] = {"content-type", "idempotency-key"};
    const char *values[BY_ARRAY_LENGTH(names)];
    size_t bytes =
        strlen(from->method) + strlen(from->path) + strlen(from->query) + from->body_length + 4;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        values[i] = by__http_header_of(from, names[i]);
        bytes += values[i] == NULL ? 0 : strlen(values[i]) + 1;
    }
    char *at = r->copy = malloc(bytes);
    if (at == NULL) {
        return false;
    }
    r->http = (by__http_request){.method = copy_text(&at, from->method, strlen(from->method)),
                                 .path = copy_text(&at, from->path, strlen(from->path)),
                                 .query = copy_text(&at, from->query, strlen(from->query)),
                                 .body = copy_text(&at, from->body, from->body_length),
                                 .body_length = from->body_length};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (values[i] != NULL) {
            r->http.headers[r->http.header_count++] =
                (by__http_header){names[i], copy_text(&at, values[i], strlen(values[i]))};
        }
    }
    return true;
}

static void queue(by__gateway *g, by__gateway_reading *small, const by__http_request *request)
{
    by__gateway_reading **end = &g->readings;
    by__gateway_reading *r =
        g->reading_bytes + request->body_length > MAX_BYTES ? NULL : malloc(sizeof *r);
    if (r != NULL) {
        *r = *small;
        r->state = json_incref((json_t *)(uintptr_t)r->state);
    }
    if (r == NULL || !copy_request(r, request)) {
        by__gateway_reply_error(g, small->connection, 503, "busy", NULL,
                                "too many large requests are being read; try again later");
        if (r != NULL) {
            free_reading(r);
            free(r);
        }
        return;
    }
    r->waiter.disconnected = on_disconnect;
    r->bytes = request->body_length;
    g->reading_bytes += r->bytes;
    by__http_connection_set(r->connection, &r->waiter);
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = r;
    start_next(g);
}

/* ---- all of them ---- */

void by__gateway_read(by__gateway *g, by__http_connection *x, const by__http_request *request,
                      const char *key, const by__gateway_read_kind *kind)
{
    const char *trace = by__gateway_trace(g, x);
    by__gateway_reading r = {.kind = kind,
                             .gateway = g,
                             .connection = x,
                             .http = *request,
                             .key = key,
                             .state = g->state,
                             .knows = by__gateway_state(g) != NULL &&
                                      !json_is_true(json_object_get(g->state, "gathering")),
                             .since = by__now()};
    (void)snprintf(r.trace, sizeof r.trace, "%s", trace == NULL ? "" : trace);
    if (request->body_length >= BY__LARGE) {
        queue(g, &r, request);
        return;
    }
    r.state = json_incref((json_t *)(uintptr_t)r.state);
    r.status = kind->read(&r);
    answer(&r);
    free_reading(&r);
}

void by__gateway_readings_close(by__gateway *g)
{
    while (g->readings != NULL) {
        by__gateway_reading *r = g->readings;
        g->readings = r->next;
        free_reading(r);
        free(r);
    }
}
