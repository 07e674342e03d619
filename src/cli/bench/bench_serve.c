/* `banyan bench serve`: sends load to a server and reports latencies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "banyan/plot.h"
#include "banyan/serve.h"
#include "banyan/track.h"
#include "base/columns.h"
#include "bench/bench.h"

typedef struct latency_summary {
    double p50, p95, p99, mean;
} latency_summary;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the nearest-rank percentile: the smallest sorted value that is not below a share p of
 * them. With few values, a high percentile is the largest value. */
static double percentile(const double *sorted, size_t count, double p)
{
    size_t rank = (size_t)ceil(p * (double)count - 1e-9);
    return sorted[rank > 0 ? rank - 1 : 0];
}

/* Summarises `count` values, which it sorts; NaN if there are none. */
static latency_summary summarize(double *values, size_t count)
{
    latency_summary s = {NAN, NAN, NAN, NAN};
    if (count == 0) {
        return s;
    }
    s.mean = 0.0;
    qsort(values, count, sizeof *values, compare);
    for (size_t i = 0; i < count; i++) {
        s.mean += values[i] / (double)count;
    }
    s.p50 = percentile(values, count, 0.5);
    s.p95 = percentile(values, count, 0.95);
    s.p99 = percentile(values, count, 0.99);
    return s;
}

static void print_row(const char *name, latency_summary s, bool json)
{
    const double values[] = {s.mean, s.p50, s.p95, s.p99};
    const char *const keys[] = {"mean", "p50", "p95", "p99"};
    char number[32];
    printf(json ? ",\"%s\":{" : "%s", name);
    for (size_t i = 0; i < 4; i++) {
        if (json) {
            printf("%s\"%s\":%s", i > 0 ? "," : "", keys[i], cli_json_number(number, values[i], 6));
        } else {
            printf("\t%s", cli_number(number, 1e3 * values[i], 2));
        }
    }
    printf(json ? "}" : "\n");
}

/* Prints why requests failed or were refused. */
static void print_failures(const by_load_report *r, bool json)
{
    char number[32];
    if (!json && r->failure_count > 0) {
        printf("reason\trequests\tfirst message\n");
    }
    printf(json ? ",\"failures\":[" : "");
    for (size_t i = 0; i < r->failure_count; i++) {
        const by_load_failure *f = &r->failures[i];
        const char *message = f->message == NULL ? "" : f->message;
        if (!json) {
            printf("%s\t%zu\t", f->reason, f->count);
            cli_print_cell(message[0] == '\0' ? "-" : message);
            printf("\n");
            continue;
        }
        printf("%s{\"reason\":", i > 0 ? "," : "");
        cli_print_json_string(f->reason);
        printf(",\"status\":%s",
               cli_json_number(number, f->status == 0 ? NAN : (double)f->status, 3));
        printf(",\"count\":%zu,\"message\":", f->count);
        cli_print_json_string(message);
        printf("}");
    }
    printf(json ? "]" : "");
}

enum { CURVES = 4, POINTS = 100 };

/* Plots times in milliseconds by percentile; values[i] has counts[i] values in seconds,
 * ascending. */
static by_status draw(const char *path, const char *const names[CURVES],
                      double *const values[CURVES], const size_t counts[CURVES], by_error *error)
{
    double percents[POINTS];
    double milliseconds[CURVES][POINTS];
    by_plot_series series[CURVES];
    by_plot_options chart = {.title = "Times of requests",
                             .x_label = "percentile",
                             .y_label = "milliseconds",
                             .log_y = true,
                             .series = series};
    for (size_t i = 0; i < CURVES; i++) {
        for (size_t p = 0; counts[i] > 0 && p < POINTS; p++) {
            percents[p] = (double)p;
            milliseconds[i][p] = 1e3 * values[i][p * (counts[i] - 1) / (POINTS - 1)];
        }
        if (counts[i] > 0) {
            series[chart.series_count++] = (by_plot_series){
                .name = names[i], .x = percents, .y = milliseconds[i], .count = POINTS};
        }
    }
    return by_plot_write(&chart, path, error);
}

typedef struct goals {
    double first; /* seconds; 0: no goal */
    double end;
} goals;

/* Prints the report, whose gaps it sorts. path: file for a plot, or NULL. */
static int print_report(const by_load_report *r, goals goal, const char *path, bool json)
{
    double *first = calloc(4 * r->count + 1, sizeof *first);
    double *token = first + r->count;
    double *end = token + r->count;
    size_t good = 0;
    size_t paced = 0; /* requests with a second token, which have a time between tokens */
    size_t met = 0;
    size_t refused = 0;
    size_t tokens = 0;
    if (first == NULL) {
        fprintf(stderr, "banyan bench serve: out of memory\n");
        return CLI_FAILED;
    }
    for (size_t i = 0; i < r->count; i++) {
        const by_load_sample *s = &r->samples[i];
        refused += s->status == 429;
        if (s->failed) {
            continue;
        }
        first[good] = s->first;
        if (s->tokens > 1) {
            token[paced++] = (s->end - s->first) / (double)(s->tokens - 1);
        }
        end[good++] = s->end;
        tokens += s->tokens;
        met += (goal.first <= 0.0 || s->first <= goal.first) &&
               (goal.end <= 0.0 || s->end <= goal.end);
    }
    double seconds = r->seconds > 0.0 ? r->seconds : 1e-9;
    if (json) {
        printf("{\"requests\":%zu,\"ok\":%zu,\"refused\":%zu,\"failed\":%zu,\"seconds\":%.6f,"
               "\"requests_per_s\":%.3f,\"tokens_per_s\":%.3f,\"goodput\":%.3f",
               r->count, good, refused, r->count - good - refused, r->seconds,
               (double)good / seconds, (double)tokens / seconds, (double)met / seconds);
    } else {
        printf("requests\t%zu\nok\t%zu\nrefused (429)\t%zu\nfailed\t%zu\nseconds\t%.3f\n"
               "requests/s\t%.1f\ntokens/s\t%.1f\ngoodput, requests/s\t%.1f\n"
               "milliseconds\tmean\tp50\tp95\tp99\n",
               r->count, good, refused, r->count - good - refused, r->seconds,
               (double)good / seconds, (double)tokens / seconds, (double)met / seconds);
    }
    static const char *const names[CURVES] = {"ttft", "tpot", "itl", "e2e"};
    double *const values[CURVES] = {first, token, r->gaps, end};
    const size_t counts[CURVES] = {good, paced, r->gap_count, good};
    for (size_t i = 0; i < CURVES; i++) {
        print_row(names[i], summarize(values[i], counts[i]), json);
    }
    print_failures(r, json);
    printf(json ? "}\n" : "");
    by_error error = {0};
    by_status status = path == NULL ? BY_OK : draw(path, names, values, counts, &error);
    free(first);
    if (status != BY_OK) {
        return cli_fail(&cli_bench_serve, &error);
    }
    return good + refused == r->count ? CLI_DONE : CLI_FAILED;
}

static int run(int argc, char **argv)
{
    by_load_options options = {
        .model = NULL, .seed = (uint64_t)time(NULL), .stop = cli_stop_requested};
    int64_t requests = 100;
    int64_t concurrency = 8;
    int64_t prompt = 32;
    int64_t tokens = 32;
    goals goal = {0};
    const char *picture = NULL;
    bool json = false;
    options.vocab = 50;
    const cli_flag flags[] = {
        {"model", CLI_STRING, &options.model, "NAME", "name of the model to request (required)"},
        {"requests", CLI_INTEGER_IN(1, 10000000), &requests, "N",
         "number of requests (default 100)"},
        {"concurrency", CLI_INTEGER_IN(1, 100000), &concurrency, "N",
         "requests in flight at the same time, with --rate at most (default 8)"},
        {"rate", CLI_NUMBER_ABOVE(0, INFINITY), &options.rate, "R",
         "send R requests per second at random times, whatever the server does (open loop); by "
         "default, each answer is followed by the next request"},
        {"prompt-tokens", CLI_INTEGER_IN(1, 1 << 20), &prompt, "N",
         "tokens of a prompt (default 32)"},
        {"tokens", CLI_INTEGER_FROM(1), &tokens, "N", "tokens of an answer (default 32)"},
        {"vocab", CLI_INTEGER_FROM(1), &options.vocab, "N",
         "prompts are random token ids below N (default 50)"},
        {"whole", CLI_SWITCH, &options.whole, NULL, "request whole answers instead of streams"},
        {"key", CLI_STRING, &options.key, "KEY", "API key"},
        {"seed", CLI_SEED, &options.seed, "S",
         "seed of prompts and arrival times (default: a new one, so that no prompt is in the "
         "server's prefix cache)"},
        {"ttft", CLI_TIME_ABOVE(0, INFINITY), &goal.first, "TIME",
         "goodput: time to the first text, at most"},
        {"e2e", CLI_TIME_ABOVE(0, INFINITY), &goal.end, "TIME",
         "goodput: time to the end of the answer, at most"},
        {"out", CLI_STRING, &picture, "FILE",
         "plot the latencies by percentile to a .png or .svg file"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    by_load_report report;
    int code = cli_parse(&cli_bench_serve, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count != 1 || options.model == NULL) {
        return cli_misuse(&cli_bench_serve, "give a URL and --model");
    }
    options.url = rest[0];
    options.requests = (size_t)requests;
    options.concurrency = (size_t)concurrency;
    options.prompt_tokens = (size_t)prompt;
    options.tokens = (size_t)tokens;
    by_status status = by_load_run(&report, &options, &error);
    if (status != BY_OK) {
        return cli_fail(&cli_bench_serve, &error);
    }
    code = print_report(&report, goal, picture, json);
    by_load_report_free(&report);
    return code;
}

const cli_command cli_bench_serve = {
    "bench serve", "send load to a server: latencies, throughput, goodput",
    "banyan bench serve URL --model NAME [--concurrency N | --rate R]",
    "Sends completion requests to a server and prints latencies, throughput and goodput.\n"
    "\n"
    "examples:\n"
    "  banyan bench serve http://127.0.0.1:8080 --model tiny --concurrency 64 --requests 1000\n"
    "  banyan bench serve http://127.0.0.1:8080 --model tiny --rate 20 --ttft 0.2 --out times.png\n"
    "\n"
    "TTFT is the time to the first text, TPOT the time per token after the first, ITL the\n"
    "time between two texts, E2E the time to the end of the answer; all count from the\n"
    "moment at which the request was due. Goodput counts the requests that keep --ttft and\n"
    "--e2e. An error inside a stream counts as a failure. Failures are listed by reason,\n"
    "each with the server's first message.",
    run};
