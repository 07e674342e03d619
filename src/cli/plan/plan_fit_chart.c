/* The picture of banyan plan fit: the loss over tokens for some sizes, as measured and by the law.
 * */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "plan/plan_command.h"

#define MAX_SIZES 8
#define POINTS    40
/* Sizes within this ratio are the same. */
#define SAME 1.01

/* A size and its runs. */
typedef struct size_curve {
    double parameters;
    double x[POINTS]; /* of the law */
    double law[POINTS];
    double *tokens; /* [runs]: of runs, logarithms */
    double *loss;
    size_t count;
    char name[32];
} size_curve;

static int compare_sizes(const void *a, const void *b)
{
    const by_law_run *x = a;
    const by_law_run *y = b;
    int order = (x->parameters > y->parameters) - (x->parameters < y->parameters);
    return order != 0 ? order : (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

/* "124M" */
static void name_size(char out[32], double parameters)
{
    static const char units[][2] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    while (parameters >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        parameters /= 1000.0;
        unit++;
    }
    (void)snprintf(out, 32, "%.3g%s", parameters, units[unit]);
}

/* Finds the first run of each size in sorted runs. Returns the number of sizes. */
static size_t find_sizes(size_t *first, const by_law_run *runs, size_t count)
{
    size_t sizes = 0;
    for (size_t i = 0; i < count; i++) {
        if (sizes == 0 || runs[i].parameters > SAME * runs[first[sizes - 1]].parameters) {
            first[sizes++] = i;
        }
    }
    first[sizes] = count;
    return sizes;
}

static void make_curve(size_curve *c, const cli_law_report *r, const by_law_run *runs, size_t count,
                       double low, double high)
{
    c->parameters = runs[0].parameters;
    c->count = count;
    name_size(c->name, c->parameters);
    for (size_t i = 0; i < count; i++) {
        c->tokens[i] = log10(runs[i].tokens);
        c->loss[i] = runs[i].loss;
    }
    for (size_t i = 0; i < POINTS; i++) {
        c->x[i] = low + (high - low) * (double)i / (POINTS - 1);
        c->law[i] = by_law_loss(&r->fit.law, c->parameters, pow(10.0, c->x[i]));
    }
}

static by_status draw(const cli_law_report *r, const by_law_run *runs, const size_t *first,
                      size_t sizes, size_curve *curves, double *memory, const char *path,
                      by_error *error)
{
    by_plot_series series[2 * MAX_SIZES];
    size_t shown = sizes < MAX_SIZES ? sizes : MAX_SIZES;
    double low = INFINITY;
    double high = -INFINITY;
    for (size_t i = 0; i < r->runs.count; i++) {
        low = fmin(low, log10(runs[i].tokens));
        high = fmax(high, log10(runs[i].tokens));
    }
    for (size_t k = 0; k < shown; k++) {
        size_t at = shown == 1 ? 0 : k * (sizes - 1) / (shown - 1);
        size_curve *c = &curves[k];
        c->tokens = memory + 2 * first[at];
        c->loss = c->tokens + (first[at + 1] - first[at]);
        make_curve(c, r, runs + first[at], first[at + 1] - first[at], low, high);
        series[2 * k] = (by_plot_series){
            .name = c->name, .x = c->tokens, .y = c->loss, .count = c->count, .group = k + 1};
        series[2 * k + 1] = (by_plot_series){
            .x = c->x, .y = c->law, .count = POINTS, .group = k + 1, .dashed = true};
    }
    const by_plot_options options = {.title = "Loss of runs, and by the law (dashed)",
                                     .x_label = "tokens, log10",
                                     .y_label = "loss",
                                     .log_y = true,
                                     .series = series,
                                     .series_count = 2 * shown};
    return by_plot_write(&options, path, error);
}

by_status cli_draw_law(const cli_law_report *r, const char *path, by_error *error)
{
    size_t count = r->runs.count;
    by_law_run *runs = malloc(count * sizeof *runs);
    size_t *first = malloc((count + 1) * sizeof *first);
    double *memory = malloc(2 * count * sizeof *memory);
    size_curve *curves = calloc(MAX_SIZES, sizeof *curves);
    by_status status = BY_OK;
    if (runs == NULL || first == NULL || memory == NULL || curves == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a chart of %zu runs", count);
    } else {
        memcpy(runs, r->runs.items, count * sizeof *runs);
        qsort(runs, count, sizeof *runs, compare_sizes);
        size_t sizes = find_sizes(first, runs, count);
        status = draw(r, runs, first, sizes, curves, memory, path, error);
    }
    free(runs);
    free(first);
    free(memory);
    free(curves);
    return status;
}
