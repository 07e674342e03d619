#include "formats/csv.h"

#include <inttypes.h>
#include <string.h>

static by_status bad_cell(const by__format_csv *csv, uint64_t line, const char *problem,
                          by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": column %zu: %s", csv->name, line,
                        csv->column + 1, problem);
}

void by__format_csv_begin(by__format_csv *csv, const char *name, const char *data, size_t size,
                          char separator)
{
    *csv = (by__format_csv){
        .name = name, .at = data, .end = data + size, .separator = separator, .line = 1};
    if (size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        csv->at += 3;
    }
}

static bool at_line_end(const by__format_csv *csv)
{
    return csv->at < csv->end && (*csv->at == '\n' || *csv->at == '\r');
}

/* Passes the line end at which the reader is: LF, CRLF or CR. */
static void skip_line_end(by__format_csv *csv)
{
    bool pair = *csv->at == '\r' && csv->at + 1 < csv->end && csv->at[1] == '\n';
    csv->at += pair ? 2 : 1;
    csv->line++;
}

/* Reads a quoted cell after its opening quote; leaves `at` after the closing one. */
static by_status read_quoted(by__format_csv *csv, by__format_csv_cell *cell, by_error *error)
{
    cell->text = csv->at;
    while (csv->at < csv->end) {
        if (at_line_end(csv)) {
            skip_line_end(csv);
            continue;
        }
        if (*csv->at == '"') {
            if (csv->at + 1 == csv->end || csv->at[1] != '"') {
                cell->length = (size_t)(csv->at++ - cell->text);
                return BY_OK;
            }
            cell->escaped = true;
            csv->at++;
        } else if (*csv->at == '\0') {
            return bad_cell(csv, csv->line, "a NUL byte", error);
        }
        csv->at++;
    }
    return bad_cell(csv, cell->line, "the quote that opens this cell is never closed", error);
}

static by_status read_plain(by__format_csv *csv, by__format_csv_cell *cell, by_error *error)
{
    cell->text = csv->at;
    for (; csv->at < csv->end; csv->at++) {
        char c = *csv->at;
        if (c == csv->separator || c == '\n' || c == '\r') {
            break;
        }
        if (c == '"') {
            return bad_cell(csv, cell->line,
                            "a quote inside a cell that does not begin with one; put the cell in "
                            "quotes and double those inside",
                            error);
        }
        if (c == '\0') {
            return bad_cell(csv, cell->line, "a NUL byte", error);
        }
    }
    cell->length = (size_t)(csv->at - cell->text);
    return BY_OK;
}

/* Consumes what follows a cell: a separator, a line end or the end of the data. */
static by_status end_cell(by__format_csv *csv, by__format_csv_cell *cell, by_error *error)
{
    if (csv->at < csv->end && *csv->at == csv->separator) {
        csv->at++;
        csv->column++;
        return BY_OK;
    }
    if (csv->at < csv->end && !at_line_end(csv)) {
        return bad_cell(csv, csv->line, "text behind the quote that closes the cell", error);
    }
    if (csv->at < csv->end) {
        skip_line_end(csv);
    }
    csv->column = 0;
    cell->ends_row = true;
    return BY_OK;
}

void by__format_csv_skip_lines(by__format_csv *csv)
{
    while (at_line_end(csv)) {
        skip_line_end(csv);
    }
}

by_status by__format_csv_next(by__format_csv *csv, by__format_csv_cell *out, bool *found,
                              by_error *error)
{
    if (csv->column == 0) {
        by__format_csv_skip_lines(csv);
        if (csv->at == csv->end) {
            *found = false;
            return BY_OK;
        }
    }
    by__format_csv_cell cell = {.line = csv->line, .column = csv->column};
    if (csv->at < csv->end && *csv->at == '"') {
        csv->at++;
        BY_TRY(read_quoted(csv, &cell, error));
    } else {
        BY_TRY(read_plain(csv, &cell, error));
    }
    BY_TRY(end_cell(csv, &cell, error));
    *out = cell;
    *found = true;
    return BY_OK;
}

void by__format_csv_unescape(by_string *text, const by__format_csv_cell *cell)
{
    const char *from = cell->text;
    const char *end = cell->text + cell->length;
    while (cell->escaped && from < end) {
        const char *quote = memchr(from, '"', (size_t)(end - from));
        if (quote == NULL) {
            break;
        }
        by_string_add(text, from, (size_t)(quote + 1 - from));
        from = quote + 2; /* they come in pairs */
    }
    by_string_add(text, from, (size_t)(end - from));
}

/* ---- damaged rows ---- */

/* Passes the quote that closes a cell, from behind the one that opens it. Returns false if there is
 * none, or only one that opens another cell: it is behind a separator or a line end, and no end of
 * a cell is behind it. */
static bool close_quote(by__format_csv *csv)
{
    while (csv->at < csv->end) {
        if (at_line_end(csv)) {
            skip_line_end(csv);
            continue;
        }
        const char *quote = csv->at++;
        if (*quote != '"') {
            continue;
        }
        if (csv->at < csv->end && *csv->at == '"') {
            csv->at++;
            continue;
        }
        bool ends = csv->at == csv->end || *csv->at == csv->separator || at_line_end(csv);
        bool opens = quote[-1] == csv->separator || quote[-1] == '\n' || quote[-1] == '\r';
        return ends || !opens;
    }
    return false;
}

void by__format_csv_skip_row(by__format_csv *csv)
{
    csv->column = 0;
    for (;;) {
        by__format_csv cell = *csv;
        while (cell.at < cell.end && *cell.at == ' ' && *cell.at != cell.separator) {
            cell.at++;
        }
        bool quoted = cell.at < cell.end && *cell.at == '"';
        bool lost = false;
        if (quoted) {
            cell.at++;
            lost = !close_quote(&cell);
            *csv = lost ? *csv : cell;
        }
        while (csv->at < csv->end && (lost || *csv->at != csv->separator) && !at_line_end(csv)) {
            csv->at++;
        }
        if (csv->at == csv->end || at_line_end(csv)) {
            break;
        }
        csv->at++; /* the separator */
    }
    if (csv->at < csv->end) {
        skip_line_end(csv);
    }
}

/* ---- the separator ---- */

/* Rows, and bytes, from which the separator is found. */
#define SAMPLE_ROWS  50
#define SAMPLE_BYTES ((size_t)1 << 20)

/* Cells of the next row; 0: there is none, SIZE_MAX: it is damaged, and left out. */
static size_t count_cells(by__format_csv *csv)
{
    by_error ignored;
    by__format_csv_cell cell = {0};
    size_t count = 0;
    by__format_csv_skip_lines(csv);
    const by__format_csv begin = *csv;
    do {
        bool found = false;
        if (by__format_csv_next(csv, &cell, &found, &ignored) != BY_OK) {
            *csv = begin;
            by__format_csv_skip_row(csv);
            return SIZE_MAX;
        }
        if (!found) {
            return 0;
        }
        count++;
    } while (!cell.ends_row);
    return count;
}

/* The share of the first rows that have as many cells as the header; 0 if that has one. */
static double fit_of(const char *data, size_t size, bool cut, char separator)
{
    by__format_csv csv;
    by__format_csv_begin(&csv, "", data, size, separator);
    size_t header = count_cells(&csv);
    size_t rows = 0;
    size_t same = 0;
    if (header < 2 || header == SIZE_MAX) {
        return 0.0;
    }
    while (rows < SAMPLE_ROWS) {
        size_t cells = count_cells(&csv);
        if (cells == 0 || (cut && csv.at == csv.end && rows > 0)) {
            break;
        }
        rows++;
        same += cells == header;
    }
    return rows == 0 ? 1.0 : (double)same / (double)rows;
}

char by__format_csv_separator(const char *data, size_t size)
{
    static const char separators[] = {',', ';', '\t', '|'};
    char best = ',';
    double most = 0.0;
    bool cut = size > SAMPLE_BYTES;
    for (size_t i = 0; i < sizeof separators; i++) {
        double fit = fit_of(data, cut ? SAMPLE_BYTES : size, cut, separators[i]);
        if (fit >= 0.5 && fit > most) {
            best = separators[i];
            most = fit;
        }
    }
    return best;
}
