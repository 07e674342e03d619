/* The steps of a run that fit into a time: by_train_fit_steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/train.h"
#include "base/base.h"
#include "config_text.h"
#include "runner.h"

static void test_fits(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        by_train_times times;
        double seconds;
        by_train_fit fit;
    } rows[] = {
        /* Nothing but steps: evaluations are shares although none is held out. */
        {"", {.step = 0.25}, 100.0, {400, 50, 100, 100.0}},
        {"train: {steps: 7}", {.step = 0.25}, 100.1, {400, 50, 100, 100.0}},
        /* At least one. */
        {"", {.step = 9.0, .evaluation = 3.0}, 2.0, {1, 1, 1, 12.0}},
        /* Eight evaluations of half a second would take more than a twentieth: five are left. */
        {"", {.step = 1.0, .evaluation = 1.0}, 105.0, {100, 20, 40, 105.0}},
        /* One is always done, at the end; checkpoints are quarters then. */
        {"", {.step = 1.0, .evaluation = 20.0}, 100.0, {80, 80, 20, 100.0}},
        /* What the config says stays. */
        {"train: {eval_every: 10}\ncheckpoint: {every: 0}",
         {.step = 1.0, .evaluation = 1.0},
         111.0,
         {100, 10, 0, 110.0}},
        {"train: {eval_every: 0}\ncheckpoint: {every: 10}",
         {.step = 1.0, .evaluation = 1.0, .save = 1.0, .last_save = 3.0},
         113.0,
         {100, 0, 10, 113.0}},
        /* Evaluations at 10, 20, 25 save what is best, checkpoints are due at 4, 8, ..., 25. */
        {"train: {eval_every: 10}\ncheckpoint: {every: 4}",
         {.step = 1.0, .evaluation = 2.0, .save = 1.0, .last_save = 5.0},
         43.0,
         {25, 10, 4, 43.0}},
        /* Smaller batches at the beginning take less. */
        {"train: {batch: 8, batch_warmup: [{batch: 4, steps: 20}], eval_every: 0}",
         {.step = 1.0},
         50.0,
         {60, 0, 15, 50.0}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        by_train_fit fit;
        by_config *config = config_good(rows[i].text);
        check_ok(by_config_resolve(config, &error), &error);
        check_ok(by_train_fit_steps(&fit, config, &rows[i].times, rows[i].seconds, &error), &error);
        if (fit.steps != rows[i].fit.steps || fit.eval_every != rows[i].fit.eval_every ||
            fit.checkpoint_every != rows[i].fit.checkpoint_every ||
            fabs(fit.seconds - rows[i].fit.seconds) > 1e-9) {
            fail_msg("row %zu: %lld steps, evaluations every %lld, checkpoints every %lld, %g s", i,
                     (long long)fit.steps, (long long)fit.eval_every,
                     (long long)fit.checkpoint_every, fit.seconds);
        }
        by_config_close(&config);
    }
}

static void test_refuses(void **state)
{
    BY_UNUSED(state);
    static const double bad[] = {0.0, -1.0, (double)INFINITY, (double)NAN};
    by_config *config = config_good("");
    by_train_fit fit = {.steps = 3};
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        const by_train_times good = {.step = 1.0};
        const by_train_times times = {.step = bad[i]};
        check_error(by_train_fit_steps(&fit, config, &good, bad[i], &error), BY_EARG, &error,
                    "must be above 0");
        check_error(by_train_fit_steps(&fit, config, &times, 1.0, &error), BY_EARG, &error,
                    "must be above 0");
    }
    assert_int_equal(fit.steps, 3);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fits), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
