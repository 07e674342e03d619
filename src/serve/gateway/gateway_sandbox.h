/* The sandbox of a gateway: which files and calls it needs. */
#ifndef BY_SERVE_GATEWAY_GATEWAY_SANDBOX_H
#define BY_SERVE_GATEWAY_GATEWAY_SANDBOX_H

#include "serve/base/sandbox.h"

/* Describes the sandbox, unless `options` want none, and takes away all files but those that they
 * name: before there is a loop or a thread. by__serve_sandbox_enter completes it. *version and
 * errors as of by__serve_sandbox_prepare; without a sandbox *version is unchanged. */
by_status by__gateway_sandbox_prepare(by__serve_sandbox *out, int *version,
                                      const by_gateway_options *options, by_error *error);

#endif
