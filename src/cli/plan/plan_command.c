#include "plan/plan_command.h"

#include <string.h>
#include <unistd.h>

static const cli_command *const parts[] = {&cli_plan_search, &cli_plan_calibrate, &cli_plan_fit,
                                           &cli_plan_cost,   &cli_plan_coords,    &cli_plan_ladder,
                                           &cli_plan_serve};

static int run(int argc, char **argv)
{
    if (argc >= 2) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (strcmp(argv[1], parts[i]->name + strlen("plan ")) == 0) {
                return parts[i]->run(argc - 1, argv + 1);
            }
        }
        /* A config is a file, whose name has a dot, or a directory. */
        if (argv[1][0] != '-' && strpbrk(argv[1], "./") == NULL && access(argv[1], F_OK) != 0) {
            return cli_misuse(&cli_plan, "unknown plan '%s'; see banyan plan --help", argv[1]);
        }
    }
    return cli_plan_layout(argc, argv);
}

const cli_command cli_plan = {
    .name = "plan",
    .summary = "tell what a run will take, lose and cost, before it starts",
    .usage = "banyan plan CONFIG [--cluster FILE] [--ranks N] [--set KEY=VALUE]... [--json]\n"
             "       banyan plan search|calibrate|fit|cost|coords|ladder|serve ARGUMENTS",
    .text =
        "Tells what a run will take before it starts: for a config, the memory of each stage of\n"
        "its layout, compiled as its ranks compile it, and the time of a step with the share and\n"
        "the origin of each part. The cluster file has the figures of devices and network; see\n"
        "docs/planning.md. Other plans `search` for the best layout, `calibrate` a cluster file\n"
        "by measured steps, `fit` scaling laws to runs, tell what a run will `cost`, check\n"
        "`coords` of a parameterisation, run a `ladder`, tell what `serve` takes for a load;\n"
        "`banyan plan PLAN --help` describes them.\n"
        "\n"
        "examples:\n"
        "  banyan plan config.yaml --ranks 2\n"
        "  banyan plan config.yaml --ranks 64 --cluster examples/clusters/a100.yaml \\\n"
        "      --set parallel.tensor=8\n"
        "  banyan plan fit runs.csv --flops 1e21\n"
        "  banyan plan fit runs/s1 runs/s2 runs/s3 runs/s4 runs/s5 runs/s6\n"
        "  banyan plan cost prices.csv --device h100 --devices 64 --flops 1e22",
    .run = run};
