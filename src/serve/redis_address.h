/* Where a Redis server is that is the broker, and what holds for it:
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=N&...]
 *
 * The options are the names of the fields below. HOST may be an IPv6 address in
 * brackets. USER and PASSWORD may have bytes as %XX. Without a password, that
 * of the environment's REDISCLI_AUTH is used, which no list of processes shows.
 */
#ifndef BY_SERVE_REDIS_ADDRESS_H
#define BY_SERVE_REDIS_ADDRESS_H

#include "serve/serve.h"

typedef struct by__redis_address {
    char host[256];
    char user[128];     /* "": Redis' own */
    char password[256]; /* "": none is asked for */
    int port;           /* 6379 */
    int database;
    int64_t queue;        /* requests that may wait for a model; 1024 */
    int64_t queue_tokens; /* prompts and answers that wait, by guess; 4,000,000 */
    double silence;       /* seconds without a beat after which a worker's requests are
                     taken; 5 */
    double hang;          /* seconds with work and without a step after which it beats no
                  more; 60 */
    int64_t attempts;     /* times that a request is given to a worker, at most; 3 */
} by__redis_address;

/* True for what begins with "redis://". */
bool by__redis_is_address(const char *broker);
/* BY_ECONFIG: a sentence without the password. */
by_status by__redis_address_read(by__redis_address *out, const char *url, by_error *error);

#endif
