#include "serve/features/feast_key.h"

#include <string.h>

#include "base/base.h"
#include "base/wire/protobuf.h"
#include "serve/features/murmur3.h"

static void add_u32(by_string *out, uint32_t value)
{
    uint8_t bytes[4];
    by__put_u32(bytes, value);
    by_string_add(out, bytes, sizeof bytes);
}

bool by__feature_feast_type_named(by__feature_feast_type *out, const char *name)
{
    static const struct {
        const char *name;
        by__feature_feast_type type;
    } types[] = {{"int64", BY__FEAST_INT64},
                 {"int32", BY__FEAST_INT32},
                 {"string", BY__FEAST_STRING},
                 {"bytes", BY__FEAST_BYTES},
                 {"unix_timestamp", BY__FEAST_TIME}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            *out = types[i].type;
            return true;
        }
    }
    return false;
}

static by_status wrong(const by__feature_feast_join_key *key, const char *what, by_error *error)
{
    return by_error_set(error, BY_EARG, "the entity's '%s' %s", key->name, what);
}

static by_status add_integer(by_string *out, const by__feature_feast_join_key *key,
                             const json_t *value, by_error *error)
{
    uint8_t bytes[8];
    bool narrow = key->type == BY__FEAST_INT32;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value)) {
        return wrong(key, "must be an integer", error);
    }
    if (narrow && (number < INT32_MIN || number > INT32_MAX)) {
        return wrong(key, "does not fit 32 bits", error);
    }
    by__put_u64(bytes, (uint64_t)number);
    add_u32(out, (uint32_t)key->type);
    add_u32(out, narrow ? 4 : 8);
    by_string_add(out, bytes, narrow ? 4 : 8);
    return BY_OK;
}

static by_status add_text(by_string *out, const by__feature_feast_join_key *key,
                          const json_t *value, by_error *error)
{
    uint8_t decoded[BY__BASE64_BYTES(BY__FEAST_MAX_TEXT)];
    const void *data = json_string_value(value);
    size_t length = json_string_length(value);
    if (!json_is_string(value)) {
        return wrong(key, "must be a text", error);
    }
    if (length > BY__FEAST_MAX_TEXT) {
        return by_error_set(error, BY_EARG, "the entity's '%s' has %zu bytes; %d are possible",
                            key->name, length, BY__FEAST_MAX_TEXT);
    }
    if (key->type == BY__FEAST_BYTES) {
        if (!by__read_base64(json_string_value(value), length, decoded, &length)) {
            return wrong(key, "must be bytes in base64", error);
        }
        data = decoded;
    }
    add_u32(out, (uint32_t)key->type);
    add_u32(out, (uint32_t)length);
    by_string_add(out, data, length);
    return BY_OK;
}

by_status by__feature_feast_key(by_string *out, const by__feature_feast_join_key *keys,
                                const json_t *const *values, size_t count, int version,
                                const char *project, by_error *error)
{
    if (version > 2) {
        add_u32(out, (uint32_t)count);
    }
    for (size_t i = 0; i < count; i++) {
        add_u32(out, BY__FEAST_STRING);
        if (version > 2) {
            add_u32(out, (uint32_t)strlen(keys[i].name));
        }
        by__string_append(out, keys[i].name);
    }
    for (size_t i = 0; i < count; i++) {
        bool text = keys[i].type == BY__FEAST_STRING || keys[i].type == BY__FEAST_BYTES;
        if (values[i] == NULL || json_is_null(values[i])) {
            return wrong(&keys[i], "is missing", error);
        }
        BY_TRY(text ? add_text(out, &keys[i], values[i], error)
                    : add_integer(out, &keys[i], values[i], error));
    }
    by__string_append(out, project);
    return out->failed ? by_error_set(error, BY_EMEMORY, "out of memory: a key of an entity")
                       : BY_OK;
}

by_status by__feature_feast_field(uint8_t out[4], const char *view, const char *feature,
                                  by_error *error)
{
    by_string name = {0};
    by_string_format(&name, "%s:%s", view, feature);
    if (name.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the name of a feature");
    }
    by__put_u32(out, by__feature_murmur3_32(name.data, name.length, 0));
    by_string_free(&name);
    return BY_OK;
}
