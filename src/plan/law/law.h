/* law: scaling laws fitted to runs.
 *
 * Types: a by__law_problem is what a fit minimises, in scaled numbers; a by__law_point is a place
 * in it. Files: law_coefficients.c solves for E, A and B with exponents given; law_exponents.c
 * searches the exponents; law_fit.c is the fit of a list of runs, with its draws; law_budget.c is
 * what a budget buys, law_constrained.c the same with few tokens or with those of inference;
 * law_isoflop.c fits parabolas; law_runs.c reads runs.
 *
 * Numbers are scaled so that all are near 1: N and D by their geometric means, so that A and B are
 * the losses of a finite model and of finite data at a typical run.
 */
#ifndef BY_PLAN_LAW_LAW_H
#define BY_PLAN_LAW_LAW_H

#include "banyan/plan.h"
#include "base/base.h"

typedef struct by__law_problem {
    size_t count;
    double *n;      /* [count] log N, less its mean */
    double *d;      /* [count] log D, less its mean */
    double *y;      /* [count] log loss */
    double *weight; /* [count] of the run in the objective: 1, or 0 for one that is left out */
    double *x[3];   /* [count] of a place: 1, exp(-alpha n), exp(-beta d) */
    double n_mean;
    double d_mean;
    double delta;
} by__law_problem;

typedef struct by__law_point {
    double exponent[2];    /* alpha, beta */
    double coefficient[3]; /* E, and A and B at the mean of log N and of log D */
    double objective;
    double slope[2]; /* of the objective along the logarithms of the exponents */
} by__law_point;

/* Allocates a problem of `count` runs, all of weight 1. Freed with by__law_problem_free. */
by_status by__law_problem_make(by__law_problem *p, const by_law_run *runs, size_t count,
                               const by_law_options *options, by_error *error);
void by__law_problem_free(by__law_problem *p);

/* Huber's function of a residual. */
static inline double by__law_huber(double r, double delta)
{
    double size = r < 0.0 ? -r : r;
    return size <= delta ? 0.5 * r * r : delta * (size - 0.5 * delta);
}

/* Finds the coefficients for the exponents of a point, its objective and slopes, by steps down to
 * those that change a coefficient by a share `settled`. `warm`: from the coefficients that it has;
 * they are replaced otherwise. */
void by__law_coefficients(const by__law_problem *p, by__law_point *point, bool warm,
                          double settled);
#define BY__LAW_SETTLED 1e-13
/* Descends from a point to where the objective has no slope. */
void by__law_descend(const by__law_problem *p, by__law_point *point);
/* Finds the best point from a grid of exponents. */
void by__law_search(const by__law_problem *p, by__law_point *best);
/* The law of a point, and the point of a law. */
by_law by__law_of_point(const by__law_problem *p, const by__law_point *point);
void by__law_point_of(by__law_point *point, const by__law_problem *p, const by_law *law);

/* Solves a symmetric system of order <= 5 in place by Cholesky's method: b becomes the solution.
 * Returns false unless a is positive definite. */
bool by__law_solve(size_t order, double a[5][5], double b[5]);

#endif
