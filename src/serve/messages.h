/* What gateways, workers and the broker tell each other: JSON objects whose "t" says which.
 *
 * To the broker, first: {"t": "hello", "role": "gateway" | "worker" | "supervisor", "name": ID,
 * "pid": N}, and of a worker that is ready for work also "model", "version", "slots" (requests that
 * it takes at a time), "sessions" (sequences that it runs at a time; "slots") and "info" (what
 * /v1/models says of the model).
 *
 * Of a gateway:
 *   submit    "id", "model", "request" (what a worker reads, worker_request.h), "cost" (tokens, by
 *             guess), and where wanted "sequences" (that follow the prompt; 1), "follows": true
 *             for the other prompts of a request whose first one came before, "left" (seconds
 *             until it is too late), "priority" (higher
 *             first), "seen": true for a model that an earlier state of the broker named; "whole":
 *             true when the client gets nothing before the end, so that another version may begin
 *             again; "version": the only one that may answer, "again": true for a request that was
 *             accepted before the link was made anew
 *   cancel    "id": nobody waits for it any more; no event follows
 *   task_add  "ref", "id", "owner", "expires", "seen", "task": a request to keep on disk ("model",
 *             "cost", "sequences", "priority", "request", "webhook": a URL told of the end, and
 *             what the gateway wants back), and perhaps "key";
 *             or, with "result", one that has ended, to keep
 *   task_get, task_cancel, task_delete   "ref", "id", "owner"
 *   task_hooks   asks for up to "most" webhooks that are due, and has them for "lease" seconds
 *   task_hook    what became of one: "id", "try", "state" ("delivered", "failed" or "pending": due
 *             again in "delay" seconds)
 * Of a worker:
 *   (events   go as lists, see event_list.h, each with the attempt that it was given)
 *   beat      every 250 ms: "steps" of the engine so far, "busy", and "engine": its statistics
 *   leaving   it takes no more work, and goes when what it has is done
 * Of a supervisor:
 *   route     "model", "versions": a list of {"version", "share" (of new requests), "shadow" (it
 *             gets copies of requests)}; versions that are not listed get nothing. "elastic": true
 *             when workers are started for requests that wait; "info" of the model, if known. The
 *             first version is the one that serves. Of several supervisors that meet at Redis one
 *             decides: while it lists two versions, and for as long as its first one has workers.
 *             "deployment", for who asks Redis: {"coming" (a version that is being deployed, or
 *             ""), "phase" of it, "previous" (what a roll-back goes to), "last" (the version of the
 *             last deployment that has ended), "outcome" and "reason" of it}, all of them texts.
 *             "restarts": {REASON: how many workers were started again}
 *   rollback  "model": to the supervisor that decides at Redis, which gets the same message
 *   submit    as of a gateway
 * Of the broker:
 *   work      to a worker: "id", "attempt", "request", "left" (0: it is never too late)
 *   cancel    to a worker: "id"
 *   (events   as lists, to a gateway or a supervisor)
 *   hooks     to a gateway, behind task_hooks: "hooks", a list as by__tasks_hooks gives it
 *   task      to a gateway: "ref", "task" as by__tasks_get gives it, or null, and perhaps "error"
 *   state     to gateways and supervisors every 250 ms: "workers" and "models", what /health, the
 *             page and autoscaling look at. Of a model at Redis: "decides": the supervisor whose
 *             route holds, "decided": whether it is still there, and its "deployment". "restarts"
 *             are those of the model's supervisor
 *
 * An event is an object with "id" and "e" (a text alone travels as a piece, event_list.h):
 *   begin     "prompt_tokens", "cached_tokens": the request is valid and was accepted; "version":
 *             of the model that answers
 *   text      "i" (of n), "text", "tokens" (how many it stands for), "logprobs" where wanted
 *   stop      "i", "reason": that sequence is complete; "score" where wanted: the mean
 *             log-probability of its tokens; "echo": bytes of its text that are the prompt
 *   end       "usage", and "timing": seconds of the worker for "prefill" and "decode"; the last one
 *   result    "result": the whole answer of a request without a stream, "usage", and "timing" with
 *             its "compute"; the last one
 *   error     "status" (of HTTP), "code", "message", "param"; the last one
 *   again     of the broker: the worker was lost, and another one begins from the beginning. The
 *             same text comes again, since it is a function of the request. */
#ifndef BY_SERVE_MESSAGES_H
#define BY_SERVE_MESSAGES_H

#include "serve/serve.h"

/* Milliseconds between two beats of a worker and between two states of the broker. */
#define BY__BEAT 250

/* The value of a key; NULL, 0, -1.0 or false where it is missing or of another kind. */
const char *by__get_text(const json_t *object, const char *key);
int64_t by__get_integer(const json_t *object, const char *key);
double by__get_number(const json_t *object, const char *key, double otherwise);
/* A shallow copy, a new reference. NULL: it is no object, or memory is exhausted, where json_copy
 * leaves members out. */
json_t *by__copy_object(const json_t *object);
/* Adds a value as JSON; flags: of jansson. Where memory is exhausted the text has failed, where
 * json_dumps leaves keys out. */
void by__text_dump(by__text *out, const json_t *value, size_t flags);

/* A new event or message; NULL when memory is exhausted. */
json_t *by__event_new(const char *id, const char *kind);
json_t *by__event_error(const char *id, int status, const char *code, const char *param,
                        const char *message);
/* True for the kinds after which nothing comes. */
bool by__event_is_last(const json_t *event);
/* Code of the error (400) of a format that the model's vocabulary cannot write. */
#define BY__UNWRITABLE "unwritable_format"
/* Whether an event is an error that the version of the model answers for, since another one may do
 * without: of status 500 or more, or BY__UNWRITABLE. */
bool by__event_is_fault(const json_t *event);

/* Why a broker does not take a request. */
typedef struct by__refusal {
    const char *why; /* "full", "wait", "late", "unknown", "starting", "broker_full" */
    int status;      /* of HTTP */
    const char *code;
    const char *param;
    const char *message;
} by__refusal;

/* NULL for a word that is none of them. */
const by__refusal *by__refusal_of(const char *why);
/* The event "error" of a refusal; seconds: after which to try again, 0 for never. */
json_t *by__event_refused(const char *id, const by__refusal *refusal, double seconds);
/* The answer "task" to "task_add" of a refusal. */
json_t *by__task_refused(const json_t *message, const by__refusal *refusal, double seconds);
/* Seconds to tell a client, when what waits begins within `wait` seconds: 1 to 60. */
double by__retry_after(double wait);
/* "sequences" of a request; at least 1. */
int64_t by__sequences_of(const json_t *request);

#endif
