#include "formats/parquet.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/thrift.h"

#define MAX_DEPTH   16
#define MAX_COLUMNS ((size_t)65536)
#define MAX_NAME    ((size_t)1024) /* columns repeat the names of their structs */
#define MAGIC_BYTES 4

enum { BOOLEAN = 0, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED };
enum { REQUIRED = 0, OPTIONAL, REPEATED };
enum {
    CONVERTED_DECIMAL = 5,
    CONVERTED_DATE,
    CONVERTED_TIME_MILLIS,
    CONVERTED_TIME_MICROS,
    CONVERTED_TIMESTAMP_MILLIS,
    CONVERTED_TIMESTAMP_MICROS,
    CONVERTED_UINT_8 = 11,
    CONVERTED_UINT_64 = 14
};
enum { LOGICAL_DECIMAL = 5, LOGICAL_DATE, LOGICAL_TIME, LOGICAL_TIMESTAMP, LOGICAL_INTEGER = 10 };

/* An element of the schema, which is stored in depth-first order. */
typedef struct schema_element {
    const char *name;
    size_t length;
    int type; /* -1: a group */
    int width;
    int repetition;
    int64_t children;
    int converted; /* -1: none */
    int scale;
    bool is_unsigned;
    by_time time;
} schema_element;

/* State of the traversal of the schema. */
typedef struct schema_walk {
    by__format_parquet *file;
    const schema_element *elements;
    size_t count;
    size_t next;
    by_error *error;
} schema_walk;

bool by__format_parquet_is(const uint8_t *data, size_t size)
{
    return size >= MAGIC_BYTES &&
           (memcmp(data, "PAR1", MAGIC_BYTES) == 0 || memcmp(data, "PARE", MAGIC_BYTES) == 0);
}

static by_status damaged(const by__format_parquet *p, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: damaged Parquet file: %s", p->name, what);
}

/* ---- the schema ---- */

/* Reads the unit of a time: a struct with one field, whose number tells it. */
static by_time_unit read_unit(by__format_thrift *t)
{
    static const by_time_unit units[] = {BY_UNIT_NONE, BY_UNIT_MILLISECOND, BY_UNIT_MICROSECOND,
                                         BY_UNIT_NANOSECOND};
    by__format_thrift_field field = {0};
    by_time_unit unit = BY_UNIT_NONE;
    while (by__format_thrift_next(t, &field)) {
        unit = field.id > 0 && field.id < (int)BY_ARRAY_LENGTH(units) ? units[field.id] : unit;
        by__format_thrift_skip(t, field.type);
    }
    return unit;
}

/* Reads the parameters of a logical type, whose fields 1 and 2 are: scale and precision, bits and
 * sign, or zone and unit. */
static void read_parameters(by__format_thrift *t, int type, schema_element *out)
{
    by__format_thrift_field field = {0};
    bool is_time = type == LOGICAL_TIME || type == LOGICAL_TIMESTAMP;
    while (by__format_thrift_next(t, &field)) {
        if (is_time && field.id == 2 && field.type == BY__THRIFT_STRUCT) {
            out->time.unit = read_unit(t);
            continue;
        }
        int64_t value = by__format_thrift_integer(t, field.type);
        if (is_time && field.id == 1) {
            out->time.origin = value != 0 ? BY_ORIGIN_UTC : BY_ORIGIN_LOCAL;
        } else if (type == LOGICAL_INTEGER && field.id == 2) {
            out->is_unsigned = value == 0;
        } else if (type == LOGICAL_DECIMAL && field.id == 1) {
            out->scale = (int)value;
        }
    }
}

/* Reads a logical type: a struct with one field, whose number tells which. */
static void read_logical(by__format_thrift *t, schema_element *out)
{
    by__format_thrift_field field = {0};
    while (by__format_thrift_next(t, &field)) {
        if (field.type != BY__THRIFT_STRUCT) {
            by__format_thrift_skip(t, field.type);
            continue;
        }
        int type = field.id;
        read_parameters(t, type, out);
        out->converted = type == LOGICAL_DECIMAL ? CONVERTED_DECIMAL : out->converted;
        if (type == LOGICAL_DATE) {
            out->time = (by_time){BY_UNIT_DAY, BY_ORIGIN_ANY};
        } else if (type == LOGICAL_TIME) {
            out->time.origin = BY_ORIGIN_MIDNIGHT;
        }
    }
}

/* The time of a file without logical types, which do not tell the zone. */
static by_time converted_time(const schema_element *e)
{
    switch (e->converted) {
    case CONVERTED_DATE:
        return (by_time){BY_UNIT_DAY, BY_ORIGIN_ANY};
    case CONVERTED_TIME_MILLIS:
        return (by_time){BY_UNIT_MILLISECOND, BY_ORIGIN_MIDNIGHT};
    case CONVERTED_TIME_MICROS:
        return (by_time){BY_UNIT_MICROSECOND, BY_ORIGIN_MIDNIGHT};
    case CONVERTED_TIMESTAMP_MILLIS:
        return (by_time){BY_UNIT_MILLISECOND, BY_ORIGIN_ANY};
    case CONVERTED_TIMESTAMP_MICROS:
        return (by_time){BY_UNIT_MICROSECOND, BY_ORIGIN_ANY};
    default:
        return e->type == INT96 ? (by_time){BY_UNIT_NANOSECOND, BY_ORIGIN_ANY} : (by_time){0};
    }
}

static void read_element(by__format_thrift *t, schema_element *out)
{
    by__format_thrift_field field = {0};
    *out = (schema_element){.name = "", .type = -1, .converted = -1};
    while (by__format_thrift_next(t, &field)) {
        switch (field.id) {
        case 1:
            out->type = (int)by__format_thrift_integer(t, field.type);
            break;
        case 2:
            out->width = (int)by__format_thrift_integer(t, field.type);
            break;
        case 3:
            out->repetition = (int)by__format_thrift_integer(t, field.type);
            break;
        case 4:
            out->name = by__format_thrift_binary(t, field.type, &out->length);
            break;
        case 5:
            out->children = by__format_thrift_integer(t, field.type);
            break;
        case 6:
            out->converted = (int)by__format_thrift_integer(t, field.type);
            break;
        case 7:
            out->scale = (int)by__format_thrift_integer(t, field.type);
            break;
        case 10:
            if (field.type == BY__THRIFT_STRUCT) {
                read_logical(t, out);
                break;
            }
            /* fallthrough */
        default:
            by__format_thrift_skip(t, field.type);
        }
    }
    out->time = out->time.unit == BY_UNIT_NONE ? converted_time(out) : out->time;
}

/* Determines the kind of a column's values. */
static void choose_kind(by__format_parquet_column *c, const schema_element *e, bool repeated)
{
    c->physical = e->type;
    c->width = e->width;
    c->scale = e->scale;
    c->is_decimal = e->converted == CONVERTED_DECIMAL;
    c->is_unsigned =
        e->is_unsigned || (e->converted >= CONVERTED_UINT_8 && e->converted <= CONVERTED_UINT_64);
    c->time = e->type == INT32 || e->type == INT64 || e->type == INT96 ? e->time : (by_time){0};
    c->is_truth = e->type == BOOLEAN;
    c->kind = BY__PARQUET_OTHER;
    if (repeated) {
        c->problem = "it is a list or a map";
    } else if (c->is_decimal && (e->scale < 0 || e->scale > 38)) {
        c->problem = "its scale is not from 0 to 38";
    } else if (e->type == FLOAT || e->type == DOUBLE ||
               (e->type == FIXED && e->width > 0 && e->width <= 16 && c->is_decimal)) {
        c->kind = BY__PARQUET_REAL;
    } else if (e->type == BYTE_ARRAY) {
        c->kind = c->is_decimal ? BY__PARQUET_REAL : BY__PARQUET_TEXT;
    } else if (e->type == FIXED) {
        c->problem = "it has bytes of a fixed length that are no decimal";
    } else if (e->type >= BOOLEAN && e->type <= INT96) {
        c->kind = c->is_decimal ? BY__PARQUET_REAL : BY__PARQUET_INTEGER;
    } else {
        c->problem = "it has a type that is not known";
    }
}

static by_status add_column(schema_walk *w, const schema_element *e, const by_string *path,
                            unsigned levels, size_t list_length)
{
    by__format_parquet *p = w->file;
    if (p->column_count == MAX_COLUMNS) {
        return damaged(p, "more than 65,536 columns", w->error);
    }
    BY_TRY(by__reserve((void **)&p->columns, &p->column_capacity, p->column_count + 1,
                       sizeof *p->columns, w->error));
    by__format_parquet_column *c = &p->columns[p->column_count];
    *c = (by__format_parquet_column){.name = by__strndup(path->data, path->length),
                                     .levels = levels};
    if (c->name == NULL) {
        return by_error_set(w->error, BY_EMEMORY, "out of memory: name");
    }
    p->column_count++;
    if (strlen(c->name) != path->length || !by__utf8_valid(c->name, path->length)) {
        return damaged(p, "the name of a column is not UTF-8", w->error);
    }
    choose_kind(c, e, list_length > 0);
    c->list_length = list_length;
    return BY_OK;
}

/* Reads the next element and, if it is a group, its children. list_length: bytes of the path of the
 * list that it is in; 0: none. */
static by_status walk_element(schema_walk *w, by_string *path, unsigned levels, size_t list_length,
                              int depth)
{
    if (w->next == w->count || depth > MAX_DEPTH) {
        return damaged(w->file, "its schema does not close", w->error);
    }
    const schema_element *e = &w->elements[w->next++];
    size_t before = path->length;
    by__string_append(path, before > 0 ? "." : "");
    by_string_add(path, e->name, e->length);
    if (path->failed || e->length == 0) {
        return damaged(w->file, "a column has no name", w->error);
    }
    if (path->length > MAX_NAME) {
        return damaged(w->file, "a column's name has more than 1,024 bytes", w->error);
    }
    levels += e->repetition != REQUIRED;
    if (list_length == 0 && e->repetition == REPEATED) {
        list_length = before > 0 ? before : path->length; /* "tags.list.element" is in "tags" */
    }
    by_status status = BY_OK;
    if (e->type >= 0 && e->children == 0) {
        status = add_column(w, e, path, levels, list_length);
    }
    for (int64_t i = 0; i < e->children && status == BY_OK; i++) {
        status = walk_element(w, path, levels, list_length, depth + 1);
    }
    path->length = before;
    return status;
}

static by_status read_schema(by__format_parquet *p, by__format_thrift *t,
                             by__format_thrift_type type, by_error *error)
{
    schema_element *elements;
    by_string path = {0};
    size_t count = by__format_thrift_list(t, type, BY__THRIFT_STRUCT);
    BY_TRY(by__alloc((void **)&elements, count + 1, sizeof *elements, "schema", error));
    for (size_t i = 0; i < count && !t->failed; i++) {
        read_element(t, &elements[i]);
    }
    schema_walk w = {.file = p, .elements = elements, .count = count, .next = 1, .error = error};
    by_status status = t->failed || count == 0 || p->column_count > 0
                           ? damaged(p, "its schema cannot be read", error)
                           : BY_OK;
    for (int64_t i = 0; status == BY_OK && i < elements[0].children; i++) {
        status = walk_element(&w, &path, 0, 0, 1);
    }
    by_string_free(&path);
    free(elements);
    return status;
}

/* ---- row groups ---- */

static void read_chunk_metadata(by__format_thrift *t, by__format_parquet_chunk *out)
{
    by__format_thrift_field field = {0};
    int64_t data = 0;
    int64_t dictionary = 0;
    while (by__format_thrift_next(t, &field)) {
        switch (field.id) {
        case 4:
            out->codec = (int)by__format_thrift_integer(t, field.type);
            break;
        case 5:
            out->values = (uint64_t)by__format_thrift_integer(t, field.type);
            break;
        case 7:
            out->size = (uint64_t)by__format_thrift_integer(t, field.type);
            break;
        case 9:
            data = by__format_thrift_integer(t, field.type);
            break;
        case 11:
            dictionary = by__format_thrift_integer(t, field.type);
            break;
        default:
            by__format_thrift_skip(t, field.type);
        }
    }
    out->begin = (uint64_t)(dictionary > 0 && dictionary < data ? dictionary : data);
}

static void read_chunk(by__format_thrift *t, by__format_parquet_chunk *out,
                       by__format_parquet_column *column)
{
    by__format_thrift_field field = {0};
    *out = (by__format_parquet_chunk){0};
    while (by__format_thrift_next(t, &field)) {
        if (field.id == 8 || field.id == 9) { /* how it is encrypted, its encrypted metadata */
            column->kind = BY__PARQUET_OTHER;
            column->problem = "it is encrypted";
            column->list_length = 0;
        }
        if (field.id == 3 && field.type == BY__THRIFT_STRUCT) {
            read_chunk_metadata(t, out);
        } else {
            by__format_thrift_skip(t, field.type);
        }
    }
}

/* Reads a row group, whose chunks are in the order of the columns. */
static by_status read_group(by__format_parquet *p, by__format_thrift *t, uint64_t *rows,
                            by_error *error)
{
    by__format_thrift_field field = {0};
    by__format_parquet_chunk *chunks = p->chunks + p->groups * p->column_count;
    size_t count = 0;
    *rows = 0;
    while (by__format_thrift_next(t, &field)) {
        if (field.id == 1) {
            count = by__format_thrift_list(t, field.type, BY__THRIFT_STRUCT);
            for (size_t i = 0; i < count && count == p->column_count; i++) {
                read_chunk(t, &chunks[i], &p->columns[i]);
            }
            if (count != p->column_count) {
                return damaged(p, "a row group does not have every column", error);
            }
        } else if (field.id == 3) {
            *rows = (uint64_t)by__format_thrift_integer(t, field.type);
        } else {
            by__format_thrift_skip(t, field.type);
        }
    }
    for (size_t i = 0; i < count; i++) {
        by__format_parquet_chunk *c = &chunks[i];
        if ((*rows == 0 && c->values == 0) || p->columns[i].kind == BY__PARQUET_OTHER) {
            *c = (by__format_parquet_chunk){
                0}; /* of a file without rows, which may lack offsets, or not
                                            to be read */
            continue;
        }
        if (c->begin < MAGIC_BYTES || c->begin > p->size || c->size > p->size - c->begin) {
            return damaged(p, "a chunk is not within the file", error);
        }
        if (c->values != *rows) {
            return damaged(p, "a chunk does not have as many values as its group has rows", error);
        }
    }
    return count == 0 ? damaged(p, "a row group has no columns", error) : BY_OK;
}

static by_status read_groups(by__format_parquet *p, by__format_thrift *t,
                             by__format_thrift_type type, uint64_t most, by_error *error)
{
    size_t count = by__format_thrift_list(t, type, BY__THRIFT_STRUCT);
    size_t chunks;
    if (p->column_count == 0 || p->chunks != NULL) {
        return damaged(p, "its row groups have no columns", error);
    }
    if (!by__size_mul(count, p->column_count, &chunks) || chunks > p->size) {
        return damaged(p, "it has more row groups than there is room for", error);
    }
    BY_TRY(by__alloc((void **)&p->chunks, chunks + 1, sizeof *p->chunks, "row groups", error));
    for (size_t i = 0; i < count && !t->failed; i++) {
        uint64_t rows;
        BY_TRY(read_group(p, t, &rows, error));
        if (rows > most || p->rows > most - rows) {
            return by_error_set(error, BY_EFORMAT, "%s: more than %" PRIu64 " rows", p->name, most);
        }
        p->rows += rows;
        p->groups++;
    }
    return BY_OK;
}

/* Finds what Hugging Face's datasets say of the columns among the pairs of names and values. */
static void read_pairs(by__format_parquet *p, by__format_thrift *t, by__format_thrift_type type)
{
    static const char wanted[] = "huggingface";
    size_t count = by__format_thrift_list(t, type, BY__THRIFT_STRUCT);
    for (size_t i = 0; i < count && !t->failed; i++) {
        by__format_thrift_field field = {0};
        const char *texts[2] = {NULL, NULL};
        size_t sizes[2] = {0, 0};
        while (by__format_thrift_next(t, &field)) {
            if (field.id == 1 || field.id == 2) {
                int at = field.id - 1;
                texts[at] = by__format_thrift_binary(t, field.type, &sizes[at]);
            } else {
                by__format_thrift_skip(t, field.type);
            }
        }
        if (texts[0] != NULL && texts[1] != NULL && sizes[0] == sizeof wanted - 1 &&
            memcmp(texts[0], wanted, sizes[0]) == 0) {
            p->features = texts[1];
            p->features_size = sizes[1];
        }
    }
}

static by_status read_metadata(by__format_parquet *p, uint64_t most, by_error *error)
{
    const size_t tail = MAGIC_BYTES + 4;
    by__format_thrift_field field = {0};
    if (p->size >= MAGIC_BYTES && memcmp(p->data, "PARE", MAGIC_BYTES) == 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: an encrypted Parquet file: write it anew without encryption",
                            p->name);
    }
    if (!by__format_parquet_is(p->data, p->size)) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: no Parquet file: it does not begin with PAR1; give a text or table "
            "of another format the ending of that format",
            p->name);
    }
    if (p->size < MAGIC_BYTES + tail ||
        memcmp(p->data + p->size - MAGIC_BYTES, "PAR1", MAGIC_BYTES) != 0) {
        return damaged(p, "it does not end with PAR1: it is cut short", error);
    }
    const uint8_t *n = p->data + p->size - tail;
    uint32_t length =
        (uint32_t)n[0] | (uint32_t)n[1] << 8 | (uint32_t)n[2] << 16 | (uint32_t)n[3] << 24;
    if (length > p->size - MAGIC_BYTES - tail) {
        return damaged(p, "its metadata is longer than the file", error);
    }
    by__format_thrift t = {.at = n - length, .end = n};
    while (by__format_thrift_next(&t, &field)) {
        if (field.id == 2) {
            BY_TRY(read_schema(p, &t, field.type, error));
        } else if (field.id == 4) {
            BY_TRY(read_groups(p, &t, field.type, most, error));
        } else if (field.id == 5) {
            read_pairs(p, &t, field.type);
        } else {
            by__format_thrift_skip(&t, field.type);
        }
    }
    return t.failed || p->chunks == NULL ? damaged(p, "its metadata cannot be read", error) : BY_OK;
}

by_status by__format_parquet_open(by__format_parquet *out, const char *name, const uint8_t *data,
                                  size_t size, uint64_t most, by_error *error)
{
    *out = (by__format_parquet){.name = name, .data = data, .size = size};
    return read_metadata(out, most, error);
}

uint64_t by__format_parquet_max_rows(size_t size)
{
    const uint64_t all = (uint64_t)1 << 40;
    return size > all / 65536 ? all : (uint64_t)size * 65536;
}

void by__format_parquet_close(by__format_parquet *p)
{
    for (size_t i = 0; i < p->column_count; i++) {
        free(p->columns[i].name);
    }
    free(p->columns);
    free(p->chunks);
    *p = (by__format_parquet){0};
}
