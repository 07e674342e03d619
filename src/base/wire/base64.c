#include "base/wire/base64.h"

void by__base64_add(by__text *out, const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *b = bytes;
    char buffer[1024];
    size_t used = 0;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) |
                        (left > 2 ? (uint32_t)b[i + 2] : 0);
        for (size_t k = 0; k < 4; k++) {
            buffer[used++] = k > left ? '=' : digits[bits >> (18 - 6 * k) & 63];
        }
        if (used == sizeof buffer) {
            by__text_add_bytes(out, buffer, used);
            used = 0;
        }
    }
    by__text_add_bytes(out, buffer, used);
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool by__base64_decode(const char *s, size_t n, uint8_t *out, size_t *length)
{
    size_t used = 0;
    if (n % 4 != 0) {
        return false;
    }
    for (size_t i = 0; i < n; i += 4) {
        bool last = i + 4 == n;
        size_t pad = last && s[i + 3] == '=' ? (s[i + 2] == '=' ? 2u : 1u) : 0u;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int value = k >= 4 - pad ? 0 : value_of(s[i + k]);
            if (value < 0) {
                return false;
            }
            bits = bits << 6 | (uint32_t)value;
        }
        for (size_t k = 0; k < 3 - pad; k++) {
            out[used++] = (uint8_t)(bits >> (16 - 8 * k));
        }
    }
    *length = used;
    return true;
}
