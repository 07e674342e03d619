#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/comm.h"
#include "bench/bench.h"

enum { FIRST_BYTES = 4 << 10, MAX_MIB = 4096, MIN_REPEATS = 7, MAX_REPEATS = 200 };

/* Time to spend on one size. */
#define ENOUGH_SECONDS 2.0

/* The operations to time: the collectives, and the MPI library's own sum. */
typedef enum comm_measure { ALL_REDUCE, NATIVE, REDUCE_SCATTER, ALL_GATHER, MEASURES } comm_measure;

static const char *const measure_names[MEASURES] = {"all_reduce", "mpi_allreduce", "reduce_scatter",
                                                    "all_gather"};

typedef struct bench {
    size_t most; /* bytes of the largest size */
    bool json;
    float *data;
    float *out;
    size_t *counts;
    bool native; /* there is an MPI library to compare with */
    double times[MEASURES][MAX_REPEATS];
} bench;

static by_status measure_once(bench *b, by_comm *comm, comm_measure what, size_t elements,
                              by_error *error)
{
    switch (what) {
    case ALL_REDUCE:
        return by_comm_all_reduce(comm, b->data, elements, BY_F32, "bench", error);
    case NATIVE:
        return by_comm_native_all_reduce(comm, b->data, elements, error);
    case REDUCE_SCATTER:
        return by_comm_reduce_scatter(comm, b->data, b->out, b->counts, BY_F32, "bench", error);
    default:
        return by_comm_all_gather(comm, b->out, b->data, b->counts, BY_F32, "bench", error);
    }
}

/* Times each operation once. */
static by_status measure_round(bench *b, by_comm *comm, size_t elements, double *seconds,
                               by_error *error)
{
    for (int what = 0; what < MEASURES; what++) {
        if (what == NATIVE && !b->native) {
            continue;
        }
        by_status status = by_comm_barrier(comm, "bench", error);
        double began = by_clock();
        if (status == BY_OK) {
            status = measure_once(b, comm, (comm_measure)what, elements, error);
        }
        if (status != BY_OK) {
            return status;
        }
        seconds[what] = by_clock() - began;
    }
    return BY_OK;
}

/* Chooses the number of rounds that rank 0 expects to fit into ENOUGH_SECONDS, after one that took
 * `seconds`. */
static by_status choose_repeats(by_comm *comm, const double *seconds, int *repeats, by_error *error)
{
    double round = 1e-6;
    for (int what = 0; what < MEASURES; what++) {
        round += seconds[what];
    }
    double wanted = ENOUGH_SECONDS / round;
    int32_t chosen = wanted < MIN_REPEATS   ? MIN_REPEATS
                     : wanted > MAX_REPEATS ? MAX_REPEATS
                                            : (int32_t)wanted;
    by_status status = by_comm_broadcast(comm, &chosen, 1, BY_I32, 0, "bench", error);
    *repeats = (int)chosen;
    return status;
}

/* Times the operations in turn, so that a temporary slowdown of the machine affects all of them. */
static by_status measure_size(bench *b, by_comm *comm, size_t bytes, int *repeats, by_error *error)
{
    size_t elements = bytes / sizeof(float);
    size_t ranks = (size_t)by_comm_size(comm);
    double seconds[MEASURES] = {0};
    for (size_t r = 0; r < ranks; r++) {
        b->counts[r] = elements / ranks + (r < elements % ranks);
    }
    by_status status = measure_round(b, comm, elements, seconds, error); /* warm-up */
    if (status == BY_OK) {
        status = choose_repeats(comm, seconds, repeats, error);
    }
    for (int i = 0; status == BY_OK && i < *repeats; i++) {
        status = measure_round(b, comm, elements, seconds, error);
        for (int what = 0; what < MEASURES; what++) {
            b->times[what][i] = seconds[what];
        }
    }
    return status;
}

static void print_size(bench *b, size_t bytes, int repeats, bool first)
{
    double medians[MEASURES];
    char text[32];
    for (int what = 0; what < MEASURES; what++) {
        medians[what] = cli_median(b->times[what], (size_t)repeats);
    }
    if (b->json) {
        printf("%s{\"bytes\":%zu", first ? "" : ",", bytes);
        for (int what = 0; what < MEASURES; what++) {
            if (what != NATIVE || b->native) {
                printf(",\"%s_us\":%.5g,\"%s_gbps\":%.4g", measure_names[what], 1e6 * medians[what],
                       measure_names[what], 1e-9 * (double)bytes / medians[what]);
            }
        }
        if (b->native) {
            printf(",\"ratio\":%.4g", medians[NATIVE] / medians[ALL_REDUCE]);
        }
        printf("}");
        return;
    }
    printf("%-10s", by_format_bytes(text, bytes));
    for (int what = 0; what < MEASURES; what++) {
        if (what != NATIVE || b->native) {
            printf("  %10.1f us %6.2f GB/s", 1e6 * medians[what],
                   1e-9 * (double)bytes / medians[what]);
        }
    }
    if (b->native) {
        printf("  %6.2f", medians[NATIVE] / medians[ALL_REDUCE]);
    }
    printf("\n");
}

static void print_head(const bench *b, const by_comm *comm)
{
    int near = 0;
    for (int r = 0; r < by_comm_size(comm); r++) {
        near += by_comm_is_near(comm, r);
    }
    if (b->json) {
        printf("{\"backend\":\"%s\",\"ranks\":%d,\"ranks_of_this_host\":%d,\"sizes\":[",
               by_comm_backend(comm), by_comm_size(comm), near);
        return;
    }
    printf("%d ranks (%s), %d of them on this host; time and bytes/time of f32 data\n",
           by_comm_size(comm), by_comm_backend(comm), near);
    printf("%-10s  %-24s", "bytes", "all-reduce");
    if (b->native) {
        printf("  %-24s", "MPI_Allreduce");
    }
    printf("  %-24s  %-24s", "reduce-scatter", "all-gather");
    printf(b->native ? "  MPI/ours\n" : "\n");
}

static by_status measure_all(bench *b, by_comm *comm, by_error *error)
{
    bool speaks = by_comm_rank(comm) == 0;
    if (speaks) {
        print_head(b, comm);
    }
    for (size_t bytes = FIRST_BYTES; bytes <= b->most; bytes *= 4) {
        int repeats;
        by_status status = measure_size(b, comm, bytes, &repeats, error);
        if (status != BY_OK) {
            return status;
        }
        if (speaks) {
            print_size(b, bytes, repeats, bytes == FIRST_BYTES);
            (void)fflush(stdout);
        }
    }
    if (speaks && b->json) {
        printf("]}\n");
    }
    return BY_OK;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    const bench *settings = user;
    by_status status = BY_OK;
    bench *b = calloc(1, sizeof *b);
    if (b != NULL) {
        *b = *settings;
        b->native = strcmp(by_comm_backend(comm), "mpi") == 0;
        b->data = malloc(b->most);
        b->out = malloc(b->most);
        b->counts = calloc((size_t)by_comm_size(comm), sizeof *b->counts);
    }
    if (b == NULL || b->data == NULL || b->out == NULL || b->counts == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: two buffers of %zu bytes per rank",
                              settings->most);
    } else {
        /* Touch the pages before timing starts. */
        memset(b->data, 0, b->most);
        memset(b->out, 0, b->most);
        status = measure_all(b, comm, error);
    }
    if (b != NULL) {
        free(b->data);
        free(b->out);
        free(b->counts);
        free(b);
    }
    return status;
}

static by_status run_world(bench *settings, by_error *error)
{
    by_comm *comm = NULL;
    by_status status = by_comm_open(&comm, NULL, error);
    if (status == BY_OK) {
        status = by_comm_fail(comm, run_rank(comm, settings, error), error);
    }
    by_comm_close(&comm);
    return status;
}

static int run(int argc, char **argv)
{
    int64_t ranks = 0;
    int64_t most = 256;
    bool json = false;
    const cli_flag flags[] = {
        {"ranks", CLI_INTEGER_IN(1, 1024), &ranks, "N",
         "run this many ranks as threads of this process (default: the ranks of mpirun)"},
        {"largest", CLI_INTEGER_IN(1, MAX_MIB), &most, "MIB",
         "largest message in MiB (default 256)"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_bench_comm, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 0) {
        return cli_misuse(&cli_bench_comm, "unexpected argument '%s'", rest[0]);
    }
    bench settings = {.most = (size_t)most << 20, .json = json};
    by_status status = ranks > 0
                           ? by_comm_run_threads((int)ranks, NULL, run_rank, &settings, &error)
                           : run_world(&settings, &error);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_bench_comm, &error);
}

const cli_command cli_bench_comm = {
    .name = "bench comm",
    .summary = "time collectives between ranks, and MPI's own all-reduce",
    .usage = "[mpirun -n N] banyan bench comm [--ranks N] [--largest MIB] [--json]",
    .text =
        "Times all-reduce, and its halves reduce-scatter and all-gather, on f32 data from 4 KiB\n"
        "up.\n"
        "\n"
        "examples:\n"
        "  mpirun -n 2 banyan bench comm\n"
        "  banyan bench comm --ranks 4 --json\n"
        "\n"
        "Figures are medians of rank 0; GB/s is the size of the whole data divided by the time.\n"
        "Under mpirun, MPI_Allreduce is timed too: MPI/ours above 1 means that banyan's\n"
        "all-reduce is faster.",
    .run = run,
};
