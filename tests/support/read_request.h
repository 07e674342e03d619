/* The request that a body makes of a form, and its stream, without a server. */
#ifndef BY_TESTS_READ_REQUEST_H
#define BY_TESTS_READ_REQUEST_H

#include "serve/gateway/core/gateway.h"

/* Reads a body, of an idle gateway. The request is returned also if that fails, since *param may be
 * in it; freed with by__gateway_request_free. */
by__gateway_request *read_request(const by__gateway_request_form *form, const char *body,
                                  const char **param, by_error *error);
/* Prints the beginning of a request's stream, and a text in pieces of two bytes. */
void stream_text(by__gateway_request *request, const char *text, by_string *out);

#endif
