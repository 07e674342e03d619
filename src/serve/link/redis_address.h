/* Where a Redis server is that is the broker, and what holds for it:
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=N&...]
 *
 * The options are the names of the fields below. HOST may be an IPv6 address in
 * brackets. USER, PASSWORD and a file's name may have bytes as %XX. */
#ifndef BY_SERVE_REDIS_ADDRESS_H
#define BY_SERVE_REDIS_ADDRESS_H

#include "serve/serve.h"

typedef struct by__redis_address {
    char host[256];
    char user[128];                         /* "": Redis' own */
    char password[BY_SERVE_PASSWORD_BYTES]; /* "": none is asked for */
    char password_file[1024];               /* whose first line is the password; "": none */
    int port;                               /* 6379 */
    int database;
    int64_t queue;        /* requests that may wait for a model; 1024 */
    int64_t queue_tokens; /* prompts and answers that wait, by guess; 4,000,000 */
    double wait;          /* seconds that a request may wait; 0: by the load (admission.h) */
    double silence;       /* seconds without a beat after which a worker's requests are
                     taken; 5 */
    double hang;          /* seconds with work and without a step after which it beats no
                  more; 60 */
    int64_t attempts;     /* times that a request is given to a worker, at most; 3 */
} by__redis_address;

/* True for what begins with "redis://", or with "rediss://", which is read by none: what asks for
 * TLS is not taken for the path of a socket. */
bool by__redis_is_address(const char *broker);
/* BY_ECONFIG: a sentence without the password. */
by_status by__redis_address_read(by__redis_address *out, const char *url, by_error *error);
/* The variables of the environment with the broker's password: BANYAN_REDIS_PASSWORD, else
 * REDISCLI_AUTH. */
extern const char *const by__redis_broker_login[];
/* Completes an address without a password, by the first line of its file, else of the first of
 * `variables` that the environment has, which no list of processes shows; an empty one there says
 * that there is none. The list ends with NULL. BY_ECONFIG: the file has none, or one is too long;
 * the message names the file or the variable. */
by_status by__redis_address_login(by__redis_address *address, const char *const *variables,
                                  by_error *error);

#endif
