/* Operands of attention, for its references: where heads are, and which keys a query reads. */
#ifndef BY_DEVICE_CPU_REFERENCE_REFERENCE_HEADS_H
#define BY_DEVICE_CPU_REFERENCE_REFERENCE_HEADS_H

#include <math.h>

#include "device/cpu/reference.h"

/* Layout of one of q, k, v: a separate tensor, or its part of the packed one. Element (b, t, head,
 * d) is at (b * T + t) * stride + offset + head * D + d. */
typedef struct operand_view {
    const by__device_tensor *tensor;
    int64_t stride;
    int64_t offset;
} operand_view;

typedef struct problem {
    int64_t batch, length, heads, kv_heads, width;
    double scale;
} problem;

static inline problem measure(const by__device_call *call, bool packed)
{
    const by__device_tensor *q = &call->in[0];
    problem p = {q->shape.dim[0], q->shape.dim[1], call->attrs.heads, call->attrs.kv_heads, 0, 0.0};
    p.width = by__tensor_columns(q) / (packed ? p.heads + 2 * p.kv_heads : p.heads);
    p.scale = 1.0 / sqrt((double)p.width);
    return p;
}

/* Returns true if q, k and v are packed: of the `count` operands before the others there is one, or
 * the second and third are absent. */
static inline bool is_packed(const by__device_call *call, int count)
{
    return count == 1 || !by__present(&call->in[1]);
}

/* The views of (packed) or (q, k, v), for inputs and gradients alike. */
static inline void make_views(operand_view views[3], const by__device_tensor *tensors, bool packed,
                              const problem *p)
{
    int64_t heads[3] = {p->heads, p->kv_heads, p->kv_heads};
    int64_t offset = 0;
    for (int i = 0; i < 3; i++) {
        const by__device_tensor *tensor = packed ? &tensors[0] : &tensors[i];
        views[i] = (operand_view){tensor, by__tensor_columns(tensor), packed ? offset : 0};
        offset += heads[i] * p->width;
    }
}

static inline int64_t place(const operand_view *v, const problem *p, int64_t b, int64_t t,
                            int64_t head)
{
    return (b * p->length + t) * v->stride + v->offset + head * p->width;
}

/* Number of valid rows of sample b. `operands`: q, k, v or packed, and lengths if there are
 * four. */
static inline int64_t rows_of(const by__device_call *call, const problem *p, int operands,
                              int64_t b)
{
    if (operands < 4 || !by__present(&call->in[3])) {
        return p->length;
    }
    int64_t rows = by__id(&call->in[3], b);
    return rows < 0 ? 0 : rows > p->length ? p->length : rows;
}

/* The end of the keys that query t of a sample with so many valid rows attends to; 0: it is none of
 * them. */
static inline int64_t end_key(const by__device_call *call, int64_t rows, int64_t t)
{
    int64_t behind = !call->attrs.bidirectional ? 0
                     : call->attrs.window > 0   ? call->attrs.window - 1
                                                : rows;
    return t >= rows ? 0 : t + 1 + behind < rows ? t + 1 + behind : rows;
}

#endif
