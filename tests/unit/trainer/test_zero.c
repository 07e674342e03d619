/* ZeRO: ranks of `shard` divide what a trainer holds, and weights after some steps are those of one
 * process, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"

/* ZeRO-1: ranks of shard divide the state of the optimizer, and f32 weights where programs
 * compute in bf16; with two groups of them too. */
static void test_divided_state(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 4};
    static const int three[] = {3, 12};
    static const char *const kinds[] = {"optimizer.kind=adamw",     "optimizer.kind=sgd",
                                        "optimizer.kind=lion",      "optimizer.kind=lamb",
                                        "optimizer.kind=adafactor", "optimizer.kind=muon"};
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        for (size_t k = 0; k < 2; k++) {
            const char *const two_ranks[] = {kinds[i], precisions[k], "parallel.shard=2", NULL};
            const char *const three_ranks[] = {kinds[i], precisions[k], "parallel.shard=3",
                                               "parallel.overlap=false", NULL};
            rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), two_ranks);
            rank_job_compare(three, BY_ARRAY_LENGTH(three), three_ranks);
        }
    }
}

/* Buckets of several blocks, whose sums are scattered: a remainder that goes round, two groups of
 * ranks that own the same, micro-batches that ranks do not divide. */
static void test_scattered_sums(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4, 6};
    static const int three[] = {3};
    static const int four[] = {4};
    static const int five[] = {5};
#define LARGE "model.vocab=2500", "parallel.bucket_mib=0.4", "optimizer.clip=0.5"
    static const char *const by_two[] = {LARGE, "parallel.shard=2", NULL};
    static const char *const by_three[] = {LARGE, "parallel.shard=3", "precision.compute=bf16",
                                           NULL};
    static const char *const by_four[] = {LARGE, "parallel.shard=4", "train.batch=7", NULL};
    static const char *const by_five[] = {LARGE, "parallel.shard=5", "parallel.overlap=false",
                                          "train.batch=7", NULL};
    rank_job_compare(two, BY_ARRAY_LENGTH(two), by_two);
    rank_job_compare(three, BY_ARRAY_LENGTH(three), by_three);
    rank_job_compare(four, BY_ARRAY_LENGTH(four), by_four);
    rank_job_compare(five, BY_ARRAY_LENGTH(five), by_five);
}

/* Codes of moments and their scales: blocks are of tensors, whoever holds these. */
static void test_divided_codes(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4};
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(stages); i++) {
        const char *const settings[] = {LARGE,     "optimizer.kind=adamw8bit", "parallel.shard=2",
                                        stages[i], "precision.compute=bf16",   NULL};
        rank_job_compare(two, BY_ARRAY_LENGTH(two), settings);
    }
}

/* ZeRO-2: one round and several, a last round with fewer micro-batches than ranks, two groups of
 * ranks that own the same, with and without overlap. */
static void divide(const char *stage)
{
    static const int two[] = {2, 4, 6};
    static const int three[] = {3, 6};
    static const int four[] = {4};
    static const int five[] = {5};
    const char *const by_two[] = {LARGE, stage, "parallel.shard=2", NULL};
    const char *const small[] = {stage, "parallel.shard=2", "train.batch=11", NULL};
    const char *const by_three[] = {LARGE, stage, "parallel.shard=3", "precision.compute=bf16",
                                    NULL};
    const char *const by_four[] = {LARGE, stage, "parallel.shard=4", "train.batch=7", NULL};
    const char *const by_five[] = {LARGE,
                                   stage,
                                   "parallel.shard=5",
                                   "parallel.overlap=false",
                                   "train.batch=7",
                                   "memory.recompute=block",
                                   NULL};
    const char *const lion[] = {stage,
                                "parallel.shard=2",
                                "optimizer.kind=lion",
                                "train.micro_batch=3",
                                "precision.compute=bf16",
                                NULL};
    rank_job_compare(two, BY_ARRAY_LENGTH(two), by_two);
    rank_job_compare(two, BY_ARRAY_LENGTH(two), small);
    rank_job_compare(three, BY_ARRAY_LENGTH(three), by_three);
    rank_job_compare(four, BY_ARRAY_LENGTH(four), by_four);
    rank_job_compare(five, BY_ARRAY_LENGTH(five), by_five);
    rank_job_compare(two, 2, lion);
}

static void test_divided_gradients(void **state)
{
    BY_UNUSED(state);
    divide("parallel.zero=2");
}

static void test_divided_parameters(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4};
    static const char *const kept[] = {"parallel.zero=3", "parallel.keep=true", "parallel.shard=2",
                                       "model.kind=llama", NULL};
    divide("parallel.zero=3");
    rank_job_compare(two, BY_ARRAY_LENGTH(two), kept);
}

/* The plan has a rank's slices and no more: what divides adds up to what one rank has. */
static void check_planned(int zero)
{
    char stage[32];
    const char *const bf16[] = {"precision.compute=bf16",
                                "parallel.shard=3",
                                "model.vocab=2500",
                                "train.batch=3",
                                stage,
                                NULL};
    (void)snprintf(stage, sizeof stage, "parallel.zero=%d", zero);
    rank_job *alone = rank_job_open(0, bf16);
    rank_job *j = rank_job_open(3, bf16);
    const by_memory_report *whole = &alone->memory[0];
    uint64_t parameters = whole->parameters * 11 / 10; /* of all ranks: vectors are whole */
    uint64_t copies = whole->parameters - whole->optimizer / 2;
    by_memory_report all = {0};
    for (int r = 0; r < 3; r++) {
        assert_true(j->memory[r].optimizer < whole->optimizer / 2);
        assert_true(zero < 3 || j->memory[r].parameters < whole->parameters / 2);
        all.optimizer += j->memory[r].optimizer;
        all.gradients += j->memory[r].gradients;
        all.parameters += j->memory[r].parameters;
    }
    assert_true(all.optimizer == whole->optimizer); /* every slice is a multiple of a line */
    assert_true(all.parameters >= whole->parameters + (zero < 3 ? 2 * copies : 0));
    assert_true(all.parameters < parameters + (zero < 3 ? 2 * copies : 0));
    /* One leaf each leaves one sum. */
    assert_true(zero == 1 || all.gradients == whole->optimizer / 2);
    rank_job_close(alone);
    rank_job_close(j);
}

static void test_planned_slices(void **state)
{
    BY_UNUSED(state);
    for (int zero = 1; zero <= 3; zero++) {
        check_planned(zero);
    }
}

/* Optimizers that need whole tensors: a rank owns some of these, of every stage. Blocks of the norm
 * have pieces of several ranks' tensors. */
static void test_whole_tensors(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4};
    static const int three[] = {3};
    static const char *const kinds[] = {"optimizer.kind=lamb", "optimizer.kind=adafactor"};
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(stages); k++) {
            const char *const by_two[] = {kinds[i], stages[k], "parallel.shard=2", LARGE, NULL};
            const char *const by_three[] = {kinds[i],
                                            stages[k],
                                            "parallel.shard=3",
                                            "precision.compute=bf16",
                                            "parallel.overlap=false",
                                            "train.batch=7",
                                            NULL};
            rank_job_compare(two, BY_ARRAY_LENGTH(two), by_two);
            rank_job_compare(three, BY_ARRAY_LENGTH(three), by_three);
        }
    }
}

/* Ranks own about as many elements each, though a table of a third of all is one tensor. */
static void test_equal_tensors(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"optimizer.kind=lamb", "parallel.shard=3",
                                           "parallel.zero=2",     "model.layers=4",
                                           "model.vocab=900",     NULL};
    rank_job *alone = rank_job_open(0, settings);
    rank_job *j = rank_job_open(3, settings);
    uint64_t all = alone->memory[0].optimizer;
    uint64_t sum = 0;
    for (int r = 0; r < 3; r++) {
        assert_true(j->memory[r].optimizer > all / 4 && j->memory[r].optimizer < all * 9 / 20);
        sum += j->memory[r].optimizer;
    }
    assert_true(sum == all);
    rank_job_close(alone);
    rank_job_close(j);
}

/* Groups of ranks that divide a replica, which takes steps of its own, do what a rank that has it
 * whole does. */
static void test_exchanging_groups(void **state)
{
    BY_UNUSED(state);
#define LOCAL                                                                                      \
    "sync.every=2", "train.eval_every=0", "checkpoint.every=0", "train.batch=11",                  \
        "optimizer.clip=0.5", "parallel.bucket_mib=0.0625"
    static const char *const others[][2] = {{"optimizer.kind=adamw", "precision.compute=bf16"},
                                            {"optimizer.kind=adafactor", "precision.compute=f32"}};
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        const char *const whole[] = {LOCAL, others[i][0], others[i][1], NULL};
        rank_job *two = rank_job_open(2, whole);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(stages); k++) {
            const char *const divided[] = {LOCAL,     others[i][0],       others[i][1],
                                           stages[k], "parallel.shard=2", NULL};
            rank_job *four = rank_job_open(4, divided);
            for (int r = 0; r < 4; r++) {
                for (int step = 0; step < RANK_JOB_STEPS; step++) {
                    assert_true(four->results[r][step].loss == two->results[r / 2][step].loss);
                    assert_true(four->results[r][step].norm == two->results[r / 2][step].norm);
                }
                assert_int_equal(four->count[r], two->count[r / 2]);
                assert_memory_equal(four->weights[r], two->weights[r / 2],
                                    four->count[r] * sizeof(float));
            }
            rank_job_close(four);
        }
        assert_memory_not_equal(two->weights[0], two->weights[1], two->count[0] * sizeof(float));
        rank_job_close(two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divided_state),     cmocka_unit_test(test_scattered_sums),
        cmocka_unit_test(test_divided_gradients), cmocka_unit_test(test_divided_parameters),
        cmocka_unit_test(test_planned_slices),    cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_equal_tensors),     cmocka_unit_test(test_exchanging_groups),
        cmocka_unit_test(test_divided_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
