/* The link of a gateway, a worker or a supervisor to its broker: made again when it is lost. */
#ifndef BY_SERVE_BROKER_LINK_H
#define BY_SERVE_BROKER_LINK_H

#include "serve/link/link.h"
#include "serve/observe/log.h"

/* Any of them may be NULL. */
typedef struct by__broker_link_handler {
    /* A link was begun: what is sent here comes first, and is "hello". The broker may not be
     * reached yet. */
    void (*greet)(void *user);
    /* The connection stands. */
    void (*ready)(void *user);
    /* The message is the link's. */
    void (*message)(void *user, json_t *message);
    /* A list of events (event_list.h), for the time of the call. */
    void (*events)(void *user, const char *list, size_t length);
    /* In place of `lost`, where it is not NULL: the broker takes no process of this version while
     * those of another one, or what they have left, are there. No attempt follows: the process
     * ends. */
    void (*refused)(void *user, const char *why);
    /* The link is gone; the next attempt follows by itself. Not called by by__broker_link_close. */
    void (*lost)(void *user, const char *why);
    void *user;
    /* Gets `broker_lost` with the address, the reason and the seconds so far when the link is lost
     * (or the broker was not there for 2 s) and every 10 s from then on, and `broker_back`. */
    const by__log *log;
} by__broker_link_handler;

typedef struct by__broker_link {
    by__link *link; /* NULL: the broker is not reached */
    bool ready;     /* the connection stands */
    bool reached;   /* it has stood once */
    double away;    /* by__now since when the broker is away */
    double told;    /* by__now when the log was last told; 0: not of this absence */
    uv_loop_t *loop;
    uv_timer_t retry;
    const char *broker;
    by__broker_link_handler handler;
} by__broker_link;

/* Makes the first attempt. The address (by__link_connect) stays the caller's, and must live as long
 * as the link. */
void by__broker_link_open(by__broker_link *b, uv_loop_t *loop, const char *broker,
                          const by__broker_link_handler *handler);
/* False: there is no link, or it was lost by this. */
bool by__broker_link_send(by__broker_link *b, const json_t *message);
bool by__broker_link_send_events(by__broker_link *b, const char *list, size_t length);
/* by__link_hold, where there is a link. */
void by__broker_link_hold(by__broker_link *b, bool holds);
/* Gives up a link on which the broker says nothing; `lost` is called. */
void by__broker_link_drop(by__broker_link *b, const char *why);
/* Once, after by__broker_link_open; the loop then has to turn before the memory goes. */
void by__broker_link_close(by__broker_link *b);

#endif
