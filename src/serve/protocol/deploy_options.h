/* Options of a deployment as the message "deploy" that `banyan deploy` and the gateway send to a
 * supervisor, and their ranges. */
#ifndef BY_SERVE_PROTOCOL_DEPLOY_OPTIONS_H
#define BY_SERVE_PROTOCOL_DEPLOY_OPTIONS_H

#include "serve/base/serve.h"

/* BY_EARG if a number is out of its range. */
by_status by__protocol_deploy_check(const by_deploy_options *options, by_error *error);
/* The message for a supervisor's control socket: "deploy", or "rollback"; a new reference. NULL: a
 * text is not UTF-8, or memory is exhausted. */
json_t *by__protocol_deploy_message(const by_deploy_options *options);
/* Reads a message "deploy" and checks it; absent members have their defaults, and texts belong to
 * the message. BY_EARG as by__protocol_deploy_check. */
by_status by__protocol_deploy_read(by_deploy_options *out, const json_t *message, by_error *error);

#endif
