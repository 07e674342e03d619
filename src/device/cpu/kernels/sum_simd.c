/* SUM_ROWS, SUM_SQUARES, CLIP_SCALE. Sums of blocks, determined by the shape, go to the workspace
 * and are added in order. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* SUM_ROWS: x [R, C] activations, y [C] f32 of any shape. The workspace is [blocks][C] f32. */
static int64_t kept_columns(const by__device_call *call)
{
    return by__tensor_count(&call->out[0]);
}

static int64_t summed_rows(const by__device_call *call)
{
    return by__tensor_count(&call->in[0]) / kept_columns(call);
}

static int64_t block_rows(int64_t rows)
{
    return rows < 8 * 64 ? 8 : by__ceil_div(rows, 64);
}

BY__INLINE void sum_block(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *x = call->in[0].data;
    int64_t columns = kept_columns(call);
    float *sum = (float *)call->work + begin / block_rows(summed_rows(call)) * columns;
    memset(sum, 0, (size_t)columns * sizeof(float));
    int64_t row = begin;
    /* Four rows at a time save three of four loads and stores of the sums. */
    for (; row + 4 <= end; row += 4) {
        int64_t at = row * columns;
#define STEP(i, n)                                                                                 \
    by__store_n(                                                                                   \
        sum, i,                                                                                    \
        by__load_n(sum, i, BY_F32, n) +                                                            \
            ((by__load_n(x, at + (i), type, n) + by__load_n(x, at + columns + (i), type, n)) +     \
             (by__load_n(x, at + 2 * columns + (i), type, n) +                                     \
              by__load_n(x, at + 3 * columns + (i), type, n))),                                    \
        BY_F32, n)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
    for (; row < end; row++) {
        int64_t at = row * columns;
#define STEP(i, n)                                                                                 \
    by__store_n(sum, i, by__load_n(sum, i, BY_F32, n) + by__load_n(x, at + (i), type, n), BY_F32, n)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(sum_block)

static void add_blocks(const by__device_call *call, int64_t begin, int64_t end)
{
    const float *partial = call->work;
    float *y = call->out[0].data;
    int64_t columns = kept_columns(call);
    int64_t rows = summed_rows(call);
    int64_t blocks = by__ceil_div(rows, block_rows(rows));
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t block = 0; block < blocks; block++) {                                         \
            sum += by__load_n(partial, block * columns + (i), BY_F32, n);                          \
        }                                                                                          \
        by__store_n(y, i, sum, BY_F32, n);                                                         \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

static bool supports_sum_rows(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status prepare_sum_rows(by__device_call *call, const by__device_context *context,
                                  by_error *error)
{
    BY_UNUSED(context);
    int64_t rows = summed_rows(call);
    size_t blocks = (size_t)by__ceil_div(rows, block_rows(rows));
    if (!by__size_mul(blocks * sizeof(float), (size_t)kept_columns(call), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "sum_rows: the workspace overflows");
    }
    return BY_OK;
}

static by_status run_sum_rows(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t rows = summed_rows(call);
    by__cpu_parallel(context, call, rows, block_rows(rows), by__tensor_count(x),
                     sum_block_ranges[x->dtype]);
    by__cpu_parallel(context, call, kept_columns(call), 64,
                     (int64_t)(call->work_bytes / sizeof(float)), add_blocks);
    return BY_OK;
}

BY__KERNEL(sum_rows) = {
    BY_OP_SUM_ROWS, BY__KERNEL_NAME("sum_rows"), supports_sum_rows, prepare_sum_rows, NULL,
    run_sum_rows};

/* SUM_SQUARES: x f32, y one partial sum per block. A block is read as four streams at once: the
 * hardware prefetches within a page, so that a single stream would stall at the start of each. */
static void sum_squares(const by__device_call *call, int64_t begin, int64_t end)
{
    const float *x = call->in[0].data;
    const int64_t quarter = BY_SUM_BLOCK / 4;
    by__vf sum[8] = {{0}};
    int64_t i = begin;
    if (end - begin == BY_SUM_BLOCK) {
        for (; i < begin + quarter; i += 2 * BY__LANES) {
            for (int k = 0; k < 8; k++) {
                by__vf v = by__kernel_load(x, i + k / 2 * quarter + k % 2 * BY__LANES, BY_F32);
                sum[k] += v * v;
            }
        }
        i = end;
    }
#define STEP(at, n)                                                                                \
    do {                                                                                           \
        by__vf v = by__load_n(x, at, BY_F32, n);                                                   \
        sum[0] += v * v;                                                                           \
    } while (0)
    BY__STEPS(i, end, STEP);
#undef STEP
    by__vf total =
        ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    ((float *)call->out[0].data)[begin / BY_SUM_BLOCK] = by__sum(total);
}

static by_status run_sum_squares(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, BY_SUM_BLOCK, count, sum_squares);
    return BY_OK;
}

BY__KERNEL(sum_squares) = {BY_OP_SUM_SQUARES, BY__KERNEL_NAME("sum_squares"), NULL, NULL, NULL,
                           run_sum_squares};

/* CLIP_SCALE. */
static bool all_finite(const by__device_tensor *tensor)
{
    const float *values = tensor->data;
    int64_t count = by__present(tensor) ? by__tensor_count(tensor) : 0;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        finite = finite && isfinite(values[i]);
    }
    return finite;
}

static by_status run_clip_scale(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    float *failed = call->in[0].data;
    double total = 0.0;
    for (int k = 3; k < call->input_count; k++) {
        const float *squares = call->in[k].data;
        double sum = 0.0;
        for (int64_t i = 0; i < by__tensor_count(&call->in[k]); i++) {
            sum += (double)squares[i];
        }
        total += (double)(float)sum;
    }
    double factor = by__present(&call->in[2]) ? (double)*(const float *)call->in[2].data : 1.0;
    double norm = sqrt(total) / factor;
    double scale = call->attrs.clip == 0.0f ? 1.0 : (double)call->attrs.clip / (norm + 1e-6);
    if (!isfinite(norm) || !all_finite(&call->in[1])) {
        *failed = 1.0f;
    }
    *(float *)call->out[0].data = (float)norm;
    *(float *)call->out[1].data =
        *failed != 0.0f ? NAN : (float)((scale > 1.0 ? 1.0 : scale) / factor);
    return BY_OK;
}

BY__KERNEL(clip_scale) = {BY_OP_CLIP_SCALE, BY__KERNEL_NAME("clip_scale"), NULL, NULL, NULL,
                          run_clip_scale};
