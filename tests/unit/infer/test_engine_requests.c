/* What an engine does with one request: processors of logits, what it refuses, deadlines, and the
 * memory that it takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/engine.h"
#include "banyan/logit_process.h"
#include "base/base.h"
#include "runner.h"
#include "small_engine.h"

static by_status forbid(void *user, int32_t index, float *logits, int64_t vocab,
                        const int32_t *tokens, int64_t count, int64_t prompt, by_error *error)
{
    const int32_t *allowed = user;
    assert_true(count >= prompt && prompt == 3 && tokens[0] == 1);
    if (index == 1 && count == prompt + 2) {
        return by_error_set(error, BY_ESTATE, "the second one ends here");
    }
    for (int64_t i = 0; i < vocab; i++) {
        logits[i] = i == *allowed ? logits[i] : -INFINITY;
    }
    return BY_OK;
}

/* A processor decides what may follow; the log-probability is the model's own. */
static void test_processor(void **state)
{
    static const int32_t prompt[] = {1, 2, 3};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 2, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    int32_t allowed = 42;
    uint64_t session;
    by_request r = {.prompt = prompt,
                    .prompt_count = 3,
                    .tokens = 5,
                    .sampling = {.temperature = 1.0, .top_p = 1.0},
                    .n = 2,
                    .process = forbid,
                    .user = &allowed};
    int counts[2] = {0};
    by_finish finish[2] = {BY_FINISH_NONE, BY_FINISH_NONE};
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            assert_true(events[i].token == 42 || events[i].finish == BY_FINISH_FAILED);
            assert_true(events[i].token < 0 || events[i].log_probability < -0.1f);
            counts[events[i].index] += events[i].token >= 0;
            finish[events[i].index] = events[i].finish;
            if (events[i].finish == BY_FINISH_FAILED) {
                assert_string_equal(events[i].failure, "the second one ends here");
                assert_int_equal(events[i].status, BY_ESTATE);
            } else {
                assert_null(events[i].failure);
            }
        }
    }
    assert_int_equal(counts[0], 5);
    assert_int_equal(finish[0], BY_FINISH_LENGTH);
    assert_int_equal(counts[1], 2);
    assert_int_equal(finish[1], BY_FINISH_FAILED);
    /* Who forbids everything is told so: it is no failure of the model. */
    allowed = -1;
    r.n = 1;
    by_status found = BY_OK;
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        found = count > 0 ? events[0].status : found;
    }
    assert_int_equal(found, BY_EARG);
    by_engine_close(&engine);
    by_config_close(&config);
}

/* ---- scores of prompts ---- */

enum { SCORED = 45, TOPS = 3 };

typedef struct scores {
    float values[SCORED]; /* of each token of the prompt */
    by_top_token top[SCORED][TOPS];
    int32_t generated[4];
    int generated_count;
    by_finish finish[2];
} scores;

static void make_prompt(int32_t prompt[SCORED])
{
    for (int32_t i = 0; i < SCORED; i++) {
        prompt[i] = (i * i + 7 * i + 3) % VOCAB;
    }
}

/* Runs a request whose prompt is scored, beside `others` that are not. */
static void run_scores(by_engine *engine, const by_request *request, int others, scores *out)
{
    by_error error = {0};
    uint64_t session, ignored;
    by_request other = *request;
    int32_t next = 1;
    other.score = other.only_prompt = false;
    other.tokens = 9;
    other.n = 1;
    *out = (scores){0};
    for (int i = 0; i < others; i++) {
        other.prompt_count = (size_t)(3 + 5 * i);
        check_ok(by_engine_submit(engine, &other, &ignored, &error), &error);
    }
    check_ok(by_engine_submit(engine, request, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            const by_event *e = &events[i];
            if (e->session != session) {
                assert_int_equal(e->prompt_position, 0);
                continue;
            }
            if (e->prompt_position > 0) {
                assert_int_equal(e->index, 0);
                assert_int_equal(e->prompt_position, next);
                assert_int_equal(e->token, request->prompt[next]);
                assert_int_equal(e->top_count, TOPS);
                out->values[next] = e->log_probability;
                memcpy(out->top[next++], e->top, sizeof out->top[0]);
            } else if (e->token >= 0 && e->index == 0) {
                assert_int_equal(next, SCORED); /* the prompt's come first */
                out->generated[out->generated_count++] = e->token;
            }
            out->finish[e->index] = e->finish;
        }
    }
    assert_int_equal(next, SCORED);
}

/* They are those of the model run over the whole sequence, in double precision. */
static void check_scores(const by_config *config, const int32_t *prompt, const scores *s)
{
    by_logits *logits;
    by_error error = {0};
    const float *all;
    check_ok(by_logits_open(&logits, config, NULL, 1, SCORED, NULL, 0, &error), &error);
    check_ok(by_logits_run(logits, prompt, &all, &error), &error);
    for (int i = 1; i < SCORED; i++) {
        const float *row = all + (i - 1) * VOCAB;
        double sum = 0.0;
        for (int v = 0; v < VOCAB; v++) {
            sum += exp((double)row[v]);
        }
        double want = (double)row[prompt[i]] - log(sum);
        assert_true(fabs(want - (double)s->values[i]) < 1e-4);
        assert_true(s->top[i][0].log_probability >= s->values[i]);
        assert_true(s->top[i][0].log_probability >= s->top[i][1].log_probability);
    }
    by_logits_close(&logits);
}

/* The log-probabilities of a prompt have the same bits however it is cut, with others beside it,
 * after the same prompt is in the prefix cache, and when its pages are taken away. */
static void test_scores(void **state)
{
    static const struct {
        by_engine_options options;
        int others;
        int times;
    } ways[] = {{{.sessions = 1, .rows = ROWS}, 0, 1},
                {{.sessions = 1, .rows = 64}, 0, 2},
                {{.sessions = 6, .rows = 7}, 3, 2},
                {{.sessions = 8, .rows = 64}, 5, 3},
                {{.sessions = 4, .rows = ROWS, .pages = 7}, 4, 3}};
    int32_t prompt[SCORED];
    BY_UNUSED(state);
    make_prompt(prompt);
    for (int k = 0; k < 2; k++) {
        by_config *config = small_engine_config(k == 0 ? "gpt2" : "llama", "f32");
        const by_request request = {.prompt = prompt,
                                    .prompt_count = SCORED,
                                    .tokens = 4,
                                    .sampling = {.temperature = 0.0, .top_p = 1.0},
                                    .top = TOPS,
                                    .score = true};
        scores first, next;
        for (size_t i = 0; i < BY_ARRAY_LENGTH(ways); i++) {
            by_engine *engine = small_engine_open(config, &ways[i].options);
            for (int t = 0; t < ways[i].times; t++) {
                run_scores(engine, &request, ways[i].others, i + (size_t)t == 0 ? &first : &next);
                if (i + (size_t)t > 0) {
                    assert_memory_equal(&first, &next, sizeof first);
                }
            }
            by_engine_close(&engine);
        }
        assert_int_equal(first.generated_count, 4);
        check_scores(config, prompt, &first);
        by_config_close(&config);
    }
}

/* A prompt alone: nothing is generated behind it, of any of its sequences. */
static void test_only_prompt(void **state)
{
    int32_t prompt[SCORED];
    scores all, alone;
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 3, .rows = ROWS, .context = SCORED};
    by_engine *engine = small_engine_open(config, &options);
    by_request request = {.prompt = prompt,
                          .prompt_count = SCORED,
                          .tokens = 4,
                          .sampling = {.temperature = 1.0, .top_p = 1.0},
                          .n = 2,
                          .top = TOPS,
                          .score = true,
                          .only_prompt = true};
    make_prompt(prompt);
    run_scores(engine, &request, 0, &alone);
    assert_int_equal(alone.generated_count, 0);
    assert_int_equal(alone.finish[0], BY_FINISH_LENGTH);
    assert_int_equal(alone.finish[1], BY_FINISH_LENGTH);
    assert_int_equal(by_engine_statistics_now(engine).generated, 0);
    request.only_prompt = false;
    run_scores(engine, &request, 0, &all);
    assert_memory_equal(all.values, alone.values, sizeof all.values);
    assert_int_equal(all.generated_count, 1); /* the context is full */
    /* One token has no score. */
    uint64_t session;
    const by_event *events;
    size_t count;
    request.only_prompt = true;
    request.prompt_count = 1;
    request.n = 1;
    check_ok(by_engine_submit(engine, &request, &session, &error), &error);
    check_ok(by_engine_step(engine, &events, &count, &error), &error);
    assert_true(count == 1 && events[0].token == -1 && events[0].finish == BY_FINISH_LENGTH);
    by_engine_close(&engine);
    by_config_close(&config);
}

/* Is prepared when another sequence has two more tokens. */
typedef struct patient {
    int others; /* tokens of the other sequence */
    int wanted;
    int32_t allowed;
} patient;

static bool wait_for_others(void *user, int32_t index, const int32_t *tokens, int64_t count,
                            int64_t prompt, int64_t *work)
{
    patient *w = user;
    assert_true(index == 0 && tokens[0] == 1);
    w->wanted = 2 * (int)(count - prompt + 1);
    *work = 0;
    return w->others >= w->wanted;
}

static by_status one_token(void *user, int32_t index, float *logits, int64_t vocab,
                           const int32_t *tokens, int64_t count, int64_t prompt, by_error *error)
{
    const patient *w = user;
    int32_t allowed = w->allowed;
    assert_true(w->others >= w->wanted);
    return forbid(&allowed, index, logits, vocab, tokens, count, prompt, error);
}

/* A sequence whose processor has much to prepare waits, and others go on. */
static void test_preparation(void **state)
{
    static const int32_t prompt[] = {1, 2, 3};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 2, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    patient w = {.allowed = 42};
    uint64_t held, other;
    int tokens = 0;
    by_request r = {.prompt = prompt,
                    .prompt_count = 3,
                    .tokens = 5,
                    .sampling = {.temperature = 1.0, .top_p = 1.0},
                    .process = one_token,
                    .prepare = wait_for_others,
                    .user = &w};
    check_ok(by_engine_submit(engine, &r, &held, &error), &error);
    r.process = NULL;
    r.tokens = 30;
    check_ok(by_engine_submit(engine, &r, &other, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            w.others += events[i].session == other;
            tokens += events[i].session == held;
            assert_true(events[i].session == other || events[i].token == 42);
        }
    }
    assert_int_equal(tokens, 5);
    by_engine_close(&engine);
    by_config_close(&config);
}

static by_status letter_of(void *user, uint32_t id, const char **data, size_t *length,
                           by_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    BY_UNUSED(user);
    BY_UNUSED(error);
    *data = &letters[id];
    *length = 1;
    return BY_OK;
}

/* Runs a request whose text is held to a form; returns the number of events. */
static size_t run_held(const by_config *config, const by_engine_options *options,
                       const by_constraint *form, const by_token_list *list, by_event *out,
                       by_engine_statistics *statistics)
{
    static const int32_t prompt[] = {1, 2, 3};
    by_error error = {0};
    by_engine *engine = small_engine_open(config, options);
    by_logit_process *process;
    by_logit_process_options rules = {.vocab = VOCAB,
                                      .n = 2,
                                      .rules = {.repetition = 1.2, .frequency = 0.3},
                                      .constraint = form,
                                      .list = list};
    uint64_t session;
    size_t total = 0;
    check_ok(by_logit_process_open(&process, &rules, &error), &error);
    by_request r = {.prompt = prompt,
                    .prompt_count = 3,
                    .sampling = {.temperature = 1.0, .top_p = 1.0},
                    .n = 2,
                    .process = by_logit_process_run,
                    .user = process};
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            assert_true(total < 2 * CONTEXT);
            out[total++] = events[i];
        }
    }
    *statistics = by_engine_statistics_now(engine);
    by_engine_close(&engine);
    by_logit_process_close(&process);
    return total;
}

/* Penalties and forms see only tokens that the sequence has, whatever was drafted. */
static void test_processor_and_drafts(void **state)
{
    static const char pattern[] = "([a-d]{4}xyz){5}[k-p]{6}";
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 2, .rows = ROWS};
    by_constraint *form;
    by_token_list *list;
    by_draft_source drafts;
    by_event events[2][2 * CONTEXT];
    size_t counts[2];
    by_engine_statistics statistics[2];
    check_ok(by_constraint_open_regex(&form, pattern, strlen(pattern), NULL, &error), &error);
    check_ok(by_token_list_open(&list, letter_of, NULL, VOCAB, &error), &error);
    check_ok(by_draft_ngram(&drafts, &error), &error);
    for (int with = 0; with < 2; with++) {
        options.draft = with ? &drafts : NULL;
        options.draft_always = with;
        counts[with] = run_held(config, &options, form, list, events[with], &statistics[with]);
    }
    assert_int_equal(counts[0], 2 * (41 + 1));
    assert_int_equal(counts[1], counts[0]);
    for (int32_t index = 0; index < 2; index++) {
        for (size_t i = 0, k = 0; i < counts[0]; i++) {
            if (events[0][i].index == index) {
                while (events[1][k].index != index) {
                    k++;
                }
                assert_int_equal(events[0][i].token, events[1][k].token);
                assert_int_equal(events[0][i].finish, events[1][k].finish);
                assert_memory_equal(&events[0][i].log_probability, &events[1][k].log_probability,
                                    sizeof(float));
                k++;
            }
        }
    }
    assert_true(statistics[1].accepted > 10);
    assert_true(statistics[1].steps < statistics[0].steps);
    by_draft_close(&drafts);
    by_token_list_close(&list);
    by_constraint_close(&form);
    by_config_close(&config);
}

/* Runs a request of one sequence beside `others` of other prompts; returns the number of its
 * tokens. */
static size_t run_beside(by_engine *engine, by_request r, int others, int32_t *tokens)
{
    static const int32_t other[] = {7, 8};
    by_error error = {0};
    by_request company = {.prompt = other,
                          .prompt_count = 2,
                          .tokens = 20,
                          .sampling = {.temperature = 1.0, .top_p = 1.0}};
    uint64_t session;
    uint64_t ignored;
    size_t total = 0;
    for (int i = 0; i < others; i++) {
        company.sampling.seed = (uint64_t)i;
        check_ok(by_engine_submit(engine, &company, &ignored, &error), &error);
    }
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            if (events[i].session == session) {
                assert_true(events[i].token >= 0 && total < CONTEXT);
                tokens[total++] = events[i].token;
            }
        }
    }
    return total;
}

/* No stop token before the least number of tokens, alone and in company, unless nothing else may
 * follow. */
static void test_min_tokens(void **state)
{
    static const int32_t prompt[] = {1, 2, 3};
    static const int32_t letters[] = {0, 1, 2};
    static const int32_t beyond[] = {VOCAB};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 3, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    by_constraint *form;
    by_token_list *list;
    int32_t tokens[2][CONTEXT];
    by_request r = {.prompt = prompt,
                    .prompt_count = 3,
                    .tokens = 40,
                    .sampling = {.temperature = 1.0, .top_p = 1.0, .seed = 5}};
    check_ok(by_constraint_open_regex(&form, "[abc]{3}", 8, NULL, &error), &error);
    check_ok(by_token_list_open(&list, letter_of, NULL, VOCAB, &error), &error);
    assert_int_equal(run_beside(engine, r, 0, tokens[0]), 40);
    const int32_t stop = tokens[0][2];
    r.stop = &stop;
    r.stop_count = 1;
    assert_true(run_beside(engine, r, 0, tokens[0]) <= 3);
    by_logit_process_options rules = {
        .vocab = VOCAB, .min_tokens = 12, .stops = &stop, .stop_count = 1};
    by_logit_process *process;
    size_t counts[2];
    for (int others = 0; others < 2; others++) {
        check_ok(by_logit_process_open(&process, &rules, &error), &error);
        r.process = by_logit_process_run;
        r.user = process;
        counts[others] = run_beside(engine, r, 2 * others, tokens[others]);
        by_logit_process_close(&process);
    }
    assert_true(counts[0] >= 12 && counts[0] == counts[1]);
    assert_memory_equal(tokens[0], tokens[1], counts[0] * sizeof(int32_t));
    for (size_t i = 0; i < 12; i++) {
        assert_int_not_equal(tokens[0][i], stop);
    }
    /* The form wants what the rule forbids: the form goes first. */
    rules.constraint = form;
    rules.list = list;
    rules.stops = r.stop = letters;
    rules.stop_count = r.stop_count = 3;
    check_ok(by_logit_process_open(&process, &rules, &error), &error);
    r.user = process;
    assert_int_equal(run_beside(engine, r, 0, tokens[0]), 1);
    by_logit_process_close(&process);
    rules.stops = beyond;
    rules.stop_count = 1;
    assert_int_equal(by_logit_process_open(&process, &rules, &error), BY_EARG);
    by_token_list_close(&list);
    by_constraint_close(&form);
    by_engine_close(&engine);
    by_config_close(&config);
}

static void refuse(by_engine *engine, by_request r, by_status status, const char *part)
{
    by_error error = {0};
    uint64_t session;
    assert_int_equal(by_engine_submit(engine, &r, &session, &error), status);
    if (strstr(error.message, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, error.message);
    }
}

static void test_refusals(void **state)
{
    static const int32_t prompt[CONTEXT + 1] = {0};
    static const int32_t foreign[] = {3, VOCAB};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 2, .waiting = 1, .rows = ROWS, .pages = 4};
    by_engine *engine = small_engine_open(config, &options);
    by_request r = {.prompt = prompt, .prompt_count = 40, .tokens = 24, .sampling = {.top_p = 1.0}};
    by_request bad = r;
    bad.prompt_count = 0;
    refuse(engine, bad, BY_EARG, "a prompt of 0 tokens");
    bad.prompt_count = CONTEXT + 1;
    refuse(engine, bad, BY_EARG, "the context");
    bad = r;
    bad.tokens = 26; /* 65 tokens with keys and values: five pages */
    refuse(engine, bad, BY_EARG, "need 5 pages; the pool has 4");
    bad = r;
    bad.tokens = 0;
    refuse(engine, bad, BY_EARG, "pages");
    bad = r;
    bad.prompt = foreign;
    bad.prompt_count = 2;
    refuse(engine, bad, BY_EARG, "token 1 is id 61");
    bad = r;
    bad.stop = foreign;
    bad.stop_count = 2;
    refuse(engine, bad, BY_EARG, "stop token 1");
    bad = r;
    bad.sampling.top_p = 0.0;
    refuse(engine, bad, BY_EARG, "top_p");
    bad = r;
    bad.n = 4;
    refuse(engine, bad, BY_EARG, "n 4");
    bad = r;
    bad.deadline = -1.0;
    refuse(engine, bad, BY_EARG, "deadline");
    /* Three fit, and what just fits into the pool is accepted. */
    uint64_t session[3];
    r.tokens = 25;
    for (int i = 0; i < 3; i++) {
        check_ok(by_engine_submit(engine, &r, &session[i], &error), &error);
    }
    refuse(engine, r, BY_ESTATE, "room for 3");
    /* A cancelled one gives its slot back with the next step, which tells of it. */
    check_ok(by_engine_cancel(engine, session[1], &error), &error);
    assert_int_equal(by_engine_cancel(engine, session[1], &error), BY_EARG);
    refuse(engine, r, BY_ESTATE, "room for 3");
    const by_event *events;
    size_t count;
    check_ok(by_engine_step(engine, &events, &count, &error), &error);
    assert_int_equal(count, 1);
    assert_int_equal(events[0].session, session[1]);
    assert_int_equal(events[0].finish, BY_FINISH_CANCELLED);
    assert_int_equal(events[0].token, -1);
    check_ok(by_engine_submit(engine, &r, &session[1], &error), &error);
    by_engine_close(&engine);
    by_config_close(&config);
}

static void test_open_refusals(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine *engine = NULL;
    const struct {
        by_engine_options options;
        const char *part;
    } cases[] = {
        {{.context = 97}, "96 learned positions"},
        {{.context = -1}, "context -1"},
        {{.sessions = 8, .rows = 4}, "rows 4"},
        {{.sessions = -1}, "sessions -1"},
        {{.pages = 3, .pool_bytes = 4000}, "twice"},
        {{.pool_bytes = 100}, "smaller than one page"},
        {{.vocab = 62}, "the model knows 61"},
        {{.kv = "int9"}, "as 'int9'; only int8 is supported"},
        {{.pages = 100000000, .precision = "bf16"}, "fewer pages"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        assert_int_not_equal(by_engine_open(&engine, config, NULL, &cases[i].options, &error),
                             BY_OK);
        if (strstr(error.message, cases[i].part) == NULL) {
            fail_msg("'%s' is not in '%s'", cases[i].part, error.message);
        }
        assert_null(engine);
    }
    by_config_close(&config);
}

/* A deadline ends a session, also one that has not begun. */
static void test_deadline(void **state)
{
    static const int32_t prompt[] = {1, 2, 3};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    by_engine_options options = {.sessions = 1, .rows = ROWS};
    by_engine *engine = small_engine_open(config, &options);
    by_request r = {.prompt = prompt, .prompt_count = 3, .sampling = {.top_p = 1.0}, .n = 2};
    uint64_t session;
    const by_event *events;
    size_t count;
    r.deadline = 1e-9;
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    check_ok(by_engine_step(engine, &events, &count, &error), &error);
    assert_int_equal(count, 2);
    assert_int_equal(events[0].finish, BY_FINISH_DEADLINE);
    assert_int_equal(events[1].finish, BY_FINISH_DEADLINE);
    assert_false(by_engine_busy(engine));
    by_engine_close(&engine);
    by_config_close(&config);
}

/* The plan is what is taken, and public calls serve with the defaults. */
static void test_memory_and_defaults(void **state)
{
    static const int32_t prompt[] = {1, 2, 3};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("llama", "bf16");
    by_engine *engine;
    check_ok(by_engine_open(&engine, config, NULL, NULL, &error), &error);
    const by_engine_memory_report *m = by_engine_memory(engine);
    /* Two layers, keys and values, four heads of eight, two bytes; 16 sequences of six pages. */
    assert_int_equal(m->pool, 2 * 2 * 32 * 2 * BY_PAGE_TOKENS * 16 * 6);
    assert_int_equal(m->total, m->weights + m->pool + m->activations + m->workspace + m->data);
    by_request r = {.prompt = prompt, .prompt_count = 3, .sampling = {.top_p = 1.0}};
    uint64_t session;
    int tokens = 0;
    check_ok(by_engine_submit(engine, &r, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        tokens += (int)count;
    }
    assert_int_equal(tokens, CONTEXT + 1 - 3);
    by_engine_statistics st = by_engine_statistics_now(engine);
    assert_int_equal(st.generated, tokens);
    assert_int_equal(st.rows, CONTEXT);
    assert_true(st.flops > 0.0 && st.bytes > 0.0);
    by_engine_close(&engine);
    assert_null(engine);
    by_config_close(&config);
}

/* A step runs the smallest program that has room for its rows. */
static void test_step_sizes(void **state)
{
    static const struct {
        int64_t sessions;
        uint64_t padding; /* of a step */
    } cases[] = {{5, 3}, {8, 0}, {11, 1}, {17, 7}, {24, 0}, {33, 15}, {60, 4}};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config = small_engine_config("gpt2", "f32");
    const int32_t prompt[] = {1};
    const by_request request = {
        .prompt = prompt, .prompt_count = 1, .tokens = 3, .sampling = {.top_p = 1.0}};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        by_engine_options options = {.sessions = cases[c].sessions, .rows = 64};
        by_engine *engine = small_engine_open(config, &options);
        for (int64_t i = 0; i < cases[c].sessions; i++) {
            uint64_t session;
            check_ok(by_engine_submit(engine, &request, &session, &error), &error);
        }
        while (by_engine_busy(engine)) {
            const by_event *events;
            size_t count;
            check_ok(by_engine_step(engine, &events, &count, &error), &error);
        }
        by_engine_statistics st = by_engine_statistics_now(engine);
        assert_int_equal(st.steps, 3);
        assert_int_equal(st.padding, 3 * cases[c].padding);
        by_engine_close(&engine);
    }
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_only_prompt),
        cmocka_unit_test(test_preparation),
        cmocka_unit_test(test_processor_and_drafts),
        cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_open_refusals),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_memory_and_defaults),
        cmocka_unit_test(test_step_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
