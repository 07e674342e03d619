/* The inner problem of a fit: E, A and B, none below 0, for given exponents.
 *
 * Newton's method on three numbers. Huber's function has no curvature beyond its threshold, so the
 * Hessian is damped by that of the quadratic which touches it there (weights delta / |r|), with
 * which each step would descend. A step is the minimum of the quadratic model over E, A, B >= 0,
 * found by trying the eight sets of numbers that may be 0. */
#include <math.h>
#include <string.h>

#include "plan/law/law.h"

enum { max_steps = 100, max_damping = 40 };

/* Steps below which the objective has too few digits to tell whether they descend. */
static const double rounding = 1e-8;

typedef struct derivatives {
    double objective;
    double gradient[3];
    double hessian[5][5]; /* of order 3 */
    double damping[5][5]; /* of the quadratics that touch */
} derivatives;

bool by__law_solve(size_t order, double a[5][5], double b[5])
{
    for (size_t k = 0; k < order; k++) {
        double largest = a[k][k];
        for (size_t j = 0; j < k; j++) {
            a[k][k] -= a[k][j] * a[k][j];
        }
        if (!(a[k][k] > 1e-15 * largest) || !(largest > 0.0)) {
            return false;
        }
        a[k][k] = sqrt(a[k][k]);
        for (size_t i = k + 1; i < order; i++) {
            for (size_t j = 0; j < k; j++) {
                a[i][k] -= a[i][j] * a[k][j];
            }
            a[i][k] /= a[k][k];
        }
    }
    for (size_t i = 0; i < order; i++) {
        for (size_t j = 0; j < i; j++) {
            b[i] -= a[i][j] * b[j];
        }
        b[i] /= a[i][i];
    }
    for (size_t i = order; i-- > 0;) {
        for (size_t j = i + 1; j < order; j++) {
            b[i] -= a[j][i] * b[j];
        }
        b[i] /= a[i][i];
    }
    return true;
}

static double loss_at(const by__law_problem *p, size_t i, const double c[3])
{
    return c[0] + c[1] * p->x[1][i] + c[2] * p->x[2][i];
}

static double objective_at(const by__law_problem *p, const double c[3])
{
    double sum = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        if (p->weight[i] > 0.0) {
            double r = log(loss_at(p, i, c)) - p->y[i];
            sum += p->weight[i] * by__law_huber(r, p->delta);
        }
    }
    return isfinite(sum) ? sum : INFINITY;
}

static void derive(derivatives *out, const by__law_problem *p, const double c[3])
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < p->count; i++) {
        if (p->weight[i] == 0.0) {
            continue;
        }
        double loss = loss_at(p, i, c);
        double r = log(loss) - p->y[i];
        double size = fabs(r);
        bool inside = size <= p->delta;
        double slope = inside ? r : copysign(p->delta, r);
        double touching = inside ? 1.0 : p->delta / size;
        double j[3] = {1.0 / loss, p->x[1][i] / loss, p->x[2][i] / loss};
        out->objective += p->weight[i] * by__law_huber(r, p->delta);
        for (size_t k = 0; k < 3; k++) {
            out->gradient[k] += p->weight[i] * slope * j[k];
            for (size_t l = 0; l <= k; l++) {
                double product = p->weight[i] * j[k] * j[l];
                out->hessian[k][l] += product * ((inside ? 1.0 : 0.0) - slope);
                out->damping[k][l] += product * touching;
            }
        }
    }
}

/* Minimises gradient . s + s . m s / 2 over s with the numbers outside `free` at 0. Returns the
 * value, INFINITY where it is no minimum, or one with a number below 0. */
static double model_minimum(double step[3], unsigned free, double m[5][5], const double gradient[3],
                            const double c[3])
{
    double a[5][5];
    double b[5];
    size_t at[3];
    size_t order = 0;
    for (size_t k = 0; k < 3; k++) {
        step[k] = -c[k];
        if (free >> k & 1u) {
            at[order++] = k;
        }
    }
    for (size_t i = 0; i < order; i++) {
        b[i] = -gradient[at[i]];
        for (size_t j = 0; j <= i; j++) {
            a[i][j] = m[at[i]][at[j]];
        }
        for (size_t k = 0; k < 3; k++) {
            if (!(free >> k & 1u)) {
                b[i] += (k < at[i] ? m[at[i]][k] : m[k][at[i]]) * c[k];
            }
        }
    }
    if (!by__law_solve(order, a, b)) {
        return INFINITY;
    }
    for (size_t i = 0; i < order; i++) {
        step[at[i]] = b[i];
        if (!(c[at[i]] + b[i] >= 0.0)) {
            return INFINITY;
        }
    }
    double value = 0.0;
    for (size_t k = 0; k < 3; k++) {
        value += gradient[k] * step[k];
        for (size_t l = 0; l < 3; l++) {
            value += 0.5 * (l <= k ? m[k][l] : m[l][k]) * step[k] * step[l];
        }
    }
    return value;
}

/* Finds the step of the model with the least value. Returns false if the model has none. */
static bool find_step(double step[3], double m[5][5], const double gradient[3], const double c[3])
{
    double least = INFINITY;
    /* All free first: that is the minimum wherever it is feasible. */
    for (unsigned free = 7; free > 0; free--) {
        double s[3] = {0};
        double value = model_minimum(s, free, m, gradient, c);
        if (value < least) {
            least = value;
            memcpy(step, s, sizeof s);
        }
        if (free == 7 && value < INFINITY) {
            break;
        }
    }
    return least < INFINITY;
}

/* Takes a step that descends, with as little damping as that takes. Returns false if there is
 * none. */
static bool take_step(const by__law_problem *p, double c[3], const derivatives *at, double *damping,
                      double settled)
{
    for (int i = 0; i < max_damping; i++) {
        double m[5][5];
        double step[3] = {0};
        for (size_t k = 0; k < 3; k++) {
            for (size_t l = 0; l <= k; l++) {
                m[k][l] = at->hessian[k][l] + *damping * at->damping[k][l];
            }
            m[k][k] += 1e-300;
        }
        if (find_step(step, m, at->gradient, c)) {
            double next[3] = {c[0] + step[0], c[1] + step[1], c[2] + step[2]};
            double change = 0.0;
            for (size_t k = 0; k < 3; k++) {
                change = fmax(change, fabs(step[k]) / (c[k] + next[k] + 1e-300));
            }
            if (change <= BY__LAW_SETTLED) {
                return false;
            }
            if (objective_at(p, next) <= at->objective) {
                for (size_t k = 0; k < 3; k++) {
                    c[k] = fmax(next[k], 0.0);
                }
                *damping = *damping < 1e-6 ? 0.0 : 0.1 * *damping;
                return change > settled;
            }
            if (change <= rounding) {
                return false;
            }
        }
        *damping = *damping == 0.0 ? 1e-3 : 10.0 * *damping;
    }
    return false;
}

/* The coefficients of the least squares of loss / law - 1, from which the search begins. */
static void start(const by__law_problem *p, double c[3])
{
    double m[5][5] = {{0}};
    double gradient[3] = {0};
    double zero[3] = {0};
    for (size_t i = 0; i < p->count; i++) {
        double scale = p->weight[i] * exp(-2.0 * p->y[i]);
        for (size_t k = 0; k < 3; k++) {
            gradient[k] -= scale * p->x[k][i] * exp(p->y[i]);
            for (size_t l = 0; l <= k; l++) {
                m[k][l] += scale * p->x[k][i] * p->x[l][i];
            }
        }
    }
    if (!find_step(c, m, gradient, zero)) {
        c[0] = 1.0;
        c[1] = 0.0;
        c[2] = 0.0;
    }
}

void by__law_coefficients(const by__law_problem *p, by__law_point *point, bool warm, double settled)
{
    double *c = point->coefficient;
    double damping = 0.0;
    derivatives at;
    for (size_t i = 0; i < p->count; i++) {
        p->x[1][i] = exp(-point->exponent[0] * p->n[i]);
        p->x[2][i] = exp(-point->exponent[1] * p->d[i]);
    }
    if (!warm) {
        start(p, c);
    }
    for (int i = 0; i < max_steps; i++) {
        derive(&at, p, c);
        if (!take_step(p, c, &at, &damping, settled)) {
            break;
        }
    }
    /* Of the whole objective at the best coefficients, only what depends on the exponents directly
     * has a slope. */
    point->objective = objective_at(p, c);
    point->slope[0] = point->slope[1] = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        double loss = loss_at(p, i, c);
        double r = fmin(fmax(log(loss) - p->y[i], -p->delta), p->delta);
        point->slope[0] -= p->weight[i] * r * c[1] * p->x[1][i] * p->n[i] / loss;
        point->slope[1] -= p->weight[i] * r * c[2] * p->x[2][i] * p->d[i] / loss;
    }
    point->slope[0] *= point->exponent[0];
    point->slope[1] *= point->exponent[1];
}
