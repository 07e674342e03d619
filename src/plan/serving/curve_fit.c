/* Fits the time of steps to what they computed.
 *
 * Least absolute relative errors: a step that another process disturbed moves a fit no further than
 * any other step that was late. They are minimised by iteratively reweighted least squares, with
 * weights of 1 / (seconds^2 |relative error|); the seconds of programs are then medians. */
#include <math.h>
#include <stdlib.h>

#include "plan/serving/curve_steps.h"

enum { iterations = 60 };

/* Below this share of a step, an error has no more weight. */
static const double floor_error = 0.01;

by_status by__serving_steps_add(by__serving_steps *steps, const by_engine_work *work,
                                by_error *error)
{
    if (steps->count == steps->capacity) {
        size_t capacity = 2 * steps->capacity + 1024;
        by_engine_work *larger = realloc(steps->items, capacity * sizeof *larger);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: measured steps");
        }
        steps->items = larger;
        steps->capacity = capacity;
    }
    steps->items[steps->count++] = *work;
    return BY_OK;
}

void by__serving_steps_close(by__serving_steps *steps)
{
    free(steps->items);
    *steps = (by__serving_steps){0};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *values, size_t count, double share)
{
    qsort(values, count, sizeof *values, ascending);
    return values[(size_t)(share * (double)count)];
}

/* Sets the programs' seconds to the medians that the seconds of keys leave. Negative: no steps. */
static void fit_programs(by_engine_curve *c, const by__serving_steps *steps, double *values)
{
    for (int p = 0; p < c->program_count; p++) {
        size_t count = 0;
        for (size_t i = 0; i < steps->count; i++) {
            const by_engine_work *w = &steps->items[i];
            if (w->program == p) {
                values[count++] =
                    w->seconds - c->decode_key * w->decode_keys - c->prompt_key * w->prompt_keys;
            }
        }
        c->programs[p].seconds = count == 0 ? -1.0 : fmax(quantile(values, count, 0.5), 0.0);
    }
}

/* Weighted sums of the steps of a program. */
typedef struct program_sums {
    double weight, decode, prompt, seconds;
} program_sums;

static double weight_of(const by_engine_curve *c, const by_engine_work *w)
{
    double off = fabs(by_engine_curve_seconds(c, w) / w->seconds - 1.0);
    return 1.0 / (w->seconds * w->seconds * fmax(off, floor_error));
}

static void sum_programs(program_sums *sums, const by_engine_curve *c,
                         const by__serving_steps *steps)
{
    for (int p = 0; p < c->program_count; p++) {
        sums[p] = (program_sums){0};
    }
    for (size_t i = 0; i < steps->count; i++) {
        const by_engine_work *w = &steps->items[i];
        program_sums *s = &sums[w->program];
        double weight = weight_of(c, w);
        s->weight += weight;
        s->decode += weight * w->decode_keys;
        s->prompt += weight * w->prompt_keys;
        s->seconds += weight * w->seconds;
    }
}

/* Sets the seconds of keys by weighted least squares, with the seconds of programs free: from how
 * the steps of each program differ from their means. */
static void fit_keys(by_engine_curve *c, const by__serving_steps *steps)
{
    program_sums sums[BY_CURVE_PROGRAMS];
    double dd = 0.0;
    double dp = 0.0;
    double pp = 0.0;
    double dy = 0.0;
    double py = 0.0;
    sum_programs(sums, c, steps);
    for (size_t i = 0; i < steps->count; i++) {
        const by_engine_work *w = &steps->items[i];
        const program_sums *s = &sums[w->program];
        double weight = weight_of(c, w);
        double decode = w->decode_keys - s->decode / s->weight;
        double prompt = w->prompt_keys - s->prompt / s->weight;
        double seconds = w->seconds - s->seconds / s->weight;
        dd += weight * decode * decode;
        dp += weight * decode * prompt;
        pp += weight * prompt * prompt;
        dy += weight * decode * seconds;
        py += weight * prompt * seconds;
    }
    double determinant = dd * pp - dp * dp;
    if (determinant > 1e-9 * dd * pp) {
        c->decode_key = (dy * pp - py * dp) / determinant;
        c->prompt_key = (py * dd - dy * dp) / determinant;
    }
    /* A key takes time: where noise says otherwise, the other kind explains the rest alone. */
    if (c->decode_key < 0.0) {
        c->decode_key = 0.0;
        c->prompt_key = pp > 0.0 ? fmax(py / pp, 0.0) : 0.0;
    } else if (c->prompt_key < 0.0) {
        c->prompt_key = 0.0;
        c->decode_key = dd > 0.0 ? fmax(dy / dd, 0.0) : 0.0;
    }
}

/* Gives a program without steps the seconds between those of fewer and of more rows. */
static void fill_programs(by_engine_curve *c)
{
    double known[BY_CURVE_PROGRAMS] = {0};
    for (int p = 0; p < c->program_count; p++) {
        known[p] = c->programs[p].seconds;
    }
    for (int p = 0; p < c->program_count; p++) {
        int below = p;
        int above = p;
        while (below >= 0 && known[below] < 0.0) {
            below--;
        }
        while (above < c->program_count && known[above] < 0.0) {
            above++;
        }
        if (below == p) {
            continue;
        }
        if (below < 0 || above == c->program_count) {
            int only = below < 0 ? above : below;
            double share = (double)c->programs[p].rows / (double)c->programs[only].rows;
            c->programs[p].seconds = known[only] * fmax(share, 1.0);
            continue;
        }
        double span = (double)(c->programs[above].rows - c->programs[below].rows);
        double part =
            span > 0.0 ? (double)(c->programs[p].rows - c->programs[below].rows) / span : 0.5;
        c->programs[p].seconds = known[below] + part * (known[above] - known[below]);
    }
}

/* The ratios of steps to the formula. */
static void fit_ratios(by_engine_curve *c, const by__serving_steps *steps, double *values)
{
    for (size_t i = 0; i < steps->count; i++) {
        const by_engine_work *w = &steps->items[i];
        values[i] = w->seconds / fmax(by_engine_curve_seconds(c, w), 1e-9);
    }
    c->ratio_count = steps->count < BY_CURVE_RATIOS ? (int)steps->count : BY_CURVE_RATIOS;
    for (int i = 0; i < c->ratio_count; i++) {
        c->ratios[i] = quantile(values, steps->count, (i + 0.5) / c->ratio_count);
    }
    for (size_t i = 0; i < steps->count; i++) {
        values[i] = fabs(values[i] - 1.0);
    }
    c->error = quantile(values, steps->count, 0.5);
    c->steps = steps->count;
}

by_status by__serving_curve_fit(by_engine_curve *curve, const by__serving_steps *steps,
                                by_error *error)
{
    double *values;
    if (steps->count == 0) {
        return by_error_set(error, BY_ESTATE, "no step of the engine was measured");
    }
    BY_TRY(by__alloc((void **)&values, steps->count, sizeof *values, "measured steps", error));
    curve->decode_key = 0.0;
    curve->prompt_key = 0.0;
    for (int i = 0; i < iterations; i++) {
        fit_programs(curve, steps, values);
        fit_keys(curve, steps);
    }
    fit_programs(curve, steps, values);
    fill_programs(curve);
    fit_ratios(curve, steps, values);
    free(values);
    return BY_OK;
}
