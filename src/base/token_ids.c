#include "base/token_ids.h"

#include <stdlib.h>

#include "base/json.h"

static bool is_id(const json_t *value, int64_t vocab)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) < vocab;
}

by_status by__token_ids_check(const char *name, const json_t *root, int64_t vocab, by_error *error)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const json_t *value = json_object_get(root, keys[i]);
        bool good = value == NULL || json_is_null(value) || json_is_array(value);
        for (size_t k = 0; k < json_array_size(value) && good; k++) {
            good = is_id(json_array_get(value, k), vocab);
        }
        if (!good && !is_id(value, vocab)) {
            char *text = by__json_dump(value, JSON_ENCODE_ANY);
            by_status status = by_error_set(
                error, BY_EFORMAT,
                "%s: \"%s\" is %.60s: give a token from 0 to %lld (\"vocab_size\" is %lld), a list "
                "of them, or null",
                name, keys[i], text == NULL ? "no token" : text, (long long)vocab - 1,
                (long long)vocab);
            free(text);
            return status;
        }
    }
    return BY_OK;
}
