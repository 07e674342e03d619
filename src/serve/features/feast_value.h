/* Values in a Feast online store of Redis: protobuf messages (protobuf.dev, "Encoding") of
 * feast.types.Value and google.protobuf.Timestamp, read as if a stranger had written them. */
#ifndef BY_SERVE_FEAST_VALUE_H
#define BY_SERVE_FEAST_VALUE_H

#include "serve/serve.h"

typedef enum by__feast_kind {
    BY__FEAST_VALUE_NULL,    /* null_val, or no value at all */
    BY__FEAST_VALUE_INTEGER, /* int32_val, int64_val; bool_val as 0 or 1 */
    BY__FEAST_VALUE_TIME,    /* unix_timestamp_val: seconds since 1970, in `integer` */
    BY__FEAST_VALUE_REAL,    /* double_val, float_val */
    BY__FEAST_VALUE_TEXT,    /* string_val */
    BY__FEAST_VALUE_OTHER    /* bytes, lists, sets and maps, which no column of a table holds */
} by__feast_kind;

typedef struct by__feast_value {
    by__feast_kind kind;
    int64_t integer;
    double real;
    const char *text; /* borrowed from the message: `length` bytes of UTF-8, without a NUL behind */
    size_t length;
} by__feast_value;

/* Reads feast.types.Value; where it has several values the last one counts, as protobuf has it.
 * False: it is no such message, or a text that is not UTF-8 or has U+0000. */
bool by__feast_value_read(by__feast_value *out, const void *data, size_t size);
/* Reads google.protobuf.Timestamp as seconds since 1970. False: it is none. */
bool by__feast_time_read(double *out, const void *data, size_t size);

#endif
