#include "serve/features/feast_value.h"

#include <string.h>

/* Wire types; neither message uses the group types 3 and 4. */
enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };
/* Field numbers of Value. */
enum { STRING_VAL = 2, INT32_VAL, INT64_VAL, DOUBLE_VAL, FLOAT_VAL, BOOL_VAL, TIME_VAL };
enum { NULL_VAL = 19 };

typedef struct protobuf_reader {
    const uint8_t *at;
    const uint8_t *end;
} protobuf_reader;

typedef struct field {
    uint32_t number;
    unsigned wire;
    uint64_t bits;       /* if not DELIMITED */
    const uint8_t *data; /* if DELIMITED */
    size_t size;
} field;

static bool read_varint(protobuf_reader *r, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        if (shift == 63 && byte > 1) {
            return false;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(protobuf_reader *r, unsigned bytes, uint64_t *out)
{
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < bytes) {
        return false;
    }
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)*r->at++ << (8 * i);
    }
    *out = value;
    return true;
}

static bool read_field(protobuf_reader *r, field *out)
{
    uint64_t tag;
    *out = (field){0};
    if (!read_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1) {
        return false;
    }
    out->number = (uint32_t)(tag >> 3);
    out->wire = (unsigned)(tag & 7);
    switch (out->wire) {
    case VARINT:
        return read_varint(r, &out->bits);
    case FIXED64:
        return read_fixed(r, 8, &out->bits);
    case FIXED32:
        return read_fixed(r, 4, &out->bits);
    case DELIMITED:
        if (!read_varint(r, &out->bits) || out->bits > (uint64_t)(r->end - r->at)) {
            return false;
        }
        out->data = r->at;
        out->size = (size_t)out->bits;
        r->at += out->size;
        return true;
    default:
        return false;
    }
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

/* The wire type of a field's value; -1: the field is read as OTHER. */
static int wire_of(uint32_t number)
{
    switch (number) {
    case STRING_VAL:
        return DELIMITED;
    case DOUBLE_VAL:
        return FIXED64;
    case FLOAT_VAL:
        return FIXED32;
    case INT32_VAL:
    case INT64_VAL:
    case BOOL_VAL:
    case TIME_VAL:
    case NULL_VAL:
        return VARINT;
    default:
        return -1;
    }
}

static bool next_field(by__feature_feast_value *out, const field *f)
{
    int wire = wire_of(f->number);
    *out = (by__feature_feast_value){.kind = BY__FEAST_VALUE_OTHER};
    if (wire >= 0 && f->wire != (unsigned)wire) {
        return false;
    }
    switch (f->number) {
    case STRING_VAL:
        out->kind = BY__FEAST_VALUE_TEXT;
        out->text = (const char *)f->data;
        out->length = f->size;
        return memchr(f->data, '\0', f->size) == NULL && by__utf8_valid(out->text, f->size);
    case INT32_VAL:
        /* The lower 32 bits, as protobuf decodes it. */
        out->kind = BY__FEAST_VALUE_INTEGER;
        out->integer = (int32_t)(uint32_t)f->bits;
        return true;
    case INT64_VAL:
    case TIME_VAL:
        out->kind = f->number == TIME_VAL ? BY__FEAST_VALUE_TIME : BY__FEAST_VALUE_INTEGER;
        out->integer = (int64_t)f->bits;
        return true;
    case BOOL_VAL:
        out->kind = BY__FEAST_VALUE_INTEGER;
        out->integer = f->bits != 0;
        return true;
    case DOUBLE_VAL:
    case FLOAT_VAL:
        out->kind = BY__FEAST_VALUE_REAL;
        out->real = f->number == DOUBLE_VAL ? double_of(f->bits) : float_of(f->bits);
        return true;
    case NULL_VAL:
        out->kind = BY__FEAST_VALUE_NULL;
        return true;
    default:
        return true;
    }
}

bool by__feature_feast_value_read(by__feature_feast_value *out, const void *data, size_t size)
{
    protobuf_reader r = {data, (const uint8_t *)data + size};
    by__feature_feast_value value = {.kind = BY__FEAST_VALUE_NULL};
    while (r.at < r.end) {
        field f;
        if (!read_field(&r, &f) || !next_field(&value, &f)) {
            return false;
        }
    }
    *out = value;
    return true;
}

bool by__feature_feast_time_read(double *out, const void *data, size_t size)
{
    protobuf_reader r = {data, (const uint8_t *)data + size};
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    while (r.at < r.end) {
        field f;
        if (!read_field(&r, &f) || (f.number <= 2 && f.wire != VARINT)) {
            return false;
        }
        seconds = f.number == 1 ? (int64_t)f.bits : seconds;
        nanoseconds = f.number == 2 ? (int32_t)(uint32_t)f.bits : nanoseconds;
    }
    if (nanoseconds < 0 || nanoseconds >= 1000000000) {
        return false;
    }
    *out = (double)seconds + (double)nanoseconds * 1e-9;
    return true;
}
