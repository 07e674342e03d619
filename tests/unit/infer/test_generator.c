/* Generation with key/value caches against running the model over the whole window, token for
 * token. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/infer.h"
#include "base/base.h"
#include "checkpoints.h"
#include "temporary.h"
#include "tiny_model.h"

#define CONTEXT 70
#define VOCAB   61
#define LONGEST 200

typedef struct fixture {
    by_config *config;
    by_weights *weights;
    char *directory;
} fixture;

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static by_config *make_config(const char *const *settings, size_t count)
{
    static const char *const common[] = {
        "model.layers=2", "model.heads=4",      "model.width=32",        "model.context=70",
        "model.vocab=61", "model.init_std=0.3", "precision.compute=f32", "train.threads=1"};
    const char *all[32];
    size_t n = BY_ARRAY_LENGTH(common);
    assert_true(n + count <= BY_ARRAY_LENGTH(all));
    memcpy(all, common, sizeof common);
    for (size_t i = 0; i < count; i++) {
        all[n++] = settings[i];
    }
    return tiny_config(all, n);
}

static void open_fixture(fixture *f, const char *const *settings, size_t count)
{
    by_error error = {0};
    f->config = make_config(settings, count);
    f->directory = temporary_make();
    assert_non_null(f->directory);
    tiny_model_write(f->config, f->directory);
    check(by_weights_open(&f->weights, f->directory, &error), &error);
}

static void close_fixture(fixture *f)
{
    by_weights_close(&f->weights);
    by_config_close(&f->config);
    temporary_remove(f->directory);
}

static by_generator *open_generator(const fixture *f, const by_generator_options *options)
{
    by_error error = {0};
    by_generator *generator;
    check(by_generator_open(&generator, f->config, f->weights, options, &error), &error);
    return generator;
}

static void feed(by_generator *generator, const int32_t *tokens, size_t count)
{
    by_error error = {0};
    check(by_generator_feed(generator, tokens, count, &error), &error);
}

static int32_t greedy(by_generator *generator)
{
    by_error error = {0};
    int32_t token;
    by_sampling sampling = {.temperature = 0.0, .top_p = 1.0};
    check(by_generator_sample(generator, &sampling, &token, &error), &error);
    return token;
}

/* Logits after the last of `count` tokens, without caches. */
static void recompute(const fixture *f, const int32_t *tokens, int64_t count, float *out)
{
    by_error error = {0};
    by_logits *logits;
    const float *all;
    check(by_logits_open(&logits, f->config, f->weights, 1, count, NULL, 0, &error), &error);
    check(by_logits_run(logits, tokens, &all, &error), &error);
    memcpy(out, all + (count - 1) * VOCAB, VOCAB * sizeof *out);
    by_logits_close(&logits);
}

static int32_t largest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void fill_tokens(int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)((i * 37 + i * i * 11 + 5) % VOCAB);
    }
}

static void compare_logits(const by_generator *generator, const float *wanted, size_t prompt,
                           size_t at)
{
    const float *have = by_generator_logits(generator);
    assert_non_null(have);
    for (int i = 0; i < VOCAB; i++) {
        if (!(fabsf(have[i] - wanted[i]) <= 1e-4f)) {
            fail_msg("prompt of %zu tokens, token %zu: logit %d is %g, recomputed %g", prompt, at,
                     i, (double)have[i], (double)wanted[i]);
        }
    }
}

/* Generates `more` tokens behind a prompt; at each, the caches' logits and choice are those of the
 * window computed anew. The window is the whole sequence until it would pass the context, and then
 * starts again with the last half. */
static void compare_generation(const fixture *f, by_generator *generator, size_t prompt,
                               size_t more)
{
    int32_t tokens[LONGEST];
    float wanted[VOCAB];
    size_t context = (size_t)by_generator_context(generator);
    size_t keep = context / 2 < 1 ? 1 : context / 2;
    size_t first = prompt > context ? prompt - keep : 0;
    assert_true(prompt + more <= LONGEST);
    fill_tokens(tokens, prompt);
    by_generator_reset(generator);
    assert_null(by_generator_logits(generator));
    feed(generator, tokens, prompt);
    for (size_t n = prompt;; n++) {
        if (n - first > context) {
            first = n - keep;
        }
        assert_int_equal(by_generator_position(generator), n);
        assert_int_equal(by_generator_cached(generator), n - first);
        recompute(f, tokens + first, (int64_t)(n - first), wanted);
        compare_logits(generator, wanted, prompt, n);
        tokens[n] = greedy(generator);
        assert_int_equal(tokens[n], largest(wanted));
        if (n + 1 == prompt + more) {
            break;
        }
        feed(generator, tokens + n, 1);
    }
}

static void check_model(const char *const *settings, size_t count)
{
    static const size_t prompts[] = {1,  2,  3,  15, 16, 17, 18, 28, 29, 32,
                                     33, 34, 48, 49, 64, 65, 69, 70, 71, 90};
    fixture f;
    by_generator_options slide = {.slide = true};
    open_fixture(&f, settings, count);
    by_generator *generator = open_generator(&f, &slide);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(prompts); i++) {
        compare_generation(&f, generator, prompts[i], 3);
    }
    compare_generation(&f, generator, 5, 100);
    by_generator_close(&generator);
    /* Small and odd contexts: every token slides, or nearly. */
    static const int64_t contexts[] = {1, 2, 3, 17};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(contexts); i++) {
        slide.context = contexts[i];
        generator = open_generator(&f, &slide);
        compare_generation(&f, generator, 1, 40);
        by_generator_close(&generator);
    }
    close_fixture(&f);
}

static void test_gpt2(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2"};
    check_model(settings, BY_ARRAY_LENGTH(settings));
}

static void test_llama(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88"};
    check_model(settings, BY_ARRAY_LENGTH(settings));
}

static void test_llama_grouped(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.kv_heads=2", "model.tied=true"};
    check_model(settings, BY_ARRAY_LENGTH(settings));
}

static void test_llama_features(void **state)
{
    BY_UNUSED(state);
    static const char *const qwen3[] = {"model.kind=llama",    "model.mlp_width=88",
                                        "model.kv_heads=2",    "model.qk_norm=true",
                                        "model.head_dim=12",   "model.rope_scaling=yarn",
                                        "model.rope_factor=4", "model.rope_original_context=32"};
    static const char *const smollm3[] = {"model.kind=llama",          "model.mlp_width=88",
                                          "model.qkv_bias=true",       "model.output_bias=true",
                                          "model.mlp_bias=true",       "model.nope_layers=[0]",
                                          "model.rope_scaling=llama3", "model.rope_factor=4"};
    check_model(qwen3, BY_ARRAY_LENGTH(qwen3));
    check_model(smollm3, BY_ARRAY_LENGTH(smollm3));
}

/* A window that is less than the context, and than a chunk of prefill. */
static void test_llama_window(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.kv_heads=2", "model.window=9"};
    check_model(settings, BY_ARRAY_LENGTH(settings));
}

/* Layers that keep sums of the text instead of keys, alone and among others. */
static void test_linear_attention(void **state)
{
    BY_UNUSED(state);
    static const char *const linear[] = {"model.kind=gpt2", "attention.kind=linear"};
    static const char *const mixed[] = {"model.kind=llama",
                                        "model.mlp_width=88",
                                        "model.kv_heads=2",
                                        "attention.kind=mixed",
                                        "attention.pattern=[linear,window]",
                                        "attention.window=9"};
    check_model(linear, BY_ARRAY_LENGTH(linear));
    check_model(mixed, BY_ARRAY_LENGTH(mixed));
}

static void test_mixtral(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=mixtral", "model.mlp_width=40",
                                           "model.kv_heads=2", "model.capacity_factor=0.5"};
    check_model(settings, BY_ARRAY_LENGTH(settings));
}

/* A file with more than the config says is of another model. */
static void test_other_tensors(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.qkv_bias=true"};
    fixture f;
    by_error error = {0};
    by_generator *generator;
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    by_config *without = make_config(settings, 2);
    assert_int_equal(by_generator_open(&generator, without, f.weights, NULL, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "no tensor 'model.layers.0.self_attn.k_proj.bias'"));
    by_config_close(&without);
    close_fixture(&f);
}

/* Bytes that the process has in memory now. files: only those of files. */
static int64_t resident_bytes(bool files)
{
    long long all;
    long long resident;
    long long shared = -1;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld %lld", &all, &resident, &shared), 3);
    assert_int_equal(fclose(file), 0);
    return (int64_t)(files ? shared : resident) * sysconf(_SC_PAGESIZE);
}

/* What was taken over from a file does not stay in memory a second time: 16 MiB here. */
static void test_file_is_not_kept(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.vocab=131072",
                                           "model.tied=true"};
    fixture f;
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    int64_t before = resident_bytes(true);
    by_generator *generator = open_generator(&f, NULL);
    assert_true(resident_bytes(true) - before < (int64_t)4 << 20);
    by_generator_close(&generator);
    close_fixture(&f);
}

/* The caches of a long context take memory only for the tokens that they hold. */
static void test_caches_grow(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.kv_heads=2"};
    fixture f;
    int32_t tokens[8];
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    int64_t before = resident_bytes(false);
    const by_generator_options options = {.context = (int64_t)1 << 20};
    by_generator *generator = open_generator(&f, &options);
    assert_true(by_generator_memory(generator)->caches > (uint64_t)256 << 20);
    fill_tokens(tokens, 8);
    feed(generator, tokens, 8);
    assert_true(resident_bytes(false) - before < (int64_t)64 << 20);
    by_generator_close(&generator);
    close_fixture(&f);
}

/* Tokens fed in any portions give the same sequence, also where a chunk's filling would not fit. */
static void test_portions(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2"};
    static const size_t cuts[][3] = {{1, 1, 67}, {40, 26, 3}, {66, 2, 1}, {54, 14, 1}, {3, 60, 6}};
    fixture f;
    int32_t tokens[LONGEST];
    float wanted[VOCAB];
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    by_generator *generator = open_generator(&f, NULL);
    fill_tokens(tokens, CONTEXT);
    recompute(&f, tokens, 69, wanted);
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cuts); c++) {
        size_t at = 0;
        by_generator_reset(generator);
        for (int part = 0; part < 3; part++) {
            feed(generator, tokens + at, cuts[c][part]);
            at += cuts[c][part];
        }
        assert_int_equal(at, 69);
        compare_logits(generator, wanted, at, at);
    }
    by_generator_close(&generator);
    close_fixture(&f);
}

static void check_keep(const char *const *settings, size_t count)
{
    fixture f;
    float wanted[VOCAB];
    int32_t tokens[8];
    by_error error = {0};
    open_fixture(&f, settings, count);
    by_generator *generator = open_generator(&f, NULL);
    fill_tokens(tokens, 8);
    recompute(&f, tokens, 8, wanted);
    feed(generator, tokens, 8);
    int32_t other[3] = {tokens[7], tokens[5], tokens[6]};
    for (size_t kept = 0; kept < 8; kept++) {
        assert_int_equal(by_generator_keep(generator, kept, &error), BY_OK);
        assert_int_equal(by_generator_cached(generator), kept);
        assert_null(by_generator_logits(generator));
        feed(generator, other, 3);
        assert_int_equal(by_generator_keep(generator, kept, &error), BY_OK);
        feed(generator, tokens + kept, 8 - kept);
        compare_logits(generator, wanted, 8, 8);
    }
    assert_int_equal(by_generator_keep(generator, 9, &error), BY_EARG);
    assert_non_null(strstr(error.message, "9 tokens cannot be kept of 8"));
    by_generator_close(&generator);
    close_fixture(&f);
}

/* Tokens that are kept need not be taken in again. */
static void test_keep(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", "attention.kind=linear"};
    check_keep(settings, 1);
    check_keep(settings, 2);
}

/* More positions than the model was trained with, where they are not a table. */
static void test_longer_context(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88"};
    fixture f;
    by_generator_options options = {.context = 150};
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    by_generator *generator = open_generator(&f, &options);
    compare_generation(&f, generator, 140, 10);
    by_generator_close(&generator);
    close_fixture(&f);
}

/* 512 GiB of keys and values are refused before anything is taken. */
static void test_context_beyond_memory(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88"};
    fixture f;
    by_error error = {0};
    by_generator *generator = NULL;
    const by_generator_options options = {.context = INT32_MAX / 2};
    by__host_memory host;
    by__memory_available(&host);
    if (host.available >= UINT64_C(1) << 39) {
        skip();
    }
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &options, &error),
                     BY_EMEMORY);
    assert_non_null(strstr(error.message, "are free"));
    assert_non_null(strstr(error.message, "KV cache 512.0 GiB"));
    close_fixture(&f);
}

/* Not with frequencies that change with the length of the text. */
static void test_bounded_context(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.rope_scaling=dynamic",
                                           "model.rope_factor=2"};
    fixture f;
    by_error error = {0};
    by_generator *generator;
    by_logits *logits;
    by_generator_options options = {.context = CONTEXT + 1};
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "context 71: the model's is 70, and dynamic"));
    assert_int_equal(by_logits_open(&logits, f.config, f.weights, 1, CONTEXT + 1, NULL, 0, &error),
                     BY_EARG);
    options.context = CONTEXT;
    generator = open_generator(&f, &options);
    compare_generation(&f, generator, 60, 8);
    by_generator_close(&generator);
    close_fixture(&f);
}

/* The same bits with one and two threads, in every precision; the others are near f32, as near as
 * their weights are: int8 adds little to bf16, which it computes in, three bits of a mantissa more,
 * 16 levels a group a lot. */
static void test_threads(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.kv_heads=2", "model.init_std=0.05"};
    static const char *const precisions[] = {"f32", "bf16", "int8", "w8a8", "fp8", "int4"};
    static const double bounds[] = {1e-6, 1e-2, 1.5e-2, 2.5e-2, 5e-2, 0.15};
    fixture f;
    float wanted[VOCAB];
    int32_t tokens[50];
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    fill_tokens(tokens, 50);
    recompute(&f, tokens, 50, wanted);
    for (size_t p = 0; p < BY_ARRAY_LENGTH(precisions); p++) {
        by_generator_options options = {.precision = precisions[p], .threads = 1};
        by_generator *one = open_generator(&f, &options);
        options.threads = 2;
        by_generator *two = open_generator(&f, &options);
        feed(one, tokens, 40);
        feed(two, tokens, 40);
        for (int i = 40; i < 50; i++) {
            feed(one, tokens + i, 1);
            feed(two, tokens + i, 1);
            assert_memory_equal(by_generator_logits(one), by_generator_logits(two),
                                VOCAB * sizeof(float));
        }
        double difference = 0.0;
        double norm = 0.0;
        for (int i = 0; i < VOCAB; i++) {
            double d = (double)by_generator_logits(one)[i] - (double)wanted[i];
            difference += d * d;
            norm += (double)wanted[i] * (double)wanted[i];
        }
        if (sqrt(difference / norm) > bounds[p] || (p > 0 && difference == 0.0)) {
            fail_msg("%s is %g from f32", precisions[p], sqrt(difference / norm));
        }
        by_generator_close(&one);
        by_generator_close(&two);
    }
    close_fixture(&f);
}

/* A table padded with rows that no tokenizer knows: they are never chosen, and shorter tables fill
 * it. */
static void test_padded_vocabulary(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2"};
    by_error error = {0};
    fixture f;
    int32_t token = 50;
    by_generator_options options = {.vocab = VOCAB};
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    f.config->model.vocab = 64;
    by_generator *generator = open_generator(&f, &options);
    assert_int_equal(by_generator_vocab(generator), VOCAB);
    feed(generator, &token, 1);
    for (int i = 0; i < 40; i++) {
        by_sampling hot = {.temperature = 100.0, .top_p = 1.0, .seed = (uint64_t)i};
        check(by_generator_sample(generator, &hot, &token, &error), &error);
        assert_in_range(token, 0, VOCAB - 1);
    }
    token = VOCAB;
    assert_int_equal(by_generator_feed(generator, &token, 1, &error), BY_EARG);
    by_generator_close(&generator);
    options.vocab = 65;
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &options, &error), BY_EARG);
    close_fixture(&f);
}

/* Without weights a generator begins with the model's initial values, in either type. */
static void test_initial_weights(void **state)
{
    static const char *const precisions[] = {"f32", "bf16"};
    fixture f;
    BY_UNUSED(state);
    open_fixture(&f, NULL, 0);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(precisions); i++) {
        by_generator_options options = {.precision = precisions[i]};
        by_generator *loaded = open_generator(&f, &options);
        by_weights *weights = f.weights;
        f.weights = NULL;
        by_generator *initial = open_generator(&f, &options);
        f.weights = weights;
        int32_t tokens[5] = {3, 1, 4, 1, 5};
        assert_int_equal(by_generator_feed(loaded, tokens, 5, NULL), BY_OK);
        assert_int_equal(by_generator_feed(initial, tokens, 5, NULL), BY_OK);
        assert_memory_equal(by_generator_logits(loaded), by_generator_logits(initial),
                            VOCAB * sizeof(float));
        by_generator_close(&loaded);
        by_generator_close(&initial);
    }
    close_fixture(&f);
}

/* The work of a token, counted by hand for two layers of width 32. */
static void test_work(void **state)
{
    fixture f;
    BY_UNUSED(state);
    open_fixture(&f, NULL, 0);
    by_generator *generator = open_generator(&f, NULL);
    double layer = 32 * 96 + 96 + 32 * 32 + 32 + 32 * 128 + 128 + 128 * 32 + 32 + 4 * 32;
    double head = VOCAB * 32;
    double all = 2 * layer + 2 * 32 + head;
    /* a layer: two products of 32, for each token that is looked at */
    double attention = 2 * 4 * 32;
    assert_true(by_generator_flops(generator, 1) == 2 * all + attention);
    double second = by_generator_flops(generator, 2) - by_generator_flops(generator, 1);
    /* A token that is not the last needs of the last layer only keys and values. */
    double last_only = head + 32 * 32 + 2 * 32 * 128;
    assert_true(second == 2 * (all - last_only) + 2 * attention);
    assert_true(by_generator_token_bytes(generator, 0) == 4 * all);
    assert_true(by_generator_token_bytes(generator, 10) ==
                4 * all + 10 * 2 * 2 * 32 * (double)sizeof(float));
    by_generator_close(&generator);
    close_fixture(&f);
}

/* With a window of 9 tokens, a token reads no more of those in the caches. */
static void test_work_of_window(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.window=9"};
    fixture f;
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    by_generator *generator = open_generator(&f, NULL);
    double attention = 2 * 4 * 32;
    double ten = by_generator_flops(generator, 10) - by_generator_flops(generator, 9);
    double nine = by_generator_flops(generator, 9) - by_generator_flops(generator, 8);
    double eight = by_generator_flops(generator, 8) - by_generator_flops(generator, 7);
    assert_true(nine - eight == attention);
    assert_true(ten == nine);
    double bytes = by_generator_token_bytes(generator, 0);
    assert_true(by_generator_token_bytes(generator, 20) ==
                bytes + 9 * 2 * 2 * 32 * (double)sizeof(float));
    by_generator_close(&generator);
    close_fixture(&f);
}

static void test_errors(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2"};
    by_error error = {0};
    fixture f;
    int32_t tokens[CONTEXT + 1];
    int32_t token = 99;
    float before[VOCAB];
    by_sampling sampling = {.temperature = 0.0, .top_p = 1.0};
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    by_generator *generator = open_generator(&f, NULL);
    const by_generator_memory_report *memory = by_generator_memory(generator);
    assert_int_equal(memory->total, memory->weights + memory->caches + memory->activations +
                                        memory->workspace + memory->data);
    assert_true(memory->caches >= 2 * 2 * CONTEXT * 32 * sizeof(float));
    fill_tokens(tokens, CONTEXT + 1);
    assert_int_equal(by_generator_sample(generator, &sampling, &token, &error), BY_ESTATE);
    assert_int_equal(by_generator_feed(generator, tokens, 0, &error), BY_EARG);
    assert_int_equal(by_generator_feed(generator, tokens, CONTEXT + 1, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "71"));
    assert_non_null(strstr(error.message, "70"));
    feed(generator, tokens, CONTEXT);
    memcpy(before, by_generator_logits(generator), sizeof before);
    assert_int_equal(by_generator_feed(generator, tokens, 1, &error), BY_ESTATE);
    tokens[0] = -1;
    assert_int_equal(by_generator_feed(generator, tokens, 1, &error), BY_EARG);
    assert_memory_equal(before, by_generator_logits(generator), sizeof before);
    assert_int_equal(by_generator_position(generator), CONTEXT);
    by_generator_close(&generator);
    by_generator_close(&generator);

    by_generator_options longer = {.context = CONTEXT + 1};
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &longer, &error), BY_EARG);
    assert_non_null(strstr(error.message, "70 learned positions"));
    by_generator_options strange = {.precision = "i32"};
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &strange, &error), BY_EARG);
    by_generator_options negative = {.context = -5};
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, &negative, &error),
                     BY_EARG);
    f.config->model.layers = 3;
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, NULL, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "h.2."));
    f.config->model.layers = 2;
    f.config->model.mlp_width = 64;
    assert_int_equal(by_generator_open(&generator, f.config, f.weights, NULL, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "[32, 64]"));
    assert_null(generator);
    close_fixture(&f);
}

/* A checkpoint of `directory`'s weights in ROOT. */
static void write_checkpoint(const fixture *f, const char *root, uint64_t step)
{
    by_error error = {0};
    size_t count = by_weights_count(f->weights);
    by_tensor_view views[64];
    char *text;
    assert_true(count <= BY_ARRAY_LENGTH(views));
    for (size_t i = 0; i < count; i++) {
        check(by_weights_tensor(f->weights, by_weights_name(f->weights, i), &views[i], &error),
              &error);
    }
    check(by_model_config_json(&text, &f->config->model, -1, &error), &error);
    by_checkpoint_file file = {.name = "config.json", .data = text, .size = strlen(text)};
    checkpoint_content content = {
        .model = views, .model_count = count, .files = &file, .file_count = 1};
    check(checkpoint_write(root, step, &content, &error), &error);
    free(text);
}

static void expect_directory(const char *path, bool best, const char *name)
{
    by_error error = {0};
    by_pretrained *pretrained;
    check(by_pretrained_open(&pretrained, path, best, &error), &error);
    const char *directory = by_pretrained_directory(pretrained);
    assert_true(strlen(directory) >= strlen(name));
    assert_string_equal(directory + strlen(directory) - strlen(name), name);
    assert_string_equal(by_pretrained_skipped(pretrained), "");
    const by_model_config *model = &by_pretrained_config(pretrained)->model;
    assert_string_equal(model->kind, "gpt2");
    assert_int_equal(model->width, 32);
    assert_int_equal(model->vocab, VOCAB);
    by_generator *generator;
    check(by_generator_open(&generator, by_pretrained_config(pretrained),
                            by_pretrained_weights(pretrained), NULL, &error),
          &error);
    by_pretrained_close(&pretrained);
    int32_t token = 1; /* the generator needs neither config nor weights any more */
    feed(generator, &token, 1);
    by_generator_close(&generator);
}

static void test_pretrained(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2"};
    by_error error = {0};
    fixture f;
    by_pretrained *pretrained = NULL;
    open_fixture(&f, settings, BY_ARRAY_LENGTH(settings));
    expect_directory(f.directory, false, f.directory);
    assert_int_equal(by_pretrained_open(&pretrained, f.directory, true, &error), BY_EARG);
    assert_int_equal(by_pretrained_open(&pretrained, "/nonexistent/banyan", false, &error),
                     BY_ECONFIG);
    assert_non_null(strstr(error.message, "/nonexistent/banyan"));

    char *run = temporary_make();
    char *root = by__path_join(run, "checkpoints");
    char *config = by__path_join(run, "config.yaml");
    assert_int_equal(by_pretrained_open(&pretrained, run, false, &error), BY_ECONFIG);
    check(by__make_dirs(root, &error), &error);
    check(by__file_write(config, "name: tiny\n", 11, &error), &error);
    assert_int_equal(by_pretrained_open(&pretrained, run, false, &error), BY_ESTATE);
    write_checkpoint(&f, root, 5);
    write_checkpoint(&f, root, 9);
    check(by_checkpoint_mark_best(root, 5, 1.25, &error), &error);
    expect_directory(run, false, "step-00000009");
    expect_directory(run, true, "step-00000005");
    assert_null(pretrained);
    free(config);
    free(root);
    temporary_remove(run);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_llama_grouped),
        cmocka_unit_test(test_linear_attention),
        cmocka_unit_test(test_llama_window),
        cmocka_unit_test(test_llama_features),
        cmocka_unit_test(test_other_tensors),
        cmocka_unit_test(test_file_is_not_kept),
        cmocka_unit_test(test_caches_grow),
        cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_portions),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_longer_context),
        cmocka_unit_test(test_context_beyond_memory),
        cmocka_unit_test(test_bounded_context),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_initial_weights),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_work_of_window),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_pretrained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
