/* Learning rates against the closed forms, written out here once more. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "banyan/optimizer.h"
#include "base/base.h"

#define STEPS  1000
#define WARMUP 100
#define DECAY  200
#define HIGH   1e-3
#define LOW    1e-4

static double rate_of(const char *schedule, int64_t step)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%s", schedule);
    by_optimizer_config config = {
        .lr = HIGH, .min_lr = LOW, .schedule = name, .warmup = WARMUP, .decay = DECAY};
    return by_learning_rate(&config, (double)step, STEPS);
}

static void expect(const char *schedule, int64_t step, double want)
{
    double have = rate_of(schedule, step);
    if (!(fabs(have - want) <= 1e-12)) {
        fail_msg("%s at step %lld: %.12g, not %.12g", schedule, (long long)step, have, want);
    }
}

static void test_warmup(void **state)
{
    BY_UNUSED(state);
    static const char *const schedules[] = {"cosine", "linear", "constant", "wsd"};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(schedules); k++) {
        expect(schedules[k], 0, HIGH / 101.0); /* not zero: the first step counts */
        expect(schedules[k], 49, HIGH * 50.0 / 101.0);
        expect(schedules[k], WARMUP - 1, HIGH * 100.0 / 101.0);
        expect(schedules[k], WARMUP, HIGH);
        for (int64_t step = 1; step <= WARMUP; step++) {
            assert_true(rate_of(schedules[k], step) > rate_of(schedules[k], step - 1));
        }
    }
}

static void test_decays(void **state)
{
    BY_UNUSED(state);
    expect("cosine", 325, LOW + 0.5 * (HIGH - LOW) * (1.0 + cos(M_PI / 4.0)));
    expect("cosine", 550, (HIGH + LOW) / 2.0);
    expect("cosine", STEPS, LOW);
    expect("cosine", STEPS + 500, LOW);
    expect("linear", 325, HIGH - (HIGH - LOW) / 4.0);
    expect("linear", 550, (HIGH + LOW) / 2.0);
    expect("linear", STEPS, LOW);
    expect("constant", 550, HIGH);
    expect("constant", STEPS - 1, HIGH);
    expect("wsd", 799, HIGH);
    expect("wsd", 800, HIGH);
    expect("wsd", 850, HIGH - (HIGH - LOW) / 4.0);
    expect("wsd", 900, (HIGH + LOW) / 2.0);
    expect("wsd", STEPS, LOW);
}

static void test_edges(void **state)
{
    BY_UNUSED(state);
    char cosine[] = "cosine";
    char wsd[] = "wsd";
    by_optimizer_config config = {.lr = HIGH, .min_lr = 0.0, .schedule = cosine};
    assert_true(by_learning_rate(&config, 0, 1) == HIGH); /* one step, no warm-up */
    config.warmup = 10;
    assert_true(by_learning_rate(&config, 10, 10) == HIGH); /* all of it warm-up */
    config =
        (by_optimizer_config){.lr = HIGH, .min_lr = 0.0, .schedule = wsd, .warmup = 4, .decay = 6};
    assert_true(by_learning_rate(&config, 4, 10) == HIGH); /* no stable part */
    assert_true(fabs(by_learning_rate(&config, 7, 10) - HIGH / 2.0) < 1e-12);
}

static void test_hyper(void **state)
{
    BY_UNUSED(state);
    float hyper[BY_HYPER_COUNT];
    by_config *config;
    assert_int_equal(by_config_default(&config, NULL), BY_OK);
    assert_int_equal(by_config_set(config, "optimizer.betas=[0.9, 0.999]", NULL), BY_OK);
    by_optimizer_hyper(hyper, &config->optimizer, 0, 3e-4);
    assert_true(hyper[0] == 3e-4f && hyper[3] == 0.0f);
    assert_true(fabs((double)hyper[1] - 0.1) < 1e-7 && fabs((double)hyper[2] - 0.001) < 1e-9);
    by_optimizer_hyper(hyper, &config->optimizer, 9, 3e-4);
    assert_true(fabs((double)hyper[1] - (1.0 - pow(0.9, 10.0))) < 1e-7);
    assert_true(fabs((double)hyper[2] - (1.0 - pow(0.999, 10.0))) < 1e-8);
    by_config_close(&config);
}

static void test_scaling(void **state)
{
    BY_UNUSED(state);
    char none[] = "none";
    char linear[] = "linear";
    char root[] = "sqrt";
    by_optimizer_config config = {.lr_scaling = none, .lr_batch = 16};
    assert_true(by_learning_rate_scale(&config, 64) == 1.0);
    config.lr_scaling = linear;
    assert_true(by_learning_rate_scale(&config, 64) == 4.0);
    assert_true(by_learning_rate_scale(&config, 8) == 0.5);
    config.lr_scaling = root;
    assert_true(by_learning_rate_scale(&config, 64) == 2.0);
    config.lr_batch = -1;
    assert_true(by_learning_rate_scale(&config, 64) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaling), cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_decays),  cmocka_unit_test(test_edges),
        cmocka_unit_test(test_hyper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
