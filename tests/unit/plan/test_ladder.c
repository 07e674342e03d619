/* Ladders: exact curves are found again, intervals of noisy ones hold what they say, and rungs grow
 * as they are asked to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plan.h"
#include "base/base.h"
#include "runner.h"

enum { rungs = 6 };

/* Runs of doubling compute by a curve, with normal noise of the logarithm of the loss. */
static void make_runs(by_law_run *runs, const by_curve *curve, size_t count, double noise,
                      uint64_t seed)
{
    uint32_t key[2];
    by__philox_key(key, seed, 11);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits[4];
        by__philox(bits, key, (uint32_t[4]){(uint32_t)i});
        double radius = sqrt(-2.0 * log(((double)bits[0] + 0.5) * 0x1p-32));
        double normal = radius * cos(2.0 * M_PI * (double)bits[1] * 0x1p-32);
        runs[i] = (by_law_run){.flops = 1e12 * pow(2.2, (double)i)};
        runs[i].loss = by_curve_loss(curve, runs[i].flops) * exp(noise * normal);
    }
}

static void test_exact(void **state)
{
    BY_UNUSED(state);
    static const by_curve curves[] = {{1.2, 60.0, 0.15}, {0.0, 20.0, 0.08}, {2.0, 4e4, 0.4}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(curves); i++) {
        by_law_run runs[rungs];
        by_curve_prediction p;
        by_error error = {0};
        make_runs(runs, &curves[i], rungs, 0.0, 1);
        double flops = 4.0 * runs[rungs - 1].flops;
        check_ok(by_curve_predict(&p, runs, rungs, flops, 0.8, 1, &error), &error);
        assert_true(fabs(p.loss / by_curve_loss(&curves[i], flops) - 1.0) < 1e-5);
        assert_true(fabs(p.curve.gamma / curves[i].gamma - 1.0) < 1e-3);
        assert_true(p.low < p.loss && p.loss < p.high && p.spread == 0.002);
    }
}

/* Of 200 ladders, the next rung is in the interval of 80 % of about 160. */
static void test_intervals(void **state)
{
    BY_UNUSED(state);
    static const by_curve curve = {1.2, 60.0, 0.15};
    int inside = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        by_law_run runs[rungs + 1];
        by_curve_prediction p;
        by_error error = {0};
        make_runs(runs, &curve, rungs + 1, 0.004, seed);
        double flops = runs[rungs].flops;
        check_ok(by_curve_predict(&p, runs, rungs, flops, 0.8, seed, &error), &error);
        inside += runs[rungs].loss >= p.low && runs[rungs].loss <= p.high;
    }
    assert_true(inside >= 120 && inside <= 185);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_law_run runs[3] = {{.flops = 1e12, .loss = 2.0}, {.flops = 2e12, .loss = 1.9}};
    by_curve_prediction p;
    by_error error = {0};
    check_error(by_curve_predict(&p, runs, 2, 1e13, 0.8, 0, &error), BY_EARG, &error,
                "takes 3 to 64 runs, not 2");
    check_error(by_curve_predict(&p, runs, 3, 1e13, 0.8, 0, &error), BY_EARG, &error,
                "run 3 has 0 FLOPs");
}

static void test_design(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.layers=2",
                                           "model.heads=4",    "model.width=64",
                                           "model.context=32", "model.vocab=65",
                                           "train.batch=8",    "optimizer.warmup=0.05",
                                           "model.kv_heads=2", "model.parameterisation=mup",
                                           "train.steps=4000"};
    by_config *config;
    by_config *c;
    by_error error = {0};
    by_rung r[BY_LADDER_RUNGS];
    size_t count;
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    by_ladder_options options = {.flops = 1e13, .factor = 1.5};
    check_ok(by_ladder_design(r, &count, config, &options, &error), &error);
    assert_true(count >= 4 && count <= 6);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += r[i].flops;
        assert_int_equal(r[i].width, 16 * r[i].heads);
        assert_true(i == 0 || r[i].flops >= 1.5 * r[i - 1].flops);
        assert_true(fabs(r[i].tokens / (20.0 * r[i].parameters) - 1.0) < 0.05);
        check_ok(by_ladder_config(&c, config, &r[i], &error), &error);
        assert_int_equal(c->model.mup_base_width, 64);
        assert_true(fabs(c->optimizer.warmup - 0.05 * (double)r[i].steps) <= 1.0);
        assert_int_equal(c->model.width, r[i].width);
        by_config_close(&c);
    }
    assert_true(sum <= 1e13);
    options.flops = 1e9;
    check_error(by_ladder_design(r, &count, config, &options, &error), BY_EARG, &error,
                "its 4 smallest rungs take");
    by_config_close(&config);
}

/* What the refusal names is enough, and a model without heads has no rungs. */
static void test_budget(void **state)
{
    BY_UNUSED(state);
    static const char *const token[] = {
        "model.kind=gpt2",  "model.layers=1", "model.heads=2", "model.width=16",
        "model.context=16", "model.vocab=65", "train.batch=4", NULL};
    static const char *const image[] = {"task.kind=classify", "model.kind=resnet", NULL};
    static const char *const none[] = {NULL};
    by_error error = {0};
    by_rung r[BY_LADDER_RUNGS];
    size_t count;
    by_ladder_options options = {.flops = 1e3};
    by_config *config = config_of(token, none);
    assert_int_equal(by_ladder_design(r, &count, config, &options, &error), BY_EARG);
    const char *named = strstr(error.message, "rungs take ");
    assert_non_null(named);
    options.flops = 1.001 * strtod(named + strlen("rungs take "), NULL);
    by_error other = {0};
    check_ok(by_ladder_design(r, &count, config, &options, &other), &other);
    assert_int_equal(count, 4);
    by_config_close(&config);
    config = config_of(image, none);
    check_error(by_ladder_design(r, &count, config, &options, &error), BY_ECONFIG, &error,
                "model.kind resnet: a model without heads has no rungs");
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact), cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_design),
        cmocka_unit_test(test_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
