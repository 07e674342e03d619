#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/engine.h"
#include "banyan/program.h"
#include "bench.h"

#define MAX_TOKENS   (1 << 24)
#define MAX_REQUESTS 100000
#define PROMPT       512
#define TOKENS       64

typedef struct request {
    cli_list overrides;
    const char *precision;
    const char *speculate; /* NULL: no drafts */
    double rate;           /* requests a second; 0: closed loop */
    int64_t sessions;
    int64_t requests; /* -1: not given */
    int64_t prompt;   /* -1: not given */
    int64_t tokens;   /* -1: not given */
    int64_t shared;   /* tokens that all prompts begin with */
    int64_t pattern;  /* tokens after which a prompt repeats itself; 0: never */
    int64_t rows;
    int64_t threads;
    bool json;
} request;

/* One request of the measurement; times are seconds of by_clock. */
typedef struct sample {
    uint64_t session; /* 0: not submitted */
    double arrived;
    double first;
    double last;
    int64_t tokens;
} sample;

typedef struct bench {
    const request *r;
    by_engine *engine;
    by_draft_source drafts;
    sample *samples;
    int32_t *prompt;
    int64_t vocab;
    int64_t submitted;
    int64_t done;
    double began;
    double seconds;
    double *steps; /* seconds of each step */
    size_t step_count;
    size_t step_capacity;
    by_machine machine;
    by_dtype dtype;
} bench;

/* Uniform in (0, 1), the same in every run. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* When requests arrive: at random in the open loop (a Poisson process), all at once in the closed
 * one, which takes the next when one is done. */
static void set_arrivals(bench *b)
{
    uint64_t state = 7;
    double at = 0.0;
    for (int64_t i = 0; i < b->r->requests; i++) {
        at += b->r->rate > 0.0 ? -log(uniform(&state)) / b->r->rate : 0.0;
        b->samples[i].arrived = at;
    }
}

/* BY_ESTATE: the engine has no room now. */
static by_status submit(bench *b, double now, by_error *error)
{
    const request *r = b->r;
    sample *s = &b->samples[b->submitted];
    by_request q = {.prompt = b->prompt,
                    .prompt_count = (size_t)r->prompt,
                    .tokens = r->tokens,
                    .sampling = {.temperature = 0.0, .top_p = 1.0}};
    uint64_t state = (uint64_t)b->submitted + 1;
    for (int64_t i = r->shared; i < r->prompt; i++) {
        bool repeats = r->pattern > 0 && i - r->shared >= r->pattern;
        b->prompt[i] =
            repeats ? b->prompt[i - r->pattern] : (int32_t)(uniform(&state) * (double)b->vocab);
    }
    by_status status = by_engine_submit(b->engine, &q, &s->session, error);
    if (status == BY_OK) {
        s->arrived = r->rate > 0.0 ? b->began + s->arrived : now;
        b->submitted++;
    }
    return status;
}

static by_status submit_due(bench *b, by_error *error)
{
    const request *r = b->r;
    by_status status = BY_OK;
    while (status == BY_OK && b->submitted < r->requests) {
        double now = by_clock();
        bool due = r->rate > 0.0 ? now - b->began >= b->samples[b->submitted].arrived
                                 : b->submitted - b->done < r->sessions;
        if (!due) {
            return BY_OK;
        }
        status = submit(b, now, error);
    }
    return status == BY_ESTATE ? BY_OK : status;
}

/* Nothing runs: until the next request arrives. */
static void wait_for_arrival(const bench *b)
{
    double rest = b->began + b->samples[b->submitted].arrived - by_clock();
    if (rest > 0.0) {
        struct timespec pause = {(time_t)rest, (long)(1e9 * (rest - floor(rest)))};
        (void)nanosleep(&pause, NULL);
    }
}

static void take_event(bench *b, const by_event *event, double now)
{
    int64_t i = 0;
    while (b->samples[i].session != event->session) {
        i++;
    }
    sample *s = &b->samples[i];
    s->first = s->tokens == 0 ? now : s->first;
    s->last = now;
    s->tokens++;
    b->done += event->finish != BY_FINISH_NONE;
}

static by_status keep_step(bench *b, double seconds, by_error *error)
{
    if (b->step_count == b->step_capacity) {
        size_t capacity = 2 * b->step_capacity + 1024;
        double *larger = realloc(b->steps, capacity * sizeof *larger);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: steps");
        }
        b->steps = larger;
        b->step_capacity = capacity;
    }
    b->steps[b->step_count++] = seconds;
    return BY_OK;
}

static by_status work(bench *b, by_error *error)
{
    by_status status = BY_OK;
    b->began = by_clock();
    while (status == BY_OK && b->done < b->r->requests) {
        const by_event *events;
        size_t count;
        status = submit_due(b, error);
        if (status != BY_OK) {
            break;
        }
        if (!by_engine_busy(b->engine)) {
            wait_for_arrival(b);
            continue;
        }
        double from = by_clock();
        status = by_engine_step(b->engine, &events, &count, error);
        double now = by_clock();
        for (size_t i = 0; i < count && status == BY_OK; i++) {
            take_event(b, &events[i], now);
        }
        if (status == BY_OK) {
            status = keep_step(b, now - from, error);
        }
    }
    b->seconds = by_clock() - b->began;
    return status;
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The value below which `share` of them are; sorts them. */
static double quantile(double *values, size_t count, double share)
{
    if (count == 0) {
        return 0.0;
    }
    qsort(values, count, sizeof *values, ascending);
    size_t at = (size_t)(share * (double)(count - 1) + 0.5);
    return values[at];
}

typedef struct figures {
    double ttft[2]; /* milliseconds: median, 95 % */
    double token[2];
    double step[2];
    double generated; /* tokens a second */
    double rows;
    double gflops;
    double peak;
    double gbps;
} figures;

static by_status summarise(bench *b, figures *f, by_error *error)
{
    int64_t n = b->r->requests;
    double *ttft = malloc((size_t)n * sizeof *ttft);
    double *token = malloc((size_t)n * sizeof *token);
    size_t tokens = 0;
    if (ttft == NULL || token == NULL) {
        free(ttft);
        free(token);
        return by_error_set(error, BY_EMEMORY, "out of memory: figures");
    }
    for (int64_t i = 0; i < n; i++) {
        const sample *s = &b->samples[i];
        ttft[i] = 1e3 * (s->first - s->arrived);
        if (s->tokens > 1) {
            token[tokens++] = 1e3 * (s->last - s->first) / (double)(s->tokens - 1);
        }
    }
    for (size_t i = 0; i < b->step_count; i++) {
        b->steps[i] *= 1e3;
    }
    for (int k = 0; k < 2; k++) {
        double share = k == 0 ? 0.5 : 0.95;
        f->ttft[k] = quantile(ttft, (size_t)n, share);
        f->token[k] = quantile(token, tokens, share);
        f->step[k] = quantile(b->steps, b->step_count, share);
    }
    free(ttft);
    free(token);
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    f->generated = (double)st.generated / b->seconds;
    f->rows = (double)st.rows / b->seconds;
    f->gflops = 1e-9 * st.flops / b->seconds;
    f->gbps = 1e-9 * st.bytes / b->seconds;
    return BY_OK;
}

static void print(const bench *b, const figures *f)
{
    const request *r = b->r;
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    uint64_t memory = by_engine_memory(b->engine)->total;
    char text[32];
    if (r->json) {
        printf("{\"tokens_per_s\":%.6g,\"rows_per_s\":%.6g,\"ttft_ms\":%.5g,\"ttft_p95_ms\":%.5g,"
               "\"token_ms\":%.5g,\"token_p95_ms\":%.5g,\"step_ms\":%.5g,\"step_p95_ms\":%.5g,"
               "\"gflops\":%.6g,\"peak_gflops\":%.6g,\"mfu\":%.4g,\"gbps\":%.5g,\"read_gbps\":%.5g,"
               "\"bandwidth_share\":%.4g,\"rows_per_step\":%.5g,\"found_tokens\":%llu,"
               "\"preemptions\":%llu,\"drafted\":%llu,\"accepted\":%llu,\"requests\":%lld,"
               "\"sessions\":%lld,\"rate\":%.6g,"
               "\"prompt_tokens\":%lld,\"tokens\":%lld,\"seconds\":%.5g,\"memory_bytes\":%llu,"
               "\"precision\":\"%s\"}\n",
               f->generated, f->rows, f->ttft[0], f->ttft[1], f->token[0], f->token[1], f->step[0],
               f->step[1], f->gflops, f->peak, f->gflops / f->peak, f->gbps, b->machine.read_gbps,
               f->gbps / b->machine.read_gbps, (double)st.rows / (double)st.steps,
               (unsigned long long)st.found, (unsigned long long)st.preemptions,
               (unsigned long long)st.drafted, (unsigned long long)st.accepted,
               (long long)r->requests, (long long)r->sessions, r->rate, (long long)r->prompt,
               (long long)r->tokens, b->seconds, (unsigned long long)memory,
               cli_precision_name(r->precision, b->dtype));
        return;
    }
    printf("throughput  %.1f tokens/s, %.0f rows/s with the prompts', %.1f rows a step\n",
           f->generated, f->rows, (double)st.rows / (double)st.steps);
    printf("first token %.1f ms, 95 %%: %.1f ms\n", f->ttft[0], f->ttft[1]);
    printf("token       %.2f ms, 95 %%: %.2f ms\n", f->token[0], f->token[1]);
    printf("step        %.2f ms, 95 %%: %.2f ms\n", f->step[0], f->step[1]);
    printf("arithmetic  %.0f GFLOP/s, %.1f %% of the measured peak of %.0f\n", f->gflops,
           100.0 * f->gflops / f->peak, f->peak);
    printf("bandwidth   %.1f GB/s, %.1f %% of the measured %.1f\n", f->gbps,
           100.0 * f->gbps / b->machine.read_gbps, b->machine.read_gbps);
    printf("cache       %llu tokens were found, %llu preemptions\n", (unsigned long long)st.found,
           (unsigned long long)st.preemptions);
    if (r->speculate != NULL) {
        printf("drafts      %llu of %llu tokens were right\n", (unsigned long long)st.accepted,
               (unsigned long long)st.drafted);
    }
    printf("memory      %s\n", by_format_bytes(text, memory));
}

/* ---- the measurement ---- */

/* Fills what was not given, so that prompt and continuation fit into the context. */
static by_status choose_lengths(request *r, int64_t context, by_error *error)
{
    int64_t tokens = r->tokens >= 0 ? r->tokens : TOKENS < context / 2 ? TOKENS : context / 2;
    if (r->prompt < 0) {
        r->prompt = context - tokens < PROMPT ? context - tokens : PROMPT;
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
    if (r->requests < 0) {
        r->requests = 4 * r->sessions;
    }
    return BY_OK;
}

static by_status open_engine(bench *b, request *r, const char *path, by_error *error)
{
    cli_measured_model model;
    by_status status = cli_open_measured(&model, path, &r->overrides, error);
    if (status == BY_OK) {
        status = choose_lengths(r, model.used->model.context, error);
    }
    if (status == BY_OK && r->speculate != NULL) {
        status = cli_draft_open(&b->drafts, r->speculate, error);
    }
    if (status == BY_OK) {
        by_engine_options options = {.sessions = r->sessions,
                                     .draft = r->speculate == NULL ? NULL : &b->drafts,
                                     .rows = r->rows,
                                     .context = r->prompt + r->tokens,
                                     .threads = (int)r->threads,
                                     .precision = r->precision};
        b->vocab = model.used->model.vocab;
        status = by_engine_open(&b->engine, model.used, model.weights, &options, error);
    }
    if (status == BY_OK) {
        status = by_infer_precision(
            &b->dtype, r->precision == NULL ? model.used->precision.compute : r->precision, error);
    }
    if (status == BY_OK) {
        status = by_machine_describe(
            &b->machine, (int)(r->threads == 0 ? model.used->train.threads : r->threads), error);
    }
    cli_close_measured(&model);
    return status;
}

static by_status measure(request *r, const char *path, by_error *error)
{
    bench b = {.r = r};
    figures f = {0};
    by_status status = open_engine(&b, r, path, error);
    if (status == BY_OK) {
        b.samples = calloc((size_t)r->requests, sizeof *b.samples);
        b.prompt = calloc((size_t)r->prompt, sizeof *b.prompt);
        if (b.samples == NULL || b.prompt == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: requests");
        }
    }
    if (status == BY_OK) {
        cli_random_tokens(b.prompt, (size_t)r->prompt, b.vocab);
        set_arrivals(&b);
        status = work(&b, error);
    }
    if (status == BY_OK) {
        unsigned products = b.dtype == BY_BF16 ? BY_MACHINE_BF16 : BY_MACHINE_F32;
        status = by_machine_measure(&b.machine, products | BY_MACHINE_MEMORY, error);
    }
    if (status == BY_OK) {
        f.peak = by_machine_gflops(&b.machine, b.dtype);
        status = summarise(&b, &f, error);
    }
    if (status == BY_OK) {
        print(&b, &f);
    }
    by_engine_close(&b.engine);
    by_draft_close(&b.drafts);
    free(b.samples);
    free(b.prompt);
    free(b.steps);
    return status;
}

static int run(int argc, char **argv)
{
    request r = {.prompt = -1, .tokens = -1, .requests = -1, .sessions = 16};
    const cli_flag flags[] = {
        {"sessions", CLI_INTEGER, &r.sessions, "N",
         "sequences at a time, each followed by the next (16)"},
        {"rate", CLI_NUMBER, &r.rate, "R",
         "instead, R requests arrive a second, at random (Poisson)"},
        {"requests", CLI_INTEGER, &r.requests, "N", "requests in all (four times --sessions)"},
        {"prompt-tokens", CLI_INTEGER, &r.prompt, "N", "tokens of a prompt (512, or what fits)"},
        {"shared-tokens", CLI_INTEGER, &r.shared, "N", "of them, equal in all prompts (0)"},
        {"tokens", CLI_INTEGER, &r.tokens, "N", "tokens to generate (64, or what fits)"},
        {"pattern-tokens", CLI_INTEGER, &r.pattern, "N",
         "prompts repeat themselves after N tokens (0: never)"},
        {"rows", CLI_INTEGER, &r.rows, "N", "rows of a step, at most (256)"},
        {"speculate", CLI_STRING, &r.speculate, "ngram", CLI_SPECULATE_HELP},
        {"precision", CLI_STRING, &r.precision, "TYPE",
         "f32, bf16, fp16, int8 or int4 (default: the config's)"},
        {"threads", CLI_INTEGER, &r.threads, "N", "compute threads (default: the config's)"},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", "override a key of a config file"},
        {"json", CLI_SWITCH, &r.json, NULL, "one JSON line"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_bench_engine, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_bench_engine, "name one run, model directory or config file");
    }
    if (r.prompt > MAX_TOKENS || r.tokens > MAX_TOKENS || r.shared < 0 || r.pattern < 0 ||
        r.threads < 0 || r.threads > 4096 || r.sessions < 1 || r.sessions > 4096 ||
        r.requests > MAX_REQUESTS || r.requests == 0 || !(r.rate >= 0.0 && r.rate < 1e6)) {
        return cli_misuse(&cli_bench_engine,
                          "--sessions and --threads must be 1 to 4096, --requests 1 to %d, tokens "
                          "at most %d, --rate not negative",
                          MAX_REQUESTS, MAX_TOKENS);
    }
    if ((code = cli_check_precision(&cli_bench_engine, r.precision)) >= 0) {
        return code;
    }
    return measure(&r, rest[0], &error) == BY_OK ? CLI_DONE : cli_fail(&cli_bench_engine, &error);
}

const cli_command cli_bench_engine = {
    .name = "bench engine",
    .summary = "time many requests at once",
    .usage = "banyan bench engine RUN|MODEL|CONFIG [--sessions N | --rate R] [--requests N] "
             "[--json]",
    .text =
        "Gives the engine requests with random prompts: so many at a time, or at random times at\n"
        "a rate. Prints the time to the first token (from the request's arrival), between tokens\n"
        "and of a step, as median and 95 % quantile, tokens a second, and the share of the\n"
        "measured matrix-product peak and of main memory's speed. A config file is timed with\n"
        "initial weights.\n\n"
        "  banyan bench engine examples/gpt2_124m.yaml --sessions 16 --json",
    .run = run};
