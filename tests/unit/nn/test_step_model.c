/* Models in mode BY_MODEL_STEP, rows of many sequences in pages, against the same models run over
 * whole sequences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/infer.h"

enum {
    VOCAB = 61,
    CONTEXT = 64,
    ROWS = 16,
    SESSIONS = 3,
    TABLE = CONTEXT / BY_PAGE_TOKENS,
    PAGES = SESSIONS * TABLE
};

static const int64_t lengths[SESSIONS] = {61, 5, 33};

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static by_config *make_config(const char *const *settings, size_t count)
{
    static const char *const common[] = {"model.layers=2",   "model.heads=4",  "model.width=32",
                                         "model.context=64", "model.vocab=61", "model.init_std=0.3",
                                         "train.threads=1"};
    by_error error = {0};
    by_config *config;
    check(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check(by_config_set(config, common[i], &error), &error);
    }
    for (size_t i = 0; i < count; i++) {
        check(by_config_set(config, settings[i], &error), &error);
    }
    check(by_config_resolve(config, &error), &error);
    return config;
}

static int32_t token_of(int64_t session, int64_t position)
{
    return (int32_t)((position * 37 + position * position * 11 + session * 7 + 5) % VOCAB);
}

/* The logits of every position of every session, by running each whole. */
static void run_whole(const by_config *config, float *out)
{
    by_error error = {0};
    for (int64_t s = 0; s < SESSIONS; s++) {
        int32_t tokens[CONTEXT];
        by_logits *logits;
        const float *all;
        for (int64_t i = 0; i < lengths[s]; i++) {
            tokens[i] = token_of(s, i);
        }
        check(by_logits_open(&logits, config, NULL, 1, lengths[s], NULL, 0, &error), &error);
        check(by_logits_run(logits, tokens, &all, &error), &error);
        memcpy(out + s * CONTEXT * VOCAB, all, (size_t)(lengths[s] * VOCAB) * sizeof *out);
        by_logits_close(&logits);
    }
}

typedef struct stepper {
    by__infer_forward forward;
    int32_t tokens[ROWS], positions[ROWS], sessions[ROWS], wanted[ROWS];
    int32_t pages[SESSIONS * TABLE];
    float logits[ROWS * VOCAB];
} stepper;

static stepper *open_stepper(const by_config *config)
{
    by_error error = {0};
    by__infer_forward_options options;
    by_model model;
    by_model_request request = {.mode = BY_MODEL_STEP,
                                .batch = 1,
                                .time = ROWS,
                                .wanted = ROWS,
                                .sessions = SESSIONS,
                                .table = TABLE,
                                .pages = PAGES};
    by__exec_program_row *row;
    void *memory = NULL;
    check(by__alloc_aligned(&memory, sizeof(stepper), "stepper", &error), &error);
    stepper *s = memory;
    memset(s, 0, sizeof *s);
    check(by__infer_forward_options_read(&options, config, NULL, NULL, 0, &error), &error);
    check(by__infer_forward_open(&s->forward, &options, &error), &error);
    check(by__infer_forward_add(&s->forward, "step", &request, &model, &row, &error), &error);
    check(by__infer_forward_plan(&s->forward, NULL, &error), &error);
    check(by__infer_forward_start(&s->forward, NULL, &error), &error);
    for (int i = 0; i < PAGES; i++) { /* no session has neighbouring pages */
        s->pages[i] = (i * 5 + 3) % PAGES;
    }
    return s;
}

static void close_stepper(stepper *s)
{
    by__infer_forward_close(&s->forward);
    free(s);
}

/* One run over what is in the inputs. */
static void run_step(stepper *s)
{
    by_error error = {0};
    const struct {
        const char *name;
        void *data;
        size_t bytes;
    } inputs[] = {{"tokens", s->tokens, sizeof s->tokens},
                  {"positions", s->positions, sizeof s->positions},
                  {"sessions", s->sessions, sizeof s->sessions},
                  {"wanted", s->wanted, sizeof s->wanted},
                  {"pages", s->pages, sizeof s->pages},
                  {"logits", s->logits, sizeof s->logits}};
    by_memory memory[BY_ARRAY_LENGTH(inputs)];
    by_device *device = s->forward.device;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(inputs); i++) {
        check(by_device_alloc(&memory[i], device, inputs[i].bytes, "test", &error), &error);
        check(by_device_write(memory[i], inputs[i].data, &error), &error);
        check(by__exec_row_bind(s->forward.programs.rows[0], inputs[i].name, memory[i], &error),
              &error);
    }
    check(by_program_run(s->forward.programs.rows[0]->program, &error), &error);
    check(by_device_read(s->logits, memory[BY_ARRAY_LENGTH(inputs) - 1], &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(inputs); i++) {
        by_device_free(&memory[i]);
    }
}

/* Takes in all sessions, `chunk` tokens of each a step, in rows that begin with session `first`;
 * the logits of every position. */
static void run_ragged(stepper *s, int64_t chunk, int64_t first, float *out)
{
    int64_t done[SESSIONS] = {0};
    for (bool more = true; more;) {
        int64_t rows = 0;
        more = false;
        for (int64_t i = 0; i < ROWS; i++) {
            s->tokens[i] = 0;
            s->positions[i] = -1;
            s->sessions[i] = 0;
            s->wanted[i] = -1;
        }
        for (int64_t k = 0; k < SESSIONS; k++) {
            int64_t session = (first + k) % SESSIONS;
            for (int64_t c = 0; c < chunk && done[session] < lengths[session]; c++, rows++) {
                s->tokens[rows] = token_of(session, done[session]);
                s->positions[rows] = (int32_t)done[session]++;
                s->sessions[rows] = (int32_t)session;
                s->wanted[ROWS - 1 - rows] = (int32_t)rows;
                more = true;
            }
        }
        assert_true(rows <= ROWS);
        run_step(s);
        for (int64_t r = 0; r < rows; r++) {
            memcpy(out + (s->sessions[r] * CONTEXT + s->positions[r]) * VOCAB,
                   s->logits + (ROWS - 1 - r) * VOCAB, VOCAB * sizeof *out);
        }
    }
}

static void compare(const float *have, const float *want, float within)
{
    for (int64_t s = 0; s < SESSIONS; s++) {
        for (int64_t i = 0; i < lengths[s] * VOCAB; i++) {
            int64_t at = s * CONTEXT * VOCAB + i;
            if (!(fabsf(have[at] - want[at]) <= within)) {
                fail_msg("session %d, position %d: logit %d is %g, wanted %g", (int)s,
                         (int)(i / VOCAB), (int)(i % VOCAB), (double)have[at], (double)want[at]);
            }
        }
    }
}

/* exact: a row has the same bits whatever rows are beside it. Products of experts sum differently
 * for different numbers of rows. */
static void check_family(const char *const *settings, size_t count, float within, bool exact)
{
    by_config *config = make_config(settings, count);
    size_t size = (size_t)SESSIONS * CONTEXT * VOCAB;
    float *want = calloc(size, sizeof *want);
    float *have = calloc(size, sizeof *have);
    float *other = calloc(size, sizeof *other);
    assert_true(want != NULL && have != NULL && other != NULL);
    run_whole(config, want);
    stepper *s = open_stepper(config);
    run_ragged(s, 5, 0, have);
    compare(have, want, within);
    for (int64_t chunk = 1; chunk <= 3; chunk += 2) {
        run_ragged(s, chunk, chunk, other);
        compare(other, want, within);
        if (exact) {
            assert_memory_equal(have, other, size * sizeof *have);
        }
    }
    close_stepper(s);
    free(want);
    free(have);
    free(other);
    by_config_close(&config);
}

static void test_gpt2(void **state)
{
    static const char *const settings[] = {"model.kind=gpt2", "precision.compute=f32"};
    BY_UNUSED(state);
    check_family(settings, BY_ARRAY_LENGTH(settings), 2e-4f, true);
}

static void test_llama(void **state)
{
    static const char *const settings[] = {"model.kind=llama", "model.kv_heads=2",
                                           "precision.compute=f32"};
    BY_UNUSED(state);
    check_family(settings, BY_ARRAY_LENGTH(settings), 2e-4f, true);
}

/* Layers that read the last tokens alone, also where they begin within a page. */
static void test_window(void **state)
{
    static const char *const settings[] = {"model.kind=llama", "model.window=21",
                                           "model.window_layers=[1]", "precision.compute=f32"};
    BY_UNUSED(state);
    check_family(settings, BY_ARRAY_LENGTH(settings), 2e-4f, true);
}

/* The kinds of parts, also where a family was not published with them. */
static void test_kinds(void **state)
{
    static const char *const kinds[][7] = {
        {"model.kind=gpt2", "attention.kind=local_global", "attention.window=21",
         "position.kind=sinusoidal", "norm.kind=rms"},
        {"model.kind=gpt2", "attention.kind=mixed", "attention.window=19",
         "attention.pattern=[window, none]", "position.kind=rope"},
        {"model.kind=gpt2", "attention.kind=alibi", "mlp.kind=gated", "activation.kind=relu",
         "position.kind=auto"},
        {"model.kind=llama", "model.kv_heads=2", "attention.kind=alibi", "mlp.kind=plain",
         "norm.kind=layer"},
        {"model.kind=llama", "model.kv_heads=2", "values.kind=embedded", "values.every=1",
         "residual.kind=mixed", "activation.kind=relu2", "attention.kind=full"},
        {"model.kind=llama", "attention.kind=mixed", "attention.window=18",
         "attention.pattern=[alibi, window]", "position.kind=learned"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const char *settings[8] = {"precision.compute=f32"};
        size_t count = 1;
        while (count < BY_ARRAY_LENGTH(settings) && kinds[i][count - 1] != NULL) {
            settings[count] = kinds[i][count - 1];
            count++;
        }
        check_family(settings, count, 3e-4f, true);
    }
}

static void test_mixtral(void **state)
{
    static const char *const settings[] = {"model.kind=mixtral", "model.experts=4",
                                           "precision.compute=f32"};
    BY_UNUSED(state);
    check_family(settings, BY_ARRAY_LENGTH(settings), 5e-4f, false);
}

static void test_bf16(void **state)
{
    static const char *const settings[] = {"model.kind=llama", "precision.compute=bf16"};
    BY_UNUSED(state);
    check_family(settings, BY_ARRAY_LENGTH(settings), 0.3f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),    cmocka_unit_test(test_llama), cmocka_unit_test(test_window),
        cmocka_unit_test(test_mixtral), cmocka_unit_test(test_bf16),  cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
