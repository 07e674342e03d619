/* Prints a table, for check_parquet.py: a JSON object a column, with its name, whether it is one of
 * numbers, and its values, null where they are missing.
 *
 *   table_tool FILE [CATEGORY_COLUMN...]
 *
 * Exit code 1 and the error on stderr where the file is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/table.h"
#include "base/base.h"

static void print_column(const by_column *c, uint64_t rows)
{
    by_string text = {0};
    by__string_append(&text, "{\"name\": ");
    by_string_json(&text, c->name, strlen(c->name));
    by_string_format(&text, ", \"numbers\": %s, \"values\": [",
                     c->numbers != NULL ? "true" : "false");
    for (uint64_t row = 0; row < rows; row++) {
        by__string_append(&text, row == 0 ? "" : ",");
        if (c->numbers != NULL ? isnan(c->numbers[row]) : c->categories[row] < 0) {
            by__string_append(&text, "null");
        } else if (c->numbers != NULL) {
            by_string_format(&text, "%.17g", c->numbers[row]);
        } else {
            const char *value = c->values[c->categories[row]];
            by_string_json(&text, value, strlen(value));
        }
    }
    by__string_append(&text, "]}");
    puts(text.failed ? "out of memory" : text.data);
    by_string_free(&text);
}

int main(int argc, char **argv)
{
    by_table *table;
    by_error error = {0};
    by_column_type types[16];
    size_t count = 0;
    for (int i = 2; i < argc && count < BY_ARRAY_LENGTH(types); i++) {
        types[count++] = (by_column_type){argv[i], BY_COLUMN_CATEGORY};
    }
    const by_table_options options = {.types = types, .type_count = count};
    if (argc < 2 || by_table_open(&table, argv[1], &options, &error) != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        print_column(by_table_column(table, i), by_table_rows(table));
    }
    by_table_close(&table);
    return 0;
}
