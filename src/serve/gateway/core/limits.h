/* Rate limits of keys: requests and tokens per minute (token buckets), tokens per day.
 *
 * A bucket holds a minute's worth and fills evenly. A request is charged an estimate before it
 * runs, and the charge is corrected to what it used afterwards. A request that needs more than a
 * bucket can hold runs when the bucket is full, and leaves a debt. */
#ifndef BY_SERVE_GATEWAY_CORE_LIMITS_H
#define BY_SERVE_GATEWAY_CORE_LIMITS_H

#include "banyan/serve_config.h"
#include "serve/gateway/core/keys.h"

typedef struct by__gateway_limits by__gateway_limits;

/* A key's remaining allowance, for the headers of the answer. */
typedef struct by__gateway_allowance {
    int64_t requests_per_minute; /* 0: no limit */
    int64_t tokens_per_minute;
    int64_t tokens_per_day;
    double requests; /* left in the bucket now, at least 0 */
    double tokens;
    double today; /* tokens used today */
    /* NULL, or the limit that was exceeded: "requests", "tokens" or "tokens_per_day" */
    const char *over;
} by__gateway_allowance;

/* keys: NULL if none are required. path: file that keeps today's use; NULL: not kept. A file that
 * cannot be read is an error: starting at 0 would void the quota. */
by_status by__gateway_limits_open(by__gateway_limits **out, const by_serve_limits_config *config,
                                  const by__gateway_keys *keys, const char *path, by_error *error);
/* Adds the accounts of a reloaded file of keys. BY_EMEMORY: none was added. */
by_status by__gateway_limits_extend(by__gateway_limits *limits,
                                    const by_serve_limits_config *config,
                                    const by__gateway_keys *keys, by_error *error);
void by__gateway_limits_close(by__gateway_limits **limits);
/* Charges the account of a client (by__gateway_client). now: a monotonic clock, in seconds; wall:
 * seconds since 1970. Returns 0 if charged; else nothing is charged, and the seconds to wait are
 * returned. */
double by__gateway_limits_charge(by__gateway_limits *limits, size_t account, double requests,
                                 double tokens, double now, double wall,
                                 by__gateway_allowance *left);
/* Tokens of a request that has ended: `charged` were taken for it, and it used so many. */
void by__gateway_limits_settle(by__gateway_limits *limits, size_t account, double charged,
                               double used);
/* The file's text of what has changed since the last call; NULL: nothing has. The clocks are those
 * of by__gateway_limits_charge. Freed with free(). */
char *by__gateway_limits_print(by__gateway_limits *limits, double now, double wall);

#endif
