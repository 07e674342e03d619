/* A process that looks at the models behind Redis for a while: its loop, its link, and how it
 * ends. For `banyan deploy --broker` (deploy_shared.c, deploy_status.c), which is a supervisor
 * without processes. */
#ifndef BY_SERVE_SHARED_SESSION_H
#define BY_SERVE_SHARED_SESSION_H

#include "serve/link/broker_link.h"
#include "serve/messages.h"

/* The first member of its owner's record. */
typedef struct by__session {
    uv_loop_t loop;
    by__broker_link link;
    char name[BY__ID_BYTES]; /* of this process, for the broker */
    by_error failure;
} by__session;

/* Connects, and runs until by__session_end or by__session_fail. The handler's `greet` and `refused`
 * are the session's; `user` of the rest is the session, so its owner's record. stop: of signals
 * that end a process, `again` for the second one. */
by_status by__session_run(by__session *session, const char *broker,
                          const by__broker_link_handler *handler,
                          void (*stop)(void *user, bool again), by_error *error);
void by__session_end(by__session *session);
/* Ends it by an error, which by__session_run gives. */
void by__session_fail(by__session *session, by_status status, const char *why);

#endif
