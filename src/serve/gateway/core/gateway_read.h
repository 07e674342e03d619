/* gateway_read: reads requests: at once, or, if a body is large, on a thread of libuv's pool, so
 * that the loop can serve others meanwhile.
 *
 * A few large bodies are read at a time, in turn the oldest and the smallest of those that wait.
 * The bytes of all of them are bounded. A request for a model that is not served is refused before
 * its body is parsed as a whole.
 *
 * Who owns what: a reading belongs to this file from by__gateway_read on; `answer` takes
 * from it what it needs.
 *
 * Never put here: what a body means. */
#ifndef BY_SERVE_GATEWAY_CORE_GATEWAY_READ_H
#define BY_SERVE_GATEWAY_CORE_GATEWAY_READ_H

#include "serve/gateway/core/gateway.h"

typedef struct by__gateway_reading by__gateway_reading;

/* How a route reads its requests. */
typedef struct by__gateway_read_kind {
    /* Reads the request, on any thread: uses nothing of the gateway but its constants, and no
     * connection. Returns what `status` becomes. */
    by_status (*read)(by__gateway_reading *reading);
    /* Answers, or refuses if `status` is an error; on the loop, with a connection. */
    void (*answer)(by__gateway_reading *reading);
} by__gateway_read_kind;

struct by__gateway_reading {
    by__gateway_waiter waiter;
    const by__gateway_read_kind *kind;
    by__gateway *gateway;
    by__http_connection *connection; /* NULL: the client has disconnected */
    by__http_request http;
    const char *key;
    char trace[33];      /* by__gateway_trace; "": none */
    const json_t *state; /* the broker's last one; NULL: there was none */
    bool knows;          /* it is current, and complete */
    double since;
    /* Results: */
    by_status status;
    by_error error;
    const char *param;
    char *unknown;                /* the model that was asked for and is not served; NULL: it is */
    by__gateway_request *request; /* freed with the reading, if it is still here */
    json_t *message;              /* the same */
    char place[BY__PLACE_BYTES];
    /* Of a large one: */
    uv_work_t work;
    by__gateway_reading *next;
    char *copy;   /* what `http` points to */
    size_t bytes; /* of its body */
};

/* Reads a request and answers it, now or later. */
void by__gateway_read(by__gateway *g, by__http_connection *x, const by__http_request *request,
                      const char *key, const by__gateway_read_kind *kind);
/* Frees the readings that have not begun. */
void by__gateway_readings_close(by__gateway *g);
/* Sets `unknown` if a model is surely not served. Returns whether it did. */
bool by__gateway_reading_knows_not(by__gateway_reading *reading, const char *model);

#endif
