/* Sends webhook messages on a separate thread, so that a slow or unreachable receiver delays no
 * request.
 *
 * A message is posted once, without following redirects and without a proxy, to an address that
 * webhook.h allows. Only the status of the answer counts, and at most BY__WEBHOOK_ANSWER bytes of
 * it are read.
 */
#ifndef BY_SERVE_GATEWAY_TASKS_WEBHOOK_SEND_H
#define BY_SERVE_GATEWAY_TASKS_WEBHOOK_SEND_H

#include "serve/gateway/tasks/webhook.h"

/* Most messages in flight. */
#define BY__WEBHOOKS_CONCURRENT 16
/* Most bytes of an answer, including its head. */
#define BY__WEBHOOK_ANSWER 65536

typedef struct by__gateway_webhook_sender by__gateway_webhook_sender;

/* One message and its outcome. */
typedef struct by__gateway_webhook_message {
    char id[65];   /* webhook-id: the id of the task, the same for each attempt */
    int64_t tries; /* number of this attempt, from 1 on */
    char *url;     /* freed with the message */
    char *body;
    /* Outcome: */
    long status;        /* HTTP status; 0: there was no answer */
    bool permanent;     /* another attempt would end in the same way */
    double retry_after; /* seconds that the receiver asked to wait; 0: none */
    char reason[256];   /* why there was no answer; else "" */
    struct by__gateway_webhook_message *next;
} by__gateway_webhook_message;

/* Starts the thread. `ended` is called for each message on the loop and takes ownership; messages
 * still in flight when the sender is closed are freed without it. rules and config must outlive
 * it. */
by_status by__gateway_webhook_sender_open(
    by__gateway_webhook_sender **out, uv_loop_t *loop, const by__gateway_webhook_rules *rules,
    const by_serve_webhooks_config *config,
    void (*ended)(void *user, by__gateway_webhook_message *message), void *user, by_error *error);
/* Asks the thread to end. The loop must run once more to free it. */
void by__gateway_webhook_sender_close(by__gateway_webhook_sender **sender);
/* Sends a message; takes ownership. */
void by__gateway_webhook_send(by__gateway_webhook_sender *sender,
                              by__gateway_webhook_message *message);
void by__gateway_webhook_message_free(by__gateway_webhook_message *message);

#endif
