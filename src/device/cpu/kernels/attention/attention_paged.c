/* PAGED_ATTENTION: rows of many sequences, each over its own pages (Kwon et al. 2023).
 *
 * Layout (banyan/ops.h): in a page of keys the tokens are adjacent, so the scores of a page are
 * sums over a head's elements of vectors of keys, without a sum across lanes; bf16 goes through
 * vdpbf16ps, in pairs of elements for keys and in pairs of tokens for values.
 *
 * Loop order: a task is one key head and a run of neighbouring positions of one session. Its
 * queries, all heads of the group, are combined with a page a few at a time while it is in the
 * first-level cache. The scores for all keys of a query are kept, so their maximum is known before
 * the first weight is computed.
 *
 * Row invariance: sums over elements and keys are chains in order; in a page with keys beyond a
 * query's limit the chain is the same with these left out; and the sums of queries are separate. So
 * the bits of a row are a function of its position, its window and its keys alone, not of the other
 * rows of the run or the number of threads.
 *
 * Pages of codes (pools of u8) hold 8-bit integers and a scale for each token and head, by which
 * scores and weights are multiplied.
 *
 * With one query per session the time is that of loading pages. The heads' parts of a page are
 * adjacent, so a task has all heads if possible and reads whole pages. The hardware prefetches
 * pages that follow each other in memory; others are prefetched by software. */
#include <omp.h>
#include <stdlib.h>

#include "device/cpu/kernels/attention/attention_pages.h"

/* Independent sums of a score, for even and odd steps: a single one would wait for each
 * addition. */
enum { CHAINS = 2 };
/* Up to this many rows are written into their pages by one thread, which is faster than a
 * barrier. */
enum { SERIAL_ROWS = 4 };
/* Most rows of a run. */
enum { RUN = 16 };
/* Least number of tasks per thread before a task has several heads, and most bytes of their scores
 * per thread. */
enum { TASKS = 4, SCORE_BYTES = 1 << 20 };
/* Score of a key whose page does not exist: its weight is 0. */
#define ABSENT (-1e30f)

/* ---- a tile ---- */

static by__kernel_unit *query_of(const paged_tile *x, int64_t r)
{
    return (by__kernel_unit *)(x->work + x->p->queries) + (x->row + r) * x->p->units;
}

static float *scores_of(const paged_tile *x, int64_t r)
{
    return (float *)(x->work + x->p->scores) + (x->row + r) * x->p->slots;
}

static float *sums_of(const paged_tile *x, int64_t r)
{
    return (float *)(x->work + x->p->sums) + (x->row + r) * x->p->padded;
}

/* The sum of a query's weights. */
static float *total_of(const paged_tile *x, int64_t r)
{
    return (float *)(x->work + x->p->totals) + x->row + r;
}

#define EACH_QUERY _Pragma("GCC unroll 4") for (int r = 0; r < height; r++)

/* Computes the scores of a vector of keys, from key j of a page on. `next`: prefetched
 * meanwhile. */
BY__INLINE void score_keys(by__kernel_arithmetic kind, const paged_tile *x, const char *page,
                           const char *next, int64_t j, float *scores, int height)
{
    const paged_plan *p = x->p;
    const char *keys = page + j * by__step_size(kind);
    const int64_t step_bytes = BY_PAGE_TOKENS * by__step_size(kind);
    const int64_t units = by__step_units(kind);
    const by__kernel_unit *q = query_of(x, 0);
    by__vf sums[QUERIES][CHAINS] = {{{0}}};
    int64_t s = 0;
    for (; s + CHAINS <= p->steps; s += CHAINS) {
#pragma GCC unroll 2
        for (int c = 0; c < CHAINS; c++) {
            by__kernel_step step = by__step_load(kind, keys + (s + c) * step_bytes);
            __builtin_prefetch(next + (s + c) * step_bytes, 0, 2);
            EACH_QUERY
            {
                const by__kernel_unit *row = q + r * p->units + (s + c) * units;
                sums[r][c] = by__step_add(kind, sums[r][c], step, row);
            }
        }
    }
    for (; s < p->steps; s++) {
        by__kernel_step step = by__step_load(kind, keys + s * step_bytes);
        EACH_QUERY
        {
            sums[r][0] = by__step_add(kind, sums[r][0], step, q + r * p->units + s * units);
        }
    }
    if (p->steps * units < p->units) { /* the last element of an odd number, unpaired */
        by__vf last = by__kernel_load(page + s * step_bytes, j, BY_BF16);
        by__kernel_step step = {.value =
                                    kind == BY__PAIRS_BF16 ? (by__vf)((by__vu)last >> 16) : last};
        EACH_QUERY
        {
            sums[r][1] = by__step_add(kind, sums[r][1], step, q + r * p->units + s * units);
        }
    }
    EACH_QUERY
    {
        by__vf score = sums[r][0] + sums[r][1];
        if (kind == BY__CODES_I8) {
            score *= by__kernel_load(scales_of(p, page), j, BY_F32);
        }
        by__kernel_store(scores + r * p->slots, 0, score, BY_F32);
    }
}

BY__INLINE void score_page(by__kernel_arithmetic kind, const paged_tile *x, int64_t column,
                           int height)
{
    const char *keys = page_at(x, K_POOL, column);
    const char *next = page_ahead(x, K_POOL, column);
    float *scores = scores_of(x, 0) + (column - x->begin) * BY_PAGE_TOKENS;
    for (int64_t j = 0; j < BY_PAGE_TOKENS && keys != NULL; j += BY__LANES) {
        score_keys(kind, x, keys, next, j, scores + j, height);
    }
    for (int64_t j = 0; j < BY_PAGE_TOKENS * height && keys == NULL; j++) {
        scores[j / BY_PAGE_TOKENS * x->p->slots + j % BY_PAGE_TOKENS] = ABSENT;
    }
}

/* Converts the scores of query r to weights, and these to units of the steps of pages. */
BY__INLINE void weigh(by__kernel_arithmetic kind, const paged_tile *x, int64_t r)
{
    float *scores = scores_of(x, r);
    int64_t keys = (x->end - x->begin) * BY_PAGE_TOKENS;
    int64_t first = x->first[r] - x->begin * BY_PAGE_TOKENS;
    int64_t stop = x->last[r] + 1 - x->begin * BY_PAGE_TOKENS;
    float highest;
    int64_t head = x->kv * x->p->group + (x->member + r) % x->p->group;
    attention_add_bias_row(scores, first, stop, stop - 1, attention_bias(&x->p->s, head));
    *total_of(x, r) = attention_weigh(scores, first, stop, x->p->s.scale, &highest);
    for (int64_t column = x->begin; column < x->end && kind == BY__CODES_I8; column++) {
        const char *values = page_at(x, V_POOL, column);
        float *weights = scores + (column - x->begin) * BY_PAGE_TOKENS;
        for (int64_t j = 0; j < BY_PAGE_TOKENS && values != NULL; j += BY__LANES) {
            by__vf scale = by__kernel_load(scales_of(x->p, values), j, BY_F32);
            by__kernel_store(weights, j, by__kernel_load(weights, j, BY_F32) * scale, BY_F32);
        }
    }
    memset(scores, 0, (size_t)first * sizeof *scores);
    memset(scores + stop, 0, (size_t)(keys - stop) * sizeof *scores);
    for (int64_t j = 0; j < keys && kind == BY__PAIRS_BF16; j += BY__LANES) {
        by__store_flushed(scores, j, by__kernel_load(scores, j, BY_F32), BY_BF16);
    }
}

/* Range of page table columns whose values are combined with queries from x on, and of the keys of
 * a page those that a query attends to if not all. */
typedef struct page_part {
    int64_t begin, end;
    int64_t low, high;
    bool whole;
} page_part;

/* The values of a step, n elements from `data` on; those of masked keys become zero, as they may be
 * arbitrary. */
BY__INLINE by__kernel_step take_values(by__kernel_arithmetic kind, const char *data, int64_t s,
                                       const page_part *a, int n)
{
    bool pairs = kind == BY__PAIRS_BF16 || kind == BY__PAIRS_SPREAD;
    if (a->whole || !pairs) {
        return by__step_load_n(kind, data, n);
    }
    uint32_t even = 2 * s >= a->low && 2 * s < a->high ? 0xffffu : 0;
    uint32_t odd = 2 * s + 1 >= a->low && 2 * s + 1 < a->high ? 0xffff0000u : 0;
    return by__step_of_words(kind, (by__vu)by__load_n(data, 0, BY_F32, n) & (even | odd));
}

/* sums += values times their weights, in `vectors` vectors from element i on, the last of which has
 * n elements. vectors, whole and height are constants. */
BY__INLINE void add_strip(by__kernel_arithmetic kind, const paged_tile *x, int64_t r0,
                          const page_part *a, int64_t i, int vectors, int n, int height)
{
    const paged_plan *p = x->p;
    const bool pairs = kind == BY__PAIRS_BF16 || kind == BY__PAIRS_SPREAD;
    const int64_t keys = pairs ? 2 : 1;
    const int64_t units = by__step_units(kind);
    const int64_t page_units = BY_PAGE_TOKENS / keys * units;
    const int64_t step_bytes = p->s.width * by__step_size(kind);
    by__vf total[QUERIES][STRIP];
    EACH_QUERY
    {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            total[r][v] = by__kernel_load(sums_of(x, r0 + r), i + v * BY__LANES, BY_F32);
        }
    }
    for (int64_t column = a->begin; column < a->end; column++) {
        const char *values = page_at(x, V_POOL, column);
        const char *next = page_ahead(x, V_POOL, column);
        const by__kernel_unit *weights =
            (const by__kernel_unit *)scores_of(x, r0) + (column - x->begin) * page_units;
        int64_t low = a->whole ? 0 : a->low / keys;
        int64_t high = a->whole ? BY_PAGE_TOKENS / keys : (a->high + keys - 1) / keys;
        if (values == NULL) {
            continue;
        }
        values += i * by__step_size(kind);
        next += i * by__step_size(kind);
        for (int64_t s = low; s < high; s++) {
            by__kernel_step step[STRIP];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                int64_t at = s * step_bytes + v * BY__LANES * by__step_size(kind);
                step[v] = take_values(kind, values + at, s, a, v == vectors - 1 ? n : BY__LANES);
                __builtin_prefetch(next + at, 0, 2);
            }
            EACH_QUERY
            {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    total[r][v] = by__step_add(kind, total[r][v], step[v],
                                               weights + r * p->slots + s * units);
                }
            }
        }
    }
    EACH_QUERY
    {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            by__kernel_store(sums_of(x, r0 + r), i + v * BY__LANES, total[r][v], BY_F32);
        }
    }
}

BY__INLINE void add_values(by__kernel_arithmetic kind, const paged_tile *x, int64_t r0, page_part a,
                           bool whole, int height)
{
    int64_t width = x->p->s.width;
    int64_t i = 0;
    a.whole = whole;
    for (; i + STRIP * BY__LANES <= width; i += STRIP * BY__LANES) {
        add_strip(kind, x, r0, &a, i, STRIP, BY__LANES, height);
    }
#define VECTOR(at, n) add_strip(kind, x, r0, &a, at, 1, n, height)
    BY__STEPS(i, width, VECTOR);
#undef VECTOR
}

/* Adds the values of columns begin .. end for query r alone; it may attend to only a part of the
 * first and last column.
 */
BY__INLINE void add_alone(by__kernel_arithmetic kind, const paged_tile *x, int64_t r, int64_t begin,
                          int64_t end)
{
    for (int64_t column = begin; column < end; column++) {
        int64_t low = x->first[r] - column * BY_PAGE_TOKENS;
        int64_t high = x->last[r] + 1 - column * BY_PAGE_TOKENS;
        page_part a = {.begin = column,
                       .end = column + 1,
                       .low = low < 0 ? 0 : low,
                       .high = by__min_i64(high, BY_PAGE_TOKENS)};
        if (a.low == 0 && a.high == BY_PAGE_TOKENS) {
            add_values(kind, x, r, a, true, 1);
        } else if (a.low < a.high) {
            add_values(kind, x, r, a, false, 1);
        }
    }
}

/* The functions of an arithmetic that process one query at a time, shared by all heights. */
typedef struct steps {
    void (*weigh)(const paged_tile *x, int64_t r);
    void (*add_alone)(const paged_tile *x, int64_t r, int64_t begin, int64_t end);
} steps;

/* kind, height and steps are constants. */
BY__INLINE void attend_queries(by__kernel_arithmetic kind, steps one, paged_tile *x, int height)
{
    /* Columns that all queries attend to completely. */
    page_part all = {.begin = (x->first[height - 1] + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS,
                     .end = (x->last[0] + 1) / BY_PAGE_TOKENS};
    all.begin = by__min_i64(all.begin, x->end);
    all.end = all.end < all.begin ? all.begin : all.end;
    for (int64_t column = x->begin; column < x->end; column++) {
        for (int64_t h = 0; h < x->heads; h++) {
            select_head(x, h, height);
            score_page(kind, x, column, height);
        }
    }
    for (int64_t i = 0; i < x->heads * height; i++) {
        int64_t r = i % height;
        select_head(x, i / height, height);
        one.weigh(x, r);
        memset(sums_of(x, r), 0, (size_t)x->p->padded * sizeof(float));
        one.add_alone(x, r, x->begin, all.begin);
    }
    /* A single head keeps its sums in registers over all pages. */
    int64_t columns = x->heads == 1 ? x->end - x->begin : 1;
    for (int64_t end = all.end; all.begin < end; all.begin = all.end) {
        all.end = by__min_i64(all.begin + columns, end);
        for (int64_t h = 0; h < x->heads; h++) {
            select_head(x, h, height);
            add_values(kind, x, 0, all, true, height);
        }
    }
    for (int64_t i = 0; i < x->heads * height; i++) {
        select_head(x, i / height, height);
        one.add_alone(x, i % height, all.end, x->end);
    }
}

BY__INLINE void attend_as(by__kernel_arithmetic kind, steps one, paged_tile *x, int64_t height)
{
    switch (height) {
    case 1:
        attend_queries(kind, one, x, 1);
        break;
#if BY__LANES == 16
    case 2:
        attend_queries(kind, one, x, 2);
        break;
    case 3:
        attend_queries(kind, one, x, 3);
        break;
#endif
    default:
        attend_queries(kind, one, x, QUERIES);
    }
}

#define ARITHMETIC(name, kind)                                                                     \
    static __attribute__((noinline)) void weigh_##name(const paged_tile *x, int64_t r)             \
    {                                                                                              \
        weigh(kind, x, r);                                                                         \
    }                                                                                              \
    static __attribute__((noinline)) void add_alone_##name(const paged_tile *x, int64_t r,         \
                                                           int64_t begin, int64_t end)             \
    {                                                                                              \
        add_alone(kind, x, r, begin, end);                                                         \
    }                                                                                              \
    static void attend_##name(paged_tile *x, int64_t height)                                       \
    {                                                                                              \
        attend_as(kind, (steps){weigh_##name, add_alone_##name}, x, height);                       \
    }
ARITHMETIC(f32, BY__UNITS_F32)
ARITHMETIC(f16, BY__UNITS_F16)
ARITHMETIC(codes, BY__CODES_I8)
ARITHMETIC(spread, BY__PAIRS_SPREAD)
#if defined(__AVX512BF16__)
ARITHMETIC(bf16, BY__PAIRS_BF16)
#endif
#undef ARITHMETIC

static void attend(paged_tile *x, int64_t height)
{
    switch (x->p->kind) {
    case BY__UNITS_F32:
        attend_f32(x, height);
        break;
    case BY__UNITS_F16:
        attend_f16(x, height);
        break;
    case BY__CODES_I8:
        attend_codes(x, height);
        break;
#if defined(__AVX512BF16__)
    case BY__PAIRS_BF16:
        attend_bf16(x, height);
        break;
#endif
    default:
        attend_spread(x, height);
    }
}

/* Converts row t's query of a head to units. */
static void load_query(const paged_tile *x, const head_view *in, int64_t r, int64_t t, int64_t head)
{
    const paged_plan *p = x->p;
    const void *q = head_at(in, &p->s, 0, t, head);
    by__kernel_unit *out = query_of(x, r);
    out[p->units - 1] = 0.0f;
    if (p->kind == BY__PAIRS_BF16) {
        memcpy(out, q, (size_t)p->s.width * sizeof(uint16_t));
        return;
    }
#define WIDEN(i, n) by__store_n(out, i, load_act(q, i, p->s.dtype, n), BY_F32, n)
    BY__STEPS(0, p->s.width, WIDEN);
#undef WIDEN
}

/* ---- tasks ---- */

/* Processes `count` queries of rows from t on, starting with query head g of the group, for each of
 * `heads` key heads from kv on. */
static void run_tile(const by__device_call *call, const paged_plan *p, const head_view in[3],
                     int64_t t, int64_t g, int64_t count, int64_t kv, int64_t heads, char *work)
{
    paged_tile x = {.call = call,
                    .p = p,
                    .kv = kv,
                    .heads = heads,
                    .member = g,
                    .work = work,
                    .pages = pages_of(call, p, t)};
    const head_view y = {call->out[0].data, p->s.heads * p->s.width, 0};
    for (int64_t r = 0; r < count; r++) {
        int64_t row = t + (g + r) / p->group;
        x.last[r] = ((const int32_t *)call->in[POSITIONS].data)[row];
        x.first[r] = call->attrs.window > 0 ? x.last[r] - call->attrs.window + 1 : 0;
        x.first[r] = x.first[r] < 0 ? 0 : x.first[r];
    }
    for (int64_t i = 0; i < heads * count; i++) {
        int64_t at = g + i % count;
        select_head(&x, i / count, count);
        load_query(&x, &in[0], i % count, t + at / p->group, x.kv * p->group + at % p->group);
    }
    x.begin = x.first[0] / BY_PAGE_TOKENS;
    x.end = x.last[count - 1] / BY_PAGE_TOKENS + 1;
    attend(&x, count);
    for (int64_t i = 0; i < heads * count; i++) {
        int64_t at = g + i % count;
        select_head(&x, i / count, count);
        float *sums = sums_of(&x, i % count);
        for (int64_t d = 0; d < p->s.width; d++) {
            sums[d] /= *total_of(&x, i % count);
        }
        by__cpu_panel_target target = {
            .y = head_at(&y, &p->s, 0, t + at / p->group, x.kv * p->group + at % p->group),
            .ldy = p->s.width,
            .dtype = p->s.dtype};
        BY__AT_LEVEL(by__kernel_panel_store)(&target, sums, p->s.width, 1, p->s.width);
    }
}

/* Processes rows t .. t + rows of one session, all query heads of `heads` key heads from kv on. */
static void run_task(const by__device_call *call, const paged_plan *p, const head_view in[3],
                     int64_t t, int64_t rows, int64_t kv, int64_t heads, char *work)
{
    const head_view y = {call->out[0].data, p->s.heads * p->s.width, 0};
    size_t bytes = (size_t)(heads * p->group * p->s.width) * by_dtype_size(p->s.dtype);
    if (pages_of(call, p, t) == NULL) {
        memset(head_at(&y, &p->s, 0, t, kv * p->group), 0, bytes);
        return;
    }
    for (int64_t i = 0; i < rows * p->group; i += QUERIES) {
        int64_t count = by__min_i64(QUERIES, rows * p->group - i);
        run_tile(call, p, in, t + i / p->group, i % p->group, count, kv, heads, work);
    }
}

/* Number of key heads of a task: one if a session has several rows, which use a page while it is in
 * the cache. */
static int64_t heads_of_task(const paged_plan *p, int64_t runs, int threads)
{
    int64_t heads = runs == p->s.length ? p->together : 1;
    while (heads > 1 && runs * by__ceil_div(p->s.kv_heads, heads) < TASKS * threads) {
        heads = (heads + 1) / 2;
    }
    return heads;
}

/* Writes the first rows of runs, and the end; returns the number of runs. */
static int64_t find_runs(const by__device_call *call, const paged_plan *p, int32_t *runs)
{
    const int32_t *positions = call->in[POSITIONS].data;
    const int32_t *sessions = call->in[SESSIONS].data;
    int64_t count = 0;
    for (int64_t t = 0; t < p->s.length; t++) {
        bool follows = count > 0 && t - runs[count - 1] < RUN && sessions[t] == sessions[t - 1] &&
                       positions[t] == positions[t - 1] + 1 && pages_of(call, p, t) != NULL &&
                       pages_of(call, p, t - 1) != NULL;
        if (!follows) {
            runs[count++] = (int32_t)t;
        }
    }
    runs[count] = (int32_t)p->s.length;
    return count;
}

static by_status run_paged_attention(const by__device_call *call, const by__device_context *context)
{
    const paged_plan *p = call->state;
    head_view in[3];
    attention_views(in, call->in, p->packed, &p->s);
    by__cpu_work_range *ranges = call->work;
    int32_t *runs = (int32_t *)((char *)call->work + p->runs);
    int64_t count = find_runs(call, p, runs);
    assert(count > 0);
    int64_t heads = heads_of_task(p, count, context->threads);
    int64_t blocks = by__ceil_div(p->s.kv_heads, heads);
    for (int thread = 0; thread < context->threads; thread++) {
        by__work_range_open(ranges, count * blocks, thread, context->threads);
    }
    int64_t serial = p->s.length <= SERIAL_ROWS ? p->s.length : 0;
    for (int64_t t = 0; t < serial; t++) {
        fill(call, p, in, t);
    }
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
        int me = omp_get_thread_num();
        char *work = (char *)call->work + p->threads + (size_t)me * p->thread_bytes;
        if (serial == 0) {
#pragma omp for schedule(static)
            for (int64_t t = 0; t < p->s.length; t++) {
                fill(call, p, in, t);
            }
        }
        int64_t i;
        while ((i = by__work_range_claim(ranges, me, context->threads)) >= 0) {
            int64_t t = runs[i / blocks];
            int64_t kv = i % blocks * heads;
            run_task(call, p, in, t, runs[i / blocks + 1] - t, kv,
                     by__min_i64(heads, p->s.kv_heads - kv), work);
        }
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && by__tensor_count(&call->in[0]) > 0;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    paged_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "attention", error));
    const by__cpu_panel *panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), false, call->in[0].dtype);
    p->packed = !by__present(&call->in[1]);
    p->s = attention_measure(call, p->packed, panel);
    bool codes = call->in[K_POOL].dtype == BY_U8;
    p->kind = codes ? BY__CODES_I8 : by__arithmetic_of(p->s.dtype);
    p->head_bytes = (size_t)(call->in[K_POOL].shape.dim[3] * BY_PAGE_TOKENS) *
                    by_dtype_size(call->in[K_POOL].dtype);
    p->group = p->s.heads / p->s.kv_heads;
    p->columns = call->in[TABLE].shape.dim[1];
    bool pairs = p->s.dtype == BY_BF16 && !codes;
    p->steps = pairs ? p->s.width / 2 : p->s.width;
    p->units = (pairs ? (p->s.width + 1) / 2 : p->s.width) * by__step_units(p->kind);
    int64_t pages = p->columns;
    if (call->attrs.window > 0) {
        pages = by__min_i64(pages, (call->attrs.window + QUERIES) / BY_PAGE_TOKENS + 2);
    }
    p->slots = pages * BY_PAGE_TOKENS;
    p->padded = (int64_t)by__round_up((size_t)p->s.width, BY__LANES);
    int64_t fit = SCORE_BYTES / (p->group * p->slots * (int64_t)sizeof(float));
    p->together = p->group > QUERIES || fit < 1 ? 1 : by__min_i64(fit, p->s.kv_heads);
    int64_t queries = p->together * p->group;
    p->rows = p->together > 1 && queries > QUERIES ? queries : QUERIES;
    size_t used = 0;
    p->queries = by__work_reserve(&used, (size_t)(p->rows * p->units) * sizeof(float));
    p->sums = by__work_reserve(&used, (size_t)(p->rows * p->padded) * sizeof(float));
    p->scores = by__work_reserve(&used, (size_t)(p->rows * p->slots) * sizeof(float));
    p->totals = by__work_reserve(&used, (size_t)p->rows * sizeof(float));
    p->thread_bytes = used;
    p->runs = by__round_up((size_t)context->threads * sizeof(by__cpu_work_range), BY_CACHE_LINE);
    p->threads = p->runs + by__round_up((size_t)(p->s.length + 1) * sizeof(int32_t), BY_CACHE_LINE);
    call->work_bytes = p->threads + (size_t)context->threads * p->thread_bytes;
    call->state = p;
    return BY_OK;
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(paged_attention) = {
    BY_OP_PAGED_ATTENTION, BY__KERNEL_NAME("paged attention"), supports, prepare, release,
    run_paged_attention};
