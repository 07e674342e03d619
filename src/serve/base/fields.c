#include "serve/base/fields.h"

#include <string.h>

static const by__serve_field *find(const by__serve_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

static by_status unknown(const by__serve_field *fields, size_t count, const char *name,
                         by_error *error)
{
    const char *names[64];
    size_t n = count < BY_ARRAY_LENGTH(names) ? count : BY_ARRAY_LENGTH(names);
    for (size_t i = 0; i < n; i++) {
        names[i] = fields[i].name;
    }
    const char *near = strlen(name) < 64 ? by_nearest_name(name, names, n) : NULL;
    if (near != NULL) {
        return by_error_set(error, BY_EARG, "unknown field '%s'; did you mean '%s'?", name, near);
    }
    return by_error_set(error, BY_EARG, "unknown field '%.64s'", name);
}

static by_status out_of_bounds(const by__serve_field *field, by_error *error)
{
    return by_error_set(error, BY_EARG, "'%s' must be from %.10g to %.10g", field->name,
                        field->least, field->most);
}

static by_status read_field(void *to, const by__serve_field *field, const json_t *value,
                            by_error *error)
{
    switch (field->kind) {
    case BY__FIELD_TEXT:
        if (!json_is_string(value)) {
            return by_error_set(error, BY_EARG, "'%s' must be a string", field->name);
        }
        if ((double)json_string_length(value) > field->most ||
            strlen(json_string_value(value)) != json_string_length(value)) {
            return by_error_set(error, BY_EARG, "'%s' must have at most %.0f bytes, none of them 0",
                                field->name, field->most);
        }
        *(const char **)to = json_string_value(value);
        return BY_OK;
    case BY__FIELD_INTEGER:
        if (by__json_spelled(value) != NULL) {
            return out_of_bounds(field, error);
        }
        if (!json_is_integer(value)) {
            return by_error_set(error, BY_EARG, "'%s' must be an integer", field->name);
        }
        if ((double)json_integer_value(value) < field->least ||
            (double)json_integer_value(value) > field->most) {
            return out_of_bounds(field, error);
        }
        *(int64_t *)to = json_integer_value(value);
        return BY_OK;
    case BY__FIELD_NUMBER:
        if (by__json_spelled(value) != NULL) {
            return out_of_bounds(field, error);
        }
        if (!json_is_number(value)) {
            return by_error_set(error, BY_EARG, "'%s' must be a number", field->name);
        }
        if (!(json_number_value(value) >= field->least &&
              json_number_value(value) <= field->most)) {
            return out_of_bounds(field, error);
        }
        *(double *)to = json_number_value(value);
        return BY_OK;
    case BY__FIELD_BOOL:
        if (!json_is_boolean(value)) {
            return by_error_set(error, BY_EARG, "'%s' must be true or false", field->name);
        }
        *(bool *)to = json_is_true(value);
        return BY_OK;
    case BY__FIELD_ANY:
        *(const json_t **)to = value;
        return BY_OK;
    case BY__FIELD_IGNORED:
        return BY_OK;
    }
    return BY_OK;
}

by_status by__serve_fields_read(void *record, const by__serve_field *fields, size_t count,
                                const json_t *object, const char **param, by_error *error)
{
    const char *name;
    json_t *value;
    const char *ignored;
    param = param == NULL ? &ignored : param;
    *param = NULL;
    if (!json_is_object(object)) {
        return by_error_set(error, BY_EARG, "a JSON object is needed");
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const by__serve_field *field = find(fields, count, name);
        *param = NULL;
        if (field == NULL) {
            return unknown(fields, count, name, error);
        }
        *param = field->name;
        if (!json_is_null(value)) {
            BY_TRY(read_field((char *)record + field->offset, field, value, error));
        }
    }
    *param = NULL;
    return BY_OK;
}
