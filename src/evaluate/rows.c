/* Files of rows: JSON lines, JSON and Parquet. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "evaluate/evaluate.h"
#include "formats/parquet.h"

static by_status append(json_t *rows, json_t *row, const char *path, by_error *error)
{
    return json_array_append_new(rows, row) == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: rows of %s", path);
}

by_status by__evaluate_line_rows(json_t *rows, const char *path, const char *data, size_t size,
                                 by_error *error)
{
    size_t number = 1;
    for (size_t at = 0; at < size; number++) {
        const char *line = data + at;
        const char *next = memchr(line, '\n', size - at);
        size_t n = next == NULL ? size - at : (size_t)(next - line);
        json_error_t problem;
        at += n + 1;
        by__trim(&line, &n, BY__WHITE_SPACE);
        if (n == 0) {
            continue;
        }
        json_t *row = by_json_load(line, n, JSON_REJECT_DUPLICATES, &problem);
        if (!json_is_object(row)) {
            json_decref(row);
            return by_error_set(error, BY_EFORMAT, "%s:%zu: not a JSON object%s%s", path, number,
                                row == NULL ? ": " : "", row == NULL ? problem.text : "");
        }
        BY_TRY(append(rows, row, path, error));
    }
    return BY_OK;
}

/* Whether all values of a list are objects. */
static bool is_rows(const json_t *list)
{
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)list, i, row)
    {
        if (!json_is_object(row)) {
            return false;
        }
    }
    return json_is_array(list);
}

static by_status json_rows(json_t *rows, const char *path, const char *data, size_t size,
                           const char *field, by_error *error)
{
    json_t *all;
    const char *name;
    json_t *member;
    json_t *list = NULL;
    BY_TRY(by__json_parse(&all, path, data, size, JSON_REJECT_DUPLICATES, error));
    if (is_rows(all)) {
        list = all;
    } else if (field != NULL) {
        list = json_object_get(all, field);
    } else {
        json_object_foreach(all, name, member)
        {
            list = list == NULL && is_rows(member) ? member : list;
        }
    }
    by_status status = BY_OK;
    if (!is_rows(list)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: neither a list of objects nor an object with one%s%.60s", path,
                              field == NULL ? "" : " named ", field == NULL ? "" : field);
    } else if (json_array_extend(rows, list) != 0) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: rows of %s", path);
    }
    json_decref(all);
    return status;
}

/* ---- Parquet ---- */

static json_t *parquet_value(const by__format_parquet_column *column,
                             const by__format_parquet_values *values, size_t row)
{
    const by__format_parquet_value *v = &values->items[row];
    if (v->length < 0) {
        return json_null();
    }
    switch (column->kind) {
    case BY__PARQUET_INTEGER:
        return column->is_truth ? json_boolean(v->as.integer != 0) : json_integer(v->as.integer);
    case BY__PARQUET_REAL:
        return json_real(v->as.real);
    default:
        return json_stringn(values->bytes + v->as.offset, (size_t)v->length);
    }
}

static by_status parquet_column(json_t *rows, size_t first, const by__format_parquet *file,
                                size_t column, by_error *error)
{
    const by__format_parquet_column *c = &file->columns[column];
    by__format_parquet_values values = {0};
    by_status status = by__format_parquet_read(file, column, &values, error);
    for (size_t i = 0; i < values.count && status == BY_OK; i++) {
        if (json_object_set_new(json_array_get(rows, first + i), c->name,
                                parquet_value(c, &values, i)) != 0) {
            status = by_error_set(error, BY_EFORMAT, "%s: row %zu of column '%s' is not UTF-8",
                                  file->name, i, c->name);
        }
    }
    by__format_parquet_values_free(&values);
    return status;
}

/* Columns that the reader does not know are left out: a task that names one says so. */
static by_status parquet_rows(json_t *rows, const char *path, const uint8_t *data, size_t size,
                              by_error *error)
{
    by__format_parquet file;
    size_t first = json_array_size(rows);
    by_status status =
        by__format_parquet_open(&file, path, data, size, by__format_parquet_max_rows(size), error);
    for (uint64_t i = 0; status == BY_OK && i < file.rows; i++) {
        status = append(rows, json_object(), path, error);
    }
    for (size_t i = 0; status == BY_OK && i < file.column_count; i++) {
        if (file.columns[i].kind != BY__PARQUET_OTHER) {
            status = parquet_column(rows, first, &file, i, error);
        }
    }
    by__format_parquet_close(&file);
    return status;
}

by_status by__evaluate_rows(json_t *rows, const char *path, const char *field, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    const char *data = (const char *)map.data;
    by_status status;
    if (by__format_parquet_is(map.data, map.size)) {
        status = parquet_rows(rows, path, map.data, map.size, error);
    } else if (by__ends_with(path, ".json")) {
        /* Some files of JSON lines are named so, too. */
        by_error whole = {0};
        status = json_rows(rows, path, data, map.size, field, &whole);
        if (status != BY_OK && by__evaluate_line_rows(rows, path, data, map.size, error) == BY_OK) {
            status = BY_OK;
        } else if (status != BY_OK) {
            *error = whole;
        }
    } else {
        status = by__evaluate_line_rows(rows, path, data, map.size, error);
    }
    by__map_close(&map);
    return status;
}

/* ---- splits ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Whether text[0, n) is a word, in any case. */
static bool is_word(const char *text, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++) {
        if (lower(text[i]) != lower(word[i])) { /* the end of the word is no letter of the text */
            return false;
        }
    }
    return word[n] == '\0';
}

/* Whether a file has the rows of a split by its first or its last word: test.jsonl,
 * test-00000-of-00001.parquet, ARC-Easy-Test.jsonl, hellaswag_val.jsonl. */
static bool is_split_file(const char *name, const char *split)
{
    static const char *const ends[] = {".jsonl", ".ndjson", ".json", ".parquet"};
    bool validation = strcmp(split, "validation") == 0;
    const char *const words[] = {split, validation ? "val" : split, validation ? "dev" : split};
    size_t n = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        n = by__ends_with(name, ends[i]) ? strlen(name) - strlen(ends[i]) : n;
    }
    size_t first = strcspn(name, "-_.");
    size_t last = n;
    while (last > 0 && strchr("-_.", name[last - 1]) == NULL) {
        last--;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words) && n > 0; i++) {
        if ((first <= n && is_word(name, first, words[i])) ||
            is_word(name + last, n - last, words[i])) {
            return true;
        }
    }
    return false;
}

by_status by__evaluate_split_rows(json_t *rows, const char *directory, const char *split,
                                  const char *field, by_error *error)
{
    char **names;
    size_t count;
    size_t found = 0;
    BY_TRY(by__list_dir(&names, &count, directory, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (is_split_file(names[i], split)) {
            char *path = NULL;
            status = by__path_make(&path, directory, names[i], error);
            status = status == BY_OK ? by__evaluate_rows(rows, path, field, error) : status;
            free(path);
            found++;
        }
    }
    by__names_free(names, count);
    if (status == BY_OK && found == 0) {
        return by_error_set(error, BY_EIO,
                            "%s has no rows of the split '%s': put %s.jsonl, %s.json or "
                            "%s.parquet there, or name another directory with --data",
                            directory, split, split, split, split);
    }
    return status;
}
