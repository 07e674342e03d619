/* Tasks: who adds the loss to a model, and their metrics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "late_device.h"
#include "runner.h"
#include "trainer/state/train.h"

#define EXAMPLES 4

static by_config *open_config(void)
{
    by_config *config;
    by_error error = {0};
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    check_ok(by_config_set(config, "train.batch=4", &error), &error);
    check_ok(by_config_set(config, "model.vocab=7", &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* y = w x, a model of rows of two numbers. */
static by_status build_line(void *user, by_model *out, by_graph *graph,
                            const by_model_config *config, const by_model_request *request,
                            by_error *error)
{
    BY_UNUSED(config);
    by_init half = {BY_INIT_NORMAL, 0.5f};
    *out = BY_MODEL_NONE;
    by_value x = by_graph_input(graph, "numbers", BY_F32, BY_SHAPE(request->batch, 2));
    by_value w = by_graph_parameter(graph, "w", "out in", BY_SHAPE(1, 2), half);
    out->output = by_linear(graph, x, w, BY_NONE, true);
    if (user != NULL) { /* a loss of its own: the sum of the outputs */
        out->loss =
            by_reshape(graph, by_sum(graph, out->output, (int[]){0, 1}, 2, true), BY_SHAPE(1));
        by_graph_output(graph, out->loss, "loss");
    }
    return by_graph_check(graph, error);
}

static by_status squared(const by_config *config, const by_model_request *request, by_graph *graph,
                         by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value targets = by_graph_input(graph, "targets", BY_F32, BY_SHAPE(request->batch, 1));
    model->loss = by_squared_error(graph, model->output, targets, BY_NONE);
    model->evaluated = request->mode == BY_MODEL_LOSS ? model->output : BY_NONE;
    return BY_OK;
}

static const by_task line_task = {.name = "line", .examples = "rows", .loss = squared};

static const float numbers[EXAMPLES * 2] = {1, 2, -1, 0.5f, 3, 0, 0, -2};
static const float targets[EXAMPLES] = {1, 0, -1, 2};

static by_batch batch_of(by_array arrays[2])
{
    arrays[0] = (by_array){"numbers", BY_F32, BY_SHAPE(EXAMPLES, 2), numbers};
    arrays[1] = (by_array){"targets", BY_F32, BY_SHAPE(EXAMPLES, 1), targets};
    return (by_batch){.arrays = arrays,
                      .array_count = 2,
                      .batch = EXAMPLES,
                      .valid_targets = EXAMPLES,
                      .global_targets = EXAMPLES};
}

/* The loss of a trainer for losses on the batch; *w: its weights. */
static double loss_of(const by_trainer_options *options, const by_config *config, float w[2])
{
    by_trainer *trainer;
    by_error error = {0};
    by_array arrays[2];
    double loss;
    check_ok(by_trainer_open(&trainer, config, options, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    by_batch batch = batch_of(arrays);
    check_ok(by_trainer_loss(trainer, &batch, &loss, &error), &error);
    memcpy(w, by_trainer_parameter(trainer, 0).data, 2 * sizeof *w);
    by_trainer_close(&trainer);
    return loss;
}

static double output_of(const float w[2], int row)
{
    return (double)w[0] * (double)numbers[2 * row] + (double)w[1] * (double)numbers[2 * row + 1];
}

static void test_task_of_ones_own(void **state)
{
    BY_UNUSED(state);
    float w[2];
    double want = 0.0;
    by_config *config = open_config();
    by_trainer_options options = {
        .mode = BY_TRAINER_LOSS, .builder = build_line, .task = &line_task};
    double loss = loss_of(&options, config, w);
    for (int i = 0; i < EXAMPLES; i++) {
        double e = output_of(w, i) - (double)targets[i];
        want += e * e;
    }
    assert_true(want > 0.1 && fabs(loss - want) < 1e-5 * want);
    by_config_close(&config);
}

/* What evaluation reads comes back through pinned memory: from a device whose memory the host
 * cannot read, and which runs nothing before it must. */
static void test_evaluated_values(void **state)
{
    BY_UNUSED(state);
    by_config *config = open_config();
    for (uint64_t seed = 0; seed <= 8; seed++) {
        by_error error = {0};
        by_device *device = NULL; /* the CPU first */
        by_trainer *trainer;
        by_array arrays[2];
        if (seed > 0) {
            check_ok(late_device_open(&device, seed, 2, &error), &error);
        }
        by_trainer_options options = {.builder = build_line, .task = &line_task, .device = device};
        check_ok(by_trainer_open(&trainer, config, &options, &error), &error);
        check_ok(by_trainer_allocate(trainer, &error), &error);
        check_ok(by_trainer_initialize(trainer, &error), &error);
        by_batch batch = batch_of(arrays);
        float w[2];
        check_ok(by_trainer_read(trainer, BY_TRAINER_PARAMETER, 0, 0, w, &error), &error);
        for (int again = 0; again < 2; again++) {
            const float *values;
            size_t width;
            double sum;
            check_ok(by_trainer_evaluate(trainer, &batch, &sum, &values, &width, &error), &error);
            assert_int_equal(width, 1);
            for (int i = 0; i < EXAMPLES; i++) {
                assert_true(fabs((double)values[i] - output_of(w, i)) < 1e-6);
            }
        }
        by_trainer_close(&trainer);
        if (device != NULL) {
            assert_string_equal(late_device_fault(device), "");
        }
        by_device_close(&device);
    }
    by_config_close(&config);
}

static void test_loss_of_a_model_is_kept(void **state)
{
    BY_UNUSED(state);
    float w[2];
    int mark = 0;
    double want = 0.0;
    by_config *config = open_config();
    by_trainer_options options = {
        .mode = BY_TRAINER_LOSS, .builder = build_line, .user = &mark, .task = &line_task};
    double loss = loss_of(&options, config, w);
    for (int i = 0; i < EXAMPLES; i++) {
        want += output_of(w, i);
    }
    assert_true(fabs(loss - want) < 1e-5);
    by_config_close(&config);
}

static void test_language_needs_tokens(void **state)
{
    BY_UNUSED(state);
    by_trainer *trainer;
    by_error error = {0};
    by_config *config = open_config();
    by_trainer_options options = {.mode = BY_TRAINER_LOSS, .builder = build_line};
    assert_int_equal(by_trainer_open(&trainer, config, &options, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "needs a model of tokens"));
    by_config_close(&config);
}

/* ---- metrics: the numbers are NumPy's ---- */

static const by_task *task_named(const char *name)
{
    by_error error = {0};
    const by_task *task;
    by_config *config = open_config();
    char set[64];
    (void)snprintf(set, sizeof set, "task.kind=%s", name);
    check_ok(by_config_set(config, set, &error), &error);
    check_ok(by_task_find(&task, config, &error), &error);
    by_config_close(&config);
    return task;
}

/* Sums of a task, each of one value for data of one target. */
typedef struct few_sums {
    double values[8];
    double *each[8];
} few_sums;

static void clear_sums(few_sums *s, const by_task *task)
{
    assert_true(task->sum_count <= BY_ARRAY_LENGTH(s->values));
    for (size_t i = 0; i < task->sum_count; i++) {
        assert_non_null(task->sums[i].name);
        s->values[i] = 0.0;
        s->each[i] = &s->values[i];
    }
}

static void make_metrics(const by_task_data *data, const few_sums *s, by_evaluation *e)
{
    by_task_metrics(data, (const double *const *)s->each, e);
}

static void check_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * fmax(1.0, fabs(b)));
}

/* Equal logits: the lower class wins. Examples with a negative label only fill up a batch. */
static void test_accuracy(void **state)
{
    BY_UNUSED(state);
    enum { CLASSES = 7 };
    static const float logits[5 * CLASSES] = {0, 1, 2, 3, 4, 5, 6,  /* 6: first */
                                              6, 5, 4, 3, 2, 1, 0,  /* 4: fifth */
                                              6, 5, 4, 3, 2, 1, 0,  /* 5: sixth */
                                              1, 1, 1, 1, 1, 1, 1,  /* 0: first of equals */
                                              9, 9, 9, 9, 9, 9, 9}; /* not counted */
    static const int32_t labels[5] = {6, 4, 5, 0, -1};
    const by_array array = {"labels", BY_I32, BY_SHAPE(5), labels};
    const by_batch batch = {.arrays = &array, .array_count = 1, .batch = 5};
    const by_task *task = task_named("classify");
    few_sums sums;
    by_evaluation e = {.task = task};
    clear_sums(&sums, task);
    assert_string_equal(task->metrics[0].name, "accuracy");
    assert_string_equal(task->metrics[1].name, "top5");
    task->measure(NULL, sums.each, &batch, logits, CLASSES);
    make_metrics(NULL, &sums, &e);
    check_near(e.metrics[0], 0.5);
    check_near(e.metrics[1], 0.75);
    /* The same label is not first when it is the higher of two equals. */
    static const int32_t higher[1] = {3};
    const by_array one = {"labels", BY_I32, BY_SHAPE(1), higher};
    const by_batch last = {.arrays = &one, .array_count = 1, .batch = 1};
    task->measure(NULL, sums.each, &last, logits + 3 * CLASSES, CLASSES);
    make_metrics(NULL, &sums, &e);
    check_near(e.metrics[0], 0.4);
    check_near(e.metrics[1], 0.8);
    /* Five classes or fewer have no top 5. */
    clear_sums(&sums, task);
    task->measure(NULL, sums.each, &last, logits, 5);
    make_metrics(NULL, &sums, &e);
    assert_true(isnan(e.metrics[1]));
}

/* y = 10, 20, 30, 60 are the training part: mean 30, deviation sqrt(350). Held out: 40, 0, 50,
 * predicted as 41, -3, 45. */
static void test_regression_metrics(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    static const char text[] = "x,y\n1,10\n2,20\n3,30\n4,60\n5,40\n6,0\n7,50\n";
    char path[] = "/tmp/banyan-metrics-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    (void)close(file);
    by_config *config = open_config();
    char set[2][96];
    (void)snprintf(set[0], sizeof set[0], "data.table=%s", path);
    const char *const settings[] = {"task.kind=regress", set[0], "data.target=y",
                                    "data.valid_fraction=0.42", "model.kind=mlp"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    by_task_data *data;
    const by_task_request request = {.config = config};
    check_ok(by_task_open(&data, NULL, &request, &error), &error);
    assert_int_equal(data->train_examples, 4);
    assert_int_equal(data->valid_examples, 3);
    const double deviation = sqrt(350.0);
    const double y[4] = {40, 0, 50, 777};
    const double predicted[4] = {41, -3, 45, 0};
    static const float weight[4] = {1, 1, 1, 0};
    float scaled[4];
    float values[4];
    for (int i = 0; i < 4; i++) {
        scaled[i] = (float)((y[i] - 30.0) / deviation);
        values[i] = (float)((predicted[i] - 30.0) / deviation);
    }
    const by_array columns[] = {{"targets", BY_F32, BY_SHAPE(4), scaled},
                                {"weight", BY_F32, BY_SHAPE(4), weight}};
    const by_batch batch = {.arrays = columns, .array_count = 2, .batch = 4};
    few_sums sums;
    by_evaluation e = {.task = data->task};
    clear_sums(&sums, data->task);
    data->task->measure(data, sums.each, &batch, values, 1);
    make_metrics(data, &sums, &e);
    assert_true(fabs(e.metrics[0] - 3.415650255319866) < 1e-5); /* sqrt((1 + 9 + 25) / 3) */
    assert_true(fabs(e.metrics[1] - 3.0) < 1e-5);
    assert_true(fabs(e.metrics[2] - 0.975) < 1e-6); /* 1 - 35 / 1400 */
    by_task_close(&data);
    by_config_close(&config);
    (void)unlink(path);
}

/* The same of two targets, z = 100 + 2 y and y, of which the metrics are those of each alone and
 * their means. */
static void test_metrics_of_targets(void **state)
{
    static const char text[] = "x,y,z\n1,10,120\n2,20,140\n3,30,160\n4,60,220\n5,40,180\n6,0,100\n"
                               "7,50,200\n";
    static const char *const names[] = {"rmse_z", "rmse_y", "mae_z", "mae_y", "r2_z", "r2_y"};
    const double y[3] = {40, 0, 50};
    const double predicted[2][3] = {{177, 106, 200}, {41, -3, 45}}; /* of z and of y */
    const double want[] = {sqrt((9 + 36) / 3.0), sqrt(35 / 3.0), 3.0, 3.0,
                           1 - 45 / 5600.0,      1 - 35 / 1400.0};
    BY_UNUSED(state);
    by_error error = {0};
    char path[] = "/tmp/banyan-metrics-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    (void)close(file);
    by_config *config;
    char set[96];
    (void)snprintf(set, sizeof set, "data.table=%s", path);
    const char *const settings[] = {"task.kind=regress", set, "data.target=[z, y]",
                                    "data.valid_fraction=0.42", "model.kind=mlp"};
    check_ok(by_config_parse(&config, "t.yaml", "", 0, settings, BY_ARRAY_LENGTH(settings), &error),
             &error);
    by_task_data *data;
    const by_task_request request = {.config = config};
    check_ok(by_task_open(&data, NULL, &request, &error), &error);
    check_ok(by_task_complete(data, config, &error), &error);
    assert_int_equal(config->model.outputs, 2);
    const double deviation = sqrt(350.0);
    static const float weight[4] = {1, 1, 1, 0};
    float scaled[8] = {0};
    float values[8] = {0};
    for (size_t i = 0; i < 3; i++) {
        scaled[2 * i] = scaled[2 * i + 1] = (float)((y[i] - 30.0) / deviation);
        values[2 * i] = (float)((predicted[0][i] - 160.0) / (2.0 * deviation));
        values[2 * i + 1] = (float)((predicted[1][i] - 30.0) / deviation);
    }
    const by_array columns[] = {{"targets", BY_F32, BY_SHAPE(4, 2), scaled},
                                {"weight", BY_F32, BY_SHAPE(4), weight}};
    const by_batch batch = {.arrays = columns, .array_count = 2, .batch = 4};
    double cells[5][2] = {{0}};
    double *sums[5] = {cells[0], cells[1], cells[2], cells[3], cells[4]};
    by_evaluation e = {.task = data->task};
    data->task->measure(data, sums, &batch, values, 2);
    by_task_metrics(data, (const double *const *)sums, &e);
    assert_int_equal(e.output_metric_count, BY_ARRAY_LENGTH(names));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        assert_string_equal(e.output_metrics[i].name, names[i]);
        assert_true(fabs(e.output_metrics[i].value - want[i]) < 1e-5);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(e.metrics[i] - (want[2 * i] + want[2 * i + 1]) / 2.0) < 1e-5);
    }
    by_task_close(&data);
    by_config_close(&config);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_of_ones_own),
        cmocka_unit_test(test_evaluated_values),
        cmocka_unit_test(test_loss_of_a_model_is_kept),
        cmocka_unit_test(test_language_needs_tokens),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_regression_metrics),
        cmocka_unit_test(test_metrics_of_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
