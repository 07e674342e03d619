/* What gateways, workers and supervisors say to a broker, in any order. A line is a message: a
 * digit is the peer that says it, the rest is JSON, which may have "events". A digit alone: the
 * peer's connection breaks. What the broker says is a message of its own, and at the end it has
 * given up all that it had. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker/broker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEERS 6

static bool check_message(by__link *link, const json_t *message)
{
    if (link->closed || by__protocol_get_text(message, "t") == NULL) {
        abort();
    }
    return true;
}

static void keep(by__link *link)
{
    link->peer = NULL;
}

static bool check_events(by__link *link, const char *list, size_t length)
{
    if (link->closed || length == 0 || !by__protocol_events_valid(list, length)) {
        abort();
    }
    return true;
}

static const by__link_kind kind = {
    .send = check_message, .send_events = check_events, .close = keep};

/* Events stand in a line as JSON, and go to the broker as a worker sends them. */
static void take_events(by__broker *b, by__link *link, const json_t *events)
{
    by_string list = {0};
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        const char *id = by__protocol_get_text(event, "id");
        const char *text = by__protocol_get_text(event, "text");
        int64_t attempt = by__protocol_get_integer(event, "attempt");
        if (id != NULL && by__serve_id_valid(id) && text != NULL) {
            by__protocol_events_add_piece(&list, id, attempt,
                                          (size_t)by__protocol_get_integer(event, "i"), text,
                                          strlen(text));
        } else {
            by__protocol_events_add(&list, attempt, event);
        }
    }
    by__broker_event_list(b, by__link_get(link), list.data, list.length);
    by_string_free(&list);
}

static void take_line(by__broker *b, by__link *link, const char *line, size_t length)
{
    if (link->kind == NULL || link->closed) {
        *link = (by__link){.kind = &kind};
        if (!by__broker_add_peer(b, link)) {
            return;
        }
    }
    if (length == 0) {
        by__broker_peer *peer = by__link_get(link);
        by__broker_remove_peer(b, peer, "the connection broke");
        link->closed = true;
        return;
    }
    json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_array(json_object_get(message, "events"))) {
        take_events(b, link, json_object_get(message, "events"));
    } else if (json_is_object(message)) {
        by__broker_message(b, by__link_get(link), message);
    }
    json_decref(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__link links[PEERS] = {{0}};
    by__broker broker = {.options = {.queue_requests = 8,
                                     .queue_tokens = 1000,
                                     .stored = 3,
                                     .attempts = 2,
                                     .silence_seconds = 5.0,
                                     .hang_seconds = 60.0},
                         .began = by__now()};
    const char *line = (const char *)data;
    const char *behind = line + size;
    broker.checked = broker.began;
    while (line < behind) {
        const char *end = memchr(line, '\n', (size_t)(behind - line));
        end = end == NULL ? behind : end;
        if (end > line) {
            take_line(&broker, &links[(unsigned char)line[0] % PEERS], line + 1,
                      (size_t)(end - line) - 1);
            by__broker_flush(&broker);
            by__broker_free_peers(&broker);
        }
        line = end + 1;
    }
    by__broker_check_workers(&broker);
    by__broker_expire(&broker);
    by__broker_versions_maintain(&broker);
    json_decref(by__broker_state(&broker));
    by__broker_release(&broker);
    return 0;
}
