/* Reads a column's pages. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire/crc32.h"
#include "formats/parquet.h"
#include "formats/thrift.h"

#define MAX_PAGE ((int64_t)1 << 30) /* bytes of a page */

enum { PAGE_DATA = 0, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8 };
enum { BOOLEAN = 0 };

typedef struct parquet_page {
    int type;
    int64_t size;   /* uncompressed bytes */
    int64_t packed; /* bytes in the file */
    bool has_crc;
    uint32_t crc;
    int64_t values;
    int encoding;
    int64_t level_bytes[2]; /* version 2: repetition, definition */
    bool is_packed;
    const uint8_t *data;
} parquet_page;

/* State of reading a chunk. */
typedef struct chunk_reader {
    const by__format_parquet *file;
    const by__format_parquet_column *column;
    const by__format_parquet_chunk *chunk;
    by__format_thrift at;
    size_t words_count; /* number of values in the dictionary */
    bool has_dictionary;
    by__format_parquet_values *out;
    by__format_parquet_value *words;
    uint8_t *buffer;                   /* of a page */
    by__format_parquet_places *places; /* that are read in place of values; NULL: values */
    const uint8_t *page;               /* of the newest of them, decompressed */
    by_error *error;
} chunk_reader;

static by_status bad(const chunk_reader *r, const char *what)
{
    return by__format_parquet_damaged(r->file, r->column, what, r->error);
}

/* ---- headers ---- */

static void read_data_header(by__format_thrift *t, parquet_page *p, bool is_v2)
{
    by__format_thrift_field field = {0};
    while (by__format_thrift_next(t, &field)) {
        if (field.id == 1) {
            p->values = by__format_thrift_integer(t, field.type);
        } else if (field.id == (is_v2 ? 4 : 2)) {
            p->encoding = (int)by__format_thrift_integer(t, field.type);
        } else if (is_v2 && field.id == 5) {
            p->level_bytes[1] = by__format_thrift_integer(t, field.type);
        } else if (is_v2 && field.id == 6) {
            p->level_bytes[0] = by__format_thrift_integer(t, field.type);
        } else if (is_v2 && field.id == 7) {
            p->is_packed = by__format_thrift_integer(t, field.type) != 0;
        } else {
            by__format_thrift_skip(t, field.type);
        }
    }
}

static by_status read_header(chunk_reader *r, parquet_page *out)
{
    by__format_thrift *t = &r->at;
    by__format_thrift_field field = {0};
    parquet_page p = {.type = -1, .is_packed = true};
    while (by__format_thrift_next(t, &field)) {
        bool is_header = field.type == BY__THRIFT_STRUCT;
        if (field.id == 1) {
            p.type = (int)by__format_thrift_integer(t, field.type);
        } else if (field.id == 2) {
            p.size = by__format_thrift_integer(t, field.type);
        } else if (field.id == 3) {
            p.packed = by__format_thrift_integer(t, field.type);
        } else if (field.id == 4) {
            p.crc = (uint32_t)by__format_thrift_integer(t, field.type);
            p.has_crc = true;
        } else if (is_header && (field.id == 5 || field.id == 7 || field.id == 8)) {
            read_data_header(t, &p, field.id == 8);
        } else {
            by__format_thrift_skip(t, field.type);
        }
    }
    if (t->failed || p.size < 0 || p.size > MAX_PAGE || p.packed < 0 || p.packed > t->end - t->at ||
        p.values < 0) {
        return bad(r, "the header of a page");
    }
    p.data = t->at;
    t->at += p.packed;
    if (p.has_crc && by__crc32(0, p.data, (size_t)p.packed) != p.crc) {
        return bad(r, "the checksum of a page is wrong");
    }
    *out = p;
    return BY_OK;
}

/* ---- bodies ---- */

/* Keeps where a page lies, if that is asked for. */
static by_status keep_page(chunk_reader *r, const parquet_page *p, const uint8_t *from, size_t in,
                           const uint8_t *data, size_t size)
{
    by__format_parquet_places *places = r->places;
    if (places == NULL) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&places->pages, &places->capacity, places->count + 1,
                       sizeof *places->pages, r->error));
    places->pages[places->count++] =
        (by__format_parquet_page_place){.begin = (uint64_t)(from - r->file->data),
                                        .stored = in,
                                        .size = size,
                                        .codec = p->is_packed ? r->chunk->codec : 0};
    r->page = data;
    return BY_OK;
}

/* Reads `count` PLAIN values of a page, or where they are. */
static by_status read_plain(chunk_reader *r, const uint8_t *data, size_t size, size_t count)
{
    if (r->places == NULL) {
        return by__format_parquet_plain(r->file, r->column, data, size, count, r->out, r->error);
    }
    uint64_t offset = ((uint64_t)r->places->count - 1) << BY__PARQUET_PLACE_BITS;
    return by__format_parquet_plain_places(r->file, r->column, offset + (uint64_t)(data - r->page),
                                           data, size, count, r->out, r->error);
}

/* Decompresses the page after its first `plain` bytes, which are never compressed. */
static by_status unpack(chunk_reader *r, const parquet_page *p, int64_t plain, const uint8_t **data,
                        size_t *size)
{
    if (plain < 0 || plain > p->packed || plain > p->size) {
        return bad(r, "the levels of a page are longer than the page");
    }
    const uint8_t *from = p->data + plain;
    size_t in = (size_t)(p->packed - plain);
    *size = (size_t)(p->size - plain);
    *data = from;
    if (r->chunk->codec == 0 || !p->is_packed) {
        return *size == in ? keep_page(r, p, from, in, from, in)
                           : bad(r, "a page has another size than its header says");
    }
    if (*size == 0) {
        return keep_page(r, p, from, in, from, 0);
    }
    uint8_t *grown = realloc(r->buffer, *size);
    if (grown == NULL) {
        return by_error_set(r->error, BY_EMEMORY, "out of memory: a page of %zu bytes", *size);
    }
    r->buffer = grown;
    *data = grown;
    BY_TRY(keep_page(r, p, from, in, grown, *size));
    return by__format_parquet_decompress(r->chunk->codec, grown, *size, from, in, r->file->name,
                                         r->error);
}

static by_status read_dictionary(chunk_reader *r, const parquet_page *p)
{
    const uint8_t *data = NULL;
    size_t size = 0;
    by__format_parquet_values *out = r->out;
    size_t before = out->count;
    if (r->has_dictionary || r->column->physical == BOOLEAN ||
        (p->encoding != PLAIN && p->encoding != PLAIN_DICTIONARY)) {
        return bad(r, "its dictionary");
    }
    BY_TRY(unpack(r, p, 0, &data, &size));
    BY_TRY(read_plain(r, data, size, (size_t)p->values));
    r->words_count = out->count - before;
    BY_TRY(by__alloc((void **)&r->words, r->words_count + 1, sizeof *r->words, "dictionary",
                     r->error));
    if (r->words_count > 0) {
        memcpy(r->words, out->items + before, r->words_count * sizeof *r->words);
    }
    out->count = before; /* the values are kept as words, and their strings stay */
    r->has_dictionary = true;
    return BY_OK;
}

/* Appends the values that are not null. */
static by_status read_values(chunk_reader *r, const parquet_page *p, const uint8_t *data,
                             size_t size, size_t count)
{
    by__format_parquet_values *out = r->out;
    by__format_parquet_hybrid h = {.at = data, .end = data + size};
    bool words = p->encoding == PLAIN_DICTIONARY || p->encoding == RLE_DICTIONARY;
    if (p->encoding == PLAIN) {
        return read_plain(r, data, size, count);
    }
    if (!words && !(p->encoding == RLE && r->column->physical == BOOLEAN)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "%s: column '%.60s' has encoding %d, which is not read here; write the "
                            "file with plain or dictionary encoding",
                            r->file->name, r->column->name, p->encoding);
    }
    if (words && (size == 0 || data[0] > 32 || !r->has_dictionary)) {
        return count == 0 ? BY_OK : bad(r, "a page of words without a dictionary");
    }
    if (!words && size < 4) {
        return bad(r, "a page is too short for its values");
    }
    h.width = words ? data[0] : 1;
    h.at += words ? 1 : 4;
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        by__format_parquet_value value = {0};
        if (!by__format_parquet_hybrid_next(&h, &word) || (words && word >= r->words_count)) {
            return bad(r, "a page is too short for its values, or a word is not in the dictionary");
        }
        value.as.integer = word;
        BY_TRY(by__reserve((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items,
                           r->error));
        out->items[out->count++] = words ? r->words[word] : value;
    }
    return BY_OK;
}

/* Reads the definition levels of a page, and inserts nulls among its values, which follow them. */
static by_status read_page_values(chunk_reader *r, const parquet_page *p,
                                  by__format_parquet_hybrid levels, const uint8_t *data,
                                  size_t size)
{
    by__format_parquet_values *out = r->out;
    by__format_parquet_hybrid again = levels;
    size_t first = out->count;
    size_t count = (size_t)p->values;
    size_t present = 0;
    uint32_t level;
    if (r->column->levels == 0) {
        return read_values(r, p, data, size, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!by__format_parquet_hybrid_next(&levels, &level) || level > r->column->levels) {
            return bad(r, "the levels of a page");
        }
        present += level == r->column->levels;
    }
    BY_TRY(read_values(r, p, data, size, present));
    BY_TRY(by__reserve((void **)&out->items, &out->capacity, first + count, sizeof *out->items,
                       r->error));
    /* Spreads values from the back: a value never moves towards the front. */
    if (present < count) {
        memmove(out->items + first + (count - present), out->items + first,
                present * sizeof *out->items);
    }
    size_t from = first + (count - present);
    for (size_t i = 0; i < count; i++) {
        (void)by__format_parquet_hybrid_next(&again, &level);
        out->items[first + i] = level == r->column->levels
                                    ? out->items[from++]
                                    : (by__format_parquet_value){.length = -1};
    }
    out->count = first + count;
    return BY_OK;
}

static unsigned bits_of(unsigned most)
{
    unsigned bits = 0;
    while (most >> bits != 0) {
        bits++;
    }
    return bits;
}

static by_status read_data(chunk_reader *r, const parquet_page *p)
{
    const uint8_t *data = NULL;
    size_t size = 0;
    by__format_parquet_hybrid levels = {.width = bits_of(r->column->levels)};
    if (p->type == PAGE_DATA_V2) {
        int64_t plain = p->level_bytes[1];
        if (p->level_bytes[0] != 0) {
            return bad(r, "a page has levels of a list");
        }
        BY_TRY(unpack(r, p, plain, &data, &size));
        levels.at = p->data;
        levels.end = p->data + plain;
        return read_page_values(r, p, levels, data, size);
    }
    BY_TRY(unpack(r, p, 0, &data, &size));
    if (r->column->levels > 0) {
        uint32_t bytes = 0;
        for (size_t i = 0; i < 4 && size >= 4; i++) {
            bytes |= (uint32_t)data[i] << (8 * i);
        }
        if (size < 4 || bytes > size - 4) {
            return bad(r, "the levels of a page");
        }
        levels.at = data + 4;
        levels.end = levels.at + bytes;
        data = levels.end;
        size -= 4 + (size_t)bytes;
    }
    return read_page_values(r, p, levels, data, size);
}

static by_status read_chunk(chunk_reader *r)
{
    size_t end = r->out->count + (size_t)r->chunk->values;
    while (r->out->count < end) {
        parquet_page p = {0};
        BY_TRY(read_header(r, &p));
        if (p.type == PAGE_DICTIONARY) {
            BY_TRY(read_dictionary(r, &p));
        } else if (p.type == PAGE_DATA || p.type == PAGE_DATA_V2) {
            if ((uint64_t)p.values > end - r->out->count || (p.values == 0 && p.packed == 0)) {
                return bad(r, "a page has more values than its chunk");
            }
            BY_TRY(read_data(r, &p));
        } else if (p.type != PAGE_INDEX || p.packed == 0) {
            return bad(r, "a page of a kind that is not known");
        }
    }
    return BY_OK;
}

by_status by__format_parquet_refuse(const by__format_parquet *file,
                                    const by__format_parquet_column *c, by_error *error)
{
    int length = (int)(c->list_length > 0 && c->list_length < 60 ? c->list_length : 60);
    return by_error_set(error, BY_EFORMAT, "%s: column '%.*s' cannot be read: %s", file->name,
                        length, c->name, c->problem);
}

/* places: NULL: values are read. */
static by_status read_part(const by__format_parquet *file, size_t column, size_t group,
                           by__format_parquet_values *out, by__format_parquet_places *places,
                           by_error *error)
{
    const by__format_parquet_column *c = &file->columns[column];
    const by__format_parquet_chunk *chunk = &file->chunks[group * file->column_count + column];
    if (c->kind == BY__PARQUET_OTHER) {
        return by__format_parquet_refuse(file, c, error);
    }
    chunk_reader r = {
        .file = file,
        .column = c,
        .chunk = chunk,
        .at = {.at = file->data + chunk->begin, .end = file->data + chunk->begin + chunk->size},
        .out = out,
        .places = places,
        .error = error};
    by_status status = read_chunk(&r);
    free(r.words);
    free(r.buffer);
    return status;
}

by_status by__format_parquet_read_group(const by__format_parquet *file, size_t column, size_t group,
                                        by__format_parquet_values *out, by_error *error)
{
    return read_part(file, column, group, out, NULL, error);
}

by_status by__format_parquet_read_places(const by__format_parquet *file, size_t column,
                                         size_t group, by__format_parquet_places *out,
                                         by_error *error)
{
    assert(file->columns[column].kind == BY__PARQUET_TEXT);
    return read_part(file, column, group, &out->values, out, error);
}

void by__format_parquet_places_free(by__format_parquet_places *places)
{
    by__format_parquet_values_free(&places->values);
    free(places->pages);
    *places = (by__format_parquet_places){0};
}

by_status by__format_parquet_read(const by__format_parquet *file, size_t column,
                                  by__format_parquet_values *out, by_error *error)
{
    by__format_parquet_values values = {0};
    by_status status = BY_OK;
    for (size_t g = 0; g < file->groups && status == BY_OK; g++) {
        status = by__format_parquet_read_group(file, column, g, &values, error);
    }
    if (status != BY_OK) {
        by__format_parquet_values_free(&values);
        return status;
    }
    *out = values;
    return BY_OK;
}

void by__format_parquet_values_free(by__format_parquet_values *values)
{
    free(values->items);
    free(values->bytes);
    *values = (by__format_parquet_values){0};
}
