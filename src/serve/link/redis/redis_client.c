#include "serve/link/redis/redis_client.h"

#include <hiredis/sds.h>
#include <stdlib.h>
#include <string.h>

#include "redis_broker_script.h" /* made by cmake/embed.cmake */
#include "serve/link/core/link.h"
#include "serve/link/redis/redis_poll.h"
#include "serve/protocol/messages.h"
#include "serve/protocol/task_turn.h"
#include "serve/telemetry/metrics.h"

/* Milliseconds between checks for unanswered calls, and that a close waits for Redis. */
#define CHECK_MS 500
#define GRACE    500

struct by__redis {
    uv_loop_t *loop;
    by__link_redis_address address;
    by__redis_handler handler;
    char channels[BY__REDIS_CHANNELS][512];
    size_t channel_count;
    by__link_dialer *dialer; /* NULL: none */
    by__link_dialled found;
    by_error dial_error;
    union {
        uv_getaddrinfo_t resolve;
        uv_work_t dial;
    };
    uv_timer_t timer;
    redisAsyncContext *caller;
    redisAsyncContext *listener;
    char hashes[2][41]; /* of the script: the plain one, and the one for calls that need memory */
    size_t hash_count;
    size_t subscribed;
    size_t unanswered;
    double since; /* by__now when the first unanswered call was sent, or the last answer arrived */
    char why[512];
    bool failed;
    bool resolving;
    bool ready;
    bool closing;
};

typedef struct redis_command {
    by__redis *redis;
    by__redis_answer *answer;
    void *user;
    char about[BY__REDIS_ABOUT];
} redis_command;

static void on_timer(uv_timer_t *timer);

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    by__redis *r = handle->data;
    r->handler.closed(r->handler.user);
    free(r);
}

static void finish_closing(by__redis *r)
{
    if (r->closing && !r->resolving && r->caller == NULL && r->listener == NULL &&
        uv_is_closing((uv_handle_t *)&r->timer) == 0) {
        uv_close((uv_handle_t *)&r->timer, on_timer_closed);
    }
}

/* The failure is reported by the timer, because it may be noticed inside a callback of hiredis. */
void by__redis_fail(by__redis *redis, const char *why)
{
    by__redis *r = redis;
    if (!r->failed && !r->closing) {
        r->failed = true;
        (void)snprintf(r->why, sizeof r->why, "%s", why);
        (void)uv_timer_start(&r->timer, on_timer, 0, CHECK_MS);
    }
}

/* hiredis does not report the end of a connection that was never established. */
static void drop(redisAsyncContext **context)
{
    redisAsyncContext *c = *context;
    *context = NULL;
    if (c != NULL) {
        redisAsyncFree(c);
    }
}

static void on_grace(uv_timer_t *timer)
{
    by__redis *r = timer->data;
    drop(&r->caller);
    drop(&r->listener);
    finish_closing(r);
}

void by__redis_close(by__redis **redis)
{
    by__redis *r = *redis;
    *redis = NULL;
    if (r == NULL) {
        return;
    }
    r->closing = true;
    (void)uv_timer_start(&r->timer, on_grace, r->failed ? 0 : GRACE, CHECK_MS);
    if (r->resolving) {
        (void)uv_cancel((uv_req_t *)&r->resolve);
    }
    if (r->caller != NULL && !r->failed) {
        redisAsyncDisconnect(r->caller);
    }
    if (!r->failed) {
        drop(&r->listener);
    }
}

static void on_timer(uv_timer_t *timer)
{
    by__redis *r = timer->data;
    if (!r->failed && (r->unanswered > 0 || !r->ready) &&
        by__now() - r->since > BY__REDIS_SILENCE) {
        r->failed = true;
        (void)snprintf(r->why, sizeof r->why, "Redis does not answer");
    }
    if (r->failed) {
        (void)uv_timer_stop(timer);
        r->handler.lost(r->handler.user, r->why);
    }
}

/* ---- calls ---- */

void by__redis_add(by__redis_call *call, const char *text, size_t length)
{
    by_string_format(&call->text, "$%zu\r\n", length);
    by_string_add(&call->text, text, length);
    by_string_add(&call->text, "\r\n", 2);
    call->count++;
}

void by__redis_add_text(by__redis_call *call, const char *text)
{
    by__redis_add(call, text, strlen(text));
}

void by__redis_add_integer(by__redis_call *call, int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    by__redis_add_text(call, text);
}

void by__redis_add_json(by__redis_call *call, const json_t *value)
{
    by_string text = {0};
    by__json_write(&text, value, JSON_COMPACT | JSON_ENCODE_ANY);
    call->text.failed = call->text.failed || text.failed;
    by__redis_add_text(call, text.failed ? "" : text.data);
    by_string_free(&text);
}

static void on_reply(redisAsyncContext *context, void *reply, void *user)
{
    redis_command *q = user;
    by__redis *r = q->redis;
    BY_UNUSED(context);
    r->unanswered--;
    r->since = by__now();
    q->answer(q->user, q->about, reply);
    free(q);
}

size_t by__redis_unsent(const by__redis *redis)
{
    return redis->caller == NULL ? 0 : sdslen(redis->caller->c.obuf);
}

void by__redis_execute(by__redis *redis, by__redis_call *call, bool grows, by__redis_answer *answer,
                       void *user, const char *about)
{
    by__redis *r = redis;
    by_string text = {0};
    redis_command *q = malloc(sizeof *q);
    by_string_format(&text, "*%zu\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n0\r\n", call->count + 3,
                     r->hashes[grows ? 0 : 1]);
    by_string_add(&text, call->text.data, call->text.length);
    bool lacks = call->text.failed || text.failed || q == NULL;
    by_string_free(&call->text);
    bool good = !lacks && r->caller != NULL && !r->failed && !r->closing && r->ready;
    if (good) {
        *q = (redis_command){.redis = r, .answer = answer, .user = user};
        (void)snprintf(q->about, sizeof q->about, "%s", about);
        good =
            redisAsyncFormattedCommand(r->caller, on_reply, q, text.data, text.length) == REDIS_OK;
    }
    if (good) {
        r->since = r->unanswered++ == 0 ? by__now() : r->since;
        if (by__redis_unsent(r) > BY__LINK_PENDING) {
            by__redis_fail(r, "Redis does not read");
        }
    } else {
        free(q);
        by__redis_fail(r, lacks ? "out of memory" : "Redis is not connected");
        answer(user, about, NULL);
    }
    by_string_free(&text);
}

/* ---- the connections ---- */

static void check_ready(by__redis *r)
{
    if (!r->ready && !r->failed && !r->closing && r->hash_count == BY_ARRAY_LENGTH(r->hashes) &&
        r->subscribed == r->channel_count) {
        r->ready = true;
        r->handler.ready(r->handler.user);
    }
}

/* Sets the error "Redis: " and Redis' message, which contains no secret. */
static bool is_error(by__redis *r, const redisReply *reply)
{
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        char why[256];
        (void)snprintf(why, sizeof why, "Redis: %.200s", reply->str);
        by__redis_fail(r, why);
    }
    return reply == NULL || reply->type == REDIS_REPLY_ERROR;
}

static void on_login(redisAsyncContext *context, void *reply, void *user)
{
    BY_UNUSED(context);
    (void)is_error(user, reply);
}

static void on_script(redisAsyncContext *context, void *reply, void *user)
{
    by__redis *r = user;
    const redisReply *hash = reply;
    BY_UNUSED(context);
    if (is_error(r, hash)) {
        return;
    }
    if (hash->type != REDIS_REPLY_STRING || hash->len != 40) {
        by__redis_fail(r, "Redis does not take scripts");
    } else if (r->hash_count < BY_ARRAY_LENGTH(r->hashes)) {
        memcpy(r->hashes[r->hash_count++], hash->str, 41);
        check_ready(r);
    }
}

static void on_published(redisAsyncContext *context, void *reply, void *user)
{
    by__redis *r = user;
    const redisReply *m = reply;
    BY_UNUSED(context);
    if (is_error(r, m) || m->type != REDIS_REPLY_ARRAY || m->elements != 3 ||
        m->element[0]->type != REDIS_REPLY_STRING) {
        return;
    }
    if (strcmp(m->element[0]->str, "subscribe") == 0) {
        r->subscribed++;
        check_ready(r);
    } else if (m->element[2]->type == REDIS_REPLY_STRING && !r->failed && !r->closing) {
        r->handler.message(r->handler.user, m->element[2]->str, (size_t)m->element[2]->len);
    }
}

static void end_of(by__redis *r, const redisAsyncContext *context)
{
    if (context == r->caller) {
        r->caller = NULL;
    } else if (context == r->listener) {
        r->listener = NULL;
    }
}

static void on_connected(const redisAsyncContext *context, int status)
{
    by__redis *r = context->data;
    if (status != REDIS_OK) {
        char why[256];
        (void)snprintf(why, sizeof why, "cannot reach Redis: %.200s", context->errstr);
        /* hiredis frees the context. */
        end_of(r, context);
        by__redis_fail(r, why);
        finish_closing(r);
    }
}

static void on_disconnected(const redisAsyncContext *context, int status)
{
    by__redis *r = context->data;
    BY_UNUSED(status);
    end_of(r, context);
    by__redis_fail(r, "Redis has closed the connection");
    finish_closing(r);
}

static redisAsyncContext *connect_one(by__redis *r, const struct addrinfo *list)
{
    redisAsyncContext *c = NULL;
    by_error error = {0};
    if (by__redis_connect(&c, r->loop, &r->address, list, on_login, r, &error) != BY_OK) {
        by__redis_fail(r, error.message);
        return NULL;
    }
    (void)redisAsyncSetConnectCallback(c, on_connected);
    (void)redisAsyncSetDisconnectCallback(c, on_disconnected);
    return c;
}

/* Constants defined before the script: the edges of its histograms are those of all metrics. */
static void add_constants(by_string *script)
{
    by_string_format(script,
                     "local PROTOCOL = '%d'\n"
                     "local TASK_WAIT, TASK_TURN = %.0f, %d\n"
                     "local EDGES = {",
                     BY__REDIS_PROTOCOL, BY__TASK_WAIT * 1e3, BY__TASK_TURN);
    for (size_t i = 0; i < BY__EDGES; i++) {
        by_string_format(script, "%.17g,", by__telemetry_edges[i]);
    }
    by__string_append(script, "}\n");
}

static void connect_both(by__redis *r, const struct addrinfo *list)
{
    static const char *const heads[] = {"#!lua flags=no-cluster\n",
                                        "#!lua flags=no-cluster,allow-oom\n"};
    r->caller = connect_one(r, list);
    r->listener = r->caller == NULL ? NULL : connect_one(r, list);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(heads) && r->listener != NULL; i++) {
        by_string script = {0};
        by__string_append(&script, heads[i]);
        add_constants(&script);
        by_string_add(&script, redis_broker_script, sizeof redis_broker_script);
        (void)redisAsyncCommand(r->caller, on_script, r, "SCRIPT LOAD %b", script.data,
                                script.length);
        by_string_free(&script);
    }
    for (size_t i = 0; i < r->channel_count && r->listener != NULL; i++) {
        (void)redisAsyncCommand(r->listener, on_published, r, "SUBSCRIBE %s", r->channels[i]);
    }
}

static void use_host(by__redis *r, int status, const struct addrinfo *list)
{
    r->resolving = false;
    if (r->closing) {
        finish_closing(r);
    } else if (status == 0) {
        connect_both(r, list);
    } else {
        char why[400];
        (void)snprintf(why, sizeof why, "cannot find Redis' host %.200s: %s", r->address.host,
                       uv_strerror(status));
        by__redis_fail(r, why);
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    use_host(request->data, status, list);
    uv_freeaddrinfo(list);
}

/* On another thread: a look-up takes seconds if a name server does not answer. */
static void dial(uv_work_t *work)
{
    by__redis *r = work->data;
    int fd;
    (void)by__link_dial(r->dialer, &r->found, &fd, &r->dial_error);
}

static void on_dialled(uv_work_t *work, int code)
{
    by__redis *r = work->data;
    const char *why = r->dial_error.status != BY_OK ? r->dial_error.message : r->found.why;
    struct addrinfo host = {.ai_family = r->found.address.ss_family,
                            .ai_addr = (struct sockaddr *)&r->found.address};
    if (code == 0 && why[0] != '\0') {
        by__redis_fail(r, why);
    }
    memcpy(r->address.password, r->found.password, sizeof r->address.password);
    explicit_bzero(r->found.password, sizeof r->found.password);
    use_host(r, code != 0 ? code : r->dial_error.status != BY_OK ? UV_EIO : r->found.code, &host);
}

by_status by__redis_open(by__redis **out, uv_loop_t *loop, const by__link_redis_address *address,
                         by__link_dialer *dialer, const char *const *channels, size_t channel_count,
                         const by__redis_handler *handler, by_error *error)
{
    by__redis *r = NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    *out = NULL;
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "a connection to Redis", error));
    r->loop = loop;
    r->address = *address;
    r->handler = *handler;
    r->since = by__now();
    for (; r->channel_count < channel_count; r->channel_count++) {
        (void)snprintf(r->channels[r->channel_count], sizeof r->channels[0], "%s",
                       channels[r->channel_count]);
    }
    (void)uv_timer_init(loop, &r->timer);
    r->dialer = dialer;
    r->timer.data = r;
    (void)uv_timer_start(&r->timer, on_timer, CHECK_MS, CHECK_MS);
    int code;
    if (dialer != NULL) {
        r->dial.data = r;
        code = uv_queue_work(loop, &r->dial, dial, on_dialled);
    } else {
        r->resolve.data = r;
        code = uv_getaddrinfo(loop, &r->resolve, on_resolved, address->host, NULL, &hints);
    }
    r->resolving = code == 0;
    if (code < 0) {
        by__redis_fail(r, uv_strerror(code));
    }
    *out = r;
    return BY_OK;
}
