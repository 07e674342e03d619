#include <stdio.h>
#include <stdlib.h>

#include "banyan/infer.h"
#include "bench/bench.h"

#define MAX_TOKENS (1 << 24)
#define PREFILLS   3
#define PROMPT     512
#define TOKENS     128
/* Before and after each part of the tokens, as much memory as a token needs is read, because the
 * memory speed of a shared machine changes within seconds. The best of PASSES counts, after one
 * that fills the caches. */
#define PARTS  8
#define PASSES 3

typedef struct bench_generate_request {
    cli_list overrides;
    const char *precision;
    int64_t prompt; /* -1: not given */
    int64_t tokens; /* -1: not given */
    int64_t threads;
    bool json;
} bench_generate_request;

typedef struct generate_figures {
    double prefill_seconds; /* median of PREFILLS */
    double decode_seconds;  /* for all tokens */
    double token_ms;        /* median */
    double share;           /* share of the memory's speed, median of PARTS */
    double read_gbps;       /* likewise */
    by_machine machine;
    by_dtype dtype;
    const char *precision; /* of the weights */
} generate_figures;

/* Opens the generator of a run or model directory, or of a config with random initial weights. */
static by_status open_generator(by_generator **out, generate_figures *f,
                                const bench_generate_request *r, const char *path, by_error *error)
{
    cli_measured_model model;
    by_generator_options options = {.precision = r->precision, .threads = (int)r->threads};
    by_status status = cli_open_measured(&model, path, &r->overrides, error);
    if (status == BY_OK) {
        status = by_generator_open(out, model.used, model.weights, &options, error);
    }
    if (status == BY_OK) {
        const char *precision =
            r->precision == NULL ? by_infer_precision_of(model.used, model.weights) : r->precision;
        status = by_infer_precision(&f->dtype, precision, error);
        f->precision = cli_precision_name(precision, f->dtype);
    }
    if (status == BY_OK) {
        status = by_machine_describe(
            &f->machine, model.used->device,
            (int)(r->threads == 0 ? model.used->train.threads : r->threads), error);
    }
    cli_close_measured(&model);
    return status;
}

/* Sets lengths that were not given, so that prompt and continuation fit into the context. */
static by_status choose_lengths(bench_generate_request *r, const by_generator *generator,
                                by_error *error)
{
    int64_t context = by_generator_context(generator);
    bool fits = PROMPT + TOKENS <= context;
    if (r->prompt < 0) {
        r->prompt = r->tokens >= 0 && r->tokens < context && context - r->tokens < PROMPT
                        ? context - r->tokens
                        : (fits ? PROMPT : (context + 1) / 2);
    }
    if (r->tokens < 0) {
        int64_t rest = context - r->prompt;
        r->tokens = rest < 1 ? 1 : rest < TOKENS ? rest : TOKENS;
    }
    if (r->prompt < 1 || r->tokens < 1 || r->prompt > context || r->tokens > context - r->prompt) {
        return by_error_set(
            error, BY_EARG,
            "%lld tokens of prompt and %lld more do not fit into the context of %lld",
            (long long)r->prompt, (long long)r->tokens, (long long)context);
    }
    return BY_OK;
}

static by_status time_prefill(generate_figures *f, by_generator *generator, const int32_t *prompt,
                              size_t count, by_error *error)
{
    double seconds[PREFILLS];
    for (int i = 0; i < PREFILLS; i++) {
        by_generator_reset(generator);
        double began = by_clock();
        by_status status = by_generator_feed(generator, prompt, count, error);
        if (status != BY_OK) {
            return status;
        }
        seconds[i] = by_clock() - began;
    }
    f->prefill_seconds = cli_median(seconds, PREFILLS);
    return BY_OK;
}

/* Takes the most probable token each time, so that the time includes choosing it but does not
 * depend on chance. */
static by_status time_tokens(by_generator *generator, double *seconds, int64_t begin, int64_t end,
                             by_error *error)
{
    by_sampling greedy = {.temperature = 0.0, .top_p = 1.0};
    for (int64_t i = begin; i < end; i++) {
        int32_t token;
        double from = by_clock();
        by_status status = by_generator_sample(generator, &greedy, &token, error);
        if (status == BY_OK) {
            status = by_generator_feed(generator, &token, 1, error);
        }
        if (status != BY_OK) {
            return status;
        }
        seconds[i] = by_clock() - from;
    }
    return BY_OK;
}

/* Of a device with memory of its own, which varies little, it has been measured. */
static by_status time_memory(double *gbps, const generate_figures *f, by_memory_probe *probe,
                             by_error *error)
{
    *gbps = 0.0;
    if (probe == NULL) {
        *gbps = f->machine.read_gbps;
        return BY_OK;
    }
    for (int i = -1; i < PASSES; i++) {
        double pass;
        by_status status = by_memory_probe_read(probe, &pass, error);
        if (status != BY_OK) {
            return status;
        }
        *gbps = i >= 0 && pass > *gbps ? pass : *gbps;
    }
    return BY_OK;
}

static by_status time_parts(generate_figures *f, by_generator *generator, by_memory_probe *probe,
                            double *seconds, const bench_generate_request *r, by_error *error)
{
    double shares[PARTS];
    double speeds[PARTS];
    size_t parts = 0;
    double before;
    by_status status = time_memory(&before, f, probe, error);
    if (status != BY_OK) {
        return status;
    }
    for (int part = 0; part < PARTS; part++) {
        int64_t begin = r->tokens * part / PARTS;
        int64_t end = r->tokens * (part + 1) / PARTS;
        double spent = 0.0;
        double after;
        if (begin == end) {
            continue;
        }
        status = time_tokens(generator, seconds, begin, end, error);
        if (status == BY_OK) {
            status = time_memory(&after, f, probe, error);
        }
        if (status != BY_OK) {
            return status;
        }
        for (int64_t i = begin; i < end; i++) {
            spent += seconds[i];
        }
        double bytes = by_generator_token_bytes(generator, r->prompt + (begin + end) / 2);
        speeds[parts] = 0.5 * (before + after);
        shares[parts] = 1e-9 * bytes * (double)(end - begin) / spent / speeds[parts];
        f->decode_seconds += spent;
        before = after;
        parts++;
    }
    f->share = cli_median(shares, parts);
    f->read_gbps = cli_median(speeds, parts);
    f->token_ms = 1e3 * cli_median(seconds, (size_t)r->tokens);
    return BY_OK;
}

static by_status time_decode(generate_figures *f, by_generator *generator, double *seconds,
                             const bench_generate_request *r, by_error *error)
{
    by_memory_probe *probe = NULL;
    double bytes = by_generator_token_bytes(generator, r->prompt + r->tokens / 2);
    bool host = f->machine.threads > 0;
    by_status status = host ? by_memory_probe_open(&probe, (size_t)bytes, f->machine.threads, error)
                            : by_machine_measure(&f->machine, BY_MACHINE_MEMORY, error);
    if (status == BY_OK) {
        status = time_parts(f, generator, probe, seconds, r, error);
    }
    by_memory_probe_close(&probe);
    return status;
}

static void print(const bench_generate_request *r, const generate_figures *f,
                  const by_generator *generator)
{
    char text[32];
    double prefill = (double)r->prompt / f->prefill_seconds;
    double decode = (double)r->tokens / f->decode_seconds;
    double gflops = 1e-9 * by_generator_flops(generator, r->prompt) / f->prefill_seconds;
    double peak = cli_peak(&f->machine, f->precision, f->dtype);
    double bytes = by_generator_token_bytes(generator, r->prompt + r->tokens / 2);
    double gbps = 1e-9 * bytes * decode;
    uint64_t memory = by_generator_memory(generator)->total;
    if (r->json) {
        printf(
            "{\"prefill_tokens_per_s\":%.6g,\"decode_tokens_per_s\":%.6g,\"bandwidth_share\":%.4g,"
            "\"prefill_mfu\":%.4g,\"prompt_tokens\":%lld,\"tokens\":%lld,\"token_ms\":%.5g,"
            "\"token_bytes\":%.0f,\"gbps\":%.5g,\"read_gbps\":%.5g,\"prefill_gflops\":%.6g,"
            "\"peak_gflops\":%.6g,\"memory_bytes\":%llu,\"precision\":\"%s\"}\n",
            prefill, decode, f->share, gflops / peak, (long long)r->prompt, (long long)r->tokens,
            f->token_ms, bytes, gbps, f->read_gbps, gflops, peak, (unsigned long long)memory,
            f->precision);
        return;
    }
    char share[32];
    printf("prefill     %.0f tokens/s (%lld tokens), %s of the measured peak of %.0f GFLOP/s\n",
           prefill, (long long)r->prompt, cli_share(share, gflops / peak, 1, " %"), peak);
    printf("decode      %.1f tokens/s (%lld tokens, median %.2f ms)\n", decode,
           (long long)r->tokens, f->token_ms);
    printf("bandwidth   %.1f GB/s, %s of the measured %.1f GB/s; a token must read %s\n", gbps,
           cli_share(share, f->share, 1, " %"), f->read_gbps,
           by_format_bytes(text, (uint64_t)bytes));
    printf("memory      %s\n", by_format_bytes(text, memory));
}

static by_status measure(bench_generate_request *r, const char *path, by_error *error)
{
    generate_figures f = {0};
    by_generator *generator = NULL;
    int32_t *prompt = NULL;
    double *seconds = NULL;
    by_status status = open_generator(&generator, &f, r, path, error);
    if (status == BY_OK) {
        status = choose_lengths(r, generator, error);
    }
    if (status == BY_OK) {
        prompt = malloc((size_t)r->prompt * sizeof *prompt);
        seconds = malloc((size_t)r->tokens * sizeof *seconds);
        if (prompt == NULL || seconds == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: %lld tokens",
                                  (long long)(r->prompt + r->tokens));
        }
    }
    if (status == BY_OK) {
        cli_random_tokens(prompt, (size_t)r->prompt, by_generator_vocab(generator));
        status = time_prefill(&f, generator, prompt, (size_t)r->prompt, error);
    }
    if (status == BY_OK) {
        status = time_decode(&f, generator, seconds, r, error);
    }
    if (status == BY_OK) {
        status = by_machine_measure(&f.machine, cli_peak_figures(f.precision, f.dtype), error);
    }
    if (status == BY_OK) {
        print(r, &f, generator);
    }
    free(prompt);
    free(seconds);
    by_generator_close(&generator);
    return status;
}

static int run(int argc, char **argv)
{
    bench_generate_request r = {.prompt = -1, .tokens = -1};
    const cli_flag flags[] = {
        {"prompt-tokens", CLI_INTEGER_IN(1, MAX_TOKENS), &r.prompt, "N",
         "tokens of the prompt (default 512, or what fits the context)"},
        {"tokens", CLI_INTEGER_IN(1, MAX_TOKENS), &r.tokens, "N",
         "tokens to generate (default 128, or what fits the context)"},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE",
         "override a key of a config file; may be repeated"},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_bench_generate, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_bench_generate, "name one run, model directory or config file");
    }
    if ((code = cli_check_precision(&cli_bench_generate, r.precision)) >= 0) {
        return code;
    }
    return measure(&r, rest[0], &error) == BY_OK ? CLI_DONE : cli_fail(&cli_bench_generate, &error);
}

const cli_command cli_bench_generate = {
    .name = "bench generate",
    .summary = "time prefill and decode of one sequence",
    .usage = "banyan bench generate RUN|MODEL|CONFIG [--prompt-tokens N] [--tokens N] [--json]",
    .text =
        "Times the prefill of a random prompt and the generation of tokens after it, and\n"
        "measures the limits of both in the same run.\n"
        "\n"
        "example:\n"
        "  banyan bench generate examples/gpt2_124m.yaml --json\n"
        "\n"
        "The limit of prefill is the peak of matrix products. The limit of decoding is the time\n"
        "to read as much memory as a token must read: every weight once, in its type, and the\n"
        "KV cache so far; it is measured between parts of the tokens, and what stays in CPU\n"
        "caches from token to token counts in both. A config file is timed with initial\n"
        "weights.",
    .run = run};
