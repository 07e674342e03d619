/* Two connections to a Redis server on a loop: one for calls of the broker's script, one that
 * listens on channels. Either is lost: both are. */
#ifndef BY_SERVE_REDIS_CLIENT_H
#define BY_SERVE_REDIS_CLIENT_H

#include <hiredis/hiredis.h>

#include "serve/link/redis_address.h"

typedef struct by__redis by__redis;

/* The number of what processes say to each other by Redis, and of what is stored there: keys and
 * fields (redis_jobs.lua), messages (messages.h), lists of events (event_list.h), and requests
 * (worker_request.h). Any change that a process of the former version would misread, or whose data
 * it would, increases it: processes of two numbers do not work on one Redis. */
#define BY__REDIS_PROTOCOL 1

typedef struct by__redis_handler {
    /* Both connections stand, and the script is known to Redis. */
    void (*ready)(void *user);
    /* What was published on one of the channels. */
    void (*message)(void *user, const char *text, size_t length);
    /* Redis cannot be reached, has broken a connection, does not answer for BY__REDIS_SILENCE
     * seconds, or by__redis_fail was called. Never called from within another function here. */
    void (*lost)(void *user, const char *why);
    /* Behind by__redis_close: nothing is called any more. */
    void (*closed)(void *user);
    void *user;
} by__redis_handler;

#define BY__REDIS_SILENCE 10.0

/* Begins to connect. channels: at most BY__REDIS_CHANNELS texts, copied. */
#define BY__REDIS_CHANNELS 3
by_status by__redis_open(by__redis **out, uv_loop_t *loop, const by__redis_address *address,
                         const char *const *channels, size_t channel_count,
                         const by__redis_handler *handler, by_error *error);
/* What was called is still sent, for half a second at most; `closed` follows. */
void by__redis_close(by__redis **redis);
/* `lost` follows. The text is copied. */
void by__redis_fail(by__redis *redis, const char *why);

/* ---- calls of the script ---- */

/* The arguments of a call, as Redis' protocol has them. A text that failed makes the call fail. */
typedef struct by__redis_call {
    by__text text;
    size_t count;
} by__redis_call;

void by__redis_add(by__redis_call *call, const char *text, size_t length);
void by__redis_add_text(by__redis_call *call, const char *text);
void by__redis_add_integer(by__redis_call *call, int64_t value);
/* A JSON value as text. */
void by__redis_add_json(by__redis_call *call, const json_t *value);

/* Bytes of what a call is about. */
#define BY__REDIS_ABOUT 336

/* What a call gave; NULL: the connection was lost first. `about` is what by__redis_run was given.
 */
typedef void by__redis_answer(void *user, const char *about, const redisReply *reply);

/* Calls the script, from `ready` on. `grows`: Redis may refuse it where its
 * memory is full. about: copied. Takes what the call holds. */
void by__redis_run(by__redis *redis, by__redis_call *call, bool grows, by__redis_answer *answer,
                   void *user, const char *about);

#endif
