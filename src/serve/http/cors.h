/* Requests of pages of other sites (Fetch Standard, "CORS protocol"). */
#ifndef BY_SERVE_CORS_H
#define BY_SERVE_CORS_H

#include "banyan/serve_config.h"
#include "serve/http/http_server.h"

/* Adds the headers that let a page read the answer, where its origin is one of the config's. */
void by__cors_allow(const by_serve_cors_config *config, by__exchange *x, const by__http_request *r);
/* A question of a browser, on behalf of a page, whether it may send a request: it is answered here,
 * where the origin is one of the config's. False: it is none, or of another origin. */
bool by__cors_preflight(const by_serve_cors_config *config, by__exchange *x,
                        const by__http_request *r);

#endif
