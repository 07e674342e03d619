/* The link of a gateway, a worker or a supervisor to its broker, with automatic reconnection. */
#ifndef BY_SERVE_LINK_BROKER_LINK_H
#define BY_SERVE_LINK_BROKER_LINK_H

#include "serve/link/core/link.h"
#include "serve/telemetry/log.h"

/* Any of them may be NULL. */
typedef struct by__link_broker_handler {
    /* A connection attempt has started: messages sent here, the first of which must be "hello", are
     * sent first. The broker may not have been reached yet. */
    void (*hello)(void *user);
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
     * by__link_broker_close. */
    void (*lost)(void *user, const char *why);
    void *user;
    /* Gets `broker_lost` with the address, the reason and the seconds so far when the link is lost
     * (or the broker was not reachable for 2 s) and every 10 s from then on, and `broker_back`. */
    const by__telemetry_log *log;
} by__link_broker_handler;

typedef struct by__link_broker {
    by__link *link; /* NULL: not connected */
    bool ready;     /* the connection is established */
    bool reached;   /* it has been established at least once */
    double away;    /* by__now since when the broker is unreachable */
    double logged;  /* by__now of the last log entry about it; 0: none yet */
    uv_loop_t *loop;
    uv_timer_t retry;
    const char *broker;
    by__link_dialer *dialer; /* NULL: none */
    by__link_broker_handler handler;
} by__link_broker;

/* Starts the first attempt. The address and the dialer (by__link_connect) are borrowed and must
 * outlive the link. */
void by__link_broker_open(by__link_broker *b, uv_loop_t *loop, const char *broker,
                          by__link_dialer *dialer, const by__link_broker_handler *handler);
/* Returns false if there is no link, or it was lost by this call. */
bool by__link_broker_send(by__link_broker *b, const json_t *message);
bool by__link_broker_send_events(by__link_broker *b, const char *list, size_t length);
/* by__link_unsent, of a link that there is. */
size_t by__link_broker_unsent(const by__link_broker *b);
/* by__link_pause, if there is a link. */
void by__link_broker_pause(by__link_broker *b, bool pauses);
/* Closes a link on which the broker is silent; `lost` is called. */
void by__link_broker_drop(by__link_broker *b, const char *why);
/* Called once, after by__link_broker_open; the loop must turn before the memory is freed. */
void by__link_broker_close(by__link_broker *b);

#endif
