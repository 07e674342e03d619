#include "formats/thrift.h"

/* Limit of nesting in skipped values: structs in lists in structs ... */
#define MAX_DEPTH 16

static uint8_t read_byte(by__format_thrift *t)
{
    if (t->failed || t->at == t->end) {
        t->failed = true;
        return 0;
    }
    return *t->at++;
}

static uint64_t read_varint(by__format_thrift *t)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = read_byte(t);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return t->failed ? 0 : value;
        }
    }
    t->failed = true;
    return 0;
}

static int64_t read_zigzag(by__format_thrift *t)
{
    uint64_t value = read_varint(t);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static void skip_bytes(by__format_thrift *t, uint64_t count)
{
    if (t->failed || count > (uint64_t)(t->end - t->at)) {
        t->failed = true;
        return;
    }
    t->at += count;
}

bool by__format_thrift_next(by__format_thrift *t, by__format_thrift_field *field)
{
    uint8_t head = read_byte(t);
    if (t->failed || (head & 0x0f) == BY__THRIFT_STOP) {
        return false;
    }
    int64_t id = head >> 4 != 0 ? field->id + (head >> 4) : read_zigzag(t);
    if (t->failed || id < 0 || id > INT16_MAX || (head & 0x0f) > BY__THRIFT_STRUCT) {
        t->failed = true;
        return false;
    }
    field->id = (int)id;
    field->type = (by__format_thrift_type)(head & 0x0f);
    return true;
}

int64_t by__format_thrift_integer(by__format_thrift *t, by__format_thrift_type type)
{
    switch (type) {
    case BY__THRIFT_TRUE:
        return 1;
    case BY__THRIFT_FALSE:
        return 0;
    case BY__THRIFT_I8:
        return (int8_t)read_byte(t);
    case BY__THRIFT_I16:
    case BY__THRIFT_I32:
    case BY__THRIFT_I64:
        return read_zigzag(t);
    default:
        by__format_thrift_skip(t, type);
        return 0;
    }
}

const char *by__format_thrift_binary(by__format_thrift *t, by__format_thrift_type type,
                                     size_t *length)
{
    *length = 0;
    if (type != BY__THRIFT_BINARY) {
        by__format_thrift_skip(t, type);
        return "";
    }
    uint64_t count = read_varint(t);
    const char *begin = (const char *)t->at;
    skip_bytes(t, count);
    if (t->failed) {
        return "";
    }
    *length = (size_t)count;
    return begin;
}

/* Reads the header of a list or set. */
static uint64_t list_head(by__format_thrift *t, by__format_thrift_type *element)
{
    uint8_t head = read_byte(t);
    uint64_t count = head >> 4 == 15 ? read_varint(t) : head >> 4;
    *element = (by__format_thrift_type)(head & 0x0f);
    if (t->failed || count > (uint64_t)(t->end - t->at) || (head & 0x0f) > BY__THRIFT_STRUCT ||
        (head & 0x0f) == BY__THRIFT_STOP) {
        t->failed = t->failed || count > 0;
        return 0;
    }
    return count;
}

/* Booleans in a list take a byte each; in a struct they are in the field's header. */
static void skip_value(by__format_thrift *t, by__format_thrift_type type, bool in_list, int depth)
{
    by__format_thrift_field field = {0};
    by__format_thrift_type element;
    if (depth > MAX_DEPTH) {
        t->failed = true;
    }
    if (t->failed) {
        return;
    }
    switch (type) {
    case BY__THRIFT_TRUE:
    case BY__THRIFT_FALSE:
        skip_bytes(t, in_list ? 1 : 0);
        return;
    case BY__THRIFT_I8:
        skip_bytes(t, 1);
        return;
    case BY__THRIFT_I16:
    case BY__THRIFT_I32:
    case BY__THRIFT_I64:
        (void)read_varint(t);
        return;
    case BY__THRIFT_DOUBLE:
        skip_bytes(t, 8);
        return;
    case BY__THRIFT_BINARY:
        skip_bytes(t, read_varint(t));
        return;
    case BY__THRIFT_LIST:
    case BY__THRIFT_SET:
        for (uint64_t n = list_head(t, &element); n > 0 && !t->failed; n--) {
            skip_value(t, element, true, depth + 1);
        }
        return;
    case BY__THRIFT_STRUCT:
        while (by__format_thrift_next(t, &field)) {
            skip_value(t, field.type, false, depth + 1);
        }
        return;
    default: /* Parquet's headers have no maps */
        t->failed = true;
        return;
    }
}

size_t by__format_thrift_list(by__format_thrift *t, by__format_thrift_type type,
                              by__format_thrift_type element)
{
    by__format_thrift_type found;
    if (type != BY__THRIFT_LIST) {
        by__format_thrift_skip(t, type);
        return 0;
    }
    uint64_t count = list_head(t, &found);
    if (found == element) {
        return (size_t)count;
    }
    for (; count > 0 && !t->failed; count--) {
        skip_value(t, found, true, 1);
    }
    return 0;
}

void by__format_thrift_skip(by__format_thrift *t, by__format_thrift_type type)
{
    skip_value(t, type, false, 0);
}
