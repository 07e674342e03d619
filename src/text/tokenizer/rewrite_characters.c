/* Rewriting of characters one by one: BERT's normalizer, StripAccents, Lowercase. */
#include "base/base.h"
#include "text/tokenizer/text_pipeline.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_properties.h"

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* What is done to ASCII. */
typedef struct ascii_table {
    uint8_t to[128];
    bool drops[128];
} ascii_table;

static void make_ascii(ascii_table *table, unsigned actions)
{
    for (unsigned c = 0; c < 128; c++) {
        bool clean = (actions & BY__CHARACTERS_CLEAN) != 0;
        bool space = (by__unicode_class(c) & BY__CLASS) == BY__SPACE;
        table->drops[c] = clean && (by__text_properties_of(c) & BY__PROPERTY_CONTROL) != 0;
        table->to[c] = (uint8_t)(clean && space                               ? (unsigned)' '
                                 : (actions & BY__CHARACTERS_LOWER_CASE) != 0 ? by__text_lower(c)
                                                                              : c);
    }
}

/* A character, or a byte that is none, before marks are dropped. */
static size_t first_pass(unsigned actions, uint32_t code, const uint8_t *s, size_t n,
                         uint8_t out[8])
{
    size_t used = 0;
    bool clean = (actions & BY__CHARACTERS_CLEAN) != 0;
    if (clean && (by__text_properties_of(code) & BY__PROPERTY_CONTROL) != 0) {
        return 0;
    }
    if (clean && (by__code_class(code) & BY__CLASS) == BY__SPACE) {
        out[0] = ' ';
        return 1;
    }
    bool apart = (actions & BY__CHARACTERS_SEPARATE) != 0 && is_chinese(code);
    if (apart) {
        out[used++] = ' ';
    }
    for (size_t i = 0; i < n; i++) {
        out[used++] = s[i];
    }
    if (apart) {
        out[used++] = ' ';
    }
    return used;
}

static by_status put_code(unsigned actions, uint32_t code, by__tokenizer_target *t, by_error *error)
{
    uint8_t utf8[6];
    if (code >= BY__BYTE_CODE) {
        utf8[0] = (uint8_t)(code - BY__BYTE_CODE);
        return by__tokenizer_put(t, utf8, 1, error);
    }
    unsigned properties = code < 0x80 ? 0 : by__text_properties_of(code);
    if (((actions & BY__CHARACTERS_ACCENTS) != 0 && (properties & BY__PROPERTY_NONSPACING) != 0) ||
        ((actions & BY__CHARACTERS_MARKS) != 0 && (properties & BY__PROPERTY_MARK) != 0)) {
        return BY_OK;
    }
    bool lower = (actions & BY__CHARACTERS_LOWER_CASE) != 0;
    size_t n = by__utf8_put(utf8, lower ? by__text_lower(code) : code);
    if (lower && code == 0x130) {
        n += by__utf8_put(utf8 + n, 0x307);
    }
    return by__tokenizer_put(t, utf8, n, error);
}

/* Puts a run that is not ASCII, whose marks change places within it only. */
static by_status put_run(unsigned actions, const uint8_t *s, size_t n, by__tokenizer_target *t,
                         by_error *error)
{
    by_string clean = {0};
    by__text_code_points *codes = &t->rewriting->codes;
    codes->count = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        uint8_t out[8];
        size_t length = by__utf8_next(s + at, n - at, &code);
        bool valid = code != BY__INVALID;
        size_t used = first_pass(valid ? actions : 0, valid ? code : 0, s + at, length, out);
        by_string_add(&clean, out, used);
        at += length;
    }
    by_status status = by_string_check(&clean, error);
    if (status == BY_OK && (actions & BY__CHARACTERS_ACCENTS) != 0) {
        status =
            by__text_form_make(BY__NFD, (const uint8_t *)clean.data, clean.length, codes, error);
        for (size_t i = 0; status == BY_OK && i < codes->count; i++) {
            status = put_code(actions, codes->items[i], t, error);
        }
    } else {
        const uint8_t *text = (const uint8_t *)clean.data;
        for (size_t at = 0; status == BY_OK && at < clean.length;) {
            uint32_t code;
            uint8_t byte = text[at];
            at += by__utf8_next(text + at, clean.length - at, &code);
            status = put_code(actions, code == BY__INVALID ? BY__BYTE_CODE + byte : code, t, error);
        }
    }
    by_string_free(&clean);
    return status;
}

by_status by__tokenizer_put_characters(unsigned actions, const uint8_t *s, size_t n,
                                       by__tokenizer_target *t, by_error *error)
{
    ascii_table table;
    make_ascii(&table, actions);
    for (size_t at = 0; at < n;) {
        uint8_t piece[512];
        size_t used = 0;
        while (at < n && s[at] < 0x80 && used < sizeof piece) {
            piece[used] = table.to[s[at]];
            used += table.drops[s[at]] ? 0 : 1;
            at++;
        }
        BY_TRY(by__tokenizer_put(t, piece, used, error));
        size_t end = at;
        while (end < n && (s[end] >= 0x80 || (end > at && table.drops[s[end]]))) {
            end++;
        }
        if (end > at) {
            BY_TRY(put_run(actions, s + at, end - at, t, error));
            at = end;
        }
    }
    return BY_OK;
}
