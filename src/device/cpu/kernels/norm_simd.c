/* LAYER_NORM and RMS_NORM. x [R, C] activations, w and b [C] f32; a row stays in the first-level
 * cache between the passes over it, so memory is read once. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* Rows per range: about 8192 elements. */
static int64_t row_grain(int64_t columns)
{
    return by__ceil_div(8192, columns);
}

/* Sum over the row of x - shift, or of its square. Four independent sums hide the latency of the
 * addition. */
BY__INLINE float row_sum(const void *x, int64_t at, int64_t columns, by_dtype type, float shift,
                         bool square)
{
    by__vf sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * BY__LANES <= columns; i += 4 * BY__LANES) {
        for (int k = 0; k < 4; k++) {
            by__vf v = by__kernel_load(x, at + i + k * BY__LANES, type) - shift;
            sum[k] += square ? v * v : v;
        }
    }
    for (; i + BY__LANES <= columns; i += BY__LANES) {
        by__vf v = by__kernel_load(x, at + i, type) - shift;
        sum[0] += square ? v * v : v;
    }
    float total = by__sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (i < columns) {
        int n = (int)(columns - i);
        by__vf v = by__load_n(x, at + i, type, n);
        float rest = 0.0f;
        for (int k = 0; k < n; k++) {
            float d = v[k] - shift;
            rest += square ? d * d : d;
        }
        total += rest;
    }
    return total;
}

BY__INLINE void norm(const by__device_call *call, int64_t begin, int64_t end, bool layer,
                     by_dtype type)
{
    const void *x = call->in[0].data;
    const float *w = call->in[1].data;
    const float *b = layer ? call->in[2].data : NULL;
    void *y = call->out[0].data;
    float *means = layer ? call->out[1].data : NULL;
    float *rstds = call->out[layer ? 2 : 1].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        float mean = layer ? row_sum(x, at, columns, type, 0.0f, false) / (float)columns : 0.0f;
        float variance = row_sum(x, at, columns, type, mean, true) / (float)columns;
        float rstd = 1.0f / sqrtf(variance + call->attrs.eps);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf v = (by__load_n(x, at + (i), type, n) - mean) * rstd;                               \
        v *= by__load_n(w, i, BY_F32, n);                                                          \
        if (layer) {                                                                               \
            v += by__load_n(b, i, BY_F32, n);                                                      \
        }                                                                                          \
        by__store_flushed_n(y, at + (i), v, type, n);                                              \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
        if (layer) {
            means[row] = mean;
        }
        rstds[row] = rstd;
    }
}

BY__ACT_RANGES_OF(layer_norm, norm, true)
BY__ACT_RANGES_OF(rms_norm, norm, false)

static bool supports_norm(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_norm(const by__device_call *call, const by__device_context *context)
{
    by__cpu_range_fn *const *ranges =
        call->op == BY_OP_RMS_NORM ? rms_norm_ranges : layer_norm_ranges;
    const by__device_tensor *x = &call->in[0];
    by__cpu_parallel(context, call, by__tensor_rows(x), row_grain(by__tensor_columns(x)),
                     by__tensor_count(x), ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(layer_norm) = {
    BY_OP_LAYER_NORM, BY__KERNEL_NAME("layer_norm"), supports_norm, NULL, NULL, run_norm};
BY__KERNEL(rms_norm) = {BY_OP_RMS_NORM, BY__KERNEL_NAME("rms_norm"), supports_norm, NULL, NULL,
                        run_norm};

/* ---- gradients ---- */

/* The workspace holds, for each block of rows, its sums for dw and db: [blocks][layer ? 2 : 1][C].
 */
static int64_t block_rows(int64_t rows)
{
    return rows < 8 * 64 ? 8 : by__ceil_div(rows, 64);
}

typedef struct norm_operands {
    const void *x, *dy, *add;
    const float *w, *mean, *rstd;
    void *dx;
    int64_t columns;
} norm_operands;

static norm_operands bind(const by__device_call *call, bool layer)
{
    int dy = layer ? 4 : 3;
    return (norm_operands){
        .x = call->in[0].data,
        .w = call->in[1].data,
        .mean = layer ? call->in[2].data : NULL,
        .rstd = call->in[dy - 1].data,
        .dy = call->in[dy].data,
        .add = call->input_count > dy + 1 && by__present(&call->in[dy + 1]) ? call->in[dy + 1].data
                                                                            : NULL,
        .dx = call->out[0].data,
        .columns = by__tensor_columns(&call->in[0]),
    };
}

/* With n the normalized row and g = dy w: adds dy n to dw and dy to db, returns the sums of g and g
 * n. */
BY__INLINE void row_sums(const norm_operands *o, int64_t at, float mean, float rstd, float *dw,
                         float *db, bool layer, by_dtype type, float *sum_g, float *sum_gn)
{
    by__vf g_sum = by__zero();
    by__vf gn_sum = by__zero();
    /* Lanes past the end read dy as zero and add nothing. */
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(o->dy, at + (i), type, n);                                           \
        by__vf normal = (by__load_n(o->x, at + (i), type, n) - mean) * rstd;                       \
        by__vf g = d * by__load_n(o->w, i, BY_F32, n);                                             \
        by__store_n(dw, i, by__load_n(dw, i, BY_F32, n) + d * normal, BY_F32, n);                  \
        gn_sum += g * normal;                                                                      \
        if (layer) {                                                                               \
            by__store_n(db, i, by__load_n(db, i, BY_F32, n) + d, BY_F32, n);                       \
            g_sum += g;                                                                            \
        }                                                                                          \
    } while (0)
    BY__STEPS(0, o->columns, STEP);
#undef STEP
    *sum_g = by__sum(g_sum);
    *sum_gn = by__sum(gn_sum);
}

BY__INLINE void row_dx(const norm_operands *o, int64_t at, float mean, float rstd, float mean_g,
                       float mean_gn, by_dtype type, bool added)
{
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf normal = (by__load_n(o->x, at + (i), type, n) - mean) * rstd;                       \
        by__vf g = by__load_n(o->dy, at + (i), type, n) * by__load_n(o->w, i, BY_F32, n);          \
        by__vf dx = (g - mean_g - normal * mean_gn) * rstd;                                        \
        if (added) {                                                                               \
            dx += by__load_n(o->add, at + (i), type, n);                                           \
        }                                                                                          \
        by__store_flushed_n(o->dx, at + (i), dx, type, n);                                         \
    } while (0)
    BY__STEPS(0, o->columns, STEP);
#undef STEP
}

BY__INLINE void norm_grad(const by__device_call *call, int64_t begin, int64_t end, bool layer,
                          by_dtype type)
{
    norm_operands o = bind(call, layer);
    int64_t block = begin / block_rows(by__tensor_rows(&call->in[0]));
    float *dw = (float *)call->work + block * (layer ? 2 : 1) * o.columns;
    float *db = dw + o.columns;
    memset(dw, 0, (size_t)((layer ? 2 : 1) * o.columns) * sizeof(float));
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * o.columns;
        float mean = layer ? o.mean[row] : 0.0f;
        float sum_g;
        float sum_gn;
        row_sums(&o, at, mean, o.rstd[row], dw, db, layer, type, &sum_g, &sum_gn);
        float mean_g = layer ? sum_g / (float)o.columns : 0.0f;
        float mean_gn = sum_gn / (float)o.columns;
        if (o.add != NULL) {
            row_dx(&o, at, mean, o.rstd[row], mean_g, mean_gn, type, true);
        } else {
            row_dx(&o, at, mean, o.rstd[row], mean_g, mean_gn, type, false);
        }
    }
}

BY__ACT_RANGES_OF(layer_norm_grad, norm_grad, true)
BY__ACT_RANGES_OF(rms_norm_grad, norm_grad, false)

/* Adds the blocks' sums in order, for the columns of a range. */
static void add_blocks(const by__device_call *call, int64_t begin, int64_t end)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t blocks = by__ceil_div(rows, block_rows(rows));
    int parts = call->op == BY_OP_LAYER_NORM_GRAD ? 2 : 1;
    for (int part = 0; part < parts; part++) {
        const float *partial = (const float *)call->work + part * columns;
        float *out = call->out[1 + part].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t block = 0; block < blocks; block++) {                                         \
            sum += by__load_n(partial, block * parts * columns + (i), BY_F32, n);                  \
        }                                                                                          \
        by__store_n(out, i, sum, BY_F32, n);                                                       \
    } while (0)
        BY__STEPS(begin, end, STEP);
#undef STEP
    }
}

static by_status prepare_norm_grad(by__device_call *call, const by__device_context *context,
                                   by_error *error)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    size_t parts = call->op == BY_OP_LAYER_NORM_GRAD ? 2 : 1;
    size_t blocks = (size_t)by__ceil_div(rows, block_rows(rows));
    if (!by__size_mul(blocks * parts * sizeof(float), (size_t)by__tensor_columns(&call->in[0]),
                      &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the workspace overflows", by_op_name(call->op));
    }
    return BY_OK;
}

static by_status run_norm_grad(const by__device_call *call, const by__device_context *context)
{
    by__cpu_range_fn *const *ranges =
        call->op == BY_OP_RMS_NORM_GRAD ? rms_norm_grad_ranges : layer_norm_grad_ranges;
    const by__device_tensor *x = &call->in[0];
    int64_t rows = by__tensor_rows(x);
    by__cpu_parallel(context, call, rows, block_rows(rows), by__tensor_count(x), ranges[x->dtype]);
    by__cpu_parallel(context, call, by__tensor_columns(x), 64,
                     (int64_t)(call->work_bytes / sizeof(float)), add_blocks);
    return BY_OK;
}

BY__KERNEL(layer_norm_grad) = {BY_OP_LAYER_NORM_GRAD,
                               BY__KERNEL_NAME("layer_norm_grad"),
                               supports_norm,
                               prepare_norm_grad,
                               NULL,
                               run_norm_grad};
BY__KERNEL(rms_norm_grad) = {
    BY_OP_RMS_NORM_GRAD, BY__KERNEL_NAME("rms_norm_grad"), supports_norm, prepare_norm_grad, NULL,
    run_norm_grad};
