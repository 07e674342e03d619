#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

static const cli_command *const parts[] = {
    &cli_bench_machine, &cli_bench_train,   &cli_bench_generate, &cli_bench_engine,
    &cli_bench_pack,    &cli_bench_kernels, &cli_bench_comm,     &cli_bench_scale,
    &cli_bench_serve,   &cli_bench_loader};

static int run(int argc, char **argv)
{
    if (argc >= 2) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (strcmp(argv[1], parts[i]->name + strlen("bench ")) == 0) {
                return parts[i]->run(argc - 1, argv + 1);
            }
        }
        if (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0) {
            return cli_misuse(&cli_bench, "unknown measurement '%s'; see banyan bench --help",
                              argv[1]);
        }
    }
    printf("usage: %s\n\n%s\n\nmeasurements:\n", cli_bench.usage, cli_bench.text);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        printf("  %-10s %s\n", parts[i]->name + strlen("bench "), parts[i]->summary);
    }
    return argc >= 2 ? CLI_DONE : CLI_USAGE;
}

const cli_command cli_bench = {
    .name = "bench",
    .summary = "benchmark the machine, training, generation, serving, data, kernels and ranks",
    .usage = "banyan bench MEASUREMENT [ARGUMENTS] [--json]",
    .text = "Measures the speed of this machine or of a server, and prints each figure with its\n"
            "share of the hardware limit where there is one. `banyan bench MEASUREMENT --help`\n"
            "describes a measurement.\n"
            "\n"
            "examples:\n"
            "  banyan bench machine\n"
            "  banyan bench train examples/gpt2_124m.yaml\n"
            "  banyan bench serve http://127.0.0.1:8080 --model tiny --concurrency 64",
    .run = run};
