/* Tables of numbers as text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/nodes/graph_list.h"

#define MOST_DIGITS 63

/* Reads a number that ends at `end`. */
static bool read_number(const char *text, size_t begin, size_t end, double *out)
{
    char copy[MOST_DIGITS + 1];
    while (begin < end && text[begin] == ' ') {
        begin++;
    }
    while (end > begin && text[end - 1] == ' ') {
        end--;
    }
    size_t n = end - begin;
    if (n == 0 || (n == 3 && strncmp(text + begin, "nan", 3) == 0)) {
        *out = (double)NAN;
        return true;
    }
    if (n > MOST_DIGITS) {
        return false;
    }
    memcpy(copy, text + begin, n);
    copy[n] = '\0';
    return by__parse_f64(copy, out) && isfinite(*out);
}

typedef struct number_table {
    double *values;
    size_t capacity;
    size_t count;
    uint64_t rows;
    uint64_t columns;
} number_table;

static by_status add_row(number_table *t, const char *name, const char *text, size_t begin,
                         size_t end, by_error *error)
{
    uint64_t columns = 0;
    for (bool more = true; more; columns++) {
        const char *comma = memchr(text + begin, ',', end - begin);
        size_t stop = comma == NULL ? end : (size_t)(comma - text);
        BY_TRY(
            by__reserve((void **)&t->values, &t->capacity, t->count + 1, sizeof *t->values, error));
        if (!read_number(text, begin, stop, &t->values[t->count])) {
            return by_error_set(error, BY_EFORMAT, "%s: line %llu: '%.*s' is not a number", name,
                                (unsigned long long)t->rows + 1,
                                (int)(stop - begin > 40 ? 40 : stop - begin), text + begin);
        }
        t->count++;
        more = comma != NULL;
        begin = stop + 1;
    }
    if (t->rows > 0 && columns != t->columns) {
        return by_error_set(error, BY_EFORMAT, "%s: line %llu has %llu numbers, the first one %llu",
                            name, (unsigned long long)t->rows + 1, (unsigned long long)columns,
                            (unsigned long long)t->columns);
    }
    t->columns = columns;
    t->rows++;
    return BY_OK;
}

by_status by__nodes_number_table_parse(double **values, uint64_t *rows, uint64_t *columns,
                                       const char *name, const char *text, size_t size,
                                       by_error *error)
{
    number_table t = {0};
    by_status status = BY_OK;
    for (size_t at = 0; at < size && status == BY_OK;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t end = newline == NULL ? size : (size_t)(newline - text);
        size_t last = end > at && text[end - 1] == '\r' ? end - 1 : end;
        status = add_row(&t, name, text, at, last, error);
        at = end + 1;
    }
    if (status == BY_OK && t.rows == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: the table is empty", name);
    }
    if (status != BY_OK) {
        free(t.values);
        return status;
    }
    *values = t.values;
    *rows = t.rows;
    *columns = t.columns;
    return BY_OK;
}
