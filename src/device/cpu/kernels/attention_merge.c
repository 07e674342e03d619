/* ATTENTION_MERGE: y_i [B, T, H D] act and lse_i [B, H, T] f32 in turn. Each row of a head is the
 * sum of the y_i by their shares exp(lse_i - lse), in f32, in their order. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* lse of part i at a place, and its share relative to the highest. */
static float lse_at(const by__call *call, int i, int64_t place)
{
    return ((const float *)call->in[2 * i + 1].data)[place];
}

BY__INLINE void merge(const by__call *call, int64_t begin, int64_t end, by_dtype type)
{
    const by_shape *shape = &call->in[0].shape;
    int64_t length = shape->dim[1];
    int64_t heads = call->attrs.heads;
    int64_t width = shape->dim[2] / heads;
    int parts = call->input_count / 2;
    for (int64_t k = begin; k < end; k++) { /* head k % heads of row k / heads */
        int64_t row = k / heads;
        int64_t place = (row / length * heads + k % heads) * length + row % length;
        float highest = lse_at(call, 0, place);
        float sum = 0.0f;
        for (int i = 1; i < parts; i++) {
            float lse = lse_at(call, i, place);
            highest = lse > highest ? lse : highest;
        }
        for (int i = 0; i < parts; i++) {
            sum += expf(lse_at(call, i, place) - highest);
        }
        float lse = highest + logf(sum);
        ((float *)call->out[1].data)[place] = lse;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf total = by__zero();                                                                 \
        for (int p = 0; p < parts; p++) {                                                          \
            float share = expf(lse_at(call, p, place) - highest) / sum;                            \
            total += by__load_n(call->in[2 * p].data, k * width + (i), type, n) * share;           \
        }                                                                                          \
        by__store_flushed_n(call->out[0].data, k *width + (i), total, type, n);                    \
    } while (0)
        BY__STEPS(0, width, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(merge)

static bool supports_merge(const by__call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_merge(const by__call *call, const by__context *context)
{
    const by__tensor *y = &call->in[0];
    int64_t width = by__tensor_columns(y) / call->attrs.heads;
    by__parallel(context, call, by__tensor_rows(y) * call->attrs.heads, by__ceil_div(8192, width),
                 by__tensor_count(y), merge_ranges[y->dtype]);
    return BY_OK;
}

BY__KERNEL(attention_merge) = {BY_OP_ATTENTION_MERGE,
                               BY__KERNEL_NAME("attention_merge"),
                               supports_merge,
                               NULL,
                               NULL,
                               run_merge};
