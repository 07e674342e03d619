/* Tasks: requests without a connected client, on disk until they expire. They are run at least
 * once, and have one result: that of the first attempt to complete. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/broker/broker.h"
#include "serve/telemetry/exposed_file.h"

/* Seconds between a failed write and a new run of the tasks that it concerned. */
#define RETRY 5.0
/* Most webhooks leased to a gateway at once. */
#define HOOKS 64

/* Logs a failed write: on disk the task keeps its state, and will run again. */
static void note_unwritten(by__broker *b, const by__broker_job *job, const char *reason)
{
    b->tasks_failed = by__now();
    by__telemetry_log_event(&b->log, "task_not_written", "{ss ss}", "id", job->entry.id, "reason",
                            reason);
}

static void write_state(by__broker *b, const by__broker_job *job, by__broker_task_state state,
                        const json_t *result, const json_t *failure)
{
    by_error error = {0};
    int attempts = job->earlier + job->attempt; /* never fewer than clients have seen */
    if (by__broker_tasks_set(b->tasks, job->entry.id, state, attempts, result, failure, &error) !=
        BY_OK) {
        note_unwritten(b, job, error.message);
    }
}

void by__broker_task_started(by__broker *b, const by__broker_job *job)
{
    write_state(b, job, BY__TASK_RUNNING, NULL, NULL);
}

void by__broker_task_event(by__broker *b, by__broker_job *job, const json_t *event)
{
    const char *kind = by__protocol_get_text(event, "e");
    if (kind == NULL) {
        by__protocol_gather_add(job->gather, NULL);
    } else if (strcmp(kind, "again") == 0) {
        by__protocol_gather_clear(job->gather);
        write_state(b, job, BY__TASK_QUEUED, NULL, NULL);
    } else if (strcmp(kind, "end") == 0 || strcmp(kind, "result") == 0) {
        json_t *result = by__protocol_gather_result(job->gather, event);
        if (result == NULL) {
            note_unwritten(b, job, "out of memory: an answer");
        } else {
            write_state(b, job, BY__TASK_COMPLETED, result, NULL);
        }
        json_decref(result);
    } else if (strcmp(kind, "error") == 0) {
        json_t *failure = by__protocol_gather_failure(event);
        write_state(b, job, BY__TASK_FAILED, NULL, failure);
        json_decref(failure);
    } else {
        by__protocol_gather_add(job->gather, event);
    }
}

/* ---- requests of gateways ---- */

/* Keeps an answer until what it reports is committed. */
static void defer_answer(by__broker_peer *p, json_t *answer)
{
    if (p->uncommitted == NULL) {
        p->uncommitted = json_array();
    }
    (void)json_array_append_new(p->uncommitted, answer);
}

static json_t *answer_of(const json_t *message, json_t *task)
{
    return json_pack("{ss sO so}", "t", "task", "ref", json_object_get(message, "ref"), "task",
                     task == NULL ? json_null() : task);
}

static void refuse(by__broker_peer *p, const json_t *message, int status, const char *code,
                   const char *why)
{
    json_t *answer = answer_of(message, NULL);
    (void)json_object_set_new(
        answer, "error", json_pack("{si ss ss}", "status", status, "code", code, "message", why));
    defer_answer(p, answer);
}

/* Puts a task of the file into the queue. attempts: those that the file has. */
static by_status enqueue(by__broker *b, const char *id, const json_t *task, double expires,
                         int64_t attempts, by_error *error)
{
    const char *model = by__protocol_get_text(task, "model");
    by__broker_pool *pool = model == NULL ? NULL : by__broker_find_pool(b, model);
    by__broker_job *job = NULL;
    if (pool == NULL || !by__serve_id_valid(id) || by__broker_find_job(b, id) != NULL) {
        return by_error_set(error, BY_EFORMAT, "a task that cannot be run");
    }
    BY_TRY(by__alloc((void **)&job, 1, sizeof *job, "a task", error));
    by_status status = by__protocol_gather_open(&job->gather, error);
    if (status == BY_OK) {
        status = by__serve_id_add(&b->jobs, &job->entry, id, error);
    }
    if (status != BY_OK) {
        by__broker_job_free(job);
        return status;
    }
    job->request = json_incref(json_object_get(task, "request"));
    job->pool = pool;
    job->cost = by__protocol_get_integer(task, "cost");
    job->sequences = by__protocol_sequences_of(task);
    job->priority = by__protocol_get_integer(task, "priority");
    job->earlier = (int)attempts;
    /* What has expired ends at the next look. */
    double left = expires - by__serve_wall_clock();
    job->deadline = by__now() + (left > 0.0 ? left : 0.0);
    job->since = by__now();
    job->version = pool->routed ? by__broker_pick(pool, id) : NULL;
    by__broker_job_enqueue(&pool->queue, job, false);
    return BY_OK;
}

/* The room of an owner for a message that adds a task. */
static by__broker_tasks_room room_for(const by__broker *b, const json_t *message)
{
    const json_t *task = json_object_get(message, "task");
    by_string rest = {0};
    by__json_write(&rest, json_object_get(task, "own"), JSON_COMPACT);
    by__json_write(&rest, json_object_get(message, "result"), JSON_COMPACT);
    size_t bytes = rest.length + json_string_length(json_object_get(task, "request"));
    by_string_free(&rest);
    return (by__broker_tasks_room){b->options.stored, b->options.stored_bytes, (int64_t)bytes};
}

/* Stores a result that a gateway has computed. */
static void store_result(by__broker *b, by__broker_peer *from, const json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    by_error error = {0};
    by__broker_tasks_room room = room_for(b, message);
    by_status status = by__broker_tasks_make_room(
        b->tasks, id, by__protocol_get_text(message, "owner"), &room, &error);
    if (status == BY_OK) {
        status = by__broker_tasks_add(b->tasks, message, &error);
    }
    if (status == BY_OK) {
        status = by__broker_tasks_set(b->tasks, id, BY__TASK_COMPLETED, 1,
                                      json_object_get(message, "result"), NULL, &error);
    }
    if (status != BY_OK) {
        by__telemetry_log_event(&b->log, "task_not_written", "{ss ss}", "id", id, "reason",
                                error.message);
        refuse(from, message, 503, "not_written", "the task could not be written to disk");
    }
}

static void add_task(by__broker *b, by__broker_peer *from, const json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    const json_t *task = json_object_get(message, "task");
    const char *model = by__protocol_get_text(task, "model");
    json_t *earlier = NULL;
    by_error error = {0};
    if (id == NULL || !by__serve_id_valid(id) || by__protocol_get_text(message, "owner") == NULL ||
        model == NULL || json_object_get(task, "request") == NULL) {
        refuse(from, message, 400, "invalid_request", "not a task");
        return;
    }
    if (json_is_object(json_object_get(message, "result"))) {
        store_result(b, from, message);
        return;
    }
    by__broker_pool *pool =
        by__broker_known_pool(b, model, json_is_true(json_object_get(message, "seen")));
    double seconds = 0.0;
    if (pool == NULL) {
        const by__protocol_refusal *none = by__broker_no_pool(b, &seconds);
        defer_answer(from, by__protocol_task_refused(message, none, seconds));
        return;
    }
    by_status status = by__broker_tasks_find(b->tasks, message, &earlier, &error);
    if (status == BY_OK && earlier != NULL) {
        defer_answer(from, answer_of(message, earlier));
        return;
    }
    double left = by__protocol_get_number(message, "expires", 0.0) - by__serve_wall_clock();
    const by__protocol_refusal *why = by__broker_refusal(b, from, pool, task, left, true, &seconds);
    if (why == NULL && status == BY_OK) {
        by__broker_tasks_room room = room_for(b, message);
        status = by__broker_tasks_make_room(b->tasks, id, by__protocol_get_text(message, "owner"),
                                            &room, &error);
        why = status == BY_EARG ? by__protocol_refusal_of("stored") : NULL;
        seconds = BY__STORED_RETRY;
    }
    if (why != NULL) {
        defer_answer(from, by__protocol_task_refused(message, why, seconds));
        return;
    }
    if (status == BY_OK) {
        status = by__broker_tasks_add(b->tasks, message, &error);
    }
    if (status == BY_OK) {
        status = enqueue(b, id, task, by__protocol_get_number(message, "expires", 0.0), 0, &error);
    }
    json_t *added = NULL;
    if (status == BY_OK) {
        status = by__broker_tasks_get(b->tasks, id, by__protocol_get_text(message, "owner"), &added,
                                      &error);
    }
    if (status != BY_OK) {
        by__telemetry_log_event(&b->log, "task_not_written", "{ss ss}", "id", id, "reason",
                                error.message);
        refuse(from, message, 503, "not_written", "the task could not be written to disk");
        return;
    }
    defer_answer(from, answer_of(message, added));
    by__broker_dispatch(b, pool);
}

/* kind: "task_get", "task_cancel", "task_delete", or "task_drop", which cancels a task that has not
 * ended, and deletes one that has. */
static void answer_task(by__broker *b, by__broker_peer *from, const json_t *message,
                        const char *kind)
{
    const char *id = by__protocol_get_text(message, "id");
    const char *owner = by__protocol_get_text(message, "owner");
    json_t *task = NULL;
    by_error error = {0};
    if (id == NULL || owner == NULL ||
        by__broker_tasks_get(b->tasks, id, owner, &task, &error) != BY_OK) {
        refuse(from, message, 503, "not_read", "the tasks could not be read");
        return;
    }
    const char *state = by__protocol_get_text(task, "status");
    bool ended = state != NULL && strcmp(state, by__broker_task_state_name(BY__TASK_QUEUED)) != 0 &&
                 strcmp(state, by__broker_task_state_name(BY__TASK_RUNNING)) != 0;
    bool deletes = strcmp(kind, "task_delete") == 0 || (strcmp(kind, "task_drop") == 0 && ended);
    if (task != NULL && strcmp(kind, "task_get") != 0) {
        by__broker_job *job = by__broker_find_job(b, id);
        if (job != NULL) {
            write_state(b, job, BY__TASK_CANCELLED, NULL, NULL);
            by__broker_cancel(b, id);
        }
    }
    if (task != NULL && deletes && by__broker_tasks_delete(b->tasks, id, &error) != BY_OK) {
        json_decref(task);
        refuse(from, message, 503, "not_written", "the task could not be deleted");
        return;
    }
    if (task != NULL && !deletes && strcmp(kind, "task_get") != 0) {
        json_decref(task);
        task = NULL;
        (void)by__broker_tasks_get(b->tasks, id, owner, &task, &error);
    }
    defer_answer(from, answer_of(message, task));
}

/* ---- webhooks ---- */

/* Sends webhooks that are due; the gateway gets them once their lease is on disk. */
static void send_hooks(by__broker *b, by__broker_peer *from, const json_t *message)
{
    json_t *hooks = NULL;
    by_error error = {0};
    int64_t most = by__protocol_get_integer(message, "most");
    if (by__broker_tasks_hooks(b->tasks, by__serve_wall_clock(),
                               by__protocol_get_number(message, "lease", 10.0),
                               most < 0       ? 0
                               : most > HOOKS ? HOOKS
                                              : most,
                               &hooks, &error) != BY_OK) {
        by__telemetry_log_event(&b->log, "hooks_not_read", "{ss}", "reason", error.message);
    }
    defer_answer(from,
                 json_pack("{ss so}", "t", "hooks", "hooks", hooks == NULL ? json_array() : hooks));
}

static void record_outcome(by__broker *b, const json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    const char *state = by__protocol_get_text(message, "state");
    double due = by__serve_wall_clock() + by__protocol_get_number(message, "delay", 0.0);
    by_error error = {0};
    if (id != NULL && state != NULL &&
        by__broker_tasks_set_hook(b->tasks, id, by__protocol_get_integer(message, "try"), state,
                                  due, &error) != BY_OK) {
        /* It is due again when its lease ends. */
        by__telemetry_log_event(&b->log, "hook_not_written", "{ss ss}", "id", id, "reason",
                                error.message);
    }
}

bool by__broker_task(by__broker *b, by__broker_peer *from, const char *kind, const json_t *message)
{
    if (strncmp(kind, "task_", 5) != 0) {
        return false;
    }
    if (b->tasks == NULL) {
        refuse(from, message, 501, "no_tasks", "this server keeps no tasks");
    } else if (strcmp(kind, "task_add") == 0) {
        add_task(b, from, message);
    } else if (strcmp(kind, "task_hooks") == 0) {
        send_hooks(b, from, message);
    } else if (strcmp(kind, "task_hook") == 0) {
        record_outcome(b, message);
    } else {
        answer_task(b, from, message, kind);
    }
    return true;
}

/* ---- disk ---- */

void by__broker_commit(by__broker *b)
{
    by_error error = {0};
    by_status status = b->tasks == NULL ? BY_OK : by__broker_tasks_commit(b->tasks, &error);
    if (status != BY_OK) {
        b->tasks_failed = by__now();
        by__telemetry_log_event(&b->log, "tasks_not_written", "{ss}", "reason", error.message);
    }
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        json_t *uncommitted = p->uncommitted;
        size_t i;
        json_t *answer;
        p->uncommitted = NULL;
        json_array_foreach(uncommitted, i, answer)
        {
            if (status != BY_OK) {
                (void)json_object_set_new(answer, "hooks", json_array());
                (void)json_object_set_new(answer, "task", json_null());
                (void)json_object_set_new(answer, "error",
                                          json_pack("{si ss ss}", "status", 503, "code",
                                                    "not_written", "message",
                                                    "the task could not be written to disk"));
            }
            if (p->link != NULL) {
                (void)by__link_send(p->link, answer);
            }
        }
        json_decref(uncommitted);
    }
}

/* Queues tasks that have not ended on disk and are not queued yet. */
static by_status enqueue_open_ones(by__broker *b, by_error *error)
{
    json_t *open = NULL;
    size_t i;
    json_t *row;
    by_status status = by__broker_tasks_open_ones(b->tasks, &open, error);
    json_array_foreach(open, i, row)
    {
        const char *id = by__protocol_get_text(row, "id");
        by_error why = {0};
        if (id == NULL || (by__broker_find_job(b, id) == NULL &&
                           enqueue(b, id, json_object_get(row, "task"),
                                   by__protocol_get_number(row, "expires_at", 0.0),
                                   by__protocol_get_integer(row, "attempts"), &why) != BY_OK)) {
            by__telemetry_log_event(&b->log, "task_lost", "{ss? ss}", "id", id, "reason",
                                    why.message);
        }
    }
    json_decref(open);
    return status;
}

by_status by__broker_tasks_load(by__broker *b, by_error *error)
{
    if (b->options.tasks == NULL) {
        return BY_OK;
    }
    BY_TRY(by__broker_tasks_open(&b->tasks, b->options.tasks, error));
    by__telemetry_log_exposed(&b->log, b->options.tasks, "tasks, with their prompts and answers");
    return enqueue_open_ones(b, error);
}

void by__broker_tasks_maintain(by__broker *b)
{
    double now = by__now();
    by_error error = {0};
    if (b->tasks != NULL && now - b->tasks_swept > 60.0) {
        b->tasks_swept = now;
        if (by__broker_tasks_expire(b->tasks, by__serve_wall_clock(), &error) != BY_OK) {
            by__telemetry_log_event(&b->log, "tasks_not_expired", "{ss}", "reason", error.message);
        }
    }
    if (b->tasks_failed > 0.0 && now - b->tasks_failed > RETRY) {
        /* Tasks whose end could not be written are still open on disk. */
        b->tasks_failed = 0.0;
        if (enqueue_open_ones(b, &error) != BY_OK) {
            b->tasks_failed = now;
        }
        for (by__broker_pool *p = b->pools; p != NULL; p = p->next) {
            by__broker_dispatch(b, p);
        }
    }
}
