/* Webhooks: which URLs a server may send to, and how messages are signed.
 *
 * URLs come from clients, so a server that opens one can be used to reach its internal network
 * (server-side request forgery). Three checks prevent that:
 *
 *   - the URL's origin (scheme, host, port) must be one that the operator lists;
 *   - the URL is parsed by libcurl alone, which also opens it: two parsers could find different
 *     hosts in one text;
 *   - the address of each connection is checked before it is made, not the name: one that is not
 *     public must be in a network that the operator lists.
 *
 * Messages follow the Standard Webhooks specification, version 1.0
 * (https://github.com/standard-webhooks/standard-webhooks): the header webhook-signature is
 * HMAC-SHA256 over "ID.TIMESTAMP.BODY". */
#ifndef BY_SERVE_GATEWAY_TASKS_WEBHOOK_H
#define BY_SERVE_GATEWAY_TASKS_WEBHOOK_H

#include <sys/socket.h>

#include "serve/base/serve.h"

/* Longest URL in bytes. */
#define BY__WEBHOOK_URL 2048

typedef struct by__gateway_webhook_rules by__gateway_webhook_rules;

/* Loads the rules of a configuration, including the file of secrets. *out is NULL if it lists no
 * origin. BY_ECONFIG: an origin, a network or a secret is malformed. */
by_status by__gateway_webhook_rules_open(by__gateway_webhook_rules **out,
                                         const by_serve_webhooks_config *config, by_error *error);
void by__gateway_webhook_rules_close(by__gateway_webhook_rules **rules);
/* BY_EARG with a sentence for the client: messages may not be sent to this URL. rules may be NULL:
 * then to none. */
by_status by__gateway_webhook_check_url(const by__gateway_webhook_rules *rules, const char *url,
                                        by_error *error);
/* Returns true if a connection to an IPv4 or IPv6 address is allowed: it is public, or in a listed
 * network. */
bool by__gateway_webhook_check_address(const by__gateway_webhook_rules *rules,
                                       const struct sockaddr *address);
/* Appends the value of webhook-signature: "v1,BASE64" for each secret, separated by spaces. */
void by__gateway_webhook_sign(const by__gateway_webhook_rules *rules, const char *id,
                              int64_t timestamp, const char *body, size_t length, by_string *out);
/* Seconds until the next attempt after `tries` failed ones (1 or more): `first`, doubled with each
 * up to an hour, less a random part (`random` in 0..1) of up to a half, so that messages which
 * failed together are not retried together. */
double by__gateway_webhook_pause(double first, int64_t tries, double random);

#endif
