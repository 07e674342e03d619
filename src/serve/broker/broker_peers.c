/* The broker's peers: handling of their messages, detection of lost ones, and the state that is
 * sent to all. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker/broker.h"

void by__broker_free_peers(by__broker *b)
{
    for (by__broker_peer **at = &b->peers; *at != NULL;) {
        by__broker_peer *p = *at;
        if (p->link != NULL) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        json_decref(p->beat);
        by_string_free(&p->batch);
        json_decref(p->uncommitted);
        free(p);
    }
}

/* A peer that has said that it ends, and has no requests any more, is not lost. */
static bool has_left(const by__broker *b, const by__broker_peer *p)
{
    bool left = p->leaving && p->jobs.count == 0;
    for (size_t i = 0; i < b->jobs.bucket_count && left; i++) {
        for (const by__serve_id_entry *e = b->jobs.buckets[i]; e != NULL; e = e->next) {
            left = left && ((const by__broker_job *)(const void *)e)->from != p;
        }
    }
    return left;
}

void by__broker_remove_peer(by__broker *b, by__broker_peer *p, const char *why)
{
    static const char *const names[] = {"stranger", "gateway", "worker", "supervisor"};
    by__broker_role role = p->role;
    p->role = BY__NOBODY;
    p->link = NULL;
    if (role != BY__NOBODY && has_left(b, p)) {
        by__telemetry_log_event(&b->log, "peer_left", "{ss ss sI}", "role", names[role], "name",
                                p->name, "pid", (json_int_t)p->pid);
    } else if (role != BY__NOBODY) {
        by__telemetry_log_event(&b->log, "peer_lost", "{ss ss sI ss}", "role", names[role], "name",
                                p->name, "pid", (json_int_t)p->pid, "reason", why);
    }
    if (role == BY__WORKER) {
        p->pool->workers--;
        p->version->workers--;
        by__broker_measure(b);
        by__broker_requeue(b, p, why);
    } else if (role == BY__GATEWAY || role == BY__SUPERVISOR) {
        by__broker_drop_gateway(b, p);
    }
}

static void drop(by__broker *b, by__broker_peer *p, const char *why)
{
    by__link *link = p->link;
    by__broker_remove_peer(b, p, why);
    by__link_close(&link);
}

/* Suspends a worker that has work but completes no step: its requests go to others. Its link stays
 * open, because on a new one it would start over and take more requests. */
static void suspend(by__broker *b, by__broker_peer *p)
{
    by__link *link = p->link;
    p->hangs = true;
    by__broker_remove_peer(b, p, "it has work and makes no step");
    p->link = link;
}

/* Handles the first message of a peer. Returns false if it is malformed. */
static bool read_hello(by__broker *b, by__broker_peer *p, const json_t *m)
{
    const char *role = by__protocol_get_text(m, "role");
    const char *name = by__protocol_get_text(m, "name");
    const char *model = by__protocol_get_text(m, "model");
    const char *version = by__protocol_get_text(m, "version");
    const char *tag = by__protocol_get_text(m, "tag");
    if (role == NULL || name == NULL || !by__serve_id_valid(name)) {
        return false;
    }
    if (p->bound[0] != '\0' &&
        (strcmp(role, "worker") != 0 || model == NULL || strcmp(model, p->bound) != 0)) {
        return false;
    }
    memcpy(p->name, name, strlen(name) + 1);
    p->pid = by__protocol_get_integer(m, "pid");
    p->last_message_at = p->moved = by__now();
    if (strcmp(role, "worker") == 0) {
        p->slots = by__protocol_get_integer(m, "slots");
        p->sessions = by__protocol_get_integer(m, "sessions");
        p->sessions = p->sessions > 0 ? p->sessions : p->slots;
        p->pool = model == NULL ? NULL : by__broker_find_pool(b, model);
        p->version = p->pool == NULL || version == NULL || p->slots < 1
                         ? NULL
                         : by__broker_find_version(p->pool, version, true);
        if (p->version == NULL) {
            p->pool = NULL;
            return false;
        }
        by__broker_describe(p->pool, p->version, json_object_get(m, "info"));
        p->pool->workers++;
        p->version->workers++;
        p->role = BY__WORKER;
    } else if (strcmp(role, "gateway") == 0) {
        (void)snprintf(p->tag, sizeof p->tag, "%s", tag == NULL ? "" : tag);
        p->role = BY__GATEWAY;
    } else if (strcmp(role, "supervisor") == 0) {
        p->role = BY__SUPERVISOR;
    } else {
        return false;
    }
    by__telemetry_log_event(&b->log, "peer", "{ss ss sI}", "role", role, "name", p->name, "pid",
                            (json_int_t)p->pid);
    return true;
}

static bool moves(const by__broker_peer *p, const json_t *m)
{
    return by__protocol_get_integer(m, "steps") != p->steps ||
           !json_is_true(json_object_get(m, "busy"));
}

static void read_beat(by__broker_peer *p, const json_t *m)
{
    p->last_message_at = by__now();
    if (moves(p, m)) {
        p->moved = p->last_message_at;
    }
    p->steps = by__protocol_get_integer(m, "steps");
    json_decref(p->beat);
    p->beat = json_deep_copy(json_object_get(m, "engine"));
}

/* Passes what a client says of an answer to the gateway that gave it. */
static void pass_feedback(const by__broker *b, const by__broker_peer *p, const json_t *m)
{
    const char *tag = by__protocol_get_text(m, "to");
    const by__broker_peer *to = b->peers;
    while (to != NULL && (to->role != BY__GATEWAY || tag == NULL || strcmp(to->tag, tag) != 0)) {
        to = to->next;
    }
    bool last_message_at = to != NULL && by__link_send(to->link, m);
    json_t *reply = json_pack("{ss sb sb}", "t", "feedback_passed", "heard", (int)last_message_at,
                              "label", (int)(json_object_get(m, "label") != NULL));
    if (reply != NULL && p->link != NULL) {
        (void)by__link_send(p->link, reply);
    }
    json_decref(reply);
}

static bool handle_message(by__broker *b, by__broker_peer *p, const char *kind, const json_t *m)
{
    if (p->hangs) {
        /* A worker that makes progress again starts over with a new link. */
        return strcmp(kind, "beat") != 0 || !moves(p, m);
    }
    if (p->role == BY__NOBODY && p->bound[0] == '\0' && strcmp(kind, "bound") == 0) {
        const char *model = by__protocol_get_text(m, "model");
        (void)snprintf(p->bound, sizeof p->bound, "%s", model == NULL ? "" : model);
        return p->bound[0] != '\0';
    }
    if (p->role == BY__NOBODY) {
        return strcmp(kind, "hello") == 0 && read_hello(b, p, m);
    }
    if (p->role == BY__GATEWAY && by__broker_task(b, p, kind, m)) {
        return true;
    }
    bool asks = p->role == BY__GATEWAY || p->role == BY__SUPERVISOR;
    if (asks && strcmp(kind, "submit") == 0) {
        by__broker_submit(b, p, m);
    } else if (p->role == BY__GATEWAY && strcmp(kind, "cancel") == 0) {
        const char *id = by__protocol_get_text(m, "id");
        by__broker_job *job = id == NULL ? NULL : by__broker_find_job(b, id);
        if (job != NULL && job->from == p) {
            by__broker_cancel(b, id);
        }
    } else if (p->role == BY__GATEWAY && strcmp(kind, "feedback") == 0) {
        pass_feedback(b, p, m);
    } else if (p->role == BY__WORKER && strcmp(kind, "beat") == 0) {
        read_beat(p, m);
    } else if (p->role != BY__SUPERVISOR && strcmp(kind, "leaving") == 0) {
        p->leaving = true;
    } else if (p->role == BY__SUPERVISOR && strcmp(kind, "route") == 0) {
        by__broker_route(b, m);
    } else {
        return false;
    }
    return true;
}

void by__broker_event_list(by__broker *b, by__broker_peer *p, const char *list, size_t length)
{
    if (p->role == BY__WORKER) {
        by__broker_events(b, p, list, length);
    } else {
        drop(b, p, "events, which workers alone send");
    }
}

void by__broker_message(by__broker *b, by__broker_peer *p, const json_t *message)
{
    const char *kind = by__protocol_get_text(message, "t");
    if (kind == NULL || !handle_message(b, p, kind, message)) {
        drop(b, p, "a message that nobody of its kind sends");
        return;
    }
    if (p->role == BY__WORKER && strcmp(kind, "hello") == 0) {
        by__broker_measure(b);
        by__broker_dispatch(b, p->pool);
    }
}

bool by__broker_add_peer(by__broker *b, by__link *link)
{
    by__broker_peer *p = NULL;
    by_error ignored = {0};
    if (by__alloc((void **)&p, 1, sizeof *p, "a peer", &ignored) != BY_OK) {
        return false;
    }
    p->link = link;
    p->next = b->peers;
    b->peers = p;
    by__link_set(link, p);
    return true;
}

json_t *by__broker_state(const by__broker *b)
{
    double now = by__now();
    json_t *workers = json_array();
    json_t *models = json_array();
    for (const by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role == BY__WORKER) {
            json_t *w = json_pack(
                "{ss sI ss ss sI sI sI sb sf sf}", "name", p->name, "pid", (json_int_t)p->pid,
                "model", p->pool->model, "version", p->version->name, "slots", (json_int_t)p->slots,
                "requests", (json_int_t)p->jobs.count, "steps", (json_int_t)p->steps, "leaving",
                (int)p->leaving, "silent", now - p->last_message_at, "still", now - p->moved);
            (void)json_object_set(w, "engine", p->beat == NULL ? json_null() : p->beat);
            (void)json_array_append_new(workers, w);
        }
    }
    for (const by__broker_pool *p = b->pools; p != NULL; p = p->next) {
        double oldest = p->queue.first == NULL ? 0.0 : now - p->queue.first->since;
        json_t *m = json_pack(
            "{ss sO? sO? sI sI sI sf sI sI sf sI sb so}", "id", p->model, "info", p->info,
            "restarts", p->restarts, "workers", (json_int_t)p->workers, "queue",
            (json_int_t)p->queue.count, "queue_tokens", (json_int_t)p->queue.cost, "oldest", oldest,
            "sessions", (json_int_t)by__broker_sessions(b, p), "arrived", (json_int_t)p->arrived,
            "wait", by__broker_wait(b, p), "refused", (json_int_t)p->refused, "elastic",
            (int)p->elastic, "versions", by__broker_versions_state(p));
        (void)json_array_append_new(models, m);
    }
    return json_pack("{ss sb so so sI sI sI}", "t", "state", "gathering",
                     (int)(now - b->began < BY__GATHERING), "workers", workers, "models", models,
                     "retried", (json_int_t)b->retried, "expired", (json_int_t)b->expired, "dead",
                     (json_int_t)b->dead);
}

void by__broker_check_workers(by__broker *b)
{
    double now = by__now();
    /* After a pause of this process (a stopped machine, a disk that stalls) beats are still unread:
     * the silence of workers is measured anew. */
    bool paused = now - b->checked > 0.2 * b->options.silence_seconds + 0.004 * BY__BEAT;
    b->checked = now;
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role != BY__WORKER) {
            continue;
        }
        if (paused) {
            p->last_message_at = p->moved = now;
        } else if (now - p->last_message_at > b->options.silence_seconds) {
            drop(b, p, "no beat came");
        } else if (now - p->moved > b->options.hang_seconds) {
            suspend(b, p);
        }
    }
}

void by__broker_release(by__broker *b)
{
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        by__link_close(&p->link);
    }
    by__broker_free_peers(b);
    for (size_t i = 0; i < b->jobs.bucket_count; i++) {
        for (by__serve_id_entry *e = b->jobs.buckets[i], *next; e != NULL; e = next) {
            next = e->next;
            by__broker_job_free((by__broker_job *)(void *)e);
        }
    }
    by__serve_id_table_free(&b->jobs);
    by__broker_tasks_close(&b->tasks);
    while (b->pools != NULL) {
        by__broker_pool *p = b->pools;
        b->pools = p->next;
        json_decref(p->info);
        json_decref(p->restarts);
        by__broker_versions_free(p);
        free(p);
    }
}
