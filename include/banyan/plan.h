/* Plans before a run: the loss that a budget buys, by a scaling law fitted to earlier runs; and
 * what the run costs, with the checkpoints and failures that it meets.
 *
 * The scaling law is that of Hoffmann et al. 2022 (arXiv 2203.15556, approach 3):
 *
 *     L(N, D) = E + A N^-alpha + B D^-beta
 *
 * with N parameters, D training tokens, and E, A, B >= 0: E is what no model of this kind predicts,
 * the other terms are what a finite model and finite data lose. It is fitted to the logarithm of
 * the losses, by the sum of Huber's function with threshold delta over the runs.
 *
 * The fit is by variable projection (Golub and Pereyra 1973): E, A and B are found for given
 * exponents in an inner problem, so that only two numbers are searched. The problem of five numbers
 * has a condition number near 1e11, that of two one near 10 (arXiv 2603.22339), and searches over
 * five stop early: Besiroglu et al. 2024 (arXiv 2404.10102) show it for Hoffmann's own fit.
 *
 * All functions are pure: the same runs and seed give the same bits. Losses are in nats or any
 * other unit; a law has that of its runs.
 */
#ifndef BANYAN_PLAN_H
#define BANYAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/config.h"
#include "banyan/failures.h"
#include "banyan/status.h"
#include "banyan/table.h"
#include "banyan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scaling laws: the runs ---- */

/* One finished run. */
typedef struct by_law_run {
    double parameters; /* N, above 0 */
    double tokens;     /* D, above 0: all tokens that it was trained on */
    double loss;       /* held out, at its end; above 0 */
    double flops;      /* of its training; 0: 6 N D */
} by_law_run;

/* The columns of a table of runs. NULL: the name in the comment. */
typedef struct by_law_columns {
    const char *parameters; /* "parameters" */
    const char *tokens;     /* "tokens" */
    const char *loss;       /* "loss" */
    const char *flops;      /* "flops", which may be absent */
    const char *where;      /* only rows whose column of this name ... */
    const char *is;         /* ... has this value; both or neither */
} by_law_columns;

/* Reads runs from a table, one a row; free *runs with free(). `columns` may be NULL. Returns
 * BY_EARG if a column is absent, or no row has the value of `where`; BY_EFORMAT, with the row, if a
 * cell is missing or not above 0. */
BY_API by_status by_law_read_runs(by_law_run **runs, size_t *count, const by_table *table,
                                  const by_law_columns *columns, by_error *error);

/* ---- scaling laws: the fit ---- */

typedef struct by_law {
    double e;
    double a;
    double b;
    double alpha;
    double beta;
} by_law;

/* The options of a fit. Zeros: the defaults. */
typedef struct by_law_options {
    double delta; /* threshold of Huber's function, of log loss; 0: 1e-3, as Hoffmann. INFINITY:
                     squares */
} by_law_options;

/* A fitted law. */
typedef struct by_law_fit {
    by_law law;
    double objective; /* sum over runs of Huber(log of the law's loss / loss) */
    double spread;    /* root mean square of the logarithms, over count - 5 */
    size_t count;     /* runs */
    bool at_edge;     /* E, A or B is 0, or an exponent at the end of its range: what the runs say
                         of it is one-sided */
} by_law_fit;

/* Exponents are searched from, and up to. */
#define BY_LAW_LEAST 0.01
#define BY_LAW_MOST  4.0

/* Fits the law. It takes at least 6 runs with 3 different N and 3 different D (values within 1 %
 * are the same). Deterministic: a grid of exponents, then BFGS from its best points. Returns
 * BY_EARG for fewer runs, or for a value that is not positive and finite. */
BY_API by_status by_law_fit_runs(by_law_fit *fit, const by_law_run *runs, size_t count,
                                 const by_law_options *options, by_error *error);
/* The objective of any law, as in by_law_fit. */
BY_API double by_law_objective(const by_law *law, const by_law_run *runs, size_t count,
                               const by_law_options *options);
/* L(N, D). */
BY_API double by_law_loss(const by_law *law, double parameters, double tokens);

/* Fits of resampled runs: law i of draws[draw_count] is fitted to the losses of `fit` times
 * exp(+-r), where r are the residuals of the runs from the law of all others, and signs are drawn
 * with `seed` (wild bootstrap, Liu 1988: it keeps the spread of each run, and holds for absolute
 * deviations too, Feng, He and Hu 2011). */
BY_API by_status by_law_draw(by_law *draws, size_t draw_count, const by_law_fit *fit,
                             const by_law_run *runs, const by_law_options *options, uint64_t seed,
                             by_error *error);
/* Law i of without[count] is fitted to all runs but run i. */
BY_API by_status by_law_leave_out(by_law *without, const by_law_fit *fit, const by_law_run *runs,
                                  const by_law_options *options, by_error *error);

typedef struct by_law_interval {
    double low;
    double high;
} by_law_interval;

/* The interval that holds a share `level` (0.8) of `values`, those of a quantity by each law of
 * by_law_draw, where the fit has `estimate`: its ends are moved as the estimate is from the median
 * of the draws (bias-corrected percentiles, Efron 1981). Sorts `values`; those that are NaN are
 * left out. */
BY_API by_law_interval by_law_between(double *values, size_t count, double estimate, double level);

/* ---- scaling laws: what a budget buys ---- */

/* FLOPs of a training token: factor * N^power. A zeroed one stands for 6 N. */
typedef struct by_law_flops {
    double factor;
    double power;
} by_law_flops;

/* Fits FLOPs per token to runs, by least squares of logarithms; 6 N where none has its own, or all
 * have one size. Below a billion parameters the head and attention make it far from 6 N. */
BY_API by_law_flops by_law_flops_of(const by_law_run *runs, size_t count);

/* The model and data of the least loss for a budget. */
typedef struct by_law_optimum {
    double parameters;
    double tokens;
    double loss;
} by_law_optimum;

/* Minimises L(N, D) with D * factor N^power = flops, in closed form. `cost` may be NULL: 6 N. NaN
 * if A, B or an exponent is 0, which has no optimum. */
BY_API by_law_optimum by_law_best(const by_law *law, const by_law_flops *cost, double flops);
/* The tokens that a model of N parameters takes to a loss; INFINITY if it never gets there. */
BY_API double by_law_tokens(const by_law *law, double parameters, double loss);
/* The least FLOPs that reach a loss, and *best that do (may be NULL); INFINITY at E and below. */
BY_API double by_law_flops_to(by_law_optimum *best, const by_law *law, const by_law_flops *cost,
                              double loss);
/* The least FLOPs that reach a loss and then read or write `served` tokens, of which each takes a
 * third of the FLOPs of a training token (Sardana et al. 2023, arXiv 2401.00448), and *best that do
 * (may be NULL): a smaller model, trained for longer. INFINITY at E and below. */
BY_API double by_law_flops_served(by_law_optimum *best, const by_law *law, const by_law_flops *cost,
                                  double loss, double served);

/* R* of Muennighoff et al. 2023 (arXiv 2305.16264): what repeated tokens are worth at most, in
 * unique ones, and parameters beyond those that the unique tokens are best for. */
#define BY_LAW_REPEATS_WORTH 15.39
#define BY_LAW_EXCESS_WORTH  5.31
/* What an amount is worth of which only `unique` is new: unique (1 + worth (1 - exp(-r / worth))),
 * r = amount / unique - 1 (their equation 5); all of it up to `unique`. */
BY_API double by_law_effective(double amount, double unique, double worth);
/* by_law_loss of N parameters trained on D tokens of which only `unique` differ: with D by
 * by_law_effective, and of N what exceeds the size for which the unique ones are best. */
BY_API double by_law_loss_repeated(const by_law *law, const by_law_flops *cost, double parameters,
                                   double tokens, double unique);
/* by_law_best with that loss. */
BY_API by_law_optimum by_law_best_repeated(const by_law *law, const by_law_flops *cost,
                                           double flops, double unique);

/* Approach 2 of Hoffmann et al.: for each of some budgets, the best N by a parabola of the loss
 * over log N, and a line through these, N = factor C^power. It is biased even without noise (arXiv
 * 2603.22339: -8.5 % in the intercept of an asymmetric law), so it is for pictures, and beside the
 * fit. */
typedef struct by_law_isoflop {
    double factor;
    double power;
    size_t budgets; /* with a minimum inside the sizes that were trained; below 2: no line, and
                       factor and power are NaN */
} by_law_isoflop;

/* Budgets are those that the runs share (within 10 %), where at least three sizes have each; else
 * eight between the runs', at which the losses of runs of one size are interpolated over log C. */
BY_API by_status by_law_isoflop_runs(by_law_isoflop *out, const by_law_run *runs, size_t count,
                                     by_error *error);

/* ---- a ladder of runs ---- */

/* The loss over compute of models that grow with it: L(C) = e + a C^-gamma. */
typedef struct by_curve {
    double e;
    double a;
    double gamma;
} by_curve;

typedef struct by_curve_prediction {
    by_curve curve; /* fitted to the runs, by least squares of relative errors */
    double loss;    /* at the FLOPs asked for */
    double low;    /* where that of a run is, with probability `level`: the curve's draws and the */
    double high;   /* spread of a run itself */
    double spread; /* of runs around the curve, relative; 0.2 % at least, 1 % of three runs */
} by_curve_prediction;

/* A curve takes so many runs. */
#define BY_CURVE_RUNS 3
/* Predicts the loss at other FLOPs from runs (3 to 64, with flops). Intervals come from curves of
 * redrawn losses, normal around the fitted curve (parametric bootstrap), bias-corrected as in
 * by_law_between; deterministic for a seed. Returns BY_EARG for fewer runs, or a value that is not
 * positive and finite. */
BY_API by_status by_curve_predict(by_curve_prediction *out, const by_law_run *runs, size_t count,
                                  double flops, double level, uint64_t seed, by_error *error);
BY_API double by_curve_loss(const by_curve *curve, double flops);

#define BY_LADDER_RUNGS 16

/* A rung: a config's model with another number of heads, and its training. */
typedef struct by_rung {
    int64_t heads;
    int64_t width;
    int64_t steps;
    double parameters;
    double tokens;
    double flops; /* of all of its training, the graph's own */
} by_rung;

typedef struct by_ladder_options {
    double flops;  /* of all rungs together, above 0 */
    size_t rungs;  /* at most; 0: 6; from 4 on */
    double factor; /* least ratio between the FLOPs of two rungs; 0: 2 */
    double ratio;  /* tokens for each parameter; 0: 20 (Hoffmann et al. 2022) */
} by_ladder_options;

/* Designs rungs of growing compute for a resolved config with known sizes: its model with 1, 2, ...
 * heads of the same width, as many times its MLP, all its layers, and in proportion to its
 * parameters as many tokens, so that both grow together. The last rungs that the FLOPs allow, in
 * ascending order; *count is at least 4. Returns BY_EARG if the FLOPs do not suffice for four,
 * BY_ECONFIG if the config's heads do not divide its MLP or the model has none. */
BY_API by_status by_ladder_design(by_rung rungs[BY_LADDER_RUNGS], size_t *count,
                                  const by_config *config, const by_ladder_options *options,
                                  by_error *error);
/* Sets a copy of the config to a rung: sizes, steps; the base of muP stays that of the config. */
BY_API by_status by_ladder_config(by_config **out, const by_config *config, const by_rung *rung,
                                  by_error *error);

/* ---- the coordinate check ---- */

#define BY_COORDINATE_NAMES  66
#define BY_COORDINATE_WIDTHS 16

/* Zeros: the defaults. */
typedef struct by_coordinate_options {
    const int64_t *widths; /* [width_count], ascending, 2 to BY_COORDINATE_WIDTHS */
    size_t width_count;
    size_t steps; /* 0: 6 */
    size_t seeds; /* 0: 3 */
} by_coordinate_options;

/* Root mean squares of activations at several widths. */
typedef struct by_coordinates {
    int64_t widths[BY_COORDINATE_WIDTHS];
    size_t width_count;
    size_t steps;
    char names[BY_COORDINATE_NAMES][32]; /* "block.0", ..., "hidden", "logits' change" */
    size_t name_count;
    double *sizes; /* [name_count, steps + 1, width_count]: after so many steps */
    double slopes[BY_COORDINATE_NAMES]; /* of log size over log width, after the last step */
    double limit;                       /* a larger slope grows */
    bool grows;                         /* any does */
} by_coordinates;

/* Trains the model of a resolved config for a few steps at each width, with as many times its heads
 * and MLP, on one batch of random tokens with a constant learning rate, and measures how large the
 * outputs of blocks, the last hidden state and the change of the logits become (Yang et al. 2022,
 * appendix D.1). With model.parameterisation mup they do not grow with the width; with the standard
 * one the change of the logits does, in proportion to it. That is a check of the implementation,
 * and no proof that a learning rate transfers. Takes the memory of the widest model. Returns
 * BY_ECONFIG if the model has no logits of tokens, BY_EARG if its heads do not divide a width. */
BY_API by_status by_coordinates_measure(by_coordinates **out, const by_config *config,
                                        const by_coordinate_options *options, by_error *error);
BY_API void by_coordinates_close(by_coordinates **coordinates);

/* ---- the dial ---- */

/* What a run may take. 0: not limited; at least one of seconds, flops, bytes and layers is above
 * 0. */
typedef struct by_dial_budget {
    double seconds;  /* of its steps, evaluations and checkpoints */
    double flops;    /* of training, by_model_size's */
    uint64_t bytes;  /* of memory, by the plan of the training */
    int64_t layers;  /* the depth that is asked for */
    int64_t context; /* tokens of a sequence; 0: as the runs behind the laws had */
} by_dial_budget;

/* Text to train on. */
typedef struct by_dial_data {
    double tokens;          /* of all of it, once */
    double bytes_per_token; /* of what is held out */
    int64_t tokenizer;      /* entries that its byte-level BPE is asked for */
    int64_t vocab;          /* and those that it has */
    uint64_t held;          /* bytes of memory in training, ... */
    uint64_t opening;       /* ... and while it is opened */
} by_dial_data;

/* Measured steps of models of several sizes, in ascending order. */
#define BY_DIAL_TRIALS 4
typedef struct by_dial_machine {
    size_t count;
    double flops[BY_DIAL_TRIALS];   /* of a token */
    double seconds[BY_DIAL_TRIALS]; /* of a token */
    char precision[16];             /* in which they were measured; "": unknown */
    bool asked;                     /* for that precision, instead of the device's fastest */
} by_dial_machine;

/* A model and its training. */
typedef struct by_dial_choice {
    int64_t layers;
    int64_t width;
    int64_t heads;
    int64_t context;
    int64_t batch;       /* sequences a step */
    int64_t micro_batch; /* of them at a time; 0: as many as fit */
    int64_t steps;
    double lr;
    char precision[16]; /* as in by_dial_machine */
    bool asked;
    double parameters; /* the head is tied to the embedding */
    double blocks;     /* parameters without it */
    double flops_per_token;
    double tokens; /* trained on */
    double epochs;
    double seconds; /* of the steps */
    double bits;    /* predicted held-out bits per byte, ... */
    double low;     /* ... of which 80 % of runs are in this interval */
    double high;
    bool beyond;       /* the sizes are outside of those of the runs that the law is fitted to */
    uint64_t bytes;    /* of memory, the budget's; 0: not limited */
    uint64_t planned;  /* of these; 0: not planned */
    double slower;     /* seconds of a step over those with memory for all of it */
    const char *model; /* why it is this size */
    const char *limit; /* what ends the run: "time", "FLOPs"; the best length for a given "depth" or
                          the largest that "memory" allows; "repeats" of the text before that */
} by_dial_choice;

/* Seconds of a token of a model of so many FLOPs a token: between the measured ones and beyond them
 * by powers. */
BY_API double by_dial_seconds(const by_dial_machine *machine, double flops);
/* Seconds of the shortest training that is chosen: 20 steps of 4 sequences, of a model of so many
 * layers (0: of the smallest) and tokens of a sequence (0: as by_dial_budget.context). */
BY_API double by_dial_least_seconds(const by_dial_data *data, const by_dial_machine *machine,
                                    int64_t layers, int64_t context);
/* The same for a given length of training of a chosen model: sets what depends on choice->steps. */
BY_API void by_dial_extend(by_dial_choice *choice, const by_dial_data *data);
/* Measures the models of some depths on data that a config names, for `seconds` altogether, as far
 * as they fit into its memory.budget; seconds of a token are those without recomputing. The config
 * is one of by_dial_config; `options` has the rest of the run, as by_train_measure takes it. */
BY_API by_status by_dial_measure(by_dial_machine *out, const by_train_options *options,
                                 const by_dial_data *data, double seconds, by_error *error);
/* Describes files or directories of text before they are packed, by their bytes: how large a
 * tokenizer to train on them, and guesses of the rest. Returns BY_EIO if one cannot be read. */
BY_API by_status by_dial_guess_data(by_dial_data *out, const by_string_list *text, by_error *error);
/* Opens the data of options->config, which packs text on first use, and completes the description.
 */
BY_API by_status by_dial_open_data(by_dial_data *out, const by_train_options *options,
                                   by_error *error);
/* The config of a choice as YAML, with comments that say why: free it with free(). `lines` (may be
 * NULL) get the reasons alone, one a line, also to be freed. */
BY_API by_status by_dial_config(char **yaml, char **lines, const by_dial_choice *choice,
                                const by_dial_data *data, const char *name,
                                const by_string_list *text, by_error *error);

/* What the dial makes a config of. */
typedef struct by_dial_request {
    by_string_list text; /* files or directories; borrowed */
    const char *name;    /* of the run */
    by_dial_budget budget;
    double began; /* seconds of by_clock(): from when on budget.seconds counts */
    const char *const
        *overrides; /* [override_count] of the config, as by_config_parse takes them */
    size_t override_count;
    const by_train_options *options; /* of the run, without a config */
} by_dial_request;

/* Chooses the model of least predicted loss that the request's budget trains: of each depth, with
 * 32 times as many columns, the tokens that it sees in the time or FLOPs (with neither: as many as
 * the law has best for a model of its size, and a text at most 1 + R* times), and the loss of both
 * by a scaling law with the effective data of Muennighoff et al. 2023 (arXiv 2305.16264, equation
 * 5) in place of repeated tokens. Batch and learning rate are powers of the tokens. With bytes,
 * each candidate's config is planned as training plans it, with smaller micro-batches and
 * recomputed activations where it takes them. Constants and their origin: docs/dial.md. Returns
 * BY_EARG if nothing is limited, or the budget is less than a few steps of the smallest model;
 * BY_EMEMORY, with the least that is enough, if none fits into the bytes. */
BY_API by_status by_dial_choose(by_dial_choice *out, const by_dial_request *request,
                                const by_dial_data *data, const by_dial_machine *machine,
                                by_error *error);
/* Does all of the above: measures models of some depths on the text, chooses one, and measures that
 * one to fix its steps. Packs the text on first use. *yaml and *lines as by_dial_config makes them.
 * Errors are those of the functions above. */
BY_API by_status by_dial_turn(by_dial_choice *out, char **yaml, char **lines,
                              const by_dial_request *request, by_error *error);

/* ---- spot instances ---- */

/* From `seconds` on, `instances` are held. */
typedef struct by_spot_point {
    double seconds;
    double instances;
} by_spot_point;

/* Reads a trace from a table with the columns seconds and instances, whose last row ends it. Free
 * *points with free(). Returns BY_EARG if a column is absent; BY_EFORMAT, with the row, if seconds
 * do not ascend, instances are not whole numbers from 0 on, or there are fewer than two rows. */
BY_API by_status by_spot_read(by_spot_point **points, size_t *count, const by_table *table,
                              by_error *error);

typedef struct by_spot_options {
    by_failures job; /* `mean` is not used */
    double every;    /* seconds between two checkpoints; at least job.written */
    double least;    /* instances that the job takes to run; 0: 1 */
    double most;     /* instances that the job uses, and pays; 0: all */
} by_spot_options;

/* What became of a trace's time, in seconds of one instance. */
typedef struct by_spot_replay {
    double held;   /* that were paid */
    double useful; /* of steps that no failure undid */
    double undone; /* of steps that one did */
    double saving;
    double restarting;
    double idle; /* with too few instances to run */
    size_t losses;
    size_t gains;
    size_t saves;
    double goodput; /* useful / held; 0 if none is held */
} by_spot_replay;

/* Replays a trace: the data axis grows and shrinks with the instances, and a step's speed is
 * proportional to them. A loss of any instance restarts the job from its last checkpoint with the
 * others; a gain saves, and restarts with all; one during a restart begins it anew. */
BY_API by_spot_replay by_spot_run(const by_spot_point *points, size_t count,
                                  const by_spot_options *options);
/* The interval of most goodput on a trace, by replaying it with many; options->every is not used.
 * */
BY_API double by_spot_best_interval(const by_spot_point *points, size_t count,
                                    const by_spot_options *options);
/* Mean seconds between two losses of a trace while the job could run; INFINITY: there are none. */
BY_API double by_spot_mean(const by_spot_point *points, size_t count,
                           const by_spot_options *options);

/* ---- money and energy ---- */

#define BY_PRICE_NAME 64

/* What one device costs and draws, of a table. NAN: the table does not say, and what follows from
 * it is NAN, too. Money is in the unit of the table. */
typedef struct by_price {
    char device[BY_PRICE_NAME];
    double per_hour;         /* rented, column price_per_hour */
    double spot_per_hour;    /* rented as one that may be taken away */
    double purchase;         /* with its share of the host, column purchase_price */
    double upkeep_per_month; /* of one that is owned: room, repair; without power; else 0 */
    double watts;            /* while it computes, column watts, or rated: tdp_watts */
    double idle_watts;       /* 0 if the table does not say */
    double tflops;           /* peak, 1e12 operations a second */
} by_price;

/* Where it runs. */
typedef struct by_region {
    double grams_per_kwh; /* of CO2 equivalent, column grams_co2_per_kwh; NAN where missing */
    double pue;           /* energy of the site / energy of its computers; 1 where it is missing */
    double price_per_kwh; /* for owned devices; NAN where missing */
} by_region;

/* Finds the row of a table whose column `device` is this name, in any case of letters. Returns
 * BY_EARG, with the names that there are, if there is none; BY_EFORMAT if a number is below 0. */
BY_API by_status by_price_find(by_price *out, const by_table *table, const char *device,
                               by_error *error);
/* The same by the column `region`. */
BY_API by_status by_region_find(by_region *out, const by_table *table, const char *region,
                                by_error *error);
/* The same of a file: a table, or YAML (.yaml, .yml) with the lists `prices` and `regions`, whose
 * items have the columns of the tables as keys. A key that is not a number is refused with its
 * line (BY_ECONFIG); one that is missing is unknown. */
BY_API by_status by_price_read(by_price *out, const char *path, const char *device,
                               by_error *error);
BY_API by_status by_region_read(by_region *out, const char *path, const char *region,
                                by_error *error);
/* The same of YAML in memory; `name` stands for the file in messages. */
BY_API by_status by_price_parse(by_price *out, const char *name, const char *text, size_t length,
                                const char *device, by_error *error);
BY_API by_status by_region_parse(by_region *out, const char *name, const char *text, size_t length,
                                 const char *region, by_error *error);

typedef struct by_bill {
    double money;
    double kwh;
    double kg_co2;
} by_bill;

/* What so many devices take for so many seconds, of which they compute a share `busy`: kWh =
 * devices (idle + (watts - idle) busy) seconds / 3.6e6 PUE. Without a `region` PUE is 1 and kg_co2
 * NAN. */
BY_API by_bill by_bill_of(const by_price *price, const by_region *region, double devices,
                          double seconds, double busy, bool spot);

typedef struct by_ownership {
    double owned;  /* money for the months */
    double rented; /* for the hours of use in them, on demand */
    double even;   /* months after which owning costs less; INFINITY: never */
} by_ownership;

/* Owned against rented devices that are in use for a share of the time, and else idle (owned) or
 * given back (rented). A month has 730.5 hours. Without a `region` power is left out. */
BY_API by_ownership by_own_or_rent(const by_price *price, const by_region *region, double devices,
                                   double use, double months);

/* ---- inference ---- */

/* What a trained model costs to use, beside its training (by_model_size). FLOPs are those of
 * products and of attention to what a token sees. */
typedef struct by_inference_plan {
    double read_flops; /* of an example; of models of tokens of one, the mean of a whole context */
    double read_seconds; /* predicted of an example or a whole context alone; 0: speeds unknown */
    /* Of models that continue texts: of the token behind a context that is full but for it; else
     * 0. */
    double write_flops;
    double write_bytes; /* that are read for it: weights, keys and values */
    double write_seconds;
} by_inference_plan;

/* Plans inference with the model of a config, whose sizes are known, in the config's precision, one
 * example at a time. `speeds` as of by_trainer_options. */
BY_API by_status by_plan_inference(by_inference_plan *out, const by_config *config,
                                   const by_speeds *speeds, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
