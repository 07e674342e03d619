/* A custom task in plain C: recover a clean signal from a noisy one.
 *
 * The task below generates its samples, adds a loss to a model's graph and measures the ratio of
 * the signal to the error in decibels. The program exits with 0 if most of the noise is removed.
 *   cmake --build build/release --target example_custom_task && build/release/example_custom_task
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/ops.h"
#include "banyan/train.h"

enum { WIDTH = 32, TRAINING = 4096, HELD_OUT = 256 };

static const by_array arrays[] = {{"noisy", BY_F32, {1, {WIDTH}}, NULL},
                                  {"clean", BY_F32, {1, {WIDTH}}, NULL}};

static double uniform(const by_source_sample *sample, uint64_t purpose)
{
    uint32_t random[4];
    by_source_random(sample, purpose, random);
    return (double)random[0] / 4294967296.0;
}

/* A sine wave, with and without noise: functions of the seed and the sample's index alone. */
static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    uint64_t purpose = source->shuffle ? 0 : 1000; /* held-out samples are different ones */
    double frequency = 0.1 + 0.4 * uniform(sample, purpose);
    double phase = 6.28 * uniform(sample, purpose + 1);
    (void)error;
    for (uint64_t i = 0; i < WIDTH; i++) {
        double clean = sin(frequency * (double)i + phase);
        ((float *)rows[0])[i] = (float)(clean + 2.0 * uniform(sample, purpose + 2 + i) - 1.0);
        ((float *)rows[1])[i] = (float)clean;
    }
    return BY_OK;
}

/* One pass over the held-out samples; any number of training epochs. */
#define SOURCE(is_training, count)                                                                 \
    {                                                                                              \
        .name = "signals", .arrays = arrays, .array_count = 2, .shuffle = (is_training),           \
        .samples = (count), .sample_targets = 1, .targets = (count), .fill = fill                  \
    }
static by_source sources[] = {SOURCE(false, HELD_OUT), SOURCE(true, TRAINING)};

static by_status take_source(by_source **out, by_task_data *data, const by_config *config,
                             bool training, by_error *error)
{
    (void)data, (void)config, (void)error;
    *out = &sources[training];
    return BY_OK;
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    by_value clean = by_graph_input(graph, "clean", BY_F32, BY_SHAPE(request->batch, WIDTH));
    (void)config, (void)error;
    model->loss = by_squared_error(graph, model->output, clean, BY_NONE);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

enum { SIGNAL, NOISE }; /* sums of the squares of the signal and of the error */
static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const float *clean = by_batch_array(batch, "clean")->data;
    (void)data;
    for (size_t i = 0; i < batch->valid_targets * width; i++) {
        *sums[SIGNAL] += (double)clean[i] * (double)clean[i];
        *sums[NOISE] += pow((double)values[i] - (double)clean[i], 2.0);
    }
}

static double decibels(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    (void)data, (void)e;
    return 10.0 * log10(*sums[SIGNAL] / *sums[NOISE]);
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error);

static const by_metric metrics[] = {{"snr_db", true, 2, decibels}};
static const by_task denoise = {.name = "denoise",
                                .examples = "signals",
                                .metrics = metrics,
                                .metric_count = 1,
                                .sums = (const by_task_sum[]){{"signal", NULL}, {"noise", NULL}},
                                .sum_count = 2,
                                .best_by_metric = true,
                                .open = open_data,
                                .source = take_source,
                                .loss = loss,
                                .measure = measure};
static by_task_data signals = {
    .task = &denoise, .train_examples = TRAINING, .valid_examples = HELD_OUT};

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    (void)request, (void)error;
    *out = &signals; /* samples are generated: there is nothing to open */
    return BY_OK;
}

/* One hidden layer. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    by_init normal = {BY_INIT_NORMAL, 0.15f};
    (void)user;
    by_value x = by_graph_input(graph, "noisy", BY_F32, BY_SHAPE(request->batch, WIDTH));
    by_value up = by_graph_parameter(graph, "up", "mlp in", BY_SHAPE(config->width, WIDTH), normal);
    by_shape shape = BY_SHAPE(WIDTH, config->width);
    by_value down = by_graph_parameter(graph, "down", "out mlp", shape, normal);
    x = by_unary(graph, by_linear(graph, x, up, BY_NONE, true), BY_FN_GELU);
    out->output = by_linear(graph, x, down, BY_NONE, true);
    return by_graph_check(graph, error);
}

static void show(void *user, const by_train_event *event)
{
    if (event->kind == BY_TRAIN_EVALUATED) {
        *(double *)user = event->evaluation->metrics[0];
        printf("step %lld: %.2f dB\n", (long long)event->step, *(double *)user);
    }
}

int main(void)
{
    static const char settings[] = "{name: denoise, model: {width: 128}, "
                                   "train: {steps: 600, batch: 64, eval_every: 200, threads: 1}}";
    double reached = 0.0;
    by_config *config = NULL;
    by_error error = {0};
    by_trainer_options own = {.builder = build, .task = &denoise};
    by_train_options options = {.trainer = &own, .event = show, .user = &reached};
    by_status status = by_config_parse(&config, "", settings, sizeof settings - 1, NULL, 0, &error);
    if (status == BY_OK && (status = by_config_resolve(config, &error)) == BY_OK) {
        options.config = config;
        status = by_train(&options, NULL, &error);
    }
    by_config_close(&config);
    fputs(error.message, stderr);
    return status == BY_OK && reached > 6.0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
