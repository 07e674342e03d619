/* Webhooks: what a server may send to, and what a message has.
 *
 * A URL comes from a client, so that a server which opens it is a way into its own network (server
 * side request forgery). Three things hold against that:
 *   - the URL's origin (scheme, host, port) is one that the operator lists;
 *   - the URL is read by libcurl's parser alone, which also opens it: two parsers could read one
 *     text as two hosts;
 *   - the address that a connection is about to be made to is looked at, not the name: one that is
 *     not public must be in a network that the operator lists.
 *
 * Messages are those of the Standard Webhooks specification, version 1.0
 * (https://github.com/standard-webhooks/standard-webhooks): the header webhook-signature is
 * HMAC-SHA256 over "ID.TIMESTAMP.BODY". */
#ifndef BY_SERVE_WEBHOOK_H
#define BY_SERVE_WEBHOOK_H

#include <sys/socket.h>

#include "serve/serve.h"

/* Bytes of a URL, at most. */
#define BY__WEBHOOK_URL 2048

typedef struct by__webhook_rules by__webhook_rules;

/* What a configuration allows; reads the file of secrets. *out is NULL where it lists no origin.
 * BY_ECONFIG: an origin, a network or a secret is none. */
by_status by__webhook_rules_open(by__webhook_rules **out, const by_serve_webhooks_config *config,
                                 by_error *error);
void by__webhook_rules_close(by__webhook_rules **rules);
/* BY_EARG with a sentence for the client: messages are not sent to this URL. rules may be NULL:
 * they are sent nowhere. */
by_status by__webhook_check_url(const by__webhook_rules *rules, const char *url, by_error *error);
/* Whether a connection to an address of IPv4 or IPv6 may be made: it is public, or in a network
 * that is listed. */
bool by__webhook_check_address(const by__webhook_rules *rules, const struct sockaddr *address);
/* Adds the value of webhook-signature: "v1,BASE64" for each secret, with spaces between. */
void by__webhook_sign(const by__webhook_rules *rules, const char *id, int64_t timestamp,
                      const char *body, size_t length, by__text *out);
/* Seconds until the next attempt, after `tries` that failed (1 or more): `first` doubled with each,
 * an hour at most, less a random part (`random` in 0..1) of up to a half, so that messages which
 * failed together do not come back together. */
double by__webhook_pause(double first, int64_t tries, double random);

#endif
