/* Computes the loss of a language model as a server generates: sequences are given to the engine
 * token by token, so that each token sees keys and values as the cache stores them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/engine.h"
#include "base/cli.h"

/* Sequences that run at a time. */
#define SESSIONS 64

typedef struct sequence {
    int32_t *tokens; /* [context] */
    int32_t *targets;
    float *weights; /* of targets */
    int64_t length; /* up to the last target; 0: the place is free */
    int64_t known;  /* tokens whose targets were predicted */
    uint64_t session;
} sequence;

typedef struct evaluation {
    by_engine *engine;
    by_loader *loader;
    sequence sequences[SESSIONS];
    int32_t *memory; /* tokens and targets of all sequences */
    float *weights;
    int64_t context;
    by_batch batch;
    size_t used;     /* sequences of the batch */
    int64_t batches; /* that are left; -1: all */
    bool ended;      /* there is no other batch */
    cli_losses *losses;
} evaluation;

/* Forces the token that follows in the data. */
static by_status follow(void *user, int32_t index, float *logits, int64_t vocab,
                        const int32_t *tokens, int64_t count, int64_t prompt, by_error *error)
{
    const sequence *s = user;
    int32_t token = count < s->length ? s->tokens[count] : s->targets[count - 1];
    (void)index;
    (void)tokens;
    (void)prompt;
    if (token < 0 || token >= vocab) {
        return by_error_set(error, BY_EARG, "token %d is not in the vocabulary of %lld", (int)token,
                            (long long)vocab);
    }
    for (int64_t v = 0; v < vocab; v++) {
        logits[v] = v == token ? 0.0f : -INFINITY;
    }
    return BY_OK;
}

/* Takes the next sequence with a target; returns false at the end of the data. */
static bool next_sequence(sequence *s, evaluation *e, by_status *status, by_error *error)
{
    size_t bytes = (size_t)e->context * sizeof *s->tokens;
    s->length = s->known = 0;
    while (s->length == 0 && !e->ended) {
        if (e->used == e->batch.batch) {
            *status = e->batches == 0 ? BY_OK : by_loader_next(e->loader, &e->batch, error);
            e->ended = *status != BY_OK || e->batches == 0 || e->batch.batch == 0 ||
                       e->batch.first_sample >= by_loader_epoch_samples(e->loader);
            e->used = 0;
            e->batches -= e->batches > 0;
            continue;
        }
        size_t at = e->used++ * (size_t)e->context;
        memcpy(s->tokens, (const int32_t *)by_batch_array(&e->batch, "tokens")->data + at, bytes);
        memcpy(s->targets, (const int32_t *)by_batch_array(&e->batch, "targets")->data + at, bytes);
        const by_array *weights = by_batch_array(&e->batch, "weight");
        for (int64_t t = 0; t < e->context; t++) {
            s->length = s->targets[t] >= 0 ? t + 1 : s->length;
            s->weights[t] = weights == NULL ? 1.0f : ((const float *)weights->data)[at + (size_t)t];
        }
    }
    return s->length > 0;
}

/* Fills free places. */
static by_status submit(evaluation *e, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < SESSIONS && status == BY_OK && !e->ended; i++) {
        sequence *s = &e->sequences[i];
        if (s->length == 0 && next_sequence(s, e, &status, error)) {
            const by_request request = {.prompt = s->tokens,
                                        .prompt_count = 1,
                                        .tokens = s->length,
                                        .sampling = {.top_p = 1.0},
                                        .process = follow,
                                        .user = s};
            status = by_engine_submit(e->engine, &request, &s->session, error);
        }
    }
    return status;
}

static by_status add_event(evaluation *e, const by_event *event, by_error *error)
{
    sequence *s = e->sequences;
    while (s->length == 0 || s->session != event->session) {
        s++;
    }
    if (event->finish == BY_FINISH_FAILED) {
        return by_error_set(error, event->status, "%s", event->failure);
    }
    if (s->targets[s->known] >= 0) {
        double weight = (double)s->weights[s->known];
        e->losses->sum -= weight * (double)event->log_probability;
        e->losses->weight += weight;
        e->losses->targets++;
    }
    s->known++;
    if (event->finish != BY_FINISH_NONE) {
        s->length = 0;
    }
    return BY_OK;
}

static by_status evaluate_sequences(evaluation *e, by_error *error)
{
    by_status status = submit(e, error);
    while (status == BY_OK && by_engine_busy(e->engine)) {
        const by_event *events;
        size_t count = 0;
        if (cli_stop_requested(NULL)) {
            return by_error_set(error, BY_ESTOPPED, "evaluation was interrupted");
        }
        status = by_engine_step(e->engine, &events, &count, error);
        for (size_t i = 0; i < count && status == BY_OK; i++) {
            status = add_event(e, &events[i], error);
        }
        status = status == BY_OK ? submit(e, error) : status;
    }
    return status;
}

by_status cli_sum_engine_losses(cli_losses *out, const by_config *config, const by_weights *weights,
                                by_loader *loader, const char *precision, const char *kv,
                                int64_t batches, by_error *error)
{
    evaluation e = {
        .loader = loader, .context = config->model.context, .batches = batches, .losses = out};
    const by_engine_options options = {
        .sessions = SESSIONS, .no_prefix_cache = true, .precision = precision, .kv = kv};
    size_t context = (size_t)e.context;
    e.memory = calloc(SESSIONS * 2 * context, sizeof *e.memory);
    e.weights = calloc(SESSIONS * context, sizeof *e.weights);
    by_status status = e.memory == NULL || e.weights == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: sequences")
                           : by_engine_open(&e.engine, config, weights, &options, error);
    for (size_t i = 0; i < SESSIONS && status == BY_OK; i++) {
        e.sequences[i].tokens = e.memory + 2 * i * context;
        e.sequences[i].targets = e.sequences[i].tokens + context;
        e.sequences[i].weights = e.weights + i * context;
    }
    if (status == BY_OK) {
        status = evaluate_sequences(&e, error);
    }
    by_engine_close(&e.engine);
    free(e.memory);
    free(e.weights);
    return status;
}
