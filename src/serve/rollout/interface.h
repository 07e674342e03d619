/* The interface of a version: which requests it answers, as its workers report it ("info",
 * messages.h). */
#ifndef BY_SERVE_ROLLOUT_INTERFACE_H
#define BY_SERVE_ROLLOUT_INTERFACE_H

#include "serve/base/serve.h"

#define BY__INTERFACE_REASON 128

/* Returns true, and writes why, if a version refuses requests that another one answers: it reads
 * another kind of input, other columns, or has no chat template. Either may be NULL, for not known
 * yet, which differs from nothing. */
bool by__rollout_interface_differs(char why[BY__INTERFACE_REASON], const json_t *serving,
                                   const json_t *coming);

#endif
