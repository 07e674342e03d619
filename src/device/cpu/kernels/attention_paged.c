/* PAGED_ATTENTION: rows of many sequences, each over the pages of its own (Kwon et al. 2023).
 *
 * A task is a row and a key head. It goes through the pages of the row's session in their order,
 * once for the scores and once for the values, and all query heads of the key head meet a page
 * while it is in the first cache. Scores are kept for all keys that a row sees, so their maximum is
 * known before the first weight is computed; sums over keys are chains in the order of positions.
 * So the bits of a row follow from its position, its window and its keys alone, not from the rows
 * of the same run or the number of threads. Tasks of a key head are neighbours, so that rows of one
 * session find its pages in the thread's cache. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernels/attention.h"

enum { K_POOL = 3, V_POOL, POSITIONS, SESSIONS, TABLE };

/* Keys that are scored side by side: adding up their lanes together takes half the work. */
enum { KEYS = 4 };
/* Score of a key whose page there is not: its weight is 0. */
#define ABSENT (-1e30f)
/* Vectors of values whose sums are in registers. */
enum { STRIP = 4 };

typedef struct plan {
    attention_shape s;
    bool packed;
    int64_t group;   /* query heads of a key head */
    int64_t columns; /* of the page table */
    int64_t slots;   /* keys that a row may see, and room for a vector behind them */
    int64_t padded;  /* width in whole vectors */
    bool pairs;      /* queries stay bf16, for vdpbf16ps */
    size_t queries;  /* of a thread: [group][padded] f32, or bf16 */
    size_t scores;   /* [group][slots] */
    size_t sums;     /* [group][padded] */
    size_t thread_bytes;
    size_t threads; /* offset of them, behind the ranges */
} plan;

/* A row and a key head. */
typedef struct task {
    const by__call *call;
    const plan *p;
    int64_t kv;
    const int32_t *pages; /* of the session */
    int64_t first, last;  /* positions that it sees */
    char *work;
} task;

/* The pages of row t's session; NULL: the row reads and writes nothing. */
static const int32_t *pages_of(const by__call *call, const plan *p, int64_t t)
{
    int32_t position = ((const int32_t *)call->in[POSITIONS].data)[t];
    int32_t session = ((const int32_t *)call->in[SESSIONS].data)[t];
    if (position < 0 || position / BY_PAGE_TOKENS >= p->columns || session < 0 ||
        session >= call->in[TABLE].shape.dim[0]) {
        return NULL;
    }
    const int32_t *pages = (const int32_t *)call->in[TABLE].data + session * p->columns;
    int32_t page = pages[position / BY_PAGE_TOKENS];
    return page < 0 || page >= call->in[K_POOL].shape.dim[0] ? NULL : pages;
}

/* Place 0 of a page of a pool; NULL: there is no such page. */
static char *page_at(const task *x, int pool, int64_t column)
{
    const by__tensor *tensor = &x->call->in[pool];
    int32_t page = x->pages[column];
    if (page < 0 || page >= tensor->shape.dim[0]) {
        return NULL;
    }
    int64_t rows = (page * x->p->s.kv_heads + x->kv) * BY_PAGE_TOKENS;
    return (char *)tensor->data + (size_t)(rows * x->p->s.width) * by_dtype_size(x->p->s.dtype);
}

/* Key and value of row t into their place. */
static void fill(const by__call *call, const plan *p, const head_view in[3], int64_t t)
{
    task x = {.call = call, .p = p, .pages = pages_of(call, p, t)};
    if (x.pages == NULL) {
        return;
    }
    int32_t position = ((const int32_t *)call->in[POSITIONS].data)[t];
    size_t bytes = (size_t)p->s.width * by_dtype_size(p->s.dtype);
    size_t place = (size_t)(position % BY_PAGE_TOKENS) * bytes;
    for (x.kv = 0; x.kv < p->s.kv_heads; x.kv++) {
        for (int i = 0; i < 2; i++) {
            memcpy(page_at(&x, K_POOL + i, position / BY_PAGE_TOKENS) + place,
                   head_at(&in[1 + i], &p->s, 0, t, x.kv), bytes);
        }
    }
}

static void *query_of(const task *x, int64_t g)
{
    size_t size = x->p->pairs ? sizeof(uint16_t) : sizeof(float);
    return x->work + x->p->queries + (size_t)(g * x->p->padded) * size;
}

static float *scores_of(const task *x, int64_t g)
{
    return (float *)(x->work + x->p->scores) + g * x->p->slots;
}

static float *sums_of(const task *x, int64_t g)
{
    return (float *)(x->work + x->p->sums) + g * x->p->padded;
}

/* q . key, before its lanes are added up. */
BY__INLINE by__vf dot(const void *q, const void *key, by_dtype dtype, bool pairs, int64_t width)
{
    by__vf total = by__zero();
#if defined(__AVX512BF16__)
    if (pairs) {
        for (int64_t i = 0; i < width; i += 2 * BY__LANES) {
            int n = (int)by__min_i64(2 * BY__LANES, width - i);
            __m512bh a = (__m512bh)by__load_pairs_n((const uint16_t *)q + i, 2 * BY__LANES);
            __m512bh b = (__m512bh)by__load_pairs_n((const uint16_t *)key + i, n);
            total = (by__vf)_mm512_dpbf16_ps((__m512)total, a, b);
        }
        return total;
    }
#endif
    BY_UNUSED(pairs);
#define STEP(i, n) total += by__load(q, i, BY_F32) * by__load_n(key, i, dtype, n)
    BY__STEPS(0, width, STEP);
#undef STEP
    return total;
}

/* Scores of `count` keys of a page. */
BY__INLINE void score_page(float *scores, const void *q, const char *keys, by_dtype dtype,
                           bool pairs, int64_t width, int64_t count)
{
    int64_t row = width * (dtype == BY_F32 ? 4 : 2);
    int64_t j = 0;
    for (; j + KEYS <= count; j += KEYS) {
        by__vf total[KEYS];
#pragma GCC unroll 4
        for (int i = 0; i < KEYS; i++) {
            total[i] = dot(q, keys + (j + i) * row, dtype, pairs, width);
        }
        by__sum4(scores + j, total[0], total[1], total[2], total[3]);
    }
    for (; j < count; j++) {
        scores[j] = by__sum(dot(q, keys + j * row, dtype, pairs, width));
    }
}

/* sums += the values of `count` keys of a page by their weights. */
BY__INLINE void add_page(float *sums, const float *weights, const char *values, by_dtype dtype,
                         int64_t width, int64_t count)
{
    int64_t i = 0;
    for (; i + STRIP * BY__LANES <= width; i += STRIP * BY__LANES) {
        by__vf total[STRIP];
#pragma GCC unroll 4
        for (int v = 0; v < STRIP; v++) {
            total[v] = by__load(sums, i + v * BY__LANES, BY_F32);
        }
        for (int64_t j = 0; j < count; j++) {
#pragma GCC unroll 4
            for (int v = 0; v < STRIP; v++) {
                total[v] += weights[j] * by__load(values, j * width + i + v * BY__LANES, dtype);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < STRIP; v++) {
            by__store(sums, i + v * BY__LANES, total[v], BY_F32);
        }
    }
#define STEP(at, n)                                                                                \
    by__vf total = by__load(sums, at, BY_F32);                                                     \
    for (int64_t j = 0; j < count; j++) {                                                          \
        total += weights[j] * by__load_n(values, j * width + (at), dtype, n);                      \
    }                                                                                              \
    by__store(sums, at, total, BY_F32)
    BY__STEPS(i, width, STEP);
#undef STEP
}

/* dtype and pairs are constants. */
BY__INLINE void attend_as(const task *x, by_dtype dtype, bool pairs)
{
    const plan *p = x->p;
    int64_t width = p->s.width;
    size_t row = (size_t)width * by_dtype_size(dtype);
    for (int64_t at = x->first, next; at <= x->last; at = next) {
        int64_t column = at / BY_PAGE_TOKENS;
        next = by__min_i64((column + 1) * BY_PAGE_TOKENS, x->last + 1);
        const char *keys = page_at(x, K_POOL, column);
        for (int64_t g = 0; g < p->group; g++) {
            float *scores = scores_of(x, g) + (at - x->first);
            for (int64_t j = 0; keys == NULL && j < next - at; j++) {
                scores[j] = ABSENT;
            }
            if (keys != NULL) {
                score_page(scores, query_of(x, g), keys + (size_t)(at % BY_PAGE_TOKENS) * row,
                           dtype, pairs, width, next - at);
            }
        }
    }
    for (int64_t g = 0; g < p->group; g++) {
        float highest;
        float total =
            attention_weigh(scores_of(x, g), 0, x->last - x->first + 1, p->s.scale, &highest);
        memset(sums_of(x, g), 0, (size_t)p->padded * sizeof(float));
        scores_of(x, g)[p->slots - 1] = total;
    }
    for (int64_t at = x->first, next; at <= x->last; at = next) {
        int64_t column = at / BY_PAGE_TOKENS;
        next = by__min_i64((column + 1) * BY_PAGE_TOKENS, x->last + 1);
        const char *values = page_at(x, V_POOL, column);
        for (int64_t g = 0; g < p->group && values != NULL; g++) {
            add_page(sums_of(x, g), scores_of(x, g) + (at - x->first),
                     values + (size_t)(at % BY_PAGE_TOKENS) * row, dtype, width, next - at);
        }
    }
}

static void attend(const task *x)
{
    if (x->p->pairs) {
        attend_as(x, BY_BF16, true);
    } else if (x->p->s.dtype == BY_F32) {
        attend_as(x, BY_F32, false);
    } else if (x->p->s.dtype == BY_BF16) {
        attend_as(x, BY_BF16, false);
    } else {
        attend_as(x, BY_F16, false);
    }
}

/* Row t's query of head g of the task, as `dot` wants it. */
static void take_query(const task *x, const head_view *in, int64_t t, int64_t g)
{
    const plan *p = x->p;
    const void *q = head_at(in, &p->s, 0, t, x->kv * p->group + g);
    void *out = query_of(x, g);
    if (p->pairs) {
        memset(out, 0, (size_t)p->padded * sizeof(uint16_t));
        memcpy(out, q, (size_t)p->s.width * sizeof(uint16_t));
        return;
    }
    memset(out, 0, (size_t)p->padded * sizeof(float));
#define WIDEN(i, n)                                                                                \
    by__store_n(out, i,                                                                            \
                p->s.dtype == BY_F32    ? by__load_n(q, i, BY_F32, n)                              \
                : p->s.dtype == BY_BF16 ? by__load_n(q, i, BY_BF16, n)                             \
                                        : by__load_n(q, i, BY_F16, n),                             \
                BY_F32, n)
    BY__STEPS(0, p->s.width, WIDEN);
#undef WIDEN
}

static void run_task(const by__call *call, const plan *p, const head_view in[3], int64_t t,
                     int64_t kv, char *work)
{
    task x = {.call = call, .p = p, .kv = kv, .work = work, .pages = pages_of(call, p, t)};
    const head_view y = {call->out[0].data, p->s.heads * p->s.width, 0};
    size_t bytes = (size_t)p->s.width * by_dtype_size(p->s.dtype);
    if (x.pages == NULL) {
        memset(head_at(&y, &p->s, 0, t, kv * p->group), 0, (size_t)p->group * bytes);
        return;
    }
    x.last = ((const int32_t *)call->in[POSITIONS].data)[t];
    x.first = call->attrs.window > 0 ? x.last - call->attrs.window + 1 : 0;
    x.first = x.first < 0 ? 0 : x.first;
    for (int64_t g = 0; g < p->group; g++) {
        take_query(&x, &in[0], t, g);
    }
    attend(&x);
    for (int64_t g = 0; g < p->group; g++) {
        float *sums = sums_of(&x, g);
        float total = scores_of(&x, g)[p->slots - 1];
        for (int64_t d = 0; d < p->s.width; d++) {
            sums[d] /= total;
        }
        by__panel_target target = {.y = head_at(&y, &p->s, 0, t, kv * p->group + g),
                                   .ldy = p->s.width,
                                   .dtype = p->s.dtype};
        BY__AT_LEVEL(by__panel_store)(&target, sums, p->s.width, 1, p->s.width);
    }
}

static by_status run(const by__call *call, const by__context *context)
{
    const plan *p = call->state;
    head_view in[3];
    attention_views(in, call->in, p->packed, &p->s);
    by__work_range *ranges = call->work;
    int64_t rows = p->s.length;
    for (int thread = 0; thread < context->threads; thread++) {
        by__work_range_open(ranges, rows * p->s.kv_heads, thread, context->threads);
    }
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
        int me = omp_get_thread_num();
        char *work = (char *)call->work + p->threads + (size_t)me * p->thread_bytes;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < rows; t++) {
            fill(call, p, in, t);
        }
        int64_t i;
        while ((i = by__work_range_take(ranges, me, context->threads)) >= 0) {
            run_task(call, p, in, i % rows, i / rows, work);
        }
    }
    return BY_OK;
}

static bool supports(const by__call *call)
{
    return by__tensor_is_act(&call->in[0]) && by__tensor_count(&call->in[0]) > 0;
}

static by_status prepare(by__call *call, const by__context *context, by_error *error)
{
    plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "attention", error));
    const by__panel *panel = by__panel_for(BY__AT_LEVEL(BY__LEVEL), false, call->in[0].dtype);
    p->packed = !by__present(&call->in[1]);
    p->s = attention_measure(call, p->packed, panel);
    p->group = p->s.heads / p->s.kv_heads;
    p->columns = call->in[TABLE].shape.dim[1];
    int64_t keys = p->columns * BY_PAGE_TOKENS;
    keys = call->attrs.window > 0 ? by__min_i64(keys, call->attrs.window) : keys;
    p->slots = (int64_t)by__round_up((size_t)keys + 1, BY__LANES); /* the last one: their sum */
    p->padded = (int64_t)by__round_up((size_t)p->s.width, (size_t)2 * BY__LANES);
    p->pairs = panel->step == 2;
    size_t used = 0;
    p->queries = reserve(&used, (size_t)(p->group * p->padded) * sizeof(float));
    p->sums = reserve(&used, (size_t)(p->group * p->padded) * sizeof(float));
    p->scores = reserve(&used, (size_t)(p->group * p->slots) * sizeof(float));
    p->thread_bytes = used;
    p->threads = by__round_up((size_t)context->threads * sizeof(by__work_range), BY_CACHE_LINE);
    call->work_bytes = p->threads + (size_t)context->threads * p->thread_bytes;
    call->state = p;
    return BY_OK;
}

static void release(by__call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(paged_attention) = {
    BY_OP_PAGED_ATTENTION, BY__KERNEL_NAME("paged attention"), supports, prepare, release, run};
