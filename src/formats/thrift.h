/* Reader of Thrift's compact protocol, field by field in memory, limited to what Parquet's headers
 * use.
 *
 * https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
 *
 * A reader never reads past its end. The first malformed item sets `failed`; everything read
 * afterwards is 0 and structures end, so that callers check once, at the end. */
#ifndef BY_FORMATS_THRIFT_H
#define BY_FORMATS_THRIFT_H

#include "base/base.h"

typedef enum by__format_thrift_type {
    BY__THRIFT_STOP = 0,
    BY__THRIFT_TRUE = 1,
    BY__THRIFT_FALSE = 2,
    BY__THRIFT_I8 = 3,
    BY__THRIFT_I16 = 4,
    BY__THRIFT_I32 = 5,
    BY__THRIFT_I64 = 6,
    BY__THRIFT_DOUBLE = 7,
    BY__THRIFT_BINARY = 8,
    BY__THRIFT_LIST = 9,
    BY__THRIFT_SET = 10,
    BY__THRIFT_MAP = 11,
    BY__THRIFT_STRUCT = 12
} by__format_thrift_type;

typedef struct by__format_thrift {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
} by__format_thrift;

/* A field of a struct; {0} before the first. */
typedef struct by__format_thrift_field {
    int id;
    by__format_thrift_type type;
} by__format_thrift_field;

/* Reads the next field; false at the end of the struct. Its value must be read or skipped. */
bool by__format_thrift_next(by__format_thrift *t, by__format_thrift_field *field);
/* An integer of any width: the field's value; a value of another type is skipped. */
int64_t by__format_thrift_integer(by__format_thrift *t, by__format_thrift_type type);
/* A string or bytes, in the memory being read. */
const char *by__format_thrift_binary(by__format_thrift *t, by__format_thrift_type type,
                                     size_t *length);
/* Number of elements of a list with elements of type `element`; a list of another type is skipped
 * and gives 0. An element takes at least one byte, so a count is never more than the bytes left. */
size_t by__format_thrift_list(by__format_thrift *t, by__format_thrift_type type,
                              by__format_thrift_type element);
void by__format_thrift_skip(by__format_thrift *t, by__format_thrift_type type);

#endif
