#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

typedef struct request {
    cli_list overrides;
    int64_t steps;
    bool json;
} request;

static void print(const request *r, const cli_timing *f)
{
    const by_model_size *size = &f->size;
    const char *examples = f->examples;
    double gflops = 1e-9 * f->examples_per_s * size->flops_per_example;
    double gflops_full = 1e-9 * f->examples_per_s * size->flops_per_example_full;
    char planned[32];
    char measured[32];
    if (r->json) {
        char loss[32];
        printf("{\"%s_per_s\":%.6g,\"step_ms\":%.6g,\"step_spread_ms\":%.4g,\"mfu\":%.4g,"
               "\"mfu_12\":%.4g,\"gflops\":%.6g,\"peak_gflops\":%.6g,\"planned_bytes\":%llu,"
               "\"measured_bytes\":%llu,\"loss\":%s,\"start_ms\":%.6g}\n",
               examples, f->examples_per_s, f->step_ms, f->spread_ms, gflops / f->peak_gflops,
               gflops_full / f->peak_gflops, gflops, f->peak_gflops, (unsigned long long)f->planned,
               (unsigned long long)f->resident, cli_json_number(loss, f->loss, 9), f->start_ms);
        return;
    }
    printf("step        %.1f ms (median; spread %.1f)\n", f->step_ms, f->spread_ms);
    char rate[64];
    (void)snprintf(rate, sizeof rate, "%s/s", examples);
    printf("%-11s %.0f\n", rate, f->examples_per_s);
    printf("share       %.1f %% of the measured peak of %.0f GFLOP/s",
           100.0 * gflops / f->peak_gflops, f->peak_gflops);
    if (gflops_full > gflops) {
        printf(" (6N + 6LCT), %.1f %% (6N + 12LCT)", 100.0 * gflops_full / f->peak_gflops);
    }
    printf("\n");
    printf("memory      %s measured, %s planned\n", by_format_bytes(measured, f->resident),
           by_format_bytes(planned, f->planned));
    printf("start       %.0f ms from process start to the end of the first step\n", f->start_ms);
}

static by_status measure(void *user, by_config *config, by_error *error)
{
    const request *r = user;
    cli_timing timing;
    by_comm *comm;
    by_status status = cli_assume_sizes(config, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_comm_open(&comm, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    status = cli_time_training(&timing, config, r->steps, comm, error);
    if (by_comm_fail(comm, status, error) == BY_OK && by_comm_rank(comm) == 0) {
        print(r, &timing);
    }
    by_comm_close(&comm);
    return status;
}

static int run(int argc, char **argv)
{
    request r = {.steps = 5};
    const cli_flag flags[] = {
        {"steps", CLI_INTEGER, &r.steps, "N", "steps to time, after one that is not (default: 5)"},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", "override a key of the config"},
        {"json", CLI_SWITCH, &r.json, NULL, "one JSON line"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_bench_train, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || r.steps < 1 || r.steps > CLI_MAX_STEPS) {
        return cli_misuse(&cli_bench_train,
                          count != 1 ? "name one config file" : "--steps must be 1 to 10000");
    }
    cli_catch_signals();
    return cli_with_config(&cli_bench_train, rest[0], &r.overrides, measure, &r);
}

const cli_command cli_bench_train = {
    .name = "bench train",
    .summary = "time whole training steps of a config",
    .usage = "banyan bench train CONFIG [--steps N] [--set KEY=VALUE]... [--json]",
    .text =
        "Times full steps (forward, backward, clip, update) on random data and measures the\n"
        "matrix-product peak in the same run. Sizes that the data would say are assumed: a\n"
        "vocabulary of 65, 10 classes, images of 1 x 28 x 28, rows of 8 numbers. Under mpirun it\n"
        "times the whole job; memory is that of rank 0.\n\n"
        "  banyan bench train examples/gpt2_124m.yaml --steps 5 --json\n"
        "  mpirun -n 2 banyan bench train examples/gpt2_124m.yaml --set train.micro_batch=2",
    .run = run};
