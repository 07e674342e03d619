/* The coordinate check of muP: a few steps of one model at several widths, on one batch of random
 * tokens, and how the sizes of its activations grow with the width. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "banyan/plan.h"
#include "banyan/trainer.h"
#include "config/kind.h"
#include "graph/graph.h"
#include "trainer/probes/activations.h"

#define STEPS     6
#define SEEDS     3
#define MAX_BATCH 4
/* Tokens of a config that leaves its vocabulary to the data. */
#define VOCAB 256
/* A size that grows faster than width^SLOPE grows. Under muP the slopes go to 0 with the width, and
 * are below 0 where the output begins small; without it those of the logits go to 1. */
#define SLOPE 0.3
#define DRAWS 0x636f6f72u /* "coor" in ASCII */

/* One model in training. */
typedef struct trial {
    const by_coordinates *c;
    by_config *config;
    by_trainer *trainer;
    int32_t *tokens;
    int32_t *targets;
    float *first; /* logits before the first step */
    size_t logits;
} trial;

/* The config's own model, whose logits are what a held-out batch is evaluated to. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    BY_UNUSED(user);
    BY_TRY(by_model_build(out, graph, config, request, error));
    if (out->hidden == BY_NONE || out->head == BY_NONE) {
        return by_error_set(error, BY_ECONFIG,
                            "the coordinate check is for models of tokens with a head, and "
                            "model.kind %s is none",
                            config->kind);
    }
    if (request->mode == BY_MODEL_LOSS) {
        out->evaluated = by_linear(graph, out->hidden, out->head, BY_NONE, true);
    }
    return by_graph_check(graph, error);
}

/* value * width / base width, of values that are not derived (-1). */
static by_status scale(int64_t *value, const char *key, int64_t width, int64_t base,
                       by_error *error)
{
    int64_t scaled;
    if (*value < 1) {
        return BY_OK;
    }
    if (__builtin_mul_overflow(*value, width, &scaled) || scaled % base != 0) {
        int64_t a = base;
        for (int64_t b = *value; b != 0;) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        return by_error_set(error, BY_EARG,
                            "width %lld: model.%s is %lld at width %lld, and does not become "
                            "whole; take multiples of %lld",
                            (long long)width, key, (long long)*value, (long long)base,
                            (long long)(base / a));
    }
    *value = scaled / base;
    return BY_OK;
}

/* The config of a trial: of another width, with heads of the same. */
static by_status make_config(by_config **out, const by_config *base, int64_t width, uint64_t seed,
                             by_error *error)
{
    static const char *const settings[] = {
        "optimizer.schedule=constant",
        "optimizer.warmup=0",
        "train.steps=1000",
        "track.activations_every=1",
        "memory.recompute=none",
        "parallel.data=-1",
        "model.from=",
    };
    by_config *config;
    BY_TRY(by_config_copy(out, base, error));
    config = *out;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        BY_TRY(by_config_set(config, settings[i], error));
    }
    by_model_config *m = &config->model;
    config->seed = seed;
    config->train.batch = base->train.batch < MAX_BATCH ? base->train.batch : MAX_BATCH;
    config->train.micro_batch = config->train.batch;
    m->init_std = by__config_is_given(base, "model.init_std") ? m->init_std : -1.0;
    m->vocab = m->vocab == -1 ? VOCAB : m->vocab;
    BY_TRY(scale(&m->heads, "heads", width, base->model.width, error));
    BY_TRY(scale(&m->mlp_width, "mlp_width", width, base->model.width, error));
    if (by__config_is_given(base, "model.kv_heads")) {
        BY_TRY(scale(&m->kv_heads, "kv_heads", width, base->model.width, error));
    } else {
        m->kv_heads = -1;
    }
    m->width = width;
    return by_config_resolve(config, error);
}

static void draw_tokens(trial *t, uint64_t seed)
{
    const by_config *config = t->config;
    size_t count = (size_t)(config->train.batch * config->model.context);
    uint32_t key[2];
    by__philox_key(key, seed, DRAWS);
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];
        by__philox(random, key, (uint32_t[4]){(uint32_t)i});
        t->tokens[i] = (int32_t)((uint64_t)random[0] * (uint64_t)config->model.vocab >> 32);
    }
    for (size_t i = 0; i < count; i++) {
        t->targets[i] = t->tokens[(i + 1) % count];
    }
}

static double *value_at(const by_coordinates *c, size_t name, size_t step, size_t width)
{
    return &c->sizes[(name * (c->steps + 1) + step) * c->width_count + width];
}

static by_status add_name(by_coordinates *c, size_t i, const char *name, by_error *error)
{
    if (i == BY_COORDINATE_NAMES) {
        return by_error_set(error, BY_EARG, "the coordinate check is for at most %d layers",
                            BY_COORDINATE_NAMES - 2);
    }
    (void)snprintf(c->names[i], sizeof c->names[i], "%s", name);
    return BY_OK;
}

/* Adds the root mean square of the change of the logits, and before the first step theirs. */
static by_status add_logits(trial *t, const by_batch *batch, size_t step, size_t width,
                            by_error *error)
{
    const float *values;
    size_t each;
    double sum;
    double squares = 0.0;
    BY_TRY(by_trainer_evaluate(t->trainer, batch, &sum, &values, &each, error));
    t->logits = each * batch->batch;
    if (step == 0) {
        BY_TRY(by__alloc((void **)&t->first, t->logits, sizeof *t->first, "logits", error));
    }
    for (size_t i = 0; i < t->logits; i++) {
        double change = (double)values[i] - (double)t->first[i];
        squares += change * change;
    }
    if (step == 0) {
        memcpy(t->first, values, t->logits * sizeof *values);
    }
    *value_at(t->c, t->c->name_count - 1, step, width) += sqrt(squares / (double)t->logits);
    return BY_OK;
}

/* The sizes before step `step`; the logits' are of the model, the blocks' of the step itself. */
static by_status take_step(trial *t, const by_batch *batch, size_t step, size_t width,
                           by_error *error)
{
    by_step_result result;
    BY_TRY(add_logits(t, batch, step, width, error));
    BY_TRY(by_trainer_step(t->trainer, batch, &result, error));
    const double *numbers = by__trainer_activations_numbers(t->trainer);
    for (size_t i = 0; numbers != NULL && i + 1 < t->c->name_count; i++) {
        const double *n = numbers + i * BY__ACTIVATION_NUMBERS;
        *value_at(t->c, i, step, width) +=
            sqrt(n[BY__ACTIVATION_SQUARES] / n[BY__ACTIVATION_COUNT]);
    }
    return BY_OK;
}

static by_status find_names(by_coordinates *c, const by_trainer *trainer, by_error *error)
{
    size_t count = by__trainer_activations_count(trainer);
    for (size_t i = 0; i < count && c->name_count == 0; i++) {
        BY_TRY(add_name(c, i, by__trainer_activations_name(trainer, i), error));
    }
    BY_TRY(add_name(c, count, "logits' change", error));
    c->name_count = count + 1;
    if (c->sizes != NULL) {
        return BY_OK;
    }
    return by__alloc((void **)&c->sizes, c->name_count * (c->steps + 1) * c->width_count,
                     sizeof *c->sizes, "sizes of activations", error);
}

static by_status run(trial *t, by_coordinates *c, const by_config *base, size_t width,
                     uint64_t seed, by_error *error)
{
    const by_trainer_options options = {.builder = build};
    by_array arrays[2];
    t->c = c;
    BY_TRY(make_config(&t->config, base, c->widths[width], seed, error));
    BY_TRY(by_trainer_open(&t->trainer, t->config, &options, error));
    BY_TRY(find_names(c, t->trainer, error));
    BY_TRY(by_trainer_allocate(t->trainer, error));
    BY_TRY(by_trainer_initialize(t->trainer, error));
    size_t batch = (size_t)t->config->train.batch;
    size_t context = (size_t)t->config->model.context;
    BY_TRY(by__alloc((void **)&t->tokens, batch * context, sizeof *t->tokens, "tokens", error));
    BY_TRY(by__alloc((void **)&t->targets, batch * context, sizeof *t->targets, "tokens", error));
    draw_tokens(t, seed);
    by_batch tokens = by_batch_of_tokens(arrays, t->tokens, t->targets, batch, context);
    for (size_t step = 0; step <= c->steps; step++) {
        BY_TRY(take_step(t, &tokens, step, width, error));
    }
    return BY_OK;
}

static void close_trial(trial *t)
{
    by_trainer_close(&t->trainer);
    by_config_close(&t->config);
    free(t->tokens);
    free(t->targets);
    free(t->first);
}

/* Least squares of the logarithm of a size over that of the width. */
static double slope_of(const by_coordinates *c, size_t name)
{
    double x_mean = 0.0;
    double y_mean = 0.0;
    double products = 0.0;
    double squares = 0.0;
    double count = (double)c->width_count;
    for (size_t w = 0; w < c->width_count; w++) {
        x_mean += log((double)c->widths[w]) / count;
        y_mean += log(*value_at(c, name, c->steps, w)) / count;
    }
    for (size_t w = 0; w < c->width_count; w++) {
        double x = log((double)c->widths[w]) - x_mean;
        products += x * (log(*value_at(c, name, c->steps, w)) - y_mean);
        squares += x * x;
    }
    return products / squares;
}

static void judge(by_coordinates *c, double seeds)
{
    for (size_t i = 0; i < c->name_count * (c->steps + 1) * c->width_count; i++) {
        c->sizes[i] /= seeds;
    }
    c->grows = false;
    for (size_t i = 0; i < c->name_count; i++) {
        c->slopes[i] = slope_of(c, i);
        c->grows = c->grows || !(c->slopes[i] <= SLOPE);
    }
}

by_status by_coordinates_measure(by_coordinates **out, const by_config *config,
                                 const by_coordinate_options *options, by_error *error)
{
    by_coordinates *c;
    size_t seeds = options->seeds == 0 ? SEEDS : options->seeds;
    if (options->width_count < 2 || options->width_count > BY_COORDINATE_WIDTHS) {
        return by_error_set(error, BY_EARG, "the coordinate check takes 2 to %d widths, not %zu",
                            BY_COORDINATE_WIDTHS, options->width_count);
    }
    if (strcmp(by_model_reads(&config->model), "tokens") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "the coordinate check is for models of tokens, such as model.kind "
                            "gpt2 or llama; model.kind %s reads %s",
                            config->model.kind, by_model_reads(&config->model));
    }
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a coordinate check", error));
    c->steps = options->steps == 0 ? STEPS : options->steps;
    c->width_count = options->width_count;
    c->limit = SLOPE;
    memcpy(c->widths, options->widths, c->width_count * sizeof *c->widths);
    by_status status = BY_OK;
    for (size_t seed = 0; seed < seeds && status == BY_OK; seed++) {
        for (size_t w = 0; w < c->width_count && status == BY_OK; w++) {
            trial t = {0};
            status = run(&t, c, config, w, config->seed + seed, error);
            close_trial(&t);
        }
    }
    if (status != BY_OK) {
        by_coordinates_close(&c);
        return status;
    }
    judge(c, (double)seeds);
    *out = c;
    return BY_OK;
}

void by_coordinates_close(by_coordinates **coordinates)
{
    if (coordinates != NULL && *coordinates != NULL) {
        free((*coordinates)->sizes);
        free(*coordinates);
        *coordinates = NULL;
    }
}
