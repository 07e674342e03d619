/* A grapheme cluster of at most 5 bytes is replaced as a whole by the text of the shortest key that
 * it begins with; the characters of others, and of those without such a key, one by one. */
#include "text/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_properties.h"

#define WHOLE 5u /* most bytes of a cluster that is replaced as a whole */

struct by__tokenizer_charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts; /* ends with a NUL */
    size_t length;
    size_t longest;     /* of all texts */
    int32_t ascii[128]; /* offset of the text of a character; -1: it stays */
};

void by__tokenizer_charsmap_free(by__tokenizer_charsmap *map)
{
    if (map != NULL) {
        free(map->units);
        free(map->texts);
        free(map);
    }
}

/* A unit of darts-clone: bits 0-7 the label, 8 has a leaf, 9 the offset counts 256s, 10-30 the
 * offset; of a leaf: bits 0-30 the value. Bit 31, set in leaves, makes their label match none. */
static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & ((uint32_t)1 << 9)) >> 6);
}

/* Offset of the text of the shortest key at s; -1: there is none. */
static int64_t find(const by__tokenizer_charsmap *map, const uint8_t *s, size_t n)
{
    size_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < n && s[i] != 0; i++) {
        at ^= s[i];
        if (at >= map->unit_count) {
            return -1;
        }
        uint32_t unit = map->units[at];
        if ((unit & 0x800000ffu) != s[i]) {
            return -1;
        }
        at ^= unit_offset(unit);
        if ((unit & 0x100u) != 0) {
            size_t value = at < map->unit_count ? map->units[at] & 0x7fffffffu : SIZE_MAX;
            return value < map->length ? (int64_t)value : -1;
        }
    }
    return -1;
}

static by_status check_texts(by__tokenizer_charsmap *map, const char *name, by_error *error)
{
    for (size_t at = 0; at < map->length;) {
        size_t n = strlen(map->texts + at);
        if (n > BY__MAX_MAPPED) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: precompiled_charsmap makes %zu bytes of a character, more "
                                "than %u",
                                name, n, BY__MAX_MAPPED);
        }
        map->longest = n > map->longest ? n : map->longest;
        at += n + 1;
    }
    return BY_OK;
}

static by_status fill(by__tokenizer_charsmap *map, const uint8_t *data, size_t n, const char *name,
                      by_error *error)
{
    uint32_t bytes = 0;
    if (n >= 4) {
        bytes =
            data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    }
    if (bytes < 4 || bytes % 4 != 0 || bytes > n - 4) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: precompiled_charsmap of %zu bytes does not begin with its table",
                            name, n);
    }
    map->unit_count = bytes / 4;
    BY_TRY(by__alloc((void **)&map->units, map->unit_count, sizeof *map->units, "map", error));
    for (size_t i = 0; i < map->unit_count; i++) {
        const uint8_t *b = data + 4 + 4 * i;
        map->units[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
    map->length = n - 4 - bytes;
    BY_TRY(by__alloc((void **)&map->texts, map->length + 1, 1, "map", error));
    memcpy(map->texts, data + 4 + bytes, map->length);
    BY_TRY(check_texts(map, name, error));
    for (unsigned c = 0; c < 128; c++) {
        uint8_t byte = (uint8_t)c;
        map->ascii[c] = (int32_t)find(map, &byte, 1);
    }
    return BY_OK;
}

by_status by__tokenizer_charsmap_make(by__tokenizer_charsmap **out, const uint8_t *data, size_t n,
                                      const char *name, by_error *error)
{
    by__tokenizer_charsmap *map;
    BY_TRY(by__alloc((void **)&map, 1, sizeof *map, "map of characters", error));
    by_status status = n > INT32_MAX ? by_error_set(error, BY_EFORMAT,
                                                    "%s: precompiled_charsmap is too long", name)
                                     : fill(map, data, n, name, error);
    if (status != BY_OK) {
        by__tokenizer_charsmap_free(map);
        return status;
    }
    *out = map;
    return BY_OK;
}

size_t by__tokenizer_charsmap_longest(const by__tokenizer_charsmap *map)
{
    return map->longest;
}

static by_status put_text(const by__tokenizer_charsmap *map, int64_t value,
                          by__tokenizer_target *target, by_error *error)
{
    const char *text = map->texts + value;
    return by__tokenizer_put(target, text, strlen(text), error);
}

static by_status put_cluster(const by__tokenizer_charsmap *map, const uint8_t *s, size_t n,
                             by__tokenizer_target *target, by_error *error)
{
    int64_t value = n <= WHOLE ? find(map, s, n) : -1;
    if (value >= 0) {
        return put_text(map, value, target, error);
    }
    for (size_t at = 0; at < n;) {
        uint32_t code;
        size_t length = by__utf8_next(s + at, n - at, &code);
        value = code == BY__INVALID ? -1 : find(map, s + at, length);
        BY_TRY(value >= 0 ? put_text(map, value, target, error)
                          : by__tokenizer_put(target, s + at, length, error));
        at += length;
    }
    return BY_OK;
}

by_status by__tokenizer_charsmap_apply(const by__tokenizer_charsmap *map, const uint8_t *s,
                                       size_t n, by__tokenizer_target *target, by_error *error)
{
    size_t done = 0; /* everything before is in the target */
    for (size_t at = 0; at < n;) {
        /* Nothing joins two ASCII characters but \r\n. */
        if (s[at] < 0x80 && (at + 1 == n || s[at + 1] < 0x80) && s[at] != '\r') {
            int32_t value = map->ascii[s[at]];
            if (value >= 0) {
                BY_TRY(by__tokenizer_put(target, s + done, at - done, error));
                BY_TRY(put_text(map, value, target, error));
                done = at + 1;
            }
            at++;
            continue;
        }
        size_t length = by__text_cluster(s + at, n - at);
        BY_TRY(by__tokenizer_put(target, s + done, at - done, error));
        BY_TRY(put_cluster(map, s + at, length, target, error));
        at += length;
        done = at;
    }
    return by__tokenizer_put(target, s + done, n - done, error);
}
