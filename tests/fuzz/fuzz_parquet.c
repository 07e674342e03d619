/* Parquet tables: read with every value in its place, or refused. */
#include <stdlib.h>
#include <string.h>

#include "formats/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__parquet file;
    if (by__parquet_open(&file, "f", data, size, 100000, &error) == BY_OK) {
        for (size_t i = 0; i < file.column_count; i++) {
            by__parquet_values values;
            if (by__parquet_read(&file, i, &values, &error) != BY_OK) {
                continue;
            }
            if (values.count != file.rows) {
                abort();
            }
            for (size_t k = 0; k < values.count && file.columns[i].kind == BY__PARQUET_TEXT; k++) {
                const by__parquet_value *v = &values.items[k];
                if (v->length > 0 && v->as.offset + (uint64_t)v->length > values.byte_count) {
                    abort();
                }
            }
            by__parquet_values_free(&values);
        }
    }
    by__parquet_close(&file);
    return 0;
}
