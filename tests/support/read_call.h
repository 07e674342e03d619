/* The call that a body makes of a form, and its stream, without a server. */
#ifndef BY_TESTS_READ_CALL_H
#define BY_TESTS_READ_CALL_H

#include "serve/gateway/core/gateway.h"

/* Reads a body, of an idle gateway. The call is returned also if that fails, since *param may be in
 * it; freed with by__gateway_call_free. */
by__gateway_call *read_call(const by__gateway_call_form *form, const char *body, const char **param,
                            by_error *error);
/* Prints the beginning of a call's stream, and a text in pieces of two bytes. */
void stream_text(by__gateway_call *call, const char *text, by_string *out);

#endif
