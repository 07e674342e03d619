/* Base64 with padding (RFC 4648, section 4). */
#ifndef BY_BASE_WIRE_BASE64_H
#define BY_BASE_WIRE_BASE64_H

#include "base/base.h"

/* Upper bound of the bytes that n digits decode to. */
#define BY__BASE64_BYTES(n) ((n) / 4 * 3)

/* Appends the base64 digits of n bytes. */
void by__base64_add(by__text *out, const void *bytes, size_t n);
/* Decodes n digits into `out`, which has room for BY__BASE64_BYTES(n). Returns false if they are
 * not valid base64. */
bool by__base64_decode(const char *digits, size_t n, uint8_t *out, size_t *length);

#endif
