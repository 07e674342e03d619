#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"

/* Tokens of the prefill programs. The end of a prompt is filled up to one of them, so a ladder of
 * sizes keeps that waste small. */
static const int64_t ladder[] = {16, 32, 64, 128, 256, 512};
#define RUNGS 6
/* Tokens of filling that are cheaper than one run more, which reads all weights once more. */
#define FILLING 48

struct by_generator {
    by__forward decode;
    by__forward prefill[RUNGS];
    int rungs; /* prefill programs that exist: those that fit into the caches */
    by__block weights;
    by__block caches;
    by__pages arena;
    by__pages workspace;
    by__pages data;
    int32_t *tokens;    /* input of all programs */
    int32_t *positions; /* the same */
    int32_t *start;
    float *logits;
    void *scratch;   /* of by_sample */
    int32_t *window; /* [context] tokens in the caches */
    int64_t context;
    int64_t slots; /* positions of the caches: the context and room for filling */
    int64_t table; /* rows of a table of positions; 0: positions are rotary */
    int64_t vocab;
    int64_t cached; /* tokens of the window that are valid */
    uint64_t position;
    int64_t products;      /* weights that take part in matrix products */
    int64_t body_products; /* those of them that a token needs when another follows */
    double weight_bytes;   /* of weights that a token reads whole */
    double token_flops;    /* of attention, for each cached token */
    double token_bytes;    /* of keys and values, the same */
    bool slide;
    bool ready; /* the logits are those after the window */
    by_generator_memory_report memory;
};

static int64_t smallest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of the parameters of which a run reads more than a row. */
static by_status count_read(double *bytes, const by_graph *graph, by_error *error)
{
    bool *read;
    BY_TRY(by__alloc((void **)&read, graph->value_count, sizeof *read, "count", error));
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__node *node = &graph->nodes[n];
        uint32_t gathers = by__op_row_of(node->op)->gathers;
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && !by__mask_has(gathers, i)) {
                read[node->in[i]] = true;
            }
        }
    }
    *bytes = 0.0;
    for (size_t v = 0; v < graph->value_count; v++) {
        if (read[v] && graph->values[v].role == BY_ROLE_PARAMETER) {
            *bytes += (double)by__value_bytes(&graph->values[v]);
        }
    }
    free(read);
    return BY_OK;
}

/* Work that by_generator_flops and by_generator_token_bytes count, read off the graphs. */
static by_status measure_work(by_generator *g, by_error *error)
{
    const by_graph *graph = g->decode.graph;
    int64_t all;
    BY_TRY(by_model_count(graph, &all, &g->products, error));
    BY_TRY(by_model_count(g->prefill[0].graph, &all, &g->body_products, error));
    BY_TRY(count_read(&g->weight_bytes, graph, error));
    for (size_t n = 0; n < graph->node_count; n++) {
        by__attention_cost cost;
        BY_TRY(by__node_attention(graph, n, &cost, error));
        g->token_flops += cost.cached_flops;
        g->token_bytes += cost.cached_bytes;
    }
    return BY_OK;
}

/* Builds and compiles all programs and loads the weights. */
static by_status compile(by_generator *g, const by__forward_options *options,
                         const by_weights *weights, by_error *error)
{
    g->slots = (g->context / ladder[0] + 2) * ladder[0];
    by_model_request request = {.mode = BY_MODEL_DECODE, .batch = 1, .time = 1, .cache = g->slots};
    BY_TRY(by__forward_build(&g->decode, options, &request, error));
    if (g->decode.model.positions != BY_NONE) {
        g->table = options->config->context;
        if (g->context > g->table) {
            return by_error_set(error, BY_EARG,
                                "context %lld: the model has a table of %lld positions and no more",
                                (long long)g->context, (long long)g->table);
        }
    }
    BY_TRY(by__weights_block_open(&g->weights, g->decode.graph, options, weights, error));
    BY_TRY(
        by__block_open(&g->caches, g->decode.graph, BY_ROLE_STATE, "the key/value caches", error));
    BY_TRY(by__forward_compile(&g->decode, options->threads, error));
    request.mode = BY_MODEL_PREFILL;
    for (g->rungs = 0; g->rungs < RUNGS; g->rungs++) {
        if (ladder[g->rungs] > g->slots) {
            break;
        }
        request.time = ladder[g->rungs];
        BY_TRY(by__forward_build(&g->prefill[g->rungs], options, &request, error));
        BY_TRY(by__forward_compile(&g->prefill[g->rungs], options->threads, error));
    }
    return measure_work(g, error);
}

/* Takes the next `bytes` of a block, on a cache line. */
static void *carve(char *block, size_t *offset, size_t bytes)
{
    void *place = block == NULL ? NULL : block + *offset;
    *offset += by__round_up(bytes, BY_CACHE_LINE);
    return place;
}

/* Places of the small buffers in `block` (NULL: only measures). */
static size_t place_data(by_generator *g, char *block, int64_t logits)
{
    size_t offset = 0;
    size_t ids = (size_t)ladder[g->rungs - 1] * sizeof(int32_t);
    g->tokens = carve(block, &offset, ids);
    g->positions = carve(block, &offset, ids);
    g->start = carve(block, &offset, sizeof(int32_t));
    g->logits = carve(block, &offset, (size_t)logits * sizeof(float));
    g->window = carve(block, &offset, (size_t)g->context * sizeof(int32_t));
    return offset;
}

static by_status bind(by_generator *g, by__forward *forward, by_error *error)
{
    by_program_set_memory(forward->program, by_host_memory(g->arena.data, g->arena.bytes),
                          by_host_memory(g->workspace.data, g->workspace.bytes));
    BY_TRY(by__block_bind(&g->weights, forward, error));
    BY_TRY(by__block_bind(&g->caches, forward, error));
    BY_TRY(by__forward_bind(forward, "tokens", g->tokens, error));
    BY_TRY(by__forward_bind(forward, "positions", g->positions, error));
    BY_TRY(by__forward_bind(forward, "start", g->start, error));
    return by__forward_bind(forward, "logits", g->logits, error);
}

static by_status allocate(by_generator *g, by_error *error)
{
    int64_t model_vocab = by_shape_count(&g->decode.graph->values[g->decode.model.logits].shape);
    size_t arena = by_program_arena_bytes(g->decode.program);
    size_t workspace = by_program_workspace_bytes(g->decode.program);
    for (int r = 0; r < g->rungs; r++) {
        arena = largest(arena, by_program_arena_bytes(g->prefill[r].program));
        workspace = largest(workspace, by_program_workspace_bytes(g->prefill[r].program));
    }
    if (g->vocab > model_vocab) {
        return by_error_set(error, BY_EARG, "the vocabulary has %lld tokens; the model knows %lld",
                            (long long)g->vocab, (long long)model_vocab);
    }
    g->vocab = g->vocab == 0 ? model_vocab : g->vocab;
    /* Sampling and programs never run at the same time. */
    workspace = largest(workspace, by_sample_scratch_bytes(g->vocab));
    size_t data = place_data(g, NULL, model_vocab);
    g->memory = (by_generator_memory_report){.weights = g->weights.pages.bytes,
                                             .caches = g->caches.pages.bytes,
                                             .activations = arena,
                                             .workspace = workspace,
                                             .data = data};
    g->memory.total = g->weights.pages.bytes + g->caches.pages.bytes + arena + workspace + data;
    BY_TRY(by__pages_open(&g->arena, arena, "the activations", error));
    BY_TRY(by__pages_open(&g->workspace, workspace, "the workspace", error));
    BY_TRY(by__pages_open(&g->data, data, "tokens and logits", error));
    (void)place_data(g, g->data.data, model_vocab);
    g->scratch = g->workspace.data;
    BY_TRY(bind(g, &g->decode, error));
    for (int r = 0; r < g->rungs; r++) {
        BY_TRY(bind(g, &g->prefill[r], error));
    }
    return BY_OK;
}

static by_status set_up(by_generator *g, const by_config *config, const by_weights *weights,
                        const by_generator_options *o, by_error *error)
{
    by__forward_options options;
    if (o->context < 0 || o->context > INT32_MAX / 2 || o->vocab < 0) {
        return by_error_set(error, BY_EARG, "context %lld or vocab %lld is out of range",
                            (long long)o->context, (long long)o->vocab);
    }
    BY_TRY(by__forward_options_read(&options, config, o->precision, o->threads, error));
    options.builder = o->builder;
    options.user = o->user;
    g->context = o->context == 0 ? config->model.context : o->context;
    g->vocab = o->vocab;
    g->slide = o->slide;
    BY_TRY(compile(g, &options, weights, error));
    return allocate(g, error);
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
    for (int r = 0; r < RUNGS; r++) {
        by__forward_close(&g->prefill[r]);
    }
    by__block_close(&g->weights);
    by__block_close(&g->caches);
    by__forward_close(&g->decode);
    by__pages_close(&g->arena);
    by__pages_close(&g->workspace);
    by__pages_close(&g->data);
    free(g);
    *generator = NULL;
}

void by_generator_reset(by_generator *generator)
{
    generator->cached = 0;
    generator->position = 0;
    generator->ready = false;
}

/* Runs window[cached .. cached + count) through a program for `time` >= count tokens. */
static by_status run(by_generator *g, by__forward *forward, int64_t time, int64_t count,
                     by_error *error)
{
    memcpy(g->tokens, g->window + g->cached, (size_t)count * sizeof *g->tokens);
    memset(g->tokens + count, 0, (size_t)(time - count) * sizeof *g->tokens);
    for (int64_t t = 0; t < time && g->table > 0; t++) {
        g->positions[t] = (int32_t)smallest(g->cached + t, g->table - 1);
    }
    *g->start = (int32_t)g->cached;
    BY_TRY(by_program_run(forward->program, error));
    g->cached += count;
    return BY_OK;
}

/* The rung for `rest` tokens: the smallest that holds them if that costs little filling and the
 * caches have room for it, else the largest that they fill. */
static int choose_rung(const by_generator *g, int64_t rest)
{
    int rung = 0;
    while (rung + 1 < g->rungs && ladder[rung + 1] <= rest) {
        rung++;
    }
    if (rung + 1 < g->rungs && ladder[rung] < rest) {
        int64_t next = ladder[rung + 1];
        rung += next - rest <= FILLING && g->cached + next <= g->slots;
    }
    return rung;
}

/* Takes in window[cached .. end). */
static by_status advance(by_generator *g, int64_t end, by_error *error)
{
    g->ready = false;
    while (g->cached < end - 1) {
        int64_t rest = end - 1 - g->cached;
        int rung = choose_rung(g, rest);
        BY_TRY(run(g, &g->prefill[rung], ladder[rung], smallest(rest, ladder[rung]), error));
    }
    BY_TRY(run(g, &g->decode, 1, 1, error));
    g->ready = true;
    return BY_OK;
}

/* Puts the last tokens of the sequence (window, then tokens) into an empty window; returns how
 * many. */
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
    if (!generator->ready) {
        return by_error_set(error, BY_ESTATE, "no token was taken in yet, so none can follow");
    }
    return by_sample(token, sampling, generator->logits, generator->vocab, generator->position,
                     generator->scratch, error);
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
    double last = (double)(generator->products - generator->body_products);
    return 2.0 * (double)generator->body_products * n + 2.0 * last +
           generator->token_flops * n * (n + 1.0) / 2.0;
}

double by_generator_token_bytes(const by_generator *generator, int64_t cached)
{
    return generator->weight_bytes + generator->token_bytes * (double)cached;
}
