#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/beam.h"
#include "infer/scheduler.h"

/* Minimum number of rows of a step, for chunks of the prompt. */
#define ROWS 256

/* A partial or complete text. All beams of a step have the same length. */
typedef struct beam {
    int32_t *tokens; /* [context + 1], without the prompt */
    int32_t *pages;  /* [table]; unused in a hypothesis */
    int64_t count;
    double sum;   /* of log-probabilities */
    double score; /* of a hypothesis */
    bool stopped;
} beam;

/* A beam extended by one token. */
typedef struct beam_continuation {
    double sum;
    int32_t beam;
    int32_t token;
    bool ends;
    bool stopped;
} beam_continuation;

struct by_beam {
    by__infer_forward forward;
    by__infer_step_programs steps;
    by__infer_page_pool pool;
    int32_t width;
    int64_t context;
    int64_t vocab;
    beam *running; /* [width]: those of this step, and of the next */
    beam *next;
    beam *finished; /* [width], best first */
    int32_t running_count;
    int32_t finished_count;
    int64_t page_count; /* of each running beam */
    beam_continuation *continuations;
    int64_t continuation_count;
    int32_t *ids;   /* [candidates]: of one beam */
    double *values; /* the same */
    int32_t *tokens;
    int32_t *pages;
    by_hypothesis *hypotheses;
    void *scratch;
    uint64_t bytes;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- opening ---- */

/* Returns how many continuations a step considers, of one beam and of all beams. */
static int64_t most_candidates(const by_beam *b)
{
    return smaller((int64_t)(1 + BY_BEAM_STOP_TOKENS) * b->width, b->vocab);
}

static by_status compile(by_beam *b, const by_config *config, const by_weights *weights,
                         const by_beam_options *o, by_error *error)
{
    by__infer_forward_options options;
    int64_t sizes[BY__STEP_SIZES];
    int count = 0;
    BY_TRY(
        by__infer_forward_options_read(&options, config, weights, o->precision, o->threads, error));
    options.device = o->device;
    for (int64_t size = 1; size < ROWS && count + 1 < BY__STEP_SIZES; size *= 2) {
        sizes[count++] = size;
    }
    sizes[count++] = ROWS;
    int64_t table = (b->context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    if (table > INT32_MAX / BY_PAGE_TOKENS / b->width) {
        return by_error_set(error, BY_EARG, "%d beams of %lld tokens", (int)b->width,
                            (long long)b->context);
    }
    BY_TRY(by__infer_forward_open(&b->forward, &options, error));
    BY_TRY(by__infer_steps_compile(&b->steps, &b->forward, sizes, count, b->width, b->width, table,
                                   table * b->width, error));
    if (b->vocab > b->steps.vocab) {
        return by_error_set(error, BY_EARG, "the vocabulary has %lld tokens; the model knows %lld",
                            (long long)b->vocab, (long long)b->steps.vocab);
    }
    b->vocab = b->vocab == 0 ? b->steps.vocab : b->vocab;
    return by__infer_forward_plan(&b->forward, weights, error);
}

static by_status allocate_beams(by_beam *b, beam **out, int32_t *tokens, int32_t *pages,
                                by_error *error)
{
    BY_TRY(by__alloc((void **)out, (size_t)b->width, sizeof **out, "beams", error));
    for (int32_t i = 0; i < b->width; i++) {
        (*out)[i].tokens = tokens + (b->context + 1) * i;
        (*out)[i].pages = pages + b->steps.table * i;
    }
    return BY_OK;
}

static by_status allocate(by_beam *b, const by_weights *weights, by_error *error)
{
    size_t width = (size_t)b->width;
    size_t each = (size_t)b->context + 1;
    size_t table = (size_t)b->steps.table;
    size_t most = (size_t)most_candidates(b);
    size_t scratch = by_sample_scratch_bytes(b->vocab);
    BY_TRY(by__infer_forward_start(&b->forward, weights, error));
    BY_TRY(by__infer_steps_allocate(&b->steps, error));
    BY_TRY(by__infer_pool_open(&b->pool, b->steps.pages, error));
    BY_TRY(by__alloc((void **)&b->tokens, 3 * width * each, sizeof(int32_t), "beams", error));
    BY_TRY(by__alloc((void **)&b->pages, 3 * width * table, sizeof(int32_t), "beams", error));
    BY_TRY(allocate_beams(b, &b->running, b->tokens, b->pages, error));
    BY_TRY(allocate_beams(b, &b->next, b->tokens + width * each, b->pages + width * table, error));
    BY_TRY(allocate_beams(b, &b->finished, b->tokens + 2 * width * each,
                          b->pages + 2 * width * table, error));
    BY_TRY(by__alloc((void **)&b->continuations, width * most, sizeof *b->continuations, "beams",
                     error));
    BY_TRY(by__alloc((void **)&b->ids, most, sizeof *b->ids, "beams", error));
    BY_TRY(by__alloc((void **)&b->values, most, sizeof *b->values, "beams", error));
    BY_TRY(by__alloc((void **)&b->hypotheses, width, sizeof *b->hypotheses, "beams", error));
    BY_TRY(by__alloc_aligned(&b->scratch, scratch, "beams", error));
    b->bytes =
        by__store_bytes(b->forward.store, BY__COPY) + by__store_bytes(b->forward.store, BY__CACHE) +
        by__exec_set_arena_bytes(&b->forward.programs) +
        by__exec_set_workspace_bytes(&b->forward.programs) + by__infer_steps_bytes(&b->steps) +
        by__infer_pool_bytes(b->steps.pages) + 3 * width * (each + table) * sizeof(int32_t) +
        width * (3 * sizeof(beam) + sizeof *b->hypotheses) +
        width * most * sizeof *b->continuations + most * (sizeof *b->ids + sizeof *b->values) +
        scratch;
    return BY_OK;
}

by_status by_beam_open(by_beam **out, const by_config *config, const by_weights *weights,
                       const by_beam_options *options, by_error *error)
{
    by_beam *b;
    int64_t context = options->context == 0 ? config->model.context : options->context;
    if (options->beams < 1 || options->beams > BY_BEAMS || context < 1 || context > INT32_MAX / 2 ||
        options->vocab < 0) {
        return by_error_set(
            error, BY_EARG, "%d beams (1 to %d), a context of %lld or a vocabulary of %lld",
            (int)options->beams, BY_BEAMS, (long long)context, (long long)options->vocab);
    }
    BY_TRY(by_infer_check_context(&config->model, context, error));
    BY_TRY(by__alloc((void **)&b, 1, sizeof *b, "beam search", error));
    b->width = options->beams;
    b->context = context;
    b->vocab = options->vocab;
    by_status status = compile(b, config, weights, options, error);
    if (status == BY_OK) {
        status = allocate(b, weights, error);
    }
    if (status != BY_OK) {
        by_beam_close(&b);
        return status;
    }
    *out = b;
    return BY_OK;
}

void by_beam_close(by_beam **beam_search)
{
    by_beam *b = *beam_search;
    if (b == NULL) {
        return;
    }
    if (b->forward.device != NULL) {
        (void)by_device_finish(b->forward.device, NULL);
    }
    by__infer_steps_close(&b->steps);
    by__infer_forward_close(&b->forward);
    by__infer_pool_close(&b->pool);
    free(b->running);
    free(b->next);
    free(b->finished);
    free(b->tokens);
    free(b->pages);
    free(b->continuations);
    free(b->ids);
    free(b->values);
    free(b->hypotheses);
    free(b->scratch);
    free(b);
    *beam_search = NULL;
}

uint64_t by_beam_bytes(const by_beam *beam_search)
{
    return beam_search->bytes;
}

/* ---- keys and values ---- */

static void release_pages(by_beam *b)
{
    for (int32_t i = 0; i < b->running_count; i++) {
        for (int64_t p = 0; p < b->page_count; p++) {
            by__infer_pool_release(&b->pool, b->running[i].pages[p]);
        }
    }
    b->page_count = 0;
    b->running_count = 0;
}

/* Takes pages for the tokens of all running beams below `end`. Tokens from `from` on are written
 * next, so a beam gets its own copy of the page that contains it. There are always enough pages. */
static by_status make_room(by_beam *b, int64_t from, int64_t end, by_error *error)
{
    int64_t at = from / BY_PAGE_TOKENS;
    int64_t count = (end + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    for (int32_t i = 0; i < b->running_count; i++) {
        int32_t *pages = b->running[i].pages;
        if (at < b->page_count && b->pool.pages[pages[at]].uses > 1) {
            by__infer_page_copy copy = {.to = by__infer_pool_allocate(&b->pool), .from = pages[at]};
            BY_TRY(by__infer_steps_copy_page(&b->steps, copy, error));
            by__infer_pool_release(&b->pool, pages[at]);
            pages[at] = copy.to;
        }
        for (int64_t p = b->page_count; p < count; p++) {
            pages[p] = by__infer_pool_allocate(&b->pool);
        }
        memcpy(b->steps.page_table + i * b->steps.table, pages,
               (size_t)(count > b->page_count ? count : b->page_count) * sizeof *pages);
    }
    b->page_count = count > b->page_count ? count : b->page_count;
    return BY_OK;
}

static void set_row(by_beam *b, int64_t row, int32_t token, int64_t position, int32_t session)
{
    b->steps.tokens[row] = token;
    b->steps.positions[row] = (int32_t)position;
    b->steps.row_sessions[row] = session;
}

/* Computes the prompt; its last row yields the first logits. */
static by_status run_prompt(by_beam *b, const by_beam_request *r, by_error *error)
{
    int64_t count = (int64_t)r->prompt_count;
    b->running_count = 1;
    b->running[0].count = 0;
    b->running[0].sum = 0.0;
    BY_TRY(make_room(b, 0, count, error));
    for (int64_t from = 0; from < count; from += ROWS) {
        int64_t rows = smaller(count - from, ROWS);
        int64_t wanted = from + rows == count;
        for (int64_t i = 0; i < rows; i++) {
            set_row(b, i, r->prompt[from + i], from + i, 0);
        }
        b->steps.wanted_rows[0] = (int32_t)(rows - 1);
        BY_TRY(by__infer_steps_run(&b->steps, by__infer_steps_choose(&b->steps, rows, wanted), rows,
                                   wanted, error));
    }
    return BY_OK;
}

/* Computes the last token of each beam. */
static by_status run_tokens(by_beam *b, int64_t position, by_error *error)
{
    int64_t rows = b->running_count;
    BY_TRY(make_room(b, position, position + 1, error));
    for (int32_t i = 0; i < rows; i++) {
        const beam *one = &b->running[i];
        set_row(b, i, one->tokens[one->count - 1], position, i);
        b->steps.wanted_rows[i] = i;
    }
    return by__infer_steps_run(&b->steps, by__infer_steps_choose(&b->steps, rows, rows), rows, rows,
                               error);
}

/* ---- the search ---- */

static int falling(const void *x, const void *y)
{
    const beam_continuation *a = x;
    const beam_continuation *b = y;
    if (a->sum != b->sum) {
        return a->sum > b->sum ? -1 : 1;
    }
    if (a->beam != b->beam) {
        return a->beam < b->beam ? -1 : 1;
    }
    return a->token < b->token ? -1 : a->token > b->token;
}

static bool is_stop(const by_beam_request *r, int32_t token)
{
    for (size_t i = 0; i < r->stop_count; i++) {
        if (r->stop[i] == token) {
            return true;
        }
    }
    return false;
}

/* Lists the best continuations of all beams, sorted. `last`: these have the maximum length. */
static by_status list_continuations(by_beam *b, const by_beam_request *r, bool last,
                                    by_error *error)
{
    int64_t wanted = (int64_t)(r->stop_count > 0 ? 1 + r->stop_count : 2) * b->width;
    int64_t most = smaller(wanted, b->vocab);
    int64_t count = 0;
    for (int32_t i = 0; i < b->running_count; i++) {
        double first;
        BY_TRY(by_log_probabilities(b->steps.logits + i * b->steps.vocab, b->vocab, 0, &first, most,
                                    b->ids, b->values, b->scratch, error));
        for (int64_t k = 0; k < most; k++) {
            bool stopped = is_stop(r, b->ids[k]);
            b->continuations[count++] = (beam_continuation){.sum = b->running[i].sum + b->values[k],
                                                            .beam = i,
                                                            .token = b->ids[k],
                                                            .ends = stopped || last,
                                                            .stopped = stopped};
        }
    }
    qsort(b->continuations, (size_t)count, sizeof *b->continuations, falling);
    b->continuation_count = smaller(count, wanted);
    return BY_OK;
}

static void extend(beam *to, const beam *from, const beam_continuation *c)
{
    memcpy(to->tokens, from->tokens, (size_t)from->count * sizeof *to->tokens);
    to->tokens[from->count] = c->token;
    to->count = from->count + 1;
    to->sum = c->sum;
    to->stopped = c->stopped;
}

/* Adds a hypothesis if it is among the best `width`. */
static void finish(by_beam *b, const beam_continuation *c, double length_penalty)
{
    const beam *from = &b->running[c->beam];
    double score = c->sum / pow((double)(from->count + 1), length_penalty);
    int32_t at = b->finished_count;
    while (at > 0 && b->finished[at - 1].score < score) {
        at--;
    }
    if (at == b->width) {
        return;
    }
    int32_t last = b->finished_count < b->width ? b->finished_count++ : b->width - 1;
    beam reused = b->finished[last];
    memmove(b->finished + at + 1, b->finished + at, (size_t)(last - at) * sizeof reused);
    b->finished[at] = reused;
    extend(&b->finished[at], from, c);
    b->finished[at].score = score;
}

/* Makes the continuations the next step's beams, which share the pages of the beams they extend. */
static void advance(by_beam *b)
{
    int32_t count = 0;
    int64_t pages = b->page_count;
    for (int64_t k = 0; k < b->continuation_count && count < b->width; k++) {
        const beam_continuation *c = &b->continuations[k];
        if (!c->ends) {
            beam *to = &b->next[count++];
            extend(to, &b->running[c->beam], c);
            memcpy(to->pages, b->running[c->beam].pages, (size_t)pages * sizeof *to->pages);
            for (int64_t p = 0; p < pages; p++) {
                by__infer_pool_share(&b->pool, to->pages[p]);
            }
        }
    }
    release_pages(b);
    beam *kept = b->running;
    b->running = b->next;
    b->next = kept;
    b->running_count = count;
    b->page_count = pages;
}

/* Returns true if the running beams can still change the list of hypotheses. */
static bool goes_on(const by_beam *b, const by_beam_request *r, int64_t most)
{
    if (b->running_count == 0) {
        return false;
    }
    if (b->finished_count < b->width) {
        return true;
    }
    const beam *best = &b->running[0];
    bool longest = r->end == BY_BEAM_END_NEVER && r->length_penalty > 0.0;
    double length = (double)(longest ? most : best->count);
    return r->end != BY_BEAM_END_FULL &&
           best->sum / pow(length, r->length_penalty) > b->finished[b->width - 1].score;
}

static by_status search(by_beam *b, const by_beam_request *r, int64_t most, by_error *error)
{
    int64_t position = (int64_t)r->prompt_count;
    BY_TRY(run_prompt(b, r, error));
    for (int64_t count = 1;; count++, position++) {
        BY_TRY(list_continuations(b, r, count == most, error));
        for (int64_t k = 0; k < smaller(b->continuation_count, b->width); k++) {
            if (b->continuations[k].ends) {
                finish(b, &b->continuations[k], r->length_penalty);
            }
        }
        advance(b);
        if (!goes_on(b, r, most)) {
            return BY_OK;
        }
        BY_TRY(run_tokens(b, position, error));
    }
}

static by_status check_tokens(const by_beam *b, const int32_t *tokens, size_t count,
                              by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= b->vocab) {
            return by_error_set(error, BY_EARG, "token %zu is id %d; the vocabulary has %lld", i,
                                (int)tokens[i], (long long)b->vocab);
        }
    }
    return BY_OK;
}

by_status by_beam_run(by_beam *beam_search, const by_beam_request *request,
                      const by_hypothesis **out, int32_t *count, by_error *error)
{
    by_beam *b = beam_search;
    const by_beam_request *r = request;
    int64_t prompt = (int64_t)r->prompt_count;
    if (prompt < 1 || prompt > b->context || r->tokens < 0 || r->stop_count > BY_BEAM_STOP_TOKENS ||
        !isfinite(r->length_penalty)) {
        return by_error_set(error, BY_EARG,
                            "a prompt of %lld tokens (1 to %lld), %lld more, %zu stop tokens (at "
                            "most %d) or a length penalty of %g is out of range",
                            (long long)prompt, (long long)b->context, (long long)r->tokens,
                            r->stop_count, BY_BEAM_STOP_TOKENS, r->length_penalty);
    }
    BY_TRY(check_tokens(b, r->prompt, r->prompt_count, error));
    BY_TRY(check_tokens(b, r->stop, r->stop_count, error));
    /* The last token is never computed, so it needs no room in the context. */
    int64_t room = b->context + 1 - prompt;
    int64_t most = r->tokens == 0 || r->tokens > room ? room : r->tokens;
    b->finished_count = 0;
    by_status status = search(b, r, most, error);
    release_pages(b);
    BY_TRY(status);
    for (int32_t i = 0; i < b->finished_count; i++) {
        const beam *one = &b->finished[i];
        b->hypotheses[i] =
            (by_hypothesis){one->tokens, one->count, one->sum, one->score, one->stopped};
    }
    *out = b->hypotheses;
    *count = b->finished_count;
    return BY_OK;
}
