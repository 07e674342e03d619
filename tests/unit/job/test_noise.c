/* The gradient noise scale: its estimate from exact norms, and the norm of a micro-batch's gradient
 * against that of a step that has only this micro-batch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "job/job.h"
#include "runner.h"

#define MICRO 3
#define BATCH 12
#define TIME  8

static void test_estimate(void **state)
{
    BY_UNUSED(state);
    const double mean = 4.0;     /* |G|^2 */
    const double spread = 500.0; /* tr(S) */
    by__job_noise noise = {0};
    assert_true(by__job_noise_scale(&noise) == 0.0);
    for (int i = 0; i < 3; i++) {
        const by_step_result result = {.examples = BATCH,
                                       .norm = sqrt(mean + spread / BATCH),
                                       .micro_norm = sqrt(mean + spread / MICRO)};
        by__job_noise_add(&noise, &result, MICRO);
    }
    assert_true(fabs(by__job_noise_scale(&noise) / (spread / mean) - 1.0) < 1e-12);
    const by_step_result skipped = {
        .examples = BATCH, .norm = 1.0, .micro_norm = 9.0, .skipped = BY_SKIP_SPIKE};
    const by_step_result unmeasured = {.examples = BATCH, .norm = 1.0};
    by__job_noise_add(&noise, &skipped, MICRO);
    by__job_noise_add(&noise, &unmeasured, MICRO);
    assert_true(fabs(by__job_noise_scale(&noise) / (spread / mean) - 1.0) < 1e-12);
}

/* Trains on the first `batch` examples for two steps. */
static void take_steps(by_step_result results[2], int batch, const char *every,
                       const char *precision)
{
    static const char *const small[] = {"model.kind=gpt2",
                                        "model.layers=2",
                                        "model.heads=2",
                                        "model.width=16",
                                        "model.context=8",
                                        "model.vocab=29",
                                        "train.micro_batch=3",
                                        "train.steps=100",
                                        "optimizer.lr=0.01",
                                        "optimizer.warmup=0",
                                        "optimizer.schedule=constant"};
    by_config *config;
    by_trainer *trainer;
    by_error error = {0};
    by_array arrays[2];
    int32_t tokens[BATCH * TIME];
    int32_t targets[BATCH * TIME];
    char text[32];
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(small); i++) {
        check_ok(by_config_set(config, small[i], &error), &error);
    }
    (void)snprintf(text, sizeof text, "train.batch=%d", batch);
    check_ok(by_config_set(config, text, &error), &error);
    check_ok(by_config_set(config, every, &error), &error);
    check_ok(by_config_set(config, precision, &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_trainer_open(&trainer, config, NULL, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    for (int i = 0; i < BATCH * TIME; i++) {
        tokens[i] = i * 7 % 29;
        targets[i] = i * i % 29;
    }
    by_batch view = by_batch_of_tokens(arrays, tokens, targets, (size_t)batch, TIME);
    for (int i = 0; i < 2; i++) {
        check_ok(by_trainer_step(trainer, &view, &results[i], &error), &error);
    }
    by_trainer_close(&trainer);
    by_config_close(&config);
}

static void test_norm(void **state)
{
    BY_UNUSED(state);
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=fp16"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(precisions); i++) {
        by_step_result whole[2];
        by_step_result part[2];
        by_step_result unmeasured[2];
        take_steps(whole, BATCH, "track.noise_every=2", precisions[i]);
        take_steps(part, MICRO, "track.noise_every=1", precisions[i]);
        take_steps(unmeasured, BATCH, "track.noise_every=0", precisions[i]);
        assert_true(whole[0].micro_norm == 0.0 && whole[1].micro_norm > 0.0);
        assert_true(part[0].micro_norm == 0.0); /* of one micro-batch */
        assert_true(unmeasured[1].micro_norm == 0.0);
        assert_true(whole[1].loss == unmeasured[1].loss && whole[1].norm == unmeasured[1].norm);
        take_steps(whole, BATCH, "track.noise_every=1", precisions[i]);
        double ratio = whole[0].micro_norm / part[0].norm;
        assert_true(fabs(ratio - 1.0) < (i == 0 ? 1e-5 : 1e-2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_estimate),
                                       cmocka_unit_test(test_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
