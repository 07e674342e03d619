/* The common subset of regular expressions in ECMA-262 and Python's re, without features that are
 * not regular: literals, `.`, classes, escapes, groups, alternatives, greedy and lazy repeats
 * (which match the same set of texts), ^ and $ at the ends of the top-level alternatives.
 *
 * Where the two differ in the characters of a class, the smaller set is used, so that a text
 * matches in both: \d, \w are ASCII; \D, \W, \S exclude what Unicode calls a digit, a word
 * character, a space. */
#include <string.h>

#include "infer/constraint/byte_language.h"
#include "text/unicode/unicode.h"

typedef struct parser {
    by__constraint_language *language;
    const uint8_t *begin;
    const uint8_t *at;
    const uint8_t *end;
    by__constraint_writing writing;
    int depth;
    by_error *error;
} parser;

static by_status refuse(const parser *p, const char *what)
{
    return by_error_set(p->error, BY_EARG, "pattern, byte %zu: %s", (size_t)(p->at - p->begin),
                        what);
}

static bool is_next(const parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static bool accept(parser *p, const char *text)
{
    bool found = is_next(p, text);
    p->at += found ? strlen(text) : 0;
    return found;
}

static uint32_t next_code(parser *p)
{
    uint32_t code;
    p->at += by__utf8_next(p->at, (size_t)(p->end - p->at), &code);
    return code;
}

/* ---- classes ---- */

static by_status add_all(const parser *p, by__constraint_code_set *set,
                         const by__constraint_code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        BY_TRY(by__constraint_code_set_add(set, ranges[i].first, ranges[i].last, p->error));
    }
    return BY_OK;
}

/* Finds the code points whose Unicode class is not in the mask `without`; if word characters are
 * excluded, so is the underscore. */
static by_status find_without(const parser *p, by__constraint_code_set *set, unsigned without)
{
    uint32_t first = BY__INVALID;
    for (uint32_t code = 0; code <= 0x110000; code++) {
        bool in = code < 0x110000 && (without >> (by__unicode_class(code) & BY__CLASS) & 1u) == 0 &&
                  ((without >> BY__LETTER & 1u) == 0 ||
                   (code != '_' && (by__unicode_class(code) & BY__WORD) == 0));
        if (in && first == BY__INVALID) {
            first = code;
        } else if (!in && first != BY__INVALID) {
            BY_TRY(by__constraint_code_set_add(set, first, code - 1, p->error));
            first = BY__INVALID;
        }
    }
    return BY_OK;
}

/* Adds the characters of \D, \W or \S (`which` 0, 1, 2). The pass over all code points takes
 * milliseconds, so the result is cached; each use still adds hundreds of ranges, and is counted
 * accordingly. */
static by_status add_without(const parser *p, by__constraint_code_set *set, int which)
{
    static const unsigned classes[] = {1u << BY__NUMBER, 1u << BY__LETTER | 1u << BY__NUMBER,
                                       1u << BY__SPACE};
    by__constraint_code_set *known = &p->language->without[which];
    if (known->count == 0) {
        BY_TRY(find_without(p, known, classes[which]));
    }
    p->language->nodes += known->count;
    p->language->failed = p->language->failed || p->language->nodes > BY__MAX_NODES;
    BY_TRY(by__constraint_language_status(p->language, p->error));
    return add_all(p, set, known->ranges, known->count);
}

static by_status add_shorthand(const parser *p, by__constraint_code_set *set, uint8_t letter)
{
    static const by__constraint_code_range digits[] = {{'0', '9'}};
    static const by__constraint_code_range words[] = {
        {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const by__constraint_code_range spaces[] = {{'\t', '\r'}, {' ', ' '}};
    switch (letter) {
    case 'd':
        return add_all(p, set, digits, BY_ARRAY_LENGTH(digits));
    case 'w':
        return add_all(p, set, words, BY_ARRAY_LENGTH(words));
    case 's':
        return add_all(p, set, spaces, BY_ARRAY_LENGTH(spaces));
    case 'D':
        return add_without(p, set, 0);
    case 'W':
        return add_without(p, set, 1);
    default: /* 'S': U+FEFF is a space in ECMA-262, U+001C..1F are in Python */
        BY_TRY(add_without(p, set, 2));
        by__constraint_code_set_close(set);
        BY_TRY(by__constraint_code_set_negate(set, p->error));
        BY_TRY(by__constraint_code_set_add(set, 0xfeff, 0xfeff, p->error));
        BY_TRY(by__constraint_code_set_add(set, 0x1c, 0x1f, p->error));
        by__constraint_code_set_close(set);
        return by__constraint_code_set_negate(set, p->error);
    }
}

static by_status read_hex(parser *p, int digits, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < digits; i++) {
        const char *hex = "0123456789abcdef";
        int letter = p->at < p->end ? *p->at | (*p->at >= 'A' ? 0x20 : 0) : 0;
        const char *place = letter == 0 ? NULL : strchr(hex, letter);
        if (place == NULL) {
            return refuse(p, "\\x needs two hexadecimal digits, \\u four");
        }
        *code = *code << 4 | (uint32_t)(place - hex);
        p->at++;
    }
    return BY_OK;
}

/* Reads what follows a backslash: a set (*single is BY__INVALID) or one character. */
static by_status read_escape(parser *p, by__constraint_code_set *set, uint32_t *single,
                             bool in_class)
{
    static const char named[] = "tnrfv0";
    static const char codes[] = "\t\n\r\f\v";
    *single = BY__INVALID;
    if (p->at == p->end) {
        return refuse(p, "nothing stands behind the last backslash");
    }
    uint8_t letter = *p->at;
    if (strchr("dwsDWS", letter) != NULL) {
        p->at++;
        by__constraint_code_set own = {0};
        by_status status = add_shorthand(p, &own, letter);
        if (status == BY_OK) {
            status = add_all(p, set, own.ranges, own.count);
        }
        by__constraint_code_set_free(&own);
        return status;
    }
    const char *place = strchr(named, letter);
    if (place != NULL) {
        p->at++;
        *single = letter == '0' ? 0u : (uint32_t)codes[place - named];
        return BY_OK;
    }
    if (letter == 'x' || letter == 'u') {
        p->at++;
        BY_TRY(read_hex(p, letter == 'x' ? 2 : 4, single));
        return *single >= 0xd800 && *single <= 0xdfff
                   ? refuse(p, "\\u of a surrogate: write the character itself")
                   : BY_OK;
    }
    if (letter == 'b' && in_class) {
        p->at++;
        *single = '\b';
        return BY_OK;
    }
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
        (letter >= 'A' && letter <= 'Z')) {
        return refuse(p, letter >= '1' && letter <= '9'
                             ? "back-references are not regular"
                             : "this escape is not supported; supported are \\d \\w \\s \\D \\W "
                               "\\S \\t \\n \\r \\f \\v \\0 \\xHH \\uHHHH and escaped punctuation");
    }
    *single = next_code(p);
    return BY_OK;
}

/* Reads one member of [...]: a character (*single) or a class escape. */
static by_status read_member(parser *p, by__constraint_code_set *set, uint32_t *single)
{
    if (p->at == p->end) {
        return refuse(p, "a class [ is not closed with ]");
    }
    if (accept(p, "\\")) {
        return read_escape(p, set, single, true);
    }
    if (is_next(p, "[:") || is_next(p, "&&") || is_next(p, "--")) {
        return refuse(p, "POSIX classes and set operations are not supported");
    }
    *single = next_code(p);
    return BY_OK;
}

static by_status read_members(parser *p, by__constraint_code_set *set)
{
    while (p->at == p->end || *p->at != ']') {
        uint32_t first;
        uint32_t last;
        BY_TRY(read_member(p, set, &first));
        bool range = is_next(p, "-") && p->end - p->at >= 2 && p->at[1] != ']';
        if (!range) {
            if (first != BY__INVALID) {
                BY_TRY(by__constraint_code_set_add(set, first, first, p->error));
            }
            continue;
        }
        p->at++;
        BY_TRY(read_member(p, set, &last));
        if (first == BY__INVALID || last == BY__INVALID || last < first) {
            return refuse(p, "a range a-b of a class needs two characters in order");
        }
        BY_TRY(by__constraint_code_set_add(set, first, last, p->error));
    }
    p->at++;
    return BY_OK;
}

static by_status read_class(parser *p, const by__constraint_expression **out)
{
    by__constraint_code_set set = {0};
    bool negated = accept(p, "^");
    by_status status = read_members(p, &set);
    if (status == BY_OK) {
        by__constraint_code_set_close(&set);
        status = negated ? by__constraint_code_set_negate(&set, p->error) : BY_OK;
    }
    if (status == BY_OK) {
        *out = by__constraint_expr_class(p->language, &set, p->writing);
    }
    by__constraint_code_set_free(&set);
    return status;
}

/* All characters except those of `without`, which is sorted. */
static by_status any_but(parser *p, const uint32_t *without, size_t count,
                         const by__constraint_expression **out)
{
    by__constraint_code_set set = {0};
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by__constraint_code_set_add(&set, without[i], without[i], p->error);
    }
    if (status == BY_OK) {
        status = by__constraint_code_set_negate(&set, p->error);
    }
    if (status == BY_OK) {
        *out = by__constraint_expr_class(p->language, &set, p->writing);
    }
    by__constraint_code_set_free(&set);
    return status;
}

static by_status one_code(parser *p, uint32_t code, const by__constraint_expression **out)
{
    by__constraint_code_range range = {code, code};
    by__constraint_code_set set = {.ranges = &range, .count = 1};
    *out = by__constraint_expr_class(p->language, &set, p->writing);
    return BY_OK;
}

/* ---- the grammar ---- */

static by_status read_either(parser *p, bool top, bool anchored,
                             const by__constraint_expression **out);

static by_status read_group(parser *p, const by__constraint_expression **out)
{
    if (accept(p, "?")) {
        if (accept(p, "P<") ||
            (is_next(p, "<") && !is_next(p, "<=") && !is_next(p, "<!") && accept(p, "<"))) {
            while (p->at < p->end && *p->at != '>') {
                p->at++;
            }
            if (!accept(p, ">")) {
                return refuse(p, "the name of a group is not closed with >");
            }
        } else if (!accept(p, ":")) {
            return refuse(p, "look-ahead, look-behind, conditions and flags are not regular here; "
                             "write the texts out");
        }
    }
    if (++p->depth > BY__MAX_NESTING) {
        return refuse(p, "groups are nested too deeply");
    }
    BY_TRY(read_either(p, false, true, out));
    p->depth--;
    return accept(p, ")") ? BY_OK : refuse(p, "a group ( is not closed with )");
}

static by_status read_atom(parser *p, const by__constraint_expression **out)
{
    static const uint32_t ends_of_line[] = {'\n', '\r', 0x2028, 0x2029};
    by__constraint_code_set set = {0};
    uint32_t single;
    if (accept(p, "(")) {
        return read_group(p, out);
    }
    if (accept(p, "[")) {
        return read_class(p, out);
    }
    if (accept(p, ".")) {
        return any_but(p, ends_of_line, BY_ARRAY_LENGTH(ends_of_line), out);
    }
    if (strchr("*+?{", *p->at) != NULL) {
        return refuse(p, "a repeat has nothing to repeat; escape it to mean the character");
    }
    if (*p->at == '^' || *p->at == '$') {
        return refuse(p, "^ and $ are supported at the ends of the pattern and of its top-level "
                         "alternatives alone");
    }
    if (!accept(p, "\\")) {
        single = next_code(p);
        return one_code(p, single, out);
    }
    by_status status = read_escape(p, &set, &single, false);
    if (status == BY_OK && single != BY__INVALID) {
        status = one_code(p, single, out);
    } else if (status == BY_OK) {
        by__constraint_code_set_close(&set);
        *out = by__constraint_expr_class(p->language, &set, p->writing);
    }
    by__constraint_code_set_free(&set);
    return status;
}

static by_status read_count(parser *p, uint32_t *out, bool *found)
{
    *out = 0;
    *found = false;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        *out = *out * 10 + (uint32_t)(*p->at++ - '0');
        *found = true;
        if (*out > BY__MAX_REPEAT) {
            return refuse(p, "a repeat count is over 10000");
        }
    }
    return BY_OK;
}

/* Reads the repeats that follow an atom. */
static by_status read_repeats(parser *p, const by__constraint_expression **e)
{
    for (;;) {
        uint32_t least = 0;
        uint32_t most = BY__UNBOUNDED;
        bool found;
        if (accept(p, "*")) {
        } else if (accept(p, "+")) {
            least = 1;
        } else if (accept(p, "?")) {
            most = 1;
        } else if (accept(p, "{")) {
            BY_TRY(read_count(p, &least, &found));
            if (!found) {
                return refuse(p, "{ begins a repeat {n}, {n,} or {n,m}; write \\{ for the "
                                 "character");
            }
            most = least;
            if (accept(p, ",")) {
                BY_TRY(read_count(p, &most, &found));
                most = found ? most : BY__UNBOUNDED;
            }
            if (!accept(p, "}") || most < least) {
                return refuse(p, "a repeat is {n}, {n,} or {n,m} with n up to m");
            }
        } else {
            return BY_OK;
        }
        *e = by__constraint_expr_repeat(p->language, *e, least, most);
        if (is_next(p, "+") || is_next(p, "*")) {
            return refuse(p, "possessive repeats are not supported; put the inner repeat into a "
                             "group");
        }
        (void)accept(p, "?"); /* lazy: matches the same texts */
    }
}

/* Reads one alternative. At the top level, a side without ^ or $ may have any text before or
 * after. */
static by_status read_branch(parser *p, bool top, bool anchored,
                             const by__constraint_expression **out)
{
    const by__constraint_expression *any = NULL;
    bool from_start = anchored;
    bool to_end = anchored;
    const by__constraint_expression *e = by__constraint_expr_empty(p->language);
    while (top && accept(p, "^")) {
        from_start = true;
    }
    while (p->at < p->end && *p->at != '|' && *p->at != ')') {
        const by__constraint_expression *atom = NULL;
        if (top && *p->at == '$' && (p->end - p->at == 1 || p->at[1] == '|')) {
            p->at++;
            to_end = true;
            break;
        }
        BY_TRY(read_atom(p, &atom));
        BY_TRY(read_repeats(p, &atom));
        e = by__constraint_expr_concat(p->language, e, atom);
    }
    if (!from_start || !to_end) {
        BY_TRY(any_but(p, NULL, 0, &any));
        any = by__constraint_expr_repeat(p->language, any, 0, BY__UNBOUNDED);
    }
    e = from_start ? e : by__constraint_expr_concat(p->language, any, e);
    *out = to_end ? e : by__constraint_expr_concat(p->language, e, any);
    return by__constraint_language_status(p->language, p->error);
}

static by_status read_either(parser *p, bool top, bool anchored,
                             const by__constraint_expression **out)
{
    const by__constraint_expression *e = NULL;
    do {
        const by__constraint_expression *branch = NULL;
        BY_TRY(read_branch(p, top, anchored, &branch));
        e = by__constraint_expr_either(p->language, e, branch);
    } while (accept(p, "|"));
    *out = e;
    return BY_OK;
}

by_status by__constraint_regex_parse(const by__constraint_expression **out,
                                     by__constraint_language *language, const char *pattern,
                                     size_t length, bool anchored, by__constraint_writing writing,
                                     by_error *error)
{
    const uint8_t *begin = (const uint8_t *)pattern;
    parser p = {.language = language,
                .begin = begin,
                .at = begin,
                .end = begin + length,
                .writing = writing,
                .error = error};
    if (!by__utf8_valid(pattern, length) || memchr(pattern, 0, length) != NULL) {
        return by_error_set(error, BY_EARG, "a pattern is not valid UTF-8 text");
    }
    BY_TRY(read_either(&p, true, anchored, out));
    return p.at == p.end ? BY_OK : refuse(&p, "a ) closes no group");
}
