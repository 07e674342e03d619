/* GROUP_NORM and its gradient: x [B, ..., C] activations, weights [C] and statistics [B, G] f32.
 *
 * The rows of a sample are cut into ranges by the shape. Each range sums its channels, and the sums
 * of the ranges are added in order, then those of the channels of a group. The squares are those of
 * what is left without the mean, so that a mean far from zero costs no digits. */
#include <assert.h>
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define RANGE_ELEMENTS 32768

typedef struct group_plan {
    int64_t samples;
    int64_t rows; /* of a sample */
    int64_t columns;
    int64_t groups;
    int64_t width;  /* channels of a group */
    int64_t step;   /* rows of a range */
    int64_t ranges; /* of a sample */
} group_plan;

static group_plan plan_of(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    group_plan p = {
        .samples = x->shape.dim[0], .columns = by__tensor_columns(x), .groups = call->attrs.groups};
    p.rows = by__tensor_rows(x) / p.samples;
    p.width = p.columns / p.groups;
    p.step = p.columns >= RANGE_ELEMENTS ? 1 : RANGE_ELEMENTS / p.columns;
    p.ranges = by__ceil_div(p.rows, p.step);
    return p;
}

/* The workspace: vectors of the channels of each sample, then those of each range. */
enum { MEAN, SCALE, OFFSET, SLOPE, PLAIN, SCALED, VECTORS };
enum { RANGE_PLAIN, RANGE_SCALED, RANGE_VECTORS };

static float *sample_vector(const by__device_call *call, const group_plan *p, int64_t sample,
                            int which)
{
    return (float *)call->work + (sample * VECTORS + which) * p->columns;
}

/* range: of all samples. */
static float *range_vector(const by__device_call *call, const group_plan *p, int64_t range,
                           int which)
{
    return sample_vector(call, p, p->samples, 0) + (range * RANGE_VECTORS + which) * p->columns;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    group_plan p = plan_of(call);
    size_t vectors = (size_t)(p.samples * (VECTORS + RANGE_VECTORS * p.ranges));
    BY_UNUSED(context);
    if (!by__size_mul(vectors * sizeof(float), (size_t)p.columns, &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the workspace overflows", by_op_name(call->op));
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

/* Rows [*first, *end) of x are those of range `range`. Returns its sample. */
static int64_t rows_of(const group_plan *p, int64_t range, int64_t *first, int64_t *end)
{
    assert(p->ranges > 0);
    int64_t sample = range / p->ranges;
    int64_t row = range % p->ranges * p->step;
    *first = sample * p->rows + row;
    *end = sample * p->rows + by__min_i64(p->rows, row + p->step);
    return sample;
}

/* ---- forward ---- */

/* Sums of the channels of a range, or of their squares without the mean. */
BY__INLINE void column_sums(const by__device_call *call, int64_t begin, int64_t end, bool squares,
                            by_dtype type)
{
    group_plan p = plan_of(call);
    for (int64_t range = begin; range < end; range++) {
        int64_t first;
        int64_t last;
        int64_t sample = rows_of(&p, range, &first, &last);
        const float *mean = sample_vector(call, &p, sample, MEAN);
        float *sum = range_vector(call, &p, range, RANGE_PLAIN);
        memset(sum, 0, (size_t)p.columns * sizeof *sum);
        for (int64_t row = first; row < last; row++) {
            int64_t at = row * p.columns;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf v = by__load_n(call->in[0].data, at + (i), type, n);                                \
        by__vf s = by__load_n(sum, i, BY_F32, n);                                                  \
        by__vf d = squares ? v - by__load_n(mean, i, BY_F32, n) : v;                               \
        by__store_n(sum, i, squares ? by__multiply_add(d, d, s) : s + v, BY_F32, n);               \
    } while (0)
            BY__STEPS(0, p.columns, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES_OF(column_plain, column_sums, false)
BY__ACT_RANGES_OF(column_squares, column_sums, true)

/* The sum of a vector of the ranges of a sample, over the channels of group g. */
static double group_sum(const by__device_call *call, const group_plan *p, int64_t sample, int64_t g,
                        int which)
{
    double sum = 0.0;
    for (int64_t range = sample * p->ranges; range < (sample + 1) * p->ranges; range++) {
        const float *vector = range_vector(call, p, range, which);
        for (int64_t c = g * p->width; c < (g + 1) * p->width; c++) {
            sum += (double)vector[c];
        }
    }
    return sum;
}

static void make_means(const by__device_call *call, int64_t begin, int64_t end)
{
    group_plan p = plan_of(call);
    float *means = call->out[1].data;
    for (int64_t sample = begin; sample < end; sample++) {
        float *mean = sample_vector(call, &p, sample, MEAN);
        for (int64_t g = 0; g < p.groups; g++) {
            double sum = group_sum(call, &p, sample, g, RANGE_PLAIN);
            float m = (float)(sum / ((double)p.rows * (double)p.width));
            means[sample * p.groups + g] = m;
            for (int64_t c = g * p.width; c < (g + 1) * p.width; c++) {
                mean[c] = m;
            }
        }
    }
}

static void make_scales(const by__device_call *call, int64_t begin, int64_t end)
{
    group_plan p = plan_of(call);
    const float *w = call->in[1].data;
    float *rstds = call->out[2].data;
    for (int64_t sample = begin; sample < end; sample++) {
        float *scale = sample_vector(call, &p, sample, SCALE);
        for (int64_t g = 0; g < p.groups; g++) {
            double sum = group_sum(call, &p, sample, g, RANGE_PLAIN);
            double variance = sum / ((double)p.rows * (double)p.width);
            float rstd = (float)(1.0 / sqrt(variance + (double)call->attrs.eps));
            rstds[sample * p.groups + g] = rstd;
            for (int64_t c = g * p.width; c < (g + 1) * p.width; c++) {
                scale[c] = w[c] * rstd;
            }
        }
    }
}

BY__INLINE void apply(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    group_plan p = plan_of(call);
    const float *b = call->in[2].data;
    for (int64_t range = begin; range < end; range++) {
        int64_t first;
        int64_t last;
        int64_t sample = rows_of(&p, range, &first, &last);
        const float *mean = sample_vector(call, &p, sample, MEAN);
        const float *scale = sample_vector(call, &p, sample, SCALE);
        for (int64_t row = first; row < last; row++) {
            int64_t at = row * p.columns;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf v = by__load_n(call->in[0].data, at + (i), type, n);                                \
        v -= by__load_n(mean, i, BY_F32, n);                                                       \
        v = by__multiply_add(v, by__load_n(scale, i, BY_F32, n), by__load_n(b, i, BY_F32, n));     \
        by__store_flushed_n(call->out[0].data, at + (i), v, type, n);                              \
    } while (0)
            BY__STEPS(0, p.columns, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(apply)

static by_status run(const by__device_call *call, const by__device_context *context)
{
    group_plan p = plan_of(call);
    by_dtype type = call->in[0].dtype;
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t ranges = p.samples * p.ranges;
    int64_t sums = ranges * p.columns;
    by__cpu_parallel(context, call, ranges, 1, count, column_plain_ranges[type]);
    by__cpu_parallel(context, call, p.samples, 1, sums, make_means);
    by__cpu_parallel(context, call, ranges, 1, count, column_squares_ranges[type]);
    by__cpu_parallel(context, call, p.samples, 1, sums, make_scales);
    by__cpu_parallel(context, call, ranges, 1, count, apply_ranges[type]);
    return BY_OK;
}

BY__KERNEL(group_norm) = {
    BY_OP_GROUP_NORM, BY__KERNEL_NAME("group_norm"), supports, prepare, NULL, run};

/* ---- gradient ---- */

/* The sums of dy, and of dy times x without its mean. */
BY__INLINE void grad_sums(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    group_plan p = plan_of(call);
    for (int64_t range = begin; range < end; range++) {
        int64_t first;
        int64_t last;
        int64_t sample = rows_of(&p, range, &first, &last);
        const float *mean = sample_vector(call, &p, sample, MEAN);
        float *plain = range_vector(call, &p, range, RANGE_PLAIN);
        float *scaled = range_vector(call, &p, range, RANGE_SCALED);
        memset(plain, 0, (size_t)p.columns * sizeof *plain);
        memset(scaled, 0, (size_t)p.columns * sizeof *scaled);
        for (int64_t row = first; row < last; row++) {
            int64_t at = row * p.columns;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf g = by__load_n(call->in[4].data, at + (i), type, n);                                \
        by__vf d = by__load_n(call->in[0].data, at + (i), type, n);                                \
        d -= by__load_n(mean, i, BY_F32, n);                                                       \
        by__store_n(plain, i, by__load_n(plain, i, BY_F32, n) + g, BY_F32, n);                     \
        by__store_n(scaled, i, by__multiply_add(g, d, by__load_n(scaled, i, BY_F32, n)), BY_F32,   \
                    n);                                                                            \
    } while (0)
            BY__STEPS(0, p.columns, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(grad_sums)

/* The means of the groups as vectors of channels. */
static void spread_means(const by__device_call *call, int64_t begin, int64_t end)
{
    group_plan p = plan_of(call);
    const float *means = call->in[2].data;
    for (int64_t sample = begin; sample < end; sample++) {
        float *mean = sample_vector(call, &p, sample, MEAN);
        for (int64_t c = 0; c < p.columns; c++) {
            mean[c] = means[sample * p.groups + c / p.width];
        }
    }
}

/* Adds the ranges of a sample in order, and makes of each group what its elements need: with the
 * means m1 of w dy and m2 of w dy (x - mean), dx = w rstd dy - rstd m1 - (x - mean) rstd^3 m2. */
static void make_slopes(const by__device_call *call, int64_t begin, int64_t end)
{
    group_plan p = plan_of(call);
    const float *w = call->in[1].data;
    const float *rstds = call->in[3].data;
    double count = (double)p.rows * (double)p.width;
    for (int64_t sample = begin; sample < end; sample++) {
        float *plain = sample_vector(call, &p, sample, PLAIN);
        float *scaled = sample_vector(call, &p, sample, SCALED);
        float *scale = sample_vector(call, &p, sample, SCALE);
        float *offset = sample_vector(call, &p, sample, OFFSET);
        float *slope = sample_vector(call, &p, sample, SLOPE);
        for (int64_t g = 0; g < p.groups; g++) {
            double sum = 0.0;
            double product = 0.0;
            double rstd = (double)rstds[sample * p.groups + g];
            for (int64_t c = g * p.width; c < (g + 1) * p.width; c++) {
                double one = 0.0;
                double two = 0.0;
                for (int64_t range = sample * p.ranges; range < (sample + 1) * p.ranges; range++) {
                    one += (double)range_vector(call, &p, range, RANGE_PLAIN)[c];
                    two += (double)range_vector(call, &p, range, RANGE_SCALED)[c];
                }
                plain[c] = (float)one;
                scaled[c] = (float)(two * rstd);
                sum += one * (double)w[c];
                product += two * (double)w[c];
            }
            for (int64_t c = g * p.width; c < (g + 1) * p.width; c++) {
                scale[c] = (float)((double)w[c] * rstd);
                offset[c] = (float)(rstd * sum / count);
                slope[c] = (float)(rstd * rstd * rstd * product / count);
            }
        }
    }
}

/* dw and db of a range of the channels: the sums of the samples, in order. */
static void add_samples(const by__device_call *call, int64_t begin, int64_t end)
{
    group_plan p = plan_of(call);
    float *dw = call->out[1].data;
    float *db = call->out[2].data;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0.0;
        double product = 0.0;
        for (int64_t sample = 0; sample < p.samples; sample++) {
            sum += (double)sample_vector(call, &p, sample, PLAIN)[c];
            product += (double)sample_vector(call, &p, sample, SCALED)[c];
        }
        db[c] = (float)sum;
        dw[c] = (float)product;
    }
}

BY__INLINE void make_dx(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    group_plan p = plan_of(call);
    for (int64_t range = begin; range < end; range++) {
        int64_t first;
        int64_t last;
        int64_t sample = rows_of(&p, range, &first, &last);
        const float *mean = sample_vector(call, &p, sample, MEAN);
        const float *scale = sample_vector(call, &p, sample, SCALE);
        const float *offset = sample_vector(call, &p, sample, OFFSET);
        const float *slope = sample_vector(call, &p, sample, SLOPE);
        for (int64_t row = first; row < last; row++) {
            int64_t at = row * p.columns;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf g = by__load_n(call->in[4].data, at + (i), type, n);                                \
        by__vf d = by__load_n(call->in[0].data, at + (i), type, n);                                \
        d -= by__load_n(mean, i, BY_F32, n);                                                       \
        by__vf off = by__multiply_add(d, by__load_n(slope, i, BY_F32, n),                          \
                                      by__load_n(offset, i, BY_F32, n));                           \
        g = by__multiply_add(g, by__load_n(scale, i, BY_F32, n), by__zero() - off);                \
        by__store_flushed_n(call->out[0].data, at + (i), g, type, n);                              \
    } while (0)
            BY__STEPS(0, p.columns, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(make_dx)

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    group_plan p = plan_of(call);
    by_dtype type = call->in[0].dtype;
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t ranges = p.samples * p.ranges;
    int64_t sums = ranges * p.columns;
    by__cpu_parallel(context, call, p.samples, 1, p.samples * p.columns, spread_means);
    by__cpu_parallel(context, call, ranges, 1, count, grad_sums_ranges[type]);
    by__cpu_parallel(context, call, p.samples, 1, sums, make_slopes);
    by__cpu_parallel(context, call, p.columns, 64, p.samples * p.columns, add_samples);
    by__cpu_parallel(context, call, ranges, 1, count, make_dx_ranges[type]);
    return BY_OK;
}

BY__KERNEL(group_norm_grad) = {
    BY_OP_GROUP_NORM_GRAD, BY__KERNEL_NAME("group_norm_grad"), supports, prepare, NULL, run_grad};
