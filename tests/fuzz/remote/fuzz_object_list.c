/* Lists of objects of S3: whatever a server answers is a list, or refused. */
#include <stdlib.h>
#include <string.h>

#include "remote/remote_listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static by_status take(void *user, const by__remote_object *object, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    if (strlen(object->tag) >= BY__REMOTE_TAG || object->key == NULL) {
        abort();
    }
    return BY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    char *next = NULL;
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    (void)by__remote_listing_parse(text, size, "s3://b", take, NULL, &next, &error);
    free(next);
    free(text);
    return 0;
}
