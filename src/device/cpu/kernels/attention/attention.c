/* ATTENTION, and CACHED_ATTENTION over more than a few new tokens. attention.h describes the layout
 * and the loop order. */
#include "device/cpu/kernels/attention/attention.h"

#include <stdlib.h>
#include <string.h>

/* With fewer (sample, key head) pairs than this, the queries of each are also divided into
 * pieces. */
#define ENOUGH_TASKS 16
/* The score of a masked key: its weight becomes 0. A power of two, with which products are exact:
 * in a block whose keys are all masked, scores differ from their maximum by 0 even if the compiler
 * fuses multiplication and subtraction, and not by a rounding error of it, whose power would be
 * infinite. */
#define HIDDEN (-0x1p100f)

typedef struct attention_plan {
    const by__cpu_panel *panel;
    attention_shape s;
    bool packed;
    bool cached;
    bool keys_unpacked;
    int64_t slots;  /* most rows of keys */
    int64_t pieces; /* pieces of the queries of a (sample, key head) */
    int64_t piece;  /* queries per piece, a multiple of PANEL_QUERIES */
    size_t keys, values, queries, scores, weights, sums;
    size_t thread_bytes;
    size_t ranges; /* offset after the scratch memory of all threads */
} attention_plan;

/* Up to PANEL_QUERIES queries of one head, and all keys that they attend to. */
typedef struct attention_job {
    const attention_plan *p;
    char *scratch;
    attention_rows keys;
    int64_t first; /* position of the first query among the keys */
    int64_t queries;
    int64_t begin;   /* first key of the first visible block */
    int64_t visible; /* end of the keys that some query attends to */
    int64_t limited; /* keys before this one are too early for some query */
    float bias;      /* of the head: attention_bias */
    by__vi from[2];  /* the first key that each query attends to */
    by__vf high[2];  /* running maximum of the scores, times log2(e) */
    by__vf total[2]; /* running sum of the weights relative to it */
} attention_job;

static void *area(const attention_job *j, size_t offset)
{
    return j->scratch + offset;
}

BY__INLINE void hide_lanes(float *scores, by__vi seen)
{
    by__vf shown = by__select(seen, by__kernel_load(scores, 0, BY_F32), by__splat(HIDDEN));
    by__kernel_store(scores, 0, shown, BY_F32);
}

/* Masks the scores of keys after the last one that a query attends to, or before the first. All
 * keys of a query's first blocks may be masked: what was summed until then gets a factor of zero at
 * the first visible key. */
static void hide(const attention_job *j, float *scores, int64_t key, int64_t keys)
{
    int64_t last = j->first + j->p->s.reach; /* of the first query */
    int64_t seen_by_all = last + 1 - key;
    for (int64_t r = seen_by_all > 0 ? seen_by_all : 0; r < keys; r++) {
        for (int v = 0; v < 2; v++) {
            hide_lanes(scores + r * PANEL_QUERIES + v * BY__LANES,
                       attention_seen(last + v * BY__LANES, key + r));
        }
    }
    for (int64_t r = 0; r < by__min_i64(keys, j->limited - key); r++) {
        for (int v = 0; v < 2; v++) {
            hide_lanes(scores + r * PANEL_QUERIES + v * BY__LANES,
                       j->from[v] <= (int32_t)(key + r));
        }
    }
}

/* Raises `high` to the maximum of a block's scores; returns the factors that rescale earlier
 * sums. */
static inline void raise(attention_job *j, const float *scores, int64_t keys, by__vf factors[2])
{
    float scale = j->p->s.scale * LOG2_E;
    by__vf top[2] = {by__splat(HIDDEN), by__splat(HIDDEN)};
    for (int64_t r = 0; r < keys; r++) {
        for (int v = 0; v < 2; v++) {
            top[v] = by__larger(top[v],
                                by__kernel_load(scores, r * PANEL_QUERIES + v * BY__LANES, BY_F32));
        }
    }
    for (int v = 0; v < 2; v++) {
        by__vf high = by__larger(j->high[v], top[v] * scale);
        factors[v] = by__exp2_of_negative(j->high[v] - high);
        j->high[v] = high;
    }
}

/* Weights of key r and, if there are two, of r + 1. */
BY__INLINE void weigh_pair(const float *scores, void *weights, int64_t r, bool two, float scale,
                           const by__vf high[2], by__vf sum[2], bool pairs)
{
    for (int v = 0; v < 2; v++) {
        const float *at = scores + r * PANEL_QUERIES + v * BY__LANES;
        by__vf even = by__exp2_of_negative(by__kernel_load(at, 0, BY_F32) * scale - high[v]);
        by__vf odd = by__zero();
        if (two) {
            odd =
                by__exp2_of_negative(by__kernel_load(at, PANEL_QUERIES, BY_F32) * scale - high[v]);
        }
        sum[v] += even + odd;
        attention_put(weights, pairs, r, v * BY__LANES, even, odd);
    }
}

/* Converts scores to weights relative to the maximum, stored as panels of B and padded with zeros
 * to a whole unit. */
BY__INLINE void weigh(attention_job *j, const float *scores, int64_t keys, by__vf sum[2],
                      bool pairs)
{
    const attention_plan *p = j->p;
    void *weights = area(j, p->weights);
    float scale = p->s.scale * LOG2_E;
    by__vf high[2] = {j->high[0], j->high[1]};
    by__vf sums[2] = {by__zero(), by__zero()};
    int64_t r = 0;
    for (; r + 2 <= keys; r += 2) {
        weigh_pair(scores, weights, r, true, scale, high, sums, pairs);
    }
    if (r < keys) {
        weigh_pair(scores, weights, r, false, scale, high, sums, pairs);
        r += 2;
    }
    for (; r < by__panel_k(p->panel, keys); r += 2) {
        for (int v = 0; v < 2; v++) {
            attention_put(weights, pairs, r, v * BY__LANES, by__zero(), by__zero());
        }
    }
    sum[0] = sums[0];
    sum[1] = sums[1];
}

/* Multiplies the sums so far by the factors. */
static void rescale(const attention_job *j, const by__vf factors[2])
{
    float *sums = area(j, j->p->sums);
    by__vf lowest = -by__larger(-factors[0], -factors[1]);
    if (by__max(1.0f - lowest) == 0.0f) {
        return;
    }
    for (int64_t d = 0; d < j->p->s.width; d++) {
        for (int v = 0; v < 2; v++) {
            float *at = sums + d * PANEL_QUERIES + v * BY__LANES;
            by__kernel_store(at, 0, by__kernel_load(at, 0, BY_F32) * factors[v], BY_F32);
        }
    }
}

/* Processes a block of keys. */
static void attend_block(attention_job *j, int64_t key, int64_t keys)
{
    const attention_plan *p = j->p;
    const by__cpu_panel *panel = p->panel;
    float *scores = area(j, p->scores);
    size_t v_stride = by__panel_a_stride(panel, p->slots);
    by__vf factors[2];
    by__vf sum[2];
    attention_multiply(panel, scores, PANEL_QUERIES, &j->keys, key, area(j, p->queries), 0, keys,
                       PANEL_QUERIES, by__panel_k(panel, p->s.width), false);
    if (j->bias != 0.0f) {
        attention_add_bias(scores, j->first, key, keys, j->bias);
    }
    if (p->s.reach < p->s.length) {
        hide(j, scores, key, keys);
    }
    raise(j, scores, keys, factors);
    if (panel->step == 2) {
        weigh(j, scores, keys, sum, true);
    } else {
        weigh(j, scores, keys, sum, false);
    }
    for (int v = 0; v < 2; v++) {
        j->total[v] = j->total[v] * factors[v] + sum[v];
    }
    if (key > j->begin) {
        rescale(j, factors);
    }
    panel->multiply(area(j, p->sums), PANEL_QUERIES,
                    by__panel_a_at(panel, area(j, p->values), 0, key, v_stride), v_stride,
                    area(j, p->weights), 0, p->s.width, PANEL_QUERIES, by__panel_k(panel, keys),
                    key > j->begin, NULL);
}

/* Computes y and lse of the queries; the values are packed already. */
static void attend(attention_job *j, const void *q, int64_t q_stride, void *y, int64_t y_stride,
                   float *lse)
{
    const attention_plan *p = j->p;
    const by__cpu_panel *panel = p->panel;
    float factors[PANEL_QUERIES];
    panel->pack_b(area(j, p->queries), by__panel_b_stride(panel, p->s.width), q, q_stride, 1,
                  j->queries, p->s.width);
    for (int v = 0; v < 2; v++) {
        j->high[v] = by__splat(HIDDEN);
        j->total[v] = by__zero();
    }
    for (int64_t key = j->begin; key < j->visible; key += p->s.key_block) {
        attend_block(j, key, by__min_i64(p->s.key_block, j->visible - key));
    }
    for (int v = 0; v < 2; v++) {
        by__kernel_store(factors, v * BY__LANES, 1.0f / j->total[v], BY_F32);
    }
    attention_store(y, p->s.dtype, y_stride, area(j, p->sums), factors, j->queries, p->s.width);
    for (int64_t r = 0; r < j->queries && lse != NULL; r++) {
        int v = (int)(r / BY__LANES);
        int lane = (int)(r % BY__LANES);
        lse[r] = j->high[v][lane] * LN_2 + logf(j->total[v][lane]);
    }
}

typedef struct attention_operands {
    const by__device_call *call;
    head_view in[3];
    const int32_t *lengths; /* of the samples; NULL: all rows are valid */
    const int32_t *starts;  /* first keys [batch, length]; NULL: none */
    int64_t position;       /* position of the first query */
} attention_operands;

/* Finds the keys that queries from `at` on attend to. */
static void find_keys(attention_job *j, const attention_limit *limit, int64_t at, int64_t rows)
{
    const attention_shape *s = &j->p->s;
    j->first = limit->position + at;
    j->visible = by__min_i64(limit->position + rows, j->first + j->queries + s->reach);
    j->begin = attention_first_block(s, limit, at, at + j->queries);
    j->limited = 0;
    for (int v = 0; v < 2; v++) {
        int64_t lane = v * BY__LANES;
        int64_t last = attention_first_keys(&j->from[v], limit, at + lane, j->queries - lane);
        j->limited = last > j->limited ? last : j->limited;
    }
}

/* Stores zeros for queries begin .. end of a head, which are beyond the valid rows. */
static void clear(const attention_operands *x, const head_view *y, int64_t b, int64_t begin,
                  int64_t end, int64_t head)
{
    const attention_plan *p = x->call->state;
    const attention_shape *s = &p->s;
    float *lse = (float *)x->call->out[1].data + (b * s->heads + head) * s->length;
    attention_clear(y, s, b, begin, end, head);
    for (int64_t t = begin; t < end; t++) {
        lse[t] = 0.0f;
    }
}

/* Processes all query heads of a key head, for one piece of the queries. */
static void run_task(const void *context, int64_t task)
{
    const attention_operands *x = context;
    const by__device_call *call = x->call;
    const head_view *in = x->in;
    const attention_plan *p = call->state;
    const attention_shape *s = &p->s;
    const by__cpu_panel *panel = p->panel;
    attention_task t = attention_task_at(s, x->lengths, p->pieces, p->piece, task);
    attention_job j = {
        .p = p, .scratch = (char *)call->work + p->thread_bytes * (size_t)omp_get_thread_num()};
    const void *keys = head_at(&in[1], s, t.b, 0, t.kv);
    const void *values = head_at(&in[2], s, t.b, 0, t.kv);
    int64_t k_stride = in[1].stride;
    int64_t v_stride = in[2].stride;
    if (p->cached) {
        size_t cache =
            (size_t)((t.b * s->kv_heads + t.kv) * p->slots * s->width) * by_dtype_size(s->dtype);
        keys = (const char *)call->in[call->input_count - 3].data + cache;
        values = (const char *)call->in[call->input_count - 2].data + cache;
        k_stride = v_stride = s->width;
    }
    int64_t visible = x->position + by__min_i64(t.rows, t.end + s->reach);
    attention_limit limit = {s->window, x->starts == NULL ? NULL : x->starts + t.b * s->length,
                             x->position};
    if (t.begin < t.end) {
        int64_t begin = attention_first_block(s, &limit, t.begin, t.end);
        j.keys = attention_load_rows(panel, s->dtype, keys, k_stride, begin, visible, s->width,
                                     p->keys_unpacked, area(&j, p->keys));
        attention_load_columns(panel, s->dtype, area(&j, p->values), p->slots, values, v_stride,
                               begin, visible, s->width);
    }
    int64_t group = s->heads / s->kv_heads;
    head_view y = {call->out[0].data, s->heads * s->width, 0};
    for (int64_t head = t.kv * group; head < (t.kv + 1) * group; head++) {
        j.bias = attention_bias(s, head);
        for (int64_t at = t.begin; at < t.end; at += PANEL_QUERIES) {
            j.queries = by__min_i64(PANEL_QUERIES, t.end - at);
            find_keys(&j, &limit, at, t.rows);
            float *lse =
                p->cached ? NULL
                          : (float *)call->out[1].data + (t.b * s->heads + head) * s->length + at;
            attend(&j, head_at(&in[0], s, t.b, at, head), in[0].stride,
                   head_at(&y, s, t.b, at, head), y.stride, lse);
        }
        if (t.end < t.stop) {
            clear(x, &y, t.b, t.begin > t.end ? t.begin : t.end, t.stop, head);
        }
    }
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0;
}

static by_status plan_attention(by__device_call *call, const by__device_context *context,
                                bool cached, int64_t slots, by_error *error)
{
    attention_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "attention", error));
    p->packed = attention_packed(call, cached ? 3 : 0);
    p->cached = cached;
    p->slots = slots;
    p->panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), call->in[0].dtype);
    p->s = attention_measure(call, p->packed, p->panel);
    const attention_shape *s = &p->s;
    int64_t tasks = s->batch * s->kv_heads;
    int64_t blocks = by__ceil_div(s->length, PANEL_QUERIES);
    p->pieces = by__min_i64(blocks, by__ceil_div(ENOUGH_TASKS, tasks));
    p->piece = by__ceil_div(blocks, p->pieces) * PANEL_QUERIES;
    p->pieces = by__ceil_div(s->length, p->piece);
    int64_t k_stride = cached      ? s->width
                       : p->packed ? call->in[0].shape.dim[2]
                                   : call->in[1].shape.dim[2];
    p->keys_unpacked = attention_reads_rows(p->panel, s, k_stride, slots);
    size_t used = 0;
    p->keys = by__work_reserve(&used,
                               p->keys_unpacked ? 0 : by__panel_a_bytes(p->panel, slots, s->width));
    p->values = by__work_reserve(&used, by__panel_a_bytes(p->panel, s->width, slots));
    p->queries = by__work_reserve(&used, by__panel_b_stride(p->panel, s->width));
    p->scores = by__work_reserve(&used, (size_t)(s->key_block * PANEL_QUERIES) * sizeof(float));
    p->weights = by__work_reserve(&used, by__panel_b_stride(p->panel, s->key_block));
    p->sums = by__work_reserve(&used, (size_t)(s->width * PANEL_QUERIES) * sizeof(float));
    p->thread_bytes = by__round_up(used, 4096);
    call->state = p;
    p->ranges = p->thread_bytes * (size_t)context->threads;
    call->work_bytes = p->ranges + (size_t)context->threads * sizeof(by__cpu_work_range);
    return BY_OK;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    return plan_attention(call, context, false, call->in[0].shape.dim[1], error);
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

static void run_tasks(const attention_operands *x, const by__device_context *context)
{
    const by__device_call *call = x->call;
    const attention_plan *p = call->state;
    int64_t tasks = p->s.batch * p->s.kv_heads * p->pieces;
    by__cpu_work_range *ranges = (by__cpu_work_range *)((char *)call->work + p->ranges);
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    attention_run_tasks(ranges, tasks, run_task, x);
}

static by_status run_attention(const by__device_call *call, const by__device_context *context)
{
    const attention_plan *p = call->state;
    attention_operands x = {
        .call = call, .lengths = attention_lengths(call, 0), .starts = attention_starts(call, 0)};
    attention_views(x.in, call->in, p->packed, &p->s);
    run_tasks(&x, context);
    return BY_OK;
}

BY__KERNEL(attention) = {BY_OP_ATTENTION, BY__KERNEL_NAME("attention"), supports, prepare, release,
                         run_attention};

static by_status prepare_cached(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    return plan_attention(call, context, true, call->in[call->input_count - 2].shape.dim[2], error);
}

static by_status run_cached(const by__device_call *call, const by__device_context *context)
{
    const attention_plan *p = call->state;
    attention_operands x = {.call = call,
                            .position = *(const int32_t *)call->in[call->input_count - 1].data};
    attention_views(x.in, call->in, p->packed, &p->s);
    for (int64_t pair = 0; pair < p->s.batch * p->s.kv_heads; pair++) {
        attention_fill(call, x.in, &p->s, p->slots, x.position, pair / p->s.kv_heads,
                       pair % p->s.kv_heads);
    }
    run_tasks(&x, context);
    return BY_OK;
}

BY__KERNEL(cached_attention) = {BY_OP_CACHED_ATTENTION,
                                BY__KERNEL_NAME("cached_attention"),
                                supports,
                                prepare_cached,
                                release,
                                run_cached};
