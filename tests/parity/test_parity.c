/* The model families against PyTorch: logits, loss, every gradient, and 20 AdamW steps from the
 * same weights, and gpt2 with 20 SGD steps (golden files made by make_golden.py). Bounds: logits
 * and losses 1e-4 absolute, gradients and final weights 1e-4 relative in the Euclidean norm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "checkpoint/storage.h"
#include "runner.h"
#include "tasks/tasks.h"
#include "trainer/state/train.h"

#define BOUND 1e-4

extern const by__task_row by__task_masked;
extern const by__task_row by__task_nodes;

/* What is compared: a golden file, the model it is of, and the arrays of its batches. */
typedef struct model_case {
    const char *golden;
    const by_task *task;         /* NULL: language */
    const char *const *settings; /* of a config, in addition to those of all cases */
    size_t setting_count;
    const char *arrays[5];
} model_case;

typedef struct golden {
    const model_case *of;
    by_weights *file;
    by_config *config;
    by_trainer *trainer;
    char directory[64];
} golden;

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static by_tensor_view tensor(const golden *g, const char *format, const char *name)
{
    char full[320];
    by_error error = {0};
    by_tensor_view view;
    (void)snprintf(full, sizeof full, format, name);
    check(by_weights_tensor(g->file, full, &view, &error), &error);
    return view;
}

/* ||a - b|| / ||b||, in double. */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

/* NaN where one of the differences is. */
static double largest_difference(const float *a, const float *b, size_t count)
{
    double most = 0.0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (isnan(difference)) {
            return difference;
        }
        most = difference > most ? difference : most;
    }
    return most;
}

/* Values "PREFIX.NAME" of the file for a parameter; experts are a tensor each there, and one here.
 * Freed with free(). */
static float *values_of(const golden *g, const char *prefix, const by_tensor_view *parameter)
{
    by_error error = {0};
    size_t count;
    size_t done = 0;
    bool stacked = by__checkpoint_name_is_stacked(parameter->name);
    check(by_tensor_size(parameter, &count, NULL, &error), &error);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (int64_t part = 0; part < (stacked ? parameter->shape[0] : 1); part++) {
        char name[256];
        char full[300];
        by_tensor_view view = *parameter;
        if (stacked) {
            (void)by__checkpoint_stacked_part(&view, name, sizeof name, part);
        }
        (void)snprintf(full, sizeof full, "%s.%s", prefix, view.name);
        by_tensor_view from = tensor(g, "%s", full);
        size_t size;
        check(by_tensor_size(&from, &size, NULL, &error), &error);
        assert_true(done + size <= count);
        memcpy(values + done, from.data, size * sizeof *values);
        done += size;
    }
    assert_int_equal(done, count);
    return values;
}

/* Starting weights as a file under the model's own names. */
static void load_start(golden *g)
{
    by_error error = {0};
    by_weights *weights;
    size_t count = 0;
    by_tensor_view *views = calloc(by_weights_count(g->file), sizeof *views);
    assert_non_null(views);
    for (size_t i = 0; i < by_weights_count(g->file); i++) {
        const char *name = by_weights_name(g->file, i);
        if (strncmp(name, "weights.", 8) == 0) {
            views[count] = tensor(g, "%s", name);
            views[count++].name = name + 8;
        }
    }
    check(by_weights_write(g->directory, views, count, 0, &error), &error);
    check(by_weights_open(&weights, g->directory, &error), &error);
    check(by_trainer_load_weights(g->trainer, weights, &error), &error);
    by_weights_close(&weights);
    free(views);
}

/* Constants of a model of nodes, in the order of the file; their number. */
static size_t constants_of(const golden *g, by_array *out, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < by_weights_count(g->file); i++) {
        const char *name = by_weights_name(g->file, i);
        if (strncmp(name, "constants.", 10) == 0) {
            by_tensor_view view = tensor(g, "%s", name);
            by_shape shape = {.rank = view.rank};
            memcpy(shape.dim, view.shape, (size_t)view.rank * sizeof *shape.dim);
            assert_true(count < most);
            out[count++] = (by_array){name + 10, view.dtype, shape, view.data};
        }
    }
    return count;
}

static void open_golden(golden *g, const model_case *of)
{
    char path[512];
    by_error error = {0};
    g->of = of;
    (void)snprintf(path, sizeof path, "%s/tests/parity/golden/%s.safetensors", BY_SOURCE_DIR,
                   of->golden);
    check(by_weights_open(&g->file, path, &error), &error);
    check(by_config_default(&g->config, &error), &error);
    check(by_config_set(g->config, "precision.compute=f32", &error), &error);
    static const char *const common[] = {"model.layers=2",     "model.width=32",
                                         "train.batch=3",      "train.steps=20",
                                         "optimizer.lr=1e-3",  "optimizer.schedule=constant",
                                         "optimizer.warmup=0", "optimizer.weight_decay=0.1",
                                         "optimizer.clip=1.0"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check(by_config_set(g->config, common[i], &error), &error);
    }
    for (size_t i = 0; i < of->setting_count; i++) {
        check(by_config_set(g->config, of->settings[i], &error), &error);
    }
    by_trainer_options options = {.task = of->task};
    check(by_config_resolve(g->config, &error), &error);
    check(by_trainer_open(&g->trainer, g->config, &options, &error), &error);
    check(by_trainer_allocate(g->trainer, &error), &error);
    by_array constants[20];
    size_t count = constants_of(g, constants, 20);
    check(by_trainer_set_constants(g->trainer, constants, count, &error), &error);
    strcpy(g->directory, "/tmp/banyan-parity-XXXXXX");
    assert_non_null(mkdtemp(g->directory));
    load_start(g);
}

static void close_golden(golden *g)
{
    by_error error = {0};
    check(by__remove_tree(g->directory, &error), &error);
    by_trainer_close(&g->trainer);
    by_config_close(&g->config);
    by_weights_close(&g->file);
}

/* A batch, copied because mapped tensors need not be aligned. */
typedef struct memory {
    by_array arrays[5];
    int32_t data[5][3840];
} memory;

/* The targets that count: those of an i32 array that are not negative, else all. */
static uint64_t count_targets(const by_array *targets)
{
    uint64_t count = 0;
    for (int64_t i = 0; i < by_shape_count(&targets->shape); i++) {
        count += targets->dtype != BY_I32 || ((const int32_t *)targets->data)[i] >= 0;
    }
    return count;
}

/* Batch `step` of the golden file, or its first one when `step` is -1. The last array of a case
 * holds the targets, or a weight for each. */
static by_batch batch_of(const golden *g, int64_t step, memory *m)
{
    size_t count = 0;
    for (; count < 5 && g->of->arrays[count] != NULL; count++) {
        by_tensor_view all = tensor(g, step < 0 ? "%s" : "steps.%s", g->of->arrays[count]);
        int skipped = step < 0 ? 0 : 1;
        by_shape shape = {.rank = all.rank - skipped};
        for (int i = 0; i < shape.rank; i++) {
            shape.dim[i] = all.shape[i + skipped];
        }
        size_t bytes = (size_t)by_shape_count(&shape) * sizeof(int32_t);
        assert_true(bytes <= sizeof m->data[count]);
        memcpy(m->data[count], (const char *)all.data + bytes * (size_t)(step < 0 ? 0 : step),
               bytes);
        m->arrays[count] = (by_array){g->of->arrays[count], all.dtype, shape, m->data[count]};
    }
    uint64_t targets = count_targets(&m->arrays[count - 1]);
    return (by_batch){.arrays = m->arrays,
                      .array_count = count,
                      .batch = 3,
                      .valid_targets = targets,
                      .global_targets = targets};
}

/* Running statistics have no gradient. */
static bool is_statistic(const char *name)
{
    return strstr(name, ".running_") != NULL;
}

/* A constant added to all keys changes no attention: the gradient of the key bias of vit, bert
 * and patchtst is zero, and what rounding leaves is noise. */
static bool is_noise(const char *name)
{
    return strstr(name, ".key.bias") != NULL || strstr(name, ".self_attn.k_proj.bias") != NULL ||
           strstr(name, ".to_k.bias") != NULL;
}

static void compare_gradients(const golden *g, double bound)
{
    for (size_t i = 0; i < by_trainer_parameter_count(g->trainer); i++) {
        by_tensor_view have = by_trainer_gradient(g->trainer, i);
        if (is_statistic(have.name)) {
            continue;
        }
        float *want = values_of(g, "grad", &have);
        size_t count;
        by_error error = {0};
        check(by_tensor_size(&have, &count, NULL, &error), &error);
        double d = is_noise(have.name) ? largest_difference(have.data, want, count)
                                       : distance(have.data, want, count);
        free(want);
        if (!(d <= bound)) {
            fail_msg("gradient of %s: relative distance %g", have.name, d);
        }
    }
}

/* The part of the final weights that is determined: the key third of gpt2's and of dit's attention
 * bias has an exactly zero gradient too. */
static size_t compared_part(const char *name, size_t count, float *have, float *want)
{
    if (strstr(name, "c_attn.bias") == NULL && strstr(name, "attn.qkv.bias") == NULL) {
        return is_noise(name) ? 0 : count;
    }
    size_t third = count / 3;
    memmove(have + third, have + 2 * third, third * sizeof *have);
    memmove(want + third, want + 2 * third, third * sizeof *want);
    return 2 * third;
}

static void compare_weights(const golden *g)
{
    for (size_t i = 0; i < by_trainer_parameter_count(g->trainer); i++) {
        by_tensor_view have = by_trainer_parameter(g->trainer, i);
        size_t count;
        by_error error = {0};
        check(by_tensor_size(&have, &count, NULL, &error), &error);
        float *a = malloc(count * sizeof *a);
        float *b = values_of(g, "final", &have);
        assert_non_null(a);
        memcpy(a, have.data, count * sizeof *a);
        double d = distance(a, b, compared_part(have.name, count, a, b));
        free(a);
        free(b);
        if (!(d <= BOUND)) {
            fail_msg("weights of %s after 20 steps: relative distance %g", have.name, d);
        }
    }
}

static void compare_logits(const golden *g)
{
    by_error error = {0};
    by_graph *graph;
    by_model model;
    memory m;
    bool tokens = strcmp(by_model_reads(&g->config->model), "tokens") == 0;
    by_model_request request = {
        .mode = tokens ? BY_MODEL_LOGITS : BY_MODEL_LOSS, .batch = 3, .time = 16};
    runner r;
    check(by_graph_open(&graph, &error), &error);
    check(by_model_build(&model, graph, &g->config->model, &request, &error), &error);
    if (!tokens) {
        by_graph_output(graph, model.output, "logits");
    }
    check(by_pass_fuse(graph, &error), &error);
    runner_open(&r, graph, 1);
    by_batch batch = batch_of(g, -1, &m);
    for (size_t i = 0; i + 1 < batch.array_count; i++) {
        if (by_graph_find(graph, m.arrays[i].name) != BY_NONE) { /* none of the loss's */
            memcpy(runner_data(&r, m.arrays[i].name), m.data[i],
                   runner_count(&r, m.arrays[i].name) * sizeof(int32_t));
        }
    }
    by_array constants[20];
    for (size_t i = constants_of(g, constants, 20); i-- > 0;) {
        if (by_graph_find(graph, constants[i].name) != BY_NONE) {
            memcpy(runner_data(&r, constants[i].name), constants[i].data,
                   runner_count(&r, constants[i].name) * sizeof(int32_t));
        }
    }
    for (size_t i = 0; i < by_trainer_parameter_count(g->trainer); i++) {
        by_tensor_view p = by_trainer_parameter(g->trainer, i);
        memcpy(runner_data(&r, p.name), p.data, runner_count(&r, p.name) * sizeof(float));
    }
    runner_run(&r);
    by_tensor_view want = tensor(g, "%s", "logits");
    size_t count;
    check(by_tensor_size(&want, &count, NULL, &error), &error);
    assert_int_equal(runner_count(&r, "logits"), count);
    double most = largest_difference(runner_data(&r, "logits"), want.data, count);
    if (!(most <= BOUND)) {
        fail_msg("logits differ by %g", most);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

/* 20 steps from the file's weights. */
static void compare_steps(const golden *g)
{
    by_error error = {0};
    memory m;
    for (int step = 0; step < 20; step++) {
        by_step_result result;
        by_batch batch = batch_of(g, step, &m);
        check(by_trainer_step(g->trainer, &batch, &result, &error), &error);
        float want_loss = ((const float *)tensor(g, "%s", "losses").data)[step];
        float want_norm = ((const float *)tensor(g, "%s", "norms").data)[step];
        if (!(fabs(result.loss - (double)want_loss) <= BOUND) ||
            !(fabs(result.norm - (double)want_norm) <= BOUND * (double)want_norm)) {
            fail_msg("step %d: loss %.7f (PyTorch %.7f), norm %.7f (%.7f)", step, result.loss,
                     (double)want_loss, result.norm, (double)want_norm);
        }
    }
    compare_weights(g);
}

static void compare_all(const model_case *of)
{
    golden g = {0};
    by_error error = {0};
    memory m;
    double loss;
    open_golden(&g, of);
    compare_logits(&g);
    by_batch batch = batch_of(&g, -1, &m);
    check(by_trainer_gradients(g.trainer, &batch, &loss, &error), &error);
    double want = (double)*(const float *)tensor(&g, "%s", "loss").data;
    if (!(fabs(loss - want) <= BOUND)) {
        fail_msg("loss %.7f, not %.7f", loss, want);
    }
    compare_gradients(&g, BOUND);
    compare_steps(&g);
    close_golden(&g);
}

#define CASE(golden_of, task_of, settings_of, ...)                                                 \
    (&(const model_case){                                                                          \
        golden_of, task_of, settings_of, BY_ARRAY_LENGTH(settings_of), {__VA_ARGS__}})
#define LANGUAGE "model.heads=4", "model.context=16", "model.vocab=67"

static void test_gpt2(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", LANGUAGE};
    compare_all(CASE("gpt2", NULL, settings, "tokens", "targets"));
}

static void test_gpt2_sgd(void **state)
{
    BY_UNUSED(state);
    golden g = {0};
    static const char *const settings[] = {"model.kind=gpt2",         "optimizer.kind=sgd",
                                           "optimizer.lr=0.05",       "optimizer.momentum=0.9",
                                           "optimizer.nesterov=true", LANGUAGE};
    open_golden(&g, CASE("gpt2_sgd", NULL, settings, "tokens", "targets"));
    compare_steps(&g);
    close_golden(&g);
}

static void test_gpt2_accumulated(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", "train.micro_batch=1", LANGUAGE};
    compare_all(CASE("gpt2", NULL, settings, "tokens", "targets"));
}

static void test_gpt2_recomputed(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", "memory.recompute=block", LANGUAGE};
    compare_all(CASE("gpt2", NULL, settings, "tokens", "targets"));
}

static void test_llama_tied(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.tied=true", LANGUAGE};
    compare_all(CASE("llama_tied", NULL, settings, "tokens", "targets"));
}

static void test_llama_grouped(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama",
                                           "model.mlp_width=88",
                                           "model.tied=false",
                                           "model.kv_heads=2",
                                           "model.norm_eps=1e-6",
                                           "model.rope_theta=500000",
                                           LANGUAGE};
    compare_all(CASE("llama_gqa", NULL, settings, "tokens", "targets"));
}

static void test_llama_window(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=llama", "model.mlp_width=88",
                                           "model.tied=false", "model.kv_heads=2",
                                           "model.window=5",   LANGUAGE};
    compare_all(CASE("llama_window", NULL, settings, "tokens", "targets"));
}

/* A router's choice is stable here: two equal logits, or ones as near as rounding, would be chosen
 * between by chance. The coefficient makes the routers' loss a third of their gradient. */
#define MIXTRAL                                                                                    \
    "model.kind=mixtral", "model.mlp_width=24", "model.kv_heads=2", "model.experts=6",             \
        "model.router_aux_loss_coef=0.5"

static void test_mixtral(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {MIXTRAL, LANGUAGE};
    compare_all(CASE("mixtral", NULL, settings, "tokens", "targets"));
}

static void test_mixtral_recomputed(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {MIXTRAL, LANGUAGE, "memory.recompute=block"};
    compare_all(CASE("mixtral", NULL, settings, "tokens", "targets"));
}

/* Room for all is no limit, though rows are laid out with gaps. */
static void test_mixtral_with_capacity(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {MIXTRAL, LANGUAGE, "model.capacity_factor=2.9"};
    compare_all(CASE("mixtral", NULL, settings, "tokens", "targets"));
}

/* ---- models that deliver an output, with the losses of classes and of numbers ---- */

static by_status labels_loss(const by_config *config, const by_model_request *request,
                             by_graph *graph, by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value labels = by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch));
    model->loss = by_cross_entropy(graph, model->output, labels, 0.0f);
    return BY_OK;
}

static by_status pixels_loss(const by_config *config, const by_model_request *request,
                             by_graph *graph, by_model *model, by_error *error)
{
    BY_UNUSED(error);
    by_value labels = by_graph_input(
        graph, "labels", BY_I32,
        BY_SHAPE(request->batch, config->model.image_height, config->model.image_width));
    model->loss = by_cross_entropy(graph, model->output, labels, 0.0f);
    return BY_OK;
}

static by_status targets_loss(const by_config *config, const by_model_request *request,
                              by_graph *graph, by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value targets = by_graph_input(graph, "targets", BY_F32, BY_SHAPE(request->batch));
    targets = by_reshape(graph, targets, BY_SHAPE(request->batch, 1));
    model->loss = by_squared_error(graph, model->output, targets, BY_NONE);
    return BY_OK;
}

static const by_task classes = {.name = "classes", .examples = "images", .loss = labels_loss};
static const by_task maps = {.name = "maps", .examples = "images", .loss = pixels_loss};

static by_status forecast_loss(const by_config *config, const by_model_request *request,
                               by_graph *graph, by_model *model, by_error *error)
{
    by_shape shape = BY_SHAPE(request->batch, config->model.outputs, config->model.channels);
    by_value targets = by_graph_input(graph, "targets", BY_F32, shape);
    BY_UNUSED(error);
    model->loss = by_squared_error(graph, model->output, targets, BY_NONE);
    return BY_OK;
}

static const by_task values = {.name = "values", .examples = "rows", .loss = targets_loss};
static const by_task forecasts = {
    .name = "forecasts", .examples = "windows", .loss = forecast_loss};

static void test_bert(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=bert", LANGUAGE, "model.mlp_width=64"};
    compare_all(CASE("bert", &by__task_masked.task, settings, "tokens", "targets"));
}

static void test_bert_accumulated_and_recomputed(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=bert", LANGUAGE, "model.mlp_width=64",
                                           "train.micro_batch=1", "memory.recompute=block"};
    compare_all(CASE("bert", &by__task_masked.task, settings, "tokens", "targets"));
}

/* Kinds of parts that families were not published with. */
#define SMALL                                                                                      \
    LANGUAGE, "model.width=16", "model.mlp_width=24", "optimizer.kind=sgd", "optimizer.lr=0.05",   \
        "optimizer.momentum=0.9", "optimizer.nesterov=true"

static void test_kinds_of_decoders(void **state)
{
    BY_UNUSED(state);
    static const char *const alibi[] = {"model.kind=gpt2",      SMALL,
                                        "attention.kind=alibi", "norm.kind=rms",
                                        "mlp.kind=gated",       "activation.kind=gelu"};
    static const char *const rope[] = {"model.kind=gpt2",      SMALL,
                                       "attention.kind=mixed", "attention.pattern=[window, none]",
                                       "attention.window=5",   "position.kind=rope",
                                       "position.theta=100",   "activation.kind=relu2"};
    static const char *const sinusoidal[] = {"model.kind=gpt2",
                                             SMALL,
                                             "attention.kind=local_global",
                                             "attention.window=6",
                                             "mlp.kind=gated",
                                             "position.kind=sinusoidal",
                                             "activation.kind=silu",
                                             "memory.recompute=block"};
    static const char *const linear[] = {"model.kind=gpt2", SMALL, "attention.kind=linear",
                                         "position.kind=rope"};
    static const char *const llama[] = {"model.kind=llama",
                                        SMALL,
                                        "model.kv_heads=2",
                                        "model.tied=false",
                                        "attention.kind=local_global",
                                        "attention.window=4",
                                        "position.kind=learned",
                                        "norm.kind=layer",
                                        "mlp.kind=plain",
                                        "activation.kind=tanh"};
    static const char *const streams[] = {"model.kind=llama",
                                          SMALL,
                                          "model.layers=3",
                                          "model.kv_heads=2",
                                          "model.tied=false",
                                          "attention.kind=mixed",
                                          "attention.pattern=[window, full, full]",
                                          "attention.window=5",
                                          "mlp.kind=plain",
                                          "activation.kind=relu2",
                                          "values.kind=embedded",
                                          "values.gate_inputs=5",
                                          "residual.kind=mixed"};
    compare_all(CASE("gpt2_alibi", NULL, alibi, "tokens", "targets"));
    compare_all(CASE("gpt2_rope", NULL, rope, "tokens", "targets"));
    compare_all(CASE("gpt2_sinusoidal", NULL, sinusoidal, "tokens", "targets"));
    compare_all(CASE("gpt2_linear", NULL, linear, "tokens", "targets"));
    compare_all(CASE("llama_kinds", NULL, llama, "tokens", "targets"));
    compare_all(CASE("llama_streams", NULL, streams, "tokens", "targets"));
}

static void test_kinds_of_encoders(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=bert",     SMALL,
        "model.norm_eps=1e-5", "attention.kind=mixed",
        "attention.window=4",  "attention.pattern=[window, alibi, linear]",
        "model.layers=3",      "position.kind=rope",
        "mlp.kind=gated"};
    compare_all(CASE("bert_kinds", &by__task_masked.task, settings, "tokens", "targets"));
}

#define VIT                                                                                        \
    "model.kind=vit", "model.heads=4", "model.mlp_width=64", "model.patch=4", "model.outputs=7",   \
        "model.channels=3", "model.image_height=12", "model.image_width=12"

static void test_vit(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {VIT};
    compare_all(CASE("vit", &classes, settings, "images", "labels"));
}

static void test_vit_accumulated_and_recomputed(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {VIT, "train.micro_batch=1", "memory.recompute=block"};
    compare_all(CASE("vit", &classes, settings, "images", "labels"));
}

#define RESNET                                                                                     \
    "model.kind=resnet", "model.width=8", "model.outputs=7", "model.channels=1",                   \
        "model.image_height=32", "model.image_width=32"

static void test_resnet(void **state)
{
    BY_UNUSED(state);
    static const char *const basic[] = {RESNET, "model.depths=[1, 2]", "model.widths=[8, 12]"};
    static const char *const bottleneck[] = {RESNET,
                                             "model.block=bottleneck",
                                             "model.depths=[2, 1]",
                                             "model.widths=[16, 24]",
                                             "optimizer.kind=sgd",
                                             "optimizer.lr=0.05",
                                             "optimizer.momentum=0.9",
                                             "optimizer.nesterov=true"};
    compare_all(CASE("resnet_basic", &classes, basic, "images", "labels"));
    compare_all(CASE("resnet_bottleneck", &classes, bottleneck, "images", "labels"));
}

static void test_convnext(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=convnext", "model.depths=[1, 2]",   "model.widths=[8, 16]", "model.outputs=7",
        "model.channels=1",    "model.image_height=32", "model.image_width=32"};
    compare_all(CASE("convnext", &classes, settings, "images", "labels"));
}

static void test_mobilenet_v2(void **state)
{
    BY_UNUSED(state);
    golden g = {0};
    static const char *const settings[] = {"model.kind=mobilenet_v2",
                                           "model.expand_ratio=1",
                                           "model.depth_multiplier=0.05",
                                           "model.outputs=7",
                                           "model.channels=1",
                                           "model.image_height=35",
                                           "model.image_width=35",
                                           "model.finegrained_output=false",
                                           "model.output_stride=8"};
    open_golden(&g, CASE("mobilenet_v2", &classes, settings, "images", "labels"));
    compare_logits(&g);
    close_golden(&g);
}

static void test_efficientnet(void **state)
{
    BY_UNUSED(state);
    golden g = {0};
    static const char *const settings[] = {"model.kind=efficientnet",
                                           "model.width_coefficient=0.1",
                                           "model.depths=[1, 2, 2]",
                                           "model.widths=[16, 80, 120]",
                                           "model.strides=[1, 2, 2]",
                                           "model.kernel_sizes=[3, 5, 3]",
                                           "model.expand_ratios=[1, 2, 3]",
                                           "model.depthwise_padding=[3]",
                                           "model.outputs=7",
                                           "model.channels=1",
                                           "model.image_height=34",
                                           "model.image_width=34"};
    open_golden(&g, CASE("efficientnet", &classes, settings, "images", "labels"));
    compare_logits(&g);
    close_golden(&g);
}

static void test_unet(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=unet",  "model.width=4",         "model.depth=2",       "model.outputs=4",
        "model.channels=1", "model.image_height=16", "model.image_width=16"};
    compare_all(CASE("unet", &maps, settings, "images", "labels"));
}

static void test_unet_group(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=unet",      "model.width=4",      "model.depth=1",
        "model.outputs=3",      "model.channels=1",   "model.image_height=16",
        "model.image_width=16", "model.up=bilinear",  "model.channel_norm=group",
        "model.norm_groups=2",  "train.micro_batch=1"};
    compare_all(CASE("unet_group", &maps, settings, "images", "labels"));
}

static void test_dit(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=dit",       "task.kind=diffuse",  "model.patch=2",    "model.heads=4",
        "model.mlp_width=64",   "model.outputs=3",    "model.channels=2", "model.image_height=8",
        "model.image_width=12", "train.micro_batch=1"};
    compare_all(CASE("dit", NULL, settings, "images", "timesteps", "classes", "targets", "weight"));
}

static void test_unet2d(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=unet2d",  "task.kind=diffuse",        "model.width=8",
        "model.head_width=4", "model.multipliers=[1, 2]", "model.attended=[2]",
        "model.depth=1",      "model.norm_groups=2",      "model.outputs=3",
        "model.channels=2",   "model.image_height=8",     "model.image_width=12",
        "train.micro_batch=1"};
    compare_all(
        CASE("unet2d", NULL, settings, "images", "timesteps", "classes", "targets", "weight"));
}

static void test_mlp_classes(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=mlp",          "model.numbers=5",
                                           "model.categories=[4, 6]", "model.embedding=3",
                                           "model.hidden=[24, 16]",   "model.activation=gelu",
                                           "model.norm=true",         "model.outputs=3"};
    compare_all(CASE("mlp_classes", &classes, settings, "numbers", "categories", "labels"));
}

static void test_mlp_value(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=mlp", "model.numbers=5",
                                           "model.hidden=[24, 16]", "model.outputs=1"};
    compare_all(CASE("mlp_value", &values, settings, "numbers", "targets"));
}

static void test_dlinear(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=dlinear", "model.context=24",
                                           "model.outputs=6", "model.channels=3", "model.kernel=5"};
    compare_all(CASE("dlinear", &forecasts, settings, "series", "targets"));
}

static void test_patchtst(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "model.kind=patchtst",    "model.width=16",         "model.heads=2",
        "model.mlp_width=24",     "model.context=26",       "model.outputs=6",
        "model.channels=3",       "model.patch=8",          "model.stride=5",
        "norm.kind=batch",        "optimizer.kind=sgd",     "optimizer.lr=0.05",
        "optimizer.momentum=0.9", "optimizer.nesterov=true"};
    compare_all(CASE("patchtst", &forecasts, settings, "series", "targets"));
}

/* Classes of whole windows, from the mean of all steps or from the last one. */
static void test_whole_windows(void **state)
{
    BY_UNUSED(state);
    static const char *const patchtst[] = {
        "model.head=window", "model.kind=patchtst",    "model.width=16",
        "model.heads=2",     "model.mlp_width=24",     "model.context=26",
        "model.outputs=4",   "model.channels=3",       "model.patch=8",
        "model.stride=5",    "norm.kind=batch",        "optimizer.kind=sgd",
        "optimizer.lr=0.05", "optimizer.momentum=0.9", "optimizer.nesterov=true"};
#define CLASSES "model.head=window", "model.context=24", "model.outputs=4", "model.channels=3"
    static const char *const tcn[] = {"model.kind=tcn", CLASSES, "model.layers=3", "model.width=8",
                                      "model.kernel=3"};
    static const char *const lstm[] = {"model.kind=lstm", CLASSES, "model.width=8"};
    compare_all(CASE("patchtst_whole", &classes, patchtst, "series", "labels"));
    compare_all(CASE("tcn_whole", &classes, tcn, "series", "labels"));
    compare_all(CASE("lstm_whole", &classes, lstm, "series", "labels"));
}

#define FORECAST "model.context=24", "model.outputs=6", "model.channels=3"

static void test_tcn(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=tcn", FORECAST, "model.layers=3",
                                           "model.width=8", "model.kernel=3"};
    static const char *const near[] = {"model.kind=tcn", FORECAST, "model.layers=2",
                                       "model.width=8", "model.kernel=2"};
    compare_all(CASE("tcn", &forecasts, settings, "series", "targets"));
    compare_all(CASE("tcn_near", &forecasts, near, "series", "targets")); /* of the last 7 rows */
}

static void test_nbeats(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=nbeats", FORECAST, "model.width=16",
                                           "model.blocks=2"};
    static const char *const affine[] = {"model.kind=nbeats", FORECAST, "model.width=16",
                                         "model.blocks=2", "model.affine=true"};
    compare_all(CASE("nbeats", &forecasts, settings, "series", "targets"));
    compare_all(CASE("nbeats_affine", &forecasts, affine, "series", "targets"));
}

static void test_tide(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=tide", FORECAST, "model.width=16",
                                           "model.decoder_width=4", "model.temporal_width=8"};
    compare_all(CASE("tide", &forecasts, settings, "series", "targets"));
}

static void test_lstm(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=lstm", FORECAST, "model.width=8"};
    compare_all(CASE("lstm", &forecasts, settings, "series", "targets"));
}

static void test_gru(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gru", FORECAST, "model.width=8"};
    compare_all(CASE("gru", &forecasts, settings, "series", "targets"));
}

#define SMALL_GRAPH                                                                                \
    "model.nodes=9", "model.channels=5", "model.sample_nodes=0", "model.sample_edges=0"

static void test_nodes(void **state)
{
    BY_UNUSED(state);
    static const char *const gcn[] = {
        "model.kind=gcn",       "model.width=8",  "model.nodes=9",    "model.sample_nodes=0",
        "model.sample_edges=0", "model.edges=33", "model.channels=5", "model.outputs=3"};
    static const char *const sage[] = {
        "model.kind=sage", "model.width=4",        "model.layers=3",
        "model.nodes=9",   "model.sample_nodes=0", "model.sample_edges=0",
        "model.edges=24",  "model.channels=5",     "model.outputs=6"};
    static const char *const sage_max[] = {
        "model.kind=sage",      "model.width=8",        "model.nodes=9",
        "model.sample_nodes=0", "model.sample_edges=0", "model.edges=24",
        "model.channels=5",     "model.outputs=3",      "model.aggregate=max"};
    static const char *const gat[] = {
        "model.kind=gat",         "model.width=8",          "model.heads=4",
        "model.nodes=9",          "model.sample_nodes=0",   "model.sample_edges=0",
        "model.output_heads=2",   "model.edges=33",         "model.outputs=3",
        "model.channels=5",       "optimizer.kind=sgd",     "optimizer.lr=0.05",
        "optimizer.momentum=0.9", "optimizer.nesterov=true"};
    static const char *const gcn_kinds[] = {"model.kind=gcn",
                                            "model.width=8",
                                            "model.layers=3",
                                            "model.edges=33",
                                            "model.feature_entries=11",
                                            "model.edge_weights=true",
                                            "norm.kind=layer",
                                            "activation.kind=silu",
                                            "model.residual=true",
                                            "model.outputs=3",
                                            SMALL_GRAPH};
    static const char *const sage_sparse[] = {
        "model.kind=sage", "model.width=4",   "model.edges=24", "model.feature_entries=10",
        "norm.kind=rms",   "model.outputs=6", SMALL_GRAPH};
    static const char *const gat_sparse[] = {"model.kind=gat",
                                             "model.width=8",
                                             "model.heads=2",
                                             "model.edges=33",
                                             "model.feature_entries=13",
                                             "activation.kind=silu",
                                             "model.outputs=3",
                                             "optimizer.kind=sgd",
                                             "optimizer.lr=0.05",
                                             "optimizer.momentum=0.9",
                                             "optimizer.nesterov=true",
                                             SMALL_GRAPH};
    static const char *const gin[] = {"model.kind=gin",       "model.width=4",  "model.layers=3",
                                      "model.train_eps=true", "model.edges=24", "norm.kind=layer",
                                      "model.outputs=6",      SMALL_GRAPH};
    static const char *const gin_sparse[] = {
        "model.kind=gin",           "model.width=4",   "model.edges=24", "model.train_eps=true",
        "model.feature_entries=10", "model.outputs=3", SMALL_GRAPH};
    static const char *const rgcn[] = {
        "model.kind=rgcn",         "model.width=8", "model.edges=24",  "model.relations=3",
        "model.relation_edges=59", "model.bases=2", "model.outputs=3", SMALL_GRAPH};
    static const char *const rgcn_sparse[] = {"model.kind=rgcn",         "model.width=4",
                                              "model.edges=24",          "model.relations=2",
                                              "model.relation_edges=41", "model.feature_entries=8",
                                              "model.outputs=3",         SMALL_GRAPH};
    compare_all(CASE("gcn", &by__task_nodes.task, gcn, "ids", "labels"));
    compare_all(CASE("sage", &by__task_nodes.task, sage, "ids", "labels"));
    compare_all(CASE("sage_max", &by__task_nodes.task, sage_max, "ids", "labels"));
    compare_all(CASE("gat", &by__task_nodes.task, gat, "ids", "labels"));
    compare_all(CASE("gcn_kinds", &by__task_nodes.task, gcn_kinds, "ids", "labels"));
    compare_all(CASE("sage_sparse", &by__task_nodes.task, sage_sparse, "ids", "labels"));
    compare_all(CASE("gin", &by__task_nodes.task, gin, "ids", "labels"));
    compare_all(CASE("gin_sparse", &by__task_nodes.task, gin_sparse, "ids", "labels"));
    compare_all(CASE("rgcn", &by__task_nodes.task, rgcn, "ids", "labels"));
    compare_all(CASE("rgcn_sparse", &by__task_nodes.task, rgcn_sparse, "ids", "labels"));
    compare_all(CASE("gat_sparse", &by__task_nodes.task, gat_sparse, "ids", "labels"));
}

/* In bf16 the gradients keep two digits, those of weights that are put together of several too. */
static void test_bf16(void **state)
{
    BY_UNUSED(state);
    static const char *const vit[] = {VIT, "precision.compute=bf16"};
    static const char *const mlp[] = {
        "model.kind=mlp",    "model.numbers=5",       "model.categories=[4, 6]",
        "model.embedding=3", "model.hidden=[24, 16]", "model.activation=gelu",
        "model.norm=true",   "model.outputs=3",       "precision.compute=bf16"};
    const model_case *const cases[] = {
        CASE("vit", &classes, vit, "images", "labels"),
        CASE("mlp_classes", &classes, mlp, "numbers", "categories", "labels")};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        golden g = {0};
        by_error error = {0};
        memory m;
        double loss;
        open_golden(&g, cases[c]);
        by_batch batch = batch_of(&g, -1, &m);
        check(by_trainer_gradients(g.trainer, &batch, &loss, &error), &error);
        assert_true(fabs(loss - (double)*(const float *)tensor(&g, "%s", "loss").data) <= 0.02);
        compare_gradients(&g, 0.03);
        for (int step = 0; step < 20; step++) {
            by_step_result result;
            batch = batch_of(&g, step, &m);
            check(by_trainer_step(g.trainer, &batch, &result, &error), &error);
            float want = ((const float *)tensor(&g, "%s", "losses").data)[step];
            if (!(fabs(result.loss - (double)want) <= 0.05)) {
                fail_msg("step %d: loss %.5f (PyTorch %.5f)", step, result.loss, (double)want);
            }
        }
        close_golden(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_gpt2_sgd),
        cmocka_unit_test(test_gpt2_accumulated),
        cmocka_unit_test(test_gpt2_recomputed),
        cmocka_unit_test(test_llama_tied),
        cmocka_unit_test(test_llama_grouped),
        cmocka_unit_test(test_llama_window),
        cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_mixtral_recomputed),
        cmocka_unit_test(test_mixtral_with_capacity),
        cmocka_unit_test(test_bert),
        cmocka_unit_test(test_bert_accumulated_and_recomputed),
        cmocka_unit_test(test_kinds_of_decoders),
        cmocka_unit_test(test_kinds_of_encoders),
        cmocka_unit_test(test_vit),
        cmocka_unit_test(test_vit_accumulated_and_recomputed),
        cmocka_unit_test(test_resnet),
        cmocka_unit_test(test_convnext),
        cmocka_unit_test(test_mobilenet_v2),
        cmocka_unit_test(test_efficientnet),
        cmocka_unit_test(test_unet),
        cmocka_unit_test(test_unet_group),
        cmocka_unit_test(test_dit),
        cmocka_unit_test(test_unet2d),
        cmocka_unit_test(test_mlp_classes),
        cmocka_unit_test(test_mlp_value),
        cmocka_unit_test(test_dlinear),
        cmocka_unit_test(test_patchtst),
        cmocka_unit_test(test_whole_windows),
        cmocka_unit_test(test_tcn),
        cmocka_unit_test(test_nbeats),
        cmocka_unit_test(test_tide),
        cmocka_unit_test(test_lstm),
        cmocka_unit_test(test_gru),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
