#include "text/tokenizer/split.h"

#include <string.h>

#include "text/unicode/unicode.h"
#include "text/unicode/unicode_properties.h"

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
static inline size_t run_length(const uint8_t *s, size_t n, size_t i, unsigned kind)
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

/* Length of the contraction at s, which begins with an apostrophe; 0: there is none. */
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
    size_t last = 0; /* start of the last space */
    size_t length;
    while (end < n && class_at(s + end, n - end, &length) == BY__SPACE) {
        last = end;
        end += length;
    }
    return end == n || last == 0 ? end : last;
}

size_t by__tokenizer_split_next(const uint8_t *s, size_t n)
{
    size_t length;
    if (s[0] == ' ' && n > 1) {
        unsigned kind = class_at(s + 1, n - 1, &length);
        return kind == BY__SPACE ? spaces(s, n) : run_length(s, n, 1 + length, kind);
    }
    if (s[0] == '\'') {
        size_t short_form = contraction(s, n);
        if (short_form > 0) {
            return short_form;
        }
    }
    unsigned kind = class_at(s, n, &length);
    return kind == BY__SPACE ? spaces(s, n) : run_length(s, n, length, kind);
}

/* Finds a border that is valid under every rule: a space after a letter or a number, or a space
 * that is not a newline after a symbol. */
size_t by__tokenizer_split_chunk(const uint8_t *s, size_t n, size_t wanted)
{
    for (size_t i = wanted < 1 ? 1 : wanted; i < n; i++) {
        uint8_t before = s[i - 1];
        if (s[i] < 0x80 && ascii[s[i]] == BY__SPACE && before < 0x80 &&
            ascii[before] != BY__SPACE &&
            (ascii[before] != BY__OTHER || (s[i] != '\n' && s[i] != '\r'))) {
            return i;
        }
    }
    return n;
}

/* ---- cl100k's variations ---- */

#define CL100K_END          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define O200K_UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_FIRST         "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "*" O200K_LOWER "+"
#define O200K_SECOND        "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "+" O200K_LOWER "*"

static const by__tokenizer_split_rule rules[] = {
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     true, BY__LETTERS, BY__CONTRACTIONS_APART, 0, false},
    {"gpt-2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     true, BY__LETTERS, BY__CONTRACTIONS_APART, 0, false},
    /* GPT-4, Llama 3, OLMo 2, Phi-4 */
    {"llama-bpe",
     CL100K_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CL100K_END,
     false, BY__LETTERS, BY__CONTRACTIONS_APART, 3, false},
    /* Qwen 2, 2.5, 3 */
    {"qwen2",
     CL100K_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CL100K_END,
     false, BY__LETTERS, BY__CONTRACTIONS_APART, 1, false},
    /* Qwen 3.5 */
    {"qwen35",
     CL100K_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                         "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" CL100K_END,
     false, BY__LETTERS_MARKS, BY__CONTRACTIONS_APART, 1, false},
    /* GPT-4o, gpt-oss, Llama 4 */
    {"gpt-4o",
     O200K_FIRST CL100K_CONTRACTIONS "?|" O200K_SECOND CL100K_CONTRACTIONS "?|\\p{N}{1,3}"
                                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CL100K_END,
     false, BY__LETTERS_CASED, BY__CONTRACTIONS_BEHIND, 3, true},
    /* Mistral's Tekken */
    {"tekken", O200K_FIRST "|" O200K_SECOND "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CL100K_END,
     false, BY__LETTERS_CASED, BY__CONTRACTIONS_NONE, 1, true},
};

const by__tokenizer_split_rule *by__tokenizer_split_rule_find(const char *pattern)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].pattern, pattern) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

const by__tokenizer_split_rule *by__tokenizer_split_rule_named(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].name, name) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

/* Length of the contraction at s in any case; 0: there is none. U+017F is a form of s. */
static size_t contraction_of_any_case(const uint8_t *s, size_t n)
{
    if (n < 2 || s[0] != '\'') {
        return 0;
    }
    uint8_t a = s[1] | 0x20;
    uint8_t b = n >= 3 ? s[2] | 0x20 : 0;
    if (s[1] == 0xc5 && n >= 3 && s[2] == 0xbf) {
        return 3;
    }
    if (s[1] >= 0x80 || a == 's' || a == 't' || a == 'm' || a == 'd') {
        return s[1] >= 0x80 ? 0 : 2;
    }
    bool three = ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l');
    return three && s[2] < 0x80 ? 3 : 0;
}

/* Class and length of the character at s under a rule: with BY__LETTERS_MARKS marks are letters. */
static unsigned kind_at(const by__tokenizer_split_rule *rule, const uint8_t *s, size_t n,
                        size_t *length)
{
    unsigned kind = class_at(s, n, length);
    if (kind == BY__OTHER && rule->letters == BY__LETTERS_MARKS && s[0] >= 0x80) {
        uint32_t code;
        (void)by__utf8_next(s, n, &code);
        return code != BY__INVALID && by__text_case_class(code) == BY__CASE_MARK ? BY__LETTER
                                                                                 : kind;
    }
    return kind;
}

static size_t kind_run(const by__tokenizer_split_rule *rule, const uint8_t *s, size_t n, size_t i,
                       unsigned kind, size_t limit)
{
    size_t length;
    for (size_t count = 0; i < n && count < limit; count++) {
        if (kind_at(rule, s + i, n - i, &length) != kind) {
            break;
        }
        i += length;
    }
    return i;
}

/* Parts of a cased word that the character at s may belong to: 1 the first (upper), 2 the
 * second. */
static unsigned sides_at(const uint8_t *s, size_t n, size_t *length)
{
    static const unsigned sides[] = {0, 1, 2, 3, 3};
    if (s[0] < 0x80) {
        *length = 1;
        return s[0] >= 'A' && s[0] <= 'Z' ? 1 : s[0] >= 'a' && s[0] <= 'z' ? 2 : 0;
    }
    uint32_t code;
    *length = by__utf8_next(s, n, &code);
    return code == BY__INVALID ? 0 : sides[by__text_case_class(code)];
}

static size_t side_run(const uint8_t *s, size_t n, size_t i, unsigned side)
{
    size_t length;
    while (i < n && (sides_at(s + i, n - i, &length) & side) != 0) {
        i += length;
    }
    return i;
}

/* End of UPPER*LOWER+ from i on, as backtracking finds it; 0: no match. */
static size_t mixed_word(const uint8_t *s, size_t n, size_t i)
{
    /* the last character of the first part that could belong to the second */
    size_t last = SIZE_MAX;
    size_t length;
    unsigned sides = 0;
    while (i < n && ((sides = sides_at(s + i, n - i, &length)) & 1) != 0) {
        last = (sides & 2) != 0 ? i : last;
        i += length;
    }
    if (i < n && (sides & 2) != 0) {
        return side_run(s, n, i, 2);
    }
    return last == SIZE_MAX ? 0 : side_run(s, n, last, 2);
}

/* End of a word under BY__LETTERS_CASED; 0: no match. `skip`: length of the character that may
 * precede it, 0: none may. */
static size_t cased_word(const uint8_t *s, size_t n, size_t skip)
{
    size_t end = skip > 0 && skip < n ? mixed_word(s, n, skip) : 0;
    if (end == 0) {
        end = mixed_word(s, n, 0);
    }
    if (end == 0 && skip > 0 && (end = side_run(s, n, skip, 1)) == skip) {
        end = 0;
    }
    return end > 0 ? end : side_run(s, n, 0, 1);
}

static size_t word_end(const by__tokenizer_split_rule *rule, const uint8_t *s, size_t n,
                       unsigned kind, size_t length)
{
    bool skips = kind != BY__LETTER && kind != BY__NUMBER && s[0] != '\r' && s[0] != '\n';
    size_t next;
    if (rule->letters == BY__LETTERS_CASED) {
        size_t end = cased_word(s, n, skips ? length : 0);
        if (end > 0 && rule->contractions == BY__CONTRACTIONS_BEHIND) {
            end += contraction_of_any_case(s + end, n - end);
        }
        return end;
    }
    if (kind == BY__LETTER) {
        return kind_run(rule, s, n, length, BY__LETTER, SIZE_MAX);
    }
    if (!skips || length == n || kind_at(rule, s + length, n - length, &next) != BY__LETTER) {
        return 0;
    }
    return kind_run(rule, s, n, length + next, BY__LETTER, SIZE_MAX);
}

static size_t rule_next(const by__tokenizer_split_rule *rule, const uint8_t *s, size_t n)
{
    size_t length;
    unsigned kind = kind_at(rule, s, n, &length);
    size_t end = rule->contractions == BY__CONTRACTIONS_APART ? contraction_of_any_case(s, n) : 0;
    if (end == 0) {
        end = word_end(rule, s, n, kind, length);
    }
    if (end > 0) {
        return end;
    }
    if (kind == BY__NUMBER) {
        return kind_run(rule, s, n, 0, BY__NUMBER, rule->digits);
    }
    size_t begin = s[0] == ' ' ? 1 : 0;
    if (begin < n && kind_at(rule, s + begin, n - begin, &length) == BY__OTHER) {
        end = kind_run(rule, s, n, begin, BY__OTHER, SIZE_MAX);
        while (end < n && (s[end] == '\r' || s[end] == '\n' || (rule->slash && s[end] == '/'))) {
            end++;
        }
        return end;
    }
    size_t newline = 0; /* end of the last newline of the run of spaces */
    for (end = 0; end < n && class_at(s + end, n - end, &length) == BY__SPACE; end += length) {
        newline = s[end] == '\r' || s[end] == '\n' ? end + 1 : newline;
    }
    return newline > 0 ? newline : spaces(s, n);
}

/* ---- numbers and literals ---- */

static size_t numbers_next(size_t digits, const uint8_t *s, size_t n)
{
    size_t length;
    bool number = class_at(s, n, &length) == BY__NUMBER;
    size_t at = length;
    for (size_t count = 1; at < n; count++) {
        if ((class_at(s + at, n - at, &length) == BY__NUMBER) != number ||
            (number && count == digits)) {
            break;
        }
        at += length;
    }
    return at;
}

static bool literal_at(const by__tokenizer_splitter *p, const uint8_t *s, size_t n)
{
    return n >= p->literal_length && memcmp(s, p->literal, p->literal_length) == 0;
}

/* Start of the next literal from i on; n: there is none. */
static size_t find_literal(const by__tokenizer_splitter *p, const uint8_t *s, size_t n, size_t i)
{
    while (i < n) {
        const uint8_t *found = memchr(s + i, p->literal[0], n - i);
        if (found == NULL) {
            return n;
        }
        i = (size_t)(found - s);
        if (literal_at(p, found, n - i)) {
            return i;
        }
        i++;
    }
    return n;
}

static size_t literal_next(const by__tokenizer_splitter *p, const uint8_t *s, size_t n)
{
    size_t length = p->literal_length;
    size_t end = 0;
    if (p->kind == BY__SPLIT_WORDS) {
        while (literal_at(p, s + end, n - end)) {
            end += length;
        }
        return find_literal(p, s, n, end);
    }
    if (!literal_at(p, s, n)) {
        end = find_literal(p, s, n, 0);
        return p->kind == BY__SPLIT_BEFORE && end < n ? end + length : end;
    }
    if (p->kind == BY__SPLIT_BEHIND && length < n && !literal_at(p, s + length, n - length)) {
        return find_literal(p, s, n, length);
    }
    return length;
}

/* ---- words ---- */

static bool is_punctuation(const uint8_t *s, size_t n)
{
    uint32_t code = s[0];
    if (code < 0x80) {
        return ascii[code] == BY__OTHER && code > 0x20 && code != 0x7f;
    }
    (void)by__utf8_next(s, n, &code);
    return code != BY__INVALID && (by__text_properties_of(code) & BY__PROPERTY_PUNCTUATION) != 0;
}

static size_t word_next(bool punctuation, const uint8_t *s, size_t n)
{
    size_t length;
    bool space = class_at(s, n, &length) == BY__SPACE;
    if (!space && punctuation && is_punctuation(s, n)) {
        return length;
    }
    size_t at = length;
    while (at < n && (class_at(s + at, n - at, &length) == BY__SPACE) == space &&
           (space || !punctuation || !is_punctuation(s + at, n - at))) {
        at += length;
    }
    return at;
}

bool by__tokenizer_is_space(const uint8_t *s, size_t n)
{
    size_t length;
    return class_at(s, n, &length) == BY__SPACE;
}

size_t by__tokenizer_splitter_next(const by__tokenizer_splitter *splitter, const uint8_t *s,
                                   size_t n)
{
    switch (splitter->kind) {
    case BY__SPLIT_GPT2:
        return by__tokenizer_split_next(s, n);
    case BY__SPLIT_RULE:
        return rule_next(splitter->rule, s, n);
    case BY__SPLIT_NUMBERS:
        return numbers_next(splitter->digits, s, n);
    case BY__SPLIT_SPACES:
    case BY__SPLIT_BERT:
        return word_next(splitter->kind == BY__SPLIT_BERT, s, n);
    default:
        return literal_next(splitter, s, n);
    }
}
