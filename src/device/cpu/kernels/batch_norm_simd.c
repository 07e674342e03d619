/* BATCH_NORM, its gradient, and AFFINE. x [R, C] activations, all vectors [C] f32.
 *
 * Memory is read twice: for the sums of each channel, and for the result. The rows are cut into
 * ranges by the shape, and the sums of the ranges are added in order. Means and variances are those
 * of blocks that stay in the first-level cache, merged one after another (Chan, Golub and LeVeque
 * 1979), so that a mean far from zero costs no digits. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define BLOCK_ELEMENTS 8192
#define MOST_RANGES    64

static int64_t range_rows(int64_t rows)
{
    return rows < 8 * MOST_RANGES ? 8 : by__ceil_div(rows, MOST_RANGES);
}

static int64_t range_count(int64_t rows)
{
    return by__ceil_div(rows, range_rows(rows));
}

static int64_t block_rows(int64_t columns)
{
    return columns >= BLOCK_ELEMENTS / 8 ? 8 : BLOCK_ELEMENTS / columns;
}

/* The workspace of both: the vectors that the second pass reads, then those of each range. */
enum { SCALE, OFFSET, SLOPE, VECTORS };
enum { RANGE_MEAN, RANGE_SQUARES, BLOCK_MEAN, BLOCK_SQUARES, RANGE_VECTORS };

static float *shared_vector(const by__device_call *call, int which)
{
    return (float *)call->work + which * by__tensor_columns(&call->in[0]);
}

static float *range_vector(const by__device_call *call, int64_t range, int which)
{
    return shared_vector(call, VECTORS) +
           (range * RANGE_VECTORS + which) * by__tensor_columns(&call->in[0]);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    size_t vectors = (size_t)(VECTORS + RANGE_VECTORS * range_count(by__tensor_rows(&call->in[0])));
    if (!by__size_mul(vectors * sizeof(float), (size_t)by__tensor_columns(&call->in[0]),
                      &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the workspace overflows", by_op_name(call->op));
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

/* Four rows at a time save three of four loads and stores of the sums. */
#define FOUR_ROWS(begin, end, columns, four, one)                                                  \
    do {                                                                                           \
        int64_t row = (begin);                                                                     \
        for (; row + 4 <= (end); row += 4) {                                                       \
            int64_t at = row * (columns);                                                          \
            BY__STEPS(0, columns, four);                                                           \
        }                                                                                          \
        for (; row < (end); row++) {                                                               \
            int64_t at = row * (columns);                                                          \
            BY__STEPS(0, columns, one);                                                            \
        }                                                                                          \
    } while (0)

/* For FOUR_ROWS: PUT of four rows and of one, with what VECTORS_AT loads once for all of them; both
 * are defined where they are used. */
#define PUT_FOUR(i, n)                                                                             \
    do {                                                                                           \
        VECTORS_AT(i, n);                                                                          \
        PUT(0, i, n);                                                                              \
        PUT(1, i, n);                                                                              \
        PUT(2, i, n);                                                                              \
        PUT(3, i, n);                                                                              \
    } while (0)
#define PUT_ONE(i, n)                                                                              \
    do {                                                                                           \
        VECTORS_AT(i, n);                                                                          \
        PUT(0, i, n);                                                                              \
    } while (0)

/* ---- forward ---- */

/* Means of a block of rows, and sums of the squares of what is left. */
BY__INLINE void block_moments(const void *x, int64_t begin, int64_t end, int64_t columns,
                              float *mean, float *squares, by_dtype type)
{
    float share = 1.0f / (float)(end - begin);
    memset(mean, 0, (size_t)columns * sizeof *mean);
    memset(squares, 0, (size_t)columns * sizeof *squares);
#define AT(k, i, n) by__load_n(x, at + (k)*columns + (i), type, n)
#define FOUR(i, n)                                                                                 \
    by__store_n(mean, i,                                                                           \
                by__load_n(mean, i, BY_F32, n) +                                                   \
                    ((AT(0, i, n) + AT(1, i, n)) + (AT(2, i, n) + AT(3, i, n))),                   \
                BY_F32, n)
#define ONE(i, n) by__store_n(mean, i, by__load_n(mean, i, BY_F32, n) + AT(0, i, n), BY_F32, n)
    FOUR_ROWS(begin, end, columns, FOUR, ONE);
#undef FOUR
#undef ONE
#define STEP(i, n) by__store_n(mean, i, by__load_n(mean, i, BY_F32, n) * share, BY_F32, n)
    BY__STEPS(0, columns, STEP);
#undef STEP
#define FOUR(i, n)                                                                                 \
    do {                                                                                           \
        by__vf m = by__load_n(mean, i, BY_F32, n);                                                 \
        by__vf d0 = AT(0, i, n) - m;                                                               \
        by__vf d1 = AT(1, i, n) - m;                                                               \
        by__vf d2 = AT(2, i, n) - m;                                                               \
        by__vf d3 = AT(3, i, n) - m;                                                               \
        by__vf sum = by__load_n(squares, i, BY_F32, n);                                            \
        by__store_n(squares, i, sum + ((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)), BY_F32, n);     \
    } while (0)
#define ONE(i, n)                                                                                  \
    do {                                                                                           \
        by__vf d = AT(0, i, n) - by__load_n(mean, i, BY_F32, n);                                   \
        by__store_n(squares, i, by__load_n(squares, i, BY_F32, n) + d * d, BY_F32, n);             \
    } while (0)
    FOUR_ROWS(begin, end, columns, FOUR, ONE);
#undef FOUR
#undef ONE
#undef AT
}

/* Merges the moments of `more` rows into those of `rows` rows, for columns [begin, end). */
static void merge(float *mean, float *squares, int64_t rows, const float *other_mean,
                  const float *other_squares, int64_t more, int64_t begin, int64_t end)
{
    float share = (float)((double)more / (double)(rows + more));
    float between = (float)((double)rows * (double)more / (double)(rows + more));
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf m = by__load_n(mean, i, BY_F32, n);                                                 \
        by__vf d = by__load_n(other_mean, i, BY_F32, n) - m;                                       \
        by__vf sum = by__load_n(squares, i, BY_F32, n);                                            \
        sum += by__load_n(other_squares, i, BY_F32, n) + d * d * between;                          \
        by__store_n(mean, i, m + d * share, BY_F32, n);                                            \
        by__store_n(squares, i, sum, BY_F32, n);                                                   \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__INLINE void range_moments(const by__device_call *call, int64_t begin, int64_t end,
                              by_dtype type)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t range = begin / range_rows(by__tensor_rows(&call->in[0]));
    int64_t step = block_rows(columns);
    float *mean = range_vector(call, range, RANGE_MEAN);
    float *squares = range_vector(call, range, RANGE_SQUARES);
    float *next_mean = range_vector(call, range, BLOCK_MEAN);
    float *next_squares = range_vector(call, range, BLOCK_SQUARES);
    int64_t last = by__min_i64(end, begin + step);
    block_moments(call->in[0].data, begin, last, columns, mean, squares, type);
    for (int64_t row = last; row < end; row = last) {
        last = by__min_i64(end, row + step);
        block_moments(call->in[0].data, row, last, columns, next_mean, next_squares, type);
        merge(mean, squares, row - begin, next_mean, next_squares, last - row, 0, columns);
    }
}

BY__ACT_RANGES(range_moments)

/* Merges the ranges, for the columns of a range. */
static void merge_ranges(const by__device_call *call, int64_t begin, int64_t end)
{
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t step = range_rows(rows);
    const float *w = call->in[1].data;
    float *mean = call->out[1].data;
    float *variance = call->out[2].data;
    float *scale = shared_vector(call, SCALE);
    size_t bytes = (size_t)(end - begin) * sizeof(float);
    memcpy(mean + begin, range_vector(call, 0, RANGE_MEAN) + begin, bytes);
    memcpy(variance + begin, range_vector(call, 0, RANGE_SQUARES) + begin, bytes);
    for (int64_t row = step; row < rows; row += step) {
        int64_t range = row / step;
        merge(mean, variance, row, range_vector(call, range, RANGE_MEAN),
              range_vector(call, range, RANGE_SQUARES), by__min_i64(step, rows - row), begin, end);
    }
    for (int64_t i = begin; i < end; i++) {
        variance[i] /= (float)rows;
        scale[i] = w[i] / sqrtf(variance[i] + call->attrs.eps);
    }
}

/* The second pass, and all of AFFINE: (x - mean) scale + shift + add, rectified. */
typedef struct apply_operands {
    const void *x, *add;
    const float *mean, *scale, *shift;
    void *y;
    float least;
    float most;
    int64_t columns;
} apply_operands;

static apply_operands bind_apply(const by__device_call *call)
{
    bool added = call->input_count > 3 && by__present(&call->in[3]);
    bool norm = call->op == BY_OP_BATCH_NORM;
    return (apply_operands){.x = call->in[0].data,
                            .add = added ? call->in[3].data : NULL,
                            .mean = norm ? call->out[1].data : NULL,
                            .scale = norm ? shared_vector(call, SCALE) : call->in[1].data,
                            .shift = call->in[2].data,
                            .y = call->out[0].data,
                            .least = call->attrs.rectify ? 0.0f : -INFINITY,
                            .most = call->attrs.clip > 0.0f ? call->attrs.clip : INFINITY,
                            .columns = by__tensor_columns(&call->in[0])};
}

BY__INLINE void apply_rows(const apply_operands *o, int64_t begin, int64_t end, bool norm,
                           bool added, by_dtype type)
{
#define PUT(k, i, n)                                                                               \
    do {                                                                                           \
        int64_t place = at + (k)*o->columns + (i);                                                 \
        by__vf v = by__load_n(o->x, place, type, n);                                               \
        v = by__multiply_add(norm ? v - m : v, s, b);                                              \
        if (added) {                                                                               \
            v += by__load_n(o->add, place, type, n);                                               \
        }                                                                                          \
        v = by__at_most(o->most, by__at_least(o->least, v));                                       \
        by__store_flushed_n(o->y, place, v, type, n);                                              \
    } while (0)
#define VECTORS_AT(i, n)                                                                           \
    by__vf m = norm ? by__load_n(o->mean, i, BY_F32, n) : by__zero();                              \
    by__vf s = by__load_n(o->scale, i, BY_F32, n);                                                 \
    by__vf b = by__load_n(o->shift, i, BY_F32, n)
    FOUR_ROWS(begin, end, o->columns, PUT_FOUR, PUT_ONE);
#undef VECTORS_AT
#undef PUT
}

BY__INLINE void apply(const by__device_call *call, int64_t begin, int64_t end, bool norm,
                      by_dtype type)
{
    apply_operands o = bind_apply(call);
    if (o.add != NULL) {
        apply_rows(&o, begin, end, norm, true, type);
    } else {
        apply_rows(&o, begin, end, norm, false, type);
    }
}

BY__ACT_RANGES_OF(apply_norm, apply, true)
BY__ACT_RANGES_OF(apply_affine, apply, false)

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t rows = by__tensor_rows(x);
    int64_t count = by__tensor_count(x);
    by__cpu_parallel(context, call, rows, range_rows(rows), count, range_moments_ranges[x->dtype]);
    by__cpu_parallel(context, call, by__tensor_columns(x), 64,
                     (int64_t)(call->work_bytes / sizeof(float)), merge_ranges);
    by__cpu_parallel(context, call, rows, range_rows(rows), count, apply_norm_ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(batch_norm) = {
    BY_OP_BATCH_NORM, BY__KERNEL_NAME("batch_norm"), supports, prepare, NULL, run};

static by_status run_affine(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t rows = by__tensor_rows(x);
    by__cpu_parallel(context, call, rows, range_rows(rows), by__tensor_count(x),
                     apply_affine_ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(affine) = {BY_OP_AFFINE, BY__KERNEL_NAME("affine"), supports, NULL, NULL, run_affine};

/* ---- gradient ---- */

typedef struct grad_operands {
    const void *x, *dy;
    const float *b, *mean, *scale;
    float most; /* the upper limit of the rectifier */
    int64_t columns;
} grad_operands;

static grad_operands bind(const by__device_call *call)
{
    return (grad_operands){.x = call->in[0].data,
                           .dy = call->in[5].data,
                           .b = call->in[2].data,
                           .mean = call->in[3].data,
                           .scale = shared_vector(call, SCALE),
                           .most = call->attrs.clip > 0.0f ? call->attrs.clip : INFINITY,
                           .columns = by__tensor_columns(&call->in[0])};
}

/* x without its mean (*centered), and the part of dy that the rectifier lets through. */
BY__INLINE by__vf passed(const grad_operands *o, int64_t place, by__vf mean, by__vf scale, by__vf b,
                         by__vf *centered, bool rectified, by_dtype type, int n)
{
    by__vf dy = by__load_n(o->dy, place, type, n);
    *centered = by__load_n(o->x, place, type, n) - mean;
    if (!rectified) {
        return dy;
    }
    by__vf z = by__multiply_add(*centered, scale, b);
    return by__select((z > 0.0f) & (z < o->most), dy, by__zero());
}

/* The sums of g, and of g times x without its mean. */
BY__INLINE void grad_sums(const by__device_call *call, int64_t begin, int64_t end, bool rectified,
                          by_dtype type)
{
    grad_operands o = bind(call);
    int64_t range = begin / range_rows(by__tensor_rows(&call->in[0]));
    float *plain = range_vector(call, range, RANGE_MEAN);
    float *scaled = range_vector(call, range, RANGE_SQUARES);
    memset(plain, 0, (size_t)o.columns * sizeof *plain);
    memset(scaled, 0, (size_t)o.columns * sizeof *scaled);
#define GET(k, i, n) g[k] = passed(&o, at + (k)*o.columns + (i), m, s, b, &c[k], rectified, type, n)
#define FOUR(i, n)                                                                                 \
    do {                                                                                           \
        by__vf m = by__load_n(o.mean, i, BY_F32, n);                                               \
        by__vf s = by__load_n(o.scale, i, BY_F32, n);                                              \
        by__vf b = by__load_n(o.b, i, BY_F32, n);                                                  \
        by__vf g[4];                                                                               \
        by__vf c[4];                                                                               \
        GET(0, i, n);                                                                              \
        GET(1, i, n);                                                                              \
        GET(2, i, n);                                                                              \
        GET(3, i, n);                                                                              \
        by__store_n(plain, i, by__load_n(plain, i, BY_F32, n) + ((g[0] + g[1]) + (g[2] + g[3])),   \
                    BY_F32, n);                                                                    \
        by__store_n(scaled, i,                                                                     \
                    by__load_n(scaled, i, BY_F32, n) +                                             \
                        ((g[0] * c[0] + g[1] * c[1]) + (g[2] * c[2] + g[3] * c[3])),               \
                    BY_F32, n);                                                                    \
    } while (0)
#define ONE(i, n)                                                                                  \
    do {                                                                                           \
        by__vf m = by__load_n(o.mean, i, BY_F32, n);                                               \
        by__vf s = by__load_n(o.scale, i, BY_F32, n);                                              \
        by__vf b = by__load_n(o.b, i, BY_F32, n);                                                  \
        by__vf g[1];                                                                               \
        by__vf c[1];                                                                               \
        GET(0, i, n);                                                                              \
        by__store_n(plain, i, by__load_n(plain, i, BY_F32, n) + g[0], BY_F32, n);                  \
        by__store_n(scaled, i, by__load_n(scaled, i, BY_F32, n) + g[0] * c[0], BY_F32, n);         \
    } while (0)
    FOUR_ROWS(begin, end, o.columns, FOUR, ONE);
#undef FOUR
#undef ONE
#undef GET
}

BY__ACT_RANGES_OF(sums_plain, grad_sums, false)
BY__ACT_RANGES_OF(sums_rectified, grad_sums, true)

/* w / sqrt(variance + eps), which both passes read. */
static void make_scale(const by__device_call *call)
{
    const float *w = call->in[1].data;
    const float *variance = call->in[4].data;
    float *scale = shared_vector(call, SCALE);
    for (int64_t i = 0; i < by__tensor_columns(&call->in[0]); i++) {
        scale[i] = w[i] / sqrtf(variance[i] + call->attrs.eps);
    }
}

/* Adds the ranges in order, for the columns of a range. */
static void add_ranges(const by__device_call *call, int64_t begin, int64_t end)
{
    const float *variance = call->in[4].data;
    int64_t rows = by__tensor_rows(&call->in[0]);
    float *offset = shared_vector(call, OFFSET);
    float *slope = shared_vector(call, SLOPE);
    float *dw = call->out[1].data;
    float *db = call->out[2].data;
    for (int64_t range = 0; range < range_count(rows); range++) {
        const float *plain = range_vector(call, range, RANGE_MEAN);
        const float *scaled = range_vector(call, range, RANGE_SQUARES);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf p = range == 0 ? by__zero() : by__load_n(db, i, BY_F32, n);                         \
        by__vf s = range == 0 ? by__zero() : by__load_n(dw, i, BY_F32, n);                         \
        by__store_n(db, i, p + by__load_n(plain, i, BY_F32, n), BY_F32, n);                        \
        by__store_n(dw, i, s + by__load_n(scaled, i, BY_F32, n), BY_F32, n);                       \
    } while (0)
        BY__STEPS(begin, end, STEP);
#undef STEP
    }
    for (int64_t i = begin; i < end; i++) {
        float rstd = 1.0f / sqrtf(variance[i] + call->attrs.eps);
        dw[i] *= rstd;
        offset[i] = db[i] / (float)rows;
        slope[i] = dw[i] * rstd / (float)rows;
    }
}

BY__INLINE void make_dx(const by__device_call *call, int64_t begin, int64_t end, bool rectified,
                        by_dtype type)
{
    grad_operands o = bind(call);
    const float *offset = shared_vector(call, OFFSET);
    const float *slope = shared_vector(call, SLOPE);
    void *dx = call->out[0].data;
#define PUT(k, i, n)                                                                               \
    do {                                                                                           \
        int64_t place = at + (k)*o.columns + (i);                                                  \
        by__vf c;                                                                                  \
        by__vf g = passed(&o, place, m, s, b, &c, rectified, type, n);                             \
        by__store_flushed_n(dx, place, ((g - off) - c * down) * s, type, n);                       \
    } while (0)
#define VECTORS_AT(i, n)                                                                           \
    by__vf m = by__load_n(o.mean, i, BY_F32, n);                                                   \
    by__vf s = by__load_n(o.scale, i, BY_F32, n);                                                  \
    by__vf b = by__load_n(o.b, i, BY_F32, n);                                                      \
    by__vf off = by__load_n(offset, i, BY_F32, n);                                                 \
    by__vf down = by__load_n(slope, i, BY_F32, n)
    FOUR_ROWS(begin, end, o.columns, PUT_FOUR, PUT_ONE);
#undef VECTORS_AT
#undef PUT
}

BY__ACT_RANGES_OF(make_dx_plain, make_dx, false)
BY__ACT_RANGES_OF(make_dx_rectified, make_dx, true)

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    bool rectified = call->attrs.rectify;
    int64_t rows = by__tensor_rows(x);
    int64_t count = by__tensor_count(x);
    make_scale(call);
    by__cpu_parallel(context, call, rows, range_rows(rows), count,
                     rectified ? sums_rectified_ranges[x->dtype] : sums_plain_ranges[x->dtype]);
    by__cpu_parallel(context, call, by__tensor_columns(x), 64,
                     (int64_t)(call->work_bytes / sizeof(float)), add_ranges);
    by__cpu_parallel(context, call, rows, range_rows(rows), count,
                     rectified ? make_dx_rectified_ranges[x->dtype]
                               : make_dx_plain_ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(batch_norm_grad) = {
    BY_OP_BATCH_NORM_GRAD, BY__KERNEL_NAME("batch_norm_grad"), supports, prepare, NULL, run_grad};
