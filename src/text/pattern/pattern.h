/* text/pattern: regular expressions as Python's `re` reads them, for texts of UTF-8.
 *
 * What it is for: extracting answers from texts (findall) and changing them (sub), with the
 * patterns that people wrote for Python. pattern_parse.c makes a tree of a pattern,
 * pattern_compile.c a program of it, pattern_match.c runs that with backtracking.
 *
 * Supported: characters and escapes, ., [sets], \d \w \s \b and their opposites, ^ $ \A \Z, groups
 * ((...), (?:...), (?P<name>...)), alternatives, * + ? {m,n} greedy and lazy, back references \1,
 * lookahead, lookbehind of a fixed width, and the flags i, m and s in front: (?s). Everything else
 * is refused by name. A byte that is not UTF-8 is a character of its own that only . and negated
 * sets match.
 *
 * Who owns what: a pattern owns its program and never changes; any number of threads may use one.
 *
 * Bounds: a pattern has at most BY__PATTERN_BYTES bytes and BY__PATTERN_INSTRUCTIONS
 * instructions, a search BY__PATTERN_STEPS steps, so that any pattern ends in bounded time on any
 * text.
 *
 * Never put here: the patterns of tokenizers, which have their own matchers (text/tokenizer). */
#ifndef BY_TEXT_PATTERN_PATTERN_H
#define BY_TEXT_PATTERN_PATTERN_H

#include "base/base.h"

#define BY__PATTERN_GROUPS       32
#define BY__PATTERN_BYTES        4000
#define BY__PATTERN_INSTRUCTIONS 20000
#define BY__PATTERN_STEPS        50000000
#define BY__PATTERN_DEPTH        64 /* of nested constructs */

typedef struct by__pattern by__pattern;

/* A match: group 0 is all of it. Bytes [begin, end); SIZE_MAX: the group is not part of it. */
typedef struct by__pattern_match {
    struct {
        size_t begin;
        size_t end;
    } groups[BY__PATTERN_GROUPS];
} by__pattern_match;

/* Compiles a pattern. BY_EFORMAT with the pattern and the byte if it is malformed or uses what is
 * not supported. */
by_status by__pattern_open(by__pattern **out, const char *text, size_t length, by_error *error);
void by__pattern_close(by__pattern **pattern);
/* Number of groups, without group 0. */
size_t by__pattern_groups(const by__pattern *pattern);
/* Finds the first match in s[0, n) that begins at byte `from` or later. BY_EARG: it takes too many
 * steps. */
by_status by__pattern_search(const by__pattern *pattern, const char *s, size_t n, size_t from,
                             bool *found, by__pattern_match *out, by_error *error);
/* Where a search behind a match begins: at its end or, if it is empty, one character later. */
size_t by__pattern_after(const by__pattern_match *match, const char *s, size_t n);
/* re.sub: appends s with each match replaced by `replacement`, in which \1 and \g<1> are groups. */
by_status by__pattern_replace(const by__pattern *pattern, const char *s, size_t n,
                              const char *replacement, by_string *out, by_error *error);

#endif
