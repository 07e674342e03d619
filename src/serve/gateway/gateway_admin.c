#include "serve/gateway/gateway_admin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/base/fields.h"
#include "serve/link/link_connect.h"
#include "serve/protocol/deploy_options.h"
#include "serve/protocol/messages.h"

/* A request to the control socket for which a client waits, with its own link, as every user of
 * that socket has. */
struct by__gateway_admin_ask {
    by__gateway_waiter waiter;
    by__gateway *gateway;
    /* NULL: the client has disconnected; the request is executed all the same */
    by__http_connection *connection;
    by__link *link;
    json_t *message; /* NULL once it is sent */
    struct by__gateway_admin_ask *next;
};

static void end(struct by__gateway_admin_ask *a)
{
    struct by__gateway_admin_ask **at = &a->gateway->admin;
    while (*at != a) {
        at = &(*at)->next;
    }
    *at = a->next;
    by__link_close(&a->link);
    json_decref(a->message);
    free(a);
}

static void fail(struct by__gateway_admin_ask *a, int status, const char *code, const char *message)
{
    if (a->connection != NULL) {
        by__gateway_reply_error(a->gateway, a->connection, status, code, NULL, message);
    }
    end(a);
}

static void on_disconnect(by__gateway_waiter *waiter)
{
    ((struct by__gateway_admin_ask *)(void *)waiter)->connection = NULL;
}

static void on_connected(void *user, by__link *link)
{
    const struct by__gateway_admin_ask *a = user;
    (void)by__link_send(link, a->message);
}

static void on_reply(void *user, by__link *link, json_t *message)
{
    struct by__gateway_admin_ask *a = user;
    const char *kind = by__protocol_get_text(message, "t");
    const char *text = by__protocol_get_text(message, "message");
    BY_UNUSED(link);
    if (kind == NULL || strcmp(kind, "error") == 0) {
        bool conflict = by__protocol_get_integer(message, "status") == BY_ESTATE;
        fail(a, conflict ? 409 : 400, conflict ? "not_now" : "invalid_request",
             text == NULL ? "it was refused" : text);
        return;
    }
    if (a->connection != NULL) {
        json_t *answer = by__protocol_copy_object(message);
        (void)json_object_del(answer, "t");
        (void)json_object_set_new(answer, "object", json_string("versions"));
        by__http_connection_set(a->connection, NULL);
        by__gateway_reply_json(a->gateway, a->connection, strcmp(kind, "status") == 0 ? 200 : 202,
                               answer);
    }
    end(a);
}

static void on_lost(void *user, by__link *link, const char *why)
{
    struct by__gateway_admin_ask *a = user;
    BY_UNUSED(link);
    BY_UNUSED(why);
    a->link = NULL; /* it closes itself */
    fail(a, 503, "unavailable", "the control socket of `banyan serve` does not answer");
}

/* Takes the message. */
static void ask(by__gateway *g, by__http_connection *x, json_t *message)
{
    by__link_handler handler = {.message = on_reply, .lost = on_lost, .ready = on_connected};
    struct by__gateway_admin_ask *a = NULL;
    by_error error = {0};
    if (g->options.control == NULL) {
        json_decref(message);
        by__gateway_reply_error(
            g, x, 501, "not_supervised", NULL,
            "this gateway was not started by `banyan serve`, which deploys versions");
        return;
    }
    if (message == NULL || by__alloc((void **)&a, 1, sizeof *a, "a question", &error) != BY_OK) {
        json_decref(message);
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for a request");
        return;
    }
    *a = (struct by__gateway_admin_ask){.waiter = {on_disconnect},
                                        .gateway = g,
                                        .connection = x,
                                        .message = message,
                                        .next = g->admin};
    g->admin = a;
    by__http_connection_set(x, &a->waiter);
    handler.user = a;
    if (by__link_connect(&a->link, &g->loop, g->options.control, NULL, &handler, &error) != BY_OK) {
        fail(a, 503, "unavailable", error.message);
    }
}

void by__gateway_admin_close(by__gateway *g)
{
    while (g->admin != NULL) {
        fail(g->admin, 503, "unavailable", "the gateway ends");
    }
}

/* ---- routes ---- */

void by__gateway_answer_versions(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                 const char *key)
{
    BY_UNUSED(key);
    ask(g, x, json_pack("{ss so*}", "t", "status", "model", by__gateway_query_model(r->query)));
}

/* The supervisor checks the numbers, whoever sends them. */
static const by__serve_field deployment_fields[] = {
    BY__STRING("model", by_deploy_options, model, 256),
    BY__STRING("path", by_deploy_options, path, 4096),
    BY__STRING("adapter", by_deploy_options, adapter, 4096),
    BY__NUMBER("canary", by_deploy_options, canary, -HUGE_VAL, HUGE_VAL),
    BY__NUMBER("hold", by_deploy_options, hold, -HUGE_VAL, HUGE_VAL),
    BY__NUMBER("slower", by_deploy_options, slower, -HUGE_VAL, HUGE_VAL),
    BY__NUMBER("errors", by_deploy_options, errors, -HUGE_VAL, HUGE_VAL),
    BY__BOOL("shadow", by_deploy_options, shadow),
    BY__BOOL("force", by_deploy_options, force),
};

/* Parses an optional body and reads its fields; *body is released when they are no longer used. */
static by_status read_body(void *out, const by__serve_field *fields, size_t count,
                           const by__http_request *r, json_t **body, const char **param,
                           by_error *error)
{
    *body = r->body_length == 0 ? json_object() : NULL;
    if (*body == NULL) {
        BY_TRY(by__gateway_body_parse(body, r->body, r->body_length, error));
    }
    return by__serve_fields_read(out, fields, count, *body, param, error);
}

/* Absent paths have defaults. */
static bool is_absolute(const char *path)
{
    return path == NULL || path[0] == '/';
}

void by__gateway_answer_deploy(by__gateway *g, by__http_connection *x, const by__http_request *r,
                               const char *key)
{
    by_deploy_options d;
    const char *param = NULL;
    by_error error = {0};
    json_t *body = NULL;
    BY_UNUSED(key);
    by_deploy_defaults(&d);
    by_status status = read_body(&d, deployment_fields, BY_ARRAY_LENGTH(deployment_fields), r,
                                 &body, &param, &error);
    bool good = is_absolute(d.path);
    if (status == BY_OK && !(good && is_absolute(d.adapter))) {
        param = good ? "adapter" : "path";
        status = by_error_set(&error, BY_EARG, "'%s' must begin with /: it is a path on the server",
                              param);
    }
    if (status != BY_OK) {
        by__gateway_reply_error(g, x, 400, "invalid_request", param, error.message);
    } else {
        by__gateway_detail(x, json_pack("{ss? ss* ss*}", "deploy", d.path, "adapter", d.adapter,
                                        "model", d.model));
        ask(g, x, by__protocol_deploy_message(&d));
    }
    json_decref(body);
}

void by__gateway_answer_rollback(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                 const char *key)
{
    static const by__serve_field fields[] = {BY__STRING("model", by_deploy_options, model, 256)};
    by_deploy_options back = {.rollback = true};
    const char *param = NULL;
    by_error error = {0};
    json_t *body = NULL;
    BY_UNUSED(key);
    if (read_body(&back, fields, BY_ARRAY_LENGTH(fields), r, &body, &param, &error) != BY_OK) {
        by__gateway_reply_error(g, x, 400, "invalid_request", param, error.message);
    } else {
        ask(g, x, by__protocol_deploy_message(&back));
    }
    json_decref(body);
}
