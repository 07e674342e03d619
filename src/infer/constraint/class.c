/* Character classes as automata over UTF-8 bytes: code points with a common byte share a path, and
 * equal endings share states (as in RE2). Inside a JSON string, quotes, backslashes and control
 * characters are written as escapes. */
#include <stdlib.h>
#include <string.h>

#include "infer/constraint/byte_language.h"

#define LAST_CODE 0x10ffffu

typedef struct class_builder {
    by__constraint_nfa *nfa;
    int32_t to;
    int32_t any[4]; /* any[k]: the state from which any k continuation bytes lead to `to` */
    by_error *error;
} class_builder;

/* Finds the state from which any `count` bytes 80..BF lead to the end. */
static by_status continuation(class_builder *b, int count, int32_t *out)
{
    if (count == 0) {
        *out = b->to;
        return BY_OK;
    }
    if (b->any[count] < 0) {
        int32_t next;
        BY_TRY(continuation(b, count - 1, &next));
        BY_TRY(by__constraint_nfa_state_add(b->nfa, &b->any[count], b->error));
        BY_TRY(by__constraint_nfa_edge(b->nfa, b->any[count], 0x80, 0xbf, next, b->error));
    }
    *out = b->any[count];
    return BY_OK;
}

/* How the bits of a code point from `shift` on are encoded as a byte. */
typedef struct digit {
    int shift;
    uint32_t mark;
    uint32_t bits;
} digit;

static uint8_t byte_of(const digit *d, uint32_t code)
{
    return (uint8_t)(d->mark | (code >> d->shift & d->bits));
}

/* Adds edges from `from` for the code points of sorted ranges, which are consumed. */
static by_status add_ranges(class_builder *b, int32_t from, by__constraint_code_range *ranges,
                            size_t count, const digit *d)
{
    uint32_t unit = 1u << d->shift;
    for (size_t i = 0; i < count;) {
        by__constraint_code_range *r = &ranges[i];
        uint32_t low = r->first & ~(unit - 1);
        uint32_t last;
        int32_t next;
        if (r->first == low && r->last - low >= unit - 1) { /* leading bytes after which any
                                                               continuation is allowed */
            last = ((r->last + 1) & ~(unit - 1)) - 1;
            BY_TRY(continuation(b, d->shift / 6, &next));
            BY_TRY(by__constraint_nfa_edge(b->nfa, from, byte_of(d, r->first), byte_of(d, last),
                                           next, b->error));
            r->first = last + 1;
            i += r->first > r->last ? 1 : 0;
            continue;
        }
        size_t inside = 1;
        last = low + unit - 1;
        while (i + inside < count && ranges[i + inside].first <= last) {
            inside++;
        }
        by__constraint_code_range *end = &ranges[i + inside - 1];
        by__constraint_code_range rest = {last + 1,
                                          end->last}; /* the part of the last range after this
                                                        leading byte */
        const digit below = {d->shift > 6 ? d->shift - 6 : 0, 0x80, 0x3f};
        end->last = end->last < last ? end->last : last;
        BY_TRY(by__constraint_nfa_state_add(b->nfa, &next, b->error));
        BY_TRY(by__constraint_nfa_edge(b->nfa, from, byte_of(d, low), byte_of(d, low), next,
                                       b->error));
        BY_TRY(add_ranges(b, next, r, inside, &below));
        *end = rest;
        i += rest.first <= rest.last ? inside - 1 : inside;
    }
    return BY_OK;
}

/* Copies the part of a class from `first` to `last` without escaped characters to `out`. Returns
 * the number of ranges. */
static size_t cut_out(by__constraint_code_range *out, const by__constraint_character_class *class,
                      uint32_t first, uint32_t last, const bool escaped[128])
{
    size_t count = 0;
    for (size_t i = 0; i < class->count; i++) {
        by__constraint_code_range r = class->ranges[i];
        r.first = r.first > first ? r.first : first;
        r.last = r.last < last ? r.last : last;
        for (uint32_t c = r.first; c <= r.last && c < 0x80; c++) {
            if (escaped[c]) {
                if (c > r.first) {
                    out[count++] = (by__constraint_code_range){r.first, c - 1};
                }
                r.first = c + 1;
            }
        }
        if (r.first <= r.last) {
            out[count++] = r;
        }
    }
    return count;
}

static by_status add_raw(class_builder *b, int32_t from,
                         const by__constraint_character_class *class, const bool escaped[128])
{
    static const struct {
        uint32_t first;
        uint32_t last;
        digit lead;
    } lengths[] = {{0, 0x7f, {0, 0, 0x7f}},
                   {0x80, 0x7ff, {6, 0xc0, 0x1f}},
                   {0x800, 0xd7ff, {12, 0xe0, 0x0f}}, /* surrogates are not characters */
                   {0xe000, 0xffff, {12, 0xe0, 0x0f}},
                   {0x10000, LAST_CODE, {18, 0xf0, 0x07}}};
    by__constraint_code_range *own;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&own, class->count + 128, sizeof *own, "a constraint", b->error));
    for (size_t k = 0; k < BY_ARRAY_LENGTH(lengths) && status == BY_OK; k++) {
        size_t count = cut_out(own, class, lengths[k].first, lengths[k].last, escaped);
        status = add_ranges(b, from, own, count, &lengths[k].lead);
    }
    free(own);
    return status;
}

/* Adds what may follow a backslash: a letter for some characters, \u00XX for the other control
 * characters. */
static by_status add_escapes(class_builder *b, int32_t from, const bool escaped[128])
{
    static const char characters[] = "\"\\\b\f\n\r\t";
    static const char letters[] = "\"\\bfnrt";
    static const char hex[] = "0123456789abcdef";
    int32_t at[6] = {from};
    int upper = -1; /* the first of the last two digits, behind which at[5] is */
    for (int i = 1; i < 5; i++) {
        BY_TRY(by__constraint_nfa_state_add(b->nfa, &at[i], b->error));
    }
    BY_TRY(by__constraint_nfa_edge(b->nfa, from, '\\', '\\', at[1], b->error));
    BY_TRY(by__constraint_nfa_edge(b->nfa, at[1], 'u', 'u', at[2], b->error));
    BY_TRY(by__constraint_nfa_edge(b->nfa, at[2], '0', '0', at[3], b->error));
    BY_TRY(by__constraint_nfa_edge(b->nfa, at[3], '0', '0', at[4], b->error));
    for (int c = 0; c < 128; c++) {
        const char *place = c == 0 ? NULL : strchr(characters, c);
        if (!escaped[c]) {
            continue;
        }
        if (place != NULL) {
            uint8_t letter = (uint8_t)letters[place - characters];
            BY_TRY(by__constraint_nfa_edge(b->nfa, at[1], letter, letter, b->to, b->error));
            continue;
        }
        if (c / 16 != upper) {
            upper = c / 16;
            BY_TRY(by__constraint_nfa_state_add(b->nfa, &at[5], b->error));
            BY_TRY(by__constraint_nfa_edge(b->nfa, at[4], (uint8_t)hex[upper], (uint8_t)hex[upper],
                                           at[5], b->error));
        }
        BY_TRY(by__constraint_nfa_edge(b->nfa, at[5], (uint8_t)hex[c % 16], (uint8_t)hex[c % 16],
                                       b->to, b->error));
    }
    return BY_OK;
}

by_status by__constraint_nfa_class(by__constraint_nfa *nfa,
                                   const by__constraint_character_class *class, int32_t from,
                                   int32_t to, by_error *error)
{
    class_builder b = {.nfa = nfa, .to = to, .any = {-1, -1, -1, -1}, .error = error};
    bool escaped[128] = {false};
    bool any = false;
    for (size_t i = 0; i < class->count && class->writing == BY__IN_JSON; i++) {
        for (uint32_t c = class->ranges[i].first; c <= class->ranges[i].last && c < 0x80; c++) {
            escaped[c] = c < 0x20 || c == '"' || c == '\\';
            any = any || escaped[c];
        }
    }
    BY_TRY(add_raw(&b, from, class, escaped));
    return any ? add_escapes(&b, from, escaped) : BY_OK;
}
