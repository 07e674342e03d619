/* Events of the broker that wait for their turn.
 *
 * A step of an engine with thousands of sequences ends in thousands of events at once. They are
 * handed out in slices of a few milliseconds, between which the loop looks at its connections: a
 * question about health waits for a slice, not for all of them. */
#ifndef BY_SERVE_EVENT_QUEUE_H
#define BY_SERVE_EVENT_QUEUE_H

#include "serve/serve.h"

typedef struct by__event_batch by__event_batch;

typedef struct by__event_queue {
    uv_idle_t idle;
    by__event_batch *first;
    by__event_batch *last;
    size_t count; /* events */
    void (*event)(void *user, const json_t *event);
    void *user;
} by__event_queue;

/* event: takes one; it may clear the queue. */
void by__event_queue_open(by__event_queue *q, uv_loop_t *loop,
                          void (*event)(void *user, const json_t *event), void *user);
/* Adds an array of events; where too much waits, the oldest are handed out first. False: memory is
 * exhausted, and they are lost. */
bool by__event_queue_add(by__event_queue *q, json_t *events);
/* Forgets what waits. */
void by__event_queue_clear(by__event_queue *q);
/* Once; the loop then has to turn before the memory goes. */
void by__event_queue_close(by__event_queue *q);

#endif
