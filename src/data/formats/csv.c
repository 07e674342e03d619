#include "data/formats/csv.h"

#include <inttypes.h>
#include <string.h>

static by_status bad_cell(const by__csv *csv, uint64_t line, const char *problem, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": column %zu: %s", csv->name, line,
                        csv->column + 1, problem);
}

void by__csv_begin(by__csv *csv, const char *name, const char *data, size_t size, char separator)
{
    *csv =
        (by__csv){.name = name, .at = data, .end = data + size, .separator = separator, .line = 1};
    if (size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        csv->at += 3;
    }
}

/* Reads a quoted cell after its opening quote; leaves `at` after the closing one. */
static by_status take_quoted(by__csv *csv, by__csv_cell *cell, by_error *error)
{
    cell->text = csv->at;
    for (; csv->at < csv->end; csv->at++) {
        if (*csv->at == '"') {
            if (csv->at + 1 == csv->end || csv->at[1] != '"') {
                cell->length = (size_t)(csv->at++ - cell->text);
                return BY_OK;
            }
            cell->escaped = true;
            csv->at++;
        } else if (*csv->at == '\n') {
            csv->line++;
        } else if (*csv->at == '\0') {
            return bad_cell(csv, csv->line, "a NUL byte", error);
        }
    }
    return bad_cell(csv, cell->line, "the quote that opens this cell is never closed", error);
}

static by_status take_plain(by__csv *csv, by__csv_cell *cell, by_error *error)
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
static by_status end_cell(by__csv *csv, by__csv_cell *cell, by_error *error)
{
    if (csv->at < csv->end && *csv->at == csv->separator) {
        csv->at++;
        csv->column++;
        return BY_OK;
    }
    if (csv->at < csv->end && *csv->at == '\r') {
        if (csv->at + 1 == csv->end || csv->at[1] != '\n') {
            return bad_cell(csv, csv->line, "a carriage return without a line feed", error);
        }
        csv->at++;
    }
    if (csv->at < csv->end && *csv->at != '\n') {
        return bad_cell(csv, csv->line, "text behind the quote that closes the cell", error);
    }
    if (csv->at < csv->end) {
        csv->at++;
        csv->line++;
    }
    csv->column = 0;
    cell->ends_row = true;
    return BY_OK;
}

void by__csv_skip_lines(by__csv *csv)
{
    while (csv->at < csv->end) {
        size_t n = *csv->at == '\r' && csv->at + 1 < csv->end ? 2 : 1;
        if (csv->at[n - 1] != '\n') {
            return;
        }
        csv->at += n;
        csv->line++;
    }
}

by_status by__csv_next(by__csv *csv, by__csv_cell *out, bool *found, by_error *error)
{
    if (csv->column == 0) {
        by__csv_skip_lines(csv);
        if (csv->at == csv->end) {
            *found = false;
            return BY_OK;
        }
    }
    by__csv_cell cell = {.line = csv->line, .column = csv->column};
    if (csv->at < csv->end && *csv->at == '"') {
        csv->at++;
        BY_TRY(take_quoted(csv, &cell, error));
    } else {
        BY_TRY(take_plain(csv, &cell, error));
    }
    BY_TRY(end_cell(csv, &cell, error));
    *out = cell;
    *found = true;
    return BY_OK;
}

void by__csv_unescape(by__text *text, const by__csv_cell *cell)
{
    const char *from = cell->text;
    const char *end = cell->text + cell->length;
    while (cell->escaped && from < end) {
        const char *quote = memchr(from, '"', (size_t)(end - from));
        if (quote == NULL) {
            break;
        }
        by__text_add_bytes(text, from, (size_t)(quote + 1 - from));
        from = quote + 2; /* they come in pairs */
    }
    by__text_add_bytes(text, from, (size_t)(end - from));
}
