#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/comm.h"
#include "banyan/plot.h"
#include "banyan/track.h"
#include "bench/bench.h"

enum { MAX_COUNTS = 16, MAX_RANKS = 1024 };

typedef struct scale_curve {
    const by_config *config;
    int64_t steps;
    bool json;
    int ranks[MAX_COUNTS]; /* ascending */
    size_t count;
    cli_timing timing[MAX_COUNTS]; /* of rank 0 */
} scale_curve;

/* Copies the config with micro-batches that fit this many ranks; the global batch stays the
 * same. */
static by_status fit_config(by_config **out, const by_config *config, int ranks, by_error *error)
{
    by_status status = by_config_copy(out, config, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_config_fit_ranks(*out, ranks, error);
    by_train_config *train = &(*out)->train;
    int64_t fits = train->micro_batch;
    while (fits > 1 && (fits > train->batch / ranks || train->batch % fits != 0)) {
        fits--;
    }
    if (status == BY_OK) { /* as a given value, which fewer ranks do not choose again */
        char setting[64];
        (void)snprintf(setting, sizeof setting, "train.micro_batch=%lld", (long long)fits);
        status = by_config_set(*out, setting, error);
    }
    if (status != BY_OK) {
        by_config_close(out);
    }
    return status;
}

/* Measures one point: the first ranks train, the others wait. */
static by_status measure_point(scale_curve *c, size_t k, by_comm *world, by_error *error)
{
    by_comm *comm = NULL;
    by_config *config = NULL;
    cli_timing timing = {0};
    bool works = by_comm_rank(world) < c->ranks[k];
    by_status status = by_comm_split(&comm, world, works ? 0 : -1, 0, error);
    if (status == BY_OK && works) {
        status = fit_config(&config, c->config, c->ranks[c->count - 1], error);
    }
    if (status == BY_OK && works) {
        status = cli_time_training(&timing, config, c->steps, comm, error);
    }
    if (by_comm_rank(world) == 0) {
        c->timing[k] = timing;
    }
    by_comm_close(&comm);
    by_config_close(&config);
    return status == BY_OK ? by_comm_barrier(world, "scaling", error) : status;
}

static double efficiency(const scale_curve *c, size_t k)
{
    return c->timing[k].examples_per_s / c->timing[0].examples_per_s * (double)c->ranks[0] /
           (double)c->ranks[k];
}

/* Returns the share of a step that rank 0 waits for exchanges. */
static double exposed(const scale_curve *c, size_t k)
{
    return c->timing[k].exposed_ms / c->timing[k].step_ms;
}

static void print_point(const scale_curve *c, size_t k)
{
    const cli_timing *t = &c->timing[k];
    double share = 1e-9 * t->examples_per_s * t->size.flops_per_example / t->peak_gflops;
    if (c->json) {
        printf("%s{\"ranks\":%d,\"%s_per_s\":%.6g,\"step_ms\":%.6g,\"efficiency\":%.4g,"
               "\"exposed_ms\":%.6g,\"exposed_share\":%.4g,\"mfu\":%.4g}",
               k == 0 ? "" : ",", c->ranks[k], t->examples, t->examples_per_s, t->step_ms,
               efficiency(c, k), t->exposed_ms, exposed(c, k), share);
        return;
    }
    if (k == 0) {
        printf("%5s  %12s/s  %10s  %10s  %10s  %7s  %s\n", "ranks", t->examples, "step ms",
               "efficiency", "exposed ms", "share", "share of peak");
    }
    char text[3][32];
    printf("%5d  %14.0f  %10s  %8.1f %%  %10s  %5.1f %%  %s\n", c->ranks[k], t->examples_per_s,
           cli_ms(text[0], t->step_ms), 100.0 * efficiency(c, k), cli_ms(text[1], t->exposed_ms),
           100.0 * exposed(c, k), cli_share(text[2], share, 1, " %"));
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    scale_curve *c = user;
    by_status status = BY_OK;
    bool leads = by_comm_rank(comm) == 0;
    if (c->ranks[c->count - 1] > by_comm_size(comm)) {
        return by_error_set(error, BY_EARG, "--ranks asks for %d ranks, but the job has %d",
                            c->ranks[c->count - 1], by_comm_size(comm));
    }
    if (leads && c->json) {
        printf("{\"backend\":\"%s\",\"points\":[", by_comm_backend(comm));
    }
    for (size_t k = 0; k < c->count && status == BY_OK; k++) {
        status = measure_point(c, k, comm, error);
        if (status == BY_OK && leads) {
            print_point(c, k);
            (void)fflush(stdout);
        }
    }
    if (leads && c->json) {
        printf("]}\n");
    }
    return status;
}

/* Plots examples/s over ranks, the value without exposed exchanges, and the straight line through
 * the first point. */
static by_status draw(const scale_curve *c, const char *path, by_error *error)
{
    double x[MAX_COUNTS];
    double measured[MAX_COUNTS];
    double hidden[MAX_COUNTS];
    double linear[MAX_COUNTS];
    char label[64];
    for (size_t k = 0; k < c->count; k++) {
        x[k] = (double)c->ranks[k];
        measured[k] = c->timing[k].examples_per_s;
        hidden[k] = measured[k] / (1.0 - exposed(c, k));
        linear[k] = measured[0] * x[k] / x[0];
    }
    (void)snprintf(label, sizeof label, "%s/s", c->timing[0].examples);
    const by_plot_series series[] = {
        {.name = "measured", .x = x, .y = measured, .count = c->count},
        {.name = "without exposed communication", .x = x, .y = hidden, .count = c->count},
        {.name = "linear", .x = x, .y = linear, .count = c->count, .group = 1, .dashed = true}};
    const by_plot_options options = {.title = c->config->name,
                                     .x_label = "ranks",
                                     .y_label = label,
                                     .whole_x = true,
                                     .series = series,
                                     .series_count = sizeof series / sizeof series[0]};
    return by_plot_write(&options, path, error);
}

typedef struct bench_scale_request {
    cli_list overrides;
    const char *ranks;
    const char *out;
    int64_t steps;
    bool json;
} bench_scale_request;

static by_status measure(void *user, by_config *config, by_error *error)
{
    const bench_scale_request *r = user;
    by_comm *world = NULL;
    scale_curve c = {.config = config, .steps = r->steps, .json = r->json};
    by_status status =
        cli_parse_counts(c.ranks, &c.count, MAX_COUNTS, "--ranks", r->ranks, MAX_RANKS, error);
    if (status == BY_OK) {
        status = cli_assume_sizes(config, error);
    }
    if (status == BY_OK) {
        status = by_comm_open(&world, NULL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    bool leads = by_comm_rank(world) == 0;
    if (by_comm_size(world) > 1) {
        status = by_comm_fail(world, run_rank(world, &c, error), error);
    } else {
        status = by_comm_run_threads(c.ranks[c.count - 1], NULL, run_rank, &c, error);
    }
    by_comm_close(&world);
    if (status == BY_OK && leads && r->out != NULL) {
        status = draw(&c, r->out, error);
        cli_tell_written(status == BY_OK ? r->out : NULL);
    }
    return status;
}

static int run(int argc, char **argv)
{
    bench_scale_request r = {.ranks = "1,2", .steps = 5};
    const cli_flag flags[] = {
        {"ranks", CLI_STRING, &r.ranks, "N,N,...", "numbers of ranks, ascending (default 1,2)"},
        {"steps", CLI_STEPS, &r.steps, "N", "steps to time, after one warm-up step (default 5)"},
        {"out", CLI_STRING, &r.out, "FILE", "plot the curve to a .png or .svg file"},
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_bench_scale, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_bench_scale, "name one config file");
    }
    cli_catch_signals();
    return cli_with_config(&cli_bench_scale, rest[0], &r.overrides, measure, &r);
}

const cli_command cli_bench_scale = {
    .name = "bench scale",
    .summary = "time training on increasing numbers of ranks",
    .usage = "banyan bench scale CONFIG [--ranks 1,2,4] [--steps N] [--out FILE]\n"
             "                          [--set KEY=VALUE]... [--json]",
    .text =
        "Times training steps on random data for each number of ranks, with train.threads\n"
        "threads per rank.\n"
        "\n"
        "examples:\n"
        "  banyan bench scale examples/shakespeare_char.yaml --ranks 1,2,4 --set train.threads=1\n"
        "  mpirun -n 4 banyan bench scale examples/gpt2_124m.yaml --ranks 1,2,4 --out scale.svg\n"
        "\n"
        "The columns are: examples per second of all ranks; time per step; efficiency, which is\n"
        "the speed relative to the first number of ranks, divided by the ratio of ranks;\n"
        "exposed time per step, in which rank 0 waited for communication, and its share; share\n"
        "of the peak of all processors. Batch and micro-batch are the same throughout; the\n"
        "micro-batch is small enough for the most ranks. Under mpirun the ranks are those of\n"
        "the job, of which the first ones work; otherwise they are threads of this process.",
    .run = run};
