/* Characters of UTF-8 (text.c), and files of text (file.c). */
#ifndef BY_BASE_UTF8_H
#define BY_BASE_UTF8_H

#include "base/base.h"

/* Reads the character at s (n >= 1 bytes). Returns its length, 1 to 4, and the code point; a byte
 * that does not begin valid UTF-8 (overlong, surrogate, truncated, ...) gives 1 and BY__INVALID. */
#define BY__INVALID UINT32_MAX
static inline size_t by__utf8_next(const uint8_t *s, size_t n, uint32_t *code)
{
    uint32_t c = s[0];
    if (c < 0x80) {
        *code = c;
        return 1;
    }
    if (c >= 0xc2 && c < 0xe0 && n >= 2 && (s[1] & 0xc0) == 0x80) {
        *code = (c & 0x1f) << 6 | (s[1] & 0x3fu);
        return 2;
    }
    if (c >= 0xe0 && c < 0xf0 && n >= 3 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80) {
        uint32_t u = (c & 0x0f) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        if (u >= 0x800 && (u < 0xd800 || u > 0xdfff)) {
            *code = u;
            return 3;
        }
    }
    if (c >= 0xf0 && c < 0xf5 && n >= 4 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 &&
        (s[3] & 0xc0) == 0x80) {
        uint32_t u = (c & 0x07) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
        if (u >= 0x10000 && u < 0x110000) {
            *code = u;
            return 4;
        }
    }
    *code = BY__INVALID;
    return 1;
}

/* Returns how many of the bytes at s (n >= 1), which do not begin a valid character, are replaced
 * by one U+FFFD: the longest beginning of one that more bytes could complete, else one byte
 * (Unicode 16, section 3.9, as Python and the WHATWG do). */
static inline size_t by__utf8_broken(const uint8_t *s, size_t n)
{
    uint32_t c = s[0];
    uint32_t least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80; /* of the second byte */
    uint32_t most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0xe0 || c > 0xf4 || n < 2 || s[1] < least || s[1] > most) {
        return 1;
    }
    return c >= 0xf0 && n >= 3 && (s[2] & 0xc0) == 0x80 ? 3 : 2;
}

/* Writes a valid code point as UTF-8; returns its length. */
static inline size_t by__utf8_put(uint8_t out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* Whether a byte begins a character: it does not continue one. */
static inline bool by__utf8_begins(char byte)
{
    return ((uint8_t)byte & 0xc0) != 0x80;
}

/* Number of characters that begin in n bytes. */
static inline size_t by__utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += by__utf8_begins(s[i]) ? 1 : 0;
    }
    return count;
}

/* Returns the length of the valid sequence at s, of which n > 0 bytes are left; 0: there is
 * none. */
size_t by__utf8_span(const char *s, size_t n);
/* The bytes of a byte-order mark at the beginning of a text, 3 or 0. */
size_t by__mark_span(const char *s, size_t n);
/* by__file_read without a byte-order mark. */
by_status by__file_read_text(char **out, size_t *length, const char *path, size_t max,
                             by_error *error);

#endif
