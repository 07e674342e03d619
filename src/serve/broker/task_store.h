/* Tasks on disk: a SQLite file that survives a crash at any moment.
 *
 * A write is durable once by__broker_tasks_commit has returned. The writes of one turn of the event
 * loop share one commit, and so one wait for the disk. */
#ifndef BY_SERVE_BROKER_TASK_STORE_H
#define BY_SERVE_BROKER_TASK_STORE_H

#include "serve/base/serve.h"

typedef struct by__broker_tasks by__broker_tasks;

typedef enum by__broker_task_state {
    BY__TASK_QUEUED,
    BY__TASK_RUNNING,
    BY__TASK_COMPLETED,
    BY__TASK_FAILED,
    BY__TASK_CANCELLED
} by__broker_task_state;

/* "queued", "in_progress", "completed", "failed", "cancelled". */
const char *by__broker_task_state_name(by__broker_task_state state);

by_status by__broker_tasks_open(by__broker_tasks **out, const char *path, by_error *error);
void by__broker_tasks_close(by__broker_tasks **tasks);

/* What an owner may have of tasks, and of responses. */
typedef struct by__broker_tasks_room {
    int64_t most;
    int64_t most_bytes;
    int64_t bytes; /* of the one that comes */
} by__broker_tasks_room;

/* Makes room for a new task or response with this id: deletes the oldest responses that have ended
 * as far as needed. BY_EARG: there is no room, because the owner has as many tasks, or responses
 * that have not ended. */
by_status by__broker_tasks_make_room(by__broker_tasks *tasks, const char *id, const char *owner,
                                     const by__broker_tasks_room *room, by_error *error);
/* Writes a new task: {"id", "owner", "key" (of idempotency, or absent), "model", "expires", "task":
 * the message that created it, with "webhook": a URL to notify of its end, if any}. */
by_status by__broker_tasks_add(by__broker_tasks *tasks, const json_t *task, by_error *error);
/* Finds the owner's task with the same idempotency key as a new one; *out as by__broker_tasks_get
 * sets it, or NULL. */
by_status by__broker_tasks_find(by__broker_tasks *tasks, const json_t *task, json_t **out,
                                by_error *error);
/* Reads a task of an owner: {"id", "owner", "status", "created_at", "expires_at", "attempts",
 * "task" (without its request), "result" or null, "error" or null, and of a task with a webhook
 * "hook": {"status": "pending", "delivered" or "failed", "attempts"}}. *out is NULL when there is
 * none; a new reference. */
by_status by__broker_tasks_get(by__broker_tasks *tasks, const char *id, const char *owner,
                               json_t **out, by_error *error);
/* Sets the state of a task that has not ended; result and error (NULL: none) are stored with it.
 * The request of one that has ended is dropped. */
by_status by__broker_tasks_set(by__broker_tasks *tasks, const char *id, by__broker_task_state state,
                               int attempts, const json_t *result, const json_t *failure,
                               by_error *error);
/* Deletes a task, whatever its state. */
by_status by__broker_tasks_delete(by__broker_tasks *tasks, const char *id, by_error *error);
/* Lists tasks that have not ended, in order of arrival: [task, ...], a new reference. */
by_status by__broker_tasks_open_ones(by__broker_tasks *tasks, json_t **out, by_error *error);
/* Deletes tasks that expired before `now` (seconds since 1970); one whose webhook is still to be
 * sent is kept for up to a day longer. */
by_status by__broker_tasks_expire(by__broker_tasks *tasks, double now, by_error *error);

/* ---- webhooks: messages about the end of a task, kept with it ---- */

/* Leases up to `most` webhooks that are due at `now` for `seconds`, after which they are due again:
 * [task, ...] as by__broker_tasks_get gives them, without results, with "tries" (attempts including
 * this one) and "ended_at"; a new reference. */
by_status by__broker_tasks_hooks(by__broker_tasks *tasks, double now, double seconds, int64_t most,
                                 json_t **out, by_error *error);
/* Stores the outcome of attempt `try`: "delivered", "failed" (for good), or "pending", due at
 * `due`. The outcome of any attempt but the last one is ignored. */
by_status by__broker_tasks_set_hook(by__broker_tasks *tasks, const char *id, int64_t try,
                                    const char *outcome, double due, by_error *error);

/* Makes all writes since the last commit durable. */
by_status by__broker_tasks_commit(by__broker_tasks *tasks, by_error *error);

#endif
