#include "serve/event_queue.h"

#include <stdlib.h>

/* Seconds of a slice. */
#define SLICE 0.004
/* Events between two looks at the clock. */
#define STRIDE 16
/* Events that wait at most: a bound of memory, about a hundred bytes each. */
#define MOST 65536

struct by__event_batch {
    json_t *events;
    size_t next; /* the first that waits */
    by__event_batch *behind;
};

static void drop_first(by__event_queue *q)
{
    by__event_batch *b = q->first;
    q->first = b->behind;
    q->last = q->first == NULL ? NULL : q->last;
    json_decref(b->events);
    free(b);
}

/* Hands out the oldest event. */
static void step(by__event_queue *q)
{
    by__event_batch *b = q->first;
    json_t *event = json_incref(json_array_get(b->events, b->next++));
    q->count--;
    if (b->next == json_array_size(b->events)) {
        drop_first(q);
    }
    q->event(q->user, event);
    json_decref(event);
}

static void on_idle(uv_idle_t *idle)
{
    by__event_queue *q = idle->data;
    double end = by__now() + SLICE;
    do {
        for (int i = 0; i < STRIDE && q->first != NULL; i++) {
            step(q);
        }
    } while (q->first != NULL && by__now() < end);
    if (q->first == NULL) {
        (void)uv_idle_stop(&q->idle);
    }
}

void by__event_queue_open(by__event_queue *q, uv_loop_t *loop,
                          void (*event)(void *user, const json_t *event), void *user)
{
    *q = (by__event_queue){.event = event, .user = user};
    (void)uv_idle_init(loop, &q->idle); /* cannot fail */
    q->idle.data = q;
}

bool by__event_queue_add(by__event_queue *q, json_t *events)
{
    by__event_batch *b = NULL;
    size_t count = json_array_size(events);
    if (count == 0) {
        return true;
    }
    b = malloc(sizeof *b);
    if (b == NULL) {
        return false;
    }
    *b = (by__event_batch){.events = json_incref(events)};
    *(q->last == NULL ? &q->first : &q->last->behind) = b;
    q->last = b;
    q->count += count;
    while (q->count > MOST) {
        step(q);
    }
    (void)uv_idle_start(&q->idle, on_idle);
    return true;
}

void by__event_queue_clear(by__event_queue *q)
{
    while (q->first != NULL) {
        drop_first(q);
    }
    q->count = 0;
    (void)uv_idle_stop(&q->idle);
}

void by__event_queue_close(by__event_queue *q)
{
    by__event_queue_clear(q);
    uv_close((uv_handle_t *)&q->idle, NULL);
}
