/* bench: the measurements of `banyan bench`, one file each, dispatched by bench.c; and what they
 * and `banyan profile` share. */
#ifndef BY_CLI_BENCH_H
#define BY_CLI_BENCH_H

#include "banyan/comm.h"
#include "banyan/draft.h"
#include "banyan/profile.h"
#include "banyan/tokenizer.h"
#include "banyan/train.h"
#include "cli.h"

/* One measurement: its command (usage, text, run) is that of `banyan bench NAME`. */
extern const cli_command cli_bench_machine, cli_bench_train, cli_bench_generate, cli_bench_pack,
    cli_bench_kernels, cli_bench_comm, cli_bench_scale, cli_bench_engine, cli_bench_serve;

/* Vocabulary of a config that does not say: that of tinyshakespeare's characters. */
#define CLI_DEFAULT_VOCAB 65

/* Most steps that a measurement times. */
#define CLI_MAX_STEPS 10000

/* A model to measure with: of a run or model directory, or a config with initial weights. */
typedef struct cli_measured_model {
    by_config *config;
    by_pretrained *pretrained;
    const by_config *used;     /* of one of them */
    const by_weights *weights; /* NULL: initial ones */
} cli_measured_model;
/* Closed with cli_close_measured, also when this fails (measured_model.c). */
by_status cli_open_measured(cli_measured_model *out, const char *path, const cli_list *overrides,
                            by_error *error);
void cli_close_measured(cli_measured_model *model);

/* What --speculate names: "ngram", or a model that proposes tokens. */
typedef struct cli_draft {
    by_draft_source source;
    cli_measured_model model;
} cli_draft;

#define CLI_SPECULATE_HELP                                                                         \
    "speculative decoding, with equal text in fewer steps: ngram proposes what followed the same " \
    "tokens earlier; MODEL is a small model with the same vocabulary"
#define CLI_KV_HELP "KV cache with 8-bit integers (default: in the precision of the model)"

/* tokenizer: the model's, which that of the drafts must equal; NULL: not compared. Closed with
 * cli_draft_close, also when this fails. */
by_status cli_draft_open(cli_draft *out, const char *name, const by_tokenizer *tokenizer,
                         const char *precision, int threads, by_error *error);
void cli_draft_close(cli_draft *draft);

/* What to measure for the peak of products in a precision of inference that computes in `dtype`,
 * and the peak: that of bytes where both operands are bytes (w8a8). */
unsigned cli_peak_figures(const char *precision, by_dtype dtype);
double cli_peak(const by_machine *machine, const char *precision, by_dtype dtype);

/* Reads ascending numbers from 1 to `largest` such as "1,2,4", at most `most`, into out[*count].
 * BY_EARG names the flag. */
by_status cli_parse_counts(int *out, size_t *count, size_t most, const char *flag, const char *text,
                           int largest, by_error *error);
/* Median of `count` values, which it sorts. */
double cli_median(double *values, size_t count);
/* Milliseconds since this process was started. */
double cli_process_age_ms(void);
/* Fills what the data of a config would say about the model's sizes, without looking at it. */
by_status cli_assume_sizes(by_config *config, by_error *error);
/* Pseudo-random tokens: speed does not depend on what they say, and two runs time the same work. */
void cli_random_tokens(int32_t *tokens, size_t count, int64_t vocab);

/* Training steps on random data (timed_steps.c). */
typedef struct cli_timing {
    double examples_per_s; /* of all ranks */
    double step_ms;        /* median */
    double spread_ms;      /* slowest minus fastest */
    double exposed_ms;     /* of a step, in exchanges for which this rank stood still */
    double start_ms;       /* from the process's start to the end of the first step */
    double peak_gflops;    /* of matrix products, of all ranks */
    double loss;
    uint64_t resident; /* peak of this process, before the machine's was measured */
    uint64_t planned;
    uint64_t on_disk; /* with config.offload */
    double disk_ms;   /* of a step, for which this rank stood still for the disk */
    by_model_size size;
    const char *examples; /* the task's word for them */
} cli_timing;

/* Times `steps` steps of a config whose sizes are known, after one that is not timed. Collective on
 * the ranks of `comm` (may be NULL: this one alone). */
by_status cli_time_training(cli_timing *out, by_config *config, int64_t steps, by_comm *comm,
                            by_error *error);

/* Whole training steps under a profile (profiled_steps.c). */
typedef struct cli_profiled {
    by_trainer *trainer;
    by_profile *profile;
    by_profile_ranks *ranks; /* NULL: one rank alone */
    const char *backend;     /* of the ranks' communicator */
    by_machine machine;      /* products and memory; of rank 0, else zero */
    int64_t steps;           /* that were recorded */
    int64_t examples;        /* of them, as the task counts */
    double seconds;          /* of all of them, with the waits for data */
    double wait_seconds;
    uint64_t waits; /* batches that were not ready when asked for */
    bool from_data; /* false: random */
} cli_profiled;

/* Takes one step that is not recorded, then `steps`. With `use_data` the batches come from the data
 * that the config names, if it names any. Completes the config. Initial weights. Collective on the
 * ranks of `comm` (NULL: this one alone). */
by_status cli_profile_steps(cli_profiled *out, by_config *config, int64_t steps, bool use_data,
                            by_comm *comm, by_error *error);
void cli_profiled_close(cli_profiled *profiled);

/* The ranks of a profile, printed on rank 0 (profile_ranks.c): as a table, or as a member of a JSON
 * object. */
void cli_print_ranks(const cli_profiled *run, const by_config *config);
void cli_print_ranks_json(const cli_profiled *run, const by_config *config);

#endif
