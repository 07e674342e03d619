/* An engine that is given other weights generates what an engine that was opened with them does,
 * whatever it has in its prefix cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/engine.h"
#include "banyan/trainer.h"
#include "base/base.h"
#include "runner.h"
#include "small_engine.h"

enum { PROMPT = 40, TOKENS = 24, N = 3 };

typedef struct texts {
    int32_t tokens[N][TOKENS];
    float chances[N][TOKENS];
    int counts[N];
} texts;

static texts generate(by_engine *engine)
{
    texts out = {0};
    by_error error = {0};
    uint64_t session;
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) {
        prompt[i] = (i * 7 + 3) % VOCAB;
    }
    const by_request request = {.prompt = prompt,
                                .prompt_count = PROMPT,
                                .tokens = TOKENS,
                                .sampling = {.temperature = 1.0, .top_p = 1.0, .seed = 9},
                                .n = N};
    check_ok(by_engine_submit(engine, &request, &session, &error), &error);
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        check_ok(by_engine_step(engine, &events, &count, &error), &error);
        for (size_t i = 0; i < count; i++) {
            const by_event *e = &events[i];
            out.tokens[e->index][out.counts[e->index]] = e->token;
            out.chances[e->index][out.counts[e->index]++] = e->log_probability;
        }
    }
    return out;
}

static by_status read_weight(void *user, const char *name, by_tensor_view *out, by_error *error)
{
    const by_trainer *trainer = user;
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        *out = by_trainer_parameter(trainer, i);
        if (strcmp(out->name, name) == 0) {
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG, "no weight %s", name);
}

static void check_kind(const char *kind, const char *precision)
{
    by_error error = {0};
    by_config *first = small_engine_config_with(kind, precision, "seed=1");
    by_config *second = small_engine_config_with(kind, precision, "seed=2");
    const by_engine_options options = {.rows = ROWS};
    by_engine *engine = small_engine_open(first, &options);
    by_engine *other = small_engine_open(second, &options);
    by_trainer *trainer;
    uint64_t session;
    check_ok(by_trainer_open(&trainer, second, NULL, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    texts before = generate(engine);
    texts wanted = generate(other);
    assert_memory_not_equal(&before, &wanted, sizeof before);
    check_ok(by_engine_set_weights(engine, read_weight, trainer, &error), &error);
    texts after = generate(engine);
    assert_memory_equal(&after, &wanted, sizeof after);
    const by_request waiting = {.prompt = after.tokens[0],
                                .prompt_count = 1,
                                .tokens = 1,
                                .sampling = {.temperature = 1.0, .top_p = 1.0}};
    check_ok(by_engine_submit(engine, &waiting, &session, &error), &error);
    assert_int_equal(by_engine_set_weights(engine, read_weight, trainer, &error), BY_ESTATE);
    by_trainer_close(&trainer);
    by_engine_close(&engine);
    by_engine_close(&other);
    by_config_close(&first);
    by_config_close(&second);
}

static void test_set_weights(void **state)
{
    BY_UNUSED(state);
    check_kind("gpt2", "f32");
    check_kind("llama", "bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_set_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
