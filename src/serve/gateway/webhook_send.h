/* Messages of webhooks on their way, in a thread of their own: a receiver that is slow or down
 * holds up no request.
 *
 * A message is posted once, without following redirects and without a proxy, to an address that
 * webhook.h allows; of the answer its status counts, and at most BY__WEBHOOK_ANSWER bytes are read.
 */
#ifndef BY_SERVE_WEBHOOK_SEND_H
#define BY_SERVE_WEBHOOK_SEND_H

#include "serve/gateway/webhook.h"

/* Messages on their way at a time, at most. */
#define BY__WEBHOOKS_AT_ONCE 16
/* Bytes of an answer with its head. */
#define BY__WEBHOOK_ANSWER 65536

typedef struct by__webhook_sender by__webhook_sender;

/* One message, and what became of it. */
typedef struct by__webhook_message {
    char id[65];   /* webhook-id: that of the task, the same for each attempt */
    int64_t tries; /* of this attempt, from 1 on */
    char *url;     /* freed with the message */
    char *body;
    /* of the answer */
    long status;        /* of HTTP; 0: there was none */
    double retry_after; /* seconds that the receiver asks for; 0: it does not */
    char reason[256];   /* why there was no answer; "" */
    struct by__webhook_message *next;
} by__webhook_message;

/* Starts the thread. `ended` gets each message on the loop, and owns it then; messages that are on
 * their way when the sender is closed are freed without it. rules and config live longer. */
by_status by__webhook_sender_open(by__webhook_sender **out, uv_loop_t *loop,
                                  const by__webhook_rules *rules,
                                  const by_serve_webhooks_config *config,
                                  void (*ended)(void *user, by__webhook_message *message),
                                  void *user, by_error *error);
/* Ends the thread, soon. The loop must run once more. */
void by__webhook_sender_close(by__webhook_sender **sender);
/* Takes a message. */
void by__webhook_send(by__webhook_sender *sender, by__webhook_message *message);
void by__webhook_message_free(by__webhook_message *message);

#endif
