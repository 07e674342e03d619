/* Events of the broker that wait for their turn.
 *
 * A step of an engine with thousands of sequences ends in thousands of events at once. They are
 * handed out in slices of a millisecond or two, between which the loop looks at its connections: a
 * question about health waits for a slice, not for all of them. When more waits than
 * BY__EVENTS_WAIT bytes, the link is to be held: what is not taken stays with the broker. */
#ifndef BY_SERVE_EVENT_QUEUE_H
#define BY_SERVE_EVENT_QUEUE_H

#include "serve/event_list.h"

/* Bytes of events from which the link is held. */
#define BY__EVENTS_WAIT ((size_t)1 << 20)
/* Bytes of events that wait at most: a link that cannot be held may bring so many. */
#define BY__EVENTS_MOST ((size_t)8 << 20)

typedef struct by__event_batch by__event_batch;

typedef struct by__event_handler {
    /* Takes one; it may clear the queue. */
    void (*event)(void *user, const by__event *event);
    /* Hold the link, or let it go on. */
    void (*hold)(void *user, bool holds);
    void *user;
} by__event_handler;

typedef struct by__event_queue {
    uv_idle_t idle;
    by__event_batch *first;
    by__event_batch *last;
    size_t bytes; /* of lists that are not handed out whole */
    bool held;
    by__event_handler handler;
} by__event_queue;

void by__event_queue_open(by__event_queue *q, uv_loop_t *loop, const by__event_handler *handler);
/* Adds a copy of a list (by__events_valid). Above BY__EVENTS_MOST the oldest events are handed out
 * at once. False: memory is exhausted, and they are lost. */
bool by__event_queue_add(by__event_queue *q, const char *list, size_t length);
/* Forgets what waits; a link that was held is not told. */
void by__event_queue_clear(by__event_queue *q);
/* Once; the loop then has to turn before the memory goes. */
void by__event_queue_close(by__event_queue *q);

#endif
