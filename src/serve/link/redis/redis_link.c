/* A link whose broker is a Redis server. The broker's logic is a script in Redis
 * (redis_broker.lua); this file has the two connections, and the order of calls on them. */
#include "serve/link/redis/redis_link.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* ---- for the roles ---- */

void by__redis_deliver(by__redis_link *link, json_t *message)
{
    if (!link->base.closed && message != NULL) {
        link->base.handler.message(link->base.handler.user, &link->base, message);
    }
    json_decref(message);
}

void by__redis_deliver_event(by__redis_link *link, json_t *event)
{
    by_string list = {0};
    by__protocol_events_add(&list, 0, event);
    if (!link->base.closed && !list.failed && list.length > 0) {
        link->base.handler.events(link->base.handler.user, &link->base, list.data, list.length);
    }
    by_string_free(&list);
    json_decref(event);
}

bool by__redis_bad(by__redis_link *link, const redisReply *reply)
{
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR && link->redis != NULL) {
        char why[256];
        (void)snprintf(why, sizeof why, "Redis: %.200s", reply->str);
        by__redis_fail(link->redis, why);
    }
    return link->base.closed || reply == NULL || reply->type == REDIS_REPLY_ERROR;
}

void by__redis_ignore(void *user, const char *about, const redisReply *reply)
{
    BY_UNUSED(about);
    (void)by__redis_bad(user, reply);
}

static const redisReply *element(const redisReply *reply, size_t i)
{
    return reply->type == REDIS_REPLY_ARRAY && i < reply->elements ? reply->element[i] : NULL;
}

const char *by__redis_text(const redisReply *reply, size_t i)
{
    const redisReply *e = element(reply, i);
    return e != NULL && e->type == REDIS_REPLY_STRING ? e->str : "";
}

double by__redis_number(const redisReply *reply, size_t i)
{
    const redisReply *e = element(reply, i);
    return e == NULL                        ? 0.0
           : e->type == REDIS_REPLY_INTEGER ? (double)e->integer
           : e->type == REDIS_REPLY_STRING  ? strtod(e->str, NULL)
                                            : 0.0;
}

const redisReply *by__redis_array(const redisReply *reply, size_t i)
{
    const redisReply *e = element(reply, i);
    return e != NULL && e->type == REDIS_REPLY_ARRAY ? e : NULL;
}

/* ---- the connections ---- */

static void begin(by__redis_link *l)
{
    size_t i;
    json_t *message;
    json_t *waiting = l->waiting;
    l->ready = true;
    l->last_message_at = by__now();
    l->waiting = NULL;
    l->role->ready(l);
    json_array_foreach(waiting, i, message)
    {
        (void)by__link_send(&l->base, message);
    }
    json_decref(waiting);
    if (!l->base.closed && l->base.handler.ready != NULL) {
        l->base.handler.ready(l->base.handler.user, &l->base);
    }
}

static void on_entered(void *user, const char *about, const redisReply *reply)
{
    static const char code[] = "PROTOCOL ";
    by__redis_link *l = user;
    BY_UNUSED(about);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, code, sizeof code - 1) == 0) {
        l->base.refused = true;
        by__redis_fail(l->redis, reply->str + sizeof code - 1);
    } else if (!by__redis_bad(l, reply)) {
        begin(l);
    }
}

static void on_ready(void *user)
{
    by__redis_link *l = user;
    by__redis_call call = {0};
    by__redis_add_text(&call, "enter");
    by__redis_add_integer(&call, l->address.database);
    by__redis_execute(l->redis, &call, false, on_entered, l, "");
}

static void on_message(void *user, const char *text, size_t length)
{
    by__redis_link *l = user;
    l->last_message_at = by__now();
    if (!l->ready || l->base.closed) {
        return;
    }
    if (length > 0 && text[0] == BY__LINK_EVENTS) {
        if (by__protocol_events_valid(text + 1, length - 1)) {
            l->base.handler.events(l->base.handler.user, &l->base, text + 1, length - 1);
        }
        return;
    }
    json_t *message =
        length == 0 ? NULL
                    : by_json_load(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (length == 0 || json_is_object(message)) {
        l->role->published(l, message);
    }
    json_decref(message);
}

static void on_lost(void *user, const char *why)
{
    by__link_fail(user, why);
}

static void on_timer_closed(uv_handle_t *handle)
{
    by__redis_link *l = handle->data;
    if (l->role != NULL && l->role->free != NULL) {
        l->role->free(l);
    }
    json_decref(l->waiting);
    free(l);
}

static void on_closed(void *user)
{
    by__redis_link *l = user;
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
}

static void close_link(by__link *link)
{
    by__redis_link *l = (by__redis_link *)(void *)link;
    (void)uv_timer_stop(&l->timer);
    if (l->redis == NULL) {
        on_closed(l);
        return;
    }
    if (l->ready && l->role->on_close != NULL) {
        l->role->on_close(l);
    }
    by__redis_close(&l->redis);
}

static void on_tick(uv_timer_t *timer)
{
    by__redis_link *l = timer->data;
    if (!l->ready) {
        return;
    }
    /* The roles' calls publish to themselves: a listener that receives nothing has lost Redis. */
    if (by__now() - l->last_message_at > BY__REDIS_SILENCE) {
        by__redis_fail(l->redis, "Redis publishes nothing");
        return;
    }
    if (l->role->tick != NULL) {
        l->role->tick(l);
    }
}

/* ---- the owner's side ---- */

/* Handles the first message, which names the role, and subscribes to its channels. */
static by_status send_hello(by__redis_link *l, const json_t *hello, by_error *error)
{
    static const by__redis_role *const roles[] = {&by__redis_gateway, &by__redis_supervisor,
                                                  &by__redis_worker};
    const char *role = by__protocol_get_text(hello, "role");
    const char *name = by__protocol_get_text(hello, "name");
    const char *model = by__protocol_get_text(hello, "model");
    const char *tag = by__protocol_get_text(hello, "tag");
    char channels[BY__REDIS_CHANNELS][400];
    const char *const names[] = {channels[0], channels[1], channels[2]};
    by__redis_handler handler = {
        .ready = on_ready, .message = on_message, .lost = on_lost, .closed = on_closed, .user = l};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(roles) && role != NULL; i++) {
        l->role = strcmp(role, roles[i]->name) == 0 ? roles[i] : l->role;
    }
    if (l->role == NULL || name == NULL || !by__serve_id_valid(name) ||
        (model != NULL && strlen(model) >= sizeof l->model)) {
        return by_error_set(error, BY_EARG,
                            "the first message of a link must be a 'hello' with a role and a name");
    }
    memcpy(l->name, name, strlen(name) + 1);
    (void)snprintf(l->model, sizeof l->model, "%s", model == NULL ? "" : model);
    (void)snprintf(channels[0], sizeof channels[0], "banyan:to:%s", l->name);
    (void)snprintf(channels[1], sizeof channels[1], "banyan:protocol:%d:%d", l->address.database,
                   BY__REDIS_PROTOCOL);
    (void)snprintf(channels[2], sizeof channels[2], "banyan:%s:%s",
                   tag == NULL ? "wake" : "feedback", tag == NULL ? l->model : tag);
    BY_TRY(l->role->open(l, hello, error));
    return by__redis_open(&l->redis, l->loop, &l->address, l->dialer, names,
                          model == NULL && tag == NULL ? 2 : 3, &handler, error);
}

static bool send_message(by__link *link, const json_t *message)
{
    by__redis_link *l = (by__redis_link *)(void *)link;
    const char *kind = by__protocol_get_text(message, "t");
    by_error error = {0};
    if (kind == NULL) {
        return false;
    }
    if (l->role == NULL) {
        if (send_hello(l, message, &error) != BY_OK) {
            by__link_fail(link, error.message);
            return false;
        }
        return true;
    }
    if (!l->ready) {
        l->waiting = l->waiting == NULL ? json_array() : l->waiting;
        return json_array_append_new(l->waiting, json_deep_copy(message)) == 0;
    }
    l->role->send(l, kind, message);
    return true;
}

/* Events belong to requests, which arrive after `ready`. */
static bool send_events(by__link *link, const char *list, size_t length)
{
    by__redis_link *l = (by__redis_link *)(void *)link;
    return l->ready && l->role->send_events != NULL && l->role->send_events(l, list, length);
}

static size_t count_unsent(const by__link *link)
{
    const by__redis_link *l = (const by__redis_link *)(const void *)link;
    return l->redis == NULL ? 0 : by__redis_unsent(l->redis);
}

by_status by__redis_link_connect(by__link **out, uv_loop_t *loop, const char *url,
                                 by__link_dialer *dialer, const by__link_handler *handler,
                                 by_error *error)
{
    static const by__link_kind kind = {.send = send_message,
                                       .send_events = send_events,
                                       .unsent = count_unsent,
                                       .close = close_link};
    by__link_redis_address address;
    by__redis_link *l = NULL;
    *out = NULL;
    BY_TRY(by__link_redis_address_read(&address, url, error));
    if (dialer == NULL) {
        BY_TRY(by__link_redis_address_login(&address, by__link_redis_broker_login, error));
    }
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "a link", error));
    l->base.kind = &kind;
    l->base.handler = *handler;
    l->loop = loop;
    l->dialer = dialer;
    l->address = address;
    l->timer.data = l;
    (void)uv_timer_init(loop, &l->timer);
    (void)uv_timer_start(&l->timer, on_tick, BY__BEAT, BY__BEAT);
    *out = &l->base;
    return BY_OK;
}
