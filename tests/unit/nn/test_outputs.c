/* Outputs of a model by name: those that a builder registers, and the one that a config chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/trainer.h"
#include "runner.h"

/* Two heads on one input: twice and three times it. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(config);
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(request->batch, 1));
    by_init one = {.kind = BY_INIT_ONE};
    by_value w = by_graph_parameter(graph, "w", "out in", BY_SHAPE(1, 1), one);
    by_value y = by_linear(graph, x, w, BY_NONE, true);
    out->output = by_add(graph, y, y);
    by_model_register(out, graph, "triple", by_add(graph, out->output, y));
    return by_graph_check(graph, error);
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    by_value triple;
    BY_UNUSED(config);
    BY_TRY(by_model_find_output(&triple, model, "triple", error));
    by_value zeros = by_fill(graph, BY_F32, BY_SHAPE(request->batch, 1), 0.0f);
    model->loss = by_squared_error(graph, model->output, zeros, BY_NONE);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

static const by_task task = {.name = "squares", .examples = "numbers", .loss = loss};

static by_config *open_config(const char *output)
{
    static const char *const common[] = {"precision.compute=f32", "train.batch=2",
                                         "train.threads=1", NULL};
    const char *const settings[] = {output, NULL};
    return config_of(common, settings);
}

static void check_values(const char *output, float first, float second, double sum)
{
    static const float x[2] = {1, -2};
    const by_array array = {"x", BY_F32, BY_SHAPE(2, 1), x};
    const by_batch batch = {
        .arrays = &array, .array_count = 1, .batch = 2, .valid_targets = 2, .global_targets = 2};
    by_trainer *trainer;
    by_error error = {0};
    double got;
    const float *values;
    size_t width;
    by_config *config = open_config(output);
    const by_trainer_options options = {.mode = BY_TRAINER_LOSS, .builder = build, .task = &task};
    check_ok(by_trainer_open(&trainer, config, &options, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    check_ok(by_trainer_evaluate(trainer, &batch, &got, &values, &width, &error), &error);
    assert_true(values[0] == first && values[1] == second && got == sum);
    by_trainer_close(&trainer);
    by_config_close(&config);
}

static void test_chosen(void **state)
{
    BY_UNUSED(state);
    check_values("model.output=", 2, -4, 20);
    check_values("model.output=output", 2, -4, 20);
    check_values("model.output=triple", 3, -6, 45);
}

static void test_unknown(void **state)
{
    by_trainer *trainer;
    by_error error = {0};
    by_config *config = open_config("model.output=twice");
    const by_trainer_options options = {.mode = BY_TRAINER_LOSS, .builder = build, .task = &task};
    BY_UNUSED(state);
    check_error(by_trainer_open(&trainer, config, &options, &error), BY_ECONFIG, &error,
                "model.output: the model has no output 'twice'; it has output, triple");
    by_config_close(&config);
}

/* What the heads of built-in models read. */
static void test_features(void **state)
{
    static const char *const kinds[][6] = {
        {"model.kind=mlp", "model.hidden=[16]", "model.numbers=4", NULL},
        {"model.kind=vit", "model.patch=4", "model.channels=1", "model.image_height=8",
         "model.image_width=8", NULL}};
    static const char *const common[] = {"task.kind=classify", "model.outputs=3", NULL};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        by_graph *graph = open_graph();
        by_model model;
        by_error error = {0};
        by_config *config = config_of(common, kinds[i]);
        check_ok(by_config_set(config, "model.output=features", &error), &error);
        const by_model_request request = {.mode = BY_MODEL_LOSS, .batch = 2};
        check_ok(by_model_build(&model, graph, &config->model, &request, &error), &error);
        assert_int_equal(model.named_count, 1);
        assert_int_equal(graph->values[model.output].shape.dim[1],
                         graph->values[model.named[0].value].shape.dim[1]);
        assert_true(model.output == model.named[0].value);
        by_config_close(&config);
        by_graph_close(&graph);
    }
}

/* Pictures that are too small for a family: the error tells the least size, which builds, and one
 * less does not. */
static void test_small_pictures(void **state)
{
    static const char *const kinds[] = {"model.kind=efficientnet", "model.kind=convnext",
                                        "model.kind=mobilenet_v2"};
    static const char *const common[] = {"task.kind=classify", "model.outputs=3",
                                         "model.channels=3", NULL};
    BY_UNUSED(state);
    size_t refused = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        long long least = 0;
        for (long long side = 7; side >= 0;) {
            const char *const own[] = {kinds[i], NULL};
            char size[2][40];
            by_graph *graph = open_graph();
            by_model model;
            by_error error = {0};
            by_config *config = config_of(common, own);
            (void)snprintf(size[0], sizeof size[0], "model.image_height=%lld", side);
            (void)snprintf(size[1], sizeof size[1], "model.image_width=%lld", side);
            check_ok(by_config_set(config, size[0], &error), &error);
            check_ok(by_config_set(config, size[1], &error), &error);
            const by_model_request request = {.mode = BY_MODEL_LOSS, .batch = 1};
            by_status status = by_model_build(&model, graph, &config->model, &request, &error);
            const char *told = status == BY_OK ? NULL : strstr(error.message, "which takes ");
            assert_int_equal(status == BY_OK, side == least || (side == 7 && least == 0 && !told));
            if (told != NULL) {
                long long found;
                assert_int_equal(sscanf(told, "which takes %lld x", &found), 1);
                assert_true(found > side && (least == 0 || found == least));
                refused += least == 0;
                /* First the size that was told, then one less. */
                side = least == 0 ? found : -1;
                least = found;
            } else {
                side = side == least ? least - 1 : -1;
            }
            by_config_close(&config);
            by_graph_close(&graph);
        }
    }
    assert_true(refused > 0);
}

static void test_refused(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    by_error error = {0};
    BY_UNUSED(state);
    for (int twice = 0; twice < 2; twice++) {
        by_graph *graph = open_graph();
        by_model model = BY_MODEL_NONE;
        by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(1));
        for (size_t i = 0; i < (twice ? 2 : BY_ARRAY_LENGTH(names)); i++) {
            by_model_register(&model, graph, names[twice ? 0 : i], x);
        }
        check_error(by_graph_check(graph, &error), BY_EARG, &error,
                    twice ? "the model has an output 'a' already"
                          : "output 'i': a model registers at most 8");
        by_graph_close(&graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),   cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_features), cmocka_unit_test(test_small_pictures),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
