/* ATTENTION, and CACHED_ATTENTION over more than a few new tokens. */
#include "device/cpu/kernels/attention.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* With fewer (sample, key head) pairs than this, the queries of each are cut into pieces too. */
#define ENOUGH_TASKS 16

typedef struct plan {
    const by__panel *panel;
    attention_shape s;
    bool packed;
    bool cached;
    int64_t slots;  /* rows of keys at most */
    int64_t pieces; /* of the queries of a (sample, key head) */
    int64_t piece;  /* queries in a piece, a multiple of query_block */
    size_t keys, values, queries, scores, weights, packed_weights, sums, lows, totals;
    size_t thread_bytes;
    size_t shares; /* behind the scratch of all threads */
} plan;

/* One head's block of queries against all keys that they see. */
typedef struct job {
    const plan *p;
    char *scratch;
    int64_t first;   /* place of the first query among the keys */
    int64_t queries; /* in this block */
} job;

static void *area(const job *j, size_t offset)
{
    return j->scratch + offset;
}

/* Scores of one row against keys that it may see become weights relative to the row's highest score
 * so far; returns the factor that brings what was summed before to the same footing. */
static inline __attribute__((always_inline)) float weigh_row(const float *scores, void *weights,
                                                             by_dtype dtype, int64_t seen,
                                                             int64_t padded, float scale,
                                                             float *high, float *total)
{
    by__vf top = by__splat(-INFINITY);
    int64_t i = 0;
    for (; i + BY__LANES <= seen; i += BY__LANES) {
        top = by__larger(top, by__load(scores, i, BY_F32));
    }
    float highest = by__max(top) * scale;
    highest = *high > highest ? *high : highest;
    for (; i < seen; i++) {
        highest = scores[i] * scale > highest ? scores[i] * scale : highest;
    }
    by__vf sum = by__zero();
    by__vf base = by__splat(highest);
    for (i = 0; i + BY__LANES <= seen; i += BY__LANES) {
        by__vf w = by__exp_of_negative(by__load(scores, i, BY_F32) * scale - base);
        sum += w;
        by__store_flushed(weights, i, w, dtype);
    }
    for (; i < padded; i += BY__LANES) {
        by__vi lanes = (by__vi)by__lane_numbers() + (int32_t)i < (int32_t)seen;
        by__vf w = by__exp_of_negative(by__load(scores, i, BY_F32) * scale - base);
        w = by__select(lanes, w, by__zero());
        sum += w;
        by__store_flushed(weights, i, w, dtype);
    }
    float factor = expf(*high - highest);
    *total = *total * factor + by__sum(sum);
    *high = highest;
    return factor;
}

static inline __attribute__((always_inline)) void weigh(const job *j, int64_t key, int64_t keys,
                                                        by_dtype dtype)
{
    const plan *p = j->p;
    const float *scores = area(j, p->scores);
    char *weights = area(j, p->weights);
    float *sums = area(j, p->sums);
    float *high = area(j, p->lows);
    float *total = area(j, p->totals);
    int64_t size = dtype == BY_F32 ? 4 : 2;
    int64_t padded = (int64_t)by__round_up((size_t)keys, BY__LANES);
    for (int64_t r = 0; r < j->queries; r++) {
        int64_t seen = by__min_i64(keys, j->first + r - key + 1);
        seen = seen < 0 ? 0 : seen;
        float factor = weigh_row(scores + r * p->s.key_block, weights + r * p->s.key_block * size,
                                 dtype, seen, padded, p->s.scale, &high[r], &total[r]);
        if (factor != 1.0f && key > 0) {
            for (int64_t d = 0; d < p->s.width; d++) {
                sums[r * p->s.width + d] *= factor;
            }
        }
    }
}

/* y and lse of one block; the keys and values are packed. */
static void attend(const job *j, const void *q, int64_t q_stride, void *y, int64_t y_stride,
                   float *lse)
{
    const plan *p = j->p;
    const by__panel *panel = p->panel;
    int64_t width = p->s.width;
    int64_t width_k = by__panel_k(panel, width);
    int64_t visible = j->first + j->queries;
    size_t k_stride = by__panel_b_stride(panel, width);
    size_t v_stride = by__panel_b_stride(panel, p->slots);
    float *sums = area(j, p->sums);
    float *high = area(j, p->lows);
    float *total = area(j, p->totals);
    panel->pack_a(area(j, p->queries), by__panel_a_stride(panel, width), q, q_stride, 1, j->queries,
                  width);
    for (int64_t r = 0; r < j->queries; r++) {
        high[r] = -INFINITY;
        total[r] = 0.0f;
    }
    for (int64_t key = 0; key < visible; key += p->s.key_block) {
        int64_t keys = by__min_i64(p->s.key_block, visible - key);
        panel->multiply(area(j, p->scores), p->s.key_block, area(j, p->queries),
                        by__panel_a_stride(panel, width),
                        by__panel_b_at(panel, area(j, p->keys), key, 0, k_stride), k_stride,
                        j->queries, keys, width_k, false);
        if (p->s.dtype == BY_F32) {
            weigh(j, key, keys, BY_F32);
        } else {
            weigh(j, key, keys, BY_BF16);
        }
        attention_multiply(panel, sums, width, area(j, p->weights), p->s.key_block, p->s.dtype,
                           area(j, p->packed_weights),
                           by__panel_b_at(panel, area(j, p->values), 0, key, v_stride), v_stride,
                           j->queries, width, keys, key > 0);
    }
    for (int64_t r = 0; r < j->queries; r++) {
        float inverse = 1.0f / total[r];
        for (int64_t d = 0; d < width; d++) {
            sums[r * width + d] *= inverse;
        }
        if (lse != NULL) {
            lse[r] = high[r] + logf(total[r]);
        }
    }
    panel->store(y, p->s.dtype, y_stride, sums, width, j->queries, width, NULL, BY_F32, NULL);
}

/* All query heads of a key head, for one piece of the queries. */
static void run_task(const by__call *call, const head_view in[3], int64_t task, int64_t position)
{
    const plan *p = call->state;
    const attention_shape *s = &p->s;
    const by__panel *panel = p->panel;
    int64_t begin = (p->pieces - 1 - task % p->pieces) * p->piece; /* the longest first */
    int64_t end = by__min_i64(s->length, begin + p->piece);
    int64_t kv = task / p->pieces % s->kv_heads;
    int64_t b = task / p->pieces / s->kv_heads;
    job j = {.p = p,
             .scratch = (char *)call->work + p->thread_bytes * (size_t)omp_get_thread_num()};
    const void *keys = head_at(&in[1], s, b, 0, kv);
    const void *values = head_at(&in[2], s, b, 0, kv);
    int64_t k_stride = in[1].stride;
    int64_t v_stride = in[2].stride;
    if (p->cached) {
        size_t cache =
            (size_t)((b * s->kv_heads + kv) * p->slots * s->width) * by_dtype_size(s->dtype);
        keys = (const char *)call->in[call->input_count - 3].data + cache;
        values = (const char *)call->in[call->input_count - 2].data + cache;
        k_stride = v_stride = s->width;
    }
    int64_t visible = position + end;
    panel->pack_b(area(&j, p->keys), by__panel_b_stride(panel, s->width), keys, k_stride, 1,
                  visible, s->width);
    panel->pack_b(area(&j, p->values), by__panel_b_stride(panel, p->slots), values, 1, v_stride,
                  s->width, visible);
    int64_t group = s->heads / s->kv_heads;
    head_view y = {call->out[0].data, s->heads * s->width, 0};
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        for (int64_t t = begin; t < end; t += s->query_block) {
            j.queries = by__min_i64(s->query_block, end - t);
            j.first = position + t;
            float *lse = p->cached
                             ? NULL
                             : (float *)call->out[1].data + (b * s->heads + head) * s->length + t;
            attend(&j, head_at(&in[0], s, b, t, head), in[0].stride, head_at(&y, s, b, t, head),
                   y.stride, lse);
        }
    }
}

static bool supports(const by__call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0;
}

static by_status plan_attention(by__call *call, bool cached, int64_t slots, by_error *error)
{
    plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "attention", error));
    p->packed = attention_packed(call, cached ? 3 : 0);
    p->cached = cached;
    p->slots = slots;
    p->panel = by__panel_for(BY__AT_LEVEL(BY__LEVEL), by__panel_native(), call->in[0].dtype);
    p->s = attention_measure(call, p->packed, p->panel);
    const attention_shape *s = &p->s;
    int64_t tasks = s->batch * s->kv_heads;
    int64_t blocks = by__ceil_div(s->length, s->query_block);
    p->pieces = by__min_i64(blocks, by__ceil_div(ENOUGH_TASKS, tasks));
    p->piece = by__ceil_div(blocks, p->pieces) * s->query_block;
    p->pieces = by__ceil_div(s->length, p->piece);
    size_t used = 0;
    size_t tile = (size_t)(s->query_block * s->key_block);
    p->keys = reserve(&used, by__panel_b_bytes(p->panel, slots, s->width));
    p->values = reserve(&used, by__panel_b_bytes(p->panel, s->width, slots));
    p->queries = reserve(&used, by__panel_a_bytes(p->panel, s->query_block, s->width));
    p->scores = reserve(&used, tile * sizeof(float));
    p->weights = reserve(&used, tile * sizeof(float));
    p->packed_weights = reserve(&used, by__panel_a_bytes(p->panel, s->query_block, s->key_block));
    p->sums = reserve(&used, (size_t)(s->query_block * s->width) * sizeof(float));
    p->lows = reserve(&used, (size_t)s->query_block * sizeof(float));
    p->totals = reserve(&used, (size_t)s->query_block * sizeof(float));
    p->thread_bytes = by__round_up(used, 4096);
    call->state = p;
    p->shares = p->thread_bytes * (size_t)call->threads;
    call->work_bytes = p->shares + (size_t)call->threads * sizeof(by__share);
    return BY_OK;
}

static by_status prepare(by__call *call, by_error *error)
{
    return plan_attention(call, false, call->in[0].shape.dim[1], error);
}

static void release(by__call *call)
{
    free(call->state);
    call->state = NULL;
}

static void run_tasks(const by__call *call, const head_view in[3], int64_t position)
{
    const plan *p = call->state;
    int64_t tasks = p->s.batch * p->s.kv_heads * p->pieces;
    by__share *shares = (by__share *)((char *)call->work + p->shares);
#pragma omp parallel num_threads(call->threads) if (call->threads > 1)
    {
        int me = omp_get_thread_num();
        int team = omp_get_num_threads();
        by__share_open(shares, tasks, me, team);
#pragma omp barrier
        int64_t task;
        while ((task = by__share_take(shares, me, team)) >= 0) {
            run_task(call, in, task, position);
        }
    }
}

static by_status run(const by__call *call)
{
    const plan *p = call->state;
    head_view in[3];
    attention_views(in, call->in, p->packed, &p->s);
    run_tasks(call, in, 0);
    return BY_OK;
}

BY__KERNEL(attention) = {
    BY_OP_ATTENTION, BY__KERNEL_NAME("attention"), supports, prepare, release, run};

static by_status prepare_cached(by__call *call, by_error *error)
{
    return plan_attention(call, true, call->in[call->input_count - 2].shape.dim[2], error);
}

static by_status run_cached(const by__call *call)
{
    const plan *p = call->state;
    head_view in[3];
    attention_views(in, call->in, p->packed, &p->s);
    int64_t position = *(const int32_t *)call->in[call->input_count - 1].data;
    for (int64_t pair = 0; pair < p->s.batch * p->s.kv_heads; pair++) {
        attention_fill(call, in, &p->s, p->slots, position, pair / p->s.kv_heads,
                       pair % p->s.kv_heads);
    }
    run_tasks(call, in, position);
    return BY_OK;
}

BY__KERNEL(cached_attention) = {BY_OP_CACHED_ATTENTION,
                                BY__KERNEL_NAME("cached_attention"),
                                supports,
                                prepare_cached,
                                release,
                                run_cached};
