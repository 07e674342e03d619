/* Drafts by n-gram look-up: what is proposed for a text, and its chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/draft.h"
#include "base/base.h"

static by_draft_source open_source(void)
{
    by_error error = {0};
    by_draft_source source;
    uint64_t bytes = 0;
    assert_int_equal(by_draft_ngram(&source, &error), BY_OK);
    assert_int_equal(source.start(source.user, 2, 100, 61, &bytes, &error), BY_OK);
    assert_true(bytes > 0);
    return source;
}

/* Drafts for a text of letters; returns their number. */
static int32_t ask(by_draft_source *source, int32_t place, uint64_t id, const char *letters,
                   char *out, double *chance)
{
    by_error error = {0};
    int32_t tokens[100];
    int32_t drafts[BY_DRAFT_TOKENS];
    int64_t count = (int64_t)strlen(letters);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = (unsigned char)letters[i];
    }
    by_draft_text text = {
        .place = place, .id = id, .tokens = tokens, .count = count, .most = 5, .drafts = drafts};
    source->look(source->user, &text);
    if (text.most > 0) {
        assert_int_equal(source->propose(source->user, &text, 1, &error), BY_OK);
    }
    for (int32_t i = 0; i < text.most; i++) {
        out[i] = (char)drafts[i];
    }
    out[text.most] = '\0';
    *chance = text.chance;
    return text.most;
}

static void test_look_up(void **state)
{
    static const struct {
        const char *text;
        const char *drafts;
    } cases[] = {
        {"a", ""},
        {"abcdefg", ""},
        {"abxyzcab", "xyzca"},         /* what followed "ab" */
        {"xxabcd..abce..ab", "ce..a"}, /* the last of equal places */
        {"abcd..zbce..abc", "d..zb"},  /* the longest */
        {"zzz", "zzzzz"},              /* beyond the text, it repeats */
        {"ababab", "ababa"},
    };
    BY_UNUSED(state);
    by_draft_source source = open_source();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char drafts[BY_DRAFT_TOKENS + 1];
        double chance;
        ask(&source, 1, i + 1, cases[i].text, drafts, &chance);
        assert_string_equal(drafts, cases[i].drafts);
    }
    by_draft_close(&source);
    by_draft_close(&source); /* closed, it is {0} */
}

/* The chance follows what happens, whether drafts are used or not; another sequence in the place
 * begins anew. */
static void test_chance(void **state)
{
    static const char repeated[] = "abcabcabcabcabcabcabcabcabcabc";
    static const char wrong[] = "abcabdabeabfabgabhabiabjabkabl";
    BY_UNUSED(state);
    by_draft_source source = open_source();
    double chance[2] = {0.0, 0.0};
    double first;
    char text[40];
    char drafts[BY_DRAFT_TOKENS + 1];
    for (size_t n = 5; n < sizeof repeated; n++) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, repeated);
        ask(&source, 0, 1, text, drafts, &chance[0]);
        (void)snprintf(text, sizeof text, "%.*s", (int)n, wrong);
        ask(&source, 1, 2, text, drafts, &chance[1]);
    }
    assert_true(chance[0] > 0.9);
    assert_true(chance[1] < 0.3);
    ask(&source, 1, 3, "ababab", drafts, &first);
    assert_true(first > chance[1]);
    by_draft_close(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look_up),
        cmocka_unit_test(test_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
