/* Messages between gateways, workers, supervisors and the broker: JSON objects whose "t" is the
 * kind.
 *
 * The first message to the broker: {"t": "hello", "role": "gateway" | "worker" | "supervisor",
 * "name": ID, "pid": N}, and from a worker that is ready for work also "model", "version", "slots"
 * (requests that it takes at a time), "sessions" (sequences that it runs at a time; default
 * "slots") and "info" (the model's entry in /v1/models). A gateway has another name on each link,
 * and the same "tag" if it takes feedback.
 *
 * From a gateway:
 *
 *   submit    "id", "model", "request" (the worker's input, worker_generation.c, as a text of JSON,
 *             which the broker passes on unparsed), "cost" (estimated tokens), and optionally
 *             "sequences" (that follow the prompt; 1), "follows": true for every prompt of a
 *             request but its first one, "left" (seconds until it expires), "priority" (higher
 *             first), "seen": true for a model that an earlier state of the broker named; "whole":
 *             true when the client receives nothing before the end, so that another version may
 *             start over; "version": the only one that may answer, "again": true for a request that
 *             was accepted before the link was reconnected
 *   cancel    "id": no client waits for it any more; no event follows
 *   task_add  "ref", "id", "owner", "expires", "seen", "task": a request to keep on disk ("model",
 *             "cost", "sequences", "priority", "request", "webhook": a URL to notify of the end,
 *             and members that are returned to the gateway), and optionally "key";
 *             or, with "result", one that has ended, to keep
 *   task_get, task_cancel, task_delete   "ref", "id", "owner"
 *   task_drop the same: cancels a task, or deletes one that has ended
 *   task_hooks   requests up to "most" webhooks that are due, leased for "lease" seconds
 *   task_hook    the outcome of one: "id", "try", "state" ("delivered", "failed" or "pending": due
 *             again in "delay" seconds)
 *   feedback  "to": the tag of the gateway that gave the answer, "id" of the answer, "index",
 *             "label" and "rating": passed on as it is
 *   leaving   it takes no new requests, and ends when those that it has are answered
 *
 * From a worker:
 *
 *   (events   as lists, see event_list.h, each with the attempt that it was given)
 *   beat      every 250 ms: "steps" of the engine so far, "busy", and "engine": its statistics
 *   leaving   it takes no new work, and exits when its current work is done
 *
 * From a supervisor:
 *
 *   route     "model", "versions": a list of {"version", "share" (of new requests), "shadow" (it
 *             gets copies of requests)}; versions that are not listed get nothing. "elastic": true
 *             when workers are started for requests that wait; "info" of the model, if known. The
 *             first version is the one that serves. Of several supervisors on one Redis, one
 *             decides: while it lists two versions, and for as long as its first one has workers.
 *             "deployment", for readers of the state in Redis: {"coming" (a version that is being
 *             deployed, or ""), "phase" of it, "previous" (the target of a roll-back), "last" (the
 *             version of the last completed deployment), its "outcome" and "reason"}, all strings.
 *             "restarts": {REASON: number of restarted workers}
 *   rollback  "model": forwarded to the supervisor that decides at Redis
 *   submit    as from a gateway
 *
 * From the broker:
 *
 *   work      to a worker: "id", "attempt", "request", "left" (0: it does not expire)
 *   cancel    to a worker: "id", and at Redis the "attempt" that it is about
 *   (events   as lists, to a gateway or a supervisor)
 *   hooks     to a gateway, after task_hooks: "hooks", a list as by__broker_tasks_hooks gives it
 *   feedback_passed   to a gateway, after feedback: "heard": whether the gateway that gave the
 *             answer is connected, "label": whether there is one
 *   task      to a gateway: "ref", "task" as by__broker_tasks_get gives it, or null, and possibly
 *   "error" state     to gateways and supervisors every 250 ms: "workers" and "models", the input
 *             of /health, the page and autoscaling. "info" of a model is that of the version that
 *             serves, and each of its "versions" has its own. Of a model at Redis: "decides": the
 *             supervisor whose route is in effect, "decided": whether it is still connected, and
 *             its "deployment". "restarts" are those of the model's supervisor
 *
 * An event is an object with "id" and "e" (text alone is sent as a piece, event_list.h):
 *
 *   begin     "prompt_tokens", "cached_tokens": the request is valid and was accepted; "version":
 *             of the model that answers, "run": of which it is; "seconds" since then, of a request
 *             that ran in a batch, whose events are sent together
 *   text      "i" (of n), "text", "tokens" (how many it represents), "logprobs" if requested
 *   stop      "i", "reason": that sequence is complete; "score" if requested: the mean
 *             log-probability of its tokens; "echo": bytes of its text that are the prompt
 *   end       "usage", and "timing": seconds of the worker for "prefill" and "decode"; the last one
 *   result    "result": the whole answer of a request without a stream, "usage", and "timing" with
 *             its "compute"; the last one
 *   error     "status" (HTTP), "code", "message", "param"; the last one
 *   again     from the broker: the worker was lost, and another one starts over. The same text is
 *             sent again, since it is a function of the request. */
#ifndef BY_SERVE_PROTOCOL_MESSAGES_H
#define BY_SERVE_PROTOCOL_MESSAGES_H

#include "serve/base/serve.h"

/* Milliseconds between two beats of a worker and between two states of the broker. */
#define BY__BEAT 250

/* The value of a key; NULL, 0, -1.0 or false if it is missing or of another type, or a text with
 * U+0000. */
const char *by__protocol_get_text(const json_t *object, const char *key);
/* Copies a text, of which what does not fit is cut off; NULL: "". */
void by__protocol_copy_text(char *out, size_t size, const char *text);
int64_t by__protocol_get_integer(const json_t *object, const char *key);
double by__protocol_get_number(const json_t *object, const char *key, double otherwise);
/* A shallow copy, a new reference. NULL if it is no object, or memory is exhausted; json_copy would
 * leave members out. */
json_t *by__protocol_copy_object(const json_t *object);

/* The text of a request, as JSON, in a string of JSON: what takes a request in between neither
 * parses it nor needs the memory of its values, up to 80 times that of the text. NULL: memory is
 * exhausted. */
json_t *by__protocol_request_text(const json_t *request);
/* A shallow copy of a message, with its request as text. NULL: memory is exhausted. */
json_t *by__protocol_message_with_text(const json_t *message);
/* Replaces the text by the request, also when it is one already. BY_EFORMAT: it is none. */
by_status by__protocol_request_parse(json_t *message, by_error *error);

/* A new event or message; NULL when memory is exhausted. */
json_t *by__protocol_event_new(const char *id, const char *kind);
json_t *by__protocol_event_error(const char *id, int status, const char *code, const char *param,
                                 const char *message);
/* True for kinds after which no event follows. */
bool by__protocol_event_is_last(const json_t *event);
/* Error code (status 400) for a format that the model's vocabulary cannot express. */
#define BY__UNWRITABLE "unwritable_format"
/* The same for a text of more tokens than the model's context, as OpenAI's API has it. */
#define BY__TOO_LONG "context_length_exceeded"
/* Returns true if an event is an error caused by the version of the model, so that another version
 * may succeed: status 500 or more, or BY__UNWRITABLE. */
bool by__protocol_event_is_fault(const json_t *event);

/* Why a broker does not take a request. */
typedef struct by__protocol_refusal {
    const char *why; /* "full", "wait", "late", "stored", "unknown", "starting", "broker_full" */
    int status;      /* HTTP status */
    const char *code;
    const char *param;
    const char *message;
} by__protocol_refusal;

/* Retry-After of the refusal "stored": when tasks expire is up to the client. */
#define BY__STORED_RETRY 60.0

/* The refusal with this reason; NULL for an unknown one. */
const by__protocol_refusal *by__protocol_refusal_of(const char *why);
/* The event "error" of a refusal; seconds: delay before a retry, 0: do not retry. */
json_t *by__protocol_event_refused(const char *id, const by__protocol_refusal *refusal,
                                   double seconds);
/* The reply "task" to a "task_add" that is refused. */
json_t *by__protocol_task_refused(const json_t *message, const by__protocol_refusal *refusal,
                                  double seconds);
/* Seconds to put into Retry-After if the queue moves within `wait` seconds: 1 to 60. */
double by__protocol_retry_after(double wait);
/* "sequences" of a request; at least 1. */
int64_t by__protocol_sequences_of(const json_t *request);

#endif
