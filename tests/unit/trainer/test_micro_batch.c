/* The micro-batch that is chosen where the config leaves it open: every rank has work, divided as
 * evenly as it can be, and the plan fits; a given one is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/comm.h"
#include "config/kind.h"
#include "runner.h"
#include "sanitizer.h"
#include "trainer/plan/trainer_plan.h"
#include "trainer/state/trainer.h"

#define MIB ((uint64_t)1 << 20)

static const char *const common[] = {
    "model.layers=2",   "model.heads=2",   "model.width=64", "model.vocab=500",
    "model.context=64", "train.threads=1", "train.steps=50", NULL};

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[5];
        int ranks;
        int64_t micro_batch;
    } rows[] = {
        {{"train.batch=12"}, 1, 12},
        {{"train.batch=12"}, 4, 3},
        {{"train.batch=12", "train.micro_batch=-1"}, 4, 3},
        {{"train.micro_batch=-1", "train.batch=16"}, 3, 2},
        {{"train.batch=12"}, 5, 1}, /* 3 examples for the busiest rank; with 2 it would have 4 */
        {{"train.batch=13"}, 2, 1},
        {{"train.batch=7"}, 1, 7},
        {{"train.batch=16777216"}, 8, 2097152},
        {{"train.batch=12", "parallel.shard=2"}, 4, 3},
        {{"train.batch=12", "parallel.pipeline=2"}, 4, 6},
        {{"train.batch=12", "parallel.tensor=2"}, 2, 12},
        {{"model.kind=mixtral", "train.batch=12", "parallel.expert=2"}, 6, 4},
        {{"train.batch=12", "train.batch_warmup=[{batch: 4, steps: 5}, {batch: 6, steps: 5}]"},
         1,
         2},
        {{"train.batch=12", "train.batch_warmup=[{batch: 4, steps: 5}]"}, 4, 1},
        {{"train.batch=12", "train.micro_batch=2"}, 4, 2},
        {{"train.batch=12", "train.micro_batch=12"}, 1, 12},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        int unit;
        by_config *copy;
        by_config *config = config_of(common, rows[i].settings);
        check_ok(by_train_check_ranks(config, rows[i].ranks, &unit, &error), &error);
        check_ok(by_config_copy(&copy, config, &error), &error);
        check_ok(by_config_fit_ranks(copy, rows[i].ranks, &error), &error);
        check_ok(by_config_resolve(copy, &error), &error);
        if (copy->train.micro_batch != rows[i].micro_batch) {
            fail_msg("row %zu: micro_batch %lld, not %lld", i, (long long)copy->train.micro_batch,
                     (long long)rows[i].micro_batch);
        }
        by_config_close(&copy);
        by_config_close(&config);
    }
}

/* What cannot be divided, and what was given, is refused as before. */
static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[3];
        int ranks;
        const char *text;
    } rows[] = {
        {{"train.batch=3"}, 4, "less than one example for each of the 4 ranks"},
        {{"train.batch=12", "train.micro_batch=12"}, 4, "fewer than the 4 ranks"},
        {{"train.batch=12", "parallel.data=3"}, 4, "data 3 make 3 ranks"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        int unit;
        by_config *config = config_of(common, rows[i].settings);
        check_error(by_train_check_ranks(config, rows[i].ranks, &unit, &error), BY_ECONFIG, &error,
                    rows[i].text);
        by_config_close(&config);
    }
}

/* Set after it was derived, by the program or by its user, a value is given. */
static void test_given_later(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {"train.batch=12", NULL};
    by_error error = {0};
    by_config *config = config_of(common, none);
    assert_int_equal(config->train.micro_batch, 12);
    check_ok(by_config_set(config, "train.micro_batch=4", &error), &error);
    check_ok(by_config_fit_ranks(config, 12, &error), &error);
    assert_int_equal(config->train.micro_batch, 4);
    config->train.micro_batch = 6;
    check_ok(by_config_fit_ranks(config, 12, &error), &error);
    assert_int_equal(config->train.micro_batch, 6);
    by_config_close(&config);
    /* A derived one follows the batch. */
    config = config_of(common, none);
    check_ok(by_config_set(config, "train.batch=10", &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    assert_int_equal(config->train.micro_batch, 10);
    by_config_close(&config);
}

static uint64_t needed(by_trainer *t)
{
    by_error error = {0};
    uint64_t bytes;
    const by_trainer_options none = {0};
    check_ok(by__trainer_needs(&bytes, t, &none, &error), &error);
    return bytes;
}

static void set_budget(by_config *config, uint64_t bytes)
{
    by_error error = {0};
    char setting[64];
    (void)snprintf(setting, sizeof setting, "memory.budget=%llu", (unsigned long long)bytes);
    check_ok(by_config_set(config, setting, &error), &error);
    check_ok(by_config_set(config, "memory.recompute=block", &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
}

/* A batch that does not fit is cut into micro-batches that do. Twice as many examples need some
 * 16 MiB more: what else the process has, and how far other ranks are, decides nothing. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    static const char *const settings[] = {"train.batch=64", "model.vocab=8000",
                                           "checkpoint.async=false", NULL};
    static const char *const smaller[] = {"train.batch=64",         "model.vocab=8000",
                                          "checkpoint.async=false", "train.micro_batch=8",
                                          "memory.recompute=block", NULL};
    by_error error = {0};
    by_trainer *t;
    by_config *config = config_of(common, smaller);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    uint64_t limit = needed(t) + 8 * MIB;
    by_trainer_close(&t);
    by_config_close(&config);

    config = config_of(common, settings);
    set_budget(config, limit);
    check_ok(by_trainer_open_fitting(&t, config, NULL, &error), &error);
    assert_int_equal(config->train.micro_batch, 8);
    assert_true(needed(t) <= limit);
    by_trainer_close(&t);
    set_budget(config, limit * 100);
    check_ok(by_trainer_open_fitting(&t, config, NULL, &error), &error);
    assert_int_equal(config->train.micro_batch, 64);
    by_trainer_close(&t);
    by_config_close(&config);

    /* Nothing fits: opened as it is, to be refused with what would help. */
    config = config_of(common, settings);
    set_budget(config, MIB);
    check_ok(by_trainer_open_fitting(&t, config, NULL, &error), &error);
    assert_int_equal(config->train.micro_batch, 64);
    by_trainer_close(&t);
    by_config_close(&config);
}

static by_status fit_rank(by_comm *comm, void *user, by_error *error)
{
    uint64_t limit = *(const uint64_t *)user;
    static const char *const settings[] = {"train.batch=64", "model.vocab=8000",
                                           "checkpoint.async=false", NULL};
    const by_trainer_options options = {.comm = comm};
    by_trainer *t;
    by_config *config = config_of(common, settings);
    set_budget(config, by_comm_rank(comm) == 1 ? limit : limit * 100);
    by_status status = by_trainer_open_fitting(&t, config, &options, error);
    if (status == BY_OK) {
        assert_int_equal(config->train.micro_batch, 8);
        by_trainer_close(&t);
    }
    by_config_close(&config);
    return status;
}

/* The rank with the least memory decides for all. */
static void test_memory_of_ranks(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    static const char *const smaller[] = {"train.batch=64",         "model.vocab=8000",
                                          "checkpoint.async=false", "train.micro_batch=8",
                                          "memory.recompute=block", NULL};
    by_error error = {0};
    by_trainer *t;
    by_config *config = config_of(common, smaller);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    uint64_t limit = needed(t) + 8 * MIB;
    by_trainer_close(&t);
    by_config_close(&config);
    check_ok(by_comm_run_threads(2, NULL, fit_rank, &limit, &error), &error);
}

/* Large gradients and few activations: two micro-batches need less than four or eight. */
static const char *const deep_sum[] = {"model.vocab=100000", "model.context=16", "train.batch=8",
                                       "train.micro_batch=8", NULL};

static uint64_t needed_with(int64_t micro_batch)
{
    by_error error = {0};
    by_trainer *t;
    by_config *config = config_of(common, deep_sum);
    config->train.micro_batch = micro_batch;
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    uint64_t bytes = needed(t);
    by_trainer_close(&t);
    by_config_close(&config);
    return bytes;
}

/* The plan does not grow with the micro-batch everywhere: the one that fits is found between
 * others that do not, from above and from below. */
static void test_between(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const by_trainer_options none = {0};
    by_plan_change changes[BY_PLAN_CHANGES];
    size_t count;
    int64_t found;
    if (BY_TESTS_SANITIZED) {
        skip(); /* what a plan has freed still counts as memory of the process */
    }
    uint64_t limit = needed_with(4) + 8 * MIB;
    assert_true(needed_with(2) > limit && needed_with(1) > limit);
    by_config *config = config_of(common, deep_sum);
    check_ok(by__trainer_micro_batch_within(&found, config, &none, limit, &error), &error);
    assert_int_equal(found, 4);
    config->train.micro_batch = 1;
    check_ok(by_plan_changes(changes, &count, config, &none, limit, &error), &error);
    found = 0;
    for (size_t i = 0; i < count; i++) {
        found = changes[i].micro_batch > found ? changes[i].micro_batch : found;
    }
    assert_true(found >= 4);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_between), cmocka_unit_test(test_given_later),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_memory_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
