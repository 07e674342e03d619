/* Queue of the broker's events in a gateway.
 *
 * A step of an engine with thousands of sequences produces thousands of events at once. They are
 * delivered in slices of a millisecond or two, between which the loop writes to its connections and
 * serves them, so that a health check waits for one slice and not for all events. When more than
 * BY__EVENTS_WAIT bytes are queued the link should be held: what is not read stays with the
 * broker. */
#ifndef BY_SERVE_LINK_CORE_EVENT_QUEUE_H
#define BY_SERVE_LINK_CORE_EVENT_QUEUE_H

#include "serve/protocol/event_list.h"

/* Queued bytes at which the link is held. */
#define BY__EVENTS_WAIT ((size_t)1 << 20)
/* Most bytes queued, for links that cannot be held. */
#define BY__EVENTS_MAX ((size_t)8 << 20)

typedef struct by__link_event_batch by__link_event_batch;

typedef struct by__link_event_handler {
    /* Delivers an event; may clear the queue. */
    void (*event)(void *user, const by__serve_event *event);
    /* Asks to hold the link, or to release it. */
    void (*pause)(void *user, bool pauses);
    void *user;
} by__link_event_handler;

typedef struct by__link_event_queue {
    uv_idle_t idle;
    by__link_event_batch *first;
    by__link_event_batch *last;
    size_t bytes; /* bytes of lists that are not completely delivered */
    bool paused;
    by__link_event_handler handler;
} by__link_event_queue;

void by__link_event_queue_open(by__link_event_queue *q, uv_loop_t *loop,
                               const by__link_event_handler *handler);
/* Queues a copy of a list (by__protocol_events_valid). Above BY__EVENTS_MAX the oldest events are
 * delivered at once. Returns false when memory is exhausted; the events are then lost. */
bool by__link_event_queue_add(by__link_event_queue *q, const char *list, size_t length);
/* Discards queued events; does not release a held link. */
void by__link_event_queue_clear(by__link_event_queue *q);
/* Called once; the loop must turn before the memory is freed. */
void by__link_event_queue_close(by__link_event_queue *q);

#endif
