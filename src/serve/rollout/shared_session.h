/* A short-lived process that inspects models served through Redis: its loop, its link, and how it
 * ends. For `banyan deploy --broker` (deploy_shared.c, deploy_status.c), which acts as a supervisor
 * without processes. */
#ifndef BY_SERVE_SHARED_SESSION_H
#define BY_SERVE_SHARED_SESSION_H

#include "serve/link/broker_link.h"
#include "serve/protocol/messages.h"

/* Embedded as the first member of its owner's record. */
typedef struct by__session {
    uv_loop_t loop;
    by__broker_link link;
    char name[BY__ID_BYTES]; /* name of this process at the broker */
    by_error failure;
} by__session;

/* Connects, and runs the loop until by__session_end or by__session_fail. The session sets the
 * handler's `greet` and `refused`; `user` of the others is the session, and so its owner's record.
 * stop: called for SIGTERM and SIGINT, `again` for the second one. */
by_status by__session_run(by__session *session, const char *broker,
                          const by__broker_link_handler *handler,
                          void (*stop)(void *user, bool again), by_error *error);
void by__session_end(by__session *session);
/* Ends the session with an error, which by__session_run returns. */
void by__session_fail(by__session *session, by_status status, const char *why);

#endif
