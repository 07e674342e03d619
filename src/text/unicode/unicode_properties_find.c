/* Look-ups in the tables of unicode_properties.c, and the borders of grapheme clusters. */
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_properties.h"

unsigned by__text_properties_of(uint32_t code)
{
    uint32_t at = by__text_find_range(by__text_properties, by__text_property_count, code);
    return at == UINT32_MAX ? 0 : by__text_properties[at].value;
}

uint32_t by__text_lower(uint32_t code)
{
    if (code < 0x80) {
        return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
    }
    size_t low = 0;
    size_t high = by__text_lower_case_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by__text_lower_cases[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < by__text_lower_case_count && by__text_lower_cases[low].code == code
               ? by__text_lower_cases[low].lower
               : code;
}

/* Parts of Hangul syllables. */
enum { NONE = 0, LEADING = 1, VOWEL = 2, TRAILING = 3, OPEN = 4, CLOSED = 5 };

static unsigned hangul(uint32_t c)
{
    if (c < 0x1100 || c > 0xd7fb) {
        return NONE;
    }
    if (c >= 0xac00 && c < 0xac00 + 11172) {
        return (c - 0xac00) % 28 == 0 ? OPEN : CLOSED;
    }
    return c < 0x1160 || (c >= 0xa960 && c <= 0xa97c)                     ? LEADING
           : (c >= 0x1160 && c <= 0x11a7) || (c >= 0xd7b0 && c <= 0xd7c6) ? VOWEL
           : (c >= 0x11a8 && c <= 0x11ff) || c >= 0xd7cb                  ? TRAILING
                                                                          : NONE;
}

/* A cluster so far: what its last characters join. */
typedef struct cluster {
    unsigned kind;   /* class of the last character */
    unsigned hangul; /* of the last character */
    bool picture;    /* a picture and what extends it, and then: */
    bool joiner;     /* the last character is U+200D */
    bool consonant;  /* a consonant and what extends it, and among that: */
    bool linker;
} cluster;

static void follow(cluster *c, uint32_t code, unsigned kind)
{
    bool extends = kind == BY__CLUSTER_EXTEND || kind == BY__CLUSTER_LINKER;
    c->kind = kind;
    c->hangul = hangul(code);
    c->picture = kind == BY__CLUSTER_PICTURE || (c->picture && extends && !c->joiner);
    c->joiner = code == 0x200d;
    c->linker = kind == BY__CLUSTER_LINKER || (c->linker && extends);
    c->consonant = kind == BY__CLUSTER_CONSONANT || (c->consonant && extends && code != 0x200c);
}

static bool joins(const cluster *c, uint32_t code, unsigned kind)
{
    unsigned h = hangul(code);
    if (kind == BY__CLUSTER_EXTEND || kind == BY__CLUSTER_LINKER || kind == BY__CLUSTER_SPACING) {
        return true;
    }
    if (kind == BY__CLUSTER_BREAK) {
        return false;
    }
    return c->kind == BY__CLUSTER_PREPEND ||
           (c->hangul == LEADING && (h == LEADING || h == VOWEL || h >= OPEN)) ||
           ((c->hangul == VOWEL || c->hangul == OPEN) && (h == VOWEL || h == TRAILING)) ||
           ((c->hangul == TRAILING || c->hangul == CLOSED) && h == TRAILING) ||
           (kind == BY__CLUSTER_PICTURE && c->picture && c->joiner) ||
           (kind == BY__CLUSTER_CONSONANT && c->consonant && c->linker);
}

size_t by__text_cluster(const uint8_t *s, size_t n)
{
    cluster c = {0};
    uint32_t code;
    size_t at = by__utf8_next(s, n, &code);
    if (code == '\r') {
        return n > 1 && s[1] == '\n' ? 2 : 1;
    }
    unsigned kind = code == BY__INVALID ? BY__CLUSTER_BREAK
                                        : by__text_properties_of(code) & (unsigned)BY__CLUSTER;
    if (kind == BY__CLUSTER_BREAK) {
        return at;
    }
    for (;;) {
        follow(&c, code, kind);
        if (at == n) {
            return at;
        }
        size_t length = by__utf8_next(s + at, n - at, &code);
        kind = code == BY__INVALID ? BY__CLUSTER_BREAK
                                   : by__text_properties_of(code) & (unsigned)BY__CLUSTER;
        if (!joins(&c, code, kind)) {
            return at;
        }
        at += length;
    }
}
