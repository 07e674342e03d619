/* In which steps prompts are read: short ones before long ones, equal ones in their order, those
 * of a higher priority first, and a long one however many short ones arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "small_engine.h"

/* Rows of a step that are reserved for the prompt that has waited longest. */
#define RESERVED (ROWS / 4)

typedef struct reading {
    by_config *config;
    by_engine *engine;
    int steps;
    int prompts;      /* submitted */
    int read_at[128]; /* by session, in the order of submission: step of its token, 0: none yet */
    uint64_t sessions[128];
} reading;

static void start(reading *r)
{
    const by_engine_options options = {.sessions = 8, .rows = ROWS};
    *r = (reading){.config = small_engine_config("gpt2", "f32")};
    r->engine = small_engine_open(r->config, &options);
}

static void end(reading *r)
{
    by_engine_close(&r->engine);
    by_config_close(&r->config);
}

/* Submits a prompt that no other begins like, whose first token is its last. */
static void submit(reading *r, int64_t tokens, int priority)
{
    int32_t prompt[CONTEXT];
    by_error error = {0};
    for (int64_t i = 0; i < tokens; i++) {
        prompt[i] = (int32_t)((i * 7 + r->prompts) % VOCAB);
    }
    const by_request request = {.prompt = prompt,
                                .prompt_count = (size_t)tokens,
                                .tokens = 1,
                                .priority = priority,
                                .sampling = {.top_p = 1.0}};
    check_ok(by_engine_submit(r->engine, &request, &r->sessions[r->prompts], &error), &error);
    r->prompts++;
}

static void step(reading *r)
{
    const by_event *events;
    size_t count;
    by_error error = {0};
    check_ok(by_engine_step(r->engine, &events, &count, &error), &error);
    r->steps++;
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < r->prompts; k++) {
            if (r->sessions[k] == events[i].session) {
                r->read_at[k] = r->steps;
            }
        }
    }
}

static void test_equal_prompts_in_order(void **state)
{
    BY_UNUSED(state);
    reading r;
    start(&r);
    for (int i = 0; i < 4; i++) {
        submit(&r, 2 * ROWS, 0);
    }
    while (by_engine_busy(r.engine)) {
        step(&r);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r.read_at[i], 2 * (i + 1));
    }
    end(&r);
}

static void test_short_prompt_first(void **state)
{
    BY_UNUSED(state);
    reading r;
    start(&r);
    submit(&r, 5 * ROWS, 0);
    step(&r);
    submit(&r, 2 * ROWS, 0);
    submit(&r, ROWS - RESERVED, 0);
    step(&r);
    assert_int_equal(r.read_at[2], 2);
    while (by_engine_busy(r.engine)) {
        step(&r);
    }
    assert_true(r.read_at[1] < r.read_at[0]);
    assert_int_equal(r.steps, 8); /* every row of every step was used */
    end(&r);
}

static void test_long_prompt_is_read(void **state)
{
    BY_UNUSED(state);
    reading r;
    start(&r);
    submit(&r, 5 * ROWS, 0);
    step(&r);
    while (r.read_at[0] == 0 && r.steps < 100) {
        submit(&r, ROWS - 1, 0);
        step(&r);
    }
    assert_in_range(r.read_at[0], 1, 1 + 4 * ROWS / RESERVED);
    end(&r);
}

static void test_priority_first(void **state)
{
    BY_UNUSED(state);
    reading r;
    start(&r);
    submit(&r, 2, 0);
    submit(&r, 3 * ROWS, 1);
    while (by_engine_busy(r.engine)) {
        step(&r);
    }
    assert_int_equal(r.read_at[1], 3);
    assert_int_equal(r.read_at[0], 4);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_prompts_in_order), cmocka_unit_test(test_short_prompt_first),
        cmocka_unit_test(test_long_prompt_is_read), cmocka_unit_test(test_priority_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
