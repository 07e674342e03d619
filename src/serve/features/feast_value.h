/* Values in a Feast online store of Redis: protobuf messages (protobuf.dev, "Encoding") of
 * feast.types.Value and google.protobuf.Timestamp, decoded as untrusted input. */
#ifndef BY_SERVE_FEATURES_FEAST_VALUE_H
#define BY_SERVE_FEATURES_FEAST_VALUE_H

#include "serve/base/serve.h"

typedef enum by__feature_feast_kind {
    BY__FEAST_VALUE_NULL,    /* null_val, or no value at all */
    BY__FEAST_VALUE_INTEGER, /* int32_val, int64_val; bool_val as 0 or 1 */
    BY__FEAST_VALUE_TIME,    /* unix_timestamp_val: seconds since 1970, in `integer` */
    BY__FEAST_VALUE_REAL,    /* double_val, float_val */
    BY__FEAST_VALUE_TEXT,    /* string_val */
    BY__FEAST_VALUE_OTHER    /* bytes, lists, sets and maps, which no table column holds */
} by__feature_feast_kind;

typedef struct by__feature_feast_value {
    by__feature_feast_kind kind;
    int64_t integer;
    double real;
    const char *text; /* borrowed from the message: `length` bytes of UTF-8, not NUL-terminated */
    size_t length;
} by__feature_feast_value;

/* Decodes feast.types.Value; of several values the last one counts, as protobuf specifies. Returns
 * false if it is no such message, or a text is not UTF-8 or contains U+0000. */
bool by__feature_feast_value_read(by__feature_feast_value *out, const void *data, size_t size);
/* Decodes google.protobuf.Timestamp as seconds since 1970. Returns false if it is malformed. */
bool by__feature_feast_time_read(double *out, const void *data, size_t size);

#endif
