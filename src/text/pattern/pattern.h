/* text/pattern: regular expressions as Python's `re` reads them, for texts of UTF-8.
 *
 * What it is for: extracting answers from texts (findall) and changing them (sub), with the
 * patterns that people wrote for Python. PCRE2 does the matching (pattern.c); pattern_syntax.c
 * writes a pattern as PCRE2 reads it, pattern_replace.c is re.sub. A build without PCRE2 has
 * without_pattern.c instead of pattern.c.
 *
 * Supported: what Python documents of `re` for texts, with Unicode's letters, digits and cases, but
 * for the flags a, L, u and x, and \N{...}. The rest is refused by name, also what PCRE2 alone has.
 * \s differs in the separators U+001C to U+001F, which are not white space here, and in U+180E. A
 * byte that is not UTF-8 is part of no match.
 *
 * Who owns what: a pattern never changes; any number of threads may use one.
 *
 * Bounds: a pattern has at most BY__PATTERN_BYTES bytes and BY__PATTERN_GROUPS groups, a search
 * BY__PATTERN_STEPS steps of backtracking, with BY__PATTERN_MEMORY KiB for the ways back, so that
 * any pattern ends in bounded time on any text.
 *
 * Never put here: the patterns of tokenizers and of constraints, which have their own matchers
 * (text/tokenizer, infer/constraint). */
#ifndef BY_TEXT_PATTERN_PATTERN_H
#define BY_TEXT_PATTERN_PATTERN_H

#include "base/base.h"

#define BY__PATTERN_GROUPS 32 /* with group 0 */
#define BY__PATTERN_BYTES  4000
#define BY__PATTERN_STEPS  10000000
#define BY__PATTERN_MEMORY 65536 /* KiB */

typedef struct by__pattern by__pattern;

/* A match: group 0 is all of it. Bytes [begin, end); SIZE_MAX: the group is not part of it. */
typedef struct by__pattern_match {
    struct {
        size_t begin;
        size_t end;
    } groups[BY__PATTERN_GROUPS];
    bool found; /* false: none yet, or none any more */
} by__pattern_match;

/* Compiles a pattern. BY_EFORMAT with the pattern and about the byte if it is malformed or uses
 * what is not supported; BY_ECONFIG in a build without PCRE2. */
by_status by__pattern_open(by__pattern **out, const char *text, size_t length, by_error *error);
void by__pattern_close(by__pattern **pattern);
/* Number of groups, without group 0. */
size_t by__pattern_groups(const by__pattern *pattern);
/* Finds the next match in s[0, n), as re.finditer: the first one for a match of zeros, else the
 * first one behind *match, which may begin at its end, but not both begin and end there if *match
 * was empty. match->found: there is one. BY_EARG: it takes too many steps. */
by_status by__pattern_next(const by__pattern *pattern, const char *s, size_t n,
                           by__pattern_match *match, by_error *error);
/* re.sub: appends s with each match replaced by `replacement`, in which \1 and \g<1> are groups. */
by_status by__pattern_replace(const by__pattern *pattern, const char *s, size_t n,
                              const char *replacement, by_string *out, by_error *error);

/* Appends a pattern of Python as PCRE2 reads it. BY_EFORMAT if it uses what is not supported; what
 * is malformed in PCRE2, too, is left to it. */
by_status by__pattern_translate(by_string *out, const char *text, size_t length, by_error *error);
/* The error of a pattern: BY_EFORMAT with `what` near a byte. */
by_status by__pattern_fail(const char *text, size_t length, size_t at, const char *what,
                           by_error *error);

#endif
