/* GPTQ (Frantar et al. 2022): rounds columns one after the other. The columns that are not rounded
 * yet are adjusted for each column's error such that the layer's outputs on the calibration data
 * change least (algorithm 1). Rows are independent, so a few are processed at a time, and the
 * columns after a block are updated only once for each block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

#define BLOCK 128
#define ROWS  16

static const by_compress_setting settings[] = {
    BY__SETTING_GROUP,
    BY__SETTING_DAMP,
    {.name = "order",
     .fallback = "activation",
     .words = "natural activation",
     .help = "activation: the inputs that are the largest first"},
    BY__SETTING_SCALE("search"),
    BY__SETTING_HEAD,
    {0}};

/* A layer with its columns in the order of rounding. */
typedef struct gptq_sweep {
    by__compress_codes *codes;
    const double *u; /* [k, k] */
    const int64_t *order;
    int64_t k;
    bool natural;
    by__compress_scale_rule rule;
} gptq_sweep;

/* Chooses the scale of the group that starts at column i, from the current weights. */
static void begin_group(const gptq_sweep *s, const double *w, int64_t row, int64_t i)
{
    float values[BLOCK];
    int64_t count = s->k - i < s->codes->coded.group ? s->k - i : s->codes->coded.group;
    for (int64_t at = 0; at < count; at++) {
        values[at] = (float)w[i + at];
    }
    (void)by__compress_codes_scale(s->codes, row, i, values, NULL, count, s->rule);
}

/* Rounds columns [begin, end) of one row; err [BLOCK] receives their errors, divided by the
 * pivots. */
static void round_block(const gptq_sweep *s, double *w, double *err, int64_t row, int64_t begin,
                        int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const double *u = s->u + i * s->k;
        int64_t place = s->order[i];
        if (s->natural && i % s->codes->coded.group == 0) {
            begin_group(s, w, row, i);
        }
        float scale = by__coded_scale(&s->codes->coded, row, place);
        double rounded = (double)by__compress_codes_set(s->codes, row, place, (float)w[i], scale);
        double off = (w[i] - rounded) / u[i];
        for (int64_t j = i + 1; j < end; j++) {
            w[j] -= off * u[j];
        }
        err[i - begin] = off;
    }
}

/* Rounds rows [first, first + count) of w [count, k], whose columns are in the order of
 * rounding. */
static void round_rows(const gptq_sweep *s, double *w, int64_t first, int64_t count)
{
    double err[ROWS][BLOCK];
    int64_t k = s->k;
    for (int64_t begin = 0; begin < k; begin += BLOCK) {
        int64_t end = begin + BLOCK < k ? begin + BLOCK : k;
        for (int64_t r = 0; r < count; r++) {
            round_block(s, w + r * k, err[r], first + r, begin, end);
        }
        for (int64_t i = begin; i < end; i++) {
            const double *u = s->u + i * k;
            for (int64_t r = 0; r < count; r++) {
                double off = err[r][i - begin];
                double *to = w + r * k;
                for (int64_t j = end; j < k; j++) {
                    to[j] -= off * u[j];
                }
            }
        }
    }
}

/* Chooses the scales of all groups beforehand, when groups are not rounded one after the other. */
static void choose_scales(by__compress_codes *codes, const float *weight,
                          by__compress_scale_rule rule, int threads)
{
    const by__coded *c = &codes->coded;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < c->n; j++) {
        for (int64_t first = 0; first < c->k; first += c->group) {
            int64_t count = c->k - first < c->group ? c->k - first : c->group;
            (void)by__compress_codes_scale(codes, j, first, weight + j * c->k + first, NULL, count,
                                           rule);
        }
    }
}

by_status by__compress_gptq_order(int64_t *order, const double *hessian, int64_t k, bool natural,
                                  by_error *error)
{
    by__compress_ranked *columns;
    BY_TRY(by__alloc((void **)&columns, (size_t)k, sizeof *columns, "columns", error));
    for (int64_t i = 0; i < k; i++) {
        columns[i] = (by__compress_ranked){natural ? 0.0 : -hessian[i * k + i], i};
    }
    qsort(columns, (size_t)k, sizeof *columns, by__compress_by_score);
    for (int64_t i = 0; i < k; i++) {
        order[i] = columns[i].index;
    }
    free(columns);
    return BY_OK;
}

by_status by__compress_gptq_factor(double **out, const double *hessian, const int64_t *order,
                                   int64_t k, double damping, int threads, by_error *error)
{
    double *h;
    BY_TRY(by__alloc((void **)&h, (size_t)(k * k), sizeof *h, "what a layer reads", error));
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) {
            h[i * k + j] = hessian[order[i] * k + order[j]];
        }
    }
    by_status status = by__compress_inverse_factor(out, h, k, damping, threads, error);
    free(h);
    return status;
}

by_status by__compress_gptq_round(by__compress_codes *codes, const float *weight, const double *u,
                                  const int64_t *order, bool natural, by__compress_scale_rule rule,
                                  int threads, by_error *error)
{
    const by__coded *c = &codes->coded;
    const gptq_sweep s = {codes, u, order, c->k, natural, rule};
    double *scratch;
    int64_t k = c->k;
    int64_t pieces = (c->n + ROWS - 1) / ROWS;
    size_t values;
    if (!by__size_mul((size_t)pieces * ROWS, (size_t)k, &values)) {
        return by_error_set(error, BY_EMEMORY, "a layer does not fit in memory");
    }
    BY_TRY(by__alloc((void **)&scratch, values, sizeof *scratch, "a layer", error));
    if (!natural) {
        choose_scales(codes, weight, rule, threads);
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t first = p * ROWS;
        int64_t count = c->n - first < ROWS ? c->n - first : ROWS;
        double *w = scratch + first * k;
        for (int64_t r = 0; r < count; r++) {
            for (int64_t i = 0; i < k; i++) {
                w[r * k + i] = (double)weight[(first + r) * k + order[i]];
            }
        }
        round_rows(&s, w, first, count);
    }
    free(scratch);
    return BY_OK;
}

/* Rounds the layers that read one value and therefore share its H. */
static by_status round_group(by__compress_state *c, by__compress_calibrated *what, void *user,
                             by_error *error)
{
    bool natural = strcmp(by__compress_setting_text(c, "order"), "natural") == 0;
    by__compress_scale_rule rule = by__compress_scale_setting(c);
    double *u = NULL;
    int64_t *order;
    BY_UNUSED(user);
    BY_TRY(by__alloc((void **)&order, (size_t)what->k, sizeof *order, "columns", error));
    by_status status = by__compress_gptq_order(order, what->hessian, what->k, natural, error);
    if (status == BY_OK) {
        status =
            by__compress_gptq_factor(&u, what->hessian, order, what->k,
                                     by__compress_setting_number(c, "damp"), c->threads, error);
    }
    for (size_t i = 0; i < what->count && status == BY_OK; i++) {
        by__compress_linear *l = what->linears[i];
        by__compress_codes codes;
        status = by__compress_codes_open_layer(&codes, c, l, error);
        if (status == BY_OK) {
            status = by__compress_gptq_round(&codes, what->weights[i], u, order, natural, rule,
                                             c->threads, error);
            status = by__compress_codes_close_layer(&codes, c, l, what->weights[i], status, error);
        }
    }
    free(u);
    free(order);
    return status;
}

const by__compress_method by__compress_method_gptq = {
    .shown = {.name = "gptq",
              .summary = "weights of 4 bits in groups, each column making up for those before it",
              .settings = settings,
              .calibrates = true},
    .run = by__compress_run_calibrated,
    .round = round_group,
    .store = by__compress_store_int4};
