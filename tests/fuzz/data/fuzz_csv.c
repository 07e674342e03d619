/* Tables of CSV and of JSON lines: read with every cell in its place, or refused, also when damaged
 * rows are left out; what is read can be learned from, and the same file is read as it was
 * learned. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool same_arrays(const by_array_set *a, const by_array_set *b)
{
    return strcmp(by_array_set_hash(a), by_array_set_hash(b)) == 0;
}

/* Reads the file as it was learned, which gives the same arrays. */
static void check_learned(const char *name, const uint8_t *data, size_t size,
                          const by_encoding *encoding, const by_array_set *set)
{
    by_error error;
    by_table *table;
    by_array_set *again;
    by_table_options options = {.learned = encoding, .skip = true};
    if (by_table_parse(&table, name, (const char *)data, size, &options, &error) != BY_OK) {
        abort();
    }
    if (by_encoding_apply(encoding, table, false, &again, &error) != BY_OK ||
        !same_arrays(set, again)) {
        abort();
    }
    by_array_set_close(&again);
    by_table_close(&table);
}

static void check_table(const char *name, const uint8_t *data, size_t size, bool skip)
{
    by_error error;
    by_table *table;
    by_encoding *encoding;
    by_table_options how = {.skip = skip};
    if (by_table_parse(&table, name, (const char *)data, size, &how, &error) != BY_OK) {
        return;
    }
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        check_column(by_table_column(table, i), by_table_rows(table));
    }
    by_part whole = by_part_whole(by_table_rows(table));
    by_encoding_options options = {0};
    char *text;
    if (by_table_summary(table, &options, &text, &error) == BY_OK) {
        free(text);
    }
    if (by_encoding_learn(&encoding, table, &whole, &options, &error) == BY_OK) {
        by_array_set *set;
        if (by_encoding_apply(encoding, table, false, &set, &error) != BY_OK) {
            abort();
        }
        if (skip) {
            check_learned(name, data, size, encoding, set);
        }
        by_array_set_close(&set);
        by_encoding_close(&encoding);
    }
    by_table_close(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_table("f", data, size, false);
    check_table("f", data, size, true);
    check_table("f.jsonl", data, size, false);
    return 0;
}
