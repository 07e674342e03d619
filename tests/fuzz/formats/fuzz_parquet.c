/* Parquet tables: read with every value in its place, or refused. */
#include <stdlib.h>
#include <string.h>

#include "formats/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__format_parquet file;
    if (by__format_parquet_open(&file, "f", data, size, 100000, &error) == BY_OK) {
        for (size_t i = 0; i < file.column_count; i++) {
            by__format_parquet_values values;
            if (by__format_parquet_read(&file, i, &values, &error) != BY_OK) {
                continue;
            }
            if (values.count != file.rows) {
                abort();
            }
            for (size_t k = 0; k < values.count && file.columns[i].kind == BY__PARQUET_TEXT; k++) {
                const by__format_parquet_value *v = &values.items[k];
                if (v->length > 0 && v->as.offset + (uint64_t)v->length > values.byte_count) {
                    abort();
                }
            }
            by__format_parquet_values_free(&values);
        }
    }
    by__format_parquet_close(&file);
    return 0;
}
