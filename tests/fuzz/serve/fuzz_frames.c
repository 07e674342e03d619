/* Messages and lists of events between the processes of a server. */
#include "serve/link/core/link.h"
#include "serve/protocol/event_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool take(void *user, json_t *message)
{
    size_t *count = user;
    *count += json_object_size(message);
    return true;
}

/* Lists that come here are whole: each event of them can be read. */
static bool take_list(void *user, const char *list, size_t length)
{
    by__serve_event event;
    size_t at = 0;
    while (by__protocol_events_next(list, length, &at, &event)) {
        json_t *json = by__protocol_event_json(&event);
        *(size_t *)user += json_object_size(json) + event.length + (size_t)event.attempt;
        json_decref(json);
    }
    if (at != length) {
        __builtin_trap();
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__link_frames frames = {0};
    size_t count = 0;
    size_t cut = size / 3;
    const by__link_frame_handler handler = {take, take_list, &count};
    if (by__link_frames_feed(&frames, (const char *)data, cut, &handler)) {
        (void)by__link_frames_feed(&frames, (const char *)data + cut, size - cut, &handler);
    }
    by__link_frames_free(&frames);
    return 0;
}
