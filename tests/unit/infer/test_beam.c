/* Beam search, where it is wide enough to see all texts; tests/parity/check_beams.py compares it
 * with transformers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/beam.h"
#include "runner.h"

enum { VOCAB = 5, TOKENS = 3, BEAMS = 25, PROMPT = 17 };

static by_config *make_config(void)
{
    static const char *const settings[] = {
        "model.kind=llama",   "model.layers=2",  "model.heads=2",
        "model.width=16",     "model.vocab=5",   "model.context=40",
        "model.init_std=0.3", "train.threads=1", "precision.compute=f32"};
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* The log-probability of the last TOKENS tokens of a text. */
static double probability_of(by_logits *logits, const int32_t *text)
{
    by_error error = {0};
    const float *all;
    double sum = 0.0;
    check_ok(by_logits_run(logits, text, &all, &error), &error);
    for (int i = PROMPT; i < PROMPT + TOKENS; i++) {
        const float *row = all + (i - 1) * VOCAB;
        double total = 0.0;
        for (int v = 0; v < VOCAB; v++) {
            total += exp((double)row[v]);
        }
        sum += (double)row[text[i]] - log(total);
    }
    return sum;
}

/* As many beams as there are texts of all tokens but one see all of them, in their order. */
static void test_all_texts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = make_config();
    by_logits *logits;
    by_beam *beam;
    const by_beam_options options = {.beams = BEAMS};
    const by_hypothesis *found;
    int32_t count;
    int32_t text[PROMPT + TOKENS];
    double best = -HUGE_VAL;
    int32_t want[TOKENS] = {0};
    for (int i = 0; i < PROMPT; i++) {
        text[i] = i * 3 % VOCAB;
    }
    check_ok(by_logits_open(&logits, config, NULL, 1, PROMPT + TOKENS, NULL, 0, &error), &error);
    for (int i = 0; i < VOCAB * VOCAB * VOCAB; i++) {
        text[PROMPT] = i % VOCAB;
        text[PROMPT + 1] = i / VOCAB % VOCAB;
        text[PROMPT + 2] = i / VOCAB / VOCAB;
        double sum = probability_of(logits, text);
        if (sum > best) {
            best = sum;
            memcpy(want, text + PROMPT, sizeof want);
        }
    }
    check_ok(by_beam_open(&beam, config, NULL, &options, &error), &error);
    assert_true(by_beam_bytes(beam) > 0);
    by_beam_request r = {.prompt = text, .prompt_count = PROMPT, .tokens = TOKENS};
    for (int again = 0; again < 2; again++) {
        check_ok(by_beam_run(beam, &r, &found, &count, &error), &error);
        assert_int_equal(count, BEAMS);
        assert_int_equal(found[0].count, TOKENS);
        assert_memory_equal(found[0].tokens, want, sizeof want);
        assert_true(fabs(found[0].log_probability - best) < 1e-4);
        for (int32_t i = 0; i < count; i++) {
            memcpy(text + PROMPT, found[i].tokens, sizeof want);
            assert_true(fabs(found[i].log_probability - probability_of(logits, text)) < 1e-4);
            assert_true(i == 0 || found[i].score <= found[i - 1].score);
            assert_false(found[i].stopped);
        }
    }
    by_beam_close(&beam);
    by_logits_close(&logits);
    by_config_close(&config);
}

/* A text ends with a stop token, or where the context is full. */
static void test_ends(void **state)
{
    BY_UNUSED(state);
    static const int32_t prompt[] = {1, 2, 3};
    static const int32_t stop[] = {0, 1, 2, 3, 4};
    by_error error = {0};
    by_config *config = make_config();
    by_beam *beam;
    const by_beam_options options = {.beams = 2};
    const by_hypothesis *found;
    int32_t count;
    check_ok(by_beam_open(&beam, config, NULL, &options, &error), &error);
    by_beam_request r = {.prompt = prompt, .prompt_count = 3, .stop = stop, .stop_count = 5};
    check_ok(by_beam_run(beam, &r, &found, &count, &error), &error);
    assert_int_equal(count, 2);
    assert_true(found[0].stopped && found[0].count == 1 && found[1].count == 1);
    r.stop_count = 0;
    check_ok(by_beam_run(beam, &r, &found, &count, &error), &error);
    assert_int_equal(found[0].count, 40 + 1 - 3);
    r.prompt_count = 0;
    assert_int_equal(by_beam_run(beam, &r, &found, &count, &error), BY_EARG);
    r.prompt_count = 3;
    r.length_penalty = INFINITY;
    assert_int_equal(by_beam_run(beam, &r, &found, &count, &error), BY_EARG);
    by_beam_close(&beam);
    const by_beam_options none = {.beams = 0};
    assert_int_equal(by_beam_open(&beam, config, NULL, &none, &error), BY_EARG);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_texts),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
