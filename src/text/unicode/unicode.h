/* UTF-8 and the character classes of GPT-2's pattern. */
#ifndef BY_TEXT_UNICODE_UNICODE_H
#define BY_TEXT_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Class of a code point: one of the first four, possibly with BY__WORD. */
enum {
    BY__OTHER = 0,  /* neither \p{L}, \p{N} nor \s */
    BY__LETTER = 1, /* \p{L} */
    BY__NUMBER = 2, /* \p{N} */
    BY__SPACE = 3,  /* \s */
    BY__CLASS = 3,  /* the mask of these */
    BY__WORD = 4    /* \w */
};

#define BY__UNICODE_BLOCKS 0x1100
extern const uint8_t by__unicode_index[BY__UNICODE_BLOCKS];
extern const uint8_t by__unicode_nibbles[][128];

/* Class of a code point below 0x110000. */
static inline unsigned by__unicode_class(uint32_t code)
{
    uint32_t pair = by__unicode_nibbles[by__unicode_index[code >> 8]][(code & 0xff) >> 1];
    return ((unsigned)pair >> ((code & 1) * 4)) & 7u;
}

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

/* Class of a character read by by__utf8_next; an invalid byte is a symbol. */
static inline unsigned by__code_class(uint32_t code)
{
    return code == BY__INVALID ? (unsigned)BY__OTHER : by__unicode_class(code);
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

/* The byte-level letters: byte b is written as the character by__byte_letter(b), which is printable
 * and not a space: b itself for 21-7E, A1-AC, AE-FF, the others U+0100 and on in increasing order.
 */
uint32_t by__byte_letter(uint8_t byte);
/* The byte of a letter; -1: the code point is not one. */
int by__letter_byte(uint32_t code);

#endif
