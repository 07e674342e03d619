/* The framing of messages and lists of events on a socket (link.h). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/link/core/link.h"
#include "serve/protocol/event_list.h"

#define HEAD 4u

static size_t length_of(const char *head)
{
    const unsigned char *b = (const unsigned char *)head;
    return (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
}

static bool read_text(const char *data, size_t length, const by__link_frame_handler *h)
{
    size_t head = length < HEAD ? 0 : length_of(data);
    if (length < HEAD || head > length - HEAD) {
        return false;
    }
    json_t *object = by_json_load(data + HEAD, head, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_t *task = json_object_get(object, "task");
    json_t *text = json_stringn(data + HEAD + head, length - HEAD - head);
    bool good = json_object_set_new(json_is_object(task) ? task : object, "request", text) == 0 &&
                h->message(h->user, object);
    json_decref(object);
    return good;
}

static bool read_frame(const char *data, size_t length, const by__link_frame_handler *h)
{
    if (length > 0 && data[0] == BY__LINK_EVENTS) {
        return by__protocol_events_valid(data + 1, length - 1) &&
               h->events(h->user, data + 1, length - 1);
    }
    if (length > 0 && data[0] == BY__LINK_TEXT) {
        return read_text(data + 1, length - 1, h);
    }
    json_t *object = by_json_load(data, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    bool good = json_is_object(object) && h->message(h->user, object);
    json_decref(object);
    return good;
}

bool by__link_frames_feed(by__link_frames *frames, const char *data, size_t length,
                          const by__link_frame_handler *handler)
{
    by__link_frames *f = frames;
    by_error ignored = {0};
    size_t need;
    if (length == 0) {
        return true;
    }
    if (!by__size_add(f->length, length, &need) ||
        by__reserve((void **)&f->data, &f->capacity, need, 1, &ignored) != BY_OK) {
        return false;
    }
    memcpy(f->data + f->length, data, length);
    f->length = need;
    size_t at = 0;
    bool good = true;
    while (good && f->length - at >= HEAD) {
        size_t n = length_of(f->data + at);
        if (n > BY__LINK_MESSAGE) {
            good = false;
            break;
        }
        if (f->length - at - HEAD < n) {
            break;
        }
        good = read_frame(f->data + at + HEAD, n, handler);
        at += HEAD + n;
    }
    if (good && at > 0) {
        memmove(f->data, f->data + at, f->length - at);
        f->length -= at;
    }
    if (f->length == 0 && f->capacity > ((size_t)64 << 10)) {
        by__link_frames_free(f);
    }
    return good;
}

void by__link_frames_free(by__link_frames *frames)
{
    free(frames->data);
    *frames = (by__link_frames){0};
}
