/* Patterns: what they match, with what Python's re.finditer answers; what is refused; bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "text/pattern/pattern.h"

/* A pattern, a text, and the matches: each [as a whole](and its groups), - for a group that has no
 * part in it. */
static const struct {
    const char *pattern;
    const char *text;
    const char *matches;
} cases[] = {
    {"#### (\\-?[0-9\\.\\,]+)", "so #### 1,234.5 and #### -7",
     "[#### 1,234.5](1,234.5)[#### -7](-7)"},
    {"(-?[$0-9.,]{2,})|(-?[0-9]+)", "it is $18.00, or 5", "[$18.00,]($18.00,)-[5]-(5)"},
    {"(?i)the answer is \\(?([a-d])\\)?", "The Answer is (C). THE ANSWER IS d",
     "[The Answer is (C)](C)[THE ANSWER IS d](d)"},
    {"(?s)<a>(.*?)</a>", "<a>x\ny</a><a></a>", "[<a>x\ny</a>](x\ny)[<a></a>]()"},
    {"(?m)^\\w+$", "one\ntwo words\nthree\n", "[one][three]"},
    {"(?m)^", "a\n", "[][]"},
    {"(?m)$", "a\n", "[][]"},
    {"$", "a\n", "[][]"},
    {"a\\Z", "a\na", "[a]"},
    {"\\Aa", "aa", "[a]"},
    {"a*", "baac", "[][aa][][]"},
    {"|a", "aa", "[][a][][a][]"},
    {"(?P<q>[\\'\"])(.*?)(?P=q)", "'a\"b' \"c\"", "['a\"b'](')(a\"b)[\"c\"](\")(c)"},
    {"(a)?b\\1", "ba aba", "[aba](a)"},
    {"(a)?(?(1)b|c)", "ab c", "[ab](a)[c]-"},
    {"(?P<n>a)?(?(n)b|c)", "ab c", "[ab](a)[c]-"},
    {"(?<=\\$)\\d+(?!\\.)", "$12 $3.5 $45", "[12][45]"},
    {"(?<!\\w)[A-Z]\\b", "A Bc D", "[A][D]"},
    {"\\b\303\251\\w*", "\303\251 \303\251t\303\251 \303\251cole",
     "[\303\251][\303\251t\303\251][\303\251cole]"},
    {"\\d+", "12 \331\243\331\244", "[12][\331\243\331\244]"},
    {"[^\\W\\d_]+", "na\303\257ve_12\346\235\261\344\272\254",
     "[na\303\257ve][\346\235\261\344\272\254]"},
    {"[[:alpha:]]+", "a:[p]]", "[p]]]"},
    {"[]a]+", "x]a]", "[]a]]"},
    {"[^]a]+", "x]a]yz", "[x][yz]"},
    {"[\\]\\-a\\b]+", "]-a\010", "[]-a\010]"},
    {"x{,2}y", "xxxy", "[xxy]"},
    {"x{,}y", "xxxy", "[xxxy]"},
    {"x{2,}?", "xxxx", "[xx][xx]"},
    {"x{ 1,2}{a}{}", "x{ 1,2}{a}{}", "[x{ 1,2}{a}{}]"},
    {"a++b|a?+a", "aaab a", "[aaab]"},
    {"(?>a|ab)c", "abc ac", "[ac]"},
    {"a(?#a note [)b", "ab", "[ab]"},
    {"(?i:A)b(?-i:c)", "aB abc Abc", "[abc][Abc]"},
    {"[\\v\\f\\t ]\\v", "\013\013 \013", "[\013\013][ \013]"},
    {"\\x41\\u00e9\\U0001f600", "A\303\251\360\237\230\200", "[A\303\251\360\237\230\200]"},
    {"\\101|[\\101-\\103x]|\\07", "ACx", "[A][C][x]"},
    {"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\\10", "abcdefghijj",
     "[abcdefghijj](a)(b)(c)(d)(e)(f)(g)(h)(i)(j)"},
    {"(?i)stra\303\237e \316\243\316\212\316\243\316\245\316\246\316\237\316\243",
     "STRA\303\237E \317\203\316\257\317\203\317\205\317\206\316\277\317\203",
     "[STRA\303\237E \317\203\316\257\317\203\317\205\317\206\316\277\317\203]"},
    {"(a*)*b|(c)*", "aab", "[aab]()-[]--"},
    {"(?:(a)|b)*", "ab", "[ab](a)[]-"},
    {"\\.\\*\\ \\#\\&\\~\\\"\303\251\\_", ".* #&~\"\303\251_", "[.* #&~\"\303\251_]"},
    {"", "", "[]"},
    {"", "\303\251", "[][]"},
};

static by__pattern *open_pattern(const char *pattern)
{
    by__pattern *out;
    by_error error = {0};
    check_ok(by__pattern_open(&out, pattern, strlen(pattern), &error), &error);
    return out;
}

static void add_span(by_string *out, const char *marks, const char *text, size_t begin, size_t end)
{
    by_string_add(out, marks, 1);
    by_string_add(out, text + begin, end - begin);
    by_string_add(out, marks + 1, 1);
}

static void check_matches(const char *pattern, const char *text, size_t length, const char *want)
{
    by__pattern *p = open_pattern(pattern);
    by__pattern_match match = {0};
    by_string have = {0};
    by_error error = {0};
    by_string_add(&have, "", 0);
    check_ok(by__pattern_next(p, text, length, &match, &error), &error);
    while (match.found) {
        add_span(&have, "[]", text, match.groups[0].begin, match.groups[0].end);
        for (size_t g = 1; g <= by__pattern_groups(p); g++) {
            if (match.groups[g].end == SIZE_MAX) {
                by_string_add(&have, "-", 1);
            } else {
                add_span(&have, "()", text, match.groups[g].begin, match.groups[g].end);
            }
        }
        check_ok(by__pattern_next(p, text, length, &match, &error), &error);
    }
    if (strcmp(have.data, want) != 0) {
        fail_msg("%s in %s: %s, but Python has %s", pattern, text, have.data, want);
    }
    by_string_free(&have);
    by__pattern_close(&p);
}

static void test_matches(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        check_matches(cases[i].pattern, cases[i].text, strlen(cases[i].text), cases[i].matches);
    }
    /* Bytes that are not UTF-8 end a match, and what is behind them is searched, too. */
    check_matches("a.",
                  "a\xff"
                  "ab\xc3",
                  5, "[ab]");
    check_matches("[^b]",
                  "\xff"
                  "a\xe2\x82",
                  4, "[a]");
    check_matches("a\\Z", "a\xff", 2, "");
    check_matches("^", NULL, 0, "[]");
}

static void refuse(const char *pattern, size_t at, const char *why)
{
    by__pattern *p;
    by_error error = {0};
    char near[32];
    (void)snprintf(near, sizeof near, "\": near byte %zu: ", at);
    by_status status = by__pattern_open(&p, pattern, strlen(pattern), &error);
    if (status != BY_EFORMAT) {
        fail_msg("%s was not refused", pattern);
    }
    if (strncmp(error.message, "pattern \"", 9) != 0 || strstr(error.message, near) == NULL ||
        strstr(error.message, why) == NULL) {
        fail_msg("%s: %s", pattern, error.message);
    }
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    static const char *const escapes[] = {"\\p{L}", "\\Q", "\\K", "\\G",  "\\R",  "\\X",
                                          "\\h",    "\\N", "\\C", "\\c",  "\\e",  "\\g",
                                          "\\k",    "\\o", "\\z", "[\\A", "[\\Z", "[\\B"};
    static const char *const groups[] = {"(?<n>a)", "(?'n'a)", "(?|a)", "(?R)",  "(?1)",  "(?&n)",
                                         "(?P>n)",  "(?C)",    "(?x)",  "(?L)a", "(?^:a)"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(escapes); i++) {
        refuse(escapes[i], escapes[i][0] == '[', "an escape is unknown");
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(groups); i++) {
        refuse(groups[i], 0, "this kind of group, or a flag other than i, m and s");
    }
    refuse("a(*UTF)", 1, "nothing to repeat");
    refuse("(?(R)a)", 4, "non-existent");
    refuse("(?(?=a)b)", 0, "number nor the name");
    refuse("a(?#b", 1, "a comment is not ended by )");
    refuse("[a", 2, "a set [ is not ended by ]");
    refuse("[]", 2, "a set [ is not ended by ]");
    refuse("\\x4", 0, "too few hexadecimal digits");
    refuse("\\u12g4", 0, "too few hexadecimal digits");
    refuse("\\400", 0, "\\0 and \\377");
    refuse("[\\8]", 1, "\\0 and \\377");
    refuse("(", 1, "parenthesis");
    refuse("a)", 1, "parenthesis");
    refuse("*a", 0, "quantifier");
    refuse("\\", 1, "\\ at end of pattern");
    refuse("(a)\\2", 5, "non-existent");
    refuse("(?<=a+)b", 0, "lookbehind");
    refuse("[b-a]", 3, "range out of order");
    refuse("a\xff", 1, "UTF-8");
    char many[97] = "";
    for (size_t i = 0; i < 96; i += 3) {
        memcpy(many + i, "(a)", 4);
    }
    refuse(many, 96, "too many groups");
    char *endless = malloc(BY__PATTERN_BYTES + 2);
    assert_non_null(endless);
    memset(endless, 'a', BY__PATTERN_BYTES + 1);
    endless[BY__PATTERN_BYTES + 1] = '\0';
    refuse(endless, BY__PATTERN_BYTES, "too long");
    free(endless);
}

static void test_bounds(void **state)
{
    BY_UNUSED(state);
    static char text[1 << 20];
    by__pattern_match match = {0};
    by_error error = {0};
    memset(text, 'a', sizeof text);
    by__pattern *steps = open_pattern("(a*)*[bc]");
    by__pattern *memory = open_pattern("(?:a|b)*[cd]");
    check_error(by__pattern_next(steps, text, 64, &match, &error), BY_EARG, &error, "steps");
    check_error(by__pattern_next(memory, text, sizeof text, &match, &error), BY_EARG, &error,
                "steps");
    assert_false(match.found);
    by__pattern_close(&memory);
    by__pattern_close(&steps);
    by__pattern_close(&steps);
}

static void replace(const char *pattern, const char *text, const char *replacement,
                    const char *want)
{
    by__pattern *p = open_pattern(pattern);
    by_string out = {0};
    by_error error = {0};
    check_ok(by__pattern_replace(p, text, strlen(text), replacement, &out, &error), &error);
    assert_string_equal(out.data, want);
    by_string_free(&out);
    by__pattern_close(&p);
}

static void test_replace(void **state)
{
    BY_UNUSED(state);
    replace("x*", "abxd", "-", "-a-b--d-");
    replace("(a)|(b)", "abc", "<\\1\\g<2>\\n\\\\>", "<a\n\\><b\n\\>c");
    replace("[.]", "a.b", "", "ab");
    replace("b",
            "\xff"
            "b\xff",
            "c",
            "\xff"
            "c\xff");
    by__pattern *p = open_pattern("a");
    by_string out = {0};
    by_error error = {0};
    check_error(by__pattern_replace(p, "a", 1, "\\1", &out, &error), BY_EARG, &error,
                "a replacement has group 1, the pattern 0");
    check_error(by__pattern_replace(p, "a", 1, "\\q", &out, &error), BY_EARG, &error,
                "unknown escape");
    by_string_free(&out);
    by__pattern_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_replace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
