/* Normal forms (Unicode Standard Annex 15): decompose, order marks by combining class, compose. */
#include <string.h>

#include "base/base.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_forms.h"

/* Hangul syllables are composed arithmetically. */
#define HANGUL_BASE  0xac00u
#define HANGUL_COUNT 11172u
#define L_BASE       0x1100u
#define L_COUNT      19u
#define V_BASE       0x1161u
#define V_COUNT      21u
#define T_BASE       0x11a7u
#define T_COUNT      28u

uint32_t by__text_find_range(const by__text_tokenizer_code_range *ranges, size_t count,
                             uint32_t code)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && ranges[low].first <= code ? (uint32_t)low : UINT32_MAX;
}

unsigned by__text_case_class(uint32_t code)
{
    uint32_t at = by__text_find_range(by__text_cases, by__text_case_count, code);
    return at == UINT32_MAX ? 0 : by__text_cases[at].value;
}

static unsigned combining_class(uint32_t code)
{
    uint32_t at = code < 0x300
                      ? UINT32_MAX
                      : by__text_find_range(by__text_combining, by__text_combining_count, code);
    return at == UINT32_MAX ? 0 : by__text_combining[at].value;
}

bool by__text_form_changes(by__text_form form, const uint8_t *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        if (s[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t code;
        at += by__utf8_next(s + at, n - at, &code);
        if (code == BY__INVALID) {
            continue;
        }
        /* Marks, which compose, begin at U+0300. */
        if (form != BY__NFC ||
            (code >= 0x300 &&
             by__text_find_range(by__text_suspects, by__text_suspect_count, code) != UINT32_MAX)) {
            return true;
        }
    }
    return false;
}

static by_status add_code(by__text_code_points *codes, uint32_t code, by_error *error)
{
    BY_TRY(by__reserve((void **)&codes->items, &codes->capacity, codes->count + 1,
                       sizeof *codes->items, error));
    codes->items[codes->count++] = code;
    return BY_OK;
}

static const by__text_decomposition *find_decomposition(uint32_t code)
{
    size_t low = 0;
    size_t high = by__text_decomposition_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by__text_decompositions[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < by__text_decomposition_count && by__text_decompositions[low].code == code
               ? &by__text_decompositions[low]
               : NULL;
}

static by_status decompose(by__text_form form, uint32_t code, by__text_code_points *codes,
                           by_error *error)
{
    if (code < 0x80) {
        return add_code(codes, code, error);
    }
    if (code - HANGUL_BASE < HANGUL_COUNT) {
        uint32_t index = code - HANGUL_BASE;
        BY_TRY(add_code(codes, L_BASE + index / (V_COUNT * T_COUNT), error));
        BY_TRY(add_code(codes, V_BASE + index % (V_COUNT * T_COUNT) / T_COUNT, error));
        return index % T_COUNT == 0 ? BY_OK : add_code(codes, T_BASE + index % T_COUNT, error);
    }
    const by__text_decomposition *d = find_decomposition(code);
    bool compatible = form == BY__NFKC || form == BY__NFKD;
    size_t length = d == NULL ? 0 : compatible ? d->compatible_length : d->canonical_length;
    if (length == 0) {
        return add_code(codes, code, error);
    }
    const uint32_t *from = by__text_form_pool + (compatible ? d->compatible : d->canonical);
    for (size_t i = 0; i < length; i++) {
        BY_TRY(add_code(codes, from[i], error));
    }
    return BY_OK;
}

/* Sorts a run of marks by class; equal classes keep their order. A counting sort, with the space
 * after the codes as scratch, so that a text of marks only costs no more than another. */
static void sort_marks(uint32_t *run, size_t count, uint32_t *scratch)
{
    size_t place[256] = {0};
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        place[combining_class(run[i])]++;
    }
    for (size_t k = 0; k < BY_ARRAY_LENGTH(place); k++) {
        size_t held = place[k];
        place[k] = sum;
        sum += held;
    }
    for (size_t i = 0; i < count; i++) {
        scratch[place[combining_class(run[i])]++] = run[i];
    }
    memcpy(run, scratch, count * sizeof *run);
}

static by_status order_marks(by__text_code_points *codes, size_t begin, by_error *error)
{
    while (begin < codes->count) {
        size_t end = begin;
        bool sorted = true;
        unsigned last = 0;
        for (unsigned kind; end < codes->count && (kind = combining_class(codes->items[end])) != 0;
             end++) {
            sorted = sorted && last <= kind;
            last = kind;
        }
        if (!sorted) {
            size_t count = end - begin;
            BY_TRY(by__reserve((void **)&codes->items, &codes->capacity, codes->count + count,
                               sizeof *codes->items, error));
            sort_marks(codes->items + begin, count, codes->items + codes->count);
        }
        begin = end + (end == begin ? 1 : 0);
    }
    return BY_OK;
}

/* The composition of two code points; 0: there is none. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT) {
        return HANGUL_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    }
    if (first - HANGUL_BASE < HANGUL_COUNT && (first - HANGUL_BASE) % T_COUNT == 0 &&
        second > T_BASE && second - T_BASE < T_COUNT) {
        return first + (second - T_BASE);
    }
    size_t low = 0;
    size_t high = by__text_composition_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const by__text_composition *c = &by__text_compositions[middle];
        if (c->first < first || (c->first == first && c->second < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < by__text_composition_count && by__text_compositions[low].first == first &&
                   by__text_compositions[low].second == second
               ? by__text_compositions[low].code
               : 0;
}

/* Composes in place; returns the number of code points left. */
static size_t compose(uint32_t *codes, size_t count)
{
    size_t used = 0;
    size_t starter = SIZE_MAX; /* index of the last starter, with which marks compose */
    unsigned last = 0;         /* class of the last code point after it that was kept */
    for (size_t i = 0; i < count; i++) {
        unsigned kind = combining_class(codes[i]);
        bool next_to = starter != SIZE_MAX && used == starter + 1;
        if (starter != SIZE_MAX && (next_to || (last < kind && last != 0))) {
            uint32_t composed = compose_pair(codes[starter], codes[i]);
            if (composed != 0) {
                codes[starter] = composed;
                continue;
            }
        }
        if (kind == 0) {
            starter = used;
        }
        last = kind;
        codes[used++] = codes[i];
    }
    return used;
}

by_status by__text_form_make(by__text_form form, const uint8_t *s, size_t n,
                             by__text_code_points *codes, by_error *error)
{
    size_t begin = codes->count;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        uint8_t byte = s[at];
        at += by__utf8_next(s + at, n - at, &code);
        BY_TRY(code == BY__INVALID ? add_code(codes, BY__BYTE_CODE + byte, error)
                                   : decompose(form, code, codes, error));
    }
    if (codes->count == begin) {
        return BY_OK;
    }
    BY_TRY(order_marks(codes, begin, error));
    if (form == BY__NFC || form == BY__NFKC) {
        codes->count = begin + compose(codes->items + begin, codes->count - begin);
    }
    return BY_OK;
}
