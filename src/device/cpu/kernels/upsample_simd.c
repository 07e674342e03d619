/* UPSAMPLE and its gradient: x [B, H, W, C], vectors of channels. Each entry of a result is made by
 * one thread, from the entries that it mixes, or from those that it is mixed into, in order. */
#include <assert.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* What an entry of an axis of the larger image is made of: entry `at` of the smaller one and the
 * next, the latter in this share. */
typedef struct tap {
    int64_t at;
    float next;
} tap;

static tap tap_of(const by_shape *x, const by_shape *y, int axis, bool linear, int64_t i)
{
    int64_t from = x->dim[axis];
    int64_t to = y->dim[axis];
    if (!linear) {
        return (tap){i * from / to, 0.0f};
    }
    double place = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    place = place < 0.0 ? 0.0 : place;
    int64_t at = by__min_i64((int64_t)place, from - 1);
    return (tap){at, at < from - 1 ? (float)(place - (double)at) : 0.0f};
}

/* Rows of a result that one range has: about 4096 entries. */
static int64_t grain_of(const by_shape *shape)
{
    int64_t entries = shape->dim[2] * shape->dim[3];
    assert(entries > 0);
    return entries >= 4096 ? 1 : 4096 / entries;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->out[0]);
}

/* a + (b - a) share. */
BY__INLINE by__vf between(by__vf a, by__vf b, float share)
{
    return by__multiply_add(b - a, by__splat(share), a);
}

BY__INLINE void mix_rows(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const by_shape *x = &call->in[0].shape;
    const by_shape *y = &call->out[0].shape;
    int64_t channels = x->dim[3];
    for (int64_t row = begin; row < end; row++) {
        tap down = tap_of(x, y, 1, true, row % y->dim[1]);
        int64_t upper = (row / y->dim[1] * x->dim[1] + down.at) * x->dim[2] * channels;
        int64_t lower = down.next > 0.0f ? upper + x->dim[2] * channels : upper;
        for (int64_t column = 0; column < y->dim[2]; column++) {
            tap across = tap_of(x, y, 2, true, column);
            int64_t left = across.at * channels;
            int64_t right = across.next > 0.0f ? left + channels : left;
            int64_t to = (row * y->dim[2] + column) * channels;
#define AT(place, n) by__load_n(call->in[0].data, place, type, n)
#define STEP(i, n)                                                                                 \
    by__store_n(                                                                                   \
        call->out[0].data, to + (i),                                                               \
        between(between(AT(upper + left + (i), n), AT(upper + right + (i), n), across.next),       \
                between(AT(lower + left + (i), n), AT(lower + right + (i), n), across.next),       \
                down.next),                                                                        \
        type, n)
            BY__STEPS(0, channels, STEP);
#undef STEP
#undef AT
        }
    }
}

BY__ACT_RANGES(mix_rows)

/* Repeats entries, of any dtype. */
static void repeat_rows(const by__device_call *call, int64_t begin, int64_t end)
{
    const by_shape *x = &call->in[0].shape;
    const by_shape *y = &call->out[0].shape;
    size_t bytes = (size_t)x->dim[3] * by_dtype_size(call->out[0].dtype);
    for (int64_t row = begin; row < end; row++) {
        int64_t down = tap_of(x, y, 1, false, row % y->dim[1]).at;
        const char *from = (const char *)call->in[0].data +
                           (size_t)((row / y->dim[1] * x->dim[1] + down) * x->dim[2]) * bytes;
        char *to = (char *)call->out[0].data + (size_t)(row * y->dim[2]) * bytes;
        for (int64_t column = 0; column < y->dim[2]; column++, to += bytes) {
            memcpy(to, from + (size_t)tap_of(x, y, 2, false, column).at * bytes, bytes);
        }
    }
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const by_shape *y = &call->out[0].shape;
    by__cpu_parallel(context, call, y->dim[0] * y->dim[1], grain_of(y),
                     by__tensor_count(&call->out[0]),
                     call->attrs.linear ? mix_rows_ranges[call->out[0].dtype] : repeat_rows);
    return BY_OK;
}

BY__KERNEL(upsample) = {BY_OP_UPSAMPLE, BY__KERNEL_NAME("upsample"), supports, NULL, NULL, run};

/* ---- gradient ---- */

/* The workspace has for each axis the taps of the larger image's entries, then for each entry i of
 * the smaller one, and one more, the first entry of the larger one whose tap is at i or later. */
typedef struct axis_table {
    tap *taps;
    int64_t *first;
} axis_table;

static axis_table table_of(const by__device_call *call, int axis)
{
    const by_shape *dx = &call->out[0].shape;
    const by_shape *dy = &call->in[0].shape;
    axis_table t = {.taps = call->work};
    for (int i = 1; i <= axis; i++) {
        t.first = (int64_t *)(t.taps + dy->dim[i]);
        t.taps = i < axis ? (tap *)(t.first + dx->dim[i] + 1) : t.taps;
    }
    return t;
}

static void make_table(const by__device_call *call, int axis)
{
    const by_shape *dx = &call->out[0].shape;
    const by_shape *dy = &call->in[0].shape;
    axis_table t = table_of(call, axis);
    int64_t next = 0;
    for (int64_t i = 0; i < dy->dim[axis]; i++) {
        t.taps[i] = tap_of(dx, dy, axis, call->attrs.linear, i);
        for (; next <= t.taps[i].at; next++) {
            t.first[next] = i;
        }
    }
    for (; next <= dx->dim[axis]; next++) {
        t.first[next] = dy->dim[axis];
    }
}

/* The share of entry `at` in what a tap makes. */
static inline float share_in(const tap *t, int64_t at)
{
    return t->at == at ? 1.0f - t->next : t->next;
}

BY__INLINE by__vf gather_at(const by__device_call *call, int64_t image, int64_t row, int64_t column,
                            const axis_table *down, const axis_table *across, int64_t i, int n,
                            by_dtype type)
{
    const by_shape *dy = &call->in[0].shape;
    int64_t before = call->attrs.linear ? 1 : 0; /* entries before this one are mixed with it */
    by__vf sum = by__zero();
    for (int64_t h = down->first[row < before ? 0 : row - before]; h < down->first[row + 1]; h++) {
        float high = share_in(&down->taps[h], row);
        int64_t begin = across->first[column < before ? 0 : column - before];
        int64_t at = image + (h * dy->dim[2] + begin) * dy->dim[3] + i;
        for (int64_t w = begin; w < across->first[column + 1]; w++, at += dy->dim[3]) {
            float share = high * share_in(&across->taps[w], column);
            by__vf g = by__load_n(call->in[0].data, at, type, n);
            sum = by__multiply_add(g, by__splat(share), sum);
        }
    }
    return sum;
}

BY__INLINE void gather(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const by_shape *dx = &call->out[0].shape;
    const by_shape *dy = &call->in[0].shape;
    axis_table down = table_of(call, 1);
    axis_table across = table_of(call, 2);
    for (int64_t row = begin; row < end; row++) {
        int64_t image = row / dx->dim[1] * dy->dim[1] * dy->dim[2] * dy->dim[3];
        for (int64_t column = 0; column < dx->dim[2]; column++) {
            int64_t to = (row * dx->dim[2] + column) * dx->dim[3];
#define STEP(i, n)                                                                                 \
    by__store_n(call->out[0].data, to + (i),                                                       \
                gather_at(call, image, row % dx->dim[1], column, &down, &across, i, n, type),      \
                type, n)
            BY__STEPS(0, dx->dim[3], STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(gather)

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    const by_shape *dx = &call->out[0].shape;
    const by_shape *dy = &call->in[0].shape;
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = (size_t)(dy->dim[1] + dy->dim[2]) * sizeof(tap) +
                       (size_t)(dx->dim[1] + dx->dim[2] + 2) * sizeof(int64_t);
    return BY_OK;
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    const by_shape *dx = &call->out[0].shape;
    make_table(call, 1);
    make_table(call, 2);
    by__cpu_parallel(context, call, dx->dim[0] * dx->dim[1], grain_of(dx),
                     by__tensor_count(&call->in[0]), gather_ranges[call->out[0].dtype]);
    return BY_OK;
}

BY__KERNEL(upsample_grad) = {
    BY_OP_UPSAMPLE_GRAD, BY__KERNEL_NAME("upsample_grad"), supports, prepare_grad, NULL, run_grad};
