/* banyan plan fit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/plan_command.h"

/* Draws of the bootstrap. */
#define DRAWS 200
#define LEVEL 0.8
#define DELTA 1e-3
/* The share of runs that a choice leaves out. */
#define TENTH 0.1

typedef struct fit_request {
    by_law_columns columns;
    const char *where;
    const char *config;
    const char *out;
    uint64_t seed;
    int64_t draws;
    bool json;
} fit_request;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double flops_of(const by_law_run *r)
{
    return r->flops > 0.0 ? r->flops : 6.0 * r->parameters * r->tokens;
}

static int compare_losses(const void *a, const void *b)
{
    double x = ((const by_law_run *)a)->loss;
    double y = ((const by_law_run *)b)->loss;
    return (x > y) - (x < y);
}

static int compare_budgets(const void *a, const void *b)
{
    double x = flops_of(b);
    double y = flops_of(a);
    return (x > y) - (x < y);
}

/* Fits without the tenth of the runs that come last in an order. */
static by_status fit_part(cli_law_choice *c, const cli_law_report *r,
                          int (*compare)(const void *, const void *), by_error *error)
{
    size_t left = r->runs.count - (size_t)(TENTH * (double)r->runs.count);
    by_law_run *sorted = malloc((r->runs.count + 1) * sizeof *sorted);
    if (sorted == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu runs", r->runs.count);
    }
    memcpy(sorted, r->runs.items, r->runs.count * sizeof *sorted);
    qsort(sorted, r->runs.count, sizeof *sorted, compare);
    /* Fewer runs may not suffice for a law: then the choice has none. */
    c->fitted =
        left < r->runs.count && by_law_fit_runs(&c->fit, sorted, left, &r->options, NULL) == BY_OK;
    free(sorted);
    return BY_OK;
}

static by_status fit_choices(cli_law_report *r, by_error *error)
{
    const by_law_options other = {.delta = r->options.delta == 1e-4 ? 1e-3 : 1e-4};
    const by_law_options squares = {.delta = INFINITY};
    cli_law_choice *c = r->choices;
    const by_law_run *runs = r->runs.items;
    c[0].name = other.delta == 1e-4 ? "delta 1e-4" : "delta 1e-3";
    c[1].name = "squares instead of Huber";
    c[2].name = "without the tenth of most loss";
    c[3].name = "without the tenth of least FLOPs";
    c[0].fitted = by_law_fit_runs(&c[0].fit, runs, r->runs.count, &other, NULL) == BY_OK;
    c[1].fitted = by_law_fit_runs(&c[1].fit, runs, r->runs.count, &squares, NULL) == BY_OK;
    by_status status = fit_part(&c[2], r, compare_losses, error);
    return status == BY_OK ? fit_part(&c[3], r, compare_budgets, error) : status;
}

static by_status fit(cli_law_report *r, const fit_request *request, by_error *error)
{
    const by_law_run *runs = r->runs.items;
    size_t count = r->runs.count;
    double begin = now();
    by_status status = by_law_fit_runs(&r->fit, runs, count, &r->options, error);
    r->seconds = now() - begin;
    status = status == BY_OK ? cli_check_law(&r->fit.law, error) : status;
    if (status != BY_OK) {
        return status;
    }
    r->draws = malloc((r->draw_count + 1) * sizeof *r->draws);
    r->without = malloc(count * sizeof *r->without);
    if (r->draws == NULL || r->without == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu draws", r->draw_count);
    }
    for (size_t i = 0; i < count; i++) {
        r->most = fmax(r->most, flops_of(&runs[i]));
    }
    r->cost = by_law_flops_of(runs, count);
    status = by_law_draw(r->draws, r->draw_count, &r->fit, runs, &r->options, request->seed, error);
    if (status == BY_OK) {
        status = by_law_leave_out(r->without, &r->fit, runs, &r->options, error);
    }
    if (status == BY_OK) {
        status = by_law_isoflop_runs(&r->isoflop, runs, count, error);
    }
    return status == BY_OK ? fit_choices(r, error) : status;
}

static by_status make(cli_law_report *r, const fit_request *request, char **paths, int count,
                      by_error *error)
{
    by_status status = cli_law_runs_open(&r->runs, paths, count, &request->columns, error);
    if (status == BY_OK) {
        status = fit(r, request, error);
    }
    if (status == BY_OK && r->loss > 0.0 && r->loss <= r->fit.law.e) {
        status = by_error_set(error, BY_EARG,
                              "--loss %.6g is never reached: by the law of these runs, %.6g is "
                              "left whatever the model and the data; ask for more",
                              r->loss, r->fit.law.e);
    }
    if (status == BY_OK && request->config != NULL) {
        r->has_shape = true;
        const cli_law_goal goal = {r->fit.law, r->cost, r->flops, r->unique};
        status = cli_find_shape(&r->shape, &goal, request->config, error);
    }
    if (status == BY_OK && request->out != NULL) {
        status = cli_draw_law(r, request->out, error);
        cli_tell_written(status == BY_OK ? request->out : NULL);
    }
    if (status == BY_OK) {
        status = cli_print_law(r, request->json, error);
    }
    cli_law_runs_close(&r->runs);
    free(r->draws);
    free(r->without);
    return status;
}

/* Divides COLUMN=VALUE. `column` stores its first part. */
static bool read_where(fit_request *request, char *column, size_t size)
{
    const char *equals = request->where == NULL ? NULL : strchr(request->where, '=');
    if (equals == NULL || equals == request->where || (size_t)(equals - request->where) >= size) {
        return request->where == NULL;
    }
    (void)snprintf(column, size, "%.*s", (int)(equals - request->where), request->where);
    request->columns.where = column;
    request->columns.is = equals + 1;
    return true;
}

static int run(int argc, char **argv)
{
    cli_law_report r = {.level = LEVEL, .options.delta = DELTA};
    fit_request q = {.draws = DRAWS};
    char column[256];
    const cli_flag flags[] = {
        {"flops", CLI_NUMBER_ABOVE(0, INFINITY), &r.flops, "C",
         "also print the best N and D for a budget of C FLOPs"},
        {"config", CLI_INPUT, &q.config, "FILE",
         "with --flops: also print the best scaled shape of this config"},
        {"unique-tokens", CLI_NUMBER_ABOVE(0, INFINITY), &r.unique, "U",
         "with --flops: of a text of U tokens, which is repeated beyond them"},
        {"loss", CLI_NUMBER_ABOVE(0, INFINITY), &r.loss, "L",
         "also print the least FLOPs that reach this loss"},
        {"inference-tokens", CLI_NUMBER_ABOVE(0, INFINITY), &r.served, "T",
         "with --loss: also print the size for the least FLOPs of training and of T tokens of "
         "inference"},
        {"delta", CLI_NUMBER_ABOVE(0, INFINITY), &r.options.delta, "D",
         "threshold of Huber's function of log loss (default: 1e-3)"},
        {"parameters-column", CLI_STRING, &q.columns.parameters, "NAME",
         "column of N (default: parameters)"},
        {"tokens-column", CLI_STRING, &q.columns.tokens, "NAME", "column of D (default: tokens)"},
        {"loss-column", CLI_STRING, &q.columns.loss, "NAME", "column of the loss (default: loss)"},
        {"flops-column", CLI_STRING, &q.columns.flops, "NAME",
         "column of FLOPs (default: flops where there is one, else 6 N D)"},
        {"where", CLI_STRING, &q.where, "COLUMN=VALUE", "only rows of the table with this value"},
        {"draws", CLI_INTEGER_IN(20, 100000), &q.draws, "N",
         "fits of resampled runs for the intervals (default: 200)"},
        {"level", CLI_NUMBER_IN(0.5, 0.99), &r.level, "P",
         "share of the draws in an interval (default: 0.8)"},
        {"seed", CLI_SEED, &q.seed, "N", "seed of the draws (default: 0)"},
        {"out", CLI_STRING, &q.out, "FILE", ".svg or .png file with the runs and the law"},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_plan_fit, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count == 0) {
        return cli_misuse(&cli_plan_fit, "name a table of runs, or run directories");
    }
    if (!read_where(&q, column, sizeof column)) {
        return cli_misuse(&cli_plan_fit, "--where '%s' is not COLUMN=VALUE", q.where);
    }
    if (q.config != NULL && r.flops == 0.0) {
        return cli_misuse(&cli_plan_fit, "--config takes a budget: --flops");
    }
    if (r.unique > 0.0 && r.flops == 0.0) {
        return cli_misuse(&cli_plan_fit, "--unique-tokens takes a budget: --flops");
    }
    if (r.served > 0.0 && r.loss == 0.0) {
        return cli_misuse(&cli_plan_fit, "--inference-tokens takes a loss to reach: --loss");
    }
    code = cli_check_inputs(&cli_plan_fit, rest, count);
    if (code >= 0) {
        return code;
    }
    r.draw_count = (size_t)q.draws;
    return make(&r, &q, rest, count, &error) == BY_OK ? CLI_DONE : cli_fail(&cli_plan_fit, &error);
}

const cli_command cli_plan_fit = {
    .name = "plan fit",
    .summary = "fit a scaling law to runs, and tell what a budget buys",
    .usage = "banyan plan fit TABLE.csv | RUN... [--flops C [--config FILE] [--unique-tokens U]]\n"
             "       [--loss L [--inference-tokens T]] [--out FILE] [--json]",
    .text =
        "Fits loss = E + A / N^alpha + B / D^beta to finished runs of N parameters and D\n"
        "tokens, and prints what a budget buys by it.\n"
        "\n"
        "examples:\n"
        "  banyan plan fit runs.csv --flops 1e21\n"
        "  banyan plan fit runs.csv --flops 1e21 --config examples/llama_125m.yaml\n"
        "  banyan plan fit runs.csv --flops 1e21 --unique-tokens 2e9\n"
        "  banyan plan fit runs.csv --loss 2.5 --inference-tokens 1e12\n"
        "  banyan plan fit runs.csv --where data=c4 --loss-column loss_c4 --out law.svg\n"
        "  banyan plan fit runs/s1 runs/s2 runs/s3 runs/s4 runs/s5 runs/s6 --json\n"
        "\n"
        "A table has a run in each row, with the columns parameters, tokens and loss, and\n"
        "perhaps flops. Of a run directory these are the size of the model, the tokens of its\n"
        "steps, its last held-out loss, and the FLOPs of its own graph. At least six runs, of\n"
        "three sizes and three lengths; those that began with another's weights are left out.\n"
        "\n"
        "--config prints the settings of a model for the budget: the config's with heads of the\n"
        "same width, their number and that of layers scaled together, and steps until the FLOPs "
        "of\n"
        "its own graph are spent.\n"
        "\n"
        "The interval of each number holds 80 % of fits to runs with resampled residuals. What\n"
        "a choice changes (threshold, runs left out) is often more: it is printed beside. So\n"
        "are the runs without which the best size would be another. See docs/scaling_laws.md.",
    .run = run};
