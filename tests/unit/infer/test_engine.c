/* The engine: what a session gets must be the same, bit for bit, alone and in company. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/engine.h"
#include "base/base.h"
#include "runner.h"
#include "small_engine.h"

enum { REQUESTS = 64, MOST_N = 3 };

static uint32_t draw(uint64_t seed, uint32_t i, uint32_t what, uint32_t below)
{
    uint32_t key[2];
    uint32_t bits[4];
    by__philox_key(key, seed, 77);
    by__philox(bits, key, (uint32_t[4]){i, what, 0, 0});
    return bits[0] % below;
}

/* What a sequence was given. */
typedef struct output {
    int32_t tokens[CONTEXT + 1];
    float log_probabilities[CONTEXT + 1];
    int count;
    by_finish finish;
} output;

typedef struct job {
    by_request request;
    int32_t prompt[CONTEXT];
    int32_t stop[2];
    int arrival; /* step */
    int cancel;  /* step; -1: never */
    uint64_t session;
    output outputs[MOST_N];
} job;

/* Prompts that begin alike, of all lengths, in random order. */
static void make_jobs(job *jobs, uint64_t seed)
{
    memset(jobs, 0, REQUESTS * sizeof *jobs);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        job *j = &jobs[i];
        int text = (int)draw(seed, i, 0, 3);
        uint32_t own = draw(seed, i, 1, 50);
        uint32_t count = 1 + draw(seed, i, 2, 70);
        for (uint32_t k = 0; k < count; k++) {
            j->prompt[k] = (int32_t)(k < own ? (k * 7 + k * k * 3 + (uint32_t)text) % VOCAB
                                             : draw(seed, i, 100 + k, VOCAB));
        }
        j->stop[0] = (int32_t)draw(seed, i, 3, VOCAB);
        j->request = (by_request){
            .prompt = j->prompt,
            .prompt_count = count,
            .tokens = 1 + draw(seed, i, 4, 60),
            .sampling = {.temperature = draw(seed, i, 5, 3) == 0 ? 0.0 : 0.9,
                         .top_k = draw(seed, i, 6, 2) == 0 ? 0 : 20,
                         .top_p = draw(seed, i, 7, 2) == 0 ? 1.0 : 0.9,
                         .seed = i},
            .n = draw(seed, i, 8, 3) == 0 ? 1 + (int32_t)draw(seed, i, 9, MOST_N) : 1,
            .stop = j->stop,
            .stop_count = draw(seed, i, 10, 2),
            .priority = (int32_t)draw(seed, i, 11, 3),
            .salt = draw(seed, i, 12, 2),
        };
        j->arrival = (int)draw(seed, i, 13, 25);
        j->cancel = draw(seed, i, 14, 6) == 0 ? j->arrival + (int)draw(seed, i, 15, 12) : -1;
    }
}

static job *job_of(job *jobs, uint64_t session)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (jobs[i].session == session) {
            return &jobs[i];
        }
    }
    fail_msg("an event of session %d, which nobody submitted", (int)session);
    return NULL;
}

static void take_event(job *jobs, const by_event *event)
{
    job *j = job_of(jobs, event->session);
    output *o = &j->outputs[event->index];
    assert_int_equal(o->finish, BY_FINISH_NONE);
    assert_true(o->count <= CONTEXT);
    if (event->token >= 0) {
        o->tokens[o->count] = event->token;
        o->log_probabilities[o->count++] = event->log_probability;
        assert_true(event->log_probability <= 0.0f);
    }
    o->finish = event->finish;
}

static void step(by_engine *engine, job *jobs)
{
    by_error error = {0};
    const by_event *events;
    size_t count;
    check_ok(by_engine_step(engine, &events, &count, &error), &error);
    for (size_t i = 0; i < count; i++) {
        take_event(jobs, &events[i]);
    }
}

/* One request after the other. */
static void run_alone(const by_config *config, const char *precision, const char *kv, job *jobs)
{
    by_error error = {0};
    by_engine_options options = {
        .sessions = 1, .rows = 200, .no_prefix_cache = true, .precision = precision, .kv = kv};
    by_engine *engine = small_engine_open(config, &options);
    for (int i = 0; i < REQUESTS; i++) {
        by_request one = jobs[i].request;
        one.n = 1;
        one.priority = 0;
        for (int32_t k = 0; k < (jobs[i].request.n > 1 ? jobs[i].request.n : 1); k++) {
            output *o = &jobs[i].outputs[k];
            uint64_t session;
            one.sampling.seed = jobs[i].request.sampling.seed + (uint64_t)k;
            check_ok(by_engine_submit(engine, &one, &session, &error), &error);
            while (by_engine_busy(engine)) {
                const by_event *events;
                size_t count;
                check_ok(by_engine_step(engine, &events, &count, &error), &error);
                for (size_t e = 0; e < count; e++) {
                    o->tokens[o->count] = events[e].token;
                    o->log_probabilities[o->count++] = events[e].log_probability;
                    o->finish = events[e].finish;
                }
            }
            assert_true(o->finish == BY_FINISH_STOP || o->finish == BY_FINISH_LENGTH);
        }
    }
    by_engine_close(&engine);
}

/* All of them, as they arrive and are cancelled. */
static by_engine_statistics run_together(const by_config *config, const by_engine_options *options,
                                         job *jobs)
{
    by_error error = {0};
    by_engine *engine = small_engine_open(config, options);
    int submitted = 0;
    for (int now = 0; submitted < REQUESTS || by_engine_busy(engine); now++) {
        assert_true(now < 5000);
        for (int i = 0; i < REQUESTS; i++) {
            if (jobs[i].arrival == now) {
                check_ok(by_engine_submit(engine, &jobs[i].request, &jobs[i].session, &error),
                         &error);
                submitted++;
            }
            if (jobs[i].cancel == now) {
                by_status status = by_engine_cancel(engine, jobs[i].session, &error);
                assert_true(status == BY_OK || status == BY_EARG); /* it may have finished */
            }
        }
        step(engine, jobs);
    }
    by_engine_statistics statistics = by_engine_statistics_now(engine);
    assert_int_equal(statistics.pages_used, 0);
    assert_int_equal(statistics.running, 0);
    by_engine_close(&engine);
    return statistics;
}

static void compare(const job *alone, const job *together)
{
    for (int i = 0; i < REQUESTS; i++) {
        for (int32_t k = 0; k < (alone[i].request.n > 1 ? alone[i].request.n : 1); k++) {
            const output *want = &alone[i].outputs[k];
            const output *have = &together[i].outputs[k];
            bool cut = have->finish == BY_FINISH_CANCELLED;
            if (!cut && (have->count != want->count || have->finish != want->finish)) {
                fail_msg("request %d.%d: %d tokens and %s, alone %d and %s", i, (int)k, have->count,
                         by_finish_name(have->finish), want->count, by_finish_name(want->finish));
            }
            assert_true(have->count <= want->count);
            for (int t = 0; t < have->count; t++) {
                if (have->tokens[t] != want->tokens[t] ||
                    memcmp(&have->log_probabilities[t], &want->log_probabilities[t],
                           sizeof(float)) != 0) {
                    fail_msg("request %d.%d, token %d: %d (%.9g), alone %d (%.9g)", i, (int)k, t,
                             (int)have->tokens[t], (double)have->log_probabilities[t],
                             (int)want->tokens[t], (double)want->log_probabilities[t]);
                }
            }
        }
    }
}

/* ---- drafts ---- */

/* Whether a text is that of a sequence alone so far; *next: its tokens from there on. */
static bool is_sequence(const by_draft_text *text, const job *j, int32_t k, const int32_t **next)
{
    int64_t prompt = (int64_t)j->request.prompt_count;
    int64_t own = text->count - prompt;
    *next = j->outputs[k].tokens + own;
    return text->sampling.seed == j->request.sampling.seed + (uint64_t)k && own >= 0 &&
           own < j->outputs[k].count &&
           memcmp(text->tokens, j->prompt, (size_t)prompt * sizeof(int32_t)) == 0 &&
           memcmp(text->tokens + prompt, j->outputs[k].tokens, (size_t)own * sizeof(int32_t)) == 0;
}

/* A source that knows what follows, and mostly says it. `user`: the jobs, run alone. */
static by_status propose_known(void *user, by_draft_text *texts, size_t count, by_error *error)
{
    const job *jobs = user;
    BY_UNUSED(error);
    for (size_t t = 0; t < count; t++) {
        by_draft_text *text = &texts[t];
        const int32_t *next = NULL;
        for (int i = 0; i < REQUESTS && next == NULL; i++) {
            for (int32_t k = 0; k < MOST_N && next == NULL; k++) {
                const int32_t *tokens;
                next = is_sequence(text, &jobs[i], k, &tokens) ? tokens : NULL;
            }
        }
        assert_non_null(next);
        for (int32_t i = 0; i < text->most; i++) {
            bool lies = draw((uint64_t)text->count, (uint32_t)i, 5, 8) == 0;
            text->drafts[i] = lies ? (next[i] + 1) % VOCAB : next[i];
        }
    }
    return BY_OK;
}

static by_status start_nothing(void *user, int64_t sequences, int64_t context, int64_t vocab,
                               uint64_t *bytes, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    assert_true(sequences == 7 && context == CONTEXT && vocab == VOCAB);
    *bytes = 0;
    return BY_OK;
}

static by_status start_large(void *user, int64_t sequences, int64_t context, int64_t vocab,
                             uint64_t *bytes, by_error *error)
{
    by_status status = start_nothing(user, sequences, context, vocab, bytes, error);
    *bytes = UINT64_C(1) << 50;
    return status;
}

static void observe_sure(void *user, by_draft_text *text)
{
    BY_UNUSED(user);
    text->chance = 0.9;
}

/* Drafts change nothing, in company, with preemptions and with the prefix cache; they spare
 * steps. */
static void check_drafts(const by_config *config, const char *precision, const char *kv, job *alone,
                         job *together)
{
    by_error error = {0};
    by_draft_source ngrams;
    const by_draft_source known = {
        .user = alone, .start = start_nothing, .observe = observe_sure, .propose = propose_known};
    by_engine_options options = {.sessions = 7,
                                 .waiting = 200,
                                 .rows = 40,
                                 .pages = 13,
                                 .precision = precision,
                                 .kv = kv,
                                 .draft_tokens = 5};
    make_jobs(together, 5);
    by_engine_statistics plain = run_together(config, &options, together);
    check_ok(by_draft_ngram(&ngrams, &error), &error);
    options.draft = &ngrams;
    make_jobs(together, 5);
    by_engine_statistics st = run_together(config, &options, together);
    compare(alone, together);
    assert_true(st.accepted <= st.drafted && plain.drafted == 0);
    by_draft_close(&ngrams);
    options.draft = &known;
    options.draft_always = true;
    make_jobs(together, 5);
    st = run_together(config, &options, together);
    compare(alone, together);
    assert_true(st.preemptions > 2 && st.accepted > 300 && st.drafted > st.accepted + 30);
    assert_true(st.steps < plain.steps);
}

/* What a source of drafts holds when the engine looks how much memory is free is not free. */
static void test_memory_of_drafts(void **state)
{
    const by_draft_source large = {
        .start = start_large, .observe = observe_sure, .propose = propose_known};
    const by_engine_options options = {.sessions = 7, .draft = &large};
    by_config *config = small_engine_config("llama", "f32");
    BY_UNUSED(state);
    by_engine *engine = small_engine_open(config, &options);
    assert_true(by_engine_memory(engine)->drafts == UINT64_C(1) << 50);
    by_engine_close(&engine);
    by_config_close(&config);
}

typedef struct invariance {
    const char *kind;
    const char *precision;
    const char *kv; /* NULL: as precision */
    int threads;
} invariance;

static void test_invariance(void **state)
{
    const invariance *c = *state;
    const char *precision = c->precision;
    const char *kv = c->kv;
    by_config *config = small_engine_config(c->kind, "f32");
    job *alone = calloc(REQUESTS, sizeof *alone);
    job *together = calloc(REQUESTS, sizeof *together);
    by_engine_options options = {
        .sessions = 7, .waiting = 200, .rows = ROWS, .pages = 11, .precision = precision, .kv = kv};
    assert_true(alone != NULL && together != NULL);
    make_jobs(alone, 5);
    run_alone(config, precision, kv, alone);
    for (int cache = 0; cache < 2; cache++) {
        make_jobs(together, 5);
        options.no_prefix_cache = cache == 0;
        by_engine_statistics st = run_together(config, &options, together);
        compare(alone, together);
        assert_true(st.preemptions > 10 && st.recomputed > 100 && st.copied_pages > 5);
        assert_true(cache == 0 ? st.found == 0 : st.found > 100 && st.evictions > 0);
    }
    /* Room for all, and other pieces of prompts. */
    make_jobs(together, 5);
    options = (by_engine_options){.sessions = 40,
                                  .waiting = 200,
                                  .rows = 77,
                                  .threads = c->threads,
                                  .precision = precision,
                                  .kv = kv};
    by_engine_statistics st = run_together(config, &options, together);
    compare(alone, together);
    assert_true(st.found > 100);
    check_drafts(config, precision, kv, alone, together);
    free(alone);
    free(together);
    by_config_close(&config);
}

/* Keys and values of 8 bits take a quarter of the memory and the scales, and change
 * log-probabilities a little. */
static void test_codes(void **state)
{
    BY_UNUSED(state);
    by_config *config = small_engine_config("gpt2", "f32");
    job *jobs[2];
    uint64_t pool[2];
    for (int k = 0; k < 2; k++) {
        by_engine_options options = {.sessions = 1, .kv = k == 0 ? NULL : "int8"};
        by_engine *engine = small_engine_open(config, &options);
        pool[k] = by_engine_memory(engine)->pool;
        by_engine_close(&engine);
        jobs[k] = calloc(REQUESTS, sizeof *jobs[k]);
        assert_non_null(jobs[k]);
        make_jobs(jobs[k], 6);
        run_alone(config, "f32", options.kv, jobs[k]);
    }
    assert_int_equal(pool[1], pool[0] * (8 + BY_PAGE_SCALE) / (8 * sizeof(float)));
    int same = 0;
    int changed = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const output *exact = &jobs[0][i].outputs[0];
        const output *coded = &jobs[1][i].outputs[0];
        for (int t = 0; t < exact->count && t < coded->count; t++) {
            if (exact->tokens[t] != coded->tokens[t]) {
                break;
            }
            float difference = fabsf(exact->log_probabilities[t] - coded->log_probabilities[t]);
            assert_true(difference < 0.1f);
            changed += difference > 0.0f;
            same++;
        }
    }
    assert_true(same > 500 && changed > same / 2);
    free(jobs[0]);
    free(jobs[1]);
    by_config_close(&config);
}

/* The log-probabilities are those of the model run over the whole sequence. */
static void test_log_probabilities(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "f32");
    by_engine_options options = {.sessions = 2, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    job *jobs = calloc(REQUESTS, sizeof *jobs);
    assert_non_null(jobs);
    make_jobs(jobs, 6);
    jobs[0].request.stop_count = 0;
    jobs[0].request.n = 1;
    jobs[0].request.tokens = 20;
    check_ok(by_engine_submit(engine, &jobs[0].request, &jobs[0].session, &error), &error);
    while (by_engine_busy(engine)) {
        step(engine, jobs);
    }
    const output *o = &jobs[0].outputs[0];
    assert_int_equal(o->count, 20);
    assert_int_equal(o->finish, BY_FINISH_LENGTH);
    int32_t tokens[CONTEXT];
    int64_t prompt = (int64_t)jobs[0].request.prompt_count;
    memcpy(tokens, jobs[0].prompt, (size_t)prompt * sizeof *tokens);
    memcpy(tokens + prompt, o->tokens, (size_t)o->count * sizeof *tokens);
    by_logits *logits;
    const float *all;
    check_ok(by_logits_open(&logits, config, NULL, 1, prompt + o->count, NULL, 0, &error), &error);
    check_ok(by_logits_run(logits, tokens, &all, &error), &error);
    for (int i = 0; i < o->count; i++) {
        const float *row = all + (prompt + i - 1) * VOCAB;
        double sum = 0.0;
        for (int v = 0; v < VOCAB; v++) {
            sum += exp((double)row[v]);
        }
        double want = (double)row[o->tokens[i]] - log(sum);
        assert_true(fabs(want - (double)o->log_probabilities[i]) < 1e-4);
    }
    by_logits_close(&logits);
    by_engine_close(&engine);
    free(jobs);
    by_config_close(&config);
}

/* The tokens are those of a generator, for the same seed. */
static void test_like_a_generator(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 1, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    by_generator *generator;
    job *jobs = calloc(REQUESTS, sizeof *jobs);
    assert_non_null(jobs);
    make_jobs(jobs, 9);
    check_ok(by_generator_open(&generator, config, NULL, NULL, &error), &error);
    for (int i = 0; i < 6; i++) {
        by_request *r = &jobs[i].request;
        r->stop_count = 0;
        r->n = 1;
        check_ok(by_engine_submit(engine, r, &jobs[i].session, &error), &error);
        while (by_engine_busy(engine)) {
            step(engine, jobs);
        }
        by_generator_reset(generator);
        check_ok(by_generator_feed(generator, r->prompt, r->prompt_count, &error), &error);
        for (int t = 0; t < jobs[i].outputs[0].count; t++) {
            int32_t token;
            check_ok(by_generator_sample(generator, &r->sampling, &token, &error), &error);
            assert_int_equal(token, jobs[i].outputs[0].tokens[t]);
            if (by_generator_cached(generator) < CONTEXT) {
                check_ok(by_generator_feed(generator, &token, 1, &error), &error);
            }
        }
    }
    by_generator_close(&generator);
    by_engine_close(&engine);
    free(jobs);
    by_config_close(&config);
}

/* A model as a source of drafts: the same one is always right, another one changes nothing. */
static void test_draft_model(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "f32");
    by_config *other = small_engine_config("gpt2", "f32");
    job *alone = calloc(REQUESTS, sizeof *alone);
    job *together = calloc(REQUESTS, sizeof *together);
    by_draft_source drafts;
    by_engine_options options = {.sessions = 7,
                                 .waiting = 200,
                                 .rows = 40,
                                 .pages = 13,
                                 .draft = &drafts,
                                 .draft_tokens = 4,
                                 .draft_always = true};
    assert_true(alone != NULL && together != NULL);
    make_jobs(alone, 5);
    run_alone(config, "f32", NULL, alone);
    for (int i = 0; i < 3; i++) {
        by_draft_model_options how = {.precision = i == 1 ? "int4" : "f32"};
        check_ok(by_draft_model(&drafts, i < 2 ? config : other, NULL, &how, &error), &error);
        make_jobs(together, 5);
        by_engine_statistics st = run_together(config, &options, together);
        compare(alone, together);
        if (i == 0) {
            /* A text that ends at a stop token leaves drafts behind it. */
            assert_true(st.accepted > 300 && st.drafted - st.accepted < st.drafted / 10);
        }
        by_draft_close(&drafts);
    }
    /* A vocabulary that lacks tokens of the model's. */
    by_engine *engine = NULL;
    check_ok(by_config_set(other, "model.vocab=60", &error), &error);
    check_ok(by_draft_model(&drafts, other, NULL, NULL, &error), &error);
    assert_int_equal(by_engine_open(&engine, config, NULL, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "has 60 tokens, the model 61"));
    by_draft_close(&drafts);
    free(alone);
    free(together);
    by_config_close(&config);
    by_config_close(&other);
}

/* Sums of linear attention belong to one sequence: the engine begins each at its first token, also
 * those that share a prompt or return from a preemption. */
static void test_carried(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const char *const settings[] = {"attention.kind=linear", "attention.kind=mixed"};
    job *alone = calloc(REQUESTS, sizeof *alone);
    job *together = calloc(REQUESTS, sizeof *together);
    assert_true(alone != NULL && together != NULL);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        by_config *config = small_engine_config_with("llama", "f32", settings[i]);
        const char *precision = i == 0 ? "f32" : "bf16";
        if (i == 1) {
            check_ok(by_config_set(config, "attention.pattern=[linear,full]", &error), &error);
        }
        by_engine_options options = {.sessions = 7,
                                     .waiting = 200,
                                     .rows = ROWS,
                                     .pages = 11,
                                     .threads = 2,
                                     .precision = precision};
        make_jobs(alone, 5);
        run_alone(config, precision, NULL, alone);
        make_jobs(together, 5);
        by_engine_statistics st = run_together(config, &options, together);
        compare(alone, together);
        assert_int_equal(st.found, 0);
        assert_int_equal(st.copied_pages, 0);
        assert_in_range(st.preemptions, 4, 1000);
        by_config_close(&config);
    }
    free(alone);
    free(together);
}

/* A wrong draft cannot be taken back from sums. */
static void test_no_drafts_of_sums(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_draft_source drafts;
    by_engine *engine = NULL;
    by_config *linear = small_engine_config_with("llama", "f32", "attention.kind=linear");
    by_config *full = small_engine_config("llama", "f32");
    const by_engine_options options = {.sessions = 2, .draft = &drafts};
    check_ok(by_draft_ngram(&drafts, &error), &error);
    assert_int_equal(by_engine_open(&engine, linear, NULL, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "the model has attention.kind linear"));
    by_draft_close(&drafts);
    check_ok(by_draft_model(&drafts, linear, NULL, NULL, &error), &error);
    assert_int_equal(by_engine_open(&engine, full, NULL, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "the draft model has attention.kind linear"));
    by_draft_close(&drafts);
    by_config_close(&linear);
    by_config_close(&full);
}

#define INVARIANCE(...)                                                                            \
    {                                                                                              \
        "invariance: " #__VA_ARGS__, test_invariance, NULL, NULL, &(invariance)                    \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        INVARIANCE("gpt2", "f32", NULL, 1),       INVARIANCE("llama", "bf16", NULL, 2),
        INVARIANCE("gpt2", "fp16", NULL, 1),      INVARIANCE("llama", "int8", NULL, 2),
        INVARIANCE("gpt2", "w8a8", NULL, 1),      INVARIANCE("gpt2", "int4", NULL, 1),
        INVARIANCE("llama", "fp8", NULL, 2),      INVARIANCE("gpt2", "f32", "int8", 2),
        INVARIANCE("llama", "bf16", "int8", 1),   INVARIANCE("mixtral", "bf16", NULL, 2),
        INVARIANCE("mixtral", "int8", NULL, 1),   cmocka_unit_test(test_codes),
        cmocka_unit_test(test_log_probabilities), cmocka_unit_test(test_like_a_generator),
        cmocka_unit_test(test_draft_model),       cmocka_unit_test(test_memory_of_drafts),
        cmocka_unit_test(test_carried),           cmocka_unit_test(test_no_drafts_of_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
