/* Pruning: sets weights of layers to 0; the tensors keep their shapes. Methods:
 *
 *   magnitude   the smallest |w| of a layer (Han et al. 2015), without calibration data
 *   wanda       for each output, the smallest |w| ||x||, with the norm of the input over the
 *               calibration data (Sun et al. 2024, equation 1)
 *   sparsegpt   the smallest w^2 / U_jj^2, column by column; later columns compensate for what is
 *               lost (Frantar & Alistarh 2023, algorithm 1; U: inverse_factor.c)
 *
 * Each prunes a share of a layer's weights, or two of four neighbouring inputs of an output. The
 * matrix that computes the logits is not pruned. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

#define BLOCK 128 /* columns that SparseGPT chooses from together; a multiple of 4 */

#define PATTERN                                                                                    \
    {                                                                                              \
        .name = "pattern", .fallback = "any", .words = "any 2:4",                                  \
        .help = "any: the share `sparsity`; 2:4: two of four neighbouring inputs"                  \
    }
#define SPARSITY                                                                                   \
    {                                                                                              \
        .name = "sparsity", .fallback = "0.5", .least = 0.0, .most = 0.99,                         \
        .help = "share of a layer's weights that become 0"                                         \
    }

static const by_compress_setting plain_settings[] = {PATTERN, SPARSITY, {0}};
static const by_compress_setting sparsegpt_settings[] = {PATTERN, SPARSITY, BY__SETTING_DAMP, {0}};

/* ---- choosing weights ---- */

int by__compress_by_score(const void *a, const void *b)
{
    const by__compress_ranked *x = a;
    const by__compress_ranked *y = b;
    if (x->score != y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

by_status by__compress_prune_share(bool *gone, const double *scores, int64_t count, double share,
                                   by_error *error)
{
    by__compress_ranked *list;
    int64_t most = (int64_t)(share * (double)count + 0.5);
    BY_TRY(by__alloc((void **)&list, (size_t)count, sizeof *list, "scores", error));
    for (int64_t i = 0; i < count; i++) {
        list[i] = (by__compress_ranked){scores[i], i};
        gone[i] = false;
    }
    qsort(list, (size_t)count, sizeof *list, by__compress_by_score);
    for (int64_t i = 0; i < most; i++) {
        gone[list[i].index] = true;
    }
    free(list);
    return BY_OK;
}

void by__compress_prune_pairs(bool *gone, const double *scores, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        gone[i] = false;
    }
    for (int64_t i = 0; i + 4 <= count; i += 4) {
        by__compress_ranked list[4];
        for (int64_t j = 0; j < 4; j++) {
            list[j] = (by__compress_ranked){scores[i + j], i + j};
        }
        qsort(list, 4, sizeof *list, by__compress_by_score);
        gone[list[0].index] = true;
        gone[list[1].index] = true;
    }
}

/* Chooses by |w| norm: 2:4, or a share of every output; without norms (NULL), a share of the whole
 * weight. */
static by_status choose(bool *gone, const float *weight, int64_t n, int64_t k, const double *norms,
                        const by__compress_prune_rule *rule, by_error *error)
{
    double *scores;
    int64_t count = n * k;
    BY_TRY(by__alloc((void **)&scores, (size_t)count, sizeof *scores, "scores", error));
    for (int64_t i = 0; i < count; i++) {
        scores[i] = fabs((double)weight[i]) * (norms == NULL ? 1.0 : norms[i % k]);
    }
    by_status status = BY_OK;
    if (norms == NULL && !rule->pairs) {
        status = by__compress_prune_share(gone, scores, count, rule->sparsity, error);
    }
    for (int64_t j = 0; j < n && status == BY_OK && (norms != NULL || rule->pairs); j++) {
        if (rule->pairs) {
            by__compress_prune_pairs(gone + j * k, scores + j * k, k);
        } else {
            status =
                by__compress_prune_share(gone + j * k, scores + j * k, k, rule->sparsity, error);
        }
    }
    free(scores);
    return status;
}

by_status by__compress_prune_weight(float *weight, int64_t n, int64_t k, const double *norms,
                                    const by__compress_prune_rule *rule, by_error *error)
{
    bool *gone;
    BY_TRY(by__alloc((void **)&gone, (size_t)(n * k), sizeof *gone, "a layer", error));
    by_status status = choose(gone, weight, n, k, norms, rule, error);
    for (int64_t i = 0; i < n * k && status == BY_OK; i++) {
        weight[i] = gone[i] ? 0.0f : weight[i];
    }
    free(gone);
    return status;
}

/* ---- SparseGPT ---- */

/* Prunes columns [begin, end) of one output's row of k weights; `errors` has room for as many. */
static void sweep_row(double *w, bool *gone, double *errors, const double *u, int64_t k,
                      int64_t begin, int64_t end, bool pairs)
{
    for (int64_t j = begin; j < end; j++) {
        if (pairs && (j - begin) % 4 == 0) {
            double scores[4] = {0};
            int64_t count = end - j < 4 ? end - j : 4;
            for (int64_t i = 0; i < count; i++) {
                double root = w[j + i] / u[(j + i) * k + j + i];
                scores[i] = root * root;
            }
            by__compress_prune_pairs(gone + j - begin, scores, count);
        }
        double error = gone[j - begin] ? w[j] / u[j * k + j] : 0.0;
        errors[j - begin] = error;
        for (int64_t m = j + 1; m < end && error != 0.0; m++) {
            w[m] -= error * u[j * k + m];
        }
        w[j] = gone[j - begin] ? 0.0 : w[j];
    }
    for (int64_t j = begin; j < end; j++) {
        for (int64_t m = end; m < k && errors[j - begin] != 0.0; m++) {
            w[m] -= errors[j - begin] * u[j * k + m];
        }
    }
}

/* Scratch memory for pruning a weight. */
typedef struct pruning_sweep {
    double *w;      /* [n, k] */
    double *scores; /* [n, BLOCK] */
    double *errors;
    bool *gone;
} pruning_sweep;

static by_status choose_block(const pruning_sweep *s, const double *u, int64_t n, int64_t k,
                              int64_t begin, int64_t width, double sparsity, by_error *error)
{
    for (int64_t i = 0; i < n * width; i++) {
        int64_t j = begin + i % width;
        double root = s->w[i / width * k + j] / u[j * k + j];
        s->scores[i] = root * root;
    }
    return by__compress_prune_share(s->gone, s->scores, n * width, sparsity, error);
}

static by_status sweep_all(const pruning_sweep *s, const double *u, int64_t n, int64_t k,
                           const by__compress_prune_rule *rule, int threads, by_error *error)
{
    for (int64_t begin = 0; begin < k; begin += BLOCK) {
        int64_t width = k - begin < BLOCK ? k - begin : BLOCK;
        if (!rule->pairs) {
            BY_TRY(choose_block(s, u, n, k, begin, width, rule->sparsity, error));
        }
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t j = 0; j < n; j++) {
            sweep_row(s->w + j * k, s->gone + j * width, s->errors + j * width, u, k, begin,
                      begin + width, rule->pairs);
        }
    }
    return BY_OK;
}

by_status by__compress_sparsegpt_prune(float *weight, int64_t n, int64_t k, const double *u,
                                       const by__compress_prune_rule *rule, int threads,
                                       by_error *error)
{
    pruning_sweep s = {0};
    size_t count = (size_t)(n * k);
    by_status status = by__alloc((void **)&s.w, count, sizeof *s.w, "a layer", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s.scores, (size_t)n * BLOCK, sizeof *s.scores, "scores", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s.errors, (size_t)n * BLOCK, sizeof *s.errors, "errors", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s.gone, (size_t)n * BLOCK, sizeof *s.gone, "a mask", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        s.w[i] = (double)weight[i];
    }
    if (status == BY_OK) {
        status = sweep_all(&s, u, n, k, rule, threads, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        weight[i] = (float)s.w[i];
    }
    free(s.gone);
    free(s.errors);
    free(s.scores);
    free(s.w);
    return status;
}

/* ---- layers ---- */

/* Stores a weight [n, k] in place of the layer's, in the order and dtype of its tensor. */
static by_status put_weight(by__compress_state *c, const by__compress_linear *l,
                            const float *weight, by_error *error)
{
    by_tensor_view view;
    float *data;
    int64_t count = l->n * l->k;
    BY_TRY(by__weights_describe(c->weights, l->weight, &view, error));
    BY_TRY(by__alloc((void **)&data, (size_t)count, sizeof *data, "a layer", error));
    for (int64_t i = 0; i < count; i++) {
        data[i] = l->in_out ? weight[i % l->n * l->k + i / l->n] : weight[i];
    }
    by__compress_drop(c, l->weight);
    c->changed++;
    by_status status = by__compress_put_f32(c, &view, data, error);
    free(data);
    return status;
}

static by__compress_prune_rule rule_of(const by__compress_state *c)
{
    return (by__compress_prune_rule){
        .pairs = strcmp(by__compress_setting_text(c, "pattern"), "2:4") == 0,
        .sparsity = by__compress_setting_number(c, "sparsity")};
}

/* 2:4 sets half of the weights to 0, so another share contradicts it. */
static by_status check(by__compress_state *c, by_error *error)
{
    const by__compress_prune_rule rule = rule_of(c);
    return !rule.pairs || rule.sparsity == 0.5
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "%s: pattern=2:4 sets half of the weights to 0, not sparsity=%s: "
                              "leave one of the two out",
                              c->method->shown.name, by__compress_setting_text(c, "sparsity"));
}

static by_status run_magnitude(by__compress_state *c, by_error *error)
{
    const by__compress_prune_rule rule = rule_of(c);
    for (size_t i = 0; i < c->linear_count; i++) {
        by__compress_linear *l = &c->linears[i];
        float *weight;
        BY_TRY(by__compress_report(c, l->name, i, c->linear_count, error));
        if (l->head) {
            continue;
        }
        BY_TRY(
            by__alloc((void **)&weight, (size_t)(l->n * l->k), sizeof *weight, "a layer", error));
        by_status status = by__compress_linear_read(c, l, weight, error);
        if (status == BY_OK) {
            status = by__compress_prune_weight(weight, l->n, l->k, NULL, &rule, error);
        }
        if (status == BY_OK) {
            status = put_weight(c, l, weight, error);
        }
        free(weight);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status prune_by_wanda(by__compress_state *c, by__compress_calibrated *what, void *user,
                                by_error *error)
{
    const by__compress_prune_rule rule = rule_of(c);
    double *norms;
    BY_UNUSED(user);
    BY_TRY(by__alloc((void **)&norms, (size_t)what->k, sizeof *norms, "norms", error));
    for (int64_t i = 0; i < what->k; i++) {
        norms[i] = sqrt(what->hessian[i * what->k + i]);
    }
    by_status status = BY_OK;
    for (size_t i = 0; i < what->count && status == BY_OK; i++) {
        const by__compress_linear *l = what->linears[i];
        status = by__compress_prune_weight(what->weights[i], l->n, l->k, norms, &rule, error);
        if (status == BY_OK) {
            status = put_weight(c, l, what->weights[i], error);
        }
    }
    free(norms);
    return status;
}

static by_status prune_by_inverse(by__compress_state *c, by__compress_calibrated *what, void *user,
                                  by_error *error)
{
    const by__compress_prune_rule rule = rule_of(c);
    double *u;
    BY_UNUSED(user);
    BY_TRY(by__compress_inverse_factor(&u, what->hessian, what->k,
                                       by__compress_setting_number(c, "damp"), c->threads, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < what->count && status == BY_OK; i++) {
        const by__compress_linear *l = what->linears[i];
        status =
            by__compress_sparsegpt_prune(what->weights[i], l->n, l->k, u, &rule, c->threads, error);
        if (status == BY_OK) {
            status = put_weight(c, l, what->weights[i], error);
        }
    }
    free(u);
    return status;
}

static by_status run_wanda(by__compress_state *c, by_error *error)
{
    return by__compress_calibrate(c, prune_by_wanda, NULL, error);
}

static by_status run_sparsegpt(by__compress_state *c, by_error *error)
{
    return by__compress_calibrate(c, prune_by_inverse, NULL, error);
}

const by__compress_method by__compress_method_magnitude = {
    .shown = {.name = "magnitude",
              .summary = "the smallest weights become 0",
              .settings = plain_settings},
    .run = run_magnitude,
    .takes = check};
const by__compress_method by__compress_method_wanda = {
    .shown = {.name = "wanda",
              .summary = "the smallest |w| ||x|| of each output become 0",
              .settings = plain_settings,
              .calibrates = true},
    .run = run_wanda,
    .takes = check};
const by__compress_method by__compress_method_sparsegpt = {
    .shown = {.name = "sparsegpt",
              .summary = "weights become 0, and the others make up for them",
              .settings = sparsegpt_settings,
              .calibrates = true},
    .run = run_sparsegpt,
    .takes = check};
