#include "rank_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/rank_device.h"
#include "late_device.h"
#include "runner.h"
#include "sanitizer.h"
#include "trainer/step/trainer_step.h"

#define CONTEXT   8
#define VOCAB     61
#define MAX_BATCH 24

by_config *rank_job_config(const char *const *settings)
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

static by_batch make_batch(data *d, by_batch_part part, const by_config *config, uint64_t step)
{
    uint64_t all = 0;
    for (size_t i = 0; i < (size_t)by_config_batch(config, (int64_t)step) * CONTEXT; i++) {
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

/* Makes room for `more` values of a rank. */
static by_status reserve(rank_job *j, int rank, size_t more, by_error *error)
{
    return by__reserve((void **)&j->weights[rank], &j->capacity[rank], j->count[rank] + more,
                       sizeof *j->weights[rank], error);
}

/* Adds a tensor to what the rank has. */
static by_status read_one(rank_job *j, int rank, const by_trainer *t, const by_tensor_view *view,
                          by_trainer_tensor what, int state, size_t i, by_error *error)
{
    size_t count;
    if (view->rank < 0) {
        return BY_OK;
    }
    BY_TRY(by_tensor_size(view, &count, NULL, error));
    BY_TRY(reserve(j, rank, count, error));
    BY_TRY(by_trainer_read(t, what, state, i, j->weights[rank] + j->count[rank], error));
    j->count[rank] += count;
    return BY_OK;
}

/* With train.eval_ema the loss of the average of the weights, and the average where they were. */
static by_status read_average(rank_job *j, int rank, by_trainer *t, const by_batch *batch,
                              by_error *error)
{
    double loss;
    BY_TRY(by__trainer_swap_average(t, false, error));
    BY_TRY(by_trainer_loss(t, batch, &loss, error));
    BY_TRY(reserve(j, rank, 1, error));
    j->weights[rank][j->count[rank]++] = (float)loss;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        by_tensor_view view = by_trainer_parameter(t, i);
        BY_TRY(read_one(j, rank, t, &view, BY_TRAINER_PARAMETER, -1, i, error));
    }
    return by__trainer_swap_average(t, true, error);
}

/* Everything that is saved of a trainer, and its last gradients. */
static by_status read_weights(rank_job *j, int rank, const by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        by_tensor_view view = by_trainer_parameter(t, i);
        BY_TRY(read_one(j, rank, t, &view, BY_TRAINER_PARAMETER, -1, i, error));
        view = by_trainer_gradient(t, i);
        BY_TRY(read_one(j, rank, t, &view, BY_TRAINER_GRADIENT, -1, i, error));
        for (int s = 0; s < by_trainer_state_count(t); s++) {
            view = by_trainer_state(t, i, s);
            BY_TRY(read_one(j, rank, t, &view, BY_TRAINER_STATE, s, i, error));
        }
    }
    return BY_OK;
}

/* Steps take no more memory for the copies of what ranks exchange than was planned. */
static by_status check_staging(const by_trainer *t, by_error *error)
{
    const by__device_staging *s = &t->ranks.staging;
    size_t bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        bytes += s->blocks[i].bytes;
    }
    return bytes <= s->planned
               ? BY_OK
               : by_error_set(error, BY_ESTATE, "%zu bytes of copies were planned, and %zu taken",
                              s->planned, bytes);
}

static by_status take_steps(rank_job *j, int rank, by_trainer *t, const by_config *config,
                            by_error *error)
{
    data d;
    for (uint64_t step = 0; step < RANK_JOB_STEPS; step++) {
        BY_TRY(by_trainer_begin_step(t, NULL, error));
        by_batch batch = make_batch(&d, by_trainer_part(t), config, step);
        BY_TRY(by_trainer_step(t, &batch, &j->results[rank][step], error));
        if (config->train.eval_ema != 0 && step == 1) {
            const by_batch_part same = {.count = (size_t)config->train.micro_batch,
                                        .block = (size_t)config->train.micro_batch};
            batch = make_batch(&d, same, config, step);
            BY_TRY(read_average(j, rank, t, &batch, error));
        }
    }
    BY_TRY(check_staging(t, error));
    return read_weights(j, rank, t, error);
}

static by_status open_device(by_device **out, const rank_job *j, int rank, by_error *error)
{
    const late_options options = {
        .seed = j->seed + (uint64_t)rank, .threads = 1, .alignment = j->alignment};
    if (j->late) {
        return late_device_open_as(out, &options, error);
    }
    if (j->device != NULL) {
        return by__device_open_of_rank(out, j->device, 1, rank, error);
    }
    if (j->alignment != 0) {
        BY_TRY(by_device_open(out, "cpu", 1, error));
        (*out)->alignment = j->alignment;
    }
    return BY_OK;
}

by_status rank_job_run(by_comm *comm, void *user, by_error *error)
{
    rank_job *j = user;
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    by_device *device = NULL;
    by_config *config = rank_job_config(j->settings);
    if (comm == NULL) {
        config->parallel.shard = 1;
    }
    by_trainer *t = NULL;
    by_status status = open_device(&device, j, rank, error);
    const by_trainer_options options = {.comm = comm, .device = device};
    status = status == BY_OK ? by_trainer_open(&t, config, &options, error) : status;
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
    if (status == BY_OK && j->late && late_device_fault(device)[0] != '\0') {
        status = by_error_set(error, BY_EDEVICE, "%s", late_device_fault(device));
    }
    by_device_close(&device);
    by_config_close(&config);
    return status;
}

static rank_job *run_job(int ranks, const rank_job *like)
{
    by_error error = {0};
    rank_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    *j = *like;
    if (ranks == 0) { /* without a communicator */
        check_ok(rank_job_run(NULL, j, &error), &error);
    } else {
        check_ok(by_comm_run_threads(ranks, NULL, rank_job_run, j, &error), &error);
    }
    return j;
}

rank_job *rank_job_open(int ranks, const char *const *settings)
{
    return run_job(ranks, &(rank_job){.settings = settings});
}

rank_job *rank_job_open_late(int ranks, const char *const *settings, uint64_t seed)
{
    return run_job(ranks,
                   &(rank_job){.settings = settings, .late = true, .seed = seed, .alignment = 256});
}

rank_job *rank_job_open_aligned(int ranks, const char *const *settings)
{
    return run_job(ranks, &(rank_job){.settings = settings, .alignment = 256});
}

rank_job *rank_job_open_on(int ranks, const char *const *settings, const char *device)
{
    return run_job(ranks, &(rank_job){.settings = settings, .device = device});
}

void rank_job_close(rank_job *j)
{
    for (int r = 0; r < RANK_JOB_RANKS; r++) {
        free(j->weights[r]);
    }
    free(j);
}

void rank_job_check(const rank_job *alone, const rank_job *j, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        for (int step = 0; step < RANK_JOB_STEPS; step++) {
            const by_step_result *a = &alone->results[0][step];
            const by_step_result *b = &j->results[r][step];
            if (a->loss != b->loss || a->norm != b->norm || a->examples != b->examples) {
                fail_msg("rank %d of %d, step %d: loss %.9g and %.9g, norm %.9g and %.9g", r, ranks,
                         step, a->loss, b->loss, a->norm, b->norm);
            }
        }
        assert_true(ranks == 1 || j->results[r][RANK_JOB_STEPS - 1].exchange > 0.0);
        assert_true(ranks > 1 || j->results[r][RANK_JOB_STEPS - 1].exchange == 0.0);
        assert_true(j->count[r] == alone->count[0]);
        if (memcmp(alone->weights[0], j->weights[r], j->count[r] * sizeof(float)) != 0) {
            fail_msg("rank %d of %d: other weights", r, ranks);
        }
    }
}

/* Every rank of `ranks` ends as the process that works alone. */
static void compare(const rank_job *alone, int ranks, const char *const *settings)
{
    rank_job *j = rank_job_open(ranks, settings);
    rank_job_check(alone, j, ranks);
    rank_job_close(j);
}

void rank_job_compare_late(const int *ranks, size_t count, const char *const *settings)
{
    rank_job *alone = rank_job_open_aligned(0, settings);
    for (size_t i = 0; i < count; i++) {
        rank_job *j = rank_job_open_late(ranks[i], settings, 100 * i);
        rank_job_check(alone, j, ranks[i]);
        rank_job_close(j);
    }
    rank_job_close(alone);
}

void rank_job_compare(const int *ranks, size_t count, const char *const *settings)
{
    rank_job *alone = rank_job_open(0, settings);
    for (size_t i = BY_TESTS_SANITIZED ? count - 1 : 0; i < count; i++) {
        compare(alone, ranks[i], settings);
    }
    rank_job_close(alone);
}

void rank_job_agree(const char *const *alone, int ranks, const char *const *settings)
{
    rank_job *one = rank_job_open(0, alone);
    compare(one, ranks, settings);
    rank_job_close(one);
}
