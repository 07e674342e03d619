/* Many ranks: weights after some steps are equal, bit for bit, however many ranks share the
 * micro-batches of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"
#include "runner.h"

static void test_ranks_share_a_step(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {1, 2, 3, 4, 5, 8, 12};
    static const char *const f32[] = {NULL};
    static const char *const bf16[] = {"precision.compute=bf16", NULL};
    static const char *const behind[] = {"parallel.overlap=false", NULL};
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), f32);
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), bf16);
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), behind);
}

/* A tensor of several buckets: those within it have no gradient of their own. */
static void test_large_tensor(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3};
    static const char *const wide[] = {"model.vocab=2000", NULL};
    static const char *const divided[] = {"model.vocab=2000", "parallel.shard=2", NULL};
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), wide);
    rank_job_compare(ranks, 1, divided);
}

/* Uneven shares: 5 micro-batches of 2 on 2, 3 and 5 ranks. */
static void test_uneven_shares(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3, 4, 5};
    static const char *const five[] = {"train.batch=10", "train.micro_batch=2", NULL};
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), five);
}

static void test_optimizers(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3};
    static const char *const kinds[] = {"optimizer.kind=sgd", "optimizer.kind=lion",
                                        "optimizer.kind=lamb", "optimizer.kind=adafactor"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const char *const settings[] = {kinds[i], "train.micro_batch=2", "precision.compute=bf16",
                                        NULL};
        rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), settings);
    }
}

/* A step that is not finite fails on all ranks in the same words, and changes no weight. */
static void test_failing_together(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"optimizer.kind=sgd",   "optimizer.lr=1000",
                                           "optimizer.clip=0",     "optimizer.warmup=0",
                                           "guard.nonfinite=stop", NULL};
    by_error error = {0};
    rank_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->settings = settings;
    assert_int_equal(by_comm_run_threads(3, NULL, rank_job_run, j, &error), BY_EDIVERGED);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j->status[r], BY_EDIVERGED);
        assert_non_null(strstr(j->errors[r].message, "the weights were not changed"));
        assert_string_equal(j->errors[r].message, j->errors[0].message);
    }
    rank_job_close(j);
}

static void refused(int ranks, const char *const *settings, const char *message)
{
    by_error error = {0};
    by__trainer_layout layout;
    by_config *config = rank_job_config(settings);
    assert_int_equal(by__trainer_layout_resolve(&layout, config, ranks, 0, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    by_config_close(&config);
}

static void test_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__trainer_layout l;
    static const char *const axes[] = {"parallel.shard=2", "parallel.tensor=2",
                                       "parallel.pipeline=2", NULL};
    by_config *config = rank_job_config(axes);
    check_ok(by__trainer_layout_resolve(&l, config, 24, 17, &error), &error);
    assert_int_equal(l.size[BY_MESH_DATA], 3);
    assert_int_equal(l.replicas, 6);
    /* 17 = 1 of 2 stages, 1 of 3 data, 0 of 2 shard, 1 of 2 tensor */
    assert_int_equal(l.place[BY_MESH_PIPELINE], 1);
    assert_int_equal(l.place[BY_MESH_DATA], 1);
    assert_int_equal(l.place[BY_MESH_SHARD], 0);
    assert_int_equal(l.place[BY_MESH_TENSOR], 1);
    assert_int_equal(l.replica, 2);
    by_config_close(&config);
    static const char *const product[] = {"parallel.data=2", "parallel.shard=2", NULL};
    refused(3, product,
            "override \"parallel.data=2\": parallel: data 2 x shard 2 make 4 ranks, and the job "
            "has 3: start 4 "
            "(mpirun -n 4), or let data: -1 take what there is");
    static const char *const divides[] = {"parallel.shard=4", NULL};
    refused(6, divides,
            "override \"parallel.shard=4\": parallel: shard 4 make 4, which does not divide the "
            "job's 6 ranks; "
            "start 8 (mpirun -n 8)");
    static const char *const few[] = {"train.batch=8", "train.micro_batch=4", NULL};
    refused(3, few,
            "override \"train.micro_batch=4\": a batch of 8 in micro-batches of 4 is 2 "
            "micro-batches, fewer than "
            "the 3 ranks of data 3 x shard 1; set train.micro_batch to 2 or less, or train.batch "
            "to 12");
    static const char *const small[] = {"train.batch=2", "train.micro_batch=2", NULL};
    refused(3, small,
            "override \"train.micro_batch=2\": a batch of 2 is less than one example for each of "
            "the 3 ranks of "
            "data 3 x shard 1; set train.batch to 3 or more");
}

static by_status count_buckets(by_comm *comm, void *user, by_error *error)
{
    static const char *const settings[] = {"parallel.bucket_mib=-1", "model.layers=4",
                                           "model.width=128", NULL};
    size_t *counts = user;
    by_trainer *t;
    by_config *config = rank_job_config(settings);
    const by_trainer_options options = {.comm = comm};
    BY_TRY(by_trainer_open(&t, config, &options, error));
    counts[by_comm_rank(comm)] = t->ranks.bucket_count;
    by_trainer_close(&t);
    by_config_close(&config);
    return BY_OK;
}

/* The gradients of a small model are several buckets, or all would wait for the last of them. */
static void test_buckets_of_a_small_model(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    size_t counts[2] = {0};
    check_ok(by_comm_run_threads(2, NULL, count_buckets, counts, &error), &error);
    assert_in_range(counts[0], 8, 10);
    assert_int_equal(counts[0], counts[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_share_a_step),
        cmocka_unit_test(test_large_tensor),
        cmocka_unit_test(test_uneven_shares),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_failing_together),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_buckets_of_a_small_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
