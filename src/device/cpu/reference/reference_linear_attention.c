#include <math.h>
#include <string.h>

#include "device/cpu/reference/reference_heads.h"

/* f(x) = elu(x) + 1 */
static double feature(double x)
{
    return x > 0.0 ? x + 1.0 : exp(x);
}

/* What a query of token t reads of a key: the product of their features. */
static double linear_weight(const operand_view in[3], int64_t q, int64_t k, int64_t width)
{
    double sum = 0.0;
    for (int64_t d = 0; d < width; d++) {
        sum += feature(by__get(in[0].tensor, q + d)) * feature(by__get(in[1].tensor, k + d));
    }
    return sum;
}

static by_status run_linear(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = is_packed(call, call->input_count);
    problem p = measure(call, packed);
    operand_view in[3];
    make_views(in, call->in, packed, &p);
    for (int64_t i = 0; i < p.batch * p.length * p.heads; i++) {
        int64_t head = i % p.heads;
        int64_t t = i / p.heads % p.length;
        int64_t b = i / p.heads / p.length;
        int64_t kv = head / (p.heads / p.kv_heads);
        int64_t end = end_key(call, rows_of(call, &p, call->input_count, b), t);
        double total = 1e-6;
        for (int64_t d = 0; d < p.width; d++) {
            by__set(&call->out[0], i * p.width + d, 0.0);
        }
        double *sums = call->work;
        memset(sums, 0, (size_t)p.width * sizeof *sums);
        for (int64_t s = 0; s < end; s++) {
            double w = linear_weight(in, place(&in[0], &p, b, t, head), place(&in[1], &p, b, s, kv),
                                     p.width);
            total += w;
            for (int64_t d = 0; d < p.width; d++) {
                sums[d] += w * by__get(in[2].tensor, place(&in[2], &p, b, s, kv) + d);
            }
        }
        for (int64_t d = 0; d < p.width; d++) {
            by__set(&call->out[0], i * p.width + d, sums[d] / total);
        }
    }
    return BY_OK;
}

static by_status prepare_linear(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_columns(&call->in[0]), error);
}

BY__REFERENCE_KERNEL(BY_OP_LINEAR_ATTENTION, linear_attention, prepare_linear, run_linear);

static by_status prepare_linear_grad(by__device_call *call, const by__device_context *context,
                                     by_error *error)
{
    BY_UNUSED(context);
    problem p = measure(call, is_packed(call, call->input_count - 1));
    return by__reference_work(call, (2 * p.length + 2) * p.width, error);
}

/* The gradient of one query: with w its weights, d their sum plus eps and y = sum w v / d,
 *   dw[s] = dy . (v[s] - y) / d,   dv[s] += w[s] dy / d,   da += dw[s] b[s],   db[s] += dw[s] a. */
static void linear_query_grad(const by__device_call *call, const operand_view in[3],
                              const problem *p, int64_t b, int64_t t, int64_t head, double *dq,
                              double *y, double *dk, double *dv)
{
    const by__device_tensor *dy = &call->in[call->input_count - 1];
    int64_t n = p->width;
    int64_t kv = head / (p->heads / p->kv_heads);
    int64_t row = ((b * p->length + t) * p->heads + head) * n;
    int64_t q = place(&in[0], p, b, t, head);
    int64_t end = end_key(call, rows_of(call, p, call->input_count - 1, b), t);
    double total = 1e-6;
    memset(dq, 0, (size_t)n * sizeof *dq);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t s = 0; s < end; s++) {
        double w = linear_weight(in, q, place(&in[1], p, b, s, kv), n);
        total += w;
        for (int64_t d = 0; d < n; d++) {
            y[d] += w * by__get(in[2].tensor, place(&in[2], p, b, s, kv) + d);
        }
    }
    for (int64_t s = 0; s < end; s++) {
        int64_t k = place(&in[1], p, b, s, kv);
        double w = linear_weight(in, q, k, n);
        double dw = 0.0;
        for (int64_t d = 0; d < n; d++) {
            double v = by__get(in[2].tensor, place(&in[2], p, b, s, kv) + d);
            dw += by__get(dy, row + d) * (v - y[d] / total) / total;
            dv[s * n + d] += w * by__get(dy, row + d) / total;
        }
        for (int64_t d = 0; d < n; d++) {
            double a = feature(by__get(in[0].tensor, q + d));
            double key = feature(by__get(in[1].tensor, k + d));
            dq[d] += dw * key * fmin(a, 1.0);
            dk[s * n + d] += dw * a * fmin(key, 1.0);
        }
    }
}

static by_status run_linear_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = is_packed(call, call->input_count - 1);
    problem p = measure(call, packed);
    operand_view in[3];
    operand_view out[3];
    make_views(in, call->in, packed, &p);
    make_views(out, call->out, packed, &p);
    int64_t group = p.heads / p.kv_heads;
    int64_t size = p.length * p.width;
    double *dk = call->work;
    double *dv = dk + size;
    double *dq = dv + size;
    double *y = dq + p.width;
    for (int64_t pair = 0; pair < p.batch * p.kv_heads; pair++) {
        int64_t b = pair / p.kv_heads;
        int64_t kv = pair % p.kv_heads;
        memset(dk, 0, 2 * (size_t)size * sizeof(double));
        for (int64_t i = 0; i < group * p.length; i++) {
            int64_t head = kv * group + i / p.length;
            int64_t t = i % p.length;
            linear_query_grad(call, in, &p, b, t, head, dq, y, dk, dv);
            for (int64_t d = 0; d < p.width; d++) {
                by__set(out[0].tensor, place(&out[0], &p, b, t, head) + d, dq[d]);
            }
        }
        for (int64_t i = 0; i < size; i++) {
            int64_t t = i / p.width;
            int64_t d = i % p.width;
            by__set(out[1].tensor, place(&out[1], &p, b, t, kv) + d, dk[i]);
            by__set(out[2].tensor, place(&out[2], &p, b, t, kv) + d, dv[i]);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LINEAR_ATTENTION_GRAD, linear_attention_grad, prepare_linear_grad,
                     run_linear_grad);

/* ---- with sums from earlier runs ---- */

enum { SUMS = 3, POSITIONS, SESSIONS };

/* Adds the key of row t of sample b to the sums that begin at element `sums`; a first token's are
 * zeros before. */
static void add_key(const by__device_call *call, const operand_view in[3], const problem *p,
                    int64_t sums, int64_t position, const int64_t at[3])
{
    const by__device_tensor *state = &call->in[SUMS];
    int64_t columns = state->shape.dim[3];
    int64_t k = place(&in[1], p, at[0], at[1], at[2]);
    int64_t v = place(&in[2], p, at[0], at[1], at[2]);
    for (int64_t i = 0; i < p->width * columns; i++) {
        int64_t column = i % columns;
        double value = column < p->width    ? by__get(in[2].tensor, v + column)
                       : column == p->width ? 1.0
                                            : 0.0;
        double before = position == 0 ? 0.0 : by__get(state, sums + i);
        by__set(state, sums + i, before + feature(by__get(in[1].tensor, k + i / columns)) * value);
    }
}

/* What head `head` of row t of sample b reads of the sums. */
static void read_sums(const by__device_call *call, const operand_view *q, const problem *p,
                      int64_t sums, const int64_t at[3])
{
    const by__device_tensor *state = &call->in[SUMS];
    int64_t columns = state->shape.dim[3];
    int64_t query = place(q, p, at[0], at[1], at[2]);
    int64_t y = ((at[0] * p->length + at[1]) * p->heads + at[2]) * p->width;
    double *read = call->work;
    for (int64_t column = 0; column <= p->width; column++) {
        read[column] = 0.0;
        for (int64_t d = 0; d < p->width; d++) {
            read[column] += feature(by__get(q->tensor, query + d)) *
                            by__get(state, sums + d * columns + column);
        }
    }
    for (int64_t d = 0; d < p->width; d++) {
        by__set(&call->out[0], y + d, read[d] / (read[p->width] + 1e-6));
    }
}

static by_status run_carried(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    problem p = measure(call, !by__present(&call->in[1]));
    operand_view in[3];
    bool by_row = by__present(&call->in[SESSIONS]);
    int64_t group = p.heads / p.kv_heads;
    int64_t numbers = p.width * call->in[SUMS].shape.dim[3];
    make_views(in, call->in, !by__present(&call->in[1]), &p);
    for (int64_t i = 0; i < p.batch * p.length * p.kv_heads; i++) {
        int64_t kv = i % p.kv_heads;
        int64_t t = i / p.kv_heads % p.length;
        int64_t b = i / p.kv_heads / p.length;
        int64_t session = by_row ? by__id(&call->in[SESSIONS], t) : b;
        int64_t position =
            by_row ? by__id(&call->in[POSITIONS], t) : by__id(&call->in[POSITIONS], 0) + t;
        int64_t sums = (session * p.kv_heads + kv) * numbers;
        if (position >= 0) {
            add_key(call, in, &p, sums, position, (const int64_t[3]){b, t, kv});
        }
        for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
            if (position >= 0) {
                read_sums(call, &in[0], &p, sums, (const int64_t[3]){b, t, head});
            }
            for (int64_t d = 0; d < p.width && position < 0; d++) {
                by__set(&call->out[0], (t * p.heads + head) * p.width + d, 0.0);
            }
        }
    }
    return BY_OK;
}

static by_status prepare_carried(by__device_call *call, const by__device_context *context,
                                 by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, call->in[SUMS].shape.dim[3], error);
}

BY__REFERENCE_KERNEL(BY_OP_CARRIED_LINEAR_ATTENTION, carried_linear_attention, prepare_carried,
                     run_carried);
