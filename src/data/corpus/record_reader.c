#include "data/corpus/record_reader.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

by__data_record_reader by__data_record_reader_of(const char *path, const char *data, size_t length,
                                                 bool lines)
{
    by__data_record_reader r = {.path = path, .data = data, .length = length, .line = 1};
    size_t at = 0;
    while (at < length && is_blank(data[at])) {
        at++;
    }
    r.list = !lines && at < length && data[at] == '[';
    return r;
}

by_status by__data_record_reader_open(by__data_record_reader *out, const by__data_source_file *file,
                                      by_error *error)
{
    by__map map;
    char hash[33];
    BY_TRY(by__map_open(&map, file->content != NULL ? file->content : file->path, error));
    by__hash128_hex(hash, map.data, map.size);
    if (strcmp(hash, file->hash) != 0 || map.size < file->mark_bytes) {
        by__map_close(&map);
        return by_error_set(error, BY_EFORMAT, "%s changed while it was packed; pack it again",
                            file->path);
    }
    const char *data = map.size == 0 ? "" : (const char *)map.data;
    *out = by__data_record_reader_of(file->path, data + file->mark_bytes,
                                     map.size - (size_t)file->mark_bytes, file->json_lines);
    out->map = map;
    return BY_OK;
}

void by__data_record_reader_close(by__data_record_reader *reader)
{
    by__map_close(&reader->map);
}

static void skip_blanks(by__data_record_reader *r)
{
    while (r->at < r->length && is_blank(r->data[r->at])) {
        r->line += r->data[r->at++] == '\n';
    }
}

static by_status fail(const by__data_record_reader *r, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": %s", r->path, r->line, what);
}

/* Takes a record of n bytes. */
static void take(by__data_record_reader *r, by__data_record *record, size_t n)
{
    *record =
        (by__data_record){.path = r->path, .line = r->line, .text = r->data + r->at, .length = n};
    for (size_t i = 0; i < n; i++) {
        r->line += record->text[i] == '\n';
    }
    r->at += n;
    record->at = r->at;
}

static bool next_line(by__data_record_reader *r, by__data_record *record)
{
    skip_blanks(r);
    if (r->at == r->length) {
        return false;
    }
    const char *begin = r->data + r->at;
    const char *end = memchr(begin, '\n', r->length - r->at);
    take(r, record, end != NULL ? (size_t)(end - begin) : r->length - r->at);
    return true;
}

/* The bytes of the value at `at`, up to the comma or bracket behind it. */
static size_t value_length(const by__data_record_reader *r)
{
    size_t depth = 0;
    size_t at = r->at;
    while (at < r->length) {
        char c = r->data[at];
        if (c == '"') {
            at += by__json_string_span(r->data + at, r->length - at);
            continue;
        }
        if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
            break;
        }
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        at++;
    }
    return at - r->at;
}

static by_status next_element(by__data_record_reader *r, by__data_record *record, bool *found,
                              by_error *error)
{
    *found = false;
    skip_blanks(r);
    if (r->ended) {
        return r->at == r->length ? BY_OK : fail(r, "there is text behind the list", error);
    }
    if (!r->begun) {
        r->at++; /* "[" */
        skip_blanks(r);
    }
    char c = r->at < r->length ? r->data[r->at] : '\0';
    if (c == ']') {
        r->at++;
        r->ended = true;
        return next_element(r, record, found, error);
    }
    if (r->begun && c != ',') {
        return fail(r, c == '\0' ? "the list has no end" : "a comma is missing", error);
    }
    r->at += r->begun;
    r->begun = true;
    skip_blanks(r);
    size_t n = value_length(r);
    if (n == 0) {
        return fail(r, "an element of the list is missing", error);
    }
    take(r, record, n);
    *found = true;
    return BY_OK;
}

by_status by__data_record_next(by__data_record_reader *r, by__data_record *record, bool *found,
                               by_error *error)
{
    if (r->list) {
        return next_element(r, record, found, error);
    }
    *found = next_line(r, record);
    return BY_OK;
}
