/* Routes of the scope `admin`: an operator's requests over HTTP. The gateway forwards them to the
 * control socket of its `banyan serve`, so that both ways behave the same. Each use is recorded in
 * the audit log. */
#ifndef BY_SERVE_GATEWAY_GATEWAY_ADMIN_H
#define BY_SERVE_GATEWAY_GATEWAY_ADMIN_H

#include "serve/gateway/core/gateway_reply.h"

by__gateway_route_answer by__gateway_answer_versions, by__gateway_answer_deploy,
    by__gateway_answer_rollback;

/* Closes pending requests to the control socket; their clients get an error. */
void by__gateway_admin_close(by__gateway *g);

#endif
