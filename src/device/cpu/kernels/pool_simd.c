/* POOL and its gradient: x [B, H, W, C], vectors of channels. Each entry of a result is made by one
 * thread, from its window, or from the windows that it is in, in order. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* A run of entries of one axis. */
typedef struct pool_run {
    int64_t first;
    int64_t end;
} pool_run;

/* The entries of x, of `extent`, in the window of entry o of y. */
static pool_run window_of(const by_window *w, int axis, int64_t o, int64_t extent)
{
    int64_t first = o * w->stride[axis] - w->before[axis];
    int64_t end = first + w->size[axis];
    return (pool_run){first < 0 ? 0 : first, end < extent ? end : extent};
}

/* The entries of y, of `extent`, whose windows contain entry i of x. */
static pool_run windows_with(const by_window *w, int axis, int64_t i, int64_t extent)
{
    int64_t after = i + w->before[axis] - w->size[axis] + 1; /* the first window begins here */
    int64_t first = after <= 0 ? 0 : by__ceil_div(after, w->stride[axis]);
    int64_t end = (i + w->before[axis]) / w->stride[axis] + 1;
    return (pool_run){first, end < extent ? end : extent};
}

/* One through the number of entries that the mean of a window counts. */
static float share_of(const by_attrs *a, pool_run rows, pool_run columns)
{
    int64_t count = a->keep ? a->sliding.size[0] * a->sliding.size[1]
                            : (rows.end - rows.first) * (columns.end - columns.first);
    return 1.0f / (float)count;
}

/* Rows of y that one range has: about 4096 entries of x. */
static int64_t grain_of(int64_t elements_of_row)
{
    return elements_of_row >= 4096 ? 1 : 4096 / elements_of_row;
}

/* NaN is the largest entry, as in PyTorch. */
BY__INLINE by__vi exceeds(by__vf entry, by__vf most)
{
    by__vi nan = entry != entry; /* NOLINT(misc-redundant-expression): true of NaN alone */
    return (entry > most) | nan;
}

/* The mean, or the largest entry, of a window, for the channels from i on. */
BY__INLINE by__vf pool_at(const void *x, int64_t image, int64_t width, int64_t channels,
                          pool_run rows, pool_run columns, int64_t i, int n, bool mean, float share,
                          by_dtype type)
{
    by__vf v = mean ? by__zero() : by__splat(-INFINITY);
    for (int64_t h = rows.first; h < rows.end; h++) {
        int64_t at = image + (h * width + columns.first) * channels + i;
        for (int64_t w = columns.first; w < columns.end; w++, at += channels) {
            by__vf entry = by__load_n(x, at, type, n);
            v = mean ? v + entry : by__select(exceeds(entry, v), entry, v);
        }
    }
    return mean ? v * share : v;
}

/* Whether windows are whole rows, one row apart and none beyond the image: as in a moving average
 * over the steps of a series. */
static bool slides_by_rows(const by__device_call *call)
{
    const by_window *w = &call->attrs.sliding;
    int64_t columns = call->in[0].shape.dim[2];
    return columns == 1 && w->size[1] == 1 && call->out[0].shape.dim[2] == 1 && w->stride[0] == 1 &&
           w->before[0] == 0 &&
           call->out[0].shape.dim[1] + w->size[0] - 1 <= call->in[0].shape.dim[1];
}

/* Rows begin .. end - 1 of y, all of one image, as one row of channels. */
BY__INLINE void pool_rows(const by__device_call *call, int64_t begin, int64_t end, bool mean,
                          by_dtype type)
{
    const by_shape *x = &call->in[0].shape;
    int64_t rows = call->out[0].shape.dim[1];
    int64_t channels = x->dim[3];
    int64_t from = (begin / rows * x->dim[1] + begin % rows) * channels;
    pool_run window = {0, call->attrs.sliding.size[0]};
    float share = 1.0f / (float)window.end;
#define STEP(i, n)                                                                                 \
    by__store_n(call->out[0].data, begin *channels + (i),                                          \
                pool_at(call->in[0].data, from, 1, channels, window, (pool_run){0, 1}, i, n, mean, \
                        share, type),                                                              \
                type, n)
    BY__STEPS(0, (end - begin) * channels, STEP);
#undef STEP
}

BY__INLINE void pool(const by__device_call *call, int64_t begin, int64_t end, bool mean,
                     by_dtype type)
{
    const by_attrs *a = &call->attrs;
    const by_shape *x = &call->in[0].shape;
    const by_shape *y = &call->out[0].shape;
    int64_t channels = x->dim[3];
    for (int64_t next; slides_by_rows(call) && begin < end; begin = next) {
        next = by__min_i64(end, (begin / y->dim[1] + 1) * y->dim[1]);
        pool_rows(call, begin, next, mean, type);
    }
    for (int64_t row = begin; row < end; row++) {
        int64_t image = row / y->dim[1] * x->dim[1] * x->dim[2] * channels;
        pool_run rows = window_of(&a->sliding, 0, row % y->dim[1], x->dim[1]);
        for (int64_t o = 0; o < y->dim[2]; o++) {
            int64_t to = (row * y->dim[2] + o) * channels;
            pool_run columns = window_of(&a->sliding, 1, o, x->dim[2]);
            float share = share_of(a, rows, columns);
#define STEP(i, n)                                                                                 \
    by__store_n(call->out[0].data, to + (i),                                                       \
                pool_at(call->in[0].data, image, x->dim[2], channels, rows, columns, i, n, mean,   \
                        share, type),                                                              \
                type, n)
            BY__STEPS(0, channels, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES_OF(pool_mean, pool, true)
BY__ACT_RANGES_OF(pool_largest, pool, false)

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->out[0]);
}

static by_status run_pool(const by__device_call *call, const by__device_context *context)
{
    const by_shape *y = &call->out[0].shape;
    by_dtype type = call->in[0].dtype;
    by__cpu_parallel(context, call, y->dim[0] * y->dim[1], grain_of(y->dim[2] * y->dim[3]),
                     by__tensor_count(&call->in[0]),
                     call->attrs.mean ? pool_mean_ranges[type] : pool_largest_ranges[type]);
    return BY_OK;
}

BY__KERNEL(pool) = {BY_OP_POOL, BY__KERNEL_NAME("pool"), supports, NULL, NULL, run_pool};

/* ---- gradient ---- */

/* Of the largest entry, the workspace holds for each entry of y which entry of its window it is,
 * counted from the window's corner: bf16, which counts to 256 exactly, or f32. */
static by_dtype index_type(const by__device_call *call)
{
    return call->attrs.sliding.size[0] * call->attrs.sliding.size[1] <= 256 ? BY_BF16 : BY_F32;
}

BY__INLINE by__vf largest_at(const by__device_call *call, int64_t image, int64_t row, int64_t o,
                             int64_t i, int n, by_dtype type)
{
    const by_window *window = &call->attrs.sliding;
    const by_shape *x = &call->in[0].shape;
    pool_run rows = window_of(window, 0, row, x->dim[1]);
    pool_run columns = window_of(window, 1, o, x->dim[2]);
    int64_t top = row * window->stride[0] - window->before[0];
    int64_t left = o * window->stride[1] - window->before[1];
    by__vf most = by__splat(-INFINITY);
    by__vf index = by__splat((float)((rows.first - top) * window->size[1] + columns.first - left));
    for (int64_t h = rows.first; h < rows.end; h++) {
        int64_t at = image + (h * x->dim[2] + columns.first) * x->dim[3] + i;
        for (int64_t w = columns.first; w < columns.end; w++, at += x->dim[3]) {
            by__vf entry = by__load_n(call->in[0].data, at, type, n);
            by__vi more = exceeds(entry, most);
            float here = (float)((h - top) * window->size[1] + w - left);
            most = by__select(more, entry, most);
            index = by__select(more, by__splat(here), index);
        }
    }
    return index;
}

BY__INLINE void find_largest(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const by_shape *x = &call->in[0].shape;
    const by_shape *y = &call->in[1].shape;
    by_dtype stored = index_type(call);
    for (int64_t row = begin; row < end; row++) {
        int64_t image = row / y->dim[1] * x->dim[1] * x->dim[2] * x->dim[3];
        for (int64_t o = 0; o < y->dim[2]; o++) {
            int64_t to = (row * y->dim[2] + o) * y->dim[3];
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf index = largest_at(call, image, row % y->dim[1], o, i, n, type);                    \
        if (stored == BY_BF16) {                                                                   \
            by__store_n(call->work, to + (i), index, BY_BF16, n);                                  \
        } else {                                                                                   \
            by__store_n(call->work, to + (i), index, BY_F32, n);                                   \
        }                                                                                          \
    } while (0)
            BY__STEPS(0, y->dim[3], STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(find_largest)

/* The gradient that the windows give entry (row, column) of x, for the channels from i on. */
BY__INLINE by__vf gather_at(const by__device_call *call, int64_t image, int64_t row, int64_t column,
                            pool_run rows, pool_run columns, int64_t i, int n, bool mean,
                            by_dtype type)
{
    const by_attrs *a = &call->attrs;
    const by_shape *x = &call->out[0].shape;
    const by_shape *y = &call->in[1].shape;
    by_dtype stored = index_type(call);
    by__vf sum = by__zero();
    for (int64_t h = rows.first; h < rows.end; h++) {
        pool_run high = window_of(&a->sliding, 0, h, x->dim[1]);
        int64_t down = row - (h * a->sliding.stride[0] - a->sliding.before[0]);
        for (int64_t w = columns.first; w < columns.end; w++) {
            int64_t at = image + (h * y->dim[2] + w) * y->dim[3] + i;
            by__vf dy = by__load_n(call->in[1].data, at, type, n);
            if (mean) {
                sum += dy * share_of(a, high, window_of(&a->sliding, 1, w, x->dim[2]));
            } else {
                int64_t across = column - (w * a->sliding.stride[1] - a->sliding.before[1]);
                float here = (float)(down * a->sliding.size[1] + across);
                by__vf index = stored == BY_BF16 ? by__load_n(call->work, at, BY_BF16, n)
                                                 : by__load_n(call->work, at, BY_F32, n);
                sum += by__select(index == here, dy, by__zero());
            }
        }
    }
    return sum;
}

BY__INLINE void gather(const by__device_call *call, int64_t begin, int64_t end, bool mean,
                       by_dtype type)
{
    const by_window *window = &call->attrs.sliding;
    const by_shape *x = &call->out[0].shape;
    const by_shape *y = &call->in[1].shape;
    for (int64_t row = begin; row < end; row++) {
        int64_t image = row / x->dim[1] * y->dim[1] * y->dim[2] * y->dim[3];
        pool_run rows = windows_with(window, 0, row % x->dim[1], y->dim[1]);
        for (int64_t column = 0; column < x->dim[2]; column++) {
            int64_t to = (row * x->dim[2] + column) * x->dim[3];
            pool_run columns = windows_with(window, 1, column, y->dim[2]);
#define STEP(i, n)                                                                                 \
    by__store_n(call->out[0].data, to + (i),                                                       \
                gather_at(call, image, row % x->dim[1], column, rows, columns, i, n, mean, type),  \
                type, n)
            BY__STEPS(0, x->dim[3], STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES_OF(gather_mean, gather, true)
BY__ACT_RANGES_OF(gather_largest, gather, false)

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    if (!call->attrs.mean && !by__size_mul((size_t)by__tensor_count(&call->in[1]),
                                           by_dtype_size(index_type(call)), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "pool_grad: the workspace overflows");
    }
    return BY_OK;
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    const by_shape *x = &call->out[0].shape;
    const by_shape *y = &call->in[1].shape;
    by_dtype type = call->out[0].dtype;
    int64_t count = by__tensor_count(&call->out[0]);
    if (!call->attrs.mean) {
        by__cpu_parallel(context, call, y->dim[0] * y->dim[1], grain_of(y->dim[2] * y->dim[3]),
                         count, find_largest_ranges[type]);
    }
    by__cpu_parallel(context, call, x->dim[0] * x->dim[1], grain_of(x->dim[2] * x->dim[3]), count,
                     call->attrs.mean ? gather_mean_ranges[type] : gather_largest_ranges[type]);
    return BY_OK;
}

BY__KERNEL(pool_grad) = {
    BY_OP_POOL_GRAD, BY__KERNEL_NAME("pool_grad"), supports, prepare_grad, NULL, run_grad};
