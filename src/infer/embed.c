/* Vectors of texts: the last hidden states of a token model, pooled. A text is padded at its end to
 * the size of a program. Where attention is causal, padding does not affect its states; encoders
 * are given the lengths. The longer the texts of a program, the fewer it takes, so that memory is
 * bounded for any context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/scheduler.h"

#define SIZES 8
/* Tokens of the smallest program; each further one is four times as large. */
#define SMALLEST 16
/* Of the lengths of texts behind their tokens: what any device asks for. */
#define LENGTHS_ALIGNMENT 256
#define MAX_BATCH         4096
/* Tokens of a run, unless a single text has more: beyond that, products gain nothing from more
 * rows. */
#define RUN_TOKENS 8192

struct by_embed {
    by__infer_forward forward;
    by__exec_program_row *rows[SIZES];
    int64_t sizes[SIZES];
    int64_t batches[SIZES]; /* texts that a program takes */
    int count;
    by_pooling pooling;
    bool normalize;
    bool started;
    bool padded; /* the model is given the lengths of texts */
    int64_t width;
    int64_t batch;
    int64_t tokens_most; /* of all texts of a program */
    uint64_t bytes;      /* besides weights */
    by_memory tokens;    /* inputs of the largest program; behind them, lengths of texts */
    by_memory hidden;
    by_pinned host; /* tokens, hidden states, vectors */
    int32_t *ids;
    float *states;
    float *vectors;
};

/* Builds a model without its head, whose hidden states are an output. The config is treated as
 * tied, because a head with its own weights would add a parameter that no node reads. */
static by_status build_hidden(void *user, by_model *out, by_graph *graph,
                              const by_model_config *config, const by_model_request *request,
                              by_error *error)
{
    BY_UNUSED(user);
    by_model_request bare = *request;
    by_model_config headless = *config;
    bare.mode = BY_MODEL_LOSS;
    bare.padded = by_model_is_encoder(config);
    headless.tied = 1;
    headless.outputs = bare.padded ? config->outputs : -1;
    BY_TRY(by__nn_model_check_context(config, request->time, error));
    BY_TRY(by_model_build(out, graph, &headless, &bare, error));
    by_value states = out->states == BY_NONE ? out->hidden : out->states;
    by_graph_output(graph, by_cast(graph, states, BY_F32), "states");
    return by_graph_check(graph, error);
}

static int64_t texts_of_run(int64_t batch, int64_t size)
{
    int64_t fit = RUN_TOKENS / size;
    fit = fit < batch ? fit : batch;
    return fit < 1 ? 1 : fit;
}

static by_status add_programs(by_embed *e, int64_t context, by_error *error)
{
    static const char *const names[SIZES] = {"states 0", "states 1", "states 2", "states 3",
                                             "states 4", "states 5", "states 6", "states 7"};
    for (int64_t size = SMALLEST;; size *= 4) {
        by_model model;
        by_model_request request = {.mode = BY_MODEL_LOGITS};
        request.time = size < context && e->count + 1 < SIZES ? size : context;
        request.batch = texts_of_run(e->batch, request.time);
        BY_TRY(by__infer_forward_add(&e->forward, names[e->count], &request, &model,
                                     &e->rows[e->count], error));
        int64_t tokens = request.batch * request.time;
        e->tokens_most = tokens > e->tokens_most ? tokens : e->tokens_most;
        e->batches[e->count] = request.batch;
        e->sizes[e->count++] = request.time;
        if (request.time == context) {
            break;
        }
    }
    return BY_OK;
}

/* Return the bytes of the ids, with the lengths of texts behind them, and of the states of a
 * program, at most. Overflow was checked when the graph was built. */
static size_t lengths_at(const by_embed *e)
{
    return by__round_up((size_t)e->tokens_most * sizeof(int32_t), LENGTHS_ALIGNMENT);
}

static size_t id_bytes(const by_embed *e)
{
    return lengths_at(e) + by__round_up((size_t)e->batch * sizeof(int32_t), BY_CACHE_LINE);
}

static size_t state_bytes(const by_embed *e)
{
    return by__round_up((size_t)e->tokens_most * (size_t)e->width * sizeof(float), BY_CACHE_LINE);
}

/* The lengths of the texts of program i. */
static by_memory lengths_of(const by_embed *e, int i)
{
    return by_memory_at(e->tokens, lengths_at(e), (size_t)e->batches[i] * sizeof(int32_t));
}

static by_status bind(by_embed *e, by_error *error)
{
    for (int i = 0; i < e->count; i++) {
        int64_t rows = e->batches[i] * e->sizes[i];
        size_t ids = (size_t)rows * sizeof(int32_t);
        size_t states = (size_t)(rows * e->width) * sizeof(float);
        BY_TRY(by__exec_row_bind(e->rows[i], "tokens", by_memory_at(e->tokens, 0, ids), error));
        BY_TRY(by__exec_row_bind(e->rows[i], "states", by_memory_at(e->hidden, 0, states), error));
        if (e->padded) {
            BY_TRY(by__exec_row_bind(e->rows[i], "lengths", lengths_of(e, i), error));
        }
    }
    return BY_OK;
}

/* Checks that there is memory for the batches, besides weights. */
static by_status check_memory(const by_embed *e, by_error *error)
{
    char need[32];
    char have[32];
    uint64_t available = by__device_memory_free(e->forward.device);
    return e->bytes <= available
               ? BY_OK
               : by_error_set(error, BY_EMEMORY,
                              "not enough memory: embeddings of texts of up to %lld tokens need "
                              "%s, and %s are free; use a shorter context",
                              (long long)e->sizes[e->count - 1], by_format_bytes(need, e->bytes),
                              by_format_bytes(have, available));
}

/* Allocates memory, and loads the weights unless they are borrowed. May be called again after a
 * failure. */
static by_status start(by_embed *e, const by_weights *weights, by_error *error)
{
    size_t ids = id_bytes(e);
    size_t states = state_bytes(e);
    size_t vectors = (size_t)(e->batch * e->width) * sizeof(float);
    BY_TRY(by__infer_forward_start(&e->forward, weights, error));
    by_device *device = e->forward.device;
    by_device_unpin(&e->host);
    by_device_free(&e->tokens);
    by_device_free(&e->hidden);
    BY_TRY(by_device_alloc(&e->tokens, device, ids, "the tokens", error));
    BY_TRY(by_device_alloc(&e->hidden, device, states, "the hidden states", error));
    BY_TRY(by_device_pin(&e->host, device, ids + states + vectors, "tokens and states", error));
    char *host = e->host.data;
    e->ids = (int32_t *)(void *)host;
    e->states = (float *)(void *)(host + ids);
    e->vectors = (float *)(void *)(host + ids + states);
    BY_TRY(bind(e, error));
    e->started = true;
    return BY_OK;
}

/* Completes an embedding whose e->forward is open. With borrowed weights, memory is allocated when
 * the first text arrives. */
static by_status set_up(by_embed *e, const by_weights *weights, int64_t context, by_error *error)
{
    bool borrows = e->forward.lender != NULL;
    BY_TRY(add_programs(e, context, error));
    if (!borrows) {
        BY_TRY(by__infer_forward_plan(&e->forward, weights, error));
    }
    e->bytes = by__exec_set_arena_bytes(&e->forward.programs) +
               by__exec_set_workspace_bytes(&e->forward.programs) +
               2 * (id_bytes(e) + state_bytes(e)) + (size_t)(e->batch * e->width) * sizeof(float);
    BY_TRY(check_memory(e, error));
    return borrows ? BY_OK : start(e, weights, error);
}

/* Opens an embedding on the weights of `lender` or, if that is NULL, on `weights`. */
static by_status open_embed(by_embed **out, const by_config *config,
                            const by__infer_forward *lender, const by_weights *weights,
                            const by_embed_options *options, by_error *error)
{
    by_embed *e;
    by__infer_forward_options how;
    by_embed_options o = {0};
    o = options == NULL ? o : *options;
    int64_t context = o.context == 0 ? config->model.context : o.context;
    if (strcmp(by_model_reads(&config->model), "tokens") != 0) {
        return by_error_set(error, BY_EARG, "model.kind %s reads no text, so it has no embeddings",
                            config->model.kind);
    }
    if (context < 1 || context > BY__MI24 || o.batch < 0 || o.batch > MAX_BATCH) {
        return by_error_set(error, BY_EARG,
                            "context %lld is not from 1 to %d, or batch %lld not from 0 to %d",
                            (long long)context, BY__MI24, (long long)o.batch, MAX_BATCH);
    }
    BY_TRY(by__infer_forward_options_read(&how, config, weights, o.precision, o.threads, error));
    how.builder = build_hidden;
    how.besides = BY__SCORE;
    how.on_use = true;
    how.device = o.device;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "embeddings", error));
    e->pooling = o.pooling;
    e->batch = o.batch == 0 ? 1 : o.batch;
    e->normalize = o.normalize;
    e->width = config->model.width;
    e->padded = by_model_is_encoder(&config->model);
    by_status status =
        lender == NULL
            ? by__infer_forward_open(&e->forward, &how, error)
            : by__infer_forward_borrow(&e->forward, lender, &config->model, build_hidden, error);
    if (status == BY_OK) {
        status = set_up(e, weights, context, error);
    }
    if (status != BY_OK) {
        by_embed_close(&e);
        return status;
    }
    *out = e;
    return BY_OK;
}

by_status by_embed_open(by_embed **out, const by_config *config, const by_weights *weights,
                        const by_embed_options *options, by_error *error)
{
    return open_embed(out, config, NULL, weights, options, error);
}

by_status by_embed_open_with(by_embed **out, const by_engine *engine, const by_config *config,
                             const by_embed_options *options, by_error *error)
{
    return open_embed(out, config, &engine->forward, NULL, options, error);
}

uint64_t by_embed_memory(const by_embed *embed)
{
    return embed->bytes;
}

void by_embed_close(by_embed **embed)
{
    if (embed == NULL || *embed == NULL) {
        return;
    }
    by_embed *e = *embed;
    by_device_unpin(&e->host);
    by_device_free(&e->tokens);
    by_device_free(&e->hidden);
    by__infer_forward_close(&e->forward);
    free(e);
    *embed = NULL;
}

int64_t by_embed_width(const by_embed *embed)
{
    return embed->width;
}

/* Sums in double, in the order of the tokens. */
static by_status pool(const by_embed *e, const float *states, int64_t count, float *vector,
                      by_error *error)
{
    int64_t first = e->pooling == BY_POOL_LAST ? count - 1 : 0;
    int64_t end = e->pooling == BY_POOL_FIRST ? 1 : count;
    double squares = 0.0;
    for (int64_t i = 0; i < e->width; i++) {
        double sum = 0.0;
        for (int64_t t = first; t < end; t++) {
            sum += (double)states[t * e->width + i];
        }
        vector[i] = (float)(sum / (double)(end - first));
        squares += (double)vector[i] * (double)vector[i];
        if (!isfinite(vector[i])) {
            return by_error_set(error, BY_ESTATE,
                                "element %lld of the vector of a text of %lld tokens is %g: the "
                                "weights are not usable, or exceed the range of the precision",
                                (long long)i, (long long)count, (double)vector[i]);
        }
    }
    for (int64_t i = 0; i < e->width && e->normalize && squares > 0.0; i++) {
        vector[i] = (float)((double)vector[i] / sqrt(squares));
    }
    return BY_OK;
}

by_status by_embed_check(const by_embed *e, size_t count, by_error *error)
{
    int64_t context = e->sizes[e->count - 1];
    if (count < 1 || count > (size_t)context) {
        return by_error_set(error, BY_EARG,
                            "a text of %zu tokens; from 1 to %lld have an embedding", count,
                            (long long)context);
    }
    return BY_OK;
}

/* Returns the smallest program for a text. */
static int program_of(const by_embed *e, const by_embed_text *text)
{
    int i = 0;
    while (e->sizes[i] < (int64_t)text->count) {
        i++;
    }
    return i;
}

/* Chooses how many of the texts run next, and the program that takes them. */
static size_t choose_texts(const by_embed *e, const by_embed_text *texts, size_t count,
                           int *program)
{
    size_t taken = 0;
    *program = 0;
    while (taken < count) {
        int own = program_of(e, &texts[taken]);
        int larger = own > *program ? own : *program;
        if (taken > 0 && (int64_t)taken >= e->batches[larger]) {
            break;
        }
        *program = larger;
        taken++;
    }
    return taken;
}

/* Computes the vectors of texts that fit into a run of program i. */
static by_status run_program(by_embed *e, int i, const by_embed_text *texts, size_t count,
                             float *vectors, by_error *error)
{
    size_t size = (size_t)e->sizes[i];
    size_t rows = (size_t)e->batches[i] * size;
    int32_t *lengths = (int32_t *)(void *)((char *)e->ids + lengths_at(e));
    memset(e->ids, 0, id_bytes(e));
    for (size_t t = 0; t < count; t++) {
        memcpy(e->ids + t * size, texts[t].tokens, texts[t].count * sizeof *e->ids);
        lengths[t] = (int32_t)texts[t].count;
    }
    BY_TRY(by__exec_row_check(e->rows[i], "tokens", e->ids, error));
    size_t ids = rows * sizeof(int32_t);
    size_t states = count * size * (size_t)e->width * sizeof(float);
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, by_memory_at(e->tokens, 0, ids), e->ids, error));
    if (e->padded) {
        BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, lengths_of(e, i), lengths, error));
    }
    BY_TRY(by_program_submit(e->rows[i]->program, error));
    BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, e->states, by_memory_at(e->hidden, 0, states),
                               error));
    BY_TRY(by__device_queue_finish(e->forward.device, BY__QUEUE_COMPUTE, error));
    for (size_t t = 0; t < count; t++) {
        BY_TRY(pool(e, e->states + t * size * (size_t)e->width, (int64_t)texts[t].count,
                    vectors + t * (size_t)e->width, error));
    }
    return BY_OK;
}

by_status by_embed_run_batch(by_embed *e, const by_embed_text *texts, size_t count,
                             const float **out, by_error *error)
{
    if (count < 1 || count > (size_t)e->batch) {
        return by_error_set(error, BY_EARG, "%zu texts; 1 to %lld run together", count,
                            (long long)e->batch);
    }
    for (size_t t = 0; t < count; t++) {
        BY_TRY(by_embed_check(e, texts[t].count, error));
    }
    BY_TRY(e->started ? BY_OK : start(e, NULL, error));
    for (size_t t = 0; t < count;) {
        int program;
        size_t taken = choose_texts(e, texts + t, count - t, &program);
        BY_TRY(run_program(e, program, texts + t, taken, e->vectors + t * (size_t)e->width, error));
        t += taken;
    }
    *out = e->vectors;
    return BY_OK;
}

by_status by_embed_run(by_embed *e, const int32_t *tokens, size_t count, const float **out,
                       by_error *error)
{
    const by_embed_text text = {tokens, count};
    return by_embed_run_batch(e, &text, 1, out, error);
}
