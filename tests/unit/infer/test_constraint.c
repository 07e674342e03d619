/* Constraints: what fits a form and what does not, what is refused, which tokens may follow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/constraint.h"
#include "base/base.h"

typedef struct form_case {
    const char *form; /* a pattern, or a schema */
    const char *fits[6];
    const char *fails[8];
} form_case;

static const form_case regexes[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "abd"}},
    {"a*b+c?", {"b", "aab", "abbc"}, {"", "a", "ac", "bcc"}},
    {"(?:ab|cd){2,3}", {"abcd", "cdcdab"}, {"ab", "abababab", "abc"}},
    {"[a-c_\\d-]+", {"a-9_", "-"}, {"", "d", "A"}},
    {"[^a-y]", {"z", "A", "\xc3\xa9", "\xf0\x9f\x98\x80", "\n"}, {"b", "", "zz", "\xc3"}},
    {".", {"a", "\xe2\x82\xac"}, {"\n", "\r", "", "ab", "\xed\xa0\x80"}},
    {"\\w+\\s\\S\\W\\D", {"a1_ b!x", "Z\t.\xe2\x82\xac."}, {"a b", "a b!1", "a \xc2\xa0!x"}},
    {"^(a|b)$|^c", {"a", "b", "c"}, {"ab", "", "cc"}},
    {"\\x41\\u00e9\\.\\/\\-", {"A\xc3\xa9./-"}, {"A\xc3\xa9x/-"}},
    {"(?<year>\\d{4})-(?P<m>\\d\\d?)??", {"2024-1", "2024-12", "2024-"}, {"202-1", "2024"}},
    {"[\\u0400-\\uffff]{2}", {"\xd0\x80\xef\xbf\xbf"}, {"\xcf\xbf\xd0\x80", "\xd0\x80"}},
    {"", {""}, {"a"}},
};

static const form_case schemas[] = {
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\\\"b\\\\\\n\"", "\"\xc3\xa9\""},
     {"a", "\"", "\"\n\"", "\"\\x\"", "\"a\"b"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\n\""},
     {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a.b$\"}",
     {"\"axb\"", "\"a\\\"b\"", "\"a\\\\b\""},
     {"\"ab\"", "\"xaxb\"", "\"a\\nb\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"\"", "\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\u0001-\\u0005\\u000e]$\"}",
     {"\"\\u0001\"", "\"\\u0005\"", "\"\\u000e\""},
     {"\"\\u0000\"", "\"\\u0006\"", "\"\\u0011\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\\x00\\\\x1f]$\"}",
     {"\"\\u0000\"", "\"\\u001f\""},
     {"\"\\u000f\"", "\"\\u0010\"", "\"\\u001e\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-28\"", "\"1999-12-31\""},
     {"\"2024-02-30\"", "\"2024-13-01\"", "\"0000-01-01\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"10.0.0.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P1D\"", "\"PT5M\"", "\"P1Y2M3DT4H\"", "\"P2W\""},
     {"\"P\"", "\"P1DT\"", "\"PT\""}},
    {"{\"type\":\"integer\"}", {"0", "-12", "123456"}, {"01", "1.5", "+1", "--1", "", "1e3"}},
    {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
     {"-5", "0", "120", "99", "-1", "7"},
     {"-6", "121", "200", "1000", "-10", "-0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"maximum\":20.5,\"multipleOf\":5}",
     {"10", "15", "20"},
     {"5", "9", "25", "11", "30"}},
    {"{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2}",
     {"0.5", "1", "1.999999", "0.75", "1.0"},
     {"0.49", "2", "2.0", "0", "1.", "0.4999", "1e0", "-1"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.25,\"multipleOf\":0.25}",
     {"-1.5", "-1", "-0.25", "-1.50", "-0.75"},
     {"-0.2", "-1.6", "0", "-0.30", "-2"}},
    {"{\"type\":\"number\"}", {"0", "-1.5e-3", "1E5"}, {"01", ".5", "1.", "1e", "NaN"}},
    {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"0", "\"true\""}},
    {"{\"enum\":[\"a\",1,null,{\"x\":[1,2]}]}",
     {"\"a\"", "1", "null", "{\"x\":[1,2]}"},
     {"a", "2"}},
    {"{\"const\":\"\\\"\"}", {"\"\\\"\""}, {"\"\""}},
    {"{\"enum\":[0.1,2.0,1e-7,0.30000000000000004]}",
     {"0.1", "2.0", "1e-7", "0.30000000000000004"},
     {"0.10000000000000001", "0.3", "0.1000", "9.9999999999999995e-8"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 2,3]", "[\n  1\n]"},
     {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[1 2]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":0}", {"[]"}, {"[null]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}},"
     "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
     {"{\"a\":1,\"b\":null}", "{ \"a\": 1, \"b\": null }"},
     {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"a\":1,\"b\":null,}", "{\"a\":1,\"b\":null}}"}},
    {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"c\":3}", "{\"a\":1,\"c\":3}", "{,\"b\":2}"}},
    {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":2,\"a\":1}", "{\"a\":1,}", "{,}"}},
    {"{\"anyOf\":[{\"properties\":{\"t\":{\"const\":\"x\"},\"n\":{\"type\":\"integer\"}},"
     "\"required\":[\"t\",\"n\"]},{\"properties\":{\"t\":{\"const\":\"y\"}},\"required\":[\"t\"]}]"
     "}",
     {"{\"t\":\"x\",\"n\":1}", "{\"t\":\"y\"}"},
     {"{\"t\":\"x\"}", "{\"t\":\"y\",\"n\":1}"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
     "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},"
     "\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1,\"next\":{}}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}"}},
    {"{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"properties\":{\"a\":{\"allOf\":[{\"$ref\":"
     "\"#/$defs/n\"}],\"description\":\"d\",\"default\":1}},\"required\":[\"a\"]}",
     {"{\"a\":12}"},
     {"{\"a\":\"x\"}", "{}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "[[]", "[]]"}},
    {"{\"type\":\"integer\",\"maximum\":2999999999.5,\"minimum\":2999999990}",
     {"2999999999", "2999999990"},
     {"3000000000", "2999999989"}},
    {"{\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{\"x\":1}"},
     {"{\"x\":\"a\"}", "{}"}},
    {"true", {"{\"a\":[1,\"b\",{}]}", "null", "[[[[]]]]"}, {"{\"a\"}", "[1,]", "nul", "{1:2}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"x\":1}", "{\"x\":1,\"y\":2}"},
     {"{\"x\":\"1\"}"}},
};

static void check_form(const form_case *c, bool schema)
{
    by_error error;
    by_constraint *constraint;
    bool matches;
    by_status status =
        schema ? by_constraint_open_schema(&constraint, c->form, strlen(c->form), NULL, &error)
               : by_constraint_open_regex(&constraint, c->form, strlen(c->form), NULL, &error);
    if (status != BY_OK) {
        fail_msg("%s: %s", c->form, error.message);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(c->fits) && c->fits[i] != NULL; i++) {
        assert_int_equal(
            by_constraint_matches(constraint, c->fits[i], strlen(c->fits[i]), &matches, &error),
            BY_OK);
        if (!matches) {
            fail_msg("%s must fit %s", c->fits[i], c->form);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(c->fails) && c->fails[i] != NULL; i++) {
        assert_int_equal(
            by_constraint_matches(constraint, c->fails[i], strlen(c->fails[i]), &matches, &error),
            BY_OK);
        if (matches) {
            fail_msg("%s must not fit %s", c->fails[i], c->form);
        }
    }
    by_constraint_close(&constraint);
}

static void forms(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(regexes); i++) {
        check_form(&regexes[i], false);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(schemas); i++) {
        check_form(&schemas[i], true);
    }
}

typedef struct refusal {
    const char *form;
    const char *says;
} refusal;

static const refusal refused_regexes[] = {
    {"a(", "not closed"},
    {"a)", "closes no group"},
    {"*a", "nothing to repeat"},
    {"a{3,1}", "{n,m}"},
    {"a{20000}", "over 10000"},
    {"(a)\\1", "back-references"},
    {"(?=a)b", "look-ahead"},
    {"a++", "possessive"},
    {"[b-a]", "in order"},
    {"[a", "not closed"},
    {"\\pL", "escape"},
    {"a\\", "backslash"},
    {"b^a", "^ and $"},
    {"\\ud800", "surrogate"},
    {"[]", "no text fits"},
    {"(a|a?)\\x4", "hexadecimal"},
    {"\xff", "UTF-8"},
    {"(.*a.{30}){20}", "constraint"},
    {"(((a{100}){100}){100}){9}", "large"},
    {"(||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||){10000}{10}",
     "large"},
};

static const refusal refused_schemas[] = {
    {"{", "line 1"},
    {"[]", "must be an object"},
    {"{\"type\":\"text\"}", "\"text\""},
    {"{\"type\":\"string\",\"minLength\":-1}", "minLength"},
    {"{\"type\":\"string\",\"format\":\"regex\"}", "format regex"},
    {"{\"type\":\"string\",\"pattern\":\"(\"}", "at #"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\""},
    {"{\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a"},
    {"{\"$ref\":\"#/$defs/x\"}", "leads nowhere"},
    {"{\"$ref\":\"other.json\"}", "within the schema"},
    {"{\"$ref\":\"#\"}", "refers to itself"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "refers to itself"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no number"},
    {"{\"type\":\"integer\",\"multipleOf\":0}", "above 0"},
    {"{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":3}]}", "one schema"},
    {"{\"allOf\":[{\"type\":\"integer\"}],\"minimum\":3}", "allOf cannot be combined"},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "refers to itself"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", "no text fits"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "no text fits"},
    {"{\"items\":{\"pattern\":\"^(a{300}){300}$\"}}", "large"},
    {"{\"type\":\"string\",\"maxLength\":3,\"pattern\":\"a\"}", "combined"},
    {"{\"$ref\":\"#\",\"type\":\"object\"}", "combined"},
    {"{\"enum\":[\"abc\"],\"maxLength\":1}", "type alone"},
    {"{\"const\":1,\"enum\":[2]}", "type alone"},
    {"{\"type\":\"number\",\"minimum\":1234.56789012345}", "behind the point"},
};

static void check_refused(const refusal *r, bool schema)
{
    by_error error;
    by_constraint *constraint;
    by_status status =
        schema ? by_constraint_open_schema(&constraint, r->form, strlen(r->form), NULL, &error)
               : by_constraint_open_regex(&constraint, r->form, strlen(r->form), NULL, &error);
    if (status == BY_OK) {
        fail_msg("%s must be refused", r->form);
    }
    if (strstr(error.message, r->says) == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", r->form, error.message, r->says);
    }
}

/* Forms that strangers could send: many uses of a class of hundreds of ranges. */
static void refuse_many_classes(void)
{
    enum { USES = 2000 };
    char form[2 * USES + 3] = "[";
    for (size_t i = 0; i < USES; i++) {
        memcpy(form + 1 + 2 * i, "\\W", 2);
    }
    memcpy(form + 1 + 2 * USES, "]", 2);
    check_refused(&(refusal){form, "large"}, false);
}

/* A chain of references, each to the next, with `before` and `after` around it, up to `end`. */
static void chain_of(by_string *text, int count, const char *before, const char *after,
                     const char *end)
{
    by__string_append(text, "{\"$defs\":{");
    for (int i = 0; i < count; i++) {
        by_string_format(text, "\"d%d\":%s{\"$ref\":\"#/$defs/d%d\"}%s,", i, before, i + 1, after);
    }
    by_string_format(text, "\"d%d\":%s},\"$ref\":\"#/$defs/d0\"}", count, end);
}

/* Long chains are no cycles, and cost no more than their length. */
static void chains(void **state)
{
    static const struct {
        int count;
        const char *before, *after, *end;
        const char *says; /* NULL: 1 fits */
    } cases[] = {
        {20000, "", "", "{\"const\":1}", NULL},
        {20000, "", "", "{\"$ref\":\"#/$defs/d7\"}", "refers to itself"},
        {9000, "{\"allOf\":[", "]}", "{\"const\":1}", NULL},
        {900, "{\"anyOf\":[", ",{\"const\":2}]}", "{\"const\":1}", NULL},
        {6000, "{\"anyOf\":[", ",{\"const\":2}]}", "{\"const\":1}", "4096 references"},
        {500, "{\"anyOf\":[", ",{\"const\":2}]}", "{\"$ref\":\"#/$defs/d400\"}",
         "refers to itself"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_string text = {0};
        chain_of(&text, cases[i].count, cases[i].before, cases[i].after, cases[i].end);
        if (cases[i].says == NULL) {
            check_form(&(form_case){text.data, {"1"}, {"3"}}, true);
        } else {
            check_refused(&(refusal){text.data, cases[i].says}, true);
        }
        by_string_free(&text);
    }
}

static void refusals(void **state)
{
    BY_UNUSED(state);
    refuse_many_classes();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused_regexes); i++) {
        check_refused(&refused_regexes[i], false);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused_schemas); i++) {
        check_refused(&refused_schemas[i], true);
    }
}

/* ---- tokens ---- */

static const char *const words[] = {"a",      "b",    "ab", "abc", "\"", "{",  "}",
                                    "}}",     "1",    "23", ",",   ":",  " ",  "",
                                    "\"a\":", "null", "[",  "]",   "\n", "cab"};

static by_status word_bytes(void *user, uint32_t id, const char **data, size_t *length,
                            by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    *data = words[id];
    *length = strlen(words[id]);
    return BY_OK;
}

/* The list of allowed tokens against one made token by token. */
static void check_allowed(const by_constraint *constraint, const by_token_list *list,
                          by_constraint_state *s, by_constraint_state *spare)
{
    const uint64_t *allowed = by_constraint_state_allowed(s);
    BY_UNUSED(constraint);
    BY_UNUSED(list);
    for (uint32_t id = 0; id < BY_ARRAY_LENGTH(words); id++) {
        by_constraint_state_copy(spare, s);
        bool goes = by_constraint_state_accept(spare, id, NULL) == BY_OK;
        assert_int_equal(allowed[id / 64] >> id % 64 & 1u, goes);
    }
}

static void allowed_tokens(void **state)
{
    static const char *const forms_of[] = {"(ab|abc|cab)*", "[abc]{3}\\{?",
                                           "\\{\"a\":(1|23)*\\}\\}?"};
    by_error error;
    by_token_list *list;
    BY_UNUSED(state);
    assert_int_equal(by_token_list_open(&list, word_bytes, NULL, BY_ARRAY_LENGTH(words), &error),
                     BY_OK);
    for (size_t f = 0; f < BY_ARRAY_LENGTH(forms_of); f++) {
        by_constraint *constraint;
        by_constraint_state *s;
        by_constraint_state *spare;
        assert_int_equal(
            by_constraint_open_regex(&constraint, forms_of[f], strlen(forms_of[f]), NULL, &error),
            BY_OK);
        assert_int_equal(by_constraint_state_open(&s, constraint, list, &error), BY_OK);
        assert_int_equal(by_constraint_state_open(&spare, constraint, list, &error), BY_OK);
        for (uint32_t round = 0; round < 20; round++) {
            by_constraint_state_reset(s);
            for (uint32_t step = 0; step < 10; step++) {
                check_allowed(constraint, list, s, spare);
                const uint64_t *allowed = by_constraint_state_allowed(s);
                uint32_t id = (round * 7 + step * 3) % BY_ARRAY_LENGTH(words);
                for (uint32_t k = 0; k < BY_ARRAY_LENGTH(words); k++) {
                    if ((allowed[0] >> id & 1u) != 0) {
                        break;
                    }
                    id = (id + 1) % (uint32_t)BY_ARRAY_LENGTH(words);
                }
                if (by_constraint_state_accept(s, id, &error) != BY_OK) {
                    break;
                }
            }
        }
        by_constraint_state_close(&s);
        by_constraint_state_close(&spare);
        by_constraint_close(&constraint);
    }
    by_token_list_close(&list);
}

static void masks_logits(void **state)
{
    by_error error;
    by_token_list *list;
    by_constraint *constraint;
    by_constraint_state *s;
    float logits[BY_ARRAY_LENGTH(words) + 1];
    const int32_t end = BY_ARRAY_LENGTH(words);
    BY_UNUSED(state);
    assert_int_equal(by_token_list_open(&list, word_bytes, NULL, BY_ARRAY_LENGTH(words), &error),
                     BY_OK);
    assert_int_equal(by_constraint_open_regex(&constraint, "ab1", 3, NULL, &error), BY_OK);
    assert_int_equal(by_constraint_state_open(&s, constraint, list, &error), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(logits); i++) {
        logits[i] = (float)i;
    }
    assert_int_equal(by_constraint_state_mask(s, logits, BY_ARRAY_LENGTH(logits), &end, 1, &error),
                     BY_OK);
    assert_true(logits[0] == 0.0f && logits[2] == 2.0f);
    assert_true(isinf(logits[1]) && isinf(logits[3]) && isinf(logits[end]));
    assert_int_equal(by_constraint_state_accept(s, 1, &error), BY_EARG);
    assert_int_equal(by_constraint_state_accept(s, 2, &error), BY_OK);
    assert_false(by_constraint_state_can_end(s));
    assert_int_equal(by_constraint_state_accept(s, 8, &error), BY_OK);
    assert_true(by_constraint_state_can_end(s));
    assert_true(by_constraint_state_is_complete(s));
    logits[end] = 5.0f;
    assert_int_equal(by_constraint_state_mask(s, logits, BY_ARRAY_LENGTH(logits), &end, 1, &error),
                     BY_OK);
    assert_true(isinf(logits[0]) && logits[end] == 5.0f);
    assert_int_equal(by_constraint_state_mask(s, logits, BY_ARRAY_LENGTH(logits), NULL, 0, &error),
                     BY_EFORMAT);
    by_constraint_state_close(&s);
    by_constraint_close(&constraint);
    by_token_list_close(&list);
}

/* What the vocabulary lacks the bytes for is never begun; where nothing else is left, opening says
 * so, and an expression without any text is told apart from that. */
static void forms_of_a_vocabulary(void **state)
{
    static const struct {
        const char *form;
        by_status status;
        const char *fits;
        const char *fails;
    } cases[] = {
        {"ab1|a-", BY_OK, "ab1", "a-"},
        {"(a[b-])*", BY_OK, "abab", "a-"},
        {"[ab]*-", BY_EFORMAT, NULL, NULL},
        {"[]", BY_EARG, NULL, NULL},
    };
    by_error error;
    by_token_list *list;
    by_constraint *constraint;
    by_constraint_state *s;
    bool matches;
    float logits[BY_ARRAY_LENGTH(words)];
    BY_UNUSED(state);
    assert_int_equal(by_token_list_open(&list, word_bytes, NULL, BY_ARRAY_LENGTH(words), &error),
                     BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_status status = by_constraint_open_regex(&constraint, cases[i].form,
                                                    strlen(cases[i].form), list, &error);
        if (status != cases[i].status) {
            fail_msg("%s: %d", cases[i].form, (int)status);
        }
        if (status == BY_OK) {
            assert_int_equal(by_constraint_matches(constraint, cases[i].fits, strlen(cases[i].fits),
                                                   &matches, &error),
                             BY_OK);
            assert_true(matches);
            assert_int_equal(by_constraint_matches(constraint, cases[i].fails,
                                                   strlen(cases[i].fails), &matches, &error),
                             BY_OK);
            assert_false(matches);
            by_constraint_close(&constraint);
        }
    }
    static const char boolean[] = "{\"type\":\"boolean\"}";
    assert_int_equal(by_constraint_open_schema(&constraint, boolean, strlen(boolean), list, &error),
                     BY_EFORMAT);
    /* Its bytes are those of tokens, but no token begins with them. */
    assert_int_equal(by_constraint_open_regex(&constraint, "3", 1, list, &error), BY_OK);
    assert_int_equal(by_constraint_state_open(&s, constraint, list, &error), BY_OK);
    assert_int_equal(by_constraint_state_mask(s, logits, BY_ARRAY_LENGTH(logits), NULL, 0, &error),
                     BY_EFORMAT);
    by_constraint_state_close(&s);
    by_constraint_close(&constraint);
    by_token_list_close(&list);
}

/* Objects nested deeper than the bound are cut off, not followed without end. */
static void nesting_is_bounded(void **state)
{
    by_error error;
    by_constraint *constraint;
    char text[1000];
    bool matches;
    BY_UNUSED(state);
    assert_int_equal(by_constraint_open_json(&constraint, false, NULL, &error), BY_OK);
    memset(text, '[', 400);
    memset(text + 400, ']', 400);
    assert_int_equal(by_constraint_matches(constraint, text, 800, &matches, &error), BY_OK);
    assert_false(matches);
    assert_int_equal(by_constraint_matches(constraint, text + 360, 80, &matches, &error), BY_OK);
    assert_true(matches);
    by_constraint_close(&constraint);
}

/* ---- the work for masks ---- */

enum { MANY = 3000, MASK_WORDS = (MANY + 63) / 64 };

/* Printable characters, and words of two to five of them. */
static by_status many_bytes(void *user, uint32_t id, const char **data, size_t *length,
                            by_error *error)
{
    char(*made)[8] = user;
    BY_UNUSED(error);
    uint32_t left = id < 95 ? 0 : id - 94;
    size_t n = 0;
    made[id][n++] = (char)(' ' + id % 95);
    for (; left > 0; left /= 6) {
        made[id][n++] = "aeinst"[left % 6];
    }
    *data = made[id];
    *length = n;
    return BY_OK;
}

/* 60 objects that differ at their ends: as many ways through a long string. */
static void open_many_ways(by_constraint **out, const by_token_list *list)
{
    by_error error;
    by_string text = {0};
    by__string_append(&text, "{\"anyOf\":[");
    for (int i = 0; i < 60; i++) {
        by_string_format(&text,
                         "%s{\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":200},"
                         "\"k%d\":{\"type\":\"null\"}},\"required\":[\"a\",\"k%d\"]}",
                         i == 0 ? "" : ",", i, i);
    }
    by__string_append(&text, "]}");
    assert_int_equal(by_constraint_open_schema(out, text.data, text.length, list, &error), BY_OK);
    by_string_free(&text);
}

static void accept_text(by_constraint_state *s, const char *text)
{
    by_error error;
    for (; *text != '\0'; text++) {
        assert_int_equal(by_constraint_state_accept(s, (uint32_t)(*text - ' '), &error), BY_OK);
    }
}

/* The work for a set of tokens does not grow with vocabulary times ways; sequences share it; and it
 * can be done in parts. */
static void work_is_bounded(void **state)
{
    static char made[MANY][8];
    by_error error;
    by_token_list *list;
    by_constraint *constraint;
    by_constraint_state *s, *other;
    int64_t work = INT64_MAX;
    size_t parts = 0;
    BY_UNUSED(state);
    assert_int_equal(by_token_list_open(&list, many_bytes, made, MANY, &error), BY_OK);
    open_many_ways(&constraint, list);
    assert_int_equal(by_constraint_state_open(&s, constraint, list, &error), BY_OK);
    assert_int_equal(by_constraint_state_open(&other, constraint, list, &error), BY_OK);
    accept_text(s, "{\"a\":\"x");
    accept_text(other, "{\"a\":\"x");
    assert_true(by_constraint_state_prepare(s, &work));
    assert_true(INT64_MAX - work > MANY && INT64_MAX - work < 60 * MANY);
    work = 100;
    assert_true(by_constraint_state_prepare(other, &work));
    for (const char *at = "another x and yet another"; *at != '\0'; at++) {
        const char one[2] = {*at, '\0'};
        accept_text(s, one);
        accept_text(other, one);
        for (work = 0; !by_constraint_state_prepare(other, &work); parts++) {
            work = 700;
        }
        assert_memory_equal(by_constraint_state_allowed(s), by_constraint_state_allowed(other),
                            MASK_WORDS * sizeof(uint64_t));
    }
    assert_true(parts > 25);
    by_constraint_state_close(&s);
    by_constraint_state_close(&other);
    by_constraint_close(&constraint);
    by_token_list_close(&list);
}

/* What is forgotten for want of memory is found again. */
static void forgets(void **state)
{
    static char made[MANY][8];
    by_error error;
    by_token_list *list;
    by_constraint *constraint;
    by_constraint_state *s, *fresh;
    char text[260] = "{\"a\":\"";
    BY_UNUSED(state);
    assert_int_equal(by_token_list_open(&list, many_bytes, made, MANY, &error), BY_OK);
    open_many_ways(&constraint, list);
    assert_int_equal(by_constraint_state_open(&s, constraint, list, &error), BY_OK);
    accept_text(s, text);
    for (size_t i = 0; i < 230; i++) {
        char one[2] = {"tens"[i % 4], '\0'};
        (void)strcat(text, one);
        accept_text(s, one);
        (void)by_constraint_state_allowed(s);
    }
    by_constraint *again;
    open_many_ways(&again, list);
    assert_int_equal(by_constraint_state_open(&fresh, again, list, &error), BY_OK);
    accept_text(fresh, text);
    assert_memory_equal(by_constraint_state_allowed(s), by_constraint_state_allowed(fresh),
                        MASK_WORDS * sizeof(uint64_t));
    accept_text(s, "\", \"k59\":null}");
    assert_true(by_constraint_state_is_complete(s));
    by_constraint_state_close(&s);
    by_constraint_state_close(&fresh);
    by_constraint_close(&constraint);
    by_constraint_close(&again);
    by_token_list_close(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(refusals),
        cmocka_unit_test(chains),
        cmocka_unit_test(allowed_tokens),
        cmocka_unit_test(masks_logits),
        cmocka_unit_test(forms_of_a_vocabulary),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(work_is_bounded),
        cmocka_unit_test(forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
