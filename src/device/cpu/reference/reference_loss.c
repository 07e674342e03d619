#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

static double logit(const by__device_call *call, int64_t row, int64_t v)
{
    if (call->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD && call->input_count > 5 &&
        call->in[5].shape.rank > 0) {
        return by__get(&call->in[5], row * by__tensor_rows(&call->in[1]) + v);
    }
    int64_t columns = by__tensor_columns(&call->in[0]);
    double sum = 0.0;
    for (int64_t i = 0; i < columns; i++) {
        sum += by__get(&call->in[0], row * columns + i) * by__get(&call->in[1], v * columns + i);
    }
    return sum;
}

/* The weight of a row, in the last input if there are any; PART has none. */
static double weight_of(const by__device_call *call, int64_t row)
{
    int at = call->op == BY_OP_LINEAR_CROSS_ENTROPY        ? 3
             : call->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD ? 6
             : call->op == BY_OP_CROSS_ENTROPY_COMBINE     ? 2
                                                           : 4;
    return call->input_count > at ? by__get(&call->in[at], row) : 1.0;
}

static bool counts(const by__device_call *call, int64_t row)
{
    int32_t target = by__id(&call->in[2], row);
    int64_t all = call->attrs.rows > 0 ? call->attrs.rows : by__tensor_rows(&call->in[1]);
    return target >= 0 && target < all;
}

/* The target's index in w, which may be a slice of the vocabulary; -1 if it is not in it. */
static int64_t place(const by__device_call *call, int64_t row)
{
    int64_t at = by__id(&call->in[2], row) - call->attrs.begin;
    return counts(call, row) && at >= 0 && at < by__tensor_rows(&call->in[1]) ? at : -1;
}

/* Computes lse[R] of all rows, and the logit of each target if own is not NULL, 0 for none; logits
 * is scratch of V. Returns the loss. */
static double forward(const by__device_call *call, double *lse, double *own, double *logits)
{
    int64_t vocabulary = by__tensor_rows(&call->in[1]);
    double loss = 0.0;
    for (int64_t row = 0, rows = by__tensor_rows(&call->in[0]); row < rows; row++) {
        double highest = -INFINITY;
        for (int64_t v = 0; v < vocabulary; v++) {
            logits[v] = logit(call, row, v);
            highest = logits[v] > highest ? logits[v] : highest;
        }
        double sum = 0.0;
        for (int64_t v = 0; v < vocabulary; v++) {
            sum += exp(logits[v] - highest);
        }
        lse[row] = highest + log(sum);
        int64_t at = place(call, row);
        double weight = weight_of(call, row);
        loss += at >= 0 && weight != 0.0 ? weight * (lse[row] - logits[at]) : 0.0;
        if (own != NULL) {
            own[row] = at >= 0 ? logits[at] : 0.0;
        }
    }
    return loss;
}

/* d loss / d logit = (softmax - one hot) * dloss, computed where it is used and never stored. */
static double logit_grad(const by__device_call *call, const double *lse, double dloss, int64_t row,
                         int64_t v)
{
    double weight = weight_of(call, row);
    if (!counts(call, row) || weight == 0.0) {
        return 0.0;
    }
    double hot = place(call, row) == v ? 1.0 : 0.0;
    return (exp(logit(call, row, v) - lse[row]) - hot) * (weight * dloss);
}

/* sum is scratch of C. */
static void backward(const by__device_call *call, const double *lse, double dloss,
                     const by__device_tensor *dx, const by__device_tensor *dw, double *sum)
{
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *w = &call->in[1];
    int64_t columns = by__tensor_columns(x);
    int64_t rows = by__tensor_rows(x);
    int64_t vocabulary = by__tensor_rows(w);
    for (int64_t v = 0; v < vocabulary; v++) {
        memset(sum, 0, (size_t)columns * sizeof(double));
        for (int64_t row = 0; row < rows; row++) {
            double d = logit_grad(call, lse, dloss, row, v);
            for (int64_t i = 0; i < columns; i++) {
                sum[i] += d * by__get(x, row * columns + i);
            }
        }
        for (int64_t i = 0; i < columns; i++) {
            by__set(dw, v * columns + i, sum[i]);
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        memset(sum, 0, (size_t)columns * sizeof(double));
        for (int64_t v = 0; v < vocabulary; v++) {
            double d = logit_grad(call, lse, dloss, row, v);
            for (int64_t i = 0; i < columns; i++) {
                sum[i] += d * by__get(w, v * columns + i);
            }
        }
        for (int64_t i = 0; i < columns; i++) {
            by__set(dx, row * columns + i, sum[i]);
        }
    }
}

static by_status prepare_loss(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    const by__device_tensor *w = &call->in[1];
    return by__reference_work(
        call, by__tensor_rows(&call->in[0]) + by__tensor_rows(w) + by__tensor_columns(w), error);
}

static by_status run_loss(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    double *lse = call->work;
    by__set(&call->out[0], 0, forward(call, lse, NULL, lse + rows));
    for (int64_t row = 0; row < rows; row++) {
        by__set(&call->out[1], row, lse[row]);
    }
    return BY_OK;
}

static by_status prepare_part(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(
        call, 2 * by__tensor_rows(&call->in[0]) + by__tensor_rows(&call->in[1]), error);
}

static by_status run_part(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    double *parts = call->work;
    (void)forward(call, parts, parts + rows, parts + 2 * rows);
    for (int64_t i = 0; i < 2 * rows; i++) {
        by__set(&call->out[0], i, parts[i]);
    }
    int64_t vocabulary = by__tensor_rows(&call->in[1]);
    for (int64_t i = 0; call->attrs.keep && i < rows * vocabulary; i++) {
        by__set(&call->out[1], i, logit(call, i / vocabulary, i % vocabulary));
    }
    return BY_OK;
}

static by_status run_tokens(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    double *lse = call->work;
    double *own = lse + rows;
    (void)forward(call, lse, own, own + rows);
    for (int64_t row = 0; row < rows; row++) {
        by__set(&call->out[0], row, counts(call, row) ? lse[row] - own[row] : 0.0);
        by__set(&call->out[1], row, lse[row]);
    }
    return BY_OK;
}

/* The only kernel of its op: it processes a few numbers per row. */
static by_status run_combine(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *parts = &call->in[0];
    int64_t rows = by__tensor_columns(parts);
    int64_t count = by__tensor_rows(parts) / 2;
    double loss = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        double highest = by__get(parts, row);
        double sum = 0.0;
        double own = 0.0;
        for (int64_t i = 1; i < count; i++) {
            double lse = by__get(parts, 2 * i * rows + row);
            highest = lse > highest ? lse : highest;
        }
        for (int64_t i = 0; i < count; i++) {
            sum += exp(by__get(parts, 2 * i * rows + row) - highest);
            own += by__get(parts, (2 * i + 1) * rows + row);
        }
        double lse = highest + log(sum);
        int32_t target = by__id(&call->in[1], row);
        double weight = weight_of(call, row);
        bool is_target = target >= 0 && target < call->attrs.rows && weight != 0.0;
        loss += is_target ? weight * (lse - own) : 0.0;
        by__set(&call->out[1], row, lse);
    }
    by__set(&call->out[0], 0, loss);
    return BY_OK;
}

static by_status run_loss_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    double *lse = call->work;
    for (int64_t row = 0; row < rows; row++) {
        lse[row] = by__get(&call->in[3], row);
    }
    backward(call, lse, by__get(&call->in[4], 0), &call->out[0], &call->out[1], lse + rows);
    return BY_OK;
}

static by_status run_loss_train(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    double *lse = call->work;
    by__set(&call->out[0], 0, forward(call, lse, NULL, lse + rows));
    backward(call, lse, by__get(&call->in[3], 0), &call->out[1], &call->out[2], lse + rows);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY, linear_cross_entropy, prepare_loss, run_loss);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_TOKEN_LOSS, linear_token_loss, prepare_part, run_tokens);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_PART, linear_cross_entropy_part, prepare_part,
                     run_part);
BY__REFERENCE_KERNEL(BY_OP_CROSS_ENTROPY_COMBINE, cross_entropy_combine, NULL, run_combine);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad, prepare_loss,
                     run_loss_grad);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_TRAIN, linear_cross_entropy_train, prepare_loss,
                     run_loss_train);

/* ---- DICE ---- */

typedef struct dice_sizes {
    int64_t samples;
    int64_t rows; /* of a sample */
    int64_t classes;
} dice_sizes;

static dice_sizes dice_sizes_of(const by__device_tensor *logits)
{
    int64_t samples = logits->shape.dim[0];
    return (dice_sizes){samples, by__tensor_rows(logits) / samples, by__tensor_columns(logits)};
}

/* The softmax of a row in p; the target, or -1. */
static int64_t dice_row(const by__device_call *call, int64_t row, int64_t classes, double *p)
{
    double high = -INFINITY;
    double sum = 0.0;
    int64_t target = by__id(&call->in[1], row);
    for (int64_t c = 0; c < classes; c++) {
        high = fmax(high, by__get(&call->in[0], row * classes + c));
    }
    for (int64_t c = 0; c < classes; c++) {
        p[c] = exp(by__get(&call->in[0], row * classes + c) - high);
        sum += p[c];
    }
    for (int64_t c = 0; c < classes; c++) {
        p[c] /= sum;
    }
    return target < classes ? target : -1;
}

static by_status prepare_dice(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, 4 * by__tensor_columns(&call->in[0]), error);
}

static by_status run_dice(const by__device_call *call, const by__device_context *context)
{
    dice_sizes s = dice_sizes_of(&call->in[0]);
    double *p = call->work;
    double *sums = p + s.classes;
    double e = (double)call->attrs.eps;
    double loss = 0.0;
    BY_UNUSED(context);
    for (int64_t b = 0; b < s.samples; b++) {
        double count = 0.0;
        memset(sums, 0, 3 * (size_t)s.classes * sizeof *sums);
        for (int64_t row = b * s.rows; row < (b + 1) * s.rows; row++) {
            int64_t target = dice_row(call, row, s.classes, p);
            for (int64_t c = 0; c < s.classes && target >= 0; c++) {
                sums[c] += c == target ? p[c] : 0.0;
                sums[s.classes + c] += p[c];
                sums[2 * s.classes + c] += c == target ? 1.0 : 0.0;
            }
            count += target >= 0 ? 1.0 : 0.0;
        }
        for (int64_t c = 0; c < s.classes; c++) {
            double both = sums[s.classes + c] + sums[2 * s.classes + c] + e;
            loss += count / (double)s.classes * (1.0 - (2.0 * sums[c] + e) / both);
        }
        for (int64_t i = 0; i < 3 * s.classes; i++) {
            by__set(&call->out[1], b * 3 * s.classes + i, sums[i]);
        }
    }
    by__set(&call->out[0], 0, loss);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_DICE, dice, prepare_dice, run_dice);

/* With S the sum of the two last sums and n the number of targets, of a row of target t
 *   dp[c] = n / C ((2 I[c] + e) / (S[c] + e)^2 - (c = t) 2 / (S[c] + e)),
 *   dz[c] = p[c] (dp[c] - sum over k of p[k] dp[k]) */
static by_status run_dice_grad(const by__device_call *call, const by__device_context *context)
{
    dice_sizes s = dice_sizes_of(&call->in[0]);
    double *p = call->work;
    double *dp = p + s.classes;
    double e = (double)call->attrs.eps;
    BY_UNUSED(context);
    for (int64_t row = 0; row < s.samples * s.rows; row++) {
        int64_t at = row / s.rows * 3 * s.classes;
        int64_t target = dice_row(call, row, s.classes, p);
        double count = 0.0;
        double mean = 0.0;
        for (int64_t c = 0; c < s.classes; c++) {
            count += by__get(&call->in[2], at + 2 * s.classes + c);
        }
        double share = by__get(&call->in[3], 0) * count / (double)s.classes;
        for (int64_t c = 0; c < s.classes; c++) {
            double both = by__get(&call->in[2], at + s.classes + c) +
                          by__get(&call->in[2], at + 2 * s.classes + c) + e;
            dp[c] = share * (2.0 * by__get(&call->in[2], at + c) + e) / (both * both);
            dp[c] -= c == target ? 2.0 * share / both : 0.0;
            mean += p[c] * dp[c];
        }
        for (int64_t c = 0; c < s.classes; c++) {
            by__set(&call->out[0], row * s.classes + c, target < 0 ? 0.0 : p[c] * (dp[c] - mean));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_DICE_GRAD, dice_grad, prepare_dice, run_dice_grad);
