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
#define MAX_ARGUMENTS 4000

/* A request held by the worker. */
typedef struct redis_job {
    by__serve_id_entry entry;
    int64_t attempt;
    int64_t sequences;
    by__protocol_gather *gather; /* of a task; NULL: a gateway waits for it */
    by__protocol_answer_hash hash;
} redis_job;

typedef struct redis_worker {
    by__serve_id_table jobs;
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
    bool claims; /* the next call claims what lost workers had */
    bool leaving;
    bool hangs; /* it has work, but completes no step */
} redis_worker;

static void request_jobs(by__redis_link *l, bool claims);

static redis_job *find(const redis_worker *w, const char *id)
{
    return (redis_job *)(void *)by__serve_id_find(&w->jobs, id);
}

static void drop(redis_worker *w, redis_job *h)
{
    by__serve_id_remove(&w->jobs, &h->entry);
    w->sequences -= h->sequences;
    by__protocol_gather_close(&h->gather);
    free(h);
}

/* Tells the worker to end a request: another worker has it, or no client waits for it. */
static void end_job(by__redis_link *l, redis_job *h)
{
    json_t *cancel = json_pack("{ss ss}", "t", "cancel", "id", h->entry.id);
    drop(l->own, h);
    by__redis_deliver(l, cancel);
}

/* Reply with the ids and attempts of requests that are no longer the worker's. */
static void on_stale(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    BY_UNUSED(about);
    if (by__redis_bad(l, reply) || reply->type != REDIS_REPLY_ARRAY) {
        return;
    }
    for (size_t i = 0; i + 1 < reply->elements && !l->base.closed; i += 2) {
        redis_job *h = find(l->own, by__redis_text(reply, i));
        if (h != NULL && h->attempt == (int64_t)by__redis_number(reply, i + 1)) {
            end_job(l, h);
        }
    }
}

/* ---- taking requests ---- */

static void receive_job(by__redis_link *l, const redisReply *row)
{
    redis_worker *w = l->own;
    const char *id = by__redis_text(row, 0);
    double left = by__redis_number(row, 2);
    redis_job *h = NULL;
    by_error ignored = {0};
    if (!by__serve_id_valid(id)) {
        return;
    }
    if (find(w, id) != NULL) {
        end_job(l, find(w, id));
    }
    by_status status = by__alloc((void **)&h, 1, sizeof *h, "a request", &ignored);
    if (status == BY_OK && by__redis_number(row, 4) > 0.0) {
        status = by__protocol_gather_open(&h->gather, &ignored);
    }
    if (status == BY_OK) {
        status = by__serve_id_add(&w->jobs, &h->entry, id, &ignored);
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
    by__redis_deliver(l, json_pack("{ss ss sI sf so}", "t", "work", "id", id, "attempt",
                                   (json_int_t)h->attempt, "left",
                                   left < 0.0   ? 0.0
                                   : left < 1.0 ? 0.001
                                                : left * 1e-3,
                                   "request", request == NULL ? json_null() : request));
}

static void on_jobs(void *user, const char *about, const redisReply *reply)
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
            receive_job(l, row);
        }
    }
    if (w->more || reply->elements >= strtoul(about, NULL, 10)) {
        request_jobs(l, false);
    }
}

static void request_jobs(by__redis_link *l, bool claims)
{
    redis_worker *w = l->own;
    by__redis_call call = {0};
    char about[24];
    int64_t room = w->slots - (int64_t)w->jobs.count;
    if (w->taking) {
        w->more = true;
        w->claims = w->claims || claims;
        return;
    }
    claims = claims || w->claims;
    if (l->base.closed || w->leaving || w->hangs || room <= 0) {
        return;
    }
    w->taking = true;
    w->more = w->claims = false;
    /* Not all at once, so that other free workers get their share. */
    int64_t most = (room + 3) / 4;
    by__redis_add_text(&call, "take");
    by__redis_add_text(&call, l->name);
    by__redis_add_text(&call, l->model);
    by__redis_add_text(&call, w->version);
    by__redis_add_integer(&call, most);
    by__redis_add_integer(&call, claims ? (int64_t)(l->address.silence * 1000.0) : 0);
    by__redis_add_integer(&call, l->address.attempts);
    by__redis_add_integer(&call, w->sessions - w->sequences);
    (void)snprintf(about, sizeof about, "%lld", (long long)most);
    by__redis_execute(l->redis, &call, false, on_jobs, l, about);
}

/* ---- events ---- */

static void send_events(by__redis_link *l, by__redis_call *call)
{
    if (call->count > 1) {
        by__redis_execute(l->redis, call, false, on_stale, l, "");
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

static void count_text(redis_job *h, const by__serve_event *event)
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
static void end_task(by__redis_link *l, const redis_job *h, const char *counts, const json_t *event)
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
    by__redis_execute(l->redis, &call, false, on_stale, l, "");
}

static void gather_event(by__redis_link *l, const redis_job *h, const by__serve_event *event)
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
        redis_job *h = find(w, event.id);
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
            if (call.count > MAX_ARGUMENTS) {
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
        request_jobs(l, false);
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
        l->last_message_at = by__now();
        return;
    }
    (void)json_object_set_new(w->record, "steps", json_integer(steps));
    (void)json_object_set_new(w->record, "still", json_real(by__now() - w->moved));
    (void)json_object_set_new(w->record, "requests", json_integer((json_int_t)w->jobs.count));
    (void)json_object_set_new(w->record, "leaving", json_boolean(w->leaving));
    (void)json_object_set(w->record, "engine", json_object_get(m, "engine"));
    begin_beat(l, &call);
    for (size_t i = 0; claims && i < w->jobs.bucket_count; i++) {
        for (const by__serve_id_entry *e = w->jobs.buckets[i]; e != NULL; e = e->next) {
            if (call.count >= MAX_ARGUMENTS) {
                by__redis_execute(l->redis, &call, false, on_stale, l, "");
                call = (by__redis_call){0};
                begin_beat(l, &call);
            }
            by__redis_add_text(&call, e->id);
            by__redis_add_integer(&call, ((const redis_job *)(const void *)e)->attempt);
        }
    }
    by__redis_execute(l->redis, &call, false, on_stale, l, "");
    if (claims) {
        request_jobs(l, true);
    }
}

/* ---- the role ---- */

static by_status open_worker(by__redis_link *l, const json_t *hello, by_error *error)
{
    static const char *const copied[] = {"name", "pid", "host", "model", "version", "slots"};
    BY_TRY(by__alloc(&l->own, 1, sizeof(redis_worker), "a link", error));
    redis_worker *w = l->own;
    w->record = json_object();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(copied); i++) {
        (void)json_object_set(w->record, copied[i], json_object_get(hello, copied[i]));
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
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
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
    redis_job *h = id == NULL ? NULL : find(l->own, id);
    if (message == NULL) {
        request_jobs(l, false);
    } else if (h != NULL && (attempt == 0 || attempt == h->attempt)) {
        end_job(l, h);
        request_jobs(l, false);
    }
}

static void on_close(by__redis_link *l)
{
    by__redis_call call = {0};
    by__redis_add_text(&call, "bye");
    by__redis_add_text(&call, l->name);
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
}

static void free_worker(by__redis_link *l)
{
    redis_worker *w = l->own;
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->jobs.bucket_count; i++) {
        for (by__serve_id_entry *e = w->jobs.buckets[i], *next; e != NULL; e = next) {
            next = e->next;
            by__protocol_gather_close(&((redis_job *)(void *)e)->gather);
            free(e);
        }
    }
    by__serve_id_table_free(&w->jobs);
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
    .on_close = on_close,
    .free = free_worker,
};
