/* CSV reader (RFC 4180) that returns one cell at a time from a file in memory, without allocating.
 *
 * Lines end with LF, CRLF or CR; empty lines and a byte-order mark at the beginning are skipped. A
 * quoted cell may contain separators, line ends and doubled quotes. Errors name file, line and
 * column (of cells, from 1). */
#ifndef BY_FORMATS_CSV_H
#define BY_FORMATS_CSV_H

#include "base/base.h"

typedef struct by__format_csv {
    const char *name; /* name of the file */
    const char *at;
    const char *end;
    char separator;
    uint64_t line; /* line of `at`, from 1 */
    size_t column; /* index of the next cell, from 0; not 0: within a row */
} by__format_csv;

typedef struct by__format_csv_cell {
    const char *text; /* not NUL-terminated, without the surrounding quotes */
    size_t length;
    bool escaped;  /* it contains doubled quotes: see by__format_csv_unescape */
    uint64_t line; /* line on which it begins */
    size_t column; /* from 0 */
    bool ends_row;
} by__format_csv_cell;

void by__format_csv_begin(by__format_csv *csv, const char *name, const char *data, size_t size,
                          char separator);
/* Returns what separates the cells of a file: of comma, semicolon, tab and bar the one with which
 * the first rows most often have as many cells as the header, which has at least two. A comma if
 * none does. */
char by__format_csv_separator(const char *data, size_t size);
/* Reads the next cell; *found is false at the end of the data. BY_EFORMAT: unbalanced quotes, or a
 * NUL. */
by_status by__format_csv_next(by__format_csv *csv, by__format_csv_cell *out, bool *found,
                              by_error *error);
/* Leaves out a damaged row, at whose beginning `csv` is: to the end of the line where it ends, with
 * the lines inside its quotes, so that no text of a cell is taken for a row. A quote that is never
 * closed, or only by one that opens another cell, is taken for damage of its line alone. */
void by__format_csv_skip_row(by__format_csv *csv);
/* Skips empty lines between rows. */
void by__format_csv_skip_lines(by__format_csv *csv);
/* Appends the cell's text to `text` with doubled quotes made single. */
void by__format_csv_unescape(by_string *text, const by__format_csv_cell *cell);

#endif
