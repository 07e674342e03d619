/* Factors an inverse for GPTQ and SparseGPT. With H = R R^T for an upper triangular R, U = R^-1 is
 * upper triangular and H^-1 = U^T U. So U is the Cholesky factor of H^-1 (Frantar et al. 2022,
 * section 3.3, step 3), obtained without computing H^-1.
 *
 * Every sum has a fixed order, whatever the number of threads. */
#include <math.h>
#include <stdlib.h>

#include "compress/compress.h"

/* Columns processed together, so that the factors of a row stay in the cache. */
#define PANEL 32
#define LANES 8

static double dot(const double *a, const double *b, int64_t count)
{
    double lanes[LANES] = {0};
    double rest = 0.0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += a[i + l] * b[i + l];
        }
    }
    for (; i < count; i++) {
        rest += a[i] * b[i];
    }
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7])) + rest;
}

/* Replaces the upper triangle of H by R. Returns false if a pivot is not positive. */
static bool factor(double *h, int64_t k, int threads)
{
    bool positive = true;
    for (int64_t end = k; end > 0 && positive; end -= PANEL) {
        int64_t begin = end > PANEL ? end - PANEL : 0;
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < end; i++) { /* subtract the contributions of the columns after the
                                               panel */
            for (int64_t j = begin > i ? begin : i; j < end; j++) {
                h[i * k + j] -= dot(h + i * k + end, h + j * k + end, k - end);
            }
        }
        for (int64_t j = end - 1; j >= begin; j--) {
            double pivot = h[j * k + j] - dot(h + j * k + j + 1, h + j * k + j + 1, end - j - 1);
            if (!(pivot > 0.0) || !isfinite(pivot)) {
                return false;
            }
            h[j * k + j] = sqrt(pivot);
            for (int64_t i = begin; i < j; i++) {
                double sum = dot(h + i * k + j + 1, h + j * k + j + 1, end - j - 1);
                h[i * k + j] = (h[i * k + j] - sum) / h[j * k + j];
            }
        }
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < begin; i++) {
            for (int64_t j = end - 1; j >= begin; j--) {
                double sum = dot(h + i * k + j + 1, h + j * k + j + 1, end - j - 1);
                h[i * k + j] = (h[i * k + j] - sum) / h[j * k + j];
            }
        }
    }
    return positive;
}

/* Computes u = R^-1, upper triangular; u must be zero before. */
static void invert(double *u, const double *r, int64_t k, int threads)
{
    int64_t panels = (k + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t p = 0; p < panels; p++) { /* panels are independent */
        int64_t begin = p * PANEL;
        int64_t end = begin + PANEL < k ? begin + PANEL : k;
        for (int64_t i = end - 1; i >= 0; i--) {
            double *row = u + i * k;
            double inverse = 1.0 / r[i * k + i];
            for (int64_t m = i + 1; m < end; m++) {
                double factor_of = r[i * k + m];
                for (int64_t j = begin; j < end; j++) {
                    row[j] -= factor_of * u[m * k + j];
                }
            }
            for (int64_t j = begin; j < end; j++) {
                row[j] *= inverse;
            }
            if (i >= begin) {
                row[i] += inverse;
            }
        }
    }
}

by_status by__compress_inverse_factor(double **out, double *h, int64_t k, double damping,
                                      int threads, by_error *error)
{
    double *u;
    double mean = 0.0;
    for (int64_t i = 0; i < k; i++) {
        mean += h[i * k + i] / (double)k;
    }
    for (int64_t i = 0; i < k; i++) {
        h[i * k + i] += damping * mean;
        if (h[i * k + i] == 0.0) {
            h[i * k + i] = 1.0; /* an input that was always zero */
        }
    }
    if (!factor(h, k, threads)) {
        return by_error_set(error, BY_EARG,
                            "the calibration data of a layer with %lld inputs has no inverse; use "
                            "more samples or a larger damp",
                            (long long)k);
    }
    BY_TRY(by__alloc((void **)&u, (size_t)(k * k), sizeof *u, "an inverse", error));
    invert(u, h, k, threads);
    *out = u;
    return BY_OK;
}
