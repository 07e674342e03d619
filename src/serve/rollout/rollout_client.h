/* A short-lived process that inspects models served through Redis: its loop, its link, and how it
 * ends. For `banyan deploy --broker` (deploy_shared.c, deploy_status.c), which acts as a supervisor
 * without processes. */
#ifndef BY_SERVE_ROLLOUT_ROLLOUT_CLIENT_H
#define BY_SERVE_ROLLOUT_ROLLOUT_CLIENT_H

#include "serve/link/broker_link.h"
#include "serve/protocol/messages.h"

/* Embedded as the first member of its owner's record. */
typedef struct by__rollout_client {
    uv_loop_t loop;
    by__link_broker link;
    char name[BY__ID_BYTES]; /* name of this process at the broker */
    by_error failure;
} by__rollout_client;

/* Connects, and runs the loop until by__rollout_client_end or by__rollout_client_fail. The
 * session sets the handler's `hello` and `refused`; `user` of the others is the session, and so its
 * owner's record. stop: called for SIGTERM and SIGINT, `again` for the second one. */
by_status by__rollout_client_run(by__rollout_client *client, const char *broker,
                                 const by__link_broker_handler *handler,
                                 void (*stop)(void *user, bool again), by_error *error);
void by__rollout_client_end(by__rollout_client *client);
/* Ends the session with an error, which by__rollout_client_run returns. */
void by__rollout_client_fail(by__rollout_client *client, by_status status, const char *why);

#endif
