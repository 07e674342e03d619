/* The gateway's own records, for gateway.c (the process), gateway_routes.c (routes, and who may use
 * them), gateway_call.c (a request on its way) and openai.c (what OpenAI's API asks and answers).
 */
#ifndef BY_SERVE_GATEWAY_H
#define BY_SERVE_GATEWAY_H

#include "serve/features/features.h"
#include "serve/gateway/gateway_trace.h"
#include "serve/gateway/keys.h"
#include "serve/gateway/limits.h"
#include "serve/http/http_server.h"
#include "serve/id_table.h"
#include "serve/link/broker_link.h"
#include "serve/link/event_queue.h"
#include "serve/observe/log.h"
#include "serve/observe/metrics_vllm.h"

/* Prompts of one request, and sequences of each, at most. */
#define BY__MOST_PARTS 16
#define BY__MOST_N     8

/* Bytes of an answer from which another thread reads and prints it; what is shorter takes the loop
 * less than a millisecond. */
#define BY__LARGE ((size_t)64 << 10)

/* What waits for an answer at an exchange (its user pointer): the first member of its record. */
typedef struct by__waiter {
    void (*gone)(struct by__waiter *waiter); /* the client is */
} by__waiter;

typedef struct by__gateway {
    by_gateway_options options;
    by__log log;
    uv_loop_t loop;
    uv_timer_t drain;
    uv_timer_t tick;  /* looks for what has waited too long */
    uv_work_t saving; /* of quotas, outside of the loop */
    char *saved;      /* the text that is being written; NULL: nothing is */
    by_error failure; /* that ends the process */
    by_error unsaved; /* why the last one could not be */
    by__http_server *server;
    by__addresses *addresses; /* NULL: nothing is counted */
    by__broker_link broker;
    by__event_queue events;          /* of the broker, that wait for their turn */
    by__text frame;                  /* of a stream, while it is made */
    by__keys *keys;                  /* NULL: none is asked for */
    uv_fs_poll_t key_file;           /* sees that it is another one */
    by__client anyone;               /* who needs no key */
    by__limits *limits;              /* NULL: there are none */
    struct by__payload_log *payload; /* NULL: none is kept; so is */
    struct by__feedback *feedback;
    struct by__webhooks *webhooks; /* NULL: none are sent */
    by__features *features;        /* NULL: there is no store of them */
    by__gateway_tracing tracing;
    by__id_table parts;
    struct by__call *calls;      /* without an end */
    struct by__ask *asks;        /* questions about tasks */
    struct by__admin_ask *admin; /* of operators */
    struct by__watch *watches;   /* clients that follow a task */
    uv_timer_t watching;
    uint64_t asked;
    by__metrics metrics;
    by__model_metrics *models; /* of those that have been asked for */
    double heard;  /* by__now when the broker last said something, or was connected to */
    json_t *state; /* of the broker, the last one */
    double stated; /* by__now of it */
    char id[BY__ID_BYTES];
    bool draining;
} by__gateway;

typedef enum by__call_kind {
    BY__CALL_COMPLETION,
    BY__CALL_CHAT,
    BY__CALL_RESPONSE,
    BY__CALL_EMBEDDINGS,
    BY__CALL_PREDICT
} by__call_kind;

/* What a kind of request asks and answers: one table a route. Of calls that never stream, `first`,
 * `text`, `stop`, `end` and `fail` are NULL. */
typedef struct by__call_form {
    const char *name;   /* of the kind, in tasks */
    const char *route;  /* path of its own */
    const char *prefix; /* of ids */
    by__call_kind kind;
    bool any_type; /* of content, not JSON alone */
    bool keeps;    /* text is kept even where it is sent */
    /* Reads a request into a call that has an exchange, a key and an id. BY_EARG: a sentence for
     * the client; *param as by__fields_read gives it. */
    by_status (*read)(struct by__call *call, const by__http_request *request, const char **param,
                      by_error *error);
    /* Takes a call that was read; NULL: by__call_start. */
    void (*start)(struct by__call *call);
    /* Frames of a stream: the first ones of a choice, text, the end of a choice, the last ones, and
     * those that tell an error. */
    void (*first)(struct by__call *call, size_t choice, by__text *out);
    void (*text)(struct by__call *call, size_t choice, const char *text, size_t length,
                 const json_t *logprobs, by__text *out);
    void (*stop)(struct by__call *call, size_t choice, const char *reason, by__text *out);
    void (*end)(struct by__call *call, by__text *out);
    void (*fail)(struct by__call *call, int status, const char *code, const char *param,
                 const char *message, by__text *out);
    /* The whole answer of a call without a stream. */
    void (*answer)(struct by__call *call, by__text *out);
    bool apart; /* `answer` reads the call alone, and so may run on any thread */
} by__call_form;

/* A sequence of an answer. */
typedef struct by__choice {
    by__text text;    /* so far, of an answer without a stream */
    json_t *logprobs; /* the same */
    char reason[16];  /* "": it goes on */
    size_t echo;      /* bytes of the text that are the prompt; known at its end */
    double score;     /* the mean log-probability of its tokens, where it is asked for */
    size_t sent;      /* pieces of text that the client has; some of them are empty */
    size_t passed;    /* of them, those that have come again behind a lost worker */
} by__choice;

/* One prompt of a request: what the broker knows. */
typedef struct by__part {
    by__id_entry entry;
    struct by__call *call;
    json_t *message; /* as it was submitted, to submit it again */
    int64_t prompt_tokens;
    int64_t generated;
    bool listed;      /* by its id, in the gateway's table */
    bool submitted;   /* the broker may have it */
    bool reading;     /* another thread reads its whole answer */
    char version[65]; /* of the model that answers; "": not known yet */
    bool done;
} by__part;

/* A request of HTTP that workers answer. */
typedef struct by__call {
    by__waiter waiter;
    by__gateway *gateway;
    by__exchange *exchange;
    struct by__call *next;
    struct by__call *previous;
    const by__call_form *form;
    char id[BY__ID_BYTES];
    char *model;
    const char *key;           /* its name, "" for none */
    int64_t created;           /* seconds since 1970 */
    double since;              /* by__now when it came */
    double last_text;          /* by__now of the last text; 0: none yet */
    by__model_metrics *counts; /* of its model; NULL: of none that is known */
    bool queued;               /* no worker has accepted it yet */
    bool stream;
    bool usage; /* a last chunk of a stream says it */
    bool logprobs;
    bool kept;    /* it goes into the payload log: texts of streams are gathered too */
    int64_t top;  /* most probable tokens that are told of each */
    bool began;   /* the stream's head is out */
    json_t *own;  /* what the form keeps; NULL: nothing */
    bool fetches; /* its rows are those of entities, in `own`, and are fetched when it starts */
    by__feature_fetch *fetch; /* on its way; NULL: none */
    json_t *whole;            /* "result" of a worker's event */
    bool large;               /* that was read on another thread */
    uint64_t frames;          /* that the form has counted */
    by__text head;            /* of each frame of a stream, where the form keeps one */
    size_t part_count;
    size_t n;
    by__part *parts;     /* [part_count] */
    by__choice *choices; /* [part_count * n] */
} by__call;

/* ---- a request on its way (gateway_call.c; its form: gateway_forms.c) ---- */

/* A new call with an id; it has no exchange yet. Freed with by__call_free. */
by_status by__call_open(by__call **out, by__gateway *gateway, const by__call_form *form,
                        const char *key, by_error *error);
/* BY_EARG: the request of a body of `length` bytes does not fit a message to a worker: numbers and
 * images take more bytes there than in the body. */
by_status by__call_check(const by__call *call, size_t length, by_error *error);
/* Sends all parts to the broker. The call is the gateway's, and ends by itself. */
void by__call_start(by__call *call);
/* The form of a route, or of a task's kind; NULL: there is none. */
const by__call_form *by__form_of_route(const char *route);
const by__call_form *by__form_named(const char *name);
/* Of a call that has ended, keeps those sequences of each prompt whose score is the highest: as
 * many as call->own says, where it says so; among equals the first ones. */
void by__call_keep_best(by__call *call);
/* Frees a call and what it holds. */
void by__call_free(by__call *call);
/* An event of the broker. */
void by__call_event(by__gateway *g, const by__event *event);
/* One that is more than a piece of text, with its JSON. */
void by__call_read(by__gateway *g, const by__event *event, const json_t *json);
/* The client is gone. */
void by__call_gone(by__waiter *waiter);
/* Ends what is far behind its deadline, which broker and worker keep while they live. */
void by__calls_expire(by__gateway *g);
/* The broker is back: what has no end is asked for again. */
void by__calls_again(by__gateway *g);
/* Reads a large event, or prints a large answer (whose call has left the gateway, and is freed
 * behind that), on another thread. False: it is not large, or cannot be: the caller does it. */
bool by__large_read(by__gateway *g, const by__event *event);
bool by__large_print(by__call *call);
/* What the broker's state says of a model; NULL for one that no worker has named. */
const json_t *by__gateway_model(const by__gateway *g, const char *name);
/* The error of OpenAI's API: {"error": {"message", "type", "param", "code"}}. */
void by__reply_error(by__gateway *g, by__exchange *x, int status, const char *code,
                     const char *param, const char *message);
/* Names the model that was asked for and those that are served, up to a bound; as a 404. */
void by__no_model_text(const by__gateway *g, const char *name, by__text *out);
void by__reply_no_model(by__gateway *g, by__exchange *x, const char *name);
/* Of a request that could not be read: 400 for what its client has done (BY_EARG, BY_EFORMAT), else
 * 503. */
void by__reply_refused(by__gateway *g, by__exchange *x, by_status status, const char *param,
                       const by_error *error);
/* False: the body of a request is no JSON by its Content-Type, and the client was told. No page of
 * another site can send that type without being asked about it (CORS). */
bool by__gateway_takes_json(by__gateway *g, by__exchange *x, const by__http_request *r);

/* The header Retry-After in whole seconds; none for 0. */
void by__gateway_retry_after(by__exchange *x, double seconds);
/* Answers with a JSON text, which is taken; where its memory was exhausted the client is told. */
void by__reply_text(by__gateway *g, by__exchange *x, int status, by__text *json);
/* The same of a value, which is taken; NULL: memory is exhausted. */
void by__reply_json(by__gateway *g, by__exchange *x, int status, json_t *value);

/* Takes tokens from what the client of an exchange may use, by guess. False: it may not, and was
 * answered. */
bool by__gateway_charge(by__gateway *g, by__exchange *x, int64_t tokens);
/* So many were needed: what is left of those goes back when the exchange ends, and what is lacking is
 * taken. Without this call the guess was right. */
void by__gateway_used(by__exchange *x, int64_t tokens);
/* One prompt of an exchange, which was submitted at `since` (by__now), has its answer; timing: a
 * worker's. */
void by__gateway_part_ended(by__gateway *g, by__exchange *x, double since, const json_t *timing);
/* A part of an exchange in its trace, from `begin` to `end` (by__now). */
void by__gateway_span(by__gateway *g, by__exchange *x, const char *name, double begin, double end);
/* The trace of an exchange where it is sampled, by its caller or for an export; else NULL. */
const char *by__gateway_trace(const by__gateway *g, by__exchange *x);
/* Adds {"name": value, ...} to the access log's line of an exchange, once. Takes the object. */
void by__gateway_detail(by__exchange *x, json_t *details);

/* ---- tasks (gateway_tasks.c) ---- */

/* The message that keeps a call of one part as a task, for `expires` seconds; webhook: a URL that
 * is told its end, NULL for none. */
json_t *by__task_message(const by__call *call, const char *id, const char *idempotency,
                         const char *webhook, double expires);
/* Shows a client a task that the broker has, as by__tasks_get gives it. */
typedef void by__task_show(by__gateway *g, by__exchange *x, const json_t *row);
/* Asks the broker about a task; the exchange is answered when it has. Takes the message. what: the
 * name of what is asked for, where there is none. */
void by__task_ask(by__gateway *g, by__exchange *x, by__task_show *show, const char *what,
                  json_t *message);
/* The answer that the request of a task would have had at its own route. */
json_t *by__task_result(const json_t *task, const json_t *result);
/* The broker's answer, and its end: what has not been answered fails. */
void by__task_answer(by__gateway *g, const json_t *message);
void by__tasks_lost(by__gateway *g);
/* What clients see of a task as the broker gives it; a new reference. */
json_t *by__task_view(const json_t *row);
/* Follows the task `id` (gateway_task_events.c). */
void by__answer_task_events(by__gateway *g, by__exchange *x, const by__http_request *r,
                            const char *id, const char *key);
/* The broker's answer to a question of that file. */
void by__watch_answer(by__gateway *g, const json_t *message);

/* ---- OpenAI's API (openai.c) ---- */

extern const by__call_form by__completion_form;
extern const by__call_form by__chat_form;
/* The JSON of a body. BY_EARG: it is none, or nested too deep. */
by_status by__openai_parse(json_t **out, const char *body, size_t length, by_error *error);
/* Reads the body of a completion, or (another kind) of a chat, of about `length` bytes. */
by_status by__openai_read(by__call *call, const json_t *body, size_t length, const char **param,
                          by_error *error);
/* Fields that say what the text of an answer is held to; each may be NULL. */
typedef struct by__openai_forms {
    const json_t *response;                           /* OpenAI's response_format */
    const json_t *json, *regex, *choice, *structured; /* vLLM's guided_..., structured_outputs */
} by__openai_forms;
/* The "format" that a worker reads, NULL for none (openai_format.c). BY_EARG: more than one is
 * given, or it is wrong; *param names it. */
by_status by__openai_format(json_t **out, const by__openai_forms *forms, const char **param,
                            by_error *error);
/* Log-probabilities of tokens (openai_logprobs.c) as chats tell them, a list; as completions do, an
 * object, with the most probable ones where `tops`. */
void by__openai_tokens(const json_t *list, by__text *out);
void by__openai_places(const json_t *list, bool tops, by__text *out);
/* Makes the one part of a call whose answer comes whole, with the request that a worker reads,
 * which is taken. cost: tokens, by guess. */
by_status by__call_one_part(by__call *call, json_t *request, int64_t cost, int64_t priority,
                            by_error *error);

/* ---- other routes (openai_embeddings.c, openai_responses.c, predict_api.c) ---- */

extern const by__call_form by__embeddings_form;
extern const by__call_form by__response_form;
extern const by__call_form by__predict_form;

/* {"error": ...} as one object. */
void by__openai_error(by__text *out, int status, const char *code, const char *param,
                      const char *message);

#endif
