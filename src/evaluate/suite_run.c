/* Scores items with the engine.
 *
 * The sequences of an item that begin alike share what they have in common: the first one runs
 * alone, and when it is done the prefix cache has the pages of its beginning for the others. While
 * it runs, other items fill the steps. */
#include <stdlib.h>

#include "banyan/engine.h"
#include "evaluate/suite_run.h"

/* Sequences that run at a time, which is also how many tokens a step may score, and rows of a
 * step. */
#define SESSIONS 128
#define ROWS     256
/* Tokens that the pool of keys and values has room for, at least. */
#define POOL_TOKENS 8192
/* Items that are prepared at a time. */
#define MAX_OPEN 64

typedef struct live_sequence {
    uint64_t session; /* 0: none */
    by__evaluate_open *item;
    size_t index;
} live_sequence;

typedef struct suite_run {
    const by_suite *suite;
    const by_suite_run_options *options;
    by_tokenizer *tokenizer;
    int32_t ends[BY_END_TOKENS]; /* tokens that end a generated text */
    size_t end_count;
    by_engine *engine;
    by__evaluate_encoder encoder;
    live_sequence live[SESSIONS];
    size_t live_count;
    uint64_t cancels[SESSIONS]; /* sessions to cancel when the events of a step are read */
    size_t cancel_count;
    by__evaluate_open open[MAX_OPEN];
    size_t open_count;
    size_t items;   /* of all tasks */
    size_t next;    /* item to prepare */
    size_t done;    /* items that are scored */
    size_t printed; /* items given to options.item */
    char **lines;   /* [items] */
    by__evaluate_score *scores;
    by_suite_results *results;
    by_error *error;
} suite_run;

static const by__evaluate_task *task_of(const suite_run *r, size_t number, size_t *task,
                                        size_t *item)
{
    *task = 0;
    while (number >= r->suite->tasks[*task].count) {
        number -= r->suite->tasks[*task].count;
        ++*task;
    }
    *item = number;
    return &r->suite->tasks[*task];
}

/* ---- items ---- */

static by_status print_lines(suite_run *r)
{
    by_status status = BY_OK;
    for (; status == BY_OK && r->printed < r->items && r->lines[r->printed] != NULL; r->printed++) {
        status = r->options->item(r->options->user, r->lines[r->printed], r->error);
        free(r->lines[r->printed]);
        r->lines[r->printed] = NULL;
    }
    return status;
}

static void free_open(by__evaluate_open *o)
{
    by__evaluate_item_free(&o->item);
    free(o->sums);
    free(o->greedy);
    by_text_stream_close(&o->stream);
    by_string_free(&o->text);
    *o = (by__evaluate_open){.used = false};
}

static by_status end_item(suite_run *r, by__evaluate_open *o)
{
    size_t task;
    size_t index;
    const by__evaluate_task *t = task_of(r, o->number, &task, &index);
    bool prints = r->options->item != NULL;
    BY_TRY(by__evaluate_score_item(&r->scores[o->number], prints ? &r->lines[o->number] : NULL, t,
                                   index, o, r->error));
    r->results->tasks[task].cut += o->item.cut;
    free_open(o);
    r->open_count--;
    r->done++;
    return prints ? print_lines(r) : BY_OK;
}

/* Opens the text that an item generates. */
static by_status open_stream(suite_run *r, by__evaluate_open *o, const by__evaluate_task *t)
{
    const char **stops;
    size_t i;
    json_t *stop;
    BY_TRY(
        by__alloc((void **)&stops, json_array_size(t->until), sizeof *stops, "a text", r->error));
    json_array_foreach(t->until, i, stop)
    {
        stops[i] = json_string_value(stop);
    }
    const by_text_stream_options options = {.stops = stops,
                                            .stop_count = json_array_size(t->until),
                                            .skip_special = true,
                                            .continues = true};
    by_status status = by_text_stream_open(&o->stream, r->tokenizer, &options, r->error);
    free(stops);
    return status;
}

/* Prepares the next item in a free place. */
static by_status open_next(suite_run *r)
{
    by__evaluate_open *o = r->open;
    size_t task;
    size_t index;
    while (o->used) {
        o++;
    }
    const by__evaluate_task *t = task_of(r, r->next, &task, &index);
    *o = (by__evaluate_open){.used = true, .number = r->next++};
    r->open_count++;
    BY_TRY(by__evaluate_item_make(&o->item, &r->encoder, t, index, r->error));
    BY_TRY(by__alloc((void **)&o->sums, o->item.count, sizeof *o->sums, "an item", r->error));
    BY_TRY(by__alloc((void **)&o->greedy, o->item.count, sizeof *o->greedy, "an item", r->error));
    for (size_t i = 0; i < o->item.count; i++) {
        r->results->tokens += o->item.sequences[i].tokens.count;
        o->greedy[i] = true;
    }
    return t->kind == BY__EVALUATE_GENERATE ? open_stream(r, o, t) : BY_OK;
}

/* Sequences of an item that may run: all, or the first until it is done. */
static size_t may_run(const by__evaluate_open *o)
{
    return o->item.shared >= BY_PAGE_TOKENS && o->ended == 0 ? 1 : o->item.count;
}

static by_status submit_one(suite_run *r, by__evaluate_open *o)
{
    const by__evaluate_sequence *s = &o->item.sequences[o->submitted++];
    size_t task;
    size_t index;
    const by__evaluate_task *t = task_of(r, o->number, &task, &index);
    bool generates = o->stream != NULL;
    if (!generates && s->tokens.count <= s->from) { /* nothing to score */
        o->ended++;
        return BY_OK;
    }
    live_sequence *live = r->live;
    while (live->session != 0) {
        live++;
    }
    by_request request = {/* Ids are below 2^31, so they are the same as int32_t. */
                          .prompt = (const int32_t *)(const void *)s->tokens.ids,
                          .prompt_count = s->tokens.count,
                          .sampling = {.top_p = 1.0},
                          .top = 1,
                          .score = true,
                          .score_from = (int64_t)s->from,
                          .only_prompt = true};
    if (generates) {
        request = (by_request){.prompt = request.prompt,
                               .prompt_count = request.prompt_count,
                               .tokens = t->most_tokens,
                               .sampling = t->sampling,
                               .stop = r->ends,
                               .stop_count = r->end_count};
        request.sampling.seed = r->suite->options.seed + o->number;
    }
    BY_TRY(by_engine_submit(r->engine, &request, &live->session, r->error));
    live->item = o;
    live->index = o->submitted - 1;
    r->live_count++;
    return BY_OK;
}

/* Fills the engine: first with the rest of items that have begun, then with new ones. */
static by_status submit(suite_run *r)
{
    for (;;) {
        for (size_t i = 0; i < MAX_OPEN; i++) {
            by__evaluate_open *o = &r->open[i];
            while (o->used && o->submitted < may_run(o) && r->live_count < SESSIONS) {
                BY_TRY(submit_one(r, o));
            }
            if (o->used && o->ended == o->item.count) {
                BY_TRY(end_item(r, o));
            }
        }
        if (r->next == r->items || r->open_count == MAX_OPEN || r->live_count == SESSIONS) {
            return BY_OK;
        }
        BY_TRY(open_next(r));
    }
}

/* Adds a generated token to its text. *ended: a text that ends it was found. */
static by_status add_generated(suite_run *r, by__evaluate_open *o, const by_event *event,
                               bool *ended)
{
    by_text text = {NULL, 0};
    bool is_end = event->finish == BY_FINISH_STOP;
    if (event->token >= 0 && !is_end) {
        BY_TRY(by_text_stream_push(o->stream, (uint32_t)event->token, &text, ended, r->error));
        by_string_add(&o->text, text.data, text.length);
        o->generated++;
    }
    if (event->finish != BY_FINISH_NONE && !*ended) {
        by_text_stream_end(o->stream, &text);
        by_string_add(&o->text, text.data, text.length);
    }
    return by_string_check(&o->text, r->error);
}

static by_status take_event(suite_run *r, const by_event *event)
{
    live_sequence *live = r->live;
    while (live < r->live + SESSIONS && live->session != event->session) {
        live++;
    }
    if (live == r->live + SESSIONS) { /* the end of one that was cancelled */
        return BY_OK;
    }
    by__evaluate_open *o = live->item;
    bool ended = false;
    if (event->finish == BY_FINISH_FAILED) {
        return by_error_set(r->error, event->status, "%s", event->failure);
    }
    if (o->stream != NULL) {
        BY_TRY(add_generated(r, o, event, &ended));
        if (ended && event->finish == BY_FINISH_NONE) {
            r->cancels[r->cancel_count++] = event->session;
        }
    } else if (event->prompt_position > 0) {
        o->sums[live->index] += (double)event->log_probability;
        bool likeliest = event->top_count > 0 && event->top[0].token == event->token;
        o->greedy[live->index] = o->greedy[live->index] && likeliest;
    }
    if (event->finish != BY_FINISH_NONE || ended) {
        live->session = 0;
        r->live_count--;
        o->ended++;
        return o->ended == o->item.count ? end_item(r, o) : BY_OK;
    }
    return BY_OK;
}

static by_status run_items(suite_run *r)
{
    BY_TRY(submit(r));
    while (r->done < r->items) {
        const by_event *events;
        size_t count;
        BY_TRY(by_engine_step(r->engine, &events, &count, r->error));
        for (size_t i = 0; i < count; i++) {
            BY_TRY(take_event(r, &events[i]));
        }
        for (; r->cancel_count > 0; r->cancel_count--) {
            BY_TRY(by_engine_cancel(r->engine, r->cancels[r->cancel_count - 1], r->error));
        }
        BY_TRY(submit(r));
        if (r->options->progress != NULL &&
            !r->options->progress(r->options->user, r->done, r->items)) {
            return by_error_set(r->error, BY_ESTOPPED, "evaluation was interrupted");
        }
    }
    return BY_OK;
}

/* ---- the whole ---- */

static by_status open_engine(suite_run *r, const by_pretrained *model)
{
    const by_config *config = by_pretrained_config(model);
    int64_t context = config->model.context;
    int64_t pages = (context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    int64_t least = POOL_TOKENS / BY_PAGE_TOKENS;
    const by_engine_options options = {.sessions = SESSIONS,
                                       .rows = ROWS,
                                       .pages = 2 * pages > least ? 2 * pages : least,
                                       .threads = r->options->threads,
                                       .precision = r->options->precision};
    BY_TRY(by_pretrained_tokenizer(&r->tokenizer, model, r->error));
    BY_TRY(by_end_tokens(r->ends, &r->end_count, by_pretrained_directory(model), r->tokenizer,
                         r->error));
    BY_TRY(by__evaluate_encoder_open(&r->encoder, r->tokenizer, (size_t)context, r->error));
    return by_engine_open(&r->engine, config, by_pretrained_weights(model), &options, r->error);
}

/* Refuses documents that all are empty before the model runs: they have no bits per byte. */
static by_status check_documents(const by__evaluate_task *t, by_error *error)
{
    for (size_t i = 0; i < t->count; i++) {
        by__evaluate_texts texts;
        BY_TRY(by__evaluate_texts_make(&texts, t, i, error));
        bool empty = texts.continuations[0].length == 0;
        by__evaluate_texts_free(&texts);
        if (!empty) {
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG, "task '%s': its documents are all empty", t->name);
}

static by_status open_results(suite_run *r)
{
    static const char *const kinds[] = {[BY__EVALUATE_GENERATE] = "generate",
                                        [BY__EVALUATE_CHOICE] = "choice",
                                        [BY__EVALUATE_SCHEMA] = "schema",
                                        [BY__EVALUATE_EXACT] = "exact",
                                        [BY__EVALUATE_PERPLEXITY] = "perplexity"};
    const by_suite *s = r->suite;
    BY_TRY(by__alloc((void **)&r->results, 1, sizeof *r->results, "results", r->error));
    BY_TRY(by__alloc((void **)&r->results->tasks, s->count, sizeof *r->results->tasks, "results",
                     r->error));
    r->results->task_count = s->count;
    for (size_t i = 0; i < s->count; i++) {
        r->results->tasks[i] = (by_suite_task_result){.name = s->tasks[i].name,
                                                      .kind = kinds[s->tasks[i].kind],
                                                      .items = s->tasks[i].count,
                                                      .few_shot = s->tasks[i].shots};
        if (s->tasks[i].kind == BY__EVALUATE_PERPLEXITY) {
            BY_TRY(check_documents(&s->tasks[i], r->error));
        }
        r->items += s->tasks[i].count;
    }
    BY_TRY(by__alloc((void **)&r->scores, r->items, sizeof *r->scores, "scores", r->error));
    return by__alloc((void **)&r->lines, r->items, sizeof *r->lines, "lines", r->error);
}

static void close_run(suite_run *r)
{
    for (size_t i = 0; i < MAX_OPEN; i++) {
        free_open(&r->open[i]);
    }
    for (size_t i = 0; r->lines != NULL && i < r->items; i++) {
        free(r->lines[i]);
    }
    free(r->lines);
    free(r->scores);
    by_engine_close(&r->engine);
    by__evaluate_encoder_close(&r->encoder);
    by_tokenizer_close(&r->tokenizer);
    by_suite_results_close(&r->results);
    free(r);
}

by_status by_suite_run(by_suite_results **out, const by_suite *suite, const by_pretrained *model,
                       const by_suite_run_options *options, by_error *error)
{
    static const by_suite_run_options none = {.seed = 0};
    suite_run *r;
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "evaluation", error));
    r->suite = suite;
    r->options = options == NULL ? &none : options;
    r->error = error;
    double began = by__now();
    by_status status = open_results(r);
    status = status == BY_OK ? open_engine(r, model) : status;
    status = status == BY_OK ? run_items(r) : status;
    if (status == BY_OK) {
        status = by__evaluate_results_fill(r->results, suite, r->scores, r->options->seed, error);
    }
    if (status == BY_OK) {
        r->results->computed = by_engine_statistics_now(r->engine).rows;
        r->results->seconds = by__now() - began;
        *out = r->results;
        r->results = NULL;
    }
    close_run(r);
    return status;
}
