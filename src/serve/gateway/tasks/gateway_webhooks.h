/* Webhooks of tasks: the gateway leases messages that are due from the broker, which stores them
 * with the task, sends them, and reports the outcome. A leased message is due again after a while,
 * so that another gateway sends it if this one is killed: delivery is at least once. */
#ifndef BY_SERVE_GATEWAY_TASKS_GATEWAY_WEBHOOKS_H
#define BY_SERVE_GATEWAY_TASKS_GATEWAY_WEBHOOKS_H

#include "serve/gateway/core/gateway.h"
#include "serve/gateway/tasks/webhook.h"

typedef struct by__gateway_webhooks by__gateway_webhooks;

/* *out is NULL if the configuration lists no origin. config must outlive it. */
by_status by__gateway_webhooks_open(by__gateway_webhooks **out, by__gateway *g,
                                    const by_serve_webhooks_config *config, by_error *error);
/* The loop must run once more to free it. */
void by__gateway_webhooks_close(by__gateway_webhooks **webhooks);
/* BY_EARG: a task may not have this URL. webhooks may be NULL. */
by_status by__gateway_webhooks_check(const by__gateway_webhooks *webhooks, const char *url,
                                     by_error *error);
/* Handles the broker's message "hooks". webhooks may be NULL: nothing is done. */
void by__gateway_webhooks_receive(by__gateway_webhooks *webhooks, const json_t *message);
void by__gateway_webhooks_print(const by__gateway_webhooks *webhooks, by_string *out);

#endif
