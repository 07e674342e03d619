/* CSV (RFC 4180), cell by cell, over a file in memory: no allocation, whatever a cell holds.
 *
 * Lines end with LF or CRLF; empty lines are passed over; a byte-order mark at the beginning too. A
 * cell in quotes may hold separators, line ends and doubled quotes. Errors name file, line and
 * column (of cells, from 1). */
#ifndef BY_DATA_FORMATS_CSV_H
#define BY_DATA_FORMATS_CSV_H

#include "base/base.h"

typedef struct by__csv {
    const char *name; /* of the file */
    const char *at;
    const char *end;
    char separator;
    uint64_t line; /* of `at`, from 1 */
    size_t column; /* of the next cell, from 0: in the midst of a row when it is not 0 */
} by__csv;

typedef struct by__csv_cell {
    const char *text; /* not NUL-terminated, without the quotes around it */
    size_t length;
    bool escaped;  /* quotes in it are doubled: see by__csv_unescape */
    uint64_t line; /* where it begins */
    size_t column; /* from 0 */
    bool ends_row;
} by__csv_cell;

void by__csv_begin(by__csv *csv, const char *name, const char *data, size_t size, char separator);
/* The next cell; *found is false at the end of the data. BY_EFORMAT: quotes that do not match, a
 * carriage return without a line feed, or a NUL. */
by_status by__csv_next(by__csv *csv, by__csv_cell *out, bool *found, by_error *error);
/* Passes empty lines between rows. */
void by__csv_skip_lines(by__csv *csv);
/* The cell's text with doubled quotes made single, at the end of `text`. */
void by__csv_unescape(by__text *text, const by__csv_cell *cell);

#endif
