/* Which rows a step has: bounds, order, pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/scheduler.h"

enum { CONTEXT = 256, MOST = 32 };

/* Calls of the library that take memory: the linker gives them to these (tests/CMakeLists.txt). */
static int allocations;
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __real_aligned_alloc(alignment, size);
}

typedef struct fixture {
    by_config *config;
    by_engine *engine;
    int32_t prompt[CONTEXT];
    int steps;
    /* Of each session, by its number: tokens, the step of the first and of the last event. */
    int tokens[MOST], first[MOST], last[MOST];
    by_finish finish[MOST];
    int told; /* events of the last step */
} fixture;

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static void open_fixture(fixture *f, const by_engine_options *options)
{
    static const char *const settings[] = {
        "model.kind=llama",  "model.layers=1",    "model.heads=2",
        "model.width=8",     "model.context=256", "model.vocab=31",
        "model.mlp_width=8", "train.threads=1",   "precision.compute=f32",
    };
    by_error error = {0};
    *f = (fixture){0};
    check(by_config_default(&f->config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check(by_config_set(f->config, settings[i], &error), &error);
    }
    check(by_config_resolve(f->config, &error), &error);
    check(by_engine_open(&f->engine, f->config, NULL, options, &error), &error);
}

static void close_fixture(fixture *f)
{
    by_engine_close(&f->engine);
    by_config_close(&f->config);
}

/* A session whose prompt no other one has, unless `shared`. */
static uint64_t submit(fixture *f, int64_t prompt, int64_t tokens, int32_t priority, bool shared)
{
    static int32_t differs;
    by_error error = {0};
    uint64_t session;
    by_request r = {.prompt = f->prompt,
                    .prompt_count = (size_t)prompt,
                    .tokens = tokens,
                    .priority = priority,
                    .sampling = {.top_p = 1.0}};
    differs = (differs + 1) % 31;
    for (int i = 0; i < CONTEXT; i++) {
        f->prompt[i] = shared ? i % 29 : (i * (differs + 1) + differs) % 31;
    }
    check(by_engine_submit(f->engine, &r, &session, &error), &error);
    assert_true(session < MOST);
    return session;
}

static by_engine_statistics step(fixture *f)
{
    by_error error = {0};
    const by_event *events;
    size_t count;
    check(by_engine_step(f->engine, &events, &count, &error), &error);
    f->steps++;
    f->told = (int)count;
    for (size_t i = 0; i < count; i++) {
        uint64_t s = events[i].session;
        f->tokens[s] += events[i].token >= 0;
        f->first[s] = f->first[s] == 0 ? f->steps : f->first[s];
        f->last[s] = f->steps;
        f->finish[s] = events[i].finish;
    }
    by_engine_statistics st = by_engine_statistics_now(f->engine);
    assert_true(st.pages_used + st.pages_cached <= st.pages);
    assert_true(st.rows + st.padding >= st.rows);
    return st;
}

static void finish(fixture *f)
{
    while (by_engine_busy(f->engine)) {
        assert_true(f->steps < 2000);
        (void)step(f);
    }
}

/* Beside a prompt of many steps, each step gives every other session its token, and no step has
 * more rows than it may. */
static void test_long_prompt_does_not_stall(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .rows = 16};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    for (int i = 0; i < 3; i++) {
        (void)submit(&f, 4, 60, 0, false);
    }
    by_engine_statistics before = step(&f);
    assert_int_equal(f.told, 3);
    uint64_t last = submit(&f, 200, 4, 0, false);
    while (f.tokens[last] == 0) {
        int tokens = f.tokens[1] + f.tokens[2] + f.tokens[3];
        by_engine_statistics after = step(&f);
        assert_int_equal(f.tokens[1] + f.tokens[2] + f.tokens[3], tokens + 3);
        assert_true(after.rows - before.rows <= 16);
        before = after;
    }
    /* 13 rows of each step are the prompt's. */
    assert_int_equal(f.steps, 1 + (200 + 12) / 13);
    finish(&f);
    assert_int_equal(f.tokens[last], 4);
    close_fixture(&f);
}

/* A short prompt that arrives while a long one is read has its first token after one step, and of
 * two long ones the shorter is read first, but for the rows that are reserved for the older. */
static void test_short_prompt_beside_long(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .rows = 32};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    (void)submit(&f, 250, 2, 0, false);
    (void)step(&f);
    uint64_t b = submit(&f, 12, 2, 0, false);
    by_engine_statistics st = step(&f);
    assert_int_equal(f.first[b], 2);
    assert_int_equal(st.rows, 64);
    uint64_t c = submit(&f, 40, 2, 0, false);
    (void)step(&f);
    (void)step(&f);
    assert_int_equal(f.first[c], 4); /* 31 rows, of which 8 are reserved: 23, then 17 */
    finish(&f);
    close_fixture(&f);
}

/* Equal prompts are read one after the other. */
static void test_equal_prompts_in_order(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .rows = 16};
    uint64_t sessions[4];
    BY_UNUSED(state);
    open_fixture(&f, &options);
    for (int i = 0; i < 4; i++) {
        sessions[i] = submit(&f, 32, 1, 0, false);
    }
    finish(&f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f.first[sessions[i]], 2 * (i + 1));
    }
    close_fixture(&f);
}

/* A quarter of the rows reads a long prompt, whatever number of shorter ones arrive. */
static void test_long_prompt_is_read(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 8, .waiting = 24, .rows = 16};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    uint64_t a = submit(&f, 80, 1, 0, false);
    (void)step(&f);
    while (f.first[a] == 0) {
        assert_true(f.steps < 1 + 64 / 4);
        (void)submit(&f, 15, 1, 0, false);
        (void)step(&f);
    }
    close_fixture(&f);
}

/* The rows go to prompts of a higher priority first, however long they are. */
static void test_priority_of_prompts(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .rows = 16};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    uint64_t a = submit(&f, 2, 1, 0, false);
    uint64_t b = submit(&f, 48, 1, 1, false);
    finish(&f);
    assert_int_equal(f.first[b], 3);
    assert_int_equal(f.first[a], 4);
    close_fixture(&f);
}

/* One after the other by priority, then by arrival, where only one may run. */
static void test_order(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 1, .waiting = 8, .rows = 16};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    uint64_t a = submit(&f, 5, 3, 0, false);
    uint64_t b = submit(&f, 5, 3, 0, false);
    uint64_t c = submit(&f, 5, 3, 2, false);
    uint64_t d = submit(&f, 5, 3, 2, false);
    uint64_t e = submit(&f, 5, 3, -1, false);
    finish(&f);
    assert_true(f.last[c] < f.first[d] && f.last[d] < f.first[a] && f.last[a] < f.first[b] &&
                f.last[b] < f.first[e]);
    assert_int_equal(by_engine_statistics_now(f.engine).preemptions, 0);
    /* Who comes later with a higher priority takes the place, and the other one goes on later. */
    a = submit(&f, 5, 9, 0, false);
    (void)step(&f);
    b = submit(&f, 5, 3, 1, false);
    finish(&f);
    assert_true(f.first[a] < f.first[b] && f.last[b] < f.last[a]);
    assert_int_equal(f.tokens[a], 9);
    assert_int_equal(by_engine_statistics_now(f.engine).preemptions, 1);
    close_fixture(&f);
}

/* As many pages as one session needs: all of them finish, one behind the other. */
static void test_smallest_pool(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .waiting = 8, .rows = 16, .pages = 5};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    for (int i = 0; i < 8; i++) {
        (void)submit(&f, 20 + 5 * i, 81 - (20 + 5 * i), i % 2, i % 3 == 0);
    }
    finish(&f);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(f.tokens[1 + i], 81 - (20 + 5 * i));
        assert_int_equal(f.finish[1 + i], BY_FINISH_LENGTH);
    }
    by_engine_statistics st = by_engine_statistics_now(f.engine);
    assert_int_equal(st.pages_used, 0);
    assert_true(st.preemptions > 0);
    close_fixture(&f);
}

/* What one session has computed, the next one finds; not under another salt, and never the last
 * token, whose logits are wanted. */
static void test_prefix_is_found(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 2, .rows = 64};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    (void)submit(&f, 48, 1, 0, true);
    finish(&f);
    assert_int_equal(by_engine_statistics_now(f.engine).found, 0);
    assert_int_equal(by_engine_statistics_now(f.engine).pages_cached, 3);
    (void)submit(&f, 48, 1, 0, true);
    finish(&f);
    assert_int_equal(by_engine_statistics_now(f.engine).found, 32);
    assert_int_equal(by_engine_statistics_now(f.engine).rows, 48 + 16);
    (void)submit(&f, 49, 1, 0, true);
    finish(&f);
    assert_int_equal(by_engine_statistics_now(f.engine).found, 32 + 48);
    by_error error = {0};
    uint64_t session;
    by_request other = {
        .prompt = f.prompt, .prompt_count = 49, .tokens = 1, .salt = 1, .sampling = {.top_p = 1.0}};
    check(by_engine_submit(f.engine, &other, &session, &error), &error);
    finish(&f);
    assert_int_equal(by_engine_statistics_now(f.engine).found, 32 + 48);
    assert_int_equal(by_engine_statistics_now(f.engine).looked_up, 48 + 48 + 49 + 49);
    close_fixture(&f);
}

/* Steps are counted by how many sequences they have, without those that wait. */
static void test_step_sizes(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 3, .waiting = 8, .rows = 64};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    for (int i = 0; i < 4; i++) {
        (void)submit(&f, 5, i < 3 ? 2 + 2 * i : 1, 0, false);
    }
    finish(&f);
    /* Three for two steps; the fourth in the place of the first one; then two, and one. */
    by_engine_statistics st = by_engine_statistics_now(f.engine);
    assert_int_equal(st.steps, 6);
    assert_int_equal(st.sequences, 3 * 3 + 2 + 2 * 1);
    assert_int_equal(st.step_sizes[0], 2);
    assert_int_equal(st.step_sizes[1], 1);
    assert_int_equal(st.step_sizes[2], 3);
    close_fixture(&f);
}

/* A cancelled session holds nothing from there on. */
static void test_cancel_frees_at_once(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 2, .rows = 32, .no_prefix_cache = true};
    by_error error = {0};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    uint64_t a = submit(&f, 100, 50, 0, false);
    uint64_t b = submit(&f, 10, 9, 0, false);
    (void)step(&f);
    (void)step(&f);
    assert_int_equal(by_engine_statistics_now(f.engine).pages_used, 4 + 1);
    check(by_engine_cancel(f.engine, a, &error), &error);
    assert_int_equal(by_engine_statistics_now(f.engine).pages_used, 1);
    finish(&f);
    assert_int_equal(f.finish[a], BY_FINISH_CANCELLED);
    assert_int_equal(f.tokens[a], 0);
    assert_int_equal(f.tokens[b], 9);
    close_fixture(&f);
}

/* No call behind by_engine_open takes memory. */
static void test_steps_do_not_allocate(void **state)
{
    fixture f;
    by_engine_options options = {.sessions = 4, .waiting = 8, .rows = 16, .pages = 16};
    by_error error = {0};
    BY_UNUSED(state);
    open_fixture(&f, &options);
    int before = allocations;
    for (int i = 0; i < 8; i++) {
        (void)submit(&f, 10 + 20 * i, 8, i % 3, i % 2 == 0);
    }
    (void)step(&f);
    check(by_engine_cancel(f.engine, 3, &error), &error);
    finish(&f);
    assert_true(before > 0);
    assert_int_equal(allocations, before);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_prompt_does_not_stall),
        cmocka_unit_test(test_short_prompt_beside_long),
        cmocka_unit_test(test_equal_prompts_in_order),
        cmocka_unit_test(test_long_prompt_is_read),
        cmocka_unit_test(test_priority_of_prompts),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_smallest_pool),
        cmocka_unit_test(test_prefix_is_found),
        cmocka_unit_test(test_step_sizes),
        cmocka_unit_test(test_cancel_frees_at_once),
        cmocka_unit_test(test_steps_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
