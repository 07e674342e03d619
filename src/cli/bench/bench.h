/* bench: the measurements of `banyan bench`, one file each, dispatched by bench.c, and code that
 * they share with `banyan profile` (bench_common.c). */
#ifndef BY_CLI_BENCH_BENCH_H
#define BY_CLI_BENCH_BENCH_H

#include "banyan/cluster.h"
#include "banyan/comm.h"
#include "banyan/profile.h"
#include "banyan/train.h"
#include "base/cli.h"
#include "base/measured_model.h"

/* The measurements; each one's command (usage, text, run) is that of `banyan bench NAME`. */
extern const cli_command cli_bench_machine, cli_bench_train, cli_bench_generate, cli_bench_pack,
    cli_bench_kernels, cli_bench_comm, cli_bench_scale, cli_bench_engine, cli_bench_serve,
    cli_bench_loader;

/* Maximum number of steps to time. */
#define CLI_STEPS CLI_INTEGER_IN(1, 10000)

/* Return which machine figures to measure for the product peak of inference in this precision with
 * `dtype`, and that peak. If both operands are bytes (w8a8), it is that of bytes. */
unsigned cli_peak_figures(const char *precision, by_dtype dtype);
double cli_peak(const by_machine *machine, const char *precision, by_dtype dtype);

/* Parses ascending numbers from 1 to `largest`, such as "1,2,4", at most `most` of them, into
 * out[*count]. BY_EARG names the flag. */
by_status cli_parse_counts(int *out, size_t *count, size_t most, const char *flag, const char *text,
                           int largest, by_error *error);
/* Returns the median of `count` values; sorts them. */
double cli_median(double *values, size_t count);
/* Returns the milliseconds since this process was started. */
double cli_process_age_ms(void);
/* Sets the sizes of the model that normally come from the config's data, without reading the
 * data. */
by_status cli_assume_sizes(by_config *config, by_error *error);
/* Fills in pseudo-random tokens. Speed does not depend on their values, and all runs use the same
 * ones. */
void cli_random_tokens(int32_t *tokens, size_t count, int64_t vocab);

/* Timing of training steps on random data (timed_steps.c). */
typedef struct cli_timing {
    double examples_per_s; /* over all ranks */
    double step_ms;        /* median */
    double spread_ms;      /* slowest minus fastest */
    double exposed_ms;     /* time in a step that this rank waited for exchanges */
    double start_ms;       /* from the start of the process to the end of the first step */
    double peak_gflops;    /* of matrix products, over all ranks */
    double loss;
    uint64_t resident; /* peak of this process before the machine was measured */
    uint64_t planned;
    /* Of a device with memory of its own: what the plan needs there, and what was taken of it; else
     * 0. */
    uint64_t device_planned;
    uint64_t device_measured;
    uint64_t on_disk; /* with config.offload */
    double disk_ms;   /* time in a step that this rank waited for the disk */
    by_model_size size;
    const char *examples; /* the task's word for examples */
} cli_timing;

/* Times `steps` steps of a config whose sizes are known, after one untimed step. Collective over
 * the ranks of `comm` (NULL: a single rank). */
by_status cli_time_training(cli_timing *out, by_config *config, int64_t steps, by_comm *comm,
                            by_error *error);

/* Whole training steps recorded by a profile (profiled_steps.c). */
typedef struct cli_profiled {
    by_trainer *trainer;
    by_profile *profile;
    by_profile_ranks *ranks; /* NULL: a single rank */
    const char *backend;     /* of the communicator */
    by_machine machine;      /* products and memory, on rank 0; zero elsewhere */
    int64_t steps;           /* number of recorded steps */
    int64_t examples;        /* in these steps, as the task counts them */
    double seconds;          /* of all of them, including waits for data */
    double wait_seconds;
    uint64_t waits; /* batches that were not ready when requested */
    bool from_data; /* false: random data */
} cli_profiled;

/* Takes one unrecorded step, then `steps` recorded ones, from random initial weights. use_data:
 * batches come from the config's data, if it names any. Completes the config. Collective over the
 * ranks of `comm` (NULL: a single rank). */
by_status cli_profile_steps(cli_profiled *out, by_config *config, int64_t steps, bool use_data,
                            by_comm *comm, by_error *error);
void cli_profiled_close(cli_profiled *profiled);

/* Prints the ranks of a profile on rank 0 (profile_ranks.c), as a table or as a member of a JSON
 * object. */
void cli_print_ranks(const cli_profiled *run, const by_config *config);
void cli_print_ranks_json(const cli_profiled *run, const by_config *config);

/* ---- bench_common.c ---- */

/* Writes a cluster file (banyan/cluster.h), and says so. */
by_status cli_write_cluster(const by_cluster *cluster, const char *path, by_error *error);

#endif
