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

/* ---- records ---- */

/* Columns of texts, and the values of a group of rows. */
typedef struct record_columns {
    size_t *columns;
    by__format_parquet_values *values;
    size_t count;
} record_columns;

static void close_values(record_columns *t)
{
    for (size_t i = 0; i < t->count; i++) {
        by__format_parquet_values_free(&t->values[i]);
    }
}

static void add_record(by_string *lines, const by__format_parquet *file, const record_columns *t,
                       size_t row)
{
    bool first = true;
    by__string_append(lines, "{");
    for (size_t i = 0; i < t->count; i++) {
        const by__format_parquet_values *values = &t->values[i];
        const by__format_parquet_value *value = &values->items[row];
        const char *text = value->length < 0 ? NULL : values->bytes + value->as.offset;
        const char *name = file->columns[t->columns[i]].name;
        if (row < values->count && text != NULL && by__utf8_valid(text, (size_t)value->length)) {
            by__string_append(lines, first ? "" : ", ");
            by_string_json(lines, name, strlen(name));
            by__string_append(lines, ": ");
            by_string_json(lines, text, (size_t)value->length);
            first = false;
        }
    }
    by__string_append(lines, "}\n");
}

static by_status write_group(int fd, const by__format_parquet *file, record_columns *t,
                             size_t group, by_string *lines, by_error *error)
{
    size_t rows = 0;
    for (size_t i = 0; i < t->count; i++) {
        BY_TRY(by__format_parquet_read_group(file, t->columns[i], group, &t->values[i], error));
        rows = i == 0 || t->values[i].count < rows ? t->values[i].count : rows;
    }
    for (size_t row = 0; row < rows; row++) {
        add_record(lines, file, t, row);
        if (lines->length >= FLUSH) {
            BY_TRY(flush(fd, lines, error));
        }
    }
    return BY_OK;
}

/* Writes the columns of texts as records. */
static by_status write_records(int fd, const by__format_parquet *file, by_error *error)
{
    record_columns t = {0};
    by_string lines = {0};
    by_status status =
        by__alloc((void **)&t.columns, file->column_count, sizeof *t.columns, "columns", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&t.values, file->column_count, sizeof *t.values, "columns", error);
    }
    for (size_t i = 0; i < file->column_count && status == BY_OK; i++) {
        if (file->columns[i].kind == BY__PARQUET_TEXT && file->columns[i].list_length == 0) {
            t.columns[t.count++] = i;
        }
    }
    if (status == BY_OK && t.count == 0) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: no column holds texts; conversations in lists of structures are "
                              "read from JSON lines",
                              file->name);
    }
    for (size_t g = 0; g < file->groups && status == BY_OK; g++) {
        status = write_group(fd, file, &t, g, &lines, error);
        close_values(&t);
    }
    if (status == BY_OK) {
        status = flush(fd, &lines, error);
    }
    by_string_free(&lines);
    free(t.columns);
    free(t.values);
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
    if (status == BY_OK && field != NULL) {
        status = find_column(&column, &file, field, error);
    }
    if (status == BY_OK) {
        status = by__open_nameless(&made, by__temporary_dir(), "banyan-text", error);
    }
    if (status == BY_OK) {
        status = field == NULL ? write_records(made, &file, error)
                               : write_column(made, &file, column, field, error);
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
