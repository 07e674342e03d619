/* Thrift's compact protocol, read field by field over memory, as far as Parquet's headers use it.
 *
 * https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
 *
 * A reader never reads behind its end. The first thing that is wrong sets `failed`; everything read
 * afterwards is 0 and structures have ended, so that callers look once, when they are done. */
#ifndef BY_DATA_FORMATS_THRIFT_H
#define BY_DATA_FORMATS_THRIFT_H

#include "base/base.h"

typedef enum by__thrift_type {
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
} by__thrift_type;

typedef struct by__thrift {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
} by__thrift;

/* A field of a struct whose reading begins with {0}. */
typedef struct by__thrift_field {
    int id;
    by__thrift_type type;
} by__thrift_field;

/* The next field; false at the end of the struct. Its value has to be read or skipped. */
bool by__thrift_next(by__thrift *t, by__thrift_field *field);
/* A whole number of any width: the field's value, which is skipped where it is of another type. */
int64_t by__thrift_integer(by__thrift *t, by__thrift_type type);
/* A string or bytes, in the memory that is read. */
const char *by__thrift_binary(by__thrift *t, by__thrift_type type, size_t *length);
/* Elements of a list whose elements are of `element`; 0, and skipped, where they are of another
 * type. An element takes a byte at least, so that a count is never more than there are bytes. */
size_t by__thrift_list(by__thrift *t, by__thrift_type type, by__thrift_type element);
void by__thrift_skip(by__thrift *t, by__thrift_type type);

#endif
