/* Shards of pictures, tar: pictures lie within the file, or the file is refused. */
#include <stdlib.h>

#include "formats/shards/shard_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const by__format_shard_row by__format_shard_tar;

static by_status take(void *user, const by__format_shard_sample *s, by_error *error)
{
    const by__format_shard *shard = user;
    BY_UNUSED(error);
    if (s->begin > shard->size || s->size > shard->size - s->begin) {
        abort();
    }
    for (size_t i = 0; s->label != NULL && i < s->label_size; i++) {
        *(volatile char *)&(char){0} = s->label[i];
    }
    return BY_OK;
}

static by_status take_classes(void *user, const char *names, size_t size, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    if (size == 0 || names[size - 1] != '\0') {
        abort();
    }
    return BY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__format_shard shard = {.path = "f.tar",
                              .data = data,
                              .size = size,
                              .image_field = "",
                              .label_field = "",
                              .take = take,
                              .classes = take_classes};
    shard.user = &shard;
    if (by__format_shard_tar.is(shard.path, data, size)) {
        (void)by__format_shard_tar.read(&shard, &error);
    }
    return 0;
}
