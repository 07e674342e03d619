/* What gateways, workers and supervisors say to a broker, in any order. A line is a message: a
 * digit is the peer that says it, the rest is JSON. A digit alone: the peer's connection breaks.
 * What the broker says is a message of its own, and at the end it has given up all that it had. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEERS 6

static bool check_message(by__link *link, const json_t *message)
{
    if (link->closed || by__get_text(message, "t") == NULL) {
        abort();
    }
    return true;
}

static void keep(by__link *link)
{
    link->peer = NULL;
}

static const by__link_kind kind = {check_message, keep};

static void take_line(by__broker *b, by__link *link, const char *line, size_t length)
{
    if (link->kind == NULL || link->closed) {
        *link = (by__link){.kind = &kind};
        if (!by__broker_join(b, link)) {
            return;
        }
    }
    if (length == 0) {
        by__peer *peer = by__link_get(link);
        by__broker_part(b, peer, "the connection broke");
        link->closed = true;
        return;
    }
    json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(message)) {
        by__broker_message(b, by__link_get(link), message);
    }
    json_decref(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__link links[PEERS] = {{0}};
    by__broker broker = {.options = {.queue_requests = 8,
                                     .queue_tokens = 1000,
                                     .attempts = 2,
                                     .silence_seconds = 5.0,
                                     .hang_seconds = 60.0},
                         .began = by__now()};
    const char *line = (const char *)data;
    const char *behind = line + size;
    broker.looked = broker.began;
    while (line < behind) {
        const char *end = memchr(line, '\n', (size_t)(behind - line));
        end = end == NULL ? behind : end;
        if (end > line) {
            take_line(&broker, &links[(unsigned char)line[0] % PEERS], line + 1,
                      (size_t)(end - line) - 1);
            by__broker_flush(&broker);
            by__broker_sweep(&broker);
        }
        line = end + 1;
    }
    by__broker_look(&broker);
    by__broker_expire(&broker);
    by__broker_versions_tend(&broker);
    json_decref(by__broker_state(&broker));
    by__broker_release(&broker);
    return 0;
}
