/* Follows a task, such as GET /v1/tasks/ID/events: its states as server-sent events, up to the last
 * one, which has the result.
 *
 * The number of an event is a function of the task's state alone, so that a client which lost its
 * connection can resume with Last-Event-ID at any gateway, even if processes were restarted in
 * between. A gateway polls the broker for the task, at intervals that grow. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/protocol/messages.h"

/* Milliseconds between checks of all watches. */
#define TICK 250
/* First and largest number of seconds between two polls of a task. */
#define FIRST_SECONDS 0.2
#define MAX_SECONDS   2.0
/* Seconds after which a poll counts as lost. */
#define ANSWER_SECONDS 5.0

struct by__gateway_watch {
    by__gateway_waiter waiter;
    by__gateway *gateway;
    by__http_connection *connection;
    struct by__gateway_watch *next;
    const by__gateway_watch_kind *kind;
    const char *owner;
    uint64_t ref;    /* of the pending poll; 0: none */
    double asked_at; /* by__now of that poll */
    double due;      /* by__now of the next one */
    double pause;
    double last_sent_at; /* by__now of the last bytes sent to the client */
    long long last;      /* number of the last event sent; -1: none */
    bool began;          /* the head of the stream has been sent */
    bool lost;           /* the link was lost before that */
    char id[65];
};

static void remove_watch(struct by__gateway_watch *w)
{
    by__gateway *g = w->gateway;
    struct by__gateway_watch **at = &g->watches;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    free(w);
    if (g->watches == NULL) {
        (void)uv_timer_stop(&g->watching);
    }
}

static void on_disconnect(by__gateway_waiter *waiter)
{
    remove_watch((struct by__gateway_watch *)(void *)waiter);
}

/* Ends the client's stream, and the watch. */
static void end(struct by__gateway_watch *w)
{
    by__http_connection *x = w->connection;
    by__http_connection_set(x, NULL);
    remove_watch(w);
    by__http_connection_end(x);
}

static void ask(struct by__gateway_watch *w, double now)
{
    by__gateway *g = w->gateway;
    w->due = now + w->pause;
    w->pause = w->pause * 1.2 < MAX_SECONDS ? w->pause * 1.2 : MAX_SECONDS;
    if (g->broker.link == NULL) {
        return;
    }
    w->ref = ++g->next_ref;
    w->asked_at = now;
    json_t *message = json_pack("{ss sI ss ss}", "t", "task_get", "ref", (json_int_t)w->ref, "id",
                                w->id, "owner", w->owner);
    (void)by__link_broker_send(&g->broker, message);
    json_decref(message);
}

/* Answers with an error, before the stream has begun. */
static void refuse(struct by__gateway_watch *w, const json_t *error)
{
    by__gateway *g = w->gateway;
    by__http_connection *x = w->connection;
    by__http_connection_set(x, NULL);
    remove_watch(w);
    if (error != NULL) {
        by__task_refuse(g, x, "", error);
    } else {
        by__gateway_reply_error(g, x, 503, "unavailable", NULL, "the broker does not answer");
    }
}

/* The first reply decides how the connection is answered. Returns false if the watch has ended. */
static bool begin(struct by__gateway_watch *w, const json_t *row, bool nothing_new)
{
    by__http_connection *x = w->connection;
    by__gateway *g = w->gateway;
    const by__gateway_watch_kind *kind = w->kind;
    const char *why = kind->refuse == NULL || !json_is_object(row) ? NULL : kind->refuse(row);
    if (json_is_object(row) && why == NULL && !nothing_new) {
        if (!by__http_connection_stream(x)) {
            return false; /* the watch is gone */
        }
        w->began = true;
        return true;
    }
    by__http_connection_set(x, NULL);
    remove_watch(w);
    if (why != NULL) {
        by__gateway_reply_error(g, x, 400, "invalid_request", "stream", why);
    } else if (json_is_object(row)) {
        /* This tells an EventSource not to reconnect. */
        by__http_connection_reply(x, 204, NULL, "", 0);
    } else {
        by__task_missing(g, x, kind->what);
    }
    return false;
}

static void send_row(struct by__gateway_watch *w, const json_t *row)
{
    bool last = true;
    by_string out = {0};
    long long number =
        json_is_object(row) ? w->kind->print(w->gateway, row, w->last, &last, &out) : w->last;
    bool is_new = number > w->last;
    bool follows = w->began || begin(w, row, last && !is_new);
    if (follows && is_new) {
        follows = by__http_connection_send_text(w->connection, &out);
    }
    by_string_free(&out);
    if (!follows) {
        return; /* the watch is gone; the client may reconnect */
    }
    if (is_new) {
        w->last = number;
        w->last_sent_at = by__now();
        w->pause = FIRST_SECONDS;
    }
    if (last) {
        end(w); /* also for a task that has expired */
    }
}

void by__gateway_watch_answer(by__gateway *g, const json_t *message)
{
    uint64_t ref = (uint64_t)by__protocol_get_integer(message, "ref");
    for (struct by__gateway_watch *w = g->watches; w != NULL && ref != 0; w = w->next) {
        if (w->ref == ref) {
            const json_t *error = json_object_get(message, "error");
            w->ref = 0;
            if (error == NULL) {
                send_row(w, json_object_get(message, "task"));
            } else if (!w->began) {
                refuse(w, error);
            } /* else it is asked again */
            return;
        }
    }
}

void by__gateway_watches_lost(by__gateway *g)
{
    /* The link may be lost while a watch is asking: the next tick answers. */
    for (struct by__gateway_watch *w = g->watches; w != NULL; w = w->next) {
        w->ref = 0;
        w->lost = !w->began;
    }
}

static void on_tick(uv_timer_t *timer)
{
    by__gateway *g = timer->data;
    double now = by__now();
    for (struct by__gateway_watch *w = g->watches, *next; w != NULL; w = next) {
        next = w->next;
        bool late = w->ref != 0 && now - w->asked_at > ANSWER_SECONDS;
        w->ref = late ? 0 : w->ref;
        if (!w->began && (w->lost || late || g->draining)) {
            refuse(w, NULL);
        } else if (g->draining) {
            end(w); /* the client can resume at another gateway */
        } else if (w->began && now - w->last_sent_at > BY__QUIET) {
            w->last_sent_at = now;
            (void)by__http_connection_send(w->connection, BY__WAIT_COMMENT,
                                           strlen(BY__WAIT_COMMENT));
        } else if (w->ref == 0 && now >= w->due) {
            ask(w, now);
        }
    }
}

void by__task_watch(by__gateway *g, by__http_connection *x, const by__gateway_watch_kind *kind,
                    const char *id, const char *key, long long after)
{
    struct by__gateway_watch *w = NULL;
    by_error error = {0};
    if (g->broker.link == NULL || g->draining) {
        by__gateway_reply_error(g, x, 503, "unavailable", NULL, "the broker is not reached");
        return;
    }
    if (by__alloc((void **)&w, 1, sizeof *w, "a watch", &error) != BY_OK) {
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for a request");
        return;
    }
    *w = (struct by__gateway_watch){.waiter = {on_disconnect},
                                    .gateway = g,
                                    .connection = x,
                                    .next = g->watches,
                                    .kind = kind,
                                    .owner = key,
                                    .pause = FIRST_SECONDS,
                                    .last = after};
    (void)snprintf(w->id, sizeof w->id, "%s", id);
    g->watches = w;
    by__http_connection_set(x, &w->waiter);
    if (w->next == NULL) {
        g->watching.data = g;
        (void)uv_timer_start(&g->watching, on_tick, TICK, TICK);
    }
    ask(w, by__now());
}

long long by__task_event_number(const char *text, size_t length)
{
    bool whole = length > 0 && length < 18 && strspn(text, "0123456789") >= length;
    return whole ? strtoll(text, NULL, 10) : -1;
}

/* ---- tasks ---- */

/* Number of the event for a state: it grows with every step of a task. A task that runs again after
 * a lost worker is queued and in progress once more. */
static long long number_of(const json_t *row, bool *last)
{
    const char *status = by__protocol_get_text(row, "status");
    bool runs = status != NULL && strcmp(status, "in_progress") == 0;
    *last = by__task_ended(row);
    return 4 * by__protocol_get_integer(row, "attempts") + (runs ? 0 : *last ? 2 : 1);
}

static long long print_task(const by__gateway *g, const json_t *row, long long after, bool *last,
                            by_string *out)
{
    long long number = number_of(row, last);
    if (number > after) {
        json_t *task = by__task_view(g, row);
        by_string_format(out, "id: %lld\nevent: %s\ndata: ", number,
                         by__protocol_get_text(row, "status"));
        by__json_write(out, task, JSON_COMPACT);
        by__string_append(out, "\n\n");
        json_decref(task);
    }
    return number;
}

void by__gateway_answer_task_events(by__gateway *g, by__http_connection *x,
                                    const by__http_request *r, const char *id, const char *key)
{
    static const by__gateway_watch_kind kind = {.what = "task", .print = print_task};
    const char *last = by__http_header_of(r, "last-event-id");
    by__task_watch(g, x, &kind, id, key,
                   last == NULL ? -1 : by__task_event_number(last, strlen(last)));
}
