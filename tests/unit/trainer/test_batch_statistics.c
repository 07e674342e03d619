/* Running statistics of batch norm: state that training updates without a derivative. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "trainer/state/trainer.h"

enum { NUMBERS = 3, ROWS = 8, STEPS = 3, MOST_RANKS = 4, MOST_VALUES = 4096 };

/* A job, and what each of its ranks has in the end. */
typedef struct statistics_job {
    const char *const *settings;
    bool spoils; /* the second step has a target that is not finite */
    float values[MOST_RANKS][MOST_VALUES];
    size_t count[MOST_RANKS];
    by_step_result results[MOST_RANKS][STEPS];
} statistics_job;

static by_config *table_config(const char *const *settings)
{
    static const char *const common[] = {
        "task.kind=regress",   "data.target=price", "model.kind=mlp",        "model.numbers=3",
        "model.hidden=[8, 6]", "model.norm=true",   "norm.kind=batch",       "model.outputs=1",
        "train.threads=1",     "train.steps=10",    "train.batch=8",         "train.micro_batch=2",
        "optimizer.warmup=0",  "optimizer.lr=0.05", "precision.compute=f32", NULL};
    return config_of(common, settings);
}

/* Rows of a step's batch that a rank has. */
typedef struct table_data {
    float numbers[ROWS * NUMBERS];
    float targets[ROWS];
    float weight[ROWS];
    by_array arrays[3];
} table_data;

static by_batch make_rows(table_data *d, by_batch_part part, uint64_t step, bool spoiled)
{
    for (size_t k = 0; k < part.count; k++) {
        size_t row = part.first + k / part.block * part.stride + k % part.block;
        for (size_t i = 0; i < NUMBERS; i++) {
            d->numbers[k * NUMBERS + i] =
                (float)(3.0 * random_unit(5, step, row * NUMBERS + i) + (double)i);
        }
        d->weight[k] = 1.0f;
        d->targets[k] = spoiled ? NAN : d->numbers[k * NUMBERS] - d->numbers[k * NUMBERS + 1];
    }
    int64_t count = (int64_t)part.count;
    d->arrays[0] = (by_array){"numbers", BY_F32, BY_SHAPE(count, NUMBERS), d->numbers};
    d->arrays[1] = (by_array){"targets", BY_F32, BY_SHAPE(count), d->targets};
    d->arrays[2] = (by_array){"weight", BY_F32, BY_SHAPE(count), d->weight};
    return (by_batch){.arrays = d->arrays,
                      .array_count = 3,
                      .batch = part.count,
                      .valid_targets = part.count,
                      .global_targets = ROWS};
}

static by_status keep_parameters(statistics_job *j, int rank, const by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        size_t count;
        by_tensor_view view = by_trainer_parameter(t, i);
        BY_TRY(by_tensor_size(&view, &count, NULL, error));
        BY_TRY(by_trainer_read(t, BY_TRAINER_PARAMETER, -1, i, j->values[rank] + j->count[rank],
                               error));
        j->count[rank] += count;
    }
    return BY_OK;
}

static by_status take_steps(statistics_job *j, int rank, by_trainer *t, by_error *error)
{
    table_data d;
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    for (uint64_t step = 0; step < STEPS; step++) {
        BY_TRY(by_trainer_begin_step(t, NULL, error));
        by_batch batch = make_rows(&d, by_trainer_part(t), step, j->spoils && step == 1);
        BY_TRY(by_trainer_step(t, &batch, &j->results[rank][step], error));
    }
    return keep_parameters(j, rank, t, error);
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    statistics_job *j = user;
    by_trainer *t;
    by_config *config = table_config(j->settings);
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        status = take_steps(j, comm == NULL ? 0 : by_comm_rank(comm), t, error);
        by_trainer_close(&t);
    }
    by_config_close(&config);
    return status;
}

static statistics_job *run_job(int ranks, const char *const *settings, bool spoils)
{
    by_error error = {0};
    statistics_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    *j = (statistics_job){.settings = settings, .spoils = spoils};
    check_ok(ranks == 1 ? run_rank(NULL, j, &error)
                        : by_comm_run_threads(ranks, NULL, run_rank, j, &error),
             &error);
    return j;
}

/* Without communicator, with replicas, with divided state and with stages: the same bits. */
static void test_layouts_agree(void **state)
{
    static const struct {
        int ranks;
        const char *settings[3];
    } layouts[] = {
        {2, {NULL}},
        {4, {NULL}},
        {2, {"parallel.shard=2", "parallel.zero=1", NULL}},
        {4, {"parallel.shard=4", "parallel.zero=2", NULL}},
        {2, {"parallel.shard=2", "parallel.zero=3", NULL}},
        {2, {"parallel.pipeline=2", NULL}},
        {4, {"parallel.pipeline=2", "parallel.shard=2", NULL}},
        {1, {"memory.recompute=full", NULL}},
    };
    static const char *const none[] = {NULL};
    BY_UNUSED(state);
    statistics_job *alone = run_job(1, none, false);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        statistics_job *j = run_job(layouts[i].ranks, layouts[i].settings, false);
        bool staged = layouts[i].settings[0] != NULL &&
                      strcmp(layouts[i].settings[0], "parallel.pipeline=2") == 0;
        for (int r = 0; r < layouts[i].ranks; r++) {
            /* A rank of a pipeline has some of the tensors; its losses and norms depend on all. */
            if (!staged &&
                (j->count[r] != alone->count[0] ||
                 memcmp(j->values[r], alone->values[0], alone->count[0] * sizeof(float)) != 0)) {
                fail_msg("layout %zu, rank %d: other parameters", i, r);
            }
            for (int step = 0; step < STEPS; step++) {
                assert_true(j->results[r][step].loss == alone->results[0][step].loss);
                assert_true(j->results[r][step].norm == alone->results[0][step].norm);
            }
        }
        free(j);
    }
    free(alone);
}

/* ---- a convolutional network ---- */

enum { PIXELS = 8 * 8 };

static by_status step_on_images(by_trainer *t, uint64_t step, by_step_result *out, by_error *error)
{
    static const float weights[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    float images[ROWS * PIXELS];
    int32_t labels[ROWS];
    by_batch_part part = by_trainer_part(t);
    for (size_t k = 0; k < part.count; k++) {
        size_t row = part.first + k / part.block * part.stride + k % part.block;
        labels[k] = (int32_t)(row % 3);
        for (size_t i = 0; i < PIXELS; i++) {
            images[k * PIXELS + i] = (float)random_unit(6, step, row * PIXELS + i);
        }
    }
    int64_t count = (int64_t)part.count;
    const by_array arrays[] = {{"images", BY_F32, BY_SHAPE(count, 1, 8, 8), images},
                               {"labels", BY_I32, BY_SHAPE(count), labels},
                               {"weight", BY_F32, BY_SHAPE(count), (void *)(uintptr_t)weights}};
    const by_batch batch = {.arrays = arrays,
                            .array_count = 3,
                            .batch = part.count,
                            .valid_targets = part.count,
                            .global_targets = ROWS};
    BY_TRY(by_trainer_begin_step(t, NULL, error));
    return by_trainer_step(t, &batch, out, error);
}

static by_status run_images(by_comm *comm, void *user, by_error *error)
{
    static const char *const common[] = {
        "task.kind=classify",   "model.kind=resnet",   "model.stem=small",      "model.width=4",
        "model.depths=[1, 1]",  "model.channels=1",    "model.outputs=3",       "train.threads=1",
        "model.image_height=8", "model.image_width=8", "train.steps=10",        "train.batch=8",
        "train.micro_batch=2",  "optimizer.warmup=0",  "precision.compute=f32", NULL};
    statistics_job *j = user;
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    by_trainer *t;
    by_config *config = config_of(common, j->settings);
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
        status = status == BY_OK ? by_trainer_initialize(t, error) : status;
        for (uint64_t step = 0; step < STEPS && status == BY_OK; step++) {
            status = step_on_images(t, step, &j->results[rank][step], error);
        }
        status = status == BY_OK ? keep_parameters(j, rank, t, error) : status;
        by_trainer_close(&t);
    }
    by_config_close(&config);
    return status;
}

/* Convolutions, batch norm and pools have the same bits on any number of ranks. */
static void test_images_agree(void **state)
{
    static const struct {
        int ranks;
        const char *settings[3];
    } layouts[] = {
        {1, {NULL}},
        {1, {"train.threads=2", NULL}},
        {2, {NULL}},
        {4, {"parallel.shard=4", "parallel.zero=2", NULL}},
        {2, {"parallel.shard=2", "parallel.zero=3", NULL}},
        {2, {"parallel.pipeline=2", NULL}}, /* the first norm is in front of all blocks */
    };
    statistics_job *jobs[BY_ARRAY_LENGTH(layouts)];
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        by_error error = {0};
        statistics_job *j = jobs[i] = calloc(1, sizeof *j);
        assert_non_null(j);
        j->settings = layouts[i].settings;
        check_ok(layouts[i].ranks == 1
                     ? run_images(NULL, j, &error)
                     : by_comm_run_threads(layouts[i].ranks, NULL, run_images, j, &error),
                 &error);
        for (int r = 0; r < layouts[i].ranks; r++) {
            for (int step = 0; step < STEPS; step++) {
                assert_true(j->results[r][step].loss == jobs[0]->results[0][step].loss);
            }
            if (i + 1 == BY_ARRAY_LENGTH(layouts)) {
                continue; /* a rank of a pipeline has some of the tensors */
            }
            assert_int_equal(j->count[r], jobs[0]->count[0]);
            assert_memory_equal(j->values[r], jobs[0]->values[0], j->count[r] * sizeof(float));
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        free(jobs[i]);
    }
}

/* ---- statistics of all ranks ---- */

/* Largest difference, of rank 0's values and of those of another job, over the largest value. */
static double difference(const statistics_job *a, const statistics_job *b)
{
    double most = 0.0;
    double largest = 0.0;
    assert_int_equal(a->count[0], b->count[0]);
    for (size_t i = 0; i < a->count[0]; i++) {
        double away = fabs((double)a->values[0][i] - (double)b->values[0][i]);
        most = away > most ? away : most;
        largest = fmax(largest, fabs((double)a->values[0][i]));
    }
    return most / largest;
}

/* AdamW would make a step of the rounding of gradients that are 0, as of a bias before a norm. */
#define SGD "optimizer.kind=sgd"

/* With parallel.sync_batch_norm, ranks are as one micro-batch of all their rows: weights, running
 * statistics and losses. Without it they are not. */
static void test_ranks_together(void **state)
{
    static const struct {
        int ranks;
        const char *settings[5];
    } layouts[] = {
        {4, {SGD, "parallel.sync_batch_norm=true", NULL}},
        {2, {SGD, "parallel.sync_batch_norm=true", "train.micro_batch=4", NULL}},
        {4, {SGD, "parallel.sync_batch_norm=true", "parallel.shard=4", "parallel.zero=2", NULL}},
        {4, {SGD, "parallel.sync_batch_norm=true", "parallel.shard=2", "parallel.zero=3", NULL}},
        {4, {SGD, "parallel.sync_batch_norm=true", "memory.recompute=full", NULL}},
        {4, {SGD, NULL}},
    };
    static const char *const whole[] = {SGD, "train.micro_batch=8", NULL};
    by_error error = {0};
    BY_UNUSED(state);
    for (int images = 0; images < 2; images++) {
        statistics_job *alone = calloc(1, sizeof *alone);
        assert_non_null(alone);
        alone->settings = whole;
        check_ok(images ? run_images(NULL, alone, &error) : run_rank(NULL, alone, &error), &error);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
            statistics_job *j = calloc(1, sizeof *j);
            assert_non_null(j);
            j->settings = layouts[i].settings;
            check_ok(by_comm_run_threads(layouts[i].ranks, NULL, images ? run_images : run_rank, j,
                                         &error),
                     &error);
            double away = difference(j, alone);
            bool together = layouts[i].settings[1] != NULL;
            if (together != (away < 2e-5)) {
                fail_msg("images %d, layout %zu: %g from one micro-batch", images, i, away);
            }
            for (int step = 0; step < STEPS && together; step++) {
                double loss = (double)alone->results[0][step].loss;
                assert_true(fabs((double)j->results[0][step].loss - loss) < 1e-4 * loss);
            }
            free(j);
        }
        free(alone);
    }
}

/* Ranks that have other numbers of micro-batches would wait for each other for ever. */
static void test_uneven_ranks_refused(void **state)
{
    static const char *const settings[] = {"parallel.sync_batch_norm=true", NULL};
    by_error error = {0};
    by_trainer *t;
    BY_UNUSED(state);
    by_config *config = table_config(settings);
    const by_trainer_options options = {.ranks = 3};
    assert_int_equal(by_trainer_open(&t, config, &options, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "as many micro-batches on each of the 3 ranks"));
    by_config_close(&config);
}

/* ---- what the statistics are ---- */

/* The mean and the variance (divisor n - 1) of two rows. */
static void statistics_of(double mean[NUMBERS], double variance[NUMBERS], const float *rows)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        double a = (double)rows[i];
        double b = (double)rows[NUMBERS + i];
        mean[i] = (a + b) / 2.0;
        variance[i] = (a - b) * (a - b) / 2.0;
    }
}

/* A model that normalises its inputs at once, so that the running statistics follow from the data
 * alone. */
static by_status build_normalised(void *user, by_model *model, by_graph *graph,
                                  const by_model_config *config, const by_model_request *request,
                                  by_error *error)
{
    by_value mean;
    by_value variance;
    by_init one = {.kind = BY_INIT_ONE};
    BY_UNUSED(user);
    BY_UNUSED(config);
    by_value x = by_graph_input(graph, "numbers", BY_F32, BY_SHAPE(request->batch, NUMBERS));
    by_value weight = by_graph_parameter(graph, "norm.weight", "", BY_SHAPE(NUMBERS), one);
    by_value bias = by_graph_parameter(graph, "norm.bias", "", BY_SHAPE(NUMBERS), (by_init){0});
    by_value out =
        by_graph_parameter(graph, "out", "", BY_SHAPE(1, NUMBERS), (by_init){BY_INIT_NORMAL, 1.0f});
    by_value running[2] = {
        by_graph_statistic(graph, "running_mean", "", BY_SHAPE(NUMBERS), (by_init){0}),
        by_graph_statistic(graph, "running_var", "", BY_SHAPE(NUMBERS), one)};
    if (request->mode == BY_MODEL_TRAIN) {
        x = by_batch_norm(graph, x, weight, bias, 1e-5f, NULL, &mean, &variance);
        by_value quarter = by_fill(graph, BY_F32, BY_SHAPE(1), 0.25f);
        by_graph_increment(graph, running[0],
                           by_scale(graph, by_sub(graph, mean, running[0]), quarter));
        by_graph_increment(graph, running[1],
                           by_scale(graph, by_sub(graph, variance, running[1]), quarter));
    } else {
        x = by_batch_norm_fixed(graph, x, running[0], running[1], weight, bias, 1e-5f, NULL);
    }
    model->output = by_linear(graph, x, out, BY_NONE, true);
    return by_graph_check(graph, error);
}

/* A step moves the running statistics a quarter of the way to the mean of its micro-batches'; the
 * norm of the gradients, the clip factor and the learning rate have no part in it. */
static void test_steps_follow_the_data(void **state)
{
    static const char *const settings[] = {"optimizer.clip=0.001", NULL};
    by_error error = {0};
    by_trainer *t;
    double expected[2][NUMBERS] = {{0, 0, 0}, {1, 1, 1}};
    BY_UNUSED(state);
    by_config *config = table_config(settings);
    const by_trainer_options options = {.builder = build_normalised};
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    for (uint64_t step = 0; step < STEPS; step++) {
        table_data d;
        by_step_result result;
        double sum[2][NUMBERS] = {{0}};
        check_ok(by_trainer_begin_step(t, NULL, &error), &error);
        by_batch batch = make_rows(&d, by_trainer_part(t), step, false);
        check_ok(by_trainer_step(t, &batch, &result, &error), &error);
        for (size_t k = 0; k < ROWS / 2; k++) {
            double one[2][NUMBERS];
            statistics_of(one[0], one[1], d.numbers + k * 2 * NUMBERS);
            for (size_t i = 0; i < NUMBERS; i++) {
                sum[0][i] += one[0][i];
                sum[1][i] += one[1][i];
            }
        }
        for (size_t i = 0; i < NUMBERS; i++) {
            for (size_t s = 0; s < 2; s++) {
                expected[s][i] += 0.25 * (sum[s][i] / (ROWS / 2.0) - expected[s][i]);
            }
        }
    }
    static const char *const names[2] = {"running_mean", "running_var"};
    size_t found = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        by_tensor_view view = by_trainer_parameter(t, i);
        for (size_t s = 0; s < 2; s++) {
            float have[NUMBERS];
            if (strcmp(view.name, names[s]) != 0) {
                continue;
            }
            found++;
            check_ok(by_trainer_read(t, BY_TRAINER_PARAMETER, -1, i, have, &error), &error);
            for (size_t k = 0; k < NUMBERS; k++) {
                double bound = 1e-5 * (1.0 + fabs(expected[s][k]));
                assert_true(fabs((double)have[k] - expected[s][k]) <= bound);
            }
        }
    }
    assert_int_equal(found, 2);
    by_trainer_close(&t);
    by_config_close(&config);
}

/* A skipped step changes neither weights nor statistics. */
static void test_skipped_step(void **state)
{
    static const char *const settings[] = {"guard.nonfinite=skip", NULL};
    BY_UNUSED(state);
    statistics_job *j = run_job(2, settings, true);
    assert_true(j->results[0][1].skipped);
    for (size_t i = 0; i < j->count[0]; i++) {
        assert_true(isfinite(j->values[0][i]));
    }
    assert_true(isfinite(j->results[0][2].loss));
    free(j);
}

static void test_refused(void **state)
{
    static const char *const rare[] = {"sync.every=2", NULL};
    static const char *const one[] = {"train.micro_batch=1", NULL};
    static const struct {
        const char *const *settings;
        const char *message;
    } rows[] = {{rare, "is a statistic of the micro-batches of each step"},
                {one, "a single row, or pixel of an image, has no variance"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_error error = {0};
        by_trainer *t;
        by_config *config = table_config(rows[i].settings);
        assert_true(by_trainer_open(&t, config, NULL, &error) != BY_OK);
        assert_non_null(strstr(error.message, rows[i].message));
        by_config_close(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_agree),
        cmocka_unit_test(test_images_agree),
        cmocka_unit_test(test_ranks_together),
        cmocka_unit_test(test_uneven_ranks_refused),
        cmocka_unit_test(test_steps_follow_the_data),
        cmocka_unit_test(test_skipped_step),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
