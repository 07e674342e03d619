/* Embeddings of texts, against the logits that the head makes of the same hidden states. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/engine.h"
#include "banyan/infer.h"
#include "runner.h"

enum { VOCAB = 23, WIDTH = 16, CONTEXT = 40, COUNT = 21 };

static by_config *make_config(void)
{
    static const char *const settings[] = {
        "model.kind=llama",   "model.layers=2",   "model.heads=2",        "model.width=16",
        "model.vocab=23",     "model.context=40", "model.init_std=0.3",   "model.tied=true",
        "model.qk_norm=true", "train.threads=1",  "precision.compute=f32"};
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* The token embedding, which is the head, too. */
static void head_of(const by_config *config, float table[VOCAB * WIDTH])
{
    by_error error = {0};
    by_model model;
    by_graph *graph = open_graph();
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 1, .time = 1};
    check_ok(by_model_build(&model, graph, &config->model, &request, &error), &error);
    check_ok(by_parameter_init(table, graph, model.head, config->seed, &error), &error);
    by_graph_close(&graph);
}

static void embed(const by_config *config, const by_embed_options *options, const int32_t *tokens,
                  size_t count, float out[WIDTH])
{
    by_error error = {0};
    by_embed *e;
    const float *vector;
    check_ok(by_embed_open(&e, config, NULL, options, &error), &error);
    assert_int_equal(by_embed_width(e), WIDTH);
    check_ok(by_embed_run(e, tokens, count, &vector, &error), &error);
    memcpy(out, vector, WIDTH * sizeof *out);
    by_embed_close(&e);
}

/* The last hidden state times the head is the last row of logits. */
static void test_last(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_logits *logits;
    const float *rows;
    int32_t tokens[COUNT];
    float table[VOCAB * WIDTH];
    float vector[WIDTH];
    by_config *config = make_config();
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = i * 7 % VOCAB;
    }
    head_of(config, table);
    embed(config, NULL, tokens, COUNT, vector);
    check_ok(by_logits_open(&logits, config, NULL, 1, COUNT, NULL, 0, &error), &error);
    check_ok(by_logits_run(logits, tokens, &rows, &error), &error);
    for (int v = 0; v < VOCAB; v++) {
        double sum = 0.0;
        for (int i = 0; i < WIDTH; i++) {
            sum += (double)vector[i] * (double)table[v * WIDTH + i];
        }
        assert_true(fabs(sum - (double)rows[(COUNT - 1) * VOCAB + v]) < 1e-4);
    }
    by_logits_close(&logits);
    by_config_close(&config);
}

/* The mean over a text is that of the last states of all its beginnings. */
static void test_mean_and_norm(void **state)
{
    BY_UNUSED(state);
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    const size_t count = BY_ARRAY_LENGTH(tokens);
    const by_embed_options mean = {.pooling = BY_POOL_MEAN};
    const by_embed_options unit = {.pooling = BY_POOL_MEAN, .normalize = true};
    float whole[WIDTH];
    float scaled[WIDTH];
    double sum[WIDTH] = {0};
    double norm = 0.0;
    by_config *config = make_config();
    for (size_t n = 1; n <= count; n++) {
        float last[WIDTH];
        embed(config, NULL, tokens, n, last);
        for (int i = 0; i < WIDTH; i++) {
            sum[i] += (double)last[i] / (double)count;
        }
    }
    embed(config, &mean, tokens, count, whole);
    embed(config, &unit, tokens, count, scaled);
    for (int i = 0; i < WIDTH; i++) {
        assert_true(fabs((double)whole[i] - sum[i]) < 1e-5);
        norm += (double)whole[i] * (double)whole[i];
    }
    for (int i = 0; i < WIDTH; i++) {
        assert_true(fabs((double)scaled[i] - (double)whole[i] / sqrt(norm)) < 1e-6);
    }
    by_config_close(&config);
}

/* Texts of different lengths together have the vectors that they have alone. */
static void test_batch(void **state)
{
    BY_UNUSED(state);
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6};
    const by_embed_text texts[] = {{tokens, 4}, {tokens + 2, 19}, {tokens + 5, 1}};
    const by_embed_options options = {.pooling = BY_POOL_MEAN, .batch = 3};
    by_error error = {0};
    by_embed *e;
    const float *vectors;
    by_config *config = make_config();
    check_ok(by_embed_open(&e, config, NULL, &options, &error), &error);
    check_ok(by_embed_run_batch(e, texts, 3, &vectors, &error), &error);
    for (size_t t = 0; t < 3; t++) {
        const by_embed_options alone = {.pooling = BY_POOL_MEAN};
        float vector[WIDTH];
        embed(config, &alone, texts[t].tokens, texts[t].count, vector);
        for (size_t i = 0; i < WIDTH; i++) {
            assert_true(fabs((double)vectors[t * WIDTH + i] - (double)vector[i]) < 1e-6);
        }
    }
    assert_int_equal(by_embed_run_batch(e, texts, 0, &vectors, &error), BY_EARG);
    assert_int_equal(by_embed_run_batch(e, texts, 4, &vectors, &error), BY_EARG);
    assert_int_equal(by_embed_check(e, CONTEXT, &error), BY_OK);
    assert_int_equal(by_embed_check(e, CONTEXT + 1, &error), BY_EARG);
    by_embed_close(&e);
    by_config_close(&config);
}

/* Memory is that of a number of tokens, and not of the most texts of the longest kind; more texts
 * than that take several runs. */
static void test_long_context(void **state)
{
    BY_UNUSED(state);
    enum { TEXTS = 34, LENGTH = 70 };
    const by_embed_options many = {.context = 16384, .batch = 512};
    const by_embed_options one = {.context = 16384};
    by_error error = {0};
    by_embed *e;
    const float *vectors;
    int32_t tokens[LENGTH + TEXTS];
    by_embed_text texts[TEXTS + 1];
    by_config *config = make_config();
    check_ok(by_config_set(config, "model.context=16384", &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_embed_open(&e, config, NULL, &one, &error), &error);
    uint64_t least = by_embed_memory(e);
    by_embed_close(&e);
    check_ok(by_embed_open(&e, config, NULL, &many, &error), &error);
    assert_true(by_embed_memory(e) < least + least / 4);
    for (int i = 0; i < LENGTH + TEXTS; i++) {
        tokens[i] = i * 5 % VOCAB;
    }
    for (int t = 0; t <= TEXTS; t++) {
        texts[t] = (by_embed_text){tokens + t, t == 3 ? 2 : LENGTH};
    }
    texts[TEXTS] = (by_embed_text){tokens, 1};
    check_ok(by_embed_run_batch(e, texts, TEXTS + 1, &vectors, &error), &error);
    for (int t = 0; t <= TEXTS; t += t == 3 ? TEXTS - 5 : 1) {
        const by_embed_options alone = {.context = 256};
        float vector[WIDTH];
        embed(config, &alone, texts[t].tokens, texts[t].count, vector);
        for (int i = 0; i < WIDTH; i++) {
            assert_true(fabs((double)vectors[t * WIDTH + i] - (double)vector[i]) < 1e-5);
        }
    }
    by_embed_close(&e);
    by_config_close(&config);
}

/* A short answer of an engine. */
static void answer(by_engine *engine, int32_t out[4])
{
    static const int32_t prompt[3] = {7, 1, 8};
    by_error error = {0};
    uint64_t session;
    const by_event *events;
    size_t count;
    size_t got = 0;
    const by_request request = {
        .prompt = prompt, .prompt_count = 3, .tokens = 4, .sampling = {.top_p = 1.0}};
    check_ok(by_engine_submit(engine, &request, &session, &error), &error);
    while (by_engine_busy(engine)) {
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count && got < 4; i++) {
            if (events[i].token >= 0) {
                out[got++] = events[i].token;
            }
        }
    }
    assert_int_equal(got, 4);
}

/* On the weights of an engine, which has packed the matrix of the token embedding for its logits:
 * the same bits as with weights of its own, and the engine's answers stay. Where weights are
 * integers, a tied embedding is, too, so that vectors are near those alone. */
static void test_beside_an_engine(void **state)
{
    BY_UNUSED(state);
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
    static const char *const precisions[] = {"f32", "bf16", "fp16", "int8", "int4"};
    for (size_t p = 0; p < 2 * BY_ARRAY_LENGTH(precisions); p++) {
        bool tied = p % 2 == 0;
        bool integers = p / 2 > 2;
        by_error error = {0};
        by_engine *engine;
        by_embed *e;
        const float *vector;
        int32_t before[4];
        int32_t after[4];
        float alone[WIDTH];
        by_config *config = make_config();
        check_ok(by_config_set(config, tied ? "model.tied=true" : "model.tied=false", &error),
                 &error);
        check_ok(by_config_resolve(config, &error), &error);
        const by_engine_options how = {.precision = precisions[p / 2], .sessions = 2};
        const by_embed_options options = {.batch = 2, .precision = precisions[p / 2]};
        embed(config, &options, tokens, BY_ARRAY_LENGTH(tokens), alone);
        check_ok(by_engine_open(&engine, config, NULL, &how, &error), &error);
        check_ok(by_embed_open_with(&e, engine, config, &options, &error), &error);
        by_config_close(&config);
        assert_true(by_embed_memory(e) > 0);
        answer(engine, before);
        check_ok(by_embed_run(e, tokens, BY_ARRAY_LENGTH(tokens), &vector, &error), &error);
        answer(engine, after);
        assert_memory_equal(before, after, sizeof before);
        for (size_t i = 0; i < WIDTH && integers && tied; i++) {
            assert_true(fabs((double)vector[i] - (double)alone[i]) < 0.5);
        }
        if (!integers || !tied) {
            assert_memory_equal(vector, alone, sizeof alone);
        }
        by_embed_close(&e);
        by_engine_close(&engine);
    }
}

static void test_errors(void **state)
{
    BY_UNUSED(state);
    static const int32_t tokens[CONTEXT + 1] = {VOCAB};
    by_error error = {0};
    by_embed *e;
    const float *vector;
    by_config *config = make_config();
    check_ok(by_embed_open(&e, config, NULL, NULL, &error), &error);
    check_error(by_embed_run(e, tokens, 0, &vector, &error), BY_EARG, &error, "0 tokens");
    error = (by_error){0};
    check_error(by_embed_run(e, tokens, CONTEXT + 1, &vector, &error), BY_EARG, &error, "1 to 40");
    error = (by_error){0};
    assert_int_not_equal(by_embed_run(e, tokens, 1, &vector, &error), BY_OK);
    by_embed_close(&e);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last),
                                       cmocka_unit_test(test_mean_and_norm),
                                       cmocka_unit_test(test_batch),
                                       cmocka_unit_test(test_long_context),
                                       cmocka_unit_test(test_beside_an_engine),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
