#include "data/loader/row_list.h"

#include <stdlib.h>
#include <string.h>

#include "formats/npy.h"

/* A list has at most so many bytes. */
#define FILE_LIMIT ((size_t)1 << 34)

static by_status refuse(const char *path, uint64_t place, const char *unit, uint64_t examples,
                        by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%s: %s %llu is not the number of an example, from 0 to %llu", path, unit,
                        (unsigned long long)place, (unsigned long long)(examples - 1));
}

/* Reads the digits of a line; returns false if there is anything else. */
static bool parse_line(const char *line, size_t length, uint64_t *out)
{
    *out = 0;
    length -= length > 0 && line[length - 1] == '\r';
    for (size_t i = 0; i < length; i++) {
        if (line[i] < '0' || line[i] > '9' || *out > UINT64_MAX / 10 - 1) {
            return false;
        }
        *out = 10 * *out + (uint64_t)(line[i] - '0');
    }
    return length > 0;
}

static by_status read_lines(uint64_t *rows, uint64_t *count, const char *path, const char *text,
                            size_t size, uint64_t examples, by_error *error)
{
    uint64_t line = 0;
    *count = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - text) - at;
        line++;
        if (!parse_line(text + at, length, &rows[*count]) || rows[*count] >= examples) {
            return refuse(path, line, "line", examples, error);
        }
        ++*count;
        at += length + 1;
    }
    return BY_OK;
}

/* An integer of a file's array, as 64 bits; negative ones are too large. */
static uint64_t element_at(const by__format_array_view *view, uint64_t i)
{
    size_t width = by__format_element_size(view->element);
    const uint8_t *at = view->data + i * width;
    uint64_t value = 0;
    for (size_t k = 0; k < width; k++) {
        value = value << 8 | at[view->big_endian ? k : width - 1 - k];
    }
    bool is_signed = view->element == BY__ELEMENT_I8 || view->element == BY__ELEMENT_I16 ||
                     view->element == BY__ELEMENT_I32 || view->element == BY__ELEMENT_I64;
    return is_signed && width > 0 && value >> (8 * width - 1) != 0 ? UINT64_MAX : value;
}

static by_status read_array(uint64_t *rows, uint64_t *count, const char *path,
                            const by__format_array_view *view, uint64_t examples, by_error *error)
{
    *count = (uint64_t)view->shape.dim[0];
    for (uint64_t i = 0; i < *count; i++) {
        rows[i] = element_at(view, i);
        if (rows[i] >= examples) {
            return refuse(path, i, "element", examples, error);
        }
    }
    return BY_OK;
}

by_status by__loader_row_list_parse(uint64_t **rows, uint64_t *count, const char *path,
                                    const char *text, size_t size, uint64_t examples,
                                    by_error *error)
{
    by__format_array_view view;
    bool is_npy = size >= 6 && memcmp(text, "\x93NUMPY", 6) == 0;
    if (is_npy) {
        BY_TRY(by__format_npy_parse_array(&view, path, (const uint8_t *)text, size, error));
        if (view.shape.rank != 1 || view.element == BY__ELEMENT_F32 ||
            view.element == BY__ELEMENT_F64) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: a list of examples has one axis of integers", path);
        }
    }
    size_t most = is_npy ? (size_t)view.shape.dim[0] : size / 2 + 1;
    BY_TRY(by__alloc((void **)rows, most + 1, sizeof **rows, "a list of examples", error));
    by_status status = is_npy ? read_array(*rows, count, path, &view, examples, error)
                              : read_lines(*rows, count, path, text, size, examples, error);
    if (status == BY_OK && *count == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: the list of examples is empty", path);
    }
    if (status != BY_OK) {
        free(*rows);
        *rows = NULL;
    }
    return status;
}

by_status by__loader_row_list_read(uint64_t **rows, uint64_t *count, const char *path,
                                   uint64_t examples, by_error *error)
{
    uint8_t *data;
    size_t size;
    uint64_t *list = NULL;
    BY_TRY(by__format_array_file_read(&data, &size, path, FILE_LIMIT, error));
    by_status status =
        by__loader_row_list_parse(&list, count, path, (const char *)data, size, examples, error);
    free(data);
    if (status == BY_OK) {
        *rows = list;
    }
    return status;
}

static by_status mark(uint8_t **out, const uint64_t *list, uint64_t count, uint64_t examples,
                      by_error *error)
{
    BY_TRY(by__alloc((void **)out, (size_t)examples, 1, "a list of examples", error));
    for (uint64_t i = 0; i < count; i++) {
        (*out)[list[i]] = 1;
    }
    return BY_OK;
}

by_status by__loader_row_list_complement(uint64_t **rows, uint64_t *count, const uint64_t *list,
                                         uint64_t list_count, uint64_t examples, by_error *error)
{
    uint8_t *has;
    uint64_t *others;
    BY_TRY(mark(&has, list, list_count, examples, error));
    by_status status =
        by__alloc((void **)&others, (size_t)examples, sizeof *others, "a list of examples", error);
    if (status == BY_OK) {
        *count = 0;
        for (uint64_t i = 0; i < examples; i++) {
            if (has[i] == 0) {
                others[(*count)++] = i;
            }
        }
        *rows = others;
    }
    free(has);
    return status;
}

by_status by__loader_row_list_common(bool *found, uint64_t *example, const uint64_t *a,
                                     uint64_t a_count, const uint64_t *b, uint64_t b_count,
                                     uint64_t examples, by_error *error)
{
    uint8_t *has;
    BY_TRY(mark(&has, a, a_count, examples, error));
    *found = false;
    for (uint64_t i = 0; i < b_count && !*found; i++) {
        *found = has[b[i]] != 0;
        *example = b[i];
    }
    free(has);
    return BY_OK;
}
