#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/cluster.h"
#include "banyan/comm.h"
#include "bench/bench.h"

enum { FIRST_BYTES = 4 << 10, MAX_MIB = 4096, MIN_REPEATS = 7, MAX_REPEATS = 200 };

/* Time to spend on one size. */
#define ENOUGH_SECONDS 2.0

/* The operations to time: collectives, the MPI library's own sum, and messages around a ring. */
typedef enum comm_measure {
    ALL_REDUCE,
    NATIVE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    SEND,
    MEASURES
} comm_measure;

static const char *const measure_names[MEASURES] = {"all_reduce", "mpi_allreduce", "reduce_scatter",
                                                    "all_gather", "all_to_all",    "send"};
static const char *const measure_heads[MEASURES] = {"all-reduce", "MPI_Allreduce", "reduce-scatter",
                                                    "all-gather", "all-to-all",    "send, receive"};

enum { MOST_TIMES = 64 };

typedef struct bench {
    size_t most; /* bytes of the largest size */
    bool json;
    float *data;
    float *out;
    size_t *counts;                      /* of each rank's slice, */
    size_t *received;                    /* and of what it sends to this one */
    bool native;                         /* there is an MPI library to compare with */
    const char *cluster;                 /* file; NULL: none */
    by_exchange_time fitted[MOST_TIMES]; /* medians */
    size_t fitted_count;
    double times[MEASURES][MAX_REPEATS];
} bench;

/* Each rank sends to the next one, and receives from the one before. */
static by_status shift(bench *b, by_comm *comm, size_t elements, by_error *error)
{
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    by_status status =
        by_comm_send(comm, b->data, elements, BY_F32, (rank + 1) % ranks, 0, "bench", error);
    return status != BY_OK ? status
                           : by_comm_receive(comm, b->out, elements, BY_F32,
                                             (rank + ranks - 1) % ranks, 0, "bench", error);
}

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
    case ALL_TO_ALL:
        return by_comm_all_to_all(comm, b->data, b->counts, b->out, b->received, BY_F32, "bench",
                                  error);
    case SEND:
        return shift(b, comm, elements, error);
    default:
        return by_comm_all_gather(comm, b->out, b->data, b->counts, BY_F32, "bench", error);
    }
}

/* A rank alone sends to nobody. */
static bool is_measured(const bench *b, const by_comm *comm, int what)
{
    return what == NATIVE ? b->native : what != SEND || by_comm_size(comm) > 1;
}

/* Times each operation once. */
static by_status measure_round(bench *b, by_comm *comm, size_t elements, double *seconds,
                               by_error *error)
{
    for (int what = 0; what < MEASURES; what++) {
        if (!is_measured(b, comm, what)) {
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
    for (size_t r = 0; r < ranks; r++) {
        b->received[r] = b->counts[by_comm_rank(comm)];
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

/* Keeps a median for the fit of a level. */
static void keep_time(bench *b, int what, size_t bytes, double seconds)
{
    static const by_exchange exchanges[MEASURES] = {[ALL_REDUCE] = BY_EXCHANGE_ALL_REDUCE,
                                                    [REDUCE_SCATTER] = BY_EXCHANGE_REDUCE_SCATTER,
                                                    [ALL_GATHER] = BY_EXCHANGE_ALL_GATHER,
                                                    [ALL_TO_ALL] = BY_EXCHANGE_ALL_TO_ALL,
                                                    [SEND] = BY_EXCHANGE_SHIFT};
    if (what != NATIVE && b->fitted_count < MOST_TIMES) {
        b->fitted[b->fitted_count++] = (by_exchange_time){exchanges[what], (double)bytes, seconds};
    }
}

static void print_size(bench *b, const by_comm *comm, size_t bytes, int repeats, bool first)
{
    double medians[MEASURES];
    char text[32];
    for (int what = 0; what < MEASURES; what++) {
        medians[what] = cli_median(b->times[what], (size_t)repeats);
        if (is_measured(b, comm, what)) {
            keep_time(b, what, bytes, medians[what]);
        }
    }
    if (b->json) {
        printf("%s{\"bytes\":%zu", first ? "" : ",", bytes);
        for (int what = 0; what < MEASURES; what++) {
            if (is_measured(b, comm, what)) {
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
        if (is_measured(b, comm, what)) {
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
    printf("%-10s", "bytes");
    for (int what = 0; what < MEASURES; what++) {
        if (is_measured(b, comm, what)) {
            printf("  %-24s", measure_heads[what]);
        }
    }
    printf(b->native ? "  MPI/ours\n" : "\n");
}

/* ---- the cluster file ---- */

/* Sets the level of the ranks that were measured: those of a host, or of as many hosts. */
static by_status set_level(by_cluster *c, const by_comm *comm, const bench *b, double *difference,
                           by_error *error)
{
    int ranks = by_comm_size(comm);
    int near = 0;
    for (int r = 0; r < ranks; r++) {
        near += by_comm_is_near(comm, r);
    }
    if (near > 1 && near < ranks) {
        return by_error_set(error, BY_EARG,
                            "--out: %d ranks, %d of them on this host: measure a host alone, "
                            "then one rank on each host",
                            ranks, near);
    }
    int at = near == 1 && c->level_count > 1 ? 1 : near == 1 ? c->level_count : 0;
    if (at >= BY_CLUSTER_LEVELS) {
        return by_error_set(error, BY_EARG, "--out: %s has %d levels already", b->cluster, at);
    }
    by_cluster_level *level = &c->levels[at];
    if (at >= c->level_count) {
        *level = (by_cluster_level){.name = "network"};
        c->level_count = at + 1;
    }
    return by_cluster_fit_level(level, difference, b->fitted, b->fitted_count, ranks, error);
}

/* Adds the level to a file, which is made from this machine's figures if there is none. */
static by_status write_level(const bench *b, const by_comm *comm, by_error *error)
{
    by_cluster c;
    by_machine machine;
    double difference;
    by_status status = BY_OK;
    if (access(b->cluster, F_OK) == 0) {
        status = by_cluster_read(&c, b->cluster, error);
    } else {
        status = by_machine_load(&machine, "cpu", -1, 0, error);
        if (status == BY_OK) {
            by_cluster_of_machine(&c, &machine, by_comm_size(comm));
        }
    }
    if (status == BY_OK) {
        status = set_level(&c, comm, b, &difference, error);
    }
    if (status == BY_OK) {
        status = cli_write_cluster(&c, b->cluster, error);
    }
    if (status == BY_OK && !b->json) {
        printf("fitted     these times differ from the plan's formulas by %.0f %% (root mean "
               "square)\n",
               100.0 * difference);
    }
    return status;
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
            print_size(b, comm, bytes, repeats, bytes == FIRST_BYTES);
            (void)fflush(stdout);
        }
    }
    if (speaks && b->json) {
        printf("]}\n");
    }
    return speaks && b->cluster != NULL ? write_level(b, comm, error) : BY_OK;
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
        /* Slices of uneven size: all-to-all may receive one element more from each rank. */
        b->out = malloc(b->most + (size_t)by_comm_size(comm) * sizeof *b->out);
        b->counts = calloc((size_t)by_comm_size(comm), sizeof *b->counts);
        b->received = calloc((size_t)by_comm_size(comm), sizeof *b->received);
    }
    if (b == NULL || b->data == NULL || b->out == NULL || b->counts == NULL ||
        b->received == NULL) {
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
        free(b->received);
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
    const char *cluster = NULL;
    bool json = false;
    const cli_flag flags[] = {
        {"ranks", CLI_INTEGER_IN(1, 1024), &ranks, "N",
         "run this many ranks as threads of this process (default: the ranks of mpirun)"},
        {"largest", CLI_INTEGER_IN(1, MAX_MIB), &most, "MIB",
         "largest message in MiB (default 256)"},
        {"out", CLI_STRING, &cluster, "FILE",
         "set the level of a cluster file that these ranks make, for banyan plan"},
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
    bench settings = {.most = (size_t)most << 20, .json = json, .cluster = cluster};
    if (cluster != NULL && ranks == 1) {
        return cli_misuse(&cli_bench_comm, "--out: one rank exchanges nothing; give --ranks 2");
    }
    by_status status = ranks > 0
                           ? by_comm_run_threads((int)ranks, NULL, run_rank, &settings, &error)
                           : run_world(&settings, &error);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_bench_comm, &error);
}

const cli_command cli_bench_comm = {
    .name = "bench comm",
    .summary = "time collectives between ranks, and MPI's own all-reduce",
    .usage = "[mpirun -n N] banyan bench comm [--ranks N] [--largest MIB] [--out FILE] [--json]",
    .text =
        "Times all-reduce, its halves reduce-scatter and all-gather, all-to-all, and messages\n"
        "around a ring of the ranks, on f32 data from 4 KiB up.\n"
        "\n"
        "examples:\n"
        "  mpirun -n 2 banyan bench comm\n"
        "  banyan bench comm --ranks 4 --json\n"
        "  banyan bench comm --ranks 2 --out ours.yaml\n"
        "\n"
        "Figures are medians of rank 0; GB/s is the size of the whole data divided by the time.\n"
        "Under mpirun, MPI_Allreduce is timed too: MPI/ours above 1 means that banyan's\n"
        "all-reduce is faster.\n"
        "\n"
        "With --out, latency and bandwidth are fitted to the times, and a cluster file gets\n"
        "them (banyan plan --cluster): ranks of one host set its first level, one rank on each\n"
        "host the second. banyan bench machine --out makes such a file.",
    .run = run,
};
