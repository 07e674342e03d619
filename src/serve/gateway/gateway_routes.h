/* The routes of a gateway and their access control: one table says for every route which scope a
 * key needs. A path that is not in the table is a 404, and where keys are required only rows of
 * BY__SCOPE_NONE are served without one. */
#ifndef BY_SERVE_GATEWAY_GATEWAY_ROUTES_H
#define BY_SERVE_GATEWAY_GATEWAY_ROUTES_H

#include "serve/gateway/core/gateway_reply.h"

typedef struct by__gateway_route {
    const char *method;
    const char *path; /* if longer than "/" and ending with '/': a name follows */
    by__gateway_scope scope;
    by__gateway_route_answer *answer;
} by__gateway_route;

extern const by__gateway_route by__gateway_routes[];
extern const size_t by__gateway_route_count;

/* What a client that asks for this path may want: "; ask POST ... instead" of other servers' paths,
 * "; did you mean POST ...?" of those that are nearly a route; "" if nothing is known of it.
 * Static, or in `buffer` (route_hints.c). */
#define BY__ROUTE_HINT 96
const char *by__gateway_route_hint(char buffer[BY__ROUTE_HINT], const char *path);

/* ---- callbacks of the server (http_server.h); user: by__gateway ---- */

/* The head has arrived: finds the route, and refuses clients without access before any of the body
 * is read. */
bool by__gateway_head(void *user, by__http_connection *x, const by__http_request *r);
void by__gateway_on_request(void *user, by__http_connection *x, const by__http_request *r);
void by__gateway_on_disconnect(void *user, by__http_connection *x);
/* A request could not be read: gives it an id, and the access log the reason. */
void by__gateway_on_refused(void *user, by__http_connection *x, const char *code,
                            const char *reason);
/* A request has ended: writes the line of the access log. */
void by__gateway_done(void *user, by__http_connection *x, int status, size_t bytes);

/* ---- handlers of the routes ---- */

by__gateway_route_answer by__gateway_answer_page, by__gateway_answer_live, by__gateway_answer_ready,
    by__gateway_answer_version, by__gateway_answer_models, by__gateway_answer_model,
    by__gateway_answer_metrics;

/* ---- routes that workers answer (gateway_forms.c) ---- */

/* All forms, before a NULL. */
extern const by__gateway_request_form *const by__gateway_forms[];
/* For routes that have a form. */
by__gateway_route_answer by__gateway_answer;

#endif
