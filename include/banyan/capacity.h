/* Capacity: how many copies of a model serve a load in time, and what that costs.
 *
 * The simulation is one of discrete events. Each replica is an engine without a model
 * (by_engine_open_dry): requests, steps, pages, prefix cache and preemption are decided by the code
 * that decides them when a model is served. Only the time of a step is not run but computed, from a
 * curve that was measured on the machine:
 *
 *   seconds = base(program) + decode_key * decode_keys + prompt_key * prompt_keys
 *
 * A program is compiled for a number of rows and is as slow with fewer; keys are what attention
 * reads (by_engine_last_work). Each step is multiplied by a ratio drawn from those of the measured
 * steps to this formula, so that tails are those of the machine. Draws are counter-based: a
 * simulation is a function of its arguments.
 *
 * Sources: the split into products and attention is that of Vidur (Agrawal et al. 2024); waiting
 * times without batches are those of M/D/1 (Pollaczek, Khinchine), which the tests compare. */
#ifndef BANYAN_CAPACITY_H
#define BANYAN_CAPACITY_H

#include "banyan/config.h"
#include "banyan/engine.h"
#include "banyan/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what steps take ---- */

#define BY_CURVE_PROGRAMS 72
#define BY_CURVE_RATIOS   32
#define BY_CURVE_NAME     128

/* A program of an engine: steps of at most so many rows, so many of them with logits. */
typedef struct by_curve_program {
    int64_t rows;
    int64_t wanted;
    double seconds; /* of a step that attends to nothing */
} by_curve_program;

/* An engine's limits, and the time of its steps. */
typedef struct by_engine_curve {
    int64_t context; /* as of by_engine_options */
    int64_t sessions;
    int64_t rows;
    int64_t pages;
    by_curve_program programs[BY_CURVE_PROGRAMS]; /* in the order of the engine's */
    int program_count;
    double decode_key;              /* seconds for a key that a decoding row reads, in all layers */
    double prompt_key;              /* likewise for a row of a prompt */
    double ratios[BY_CURVE_RATIOS]; /* ascending: measured over computed seconds, the quantiles
                                       (i + 0.5) / ratio_count */
    int ratio_count;                /* 0: steps take what is computed */
    double open_seconds;            /* that opening the engine took: compilation and weights */
    size_t steps;                   /* that were measured */
    double error;                   /* median of |measured / computed - 1| */
    char name[BY_CURVE_NAME];       /* of the machine */
} by_engine_curve;

/* Opens an engine, without prefix cache, and measures its steps: sequences that decode behind short
 * and long texts, chunks of prompts, and both together; then fits the formula above to them, by
 * medians and least absolute errors, so that steps that something disturbed count little. Takes
 * `rounds` times as long as each kind of step needs a few times (0: 1). Errors are those of
 * by_engine_open. */
BY_API by_status by_engine_curve_measure(by_engine_curve *out, const by_config *config,
                                         const by_weights *weights,
                                         const by_engine_options *options, int rounds,
                                         by_error *error);
/* The seconds of a step by the formula, without a ratio. */
BY_API double by_engine_curve_seconds(const by_engine_curve *curve, const by_engine_work *work);
/* Writes a curve as JSON, and reads it. Returns BY_EFORMAT with the member that is missing or out
 * of range. */
BY_API by_status by_engine_curve_write(const by_engine_curve *curve, const char *path,
                                       by_error *error);
BY_API by_status by_engine_curve_read(by_engine_curve *out, const char *path, by_error *error);

/* ---- loads ---- */

/* A request: when it arrives, in seconds, and its tokens. */
typedef struct by_load_request {
    double seconds;
    int64_t prompt;
    int64_t tokens; /* to generate, from 1 on */
} by_load_request;

/* Reads a load from a table with the columns seconds, prompt_tokens and generated_tokens. Free
 * *requests with free(). Returns BY_EARG if a column is absent; BY_EFORMAT, with the row, if
 * seconds descend, or tokens are not whole numbers from 1 on. */
BY_API by_status by_load_read(by_load_request **requests, size_t *count, const by_table *table,
                              by_error *error);
/* Requests of one length that arrive at random, `rate` a second (a Poisson process): the i-th gap
 * is -log(u_i) / rate with u_i drawn for (seed, i). requests: [count]. */
BY_API void by_load_poisson(by_load_request *requests, size_t count, double rate, int64_t prompt,
                            int64_t tokens, uint64_t seed);

/* ---- simulation ---- */

typedef struct by_serving_options {
    int replicas; /* always on; 0: 1 */
    uint64_t seed;
    double overhead; /* seconds from the arrival of a request to its submission, and of its tokens
                        back: what a server adds */
    /* Serverless instead: a replica starts when all have as many requests as `sessions`, and ends
     * when it had none for `keep_alive` seconds. `replicas` is the most of them. */
    bool serverless;
    double boot; /* seconds of a start */
    double keep_alive;
    bool free_boot; /* a start is not billed */
    bool free_idle; /* nor is time without a request */
} by_serving_options;

/* When a request got its tokens, in seconds from the load's beginning. */
typedef struct by_served_request {
    double first;
    double last;
} by_served_request;

/* What became of a load. Times of requests are [median, 95th percentile], in seconds. */
typedef struct by_serving_figures {
    size_t requests;
    double first_token[2]; /* from the arrival of a request */
    double token[2];       /* between its tokens: (last - first) / (tokens - 1); requests of one
                              token have none */
    double span;           /* from the first arrival to the last token */
    uint64_t prompt_tokens;
    uint64_t tokens; /* generated */
    uint64_t steps;
    uint64_t preemptions;
    double stepping; /* replica seconds of steps */
    double billed;   /* replica seconds that are paid: replicas * span, or serverless's */
    int most;        /* replicas at a time */
    size_t starts;   /* of serverless replicas */
} by_serving_figures;

/* Simulates. A request goes to the replica with the fewest that are not finished, the first of
 * these, and is submitted before that one's next step; a replica takes what its engine has room
 * for, in order of arrival. served: receives the times of each request, [count]; or NULL. Returns
 * BY_EARG with the request that an engine of the curve would refuse. */
BY_API by_status by_serving_simulate(by_serving_figures *out, by_served_request *served,
                                     const by_engine_curve *curve, const by_load_request *requests,
                                     size_t count, const by_serving_options *options,
                                     by_error *error);

/* What a service promises; INFINITY: nothing. In seconds, [median, 95th percentile]. */
typedef struct by_serving_targets {
    double first_token[2];
    double token[2];
} by_serving_targets;

/* Whether figures are within the targets. */
BY_API bool by_serving_meets(const by_serving_figures *figures, const by_serving_targets *targets);
/* Finds the least number of replicas, at most options->replicas, that meets the targets, by
 * doubling and bisection: more replicas are taken never to be slower. *figures: those of the
 * number. If none meets them, *replicas is 0 and *figures those of the most, or of a number that is
 * not 2 % faster than half of it. */
BY_API by_status by_serving_replicas(int *replicas, by_serving_figures *figures,
                                     const by_engine_curve *curve, const by_load_request *requests,
                                     size_t count, const by_serving_options *options,
                                     const by_serving_targets *targets, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
