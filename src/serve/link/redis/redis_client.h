/* A client of a Redis server on a loop, with two connections: one calls the broker's script, one
 * listens on channels. If either is lost, both are closed. */
#ifndef BY_SERVE_LINK_REDIS_REDIS_CLIENT_H
#define BY_SERVE_LINK_REDIS_REDIS_CLIENT_H

#include <hiredis/hiredis.h>

#include "serve/link/core/dialer.h"
#include "serve/link/core/redis_address.h"

typedef struct by__redis by__redis;

/* Version of everything that processes exchange through Redis or store there: keys and fields
 * (redis_jobs.lua), messages (messages.h), lists of events (event_list.h), and requests
 * (worker_generation.c). It is increased by every change that a process of the former version would
 * misread, or whose data the new one would misread: processes of different versions do not share a
 * Redis. */
#define BY__REDIS_PROTOCOL 1

typedef struct by__redis_handler {
    /* Both connections are established, and the script is loaded. */
    void (*ready)(void *user);
    /* A message was published on one of the channels. */
    void (*message)(void *user, const char *text, size_t length);
    /* Redis cannot be reached, has closed a connection, has not answered for BY__REDIS_SILENCE
     * seconds, or by__redis_fail was called. Never called from within another function of this
     * header. */
    void (*lost)(void *user, const char *why);
    /* Follows by__redis_close; no function is called any more. */
    void (*closed)(void *user);
    void *user;
} by__redis_handler;

#define BY__REDIS_SILENCE 10.0

/* Starts to connect. dialer: finds the host and the password, borrowed; NULL: they are found here,
 * and the address has the password. channels: at most BY__REDIS_CHANNELS strings, copied. */
#define BY__REDIS_CHANNELS 3
by_status by__redis_open(by__redis **out, uv_loop_t *loop, const by__link_redis_address *address,
                         by__link_dialer *dialer, const char *const *channels, size_t channel_count,
                         const by__redis_handler *handler, by_error *error);
/* Closes the client; pending calls are still sent, for half a second at most; `closed` follows. */
void by__redis_close(by__redis **redis);
/* Bytes of calls that are still here. */
size_t by__redis_unsent(const by__redis *redis);
/* Fails the client: `lost` follows. The text is copied. */
void by__redis_fail(by__redis *redis, const char *why);

/* ---- calls of the script ---- */

/* The arguments of a call, encoded in Redis' protocol. If the text failed, so does the call. */
typedef struct by__redis_call {
    by_string text;
    size_t count;
} by__redis_call;

void by__redis_add(by__redis_call *call, const char *text, size_t length);
void by__redis_add_text(by__redis_call *call, const char *text);
void by__redis_add_integer(by__redis_call *call, int64_t value);
/* Appends a JSON value as text. */
void by__redis_add_json(by__redis_call *call, const json_t *value);

/* Size of the caller's note about a call. */
#define BY__REDIS_ABOUT 336

/* Receives the reply of a call; NULL: the connection was lost before. `about` is the text given to
 * by__redis_execute.
 */
typedef void by__redis_answer(void *user, const char *about, const redisReply *reply);

/* Calls the script; allowed from `ready` on. `grows`: Redis may refuse the call if its memory is
 * full. about: copied. Takes what the call holds. */
void by__redis_execute(by__redis *redis, by__redis_call *call, bool grows, by__redis_answer *answer,
                       void *user, const char *about);

#endif
