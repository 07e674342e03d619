/* Cross-origin requests of pages of other sites (Fetch Standard, "CORS protocol"). */
#ifndef BY_SERVE_HTTP_CORS_H
#define BY_SERVE_HTTP_CORS_H

#include "banyan/serve_config.h"
#include "serve/http/http_server.h"

/* Adds the headers that let a page read the answer, if its origin is one of the config's. */
void by__http_cors_allow(const by_serve_cors_config *config, by__http_connection *x,
                         const by__http_request *r);
/* Returns true if a page of an origin that is not in the config may have sent the request without
 * asking first: a form, or a script's request of the same kind, which browsers send to any server.
 * A body of JSON, a key, and methods other than POST need a preflight, which has been refused. */
bool by__http_cors_forged(const by_serve_cors_config *config, const by__http_request *r);
/* Answers a CORS preflight request if its origin is one of the config's. Returns false if it is no
 * preflight, or of another origin. */
bool by__http_cors_preflight(const by_serve_cors_config *config, by__http_connection *x,
                             const by__http_request *r);

#endif
