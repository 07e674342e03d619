/* Methods of compression that look at data, GPTQ and AWQ, on one layer: compared with sums in
 * double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compress/compress.h"
#include "runner.h"

#define OUT  9
#define IN   70
#define ROWS 200

typedef struct layer {
    float weight[OUT * IN];
    double x[ROWS * IN]; /* what it reads */
    double hessian[IN * IN];
} layer;

static layer *make_layer(void)
{
    layer *l = calloc(1, sizeof *l);
    assert_non_null(l);
    for (int i = 0; i < OUT * IN; i++) {
        l->weight[i] = sinf(0.37f * (float)(i * i % 1009)) * 0.5f;
    }
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < IN; i++) { /* neighbours go together, and some are large */
            l->x[r * IN + i] =
                (sin(r * 1.7 + i * 0.3) + 0.4 * sin(r * 0.9 * i + i)) * (i % 11 == 0 ? 6.0 : 1.0);
        }
    }
    for (int i = 0; i < IN; i++) {
        for (int j = 0; j < IN; j++) {
            for (int r = 0; r < ROWS; r++) {
                l->hessian[i * IN + j] += l->x[r * IN + i] * l->x[r * IN + j];
            }
        }
    }
    return l;
}

/* sum over rows x of |(W - V) x|^2. */
static double output_error(const layer *l, const double *values)
{
    double sum = 0.0;
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < OUT; j++) {
            double off = 0.0;
            for (int i = 0; i < IN; i++) {
                off += ((double)l->weight[j * IN + i] - values[j * IN + i]) * l->x[r * IN + i];
            }
            sum += off * off;
        }
    }
    return sum;
}

/* The inverse of a [n, n], by Gauss and Jordan with pivots. */
static void invert(double *out, const double *a, int n)
{
    double *m = malloc((size_t)(2 * n * n) * sizeof *m);
    assert_non_null(m);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 2 * n; j++) {
            m[i * 2 * n + j] = j < n ? a[i * n + j] : i == j - n;
        }
    }
    for (int i = 0; i < n; i++) {
        int pivot = i;
        for (int r = i; r < n; r++) {
            pivot = fabs(m[r * 2 * n + i]) > fabs(m[pivot * 2 * n + i]) ? r : pivot;
        }
        for (int j = 0; j < 2 * n; j++) {
            double swap = m[i * 2 * n + j];
            m[i * 2 * n + j] = m[pivot * 2 * n + j];
            m[pivot * 2 * n + j] = swap;
        }
        double whole = m[i * 2 * n + i];
        for (int j = 0; j < 2 * n; j++) {
            m[i * 2 * n + j] /= whole;
        }
        for (int r = 0; r < n; r++) {
            double share = r == i ? 0.0 : m[r * 2 * n + i];
            for (int j = 0; j < 2 * n; j++) {
                m[r * 2 * n + j] -= share * m[i * 2 * n + j];
            }
        }
    }
    for (int i = 0; i < n; i++) {
        memcpy(out + i * n, m + i * 2 * n + n, (size_t)n * sizeof *out);
    }
    free(m);
}

/* Optimal brain quantisation (Frantar and Alistarh 2022, algorithm 3) with the columns in a fixed
 * order, which is what GPTQ computes: a column is rounded, the others move by its error times a row
 * of H^-1, and H^-1 loses the column by elimination. */
static void brain_quantise(double *out, const layer *l, const by__coded *scales,
                           const int64_t *order, double damping)
{
    double h[IN * IN];
    double start[IN * IN];
    double mean = 0.0;
    for (int i = 0; i < IN; i++) {
        mean += l->hessian[i * IN + i] / IN;
    }
    memcpy(h, l->hessian, sizeof h);
    for (int i = 0; i < IN; i++) {
        h[i * IN + i] += damping * mean;
    }
    invert(start, h, IN);
    for (int row = 0; row < OUT; row++) {
        double inverse[IN * IN];
        double w[IN];
        memcpy(inverse, start, sizeof inverse);
        for (int i = 0; i < IN; i++) {
            w[i] = (double)l->weight[row * IN + i];
        }
        for (int at = 0; at < IN; at++) {
            int q = (int)order[at];
            double scale = (double)by__coded_scale(scales, row, q);
            double code = fmin(fmax(rint(w[q] / scale), -8.0), 7.0);
            double off = (w[q] - code * scale) / inverse[q * IN + q];
            out[row * IN + q] = code * scale;
            double pivot = inverse[q * IN + q];
            double line[IN];
            memcpy(line, inverse + q * IN, sizeof line);
            for (int i = 0; i < IN; i++) {
                w[i] -= off * line[i];
                double share = line[i] / pivot;
                for (int j = 0; j < IN; j++) {
                    inverse[i * IN + j] -= share * line[j];
                }
            }
        }
    }
}

static void gptq_is_optimal_brain_quantisation(void **state)
{
    (void)state;
    layer *l = make_layer();
    double *expected = calloc(OUT * IN, sizeof *expected);
    double *nearest = calloc(OUT * IN, sizeof *nearest);
    double *got = calloc(OUT * IN, sizeof *got);
    assert_non_null(expected);
    assert_non_null(nearest);
    assert_non_null(got);
    for (int threads = 1; threads <= 2; threads++) {
        by_error error = {0};
        by__compress_codes codes;
        by__compress_codes plain;
        int64_t order[IN];
        double *u;
        check_ok(by__compress_codes_open(&codes, BY__CODE_INT4, OUT, IN, 32, &error), &error);
        check_ok(by__compress_codes_open(&plain, BY__CODE_INT4, OUT, IN, 32, &error), &error);
        check_ok(by__compress_gptq_order(order, l->hessian, IN, false, &error), &error);
        assert_int_equal(order[0] % 11, 0); /* the large ones first */
        check_ok(by__compress_gptq_factor(&u, l->hessian, order, IN, 0.01, threads, &error),
                 &error);
        check_ok(by__compress_gptq_round(&codes, l->weight, u, order, false, BY__SCALE_LARGEST,
                                         threads, &error),
                 &error);
        by__compress_codes_round(&plain, l->weight, BY__SCALE_LARGEST, 1);
        brain_quantise(expected, l, &codes.coded, order, 0.01);
        for (int i = 0; i < OUT * IN; i++) {
            got[i] = (double)by__coded_at(&codes.coded, i / IN, i % IN);
            nearest[i] = (double)by__coded_at(&plain.coded, i / IN, i % IN);
            assert_true(fabs(got[i] - expected[i]) < 1e-6);
        }
        assert_true(output_error(l, got) < 0.5 * output_error(l, nearest));
        free(u);
        by__compress_codes_close(&codes);
        by__compress_codes_close(&plain);
    }
    free(expected);
    free(nearest);
    free(got);
    free(l);
}

/* U is the Cholesky factor of the damped inverse. */
static void factors_of_inverses(void **state)
{
    by_error error = {0};
    double *u;
    double h[IN * IN];
    double inverse[IN * IN];
    layer *l = make_layer();
    (void)state;
    memcpy(h, l->hessian, sizeof h);
    h[5 * IN + 5] += 1.0;
    double mean = 0.0;
    for (int i = 0; i < IN; i++) {
        mean += h[i * IN + i] / IN;
    }
    double damped[IN * IN];
    memcpy(damped, h, sizeof h);
    for (int i = 0; i < IN; i++) {
        damped[i * IN + i] += 0.1 * mean;
    }
    invert(inverse, damped, IN);
    check_ok(by__compress_inverse_factor(&u, h, IN, 0.1, 2, &error), &error);
    for (int i = 0; i < IN; i++) {
        for (int j = 0; j < IN; j++) {
            double sum = 0.0;
            for (int m = 0; m < IN; m++) {
                sum += u[m * IN + i] * u[m * IN + j];
            }
            assert_true(fabs(sum - inverse[i * IN + j]) < 1e-10 * fabs(inverse[0]) + 1e-12);
            assert_true(j >= i || u[i * IN + j] == 0.0);
        }
    }
    free(u);
    memset(h, 0, sizeof h); /* nothing was read: every input gets 1 */
    check_ok(by__compress_inverse_factor(&u, h, IN, 0.1, 1, &error), &error);
    assert_true(u[0] == 1.0 && u[IN + 1] == 1.0 && u[1] == 0.0);
    free(u);
    h[1] = 2.0;
    h[0] = h[IN + 1] = 1.0;
    assert_int_equal(by__compress_inverse_factor(&u, h, IN, 0.0, 1, &error), BY_EARG);
    free(l);
}

/* The error that a search compares is that of the layer's results, row by row, and scales that
 * follow the inputs err less than none. */
static void awq_errors_are_those_of_results(void **state)
{
    (void)state;
    double best = INFINITY;
    double without = 0.0;
    layer *l = make_layer();
    for (int step = 0; step < 8; step++) {
        by_error error = {0};
        by__compress_codes codes;
        float factors[IN];
        double values[OUT * IN];
        double got;
        by__compress_awq_factors(factors, l->hessian, IN, step / 8.0);
        for (int i = 0; i < IN; i++) { /* s = a^alpha / sqrt(min max) */
            double ratio = pow(l->hessian[i * IN + i] / l->hessian[0], 0.5 * step / 8.0);
            assert_true(fabs((double)(factors[i] / factors[0]) - ratio) < 1e-5 * ratio);
        }
        check_ok(by__compress_codes_open(&codes, BY__CODE_INT4, OUT, IN, 32, &error), &error);
        check_ok(by__compress_awq_round(&codes, l->weight, l->hessian, factors, BY__SCALE_LARGEST,
                                        2, &error),
                 &error);
        check_ok(by__compress_awq_error(&got, l->weight, OUT, IN, 32, l->hessian, factors,
                                        BY__SCALE_LARGEST, 2, &error),
                 &error);
        for (int i = 0; i < OUT * IN; i++) {
            values[i] =
                (double)by__coded_at(&codes.coded, i / IN, i % IN) / (double)factors[i % IN];
        }
        double expected = output_error(l, values);
        assert_true(fabs(got - expected) < 1e-4 * expected);
        best = expected < best ? expected : best;
        without = step == 0 ? expected : without;
        by__compress_codes_close(&codes);
    }
    assert_true(best < without);
    free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_is_optimal_brain_quantisation),
        cmocka_unit_test(factors_of_inverses),
        cmocka_unit_test(awq_errors_are_those_of_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
