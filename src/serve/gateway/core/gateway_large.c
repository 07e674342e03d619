/* Parses and prints answers of many kilobytes on threads of libuv's pool, so that the loop can
 * serve its streams meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/gateway_reply.h"

/* Approximate bytes of a token with its log-probability in an answer. */
#define TOKEN 100

/* ---- reading ---- */

typedef struct large_event {
    uv_work_t work;
    by__gateway *gateway;
    by__serve_event event; /* within `list` */
    json_t *json;
    char list[];
} large_event;

static void read_event(uv_work_t *work)
{
    large_event *r = work->data;
    r->json = by__protocol_event_json(&r->event);
}

/* The request may have ended: its part is looked up by its id, as for any event. */
static void on_read(uv_work_t *work, int status)
{
    large_event *r = work->data;
    BY_UNUSED(status);
    by__gateway_request_read(r->gateway, &r->event, r->json);
    json_decref(r->json);
    free(r);
}

bool by__gateway_large_read(by__gateway *g, const by__serve_event *event)
{
    size_t at = 0;
    large_event *r = event->length < BY__LARGE ? NULL : malloc(sizeof *r + event->size);
    if (r == NULL) {
        return false;
    }
    *r = (large_event){.gateway = g};
    r->work.data = r;
    memcpy(r->list, event->record, event->size);
    if (!by__protocol_events_next(r->list, event->size, &at, &r->event) ||
        uv_queue_work(&g->loop, &r->work, read_event, on_read) < 0) {
        free(r);
        return false;
    }
    g->metrics.apart++;
    return true;
}

/* ---- printing ---- */

typedef struct printing {
    by__gateway_waiter waiter; /* replaces the request as the connection's user */
    uv_work_t work;
    by__gateway_request *request;
    by__http_connection *connection; /* NULL: the client has disconnected */
    by_string out;
} printing;

static void on_disconnect(by__gateway_waiter *waiter)
{
    ((printing *)(void *)waiter)->connection = NULL;
}

static void print(uv_work_t *work)
{
    printing *p = work->data;
    p->request->form->answer(p->request, &p->out);
}

static void on_printed(uv_work_t *work, int status)
{
    printing *p = work->data;
    BY_UNUSED(status);
    if (p->connection != NULL) {
        by__gateway_reply_text(p->request->gateway, p->connection, 200, &p->out);
    }
    by_string_free(&p->out);
    by__gateway_request_free(p->request);
    free(p);
}

static bool is_large(const by__gateway_request *request)
{
    size_t bytes = request->large ? BY__LARGE : 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        bytes += request->choices[i].text.length;
    }
    for (size_t i = 0; i < request->part_count && request->logprobs; i++) {
        tokens += request->parts[i].generated;
    }
    return bytes + (size_t)tokens * (size_t)(1 + request->top) * TOKEN >= BY__LARGE;
}

bool by__gateway_large_print(by__gateway_request *request)
{
    printing *p = request->form->apart && is_large(request) ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        return false;
    }
    *p = (printing){
        .waiter = {on_disconnect}, .request = request, .connection = request->connection};
    p->work.data = p;
    if (uv_queue_work(&request->gateway->loop, &p->work, print, on_printed) < 0) {
        free(p);
        return false;
    }
    by__http_connection_set(request->connection, &p->waiter);
    request->gateway->metrics.apart++;
    return true;
}
