/* A custom model in plain C: a gated network that learns to continue a sequence of numbers.
 *
 * The builder below fills a graph through banyan's public headers. The trainer differentiates it,
 * plans its memory and takes AdamW steps on batches that the program generates. The program prints
 * the loss and exits with 0 if the model has learned the sequence.
 *
 *   cmake --build build/release --target example_custom_model && build/release/example_custom_model
 */
#include <stdio.h>
#include <stdlib.h>

#include "banyan/ops.h"
#include "banyan/train.h"

enum { VOCAB = 17, CONTEXT = 16, BATCH = 8, STEPS = 300 };

/* Embedding, a gated layer with a residual connection, RMS norm, and a head tied to the
 * embedding. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    by_shape ids = BY_SHAPE(request->batch, request->time);
    by_init normal = {BY_INIT_NORMAL, 0.05f};
    by_init ones = {.kind = BY_INIT_ONE};
    int64_t c = config->width;
    (void)user;
    *out = BY_MODEL_NONE;
    out->tokens = by_graph_input(graph, "tokens", BY_I32, ids);
    by_value table =
        by_graph_parameter(graph, "table", "vocab embed", BY_SHAPE(config->vocab, c), normal);
    by_value gate = by_graph_parameter(graph, "gate", "embed mlp", BY_SHAPE(c, 2 * c), normal);
    by_value up = by_graph_parameter(graph, "up", "embed mlp", BY_SHAPE(c, 2 * c), normal);
    by_value down = by_graph_parameter(graph, "down", "mlp embed", BY_SHAPE(2 * c, c), normal);
    by_value scale = by_graph_parameter(graph, "scale", "embed", BY_SHAPE(c), ones);
    by_value x = by_embedding(graph, out->tokens, table);
    by_value hidden = by_swiglu(graph, by_linear(graph, x, gate, BY_NONE, false),
                                by_linear(graph, x, up, BY_NONE, false));
    x = by_add(graph, x, by_linear(graph, hidden, down, BY_NONE, false));
    out->hidden = by_rms_norm(graph, x, scale, 1e-5f);
    out->head = table; /* the language-modelling task derives the loss from these two */
    return by_graph_check(graph, error);
}

/* Sequences n -> 3 n + 1 modulo VOCAB from random starts: each number determines the next. */
static void fill(int32_t *tokens, int32_t *targets)
{
    for (int row = 0; row < BATCH; row++) {
        int32_t value = rand() % VOCAB;
        for (int i = 0; i < CONTEXT; i++) {
            tokens[row * CONTEXT + i] = value;
            value = (3 * value + 1) % VOCAB;
            targets[row * CONTEXT + i] = value;
        }
    }
}

static by_status configure(by_config **out, by_error *error)
{
    static const char *const settings[] = {"model.width=32",   "model.heads=1", "model.vocab=17",
                                           "model.context=16", "train.batch=8", "train.steps=300",
                                           "optimizer.lr=1e-2"};
    by_status status = by_config_default(out, error);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && status == BY_OK; i++) {
        status = by_config_set(*out, settings[i], error);
    }
    return status == BY_OK ? by_config_resolve(*out, error) : status;
}

static by_status train(by_trainer *trainer, double *loss, by_error *error)
{
    static int32_t tokens[BATCH * CONTEXT];
    static int32_t targets[BATCH * CONTEXT];
    by_array arrays[2];
    for (int step = 0; step < STEPS; step++) {
        by_step_result result;
        fill(tokens, targets);
        by_batch batch = by_batch_of_tokens(arrays, tokens, targets, BATCH, CONTEXT);
        by_status status = by_trainer_step(trainer, &batch, &result, error);
        if (status != BY_OK) {
            return status;
        }
        if (step % 50 == 0 || step == STEPS - 1) {
            printf("step %3d  loss %.4f\n", step + 1, result.loss);
        }
        *loss = result.loss;
    }
    return BY_OK;
}

int main(void)
{
    by_config *config = NULL;
    by_trainer *trainer = NULL;
    by_error error = {0};
    double loss = 0.0;
    srand(1);
    by_status status = configure(&config, &error);
    if (status == BY_OK) {
        status = by_trainer_open(&trainer, config, &(by_trainer_options){.builder = build}, &error);
    }
    if (status == BY_OK) {
        printf("%lld parameters, %llu bytes planned\n",
               (long long)by_trainer_size(trainer)->parameters,
               (unsigned long long)by_trainer_memory(trainer)->total);
        status = by_trainer_allocate(trainer, &error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(trainer, &error);
    }
    if (status == BY_OK) {
        status = train(trainer, &loss, &error);
    }
    if (status != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    by_trainer_close(&trainer);
    by_config_close(&config);
    return status == BY_OK && loss < 0.1 ? 0 : 1;
}
