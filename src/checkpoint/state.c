/* state.json: {"version": 1, "step": N, "values": {"seed": {"u64": "1337"}, ...}}. Numbers are
 * strings, because JSON numbers can represent neither all of u64 nor nan and infinities. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/storage.h"

#define STATE_VERSION 1

static by_status check_value(const by_checkpoint_value *values, size_t i, by_error *error)
{
    const by_checkpoint_value *value = &values[i];
    if (value->key == NULL || value->key[0] == '\0' ||
        !by__utf8_valid(value->key, strlen(value->key))) {
        return by_error_set(error, BY_EARG, "value %zu: its key is empty or not UTF-8", i);
    }
    if (value->kind == BY_VALUE_STRING &&
        (value->as.string == NULL || !by__utf8_valid(value->as.string, strlen(value->as.string)))) {
        return by_error_set(error, BY_EARG, "value '%.100s': the string is NULL or not UTF-8",
                            value->key);
    }
    for (size_t k = 0; k < i; k++) {
        if (strcmp(values[k].key, value->key) == 0) {
            return by_error_set(error, BY_EARG, "two values have the key '%.100s'", value->key);
        }
    }
    return BY_OK;
}

by_status by__checkpoint_state_print(uint64_t step, const by_checkpoint_value *values, size_t count,
                                     char **out, size_t *length, by_error *error)
{
    by_string text = {0};
    char number[32];
    by_string_format(&text, "{\n  \"version\": %d,\n  \"step\": %" PRIu64 ",\n  \"values\": {",
                     STATE_VERSION, step);
    for (size_t i = 0; i < count; i++) {
        by_status status = check_value(values, i, error);
        if (status != BY_OK) {
            by_string_free(&text);
            return status;
        }
        by__string_append(&text, i == 0 ? "\n    " : ",\n    ");
        by_string_json(&text, values[i].key, strlen(values[i].key));
        switch (values[i].kind) {
        case BY_VALUE_U64:
            by_string_format(&text, ": {\"u64\": \"%" PRIu64 "\"}", values[i].as.u64);
            break;
        case BY_VALUE_F64:
            by__format_f64(number, values[i].as.f64);
            by_string_format(&text, ": {\"f64\": \"%s\"}", number);
            break;
        case BY_VALUE_STRING:
            by__string_append(&text, ": {\"string\": ");
            by_string_json(&text, values[i].as.string, strlen(values[i].as.string));
            by__string_append(&text, "}");
            break;
        }
    }
    by__string_append(&text, "\n  }\n}\n");
    *length = text.length;
    return by__string_release(&text, out, error);
}

static bool parse_u64(const char *text, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return errno == 0 && *end == '\0';
}

static by_status read_value(by_checkpoint_value *out, const char *path, const char *key,
                            json_t *value, by_error *error)
{
    void *member = json_object_iter(value);
    const char *kind = json_object_iter_key(member);
    const char *text = json_string_value(json_object_iter_value(member));
    by_checkpoint_value result = {0};
    bool good = json_object_size(value) == 1 && text != NULL;
    if (good && strcmp(kind, "u64") == 0) {
        result.kind = BY_VALUE_U64;
        good = parse_u64(text, &result.as.u64);
    } else if (good && strcmp(kind, "f64") == 0) {
        result.kind = BY_VALUE_F64;
        good = by__parse_f64(text, &result.as.f64);
    } else if (good && strcmp(kind, "string") == 0) {
        result.kind = BY_VALUE_STRING;
    } else {
        good = false;
    }
    if (!good) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: value '%.100s': expected one of {\"u64\": \"...\"}, {\"f64\": "
                            "\"...\"}, {\"string\": \"...\"}",
                            path, key);
    }
    if (result.kind == BY_VALUE_STRING) {
        result.as.string = by__strdup(text);
    }
    result.key = by__strdup(key);
    if (result.key == NULL || (result.kind == BY_VALUE_STRING && result.as.string == NULL)) {
        free((void *)(uintptr_t)result.key);
        if (result.kind == BY_VALUE_STRING) {
            free((void *)(uintptr_t)result.as.string);
        }
        return by_error_set(error, BY_EMEMORY, "out of memory: state");
    }
    *out = result;
    return BY_OK;
}

static by_status read_root(by__checkpoint_state *out, const char *path, json_t *root,
                           by_error *error)
{
    const json_t *version = json_object_get(root, "version");
    const json_t *step = json_object_get(root, "step");
    json_t *values = json_object_get(root, "values");
    if (json_integer_value(version) != STATE_VERSION || !json_is_integer(step) ||
        json_integer_value(step) < 0 || !json_is_object(values)) {
        return by_error_set(error, BY_EFORMAT, "%s: expected version %d, a step and values", path,
                            STATE_VERSION);
    }
    out->step = (uint64_t)json_integer_value(step);
    BY_TRY(by__alloc((void **)&out->values, json_object_size(values), sizeof *out->values, "state",
                     error));
    for (void *i = json_object_iter(values); i != NULL; i = json_object_iter_next(values, i)) {
        BY_TRY(read_value(&out->values[out->count], path, json_object_iter_key(i),
                          json_object_iter_value(i), error));
        out->count++;
    }
    return BY_OK;
}

by_status by__checkpoint_state_parse(by__checkpoint_state *out, const char *path, const char *text,
                                     size_t length, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by__checkpoint_state state = {0};
    by_status status = read_root(&state, path, root, error);
    json_decref(root);
    if (status != BY_OK) {
        by__checkpoint_state_free(&state);
        return status;
    }
    *out = state;
    return BY_OK;
}

void by__checkpoint_state_free(by__checkpoint_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        free((void *)(uintptr_t)state->values[i].key);
        if (state->values[i].kind == BY_VALUE_STRING) {
            free((void *)(uintptr_t)state->values[i].as.string);
        }
    }
    free(state->values);
    *state = (by__checkpoint_state){0};
}
