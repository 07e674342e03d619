/* Tables of CSV and of JSON lines: read with every cell in its place, or refused; what is read can
 * be learned from. */
#include <math.h>
#include <stdlib.h>

#include "banyan/table.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_column(const by_column *c, uint64_t rows)
{
    uint64_t missing = 0;
    for (uint64_t row = 0; row < rows; row++) {
        if (c->kind == BY_COLUMN_NUMBER) {
            missing += isnan(c->numbers[row]) ? 1 : 0;
            continue;
        }
        missing += c->categories[row] < 0;
        if (c->categories[row] >= 0 && (size_t)c->categories[row] >= c->value_count) {
            abort();
        }
    }
    if (missing != c->missing) {
        abort();
    }
}

static void check_table(const char *name, const uint8_t *data, size_t size)
{
    by_error error;
    by_table *table;
    by_encoding *encoding;
    if (by_table_parse(&table, name, (const char *)data, size, NULL, &error) != BY_OK) {
        return;
    }
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        check_column(by_table_column(table, i), by_table_rows(table));
    }
    by_part whole = by_part_whole(by_table_rows(table));
    by_encoding_options options = {0};
    if (by_encoding_learn(&encoding, table, &whole, &options, &error) == BY_OK) {
        by_array_set *set;
        if (by_encoding_apply(encoding, table, false, &set, &error) != BY_OK) {
            abort();
        }
        by_array_set_close(&set);
        by_encoding_close(&encoding);
    }
    by_table_close(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_table("f", data, size);
    check_table("f.jsonl", data, size);
    return 0;
}
