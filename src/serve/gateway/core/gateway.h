/* gateway: the HTTP side of a server: routes and their access control, OpenAI's API, limits, tasks,
 * webhooks, the web page.
 *
 * A request that workers answer has one part for each prompt, which is a job of the broker, and n
 * choices for each part, which are sequences of an engine. Events of the broker are added to the
 * choices, and streamed or collected. A request whose broker link is lost is submitted again.
 *
 * This header has the records that all files share, and what is below the routes: requests in
 * flight (gateway_request.c), models, bodies. Replies are in gateway_reply.h, tasks in
 * gateway_tasks.h, OpenAI's API in openai.h, routes and their access control in gateway_routes.h,
 * the process in gateway.c.
 *
 * Types: by__gateway; by__gateway_request, by__gateway_part and by__gateway_choice;
 * by__gateway_request_form, the functions of a kind of request; by__gateway_waiter, anything that
 * waits at a connection.
 *
 * Who owns what: the gateway owns requests from by__gateway_request_start on; a connection belongs
 * to the server (http_server.h), and its user pointer is the waiter. Everything is used by one
 * loop, except for large requests and answers, which another thread parses or prints alone
 * (gateway_read.h).
 *
 * Never put here: the engine, queues of requests, what a model computes.
 */
#ifndef BY_SERVE_GATEWAY_CORE_GATEWAY_H
#define BY_SERVE_GATEWAY_CORE_GATEWAY_H

#include "serve/base/id_table.h"
#include "serve/features/features.h"
#include "serve/gateway/core/gateway_trace.h"
#include "serve/gateway/core/keys.h"
#include "serve/gateway/core/limits.h"
#include "serve/http/http_server.h"
#include "serve/link/broker_link.h"
#include "serve/link/core/event_queue.h"
#include "serve/telemetry/log.h"
#include "serve/telemetry/metrics_vllm.h"

/* Limits on the prompts of one request, and on the sequences of each. */
#define BY__MAX_PARTS 16
#define BY__MAX_N     8

/* Most bytes of a model's name in a query. */
#define BY__MAX_NAME 255

/* Digits of a gateway's tag. */
#define BY__TAG 8

/* Size of a text that names a place in a request, "messages[3].content". */
#define BY__PLACE_BYTES 64

/* Size in bytes from which an answer is parsed and printed on another thread; smaller ones take the
 * loop less than a millisecond. */
#define BY__LARGE ((size_t)64 << 10)

/* Whatever waits for an answer at a connection (its user pointer); the first member of its
 * record. */
typedef struct by__gateway_waiter {
    void (*disconnected)(struct by__gateway_waiter *waiter); /* the client has disconnected */
} by__gateway_waiter;

typedef struct by__gateway {
    by_gateway_options options;
    const struct by__gateway_request_form *const
        *forms; /* that it answers, before a NULL; NULL: none */
    by__telemetry_log log;
    uv_loop_t loop;
    uv_timer_t drain;
    uv_timer_t tick;  /* periodic check for expired requests */
    uv_work_t saving; /* saves the quotas outside of the loop */
    char *saved;      /* the text that is being written; NULL: no write is in progress */
    by_error failure; /* the error that ends the process */
    by_error unsaved; /* why the last save failed */
    by__http_server *server;
    by__http_addresses *addresses; /* NULL: addresses are not counted */
    by__link_broker broker;
    by__link_event_queue events;             /* events of the broker that are not handled yet */
    by_string frame;                         /* scratch for the frame of a stream */
    by__gateway_keys *keys;                  /* NULL: no keys are required */
    uv_fs_poll_t key_file;                   /* detects that the file has changed */
    by__gateway_client anyone;               /* the client used where no key is required */
    by__gateway_limits *limits;              /* NULL: no limits */
    struct by__gateway_payload_log *payload; /* NULL: not kept, as for the next member */
    struct by__gateway_feedback *feedback;
    struct by__gateway_webhooks *webhooks; /* NULL: not sent */
    by__features *features;                /* NULL: no feature store */
    by__gateway_tracing tracing;
    by__serve_id_table parts;
    struct by__gateway_request *requests; /* requests that have not ended */
    struct by__gateway_ask *asks;         /* questions about tasks in flight */
    struct by__gateway_admin_ask *admin;  /* questions of operators in flight */
    struct by__gateway_watch *watches;    /* clients that follow a task */
    struct by__gateway_reading *readings; /* large requests that wait to be read, oldest first */
    size_t readers;                       /* of large requests, on other threads */
    size_t reading_bytes;                 /* of bodies that are read, or wait for it */
    bool reads_smallest;                  /* the last one was the smallest, not the oldest */
    uv_timer_t watching;
    uint64_t next_ref;
    by__telemetry_metrics metrics;
    by__telemetry_model_metrics *models; /* metrics of models that have been requested */
    double last_message_at; /* by__now of the last message of the broker, or of connecting to it */
    json_t *state;          /* the broker's last state */
    double state_at;        /* by__now of it */
    char id[BY__ID_BYTES];
    /* The first of the random digits of its answers' ids: another gateway that is given feedback on
     * one passes it to this one. */
    char tag[BY__TAG + 1];
    unsigned links; /* to the broker so far */
    bool draining;
} by__gateway;

typedef enum by__gateway_request_kind {
    BY__REQUEST_COMPLETION,
    BY__REQUEST_CHAT,
    BY__REQUEST_RESPONSE,
    BY__REQUEST_EMBEDDINGS,
    BY__REQUEST_PREDICT
} by__gateway_request_kind;

/* How a kind of request is read and answered: one table of functions per route. For requests that
 * never stream, `first`, `text`, `stop`, `end` and `fail` are NULL. */
typedef struct by__gateway_request_form {
    const char *name;   /* name of the kind in tasks */
    const char *route;  /* path of the route */
    const char *prefix; /* prefix of ids */
    by__gateway_request_kind kind;
    bool any_type; /* any content type is accepted, not JSON alone */
    bool keeps;    /* text is kept even if it is streamed */
    /* Reads an HTTP request into one that has a connection, a key and an id. BY_EARG: a sentence
     * for the client; *param as by__serve_fields_read sets it, or the request's `place`. */
    by_status (*read)(struct by__gateway_request *request, const by__http_request *http,
                      const char **param, by_error *error);
    /* Starts a request that was read; NULL: by__gateway_request_start. */
    void (*start)(struct by__gateway_request *request);
    /* Append frames of a stream to `out`: the first ones of a choice, text, the end of a choice,
     * the last ones, and an error. */
    void (*first)(struct by__gateway_request *request, size_t choice, by_string *out);
    void (*text)(struct by__gateway_request *request, size_t choice, const char *text,
                 size_t length, const json_t *logprobs, by_string *out);
    void (*stop)(struct by__gateway_request *request, size_t choice, const char *reason,
                 by_string *out);
    void (*end)(struct by__gateway_request *request, by_string *out);
    void (*fail)(struct by__gateway_request *request, int status, const char *code,
                 const char *param, const char *message, by_string *out);
    /* Prints the whole answer of a request without a stream. */
    void (*answer)(struct by__gateway_request *request, by_string *out);
    bool apart; /* `answer` only reads the request, and so may run on any thread */
} by__gateway_request_form;

/* A sequence of an answer. */
typedef struct by__gateway_choice {
    by_string text;   /* the text so far, of an answer without a stream */
    json_t *logprobs; /* the same of log-probabilities */
    char reason[16];  /* "": not finished */
    size_t echo;      /* leading bytes of the text that are the prompt; known at its end */
    double score;     /* the mean log-probability of its tokens, if requested */
    size_t shown;     /* bytes of the text in the stream, of one that has calls of functions */
    size_t sent;      /* pieces of text sent to the client, including empty ones */
    size_t replayed;  /* pieces of these that were generated again after a worker was lost */
} by__gateway_choice;

/* One prompt of a request, which the broker sees as a request of its own. */
typedef struct by__gateway_part {
    by__serve_id_entry entry;
    struct by__gateway_request *request;
    json_t *message; /* the message as it was submitted, kept to submit it again */
    json_t *text;    /* of a large request, its text until it is submitted; NULL: none */
    int64_t prompt_tokens;
    int64_t guess; /* of the prompt's tokens, from its bytes */
    int64_t generated;
    bool listed;      /* it is in the gateway's table of ids */
    bool submitted;   /* it was sent to the broker */
    bool reading;     /* another thread is parsing its whole answer */
    char version[65]; /* version of the model that answers; "": not known yet */
    char run[256];    /* the run that it is of; "": not known */
    bool done;
} by__gateway_part;

/* An HTTP request that workers answer. */
typedef struct by__gateway_request {
    by__gateway_waiter waiter;
    by__gateway *gateway;
    by__http_connection *connection;
    struct by__gateway_request *next;
    struct by__gateway_request *previous;
    const by__gateway_request_form *form;
    char id[BY__ID_BYTES];
    char *model;
    const char *key;                     /* name of the client's key; "": none */
    int64_t created;                     /* seconds since 1970 */
    double since;                        /* by__now at its arrival */
    double last_text;                    /* by__now of the last text; 0: none yet */
    by__telemetry_model_metrics *counts; /* metrics of its model; NULL: the model is not known */
    bool queued;                         /* no worker has accepted it yet */
    bool stream;
    bool usage; /* the last chunk of a stream includes usage */
    bool logprobs;
    bool gathers;  /* the text of a stream is kept for its end */
    bool recorded; /* it is recorded in the payload log: the text of a stream is gathered too */
    int64_t top;   /* number of most probable tokens reported for each token */
    bool began;    /* the head of the stream has been sent */
    double last_sent_at;         /* by__now when something was last sent to the stream */
    json_t *own;                 /* owned by the form; NULL: none */
    char place[BY__PLACE_BYTES]; /* where *param of `read` may point to; "" otherwise */
    const json_t *state;         /* the broker's, while the request is read; NULL: unknown */
    bool fetches;                /* its rows are fetched for the entities in `own` when it starts */
    by__feature_fetch *fetch;    /* the fetch in progress; NULL: none */
    json_t *whole;               /* "result" of a worker's last event */
    bool large;                  /* the result was parsed on another thread */
    uint64_t frames;             /* counter used by the form */
    uint64_t skipped;            /* leading events of a stream that the client has */
    by_string head; /* common beginning of the stream's frames, where the form keeps one */
    size_t part_count;
    size_t n;
    by__gateway_part *parts;     /* [part_count] */
    by__gateway_choice *choices; /* [part_count * n] */
} by__gateway_request;

/* Seconds without output after which a stream gets a comment, which clients ignore. */
#define BY__QUIET        15.0
#define BY__WAIT_COMMENT ": wait\n\n"

/* ---- a request in flight (gateway_request.c; its record: gateway_request_record.c) ---- */

/* Creates a request with an id, without a connection. Freed with by__gateway_request_free. */
by_status by__gateway_request_open(by__gateway_request **out, by__gateway *gateway,
                                   const by__gateway_request_form *form, const char *key,
                                   by_error *error);
/* Creates the only part of a request whose answer is not streamed from the request for a worker,
 * which is taken (NULL: memory was exhausted). length: of the body, by which its tokens are
 * estimated. */
by_status by__gateway_request_one_part(by__gateway_request *request, const char *model,
                                       json_t *wanted, size_t length, int64_t priority,
                                       by_error *error);
/* Makes the text for a worker of a request whose body had `length` bytes, if that is large.
 * BY_EARG: it does not fit into a message: numbers and images take more bytes there than in the
 * body. */
by_status by__gateway_request_encode(by__gateway_request *request, size_t length, by_error *error);
/* Sends all parts to the broker. The gateway takes ownership; the request ends by itself. */
void by__gateway_request_start(by__gateway_request *request);
/* The form of a route, or of a task's kind, that this gateway answers; NULL: there is none. */
const by__gateway_request_form *by__gateway_form_of_route(const by__gateway *g, const char *route);
const by__gateway_request_form *by__gateway_form_named(const by__gateway *g, const char *name);
/* Of a request that has ended, keeps for each prompt the sequences with the highest score: as many
 * as request->own says, if it says so; among equals the first ones. */
void by__gateway_request_choose_best(by__gateway_request *request);
/* Frees a request and everything that it holds. */
void by__gateway_request_free(by__gateway_request *request);
/* Handles an event of the broker. */
void by__gateway_request_event(by__gateway *g, const by__serve_event *event);
/* Handles an event other than a piece of text, given its JSON. */
void by__gateway_request_read(by__gateway *g, const by__serve_event *event, const json_t *json);
/* The client has disconnected. */
void by__gateway_request_gone(by__gateway_waiter *waiter);
/* Ends requests that are well past their deadline, which broker and worker enforce as long as they
 * live. */
void by__gateway_requests_expire(by__gateway *g);
/* Sends BY__WAIT_COMMENT to streams that have begun and have been silent for BY__QUIET seconds:
 * while a worker reads a long prompt, proxies must not close the connection. */
void by__gateway_requests_comment(by__gateway *g);
/* The broker is connected again: submits all requests that have not ended once more. */
void by__gateway_requests_again(by__gateway *g);
/* Parses a large event, or prints a large answer (whose request has left the gateway, and is freed
 * afterwards), on another thread. Returns false if it is not large or no thread is available: the
 * caller then does the work. */
bool by__gateway_large_read(by__gateway *g, const by__serve_event *event);
bool by__gateway_large_print(by__gateway_request *request);

/* ---- models (gateway_models.c) ---- */

/* A model's object in the broker's state; NULL: no worker has named the model. */
const json_t *by__gateway_model(const by__gateway *g, const char *name);
/* The same in a state of the broker, which may be NULL. */
const json_t *by__gateway_model_state(const json_t *state, const char *name);
/* The broker's current state; NULL: it is unreachable or silent, so that its last state may be
 * wrong. */
const json_t *by__gateway_state(const by__gateway *g);
/* The metrics of a model; NULL: no worker has named it, since clients must not create metrics. */
by__telemetry_model_metrics *by__gateway_counts(by__gateway *g, const char *name);

/* The value of "model" in a query; a new reference. NULL: there is none, or it is too long. */
json_t *by__gateway_query_model(const char *query);

/* ---- bodies (json_body.c) ---- */

/* Parses JSON. BY_EARG: it is malformed, nested too deep, or has too many values. */
by_status by__gateway_body_parse(json_t **out, const char *body, size_t length, by_error *error);

#endif
