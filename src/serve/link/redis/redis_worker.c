/* A worker's side of a link to Redis: it takes requests while it has room, beats four times a
 * second, and renews its claim on its requests once a second. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/base/id_table.h"
#include "serve/link/redis/redis_link.h"
#include "serve/protocol/answer_hash.h"
#include "serve/protocol/task_answer.h"

/* Beats between two renewals of claims, and between two searches for abandoned requests. */
#define BEATS 4
/* Approximate limit on the arguments of a call: Lua unpacks at most some 8000 of them. */
#define MOST_ARGUMENTS 4000

/* A request held by the worker. */
typedef struct held {
    by__serve_id_entry entry;
    int64_t attempt;
    int64_t sequences;
    by__protocol_gather *gather; /* of a task; NULL: a gateway waits for it */
    by__protocol_answer_hash hash;
} held;

typedef struct redis_worker {
    by__serve_id_table held;
    json_t *record; /* the worker's public record */
    json_t *info;
    char version[65];
    int64_t slots;
    int64_t sessions;
    int64_t sequences; /* sequences of its requests */
    int64_t steps;
    double moved; /* by__now when its step counter last increased, or it was idle */
    unsigned beats;
    bool taking; /* a call that takes requests is unanswered */
    bool more;   /* something was published in the meantime */
    bool leaving;
    bool hangs; /* it has work, but completes no step */
} redis_worker;

static void take(by__redis_link *l, bool looks_for_left);

static held *find(const redis_worker *w, const char *id)
{
    return (held *)(void *)by__serve_id_find(&w->held, id);
}

static void drop(redis_worker *w, held *h)
{
    by__serve_id_remove(&w->held, &h->entry);
    w->sequences -= h->sequences;
    by__protocol_gather_close(&h->gather);
    free(h);
}

/* Tells the worker to end a request: another worker has it, or no client waits for it. */
static void end_held(by__redis_link *l, held *h)
{
    json_t *cancel = json_pack("{ss ss}", "t", "cancel", "id", h->entry.id);
    drop(l->own, h);
    by__redis_tell(l, cancel);
}

/* Reply with the ids and attempts of requests that are no longer the worker's. */
static void on_gone(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    BY_UNUSED(about);
    if (by__redis_bad(l, reply) || reply->type != REDIS_REPLY_ARRAY) {
        return;
    }
    for (size_t i = 0; i + 1 < reply->elements && !l->base.closed; i += 2) {
        held *h = find(l->own, by__redis_text(reply, i));
        if (h != NULL && h->attempt == (int64_t)by__redis_number(reply, i + 1)) {
            end_held(l, h);
        }
    }
}

/* ---- taking requests ---- */

static void take_row(by__redis_link *l, const redisReply *row)
{
    redis_worker *w = l->own;
    const char *id = by__redis_text(row, 0);
    double left = by__redis_number(row, 2);
    held *h = NULL;
    by_error ignored = {0};
    if (!by__serve_id_valid(id)) {
        return;
    }
    if (find(w, id) != NULL) {
        end_held(l, find(w, id));
    }
    by_status status = by__alloc((void **)&h, 1, sizeof *h, "a request", &ignored);
    if (status == BY_OK && by__redis_number(row, 4) > 0.0) {
        status = by__protocol_gather_open(&h->gather, &ignored);
    }
    if (status == BY_OK) {
        status = by__serve_id_add(&w->held, &h->entry, id, &ignored);
    }
    if (status != BY_OK) {
        /* Without a claim, another worker will take it. */
        if (h != NULL) {
            by__protocol_gather_close(&h->gather);
        }
        free(h);
        return;
    }
    h->attempt = (int64_t)by__redis_number(row, 1);
    h->sequences = (int64_t)by__redis_number(row, 3);
    w->sequences += h->sequences;
    json_t *request = json_string(by__redis_text(row, 5));
    by__redis_tell(l, json_pack("{ss ss sI sf so}", "t", "work", "id", id, "attempt",
                                (json_int_t)h->attempt, "left",
                                left < 0.0   ? 0.0
                                : left < 1.0 ? 0.001
                                             : left * 1e-3,
                                "request", request == NULL ? json_null() : request));
}

static void on_taken(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    redis_worker *w = l->own;
    w->taking = false;
    if (by__redis_bad(l, reply) || reply->type != REDIS_REPLY_ARRAY) {
        return;
    }
    for (size_t i = 0; i < reply->elements && !l->base.closed; i++) {
        const redisReply *row = by__redis_array(reply, i);
        if (row != NULL) {
            take_row(l, row);
        }
    }
    if (w->more || reply->elements >= strtoul(about, NULL, 10)) {
        take(l, false);
    }
}

static void take(by__redis_link *l, bool looks_for_left)
{
    redis_worker *w = l->own;
    by__redis_call call = {0};
    char about[24];
    int64_t room = w->slots - (int64_t)w->held.count;
    if (w->taking) {
        w->more = true;
        return;
    }
    if (l->base.closed || w->leaving || w->hangs || room <= 0) {
        return;
    }
    w->taking = true;
    w->more = false;
    /* Not all at once, so that other free workers get their share. */
    int64_t most = (room + 3) / 4;
    by__redis_add_text(&call, "take");
    by__redis_add_text(&call, l->name);
    by__redis_add_text(&call, l->model);
    by__redis_add_text(&call, w->version);
    by__redis_add_integer(&call, most);
    by__redis_add_integer(&call, looks_for_left ? (int64_t)(l->address.silence * 1000.0) : 0);
    by__redis_add_integer(&call, l->address.attempts);
    by__redis_add_integer(&call, w->sessions - w->sequences);
    (void)snprintf(about, sizeof about, "%lld", (long long)most);
    by__redis_run(l->redis, &call, false, on_taken, l, about);
}

/* ---- events ---- */

static void send_events(by__redis_link *l, by__redis_call *call)
{
    if (call->count > 1) {
        by__redis_run(l->redis, call, false, on_gone, l, "");
    } else {
        by_string_free(&call->text);
    }
    *call = (by__redis_call){0};
    by__redis_add_text(call, "events");
}

/* The kind under which the script counts an event. */
static const char *kind_of(const by__serve_event *event)
{
    bool failed = false;
    if (event->kind == BY__EVENT_ERROR) {
        json_t *json = by__protocol_event_json(event);
        failed = by__protocol_event_is_fault(json);
        json_decref(json);
    }
    return failed                                                            ? "fail"
           : by__protocol_event_ends(event)                                  ? "end"
           : event->kind == BY__EVENT_PIECE || event->kind == BY__EVENT_TEXT ? "text"
                                                                             : "more";
}

static void count_text(held *h, const by__serve_event *event)
{
    if (event->kind == BY__EVENT_PIECE) {
        by__protocol_answer_hash_piece(&h->hash, event->sequence, event->data, event->length);
    } else if (event->kind == BY__EVENT_TEXT) {
        json_t *json = by__protocol_event_json(event);
        by__protocol_answer_hash_add(&h->hash, json);
        json_decref(json);
    }
}

/* Ends a task: stores the gathered answer as its result. */
static void end_task(by__redis_link *l, const held *h, const char *counts, const json_t *event)
{
    const char *kind = by__protocol_get_text(event, "e");
    bool failed = kind == NULL || strcmp(kind, "error") == 0;
    json_t *value =
        failed ? by__protocol_gather_failure(event) : by__protocol_gather_result(h->gather, event);
    if (value == NULL && !failed) {
        failed = true;
        value = json_pack("{si ss ss}", "status", 503, "code", "out_of_memory", "message",
                          "no memory for an answer");
    }
    by__redis_call call = {0};
    by__redis_add_text(&call, "task_end");
    by__redis_add_text(&call, h->entry.id);
    by__redis_add_integer(&call, h->attempt);
    by__redis_add_text(&call, failed ? "failed" : "completed");
    by__redis_add_text(&call, counts);
    if (failed) {
        by__redis_add_text(&call, "");
    }
    by__redis_add_json(&call, value);
    if (!failed) {
        by__redis_add_text(&call, "");
    }
    json_decref(value);
    by__redis_run(l->redis, &call, false, on_gone, l, "");
}

static void gather_event(by__redis_link *l, const held *h, const by__serve_event *event)
{
    json_t *json = by__protocol_event_json(event);
    if (by__protocol_event_ends(event)) {
        end_task(l, h, kind_of(event), json);
    } else {
        by__protocol_gather_add(h->gather, json);
    }
    json_decref(json);
}

static bool send_list(by__redis_link *l, const char *list, size_t length)
{
    redis_worker *w = l->own;
    by__redis_call call = {0};
    by__serve_event event;
    size_t at = 0;
    bool ended = false;
    by__redis_add_text(&call, "events");
    while (by__protocol_events_next(list, length, &at, &event)) {
        held *h = find(w, event.id);
        bool last = by__protocol_event_ends(&event);
        if (h == NULL || h->attempt != event.attempt) {
            continue;
        }
        if (h->gather == NULL) {
            char hash[17];
            count_text(h, &event);
            by__protocol_answer_hash_print(hash, &h->hash);
            by__redis_add_text(&call, event.id);
            by__redis_add_integer(&call, h->attempt);
            by__redis_add_text(&call, kind_of(&event));
            by__redis_add_text(&call, last ? hash : "");
            by__redis_add(&call, event.record, event.size);
            if (call.count > MOST_ARGUMENTS) {
                send_events(l, &call);
            }
        } else {
            gather_event(l, h, &event);
        }
        if (last) {
            drop(w, h);
            ended = true;
        }
    }
    send_events(l, &call);
    by_string_free(&call.text);
    if (ended) {
        take(l, false);
    }
    return !l->base.closed;
}

/* ---- beats ---- */

/* The ids of the worker's requests follow. */
static void begin_beat(by__redis_link *l, by__redis_call *call)
{
    const redis_worker *w = l->own;
    by__redis_add_text(call, "beat");
    by__redis_add_text(call, l->name);
    by__redis_add_text(call, l->model);
    by__redis_add_text(call, w->version);
    by__redis_add_json(call, w->record);
}

static void beat(by__redis_link *l, const json_t *m)
{
    redis_worker *w = l->own;
    by__redis_call call = {0};
    bool claims = w->beats++ % BEATS == 0;
    int64_t steps = by__protocol_get_integer(m, "steps");
    if (steps != w->steps || !json_is_true(json_object_get(m, "busy"))) {
        w->moved = by__now();
    }
    w->steps = steps;
    w->hangs = by__now() - w->moved > l->address.hang;
    if (w->hangs) {
        /* Behaves as if the worker were dead: others take its requests, and a supervisor kills it.
         * The link stays open, because with a new one it would start over. */
        l->heard = by__now();
        return;
    }
    (void)json_object_set_new(w->record, "steps", json_integer(steps));
    (void)json_object_set_new(w->record, "still", json_real(by__now() - w->moved));
    (void)json_object_set_new(w->record, "requests", json_integer((json_int_t)w->held.count));
    (void)json_object_set_new(w->record, "leaving", json_boolean(w->leaving));
    (void)json_object_set(w->record, "engine", json_object_get(m, "engine"));
    begin_beat(l, &call);
    for (size_t i = 0; claims && i < w->held.bucket_count; i++) {
        for (const by__serve_id_entry *e = w->held.buckets[i]; e != NULL; e = e->next) {
            if (call.count >= MOST_ARGUMENTS) {
                by__redis_run(l->redis, &call, false, on_gone, l, "");
                call = (by__redis_call){0};
                begin_beat(l, &call);
            }
            by__redis_add_text(&call, e->id);
            by__redis_add_integer(&call, ((const held *)(const void *)e)->attempt);
        }
    }
    by__redis_run(l->redis, &call, false, on_gone, l, "");
    if (claims) {
        take(l, true);
    }
}

/* ---- the role ---- */

static by_status open_worker(by__redis_link *l, const json_t *hello, by_error *error)
{
    static const char *const kept[] = {"name", "pid", "host", "model", "version", "slots"};
    BY_TRY(by__alloc(&l->own, 1, sizeof(redis_worker), "a link", error));
    redis_worker *w = l->own;
    w->record = json_object();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kept); i++) {
        (void)json_object_set(w->record, kept[i], json_object_get(hello, kept[i]));
    }
    w->info = json_deep_copy(json_object_get(hello, "info"));
    const char *version = by__protocol_get_text(hello, "version");
    if (version == NULL || !by__serve_id_valid(version)) {
        return by_error_set(error, BY_EARG, "a worker names the version of its model");
    }
    memcpy(w->version, version, strlen(version) + 1);
    w->slots = by__protocol_get_integer(hello, "slots");
    w->sessions = by__protocol_get_integer(hello, "sessions");
    w->sessions = w->sessions > 0 ? w->sessions : w->slots;
    (void)json_object_set_new(w->record, "sessions", json_integer((json_int_t)w->sessions));
    w->moved = by__now();
    return BY_OK;
}

static void on_ready(by__redis_link *l)
{
    const redis_worker *w = l->own;
    by__redis_call call = {0};
    by__redis_add_text(&call, "hello");
    by__redis_add_text(&call, l->name);
    by__redis_add_text(&call, l->model);
    by__redis_add_text(&call, w->version);
    by__redis_add_json(&call, w->info);
    by__redis_run(l->redis, &call, false, by__redis_ignore, l, "");
}

static void send_message(by__redis_link *l, const char *kind, const json_t *m)
{
    redis_worker *w = l->own;
    if (strcmp(kind, "beat") == 0) {
        beat(l, m);
    } else if (strcmp(kind, "leaving") == 0) {
        w->leaving = true;
    }
}

/* A "cancel" may come after a later attempt of the same request; one of a process that names no
 * attempt (0) counts for any. */
static void on_published(by__redis_link *l, json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    int64_t attempt = by__protocol_get_integer(message, "attempt");
    held *h = id == NULL ? NULL : find(l->own, id);
    if (message == NULL) {
        take(l, false);
    } else if (h != NULL && (attempt == 0 || attempt == h->attempt)) {
        end_held(l, h);
        take(l, false);
    }
}

/* The worker sends the beats. */
static void stay_silent(by__redis_link *l)
{
    BY_UNUSED(l);
}

static void say_bye(by__redis_link *l)
{
    by__redis_call call = {0};
    by__redis_add_text(&call, "bye");
    by__redis_add_text(&call, l->name);
    by__redis_run(l->redis, &call, false, by__redis_ignore, l, "");
}

static void free_worker(by__redis_link *l)
{
    redis_worker *w = l->own;
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->held.bucket_count; i++) {
        for (by__serve_id_entry *e = w->held.buckets[i], *next; e != NULL; e = next) {
            next = e->next;
            by__protocol_gather_close(&((held *)(void *)e)->gather);
            free(e);
        }
    }
    by__serve_id_table_free(&w->held);
    json_decref(w->record);
    json_decref(w->info);
    free(w);
}

const by__redis_role by__redis_worker = {
    .name = "worker",
    .open = open_worker,
    .ready = on_ready,
    .send = send_message,
    .send_events = send_list,
    .published = on_published,
    .tick = stay_silent,
    .bye = say_bye,
    .free = free_worker,
};
