/* banyan plan serve. */
#include <math.h>
#include <stdlib.h>

#include "banyan/capacity.h"
#include "base/measured_model.h"
#include "plan/plan_command.h"

#define HOUR     3600.0
#define MILLION  1e6
#define MAX_LOAD 10000000

typedef struct serve_request {
    const char *model; /* NULL: the curve is read */
    const char *curve;
    cli_list overrides;
    by_engine_options engine;
    int64_t threads;
    int64_t rounds;
    /* The load. */
    const char *load;
    double rate;
    int64_t prompt;
    int64_t tokens;
    int64_t requests;
    double speed;
    bool cut;
    int64_t seed;
    /* The service. */
    double targets[4]; /* milliseconds; 0: none. First token: median, 95 %; token: likewise */
    int64_t replicas;  /* 0: as many as it takes */
    int64_t most;
    double overhead; /* milliseconds */
    /* Money. */
    double price;
    const char *prices;
    const char *device;
    double serverless_price;
    double boot;
    double keep_alive;
    bool free_boot;
    bool free_idle;
    bool json;
} serve_request;

typedef struct serve_report {
    const serve_request *request;
    by_engine_curve curve;
    by_load_request *load;
    size_t count;
    bool has_targets;
    int replicas; /* 0: none meets the targets */
    by_serving_figures figures;
    by_serving_figures serverless;
    double price;   /* an hour of a replica; NAN: unknown */
    double seconds; /* that simulations took */
} serve_report;

/* ---- the engine ---- */

static by_status measure(serve_report *r, by_error *error)
{
    const serve_request *q = r->request;
    cli_measured_model model;
    by_engine_options options = q->engine;
    options.threads = (int)q->threads;
    by_status status = cli_open_measured(&model, q->model, &q->overrides, error);
    if (status == BY_OK) {
        status = by_engine_curve_measure(&r->curve, model.used, model.weights, &options,
                                         (int)q->rounds, error);
    }
    cli_close_measured(&model);
    if (status == BY_OK && q->curve != NULL) {
        status = by_engine_curve_write(&r->curve, q->curve, error);
    }
    return status;
}

/* ---- the load ---- */

/* Shortens requests that do not fit into the context. */
static void cut_load(serve_report *r)
{
    int64_t context = r->curve.context;
    for (size_t i = 0; i < r->count; i++) {
        by_load_request *q = &r->load[i];
        q->tokens = q->tokens < context / 2 ? q->tokens : (context + 1) / 2;
        q->prompt = q->prompt <= context + 1 - q->tokens ? q->prompt : context + 1 - q->tokens;
    }
}

static by_status read_load(serve_report *r, by_error *error)
{
    by_table *table;
    by_status status = by_table_open(&table, r->request->load, NULL, error);
    if (status == BY_OK) {
        status = by_load_read(&r->load, &r->count, table, error);
        by_table_close(&table);
    }
    return status;
}

static by_status open_load(serve_report *r, by_error *error)
{
    const serve_request *q = r->request;
    if (q->load != NULL) {
        by_status status = read_load(r, error);
        if (status != BY_OK) {
            return status;
        }
        if (q->requests > 0 && (size_t)q->requests < r->count) {
            r->count = (size_t)q->requests;
        }
    } else {
        r->count = q->requests > 0 ? (size_t)q->requests : 2000;
        r->load = malloc(r->count * sizeof *r->load);
        if (r->load == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: the load");
        }
        by_load_poisson(r->load, r->count, q->rate, q->prompt, q->tokens, (uint64_t)q->seed);
    }
    for (size_t i = 0; i < r->count; i++) {
        r->load[i].seconds /= q->speed;
    }
    if (q->cut) {
        cut_load(r);
    }
    return BY_OK;
}

/* ---- what it takes ---- */

static by_status find_price(serve_report *r, by_error *error)
{
    const serve_request *q = r->request;
    by_price price;
    r->price = q->price > 0.0 ? q->price : (double)NAN;
    if (q->prices == NULL) {
        return BY_OK;
    }
    by_status status = by_price_read(&price, q->prices, q->device, error);
    if (status == BY_OK) {
        r->price = price.per_hour;
    }
    return status;
}

static double target_of(const serve_request *q, int i)
{
    return q->targets[i] > 0.0 ? 1e-3 * q->targets[i] : INFINITY;
}

static by_status simulate(serve_report *r, by_error *error)
{
    const serve_request *q = r->request;
    by_serving_targets targets = {{target_of(q, 0), target_of(q, 1)},
                                  {target_of(q, 2), target_of(q, 3)}};
    by_serving_options options = {.seed = (uint64_t)q->seed, .overhead = 1e-3 * q->overhead};
    by_status status;
    for (int i = 0; i < 4; i++) {
        r->has_targets = r->has_targets || q->targets[i] > 0.0;
    }
    if (q->replicas > 0 || !r->has_targets) {
        options.replicas = q->replicas > 0 ? (int)q->replicas : 1;
        status =
            by_serving_simulate(&r->figures, NULL, &r->curve, r->load, r->count, &options, error);
        r->replicas =
            status == BY_OK && by_serving_meets(&r->figures, &targets) ? options.replicas : 0;
    } else {
        options.replicas = (int)q->most;
        status = by_serving_replicas(&r->replicas, &r->figures, &r->curve, r->load, r->count,
                                     &options, &targets, error);
    }
    if (status == BY_OK && q->serverless_price > 0.0) {
        options.serverless = true;
        options.replicas = (int)q->most;
        options.boot = q->boot >= 0.0 ? q->boot : r->curve.open_seconds;
        options.keep_alive = q->keep_alive;
        options.free_boot = q->free_boot;
        options.free_idle = q->free_idle;
        status = by_serving_simulate(&r->serverless, NULL, &r->curve, r->load, r->count, &options,
                                     error);
    }
    return status;
}

/* ---- printing ---- */

/* What a million generated tokens cost. */
static double per_million(const by_serving_figures *f, double price)
{
    return price * f->billed / HOUR / ((double)f->tokens / MILLION);
}

static void print_times(const char *name, const double times[2])
{
    printf("%s %.4g ms, 95 %%: %.4g ms\n", name, 1e3 * times[0], 1e3 * times[1]);
}

static void print_engine(const serve_report *r)
{
    const by_engine_curve *c = &r->curve;
    const by_curve_program *p = c->programs;
    const by_curve_program *last = p + c->program_count - 1;
    printf("engine      %lld sessions, %lld tokens in pages; a step takes %.3g ms with %lld row, "
           "%.3g ms with %lld, and %.3g and %.3g us for 1,000 keys of decoding and of prompts\n",
           (long long)c->sessions, (long long)(c->pages * BY_PAGE_TOKENS), 1e3 * p->seconds,
           (long long)p->rows, 1e3 * last->seconds, (long long)last->rows, 1e9 * c->decode_key,
           1e9 * c->prompt_key);
    printf("            %zu steps measured%s, median error of the formula %.1f %%\n", c->steps,
           r->request->model == NULL ? " before" : " here", 100.0 * c->error);
    if (c->error > 0.1) {
        printf(
            "            steps of a kind differ, as on a machine that does other work: measure on "
            "an idle one, longer (--rounds)\n");
    }
}

static void print_text(const serve_report *r)
{
    const by_serving_figures *f = &r->figures;
    double arrivals = r->load[r->count - 1].seconds - r->load[0].seconds;
    char text[32];
    print_engine(r);
    printf("load        %zu requests ", f->requests);
    if (arrivals > 0.0) {
        printf("in %s, %.3g a second", cli_duration(text, arrivals),
               (double)f->requests / arrivals);
    } else {
        printf("at once");
    }
    printf("; %.4g tokens of prompt and %.4g generated on average\n",
           (double)f->prompt_tokens / (double)f->requests, (double)f->tokens / (double)f->requests);
    if (r->has_targets && r->replicas == 0) {
        printf("replicas    %d do not meet the targets\n", f->most);
    } else {
        printf("replicas    %d\n", f->most);
    }
    print_times("first token", f->first_token);
    print_times("token      ", f->token);
    if (f->span > 0.0) { /* a curve may have steps that take no time */
        printf("throughput  %.4g tokens/s; replicas compute for %.1f %% of the time; %llu "
               "preemptions\n",
               (double)f->tokens / f->span, 100.0 * f->stepping / (f->most * f->span),
               (unsigned long long)f->preemptions);
    }
    if (isfinite(r->price)) {
        printf("cost        %.4g an hour, %.4g for a million generated tokens\n",
               r->price * f->most, per_million(f, r->price));
    }
    if (r->request->serverless_price > 0.0) {
        const by_serving_figures *s = &r->serverless;
        printf("serverless  %.4g for a million generated tokens; %zu starts, %d at a time, billed "
               "%s\n",
               per_million(s, r->request->serverless_price), s->starts, s->most,
               cli_duration(text, s->billed));
        print_times("first token", s->first_token);
        print_times("token      ", s->token);
    }
    printf("note        simulated in %.2f s\n", r->seconds);
}

/* A number of JSON after others; one that is not finite is null. */
static void print_number(const char *key, double value)
{
    char text[32];
    printf(",\"%s\":%s", key, cli_json_number(text, value, 6));
}

static void print_figures_json(const by_serving_figures *f, double price)
{
    printf("{\"replicas\":%d", f->most);
    print_number("first_token_ms", 1e3 * f->first_token[0]);
    print_number("first_token_p95_ms", 1e3 * f->first_token[1]);
    print_number("token_ms", 1e3 * f->token[0]);
    print_number("token_p95_ms", 1e3 * f->token[1]);
    print_number("seconds", f->span);
    print_number("tokens_per_s", (double)f->tokens / f->span);
    printf(",\"steps\":%llu,\"preemptions\":%llu", (unsigned long long)f->steps,
           (unsigned long long)f->preemptions);
    print_number("computing_seconds", f->stepping);
    print_number("billed_seconds", f->billed);
    printf(",\"starts\":%zu", f->starts);
    print_number("per_million_tokens", per_million(f, price));
    printf("}");
}

static void print_curve_json(const by_engine_curve *c)
{
    printf("\"curve\":{\"sessions\":%lld,\"page_tokens\":%lld,\"steps\":%zu",
           (long long)c->sessions, (long long)(c->pages * BY_PAGE_TOKENS), c->steps);
    print_number("error", c->error);
    print_number("open_seconds", c->open_seconds);
    printf("}");
}

static void print_json(const serve_report *r)
{
    const by_serving_figures *f = &r->figures;
    printf("{\"requests\":%zu,\"prompt_tokens\":%llu,\"tokens\":%llu,\"meets\":%s,", f->requests,
           (unsigned long long)f->prompt_tokens, (unsigned long long)f->tokens,
           r->replicas > 0 ? "true" : "false");
    print_curve_json(&r->curve);
    printf(",\"always_on\":");
    print_figures_json(f, r->price);
    printf(",\"serverless\":");
    if (r->request->serverless_price > 0.0) {
        print_figures_json(&r->serverless, r->request->serverless_price);
    } else {
        printf("null");
    }
    print_number("simulation_seconds", r->seconds);
    printf("}\n");
}

/* ---- the command ---- */

static by_status make(const serve_request *q, by_error *error)
{
    serve_report r = {.request = q};
    by_status status =
        q->model == NULL ? by_engine_curve_read(&r.curve, q->curve, error) : measure(&r, error);
    bool serves = q->load != NULL || q->rate > 0.0;
    if (status == BY_OK && serves) {
        status = find_price(&r, error);
    }
    if (status == BY_OK && serves) {
        status = open_load(&r, error);
    }
    if (status == BY_OK && serves) {
        double began = by_clock();
        status = simulate(&r, error);
        r.seconds = by_clock() - began;
    }
    if (status == BY_OK && !serves && q->json) {
        printf("{");
        print_curve_json(&r.curve);
        printf("}\n");
    } else if (status == BY_OK && !serves) {
        print_engine(&r);
    } else if (status == BY_OK && q->json) {
        print_json(&r);
    } else if (status == BY_OK) {
        print_text(&r);
    }
    free(r.load);
    return status;
}

/* Refuses flags that contradict, or lack others. Returns -1 to continue. */
static int check(const serve_request *q)
{
    bool serves = q->load != NULL || q->rate > 0.0;
    if (q->model == NULL && q->curve == NULL) {
        return cli_misuse(&cli_plan_serve, "name a model to measure, or the --curve of one");
    }
    if (q->load != NULL && q->rate > 0.0) {
        return cli_misuse(&cli_plan_serve, "the load is --load or --rate, not both");
    }
    if (!serves && (q->curve == NULL || q->model == NULL)) {
        return cli_misuse(&cli_plan_serve, "say what arrives: --load FILE, or --rate R with "
                                           "--prompt-tokens and --tokens");
    }
    if (q->rate > 0.0 && (q->prompt == 0 || q->tokens == 0)) {
        return cli_misuse(&cli_plan_serve, "--rate takes --prompt-tokens and --tokens");
    }
    if ((q->prices == NULL) != (q->device == NULL) || (q->prices != NULL && q->price > 0.0)) {
        return cli_misuse(&cli_plan_serve,
                          "a replica's price is --price, or the row --instance of --prices");
    }
    return -1;
}

static int run(int argc, char **argv)
{
    serve_request q = {
        .rounds = 1, .speed = 1.0, .seed = 1, .most = 256, .boot = -1.0, .keep_alive = 300.0};
    const cli_flag flags[] = {
        {"curve", CLI_STRING, &q.curve, "FILE",
         "with a model, write what was measured to it; without one, read it"},
        {"load", CLI_INPUT, &q.load, "FILE",
         "requests: a table with seconds, prompt_tokens and generated_tokens"},
        {"rate", CLI_NUMBER_ABOVE(0, 1e9), &q.rate, "R",
         "or requests per second, at random times (Poisson process)"},
        {"prompt-tokens", CLI_INTEGER_IN(1, MAX_LOAD), &q.prompt, "N", "of each, with --rate"},
        {"tokens", CLI_INTEGER_IN(1, MAX_LOAD), &q.tokens, "N", "to generate, with --rate"},
        {"requests", CLI_INTEGER_IN(1, MAX_LOAD), &q.requests, "N",
         "how many (default: all of --load, 2000 with --rate)"},
        {"speed", CLI_NUMBER_ABOVE(0, 1e9), &q.speed, "X", "the load comes so much faster"},
        {"cut", CLI_SWITCH, &q.cut, NULL, "shorten requests that exceed the context"},
        {"first-token", CLI_NUMBER_ABOVE(0, 1e9), &q.targets[1], "MS",
         "95 % of requests wait no longer for their first token"},
        {"token", CLI_NUMBER_ABOVE(0, 1e9), &q.targets[3], "MS",
         "95 % of requests have no more between tokens"},
        {"first-token-median", CLI_NUMBER_ABOVE(0, 1e9), &q.targets[0], "MS", "and half of them"},
        {"token-median", CLI_NUMBER_ABOVE(0, 1e9), &q.targets[2], "MS", "likewise"},
        {"replicas", CLI_INTEGER_IN(1, 4096), &q.replicas, "N",
         "simulate so many instead of finding how many it takes"},
        {"most", CLI_INTEGER_IN(1, 4096), &q.most, "N", "replicas at most (default: 256)"},
        {"overhead", CLI_NUMBER_IN(0, 1e9), &q.overhead, "MS",
         "of a server and its network, each way (default: 0)"},
        {"price", CLI_NUMBER_ABOVE(0, INFINITY), &q.price, "P", "of a replica, an hour"},
        {"prices", CLI_INPUT, &q.prices, "FILE", "or a table of prices, as of plan cost"},
        {"instance", CLI_STRING, &q.device, "NAME", "row (device) of that table"},
        {"serverless-price", CLI_NUMBER_ABOVE(0, INFINITY), &q.serverless_price, "P",
         "compare with replicas that start and end with the load: their price, an hour"},
        {"boot", CLI_TIME_IN(0, INFINITY), &q.boot, "TIME",
         "that their start takes (default: what opening the engine took here)"},
        {"keep-alive", CLI_TIME_IN(0, INFINITY), &q.keep_alive, "TIME",
         "that they stay without a request (default: 300s)"},
        {"free-boot", CLI_SWITCH, &q.free_boot, NULL, "their start is not billed"},
        {"free-idle", CLI_SWITCH, &q.free_idle, NULL, "nor is their time without a request"},
        {"sessions", CLI_INTEGER_IN(1, 4096), &q.engine.sessions, "N",
         "sequences that an engine runs at a time (default: 16)"},
        {"rows", CLI_INTEGER_IN(1, 65536), &q.engine.rows, "N",
         "tokens that a step processes, at most (default: 256)"},
        {"context", CLI_INTEGER_IN(1, 1 << 30), &q.engine.context, "N",
         "tokens of a request, at most (default: the model's)"},
        {"precision", CLI_STRING, &q.engine.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"kv", CLI_STRING, &q.engine.kv, "int8", CLI_KV_HELP},
        {"threads", CLI_THREADS, &q.threads, "N", "compute threads (default: the model's)"},
        {"rounds", CLI_INTEGER_IN(1, 1000), &q.rounds, "N",
         "measure so many times as long (default: 1)"},
        {"seed", CLI_INTEGER_IN(0, 1 << 30), &q.seed, "N", "of arrivals and steps (default: 1)"},
        {"device", CLI_DEVICE, &q.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", "override a key of a config file"},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_plan_serve, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count > 1) {
        return cli_misuse(&cli_plan_serve, "name one run, model directory or config file");
    }
    q.model = count == 1 ? rest[0] : NULL;
    if ((code = check(&q)) >= 0 ||
        (code = cli_check_precision(&cli_plan_serve, q.engine.precision)) >= 0) {
        return code;
    }
    return make(&q, &error) == BY_OK ? CLI_DONE : cli_fail(&cli_plan_serve, &error);
}

const cli_command cli_plan_serve = {
    .name = "plan serve",
    .summary = "tell the replicas and the money that a load of requests takes",
    .usage = "banyan plan serve RUN|MODEL|CONFIG --load FILE | --rate R --prompt-tokens N --tokens "
             "M\n"
             "                  [--first-token MS] [--token MS] [--price P] [--curve FILE] "
             "[--json]\n"
             "       banyan plan serve --curve FILE --load FILE | --rate R ...",
    .text =
        "Measures the steps of a model's engine on this machine, and simulates how replicas of\n"
        "it serve a load: how many it takes for the times that are promised, what they cost, and\n"
        "whether replicas that start and end with the load cost less.\n"
        "\n"
        "examples:\n"
        "  banyan plan serve runs/chat --rate 4 --prompt-tokens 200 --tokens 100 \\\n"
        "      --first-token 500 --token 50 --price 0.40\n"
        "  banyan plan serve runs/chat --curve chat.json        # measures, and keeps it\n"
        "  banyan plan serve --curve chat.json --load requests.csv --first-token 500 \\\n"
        "      --price 0.40 --serverless-price 0.90 --boot 3s --keep-alive 60s\n"
        "\n"
        "The batcher, the pages and the prefix cache of the simulation are those of the engine;\n"
        "only the time of a step is computed, from the curve. Times between tokens are means of\n"
        "a request. See docs/capacity.md.",
    .run = run};
