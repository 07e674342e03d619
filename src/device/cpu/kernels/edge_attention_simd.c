/* EDGE_ATTENTION, EDGE_ATTENTION_GRAD, EDGE_SUM: f32 values of edges [B, E, H], matrices as i32
 * offsets and sources. A row is made by one thread, in the order of its entries. */
#include "device/cpu/edges.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/kernels/simd_math.h"

static by_status run_rows(const by__device_call *call, const by__device_context *context,
                          const by__cpu_edges *e, by__cpu_range_fn *fn)
{
    int64_t places = by__cpu_edges_places(e);
    int64_t heads = by__tensor_columns(&call->in[0]);
    by__cpu_parallel(context, call, places, by__ceil_div(2048, heads), 8 * places * heads, fn);
    return BY_OK;
}

static by__cpu_edges edges_of(const by__device_call *call)
{
    return by__cpu_edges_of(call, 2, 3, -1, call->in[0].shape.dim[1]);
}

BY__INLINE by__vf leaky(by__vf z, float slope)
{
    return by__select(z > 0.0f, z, z * slope);
}

/* Columns i .. i + n of the sum of source and target. */
#define SCORE(source, i, n)                                                                        \
    (by__load_n(s, (b * e->columns + (source)) * heads + (i), BY_F32, n) +                         \
     by__load_n(d, (b * e->rows + r) * heads + (i), BY_F32, n))

BY__INLINE void attend_row(const by__device_call *call, const by__cpu_edges *e, int64_t b,
                           int64_t r)
{
    const float *s = call->in[0].data;
    const float *d = call->in[1].data;
    float slope = call->attrs.value;
    int64_t heads = by__tensor_columns(&call->in[0]);
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    float *y = (float *)call->out[0].data + b * e->entries * heads;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf high = by__splat(-3.0e38f);                                                         \
        by__vf sum = by__zero();                                                                   \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t source = by__cpu_edges_source(e, b, k);                                        \
            if (source >= 0) {                                                                     \
                high = by__larger(high, leaky(SCORE(source, i, n), slope));                        \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t source = by__cpu_edges_source(e, b, k);                                        \
            by__vf p = by__zero();                                                                 \
            if (source >= 0) {                                                                     \
                p = by__exp_of_negative(leaky(SCORE(source, i, n), slope) - high);                 \
            }                                                                                      \
            sum += p;                                                                              \
            by__store_n(y, k *heads + (i), p, BY_F32, n);                                          \
        }                                                                                          \
        by__vf factor = 1.0f / sum;                                                                \
        for (int64_t k = begin; k < end; k++) {                                                    \
            if (by__cpu_edges_source(e, b, k) >= 0) {                                              \
                by__store_n(y, k *heads + (i), by__load_n(y, k * heads + (i), BY_F32, n) * factor, \
                            BY_F32, n);                                                            \
            }                                                                                      \
        }                                                                                          \
    } while (0)
    BY__STEPS(0, heads, STEP);
#undef STEP
    if (r == e->rows - 1) {
        memset(y + end * heads, 0, (size_t)((e->entries - end) * heads) * sizeof *y);
    }
}

static void attend(const by__device_call *call, int64_t begin, int64_t end)
{
    by__cpu_edges e = edges_of(call);
#define ROW(b, r) attend_row(call, &e, b, r)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

static by_status run_attention(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = edges_of(call);
    return run_rows(call, context, &e, attend);
}

BY__KERNEL(edge_attention) = {
    BY_OP_EDGE_ATTENTION, BY__KERNEL_NAME("edge_attention"), NULL, NULL, NULL, run_attention};

BY__INLINE void attend_grad_row(const by__device_call *call, const by__cpu_edges *e, int64_t b,
                                int64_t r)
{
    const float *s = call->in[0].data;
    const float *d = call->in[1].data;
    float slope = call->attrs.value;
    int64_t heads = by__tensor_columns(&call->in[0]);
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    int64_t first = b * e->entries * heads;
    const float *y = (const float *)call->in[4].data + first;
    const float *dy = (const float *)call->in[5].data + first;
    float *de = (float *)call->out[0].data + first;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf mean = by__zero();                                                                  \
        by__vf sum = by__zero();                                                                   \
        for (int64_t k = begin; k < end; k++) {                                                    \
            mean += by__load_n(y, k * heads + (i), BY_F32, n) *                                    \
                    by__load_n(dy, k * heads + (i), BY_F32, n);                                    \
        }                                                                                          \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t source = by__cpu_edges_source(e, b, k);                                        \
            by__vf g = by__zero();                                                                 \
            if (source >= 0) {                                                                     \
                g = by__load_n(y, k * heads + (i), BY_F32, n) *                                    \
                    (by__load_n(dy, k * heads + (i), BY_F32, n) - mean);                           \
                g = by__select(SCORE(source, i, n) > 0.0f, g, g * slope);                          \
            }                                                                                      \
            sum += g;                                                                              \
            by__store_n(de, k *heads + (i), g, BY_F32, n);                                         \
        }                                                                                          \
        by__store_n(call->out[1].data, (b * e->rows + r) * heads + (i), sum, BY_F32, n);           \
    } while (0)
    BY__STEPS(0, heads, STEP);
#undef STEP
    if (r == e->rows - 1) {
        memset(de + end * heads, 0, (size_t)((e->entries - end) * heads) * sizeof *de);
    }
}

static void attend_grad(const by__device_call *call, int64_t begin, int64_t end)
{
    by__cpu_edges e = edges_of(call);
#define ROW(b, r) attend_grad_row(call, &e, b, r)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

static by_status run_attention_grad(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = edges_of(call);
    return run_rows(call, context, &e, attend_grad);
}

BY__KERNEL(edge_attention_grad) = {
    BY_OP_EDGE_ATTENTION_GRAD, BY__KERNEL_NAME("edge_attention_grad"), NULL, NULL, NULL,
    run_attention_grad};

static by__cpu_edges sum_edges(const by__device_call *call)
{
    by__cpu_edges e = by__cpu_edges_of(call, 1, -1, 2, 0);
    e.entries = call->in[0].shape.dim[1];
    return e;
}

BY__INLINE void sum_row(const by__device_call *call, const by__cpu_edges *e, int64_t b, int64_t r)
{
    int64_t heads = by__tensor_columns(&call->in[0]);
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    const float *v = (const float *)call->in[0].data + b * e->entries * heads;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t edge = by__cpu_edges_number(e, b, k);                                          \
            if (edge >= 0) {                                                                       \
                sum += by__load_n(v, edge * heads + (i), BY_F32, n);                               \
            }                                                                                      \
        }                                                                                          \
        by__store_n(call->out[0].data, (b * e->rows + r) * heads + (i), sum, BY_F32, n);           \
    } while (0)
    BY__STEPS(0, heads, STEP);
#undef STEP
}

static void sum_rows(const by__device_call *call, int64_t begin, int64_t end)
{
    by__cpu_edges e = sum_edges(call);
#define ROW(b, r) sum_row(call, &e, b, r)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

static by_status run_sum(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = sum_edges(call);
    return run_rows(call, context, &e, sum_rows);
}

BY__KERNEL(edge_sum) = {BY_OP_EDGE_SUM, BY__KERNEL_NAME("edge_sum"), NULL, NULL, NULL, run_sum};
