#include "formats/shards/shard_content.h"

#include <string.h>

static const char magic[8] = "BYSHARD2";
enum { HEAD = 32, SAMPLE = 81, TAIL = 8 };
/* Most bytes of a page, and the last codec of Parquet. */
enum { MOST_PAGE = 1 << 30, LAST_CODEC = 7 };
enum { HAS_NUMBER = 1, HAS_LABEL = 2 };

/* ---- making ---- */

static void put_number(by_string *out, uint64_t value)
{
    char bytes[8];
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (char)(value >> (8 * i) & 0xff);
    }
    by_string_add(out, bytes, sizeof bytes);
}

static uint64_t number_at(const uint8_t *at)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static void begin_index(by__format_shard_index *index)
{
    if (index->text.length == 0) {
        by_string_add(&index->text, (const char[HEAD]){0}, HEAD);
    }
}

void by__format_shard_index_classes(by__format_shard_index *index, const char *names, size_t size)
{
    begin_index(index);
    by_string_add(&index->text, names, size);
    index->class_bytes = size;
}

void by__format_shard_index_add(by__format_shard_index *index,
                                const by__format_shard_sample *sample)
{
    by_string *text = &index->text;
    begin_index(index);
    index->count++;
    put_number(text, sample->begin);
    put_number(text, sample->size);
    put_number(text, (uint64_t)sample->number);
    put_number(text, sample->page.size);
    put_number(text, sample->page.begin);
    put_number(text, sample->page.length);
    put_number(text, (uint64_t)sample->page.codec);
    put_number(text, sample->key_size);
    put_number(text, sample->label == NULL ? 0 : sample->label_size);
    /* With its NUL. */
    put_number(text, sample->problem == NULL ? 0 : strlen(sample->problem) + 1);
    const char flags =
        (char)((sample->has_number ? HAS_NUMBER : 0) | (sample->label != NULL ? HAS_LABEL : 0));
    by_string_add(text, &flags, 1);
    by_string_add(text, sample->key, sample->key_size);
    if (sample->label != NULL) {
        by_string_add(text, sample->label, sample->label_size);
    }
    if (sample->problem != NULL) {
        by_string_add(text, sample->problem, strlen(sample->problem) + 1);
    }
}

by_status by__format_shard_index_finish(by__format_shard_index *index, const char *key,
                                        by_error *error)
{
    by_string head = {0};
    by_string *text = &index->text;
    begin_index(index);
    by_string_add(&head, magic, sizeof magic);
    put_number(&head, by__hash64(key, strlen(key)));
    put_number(&head, index->count);
    put_number(&head, index->class_bytes);
    bool good = !head.failed && !text->failed;
    if (good) {
        memcpy(text->data, head.data, HEAD);
        put_number(text, by__hash64(text->data, text->length));
    }
    by_string_free(&head);
    return good && !text->failed ? BY_OK
                                 : by_error_set(error, BY_EMEMORY, "out of memory: an index");
}

/* ---- reading ---- */

/* Reads the sample at *at and moves behind it; false: it does not fit. */
static bool next_sample(by__format_shard_sample *out, const uint8_t *data, size_t end, size_t *at)
{
    if (end - *at < SAMPLE) {
        return false;
    }
    const uint8_t *p = data + *at;
    uint64_t key = number_at(p + 56);
    uint64_t label = number_at(p + 64);
    uint64_t problem = number_at(p + 72);
    uint8_t flags = p[80];
    size_t left = end - *at - SAMPLE;
    if (key > left || label > left - key || problem > left - key - label ||
        flags > (HAS_NUMBER | HAS_LABEL) || ((flags & HAS_LABEL) == 0 && label > 0)) {
        return false;
    }
    out->problem = problem == 0 ? NULL : (const char *)p + SAMPLE + key + label;
    if (problem > 0 && out->problem[problem - 1] != '\0') {
        return false;
    }
    out->begin = number_at(p);
    out->size = number_at(p + 8);
    out->number = (int64_t)number_at(p + 16);
    if (number_at(p + 24) > MOST_PAGE || number_at(p + 48) > LAST_CODEC) {
        return false;
    }
    out->page = (by_image_page){.size = number_at(p + 24),
                                .begin = number_at(p + 32),
                                .length = number_at(p + 40),
                                .codec = (int)number_at(p + 48)};
    if (out->page.begin > out->page.size || out->page.length > out->page.size - out->page.begin) {
        return false;
    }
    out->has_number = (flags & HAS_NUMBER) != 0;
    out->key = (const char *)p + SAMPLE;
    out->key_size = (size_t)key;
    out->label = (flags & HAS_LABEL) != 0 ? out->key + key : NULL;
    out->label_size = (size_t)label;
    *at += SAMPLE + (size_t)(key + label + problem);
    return true;
}

bool by__format_shard_index_is(const uint8_t *data, size_t length, const char *key, uint64_t size)
{
    by__format_shard_sample s = {0};
    uint64_t classes = length < HEAD + TAIL ? 0 : number_at(data + 24);
    size_t at = HEAD + (size_t)classes;
    if (length < HEAD + TAIL || classes > length - HEAD - TAIL ||
        (classes > 0 && data[at - 1] != '\0') || memcmp(data, magic, sizeof magic) != 0 ||
        number_at(data + 8) != by__hash64(key, strlen(key)) ||
        number_at(data + length - TAIL) != by__hash64(data, length - TAIL)) {
        return false;
    }
    for (uint64_t i = number_at(data + 16); i > 0; i--) {
        if (!next_sample(&s, data, length - TAIL, &at) || s.begin > size ||
            s.size > size - s.begin) {
            return false;
        }
    }
    return at == length - TAIL;
}

by_status by__format_shard_index_read(const by__format_shard *shard, by_error *error)
{
    size_t classes = (size_t)number_at(shard->data + 24);
    size_t at = HEAD + classes;
    by__format_shard_sample s = {0};
    if (classes > 0 && shard->classes != NULL) {
        BY_TRY(shard->classes(shard->user, (const char *)shard->data + HEAD, classes, error));
    }
    while (at < shard->size - TAIL && next_sample(&s, shard->data, shard->size - TAIL, &at)) {
        BY_TRY(shard->take(shard->user, &s, error));
    }
    return BY_OK;
}
