/* What the losses over a vocabulary share besides products: the shapes of a call, and the maximum
 * of a row of logits. */
#ifndef BY_DEVICE_CPU_KERNELS_VOCABULARY_ROWS_H
#define BY_DEVICE_CPU_KERNELS_VOCABULARY_ROWS_H

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/panel.h"
#include "device/cpu/vocabulary_products.h"

static inline float by__kernel_highest(const float *values, int64_t n)
{
    float top = values[0];
    int64_t i = 0;
    if (n >= BY__LANES) {
        by__vf tops = by__kernel_load(values, 0, BY_F32);
        for (i = BY__LANES; i + BY__LANES <= n; i += BY__LANES) {
            tops = by__larger(tops, by__kernel_load(values, i, BY_F32));
        }
        top = by__max(tops);
    }
    for (; i < n; i++) {
        top = values[i] > top ? values[i] : top;
    }
    return top;
}

/* Of a call whose first operands are x and the weight. A chunk has `blocks` matrices of logits. */
static inline by__cpu_vocabulary
by__kernel_vocabulary(const by__device_call *call, const by__device_context *context, int blocks)
{
    by__cpu_vocabulary v = {.rows = by__tensor_rows(&call->in[0]),
                            .columns = by__tensor_columns(&call->in[0]),
                            .vocabulary = by__tensor_rows(&call->in[1]),
                            .dtype = call->in[0].dtype,
                            .isa = BY__AT_LEVEL(BY__LEVEL),
                            .threads = context->threads};
    by__cpu_vocabulary_cut(&v, blocks);
    return v;
}

static inline bool by__kernel_vocabulary_supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[1].dtype == call->in[0].dtype &&
           by__tensor_count(&call->in[0]) > 0 && by__tensor_count(&call->in[1]) > 0;
}

/* A kernel with the functions prepare, release and run of its file. */
#define BY__VOCABULARY_KERNEL(op, name)                                                            \
    BY__KERNEL(name) = {                                                                           \
        op, BY__KERNEL_NAME(#name), by__kernel_vocabulary_supports, prepare, release, run}

#endif
