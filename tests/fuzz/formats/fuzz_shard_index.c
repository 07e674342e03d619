/* Indexes of shards: one that counts as whole gives samples that lie within the shard. */
#include <stdlib.h>
#include <string.h>

#include "formats/shards/shard_content.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HASHED = 16, TAIL = 8 };

static const uint64_t shard_size = 1000;

static by_status take(void *user, const by__format_shard_sample *s, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    if (s->begin > shard_size || s->size > shard_size - s->begin || s->page.begin > s->page.size ||
        s->page.length > s->page.size - s->page.begin) {
        abort();
    }
    for (size_t i = 0; i < s->key_size; i++) {
        *(volatile char *)&(char){0} = s->key[i];
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
    if (names[size - 1] != '\0') {
        abort();
    }
    return BY_OK;
}

/* Sets the hashes, which no fuzzer finds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    if (size >= HASHED + TAIL) {
        uint64_t hash = by__hash64("key", 3);
        memcpy(copy + 8, &hash, sizeof hash);
        hash = by__hash64(copy, size - TAIL);
        memcpy(copy + size - TAIL, &hash, sizeof hash);
    }
    if (by__format_shard_index_is(copy, size, "key", shard_size)) {
        const by__format_shard shard = {
            .path = "f", .data = copy, .size = size, .take = take, .classes = take_classes};
        (void)by__format_shard_index_read(&shard, NULL);
    }
    free(copy);
    return 0;
}
