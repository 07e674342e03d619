/* memory.budget on several ranks: each rank's plan fits, all of them choose alike, and no bit of
 * the training depends on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

#define STEPS 2
#define RANKS 4
/* What threads, the libraries of a job and pieces of freed memory take. */
#define MARGIN (2 << 20)

typedef struct job {
    const char *const *settings; /* of the layout */
    long long budget;
    double losses[RANKS][STEPS];
    double norms[RANKS][STEPS];
    by_memory_report memory[RANKS];
    double seconds[RANKS];
    uint64_t weights[RANKS]; /* digests of gradients and of what was trained */
} job;

static by_config *config_for(const job *j)
{
    char budget[64];
    const char *common[32] = {
        "model.layers=5",    "model.heads=4", "model.width=64",  "model.vocab=67",
        "model.context=512", "train.batch=8", "train.threads=1", "train.micro_batch=4",
        "model.dropout=0.1", budget};
    (void)snprintf(budget, sizeof budget, "memory.budget=%lld", j->budget);
    return config_of(common, j->settings);
}

static by_status digest_of(uint64_t *out, const by_trainer *t, by_tensor_view view,
                           by_trainer_tensor what, size_t i, by_error *error)
{
    size_t count;
    if (view.rank < 0) {
        return BY_OK; /* another rank's */
    }
    BY_TRY(by_tensor_size(&view, &count, NULL, error));
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    by_status status = by_trainer_read(t, what, -1, i, values, error);
    *out = *out * 31 + by__hash64(values, count * sizeof *values);
    free(values);
    return status;
}

static by_status train(by_trainer *t, job *j, int rank, by_error *error)
{
    by_random_batch *batch;
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    BY_TRY(by_random_batch_open(&batch, t, error));
    by_status status = BY_OK;
    for (int step = 0; step < STEPS && status == BY_OK; step++) {
        by_step_result result;
        status = by_trainer_step(t, by_random_batch_view(batch), &result, error);
        j->losses[rank][step] = result.loss;
        j->norms[rank][step] = result.norm;
    }
    by_random_batch_close(&batch);
    for (size_t i = 0; i < by_trainer_parameter_count(t) && status == BY_OK; i++) {
        status = digest_of(&j->weights[rank], t, by_trainer_parameter(t, i), BY_TRAINER_PARAMETER,
                           i, error);
    }
    return status;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    by_trainer *t = NULL;
    int rank = by_comm_rank(comm);
    by_config *config = config_for(j);
    const by_trainer_options options = {.comm = comm, .speeds = {.f32_flops = 1e9 * (rank + 1)}};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        j->memory[rank] = *by_trainer_memory(t);
        j->seconds[rank] = by_trainer_seconds(t);
        status = train(t, j, rank, error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

typedef struct layout {
    int ranks;
    const char *settings[4];
} layout;

static const layout layouts[] = {
    {2, {"parallel.data=2", NULL}},
    {2, {"parallel.shard=2", "parallel.zero=3", "precision.compute=bf16", NULL}},
    {2, {"parallel.tensor=2", NULL}}, /* 67 tokens: parts of different size */
    {2, {"parallel.sequence=2", NULL}},
    {4, {"parallel.pipeline=2", "parallel.shard=2", "parallel.zero=2", NULL}},
};

static void test_layouts(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    by_error error = {0};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
        int ranks = layouts[k].ranks;
        job free_of = {.settings = layouts[k].settings};
        check_ok(by_comm_run_threads(ranks, NULL, run_rank, &free_of, &error), &error);
        job within = {.settings = layouts[k].settings};
        uint64_t most = 0; /* but for the process, which has another size now */
        for (int r = 0; r < ranks; r++) {
            uint64_t planned = free_of.memory[r].total - free_of.memory[r].process;
            most = planned > most ? planned : most;
        }
        /* Much less than can be saved. */
        within.budget = (long long)(most - free_of.memory[0].activations / 8 +
                                    by__trainer_settled_bytes() + MARGIN);
        check_ok(by_comm_run_threads(ranks, NULL, run_rank, &within, &error), &error);
        bool fell = false;
        for (int r = 0; r < ranks; r++) {
            fell = fell || within.memory[r].activations < free_of.memory[r].activations;
            if (within.memory[r].total > (uint64_t)within.budget) {
                fail_msg("%s, rank %d: %llu bytes above the budget", layouts[k].settings[0], r,
                         (unsigned long long)within.memory[r].total -
                             (unsigned long long)within.budget);
            }
            assert_true(within.seconds[r] > 0.0);
            assert_true(within.seconds[r] > 0.0);
        }
        assert_true(fell);
        assert_memory_equal(within.losses, free_of.losses, sizeof within.losses);
        assert_memory_equal(within.norms, free_of.norms, sizeof within.norms);
        /* Stages are cut by what they cost, so that ranks of a pipeline may have other weights. */
        if (strstr(layouts[k].settings[0], "pipeline") == NULL) {
            assert_memory_equal(within.weights, free_of.weights, sizeof within.weights);
        }
    }
}

/* What nothing makes fit is refused on every rank. */
static void test_too_small(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    job j = {.settings = layouts[0].settings, .budget = 1 << 20};
    check_error(by_comm_run_threads(2, NULL, run_rank, &j, &error), BY_EMEMORY, &error,
                "memory.budget is 1.0 MiB");
    assert_true(j.memory[0].activations == j.memory[1].activations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
