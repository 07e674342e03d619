/* AWQ (Lin et al. 2024): inputs that are large in the calibration data need more exact weights.
 * Input i of a layer is divided by s_i, in the norm that makes it, and its weights are multiplied
 * by s_i before they are rounded. s_i = a_i^alpha with the root mean square a_i of the input; alpha
 * is chosen from a grid to minimise the change of the layers' outputs. For layers without a
 * preceding norm, only the scales are searched, weighted by the importance of their inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

/* Maximum number of a layer's outputs, evenly spread, that a choice is measured on. */
#define MEASURED 256

static const by_compress_setting settings[] = {
    BY__SETTING_GROUP,
    {.name = "steps",
     .fallback = "20",
     .least = 1,
     .most = 100,
     .whole = true,
     .help = "values of alpha from 0 to 1 that are tried"},
    BY__SETTING_SCALE("search"),
    BY__SETTING_HEAD,
    {0}};

void by__compress_awq_factors(float *out, const double *hessian, int64_t k, double alpha)
{
    double least = INFINITY;
    double most = 0.0;
    for (int64_t i = 0; i < k; i++) {
        double size = hessian[i * k + i] > 0.0 ? pow(hessian[i * k + i], 0.5 * alpha) : 1.0;
        out[i] = (float)size;
        least = size < least ? size : least;
        most = size > most ? size : most;
    }
    double middle = sqrt(least * most); /* keeps scales near their original size */
    for (int64_t i = 0; i < k; i++) {
        out[i] = (float)fmin(fmax((double)out[i] / middle, 1e-4), 1e4);
    }
}

/* Returns the sum over rows x of (d x)^2, for a row d of errors. */
static double weigh(const double *hessian, const float *d, int64_t k)
{
    double sum = 0.0;
    for (int64_t i = 0; i < k; i++) {
        double part = 0.0;
        const double *row = hessian + i * k;
        if (d[i] == 0.0f) {
            continue;
        }
        for (int64_t j = 0; j < k; j++) {
            part += row[j] * (double)d[j];
        }
        sum += part * (double)d[i];
    }
    return sum;
}

/* Computes the importance of each input's weights for a layer whose inputs are divided by the
 * factors. */
static void weights_of_inputs(float *out, const double *hessian, const float *factors, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        double factor = factors == NULL ? 1.0 : (double)factors[i];
        out[i] = (float)(hessian[i * k + i] / (factor * factor));
    }
}

/* Encodes an output from its weights times the factors. `scratch` has room for 2 k. */
static void round_row(by__compress_codes *codes, int64_t j, const float *weight,
                      const float *factors, const float *importance, by__compress_scale_rule rule,
                      float *scratch)
{
    const by__coded *c = &codes->coded;
    for (int64_t i = 0; i < c->k; i++) {
        scratch[i] = weight[i] * (factors == NULL ? 1.0f : factors[i]);
    }
    for (int64_t first = 0; first < c->k; first += c->group) {
        int64_t count = c->k - first < c->group ? c->k - first : c->group;
        float scale = by__compress_codes_scale(codes, j, first, scratch + first, importance + first,
                                               count, rule);
        for (int64_t i = 0; i < count; i++) {
            (void)by__compress_codes_set(codes, j, first + i, scratch[first + i], scale);
        }
    }
}

by_status by__compress_awq_round(by__compress_codes *codes, const float *weight,
                                 const double *hessian, const float *factors,
                                 by__compress_scale_rule rule, int threads, by_error *error)
{
    const by__coded *c = &codes->coded;
    float *scratch;
    BY_TRY(by__alloc((void **)&scratch, (size_t)c->k * (size_t)(c->n + 1), sizeof *scratch,
                     "a layer", error));
    float *importance = scratch + c->n * c->k;
    weights_of_inputs(importance, hessian, factors, c->k);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < c->n; j++) {
        round_row(codes, j, weight + j * c->k, factors, importance, rule, scratch + j * c->k);
    }
    free(scratch);
    return BY_OK;
}

by_status by__compress_awq_error(double *out, const float *weight, int64_t n, int64_t k,
                                 int64_t group, const double *hessian, const float *factors,
                                 by__compress_scale_rule rule, int threads, by_error *error)
{
    int64_t rows = n < MEASURED ? n : MEASURED;
    float *chosen;
    double *errors = NULL;
    by__compress_codes codes = {0};
    BY_TRY(by__alloc((void **)&chosen, (size_t)(rows * k), sizeof *chosen, "a layer", error));
    for (int64_t r = 0; r < rows; r++) {
        memcpy(chosen + r * k, weight + r * n / rows * k, (size_t)k * sizeof *chosen);
    }
    by_status status = by__alloc((void **)&errors, (size_t)rows, sizeof *errors, "errors", error);
    if (status == BY_OK) {
        status = by__compress_codes_open(&codes, BY__CODE_INT4, rows, k, group, error);
    }
    if (status == BY_OK) {
        status = by__compress_awq_round(&codes, chosen, hessian, factors, rule, threads, error);
    }
    if (status == BY_OK) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t r = 0; r < rows; r++) {
            float *d = chosen + r * k;
            for (int64_t i = 0; i < k; i++) {
                d[i] -= by__coded_at(&codes.coded, r, i) / (factors == NULL ? 1.0f : factors[i]);
            }
            errors[r] = weigh(hessian, d, k);
        }
        *out = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            *out += errors[r] * (double)n / (double)rows;
        }
    }
    by__compress_codes_close(&codes);
    free(errors);
    free(chosen);
    return status;
}

/* Finds the factors with the least error over all layers of the group. */
static by_status search(float *best, const by__compress_state *c,
                        const by__compress_calibrated *what, by__compress_scale_rule rule,
                        by_error *error)
{
    int steps = (int)by__compress_setting_number(c, "steps");
    double least = INFINITY;
    float *factors;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&factors, (size_t)what->k, sizeof *factors, "factors", error));
    for (int step = 0; step < steps && status == BY_OK; step++) {
        double sum = 0.0;
        by__compress_awq_factors(factors, what->hessian, what->k, (double)step / steps);
        for (size_t i = 0; i < what->count && status == BY_OK; i++) {
            double one = 0.0;
            status = by__compress_awq_error(&one, what->weights[i], what->linears[i]->n, what->k,
                                            by__compress_group_setting(c), what->hessian, factors,
                                            rule, c->threads, error);
            sum += one;
        }
        if (sum < least) {
            least = sum;
            memcpy(best, factors, (size_t)what->k * sizeof *best);
        }
    }
    free(factors);
    if (status == BY_OK && !isfinite(least)) {
        return by_error_set(error, BY_EARG, "the weights of '%s' or its inputs are not finite",
                            what->linears[0]->name);
    }
    return status;
}

/* Divides the weights of the norm by the factors. */
static by_status divide_gains(by__compress_state *c, const by__compress_calibrated *what,
                              const float *factors, by_error *error)
{
    float *values;
    BY_TRY(by__alloc((void **)&values, (size_t)what->k, sizeof *values, "a norm", error));
    by_status status = BY_OK;
    for (size_t g = 0; g < what->gain_count && status == BY_OK; g++) {
        by_tensor_view view;
        status = by__weights_describe(c->weights, what->gains[g], &view, error);
        if (status == BY_OK) {
            by_tensor_slice whole = by_tensor_whole(&view);
            status = by_weights_read_f32(c->weights, what->gains[g], &whole, values,
                                         (size_t)what->k, error);
        }
        for (int64_t i = 0; i < what->k; i++) {
            values[i] /= factors[i];
        }
        if (status == BY_OK) {
            by__compress_drop(c, what->gains[g]);
            status = by__compress_put_tensor(c, what->gains[g], BY_F32, 1, &what->k, values, error);
        }
    }
    free(values);
    return status;
}

static by_status round_layer(by__compress_state *c, by__compress_calibrated *what, size_t i,
                             const float *factors, by__compress_scale_rule rule, by_error *error)
{
    by__compress_linear *l = what->linears[i];
    by__compress_codes codes;
    BY_TRY(by__compress_codes_open_layer(&codes, c, l, error));
    by_status status = by__compress_awq_round(&codes, what->weights[i], what->hessian, factors,
                                              rule, c->threads, error);
    status = by__compress_codes_close_layer(&codes, c, l, what->weights[i], status, error);
    for (int64_t at = 0; at < l->n * l->k && factors != NULL && status == BY_OK; at++) {
        what->weights[i][at] /= factors[at % l->k];
    }
    return status;
}

static by_status round_group(by__compress_state *c, by__compress_calibrated *what, void *user,
                             by_error *error)
{
    by__compress_scale_rule rule = by__compress_scale_setting(c);
    float *factors = NULL;
    by_status status = BY_OK;
    BY_UNUSED(user);
    if (what->gain_count > 0) {
        BY_TRY(by__alloc((void **)&factors, (size_t)what->k, sizeof *factors, "factors", error));
        status = search(factors, c, what, rule, error);
        if (status == BY_OK) {
            status = divide_gains(c, what, factors, error);
        }
    }
    for (size_t i = 0; i < what->count && status == BY_OK; i++) {
        status = round_layer(c, what, i, factors, rule, error);
    }
    free(factors);
    return status;
}

const by__compress_method by__compress_method_awq = {
    .shown = {.name = "awq",
              .summary = "weights of 4 bits in groups, scaled by what they are multiplied with",
              .settings = settings,
              .calibrates = true},
    .run = by__compress_run_calibrated,
    .round = round_group,
    .store = by__compress_store_int4};
