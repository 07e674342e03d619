#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

typedef struct request {
    cli_list overrides;
    int64_t steps;
    bool json;
} request;

typedef struct figures {
    double examples_per_s;
    double step_ms;
    double spread_ms; /* slowest minus fastest */
    double start_ms;
    double peak_gflops;
    double loss;
    uint64_t resident; /* peak, before the machine's peak is measured */
} figures;

static by_status time_steps(figures *out, by_trainer *trainer, int64_t steps, by_error *error)
{
    double *seconds = malloc((size_t)steps * sizeof *seconds);
    by_step_result result = {0};
    by_random_batch *random = NULL;
    by_status status = by_random_batch_open(&random, trainer, error);
    if (status == BY_OK && seconds == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: times");
    }
    for (int64_t i = -1; i < steps && status == BY_OK && !cli_stop_requested(NULL); i++) {
        double began = by_clock();
        status = by_trainer_step(trainer, by_random_batch_view(random), &result, error);
        if (i < 0) {
            out->start_ms = cli_process_age_ms();
        } else {
            seconds[i] = by_clock() - began;
        }
    }
    if (status == BY_OK && cli_stop_requested(NULL)) {
        status = by_error_set(error, BY_ESTOPPED, "interrupted: nothing was measured");
    }
    if (status == BY_OK) {
        out->loss = result.loss;
        double median = cli_median(seconds, (size_t)steps);
        out->step_ms = 1e3 * median;
        out->spread_ms = 1e3 * (seconds[steps - 1] - seconds[0]);
        out->examples_per_s = (double)result.examples / median;
    }
    by_random_batch_close(&random);
    free(seconds);
    return status;
}

static void print(const request *r, const figures *f, const by_trainer *trainer)
{
    const by_model_size *size = by_trainer_size(trainer);
    const by_memory_report *memory = by_trainer_memory(trainer);
    const char *examples = by_trainer_task(trainer)->examples;
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
               gflops_full / f->peak_gflops, gflops, f->peak_gflops,
               (unsigned long long)memory->total, (unsigned long long)f->resident,
               cli_json_number(loss, f->loss, 9), f->start_ms);
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
           by_format_bytes(planned, memory->total));
    printf("start       %.0f ms from process start to the end of the first step\n", f->start_ms);
}

static by_status measure(void *user, by_config *config, by_error *error)
{
    const request *r = user;
    by_trainer *trainer;
    figures f = {0};
    by_dtype dtype = cli_compute_dtype(config);
    by_status status = cli_assume_sizes(config, error);
    if (status == BY_OK) {
        status = by_trainer_open(&trainer, config, NULL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    status = by_trainer_allocate(trainer, error);
    if (status == BY_OK) {
        status = by_trainer_initialize(trainer, error);
    }
    if (status == BY_OK) {
        status = time_steps(&f, trainer, r->steps, error);
    }
    f.resident = by_peak_resident_bytes();
    if (status == BY_OK) {
        status = by_machine_measure_peak(&f.peak_gflops, dtype, (int)config->train.threads, error);
    }
    if (status == BY_OK) {
        print(r, &f, trainer);
    }
    by_trainer_close(&trainer);
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
    .text = "Times full steps (forward, backward, clip, update) on random data and measures the\n"
            "matrix-product peak in the same run. Sizes that the data would say are assumed: a\n"
            "vocabulary of 65, 10 classes, images of 1 x 28 x 28, rows of 8 numbers.\n\n"
            "  banyan bench train examples/gpt2_124m.yaml --steps 5 --json",
    .run = run};
