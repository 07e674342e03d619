#include "base/wire/protobuf.h"

#include <string.h>

enum { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

static void add_varint(by_string *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)(value & 0x7f);
        value >>= 7;
        bytes[n] |= value != 0 ? 0x80 : 0;
        n++;
    } while (value != 0);
    by_string_add(out, bytes, n);
}

static void add_tag(by_string *out, uint32_t field, unsigned wire)
{
    add_varint(out, (uint64_t)field << 3 | wire);
}

void by__put_u32(uint8_t out[4], uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

void by__put_u64(uint8_t out[8], uint64_t value)
{
    by__put_u32(out, (uint32_t)value);
    by__put_u32(out + 4, (uint32_t)(value >> 32));
}

static void add_f64(by_string *out, double value)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &value, sizeof bits);
    by__put_u64(bytes, bits);
    by_string_add(out, bytes, sizeof bytes);
}

void by__proto_int(by_string *out, uint32_t field, int64_t value)
{
    add_tag(out, field, varint);
    add_varint(out, (uint64_t)value);
}

void by__proto_float(by_string *out, uint32_t field, float value)
{
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &value, sizeof bits);
    by__put_u32(bytes, bits);
    add_tag(out, field, fixed32);
    by_string_add(out, bytes, sizeof bytes);
}

void by__proto_double(by_string *out, uint32_t field, double value)
{
    add_tag(out, field, fixed64);
    add_f64(out, value);
}

void by__proto_doubles(by_string *out, uint32_t field, const double *values, size_t n)
{
    add_tag(out, field, delimited);
    add_varint(out, n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        add_f64(out, values[i]);
    }
}

void by__proto_bytes(by_string *out, uint32_t field, const void *data, size_t n)
{
    add_tag(out, field, delimited);
    add_varint(out, n);
    by_string_add(out, data, n);
}

void by__proto_string(by_string *out, uint32_t field, const char *s)
{
    by__proto_bytes(out, field, s, strlen(s));
}

void by__proto_message(by_string *out, uint32_t field, by_string *message)
{
    out->failed = out->failed || message->failed;
    by__proto_bytes(out, field, message->data == NULL ? "" : message->data, message->length);
    message->length = 0;
}

uint32_t by__crc32c(const void *data, size_t n)
{
    const uint8_t *bytes = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        }
    }
    return ~crc;
}
