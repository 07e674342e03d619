/* Answers of HTTP with events in their bodies, as the load generator reads them: where they are cut
 * changes nothing. */
#include <stdlib.h>
#include <string.h>

#include "serve/http/event_stream.h"
#include "serve/http/http_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct reading {
    by__http_answer answer;
    by_string body;
    by_string pending;
    by_string events;
} reading;

static void add_event(void *user, const char *data, size_t length)
{
    if (length == 0 || data[0] != '{') {
        abort();
    }
    by_string_add(user, data, length);
    by__string_append(user, "\n");
}

static void add_body(void *user, const char *data, size_t length)
{
    reading *r = user;
    by_string_add(&r->body, data, length);
    by__http_event_stream_feed(&r->pending, data, length, add_event, &r->events);
}

static bool take(reading *r, const char *data, size_t size, size_t step)
{
    for (size_t at = 0; at < size; at += step) {
        size_t left = size - at;
        if (!by__http_answer_feed(&r->answer, data + at, left < step ? left : step, add_body, r)) {
            return false;
        }
    }
    return true;
}

static bool same(const by_string *a, const by_string *b)
{
    return a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

static void release(reading *r)
{
    by_string_free(&r->body);
    by_string_free(&r->pending);
    by_string_free(&r->events);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reading whole = {0};
    reading pieces = {0};
    bool good = take(&whole, (const char *)data, size, size > 0 ? size : 1);
    bool again = take(&pieces, (const char *)data, size, 3);
    if (good != again || whole.answer.status != pieces.answer.status ||
        whole.answer.done != pieces.answer.done || !same(&whole.body, &pieces.body) ||
        !same(&whole.pending, &pieces.pending) || !same(&whole.events, &pieces.events)) {
        abort();
    }
    release(&whole);
    release(&pieces);
    return 0;
}
