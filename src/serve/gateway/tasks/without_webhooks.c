#include <stdlib.h>

#include "base/build.h"
#include "serve/gateway/tasks/webhook_send.h"

by_status by__gateway_webhook_rules_open(by__gateway_webhook_rules **out,
                                         const by_serve_webhooks_config *config, by_error *error)
{
    *out = NULL;
    return config->origins.count == 0 ? BY_OK
                                      : by__build_lacks(BY_BUILD_CURL, "webhooks.origins", error);
}

void by__gateway_webhook_rules_close(by__gateway_webhook_rules **rules)
{
    *rules = NULL;
}

by_status by__gateway_webhook_check_url(const by__gateway_webhook_rules *rules, const char *url,
                                        by_error *error)
{
    BY_UNUSED(rules);
    BY_UNUSED(url);
    return by_error_set(error, BY_EARG, "this server sends no webhooks");
}

double by__gateway_webhook_pause(double first, int64_t tries, double random)
{
    BY_UNUSED(tries);
    BY_UNUSED(random);
    return first;
}

by_status by__gateway_webhook_sender_open(
    by__gateway_webhook_sender **out, uv_loop_t *loop, const by__gateway_webhook_rules *rules,
    const by_serve_webhooks_config *config,
    void (*ended)(void *user, by__gateway_webhook_message *message), void *user, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(loop);
    BY_UNUSED(rules);
    BY_UNUSED(config);
    BY_UNUSED(ended);
    BY_UNUSED(user);
    return by__build_lacks(BY_BUILD_CURL, "webhooks", error);
}

void by__gateway_webhook_sender_close(by__gateway_webhook_sender **sender)
{
    *sender = NULL;
}

void by__gateway_webhook_send(by__gateway_webhook_sender *sender,
                              by__gateway_webhook_message *message)
{
    BY_UNUSED(sender);
    by__gateway_webhook_message_free(message);
}

void by__gateway_webhook_message_free(by__gateway_webhook_message *message)
{
    if (message != NULL) {
        free(message->url);
        free(message->body);
        free(message);
    }
}
