#include "text/unicode/unicode.h"

/* The 68 substituted letters represent three ranges of bytes: 00-20, 7F-A0 and AD. */

uint32_t by__text_byte_letter(uint8_t byte)
{
    if (byte <= 0x20) {
        return 0x100u + byte;
    }
    if (byte >= 0x7f && byte <= 0xa0) {
        return 0x100u + 33 + (byte - 0x7fu);
    }
    return byte == 0xad ? 0x100u + 67 : byte;
}

int by__text_letter_byte(uint32_t code)
{
    if (code < 0x100) {
        return by__text_byte_letter((uint8_t)code) == code ? (int)code : -1;
    }
    uint32_t n = code - 0x100;
    return n < 33 ? (int)n : n < 67 ? (int)(n - 33 + 0x7f) : n == 67 ? 0xad : -1;
}
