#include "data/table/row_cell.h"

#include <stdio.h>
#include <string.h>

const char *by__table_row_cell_text(char digits[BY__CELL_DIGITS], const json_t *value)
{
    if (json_is_integer(value)) {
        (void)snprintf(digits, BY__CELL_DIGITS, "%lld", (long long)json_integer_value(value));
        return digits;
    }
    if (json_is_real(value)) {
        by__format_f64(digits, json_real_value(value));
        return digits;
    }
    if (json_is_boolean(value)) {
        return json_is_true(value) ? "true" : "false";
    }
    if (by__json_spelled(value) != NULL) {
        return by__json_spelled(value);
    }
    return json_string_value(value);
}

by_status by__table_row_cell(char **out, const json_t *value, size_t row, by_error *error)
{
    char digits[BY__CELL_DIGITS];
    *out = NULL;
    if (value == NULL || json_is_null(value)) {
        return BY_OK;
    }
    const char *text = by__table_row_cell_text(digits, value);
    if (text == NULL || (json_is_string(value) && strlen(text) != json_string_length(value))) {
        return by_error_set(
            error, BY_EARG,
            "row %zu: a cell is a number, a text without U+0000, true, false or null", row);
    }
    *out = by__strdup(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a row") : BY_OK;
}
