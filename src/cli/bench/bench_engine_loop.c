/* Requests to an engine, and what is measured of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/program.h"
#include "bench/bench_engine.h"

#define PROMPT       512
#define TOKENS       64
#define SHORT_PROMPT 64 /* tokens of the request that runs during a long prompt */

/* Returns a number uniform in (0, 1); the sequence is the same in every run. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* Sets the arrival times of requests: random in the open loop (a Poisson process), and all at once
 * in the closed loop, in which a finished request is followed by the next. */
static void set_arrivals(cli_engine_bench *b)
{
    uint64_t state = 7;
    double at = 0.0;
    for (int64_t i = 0; i < b->r->requests; i++) {
        at += b->r->rate > 0.0 ? -log(uniform(&state)) / b->r->rate : 0.0;
        b->samples[i].arrived = b->load == NULL ? at : b->load[i].seconds / b->r->speed;
    }
}

/* Whether requests come when they are due, however many run. */
static bool is_open(const cli_engine_bench *b)
{
    return b->r->rate > 0.0 || b->load != NULL;
}

by_status cli_engine_submit(cli_engine_bench *b, uint64_t *session, int64_t prompt, int64_t tokens,
                            by_error *error)
{
    by_request q = {.prompt = b->prompt,
                    .prompt_count = (size_t)prompt,
                    .tokens = tokens,
                    .sampling = {.temperature = b->r->temperature,
                                 .top_p = 1.0,
                                 .seed = (uint64_t)b->submitted + 1}};
    uint64_t state = (uint64_t)b->submitted + 1;
    for (int64_t i = b->r->shared; i < prompt; i++) {
        bool repeats = b->r->pattern > 0 && i - b->r->shared >= b->r->pattern;
        b->prompt[i] =
            repeats ? b->prompt[i - b->r->pattern] : (int32_t)(uniform(&state) * (double)b->vocab);
    }
    by_status status = by_engine_submit(b->engine, &q, session, error);
    b->submitted += status == BY_OK;
    return status;
}

/* Submits a request. BY_ESTATE: the engine has no room at present. */
static by_status submit(cli_engine_bench *b, double now, by_error *error)
{
    cli_engine_sample *s = &b->samples[b->submitted];
    const by_load_request *q = b->load == NULL ? NULL : &b->load[b->submitted];
    by_status status = cli_engine_submit(b, &s->session, q == NULL ? b->r->prompt : q->prompt,
                                         q == NULL ? b->r->tokens : q->tokens, error);
    if (status == BY_OK) {
        s->arrived = is_open(b) ? b->began + s->arrived : now;
    }
    return status;
}

static by_status submit_due(cli_engine_bench *b, by_error *error)
{
    const cli_engine_request *r = b->r;
    by_status status = BY_OK;
    while (status == BY_OK && b->submitted < r->requests) {
        double now = by_clock();
        bool due = is_open(b) ? now - b->began >= b->samples[b->submitted].arrived
                              : b->submitted - b->done < r->sessions;
        if (!due) {
            return BY_OK;
        }
        status = submit(b, now, error);
    }
    return status == BY_ESTATE ? BY_OK : status;
}

/* Nothing is running: waits until the next request arrives. */
static void wait_for_arrival(const cli_engine_bench *b)
{
    double rest = b->began + b->samples[b->submitted].arrived - by_clock();
    if (rest > 0.0) {
        struct timespec pause = {(time_t)rest, (long)(1e9 * (rest - floor(rest)))};
        (void)nanosleep(&pause, NULL);
    }
}

/* Records an event. Returns true if it is the first token of one of the measured requests. */
static bool record_event(cli_engine_bench *b, const by_event *event, double now)
{
    int64_t i = 0;
    while (i < b->r->requests && b->samples[i].session != event->session) {
        i++;
    }
    if (i == b->r->requests) {
        return true;
    }
    cli_engine_sample *s = &b->samples[i];
    bool first = s->tokens == 0;
    s->first = first ? now : s->first;
    s->last = now;
    s->tokens++;
    b->done += event->finish != BY_FINISH_NONE;
    return first;
}

static by_status record_step(cli_engine_bench *b, const cli_engine_step *step, by_error *error)
{
    if (b->step_count == b->step_capacity) {
        size_t capacity = 2 * b->step_capacity + 1024;
        cli_engine_step *larger = realloc(b->steps, capacity * sizeof *larger);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: steps");
        }
        b->steps = larger;
        b->step_capacity = capacity;
    }
    b->steps[b->step_count++] = *step;
    return BY_OK;
}

by_status cli_engine_step_once(cli_engine_bench *b, by_error *error)
{
    const by_event *events;
    size_t count;
    by_engine_statistics before = by_engine_statistics_now(b->engine);
    double from = by_clock();
    by_status status = by_engine_step(b->engine, &events, &count, error);
    double now = by_clock();
    if (status != BY_OK) {
        return status;
    }
    by_engine_statistics after = by_engine_statistics_now(b->engine);
    cli_engine_step step = {.seconds = now - from,
                            .flops = after.flops - before.flops,
                            .bytes = after.bytes - before.bytes,
                            .rows = (int64_t)(after.rows - before.rows),
                            .generated = (int64_t)(after.generated - before.generated)};
    for (size_t i = 0; i < count; i++) {
        step.first += record_event(b, &events[i], now);
    }
    if (b->profile != NULL) {
        status = by_profile_span(b->profile, "step", from, now, error);
    }
    return status == BY_OK ? record_step(b, &step, error) : status;
}

static by_status work(cli_engine_bench *b, by_error *error)
{
    by_status status = BY_OK;
    while (status == BY_OK && b->done < b->r->requests) {
        status = submit_due(b, error);
        if (status == BY_OK && by_engine_busy(b->engine)) {
            status = cli_engine_step_once(b, error);
        } else if (status == BY_OK) {
            wait_for_arrival(b);
        }
    }
    return status;
}

/* ---- the measurement ---- */

/* Sets lengths that were not given, so that prompt and continuation fit into the context. */
static by_status choose_lengths(cli_engine_request *r, int64_t context, by_error *error)
{
    int64_t tokens = r->tokens >= 0 ? r->tokens : TOKENS < context / 2 ? TOKENS : context / 2;
    int64_t prompt = r->background > 0 ? SHORT_PROMPT : PROMPT;
    if (r->prompt < 0) {
        r->prompt = context - tokens < prompt ? context - tokens : prompt;
    }
    r->tokens = tokens;
    if (r->prompt < 1 || r->tokens < 1 || r->prompt > context || r->tokens > context - r->prompt ||
        r->shared > r->prompt) {
        return by_error_set(error, BY_EARG,
                            "%lld tokens of prompt (%lld of them shared) and %lld more do not fit "
                            "into the context of %lld",
                            (long long)r->prompt, (long long)r->shared, (long long)r->tokens,
                            (long long)context);
    }
    if (r->background >= context) {
        return by_error_set(error, BY_EARG,
                            "a prompt of %lld tokens beside them does not fit into the context of "
                            "%lld with a token behind it",
                            (long long)r->background, (long long)context);
    }
    if (r->requests < 0) {
        r->requests = 4 * r->sessions;
    }
    return BY_OK;
}

/* Reads the requests of a table; r->prompt becomes the longest prompt. */
static by_status read_load(cli_engine_bench *b, cli_engine_request *r, int64_t context,
                           by_error *error)
{
    by_table *table;
    size_t count;
    by_status status = by_table_open(&table, r->load, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_load_read(&b->load, &count, table, error);
    by_table_close(&table);
    r->prompt = 1;
    if (status == BY_OK) {
        r->requests =
            r->requests < 0 || r->requests > (int64_t)count ? (int64_t)count : r->requests;
    }
    for (int64_t i = 0; status == BY_OK && i < r->requests; i++) {
        const by_load_request *q = &b->load[i];
        r->prompt = q->prompt > r->prompt ? q->prompt : r->prompt;
        if (q->prompt > context || q->tokens > context + 1 - q->prompt) {
            status = by_error_set(error, BY_EARG,
                                  "%s row %lld: %lld tokens of prompt and %lld generated do not "
                                  "fit into the context of %lld",
                                  r->load, (long long)(i + 1), (long long)q->prompt,
                                  (long long)q->tokens, (long long)context);
        }
    }
    return status;
}

static by_status watch(cli_engine_bench *b, by_error *error)
{
    by_program *program;
    by_status status = by_profile_open(&b->profile, error);
    for (int i = 0; status == BY_OK && (program = by_engine_program(b->engine, i)) != NULL; i++) {
        status = by_profile_watch(b->profile, program, "step", BY_PROFILE_WORK_MODEL, error);
    }
    return status;
}

static by_status open_engine(cli_engine_bench *b, cli_engine_request *r, const char *path,
                             by_error *error)
{
    cli_measured_model model;
    by_status status = cli_open_measured(&model, path, &r->overrides, error);
    if (status == BY_OK) {
        int64_t context = model.used->model.context;
        status =
            r->load == NULL ? choose_lengths(r, context, error) : read_load(b, r, context, error);
    }
    if (status == BY_OK && r->speculate != NULL) {
        status =
            cli_draft_open(&b->drafts, r->speculate, NULL, r->precision, (int)r->threads, error);
    }
    if (status == BY_OK) {
        int64_t context = r->prompt + r->tokens;
        by_engine_options options = {.sessions = r->sessions + (r->background > 0),
                                     .draft = r->speculate == NULL ? NULL : &b->drafts.source,
                                     .rows = r->rows,
                                     .context = r->load != NULL           ? 0
                                                : r->background < context ? context
                                                                          : r->background + 1,
                                     .threads = (int)r->threads,
                                     .no_prefix_cache = r->background > 0,
                                     .precision = r->precision,
                                     .kv = r->kv};
        b->vocab = model.used->model.vocab;
        status = by_engine_open(&b->engine, model.used, model.weights, &options, error);
    }
    if (status == BY_OK) {
        const char *precision =
            r->precision == NULL ? by_infer_precision_of(model.used, model.weights) : r->precision;
        status = by_infer_precision(&b->dtype, precision, error);
        b->precision = cli_precision_name(precision, b->dtype);
    }
    if (status == BY_OK) {
        status = by_machine_describe(
            &b->machine, model.used->device,
            (int)(r->threads == 0 ? model.used->train.threads : r->threads), error);
    }
    if (status == BY_OK && r->profile) {
        status = watch(b, error);
    }
    cli_close_measured(&model);
    return status;
}

static by_status run_requests(cli_engine_bench *b, by_error *error)
{
    const cli_engine_request *r = b->r;
    int64_t longest = r->prompt > r->background ? r->prompt : r->background;
    b->samples = calloc((size_t)r->requests, sizeof *b->samples);
    b->prompt = calloc((size_t)longest, sizeof *b->prompt);
    if (b->samples == NULL || b->prompt == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: requests");
    }
    cli_random_tokens(b->prompt, (size_t)longest, b->vocab);
    set_arrivals(b);
    clock_t processor = clock();
    b->began = by_clock();
    by_status status = r->background > 0 ? cli_engine_run_background(b, error) : work(b, error);
    b->seconds = by_clock() - b->began;
    b->processor_seconds = (double)(clock() - processor) / (double)CLOCKS_PER_SEC;
    return status;
}

by_status cli_engine_measure(const cli_engine_request *request, const char *path,
                             cli_engine_rates *rates, by_error *error)
{
    cli_engine_request r = *request; /* a copy, because opening sets values that were not given */
    cli_engine_bench b = {.r = &r};
    by_status status = open_engine(&b, &r, path, error);
    if (status == BY_OK) {
        status = run_requests(&b, error);
    }
    if (status == BY_OK) {
        unsigned products = cli_peak_figures(b.precision, b.dtype);
        status = by_machine_measure(&b.machine, products | BY_MACHINE_MEMORY, error);
    }
    if (status == BY_OK) {
        status = cli_engine_report(&b, rates, error);
    }
    by_profile_close(&b.profile);
    by_engine_close(&b.engine);
    cli_draft_close(&b.drafts);
    free(b.samples);
    free(b.load);
    free(b.prompt);
    free(b.steps);
    return status;
}
