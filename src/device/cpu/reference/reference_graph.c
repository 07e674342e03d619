#include <math.h>

#include "device/cpu/edges.h"
#include "device/cpu/reference.h"

static void clear(const by__device_tensor *tensor)
{
    for (int64_t i = 0, count = by__tensor_count(tensor); i < count; i++) {
        by__set(tensor, i, 0.0);
    }
}

static by_status run_sparse_matmul(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    by__cpu_edges e = by__cpu_edges_of(call, 1, 2, 3, x->shape.dim[1]);
    int64_t columns = by__tensor_columns(x);
    bool weighted = by__present(&call->in[4]);
    int64_t groups = weighted ? by__tensor_columns(&call->in[4]) : 1;
    for (int64_t at = 0; at < by__tensor_count(&call->out[0]); at++) {
        int64_t b = at / columns / e.rows;
        int64_t r = at / columns % e.rows;
        int64_t column = at % columns;
        double sum = 0.0;
        for (int64_t k = by__cpu_edges_begin(&e, b, r); k < by__cpu_edges_begin(&e, b, r + 1);
             k++) {
            int64_t source = by__cpu_edges_source(&e, b, k);
            int64_t edge = by__cpu_edges_number(&e, b, k);
            if (source >= 0 && (edge >= 0 || !weighted)) {
                int64_t w = (b * e.entries + edge) * groups + column / (columns / groups);
                sum += (weighted ? by__get(&call->in[4], w) : 1.0) *
                       by__get(x, (b * e.columns + source) * columns + column);
            }
        }
        by__set(&call->out[0], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SPARSE_MATMUL, sparse_matmul, NULL, run_sparse_matmul);

static by_status run_edge_dots(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *a = &call->in[0];
    by__cpu_edges e = by__cpu_edges_of(call, 2, 3, -1, call->in[1].shape.dim[1]);
    int64_t columns = by__tensor_columns(a);
    int64_t heads = call->attrs.heads;
    clear(&call->out[0]);
    for (int64_t row = 0; row < e.batch * e.rows; row++) {
        int64_t b = row / e.rows;
        int64_t r = row % e.rows;
        for (int64_t k = by__cpu_edges_begin(&e, b, r); k < by__cpu_edges_begin(&e, b, r + 1);
             k++) {
            int64_t source = by__cpu_edges_source(&e, b, k);
            for (int64_t h = 0; source >= 0 && h < heads; h++) {
                double sum = 0.0;
                for (int64_t i = columns / heads * h; i < columns / heads * (h + 1); i++) {
                    sum += by__get(a, row * columns + i) *
                           by__get(&call->in[1], (b * e.columns + source) * columns + i);
                }
                by__set(&call->out[0], (b * e.entries + k) * heads + h, sum);
            }
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EDGE_DOTS, edge_dots, NULL, run_edge_dots);

static by_status run_edge_sum(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    by__cpu_edges e = by__cpu_edges_of(call, 1, -1, 2, 0);
    int64_t heads = by__tensor_columns(&call->in[0]);
    e.entries = call->in[0].shape.dim[1];
    for (int64_t at = 0; at < by__tensor_count(&call->out[0]); at++) {
        int64_t b = at / heads / e.rows;
        int64_t r = at / heads % e.rows;
        double sum = 0.0;
        for (int64_t k = by__cpu_edges_begin(&e, b, r); k < by__cpu_edges_begin(&e, b, r + 1);
             k++) {
            int64_t edge = by__cpu_edges_number(&e, b, k);
            sum +=
                edge < 0 ? 0.0 : by__get(&call->in[0], (b * e.entries + edge) * heads + at % heads);
        }
        by__set(&call->out[0], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EDGE_SUM, edge_sum, NULL, run_edge_sum);

/* The sum s + d of entry k of a row, for one head; -inf: the entry is none. */
static double score_of(const by__device_call *call, const by__cpu_edges *e, int64_t row, int64_t k,
                       int64_t h)
{
    int64_t heads = by__tensor_columns(&call->in[0]);
    int64_t b = row / e->rows;
    int64_t source = by__cpu_edges_source(e, b, k);
    return source < 0 ? -INFINITY
                      : by__get(&call->in[0], (b * e->columns + source) * heads + h) +
                            by__get(&call->in[1], row * heads + h);
}

static double leaky(double z, double slope)
{
    return z > 0.0 || isinf(z) ? z : slope * z;
}

static by_status run_edge_attention(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    by__cpu_edges e = by__cpu_edges_of(call, 2, 3, -1, call->in[0].shape.dim[1]);
    int64_t heads = by__tensor_columns(&call->in[0]);
    double slope = (double)call->attrs.value;
    clear(&call->out[0]);
    for (int64_t at = 0; at < e.batch * e.rows * heads; at++) {
        int64_t row = at / heads;
        int64_t h = at % heads;
        int64_t b = row / e.rows;
        int64_t begin = by__cpu_edges_begin(&e, b, row % e.rows);
        int64_t end = by__cpu_edges_begin(&e, b, row % e.rows + 1);
        double high = -INFINITY;
        double sum = 0.0;
        for (int64_t k = begin; k < end; k++) {
            high = fmax(high, leaky(score_of(call, &e, row, k, h), slope));
        }
        for (int64_t k = begin; k < end && !isinf(high); k++) {
            sum += exp(leaky(score_of(call, &e, row, k, h), slope) - high);
        }
        for (int64_t k = begin; k < end && !isinf(high); k++) {
            by__set(&call->out[0], (b * e.entries + k) * heads + h,
                    exp(leaky(score_of(call, &e, row, k, h), slope) - high) / sum);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EDGE_ATTENTION, edge_attention, NULL, run_edge_attention);

static by_status run_edge_attention_grad(const by__device_call *call,
                                         const by__device_context *context)
{
    BY_UNUSED(context);
    by__cpu_edges e = by__cpu_edges_of(call, 2, 3, -1, call->in[0].shape.dim[1]);
    int64_t heads = by__tensor_columns(&call->in[0]);
    clear(&call->out[0]);
    for (int64_t at = 0; at < e.batch * e.rows * heads; at++) {
        int64_t row = at / heads;
        int64_t b = row / e.rows;
        int64_t begin = by__cpu_edges_begin(&e, b, row % e.rows);
        int64_t end = by__cpu_edges_begin(&e, b, row % e.rows + 1);
        double mean = 0.0;
        double sum = 0.0;
        for (int64_t k = begin; k < end; k++) {
            int64_t i = (b * e.entries + k) * heads + at % heads;
            mean += by__get(&call->in[4], i) * by__get(&call->in[5], i);
        }
        for (int64_t k = begin; k < end; k++) {
            int64_t i = (b * e.entries + k) * heads + at % heads;
            double z = score_of(call, &e, row, k, at % heads);
            double g = by__get(&call->in[4], i) * (by__get(&call->in[5], i) - mean);
            g = isinf(z) ? 0.0 : z > 0.0 ? g : g * (double)call->attrs.value;
            by__set(&call->out[0], i, g);
            sum += g;
        }
        by__set(&call->out[1], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EDGE_ATTENTION_GRAD, edge_attention_grad, NULL, run_edge_attention_grad);

static by_status run_sparse_max(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    by__cpu_edges e = by__cpu_edges_of(call, 1, 2, -1, x->shape.dim[1]);
    int64_t columns = by__tensor_columns(x);
    for (int64_t at = 0; at < by__tensor_count(&call->out[0]); at++) {
        int64_t b = at / columns / e.rows;
        int64_t r = at / columns % e.rows;
        int32_t best = -1;
        double high = 0.0;
        for (int64_t k = by__cpu_edges_begin(&e, b, r); k < by__cpu_edges_begin(&e, b, r + 1);
             k++) {
            int64_t source = by__cpu_edges_source(&e, b, k);
            double v =
                source < 0 ? 0.0 : by__get(x, (b * e.columns + source) * columns + at % columns);
            if (source >= 0 && (best < 0 || v > high)) {
                best = (int32_t)k;
                high = v;
            }
        }
        by__set(&call->out[0], at, high);
        ((int32_t *)call->out[1].data)[at] = best;
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SPARSE_MAX, sparse_max, NULL, run_sparse_max);

static by_status run_sparse_max_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *dy = &call->in[0];
    by__cpu_edges e = by__cpu_edges_of(call, 2, 3, 4, dy->shape.dim[1]);
    int64_t columns = by__tensor_columns(dy);
    for (int64_t at = 0; at < by__tensor_count(&call->out[0]); at++) {
        int64_t b = at / columns / e.rows;
        int64_t r = at / columns % e.rows;
        double sum = 0.0;
        for (int64_t k = by__cpu_edges_begin(&e, b, r); k < by__cpu_edges_begin(&e, b, r + 1);
             k++) {
            int64_t target = by__cpu_edges_source(&e, b, k);
            int64_t from = (b * e.columns + target) * columns + at % columns;
            if (target >= 0 && by__id(&call->in[1], from) == by__cpu_edges_number(&e, b, k)) {
                sum += by__get(dy, from);
            }
        }
        by__set(&call->out[0], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SPARSE_MAX_GRAD, sparse_max_grad, NULL, run_sparse_max_grad);
