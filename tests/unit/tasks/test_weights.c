/* Weights of examples: the loss of a batch is the weighted mean in float64, whatever ranks and
 * threads compute it, and weights that are all the same change no bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/trainer.h"
#include "base/base.h"
#include "runner.h"
#include "temporary.h"

enum { ROWS = 90, BATCH = 12, STEPS = 6 };

static char *folder;
static char path[512];

static int make_folder(void **state)
{
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(path, sizeof path, "%s/rows.csv", folder);
    by_string csv = {0};
    by_error error = {0};
    by__string_append(&csv, "a,b,y,z,class,w,two\n");
    for (size_t row = 0; row < ROWS; row++) {
        double a = random_unit(1, 0, row);
        double b = random_unit(1, 1, row);
        double w = row % 7 == 2 ? 0.0 : 1.5 + random_unit(1, 2, row);
        by_string_format(&csv, "%.9g,%.9g,%.9g,%.9g,c%d,%.9g,2\n", a, b, a - 2.0 * b * b,
                         300.0 * a * b, (a > b) + (a > 0.5), w);
    }
    check_ok(by__file_write(path, csv.data, csv.length, &error), &error);
    by_string_free(&csv);
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

/* What a rank sees of a run. */
typedef struct weighted_run {
    const char *kind;   /* of the task */
    const char *target; /* column */
    const char *weight; /* column; "": none */
    const char *threads;
    double losses[4][STEPS];
    double norms[4][STEPS];
} weighted_run;

static by_status open_config(by_config **out, const weighted_run *r, by_error *error)
{
    char settings[5][600];
    (void)snprintf(settings[0], sizeof settings[0], "task.kind=%s", r->kind);
    (void)snprintf(settings[1], sizeof settings[1], "data.target=%s", r->target);
    (void)snprintf(settings[2], sizeof settings[2], "data.table=%s", path);
    (void)snprintf(settings[3], sizeof settings[3], "data.weight=%s", r->weight);
    (void)snprintf(settings[4], sizeof settings[4], "data.ignore=[%s, w, two, z]",
                   strcmp(r->kind, "regress") == 0 ? "class" : "y");
    const char *const all[] = {"model.kind=mlp",
                               "model.layers=1",
                               "model.width=8",
                               "train.batch=12",
                               "train.micro_batch=3",
                               "train.threads=1",
                               "train.steps=20",
                               "optimizer.warmup=0",
                               "optimizer.lr=1e-2",
                               "precision.compute=f32",
                               "parallel.data=-1",
                               r->threads,
                               settings[0],
                               settings[1],
                               settings[2],
                               settings[3],
                               settings[4]};
    return by_config_parse(out, "weights.yaml", "", 0, all, BY_ARRAY_LENGTH(all), error);
}

/* The mean loss of a whole batch in float64, of predictions that the trainer gives. */
static by_status expect_loss(const weighted_run *r, by_trainer *trainer, by_loader *loader,
                             by_error *error)
{
    by_batch batch;
    double sum = 0.0;
    double weight = 0.0;
    double expected = 0.0;
    BY_TRY(by_loader_next(loader, &batch, error));
    const float *weights = by_batch_array(&batch, "weight")->data;
    for (size_t first = 0; first < BATCH; first += 3) { /* a micro-batch */
        by_array arrays[4];
        by_batch part = batch;
        double loss;
        const float *values;
        size_t width;
        for (size_t i = 0; i < batch.array_count; i++) {
            arrays[i] = batch.arrays[i];
            size_t bytes =
                (size_t)by_shape_count(&arrays[i].shape) / BATCH * by_dtype_size(arrays[i].dtype);
            arrays[i].data = (const char *)arrays[i].data + first * bytes;
            arrays[i].shape.dim[0] = 3;
        }
        part.arrays = arrays;
        part.batch = 3;
        BY_TRY(by_trainer_evaluate(trainer, &part, &loss, &values, &width, error));
        sum += loss;
        for (size_t i = 0; i < 3; i++) {
            const float *v = values + i * width;
            double w = (double)weights[first + i];
            weight += w;
            if (strcmp(r->kind, "regress") == 0) {
                const float *targets = by_batch_array(&part, "targets")->data;
                for (size_t k = 0; k < width; k++) { /* the mean over the targets */
                    double d = (double)v[k] - (double)targets[i * width + k];
                    expected += w * d * d / (double)width;
                }
            } else {
                const int32_t *labels = by_batch_array(&part, "labels")->data;
                double all = 0.0;
                for (size_t c = 0; c < width; c++) {
                    all += exp((double)v[c]);
                }
                expected += w * (log(all) - (double)v[labels[i]]);
            }
        }
    }
    if (batch.weighted != (r->weight[0] != '\0') ||
        (batch.weighted && fabs(batch.global_weight - weight) > 1e-12 * weight) ||
        fabs(sum / weight - expected / weight) > 1e-6 * (expected / weight)) {
        return by_error_set(error, BY_ESTATE, "loss %.9g of weight %.9g, %.9g expected of %.9g",
                            sum / weight, batch.global_weight, expected / weight, weight);
    }
    by_step_result result;
    BY_TRY(by_trainer_step(trainer, &batch, &result, error));
    if (fabs(result.loss - expected / weight) > 1e-6 * (expected / weight)) {
        return by_error_set(error, BY_ESTATE, "a step's loss %.9g, %.9g expected", result.loss,
                            expected / weight);
    }
    return BY_OK;
}

static by_status train(weighted_run *r, by_comm *comm, const by_config *config, by_task_data *data,
                       by_error *error)
{
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    by_trainer *trainer;
    by_loader *loader = NULL;
    const by_trainer_options options = {.task = data->task, .comm = comm};
    BY_TRY(by_trainer_open(&trainer, config, &options, error));
    by_status status = by_trainer_allocate(trainer, error);
    if (status == BY_OK) {
        status = by_trainer_initialize(trainer, error);
    }
    if (status == BY_OK) {
        status = by_trainer_loader(&loader, trainer, data, true, error);
    }
    if (status == BY_OK && comm == NULL) {
        status = expect_loss(r, trainer, loader, error);
    }
    for (size_t i = comm == NULL; i < STEPS && status == BY_OK; i++) {
        by_batch batch;
        by_step_result result;
        status = by_loader_next(loader, &batch, error);
        if (status == BY_OK) {
            status = by_trainer_step(trainer, &batch, &result, error);
        }
        if (status == BY_OK && i > 0) { /* alone, the first one is that of expect_loss */
            r->losses[rank][i] = result.loss;
            r->norms[rank][i] = result.norm;
        }
    }
    by_loader_close(&loader);
    by_trainer_close(&trainer);
    return status;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    weighted_run *r = user;
    by_config *config;
    by_task_data *data;
    BY_TRY(open_config(&config, r, error));
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .config = config};
    by_status status = by_task_open(&data, NULL, &request, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
        if (status == BY_OK) {
            status = train(r, comm, config, data, error);
        }
        by_task_close(&data);
    }
    by_config_close(&config);
    return status;
}

/* Runs on some ranks; 0: without a communicator. */
static void run(weighted_run *r, int ranks)
{
    by_error error = {0};
    by_status status = ranks == 0 ? run_rank(NULL, r, &error)
                                  : by_comm_run_threads(ranks, NULL, run_rank, r, &error);
    check_ok(status, &error);
}

static const struct {
    const char *kind;
    const char *target;
} tasks[] = {{"regress", "y"}, {"regress", "[z, y]"}, {"classify", "class"}};

static weighted_run run_of(size_t task, const char *weight, const char *threads)
{
    return (weighted_run){.kind = tasks[task].kind,
                          .target = tasks[task].target,
                          .weight = weight,
                          .threads = threads};
}

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < BY_ARRAY_LENGTH(tasks); k++) {
        weighted_run alone = run_of(k, "w", "data.threads=1");
        run(&alone, 0);
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            weighted_run many = run_of(k, "w", "data.threads=3");
            run(&many, ranks);
            for (int rank = 0; rank < ranks; rank++) {
                assert_memory_equal(many.losses[rank], alone.losses[0], sizeof alone.losses[0]);
                assert_memory_equal(many.norms[rank], alone.norms[0], sizeof alone.norms[0]);
            }
        }
    }
}

/* 2 is a power of two, so that products and quotients with it round as those with 1. */
static void test_equal_weights(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < BY_ARRAY_LENGTH(tasks); k++) {
        weighted_run none = run_of(k, "", "data.threads=1");
        weighted_run two = run_of(k, "two", "data.threads=2");
        weighted_run other = run_of(k, "w", "data.threads=1");
        run(&none, 0);
        run(&two, 0);
        run(&other, 0);
        assert_memory_equal(two.losses[0], none.losses[0], sizeof none.losses[0]);
        assert_memory_equal(two.norms[0], none.norms[0], sizeof none.norms[0]);
        assert_memory_not_equal(other.losses[0], none.losses[0], sizeof none.losses[0]);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *weight;
        const char *message;
    } cases[] = {
        {"a", "a weight in 'a' must be a number of at least 0"},
        {"class", "'class'"},
        {"v", "'v'"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        weighted_run r = run_of(0, cases[i].weight, "data.threads=1");
        if (run_rank(NULL, &r, &error) == BY_OK ||
            strstr(error.message, cases[i].message) == NULL) {
            fail_msg("%s: %s", cases[i].weight, error.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_equal_weights),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
