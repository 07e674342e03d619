#include "serve/http/event_stream.h"

#include <string.h>

#define FIELD "data: "

void by__http_event_stream_feed(by_string *pending, const char *data, size_t length,
                                void (*event)(void *user, const char *object, size_t length),
                                void *user)
{
    size_t skip = sizeof FIELD - 1;
    by_string_add(pending, data, length);
    if (pending->failed || pending->length == 0) {
        return;
    }
    const char *line = pending->data;
    const char *behind = pending->data + pending->length;
    const char *end;
    while ((end = memchr(line, '\n', (size_t)(behind - line))) != NULL) {
        size_t n = (size_t)(end - line);
        if (n > skip && memcmp(line, FIELD "{", skip + 1) == 0) {
            event(user, line + skip, n - skip);
        }
        line = end + 1;
    }
    pending->length = (size_t)(behind - line);
    memmove(pending->data, line, pending->length);
}
