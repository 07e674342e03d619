#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

typedef struct bench_train_request {
    cli_list overrides;
    int64_t steps;
    bool json;
} bench_train_request;

/* The memory of a rank. */
typedef struct usage {
    uint64_t planned;
    uint64_t measured;
} usage;

/* Prints ,"NAME":[...] with the values of all ranks. */
static void print_list(const char *name, const usage *ranks, int count, bool planned)
{
    printf(",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        printf("%s%llu", i == 0 ? "" : ",",
               (unsigned long long)(planned ? ranks[i].planned : ranks[i].measured));
    }
    printf("]");
}

static void print_memory(const usage *ranks, int count)
{
    for (int i = 0; i < count; i++) {
        char planned[32];
        char measured[32];
        char rank[32] = "";
        if (count > 1) {
            (void)snprintf(rank, sizeof rank, "rank %d: ", i);
        }
        printf("%-11s %s%s measured, %s planned\n", i == 0 ? "memory" : "", rank,
               by_format_bytes(measured, ranks[i].measured),
               by_format_bytes(planned, ranks[i].planned));
    }
}

/* disk_alone_ms: time that the disk alone needs to read and write what this rank stores on it. */
static void print(const bench_train_request *r, const cli_timing *f, const usage *ranks, int count,
                  double disk_alone_ms)
{
    const by_model_size *size = &f->size;
    const char *examples = f->examples;
    double gflops = 1e-9 * f->examples_per_s * size->flops_per_example;
    double gflops_full = 1e-9 * f->examples_per_s * size->flops_per_example_full;
    if (r->json) {
        char loss[32];
        printf("{\"%s_per_s\":%.6g,\"step_ms\":%.6g,\"step_spread_ms\":%.4g,\"mfu\":%.4g,"
               "\"mfu_12\":%.4g,\"gflops\":%.6g,\"peak_gflops\":%.6g,\"planned_bytes\":%llu,"
               "\"measured_bytes\":%llu,\"loss\":%s,\"start_ms\":%.6g",
               examples, f->examples_per_s, f->step_ms, f->spread_ms, gflops / f->peak_gflops,
               gflops_full / f->peak_gflops, gflops, f->peak_gflops, (unsigned long long)f->planned,
               (unsigned long long)f->resident, cli_json_number(loss, f->loss, 9), f->start_ms);
        if (count > 1) {
            print_list("ranks_planned_bytes", ranks, count, true);
            print_list("ranks_measured_bytes", ranks, count, false);
        }
        if (f->device_planned > 0) {
            printf(",\"device_planned_bytes\":%llu,\"device_measured_bytes\":%llu",
                   (unsigned long long)f->device_planned, (unsigned long long)f->device_measured);
        }
        if (f->on_disk > 0) {
            printf(",\"on_disk_bytes\":%llu,\"disk_ms\":%.6g,\"disk_alone_ms\":%.6g",
                   (unsigned long long)f->on_disk, f->disk_ms, disk_alone_ms);
        }
        printf("}\n");
        return;
    }
    char text[2][32];
    char rate[64];
    printf("step        %s ms (median; spread %s)\n", cli_ms(text[0], f->step_ms),
           cli_ms(text[1], f->spread_ms));
    (void)snprintf(rate, sizeof rate, "%s/s", examples);
    printf("%-11s %.0f\n", rate, f->examples_per_s);
    printf("share       %s of the measured peak of %.0f GFLOP/s",
           cli_share(text[0], gflops / f->peak_gflops, 1, " %"), f->peak_gflops);
    if (gflops_full > gflops) {
        printf(" (6N + 6LCT), %s (6N + 12LCT)",
               cli_share(text[0], gflops_full / f->peak_gflops, 1, " %"));
    }
    printf("%s\n", gflops > f->peak_gflops
                       ? ": measured while other programs were running, and not to be trusted"
                       : "");
    print_memory(ranks, count);
    if (f->device_planned > 0) {
        printf("device      %s measured, %s planned\n",
               by_format_bytes(text[0], f->device_measured),
               by_format_bytes(text[1], f->device_planned));
    }
    if (f->on_disk > 0) {
        char bytes[32];
        printf("disk        %s; a step waits for it for %.1f ms; reading and writing all of it "
               "takes %.1f ms\n",
               by_format_bytes(bytes, f->on_disk), f->disk_ms, disk_alone_ms);
    }
    printf("start       %.0f ms from process start to the end of the first step\n", f->start_ms);
}

/* Measures the disk that holds the optimizer's state, while nothing else uses it. */
static by_status measure_disk(double *ms, const cli_timing *timing, const by_config *config,
                              by_error *error)
{
    by_machine machine = {0};
    if (timing->on_disk == 0) {
        return BY_OK;
    }
    by_status status = by_machine_measure_disk(&machine, by_config_offload_path(config), error);
    if (status == BY_OK) {
        *ms = 1e3 * cli_disk_seconds(&machine, timing->on_disk);
    }
    return status;
}

/* Gathers the memory of all ranks and prints on rank 0. */
static by_status report(const bench_train_request *r, const cli_timing *timing,
                        const by_config *config, by_comm *comm, by_error *error)
{
    double disk_alone_ms = 0.0;
    size_t count = (size_t)by_comm_size(comm);
    usage mine = {timing->planned, timing->resident};
    usage *ranks = calloc(count, sizeof *ranks);
    size_t *bytes = calloc(count, sizeof *bytes);
    by_status status = ranks == NULL || bytes == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: %zu ranks", count)
                           : BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        bytes[i] = sizeof mine;
    }
    if (status == BY_OK) {
        status = by_comm_all_gather(comm, &mine, ranks, bytes, BY_U8, "memory", error);
    }
    if (status == BY_OK && by_comm_rank(comm) == 0) {
        status = measure_disk(&disk_alone_ms, timing, config, error);
        if (status == BY_OK) {
            print(r, timing, ranks, (int)count, disk_alone_ms);
        }
    }
    free(ranks);
    free(bytes);
    return status;
}

static by_status measure(void *user, by_config *config, by_error *error)
{
    const bench_train_request *r = user;
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
    if (status == BY_OK) {
        status = report(r, &timing, config, comm, error);
    }
    status = by_comm_fail(comm, status, error);
    by_comm_close(&comm);
    return status;
}

static int run(int argc, char **argv)
{
    bench_train_request r = {.steps = 5};
    const cli_flag flags[] = {
        {"steps", CLI_STEPS, &r.steps, "N", "steps to time, after one warm-up step (default 5)"},
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_bench_train, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_bench_train, "name one config file");
    }
    cli_catch_signals();
    return cli_with_config(&cli_bench_train, rest[0], &r.overrides, measure, &r);
}

const cli_command cli_bench_train = {
    .name = "bench train",
    .summary = "time whole training steps of a config",
    .usage = "banyan bench train CONFIG [--steps N] [--set KEY=VALUE]... [--json]",
    .text =
        "Times whole training steps (forward, backward, clip, update) on random data, and\n"
        "measures the peak of matrix products in the same run.\n"
        "\n"
        "examples:\n"
        "  banyan bench train examples/gpt2_124m.yaml --steps 5 --json\n"
        "  mpirun -n 2 banyan bench train examples/gpt2_124m.yaml\n"
        "\n"
        "Sizes that the data would determine are assumed: a vocabulary of 65, 10 classes,\n"
        "images of 1 x 28 x 28, rows of 8 numbers. Under mpirun the whole job is timed, and the\n"
        "memory of each rank is shown.",
    .run = run};
