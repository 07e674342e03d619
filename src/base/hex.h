/* Hexadecimal digits. */
#ifndef BY_BASE_HEX_H
#define BY_BASE_HEX_H

/* Returns the value of a digit of either case, or -1 for any other character. */
static inline int by__hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

#endif
