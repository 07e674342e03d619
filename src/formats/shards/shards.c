/* The table of formats of shards. */
#include <string.h>

#include "formats/shards/shard_file.h"

/* One row per format: by__format_shard_NAME of NAME.c. */
#define SHARDS(ROW)                                                                                \
    ROW(tar)                                                                                       \
    ROW(tfrecord)                                                                                  \
    ROW(mds)                                                                                       \
    ROW(parquet_images)

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

/* ---- what a sample's fields say ---- */

static int shown(size_t length)
{
    return (int)(length < BY__SHARD_FIELD - 1 ? length : BY__SHARD_FIELD - 1);
}

static void keep_name(char out[BY__SHARD_FIELD], const char *field, size_t length)
{
    (void)snprintf(out, BY__SHARD_FIELD, "%.*s", shown(length), field);
}

void by__format_shard_set_image(by__format_shard_sample *s, const char *field, size_t length,
                                uint64_t begin, uint64_t size)
{
    if (s->image_field[0] == '\0') {
        keep_name(s->image_field, field, length);
        s->begin = begin;
        s->size = size;
    } else if (s->problem == NULL) {
        (void)snprintf(s->text, sizeof s->text,
                       "it has two pictures, %s and %.*s: a sample has one", s->image_field,
                       shown(length), field);
        s->problem = s->text;
    }
}

/* A label as a message shows it. */
static const char *print_label(char out[64], const char *text, size_t size, int64_t number)
{
    if (text == NULL) {
        (void)snprintf(out, 64, "%lld", (long long)number);
    } else {
        (void)snprintf(out, 64, "'%.*s'", (int)(size < 40 ? size : 40), text);
    }
    return out;
}

/* text: NULL: the number. */
static void set_label(by__format_shard_sample *s, const char *field, size_t length, size_t rank,
                      const char *text, size_t size, int64_t number)
{
    bool first = s->label_field[0] == '\0';
    /* A number and the name of a class are not compared: the names are not known here. */
    bool differs = !first && (text == NULL) == s->has_number &&
                   (text == NULL ? number != s->number
                                 : size != s->label_size || memcmp(text, s->label, size) != 0);
    if (differs && s->problem == NULL) {
        char one[64];
        char other[64];
        (void)snprintf(s->text, sizeof s->text,
                       "its labels contradict each other: %s in %s and %s in %.*s",
                       print_label(one, s->label, s->label_size, s->number), s->label_field,
                       print_label(other, text, size, number), shown(length), field);
        s->problem = s->text;
    }
    if (first || rank < s->label_rank) {
        keep_name(s->label_field, field, length);
        s->label_rank = rank;
        s->has_number = text == NULL;
        s->number = text == NULL ? number : 0;
        s->label = text;
        s->label_size = text == NULL ? 0 : size;
    }
}

void by__format_shard_set_number(by__format_shard_sample *s, const char *field, size_t length,
                                 size_t rank, int64_t number)
{
    set_label(s, field, length, rank, NULL, 0, number);
}

void by__format_shard_set_label(by__format_shard_sample *s, const char *field, size_t length,
                                size_t rank, const char *text, size_t size)
{
    int64_t number = 0;
    by__trim(&text, &size, BY__WHITE_SPACE);
    bool minus = size > 1 && text[0] == '-';
    bool whole = size > (size_t)minus && size < 19;
    for (size_t i = minus; i < size && whole; i++) {
        whole = text[i] >= '0' && text[i] <= '9';
        number = number * 10 + (text[i] - '0');
    }
    if (size > 0) {
        set_label(s, field, length, rank, whole ? NULL : text, size, minus ? -number : number);
    }
}

const char *by__format_shard_lacks_image(by__format_shard_sample *s, const char *what)
{
    if (s->size > 0) {
        return NULL;
    }
    if (s->image_field[0] == '\0') {
        return what;
    }
    (void)snprintf(s->text, sizeof s->text, "its picture, %s, is empty", s->image_field);
    return s->text;
}
