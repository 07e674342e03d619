/* The table of formats of shards. */
#include <string.h>

#include "formats/shards/shard_file.h"

/* One row per format: by__format_shard_NAME of NAME.c. */
#define SHARDS(ROW)                                                                                \
    ROW(tar)                                                                                       \
    ROW(tfrecord)                                                                                  \
    ROW(mds)

#define DECLARE(name) extern const by__format_shard_row by__format_shard_##name;
#define ADDRESS(name) &by__format_shard_##name,
SHARDS(DECLARE)
static const by__format_shard_row *const rows[] = {SHARDS(ADDRESS)};

const by__format_shard_row *by__format_shard_find(const char *path, const uint8_t *data,
                                                  size_t size)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i]->is(path, data, size)) {
            return rows[i];
        }
    }
    return NULL;
}

size_t by__format_shard_rank(const char *asked, const char *const *usual, const char *name,
                             size_t length)
{
    if (asked[0] != '\0') {
        return strlen(asked) == length && memcmp(asked, name, length) == 0 ? 0 : SIZE_MAX;
    }
    for (size_t i = 0; usual[i] != NULL; i++) {
        if (strlen(usual[i]) == length && memcmp(usual[i], name, length) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

void by__format_shard_set_label(by__format_shard_sample *sample, const char *text, size_t length)
{
    int64_t number = 0;
    by__trim(&text, &length, BY__WHITE_SPACE);
    bool whole = length > 0 && length < 10;
    for (size_t i = 0; i < length && whole; i++) {
        whole = text[i] >= '0' && text[i] <= '9';
        number = number * 10 + (text[i] - '0');
    }
    sample->has_number = whole;
    sample->number = whole ? number : 0;
    sample->label = whole || length == 0 ? NULL : text;
    sample->label_size = whole ? 0 : length;
}
