/* IsoFLOP: the best size for each of some budgets by a parabola, and a line through these. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/law/law.h"

enum { budgets = 8, least_sizes = 3 };

/* Budgets and sizes within these ratios are the same. */
static const double same_budget = 1.1;
static const double same_size = 1.01;

/* A run, in logarithms. */
typedef struct isoflop_run {
    double size;
    double flops;
    double loss;
} isoflop_run;

/* Sums of a line, y over x. */
typedef struct line_sums {
    double count, x, y, xx, xy;
} line_sums;

static void add_to_line(line_sums *s, double x, double y)
{
    s->count += 1.0;
    s->x += x;
    s->y += y;
    s->xx += x * x;
    s->xy += x * y;
}

static int compare_isoflop_flops(const void *a, const void *b)
{
    return by__compare_doubles(&((const isoflop_run *)a)->flops, &((const isoflop_run *)b)->flops);
}

static int compare_isoflop_sizes(const void *a, const void *b)
{
    const isoflop_run *x = a;
    const isoflop_run *y = b;
    int order = by__compare_doubles(&x->size, &y->size);
    return order != 0 ? order : compare_isoflop_flops(a, b);
}

/* Adds the lowest point of the parabola through the points of a budget, if there is one within
 * their sizes. */
static void add_budget(line_sums *line, const isoflop_run *points, size_t count, double flops)
{
    double mean = 0.0;
    double low = INFINITY;
    double high = -INFINITY;
    double a[5][5] = {{0}};
    double b[5] = {0};
    for (size_t i = 0; i < count; i++) {
        mean += points[i].size / (double)count;
        low = fmin(low, points[i].size);
        high = fmax(high, points[i].size);
    }
    for (size_t i = 0; i < count; i++) {
        double x = points[i].size - mean;
        double powers[3] = {1.0, x, x * x};
        for (size_t k = 0; k < 3; k++) {
            b[k] += powers[k] * points[i].loss;
            for (size_t l = 0; l <= k; l++) {
                a[k][l] += powers[k] * powers[l];
            }
        }
    }
    if (count < least_sizes || !by__law_solve(3, a, b) || !(b[2] > 0.0)) {
        return;
    }
    double lowest = mean - 0.5 * b[1] / b[2];
    if (lowest >= low && lowest <= high) {
        add_to_line(line, flops, lowest);
    }
}

/* Budgets that runs share. Returns the runs of those with at least three sizes. */
static size_t add_shared(line_sums *line, isoflop_run *runs, size_t count)
{
    size_t used = 0;
    qsort(runs, count, sizeof *runs, compare_isoflop_flops);
    for (size_t i = 0, end; i < count; i = end) {
        double flops = runs[i].flops;
        for (end = i + 1; end < count && runs[end].flops - runs[i].flops <= log(same_budget);
             end++) {
            flops += runs[end].flops;
        }
        if (end - i >= least_sizes) {
            add_budget(line, runs + i, end - i, flops / (double)(end - i));
            used += end - i;
        }
    }
    return used;
}

/* Eight budgets within those of the runs, with a point for each size that was trained for less and
 * for more. `points` has room for `count`. */
static void add_interpolated(line_sums *line, isoflop_run *runs, isoflop_run *points, size_t count)
{
    double low = INFINITY;
    double high = -INFINITY;
    qsort(runs, count, sizeof *runs, compare_isoflop_sizes);
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, runs[i].flops);
        high = fmax(high, runs[i].flops);
    }
    for (int n = 1; n <= budgets; n++) {
        double flops = low + (high - low) * n / (budgets + 1);
        size_t found = 0;
        for (size_t i = 1; i < count; i++) {
            const isoflop_run *a = &runs[i - 1];
            const isoflop_run *b = &runs[i];
            if (b->size - a->size > log(same_size) || a->flops > flops || b->flops < flops ||
                b->flops == a->flops) {
                continue;
            }
            double part = (flops - a->flops) / (b->flops - a->flops);
            points[found++] = (isoflop_run){.size = 0.5 * (a->size + b->size),
                                            .flops = flops,
                                            .loss = a->loss + part * (b->loss - a->loss)};
        }
        add_budget(line, points, found, flops);
    }
}

by_status by_law_isoflop_runs(by_law_isoflop *out, const by_law_run *runs, size_t count,
                              by_error *error)
{
    void *memory;
    line_sums line = {0};
    BY_TRY(by__alloc(&memory, 2 * count, sizeof(isoflop_run), "IsoFLOP curves", error));
    isoflop_run *own = memory;
    for (size_t i = 0; i < count; i++) {
        const by_law_run *r = &runs[i];
        double flops = r->flops > 0.0 ? r->flops : 6.0 * r->parameters * r->tokens;
        own[i] =
            (isoflop_run){.size = log(r->parameters), .flops = log(flops), .loss = log(r->loss)};
    }
    if (2 * add_shared(&line, own, count) < count) {
        line = (line_sums){0};
        add_interpolated(&line, own, own + count, count);
    }
    free(memory);
    double spread = line.xx - line.x * line.x / line.count;
    *out = (by_law_isoflop){.factor = NAN, .power = NAN, .budgets = (size_t)line.count};
    if (line.count >= 2.0 && spread > 0.0) {
        out->power = (line.xy - line.x * line.y / line.count) / spread;
        out->factor = exp((line.y - out->power * line.x) / line.count);
    }
    return BY_OK;
}
