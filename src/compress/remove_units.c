/* Removes units of a layer's inputs: heads, or channels of an MLP. ZipLM (Kurtic, Frantar &
 * Alistarh 2023, algorithm 1): with the inverse G of H = sum of x x^T, removing the columns S of a
 * weight W increases the squared error of the outputs by tr(W_S (G_SS)^-1 W_S^T) if the other
 * columns compensate by
 *
 *   W <- W - W_S (G_SS)^-1 G_S,    G <- G - G_,S (G_SS)^-1 G_S,
 *
 * and the unit with the lowest cost is removed first. This is used instead of first-order terms |g
 * w| because H is available anyway, one block at a time, and because it also yields the
 * compensation. If units are single inputs, a few are removed between two updates of the costs; the
 * compensation is exact nevertheless. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

#define MAX_AT_ONCE 32  /* inputs removed between two updates of the costs */
#define ROUNDS      128 /* minimum number of updates for single inputs */

typedef struct removal {
    int64_t n, k, size, units;
    int threads;
    double *w;       /* [n, k] */
    double *g;       /* [k, k] */
    double *cost;    /* [units] */
    bool *gone;      /* [units] */
    int64_t *chosen; /* inputs to remove next */
    int64_t chosen_count;
    double *factor;  /* lower L of G_SS = L L^T */
    double *factors; /* for one row, [threads, chosen] */
    double *solved;  /* (G_SS)^-1 G_S, [chosen, k] */
} removal;

/* Computes G = U^T U. */
static void square(removal *r, const double *u)
{
    int64_t k = r->k;
#pragma omp parallel for schedule(dynamic, 8) num_threads(r->threads)
    for (int64_t i = 0; i < k; i++) {
        double *row = r->g + i * k;
        for (int64_t m = 0; m <= i; m++) {
            double factor = u[m * k + i];
            for (int64_t j = m; j <= i; j++) {
                row[j] += factor * u[m * k + j];
            }
        }
    }
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = i + 1; j < k; j++) {
            r->g[i * k + j] = r->g[j * k + i];
        }
    }
}

/* Computes L of G_SS for `count` inputs. Pivots that are not positive due to rounding are replaced
 * by a very small number. */
static void factor_inputs(double *l, const removal *r, const int64_t *inputs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double sum = r->g[inputs[i] * r->k + inputs[j]];
            for (int64_t m = 0; m < j; m++) {
                sum -= l[i * count + m] * l[j * count + m];
            }
            l[i * count + j] = i == j ? sqrt(fmax(sum, 1e-30)) : sum / l[j * count + j];
        }
    }
}

/* Returns tr(W_S (G_SS)^-1 W_S^T) = sum over outputs of |L^-1 w_S|^2. `scratch` has size (size + 1)
 * numbers. */
static double cost_of_unit(const removal *r, int64_t unit, double *scratch, int64_t *inputs)
{
    int64_t s = r->size;
    double *y = scratch + s * s;
    double cost = 0.0;
    for (int64_t i = 0; i < s; i++) {
        inputs[i] = unit * s + i;
    }
    factor_inputs(scratch, r, inputs, s);
    for (int64_t o = 0; o < r->n; o++) {
        for (int64_t i = 0; i < s; i++) {
            double sum = r->w[o * r->k + inputs[i]];
            for (int64_t m = 0; m < i; m++) {
                sum -= scratch[i * s + m] * y[m];
            }
            y[i] = sum / scratch[i * s + i];
            cost += y[i] * y[i];
        }
    }
    return cost;
}

static by_status cost_of_units(removal *r, by_error *error)
{
    size_t one = (size_t)(r->size * (r->size + 1));
    double *scratch;
    int64_t *inputs;
    BY_TRY(by__alloc((void **)&scratch, one * (size_t)r->threads, sizeof *scratch, "costs", error));
    by_status status =
        by__alloc((void **)&inputs, (size_t)(r->size * r->threads), sizeof *inputs, "costs", error);
    if (status == BY_OK) {
#pragma omp parallel for schedule(static) num_threads(r->threads)
        for (int t = 0; t < r->threads; t++) {
            for (int64_t u = t; u < r->units; u += r->threads) {
                r->cost[u] = r->gone[u] ? INFINITY
                                        : cost_of_unit(r, u, scratch + one * (size_t)t,
                                                       inputs + r->size * t);
            }
        }
        free(inputs);
    }
    free(scratch);
    return status;
}

/* The same for units that are single inputs: |w_i|^2 / G_ii. */
static void cost_of_inputs(removal *r)
{
#pragma omp parallel for schedule(static) num_threads(r->threads)
    for (int t = 0; t < r->threads; t++) {
        int64_t begin = r->k * t / r->threads;
        int64_t end = r->k * (t + 1) / r->threads;
        for (int64_t i = begin; i < end; i++) {
            r->cost[i] = 0.0;
        }
        for (int64_t o = 0; o < r->n; o++) {
            for (int64_t i = begin; i < end; i++) {
                r->cost[i] += r->w[o * r->k + i] * r->w[o * r->k + i];
            }
        }
        for (int64_t i = begin; i < end; i++) {
            r->cost[i] = r->gone[i] ? INFINITY : r->cost[i] / fmax(r->g[i * r->k + i], 1e-30);
        }
    }
}

/* Chooses the cheapest units; of equal ones the first. */
static void choose(removal *r, int64_t units)
{
    r->chosen_count = 0;
    for (int64_t c = 0; c < units; c++) {
        int64_t best = -1;
        for (int64_t u = 0; u < r->units; u++) {
            if (!r->gone[u] && (best < 0 || r->cost[u] < r->cost[best])) {
                best = u;
            }
        }
        r->gone[best] = true;
        for (int64_t i = 0; i < r->size; i++) {
            r->chosen[r->chosen_count++] = best * r->size + i;
        }
    }
}

static void solve(removal *r)
{
    int64_t s = r->chosen_count;
    int64_t k = r->k;
    factor_inputs(r->factor, r, r->chosen, s);
    for (int64_t i = 0; i < s; i++) {
        memcpy(r->solved + i * k, r->g + r->chosen[i] * k, (size_t)k * sizeof *r->solved);
    }
#pragma omp parallel for schedule(static) num_threads(r->threads)
    for (int64_t j = 0; j < k; j++) {
        for (int64_t i = 0; i < s; i++) { /* L y = G_S */
            for (int64_t m = 0; m < i; m++) {
                r->solved[i * k + j] -= r->factor[i * s + m] * r->solved[m * k + j];
            }
            r->solved[i * k + j] /= r->factor[i * s + i];
        }
        for (int64_t i = s - 1; i >= 0; i--) { /* L^T x = y */
            for (int64_t m = i + 1; m < s; m++) {
                r->solved[i * k + j] -= r->factor[m * s + i] * r->solved[m * k + j];
            }
            r->solved[i * k + j] /= r->factor[i * s + i];
        }
    }
}

/* Subtracts rows_S solved from rows [count, k], and sets their columns S to 0. */
static void subtract(const removal *r, double *rows, int64_t count)
{
    int64_t s = r->chosen_count;
#pragma omp parallel for schedule(static) num_threads(r->threads)
    for (int t = 0; t < r->threads; t++) {
        double *factors = r->factors + t * s;
        for (int64_t o = count * t / r->threads; o < count * (t + 1) / r->threads; o++) {
            double *row = rows + o * r->k;
            for (int64_t i = 0; i < s; i++) {
                factors[i] = row[r->chosen[i]];
            }
            for (int64_t i = 0; i < s; i++) {
                for (int64_t j = 0; j < r->k && factors[i] != 0.0; j++) {
                    row[j] -= factors[i] * r->solved[i * r->k + j];
                }
            }
            for (int64_t i = 0; i < s; i++) {
                row[r->chosen[i]] = 0.0;
            }
        }
    }
}

static void clear(const removal *r)
{
    for (int64_t i = 0; i < r->chosen_count; i++) {
        memset(r->g + r->chosen[i] * r->k, 0, (size_t)r->k * sizeof *r->g);
        r->g[r->chosen[i] * r->k + r->chosen[i]] = 1.0;
    }
}

static by_status sweep(removal *r, int64_t count, by_error *error)
{
    int64_t together = r->size > 1 ? 1 : r->k / ROUNDS;
    together = together < 1 ? 1 : together > MAX_AT_ONCE ? MAX_AT_ONCE : together;
    while (count > 0) {
        int64_t now = count < together ? count : together;
        if (r->size > 1) {
            BY_TRY(cost_of_units(r, error));
        } else {
            cost_of_inputs(r);
        }
        choose(r, now);
        solve(r);
        subtract(r, r->w, r->n);
        subtract(r, r->g, r->k);
        clear(r);
        count -= now;
    }
    return BY_OK;
}

static by_status open_removal(removal *r, by_error *error)
{
    size_t k = (size_t)r->k;
    size_t most = (size_t)(r->size > MAX_AT_ONCE ? r->size : MAX_AT_ONCE);
    BY_TRY(by__alloc((void **)&r->w, (size_t)r->n * k, sizeof *r->w, "a layer", error));
    BY_TRY(by__alloc((void **)&r->g, k * k, sizeof *r->g, "an inverse", error));
    BY_TRY(by__alloc((void **)&r->cost, (size_t)r->units, sizeof *r->cost, "costs", error));
    BY_TRY(by__alloc((void **)&r->chosen, most, sizeof *r->chosen, "inputs", error));
    BY_TRY(by__alloc((void **)&r->factor, most * most, sizeof *r->factor, "a factor", error));
    BY_TRY(by__alloc((void **)&r->factors, most * (size_t)r->threads, sizeof *r->factors,
                     "a factor", error));
    return by__alloc((void **)&r->solved, most * k, sizeof *r->solved, "a solution", error);
}

by_status by__compress_remove_units(float *weight, bool *gone, int64_t n, int64_t k, int64_t size,
                                    int64_t count, const double *u, int threads, by_error *error)
{
    removal r = {.n = n, .k = k, .size = size, .units = k / size, .threads = threads, .gone = gone};
    by_status status = open_removal(&r, error);
    if (status == BY_OK) {
        for (int64_t i = 0; i < n * k; i++) {
            r.w[i] = (double)weight[i];
        }
        memset(gone, 0, (size_t)r.units * sizeof *gone);
        square(&r, u);
        status = sweep(&r, count, error);
    }
    for (int64_t i = 0; i < n * k && status == BY_OK; i++) {
        weight[i] = (float)r.w[i];
    }
    free(r.w);
    free(r.g);
    free(r.cost);
    free(r.chosen);
    free(r.factor);
    free(r.factors);
    free(r.solved);
    return status;
}
