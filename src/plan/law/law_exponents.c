/* The outer problem of a fit: the exponents, by BFGS on their logarithms from the best points of a
 * grid. The objective has a slope everywhere, because the coefficients are those of the exponents,
 * so two numbers are all that there is to search. */
#include <math.h>
#include <string.h>

#include "plan/law/law.h"

enum { grid = 9, starts = 4, max_descents = 200, max_cuts = 40 };

/* Coefficients of the grid change by this share at most: it only shows where to begin. */
static const double coarse = 1e-2;

/* Exponents of the grid, in equal ratios. */
static const double grid_low = 0.05;
static const double grid_high = 1.6;

/* The longest step, of the logarithm of an exponent, and one that is none. */
static const double longest = 1.0;
static const double shortest = 1e-11;

/* What a descent gains, as a share of the objective, that is not worth it. */
static const double negligible = 1e-14;

static double bounded(double exponent)
{
    return fmin(fmax(exponent, BY_LAW_LEAST), BY_LAW_MOST);
}

/* Moves a point along a direction and solves for its coefficients. */
static by__law_point moved(const by__law_problem *p, const by__law_point *from,
                           const double direction[2], double length)
{
    by__law_point to = *from;
    for (size_t k = 0; k < 2; k++) {
        to.exponent[k] = bounded(from->exponent[k] * exp(length * direction[k]));
    }
    /* Coefficients that are 0 have no way back from there where the step is long. */
    by__law_coefficients(p, &to, from->coefficient[1] > 0.0 && from->coefficient[2] > 0.0,
                         BY__LAW_SETTLED);
    return to;
}

/* An exponent at the end of its range whose slope leads out of it is held. */
static bool is_held(const by__law_point *at, size_t k)
{
    return (at->exponent[k] <= BY_LAW_LEAST && at->slope[k] > 0.0) ||
           (at->exponent[k] >= BY_LAW_MOST && at->slope[k] < 0.0);
}

/* The direction of descent by the inverse Hessian h. Returns the slope along it. */
static double direct(double direction[2], double h[2][2], const by__law_point *at)
{
    for (size_t k = 0; k < 2; k++) {
        direction[k] = -(h[k][0] * at->slope[0] + h[k][1] * at->slope[1]);
    }
    double slope = direction[0] * at->slope[0] + direction[1] * at->slope[1];
    if (!(slope < 0.0) || is_held(at, 0) || is_held(at, 1)) {
        for (size_t k = 0; k < 2; k++) {
            direction[k] = is_held(at, k) ? 0.0 : -h[k][k] * at->slope[k];
        }
        slope = direction[0] * at->slope[0] + direction[1] * at->slope[1];
    }
    double length = fmax(fabs(direction[0]), fabs(direction[1]));
    if (length > longest) {
        direction[0] *= longest / length;
        direction[1] *= longest / length;
        slope *= longest / length;
    }
    return slope;
}

/* The update of Broyden, Fletcher, Goldfarb and Shanno of the inverse Hessian. */
static void update(double h[2][2], const by__law_point *from, const by__law_point *to, bool *scaled)
{
    double s[2];
    double g[2];
    for (size_t k = 0; k < 2; k++) {
        s[k] = log(to->exponent[k] / from->exponent[k]);
        g[k] = to->slope[k] - from->slope[k];
    }
    double sg = s[0] * g[0] + s[1] * g[1];
    double gg = g[0] * g[0] + g[1] * g[1];
    if (!(sg > 1e-12 * sqrt(gg * (s[0] * s[0] + s[1] * s[1])))) {
        return;
    }
    if (!*scaled) {
        h[0][0] = h[1][1] = sg / gg;
        h[0][1] = h[1][0] = 0.0;
        *scaled = true;
    }
    double hg[2] = {h[0][0] * g[0] + h[0][1] * g[1], h[1][0] * g[0] + h[1][1] * g[1]};
    double ghg = g[0] * hg[0] + g[1] * hg[1];
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 2; j++) {
            h[i][j] += (1.0 + ghg / sg) * s[i] * s[j] / sg - (hg[i] * s[j] + s[i] * hg[j]) / sg;
        }
    }
}

/* Moves to a lower point along a direction, at a length that cuts and fits of a parabola find.
 * Returns false if there is none. */
static bool search_line(by__law_point *to, const by__law_problem *p, const by__law_point *at,
                        const double direction[2], double slope)
{
    double length = 1.0;
    double size = fmax(fabs(direction[0]), fabs(direction[1]));
    for (int i = 0; i < max_cuts && length * size > shortest; i++) {
        *to = moved(p, at, direction, length);
        if (to->objective <= at->objective + 1e-4 * length * slope) {
            return to->objective < at->objective;
        }
        double bend = to->objective - at->objective - length * slope;
        double best = -0.5 * slope * length * length / bend;
        length = isfinite(best) ? fmin(fmax(best, 0.1 * length), 0.5 * length) : 0.1 * length;
    }
    return false;
}

void by__law_descend(const by__law_problem *p, by__law_point *point)
{
    double h[2][2];
    bool scaled = false;
    bool fresh = true;
    for (int i = 0; i < max_descents; i++) {
        double direction[2];
        by__law_point to;
        if (!scaled) {
            double size = fmax(fabs(point->slope[0]), fabs(point->slope[1]));
            h[0][0] = h[1][1] = size > 0.0 ? 0.1 / size : 0.0;
            h[0][1] = h[1][0] = 0.0;
            fresh = true;
        }
        double slope = direct(direction, h, point);
        if (!(slope < -negligible * point->objective)) {
            return;
        }
        if (!search_line(&to, p, point, direction, slope)) {
            if (fresh) {
                return;
            }
            scaled = false; /* what the Hessian has learned is of another place */
            continue;
        }
        update(h, point, &to, &scaled);
        fresh = false;
        *point = to;
    }
}

void by__law_search(const by__law_problem *p, by__law_point *best)
{
    by__law_point points[grid * grid];
    double ratio = pow(grid_high / grid_low, 1.0 / (grid - 1));
    for (size_t i = 0; i < grid * grid; i++) {
        size_t row = i / grid;
        points[i].exponent[0] = grid_low * pow(ratio, (double)row);
        points[i].exponent[1] = grid_low * pow(ratio, (double)(i % grid));
        by__law_coefficients(p, &points[i], false, coarse);
    }
    best->objective = INFINITY;
    for (size_t n = 0; n < starts; n++) {
        size_t least = 0;
        for (size_t i = 1; i < grid * grid; i++) {
            least = points[i].objective < points[least].objective ? i : least;
        }
        by__law_point found = points[least];
        if (!isfinite(found.objective)) {
            break;
        }
        by__law_coefficients(p, &found, true, BY__LAW_SETTLED);
        by__law_descend(p, &found);
        if (found.objective < best->objective) {
            *best = found;
        }
        /* The next start is not beside this one. */
        for (size_t i = 0; i < grid * grid; i++) {
            size_t rows =
                i / grid > least / grid ? i / grid - least / grid : least / grid - i / grid;
            size_t columns =
                i % grid > least % grid ? i % grid - least % grid : least % grid - i % grid;
            if (rows <= 1 && columns <= 1) {
                points[i].objective = INFINITY;
            }
        }
    }
}
