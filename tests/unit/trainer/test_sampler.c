/* Texts that a model continues while it trains: against logits of whole sequences, without a change
 * of bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/infer.h"
#include "runner.h"
#include "trainer/probes/probes.h"
#include "trainer/state/trainer.h"

#define CONTEXT 16
#define VOCAB   31
#define BATCH   2

static const char *const common[] = {"model.layers=2",
                                     "model.heads=2",
                                     "model.width=16",
                                     "model.context=16",
                                     "model.vocab=31",
                                     "train.batch=2",
                                     "train.steps=10",
                                     "optimizer.warmup=0",
                                     "track.sample_prompt=\"abc\"",
                                     "seed=11",
                                     NULL};

typedef struct setup {
    by_config *config;
    by_trainer *trainer;
} setup;

static void open_setup(setup *s, const char *const *settings)
{
    by_error error = {0};
    *s = (setup){.config = config_of(common, settings)};
    check_ok(by_trainer_open(&s->trainer, s->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
}

static void close_setup(setup *s)
{
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

/* The draw as sampler.c describes it. */
static int32_t draw(const float *logits, uint64_t seed, uint32_t position, int32_t vocab)
{
    int32_t best = -1;
    double most = -INFINITY;
    uint32_t key[2];
    by__philox_key(key, seed, by__hash64("sample", 6));
    for (int32_t id = 0; id < vocab; id++) {
        uint32_t random[4];
        by__philox(random, key, (const uint32_t[4]){(uint32_t)id, position, 0, 0});
        double u = ((double)random[0] + 0.5) / 4294967296.0;
        double value = (double)logits[id] / 0.8 - log(-log(u));
        best = value > most ? id : best;
        most = fmax(most, value);
    }
    return best;
}

/* Token by token with caches, as all at once without: initial weights of both are the same. */
static void compare(const char *const *settings)
{
    by_error error = {0};
    setup s;
    by_logits *logits;
    const float *all;
    size_t made;
    int32_t ids[CONTEXT] = {3, 1, 4};
    int32_t again[CONTEXT] = {3, 1, 4};
    const int32_t vocab = VOCAB - 2; /* the table has more rows than there are tokens */
    open_setup(&s, settings);
    assert_int_equal(by__trainer_sampler_positions(s.trainer), CONTEXT);
    check_ok(by__trainer_sampler_run(s.trainer, ids, 3, CONTEXT - 3, vocab, &made, &error), &error);
    assert_int_equal(made, CONTEXT - 3);
    check_ok(by_logits_open(&logits, s.config, NULL, 1, CONTEXT, NULL, 0, &error), &error);
    check_ok(by_logits_run(logits, ids, &all, &error), &error);
    for (uint32_t i = 3; i < CONTEXT; i++) {
        assert_int_equal(ids[i], draw(all + (size_t)(i - 1) * VOCAB, 11, i, vocab));
    }
    by_logits_close(&logits);
    /* What is left in the caches does not matter. */
    check_ok(by__trainer_sampler_run(s.trainer, again, 3, CONTEXT - 3, vocab, &made, &error),
             &error);
    assert_memory_equal(ids, again, sizeof ids);
    close_setup(&s);
}

static void test_texts(void **state)
{
    BY_UNUSED(state);
    static const char *const gpt2[] = {"model.kind=gpt2", "precision.compute=f32",
                                       "track.sample_every=1", NULL};
    static const char *const llama[] = {"model.kind=llama", "precision.compute=bf16",
                                        "track.sample_every=1", NULL};
    compare(gpt2);
    compare(llama);
}

/* Steps with texts between them are those without; a model without a finite logit makes none. */
static void test_bits(void **state)
{
    BY_UNUSED(state);
    static const char *const off[] = {"model.kind=gpt2", NULL};
    static const char *const on[] = {"model.kind=gpt2", "track.sample_every=1", NULL};
    by_error error = {0};
    by_step_result result;
    setup plain;
    setup seen;
    size_t made;
    int32_t ids[CONTEXT] = {1, 2};
    int32_t tokens[BATCH * CONTEXT];
    by_array arrays[2];
    open_setup(&plain, off);
    open_setup(&seen, on);
    assert_int_equal(by__trainer_sampler_positions(plain.trainer), 0);
    assert_true(by_trainer_memory(seen.trainer)->workspace >
                by_trainer_memory(plain.trainer)->workspace);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(tokens); i++) {
        tokens[i] = (int32_t)(i * 7 % VOCAB);
    }
    by_batch batch = by_batch_of_tokens(arrays, tokens, tokens, BATCH, CONTEXT);
    for (int i = 0; i < 3; i++) {
        check_ok(by_trainer_step(plain.trainer, &batch, &result, &error), &error);
        check_ok(by__trainer_sampler_run(seen.trainer, ids, 2, 8, VOCAB, &made, &error), &error);
        check_ok(by_trainer_step(seen.trainer, &batch, &result, &error), &error);
    }
    for (size_t i = 0; i < by_trainer_parameter_count(plain.trainer); i++) {
        by_tensor_view a = by_trainer_parameter(plain.trainer, i);
        by_tensor_view b = by_trainer_parameter(seen.trainer, i);
        size_t bytes;
        check_ok(by_tensor_size(&a, NULL, &bytes, &error), &error);
        assert_memory_equal(a.data, b.data, bytes);
        memset((void *)(uintptr_t)b.data, 0xff, bytes); /* NaN */
    }
    check_ok(by__trainer_sampler_run(seen.trainer, ids, 2, 8, VOCAB, &made, &error), &error);
    assert_int_equal(made, 0);
    close_setup(&plain);
    close_setup(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
