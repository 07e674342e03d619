/* Converts constraints on the text of an answer, OpenAI's response_format and vLLM's fields for the
 * same, to the format of workers. */
#include <string.h>

#include "serve/gateway/openai/openai.h"
#include "serve/protocol/messages.h"

#define MAX_CHOICES 1000

static by_status lacks_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a request");
}

/* Accepts a schema, or a string that contains one. */
static by_status make_schema(json_t **out, const json_t *value, by_error *error)
{
    json_t *schema = json_incref((json_t *)(uintptr_t)value);
    if (json_is_string(value)) {
        json_decref(schema);
        by_status status = by__gateway_body_parse(&schema, json_string_value(value),
                                                  json_string_length(value), error);
        if (status != BY_OK) {
            return by_error_prefix(error, status, "a schema");
        }
    }
    *out = json_pack("{ss so}", "type", "json_schema", "schema", schema);
    return *out != NULL ? BY_OK : lacks_memory(error);
}

static by_status make_regex(json_t **out, const json_t *value, by_error *error)
{
    if (!json_is_string(value)) {
        return by_error_set(error, BY_EARG, "a regular expression must be a string");
    }
    *out = json_pack("{ss sO}", "type", "regex", "pattern", (json_t *)(uintptr_t)value);
    return *out != NULL ? BY_OK : lacks_memory(error);
}

/* Converts a choice of texts to a regular expression. */
static by_status make_choice(json_t **out, const json_t *value, by_error *error)
{
    by_string pattern = {0};
    size_t count = json_array_size(value);
    bool good = count > 0 && count <= MAX_CHOICES;
    for (size_t i = 0; i < count && good; i++) {
        const char *text = by__json_string(json_array_get(value, i));
        good = text != NULL;
        by__string_append(&pattern, i > 0 ? "|" : "");
        for (; good && *text != '\0'; text++) {
            by__string_append(&pattern, strchr("\\^$.|?*+()[]{}", *text) != NULL ? "\\" : "");
            by_string_add(&pattern, text, 1);
        }
    }
    by__string_append(&pattern, "");
    *out = !good || pattern.failed
               ? NULL
               : json_pack("{ss ss%}", "type", "regex", "pattern", pattern.data, pattern.length);
    by_string_free(&pattern);
    return !good          ? by_error_set(error, BY_EARG, "a choice must be a list of 1 to %d texts",
                                         MAX_CHOICES)
           : *out == NULL ? lacks_memory(error)
                          : BY_OK;
}

static by_status make_object(json_t **out, const json_t *value, by_error *error)
{
    if (!json_is_true(value)) {
        return by_error_set(error, BY_EARG, "it must be true");
    }
    *out = json_pack("{ss}", "type", "json_object");
    return *out != NULL ? BY_OK : lacks_memory(error);
}

/* {"type": "json_schema", "json_schema": {"schema": ...}} */
static by_status make_response(json_t **out, const json_t *format, by_error *error)
{
    const char *type = by__protocol_get_text(format, "type");
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (type == NULL) {
        return by_error_set(error, BY_EARG, "it has no 'type'");
    }
    if (strcmp(type, "json_schema") == 0) {
        return schema == NULL ? by_error_set(error, BY_EARG, "it has no json_schema.schema")
                              : make_schema(out, schema, error);
    }
    if (strcmp(type, "regex") == 0) {
        return make_regex(out, json_object_get(format, "pattern"), error);
    }
    *out = json_pack("{ss}", "type", type);
    return *out != NULL ? BY_OK : lacks_memory(error);
}

typedef by_status format_maker(json_t **out, const json_t *value, by_error *error);

static by_status make_structured(json_t **out, const json_t *value, by_error *error)
{
    static const struct {
        const char *name;
        format_maker *call;
    } rows[] = {{"json", make_schema},
                {"regex", make_regex},
                {"choice", make_choice},
                {"json_object", make_object}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        const json_t *one = json_object_get(value, rows[i].name);
        if (one != NULL && json_object_size(value) == 1) {
            by_status status = rows[i].call(out, one, error);
            return status == BY_OK ? BY_OK : by_error_prefix(error, status, "%s", rows[i].name);
        }
    }
    return by_error_set(error, BY_EARG, "it must have one of json, regex, choice and json_object");
}

by_status by__openai_format(json_t **out, const by__openai_forms *forms, const char **param,
                            by_error *error)
{
    const struct {
        const char *name;
        const json_t *value;
        format_maker *call;
    } rows[] = {{"response_format", forms->response, make_response},
                {"guided_json", forms->json, make_schema},
                {"guided_regex", forms->regex, make_regex},
                {"guided_choice", forms->choice, make_choice},
                {"structured_outputs", forms->structured, make_structured}};
    size_t given = BY_ARRAY_LENGTH(rows);
    *out = NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i].value == NULL) {
            continue;
        }
        *param = rows[i].name;
        if (given < BY_ARRAY_LENGTH(rows)) {
            return by_error_set(error, BY_EARG, "'%s' and '%s' cannot both be given",
                                rows[given].name, rows[i].name);
        }
        given = i;
    }
    if (given == BY_ARRAY_LENGTH(rows)) {
        return BY_OK;
    }
    by_status status = rows[given].call(out, rows[given].value, error);
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "'%s'", rows[given].name);
}
