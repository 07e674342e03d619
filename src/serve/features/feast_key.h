/* Names of entities and features in a Feast online store of Redis, byte by byte, as Feast's
 * feast/infra/key_encoding_utils.py and feast/infra/online_stores/helpers.py write them.
 *
 * An entity is one hash of Redis. Its key is the serialized entity key and then the project. In the
 * hash, a feature's field is murmur3_32("VIEW:FEATURE") as 4 little-endian bytes, and the field
 * "_ts:VIEW" holds the time at which the features of that view were observed. */
#ifndef BY_SERVE_FEATURES_FEAST_KEY_H
#define BY_SERVE_FEATURES_FEAST_KEY_H

#include "serve/base/serve.h"

/* Types of entity values, by the numbers of feast.types.ValueType.Enum. */
typedef enum by__feature_feast_type {
    BY__FEAST_BYTES = 1,
    BY__FEAST_STRING = 2,
    BY__FEAST_INT32 = 3,
    BY__FEAST_INT64 = 4,
    BY__FEAST_TIME = 8
} by__feature_feast_type;

typedef struct by__feature_feast_join_key {
    const char *name;
    by__feature_feast_type type;
} by__feature_feast_join_key;

/* The longest text of an entity, in bytes. */
#define BY__FEAST_MAX_TEXT 1024

/* "int64", "int32", "string", "bytes" or "unix_timestamp". */
bool by__feature_feast_type_named(by__feature_feast_type *out, const char *name);

/* Appends the key of an entity's hash. keys: sorted by the bytes of their names; values[i], of
 * keys[i]: a JSON integer, a string, or (bytes) a string in base64; version: of the serialization,
 * 2 or 3. BY_EARG names the join key whose value is missing or of another type; `out` then holds a
 * partial key. */
by_status by__feature_feast_key(by_string *out, const by__feature_feast_join_key *keys,
                                const json_t *const *values, size_t count, int version,
                                const char *project, by_error *error);

/* Computes the field of a feature. */
by_status by__feature_feast_field(uint8_t out[4], const char *view, const char *feature,
                                  by_error *error);

#endif
