#include "infer/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/threads.h"

#define DEFAULT_SESSIONS 16
#define MAX_SEQUENCES    65536
#define DRAFT_TOKENS     7
/* Rows of a step available for drafts, beyond one for each decoding sequence. When many sequences
 * decode, an additional row costs as much as it can gain. */
#define DRAFT_ROWS 32
/* Below this, only powers of two have a program, because additional rows cost little there. */
#define FINE 8
/* Tokens of an engine without a model. */
#define DRY_VOCAB 2

static by_status check_options(const by_engine_options *o, by_error *error)
{
    if (o->kv != NULL && strcmp(o->kv, "int8") != 0) {
        return by_error_set(error, BY_EARG,
                            "the KV cache cannot be stored as '%s'; only int8 is supported", o->kv);
    }
    if (o->context < 0 || o->context > INT32_MAX / 2 || o->vocab < 0) {
        return by_error_set(error, BY_EARG, "context %lld or vocab %lld is out of range",
                            (long long)o->context, (long long)o->vocab);
    }
    if (o->sessions < 0 || o->sessions > MAX_SEQUENCES || o->waiting < 0 ||
        o->waiting > MAX_SEQUENCES || o->rows < 0 || o->rows > MAX_SEQUENCES) {
        return by_error_set(
            error, BY_EARG, "sessions %lld, waiting %lld or rows %lld is not in 0 .. %d",
            (long long)o->sessions, (long long)o->waiting, (long long)o->rows, MAX_SEQUENCES);
    }
    if (o->draft_tokens < 0 || o->draft_tokens > BY_DRAFT_TOKENS) {
        return by_error_set(error, BY_EARG, "draft_tokens %d is not in 0 .. %d",
                            (int)o->draft_tokens, BY_DRAFT_TOKENS);
    }
    if (o->pages < 0 || o->pages > INT32_MAX / BY_PAGE_TOKENS ||
        (o->pages > 0 && o->pool_bytes > 0)) {
        return by_error_set(error, BY_EARG,
                            "pages %lld is out of range, or the size of the pool is given twice",
                            (long long)o->pages);
    }
    return BY_OK;
}

/* Replaces zeros in the options by defaults. */
static by_status complete(by_engine *e, const by_config *config, by_error *error)
{
    by_engine_options *o = &e->options;
    o->context = o->context == 0 ? config->model.context : o->context;
    o->sessions = o->sessions == 0 ? DEFAULT_SESSIONS : o->sessions;
    o->waiting = o->waiting == 0 ? 4 * o->sessions : o->waiting;
    o->draft_tokens = o->draft_tokens == 0 ? DRAFT_TOKENS : o->draft_tokens;
    if (o->rows == 0) {
        o->rows = o->sessions > BY_ENGINE_ROWS ? o->sessions : BY_ENGINE_ROWS;
    }
    if (o->rows < o->sessions) {
        return by_error_set(error, BY_EARG,
                            "rows %lld; each of the %lld sequences that decode needs one",
                            (long long)o->rows, (long long)o->sessions);
    }
    e->context = o->context;
    e->vocab = o->vocab;
    e->slot_count = o->sessions + o->waiting;
    return BY_OK;
}

/* What a layer carries from token to token belongs to one sequence and knows only its end. So no
 * other sequence continues from it, and no draft is taken back. */
static by_status limit_carried(by_engine *e, by_error *error)
{
    if (e->steps.carries && e->options.draft != NULL) {
        return by_error_set(error, BY_EARG,
                            "drafts: the model has attention.kind linear, whose sums do not return "
                            "to an earlier token when a draft is wrong; generate without drafts");
    }
    e->options.no_prefix_cache = e->options.no_prefix_cache || e->steps.carries;
    return BY_OK;
}

/* Determines the bytes of a page over all layers, those of the weights before they are packed, and
 * whether the model supports the context, from a graph. */
static by_status measure_model(by_engine *e, size_t *page_bytes, uint64_t *weight_bytes,
                               by_error *error)
{
    const by__infer_forward_options *o = &e->forward.options;
    by_model model;
    by_model_request request = {.mode = BY_MODEL_STEP,
                                .codes = o->codes,
                                .batch = 1,
                                .time = 1,
                                .wanted = 1,
                                .sessions = 1,
                                .table = 1,
                                .pages = 1};
    by_graph *graph;
    by_pass_options passes = {.compute = o->compute, .loss = BY_NONE};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = o->builder != NULL
                           ? o->builder(o->user, &model, graph, o->config, &request, error)
                           : by_model_build(&model, graph, o->config, &request, error);
    if (status == BY_OK && o->builder == NULL) {
        status = by_infer_check_context(o->config, e->context, error);
    }
    if (status == BY_OK) {
        status = by_passes_run(graph, BY_PURPOSE_INFER, &passes, NULL, error);
    }
    *page_bytes = 0;
    *weight_bytes = 0;
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_STATE && !by__op_carries(graph, (by_value)v)) {
            *page_bytes += by__graph_value_bytes(value);
        } else if (value->role == BY_ROLE_PARAMETER) {
            *weight_bytes += by__graph_value_bytes(value);
        }
    }
    by_graph_close(&graph);
    return status;
}

int64_t by__infer_pool_default(int64_t table, int64_t sessions, size_t page_bytes,
                               uint64_t free_bytes)
{
    uint64_t fit = page_bytes == 0 ? UINT64_MAX : free_bytes / 2 / page_bytes;
    int64_t most = table * sessions;
    most = fit < (uint64_t)most ? (int64_t)fit : most;
    return most < table ? table : most;
}

static by_status count_pages(by_engine *e, size_t page_bytes, uint64_t weight_bytes,
                             by_error *error)
{
    by_engine_options *o = &e->options;
    int64_t table = (e->context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    uint64_t available = UINT64_MAX;
    char size[32];
    if (o->pool_bytes > 0 && page_bytes > 0) {
        uint64_t pages = o->pool_bytes / page_bytes;
        o->pages = pages > INT32_MAX / BY_PAGE_TOKENS ? INT32_MAX / BY_PAGE_TOKENS : (int64_t)pages;
        if (o->pages == 0) {
            return by_error_set(error, BY_EARG, "the pool is smaller than one page, %s",
                                by_format_bytes(size, page_bytes));
        }
    }
    e->sized_pool = o->pages > 0;
    if (!e->sized_pool) {
        available = by__device_memory_free(e->forward.device);
        available -= weight_bytes < available ? weight_bytes : available;
    }
    if (!e->sized_pool) {
        o->pages = by__infer_pool_default(table, o->sessions, page_bytes, available);
    }
    if (o->pages > INT32_MAX / BY_PAGE_TOKENS) {
        return by_error_set(error, BY_EARG,
                            "%lld sequences of %lld tokens need %lld pages; a pool has %d at most",
                            (long long)o->sessions, (long long)e->context, (long long)o->pages,
                            INT32_MAX / BY_PAGE_TOKENS);
    }
    o->pool_bytes = (uint64_t)o->pages * page_bytes;
    return BY_OK;
}

/* Returns the number of rows of a step that may have logits. */
static int64_t wanted_rows(const by_engine_options *o)
{
    int64_t drafts = o->draft == NULL ? 0 : o->sessions * o->draft_tokens;
    int64_t most = o->sessions + (drafts < DRAFT_ROWS ? drafts : DRAFT_ROWS);
    return most < o->rows ? most : o->rows;
}

/* Returns the bytes of the records of sequences, pages and events. */
static size_t record_bytes(const by_engine *e)
{
    size_t slots = (size_t)e->slot_count;
    const size_t event = sizeof(by_event) + BY_TOP_TOKENS * sizeof(by_top_token);
    return slots * (sizeof(by__infer_sequence) + event + sizeof(int32_t)) +
           slots * (size_t)(e->context + 1) * sizeof(int32_t) +
           (size_t)e->options.sessions * (sizeof(int32_t) + sizeof(by__infer_page_copy) +
                                          sizeof(by_draft_text) + sizeof(by__infer_drafting)) +
           (size_t)e->steps.wanted *
               (event + sizeof(by__infer_wanted) + sizeof(by__infer_choice) + sizeof(int32_t)) +
           (size_t)e->steps.table * sizeof(int32_t) + by__infer_pool_bytes(e->options.pages) +
           (size_t)e->forward.options.threads *
               by__round_up(by_sample_scratch_bytes(e->vocab), BY_CACHE_LINE) +
           (size_t)e->vocab * sizeof(float);
}

static by_status allocate_records(by_engine *e, by_error *error)
{
    size_t slots = (size_t)e->slot_count;
    size_t sessions = (size_t)e->options.sessions;
    size_t wanted = (size_t)e->steps.wanted;
    size_t each = (size_t)e->context + 1;
    size_t tokens;
    if (!by__size_mul(slots, each, &tokens)) {
        return by_error_set(error, BY_EMEMORY, "%zu sequences of %zu tokens overflow", slots, each);
    }
    BY_TRY(by__alloc((void **)&e->slots, slots, sizeof *e->slots, "sequences", error));
    BY_TRY(by__alloc((void **)&e->tokens, tokens, sizeof *e->tokens, "sequences", error));
    BY_TRY(by__alloc((void **)&e->order, slots, sizeof *e->order, "sequences", error));
    BY_TRY(by__alloc((void **)&e->events, slots + wanted, sizeof *e->events, "events", error));
    BY_TRY(by__alloc((void **)&e->top, slots + wanted, BY_TOP_TOKENS * sizeof *e->top, "events",
                     error));
    BY_TRY(by__alloc((void **)&e->free_rows, sessions, sizeof *e->free_rows, "sequences", error));
    BY_TRY(by__alloc((void **)&e->copies, sessions, sizeof *e->copies, "sequences", error));
    BY_TRY(by__alloc((void **)&e->texts, sessions, sizeof *e->texts, "drafts", error));
    BY_TRY(by__alloc((void **)&e->drafting, sessions, sizeof *e->drafting, "drafts", error));
    BY_TRY(by__alloc((void **)&e->picks, wanted, sizeof *e->picks, "drafts", error));
    BY_TRY(by__alloc((void **)&e->wanted, wanted, sizeof *e->wanted, "sequences", error));
    BY_TRY(by__alloc((void **)&e->found, (size_t)e->steps.table, sizeof *e->found, "pages", error));
    BY_TRY(by__alloc((void **)&e->choices, wanted, sizeof *e->choices, "sequences", error));
    e->scratch_bytes = by__round_up(by_sample_scratch_bytes(e->vocab), BY_CACHE_LINE);
    BY_TRY(by__alloc_aligned(&e->scratch, (size_t)e->forward.options.threads * e->scratch_bytes,
                             "sampling", error));
    BY_TRY(by__alloc((void **)&e->processed, (size_t)e->vocab, sizeof(float), "sampling", error));
    for (size_t i = 0; i < slots; i++) {
        e->slots[i].tokens = e->tokens + i * each;
    }
    for (size_t i = 0; i < sessions; i++) {
        e->free_rows[i] = (int32_t)(sessions - 1 - i);
    }
    e->free_row_count = (int64_t)sessions;
    return by__infer_pool_open(&e->pool, e->options.pages, error);
}

/* Checks that there is enough memory. The source of drafts has already allocated its own. */
static by_status check_memory(const by_engine *e, by_error *error)
{
    const by_device *device = e->forward.device;
    uint64_t available = by__device_memory_free(device);
    char need[32];
    char have[32];
    char pool[32];
    uint64_t bytes = e->memory.total - e->memory.drafts;
    bytes -= device->host_memory ? 0 : e->memory.data; /* most of it is the host's */
    if (bytes > available) {
        return by_error_set(
            error, BY_EMEMORY,
            "not enough memory: the engine needs %s and %s are free%s (KV cache %s "
            "for %lld tokens); use %sa shorter context, fewer sessions or fewer "
            "bits (precision, kv)",
            by_format_bytes(need, bytes), by_format_bytes(have, available),
            device->host_memory ? "" : " on the device", by_format_bytes(pool, e->memory.pool),
            (long long)(e->options.pages * BY_PAGE_TOKENS), e->sized_pool ? "fewer pages, " : "");
    }
    return BY_OK;
}

/* Chooses the numbers of rows that programs are compiled for: powers of two, from FINE on also the
 * midpoints between them, and the maximum. Beyond 1,536 rows, only the program for the maximum is
 * used. */
static int choose_sizes(int64_t *sizes, int64_t rows)
{
    int count = 0;
    for (int64_t size = 1; size < rows && size <= 1024; size *= 2) {
        sizes[count++] = size;
        if (size >= FINE && size + size / 2 < rows) {
            sizes[count++] = size + size / 2;
        }
    }
    sizes[count++] = rows;
    return count;
}

static by_status set_up(by_engine *e, const by_config *config, const by_weights *weights,
                        by_error *error)
{
    int64_t sizes[BY__STEP_SIZES];
    by__infer_forward_options options;
    size_t page_bytes;
    uint64_t weight_bytes;
    const by_engine_options *o = &e->options;
    BY_TRY(check_options(o, error));
    BY_TRY(complete(e, config, error));
    BY_TRY(
        by__infer_forward_options_read(&options, config, weights, o->precision, o->threads, error));
    options.codes = o->kv != NULL;
    options.builder = o->builder;
    options.user = o->user;
    options.device = o->device;
    BY_TRY(by__infer_forward_open(&e->forward, &options, error));
    BY_TRY(measure_model(e, &page_bytes, &weight_bytes, error));
    BY_TRY(count_pages(e, page_bytes, weight_bytes, error));
    int64_t table = (e->context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    BY_TRY(by__infer_steps_compile(&e->steps, &e->forward, sizes, choose_sizes(sizes, o->rows),
                                   o->sessions, wanted_rows(o), table, o->pages, error));
    BY_TRY(limit_carried(e, error));
    if (e->vocab > e->steps.vocab) {
        return by_error_set(error, BY_EARG, "the vocabulary has %lld tokens; the model knows %lld",
                            (long long)e->vocab, (long long)e->steps.vocab);
    }
    e->vocab = e->vocab == 0 ? e->steps.vocab : e->vocab;
    BY_TRY(by__infer_forward_plan(&e->forward, weights, error));
    by_engine_memory_report *m = &e->memory;
    m->weights = by__store_bytes(e->forward.store, BY__COPY);
    m->pool = by__store_bytes(e->forward.store, BY__CACHE);
    m->activations = by__exec_set_arena_bytes(&e->forward.programs);
    m->workspace = by__exec_set_workspace_bytes(&e->forward.programs);
    m->data = by__infer_steps_bytes(&e->steps) + record_bytes(e);
    if (o->draft != NULL) {
        BY_TRY(
            o->draft->start(o->draft->user, o->sessions, e->context, e->vocab, &m->drafts, error));
    }
    m->total = m->weights + m->pool + m->activations + m->workspace + m->data + m->drafts;
    BY_TRY(check_memory(e, error));
    BY_TRY(by__infer_forward_start(&e->forward, weights, error));
    BY_TRY(by__infer_steps_allocate(&e->steps, error));
    return allocate_records(e, error);
}

by_status by_engine_open(by_engine **out, const by_config *config, const by_weights *weights,
                         const by_engine_options *options, by_error *error)
{
    by_engine *e;
    by_engine_options defaults = {0};
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "engine", error));
    e->options = options == NULL ? defaults : *options;
    by_status status = set_up(e, config, weights, error);
    if (status != BY_OK) {
        by_engine_close(&e);
        return status;
    }
    e->events_reported = true;
    *out = e;
    return BY_OK;
}

/* Tokens and logits of an engine without a model. */
static by_status allocate_dry(by_engine *e, by_error *error)
{
    by__infer_step_programs *s = &e->steps;
    size_t table;
    size_t rows = (size_t)s->rows;
    size_t logits = (size_t)(s->wanted * s->vocab);
    size_t count = 3 * rows + (size_t)s->wanted + logits;
    if (!by__size_mul((size_t)s->sessions, (size_t)s->table, &table) ||
        !by__size_add(count, table, &count)) {
        return by_error_set(error, BY_EMEMORY, "%lld sequences of %lld pages overflow",
                            (long long)s->sessions, (long long)s->table);
    }
    BY_TRY(by__alloc(&e->dry, count, sizeof(int32_t), "the inputs", error));
    s->tokens = e->dry;
    s->positions = s->tokens + rows;
    s->row_sessions = s->positions + rows;
    s->wanted_rows = s->row_sessions + rows;
    s->logits = (float *)(void *)(s->wanted_rows + s->wanted);
    s->page_table = s->wanted_rows + s->wanted + logits;
    return BY_OK;
}

static by_status set_up_dry(by_engine *e, by_error *error)
{
    int64_t sizes[BY__STEP_SIZES];
    const by_engine_options *o = &e->options;
    BY_TRY(check_options(o, error));
    if (o->context < 1 || o->pages < 1 || o->draft != NULL) {
        return by_error_set(error, BY_EARG,
                            "an engine without a model takes context %lld and pages %lld from 1 "
                            "on, and no drafts",
                            (long long)o->context, (long long)o->pages);
    }
    BY_TRY(complete(e, NULL, error));
    e->forward.options.threads = 1;
    by__infer_steps_list(&e->steps, sizes, choose_sizes(sizes, o->rows), o->sessions,
                         wanted_rows(o), (e->context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS,
                         o->pages);
    e->vocab = e->steps.vocab = DRY_VOCAB;
    BY_TRY(allocate_dry(e, error));
    e->memory.data = e->memory.total = record_bytes(e);
    return allocate_records(e, error);
}

by_status by_engine_open_dry(by_engine **out, const by_engine_options *options, by_error *error)
{
    by_engine *e;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "engine", error));
    e->options = *options;
    by_status status = set_up_dry(e, error);
    if (status != BY_OK) {
        by_engine_close(&e);
        return status;
    }
    e->events_reported = true;
    *out = e;
    return BY_OK;
}

void by_engine_close(by_engine **engine)
{
    if (engine == NULL || *engine == NULL) {
        return;
    }
    by_engine *e = *engine;
    if (e->forward.device != NULL) {
        (void)by_device_finish(e->forward.device, NULL);
    }
    by__infer_steps_close(&e->steps);
    by__infer_forward_close(&e->forward);
    by__infer_pool_close(&e->pool);
    free(e->slots);
    free(e->tokens);
    free(e->order);
    free(e->events);
    free(e->top);
    free(e->free_rows);
    free(e->copies);
    free(e->wanted);
    free(e->choices);
    free(e->texts);
    free(e->drafting);
    free(e->picks);
    free(e->found);
    free(e->scratch);
    free(e->processed);
    free(e->dry);
    free(e);
    *engine = NULL;
}

const by_engine_memory_report *by_engine_memory(const by_engine *engine)
{
    return &engine->memory;
}

by_program *by_engine_program(const by_engine *engine, int index)
{
    bool has = index >= 0 && index < engine->steps.count && engine->dry == NULL;
    return has ? engine->steps.list[index].program->program : NULL;
}

bool by_engine_program_size(const by_engine *engine, int index, int64_t *rows, int64_t *wanted)
{
    if (index < 0 || index >= engine->steps.count) {
        return false;
    }
    *rows = engine->steps.list[index].rows;
    *wanted = engine->steps.list[index].wanted;
    return true;
}

by_engine_work by_engine_last_work(const by_engine *engine)
{
    return engine->work;
}
