/* Shared by the attention kernels: the addresses of heads, and the division of work.
 *
 * A block of queries of one head is combined with one block of keys after another, so scores exist
 * for one block at a time (FlashAttention: Dao et al. 2022; the loop order of version 2, Dao 2023).
 * Products run on panels (panel.h). A thread works on one (sample, key head) at a time, with its
 * own scratch memory: the division of work depends on the shape alone, and so do the bits.
 *
 * Scores are computed transposed, one row per key and one column per query of a block of
 * PANEL_QUERIES queries: S^T = K Q^T. The rows of K are operand A unpacked; the softmax runs down
 * the columns, sixteen queries side by side without a sum across lanes; and the weights are stored
 * as the panels that the next product, y^T = V^T P^T, reads as its operand B. Weights are powers of
 * two: log2(e) is folded into their scale.
 */
#ifndef BY_DEVICE_CPU_KERNELS_ATTENTION_ATTENTION_H
#define BY_DEVICE_CPU_KERNELS_ATTENTION_ATTENTION_H

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* Queries side by side: the columns of a panel. */
#define PANEL_QUERIES (2 * BY__LANES)
/* Longest block of keys: its scores stay in the first-level cache. */
#define MAX_KEYS 256

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
    /* a multiple of mr and k_unit, and even: blocks of keys start at its multiples */
    int64_t key_unit;
    int64_t key_block; /* a multiple of key_unit */
    int64_t window;    /* most keys up to its own that a query attends to; 0: no limit */
    /* keys behind its own that a query attends to: 0 when causal, length when all */
    int64_t reach;
    int64_t slopes, first_head; /* attributes slopes and begin */
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

/* Returns true if q, k and v are one packed tensor: before `others` further operands there is one,
 * or three whose second is absent. */
static inline bool attention_packed(const by__device_call *call, int others)
{
    return call->input_count - others == 1 || !by__present(&call->in[1]);
}

static inline attention_shape attention_measure(const by__device_call *call, bool packed,
                                                const by__cpu_panel *panel)
{
    const by__device_tensor *q = &call->in[0];
    attention_shape s = {
        .dtype = q->dtype,
        .batch = q->shape.dim[0],
        .length = q->shape.dim[1],
        .heads = call->attrs.heads,
        .kv_heads = call->attrs.kv_heads,
        .window = call->attrs.window,
        .slopes = call->attrs.slopes,
        .first_head = call->attrs.begin,
    };
    s.reach = !call->attrs.bidirectional ? 0 : s.window > 0 ? s.window - 1 : s.length;
    s.reach = by__min_i64(s.reach, s.length);
    assert(s.heads > 0 && s.kv_heads > 0);
    s.width = q->shape.dim[2] / (packed ? s.heads + 2 * s.kv_heads : s.heads);
    s.scale = (float)(1.0 / sqrt((double)s.width));
    assert(panel->nr == PANEL_QUERIES && panel->mr % 2 == 0);
    s.key_unit = common_multiple(panel->mr, panel->k_unit);
    assert(s.key_unit > 0);
    s.key_block = MAX_KEYS / s.key_unit * s.key_unit;
    return s;
}

/* Number of valid rows of sample b. `lengths` may be NULL. */
static inline int64_t attention_rows_of(const int32_t *lengths, const attention_shape *s, int64_t b)
{
    int64_t rows = lengths == NULL ? s->length : lengths[b];
    return rows < 0 ? 0 : by__min_i64(rows, s->length);
}

/* The fourth of the operands before `others` further ones, or NULL. */
static inline const int32_t *attention_lengths(const by__device_call *call, int others)
{
    return call->input_count - others > 3 && by__present(&call->in[3]) ? call->in[3].data : NULL;
}

/* The fifth of the operands before `others` further ones, or NULL. */
static inline const int32_t *attention_starts(const by__device_call *call, int others)
{
    return call->input_count - others > 4 && by__present(&call->in[4]) ? call->in[4].data : NULL;
}

/* Lower limits on the keys that queries of a sample attend to; see attention_is_limited. */
typedef struct attention_limit {
    int64_t window;
    const int32_t *starts; /* of the sample's queries; NULL: none */
    int64_t position;      /* position of query 0 among the keys */
} attention_limit;

static inline bool attention_is_limited(const attention_limit *limit)
{
    return limit->window > 0 || limit->starts != NULL;
}

/* The first key that query t attends to: at the latest its own. */
static inline int64_t attention_first_key(const attention_limit *limit, int64_t t)
{
    int64_t place = limit->position + t;
    int64_t first = limit->window > 0 ? place - limit->window + 1 : 0;
    if (limit->starts != NULL && limit->starts[t] > first) {
        first = limit->starts[t];
    }
    return first < 0 ? 0 : by__min_i64(first, place);
}

/* The first block of keys that queries begin .. end - 1 attend to. */
static inline int64_t attention_first_block(const attention_shape *s, const attention_limit *limit,
                                            int64_t begin, int64_t end)
{
    if (!attention_is_limited(limit)) {
        return 0;
    }
    int64_t lowest = INT64_MAX;
    for (int64_t t = begin; t < end; t++) {
        lowest = by__min_i64(lowest, attention_first_key(limit, t));
    }
    return lowest / s->key_unit * s->key_unit;
}

/* The first keys of BY__LANES queries from t on, of which `count` are valid; returns the last of
 * them. */
static inline int64_t attention_first_keys(by__vi *out, const attention_limit *limit, int64_t t,
                                           int64_t count)
{
    int32_t first[BY__LANES] = {0};
    int64_t latest = 0;
    for (int64_t i = 0; i < by__min_i64(BY__LANES, count) && attention_is_limited(limit); i++) {
        int64_t key = attention_first_key(limit, t + i);
        first[i] = (int32_t)key;
        latest = key > latest ? key : latest;
    }
    memcpy(out, first, sizeof *out);
    return latest;
}

static inline void attention_views(head_view views[3], const by__device_tensor *tensors,
                                   bool packed, const attention_shape *s)
{
    int64_t heads[3] = {s->heads, s->kv_heads, s->kv_heads};
    int64_t offset = 0;
    for (int i = 0; i < 3; i++) {
        const by__device_tensor *tensor = packed ? &tensors[0] : &tensors[i];
        views[i] = (head_view){tensor->data, tensor->shape.dim[2], packed ? offset : 0};
        offset += heads[i] * s->width;
    }
}

/* Address of element 0 of a head in row t of sample b. */
static inline void *head_at(const head_view *view, const attention_shape *s, int64_t b, int64_t t,
                            int64_t head)
{
    int64_t element = (b * s->length + t) * view->stride + view->offset + head * s->width;
    return (char *)view->data + (size_t)element * (s->dtype == BY_F32 ? 4 : 2);
}

/* Rows as operand A of a product, unpacked or packed. */
typedef struct attention_rows {
    const void *data;
    size_t stride; /* bytes between rows, or between panels */
    bool unpacked;
} attention_rows;

/* Prepares rows first .. rows - 1 of k elements, `stride` elements apart, as operand A: packed only
 * if the panel cannot read them unpacked. If unpacked and odd in number, one more row must be
 * readable. `first` is a multiple of mr.
 */
static inline attention_rows attention_load_rows(const by__cpu_panel *panel, by_dtype dtype,
                                                 const void *data, int64_t stride, int64_t first,
                                                 int64_t rows, int64_t k, bool unpacked,
                                                 void *packed)
{
    size_t row_bytes = (size_t)stride * (dtype == BY_F32 ? 4 : 2);
    if (unpacked) {
        return (attention_rows){data, row_bytes, true};
    }
    attention_rows out = {packed, by__panel_a_stride(panel, k), false};
    panel->pack_a((char *)packed + (size_t)(first / panel->mr) * out.stride, out.stride,
                  (const char *)data + (size_t)first * row_bytes, stride, 1, rows - first, k);
    return out;
}

/* Packs columns first .. columns - 1 of `rows` elements, `stride` elements apart, as steps of
 * panels of A for `capacity` columns. `first` is a multiple of k_unit. */
static inline void attention_load_columns(const by__cpu_panel *panel, by_dtype dtype, void *packed,
                                          int64_t capacity, const void *data, int64_t stride,
                                          int64_t first, int64_t columns, int64_t rows)
{
    size_t column_bytes = (size_t)stride * (dtype == BY_F32 ? 4 : 2);
    panel->pack_a((char *)packed + (size_t)(first / panel->step * panel->mr) * 4,
                  by__panel_a_stride(panel, capacity),
                  (const char *)data + (size_t)first * column_bytes, 1, stride, rows,
                  columns - first);
}

/* Returns true if the keys or values of a (sample, key head) with `rows` valid rows can be read
 * unpacked. */
static inline bool attention_reads_rows(const by__cpu_panel *panel, const attention_shape *s,
                                        int64_t stride, int64_t rows)
{
    return rows % 2 == 0 &&
           by__panel_reads_rows(panel, s->width, (size_t)stride * (s->dtype == BY_F32 ? 4 : 2));
}

/* c[m, n] = or += A B over k (a multiple of k_unit), where A starts at row `row` and b is
 * packed. */
static inline void attention_multiply(const by__cpu_panel *panel, float *c, int64_t ldc,
                                      const attention_rows *a, int64_t row, const void *b,
                                      size_t b_stride, int64_t m, int64_t n, int64_t k,
                                      bool accumulate)
{
    if (a->unpacked) {
        panel->multiply_rows(c, ldc, (const char *)a->data + (size_t)row * a->stride, a->stride, b,
                             b_stride, m, n, k, accumulate, NULL);
    } else {
        panel->multiply(c, ldc, by__panel_a_at(panel, a->data, row, 0, a->stride), a->stride, b,
                        b_stride, m, n, k, accumulate, NULL);
    }
}

/* Stores lanes from `lane` on of steps `key` (even) and key + 1 of a panel of B. */
BY__INLINE void attention_put(void *panel, bool pairs, int64_t key, int lane, by__vf even,
                              by__vf odd)
{
    if (pairs) {
        uint32_t *at = (uint32_t *)panel + key / 2 * PANEL_QUERIES + lane;
        by__vu both = by__bf16_pairs_flushed(even, odd);
        memcpy(at, &both, sizeof both);
        return;
    }
    float *at = (float *)panel + key * PANEL_QUERIES + lane;
    by__kernel_store(at, 0, even, BY_F32);
    by__kernel_store(at, PANEL_QUERIES, odd, BY_F32);
}

/* What a head subtracts from a score for each position between query and key (ALiBi), before the
 * scale; 0: nothing. */
static inline float attention_bias(const attention_shape *s, int64_t head)
{
    return s->slopes == 0 ? 0.0f
                          : (float)(by_attention_slope(s->slopes, s->first_head + head) *
                                    sqrt((double)s->width));
}

/* Subtracts it from scores [keys, PANEL_QUERIES] of queries from `query` on, keys from `key` on. */
BY__INLINE void attention_add_bias(float *scores, int64_t query, int64_t key, int64_t keys,
                                   float bias)
{
    for (int lane = 0; lane < PANEL_QUERIES; lane += BY__LANES) {
        by__vf place = __builtin_convertvector((by__vi)by__lane_numbers(), by__vf) +
                       (float)(query + lane - key);
        for (int64_t r = 0; r < keys; r++) {
            float *at = scores + r * PANEL_QUERIES + lane;
            by__vf distance = by__abs(place - (float)r);
            by__kernel_store(at, 0, by__kernel_load(at, 0, BY_F32) - distance * bias, BY_F32);
        }
    }
}

/* The same for scores first .. stop - 1 of one query, whose own key would be number `own`, not
 * before the last. */
static inline void attention_add_bias_row(float *scores, int64_t first, int64_t stop, int64_t own,
                                          float bias)
{
    for (int64_t i = first; i < stop && bias != 0.0f; i++) {
        scores[i] -= (float)(own - i) * bias;
    }
}

/* Mask of the lanes whose queries, from `query` on, attend to `key`. */
BY__INLINE by__vi attention_seen(int64_t query, int64_t key)
{
    return (by__vi)by__lane_numbers() >= (int32_t)(key - query);
}

/* Stores `count` queries with n elements of each from a block of sums[width, PANEL_QUERIES]. count
 * and n are constants for whole blocks. */
BY__INLINE void attention_store_block(void *y, by_dtype dtype, int64_t ldy, const float *sums,
                                      by__vf factor, int count, int n)
{
    by__vu block[BY__LANES];
#pragma GCC unroll 16
    for (int i = 0; i < BY__LANES; i++) {
        int row = i < n ? i : n - 1;
        block[i] = (by__vu)(by__kernel_load(sums, row * PANEL_QUERIES, BY_F32) * factor);
    }
    by__transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) {
        by__store_flushed_n(y, i * ldy, (by__vf)block[i], dtype, n);
    }
}

/* y[queries, width] = sums[width, PANEL_QUERIES]^T, each query times its factor. */
BY__INLINE void attention_store_as(void *y, by_dtype dtype, int64_t ldy, const float *sums,
                                   const float *factors, int64_t queries, int64_t width)
{
    for (int64_t q = 0; q < queries; q += BY__LANES) {
        int count = (int)by__min_i64(BY__LANES, queries - q);
        by__vf factor = by__kernel_load(factors, q, BY_F32);
        for (int64_t d = 0; d < width; d += BY__LANES) {
            int n = (int)by__min_i64(BY__LANES, width - d);
            char *out = (char *)y + (q * ldy + d) * (dtype == BY_F32 ? 4 : 2);
            const float *from = sums + d * PANEL_QUERIES + q;
            if (count == BY__LANES && n == BY__LANES) {
                attention_store_block(out, dtype, ldy, from, factor, BY__LANES, BY__LANES);
            } else {
                attention_store_block(out, dtype, ldy, from, factor, count, n);
            }
        }
    }
}

static inline void attention_store(void *y, by_dtype dtype, int64_t ldy, const float *sums,
                                   const float *factors, int64_t queries, int64_t width)
{
    if (dtype == BY_F32) {
        attention_store_as(y, BY_F32, ldy, sums, factors, queries, width);
    } else if (dtype == BY_F16) {
        attention_store_as(y, BY_F16, ldy, sums, factors, queries, width);
    } else {
        attention_store_as(y, BY_BF16, ldy, sums, factors, queries, width);
    }
}

/* Fills rows begin .. end of one head with zeros. */
static inline void attention_clear(const head_view *view, const attention_shape *s, int64_t b,
                                   int64_t begin, int64_t end, int64_t head)
{
    for (int64_t t = begin; t < end; t++) {
        memset(head_at(view, s, b, t, head), 0, (size_t)s->width * by_dtype_size(s->dtype));
    }
}

/* Copies the new keys and values of one head into their slots of CACHED_ATTENTION's caches. */
static inline void attention_fill(const by__device_call *call, const head_view in[3],
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

/* Queries [begin, stop) of sample b for key head kv; those from `end` on are beyond the valid
 * `rows` of the sample. */
typedef struct attention_task {
    int64_t b, kv;
    int64_t begin, end, stop;
    int64_t rows;
} attention_task;

/* Task `number` of the tasks that divide each (sample, key head) into `pieces` of `piece`
 * queries. */
static inline attention_task attention_task_at(const attention_shape *s, const int32_t *lengths,
                                               int64_t pieces, int64_t piece, int64_t number)
{
    attention_task t;
    t.begin = (pieces - 1 - number % pieces) * piece; /* longest tasks first */
    t.stop = by__min_i64(s->length, t.begin + piece);
    t.kv = number / pieces % s->kv_heads;
    t.b = number / pieces / s->kv_heads;
    t.rows = attention_rows_of(lengths, s, t.b);
    t.end = by__min_i64(t.stop, t.rows);
    return t;
}

/* Turns scores first .. stop - 1 into weights relative to 2^*high, that of the highest; returns
 * their sum. */
static inline float attention_weigh(float *scores, int64_t first, int64_t stop, float scale,
                                    float *high)
{
    by__vf top = by__splat(-INFINITY);
    int64_t i = first;
    for (; i + BY__LANES <= stop; i += BY__LANES) {
        top = by__larger(top, by__kernel_load(scores, i, BY_F32));
    }
    float highest = by__max(top);
    for (; i < stop; i++) {
        highest = scores[i] > highest ? scores[i] : highest;
    }
    highest *= scale * LOG2_E;
    by__vf sum = by__zero();
#define WEIGH(i, n)                                                                                \
    by__vf w =                                                                                     \
        by__exp2_of_negative(by__load_n(scores, (i), BY_F32, (n)) * (scale * LOG2_E) - highest);   \
    by__store_n(scores, (i), w, BY_F32, (n));                                                      \
    sum += (n) == BY__LANES ? w : by__load_n(scores, (i), BY_F32, (n))
    BY__STEPS(first, stop, WEIGH);
#undef WEIGH
    *high = highest;
    return by__sum(sum);
}

/* Runs every task once. Called by each thread of a team; begins with a barrier. */
static inline void attention_run_tasks(by__cpu_work_range *ranges, int64_t tasks,
                                       void (*run)(const void *context, int64_t task),
                                       const void *context)
{
    int me = omp_get_thread_num();
    int team = omp_get_num_threads();
    int64_t task;
    by__work_range_open(ranges, tasks, me, team);
#pragma omp barrier
    while ((task = by__work_range_claim(ranges, me, team)) >= 0) {
        run(context, task);
    }
}

#endif
