/* Drafts by n-gram look-up: what is proposed for a text, and its chance. And what drafts that are
 * never right cost, by times of steps that are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/draft.h"
#include "base/base.h"
#include "infer/scheduler.h"
#include "runner.h"
#include "small_engine.h"

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
    source->observe(source->user, &text);
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
    /* Texts that repeat themselves and go on otherwise, 10 times each: a new one knows of them. */
    static const char other[] = "abcdefgh.abcdefghX";
    for (uint64_t id = 4; id < 64; id++) {
        ask(&source, 1, id, "abcdefgh.abcdefgh", drafts, &first);
        ask(&source, 1, id, other, drafts, &chance[1]);
    }
    assert_true(first < 0.1);
    by_draft_close(&source);
}

/* ---- what they cost ---- */

/* Seconds of a step and, for each draft of a text and each token that it has to read before, of the
 * source; and the texts. */
typedef struct cost {
    double row; /* one more */
    double draft;
    double read;
    uint32_t texts;
    size_t prompt;
    int64_t tokens;
    bool stop; /* they end at a stop token, which is their second */
} cost;

/* A source that takes these times, for one sequence. */
typedef struct slow_source {
    by_draft_source source;
    const cost *cost;
    uint64_t id;
    int64_t read; /* tokens of that sequence */
} slow_source;

/* What the library takes for the time. */
static double now = 1.0;

double __wrap_by__now(void);
double __wrap_by__now(void)
{
    return now;
}

static by_status start_slow(void *user, int64_t sequences, int64_t context, int64_t vocab,
                            uint64_t *bytes, by_error *error)
{
    slow_source *s = user;
    return s->source.start(s->source.user, sequences, context, vocab, bytes, error);
}

static void observe_slow(void *user, by_draft_text *text)
{
    slow_source *s = user;
    s->source.observe(s->source.user, text);
}

static by_status propose_slow(void *user, by_draft_text *texts, size_t count, by_error *error)
{
    slow_source *s = user;
    int64_t read = s->id == texts->id ? s->read : 0;
    s->id = texts->id;
    s->read = texts->count;
    now += s->cost->read * (double)(texts->count - 1 - read) + s->cost->draft * texts->most;
    return s->source.propose(s->source.user, texts, count, error);
}

static double step_seconds(const cost *c, int64_t rows)
{
    return 1.0 + c->row * (double)(rows - 1);
}

/* Decodes a text, and adds to *seconds what its steps take by these times; those of
 * the prompt have no drafts and are left out. Returns the last token. */
static int32_t decode(by_engine *engine, const cost *c, uint32_t text, int32_t stop,
                      double *seconds)
{
    by_error error = {0};
    uint64_t session;
    int32_t prompt[CONTEXT];
    int32_t last = -1;
    const by_request request = {.prompt = prompt,
                                .prompt_count = c->prompt,
                                .tokens = c->tokens,
                                .stop = &stop,
                                .stop_count = c->stop,
                                .sampling = {.top_p = 1.0}};
    for (uint32_t i = 0; i < c->prompt; i++) {
        prompt[i] = (int32_t)((text * 17 + i * i * 5 + text * i) % VOCAB);
    }
    check_ok(by_engine_submit(engine, &request, &session, &error), &error);
    for (int64_t done = 0; by_engine_busy(engine);) {
        const by_event *events;
        size_t count;
        double began = now;
        by_engine_statistics before = by_engine_statistics_now(engine);
        engine->draft_seconds = c->draft;
        for (int i = 0; i < engine->steps.count; i++) {
            engine->steps.list[i].seconds = step_seconds(c, engine->steps.list[i].rows);
        }
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        by_engine_statistics after = by_engine_statistics_now(engine);
        int64_t rows = (int64_t)(after.rows + after.padding - before.rows - before.padding);
        *seconds += done == 0 ? 0.0 : step_seconds(c, rows) + now - began;
        done += (int64_t)count;
        last = count > 0 ? events[count - 1].token : last;
    }
    return last;
}

/* Many short texts, one after the other; *plain: seconds without drafts. */
static by_engine_statistics decode_all(const by_config *config, const by_config *of_drafts,
                                       const cost *c, double *plain, double *seconds)
{
    by_error error = {0};
    slow_source drafts = {.cost = c};
    const by_draft_source source = {
        .user = &drafts, .start = start_slow, .observe = observe_slow, .propose = propose_slow};
    by_engine_options options = {.sessions = 1, .rows = 16, .no_prefix_cache = true};
    by_engine *without = small_engine_open(config, &options);
    check_ok(by_draft_model(&drafts.source, of_drafts, NULL, NULL, &error), &error);
    options.draft = &source;
    by_engine *engine = small_engine_open(config, &options);
    *plain = 0.0;
    *seconds = 0.0;
    for (uint32_t text = 0; text < c->texts; text++) {
        const cost two = {.row = c->row, .prompt = c->prompt, .tokens = 2};
        double ignored;
        int32_t second = c->stop ? decode(without, &two, text, 0, &ignored) : 0;
        (void)decode(without, c, text, second, plain);
        (void)decode(engine, c, text, second, seconds);
    }
    by_engine_statistics st = by_engine_statistics_now(engine);
    by_engine_close(&engine);
    by_engine_close(&without);
    by_draft_close(&drafts.source);
    return st;
}

/* Drafts that are never right are given up once, not in each text, however long its prompt is to
 * read; those of the same model stay. */
static void test_cost(void **state)
{
    static const cost cases[] = {
        {0.02, 0.05, 0.0, 50, 5, 12, false}, {0.02, 0.2, 0.0, 50, 5, 12, false},
        {0.1, 0.3, 0.0, 50, 5, 12, false},   {0.05, 0.45, 0.0, 50, 5, 12, false},
        {0.02, 0.2, 0.0, 200, 5, 3, false},  {0.02, 0.2, 0.0, 400, 5, 12, true},
        {0.02, 0.1, 0.1, 50, 60, 12, false}, {0.02, 0.1, 0.1, 10, 5, 90, false}};
    BY_UNUSED(state);
    by_config *config = small_engine_config("llama", "f32");
    by_config *other = small_engine_config("gpt2", "f32");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        double plain;
        double seconds;
        by_engine_statistics st = decode_all(config, other, &cases[i], &plain, &seconds);
        assert_true(st.drafted > 0 && seconds < plain / 0.95);
        if (i == 2 || i == 6) {
            st = decode_all(config, config, &cases[i], &plain, &seconds);
            assert_true(st.accepted > 400);
        }
    }
    by_config_close(&config);
    by_config_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look_up),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
