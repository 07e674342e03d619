/* The character classes of GPT-2's pattern. */
#ifndef BY_TEXT_UNICODE_UNICODE_H
#define BY_TEXT_UNICODE_UNICODE_H

#include "base/utf8.h"

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

/* Class of a character read by by__utf8_next; an invalid byte is a symbol. */
static inline unsigned by__code_class(uint32_t code)
{
    return code == BY__INVALID ? (unsigned)BY__OTHER : by__unicode_class(code);
}

/* The byte-level letters: byte b is written as the character by__text_byte_letter(b), which is
 * printable and not a space: b itself for 21-7E, A1-AC, AE-FF, the others U+0100 and on in
 * increasing order.
 */
uint32_t by__text_byte_letter(uint8_t byte);
/* The byte of a letter; -1: the code point is not one. */
int by__text_letter_byte(uint32_t code);

#endif
