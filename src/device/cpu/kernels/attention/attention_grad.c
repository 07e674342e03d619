/* ATTENTION_GRAD. With P the probabilities, recomputed from the saved logarithm of their sum, and
 * delta = rowsum(dy * y):
 *   dv = P^T dy,   ds = P * (dy v^T - delta) * scale,   dq = ds k,   dk = ds^T q,
 * with P and ds stored transposed (attention.h). dk and dv of a key head are accumulated over
 * blocks of queries in order, in f32. */
#include "device/cpu/kernels/attention/attention.h"

#include <stdlib.h>
#include <string.h>

/* With fewer (sample, key head) pairs than this, the queries of each are divided into pieces with
 * separate sums, which are added at the end. */
#define ENOUGH_TASKS 8

/* Approximate number of queries in a block: each block reads and writes the sums of dk and dv once,
 * and a block on the diagonal computes half of its scores in vain. */
#define BLOCK_QUERIES       64
#define SHORT_BLOCK_QUERIES 32
#define SHORT_LENGTH        256

typedef struct attention_grad_plan {
    const by__cpu_panel *panel;
    const by__cpu_panel *rows_panel; /* for weights as rows of A */
    by_dtype rows_dtype;             /* of these rows */
    attention_shape s;
    bool packed;
    bool unpacked; /* keys and values are read unpacked */
    bool weights_lie;
    int64_t query_block;                      /* a multiple of PANEL_QUERIES */
    int64_t pieces;                           /* pieces of the queries of a (sample, key head) */
    int64_t piece;                            /* queries per piece, a multiple of query_block */
    size_t key_rows, value_rows, key_columns; /* operands of all keys */
    size_t rows_q, rows_dy, columns_q, columns_dy; /* operands of a block of queries */
    size_t scores, dweights, weights, dscores, dscores_panel, packed_rows;
    size_t dq, delta, lse;
    size_t thread_bytes;
    size_t sums;      /* offset of the sums of dk and dv, after the threads' scratch memory */
    size_t sum_bytes; /* bytes of one of these sums, for one task */
    size_t ranges;
} attention_grad_plan;

/* One block of queries of one head. */
typedef struct attention_grad_job {
    const attention_grad_plan *p;
    char *scratch;
    attention_rows keys, values;
    float *dk, *dv;
    int64_t first; /* the first query */
    int64_t queries;
    int64_t begin;   /* first key of the first visible block */
    int64_t visible; /* end of the keys that some query attends to */
    float bias;      /* of the head: attention_bias */
    attention_limit limit;
} attention_grad_job;

/* PANEL_QUERIES queries of a block, and a block of keys. */
typedef struct query_key_blocks {
    const attention_grad_job *j;
    int64_t query; /* index within the block */
    int64_t key, keys;
} query_key_blocks;

static void *area(const attention_grad_job *j, size_t offset)
{
    return j->scratch + offset;
}

/* Operands of weigh() for the lanes of vector v. */
typedef struct softmax_lanes {
    const float *scores, *dweights; /* [keys][PANEL_QUERIES] */
    char *weights, *dscores;        /* [keys][query_block] */
    void *dscores_panel;
    int64_t query_block;
    int64_t last;  /* the last key that the first lane's query attends to */
    int64_t count; /* number of lanes that are valid queries */
    int64_t key;   /* the first key of the block */
    by__vi from;   /* the first key that each lane attends to */
    float scale;
    by__vf lse, delta;
} softmax_lanes;

/* Computes the weight of key r of the block and its gradient, stored as rows of A; if `masked`,
 * they are zero where a lane does not attend to the key. */
BY__INLINE by__vf weigh_key(const softmax_lanes *x, int64_t r, int lane, bool masked,
                            by_dtype dtype)
{
    by__vf score = by__kernel_load(x->scores, r * PANEL_QUERIES + lane, BY_F32);
    by__vf dw = by__kernel_load(x->dweights, r * PANEL_QUERIES + lane, BY_F32);
    by__vf w = by__exp2_of_negative(score * (x->scale * LOG2_E) - x->lse);
    by__vf ds = w * ((dw - x->delta) * x->scale);
    if (masked) {
        by__vi seen = attention_seen(x->last, x->key + r);
        seen &= (by__vi)by__lane_numbers() < (int32_t)x->count;
        seen &= x->from <= (int32_t)(x->key + r);
        w = by__select(seen, w, by__zero());
        ds = by__select(seen, ds, by__zero());
    }
    by__store_flushed(x->weights, r * x->query_block + lane, w, dtype);
    by__store_flushed(x->dscores, r * x->query_block + lane, ds, dtype);
    return ds;
}

/* Keys r .. end - 1 that some lane may not attend to; r is even, end is even or the last. */
BY__INLINE void weigh_masked(const softmax_lanes *x, int64_t r, int64_t end, int64_t keys, int lane,
                             by_dtype dtype)
{
    for (; r < end; r += 2) {
        by__vf even = r < keys ? weigh_key(x, r, lane, true, dtype) : by__zero();
        by__vf odd = r + 1 < keys ? weigh_key(x, r + 1, lane, true, dtype) : by__zero();
        attention_put(x->dscores_panel, dtype == BY_BF16, r, lane, even, odd);
    }
}

/* Computes the weights of `keys` keys and their gradients; the gradients are also stored as panels
 * of B, padded with zeros to a whole unit. The keys from `limited` (even) to `seen_by_all` need no
 * mask. */
BY__INLINE void weigh_lanes(const softmax_lanes *x, int64_t keys, int64_t limited,
                            int64_t seen_by_all, int64_t padded, int lane, by_dtype dtype)
{
    int64_t r = by__min_i64(limited, padded);
    weigh_masked(x, 0, r, keys, lane, dtype);
    for (; r + 2 <= seen_by_all; r += 2) {
        by__vf even = weigh_key(x, r, lane, false, dtype);
        by__vf odd = weigh_key(x, r + 1, lane, false, dtype);
        attention_put(x->dscores_panel, dtype == BY_BF16, r, lane, even, odd);
    }
    weigh_masked(x, r, padded, keys, lane, dtype);
}

BY__INLINE void weigh(const query_key_blocks *m, by_dtype dtype)
{
    const attention_grad_job *j = m->j;
    const attention_grad_plan *p = j->p;
    int64_t size = dtype == BY_F32 ? 4 : 2;
    for (int lane = 0; lane < PANEL_QUERIES; lane += BY__LANES) {
        int64_t query = m->query + lane;
        softmax_lanes x = {
            .scores = area(j, p->scores),
            .dweights = area(j, p->dweights),
            .weights = (char *)area(j, p->weights) + m->query * size,
            .dscores = (char *)area(j, p->dscores) + m->query * size,
            .dscores_panel = area(j, p->dscores_panel),
            .query_block = p->query_block,
            .last = j->first + query + p->s.reach,
            .count = j->queries - query,
            .key = m->key,
            .scale = p->s.scale,
            .lse = by__kernel_load(area(j, p->lse), query, BY_F32),
            .delta = by__kernel_load(area(j, p->delta), query, BY_F32),
        };
        int64_t limited = attention_first_keys(&x.from, &j->limit, j->first + query, x.count);
        limited = limited <= m->key ? 0 : (limited - m->key + 1) / 2 * 2;
        int64_t seen_by_all = x.count < BY__LANES ? 0 : by__min_i64(m->keys, x.last + 1 - m->key);
        weigh_lanes(&x, m->keys, limited, seen_by_all, by__panel_k(p->panel, m->keys), lane, dtype);
    }
}

/* Computes scores and their gradients for some queries, and adds to dq. */
static void add_queries(const query_key_blocks *m)
{
    const attention_grad_job *j = m->j;
    const attention_grad_plan *p = j->p;
    const by__cpu_panel *panel = p->panel;
    int64_t width = p->s.width;
    int64_t width_k = by__panel_k(panel, width);
    size_t b_stride = by__panel_b_stride(panel, width);
    size_t a_stride = by__panel_a_stride(panel, p->s.length);
    attention_multiply(panel, area(j, p->scores), PANEL_QUERIES, &j->keys, m->key,
                       by__panel_b_at(panel, area(j, p->rows_q), m->query, 0, b_stride), b_stride,
                       m->keys, PANEL_QUERIES, width_k, false);
    if (j->bias != 0.0f) {
        attention_add_bias(area(j, p->scores), j->first + m->query, m->key, m->keys, j->bias);
    }
    attention_multiply(panel, area(j, p->dweights), PANEL_QUERIES, &j->values, m->key,
                       by__panel_b_at(panel, area(j, p->rows_dy), m->query, 0, b_stride), b_stride,
                       m->keys, PANEL_QUERIES, width_k, false);
    if (p->rows_dtype == BY_BF16) {
        weigh(m, BY_BF16);
    } else {
        weigh(m, BY_F32);
    }
    panel->multiply((float *)area(j, p->dq) + m->query * width, PANEL_QUERIES,
                    by__panel_a_at(panel, area(j, p->key_columns), 0, m->key, a_stride), a_stride,
                    area(j, p->dscores_panel), 0, width, PANEL_QUERIES, by__panel_k(panel, m->keys),
                    m->key > j->begin, NULL);
}

/* sums[keys, width] += the rows' weights times the queries' columns. */
static void add_rows(const query_key_blocks *m, float *sums, size_t rows, size_t columns)
{
    const attention_grad_job *j = m->j;
    const attention_grad_plan *p = j->p;
    int64_t width = p->s.width;
    attention_rows a =
        attention_load_rows(p->rows_panel, p->rows_dtype, area(j, rows), p->query_block, 0, m->keys,
                            j->queries, p->weights_lie, area(j, p->packed_rows));
    attention_multiply(p->rows_panel, sums + m->key * width, width, &a, 0, area(j, columns),
                       by__panel_b_stride(p->panel, j->queries), m->keys, width,
                       by__panel_k(p->panel, j->queries), true);
}

/* Processes a block of queries with one block of keys. */
static void add_block(const attention_grad_job *j, int64_t key, int64_t keys)
{
    const attention_grad_plan *p = j->p;
    query_key_blocks m = {.j = j, .key = key, .keys = keys};
    for (; m.query < j->queries; m.query += PANEL_QUERIES) {
        add_queries(&m);
    }
    add_rows(&m, j->dv, p->weights, p->columns_dy);
    add_rows(&m, j->dk, p->dscores, p->columns_q);
}

/* Computes delta of each query of the block. */
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

/* Computes dq of a block, and adds its part to dk and dv. lse: of its queries, in base e. */
static void run_block(const attention_grad_job *j, const void *q, int64_t q_stride, const void *y,
                      const void *dy, const float *lse, void *dq, int64_t dq_stride)
{
    const attention_grad_plan *p = j->p;
    const by__cpu_panel *panel = p->panel;
    const attention_shape *s = &p->s;
    int64_t y_stride = s->heads * s->width;
    size_t row_stride = by__panel_b_stride(panel, s->width);
    size_t column_stride = by__panel_b_stride(panel, j->queries);
    panel->pack_b(area(j, p->rows_q), row_stride, q, q_stride, 1, j->queries, s->width);
    panel->pack_b(area(j, p->rows_dy), row_stride, dy, y_stride, 1, j->queries, s->width);
    panel->pack_b(area(j, p->columns_q), column_stride, q, 1, q_stride, s->width, j->queries);
    panel->pack_b(area(j, p->columns_dy), column_stride, dy, 1, y_stride, s->width, j->queries);
    if (s->dtype == BY_F32) {
        sum_rows(area(j, p->delta), y, dy, y_stride, j->queries, s->width, BY_F32);
    } else if (s->dtype == BY_F16) {
        sum_rows(area(j, p->delta), y, dy, y_stride, j->queries, s->width, BY_F16);
    } else {
        sum_rows(area(j, p->delta), y, dy, y_stride, j->queries, s->width, BY_BF16);
    }
    for (int64_t i = 0; i < j->queries; i++) {
        ((float *)area(j, p->lse))[i] = lse[i] * LOG2_E;
    }
    for (int64_t key = j->begin; key < j->visible; key += s->key_block) {
        add_block(j, key, by__min_i64(s->key_block, j->visible - key));
    }
    float ones[PANEL_QUERIES];
    by__kernel_store(ones, 0, by__splat(1.0f), BY_F32);
    by__kernel_store(ones, BY__LANES, by__splat(1.0f), BY_F32);
    for (int64_t i = 0; i < j->queries; i += PANEL_QUERIES) {
        attention_store((char *)dq + (size_t)(i * dq_stride) * by_dtype_size(s->dtype), s->dtype,
                        dq_stride, (const float *)area(j, p->dq) + i * s->width, ones,
                        by__min_i64(PANEL_QUERIES, j->queries - i), s->width);
    }
}

typedef struct attention_grad_operands {
    const by__device_call *call;
    head_view in[3], out[3];
    head_view y, dy;
    const float *lse;
    const int32_t *lengths; /* of the samples; NULL: all rows are valid */
    const int32_t *starts;  /* first keys [batch, length]; NULL: none */
} attention_grad_operands;

/* Stores the gradient of the keys (`which` 1) or values (2) of one key head from its sums. */
static void store_head(const attention_grad_operands *x, int which, int64_t sample, int64_t kv,
                       const float *sums)
{
    const attention_grad_plan *p = x->call->state;
    const attention_shape *s = &p->s;
    const head_view *out = &x->out[which];
    by__cpu_panel_target target = {
        .y = head_at(out, s, sample, 0, kv), .ldy = out->stride, .dtype = s->dtype};
    p->panel->store(&target, sums, s->width, s->length, s->width);
}

/* Prepares keys and values begin .. rows - 1 of a key head as operands of the products. */
static void load_keys(const attention_grad_operands *x, attention_grad_job *j, int64_t b,
                      int64_t kv, int64_t begin, int64_t rows)
{
    const attention_grad_plan *p = j->p;
    const attention_shape *s = &p->s;
    const by__cpu_panel *panel = p->panel;
    const void *k = head_at(&x->in[1], s, b, 0, kv);
    const void *v = head_at(&x->in[2], s, b, 0, kv);
    j->keys = attention_load_rows(panel, s->dtype, k, x->in[1].stride, begin, rows, s->width,
                                  p->unpacked, area(j, p->key_rows));
    j->values = attention_load_rows(panel, s->dtype, v, x->in[2].stride, begin, rows, s->width,
                                    p->unpacked, area(j, p->value_rows));
    attention_load_columns(panel, s->dtype, area(j, p->key_columns), s->length, k, x->in[1].stride,
                           begin, rows, s->width);
}

/* Processes all query heads of a key head, for one piece of the queries. */
static void run_task(const void *context, int64_t task)
{
    const attention_grad_operands *x = context;
    const by__device_call *call = x->call;
    const attention_grad_plan *p = call->state;
    const attention_shape *s = &p->s;
    attention_task t = attention_task_at(s, x->lengths, p->pieces, p->piece, task);
    int64_t thread = omp_get_thread_num();
    attention_grad_job j = {.p = p,
                            .scratch = (char *)call->work + p->thread_bytes * (size_t)thread};
    size_t slot = (size_t)(p->pieces > 1 ? task : thread);
    j.dk = (float *)((char *)call->work + p->sums + 2 * slot * p->sum_bytes);
    j.dv = (float *)((char *)j.dk + p->sum_bytes);
    memset(j.dk, 0, 2 * p->sum_bytes);
    j.limit.window = s->window;
    j.limit.starts = x->starts == NULL ? NULL : x->starts + t.b * s->length;
    if (t.begin < t.end) {
        load_keys(x, &j, t.b, t.kv, attention_first_block(s, &j.limit, t.begin, t.end),
                  by__min_i64(t.rows, t.end + s->reach));
    }
    int64_t group = s->heads / s->kv_heads;
    for (int64_t head = t.kv * group; head < (t.kv + 1) * group; head++) {
        j.bias = attention_bias(s, head);
        for (int64_t at = t.begin; at < t.end; at += p->query_block) {
            j.first = at;
            j.queries = by__min_i64(p->query_block, t.end - at);
            j.begin = attention_first_block(s, &j.limit, at, at + j.queries);
            j.visible = by__min_i64(t.rows, at + j.queries + s->reach);
            run_block(&j, head_at(&x->in[0], s, t.b, at, head), x->in[0].stride,
                      head_at(&x->y, s, t.b, at, head), head_at(&x->dy, s, t.b, at, head),
                      x->lse + (t.b * s->heads + head) * s->length + at,
                      head_at(&x->out[0], s, t.b, at, head), x->out[0].stride);
        }
        attention_clear(&x->out[0], s, t.b, t.begin > t.end ? t.begin : t.end, t.stop, head);
    }
    if (p->pieces == 1) {
        store_head(x, 1, t.b, t.kv, j.dk);
        store_head(x, 2, t.b, t.kv, j.dv);
    }
}

/* Adds the pieces of one (sample, key head), in order. */
static void add_pieces(const attention_grad_operands *x, int64_t pair)
{
    const by__device_call *call = x->call;
    const attention_grad_plan *p = call->state;
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
        store_head(x, 1 + which, pair / s->kv_heads, pair % s->kv_heads, sum);
    }
}

static by_status run_attention_grad(const by__device_call *call, const by__device_context *context)
{
    const attention_grad_plan *p = call->state;
    const attention_shape *s = &p->s;
    const by__device_tensor *y = &call->in[call->input_count - 3];
    attention_grad_operands x = {
        .call = call,
        .y = {y[0].data, s->heads * s->width, 0},
        .dy = {y[2].data, s->heads * s->width, 0},
        .lse = y[1].data,
        .lengths = attention_lengths(call, 3),
        .starts = attention_starts(call, 3),
    };
    attention_views(x.in, call->in, p->packed, s);
    attention_views(x.out, call->out, p->packed, s);
    int64_t pairs = s->batch * s->kv_heads;
    int64_t tasks = pairs * p->pieces;
    by__cpu_work_range *ranges = (by__cpu_work_range *)((char *)call->work + p->ranges);
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
        attention_run_tasks(ranges, tasks, run_task, &x);
        if (p->pieces > 1) {
#pragma omp barrier
#pragma omp for schedule(static)
            for (int64_t pair = 0; pair < pairs; pair++) {
                add_pieces(&x, pair);
            }
        }
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0;
}

static void plan_scratch(attention_grad_plan *p)
{
    const by__cpu_panel *panel = p->panel;
    const attention_shape *s = &p->s;
    size_t used = 0;
    size_t tile = (size_t)(p->query_block * s->key_block);
    size_t panel_tile = (size_t)(PANEL_QUERIES * s->key_block) * sizeof(float);
    size_t rows_size = by_dtype_size(p->rows_dtype);
    p->key_rows =
        by__work_reserve(&used, p->unpacked ? 0 : by__panel_a_bytes(panel, s->length, s->width));
    p->value_rows =
        by__work_reserve(&used, p->unpacked ? 0 : by__panel_a_bytes(panel, s->length, s->width));
    p->key_columns = by__work_reserve(&used, by__panel_a_bytes(panel, s->width, s->length));
    p->rows_q = by__work_reserve(&used, by__panel_b_bytes(panel, p->query_block, s->width));
    p->rows_dy = by__work_reserve(&used, by__panel_b_bytes(panel, p->query_block, s->width));
    p->columns_q = by__work_reserve(&used, by__panel_b_bytes(panel, s->width, p->query_block));
    p->columns_dy = by__work_reserve(&used, by__panel_b_bytes(panel, s->width, p->query_block));
    p->scores = by__work_reserve(&used, panel_tile);
    p->dweights = by__work_reserve(&used, panel_tile);
    p->weights = by__work_reserve(&used, tile * rows_size);
    p->dscores = by__work_reserve(&used, tile * rows_size);
    p->dscores_panel = by__work_reserve(&used, by__panel_b_stride(panel, s->key_block));
    p->packed_rows = by__work_reserve(
        &used, p->weights_lie ? 0 : by__panel_a_bytes(p->rows_panel, s->key_block, p->query_block));
    p->dq = by__work_reserve(&used, (size_t)(p->query_block * s->width) * sizeof(float));
    p->delta = by__work_reserve(&used, (size_t)p->query_block * sizeof(float));
    p->lse = by__work_reserve(&used, (size_t)p->query_block * sizeof(float));
    p->thread_bytes = by__round_up(used, 4096);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    attention_grad_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the gradient of attention", error));
    p->packed = attention_packed(call, 3);
    p->panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), call->in[0].dtype);
    p->s = attention_measure(call, p->packed, p->panel);
    const attention_shape *s = &p->s;
    /* Panels that widen to f32 read rows of f32 unpacked. */
    p->rows_dtype = p->panel->step == 2 ? BY_BF16 : BY_F32;
    p->rows_panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), p->rows_dtype);
    p->query_block = (int64_t)by__round_up(
        s->length < SHORT_LENGTH ? SHORT_BLOCK_QUERIES : BLOCK_QUERIES, PANEL_QUERIES);
    int64_t stride = call->in[p->packed ? 0 : 1].shape.dim[2];
    p->unpacked = attention_reads_rows(p->panel, s, stride, s->length);
    p->weights_lie = by__panel_reads_rows(p->rows_panel, p->query_block,
                                          (size_t)p->query_block * by_dtype_size(p->rows_dtype));
    int64_t pairs = s->batch * s->kv_heads;
    int64_t blocks = by__ceil_div(s->length, p->query_block);
    p->pieces = by__min_i64(blocks, by__ceil_div(ENOUGH_TASKS, pairs));
    p->piece = by__ceil_div(blocks, p->pieces) * p->query_block;
    p->pieces = by__ceil_div(s->length, p->piece);
    plan_scratch(p);
    p->sums = p->thread_bytes * (size_t)context->threads;
    p->sum_bytes = by__round_up((size_t)(s->length * s->width) * sizeof(float), BY_CACHE_LINE);
    int64_t slots = p->pieces > 1 ? pairs * p->pieces : context->threads;
    call->state = p;
    p->ranges = p->sums + 2 * (size_t)slots * p->sum_bytes;
    call->work_bytes = p->ranges + (size_t)context->threads * sizeof(by__cpu_work_range);
    return BY_OK;
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(attention_grad) = {
    BY_OP_ATTENTION_GRAD, BY__KERNEL_NAME("attention_grad"), supports, prepare, release,
    run_attention_grad};
