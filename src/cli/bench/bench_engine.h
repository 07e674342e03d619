/* bench engine: shared by its files. bench_engine_loop.c submits requests and runs steps,
 * bench_engine_background.c times a request during a long prompt, bench_engine_report.c computes
 * and prints the figures, bench_engine_sweep.c repeats the measurement for several numbers of
 * sessions and plots the results. */
#ifndef BY_CLI_BENCH_BENCH_ENGINE_H
#define BY_CLI_BENCH_BENCH_ENGINE_H

#include "banyan/capacity.h"
#include "banyan/engine.h"
#include "banyan/profile.h"
#include "bench/bench.h"

typedef struct cli_engine_request {
    cli_list overrides;
    const char *precision;
    const char *kv;        /* NULL: as precision */
    const char *speculate; /* NULL: no drafts */
    const char *load;      /* table of requests; NULL: all are alike */
    double speed;          /* how many times faster these come */
    double rate;           /* requests a second; 0: closed loop */
    double temperature;    /* 0: always the most probable token */
    int64_t sessions;
    int64_t requests;   /* -1: not given */
    int64_t prompt;     /* -1: not given */
    int64_t tokens;     /* -1: not given */
    int64_t shared;     /* common prefix of all prompts, in tokens */
    int64_t pattern;    /* period of the tokens of a prompt; 0: not periodic */
    int64_t background; /* tokens of a prompt that is processed at the same time; 0: none */
    int64_t rows;
    int64_t threads;
    const char *sweep;   /* numbers of sessions, "1,4,16"; NULL: one measurement */
    const char *picture; /* file for a plot of the sweep; may be NULL */
    bool profile;
    bool json;
} cli_engine_request;

/* One request of the measurement. Times are seconds of by_clock. */
typedef struct cli_engine_sample {
    uint64_t session; /* 0: not submitted */
    double arrived;
    double first;
    double last;
    int64_t tokens;
    int64_t steps; /* number of steps to the first token, if during a long prompt */
} cli_engine_sample;

typedef struct cli_engine_step {
    double seconds;
    double flops;
    double bytes;
    int64_t rows;
    int64_t generated;
    int64_t first; /* those of them that are the first token of a request */
} cli_engine_step;

typedef struct cli_engine_bench {
    const cli_engine_request *r;
    by_engine *engine;
    cli_draft drafts;
    cli_engine_sample *samples;
    by_load_request *load; /* [requests], of a table; NULL: all are alike */
    int32_t *prompt;
    int64_t vocab;
    int64_t submitted;
    int64_t done;
    double began;
    double seconds;
    double processor_seconds; /* of all threads */
    cli_engine_step *steps;
    size_t step_count;
    size_t step_capacity;
    by_machine machine;
    by_dtype dtype;
    const char *precision; /* of the weights */
    by_profile *profile;   /* NULL: not requested */
} cli_engine_bench;

/* Submits the next request with a prompt of `tokens` tokens. BY_ESTATE: the engine has no room at
 * present. */
by_status cli_engine_submit(cli_engine_bench *b, uint64_t *session, int64_t prompt, int64_t tokens,
                            by_error *error);
/* Runs one step of the engine and records it with its results. */
by_status cli_engine_step_once(cli_engine_bench *b, by_error *error);

/* Submits each request when half of a prompt of r->beside tokens is processed, and runs it to its
 * end. */
by_status cli_engine_run_background(cli_engine_bench *b, by_error *error);

/* Tokens a second in steps of one kind, and the upper bound given by the machine's products and
 * memory for the work of these steps (the lower of both). 0: there was no such step. */
typedef struct cli_engine_rate {
    double tokens_per_s;
    double limit;
} cli_engine_rate;

typedef struct cli_engine_rates {
    cli_engine_rate prompts; /* steps that only processed prompts */
    cli_engine_rate decode;  /* steps in which all sequences decoded */
    double ttft;             /* median seconds to the first token */
} cli_engine_rates;

/* Prints the figures of a measurement. rates: receives some of them for a caller that prints a
 * table, so that only JSON is printed here; or NULL. */
by_status cli_engine_report(cli_engine_bench *b, cli_engine_rates *rates, by_error *error);

/* Does the whole measurement: opens the engine, runs requests, reports. */
by_status cli_engine_measure(const cli_engine_request *r, const char *path, cli_engine_rates *rates,
                             by_error *error);
/* Measures each number of sessions in r->sweep with as many requests as sessions. Prints a table
 * and, if r->picture is set, plots it. */
by_status cli_engine_sweep(const cli_engine_request *r, const char *path, by_error *error);

#endif
