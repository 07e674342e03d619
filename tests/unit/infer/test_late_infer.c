/* Inference on a device that runs everything late and in an odd order, on memory that the host
 * cannot touch: the engine with its drafts and prefixes, beams, embeddings and calibration give the
 * bits of the CPU for every seed; embeddings beside an engine run on another thread; memory is the
 * device's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/beam.h"
#include "banyan/draft.h"
#include "base/base.h"
#include "late_device.h"
#include "plan/plan.h"
#include "runner.h"
#include "small_engine.h"

enum { SEEDS = 8, SESSIONS = 3, TOKENS = 12, TEXT = 40 };

/* What requests ended with. */
typedef struct answers {
    int32_t tokens[SESSIONS][TOKENS];
    double probabilities[SESSIONS][TOKENS];
    size_t counts[SESSIONS];
} answers;

static void close_device(by_device **device)
{
    if (*device != NULL) {
        assert_string_equal(late_device_fault(*device), "");
        by_device_close(device);
    }
}

/* A late device for a seed; NULL, the CPU, for -1. */
static by_device *device_of(int seed)
{
    by_error error = {0};
    by_device *device = NULL;
    if (seed >= 0) {
        check_ok(late_device_open(&device, (uint64_t)seed, 1, &error), &error);
    }
    return device;
}

/* Requests that share the beginning of their prompts, drawn with different temperatures. */
static void ask(by_engine *engine, answers *out)
{
    by_error error = {0};
    uint64_t sessions[SESSIONS];
    int32_t prompt[TEXT];
    *out = (answers){0};
    for (int i = 0; i < TEXT; i++) {
        prompt[i] = i * 7 % 11;
    }
    for (int s = 0; s < SESSIONS; s++) {
        by_request request = {.prompt = prompt,
                              .prompt_count = (size_t)(TEXT - s),
                              .tokens = TOKENS,
                              .sampling = {.temperature = 0.5 * s, .top_p = 1.0, .seed = 3}};
        check_ok(by_engine_submit(engine, &request, &sessions[s], &error), &error);
    }
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            for (int s = 0; s < SESSIONS; s++) {
                if (events[i].session == sessions[s] && events[i].token >= 0) {
                    assert_true(out->counts[s] < TOKENS);
                    out->probabilities[s][out->counts[s]] = events[i].log_probability;
                    out->tokens[s][out->counts[s]++] = events[i].token;
                }
            }
        }
    }
}

typedef enum drafts { NO_DRAFTS, NGRAM, MODEL } drafts;

static void generate(const by_config *config, by_device *device, drafts kind, const char *kv,
                     answers *out)
{
    by_error error = {0};
    by_draft_source source = {0};
    by_engine_options options = {
        .sessions = 2, .kv = kv, .device = device, .draft_always = true, .draft_tokens = 3};
    if (kind == NGRAM) {
        check_ok(by_draft_ngram(&source, &error), &error);
    } else if (kind == MODEL) {
        const by_draft_model_options how = {.device = device};
        check_ok(by_draft_model(&source, config, NULL, &how, &error), &error);
    }
    options.draft = kind == NO_DRAFTS ? NULL : &source;
    by_engine *engine = small_engine_open(config, &options);
    ask(engine, out);
    by_engine_close(&engine);
    by_draft_close(&source);
}

static void test_engine(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *kind;
        const char *precision;
        drafts drafts;
        const char *kv;
    } cases[] = {{"llama", "bf16", NO_DRAFTS, NULL},
                 {"gpt2", "f32", NGRAM, NULL},
                 {"llama", "f32", MODEL, "int8"}};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        answers want;
        by_config *config = small_engine_config(cases[c].kind, cases[c].precision);
        generate(config, NULL, cases[c].drafts, cases[c].kv, &want);
        assert_true(want.counts[0] == TOKENS && want.counts[SESSIONS - 1] == TOKENS);
        for (int seed = 0; seed < SEEDS; seed++) {
            answers have;
            by_device *device = device_of(seed);
            generate(config, device, cases[c].drafts, cases[c].kv, &have);
            assert_memory_equal(&have, &want, sizeof want);
            close_device(&device);
        }
        by_config_close(&config);
    }
}

static void search(const by_config *config, by_device *device, int32_t tokens[2][TOKENS],
                   double scores[2])
{
    by_error error = {0};
    by_beam *beam;
    const by_hypothesis *found;
    int32_t count;
    static const int32_t prompt[] = {5, 1, 9, 2};
    const by_beam_options options = {.beams = 3, .device = device};
    const by_beam_request request = {.prompt = prompt, .prompt_count = 4, .tokens = TOKENS};
    check_ok(by_beam_open(&beam, config, NULL, &options, &error), &error);
    check_ok(by_beam_run(beam, &request, &found, &count, &error), &error);
    assert_true(count >= 2);
    for (int i = 0; i < 2; i++) {
        memcpy(tokens[i], found[i].tokens, sizeof tokens[i]);
        scores[i] = found[i].log_probability;
    }
    by_beam_close(&beam);
}

static void test_beams(void **state)
{
    BY_UNUSED(state);
    int32_t want[2][TOKENS];
    double want_scores[2];
    by_config *config = small_engine_config("llama", "f32");
    search(config, NULL, want, want_scores);
    for (int seed = 0; seed < SEEDS; seed++) {
        int32_t have[2][TOKENS];
        double scores[2];
        by_device *device = device_of(seed);
        search(config, device, have, scores);
        assert_memory_equal(have, want, sizeof want);
        assert_memory_equal(scores, want_scores, sizeof scores);
        close_device(&device);
    }
    by_config_close(&config);
}

static void embed(by_embed *e, float out[32])
{
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
    by_error error = {0};
    const float *vector;
    check_ok(by_embed_run(e, tokens, BY_ARRAY_LENGTH(tokens), &vector, &error), &error);
    memcpy(out, vector, 32 * sizeof *out);
}

static void test_embeddings(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "bf16");
    float want[32];
    for (int seed = -1; seed < SEEDS; seed++) {
        by_embed *e;
        float have[32];
        by_device *device = device_of(seed);
        const by_embed_options options = {.device = device};
        check_ok(by_embed_open(&e, config, NULL, &options, &error), &error);
        embed(e, seed < 0 ? want : have);
        by_embed_close(&e);
        close_device(&device);
        if (seed >= 0) {
            assert_memory_equal(have, want, sizeof want);
        }
    }
    by_config_close(&config);
}

typedef struct beside {
    by_embed *embed;
    float vector[32];
} beside;

static void *embed_often(void *user)
{
    beside *b = user;
    for (int i = 0; i < 4; i++) {
        embed(b->embed, b->vector);
    }
    return NULL;
}

/* Two handles on one device, from two threads. */
static void test_beside(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "bf16");
    answers want;
    float want_vector[32];
    for (int seed = -1; seed < SEEDS; seed++) {
        pthread_t thread;
        answers have;
        beside b;
        by_device *device = device_of(seed);
        const by_engine_options options = {.sessions = 2, .device = device};
        by_engine *engine = small_engine_open(config, &options);
        check_ok(by_embed_open_with(&b.embed, engine, config, NULL, &error), &error);
        assert_int_equal(pthread_create(&thread, NULL, embed_often, &b), 0);
        ask(engine, seed < 0 ? &want : &have);
        assert_int_equal(pthread_join(thread, NULL), 0);
        by_embed_close(&b.embed);
        by_engine_close(&engine);
        close_device(&device);
        if (seed < 0) {
            memcpy(want_vector, b.vector, sizeof want_vector);
        } else {
            assert_memory_equal(&have, &want, sizeof want);
            assert_memory_equal(b.vector, want_vector, sizeof want_vector);
        }
    }
    by_config_close(&config);
}

/* Rows instead of panels, and 256 bytes of alignment, as a GPU wants them; a row of a product then
 * need not have the same bits for any number of rows, but the same text comes out here. */
static void test_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "f32");
    const by_engine_options on_cpu = {.sessions = 2};
    by_engine *engine = small_engine_open(config, &on_cpu);
    uint64_t panels = by_engine_memory(engine)->weights;
    answers want;
    answers have;
    by_device *device;
    ask(engine, &want);
    by_engine_close(&engine);
    const late_options how = {.threads = 1, .alignment = 256, .plain = true};
    check_ok(late_device_open_as(&device, &how, &error), &error);
    const by_engine_options late = {.sessions = 2, .device = device};
    engine = small_engine_open(config, &late);
    ask(engine, &have);
    assert_memory_equal(have.tokens[0], want.tokens[0], sizeof want.tokens[0]);
    assert_true(by_engine_memory(engine)->weights != panels);
    for (int i = 0; by_engine_program(engine, i) != NULL; i++) {
        assert_true(by_program_arena_bytes(by_engine_program(engine, i)) % 256 == 0);
    }
    by_engine_close(&engine);
    close_device(&device);
    by_config_close(&config);
}

/* The pool takes half of what the device has free, whatever the host has; too little is refused. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "f32");
    by_device *device;
    by_engine *engine;
    late_options how = {.threads = 1, .memory = (uint64_t)3 << 20};
    check_ok(late_device_open_as(&device, &how, &error), &error);
    const by_engine_options options = {.sessions = 200, .device = device};
    check_ok(by_engine_open(&engine, config, NULL, &options, &error), &error);
    const by_engine_memory_report *m = by_engine_memory(engine);
    assert_true(m->pool > how.memory / 4 && m->pool <= how.memory / 2);
    by_engine_close(&engine);
    close_device(&device);
    how.memory = 100000;
    check_ok(late_device_open_as(&device, &how, &error), &error);
    check_error(by_engine_open(&engine, config, NULL,
                               &(by_engine_options){.sessions = 2, .device = device}, &error),
                BY_EMEMORY, &error, "97.7 KiB are free on the device");
    close_device(&device);
    by_config_close(&config);
}

/* Peaks are measured on the device itself. */
static void test_peaks(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_machine m;
    by_device *device = device_of(0);
    check_ok(by__plan_machine_describe(&m, "late:1", device, &error), &error);
    assert_string_equal(m.device, "late:1");
    assert_string_equal(m.cpu, "late device");
    double gbps = 0.0;
    check_ok(by__plan_measure_copies(&gbps, device, &error), &error);
    assert_true(gbps > 0.0);
    close_device(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine),     cmocka_unit_test(test_beams),
        cmocka_unit_test(test_embeddings), cmocka_unit_test(test_beside),
        cmocka_unit_test(test_layout),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_peaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
