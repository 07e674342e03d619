#include <stdio.h>
#include <stdlib.h>

#include "banyan/cluster.h"
#include "bench/bench.h"

typedef struct machine_figures {
    by_machine machine;
    char *libraries;
    char *cache; /* NULL: the figures could not be stored */
} machine_figures;

/* Prints a JSON member, null if it was not measured. */
static void print_member(const char *key, double value)
{
    if (value > 0.0) {
        printf(",\"%s\":%.6g", key, value);
    } else {
        printf(",\"%s\":null", key);
    }
}

/* Prints the names of the figures that were measured while other processes used the processors,
 * separated by `between`. */
static void print_busy(unsigned busy, const char *quote, const char *between)
{
    static const struct {
        unsigned figure;
        const char *name;
    } names[] = {{BY_MACHINE_F32, "f32"},
                 {BY_MACHINE_BF16, "bf16"},
                 {BY_MACHINE_INT8, "int8"},
                 {BY_MACHINE_MEMORY, "memory"}};
    const char *before = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (busy & names[i].figure) {
            printf("%s%s%s%s", before, quote, names[i].name, quote);
            before = between;
        }
    }
}

static void print_json(const machine_figures *f)
{
    const by_machine *m = &f->machine;
    size_t count;
    const char *const *levels = by_machine_levels(&count);
    printf("{\"device\":\"%s\",\"cpu\":", m->device);
    cli_print_json_string(m->cpu);
    printf(",\"isa\":\"%s\",\"levels\":[", m->isa);
    for (size_t i = 0; i < count; i++) {
        printf("%s\"%s\"", i == 0 ? "" : ",", levels[i]);
    }
    printf("],\"cores\":%d,\"threads\":%d,\"libraries\":", m->cores, m->threads);
    cli_print_json_string(f->libraries);
    print_member("f32_gflops", m->f32_gflops);
    print_member("bf16_gflops", m->bf16_gflops);
    print_member("int8_gops", m->int8_gops);
    print_member("own_f32_gflops", m->own_f32_gflops);
    print_member("own_bf16_gflops", m->own_bf16_gflops);
    print_member("read_gbps", m->read_gbps);
    print_member("copy_gbps", m->copy_gbps);
    print_member("disk_write_gbps", m->disk_write_gbps);
    print_member("disk_read_gbps", m->disk_read_gbps);
    printf(",\"disk_direct\":%s,\"busy\":[", m->disk_direct ? "true" : "false");
    print_busy(m->busy, "\"", ",");
    printf("],\"cache\":");
    if (f->cache == NULL) {
        printf("null}\n");
    } else {
        cli_print_json_string(f->cache);
        printf("}\n");
    }
}

static void print_product(const char *name, double best, double own)
{
    printf("%-12s %.1f GFLOP/s", name, best);
    if (own < best) {
        printf(" (banyan's own kernels %.1f)", own);
    }
    putchar('\n');
}

static void print_text(const machine_figures *f)
{
    const by_machine *m = &f->machine;
    bool host = m->threads > 0;
    printf("%-12s %s\n", host ? "cpu" : "gpu", m->cpu);
    if (host) {
        printf("kernels      %s, %d threads on %d cores\n", m->isa, m->threads, m->cores);
    } else {
        printf("kernels      %s\n", m->isa);
    }
    printf("libraries    %s\n", f->libraries);
    print_product("f32", m->f32_gflops, m->own_f32_gflops);
    print_product("bf16", m->bf16_gflops, m->own_bf16_gflops);
    if (m->int8_gops > 0.0) {
        printf("int8         %.1f GOP/s\n", m->int8_gops);
    } else if (host) {
        printf("int8         not measured: this level has no int8 kernel, and oneDNN is not "
               "installed\n");
    }
    if (host) {
        printf("memory       %.1f GB/s read, ", m->read_gbps);
    } else {
        printf("memory       ");
    }
    printf("%.1f GB/s copy (bytes read and written)\n", m->copy_gbps);
    if (m->disk_write_gbps > 0.0) {
        printf("disk         %.2f GB/s write with fsync, %.2f GB/s read%s\n", m->disk_write_gbps,
               m->disk_read_gbps, m->disk_direct ? "" : " (through the page cache)");
    }
    if (m->busy != 0) {
        printf("note         other processes used the processors while ");
        print_busy(m->busy, "", ", ");
        printf(" was measured: the figures may be too low, measure again\n");
    }
    if (f->cache != NULL) {
        printf("stored in    %s\n", f->cache);
    }
}

static by_status measure(machine_figures *f, const char *device, int threads, by_error *error)
{
    by_error aside = {0};
    by_status status = by_machine_describe(&f->machine, device, threads, error);
    if (status == BY_OK) {
        status = by_machine_libraries(&f->libraries, error);
    }
    if (status == BY_OK) {
        status = by_machine_measure(&f->machine, BY_MACHINE_ALL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    /* A failure here is reported, but does not discard the other figures. */
    if (by_machine_measure_disk(&f->machine, ".", &aside) != BY_OK) {
        fprintf(stderr, "banyan bench machine: %s\n", aside.message);
    }
    if (by_machine_store(&f->machine, &aside) != BY_OK) {
        fprintf(stderr, "banyan bench machine: the figures are not stored: %s\n", aside.message);
        return BY_OK;
    }
    return by_machine_cache_path(&f->cache, error);
}

static int run(int argc, char **argv)
{
    machine_figures f = {0};
    int64_t threads = -1;
    int64_t ranks = 1;
    const char *device = "auto";
    const char *cluster = NULL;
    bool json = false;
    const cli_flag flags[] = {{"device", CLI_STRING, &device, "NAME", CLI_DEVICE_HELP},
                              {"threads", CLI_INTEGER_IN(1, 4096), &threads, "N",
                               "compute threads (default: one per core)"},
                              {"out", CLI_STRING, &cluster, "FILE",
                               "write this machine as a cluster file, for banyan plan"},
                              {"ranks", CLI_INTEGER_IN(1, 4096), &ranks, "N",
                               "that divide its cores in that file (default 1)"},
                              {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
                              {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_bench_machine, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 0) {
        return cli_misuse(&cli_bench_machine, "this command takes no arguments");
    }
    by_status status = measure(&f, device, (int)threads, &error);
    if (status == BY_OK) {
        if (json) {
            print_json(&f);
        } else {
            print_text(&f);
        }
    }
    if (status == BY_OK && cluster != NULL) {
        by_cluster c;
        by_cluster_of_machine(&c, &f.machine, (int)ranks);
        status = cli_write_cluster(&c, cluster, &error);
    }
    free(f.libraries);
    free(f.cache);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_bench_machine, &error);
}

const cli_command cli_bench_machine = {
    .name = "bench machine",
    .summary = "measure the machine: matrix products, memory, disk",
    .usage = "banyan bench machine [--device NAME] [--threads N] [--out FILE [--ranks N]] [--json]",
    .text =
        "Measures the limits that all shares of the peak refer to, and stores them for later\n"
        "runs: matrix products in f32, bf16 and int8 (of a GPU f32 and bf16), memory bandwidth,\n"
        "and the disk of the current directory.\n"
        "\n"
        "examples:\n"
        "  banyan bench machine\n"
        "  BANYAN_ISA=avx2 banyan bench machine --json\n"
        "  banyan bench machine --out ours.yaml --ranks 2\n"
        "\n"
        "The peak of matrix products is the larger of banyan's kernels and oneDNN, where that\n"
        "is installed; for int8 it is the rate of the instructions on registers.\n"
        "BANYAN_ISA=baseline, avx2 or avx512 caps the instruction set; each level is stored\n"
        "separately.",
    .run = run};
