/* Many ranks: weights after some steps are equal, bit for bit, however many ranks share the
 * micro-batches of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "train/trainer.h"

#define CONTEXT   8
#define VOCAB     61
#define STEPS     3
#define MAX_RANKS 12
#define MAX_BATCH 24

/* What a job is to do, and what its ranks have in the end. */
typedef struct job {
    const char *const *settings; /* NULL at the end */
    by_step_result results[MAX_RANKS][STEPS];
    float *weights[MAX_RANKS]; /* parameters, then states of the optimizer */
    size_t count[MAX_RANKS];
    by_memory_report memory[MAX_RANKS];
    by_status status[MAX_RANKS];
    by_error errors[MAX_RANKS];
    int poisoned; /* step whose weights are not finite; -1: none */
} job;

static by_config *open_config(const char *const *settings)
{
    static const char *const common[] = {"model.layers=2",
                                         "model.heads=2",
                                         "model.width=48",
                                         "model.context=8",
                                         "model.vocab=61",
                                         "train.threads=1",
                                         "train.steps=10",
                                         "optimizer.warmup=2",
                                         "train.batch=12",
                                         "model.dropout=0.1",
                                         "train.micro_batch=1",
                                         "parallel.bucket_mib=0.0625",
                                         NULL};
    return config_of(common, settings);
}

/* A step's global batch, of which the rank takes its part. */
typedef struct data {
    int32_t tokens[MAX_BATCH * CONTEXT];
    int32_t targets[MAX_BATCH * CONTEXT];
    by_array arrays[2];
} data;

static by_batch make_batch(data *d, const by_trainer *t, const by_config *config, uint64_t step)
{
    const by_batch_part part = by_trainer_part(t);
    uint64_t all = 0;
    for (size_t i = 0; i < (size_t)config->train.batch * CONTEXT; i++) {
        all += i % 11 != 3;
    }
    for (size_t k = 0; k < part.count; k++) {
        size_t row = part.first + k / part.block * part.stride + k % part.block;
        for (size_t i = 0; i < CONTEXT; i++) {
            size_t at = row * CONTEXT + i;
            double token = (random_unit(7, 2 * step, at) + 1.0) / 2.0 * VOCAB;
            double target = (random_unit(7, 2 * step + 1, at) + 1.0) / 2.0 * VOCAB;
            d->tokens[k * CONTEXT + i] = (int32_t)token;
            d->targets[k * CONTEXT + i] = at % 11 == 3 ? -1 : (int32_t)target;
        }
    }
    by_batch batch = by_batch_of_tokens(d->arrays, d->tokens, d->targets, part.count, CONTEXT);
    batch.global_targets = all;
    return batch;
}

/* Everything that is saved of a trainer. */
static by_status read_weights(job *j, int rank, const by_trainer *t, by_error *error)
{
    size_t total = 0;
    float *all = NULL;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        for (int s = -1; s < by_trainer_state_count(t); s++) {
            by_tensor_view view = s < 0 ? by_trainer_parameter(t, i) : by_trainer_state(t, i, s);
            size_t count;
            if (view.rank < 0) {
                continue;
            }
            BY_TRY(by_tensor_size(&view, &count, NULL, error));
            all = realloc(all, (total + count) * sizeof *all);
            BY_TRY(by_trainer_read(t, s < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE, s, i,
                                   all + total, error));
            total += count;
        }
    }
    j->weights[rank] = all;
    j->count[rank] = total;
    return BY_OK;
}

static by_status take_steps(job *j, int rank, by_trainer *t, const by_config *config,
                            by_error *error)
{
    data d;
    for (uint64_t step = 0; step < STEPS; step++) {
        by_batch batch = make_batch(&d, t, config, step);
        BY_TRY(by_trainer_step(t, &batch, &j->results[rank][step], error));
    }
    return read_weights(j, rank, t, error);
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    by_config *config = open_config(j->settings);
    if (comm == NULL) {
        config->parallel.shard = 1;
    }
    by_trainer *t = NULL;
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        j->memory[rank] = *by_trainer_memory(t);
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(t, error);
    }
    if (status == BY_OK) {
        status = take_steps(j, rank, t, config, error);
    }
    j->status[rank] = status;
    if (error != NULL) {
        j->errors[rank] = *error;
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static job *run_job(int ranks, const char *const *settings)
{
    by_error error = {0};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->settings = settings;
    if (ranks == 0) { /* without a communicator */
        check_ok(run_rank(NULL, j, &error), &error);
    } else {
        check_ok(by_comm_run_threads(ranks, NULL, run_rank, j, &error), &error);
    }
    return j;
}

static void close_job(job *j)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        free(j->weights[r]);
    }
    free(j);
}

/* Every rank of `ranks` ends as the process that works alone. */
static void compare(const job *alone, int ranks, const char *const *settings)
{
    job *j = run_job(ranks, settings);
    for (int r = 0; r < ranks; r++) {
        for (int step = 0; step < STEPS; step++) {
            const by_step_result *a = &alone->results[0][step];
            const by_step_result *b = &j->results[r][step];
            if (a->loss != b->loss || a->norm != b->norm || a->examples != b->examples) {
                fail_msg("rank %d of %d, step %d: loss %.9g and %.9g, norm %.9g and %.9g", r, ranks,
                         step, a->loss, b->loss, a->norm, b->norm);
            }
        }
        assert_true(ranks == 1 || j->results[r][STEPS - 1].exchange > 0.0);
        assert_true(ranks > 1 || j->results[r][STEPS - 1].exchange == 0.0);
        assert_true(j->count[r] == alone->count[0]);
        if (memcmp(alone->weights[0], j->weights[r], j->count[r] * sizeof(float)) != 0) {
            fail_msg("rank %d of %d: other weights", r, ranks);
        }
    }
    close_job(j);
}

static void compare_all(const int *ranks, size_t count, const char *const *settings)
{
    job *alone = run_job(0, settings);
    for (size_t i = 0; i < count; i++) {
        compare(alone, ranks[i], settings);
    }
    close_job(alone);
}

static void test_ranks_share_a_step(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {1, 2, 3, 4, 5, 8, 12};
    static const char *const f32[] = {NULL};
    static const char *const bf16[] = {"precision.compute=bf16", NULL};
    static const char *const behind[] = {"parallel.overlap=false", NULL};
    compare_all(ranks, BY_ARRAY_LENGTH(ranks), f32);
    compare_all(ranks, BY_ARRAY_LENGTH(ranks), bf16);
    compare_all(ranks, BY_ARRAY_LENGTH(ranks), behind);
}

/* A tensor of several buckets: those within it have no gradient of their own. */
static void test_large_tensor(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3};
    static const char *const wide[] = {"model.vocab=2000", NULL};
    static const char *const divided[] = {"model.vocab=2000", "parallel.shard=2", NULL};
    compare_all(ranks, BY_ARRAY_LENGTH(ranks), wide);
    compare_all(ranks, 1, divided);
}

/* Uneven shares: 5 micro-batches of 2 on 2, 3 and 5 ranks. */
static void test_uneven_shares(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 3, 4, 5};
    static const char *const five[] = {"train.batch=10", "train.micro_batch=2", NULL};
    compare_all(ranks, BY_ARRAY_LENGTH(ranks), five);
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
        compare_all(ranks, BY_ARRAY_LENGTH(ranks), settings);
    }
}

/* ZeRO-1: ranks of shard divide the state of the optimizer, and f32 weights where programs
 * compute in bf16; with two groups of them too. */
static void test_divided_state(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 4};
    static const int three[] = {3, 12};
    static const char *const kinds[] = {"optimizer.kind=adamw", "optimizer.kind=sgd",
                                        "optimizer.kind=lion", "optimizer.kind=lamb",
                                        "optimizer.kind=adafactor"};
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        for (size_t k = 0; k < 2; k++) {
            const char *const two_ranks[] = {kinds[i], precisions[k], "parallel.shard=2", NULL};
            const char *const three_ranks[] = {kinds[i], precisions[k], "parallel.shard=3",
                                               "parallel.overlap=false", NULL};
            compare_all(ranks, BY_ARRAY_LENGTH(ranks), two_ranks);
            compare_all(three, BY_ARRAY_LENGTH(three), three_ranks);
        }
    }
}

/* The plan has a rank's slices and no more: what divides adds up to what one rank has. */
static void test_planned_slices(void **state)
{
    BY_UNUSED(state);
    static const char *const bf16[] = {"precision.compute=bf16", "parallel.shard=3", NULL};
    job *alone = run_job(0, bf16);
    job *j = run_job(3, bf16);
    uint64_t states = 0;
    uint64_t copies = alone->memory[0].parameters - alone->memory[0].optimizer / 2;
    uint64_t masters = 0;
    for (int r = 0; r < 3; r++) {
        assert_true(j->memory[r].optimizer < alone->memory[0].optimizer / 2);
        states += j->memory[r].optimizer;
        masters += j->memory[r].parameters - copies;
    }
    assert_true(states == alone->memory[0].optimizer); /* every slice is a multiple of a line */
    assert_true(masters >= alone->memory[0].parameters - copies);
    assert_true(masters < (alone->memory[0].parameters - copies) * 11 / 10);
    close_job(alone);
    close_job(j);
}

/* A step that is not finite fails on all ranks in the same words, and changes no weight. */
static void test_failing_together(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"optimizer.kind=sgd", "optimizer.lr=1000",
                                           "optimizer.clip=0", "optimizer.warmup=0", NULL};
    by_error error = {0};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->settings = settings;
    assert_int_equal(by_comm_run_threads(3, NULL, run_rank, j, &error), BY_ESTATE);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j->status[r], BY_ESTATE);
        assert_non_null(strstr(j->errors[r].message, "the weights were not changed"));
        assert_string_equal(j->errors[r].message, j->errors[0].message);
    }
    close_job(j);
}

static void refused(int ranks, const char *const *settings, const char *message)
{
    by_error error = {0};
    by__layout layout;
    by_config *config = open_config(settings);
    assert_int_equal(by__layout_resolve(&layout, config, ranks, 0, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    by_config_close(&config);
}

static void test_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__layout l;
    static const char *const axes[] = {"parallel.shard=2", "parallel.tensor=2",
                                       "parallel.pipeline=2", NULL};
    by_config *config = open_config(axes);
    check_ok(by__layout_resolve(&l, config, 24, 17, &error), &error);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_share_a_step), cmocka_unit_test(test_large_tensor),
        cmocka_unit_test(test_uneven_shares),      cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_divided_state),      cmocka_unit_test(test_planned_slices),
        cmocka_unit_test(test_failing_together),   cmocka_unit_test(test_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
