/* Base64, by nettle. */
#include <nettle/base64.h>

#include "base/base.h"

#define PIECE 192 /* bytes at a time; a multiple of 3 leaves no padding between pieces */

void by__string_add_base64(by_string *text, const void *bytes, size_t n)
{
    char digits[BASE64_ENCODE_RAW_LENGTH(PIECE)];
    by__string_append(text, ""); /* text, even of no bytes */
    for (size_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        base64_encode_raw(digits, count, (const uint8_t *)bytes + at);
        by_string_add(text, digits, BASE64_ENCODE_RAW_LENGTH(count));
    }
}

bool by__read_base64(const char *digits, size_t n, uint8_t *out, size_t *length)
{
    size_t padding = n < 2 || digits[n - 1] != '=' ? 0 : digits[n - 2] != '=' ? 1 : 2;
    size_t bytes = BY__BASE64_BYTES(n);
    struct base64_decode_ctx state;
    base64_decode_init(&state);
    /* White space, which nettle skips, gives fewer bytes. */
    if (n % 4 != 0 || !base64_decode_update(&state, &bytes, out, n, digits) ||
        !base64_decode_final(&state) || bytes + padding != BY__BASE64_BYTES(n)) {
        return false;
    }
    *length = bytes;
    return true;
}
