/* Tables of numbers: rows of as many each, or refused. */
#include <math.h>
#include <stdlib.h>

#include "data/nodes/graph_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    double *values;
    uint64_t rows;
    uint64_t columns;
    if (by__nodes_number_table_parse(&values, &rows, &columns, "f", (const char *)data, size,
                                     &error) != BY_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < rows * columns; i++) {
        if (isinf(values[i])) {
            abort();
        }
    }
    free(values);
    return 0;
}
