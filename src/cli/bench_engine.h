/* bench engine: what its files share. bench_engine.c submits requests and takes steps,
 * bench_engine_beside.c times one request beside a long prompt, bench_engine_report.c makes figures
 * of it and prints them, bench_engine_sweep.c repeats it for several numbers of sessions and draws
 * them. */
#ifndef BY_CLI_BENCH_ENGINE_H
#define BY_CLI_BENCH_ENGINE_H

#include "banyan/engine.h"
#include "banyan/profile.h"
#include "bench.h"

typedef struct cli_engine_request {
    cli_list overrides;
    const char *precision;
    const char *kv;        /* NULL: as precision */
    const char *speculate; /* NULL: no drafts */
    double rate;           /* requests a second; 0: closed loop */
    double temperature;    /* 0: the most probable token */
    int64_t sessions;
    int64_t requests; /* -1: not given */
    int64_t prompt;   /* -1: not given */
    int64_t tokens;   /* -1: not given */
    int64_t shared;   /* tokens that all prompts begin with */
    int64_t pattern;  /* tokens after which a prompt repeats itself; 0: never */
    int64_t beside;   /* tokens of a prompt that is taken in at the same time; 0: none is */
    int64_t rows;
    int64_t threads;
    const char *sweep;   /* numbers of sessions, "1,4,16"; NULL: one measurement */
    const char *picture; /* of the sweep, a file; may be NULL */
    bool profile;
    bool json;
} cli_engine_request;

/* One request of the measurement; times are seconds of by_clock. */
typedef struct cli_engine_sample {
    uint64_t session; /* 0: not submitted */
    double arrived;
    double first;
    double last;
    int64_t tokens;
    int64_t steps; /* to the first token; beside a long prompt */
} cli_engine_sample;

typedef struct cli_engine_step {
    double seconds;
    double flops;
    double bytes;
    int64_t rows;
    int64_t generated;
    int64_t first; /* of them, first tokens of a request */
} cli_engine_step;

typedef struct cli_engine_bench {
    const cli_engine_request *r;
    by_engine *engine;
    cli_draft drafts;
    cli_engine_sample *samples;
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
    const char *precision; /* of weights */
    by_profile *profile;   /* NULL: not asked for */
} cli_engine_bench;

/* The next request, submitted; its prompt has `tokens` tokens. BY_ESTATE: the engine has no room
 * now. */
by_status cli_engine_submit(cli_engine_bench *b, uint64_t *session, int64_t prompt, int64_t tokens,
                            by_error *error);
/* One step of the engine, recorded with what it brought. */
by_status cli_engine_step_once(cli_engine_bench *b, by_error *error);

/* Each request is submitted when half of a prompt of r->beside tokens is taken in, and runs to its
 * end beside it. */
by_status cli_engine_run_beside(cli_engine_bench *b, by_error *error);

/* Tokens a second of steps of one kind, and the most that the machine's products and memory allow
 * for the work of these steps: the lesser of both limits. 0: there was no such step. */
typedef struct cli_engine_rate {
    double tokens_per_s;
    double limit;
} cli_engine_rate;

typedef struct cli_engine_rates {
    cli_engine_rate prompts; /* steps that took in prompts alone */
    cli_engine_rate decode;  /* steps in which all sequences decoded */
    double ttft;             /* seconds to the first token, median */
} cli_engine_rates;

/* Prints figures of what was measured. rates: where some of them are stored, for a caller that
 * makes a table of them, so that only JSON is printed here; or NULL. */
by_status cli_engine_report(cli_engine_bench *b, cli_engine_rates *rates, by_error *error);

/* The whole measurement of one request: opens the engine, runs, reports. */
by_status cli_engine_measure(const cli_engine_request *r, const char *path, cli_engine_rates *rates,
                             by_error *error);
/* Measures with each number of sessions of r->sweep, as many requests as sessions; prints a table
 * and, with r->picture, draws it. */
by_status cli_engine_sweep(const cli_engine_request *r, const char *path, by_error *error);

#endif
