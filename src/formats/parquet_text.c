#include "formats/parquet_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "formats/array_file.h"
#include "formats/parquet.h"

/* Approximate bytes per write. */
#define FLUSH ((size_t)1 << 20)

static by_status flush(int fd, by_string *lines, by_error *error)
{
    size_t at = 0;
    if (lines->failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: texts of a Parquet file");
    }
    while (at < lines->length) {
        ssize_t n = write(fd, lines->data + at, lines->length - at);
        if (n < 0 && errno != EINTR) {
            return by__io_error(error, "write", "the texts of a Parquet file, in TMPDIR");
        }
        at += n > 0 ? (size_t)n : 0;
    }
    lines->length = 0;
    return BY_OK;
}

static void add_line(by_string *lines, const char *field, const by__format_parquet_values *values,
                     const by__format_parquet_value *value)
{
    const char *text = value->length < 0 ? NULL : values->bytes + value->as.offset;
    if (text == NULL) {
        by__string_append(lines, "{}\n");
        return;
    }
    by__string_append(lines, "{");
    by_string_json(lines, field, strlen(field));
    by__string_append(lines, ": ");
    if (by__utf8_valid(text, (size_t)value->length)) {
        by_string_json(lines, text, (size_t)value->length);
    } else {
        by__string_append(lines, "\"\xff\"");
    }
    by__string_append(lines, "}\n");
}

static by_status write_column(int fd, const by__format_parquet *file, size_t column,
                              const char *field, by_error *error)
{
    by_string lines = {0};
    by_status status = BY_OK;
    for (size_t g = 0; g < file->groups && status == BY_OK; g++) {
        by__format_parquet_values values = {0};
        status = by__format_parquet_read_group(file, column, g, &values, error);
        for (size_t i = 0; i < values.count && status == BY_OK; i++) {
            add_line(&lines, field, &values, &values.items[i]);
            if (lines.length >= FLUSH) {
                status = flush(fd, &lines, error);
            }
        }
        by__format_parquet_values_free(&values);
    }
    if (status == BY_OK) {
        status = flush(fd, &lines, error);
    }
    by_string_free(&lines);
    return status;
}

static by_status find_column(size_t *out, const by__format_parquet *file, const char *field,
                             by_error *error)
{
    const char *names[256];
    size_t count = 0;
    for (size_t i = 0; i < file->column_count; i++) {
        const by__format_parquet_column *c = &file->columns[i];
        bool is_list = c->list_length > 0 && c->list_length == strlen(field) &&
                       memcmp(c->name, field, c->list_length) == 0;
        if (strcmp(c->name, field) != 0 && !is_list) {
            if (count < BY_ARRAY_LENGTH(names)) {
                names[count++] = c->name;
            }
        } else if (c->kind == BY__PARQUET_OTHER) {
            return by__format_parquet_refuse(file, c, error);
        } else if (c->kind != BY__PARQUET_TEXT) {
            return by_error_set(error, BY_EFORMAT, "%s: column '%.60s' holds no text", file->name,
                                field);
        } else {
            *out = i;
            return BY_OK;
        }
    }
    const char *near = strlen(field) < 64 ? by_nearest_name(field, names, count) : NULL;
    return by_error_set(error, BY_EFORMAT,
                        "%s: there is no column '%.60s'%s%.60s%s: the setting field names the one "
                        "that holds the text",
                        file->name, field, near == NULL ? "" : "; did you mean '",
                        near == NULL ? "" : near, near == NULL ? "" : "'?");
}

by_status by__format_parquet_text_lines(int *fd, const char *path, const char *field,
                                        by_error *error)
{
    by__format_parquet file;
    uint8_t *data;
    size_t size;
    size_t column = 0;
    int made = -1;
    BY_TRY(by__format_array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status =
        by__format_parquet_open(&file, path, data, size, by__format_parquet_max_rows(size), error);
    if (status == BY_OK) {
        status = find_column(&column, &file, field, error);
    }
    if (status == BY_OK) {
        status = by__open_nameless(&made, by__temporary_dir(), "banyan-text", error);
    }
    if (status == BY_OK) {
        status = write_column(made, &file, column, field, error);
    }
    by__format_parquet_close(&file);
    free(data);
    if (status != BY_OK) {
        if (made >= 0) {
            (void)close(made);
        }
        return status;
    }
    *fd = made;
    return BY_OK;
}
