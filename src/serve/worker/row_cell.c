#include "serve/worker/row_cell.h"

#include <string.h>

by_status by__row_cell(char **out, const json_t *value, size_t row, by_error *error)
{
    char number[40];
    const char *text = json_string_value(value);
    *out = NULL;
    if (value == NULL || json_is_null(value)) {
        return BY_OK;
    }
    if (json_is_integer(value)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        text = number;
    } else if (json_is_real(value)) {
        (void)snprintf(number, sizeof number, "%.17g", json_real_value(value));
        text = number;
    }
    if (text == NULL || (json_is_string(value) && strlen(text) != json_string_length(value))) {
        return by_error_set(error, BY_EARG,
                            "row %zu: a cell is a number, a text without U+0000, or null", row);
    }
    *out = by__strdup(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a row") : BY_OK;
}
