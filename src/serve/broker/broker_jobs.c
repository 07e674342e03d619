/* Requests in the broker: queued by model, given to workers, and ended. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker/broker.h"
#include "serve/protocol/task_turn.h"

/* Bounds of "priority". */
#define MAX_PRIORITY 100
/* Bytes of the buffer for a gateway's next events that are kept allocated. */
#define MAX_KEPT_BUFFER ((size_t)256 << 10)

/* Appends an event to a gateway's next batch, and drops the reference. */
static void send_event(by__broker_peer *gateway, json_t *event)
{
    if (gateway != NULL) {
        by__protocol_events_add(&gateway->batch, 0, event);
    }
    json_decref(event);
}

void by__broker_flush(by__broker *b)
{
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        by_string *batch = &p->batch;
        if (p->link != NULL && batch->failed) {
            by__link_fail(p->link, "no memory for its events");
        } else if (p->link != NULL && batch->length > 0) {
            (void)by__link_send_events(p->link, batch->data, batch->length);
        }
        if (batch->failed || batch->capacity > MAX_KEPT_BUFFER) {
            by_string_free(batch);
        }
        batch->length = 0;
    }
}

by__broker_job *by__broker_find_job(const by__broker *b, const char *id)
{
    return (by__broker_job *)(void *)by__serve_id_find(&b->jobs, id);
}

/* The same for the receiver of a job: a gateway, or the file of tasks. */
static void send_job_event(by__broker *b, by__broker_job *job, json_t *event)
{
    by__broker_mirror_event(job, event);
    if (job->gather == NULL) {
        send_event(job->from, event);
        return;
    }
    by__broker_task_event(b, job, event);
    json_decref(event);
}

/* Handles an event of a worker. An event for a gateway only is forwarded without parsing it. */
static void relay(by__broker *b, by__broker_job *job, const by__serve_event *event)
{
    bool read = job->gather != NULL || job->mirror != NULL || job->mirrors != NULL;
    json_t *json = read ? by__protocol_event_json(event) : NULL;
    by__broker_mirror_event(job, json);
    if (job->gather != NULL) {
        by__broker_task_event(b, job, json);
    } else if (job->from != NULL) {
        by_string_add(&job->from->batch, event->record, event->size);
    }
    json_decref(json);
}

static void count_end(const by__broker_job *job, const by__serve_event *event)
{
    json_t *error = event->kind == BY__EVENT_ERROR ? by__protocol_event_json(event) : NULL;
    by__broker_count_end(job, error);
    json_decref(error);
}

/* Removes a job from all lists and frees it. */
static void remove_job(by__broker *b, by__broker_job *job)
{
    /* Other workers are not counted as busy either. */
    bool counts = job->worker != NULL && by__broker_open(job->pool, job->worker);
    job->pool->ended += counts ? job->sequences : 0;
    by__broker_job_unlink(job->worker != NULL ? &job->worker->jobs : &job->pool->queue, job);
    by__serve_id_remove(&b->jobs, &job->entry);
    by__broker_job_free(job);
}

void by__broker_fail(by__broker *b, by__broker_job *job, int status, const char *code,
                     const char *message)
{
    json_t *event = by__protocol_event_error(job->entry.id, status, code, NULL, message);
    by__broker_count_end(job, event);
    send_job_event(b, job, event);
    remove_job(b, job);
}

/* ---- new ones ---- */

by__broker_pool *by__broker_find_pool(by__broker *b, const char *model)
{
    by__broker_pool *p = b->pools;
    by_error ignored = {0};
    while (p != NULL && strcmp(p->model, model) != 0) {
        p = p->next;
    }
    if (p == NULL) {
        if (strlen(model) >= sizeof p->model ||
            by__alloc((void **)&p, 1, sizeof *p, "a model", &ignored) != BY_OK) {
            return NULL;
        }
        memcpy(p->model, model, strlen(model) + 1);
        p->routed = b->options.supervised;
        p->next = b->pools;
        b->pools = p;
    }
    return p;
}

by__broker_pool *by__broker_known_pool(by__broker *b, const char *model, bool seen)
{
    by__broker_pool *p = b->pools;
    while (p != NULL && strcmp(p->model, model) != 0) {
        p = p->next;
    }
    bool gathering = by__now() - b->began < BY__GATHERING;
    if (p == NULL && gathering && seen) {
        p = by__broker_find_pool(b, model);
    }
    return p != NULL && (p->info != NULL || gathering) ? p : NULL;
}

void by__broker_submit(by__broker *b, by__broker_peer *from, const json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    const char *model = by__protocol_get_text(message, "model");
    json_t *request = json_object_get(message, "request");
    int64_t cost = by__protocol_get_integer(message, "cost");
    int64_t priority = by__protocol_get_integer(message, "priority");
    by__broker_pool *pool =
        model == NULL
            ? NULL
            : by__broker_known_pool(b, model, json_is_true(json_object_get(message, "seen")));
    by__broker_job *job = NULL;
    double seconds = 0.0;
    by_error ignored = {0};
    if (id == NULL || !by__serve_id_valid(id)) {
        return;
    }
    by__broker_job *earlier = by__broker_find_job(b, id);
    if (earlier != NULL && (earlier->from == from || earlier->gather != NULL)) {
        return;
    }
    /* The gateway has reconnected before its former link ended. */
    by__broker_cancel(b, id);
    if (pool == NULL || request == NULL) {
        const by__protocol_refusal *none = by__broker_no_pool(b, &seconds);
        send_event(from, by__protocol_event_refused(id, none, seconds));
        return;
    }
    /* A request that was accepted before is not refused again. */
    bool again = json_is_true(json_object_get(message, "again"));
    const char *name = by__protocol_get_text(message, "version");
    by__broker_version *version = name == NULL ? NULL : by__broker_find_version(pool, name, true);
    if (name != NULL && version == NULL) {
        send_event(from, by__protocol_event_error(
                             id, 503, "version_gone", NULL,
                             "the version of the model that was asked for is not served"));
        return;
    }
    double left = by__protocol_get_number(message, "left", 0.0);
    const by__protocol_refusal *why =
        again ? NULL : by__broker_refusal(b, from, pool, message, left, false, &seconds);
    if (why != NULL) {
        send_event(from, by__protocol_event_refused(id, why, seconds));
        return;
    }
    by_status status = by__alloc((void **)&job, 1, sizeof *job, "a request", &ignored);
    if (status == BY_OK) {
        status = by__serve_id_add(&b->jobs, &job->entry, id, &ignored);
    }
    if (status != BY_OK) {
        free(job);
        send_event(from, by__protocol_event_error(id, 503, "out_of_memory", NULL,
                                                  "no memory for a request"));
        return;
    }
    job->request = json_incref(request);
    job->pool = pool;
    job->from = from;
    job->cost = cost;
    job->sequences = by__protocol_sequences_of(message);
    job->priority = priority < -MAX_PRIORITY  ? -MAX_PRIORITY
                    : priority > MAX_PRIORITY ? MAX_PRIORITY
                                              : priority;
    job->deadline = left > 0.0 ? by__now() + left : 0.0;
    job->whole = json_is_true(json_object_get(message, "whole"));
    job->since = by__now();
    job->bound = version != NULL;
    job->version = version == NULL && pool->routed ? by__broker_pick(pool, id) : version;
    by__broker_job_enqueue(&pool->queue, job, false);
    by__broker_start_mirror(b, job);
    by__broker_dispatch(b, pool);
}

/* ---- to workers ---- */

/* The last attempt of a request that has lost workers gets a worker to itself: if it is what kills
 * them, it takes no other request along; if it is not, it completes. */
static bool goes_alone(const by__broker *b, const by__broker_job *job)
{
    return job->attempt > 0 && job->attempt + 1 >= b->options.attempts;
}

static bool takes(const by__broker_peer *p, const by__broker_job *job)
{
    bool serves = job->version == NULL ? !job->pool->routed : p->version == job->version;
    bool occupied = p->jobs.first != NULL && p->jobs.first->alone;
    return p->role == BY__WORKER && p->pool == job->pool && !p->leaving && serves && !occupied;
}

static bool waits_for_session(const by__broker_job *job)
{
    return job->gather != NULL && !job->promoted;
}

/* Free slots of a worker for a job. A task waits in the queue for a free session: at the worker it
 * would be ahead of all requests that come later. `task_ahead`: a task waits ahead of this job,
 * which must not take the session that the task waits for. */
static int64_t room_for(const by__broker_peer *p, const by__broker_job *job, bool task_ahead)
{
    return !waits_for_session(job) && !task_ahead ? p->slots - (int64_t)p->jobs.count
                                                  : p->sessions - p->jobs.sequences;
}

/* The worker that has the most room for a job; NULL: none has room. `reserved`, which is reserved
 * for a request that needs a worker to itself, is skipped. */
static by__broker_peer *choose(const by__broker *b, const by__broker_job *job,
                               const by__broker_peer *reserved, bool task_ahead)
{
    by__broker_peer *best = NULL;
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        int64_t room = room_for(p, job, task_ahead);
        int64_t most = best == NULL ? 0 : room_for(best, job, task_ahead);
        /* Ties go to the worker that has had no request for the longest time. */
        if (takes(p, job) && p != reserved &&
            (room > most || (room == most && best != NULL && p->given < best->given))) {
            best = p;
        }
    }
    return best != NULL && best->jobs.count > 0 && goes_alone(b, job) ? NULL : best;
}

/* The worker that will be idle soonest, reserved for a request that needs it to itself. */
static const by__broker_peer *reserve_worker(const by__broker *b, const by__broker_job *job)
{
    const by__broker_peer *best = NULL;
    for (const by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        if (takes(p, job) && (best == NULL || p->jobs.count < best->jobs.count)) {
            best = p;
        }
    }
    return best;
}

static bool has_room(const by__broker *b, const by__broker_pool *pool)
{
    for (const by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role == BY__WORKER && p->pool == pool && !p->leaving &&
            p->slots > (int64_t)p->jobs.count) {
            return true;
        }
    }
    return false;
}

/* Returns true if a task that has waited long is to go ahead, after enough requests were given to
 * workers (task_turn.h). */
static bool promotes(by__broker_pool *pool)
{
    if (pool->given + 1 < BY__TASK_TURN || !by__broker_job_promote(&pool->queue, by__now())) {
        return false;
    }
    pool->given = 0;
    return true;
}

/* Gives a job to a worker. Returns false if the worker's link was lost; its jobs are then queued
 * again. */
static bool dispatch_to(by__broker *b, by__broker_job *job, by__broker_peer *worker)
{
    by__broker_pool *pool = job->pool;
    job->version = worker->version;
    job->alone = goes_alone(b, job);
    worker->given = by__now();
    job->attempt++;
    job->delivery = ++b->deliveries;
    double left = job->deadline > 0.0 ? job->deadline - by__now() : 0.0;
    left = job->deadline > 0.0 && left < 0.001 ? 0.001 : left;
    json_t *work = json_pack("{ss ss sI sf sO}", "t", "work", "id", job->entry.id, "attempt",
                             (json_int_t)job->delivery, "left", left, "request", job->request);
    by__broker_job_unlink(&pool->queue, job);
    job->worker = worker;
    by__broker_job_enqueue(&worker->jobs, job, false);
    pool->given = job->gather != NULL ? 0 : pool->given + (pool->given < BY__TASK_TURN);
    if (job->gather != NULL) {
        by__broker_task_started(b, job);
    }
    bool sent = by__link_send(worker->link, work);
    json_decref(work);
    return sent;
}

void by__broker_dispatch(by__broker *b, by__broker_pool *pool)
{
    const by__broker_peer *reserved = NULL;
    bool task_ahead = false;
    by__broker_job *next = NULL;
    if (has_room(b, pool)) {
        (void)promotes(pool);
        next = pool->queue.first;
    }
    while (next != NULL && has_room(b, pool)) {
        by__broker_job *job = next;
        by__broker_peer *worker = choose(b, job, reserved, task_ahead);
        next = job->next;
        if (worker == NULL) {
            task_ahead = task_ahead || waits_for_session(job);
            reserved = reserved == NULL && goes_alone(b, job) ? reserve_worker(b, job) : reserved;
        } else if (!dispatch_to(b, job, worker) || promotes(pool)) {
            next = pool->queue.first; /* `next` may have moved */
        }
    }
}

/* ---- events ---- */

void by__broker_events(by__broker *b, by__broker_peer *worker, const char *list, size_t length)
{
    by__serve_event event;
    size_t at = 0;
    bool ended = false;
    while (by__protocol_events_next(list, length, &at, &event)) {
        by__broker_job *job = by__broker_find_job(b, event.id);
        /* Events of a request that was given to another worker since are stale, even if the gateway
         * has submitted it again with the same id. */
        if (job == NULL || job->worker != worker || event.attempt != (int64_t)job->delivery) {
            continue;
        }
        if (event.kind == BY__EVENT_PIECE || event.kind == BY__EVENT_TEXT) {
            by__broker_count_first(job);
            job->answered = true;
            job->bound = job->bound || (job->gather == NULL && !job->whole);
        }
        relay(b, job, &event);
        if (by__protocol_event_ends(&event)) {
            count_end(job, &event);
            remove_job(b, job);
            ended = true;
        }
    }
    if (ended && worker->pool != NULL) {
        by__broker_dispatch(b, worker->pool);
    }
}

void by__broker_cancel(by__broker *b, const char *name)
{
    char id[65]; /* `name` may belong to the job, which may end below */
    by__broker_job *job = by__broker_find_job(b, name);
    if (job == NULL) {
        return;
    }
    memcpy(id, job->entry.id, sizeof id);
    by__broker_peer *worker = job->worker;
    by__broker_pool *pool = job->pool;
    if (worker != NULL) {
        json_t *cancel = json_pack("{ss ss}", "t", "cancel", "id", id);
        (void)by__link_send(worker->link, cancel);
        json_decref(cancel);
    }
    /* Sending may have lost the worker. */
    job = by__broker_find_job(b, id);
    if (job != NULL) {
        remove_job(b, job);
    }
    by__broker_dispatch(b, pool);
}

void by__broker_requeue(by__broker *b, by__broker_peer *worker, const char *why)
{
    by__broker_pool *pool = worker->pool;
    while (worker->jobs.last != NULL) {
        /* From last to first, each to the front: the order is kept. */
        by__broker_job *job = worker->jobs.last;
        if (job->attempt >= b->options.attempts) {
            by_string text = {0};
            by_string_format(&text, "its worker was lost %d times (%s)", job->attempt, why);
            by__telemetry_log_event(&b->log, "request_failed", "{ss ss si}", "id", job->entry.id,
                                    "reason", why, "attempts", job->attempt);
            b->dead++;
            by__broker_fail(b, job, 500, "worker_lost",
                            text.failed ? "its worker was lost" : text.data);
            by_string_free(&text);
            continue;
        }
        by__broker_job_unlink(&worker->jobs, job);
        job->worker = NULL;
        by__broker_job_enqueue(&pool->queue, job, true);
        send_job_event(b, job, by__protocol_event_new(job->entry.id, "again"));
        b->retried++;
    }
    if (pool != NULL) {
        by__broker_reroute(b, pool);
        by__broker_dispatch(b, pool);
    }
}

void by__broker_drop_gateway(by__broker *b, by__broker_peer *gateway)
{
    for (size_t i = 0; i < b->jobs.bucket_count; i++) {
        for (by__serve_id_entry *e = b->jobs.buckets[i], *next; e != NULL; e = next) {
            by__broker_job *job = (by__broker_job *)(void *)e;
            next = e->next;
            if (job->from == gateway) {
                job->from = NULL;
                by__broker_cancel(b, job->entry.id);
                /* The bucket may have changed. */
                next = b->jobs.buckets[i];
            }
        }
    }
}

void by__broker_expire(by__broker *b)
{
    double now = by__now();
    bool gathered = by__now() - b->began > BY__GATHERING;
    for (by__broker_pool *pool = b->pools; pool != NULL; pool = pool->next) {
        for (by__broker_job *job = pool->queue.first, *next; job != NULL; job = next) {
            next = job->next;
            if (gathered && pool->info == NULL && job->gather == NULL) {
                send_job_event(b, job,
                               by__protocol_event_refused(job->entry.id,
                                                          by__protocol_refusal_of("unknown"), 0.0));
                remove_job(b, job);
            } else if (job->deadline > 0.0 && now > job->deadline) {
                b->expired++;
                send_job_event(b, job,
                               by__protocol_event_error(job->entry.id, 504, "deadline_exceeded",
                                                        NULL,
                                                        "no worker was free before the deadline"));
                remove_job(b, job);
            }
        }
    }
}
