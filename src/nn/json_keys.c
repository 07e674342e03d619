/* Keys of a model's config.json. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "nn/nn.h"

by_status by__nn_json_integer(int64_t *out, const char *name, const json_t *in, const char *key,
                              int64_t fallback, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    if (value == NULL || json_is_null(value)) {
        if (fallback == BY__REQUIRED) {
            return by_error_set(error, BY_EFORMAT, "%s: key \"%s\" is missing", name, key);
        }
        *out = fallback;
        return BY_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT32_MAX) {
        return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is not a positive 31-bit integer", name,
                            key);
    }
    *out = json_integer_value(value);
    return BY_OK;
}

by_status by__nn_json_number(double *out, const char *name, const json_t *in, const char *key,
                             double fallback, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    if (value != NULL && !json_is_null(value) &&
        (!json_is_number(value) || json_number_value(value) <= 0.0)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is not a positive number", name, key);
    }
    *out = json_is_number(value) ? json_number_value(value) : fallback;
    return BY_OK;
}

by_status by__nn_json_switch(int64_t *out, const char *name, const json_t *in, const char *key,
                             bool fallback, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    if (value != NULL && !json_is_null(value) && !json_is_boolean(value)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is neither true nor false", name, key);
    }
    *out = json_is_boolean(value) ? json_is_true(value) : fallback;
    return BY_OK;
}

by_status by__nn_json_expect(const char *name, const json_t *in, const char *key,
                             const char *wanted, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    const char *text = json_string_value(value);
    if (value != NULL && !json_is_null(value) && (text == NULL || strcmp(text, wanted) != 0)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is \"%s\"; only \"%s\" is supported",
                            name, key, text == NULL ? "(not a string)" : text, wanted);
    }
    return BY_OK;
}

by_status by__nn_json_expect_bool(const char *name, const json_t *in, const char *key, bool wanted,
                                  by_error *error)
{
    const json_t *value = json_object_get(in, key);
    if (value != NULL && !json_is_null(value) &&
        !(wanted ? json_is_true(value) : json_is_false(value))) {
        return by_error_set(error, BY_EFORMAT, "%s: only %s is supported for \"%s\"", name,
                            wanted ? "true" : "false", key);
    }
    return BY_OK;
}

by_status by__nn_set_string(char **field, const char *value, by_error *error)
{
    char *copy = by__strdup(value);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config");
    }
    free(*field);
    *field = copy;
    return BY_OK;
}
