/* Routes of the scope `admin`: an operator's requests over HTTP. The gateway forwards them to the
 * control socket of its `banyan serve`, so that both ways behave the same. Each use is recorded in
 * the audit log. */
#ifndef BY_SERVE_GATEWAY_ADMIN_H
#define BY_SERVE_GATEWAY_ADMIN_H

#include "serve/gateway/core/gateway_reply.h"

by__route_answer by__answer_versions, by__answer_deploy, by__answer_rollback;

/* Closes pending requests to the control socket; their clients get an error. */
void by__admin_close(by__gateway *g);

#endif
