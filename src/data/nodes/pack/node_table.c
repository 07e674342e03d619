#include "data/nodes/pack/node_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "data/nodes/pack/text_chunks.h"

enum { COLUMN_FEATURE = 0, COLUMN_ID, COLUMN_LABEL, COLUMN_SPLIT };

/* Most columns of a text. */
#define MOST_COLUMNS ((size_t)1 << 20)

/* Lines that a thread has read. */
typedef struct table_piece {
    float *x; /* [rows, features] */
    size_t x_capacity;
    int32_t *labels; /* [rows] */
    size_t label_capacity;
    int64_t *ids; /* [rows] */
    size_t id_capacity;
    uint8_t *parts; /* [rows] 0: none, else 1 + train, valid, test */
    size_t part_capacity;
    uint64_t rows;
    const char *fault; /* what is wrong with the line behind them; NULL: nothing */
    uint64_t fault_column;
} table_piece;

typedef struct node_table {
    const char *path;
    uint8_t *kinds; /* [columns] */
    size_t columns;
    size_t features;
    bool has[COLUMN_SPLIT + 1];
    table_piece *pieces;
    size_t threads;
    by__nodes_columns *out;
    by__nodes_feature_writer *writer;
    uint64_t rows;
} node_table;

/* ---- cells ---- */

typedef struct table_cell {
    const char *text;
    size_t length;
} table_cell;

/* Takes the cell at *at, which moves behind its comma; at `end` + 1 there is none left. */
static table_cell next_cell(const char *text, size_t end, size_t *at)
{
    const char *comma = memchr(text + *at, ',', end - *at);
    size_t stop = comma == NULL ? end : (size_t)(comma - text);
    table_cell cell = {text + *at, stop - *at};
    *at = stop + 1;
    by__trim(&cell.text, &cell.length, BY__WHITE_SPACE);
    return cell;
}

/* Decimals of up to 15 digits and a power of ten up to 22, both exact as double. */
static bool read_short(const table_cell *c, double *out)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t digits = 0;
    int count = 0;
    int behind = -1; /* digits behind the point */
    size_t i = c->length > 0 && c->text[0] == '-' ? 1 : 0;
    for (; i < c->length; i++) {
        char d = c->text[i];
        if (d == '.' && behind < 0) {
            behind = 0;
        } else if (d >= '0' && d <= '9' && count < 15) {
            digits = digits * 10 + (uint64_t)(d - '0');
            count++;
            behind += behind >= 0;
        } else {
            return false;
        }
    }
    double value = (double)digits / powers[behind > 0 ? behind : 0];
    *out = c->text[0] == '-' ? -value : value;
    return count > 0;
}

static bool read_number(const table_cell *c, double *out)
{
    char text[64];
    if (c->length > 0 && read_short(c, out)) {
        return true;
    }
    if (c->length == 0 || c->length >= sizeof text) {
        return false;
    }
    memcpy(text, c->text, c->length);
    text[c->length] = '\0';
    return by__parse_f64(text, out);
}

static bool cell_is(const table_cell *c, const char *text)
{
    return c->length == strlen(text) && memcmp(c->text, text, c->length) == 0;
}

static const char *read_label(int32_t *out, const table_cell *c)
{
    double value = -1.0;
    if (c->length > 0 && !cell_is(c, "nan") && !read_number(c, &value)) {
        return "no class, from 0, or -1 for none";
    }
    *out =
        value >= -1.0 && value < (double)(1 << 20) && value == floor(value) ? (int32_t)value : -2;
    return *out >= -1 ? NULL : "no class, from 0, or -1 for none";
}

static const char *read_part(uint8_t *out, const table_cell *c)
{
    static const char *const names[] = {"", "train", "valid", "test"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (cell_is(c, names[i])) {
            *out = (uint8_t)i;
            return NULL;
        }
    }
    return "none of train, valid and test, and not empty";
}

/* ---- lines ---- */

/* Makes room for one more row. */
static by_status reserve(table_piece *p, const node_table *t, by_error *error)
{
    size_t rows = (size_t)p->rows + 1;
    BY_TRY(
        by__reserve((void **)&p->x, &p->x_capacity, rows * t->features + 1, sizeof *p->x, error));
    BY_TRY(by__reserve((void **)&p->labels, &p->label_capacity, rows, sizeof *p->labels, error));
    BY_TRY(by__reserve((void **)&p->ids, &p->id_capacity, rows, sizeof *p->ids, error));
    return by__reserve((void **)&p->parts, &p->part_capacity, rows, sizeof *p->parts, error);
}

/* Reads a line as the next row. Returns what is wrong with it, or NULL. */
static const char *read_line(table_piece *p, const node_table *t, const char *text, size_t end)
{
    float *x = p->x + (size_t)p->rows * t->features;
    size_t at = 0;
    p->parts[p->rows] = 0;
    for (size_t i = 0; i < t->columns; i++) {
        const char *fault = NULL;
        double value = 0.0;
        p->fault_column = i + 1;
        if (at > end) {
            return "missing: the line has fewer columns than others";
        }
        table_cell cell = next_cell(text, end, &at);
        if (t->kinds[i] == COLUMN_LABEL) {
            fault = read_label(&p->labels[p->rows], &cell);
        } else if (t->kinds[i] == COLUMN_SPLIT) {
            fault = read_part(&p->parts[p->rows], &cell);
        } else if (!read_number(&cell, &value) || !isfinite(value)) {
            fault = "no finite number";
        } else if (t->kinds[i] == COLUMN_ID) {
            p->ids[p->rows] =
                value >= 0.0 && value < INT32_MAX && value == floor(value) ? (int64_t)value : -1;
        } else {
            *x++ = (float)value;
        }
        if (fault != NULL) {
            return fault;
        }
    }
    p->fault_column = t->columns + 1;
    return at > end ? NULL : "too many: the line has more columns than others";
}

static by_status read_lines(void *context, size_t slot, const char *text, size_t size,
                            by_error *error)
{
    const node_table *t = context;
    table_piece *p = &t->pieces[slot];
    p->rows = 0;
    p->fault = NULL;
    for (size_t at = 0; at < size && p->fault == NULL;) {
        size_t end = by__nodes_line_end(text, size, at);
        BY_TRY(reserve(p, t, error));
        p->fault = read_line(p, t, text + at, end - at);
        p->rows += p->fault == NULL;
        at = end + 1;
    }
    return BY_OK;
}

static by_status take_row(node_table *t, const table_piece *p, uint64_t i, by_error *error)
{
    by__nodes_columns *out = t->out;
    uint64_t node = t->rows + i;
    if (t->has[COLUMN_LABEL]) {
        BY_TRY(by__reserve((void **)&out->labels, &out->label_capacity, (size_t)node + 1,
                           sizeof *out->labels, error));
        out->labels[node] = p->labels[i];
    }
    if (p->parts[i] > 0) {
        size_t part = p->parts[i] - 1u;
        BY_TRY(by__reserve((void **)&out->held[part], &out->held_capacity[part],
                           (size_t)out->held_count[part] + 1, sizeof *out->held[part], error));
        out->held[part][out->held_count[part]++] = node;
    }
    return BY_OK;
}

static by_status take_lines(void *context, size_t slot, uint64_t line, uint64_t *lines,
                            by_error *error)
{
    node_table *t = context;
    const table_piece *p = &t->pieces[slot];
    for (uint64_t i = 0; i < p->rows; i++) {
        if (t->has[COLUMN_ID] && p->ids[i] != (int64_t)(t->rows + i)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: line %llu is not node %llu: nodes are listed as 0, 1, ... in "
                                "order",
                                t->path, (unsigned long long)(line + i),
                                (unsigned long long)(t->rows + i));
        }
        BY_TRY(take_row(t, p, i, error));
    }
    if (p->fault != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: line %llu, column %llu is %s", t->path,
                            (unsigned long long)(line + p->rows),
                            (unsigned long long)p->fault_column, p->fault);
    }
    if (t->features > 0) {
        BY_TRY(by__nodes_features_add(t->writer, p->x, p->rows, error));
    }
    t->rows += p->rows;
    *lines = p->rows;
    return BY_OK;
}

/* ---- columns ---- */

static int kind_of(const table_cell *name, by__nodes_table_kind kind)
{
    if (kind != BY__NODES_TABLE_NAMED) {
        return kind == BY__NODES_TABLE_LABELS ? COLUMN_LABEL : COLUMN_FEATURE;
    }
    return cell_is(name, "id")      ? COLUMN_ID
           : cell_is(name, "label") ? COLUMN_LABEL
           : cell_is(name, "split") ? COLUMN_SPLIT
                                    : COLUMN_FEATURE;
}

/* Takes the columns of the first line; *begin is where lines of nodes begin. */
static by_status find_columns(node_table *t, const by__map *text, by__nodes_table_kind kind,
                              size_t *begin, by_error *error)
{
    const char *data = (const char *)text->data;
    size_t end = by__nodes_line_end(data, text->size, 0);
    size_t capacity = 0;
    if (text->size == 0) {
        return by_error_set(error, BY_EFORMAT, "%s is empty", t->path);
    }
    for (size_t at = 0; at <= end && t->columns < MOST_COLUMNS;) {
        table_cell name = next_cell(data, end, &at);
        int found = kind_of(&name, kind);
        BY_TRY(by__reserve((void **)&t->kinds, &capacity, t->columns + 1, 1, error));
        t->kinds[t->columns++] = (uint8_t)found;
        if (found != COLUMN_FEATURE && t->has[found]) {
            return by_error_set(error, BY_EFORMAT, "%s: column %zu is there for the second time",
                                t->path, t->columns);
        }
        t->has[found] = true;
        t->features += found == COLUMN_FEATURE;
    }
    *begin = kind == BY__NODES_TABLE_NAMED ? end + 1 : 0;
    return BY_OK;
}

static by_status read_all(node_table *t, const by__map *text, by__nodes_table_kind kind,
                          const by_graph_pack_options *options, by__nodes_feature_type type,
                          const char *directory, by_error *error)
{
    size_t begin;
    const by__nodes_text_job job = {.context = t,
                                    .threads = t->threads,
                                    .read = read_lines,
                                    .take = take_lines,
                                    .progress = options->progress,
                                    .user = options->user};
    BY_TRY(find_columns(t, text, kind, &begin, error));
    if (t->features > 0) {
        BY_TRY(by__nodes_features_open(t->writer, directory, type, t->features, error));
    }
    return by__nodes_text_run(&job, text, begin, begin > 0 ? 2 : 1, error);
}

static by_status finish(node_table *t, by__nodes_manifest *manifest, by_error *error)
{
    by__nodes_columns *out = t->out;
    if (t->rows == 0 || (out->nodes > 0 && out->nodes != t->rows) || t->rows >= INT32_MAX) {
        return by_error_set(error, BY_EFORMAT, "%s has lines of %llu nodes; there are %llu",
                            t->path, (unsigned long long)t->rows, (unsigned long long)out->nodes);
    }
    out->nodes = t->rows;
    manifest->nodes = t->rows;
    return t->features > 0 ? by__nodes_features_finish(t->writer, manifest, error) : BY_OK;
}

static void free_pieces(node_table *t)
{
    for (size_t i = 0; t->pieces != NULL && i < t->threads; i++) {
        free(t->pieces[i].x);
        free(t->pieces[i].labels);
        free(t->pieces[i].ids);
        free(t->pieces[i].parts);
    }
    free(t->pieces);
    free(t->kinds);
}

by_status by__nodes_table_read(by__nodes_columns *out, by__nodes_manifest *manifest,
                               const char *path, by__nodes_table_kind kind,
                               by__nodes_feature_type type, const by_graph_pack_options *options,
                               const char *directory, by_error *error)
{
    by__map text;
    by__nodes_feature_writer writer = {.array = {.file = -1}, .spool = -1};
    node_table t = {.path = path, .out = out, .writer = &writer};
    t.threads = options->threads > 0 ? options->threads : (size_t)by__thread_count(0);
    t.threads = t.threads < BY__MAX_CPUS ? t.threads : BY__MAX_CPUS;
    BY_TRY(by__nodes_text_open(&text, path, directory, error));
    by_status status = by__alloc((void **)&t.pieces, t.threads, sizeof *t.pieces, "nodes", error);
    if (status == BY_OK) {
        status = read_all(&t, &text, kind, options, type, directory, error);
    }
    if (status == BY_OK) {
        status = finish(&t, manifest, error);
    }
    by__nodes_features_close(&writer);
    free_pieces(&t);
    by__map_close(&text);
    return status;
}

void by__nodes_columns_free(by__nodes_columns *columns)
{
    free(columns->labels);
    for (size_t i = 0; i < 3; i++) {
        free(columns->held[i]);
    }
    *columns = (by__nodes_columns){0};
}
