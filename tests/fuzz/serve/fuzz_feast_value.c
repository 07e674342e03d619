/* Values and times in an online store of features, as any program may have written them. The first
 * byte chooses: even a value, odd a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/features/feast_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__feature_feast_value value;
    double seconds;
    if (size == 0) {
        return 0;
    }
    /* A copy of its own, behind whose end a sanitizer sees every read. */
    uint8_t *copy = malloc(size > 1 ? size - 1 : 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 2 == 1) {
        if (by__feature_feast_time_read(&seconds, copy, size - 1) && !isfinite(seconds)) {
            abort();
        }
    } else if (by__feature_feast_value_read(&value, copy, size - 1) &&
               value.kind == BY__FEAST_VALUE_TEXT &&
               (!by__utf8_valid(value.text, value.length) ||
                value.text + value.length > (const char *)copy + size - 1)) {
        abort();
    }
    free(copy);
    return 0;
}
