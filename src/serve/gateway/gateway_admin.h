/* Routes of the scope `admin`: an operator's questions over HTTP, which the gateway passes on to
 * the control socket of its `banyan serve`, so that both ways are one. Each use is in the audit
 * log. */
#ifndef BY_SERVE_GATEWAY_ADMIN_H
#define BY_SERVE_GATEWAY_ADMIN_H

#include "serve/gateway/gateway_routes.h"

/* Ends what waits for the control socket; its clients are told so. */
void by__admin_close(by__gateway *g);

#endif
