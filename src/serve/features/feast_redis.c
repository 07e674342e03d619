/* Feature store that reads a Redis server filled by Feast: an HMGET for each entity and view, on
 * one connection, which is reopened when it is lost. */
#include <hiredis/sds.h>
#include <stdlib.h>
#include <string.h>

#include "serve/features/feast_value.h"
#include "serve/features/feature_store.h"
#include "serve/link/core/link.h"
#include "serve/link/redis/redis_client.h"
#include "serve/link/redis/redis_poll.h"

/* Milliseconds between checks of the connection, which reopen a lost one. */
#define CHECK_MS 250
/* Seconds without an answer after which a connection counts as lost; a longer timeout counts
 * instead. */
#define SILENCE_SECONDS 2.0

typedef struct redis_store {
    by__feature_store base;
    uv_getaddrinfo_t resolve;
    uv_timer_t timer;
    redisAsyncContext *context; /* NULL: not connected */
    size_t unanswered;
    double since;  /* by__now when the first unanswered command was sent, or the last answer came */
    char why[256]; /* why there is no connection */
    bool resolving;
    bool closing;
} redis_store;

/* A lookup in flight. */
typedef struct inquiry {
    redis_store *store;
    by__feature_lookup *lookup; /* NULL: cancelled */
    size_t pending;             /* number of commands without an answer */
    char failure[256];          /* "": none */
} inquiry;

/* One command of a lookup. */
typedef struct feast_command {
    inquiry *of;
    size_t row;
    size_t view;
} feast_command;

/* ---- answers ---- */

/* Stores the fields of one entity: the features of a view in the order of the lookup, and their
 * time. */
static void read_fields(const by__feature_lookup *lookup, const feast_command *q,
                        const redisReply *reply)
{
    by__feature_slot *slots = by__feature_slots(lookup, q->row);
    const redisReply *last = reply->element[reply->elements - 1];
    double time = 0.0;
    size_t field = 0;
    if (last->type == REDIS_REPLY_STRING &&
        !by__feature_feast_time_read(&time, last->str, last->len)) {
        time = 0.0;
    }
    for (size_t i = 0; i < lookup->column_count && field + 1 < reply->elements; i++) {
        const by__feature_column *column = &lookup->map->columns[lookup->columns[i]];
        if (column->view == q->view) {
            const redisReply *value = reply->element[field++];
            if (value->type == REDIS_REPLY_STRING) {
                by__feature_put_message(&slots[i], column, value->str, value->len, time);
            } else {
                slots[i].outcome = BY__FEATURE_NOT_FOUND;
            }
        }
    }
}

static void on_reply(redisAsyncContext *context, void *data, void *user)
{
    feast_command *q = user;
    inquiry *of = q->of;
    redis_store *s = of->store;
    const redisReply *reply = data;
    BY_UNUSED(context);
    s->unanswered--;
    s->since = by__now();
    if (reply == NULL) {
        (void)snprintf(of->failure, sizeof of->failure, "%s",
                       s->why[0] == '\0' ? "Redis has closed the connection" : s->why);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        (void)snprintf(of->failure, sizeof of->failure, "Redis: %.200s", reply->str);
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && of->lookup != NULL) {
        read_fields(of->lookup, q, reply);
    }
    free(q);
    if (--of->pending == 0) {
        if (of->lookup != NULL) {
            of->lookup->done(of->lookup, of->failure[0] == '\0' ? NULL : of->failure);
        }
        free(of);
    }
}

/* ---- requests ---- */

/* HMGET KEY FIELD... _ts:VIEW */
static by_status add_command(by_string *out, const by__feature_lookup *lookup, size_t row,
                             size_t view_index, by_error *error)
{
    const by__feature_view *view = &lookup->map->views[view_index];
    const json_t *values[BY__FEATURE_MAX_KEYS];
    const json_t *entity = json_array_get(lookup->entities, row);
    by__redis_call call = {0};
    by_string key = {0};
    by_string time = {0};
    for (size_t i = 0; i < view->key_count; i++) {
        values[i] = json_object_get(entity, view->keys[i].name);
    }
    by__redis_add_text(&call, "HMGET");
    by_status status = by__feature_feast_key(&key, view->keys, values, view->key_count,
                                             (int)lookup->map->config->key_version,
                                             lookup->map->config->project, error);
    by__redis_add(&call, key.data == NULL ? "" : key.data, key.length);
    for (size_t i = 0; i < lookup->column_count; i++) {
        const by__feature_column *column = &lookup->map->columns[lookup->columns[i]];
        if (column->view == view_index) {
            by__redis_add(&call, (const char *)column->field, sizeof column->field);
        }
    }
    by_string_format(&time, "_ts:%s", view->name);
    by__redis_add_text(&call, time.failed ? "" : time.data);
    by_string_format(out, "*%zu\r\n", call.count);
    by_string_add(out, call.text.data == NULL ? "" : call.text.data, call.text.length);
    if (status == BY_OK && (call.text.failed || time.failed || out->failed)) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a command of Redis");
    }
    by_string_free(&call.text);
    by_string_free(&key);
    by_string_free(&time);
    return status;
}

static by_status ask_view(redis_store *s, inquiry *of, size_t row, size_t view, by_error *error)
{
    by_string text = {0};
    feast_command *q = NULL;
    by_status status = add_command(&text, of->lookup, row, view, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&q, 1, sizeof *q, "a command of Redis", error);
    }
    if (status == BY_OK) {
        *q = (feast_command){.of = of, .row = row, .view = view};
        if (redisAsyncFormattedCommand(s->context, on_reply, q, text.data, text.length) ==
            REDIS_OK) {
            s->since = s->unanswered++ == 0 ? by__now() : s->since;
            of->pending++;
        } else {
            free(q);
            status = by_error_set(error, BY_EIO, "the feature store refuses commands: %s",
                                  s->context->errstr);
        }
    }
    by_string_free(&text);
    return status;
}

static bool ask(by__feature_store *store, by__feature_lookup *lookup, by_error *error)
{
    redis_store *s = (redis_store *)store;
    inquiry *of;
    if (s->context == NULL) {
        (void)by_error_set(error, BY_EIO, "%s",
                           s->why[0] == '\0' ? "the feature store is not connected" : s->why);
        return false;
    }
    if (sdslen(s->context->c.obuf) > BY__LINK_PENDING) {
        (void)by_error_set(error, BY_EIO, "the feature store does not read: %zu bytes are unsent",
                           sdslen(s->context->c.obuf));
        return false;
    }
    if (by__alloc((void **)&of, 1, sizeof *of, "a lookup", error) != BY_OK) {
        return false;
    }
    *of = (inquiry){.store = s, .lookup = lookup};
    by_status status = BY_OK;
    for (size_t i = 0; i < lookup->row_count && status == BY_OK; i++) {
        for (size_t v = 0; v < lookup->map->view_count && status == BY_OK; v++) {
            if (by__feature_uses(lookup, v)) {
                status = ask_view(s, of, lookup->rows[i], v, error);
            }
        }
    }
    lookup->own = of;
    if (status != BY_OK) {
        of->lookup = NULL;
        if (of->pending == 0) {
            free(of);
        }
    }
    return status == BY_OK;
}

static void cancel_lookup(by__feature_store *store, by__feature_lookup *lookup)
{
    BY_UNUSED(store);
    ((inquiry *)lookup->own)->lookup = NULL;
}

/* ---- the connection ---- */

static void on_login(redisAsyncContext *context, void *data, void *user)
{
    redis_store *s = user;
    const redisReply *reply = data;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR && !s->closing) {
        (void)snprintf(s->why, sizeof s->why, "Redis: %.200s", reply->str);
        redisAsyncDisconnect(context);
    }
}

static void on_connected(const redisAsyncContext *context, int status)
{
    redis_store *s = context->data;
    if (status == REDIS_OK) {
        s->why[0] = '\0';
    } else { /* hiredis frees the context */
        (void)snprintf(s->why, sizeof s->why, "cannot reach Redis: %.200s", context->errstr);
        s->context = NULL;
    }
}

static void on_disconnected(const redisAsyncContext *context, int status)
{
    redis_store *s = context->data;
    BY_UNUSED(status);
    s->context = NULL;
    if (s->why[0] == '\0') {
        (void)snprintf(s->why, sizeof s->why, "Redis has closed the connection");
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    redis_store *s = request->data;
    by_error error = {0};
    s->resolving = false;
    if (s->closing) {
        uv_freeaddrinfo(list);
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
        return;
    }
    if (status < 0) {
        (void)snprintf(s->why, sizeof s->why, "cannot find the host %.150s: %s",
                       s->base.map->address.host, uv_strerror(status));
    } else if (by__redis_connect(&s->context, s->base.loop, &s->base.map->address, list, on_login,
                                 s, &error) == BY_OK) {
        (void)redisAsyncSetConnectCallback(s->context, on_connected);
        (void)redisAsyncSetDisconnectCallback(s->context, on_disconnected);
    } else {
        (void)snprintf(s->why, sizeof s->why, "%.250s", error.message);
    }
    uv_freeaddrinfo(list);
}

static void check_deadlines(uv_timer_t *timer)
{
    redis_store *s = timer->data;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    double silence = SILENCE_SECONDS > s->base.map->config->timeout ? SILENCE_SECONDS
                                                                    : s->base.map->config->timeout;
    if (s->context != NULL && s->unanswered > 0 && by__now() - s->since > silence) {
        redisAsyncContext *context = s->context;
        (void)snprintf(s->why, sizeof s->why, "Redis does not answer");
        s->context = NULL;
        redisAsyncFree(context);
    }
    if (s->context == NULL && !s->resolving) {
        int code = uv_getaddrinfo(s->base.loop, &s->resolve, on_resolved, s->base.map->address.host,
                                  NULL, &hints);
        s->resolving = code == 0;
        if (code < 0) {
            (void)snprintf(s->why, sizeof s->why, "cannot find the host: %s", uv_strerror(code));
        }
    }
}

static by_status open_store(by__feature_store **out, uv_loop_t *loop, const by__feature_map *map,
                            by_error *error)
{
    redis_store *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a store of features", error));
    s->base.loop = loop;
    s->base.map = map;
    (void)uv_timer_init(loop, &s->timer);
    s->timer.data = s->resolve.data = s;
    (void)uv_timer_start(&s->timer, check_deadlines, 0, CHECK_MS);
    *out = &s->base;
    return BY_OK;
}

static void close_store(by__feature_store *store)
{
    redis_store *s = (redis_store *)store;
    s->closing = true;
    (void)uv_timer_stop(&s->timer);
    if (s->context != NULL) {
        redisAsyncContext *context = s->context;
        s->context = NULL;
        redisAsyncFree(context);
    }
    if (s->resolving) {
        (void)uv_cancel((uv_req_t *)&s->resolve);
    } else {
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
    }
}

const by__feature_store_form by__feature_feast_redis_form = {
    .open = open_store, .ask = ask, .cancel = cancel_lookup, .close = close_store};
