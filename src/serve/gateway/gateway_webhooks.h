/* Webhooks of tasks: the gateway takes messages that are due from the broker, which keeps them with
 * the task, sends them, and says what became of them. A message that was taken is due again after a
 * while, so that one whose gateway is killed is sent by the next: at least once. */
#ifndef BY_SERVE_GATEWAY_WEBHOOKS_H
#define BY_SERVE_GATEWAY_WEBHOOKS_H

#include "serve/gateway/gateway.h"
#include "serve/gateway/webhook.h"

typedef struct by__webhooks by__webhooks;

/* *out is NULL where the configuration lists no origin. config lives longer. */
by_status by__webhooks_open(by__webhooks **out, by__gateway *g,
                            const by_serve_webhooks_config *config, by_error *error);
/* The loop must run once more. */
void by__webhooks_close(by__webhooks **webhooks);
/* BY_EARG: a task may not have this URL. webhooks may be NULL. */
by_status by__webhooks_check(const by__webhooks *webhooks, const char *url, by_error *error);
/* The broker's answer "hooks". webhooks may be NULL: nothing is done. */
void by__webhooks_take(by__webhooks *webhooks, const json_t *message);
void by__webhooks_print(const by__webhooks *webhooks, by__text *out);

#endif
