/* The broker: who is connected, beats and their absence, the state that others see. */
#include "serve/broker.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "serve/stop.h"

/* ---- peers ---- */

/* Frees peers that have parted. Not before: who walks over the list may send to one whose link
 * breaks just then. */
static void sweep(by__broker *b)
{
    for (by__peer **at = &b->peers; *at != NULL;) {
        by__peer *p = *at;
        if (p->link != NULL) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        json_decref(p->beat);
        json_decref(p->batch);
        json_decref(p->held);
        free(p);
    }
}

/* Ends what a peer had; it gets nothing any more. Its link is closed by the caller. */
static void part(by__broker *b, by__peer *p, const char *why)
{
    static const char *const names[] = {"stranger", "gateway", "worker", "supervisor"};
    by__role role = p->role;
    p->role = BY__NOBODY;
    p->link = NULL;
    if (role != BY__NOBODY) {
        by__log_event(&b->log, "peer_lost", "{ss ss sI ss}", "role", names[role], "name", p->name,
                      "pid", (json_int_t)p->pid, "reason", why);
    }
    if (role == BY__WORKER) {
        p->pool->workers--;
        p->version->workers--;
        by__broker_orphans(b, p, why);
    } else if (role == BY__GATEWAY || role == BY__SUPERVISOR) {
        by__broker_forsaken(b, p);
    }
}

static void drop(by__broker *b, by__peer *p, const char *why)
{
    by__link *link = p->link;
    part(b, p, why);
    by__link_close(&link);
}

/* The first message of a peer. False: it is none of ours. */
static bool greet(by__broker *b, by__peer *p, const json_t *m)
{
    const char *role = by__get_text(m, "role");
    const char *name = by__get_text(m, "name");
    const char *model = by__get_text(m, "model");
    const char *version = by__get_text(m, "version");
    if (role == NULL || name == NULL || !by__id_valid(name)) {
        return false;
    }
    memcpy(p->name, name, strlen(name) + 1);
    p->pid = by__get_integer(m, "pid");
    p->heard = p->moved = by__now();
    if (strcmp(role, "worker") == 0) {
        p->slots = by__get_integer(m, "slots");
        p->pool = model == NULL ? NULL : by__broker_pool(b, model, json_object_get(m, "info"));
        p->version = p->pool == NULL || version == NULL || p->slots < 1
                         ? NULL
                         : by__broker_version(p->pool, version, true);
        if (p->version == NULL) {
            p->pool = NULL;
            return false;
        }
        p->pool->workers++;
        p->version->workers++;
        p->role = BY__WORKER;
    } else if (strcmp(role, "gateway") == 0) {
        p->role = BY__GATEWAY;
    } else if (strcmp(role, "supervisor") == 0) {
        p->role = BY__SUPERVISOR;
    } else {
        return false;
    }
    by__log_event(&b->log, "peer", "{ss ss sI}", "role", role, "name", p->name, "pid",
                  (json_int_t)p->pid);
    return true;
}

static void take_beat(by__peer *p, const json_t *m)
{
    int64_t steps = by__get_integer(m, "steps");
    p->heard = by__now();
    if (steps != p->steps || !json_is_true(json_object_get(m, "busy"))) {
        p->moved = p->heard;
    }
    p->steps = steps;
    json_decref(p->beat);
    p->beat = json_deep_copy(json_object_get(m, "engine"));
}

static bool take_message(by__broker *b, by__peer *p, const char *kind, const json_t *m)
{
    if (p->role == BY__NOBODY) {
        return strcmp(kind, "hello") == 0 && greet(b, p, m);
    }
    if (p->role == BY__GATEWAY && by__broker_task(b, p, kind, m)) {
        return true;
    }
    bool asks = p->role == BY__GATEWAY || p->role == BY__SUPERVISOR;
    if (asks && strcmp(kind, "submit") == 0) {
        by__broker_submit(b, p, m);
    } else if (p->role == BY__GATEWAY && strcmp(kind, "cancel") == 0) {
        const char *id = by__get_text(m, "id");
        by__job *job = id == NULL ? NULL : by__broker_job(b, id);
        if (job != NULL && job->from == p) {
            by__broker_cancel(b, id);
        }
    } else if (p->role == BY__WORKER && strcmp(kind, "events") == 0) {
        by__broker_events(b, p, m);
    } else if (p->role == BY__WORKER && strcmp(kind, "beat") == 0) {
        take_beat(p, m);
    } else if (p->role == BY__WORKER && strcmp(kind, "leaving") == 0) {
        p->leaving = true;
    } else if (p->role == BY__SUPERVISOR && strcmp(kind, "route") == 0) {
        by__broker_route(b, m);
    } else {
        return false;
    }
    return true;
}

static void on_message(void *user, by__link *link, json_t *message)
{
    by__broker *b = user;
    by__peer *p = by__link_get(link);
    const char *kind = by__get_text(message, "t");
    if (kind == NULL || !take_message(b, p, kind, message)) {
        drop(b, p, "a message that nobody of its kind sends");
        return;
    }
    if (p->role == BY__WORKER && strcmp(kind, "hello") == 0) {
        by__broker_give(b, p->pool);
    }
}

static void on_lost(void *user, by__link *link, const char *why)
{
    part(user, by__link_get(link), why);
}

static void on_taken(void *user, by__link *link)
{
    by__broker *b = user;
    by__peer *p = NULL;
    by_error ignored = {0};
    if (by__alloc((void **)&p, 1, sizeof *p, "a peer", &ignored) != BY_OK) {
        by__link_close(&link);
        return;
    }
    p->link = link;
    p->next = b->peers;
    b->peers = p;
    by__link_set(link, p);
}

/* ---- the state ---- */

static json_t *state_of(const by__broker *b)
{
    double now = by__now();
    json_t *workers = json_array();
    json_t *models = json_array();
    for (const by__peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role == BY__WORKER) {
            json_t *w = json_pack(
                "{ss sI ss ss sI sI sI sb sf sf}", "name", p->name, "pid", (json_int_t)p->pid,
                "model", p->pool->model, "version", p->version->name, "slots", (json_int_t)p->slots,
                "requests", (json_int_t)p->jobs.count, "steps", (json_int_t)p->steps, "leaving",
                (int)p->leaving, "silent", now - p->heard, "still", now - p->moved);
            (void)json_object_set(w, "engine", p->beat == NULL ? json_null() : p->beat);
            (void)json_array_append_new(workers, w);
        }
    }
    for (const by__pool *p = b->pools; p != NULL; p = p->next) {
        double oldest = p->queue.first == NULL ? 0.0 : now - p->queue.first->since;
        json_t *m = json_pack("{ss sO? sI sI sI sf sI sb so}", "id", p->model, "info", p->info,
                              "workers", (json_int_t)p->workers, "queue",
                              (json_int_t)p->queue.count, "queue_tokens", (json_int_t)p->queue.cost,
                              "oldest", oldest, "arrived", (json_int_t)p->arrived, "elastic",
                              (int)p->elastic, "versions", by__broker_versions_state(p));
        (void)json_array_append_new(models, m);
    }
    return json_pack("{ss so so sI sI sI sI}", "t", "state", "workers", workers, "models", models,
                     "rejected", (json_int_t)b->rejected, "retried", (json_int_t)b->retried,
                     "expired", (json_int_t)b->expired, "dead", (json_int_t)b->dead);
}

/* A worker that says nothing, or has work and makes no step, counts as dead. */
static void look_at_workers(by__broker *b)
{
    double now = by__now();
    /* After a pause of this process (a stopped machine, a disk that stalls) beats are still unread:
     * silence is counted anew. */
    bool paused = now - b->looked > 0.2 * b->options.silence_seconds + 0.004 * BY__BEAT;
    b->looked = now;
    for (by__peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role != BY__WORKER) {
            continue;
        }
        if (paused) {
            p->heard = p->moved = now;
        } else if (now - p->heard > b->options.silence_seconds) {
            drop(b, p, "no beat came");
        } else if (now - p->moved > b->options.hang_seconds) {
            drop(b, p, "it has work and makes no step");
        }
    }
}

static void on_timer(uv_timer_t *timer)
{
    by__broker *b = timer->data;
    look_at_workers(b);
    by__broker_expire(b);
    by__broker_tasks_tend(b);
    by__broker_versions_tend(b);
    json_t *state = state_of(b);
    for (by__peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role == BY__GATEWAY || p->role == BY__SUPERVISOR) {
            (void)by__link_send(p->link, state);
        }
    }
    json_decref(state);
}

static void on_check(uv_check_t *check)
{
    by__broker_tasks_commit(check->data);
    by__broker_flush(check->data);
    sweep(check->data);
}

/* ---- the process ---- */

static void on_stop(void *user, bool again)
{
    by__broker *b = user;
    /* What was accepted is at gateways and workers, which end first: nothing is waited for. */
    BY_UNUSED(again);
    uv_stop(&b->loop);
}

static void release(by__broker *b)
{
    for (by__peer *p = b->peers; p != NULL; p = p->next) {
        by__link_close(&p->link);
    }
    sweep(b);
    for (size_t i = 0; i < b->jobs.bucket_count; i++) {
        for (by__id_entry *e = b->jobs.buckets[i], *next; e != NULL; e = next) {
            next = e->next;
            by__job_free((by__job *)(void *)e);
        }
    }
    by__id_table_free(&b->jobs);
    by__tasks_close(&b->tasks);
    while (b->pools != NULL) {
        by__pool *p = b->pools;
        b->pools = p->next;
        json_decref(p->info);
        by__broker_versions_free(p);
        free(p);
    }
}

/* Two brokers on one socket would each have half of the peers. The lock ends with the process. */
static by_status lock_socket(int *out, const char *path, by_error *error)
{
    by__text name = {0};
    by__text_format(&name, "%s.lock", path);
    if (name.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    *out = open(name.data, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    by_status status = *out < 0 ? by__io_error(error, "open", name.data) : BY_OK;
    if (status == BY_OK && flock(*out, LOCK_EX | LOCK_NB) != 0) {
        status =
            by_error_set(error, BY_ECONFIG,
                         "another broker listens on %s: end it, or choose another directory", path);
    }
    by__text_free(&name);
    return status;
}

static void set_defaults(by_broker_options *o)
{
    o->queue_requests = o->queue_requests > 0 ? o->queue_requests : 1024;
    o->queue_tokens = o->queue_tokens > 0 ? o->queue_tokens : 4000000;
    o->attempts = o->attempts > 0 ? o->attempts : 3;
    o->silence_seconds = o->silence_seconds > 0.0 ? o->silence_seconds : 5.0;
    o->hang_seconds = o->hang_seconds > 0.0 ? o->hang_seconds : 60.0;
}

by_status by_broker_run(const by_broker_options *options, by_error *error)
{
    by__broker b = {.options = *options, .log = {options->log, options->user}, .began = by__now()};
    by__link_handler handler = {.message = on_message, .lost = on_lost, .user = &b};
    by__stop *stop = NULL;
    int lock = -1;
    set_defaults(&b.options);
    b.looked = b.began;
    by_status status = lock_socket(&lock, options->socket, error);
    if (status != BY_OK) {
        if (lock >= 0) {
            (void)close(lock);
        }
        return status;
    }
    int code = uv_loop_init(&b.loop);
    if (code < 0) {
        (void)close(lock);
        return by__uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&b.loop, &b.timer);
    (void)uv_check_init(&b.loop, &b.check);
    b.timer.data = b.check.data = &b;
    status = by__link_listen(&b.listener, &b.loop, options->socket, on_taken, &handler, error);
    if (status == BY_OK) {
        status = by__broker_tasks_load(&b, error);
    }
    if (status == BY_OK) {
        status = by__stop_open(&stop, &b.loop, b.options.child, on_stop, &b, error);
    }
    if (status == BY_OK) {
        (void)uv_timer_start(&b.timer, on_timer, BY__BEAT, BY__BEAT);
        (void)uv_check_start(&b.check, on_check);
        by__log_event(&b.log, "broker_ready", "{ss}", "socket", options->socket);
        (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    }
    by__stop_close(&stop);
    by__link_listener_close(&b.listener);
    release(&b);
    uv_close((uv_handle_t *)&b.timer, NULL);
    uv_close((uv_handle_t *)&b.check, NULL);
    (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&b.loop);
    (void)close(lock);
    return status;
}
