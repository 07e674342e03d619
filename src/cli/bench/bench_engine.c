#include <stdio.h>

#include "banyan/program.h"
#include "bench/bench_engine.h"

#define MAX_TOKENS   (1 << 24)
#define MAX_REQUESTS 100000

static bool can_combine(const cli_engine_request *r)
{
    bool alike =
        r->rate > 0.0 || r->background > 0 || r->sweep != NULL || r->prompt >= 0 || r->tokens >= 0;
    return !(r->load != NULL && alike) &&
           !(r->background > 0 && (r->rate > 0.0 || r->shared > 0)) &&
           (r->sweep == NULL ? r->picture == NULL
                             : r->background == 0 && r->rate == 0.0 && !r->profile);
}

static int run(int argc, char **argv)
{
    cli_engine_request r = {
        .speed = 1.0, .prompt = -1, .tokens = -1, .requests = -1, .sessions = 16};
    const cli_flag flags[] = {
        {"sessions", CLI_INTEGER_IN(1, 4096), &r.sessions, "N",
         "sequences that run at the same time; each is followed by the next request (default 16)"},
        {"sweep", CLI_STRING, &r.sweep, "N,N,...",
         "run once for each of these numbers of sessions, with as many requests as sessions"},
        {"out", CLI_STRING, &r.picture, "FILE",
         "plot the sweep and its limits to a .png or .svg file"},
        {"rate", CLI_NUMBER_ABOVE(0, 1e6), &r.rate, "R",
         "instead: R requests per second arrive at random times (Poisson process)"},
        {"load", CLI_INPUT, &r.load, "FILE",
         "instead: requests of a table, with seconds, prompt_tokens and generated_tokens"},
        {"speed", CLI_NUMBER_ABOVE(0, 1e9), &r.speed, "X", "they come so much faster"},
        {"beside", CLI_INTEGER_IN(1, MAX_TOKENS), &r.background, "N",
         "instead: one request at a time while a prompt of N tokens is being prefilled"},
        {"requests", CLI_INTEGER_IN(1, MAX_REQUESTS), &r.requests, "N",
         "requests in all (default: four times --sessions; those of --load)"},
        {"prompt-tokens", CLI_INTEGER_IN(1, MAX_TOKENS), &r.prompt, "N",
         "tokens of a prompt (default 512, or what fits the context; with --beside 64)"},
        {"shared-tokens", CLI_INTEGER_IN(0, MAX_TOKENS), &r.shared, "N",
         "tokens at the beginning of all prompts that are equal (default 0)"},
        {"tokens", CLI_INTEGER_IN(1, MAX_TOKENS), &r.tokens, "N",
         "tokens to generate per request (default 64, or what fits the context)"},
        {"pattern-tokens", CLI_INTEGER_IN(0, MAX_TOKENS), &r.pattern, "N",
         "prompts repeat themselves after N tokens (default 0: never)"},
        {"temperature", CLI_NUMBER_IN(0, 100), &r.temperature, "T",
         "sampling temperature; at 0, untrained models repeat themselves (default 0)"},
        {"rows", CLI_INTEGER_IN(1, 65536), &r.rows, "N",
         "tokens that an engine step processes, at most (default 256)"},
        {"speculate", CLI_STRING, &r.speculate, "ngram|MODEL", CLI_SPECULATE_HELP},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"kv", CLI_STRING, &r.kv, "int8", CLI_KV_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"profile", CLI_SWITCH, &r.profile, NULL, "print the time of the steps by operation"},
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE",
         "override a key of a config file; may be repeated"},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
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
    if (!can_combine(&r)) {
        return cli_misuse(&cli_bench_engine,
                          "--beside goes without --rate and --shared-tokens, --sweep without "
                          "--beside, --rate and --profile, --out with --sweep only, --load without "
                          "these and without lengths");
    }
    r.sessions = r.background > 0 ? 1 : r.sessions;
    if ((code = cli_check_precision(&cli_bench_engine, r.precision)) >= 0) {
        return code;
    }
    by_status status = r.sweep == NULL ? cli_engine_measure(&r, rest[0], NULL, &error)
                                       : cli_engine_sweep(&r, rest[0], &error);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_bench_engine, &error);
}

const cli_command cli_bench_engine = {
    .name = "bench engine",
    .summary = "time many requests at once on the engine",
    .usage = "banyan bench engine RUN|MODEL|CONFIG [--sessions N | --rate R | --load FILE | "
             "--beside N] "
             "[--requests N]\n"
             "                           [--profile] [--json]\n"
             "       banyan bench engine RUN|MODEL|CONFIG --sweep N,N,... [--out FILE] [--json]",
    .text =
        "Runs requests with random prompts on the engine: a fixed number at a time, at random\n"
        "times with a given rate, as a table of requests says, or one at a time beside a long\n"
        "prompt.\n"
        "\n"
        "examples:\n"
        "  banyan bench engine examples/gpt2_124m.yaml --sessions 16 --requests 16 --json\n"
        "  banyan bench engine examples/gpt2_124m.yaml --sweep 1,2,4,8,16,32,64 --out engine.png\n"
        "\n"
        "Prints the time to the first token (from the arrival of the request), between tokens,\n"
        "and per step, as median and 95th percentile. Tokens per second are those of the whole\n"
        "job, of steps that only prefilled prompts, and of steps in which all sequences\n"
        "decoded, with their shares of the measured peak of matrix products and of the memory\n"
        "bandwidth. With as many requests as sessions, the latter two are what llama.cpp's\n"
        "batched-bench calls S_PP and S_TG. A config file is timed with initial weights.",
    .run = run};
