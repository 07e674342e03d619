/* The link of a gateway, a worker or a supervisor to its broker, with automatic reconnection. */
#ifndef BY_SERVE_BROKER_LINK_H
#define BY_SERVE_BROKER_LINK_H

#include "serve/link/core/link.h"
#include "serve/telemetry/log.h"

/* Any of them may be NULL. */
typedef struct by__broker_link_handler {
    /* A connection attempt has started: messages sent here, the first of which must be "hello", are
     * sent first. The broker may not have been reached yet. */
    void (*greet)(void *user);
    /* The connection is established. */
    void (*ready)(void *user);
    /* A message; the link keeps ownership. */
    void (*message)(void *user, json_t *message);
    /* A list of events (event_list.h), valid during the call. */
    void (*events)(void *user, const char *list, size_t length);
    /* If not NULL, called instead of `lost` when the broker refuses processes of this version
     * because those of another one, or their data, are there, or the dialer has ended. No attempt
     * follows: the process must end. */
    void (*refused)(void *user, const char *why);
    /* The link is lost; the next attempt follows automatically. Not called by
     * by__broker_link_close. */
    void (*lost)(void *user, const char *why);
    void *user;
    /* Gets `broker_lost` with the address, the reason and the seconds so far when the link is lost
     * (or the broker was not reachable for 2 s) and every 10 s from then on, and `broker_back`. */
    const by__log *log;
} by__broker_link_handler;

typedef struct by__broker_link {
    by__link *link; /* NULL: not connected */
    bool ready;     /* the connection is established */
    bool reached;   /* it has been established at least once */
    double away;    /* by__now since when the broker is unreachable */
    double told;    /* by__now of the last log entry about it; 0: none yet */
    uv_loop_t *loop;
    uv_timer_t retry;
    const char *broker;
    by__dialer *dialer; /* NULL: none */
    by__broker_link_handler handler;
} by__broker_link;

/* Starts the first attempt. The address and the dialer (by__link_connect) are borrowed and must
 * outlive the link. */
void by__broker_link_open(by__broker_link *b, uv_loop_t *loop, const char *broker,
                          by__dialer *dialer, const by__broker_link_handler *handler);
/* Returns false if there is no link, or it was lost by this call. */
bool by__broker_link_send(by__broker_link *b, const json_t *message);
bool by__broker_link_send_events(by__broker_link *b, const char *list, size_t length);
/* by__link_hold, if there is a link. */
void by__broker_link_hold(by__broker_link *b, bool holds);
/* Closes a link on which the broker is silent; `lost` is called. */
void by__broker_link_drop(by__broker_link *b, const char *why);
/* Called once, after by__broker_link_open; the loop must turn before the memory is freed. */
void by__broker_link_close(by__broker_link *b);

#endif
