/* ATTENTION_MERGE: y_i [B, T, H D] and lse_i [B, H, T] of two parts, f32. Each row of a head is the
 * sum, in order, of the y_i weighted by exp(lse_i - lse). */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

enum { PARTS = 2 };

static void merge(const by__device_call *call, int64_t begin, int64_t end)
{
    const by_shape *shape = &call->in[0].shape;
    int64_t length = shape->dim[1];
    int64_t heads = call->attrs.heads;
    int64_t width = shape->dim[2] / heads;
    for (int64_t k = begin; k < end; k++) { /* head k % heads of row k / heads */
        int64_t row = k / heads;
        int64_t place = (row / length * heads + k % heads) * length + row % length;
        float lse[PARTS];
        float share[PARTS];
        for (int p = 0; p < PARTS; p++) {
            lse[p] = ((const float *)call->in[2 * p + 1].data)[place];
        }
        float highest = lse[1] > lse[0] ? lse[1] : lse[0];
        float sum = expf(lse[0] - highest) + expf(lse[1] - highest);
        for (int p = 0; p < PARTS; p++) {
            share[p] = expf(lse[p] - highest) / sum;
        }
        ((float *)call->out[1].data)[place] = highest + logf(sum);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf total = by__zero();                                                                 \
        for (int p = 0; p < PARTS; p++) {                                                          \
            total += by__load_n(call->in[2 * p].data, k * width + (i), BY_F32, n) * share[p];      \
        }                                                                                          \
        by__store_flushed_n(call->out[0].data, k *width + (i), total, BY_F32, n);                  \
    } while (0)
        BY__STEPS(0, width, STEP);
#undef STEP
    }
}

static by_status run_merge(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *y = &call->in[0];
    int64_t width = by__tensor_columns(y) / call->attrs.heads;
    by__cpu_parallel(context, call, by__tensor_rows(y) * call->attrs.heads,
                     by__ceil_div(8192, width), by__tensor_count(y), merge);
    return BY_OK;
}

BY__KERNEL(attention_merge) = {
    BY_OP_ATTENTION_MERGE, BY__KERNEL_NAME("attention_merge"), NULL, NULL, NULL, run_merge};
