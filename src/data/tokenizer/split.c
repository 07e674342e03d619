#include "data/tokenizer/split.h"

#include "data/tokenizer/unicode.h"

#define L BY__LETTER
#define N BY__NUMBER
#define S BY__SPACE
/* Classes of ASCII; 0 is BY__OTHER. */
static const uint8_t ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, N, N, N, N, N, N, N, N, N, N, 0, 0, 0, 0, 0, 0,
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0,
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0,
};
#undef L
#undef N
#undef S

/* Class and length of the character at s (n >= 1). */
static inline unsigned class_at(const uint8_t *s, size_t n, size_t *length)
{
    if (s[0] < 0x80) {
        *length = 1;
        return ascii[s[0]];
    }
    uint32_t code;
    *length = by__utf8_next(s, n, &code);
    return by__code_class(code) & BY__CLASS;
}

/* End of the run of characters of class `kind` from i on. */
static inline size_t run(const uint8_t *s, size_t n, size_t i, unsigned kind)
{
    while (i < n) {
        if (s[i] < 0x80) {
            if (ascii[s[i]] != kind) {
                return i;
            }
            i++;
        } else {
            size_t length;
            if (class_at(s + i, n - i, &length) != kind) {
                return i;
            }
            i += length;
        }
    }
    return n;
}

/* Length of the contraction at s, which begins with an apostrophe; 0 if there is none. */
static size_t contraction(const uint8_t *s, size_t n)
{
    if (n < 2) {
        return 0;
    }
    switch (s[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return n >= 3 && s[2] == 'e' ? 3 : 0;
    case 'l':
        return n >= 3 && s[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

static size_t spaces(const uint8_t *s, size_t n)
{
    size_t end = 0;
    size_t last = 0; /* where the last space begins */
    size_t length;
    while (end < n && class_at(s + end, n - end, &length) == BY__SPACE) {
        last = end;
        end += length;
    }
    return end == n || last == 0 ? end : last;
}

size_t by__split_next(const uint8_t *s, size_t n)
{
    size_t length;
    if (s[0] == ' ' && n > 1) {
        unsigned kind = class_at(s + 1, n - 1, &length);
        return kind == BY__SPACE ? spaces(s, n) : run(s, n, 1 + length, kind);
    }
    if (s[0] == '\'') {
        size_t short_form = contraction(s, n);
        if (short_form > 0) {
            return short_form;
        }
    }
    unsigned kind = class_at(s, n, &length);
    return kind == BY__SPACE ? spaces(s, n) : run(s, n, length, kind);
}

size_t by__split_chunk(const uint8_t *s, size_t n, size_t wanted)
{
    for (size_t i = wanted < 1 ? 1 : wanted; i < n; i++) {
        if (s[i] < 0x80 && ascii[s[i]] == BY__SPACE && s[i - 1] < 0x80 &&
            ascii[s[i - 1]] != BY__SPACE) {
            return i;
        }
    }
    return n;
}
