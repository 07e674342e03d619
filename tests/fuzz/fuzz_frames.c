/* Messages between the processes of a server. */
#include "serve/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool take(void *user, json_t *message)
{
    size_t *count = user;
    *count += json_object_size(message);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__frames frames = {0};
    size_t count = 0;
    size_t cut = size / 3;
    if (by__frames_take(&frames, (const char *)data, cut, take, &count)) {
        (void)by__frames_take(&frames, (const char *)data + cut, size - cut, take, &count);
    }
    by__frames_free(&frames);
    return 0;
}
