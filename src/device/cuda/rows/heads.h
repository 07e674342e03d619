/* heads: where the queries, keys and values of attention are, for the rows of its ops.
 *
 * Never put here: what a row computes.
 */
#ifndef BY_DEVICE_CUDA_ROWS_HEADS_H
#define BY_DEVICE_CUDA_ROWS_HEADS_H

#include "device/cuda/launch.h"

/* Operands of attention before those of its gradient: one or three, lengths, starts. */
typedef struct by__cuda_heads {
    bool packed;
    int64_t batch, length, heads, kv_heads, width, q_stride, kv_stride;
} by__cuda_heads;

static inline by__cuda_heads by__cuda_heads_of(const by__device_call *call, int operands)
{
    const by_shape *q = &call->in[0].shape;
    by__cuda_heads s = {.packed = operands == 1 || call->in[1].shape.rank < 0};
    s.batch = q->dim[0];
    s.length = q->dim[1];
    s.heads = call->attrs.heads;
    s.kv_heads = call->attrs.kv_heads;
    s.width = q->dim[2] / (s.packed ? s.heads + 2 * s.kv_heads : s.heads);
    s.q_stride = q->dim[2];
    s.kv_stride = s.packed ? q->dim[2] : s.kv_heads * s.width;
    return s;
}

/* q, k and v of (packed) or three tensors, or of their gradients. */
static inline void by__cuda_heads_parts(void *part[3], const by__device_tensor *tensors,
                                        const by__cuda_heads *s)
{
    size_t bytes = (size_t)s->width * by_dtype_size(tensors[0].dtype);
    for (int i = 0; i < 3; i++) {
        int64_t before = i == 0 ? 0 : s->heads + (i - 1) * s->kv_heads;
        part[i] = s->packed ? (char *)tensors[0].data + (size_t)before * bytes : tensors[i].data;
    }
}

#endif
