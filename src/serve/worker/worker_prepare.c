/* The thread that parses requests: it renders conversations, encodes prompts and compiles
 * constraints, which may take seconds, while the loop keeps beating and delivering tokens. */
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

struct by__worker_preparer {
    by__worker_prepare *prepare;
    void *user;
    size_t most;
    uv_async_t *wake;
    by__serve_thread thread;
    /* Under its lock: */
    by__worker_prepared *first; /* queued requests, oldest first */
    by__worker_prepared *current;
    by__worker_prepared *done; /* oldest first */
    size_t count;              /* number of all of them */
    uint64_t ended;
    bool smallest; /* the last one was the smallest, not the oldest */
};

static void append(by__worker_prepared **list, by__worker_prepared *item)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    item->next = NULL;
    *list = item;
}

/* Images count by what they become. */
static size_t size_of(const by__worker_prepared *item)
{
    size_t rest = item->job == NULL ? 0 : item->job->rest;
    return item->bytes > rest ? item->bytes : rest;
}

/* The link to the next request: in turn the oldest and the smallest, so that a few large ones do
 * not hold up all others. */
static by__worker_prepared **choose(by__worker_preparer *p)
{
    by__worker_prepared **best = &p->first;
    p->smallest = !p->smallest;
    for (by__worker_prepared **at = &p->first; *at != NULL && p->smallest; at = &(*at)->next) {
        best = size_of(*at) < size_of(*best) ? at : best;
    }
    return best;
}

/* ---- the thread ---- */

static void run(void *user)
{
    by__worker_preparer *p = user;
    uv_mutex_lock(&p->thread.lock);
    for (;;) {
        while (!p->thread.closing && p->first == NULL) {
            uv_cond_wait(&p->thread.changed, &p->thread.lock);
        }
        if (p->thread.closing) {
            break;
        }
        by__worker_prepared **at = choose(p);
        by__worker_prepared *item = p->current = *at;
        *at = item->next;
        uv_mutex_unlock(&p->thread.lock);
        item->status = p->prepare(p->user, item, &item->param, &item->error);
        uv_mutex_lock(&p->thread.lock);
        p->current = NULL;
        p->ended++;
        bool more = item->status == BY_OK && item->job != NULL && item->job->more;
        append(more && !item->cancelled ? &p->first : &p->done, item);
        (void)uv_async_send(p->wake);
    }
    uv_mutex_unlock(&p->thread.lock);
}

/* ---- the loop's side ---- */

by_status by__worker_preparer_open(by__worker_preparer **out, size_t most,
                                   by__worker_prepare *prepare, void *user, uv_async_t *wake,
                                   by_error *error)
{
    by__worker_preparer *p = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a thread", error));
    p->prepare = prepare;
    p->user = user;
    p->most = most;
    p->wake = wake;
    by_status status =
        by__serve_thread_start(&p->thread, run, p, "the thread that prepares requests", error);
    if (status != BY_OK) {
        free(p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by__worker_prepared_free(by__worker_prepared *item)
{
    if (item != NULL) {
        json_decref(item->message);
        by__worker_work_close(&item->work);
        by__worker_batch_job_free(item->job);
        free(item);
    }
}

static void free_list(by__worker_prepared *list)
{
    while (list != NULL) {
        by__worker_prepared *next = list->next;
        by__worker_prepared_free(list);
        list = next;
    }
}

void by__worker_preparer_close(by__worker_preparer **preparer)
{
    by__worker_preparer *p = *preparer;
    if (p == NULL) {
        return;
    }
    *preparer = NULL;
    by__serve_thread_end(&p->thread);
    free_list(p->first);
    free_list(p->done);
    free(p);
}

by_status by__worker_preparer_give(by__worker_preparer *p, json_t *message, by_error *error)
{
    const char *id = by__protocol_get_text(message, "id");
    by__worker_prepared *item = NULL;
    if (id == NULL || !by__serve_id_valid(id)) {
        return by_error_set(error, BY_EARG, "a request without an id");
    }
    BY_TRY(by__alloc((void **)&item, 1, sizeof *item, "a request", error));
    memcpy(item->id, id, strlen(id) + 1);
    item->attempt = by__protocol_get_integer(message, "attempt");
    item->message = json_incref(message);
    item->bytes = json_string_length(json_object_get(message, "request"));
    item->since = by__now();
    uv_mutex_lock(&p->thread.lock);
    bool full = p->count >= p->most;
    if (!full) {
        append(&p->first, item);
        p->count++;
        uv_cond_signal(&p->thread.changed);
    }
    uv_mutex_unlock(&p->thread.lock);
    if (full) {
        by__worker_prepared_free(item);
        return by_error_set(error, BY_ESTATE, "%zu requests are being read; try again later",
                            p->most);
    }
    return BY_OK;
}

static bool matches(const by__worker_prepared *item, const char *id)
{
    return id == NULL || strcmp(item->id, id) == 0;
}

void by__worker_preparer_cancel(by__worker_preparer *p, const char *id)
{
    by__worker_prepared *gone = NULL;
    uv_mutex_lock(&p->thread.lock);
    for (by__worker_prepared **at = &p->first; *at != NULL;) {
        by__worker_prepared *item = *at;
        if (!matches(item, id)) {
            at = &item->next;
            continue;
        }
        *at = item->next;
        p->count--;
        append(&gone, item);
    }
    if (p->current != NULL && matches(p->current, id)) {
        p->current->cancelled = true;
    }
    for (by__worker_prepared *item = p->done; item != NULL; item = item->next) {
        item->cancelled = item->cancelled || matches(item, id);
    }
    uv_mutex_unlock(&p->thread.lock);
    free_list(gone);
}

by__worker_prepared *by__worker_preparer_take(by__worker_preparer *p)
{
    uv_mutex_lock(&p->thread.lock);
    by__worker_prepared *item = p->done;
    if (item != NULL) {
        p->done = item->next;
        item->next = NULL;
        p->count--;
    }
    uv_mutex_unlock(&p->thread.lock);
    return item;
}

void by__worker_preparer_look(by__worker_preparer *p, size_t *count, uint64_t *ended)
{
    uv_mutex_lock(&p->thread.lock);
    *count = p->count;
    *ended = p->ended;
    uv_mutex_unlock(&p->thread.lock);
}
