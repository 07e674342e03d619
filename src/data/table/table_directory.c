/* Tables stored as a directory of parts: Parquet files, as Spark and Dask write them, or JSON
 * lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "data/table/table_parts.h"
#include "formats/array_file.h"
#include "formats/parquet.h"

/* Parts that are read; writers leave empty ones if a worker had no rows. */
typedef struct parts {
    by_table **tables;
    size_t count;
    size_t capacity;
    uint64_t rows;
} parts;

/* Names that begin with '_' are metadata of writers: _SUCCESS, _metadata. */
static bool is_part(const char *name)
{
    return name[0] != '.' && name[0] != '_' && by__ends_with(name, ".parquet");
}

static bool is_json_part(const char *name)
{
    return name[0] != '.' && name[0] != '_' && by__is_json_lines(name);
}

static by_status add_part(parts *p, const char *path, const by_table_options *o, by_error *error)
{
    uint8_t *data;
    size_t size;
    by__format_parquet file;
    BY_TRY(by__reserve((void **)&p->tables, &p->capacity, p->count + 1, sizeof *p->tables, error));
    BY_TRY(by__format_array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status =
        by__format_parquet_open(&file, path, data, size, by__format_parquet_max_rows(size), error);
    bool empty = status == BY_OK && file.rows == 0;
    by__format_parquet_close(&file);
    if (status == BY_OK && !empty) {
        status = by_table_parse(&p->tables[p->count], path, (const char *)data, size, o, error);
    }
    free(data);
    if (status == BY_OK && !empty) {
        p->rows += p->tables[p->count++]->rows;
    }
    return status;
}

static by_status read_parts(parts *p, const char *path, char *const *names, size_t count,
                            const by_table_options *o, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *part = is_part(names[i]) ? by__path_join(path, names[i]) : NULL;
        if (part != NULL) {
            status = add_part(p, part, o, error);
        } else if (is_part(names[i])) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: path");
        }
        free(part);
    }
    if (status == BY_OK && p->count == 0) {
        bool csv = false;
        for (size_t i = 0; i < count; i++) {
            csv = csv || by__ends_with(names[i], ".csv") || by__ends_with(names[i], ".csv.gz");
        }
        status = by_error_set(error, BY_EFORMAT,
                              "%s: the directory holds no file that ends in .parquet, .jsonl or "
                              ".ndjson and has rows%s",
                              path, csv ? "; of its CSV files name one, or join them" : "");
    }
    return status;
}

/* The column with that name, or NULL. */
static const by__table_column *column_named(const by_table *part, const char *name)
{
    int32_t at = by__table_index(part, name);
    return at < 0 ? NULL : &part->columns[at];
}

/* Writers give a column with nulls only an arbitrary type: that of the first part with values
 * counts. */
static by_status infer_kind(by_table *first, const parts *p, size_t index, by_error *error)
{
    by__table_column *c = &first->columns[index];
    const by__table_column *like = NULL;
    for (size_t i = 1; c->info.missing == first->rows && like == NULL && i < p->count; i++) {
        const by__table_column *of = column_named(p->tables[i], c->info.name);
        like = of != NULL && of->info.missing < p->tables[i]->rows ? of : NULL;
    }
    if (like == NULL) {
        return BY_OK;
    }
    c->info.time = like->info.time;
    if (like->info.kind == c->info.kind) {
        return BY_OK;
    }
    size_t rows = (size_t)first->rows;
    double *numbers = NULL;
    int32_t *categories = NULL;
    if (like->info.kind == BY_COLUMN_NUMBER) {
        BY_TRY(by__alloc((void **)&numbers, rows, sizeof *numbers, "a column", error));
    } else {
        BY_TRY(by__alloc((void **)&categories, rows, sizeof *categories, "a column", error));
    }
    for (size_t r = 0; r < rows && numbers != NULL; r++) {
        numbers[r] = (double)NAN;
    }
    for (size_t r = 0; r < rows && categories != NULL; r++) {
        categories[r] = -1;
    }
    free(c->numbers);
    free(c->categories);
    c->numbers = numbers;
    c->categories = categories;
    c->info.kind = like->info.kind;
    return BY_OK;
}

/* Finds the column of a part that corresponds to one of the first part. */
static by_status find_column(const by__table_column **out, const by_table *part,
                             const by_table *first, size_t index, by_error *error)
{
    const by__table_column *c = &first->columns[index];
    *out = column_named(part, c->info.name);
    if (*out == NULL || part->column_count != first->column_count) {
        return by_error_set(error, BY_EFORMAT, "%s: the part has other columns than %s", part->name,
                            first->name);
    }
    bool empty = (*out)->info.missing == part->rows;
    by_time from = (*out)->info.time;
    bool numbers = c->info.kind == BY_COLUMN_NUMBER && (*out)->info.kind == BY_COLUMN_NUMBER;
    if (numbers && !empty &&
        ((from.unit == BY_UNIT_NONE) != (c->info.time.unit == BY_UNIT_NONE) ||
         !by__table_time_fits(c->info.time, from))) {
        char times[2][32];
        return by_error_set(
            error, BY_EFORMAT, "%s: column '%.60s' has %s%s, but %s%s in %s: write all parts alike",
            part->name, c->info.name, from.unit == BY_UNIT_NONE ? "plain numbers" : "times in ",
            by__table_time_print(times[0], from),
            c->info.time.unit == BY_UNIT_NONE ? "plain numbers" : "times in ",
            by__table_time_print(times[1], c->info.time), first->name);
    }
    if ((*out)->info.kind != c->info.kind && !empty) {
        return by_error_set(error, BY_EFORMAT, "%s: column '%s' has another type than in %s",
                            part->name, c->info.name, first->name);
    }
    return BY_OK;
}

/* Copies a part's cells to rows from `row` on. */
static by_status copy_cells(by__table_column *to, const by__table_column *from, uint64_t row,
                            uint64_t rows, by_error *error)
{
    bool same = to->info.kind == from->info.kind;
    to->info.missing += from->info.missing;
    for (uint64_t i = 0; i < rows; i++) {
        if (to->numbers != NULL) {
            to->numbers[row + i] =
                same ? by__table_time_convert(from->numbers[i], to->info.time, from->info.time)
                     : (double)NAN;
            continue;
        }
        int32_t value = same ? from->categories[i] : -1;
        to->categories[row + i] = -1;
        if (value >= 0) {
            const char *name = from->values.names[value];
            BY_TRY(
                by__table_value(&to->values, name, strlen(name), &to->categories[row + i], error));
        }
    }
    return BY_OK;
}

/* Extends column `index` of the first part to all parts. */
static by_status join_column(const parts *p, size_t index, by_error *error)
{
    by_table *first = p->tables[0];
    BY_TRY(infer_kind(first, p, index, error));
    by__table_column *c = &first->columns[index];
    size_t size = c->numbers != NULL ? sizeof *c->numbers : sizeof *c->categories;
    void *own = c->numbers != NULL ? (void *)c->numbers : (void *)c->categories;
    void *all;
    uint64_t row = first->rows;
    BY_TRY(by__alloc(&all, (size_t)p->rows, size, "a column", error));
    memcpy(all, own, (size_t)first->rows * size);
    if (c->numbers != NULL) {
        c->numbers = all;
    } else {
        c->categories = all;
    }
    free(own);
    for (size_t i = 1; i < p->count; i++) {
        const by__table_column *from = NULL;
        BY_TRY(find_column(&from, p->tables[i], first, index, error));
        BY_TRY(copy_cells(c, from, row, p->tables[i]->rows, error));
        row += p->tables[i]->rows;
    }
    return BY_OK;
}

/* Rows keep the names of their files. */
static by_status join_places(const parts *p, by_error *error)
{
    by_table *all = p->tables[0];
    uint64_t row = 0;
    all->place_count = 0;
    for (size_t i = 0; i < p->count; i++) {
        const char *path;
        BY_TRY(by__table_part_name(all, p->tables[i]->name, &path, error));
        BY_TRY(by__table_place_row(all, row, 1, path, error));
        row += p->tables[i]->rows;
    }
    return BY_OK;
}

static by_status open_parquet(by_table **out, const char *path, char *const *names, size_t count,
                              const by_table_options *options, by_error *error)
{
    parts p = {0};
    by_status status = read_parts(&p, path, names, count, options, error);
    char *name = status == BY_OK ? by__strdup(path) : NULL;
    if (status == BY_OK && name == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    if (status == BY_OK) {
        status = join_places(&p, error);
    }
    for (size_t i = 0; status == BY_OK && i < p.tables[0]->column_count; i++) {
        status = join_column(&p, i, error);
    }
    if (status == BY_OK) {
        p.tables[0]->rows = p.rows;
        status = by__table_finish(p.tables[0], error);
    }
    if (status == BY_OK) {
        by_table *t = p.tables[0];
        free(t->name);
        t->name = name;
        *out = t;
    } else {
        free(name);
    }
    for (size_t i = status == BY_OK ? 1 : 0; i < p.count; i++) {
        by_table_close(&p.tables[i]);
    }
    free(p.tables);
    return status;
}

/* ---- JSON lines ---- */

static by_status add_text(by__table_text *part, const char *directory, const char *name,
                          by_error *error)
{
    uint8_t *data;
    size_t size;
    char *path = by__path_join(directory, name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = by__format_array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error);
    if (status != BY_OK) {
        free(path);
        return status;
    }
    *part = (by__table_text){path, (const char *)data, size};
    return BY_OK;
}

static by_status read_texts(by_table **out, const char *path, const by__table_text *texts,
                            size_t count, const by_table_options *options, by_error *error)
{
    by_table *t;
    by_table_options o = options == NULL ? (by_table_options){0} : *options;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a table", error));
    t->name = by__strdup(path);
    by_status status = t->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name")
                                       : by__table_read_json(t, texts, count, &o, error);
    if (status != BY_OK) {
        by_table_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

/* Reads all files of JSON lines of a directory as one table: rows need not have the same fields, so
 * neither need the files. */
static by_status open_json(by_table **out, const char *path, char *const *names, size_t count,
                           const by_table_options *options, by_error *error)
{
    by__table_text *texts;
    size_t read = 0;
    BY_TRY(by__alloc((void **)&texts, count, sizeof *texts, "parts", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (is_json_part(names[i])) {
            status = add_text(&texts[read], path, names[i], error);
            read += status == BY_OK;
        }
    }
    if (status == BY_OK) {
        status = read_texts(out, path, texts, read, options, error);
    }
    for (size_t i = 0; i < read; i++) {
        free((void *)(uintptr_t)texts[i].name);
        free((void *)(uintptr_t)texts[i].text);
    }
    free(texts);
    return status;
}

static bool has_json_only(char *const *names, size_t count)
{
    bool json = false;
    for (size_t i = 0; i < count; i++) {
        if (is_part(names[i])) {
            return false;
        }
        json = json || is_json_part(names[i]);
    }
    return json;
}

by_status by__table_open_directory(by_table **out, const char *path,
                                   const by_table_options *options, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = has_json_only(names, count)
                           ? open_json(out, path, names, count, options, error)
                           : open_parquet(out, path, names, count, options, error);
    by__names_free(names, count);
    return status;
}
