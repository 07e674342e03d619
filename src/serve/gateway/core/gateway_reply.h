/* gateway_reply: replies to requests, and the record of one, from which the logs, the
 * limits and the trace are told what became of it.
 *
 * Who owns what: the record belongs to gateway_routes.c, which makes it at the head of a request
 * and frees it at the end.
 *
 * Never put here: what a route does. */
#ifndef BY_SERVE_GATEWAY_CORE_GATEWAY_REPLY_H
#define BY_SERVE_GATEWAY_CORE_GATEWAY_REPLY_H

#include "serve/gateway/core/gateway.h"

/* Answers a request, at once or later. key: the name of the client's key, "" for none. */
typedef void by__gateway_route_answer(by__gateway *g, by__http_connection *x,
                                      const by__http_request *r, const char *key);

/* State of a request from its head to its end, for the logs. */
typedef struct by__gateway_request_log {
    const struct by__gateway_route *route; /* NULL: no route matches its method and path */
    const by__gateway_client *client;
    double since;
    int64_t charged; /* estimated tokens */
    int64_t used;
    by__gateway_request_trace trace;
    json_t *details; /* members that the answer adds to the log entry; NULL: none */
    char code[40];   /* of the error that is answered; "": none */
    char id[65];
    char method[16];
    char path[];
} by__gateway_request_log;

/* ---- answers ---- */

/* Replies with an error of OpenAI's API: {"error": {"message", "type", "param", "code"}}. A 503
 * gets the header Retry-After: 1, unless it has one already. */
void by__gateway_reply_error(by__gateway *g, by__http_connection *x, int status, const char *code,
                             const char *param, const char *message);
/* Prints {"error": ...} as one object. */
void by__gateway_openai_error(by_string *out, int status, const char *code, const char *param,
                              const char *message);
/* Appends the message of a 404: the model that was requested, and those that are served, up to a
 * bound. */
void by__gateway_no_model_text(const by__gateway *g, const char *name, by_string *out);
void by__gateway_reply_no_model(by__gateway *g, by__http_connection *x, const char *name);
/* Replies to a request that could not be read: 400 if the client is at fault (BY_EARG, BY_EFORMAT),
 * else 503. */
void by__gateway_reply_refused(by__gateway *g, by__http_connection *x, by_status status,
                               const char *param, const by_error *error);
/* Returns false, after replying, if the Content-Type of a request is not JSON. A page of another
 * site cannot send that type without a CORS preflight. */
bool by__gateway_takes_json(by__gateway *g, by__http_connection *x, const by__http_request *r);
/* Adds the header Retry-After in whole seconds; none for 0. */
void by__gateway_retry_after(by__http_connection *x, double seconds);
/* Replies with a JSON text, which is taken; if its memory was exhausted, with an error. */
void by__gateway_reply_text(by__gateway *g, by__http_connection *x, int status, by_string *json);
/* Replies with a JSON value, which is taken; NULL: memory is exhausted. */
void by__gateway_reply_json(by__gateway *g, by__http_connection *x, int status, json_t *value);

/* ---- the record of a request ---- */

/* Charges an estimated number of tokens to the client of a connection. Returns false, after
 * replying, if its limits do not allow that. */
bool by__gateway_charge(by__gateway *g, by__http_connection *x, int64_t tokens);
/* Charges the client of a connection, whose record is `record`, for `requests` and `tokens`.
 * Returns false, after replying, if its limits do not allow that. */
bool by__gateway_charge_record(by__gateway *g, by__http_connection *x,
                               const by__gateway_request_log *record, double requests,
                               double tokens);
/* Name of the key of a connection's client; "": none. */
const char *by__gateway_key(by__http_connection *x);
/* Corrects the charge to the tokens that were used, when the request ends. Without this call the
 * charge stays as it is. */
void by__gateway_used(by__http_connection *x, int64_t tokens);
/* Records in the trace that one prompt of a request, submitted at `since` (by__now), was
 * answered; timing: a worker's. */
void by__gateway_part_ended(by__gateway *g, by__http_connection *x, double since,
                            const json_t *timing);
/* Adds a span to the trace of a request, from `begin` to `end` (by__now). */
void by__gateway_span(by__gateway *g, by__http_connection *x, const char *name, double begin,
                      double end);
/* The trace of a request if it is sampled, by its caller or for an export; else NULL. */
const char *by__gateway_trace(const by__gateway *g, by__http_connection *x);
/* Adds {"name": value, ...} to the access log's line of a request, once. Takes the object. */
void by__gateway_detail(by__http_connection *x, json_t *details);

#endif
