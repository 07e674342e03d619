#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

/* The default config: GPT-2 124M in mixed precision, one sequence. */
static const char gpt2_124m[] =
    "name: gpt2-124m\n"
    "model: {kind: gpt2, layers: 12, heads: 12, width: 768, context: 1024, vocab: 50257}\n"
    "train: {batch: 1}\n"
    "precision: {compute: bf16}\n";

typedef struct bench_kernels_request {
    cli_list overrides;
    const char *path; /* NULL: the config above */
    const char *op;   /* NULL: all */
    const char *isa;  /* NULL: the best level, or BANYAN_ISA */
    int64_t steps;
    bool json;
} bench_kernels_request;

typedef struct kernel_rows {
    by_profile_row *rows;
    size_t count;
} kernel_rows;

static bool is_wanted(const bench_kernels_request *r, const by_profile_row *row)
{
    return r->op == NULL || strcmp(r->op, by_op_name(row->op)) == 0;
}

/* Returns the rate a second, from the median run of a node. */
static double per_second(double of_all, const by_profile_row *row)
{
    return row->median_seconds > 0.0 ? 1e-9 * of_all / (double)row->runs / row->median_seconds
                                     : 0.0;
}

static double roof_ms(const by_profile_row *row)
{
    return 1e3 * row->roof_seconds / (double)row->runs;
}

static double roof_share(const by_profile_row *row)
{
    return row->median_seconds > 0.0 ? 1e-3 * roof_ms(row) / row->median_seconds : 0.0;
}

/* Prints one JSON object without a newline, because --isa all prints a list of them. */
static void print_json(const bench_kernels_request *r, const by_machine *m,
                       const kernel_rows *table)
{
    const char *separator = "";
    printf("{\"isa\":\"%s\",\"threads\":%d,\"f32_gflops\":%.6g,\"bf16_gflops\":%.6g,"
           "\"read_gbps\":%.5g,\"copy_gbps\":%.5g,\"kernels\":[",
           m->isa, m->threads, m->f32_gflops, m->bf16_gflops, m->read_gbps, m->copy_gbps);
    for (size_t i = 0; i < table->count; i++) {
        const by_profile_row *row = &table->rows[i];
        if (!is_wanted(r, row)) {
            continue;
        }
        printf("%s{\"op\":\"%s\",\"shapes\":", separator, by_op_name(row->op));
        cli_print_json_string(row->name);
        printf(",\"kernel\":");
        cli_print_json_string(row->kernel);
        printf(",\"nodes\":%d,\"ms\":%.6g,\"gflops\":%.6g,\"gbps\":%.5g,\"roof_ms\":%.6g,"
               "\"roof_share\":%.4g}",
               row->nodes, 1e3 * row->median_seconds, per_second(row->flops, row),
               per_second(row->bytes, row), roof_ms(row), roof_share(row));
        separator = ",";
    }
    printf("]}");
}

static void print_text(const bench_kernels_request *r, const by_machine *m,
                       const kernel_rows *table)
{
    printf("%s, %d threads; peaks: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s, memory %.1f GB/s\n", m->isa,
           m->threads, m->f32_gflops, m->bf16_gflops,
           m->read_gbps > m->copy_gbps ? m->read_gbps : m->copy_gbps);
    printf("%5s %10s %10s %8s %7s  %-32s %s\n", "nodes", "ms", "GFLOP/s", "GB/s", "roof", "kernel",
           "work");
    for (size_t i = 0; i < table->count; i++) {
        const by_profile_row *row = &table->rows[i];
        if (is_wanted(r, row)) {
            char share[32];
            printf("%5d %10.4f %10.1f %8.1f %7s  %-32s %s\n", row->nodes, 1e3 * row->median_seconds,
                   per_second(row->flops, row), per_second(row->bytes, row),
                   cli_share(share, roof_share(row), 0, "%"), row->kernel, row->name);
        }
    }
}

static by_status check_op(const bench_kernels_request *r, const kernel_rows *table, by_error *error)
{
    for (size_t i = 0; i < table->count; i++) {
        if (is_wanted(r, &table->rows[i])) {
            return BY_OK;
        }
    }
    return by_error_set(
        error, BY_EARG,
        "--op '%s': this config has no such operation; run without --op to list them",
        r->op == NULL ? "" : r->op);
}

static by_status open_config(by_config **out, const bench_kernels_request *r, by_error *error)
{
    if (r->path != NULL) {
        return cli_open_config(out, r->path, &r->overrides, error);
    }
    by_status status = by_config_parse(out, "the built-in config", gpt2_124m, strlen(gpt2_124m),
                                       r->overrides.items, r->overrides.count, error);
    if (status == BY_OK) {
        status = by_config_resolve(*out, error);
        if (status != BY_OK) {
            by_config_close(out);
        }
    }
    return status;
}

static int measure(const bench_kernels_request *r)
{
    by_config *config;
    cli_profiled p;
    kernel_rows table = {0};
    by_error error = {0};
    by_status status = open_config(&config, r, &error);
    if (status != BY_OK) {
        return cli_fail(&cli_bench_kernels, &error);
    }
    status = cli_profile_steps(&p, config, r->steps, false, NULL, &error);
    if (status == BY_OK) {
        status = by_profile_rows(&table.rows, &table.count, p.profile, BY_PROFILE_BY_SHAPE,
                                 &p.machine, &error);
        if (status == BY_OK) {
            status = check_op(r, &table, &error);
        }
        if (status == BY_OK && r->json) {
            print_json(r, &p.machine, &table);
        } else if (status == BY_OK) {
            print_text(r, &p.machine, &table);
        }
        by_profile_rows_free(table.rows, table.count);
        cli_profiled_close(&p);
    }
    by_config_close(&config);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_bench_kernels, &error);
}

/* Measures each level in its own process, because libraries read the cap only once. Forking is
 * safe, as no OpenMP code has run in this process yet. */
static int measure_level(const bench_kernels_request *r, const char *level)
{
    int state;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "banyan bench kernels: cannot start a process\n");
        return CLI_FAILED;
    }
    if (child == 0) {
        (void)setenv("BANYAN_ISA", level, 1);
        int code = measure(r);
        _exit(cli_finish_output(code));
    }
    if (waitpid(child, &state, 0) != child || !WIFEXITED(state)) {
        fprintf(stderr, "banyan bench kernels: the measurement at level %s failed\n", level);
        return CLI_FAILED;
    }
    return WEXITSTATUS(state);
}

static int measure_levels(const bench_kernels_request *r)
{
    size_t count;
    const char *const *levels = by_machine_levels(&count);
    int code = CLI_DONE;
    fputs(r->json ? "{\"levels\":[" : "", stdout);
    for (size_t i = 0; i < count && code == CLI_DONE; i++) {
        fputs(i == 0 ? "" : r->json ? "," : "\n", stdout);
        code = measure_level(r, levels[i]);
    }
    fputs(r->json ? "]}" : "", stdout);
    return code;
}

static int run(int argc, char **argv)
{
    bench_kernels_request r = {.steps = 5};
    const cli_flag flags[] = {
        {"op", CLI_STRING, &r.op, "NAME",
         "only this operation, e.g. matmul or attention_grad (default: all)"},
        {"isa", CLI_STRING, &r.isa, "LEVEL",
         "baseline, avx2 or avx512; all: every level that this machine has (default: the best)"},
        {"steps", CLI_STEPS, &r.steps, "N", "steps to time, after one warm-up step (default 5)"},
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_bench_kernels, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count > 1) {
        return cli_misuse(&cli_bench_kernels, "name one config file, or none");
    }
    r.path = count == 1 ? rest[0] : NULL;
    cli_catch_signals();
    if (r.isa != NULL && strcmp(r.isa, "all") == 0) {
        code = measure_levels(&r);
    } else {
        if (r.isa != NULL) {
            (void)setenv("BANYAN_ISA", r.isa, 1);
        }
        code = measure(&r);
    }
    if (r.json && code == CLI_DONE) {
        printf("\n");
    }
    return code;
}

const cli_command cli_bench_kernels = {
    .name = "bench kernels",
    .summary = "time each kernel of a training step against its roofline",
    .usage = "banyan bench kernels [CONFIG] [--op NAME] [--isa LEVEL|all] [--steps N] [--json]",
    .text = "Runs training steps on random tokens and lists each distinct kernel call (operation,\n"
            "types, shapes) with its median time inside the step and its share of the roofline.\n"
            "\n"
            "example:\n"
            "  banyan bench kernels examples/shakespeare_char.yaml --op matmul --isa all\n"
            "\n"
            "The roofline is the longer of the FLOPs at the measured peak and the bytes, each\n"
            "counted once, at the memory bandwidth; a kernel whose operands are in a cache can\n"
            "exceed it. Without a config, GPT-2 124M is used.",
    .run = run};
