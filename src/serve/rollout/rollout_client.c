#include "serve/rollout/rollout_client.h"

#include <unistd.h>

#include "serve/base/stop.h"

static void send_hello(void *user)
{
    by__rollout_client *s = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "supervisor", "name", s->name,
                              "pid", (json_int_t)getpid());
    (void)by__link_broker_send(&s->link, hello);
    json_decref(hello);
}

static void on_refused(void *user, const char *why)
{
    by__rollout_client_fail(user, BY_ESTATE, why);
}

void by__rollout_client_end(by__rollout_client *client)
{
    uv_stop(&client->loop);
}

void by__rollout_client_fail(by__rollout_client *client, by_status status, const char *why)
{
    (void)by_error_set(&client->failure, status, "%s", why);
    by__rollout_client_end(client);
}

by_status by__rollout_client_run(by__rollout_client *client, const char *broker,
                                 const by__link_broker_handler *handler,
                                 void (*stop)(void *user, bool again), by_error *error)
{
    by__rollout_client *s = client;
    by__serve_stop *stopper = NULL;
    by__link_broker_handler own = *handler;
    own.hello = send_hello;
    own.refused = on_refused;
    own.user = s;
    BY_TRY(by__link_check(broker, error));
    BY_TRY(by__serve_request_id(s->name, "deploy_", error));
    int code = uv_loop_init(&s->loop);
    if (code < 0) {
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    by_status status = by__serve_stop_open(&stopper, &s->loop, false, stop, s, error);
    if (status == BY_OK) {
        by__link_broker_open(&s->link, &s->loop, broker, NULL, &own);
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
        by__link_broker_close(&s->link);
        if (s->failure.status != BY_OK) {
            *error = s->failure;
            status = s->failure.status;
        }
    }
    by__serve_stop_close(&stopper);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s->loop);
    return status;
}
