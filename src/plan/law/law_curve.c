/* The loss over compute, L(C) = E + A C^-gamma, of a ladder of few runs. For a given gamma E and A,
 * none below 0, are linear in relative errors; gamma is found on a grid, which is then refined. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/law/law.h"

#define LEAST_POWER 0.01
#define MOST_POWER  2.0
#define GRID        60
#define REFINEMENTS 60
#define MOST_RUNS   64
/* Runs that differ in their seed alone differ by so much: less is not believed of a few runs. */
#define LEAST_SPREAD 0.002
/* As many runs as numbers say nothing of their spread. */
#define UNKNOWN_SPREAD 0.01
#define DRAWS          400
#define PURPOSE        0x63757276u /* "curv" in ASCII */

/* The runs, with compute relative to its geometric mean. */
typedef struct points {
    size_t count;
    double x[MOST_RUNS]; /* log C, less its mean */
    double y[MOST_RUNS]; /* loss */
    double mean;
} points;

/* E and A for a gamma; returns the sum of squared relative errors. */
static double solve(const points *p, double gamma, double *e, double *a)
{
    double uu = 0.0;
    double uv = 0.0;
    double vv = 0.0;
    double u = 0.0;
    double v = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        double one = 1.0 / p->y[i];
        double term = exp(-gamma * p->x[i]) / p->y[i];
        uu += one * one;
        uv += one * term;
        vv += term * term;
        u += one;
        v += term;
    }
    double determinant = uu * vv - uv * uv;
    *e = determinant > 0.0 ? (u * vv - v * uv) / determinant : 0.0;
    *a = determinant > 0.0 ? (uu * v - uv * u) / determinant : v / vv;
    if (*e < 0.0) {
        *e = 0.0;
        *a = v / vv;
    }
    if (*a < 0.0) {
        *a = 0.0;
        *e = u / uu;
    }
    double sum = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        double error = (*e + *a * exp(-gamma * p->x[i])) / p->y[i] - 1.0;
        sum += error * error;
    }
    return sum;
}

static by_curve fit(const points *p, double *objective)
{
    double e;
    double a;
    double best = INFINITY;
    size_t at = 0;
    double step = log(MOST_POWER / LEAST_POWER) / (GRID - 1);
    for (size_t i = 0; i < GRID; i++) {
        double sum = solve(p, LEAST_POWER * exp(step * (double)i), &e, &a);
        at = sum < best ? i : at;
        best = sum < best ? sum : best;
    }
    double low = LEAST_POWER * exp(step * ((double)at - 1.0));
    double high = LEAST_POWER * exp(step * ((double)at + 1.0));
    low = low < LEAST_POWER ? LEAST_POWER : low;
    high = high > MOST_POWER ? MOST_POWER : high;
    for (int i = 0; i < REFINEMENTS; i++) {
        double left = low + (high - low) / 3.0;
        double right = high - (high - low) / 3.0;
        bool falls = solve(p, left, &e, &a) > solve(p, right, &e, &a);
        low = falls ? left : low;
        high = falls ? high : right;
    }
    double gamma = 0.5 * (low + high);
    *objective = solve(p, gamma, &e, &a);
    return (by_curve){.e = e, .a = a * exp(gamma * p->mean), .gamma = gamma};
}

double by_curve_loss(const by_curve *curve, double flops)
{
    return curve->e + curve->a * pow(flops, -curve->gamma);
}

static by_status read_points(points *p, const by_law_run *runs, size_t count, by_error *error)
{
    if (count < BY_CURVE_RUNS || count > MOST_RUNS) {
        return by_error_set(error, BY_EARG, "a curve of compute takes %d to %d runs, not %zu",
                            BY_CURVE_RUNS, MOST_RUNS, count);
    }
    *p = (points){.count = count};
    for (size_t i = 0; i < count; i++) {
        if (!(runs[i].flops > 0.0) || !(runs[i].loss > 0.0) || !isfinite(runs[i].flops) ||
            !isfinite(runs[i].loss)) {
            return by_error_set(error, BY_EARG,
                                "run %zu has %g FLOPs and loss %g: both must be above 0 and finite",
                                i + 1, runs[i].flops, runs[i].loss);
        }
        p->x[i] = log(runs[i].flops);
        p->y[i] = runs[i].loss;
        p->mean += p->x[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        p->x[i] -= p->mean;
    }
    return BY_OK;
}

/* Two numbers of a standard normal distribution (Box and Muller 1958). */
static void draw(double out[2], uint64_t seed, uint32_t i, uint32_t k)
{
    uint32_t key[2];
    uint32_t bits[4];
    by__philox_key(key, seed, PURPOSE);
    by__philox(bits, key, (uint32_t[4]){i, k});
    double radius = sqrt(-2.0 * log(((double)bits[0] + 1.0) * 0x1p-32));
    double angle = 2.0 * M_PI * ((double)bits[1] * 0x1p-32);
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

by_status by_curve_predict(by_curve_prediction *out, const by_law_run *runs, size_t count,
                           double flops, double level, uint64_t seed, by_error *error)
{
    points p;
    double objective;
    double losses[DRAWS];
    BY_TRY(read_points(&p, runs, count, error));
    by_curve curve = fit(&p, &objective);
    double spread = count <= BY_CURVE_RUNS
                        ? UNKNOWN_SPREAD
                        : fmax(sqrt(objective / ((double)count - 3.0)), LEAST_SPREAD);
    double center = by_curve_loss(&curve, flops);
    for (uint32_t i = 0; i < DRAWS; i++) {
        points q = p;
        double z[2];
        for (size_t k = 0; k < count; k++) {
            draw(z, seed, i, (uint32_t)k);
            double at = curve.e + curve.a * exp(-curve.gamma * (p.x[k] + p.mean));
            q.y[k] = at * exp(spread * z[0]);
        }
        by_curve other = fit(&q, &objective);
        draw(z, seed, i, MOST_RUNS);
        losses[i] = by_curve_loss(&other, flops) * exp(spread * z[0]); /* and of the run itself */
    }
    by_law_interval between = by_law_between(losses, DRAWS, center, level);
    *out = (by_curve_prediction){
        .curve = curve, .loss = center, .low = between.low, .high = between.high, .spread = spread};
    return BY_OK;
}
