/* banyan data stats of a table: what its columns are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/table.h"
#include "base/columns.h"
#include "data/table_stats.h"

typedef struct column_numbers {
    double least;
    double mean;
    double most;
} column_numbers;

static column_numbers measure(const by_column *c, uint64_t rows)
{
    column_numbers n = {NAN, 0.0, NAN};
    uint64_t count = 0;
    for (uint64_t i = 0; i < rows; i++) {
        double x = c->numbers[i];
        if (!isnan(x)) {
            n.least = fmin(n.least, x);
            n.most = fmax(n.most, x);
            count++;
            n.mean += (x - n.mean) / (double)count;
        }
    }
    n.mean = count == 0 ? NAN : n.mean;
    return n;
}

static void print_column_json(const by_column *c, uint64_t rows)
{
    char text[3][32];
    printf("{\"name\":");
    cli_print_json_string(c->name);
    printf(",\"kind\":\"%s\",\"missing\":%" PRIu64,
           c->kind == BY_COLUMN_NUMBER ? "number" : "category", c->missing);
    if (c->kind == BY_COLUMN_NUMBER) {
        column_numbers n = measure(c, rows);
        printf(",\"least\":%s,\"mean\":%s,\"most\":%s", cli_json_number(text[0], n.least, 9),
               cli_json_number(text[1], n.mean, 9), cli_json_number(text[2], n.most, 9));
    } else {
        printf(",\"values\":%zu", c->value_count);
    }
    if (c->odd_cells > 0) {
        printf(",\"not_numbers\":%" PRIu64 ",\"first\":", c->odd_cells);
        cli_print_json_string(c->odd);
        printf(",\"line\":%" PRIu64, c->odd_line);
    }
    printf("}");
}

static void print_column(const by_column *c, uint64_t rows)
{
    char text[3][32];
    cli_print_cell(c->name);
    if (c->kind == BY_COLUMN_NUMBER) {
        column_numbers n = measure(c, rows);
        printf("\tnumber\t%" PRIu64 "\t%s to %s, mean %s\n", c->missing,
               cli_json_number(text[0], n.least, 6), cli_json_number(text[2], n.most, 6),
               cli_json_number(text[1], n.mean, 6));
        return;
    }
    printf("\tcategory\t%" PRIu64 "\t%zu values", c->missing, c->value_count);
    if (c->odd_cells > 0) {
        bool near = c->odd_cells == rows - c->missing;
        printf("; %" PRIu64 " of %" PRIu64 " cells %s, first ", near ? c->near_cells : c->odd_cells,
               rows - c->missing, near ? "resemble numbers" : "are not numbers");
        cli_print_cell(c->odd);
        printf(" in line %" PRIu64, c->odd_line);
    }
    printf("\n");
}

by_status cli_table_stats(const char *path, bool json, by_error *error)
{
    by_table *table;
    by_status status = by_table_open(&table, path, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    uint64_t rows = by_table_rows(table);
    size_t columns = by_table_column_count(table);
    if (json) {
        printf("{\"table\":");
        cli_print_json_string(path);
        printf(",\"rows\":%" PRIu64 ",\"columns\":[", rows);
    } else {
        printf("%s\nrows\t%" PRIu64 "\ncolumn\tkind\tmissing\tcells\n", path, rows);
    }
    for (size_t i = 0; i < columns; i++) {
        const by_column *c = by_table_column(table, i);
        if (json) {
            printf("%s", i == 0 ? "" : ",");
            print_column_json(c, rows);
        } else {
            print_column(c, rows);
        }
    }
    printf("%s", json ? "]}\n" : "");
    by_table_close(&table);
    return BY_OK;
}
