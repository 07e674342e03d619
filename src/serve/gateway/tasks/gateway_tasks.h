/* gateway_tasks: tasks over HTTP (gateway_tasks.c), and clients that follow one
 * (gateway_task_events.c). The broker has the tasks.
 *
 * Who owns what: a question to the broker, and a watch, belong to these files; a connection that
 * waits for one belongs to the server. */
#ifndef BY_SERVE_GATEWAY_TASKS_GATEWAY_TASKS_H
#define BY_SERVE_GATEWAY_TASKS_GATEWAY_TASKS_H

#include "serve/gateway/core/gateway_reply.h"

/* ---- routes ---- */

by__gateway_route_answer by__gateway_answer_task_new, by__gateway_answer_task,
    by__gateway_answer_task_cancel;

/* ---- tasks ---- */

/* The message that stores a request of one part as a task for `expires` seconds; webhook: a URL
 * that is notified of its end, NULL for none. On the loop: it looks at the broker's last state. */
json_t *by__task_message(const by__gateway_request *request, const char *id,
                         const char *idempotency, const char *webhook, double expires);
/* Replies with a task that the broker has, given as by__broker_tasks_get gives it. */
typedef void by__task_show(by__gateway *g, by__http_connection *x, const json_t *row);
/* Sends a question about a task to the broker; the connection is answered by its reply. Takes the
 * message. what: the name of the requested object, for the error if there is none. */
void by__task_ask(by__gateway *g, by__http_connection *x, by__task_show *show, const char *what,
                  json_t *message);
/* A request with the answer of a task, or without one (result NULL). It borrows from both. */
typedef struct by__task_request {
    by__gateway_request request;
    by__gateway_part part;
    by__gateway_choice choices[BY__MAX_N];
} by__task_request;

/* Returns false if the task is of another version, and cannot be read. */
bool by__task_request_open(by__task_request *out, const by__gateway *g, const json_t *task,
                           const json_t *result);
void by__task_request_close(by__task_request *t);
/* The answer that the request of a task would have had at its own route. */
json_t *by__task_result(const by__gateway *g, const json_t *task, const json_t *result);
/* Replies with an error of the broker; model: the one that was asked for. */
void by__task_refuse(by__gateway *g, by__http_connection *x, const char *model,
                     const json_t *error);
/* Replies that there is no such thing; what: its name. */
void by__task_missing(by__gateway *g, by__http_connection *x, const char *what);
/* Handles the broker's answer to a question; fails the unanswered questions, and the clients that
 * wait for the first event of a task, when the link is lost. */
void by__task_answer(by__gateway *g, const json_t *message);
void by__tasks_lost(by__gateway *g);
/* A task as clients see it, made from the broker's object; a new reference. */
json_t *by__task_view(const by__gateway *g, const json_t *row);
/* Whether no other state follows that of the broker's object. */
bool by__task_ended(const json_t *row);

/* ---- clients that follow a task (gateway_task_events.c) ---- */

/* What they are sent. */
typedef struct by__gateway_watch_kind {
    const char *what; /* that is asked for: "task" */
    /* Why a task has no events; NULL: it has. Itself NULL: each has. */
    const char *(*refuse)(const json_t *row);
    /* Appends the events of a task in its present state whose numbers are above `after`, -1 for
     * all. Returns the number of the last one so far; *last: none will follow. */
    long long (*print)(const by__gateway *g, const json_t *row, long long after, bool *last,
                       by_string *out);
} by__gateway_watch_kind;

/* Streams the events of the task `id` behind number `after` to a connection, until the last one. */
void by__task_watch(by__gateway *g, by__http_connection *x, const by__gateway_watch_kind *kind,
                    const char *id, const char *key, long long after);
/* The number of an event; -1: the text is none. */
long long by__task_event_number(const char *text, size_t length);
/* Streams the states of the task `id`. */
void by__gateway_answer_task_events(by__gateway *g, by__http_connection *x,
                                    const by__http_request *r, const char *id, const char *key);
/* Handle the broker's answer to a question of that file, and the loss of the link. */
void by__gateway_watch_answer(by__gateway *g, const json_t *message);
void by__gateway_watches_lost(by__gateway *g);

#endif
