#include "plan/plan_command.h"

#include <stdio.h>
#include <string.h>

static const cli_command *const parts[] = {&cli_plan_fit, &cli_plan_cost, &cli_plan_coords};

static int run(int argc, char **argv)
{
    if (argc >= 2) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (strcmp(argv[1], parts[i]->name + strlen("plan ")) == 0) {
                return parts[i]->run(argc - 1, argv + 1);
            }
        }
        if (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0) {
            return cli_misuse(&cli_plan, "unknown plan '%s'; see banyan plan --help", argv[1]);
        }
    }
    printf("usage: %s\n\n%s\n\nplans:\n", cli_plan.usage, cli_plan.text);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        printf("  %-10s %s\n", parts[i]->name + strlen("plan "), parts[i]->summary);
    }
    return argc >= 2 ? CLI_DONE : CLI_USAGE;
}

const cli_command cli_plan = {
    .name = "plan",
    .summary = "tell what a run will lose and cost, before it starts",
    .usage = "banyan plan PLAN [ARGUMENTS] [--json]",
    .text = "Tells what a run will lose and cost, before it starts, from earlier runs and from\n"
            "files of prices. `banyan plan PLAN --help` describes a plan.\n"
            "\n"
            "examples:\n"
            "  banyan plan fit runs.csv --flops 1e21\n"
            "  banyan plan fit runs/s1 runs/s2 runs/s3 runs/s4 runs/s5 runs/s6\n"
            "  banyan plan cost prices.csv --device h100 --devices 64 --flops 1e22",
    .run = run};
