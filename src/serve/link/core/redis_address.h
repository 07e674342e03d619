/* The address of a Redis server that is the broker, and its settings:
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=N&...]
 *
 * The options are the names of the fields below. HOST may be an IPv6 address in brackets. USER,
 * PASSWORD and a file's name may contain %XX escapes. */
#ifndef BY_SERVE_LINK_CORE_REDIS_ADDRESS_H
#define BY_SERVE_LINK_CORE_REDIS_ADDRESS_H

#include "serve/telemetry/exposed_file.h"

typedef struct by__link_redis_address {
    char host[256];
    char user[128];                         /* "": the default user */
    char password[BY_SERVE_PASSWORD_BYTES]; /* "": none */
    char password_file[1024];               /* its first line is the password; "": none */
    int port;                               /* default 6379 */
    int database;
    int64_t queue;        /* most requests that wait for a model; 1024 */
    int64_t queue_tokens; /* most estimated tokens of prompts and answers that wait; 4,000,000 */
    int64_t stored;       /* most tasks, and most responses, stored for each key name; 100,000 */
    int64_t stored_bytes; /* most bytes of each of the two; 256 MiB */
    double wait;          /* most seconds that a request may wait; 0: by load (admission.h) */
    /* seconds without a beat after which a worker's requests are given to others; 5 */
    double silence;
    /* seconds with work but without a step after which a worker stops beating; 60 */
    double hang;
    int64_t attempts; /* most times that a request is given to a worker; 3 */
} by__link_redis_address;

/* True for what begins with "redis://" or "rediss://". The latter is always refused, but must not
 * be taken for the path of a socket. */
bool by__link_redis_is_address(const char *broker);
/* Parses an address. BY_ECONFIG: a sentence without the password. */
by_status by__link_redis_address_read(by__link_redis_address *out, const char *url,
                                      by_error *error);
/* Logs it if others can read the file with the password of a broker (by__telemetry_log_exposed).
 * */
void by__link_redis_log_exposed(const char *broker, const by__telemetry_log *log);
/* Environment variables that may contain the broker's password: BANYAN_REDIS_PASSWORD, else
 * REDISCLI_AUTH. */
extern const char *const by__link_redis_broker_login[];
/* Completes an address without a password: from the first line of its file, else from the first of
 * `variables` (ending with NULL) that is set in the environment, which lists of processes do not
 * show; an empty one means no password. BY_ECONFIG, naming the file or the variable: the file has
 * no password, or it is too long. */
by_status by__link_redis_address_login(by__link_redis_address *address,
                                       const char *const *variables, by_error *error);

#endif
