/* Batches that grow: a step of a stage is that of a run with this batch, on any ranks; the schedule
 * goes by what was seen; configs that cannot be are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"
#include "runner.h"

/* The jobs take three steps: one of each stage, and one of train.batch. */
#define GROWS "train.batch_warmup=[{batch: 4, steps: 1}, {batch: 7, steps: 1}]"

/* The first step is that of a run whose batch is the stage's; the schedule of that one has other
 * steps, so that the learning rates are constant. */
static void test_first_step(void **state)
{
    BY_UNUSED(state);
    static const char *const grows[] = {GROWS, "optimizer.warmup=0", "optimizer.schedule=constant",
                                        NULL};
    static const char *const small[] = {"train.batch=4", "optimizer.warmup=0",
                                        "optimizer.schedule=constant", NULL};
    static const char *const large[] = {"train.batch=12", "optimizer.warmup=0",
                                        "optimizer.schedule=constant", NULL};
    rank_job *a = rank_job_open(0, grows);
    rank_job *b = rank_job_open(0, small);
    rank_job *c = rank_job_open(0, large);
    assert_true(a->results[0][0].loss == b->results[0][0].loss);
    assert_true(a->results[0][0].norm == b->results[0][0].norm);
    assert_true(a->results[0][0].loss != c->results[0][0].loss);
    assert_int_equal(a->results[0][0].examples, 4 * 8);
    assert_int_equal(a->results[0][1].examples, 7 * 8);
    assert_int_equal(a->results[0][2].examples, 12 * 8);
    rank_job_close(a);
    rank_job_close(b);
    rank_job_close(c);
}

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3, 4};
    static const int two[] = {2, 4};
    static const char *const plain[] = {GROWS, NULL};
    static const char *const alone[] = {GROWS, "parallel.overlap=false", "optimizer.ema=0.9", NULL};
    static const char *const one[] = {GROWS, "parallel.shard=2", "precision.compute=bf16", NULL};
    static const char *const divided[] = {GROWS, "parallel.shard=2", "parallel.zero=2", NULL};
    static const char *const gathered[] = {GROWS, "parallel.shard=2", "parallel.zero=3",
                                           "optimizer.kind=lamb", NULL};
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), plain);
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), alone);
    rank_job_compare(two, BY_ARRAY_LENGTH(two), one);
    rank_job_compare(two, BY_ARRAY_LENGTH(two), divided);
    rank_job_compare(two, BY_ARRAY_LENGTH(two), gathered);
}

static void test_counts(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "train.batch=32", "train.micro_batch=4", "train.steps=100",
        "train.batch_warmup=[{batch: 8, steps: 10}, {batch: 16, steps: 20}]", NULL};
    by_config *config = rank_job_config(settings);
    static const struct {
        int64_t step;
        int64_t batch;
        uint64_t samples;
    } rows[] = {{0, 8, 0},     {9, 8, 72},    {10, 16, 80},
                {29, 16, 384}, {30, 32, 400}, {99, 32, 400 + 69 * 32}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(by_config_batch(config, rows[i].step), rows[i].batch);
        assert_int_equal(by_config_samples(config, rows[i].step), rows[i].samples);
    }
    by_config_close(&config);
}

/* A step of half a batch is half a step of the schedule, and its learning rate that of its batch
 * where this scales it. */
static void test_learning_rates(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"train.batch_warmup=[{batch: 6, steps: 2}]",
                                           "optimizer.warmup=4",
                                           "optimizer.lr=0.5",
                                           "optimizer.lr_scaling=linear",
                                           "optimizer.lr_batch=12",
                                           NULL};
    rank_job *j = rank_job_open(0, settings);
    static const double want[] = {0.5 * 1.0 / 5.0 / 2.0, 0.5 * 1.5 / 5.0 / 2.0, 0.5 * 2.0 / 5.0};
    for (int i = 0; i < RANK_JOB_STEPS; i++) {
        assert_true(fabs(j->results[0][i].lr - want[i]) < 1e-12);
    }
    rank_job_close(j);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[4];
        const char *text;
    } rows[] = {
        {{"train.batch_warmup=[{batch: 8, steps: 5}]"}, "micro_batch 3 does not divide batch 8"},
        {{"train.batch_warmup=[{batch: 12, steps: 5}]"}, "stay below train.batch, 12"},
        {{"train.batch_warmup=[{batch: 6, steps: 5}, {batch: 3, steps: 5}]"},
         "batch 3 follows batch 6"},
        {{"train.batch_warmup=[{batch: 6, steps: 50}]"}, "leave none of the 50 train.steps"},
        {{"train.batch_warmup=[{batch: 6, steps: 5}]", "sync.compress=int8"}, "section sync"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_config *config;
        by_error error = {0};
        check_ok(by_config_default(&config, &error), &error);
        check_ok(by_config_set(config, "train.micro_batch=3", &error), &error);
        check_ok(by_config_set(config, "train.steps=50", &error), &error);
        for (size_t k = 0; k < 4 && rows[i].settings[k] != NULL; k++) {
            check_ok(by_config_set(config, rows[i].settings[k], &error), &error);
        }
        check_error(by_config_resolve(config, &error), BY_ECONFIG, &error, rows[i].text);
        by_config_close(&config);
    }
}

/* Too many stages are refused by their number. */
static void test_many(void **state)
{
    BY_UNUSED(state);
    by_config *config;
    by_error error = {0};
    char *many = calloc(40000, 32);
    assert_non_null(many);
    size_t length = (size_t)sprintf(many, "train.batch_warmup=[{batch: 1, steps: 1}");
    for (int i = 2; i <= 40000; i++) {
        length += (size_t)sprintf(many + length, ", {batch: %d, steps: 1}", i);
    }
    many[length] = ']';
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, many, &error), &error);
    check_error(by_config_resolve(config, &error), BY_ECONFIG, &error, "40000 stages; at most 16");
    by_config_close(&config);
    free(many);
}

/* What only the number of ranks says. */
static void test_refused_layouts(void **state)
{
    BY_UNUSED(state);
    static const char *const pipeline[] = {GROWS, "parallel.pipeline=2", NULL};
    static const char *const plain[] = {GROWS, NULL};
    static const struct {
        const char *const *settings;
        int ranks;
        const char *text;
    } rows[] = {{pipeline, 2, "the schedule of parallel.pipeline"},
                {plain, 6, "fewer than the 6 ranks"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        rank_job *j = calloc(1, sizeof *j);
        assert_non_null(j);
        j->settings = rows[i].settings;
        check_error(by_comm_run_threads(rows[i].ranks, NULL, rank_job_run, j, &error), BY_ECONFIG,
                    &error, rows[i].text);
        rank_job_close(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_step),      cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_counts),          cmocka_unit_test(test_learning_rates),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_many),
        cmocka_unit_test(test_refused_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
