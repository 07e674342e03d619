/* Ranks on devices whose memory the host cannot read, and which run everything late and in an odd
 * order: what they exchange passes through copies, and every rank ends with the bits of one process
 * on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"
#include "runner.h"

static const int alone_and_more[] = {1, 2, 4};
static const int two[] = {2};
static const int four[] = {4};

/* Sums of gradients at the end of a step, and during the backward pass. */
static void test_replicas(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][4] = {
        {"precision.compute=f32", "parallel.overlap=true", NULL},
        {"precision.compute=bf16", "parallel.overlap=false", NULL},
        {"model.kind=llama", "train.micro_batch=3", "optimizer.kind=muon", NULL},
    };
    rank_job_compare_late(alone_and_more, 3, settings[0]);
    for (size_t i = 1; i < BY_ARRAY_LENGTH(settings); i++) {
        rank_job_compare_late(two, 1, settings[i]);
    }
}

/* Divided state (ZeRO 1), gradients (2) and parameters (3). */
static void test_zero(void **state)
{
    BY_UNUSED(state);
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(stages); i++) {
        const char *const plain[] = {stages[i], "parallel.shard=2", "optimizer.clip=0.5", NULL};
        const char *const narrow[] = {
            stages[i],        "parallel.shard=2",     "precision.compute=bf16",
            "train.batch=11", "optimizer.kind=adamw", NULL};
        rank_job_compare_late(four, 1, plain);
        rank_job_compare_late(two, 1, narrow);
    }
}

/* Stages of a pipeline, and parts of tensors, which are summed in another order than on one
 * process: the bits are those of ranks on the CPU. */
static void test_layouts(void **state)
{
    BY_UNUSED(state);
    static const struct {
        int ranks;
        const char *settings[5];
    } cases[] = {
        {2, {"parallel.pipeline=2", NULL}},
        {4, {"parallel.pipeline=2", "parallel.shard=2", "parallel.zero=2", "train.batch=8", NULL}},
        {2, {"parallel.tensor=2", NULL}},
        {2, {"parallel.sequence=2", "train.batch=4", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=3", NULL}},
        {2, {"parallel.expert=2", "model.kind=mixtral", "train.micro_batch=2", NULL}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        rank_job *cpu = rank_job_open_aligned(cases[i].ranks, cases[i].settings);
        rank_job *late = rank_job_open_late(cases[i].ranks, cases[i].settings, i);
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_true(late->count[r] == cpu->count[r]);
            assert_memory_equal(late->weights[r], cpu->weights[r], cpu->count[r] * sizeof(float));
        }
        rank_job_close(late);
        rank_job_close(cpu);
    }
}

/* Replicas that exchange weights now and then; what needs memory of the host says so. */
static void test_sync(void **state)
{
    BY_UNUSED(state);
    static const char *const every[] = {"sync.every=2", "sync.outer_lr=0.7",
                                        "sync.outer_momentum=0.9", NULL};
    static const char *const coded[] = {"sync.compress=int8", NULL};
    rank_job *cpu = rank_job_open_aligned(2, every);
    rank_job *late = rank_job_open_late(2, every, 1);
    for (int r = 0; r < 2; r++) {
        assert_true(late->count[r] == cpu->count[r]);
        assert_memory_equal(late->weights[r], cpu->weights[r], cpu->count[r] * sizeof(float));
    }
    rank_job_close(late);
    rank_job_close(cpu);
    by_error error = {0};
    rank_job job = {.settings = coded, .late = true};
    check_error(by_comm_run_threads(2, NULL, rank_job_run, &job, &error), BY_ECONFIG, &error,
                "sync.compress needs a device whose memory is the host's, and late device has its "
                "own: set sync.compress: none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
