#include "serve/link/core/event_queue.h"

#include <stdlib.h>
#include <string.h>

/* Seconds per slice. */
#define SLICE 0.0015
/* Events per slice at most: those of one step are of different streams, each of which is written to
 * at the end of the turn, at about 10 us. */
#define SLICE_EVENTS 128
/* Events between checks of the clock. */
#define STRIDE 16

struct by__link_event_batch {
    by__link_event_batch *next;
    size_t length;
    size_t offset; /* offset of the first queued event */
    bool inside;   /* an event of it is being delivered: it is freed afterwards */
    char list[];
};

static void drop_first(by__link_event_queue *q)
{
    by__link_event_batch *b = q->first;
    q->first = b->next;
    q->last = q->first == NULL ? NULL : q->last;
    q->bytes -= b->length;
    if (!b->inside) {
        free(b);
    }
}

/* Delivers the oldest event, whose list is kept until it is delivered, even if the queue is
 * cleared. */
static void step(by__link_event_queue *q)
{
    by__link_event_batch *b = q->first;
    by__serve_event event;
    bool more = by__protocol_events_next(b->list, b->length, &b->offset, &event);
    b->inside = true;
    if (more && b->offset < b->length) {
        q->handler.event(q->handler.user, &event);
        b->inside = false;
        if (q->first != b) {
            free(b); /* the queue was cleared */
        }
        return;
    }
    drop_first(q);
    if (more) {
        q->handler.event(q->handler.user, &event);
    }
    free(b);
}

static void resume(by__link_event_queue *q)
{
    if (q->paused && q->bytes <= BY__EVENTS_WAIT / 2) {
        q->paused = false;
        q->handler.pause(q->handler.user, false);
    }
}

static void on_idle(uv_idle_t *idle)
{
    by__link_event_queue *q = idle->data;
    double end = by__now() + SLICE;
    for (int i = 0; i < SLICE_EVENTS && q->first != NULL; i++) {
        if (i > 0 && i % STRIDE == 0 && by__now() >= end) {
            break;
        }
        step(q);
    }
    if (q->first == NULL) {
        (void)uv_idle_stop(&q->idle);
    }
    resume(q);
}

void by__link_event_queue_open(by__link_event_queue *q, uv_loop_t *loop,
                               const by__link_event_handler *handler)
{
    *q = (by__link_event_queue){.handler = *handler};
    (void)uv_idle_init(loop, &q->idle); /* cannot fail */
    q->idle.data = q;
}

bool by__link_event_queue_add(by__link_event_queue *q, const char *list, size_t length)
{
    if (length == 0) {
        return true;
    }
    by__link_event_batch *b = malloc(sizeof *b + length);
    if (b == NULL) {
        return false;
    }
    *b = (by__link_event_batch){.length = length};
    memcpy(b->list, list, length);
    *(q->last == NULL ? &q->first : &q->last->next) = b;
    q->last = b;
    q->bytes += length;
    while (q->first != NULL && q->bytes > BY__EVENTS_MAX) {
        step(q);
    }
    if (!q->paused && q->bytes > BY__EVENTS_WAIT) {
        q->paused = true;
        q->handler.pause(q->handler.user, true);
    }
    (void)uv_idle_start(&q->idle, on_idle);
    return true;
}

void by__link_event_queue_clear(by__link_event_queue *q)
{
    while (q->first != NULL) {
        drop_first(q);
    }
    q->paused = false;
    (void)uv_idle_stop(&q->idle);
}

void by__link_event_queue_close(by__link_event_queue *q)
{
    by__link_event_queue_clear(q);
    uv_close((uv_handle_t *)&q->idle, NULL);
}
