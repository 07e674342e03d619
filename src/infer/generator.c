#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/decode_work.h"
#include "infer/infer.h"

/* Tokens of the prefill programs. The end of a prompt is padded to one of these sizes; close sizes
 * keep the waste small. */
static const int64_t prefill_sizes[] = {16, 32, 64, 128, 256, 512};
static const char *const prefill_names[] = {"prefill 16",  "prefill 32",  "prefill 64",
                                            "prefill 128", "prefill 256", "prefill 512"};
#define PREFILLS 6
/* Number of padding tokens that costs less than another run, which reads all weights again. */
#define CHEAP_PADDING 48
/* Staging blocks: one is filled while the other is copied. */
#define STAGES 2

struct by_generator {
    by__infer_forward forward;
    by__exec_program_row *decode;
    by__exec_program_row *prefill[PREFILLS];
    int prefills; /* number of prefill programs: those that fit into the caches */
    /* The inputs share one buffer: start, tokens, positions. */
    by_memory inputs;
    by_memory device_logits;
    by_pinned host; /* memory for the following buffers */
    size_t logits_bytes;
    char *staging;                    /* STAGES blocks of inputs */
    float *logits;                    /* [vocab of the model] */
    int32_t *window;                  /* [context]: the tokens in the caches */
    float *processed;                 /* [vocab]: a copy of logits that a processor may change */
    void *scratch;                    /* for by_sample */
    by__device_event *copied[STAGES]; /* when a staging block may be refilled */
    unsigned fed;                     /* number of runs, which selects the staging block */
    int64_t context;
    int64_t slots; /* positions in the caches: the context and room for padding */
    int64_t table; /* rows of the table of positions; 0: positions are rotary */
    int64_t vocab;
    int64_t cached; /* number of valid tokens in the window */
    uint64_t position;
    by__infer_decode_work work;
    int64_t body_products; /* parameters in products of a token that is not the last one */
    bool slide;
    bool carries; /* layers keep something of the sequence that knows only its end (row.h) */
    bool ready;   /* the logits are those after the last token of the window */
    by_generator_memory_report memory;
};

static int64_t smallest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Offsets in a buffer of inputs: start, tokens, positions. */

static size_t tokens_offset(const by_generator *g)
{
    return by__device_unit(g->forward.device);
}

static size_t ids_bytes(const by_generator *g)
{
    return by__round_up((size_t)prefill_sizes[g->prefills - 1] * sizeof(int32_t),
                        by__device_unit(g->forward.device));
}

static size_t input_bytes(const by_generator *g)
{
    return tokens_offset(g) + 2 * ids_bytes(g);
}

/* Derives the figures behind by_generator_flops and by_generator_token_bytes from the graphs. */
static by_status measure_work(by_generator *g, by_error *error)
{
    const by_graph *graph = g->decode->graph;
    int64_t all;
    g->carries = by__op_carries(graph, BY_NONE);
    BY_TRY(by_model_count(g->prefill[0]->graph, &all, &g->body_products, error));
    return by__infer_decode_work_measure(&g->work, graph, error);
}

/* Builds and compiles all programs. */
static by_status compile(by_generator *g, const by__infer_forward_options *options, by_error *error)
{
    by_model model;
    g->slots = (g->context / prefill_sizes[0] + 2) * prefill_sizes[0];
    by_model_request request = {.mode = BY_MODEL_DECODE, .batch = 1, .time = 1, .cache = g->slots};
    BY_TRY(by__infer_forward_open(&g->forward, options, error));
    BY_TRY(by__infer_forward_add(&g->forward, "decode", &request, &model, &g->decode, error));
    if (model.positions != BY_NONE) {
        g->table = options->config->context;
        if (g->context > g->table) {
            return by_error_set(error, BY_EARG,
                                "context %lld: the model has only %lld learned positions",
                                (long long)g->context, (long long)g->table);
        }
    }
    request.mode = BY_MODEL_PREFILL;
    for (; g->prefills < PREFILLS && prefill_sizes[g->prefills] <= g->slots; g->prefills++) {
        by_model unused;
        request.time = prefill_sizes[g->prefills];
        BY_TRY(by__infer_forward_add(&g->forward, prefill_names[g->prefills], &request, &unused,
                                     &g->prefill[g->prefills], error));
    }
    int64_t vocab = by_shape_count(&g->decode->graph->values[model.logits].shape);
    if (g->vocab > vocab) {
        return by_error_set(error, BY_EARG, "the vocabulary has %lld tokens; the model knows %lld",
                            (long long)g->vocab, (long long)vocab);
    }
    g->vocab = g->vocab == 0 ? vocab : g->vocab;
    g->logits_bytes = (size_t)vocab * sizeof(float);
    return measure_work(g, error);
}

/* Takes the next `bytes` of a block, aligned to a cache line. */
static void *carve(char *block, size_t *offset, size_t bytes)
{
    void *place = block == NULL ? NULL : block + *offset;
    *offset += by__round_up(bytes, BY_CACHE_LINE);
    return place;
}

/* Assigns the host buffers their places in `block` (NULL: only measures). */
static size_t place_host(by_generator *g, char *block)
{
    size_t offset = 0;
    g->staging = carve(block, &offset, STAGES * input_bytes(g));
    g->logits = carve(block, &offset, g->logits_bytes);
    g->window = carve(block, &offset, (size_t)g->context * sizeof(int32_t));
    g->processed = carve(block, &offset, (size_t)g->vocab * sizeof(float));
    g->scratch = carve(block, &offset, by_sample_scratch_bytes(g->vocab));
    return offset;
}

static by_status bind(by_generator *g, by__exec_program_row *row, int64_t time, by_error *error)
{
    size_t bytes = (size_t)time * sizeof(int32_t);
    by_memory start = by_memory_at(g->inputs, 0, sizeof(int32_t));
    BY_TRY(by__exec_row_bind(row, "start", start, error));
    BY_TRY(
        by__exec_row_bind(row, "tokens", by_memory_at(g->inputs, tokens_offset(g), bytes), error));
    BY_TRY(by__exec_row_bind(
        row, "positions", by_memory_at(g->inputs, tokens_offset(g) + ids_bytes(g), bytes), error));
    return by__exec_row_bind(row, "logits", g->device_logits, error);
}

static by_status allocate(by_generator *g, const by_weights *weights, by_error *error)
{
    by_device *device = g->forward.device;
    size_t host = place_host(g, NULL);
    BY_TRY(by__infer_forward_plan(&g->forward, weights, error));
    by_generator_memory_report *m = &g->memory;
    m->weights = by__store_bytes(g->forward.store, BY__COPY);
    m->caches = by__store_bytes(g->forward.store, BY__CACHE);
    m->activations = by__exec_set_arena_bytes(&g->forward.programs);
    m->workspace = by__exec_set_workspace_bytes(&g->forward.programs);
    m->data = input_bytes(g) + g->logits_bytes + host;
    m->total = m->weights + m->caches + m->activations + m->workspace + m->data;
    BY_TRY(by__infer_forward_start(&g->forward, weights, error));
    BY_TRY(by_device_alloc(&g->inputs, device, input_bytes(g), "the inputs", error));
    BY_TRY(by_device_alloc(&g->device_logits, device, g->logits_bytes, "the logits", error));
    BY_TRY(by_device_pin(&g->host, device, host, "tokens and logits", error));
    (void)place_host(g, g->host.data);
    for (int i = 0; i < STAGES; i++) {
        BY_TRY(by__device_event_open(&g->copied[i], device, false, error));
    }
    BY_TRY(bind(g, g->decode, 1, error));
    for (int i = 0; i < g->prefills; i++) {
        BY_TRY(bind(g, g->prefill[i], prefill_sizes[i], error));
    }
    return BY_OK;
}

static by_status set_up(by_generator *g, const by_config *config, const by_weights *weights,
                        const by_generator_options *o, by_error *error)
{
    by__infer_forward_options options;
    if (o->context < 0 || o->context > INT32_MAX / 2 || o->vocab < 0) {
        return by_error_set(error, BY_EARG, "context %lld or vocab %lld is out of range",
                            (long long)o->context, (long long)o->vocab);
    }
    BY_TRY(
        by__infer_forward_options_read(&options, config, weights, o->precision, o->threads, error));
    options.builder = o->builder;
    options.user = o->user;
    options.device = o->device;
    options.on_use = true;
    g->context = o->context == 0 ? config->model.context : o->context;
    g->vocab = o->vocab;
    g->slide = o->slide;
    if (o->builder == NULL) {
        BY_TRY(by__nn_model_check_context(&config->model, g->context, error));
    }
    BY_TRY(compile(g, &options, error));
    return allocate(g, weights, error);
}

by_status by_generator_open(by_generator **out, const by_config *config, const by_weights *weights,
                            const by_generator_options *options, by_error *error)
{
    by_generator *g;
    by_generator_options defaults = {0};
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "generator", error));
    by_status status = set_up(g, config, weights, options == NULL ? &defaults : options, error);
    if (status != BY_OK) {
        by_generator_close(&g);
        return status;
    }
    *out = g;
    return BY_OK;
}

void by_generator_close(by_generator **generator)
{
    if (generator == NULL || *generator == NULL) {
        return;
    }
    by_generator *g = *generator;
    if (g->forward.device != NULL) {
        (void)by_device_finish(g->forward.device, NULL);
    }
    for (int i = 0; i < STAGES; i++) {
        by__device_event_close(&g->copied[i]);
    }
    by_device_unpin(&g->host);
    by_device_free(&g->inputs);
    by_device_free(&g->device_logits);
    by__infer_forward_close(&g->forward);
    free(g);
    *generator = NULL;
}

void by_generator_reset(by_generator *generator)
{
    generator->cached = 0;
    generator->position = 0;
    generator->ready = false;
}

/* Submits window[cached .. cached + count) to a program for `time` >= count tokens. */
static by_status submit(by_generator *g, by__exec_program_row *row, int64_t time, int64_t count,
                        by_error *error)
{
    unsigned stage = g->fed++ % STAGES;
    char *block = g->staging + stage * input_bytes(g);
    int32_t *tokens = (int32_t *)(void *)(block + tokens_offset(g));
    int32_t *positions = (int32_t *)(void *)(block + tokens_offset(g) + ids_bytes(g));
    BY_TRY(
        by__device_event_wait(g->copied[stage], error)); /* until the last copy from this block is
                                                        done */
    memcpy(tokens, g->window + g->cached, (size_t)count * sizeof *tokens);
    memset(tokens + count, 0, (size_t)(time - count) * sizeof *tokens);
    for (int64_t t = 0; t < time && g->table > 0; t++) {
        positions[t] = (int32_t)smallest(g->cached + t, g->table - 1);
    }
    *(int32_t *)(void *)block = (int32_t)g->cached;
    BY_TRY(by__exec_row_check(row, "tokens", tokens, error));
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, g->inputs, block, error));
    BY_TRY(by__device_event_record(g->copied[stage], BY__QUEUE_COMPUTE, error));
    BY_TRY(by_program_submit(row->program, error));
    g->cached += count;
    return BY_OK;
}

/* Chooses the prefill program for `rest` tokens: the smallest that holds them, if its padding is
 * cheap and fits into the caches, else the largest one that they fill. Padding is not taken back
 * from what layers carry. */
static int choose_prefill(const by_generator *g, int64_t rest)
{
    int i = 0;
    while (i + 1 < g->prefills && prefill_sizes[i + 1] <= rest) {
        i++;
    }
    if (i + 1 < g->prefills && prefill_sizes[i] < rest && !g->carries) {
        int64_t next = prefill_sizes[i + 1];
        i += next - rest <= CHEAP_PADDING && g->cached + next <= g->slots;
    }
    return i;
}

/* Computes the keys and values of window[cached .. end). */
static by_status advance(by_generator *g, int64_t end, by_error *error)
{
    g->ready = false;
    while (g->cached < end - 1) {
        int64_t rest = end - 1 - g->cached;
        int i = choose_prefill(g, rest);
        if (g->carries && prefill_sizes[i] > rest) {
            BY_TRY(submit(g, g->decode, 1, 1, error));
            continue;
        }
        BY_TRY(submit(g, g->prefill[i], prefill_sizes[i], smallest(rest, prefill_sizes[i]), error));
    }
    BY_TRY(submit(g, g->decode, 1, 1, error));
    BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, g->logits, g->device_logits, error));
    BY_TRY(by__device_queue_finish(g->forward.device, BY__QUEUE_COMPUTE, error));
    g->ready = true;
    return BY_OK;
}

by_status by_generator_keep(by_generator *g, size_t count, by_error *error)
{
    if (g->position != (uint64_t)g->cached) {
        return by_error_set(error, BY_ESTATE,
                            "the first tokens of the sequence have left the caches");
    }
    if (count > (size_t)g->cached) {
        return by_error_set(error, BY_EARG, "%zu tokens cannot be kept of %lld", count,
                            (long long)g->cached);
    }
    if (g->carries && count < (size_t)g->cached) { /* from the beginning */
        g->cached = 0;
        BY_TRY(count == 0 ? BY_OK : advance(g, (int64_t)count, error));
    }
    g->cached = (int64_t)count;
    g->position = (uint64_t)count;
    g->ready = false;
    return BY_OK;
}

/* Fills an empty window with the last tokens of the sequence (the old window, then tokens). Returns
 * how many. */
static int64_t slide(by_generator *g, const int32_t *tokens, size_t count)
{
    int64_t keep = g->context / 2 < 1 ? 1 : g->context / 2;
    int64_t fresh = count < (size_t)keep ? (int64_t)count : keep;
    int64_t old = keep - fresh;
    memmove(g->window, g->window + g->cached - old, (size_t)old * sizeof *g->window);
    memcpy(g->window + old, tokens + count - (size_t)fresh, (size_t)fresh * sizeof *g->window);
    g->cached = 0;
    return keep;
}

by_status by_generator_feed(by_generator *g, const int32_t *tokens, size_t count, by_error *error)
{
    int64_t end;
    if (count < 1) {
        return by_error_set(error, BY_EARG, "there is no token to take in");
    }
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->vocab) {
            return by_error_set(error, BY_EARG, "token %zu is id %d; the vocabulary has %lld", i,
                                (int)tokens[i], (long long)g->vocab);
        }
    }
    if (count <= (size_t)(g->context - g->cached)) {
        memcpy(g->window + g->cached, tokens, count * sizeof *tokens);
        end = g->cached + (int64_t)count;
    } else if (g->slide) {
        end = slide(g, tokens, count);
    } else {
        return by_error_set(error, BY_ESTATE,
                            "the context is full: %lld tokens and %zu more do not fit into %lld",
                            (long long)g->cached, count, (long long)g->context);
    }
    BY_TRY(advance(g, end, error));
    g->position += count;
    return BY_OK;
}

const float *by_generator_logits(const by_generator *generator)
{
    return generator->ready ? generator->logits : NULL;
}

by_status by_generator_sample(by_generator *generator, const by_sampling *sampling, int32_t *token,
                              by_error *error)
{
    return by_generator_sample_with(generator, sampling, NULL, NULL, NULL, 0, 0, token, error);
}

by_status by_generator_sample_with(by_generator *generator, const by_sampling *sampling,
                                   by_logits_processor *process, void *user, const int32_t *tokens,
                                   int64_t count, int64_t prompt, int32_t *token, by_error *error)
{
    const by_generator *g = generator;
    const float *logits = g->logits;
    if (!g->ready) {
        return by_error_set(error, BY_ESTATE, "no token was taken in yet, so none can follow");
    }
    if (process != NULL) {
        memcpy(g->processed, logits, (size_t)g->vocab * sizeof *logits);
        BY_TRY(process(user, 0, g->processed, g->vocab, tokens, count, prompt, error));
        logits = g->processed;
    }
    return by_sample(token, sampling, logits, g->vocab, g->position, g->scratch, error);
}

uint64_t by_generator_position(const by_generator *generator)
{
    return generator->position;
}

int64_t by_generator_cached(const by_generator *generator)
{
    return generator->cached;
}

int64_t by_generator_context(const by_generator *generator)
{
    return generator->context;
}

int64_t by_generator_vocab(const by_generator *generator)
{
    return generator->vocab;
}

const by_generator_memory_report *by_generator_memory(const by_generator *generator)
{
    return &generator->memory;
}

double by_generator_flops(const by_generator *generator, int64_t tokens)
{
    double n = (double)tokens;
    double last = (double)(generator->work.products - generator->body_products);
    double w = fmin(n, generator->work.window_tokens);
    return 2.0 * (double)generator->body_products * n + 2.0 * last +
           generator->work.token_flops * n * (n + 1.0) / 2.0 +
           generator->work.window_flops * (w * (w + 1.0) / 2.0 + w * (n - w));
}

double by_generator_token_bytes(const by_generator *generator, int64_t cached)
{
    return generator->work.weight_bytes + generator->work.token_bytes * (double)cached +
           generator->work.window_bytes * fmin((double)cached, generator->work.window_tokens);
}
