/* CACHED_ATTENTION over a few new tokens, where the time is that of reading the caches. Keys are
 * divided into chunks; a task is one (sample, key head) and chunk, and leaves its maximum score,
 * the sum of its weights and its weighted sum of values. The chunks of a query are merged in order
 * (flash decoding: Dao, Haziza, Massa and Sizov 2023), so that long caches occupy all threads and
 * the bits do not depend on their number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernels/attention/attention.h"

enum { CHUNK = 256, MAX_TOKENS = 4 };

typedef struct decode_plan {
    const by__cpu_panel *panel;
    attention_shape s;
    bool packed;
    int64_t slots, chunks;
    int64_t rows;   /* queries that share a key head: tokens x query heads */
    int64_t part;   /* floats of a row's part: weighted values, then maximum and sum */
    size_t queries; /* [pairs][rows][width], bf16 where the panel multiplies pairs, else f32 */
    by_dtype query_dtype;
    size_t scores; /* [tasks][BY__GEMV_ROWS][CHUNK] */
    size_t parts;  /* [tasks][rows][part] */
} decode_plan;

typedef struct decode_job {
    const decode_plan *p;
    char *work;
    const char *keys, *values; /* the caches */
    int64_t position;
    attention_limit limit;
} decode_job;

/* Row r of a pair is token r / group of query head r % group. */
static void *query_of(const decode_job *j, int64_t pair, int64_t r)
{
    const decode_plan *p = j->p;
    size_t at = (size_t)((pair * p->rows + r) * p->s.width);
    return j->work + p->queries + at * by_dtype_size(p->query_dtype);
}

static float *part_of(const decode_job *j, int64_t pair, int64_t chunk, int64_t r)
{
    const decode_plan *p = j->p;
    return (float *)(j->work + p->parts) + ((pair * p->chunks + chunk) * p->rows + r) * p->part;
}

/* Converts scores of one query for keys first .. seen - 1 to weights relative to 2^high; those
 * before and up to `keys` become zero. */
static void weigh(float *scores, int64_t first, int64_t seen, int64_t keys, float scale,
                  float *high, float *total)
{
    *total = attention_weigh(scores, first, seen, scale, high);
    memset(scores, 0, (size_t)first * sizeof(float));
    memset(scores + seen, 0, (size_t)(keys - seen) * sizeof(float));
}

static void run_chunk(const decode_job *j, int64_t pair, int64_t chunk)
{
    const decode_plan *p = j->p;
    const attention_shape *s = &p->s;
    int64_t group = s->heads / s->kv_heads;
    int64_t first = chunk * CHUNK;
    int64_t keys = by__min_i64(CHUNK, j->position + s->length - first);
    size_t at = (size_t)((pair * p->slots + first) * s->width) * by_dtype_size(s->dtype);
    float *scores =
        (float *)(j->work + p->scores) + (pair * p->chunks + chunk) * BY__GEMV_ROWS * CHUNK;
    for (int64_t r = 0; r < p->rows; r += BY__GEMV_ROWS) {
        int rows = (int)by__min_i64(BY__GEMV_ROWS, p->rows - r);
        p->panel->few_rows(scores, CHUNK, query_of(j, pair, r), p->query_dtype, s->width, rows,
                           j->keys + at, s->dtype, s->width, true, keys, s->width);
        for (int64_t i = 0; i < rows; i++) {
            int64_t t = (r + i) / group;
            int64_t seen = by__min_i64(keys, j->position + t + 1 - first);
            int64_t from = attention_first_key(&j->limit, t) - first;
            seen = seen < 0 ? 0 : seen;
            from = from < 0 ? 0 : by__min_i64(from, seen);
            float *part = part_of(j, pair, chunk, r + i);
            int64_t head = pair % s->kv_heads * group + (r + i) % group;
            attention_add_bias_row(scores + i * CHUNK, from, seen, j->position + t - first,
                                   attention_bias(s, head));
            weigh(scores + i * CHUNK, from, seen, keys, s->scale, &part[s->width],
                  &part[s->width + 1]);
        }
        p->panel->few_rows(part_of(j, pair, chunk, r), p->part, scores, BY_F32, CHUNK, rows,
                           j->values + at, s->dtype, s->width, false, s->width, keys);
    }
}

/* Merges chunks begin .. chunks - 1 of one query into the part of the first one, and writes y. */
static void join(const decode_job *j, int64_t pair, int64_t r, int64_t begin, int64_t chunks,
                 void *y)
{
    const decode_plan *p = j->p;
    int64_t width = p->s.width;
    float *sum = part_of(j, pair, begin, r);
    float highest = sum[width];
    for (int64_t c = begin + 1; c < chunks; c++) {
        float high = part_of(j, pair, c, r)[width];
        highest = high > highest ? high : highest;
    }
    float total = 0.0f;
    for (int64_t c = begin; c < chunks; c++) {
        const float *part = part_of(j, pair, c, r);
        float factor = exp2f(part[width] - highest);
        total += part[width + 1] * factor;
        for (int64_t d = 0; d < width; d++) {
            sum[d] = (c == begin ? 0.0f : sum[d]) + part[d] * factor;
        }
    }
    for (int64_t d = 0; d < width; d++) {
        sum[d] /= total;
    }
    p->panel->store(&(by__cpu_panel_target){.y = y, .ldy = width, .dtype = p->s.dtype}, sum, width,
                    1, width);
}

/* Copies queries side by side, and the new keys and values into their slots. */
static void append_keys(const by__device_call *call, const decode_job *j)
{
    const decode_plan *p = j->p;
    const attention_shape *s = &p->s;
    head_view in[3];
    attention_views(in, call->in, p->packed, s);
    int64_t group = s->heads / s->kv_heads;
    for (int64_t pair = 0; pair < s->batch * s->kv_heads; pair++) {
        int64_t b = pair / s->kv_heads;
        int64_t kv = pair % s->kv_heads;
        for (int64_t r = 0; r < p->rows; r++) {
            const void *q = head_at(&in[0], s, b, r / group, kv * group + r % group);
            void *out = query_of(j, pair, r);
            if (p->query_dtype == s->dtype) {
                memcpy(out, q, (size_t)s->width * by_dtype_size(s->dtype));
                continue;
            }
#define WIDEN(i, n) by__store_n(out, (i), by__load_n(q, (i), s->dtype, (n)), BY_F32, (n))
            BY__STEPS(0, s->width, WIDEN);
#undef WIDEN
        }
        attention_fill(call, in, s, p->slots, j->position, b, kv);
    }
}

static by_status run_decode(const by__device_call *call, const by__device_context *context)
{
    const decode_plan *p = call->state;
    const attention_shape *s = &p->s;
    decode_job j = {
        .p = p,
        .work = call->work,
        .keys = call->in[call->input_count - 3].data,
        .values = call->in[call->input_count - 2].data,
        .position = *(const int32_t *)call->in[call->input_count - 1].data,
    };
    append_keys(call, &j);
    int64_t group = s->heads / s->kv_heads;
    int64_t pairs = s->batch * s->kv_heads;
    j.limit = (attention_limit){.window = s->window, .position = j.position};
    int64_t begin = attention_first_key(&j.limit, 0) / CHUNK;
    int64_t chunks = by__ceil_div(j.position + s->length, CHUNK);
    int64_t seen = chunks - begin;
    head_view y = {call->out[0].data, s->heads * s->width, 0};
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pairs * seen; i++) {
            run_chunk(&j, i / seen, begin + i % seen);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pairs * p->rows; i++) {
            int64_t pair = i / p->rows;
            int64_t r = i % p->rows;
            int64_t head = pair % s->kv_heads * group + r % group;
            join(&j, pair, r, begin, chunks, head_at(&y, s, pair / s->kv_heads, r / group, head));
        }
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0 && call->in[0].shape.dim[1] <= MAX_TOKENS;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    decode_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "attention", error));
    p->packed = attention_packed(call, 3);
    p->panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), call->in[0].dtype);
    p->s = attention_measure(call, p->packed, p->panel);
    p->slots = call->in[call->input_count - 2].shape.dim[2];
    p->chunks = by__ceil_div(p->slots, CHUNK);
    p->rows = p->s.length * (p->s.heads / p->s.kv_heads);
    p->part = p->s.width + 2;
    size_t pairs = (size_t)(p->s.batch * p->s.kv_heads);
    size_t tasks = pairs * (size_t)p->chunks;
    size_t used = 0;
    p->query_dtype = p->panel->step == 2 ? BY_BF16 : BY_F32;
    p->queries = by__work_reserve(&used, pairs * (size_t)(p->rows * p->s.width) *
                                             by_dtype_size(p->query_dtype));
    p->scores = by__work_reserve(&used, tasks * BY__GEMV_ROWS * CHUNK * sizeof(float));
    p->parts = by__work_reserve(&used, tasks * (size_t)(p->rows * p->part) * sizeof(float));
    call->state = p;
    call->work_bytes = used;
    return BY_OK;
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(attention_decode) = {BY_OP_CACHED_ATTENTION,
                                BY__KERNEL_NAME("attention_decode"),
                                supports,
                                prepare,
                                release,
                                run_decode};
