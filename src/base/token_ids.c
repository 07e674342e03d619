#include "base/token_ids.h"

#include <stdlib.h>

#include "base/json.h"

static bool is_id(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

by_status by__token_ids_check(const char *name, const json_t *root, by_error *error)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const json_t *value = json_object_get(root, keys[i]);
        bool good = value == NULL || json_is_null(value) || json_is_array(value);
        for (size_t k = 0; k < json_array_size(value) && good; k++) {
            good = is_id(json_array_get(value, k));
        }
        if (!good && !is_id(value)) {
            char *text = by__json_dump(value, JSON_ENCODE_ANY);
            by_status status = by_error_set(
                error, BY_EFORMAT,
                "%s: \"%s\" is %.60s: give the number of a token, which is at least 0, a list of "
                "them, or null",
                name, keys[i], text == NULL ? "no token" : text);
            free(text);
            return status;
        }
    }
    return BY_OK;
}
