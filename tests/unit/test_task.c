/* Tasks: who adds the loss to a model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "runner.h"
#include "train/train.h"

#define EXAMPLES 4

static by_config *open_config(void)
{
    by_config *config;
    by_error error = {0};
    check_ok(by_config_default(&config, &error), &error);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_of_ones_own),
        cmocka_unit_test(test_loss_of_a_model_is_kept),
        cmocka_unit_test(test_language_needs_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
