/* What the attention kernels share: where the heads lie, and how the work is cut.
 *
 * A block of queries of one head meets one block of keys after another, so scores exist for a block
 * at a time (FlashAttention: Dao et al. 2022; the loop order of version 2, Dao 2023). Products run
 * on panels (panel.h). A thread works on one (sample, key head) at a time, with its own scratch:
 * the cut follows the shape alone, and so do the bits.
 */
#ifndef BY_DEVICE_CPU_KERNELS_ATTENTION_H
#define BY_DEVICE_CPU_KERNELS_ATTENTION_H

#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/panel.h"
#include "device/cpu/share.h"

/* Rows (b, t) of one of q, k, v, y and their gradients, whether a tensor of its own or a part of a
 * packed one. Head h of row r begins at element r * stride + offset + h * width. */
typedef struct head_view {
    void *data;
    int64_t stride;
    int64_t offset;
} head_view;

typedef struct attention_shape {
    by_dtype dtype;
    int64_t batch, length, heads, kv_heads, width;
    int64_t query_block; /* a multiple of mr and of k_unit */
    int64_t key_block;   /* a multiple of mr, nr and k_unit */
    float scale;
} attention_shape;

static inline int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a;
    int64_t y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Of the operands before `others` further ones: packed is one, or three whose second is absent. */
static inline bool attention_packed(const by__call *call, int others)
{
    return call->input_count - others == 1 || !by__present(&call->in[1]);
}

static inline attention_shape attention_measure(const by__call *call, bool packed,
                                                const by__panel *panel)
{
    const by__tensor *q = &call->in[0];
    attention_shape s = {
        .dtype = q->dtype,
        .batch = q->shape.dim[0],
        .length = q->shape.dim[1],
        .heads = call->attrs.heads,
        .kv_heads = call->attrs.kv_heads,
    };
    s.width = q->shape.dim[2] / (packed ? s.heads + 2 * s.kv_heads : s.heads);
    s.scale = (float)(1.0 / sqrt((double)s.width));
    int64_t unit = common_multiple(panel->mr, panel->k_unit);
    s.query_block = 64 / unit * unit;
    unit = common_multiple(unit, panel->nr);
    s.key_block = 256 / unit * unit;
    return s;
}

static inline void attention_views(head_view views[3], const by__tensor *tensors, bool packed,
                                   const attention_shape *s)
{
    int64_t heads[3] = {s->heads, s->kv_heads, s->kv_heads};
    int64_t offset = 0;
    for (int i = 0; i < 3; i++) {
        const by__tensor *tensor = packed ? &tensors[0] : &tensors[i];
        views[i] = (head_view){tensor->data, tensor->shape.dim[2], packed ? offset : 0};
        offset += heads[i] * s->width;
    }
}

/* Element 0 of a head in row t of sample b. */
static inline void *head_at(const head_view *view, const attention_shape *s, int64_t b, int64_t t,
                            int64_t head)
{
    int64_t element = (b * s->length + t) * view->stride + view->offset + head * s->width;
    return (char *)view->data + (size_t)element * (s->dtype == BY_F32 ? 4 : 2);
}

/* c[rows, columns] = or += a b for a block of weights of `dtype`, `stride` elements from row to row:
 * as it lies where the panel can, else through `packed`. The block's memory has an even number of
 * rows, and zeros up to a whole unit of k. */
static inline void attention_multiply(const by__panel *panel, float *c, int64_t ldc, const void *a,
                                      int64_t stride, by_dtype dtype, void *packed, const void *b,
                                      size_t b_stride, int64_t rows, int64_t columns, int64_t k,
                                      bool accumulate)
{
    int64_t depth = by__panel_k(panel, k);
    if (panel->multiply_rows != NULL) {
        panel->multiply_rows(c, ldc, a, (size_t)(stride * (dtype == BY_F32 ? 4 : 2)), b, b_stride,
                             rows, columns, depth, accumulate);
        return;
    }
    size_t a_stride = by__panel_a_stride(panel, k);
    panel->pack_a(packed, a_stride, a, stride, 1, rows, k);
    panel->multiply(c, ldc, packed, a_stride, b, b_stride, rows, columns, depth, accumulate);
}

/* Copies the new keys and values of one head into their slots of CACHED_ATTENTION's caches. */
static inline void attention_fill(const by__call *call, const head_view in[3],
                                  const attention_shape *s, int64_t slots, int64_t position,
                                  int64_t b, int64_t kv)
{
    size_t row = (size_t)s->width * (s->dtype == BY_F32 ? 4 : 2);
    size_t slot = (size_t)((b * s->kv_heads + kv) * slots + position) * row;
    char *k = (char *)call->in[call->input_count - 3].data + slot;
    char *v = (char *)call->in[call->input_count - 2].data + slot;
    for (int64_t t = 0; t < s->length; t++) {
        memcpy(k + (size_t)t * row, head_at(&in[1], s, b, t, kv), row);
        memcpy(v + (size_t)t * row, head_at(&in[2], s, b, t, kv), row);
    }
}

/* Reserves `bytes` of a scratch area; returns their offset. */
static inline size_t reserve(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += by__round_up(bytes, BY_CACHE_LINE);
    return offset;
}

#endif
