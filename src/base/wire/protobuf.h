/* Writes protocol buffers (protobuf.dev, "Encoding"). A message is a concatenation of fields; each
 * call appends one field to `out`. */
#ifndef BY_BASE_WIRE_PROTOBUF_H
#define BY_BASE_WIRE_PROTOBUF_H

#include "base/base.h"

void by__proto_int(by_string *out, uint32_t field, int64_t value); /* also uint, bool, enum */
void by__proto_float(by_string *out, uint32_t field, float value);
void by__proto_double(by_string *out, uint32_t field, double value);
void by__proto_doubles(by_string *out, uint32_t field, const double *values, size_t n); /* packed */
void by__proto_bytes(by_string *out, uint32_t field, const void *data, size_t n);
void by__proto_string(by_string *out, uint32_t field, const char *s);
/* Appends `message` as a field, then empties it but keeps its memory for reuse. */
void by__proto_message(by_string *out, uint32_t field, by_string *message);

/* Store numbers in little-endian order. */
void by__put_u32(uint8_t out[4], uint32_t value);
void by__put_u64(uint8_t out[8], uint64_t value);

/* Returns the CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of n bytes. */
uint32_t by__crc32c(const void *data, size_t n);

#endif
