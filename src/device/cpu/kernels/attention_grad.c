/* ATTENTION_GRAD. With P the probabilities, recomputed from the saved logarithm of their sum, and
 * delta = rowsum(dy * y):
 *   dv = P^T dy,   ds = P * (dy v^T - delta) * scale,   dq = ds k,   dk = ds^T q.
 * dk and dv of a key head are added up over blocks of queries in order, in f32. */
#include "device/cpu/kernels/attention.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* With fewer (sample, key head) pairs than this, the queries of each are cut into pieces that have
 * sums of their own, added up in the end. */
#define ENOUGH_TASKS 8

typedef struct plan {
    const by__panel *panel;
    attention_shape s;
    bool packed;
    int64_t pieces;                          /* of the queries of a (sample, key head) */
    int64_t piece;                           /* queries in a piece, a multiple of query_block */
    size_t scores_keys, scores_values, keys; /* operands of all keys */
    size_t rows_q, rows_dy, columns_q, columns_dy; /* operands of a block of queries */
    size_t scores, dweights, weights, dscores, packed_block;
    size_t dq, delta;
    size_t thread_bytes;
    size_t sums;      /* where dk and dv are added up, behind the threads' scratch */
    size_t sum_bytes; /* of one of them, for one task */
    size_t shares;
} plan;

/* One block of queries of one head. */
typedef struct job {
    const plan *p;
    char *scratch;
    float *dk, *dv;
    const float *lse;
    int64_t first; /* the first query */
    int64_t queries;
} job;

static void *area(const job *j, size_t offset)
{
    return j->scratch + offset;
}

static inline __attribute__((always_inline)) void
weigh_row(const float *scores, const float *dweights, void *weights, void *dscores, by_dtype dtype,
          int64_t seen, int64_t padded, float scale, float lse, float delta)
{
    int64_t i = 0;
    for (; i + BY__LANES <= seen; i += BY__LANES) {
        by__vf w = by__exp_of_negative(by__load(scores, i, BY_F32) * scale - lse);
        by__vf ds = w * ((by__load(dweights, i, BY_F32) - delta) * scale);
        by__store_flushed(weights, i, w, dtype);
        by__store_flushed(dscores, i, ds, dtype);
    }
    for (; i < padded; i += BY__LANES) {
        by__vi lanes = (by__vi)by__lane_numbers() + (int32_t)i < (int32_t)seen;
        by__vf w = by__exp_of_negative(by__load(scores, i, BY_F32) * scale - lse);
        by__vf ds = w * ((by__load(dweights, i, BY_F32) - delta) * scale);
        by__store_flushed(weights, i, by__select(lanes, w, by__zero()), dtype);
        by__store_flushed(dscores, i, by__select(lanes, ds, by__zero()), dtype);
    }
}

static inline __attribute__((always_inline)) void weigh(const job *j, int64_t key, int64_t keys,
                                                        by_dtype dtype)
{
    const plan *p = j->p;
    const float *delta = area(j, p->delta);
    int64_t size = dtype == BY_F32 ? 4 : 2;
    int64_t padded = (int64_t)by__round_up((size_t)keys, BY__LANES);
    for (int64_t r = 0; r < j->queries; r++) {
        int64_t seen = by__min_i64(keys, j->first + r - key + 1);
        int64_t at = r * p->s.key_block;
        weigh_row((const float *)area(j, p->scores) + at, (const float *)area(j, p->dweights) + at,
                  (char *)area(j, p->weights) + at * size, (char *)area(j, p->dscores) + at * size,
                  dtype, seen < 0 ? 0 : seen, padded, p->s.scale, j->lse[r], delta[r]);
    }
}

/* The block of queries against one block of keys. */
static void meet(const job *j, int64_t key, int64_t keys)
{
    const plan *p = j->p;
    const by__panel *panel = p->panel;
    int64_t width = p->s.width;
    int64_t block = p->s.key_block;
    int64_t width_k = by__panel_k(panel, width);
    size_t a_stride = by__panel_a_stride(panel, width);
    size_t b_stride = by__panel_b_stride(panel, width);
    panel->multiply(area(j, p->scores), block, area(j, p->rows_q), a_stride,
                    by__panel_b_at(panel, area(j, p->scores_keys), key, 0, b_stride), b_stride,
                    j->queries, keys, width_k, false);
    panel->multiply(area(j, p->dweights), block, area(j, p->rows_dy), a_stride,
                    by__panel_b_at(panel, area(j, p->scores_values), key, 0, b_stride), b_stride,
                    j->queries, keys, width_k, false);
    if (p->s.dtype == BY_F32) {
        weigh(j, key, keys, BY_F32);
    } else {
        weigh(j, key, keys, BY_BF16);
    }
    void *packed = area(j, p->packed_block);
    int64_t queries_k = by__panel_k(panel, j->queries);
    a_stride = by__panel_a_stride(panel, j->queries);
    b_stride = by__panel_b_stride(panel, j->queries);
    panel->pack_a(packed, a_stride, area(j, p->weights), 1, block, keys, j->queries);
    panel->multiply(j->dv + key * width, width, packed, a_stride, area(j, p->columns_dy), b_stride,
                    keys, width, queries_k, true);
    panel->pack_a(packed, a_stride, area(j, p->dscores), 1, block, keys, j->queries);
    panel->multiply(j->dk + key * width, width, packed, a_stride, area(j, p->columns_q), b_stride,
                    keys, width, queries_k, true);
    b_stride = by__panel_b_stride(panel, p->s.length);
    attention_multiply(panel, area(j, p->dq), width, area(j, p->dscores), block, p->s.dtype, packed,
                       by__panel_b_at(panel, area(j, p->keys), 0, key, b_stride), b_stride,
                       j->queries, width, keys, key > 0);
}

/* delta of each query of the block. */
static inline __attribute__((always_inline)) void sum_rows(float *delta, const char *y,
                                                           const char *dy, int64_t stride,
                                                           int64_t rows, int64_t width,
                                                           by_dtype dtype)
{
    int64_t row_bytes = stride * (dtype == BY_F32 ? 4 : 2);
    for (int64_t r = 0; r < rows; r++) {
        by__vf sum = by__zero();
#define ADD_PRODUCT(i, n)                                                                          \
    sum += by__load_n(y + r * row_bytes, (i), dtype, (n)) *                                        \
           by__load_n(dy + r * row_bytes, (i), dtype, (n))
        BY__STEPS(0, width, ADD_PRODUCT);
#undef ADD_PRODUCT
        delta[r] = by__sum(sum);
    }
}

static void run_block(const job *j, const void *q, int64_t q_stride, const void *y, const void *dy,
                      void *dq, int64_t dq_stride)
{
    const plan *p = j->p;
    const by__panel *panel = p->panel;
    const attention_shape *s = &p->s;
    int64_t y_stride = s->heads * s->width;
    size_t a_stride = by__panel_a_stride(panel, s->width);
    size_t b_stride = by__panel_b_stride(panel, j->queries);
    panel->pack_a(area(j, p->rows_q), a_stride, q, q_stride, 1, j->queries, s->width);
    panel->pack_a(area(j, p->rows_dy), a_stride, dy, y_stride, 1, j->queries, s->width);
    panel->pack_b(area(j, p->columns_q), b_stride, q, 1, q_stride, s->width, j->queries);
    panel->pack_b(area(j, p->columns_dy), b_stride, dy, 1, y_stride, s->width, j->queries);
    if (s->dtype == BY_F32) {
        sum_rows(area(j, p->delta), y, dy, y_stride, j->queries, s->width, BY_F32);
    } else {
        sum_rows(area(j, p->delta), y, dy, y_stride, j->queries, s->width, BY_BF16);
    }
    int64_t visible = j->first + j->queries;
    for (int64_t key = 0; key < visible; key += s->key_block) {
        meet(j, key, by__min_i64(s->key_block, visible - key));
    }
    panel->store(dq, s->dtype, dq_stride, area(j, p->dq), s->width, j->queries, s->width, NULL,
                 BY_F32, NULL);
}

typedef struct operands {
    head_view in[3], out[3];
    head_view y, dy;
    const float *lse;
} operands;

/* All query heads of a key head, for one piece of the queries. */
static void run_task(const by__call *call, const operands *x, int64_t task)
{
    const plan *p = call->state;
    const attention_shape *s = &p->s;
    const by__panel *panel = p->panel;
    int64_t begin = (p->pieces - 1 - task % p->pieces) * p->piece; /* the longest first */
    int64_t end = by__min_i64(s->length, begin + p->piece);
    int64_t kv = task / p->pieces % s->kv_heads;
    int64_t b = task / p->pieces / s->kv_heads;
    int64_t thread = omp_get_thread_num();
    job j = {.p = p, .scratch = (char *)call->work + p->thread_bytes * (size_t)thread};
    size_t slot = (size_t)(p->pieces > 1 ? task : thread);
    j.dk = (float *)((char *)call->work + p->sums + 2 * slot * p->sum_bytes);
    j.dv = (float *)((char *)j.dk + p->sum_bytes);
    memset(j.dk, 0, 2 * p->sum_bytes);
    const void *k = head_at(&x->in[1], s, b, 0, kv);
    const void *v = head_at(&x->in[2], s, b, 0, kv);
    size_t b_stride = by__panel_b_stride(panel, s->width);
    panel->pack_b(area(&j, p->scores_keys), b_stride, k, x->in[1].stride, 1, end, s->width);
    panel->pack_b(area(&j, p->scores_values), b_stride, v, x->in[2].stride, 1, end, s->width);
    panel->pack_b(area(&j, p->keys), by__panel_b_stride(panel, s->length), k, 1, x->in[1].stride,
                  s->width, end);
    int64_t group = s->heads / s->kv_heads;
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        for (int64_t t = begin; t < end; t += s->query_block) {
            j.first = t;
            j.queries = by__min_i64(s->query_block, end - t);
            j.lse = x->lse + (b * s->heads + head) * s->length + t;
            run_block(&j, head_at(&x->in[0], s, b, t, head), x->in[0].stride,
                      head_at(&x->y, s, b, t, head), head_at(&x->dy, s, b, t, head),
                      head_at(&x->out[0], s, b, t, head), x->out[0].stride);
        }
    }
    if (p->pieces == 1) {
        panel->store(head_at(&x->out[1], s, b, 0, kv), s->dtype, x->out[1].stride, j.dk, s->width,
                     s->length, s->width, NULL, BY_F32, NULL);
        panel->store(head_at(&x->out[2], s, b, 0, kv), s->dtype, x->out[2].stride, j.dv, s->width,
                     s->length, s->width, NULL, BY_F32, NULL);
    }
}

/* Adds up the pieces of one (sample, key head), in order. */
static void add_pieces(const by__call *call, const operands *x, int64_t pair)
{
    const plan *p = call->state;
    const attention_shape *s = &p->s;
    int64_t count = s->length * s->width;
    for (int which = 0; which < 2; which++) {
        char *first =
            (char *)call->work + p->sums + (size_t)(2 * pair * p->pieces + which) * p->sum_bytes;
        float *sum = (float *)first;
        for (int64_t piece = 1; piece < p->pieces; piece++) {
            const float *part = (const float *)(first + 2 * (size_t)piece * p->sum_bytes);
            for (int64_t i = 0; i < count; i++) {
                sum[i] += part[i];
            }
        }
        const head_view *out = &x->out[1 + which];
        p->panel->store(head_at(out, s, pair / s->kv_heads, 0, pair % s->kv_heads), s->dtype,
                        out->stride, sum, s->width, s->length, s->width, NULL, BY_F32, NULL);
    }
}

static by_status run(const by__call *call)
{
    const plan *p = call->state;
    const attention_shape *s = &p->s;
    const by__tensor *y = &call->in[call->input_count - 3];
    operands x = {
        .y = {y[0].data, s->heads * s->width, 0},
        .dy = {y[2].data, s->heads * s->width, 0},
        .lse = y[1].data,
    };
    attention_views(x.in, call->in, p->packed, s);
    attention_views(x.out, call->out, p->packed, s);
    int64_t pairs = s->batch * s->kv_heads;
    int64_t tasks = pairs * p->pieces;
    by__share *shares = (by__share *)((char *)call->work + p->shares);
#pragma omp parallel num_threads(call->threads) if (call->threads > 1)
    {
        int me = omp_get_thread_num();
        int team = omp_get_num_threads();
        by__share_open(shares, tasks, me, team);
#pragma omp barrier
        int64_t task;
        while ((task = by__share_take(shares, me, team)) >= 0) {
            run_task(call, &x, task);
        }
        if (p->pieces > 1) {
#pragma omp barrier
#pragma omp for schedule(static)
            for (int64_t pair = 0; pair < pairs; pair++) {
                add_pieces(call, &x, pair);
            }
        }
    }
    return BY_OK;
}

static bool supports(const by__call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0;
}

static void plan_scratch(plan *p)
{
    const by__panel *panel = p->panel;
    const attention_shape *s = &p->s;
    size_t used = 0;
    size_t tile = (size_t)(s->query_block * s->key_block);
    size_t size = by_dtype_size(s->dtype);
    p->scores_keys = reserve(&used, by__panel_b_bytes(panel, s->length, s->width));
    p->scores_values = reserve(&used, by__panel_b_bytes(panel, s->length, s->width));
    p->keys = reserve(&used, by__panel_b_bytes(panel, s->width, s->length));
    p->rows_q = reserve(&used, by__panel_a_bytes(panel, s->query_block, s->width));
    p->rows_dy = reserve(&used, by__panel_a_bytes(panel, s->query_block, s->width));
    p->columns_q = reserve(&used, by__panel_b_bytes(panel, s->width, s->query_block));
    p->columns_dy = reserve(&used, by__panel_b_bytes(panel, s->width, s->query_block));
    p->scores = reserve(&used, tile * sizeof(float));
    p->dweights = reserve(&used, tile * sizeof(float));
    p->weights = reserve(&used, tile * size);
    p->dscores = reserve(&used, tile * size);
    size_t across = by__panel_a_bytes(panel, s->query_block, s->key_block);
    size_t along = by__panel_a_bytes(panel, s->key_block, s->query_block);
    p->packed_block = reserve(&used, across > along ? across : along);
    p->dq = reserve(&used, (size_t)(s->query_block * s->width) * sizeof(float));
    p->delta = reserve(&used, (size_t)s->query_block * sizeof(float));
    p->thread_bytes = by__round_up(used, 4096);
}

static by_status prepare(by__call *call, by_error *error)
{
    plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the gradient of attention", error));
    p->packed = attention_packed(call, 3);
    p->panel = by__panel_for(BY__AT_LEVEL(BY__LEVEL), by__panel_native(), call->in[0].dtype);
    p->s = attention_measure(call, p->packed, p->panel);
    const attention_shape *s = &p->s;
    int64_t pairs = s->batch * s->kv_heads;
    int64_t blocks = by__ceil_div(s->length, s->query_block);
    p->pieces = by__min_i64(blocks, by__ceil_div(ENOUGH_TASKS, pairs));
    p->piece = by__ceil_div(blocks, p->pieces) * s->query_block;
    p->pieces = by__ceil_div(s->length, p->piece);
    plan_scratch(p);
    p->sums = p->thread_bytes * (size_t)call->threads;
    p->sum_bytes = by__round_up((size_t)(s->length * s->width) * sizeof(float), BY_CACHE_LINE);
    int64_t slots = p->pieces > 1 ? pairs * p->pieces : call->threads;
    call->state = p;
    p->shares = p->sums + 2 * (size_t)slots * p->sum_bytes;
    call->work_bytes = p->shares + (size_t)call->threads * sizeof(by__share);
    return BY_OK;
}

static void release(by__call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(attention_grad) = {
    BY_OP_ATTENTION_GRAD, BY__KERNEL_NAME("attention_grad"), supports, prepare, release, run};
