/* Pages of keys and values (attention_paged.c): their addresses, and how a row is written into
 * them.
 *
 * Layout of a page, for each head: keys [width][tokens], values [tokens][width]. In bf16, two
 * elements of a key, or the same element of two tokens of a value, are stored as one pair. */
#ifndef BY_DEVICE_CPU_KERNELS_ATTENTION_ATTENTION_PAGES_H
#define BY_DEVICE_CPU_KERNELS_ATTENTION_ATTENTION_PAGES_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "device/cpu/kernels/attention/attention.h"
#include "device/cpu/kernels/step.h"

enum { K_POOL = 3, V_POOL, POSITIONS, SESSIONS, TABLE };

/* Queries that are combined with a page together, and vectors of value sums held in registers. */
#if BY__LANES == 16
enum { QUERIES = 4, STRIP = 4 };
#else
enum { QUERIES = 2, STRIP = 2 };
#endif
/* Prefetch distance in heads' parts of a page. */
enum { AHEAD = 4 };
/* The largest code, and the magnitude below which a row is stored as zeros because its inverse
 * would not be finite.
 */
#define LARGEST_CODE 127.0f
#define SMALLEST     0x1p-100f

typedef struct paged_plan {
    attention_shape s;
    by__kernel_arithmetic kind;
    bool packed;
    size_t head_bytes; /* bytes of a head in a page */
    int64_t group;     /* query heads per key head */
    int64_t columns;   /* of the page table */
    int64_t steps;     /* whole vectors in a head's width */
    int64_t units;     /* units of a query */
    int64_t slots;     /* keys in the pages that a tile may attend to */
    int64_t padded;    /* width rounded up to whole vectors */
    int64_t together;  /* most key heads whose parts of a page a task reads in turn */
    int64_t rows;      /* queries of a task: QUERIES, or those of all these heads */
    size_t queries;    /* offsets in a thread's part: [rows][units] */
    size_t scores;     /* [rows][slots] f32 scores; then weights in the same place, as units */
    size_t sums;       /* [rows][padded] */
    size_t totals;     /* [rows] sums of weights */
    size_t thread_bytes;
    size_t runs;    /* offset of the first rows of runs, after the ranges: i32 [rows + 1] */
    size_t threads; /* offset of the threads' parts */
} paged_plan;

/* Queries of one session that are combined with pages together: the same number for each of `heads`
 * key heads, at the same positions. */
typedef struct paged_tile {
    const by__device_call *call;
    const paged_plan *p;
    int64_t kv;           /* the current key head */
    int64_t head;         /* its index in the tile */
    int64_t heads;        /* number of key heads in the tile */
    int64_t row;          /* index of its first query among those of the tile */
    int64_t member;       /* of a group of query heads: the first query's */
    const int32_t *pages; /* page table of the session */
    /* range of positions that each query of a head attends to */
    int64_t first[QUERIES], last[QUERIES];
    int64_t begin, end; /* range of page table columns that any of them attends to */
    char *work;
} paged_tile;

/* Makes head h of a tile the current one; a head has `height` queries. */
BY__INLINE void select_head(paged_tile *x, int64_t h, int64_t height)
{
    x->kv += h - x->head;
    x->head = h;
    x->row = h * height;
}

/* The page table of row t's session; NULL: the row reads and writes nothing. */
static const int32_t *pages_of(const by__device_call *call, const paged_plan *p, int64_t t)
{
    int32_t position = ((const int32_t *)call->in[POSITIONS].data)[t];
    int32_t session = ((const int32_t *)call->in[SESSIONS].data)[t];
    if (position < 0 || position / BY_PAGE_TOKENS >= p->columns || session < 0 ||
        session >= call->in[TABLE].shape.dim[0]) {
        return NULL;
    }
    const int32_t *table = call->in[TABLE].data;
    assert(table != NULL);
    const int32_t *pages = table + session * p->columns;
    int32_t page = pages[position / BY_PAGE_TOKENS];
    return page < 0 || page >= call->in[K_POOL].shape.dim[0] ? NULL : pages;
}

/* A head's part of a page in a pool; NULL: there is no such page. */
static char *page_at(const paged_tile *x, int pool, int64_t column)
{
    const by__device_tensor *tensor = &x->call->in[pool];
    int32_t page = x->pages[column];
    if (page < 0 || page >= tensor->shape.dim[0]) {
        return NULL;
    }
    int64_t heads = page * x->p->s.kv_heads + x->kv;
    return (char *)tensor->data + (size_t)heads * x->p->head_bytes;
}

/* Returns true if a page follows the previous one in memory and both are read completely. The
 * hardware prefetcher has then followed, and software prefetches would only take its place: without
 * them it reads half as fast again. */
BY__INLINE bool follows(const paged_tile *x, int64_t column)
{
    return x->heads == x->p->s.kv_heads && column > x->begin &&
           x->pages[column] == x->pages[column - 1] + 1;
}

/* The address to prefetch while this part is read: the part `AHEAD` parts further on. The heads of
 * a tile take turns at a page, values follow keys, and with one head alone the keys of the next one
 * follow. If there is no such part, an address that is cached anyway. */
static const char *page_ahead(const paged_tile *x, int pool, int64_t column)
{
    int64_t head = x->head + AHEAD;
    for (; head >= x->heads; head -= x->heads) {
        column++;
    }
    bool ends = column >= x->end;
    column += ends ? x->begin - x->end : 0;
    bool next_head = ends && pool == V_POOL;
    if (column >= x->end || follows(x, column) || (next_head && x->kv + 1 == x->p->s.kv_heads)) {
        return x->work;
    }
    const char *page = page_at(x, next_head ? K_POOL : ends ? V_POOL : pool, column);
    int64_t parts = next_head ? 1 : head - x->head;
    return page == NULL ? x->work : page + parts * (int64_t)x->p->head_bytes;
}

/* ---- writing keys and values ---- */

/* The scales of a page of codes, one per token. */
BY__INLINE const float *scales_of(const paged_plan *p, const char *page)
{
    return (const float *)(const void *)(page + p->s.width * BY_PAGE_TOKENS);
}

BY__INLINE by__vf load_act(const void *row, int64_t i, by_dtype dtype, int n)
{
    return dtype == BY_F32    ? by__load_n(row, i, BY_F32, n)
           : dtype == BY_BF16 ? by__load_n(row, i, BY_BF16, n)
                              : by__load_n(row, i, BY_F16, n);
}

/* Stores a key or value as codes, from code `at` on, `stride` codes apart, and its scale. A row
 * that is not finite gets NaN as its scale. */
static void put_codes(const paged_plan *p, char *page, const char *row, int64_t slot, int64_t at,
                      int64_t stride)
{
    by__vf most = by__zero();
    by__vi finite = (by__vi){0} == 0;
    int8_t *codes = (int8_t *)page + at;
#define MEASURE(i, n)                                                                              \
    by__vf size = by__abs(load_act(row, i, p->s.dtype, n));                                        \
    finite &= size <= FLT_MAX;                                                                     \
    most = by__larger(most, size)
    BY__STEPS(0, p->s.width, MEASURE);
#undef MEASURE
    bool is_finite = by__sum(__builtin_convertvector(finite, by__vf)) == (float)-BY__LANES;
    float largest = is_finite ? by__max(most) : 0.0f;
    float inverse = largest >= SMALLEST ? LARGEST_CODE / largest : 0.0f;
#define ENCODE(i, n)                                                                               \
    float values[BY__LANES];                                                                       \
    by__kernel_store(values, 0, load_act(row, i, p->s.dtype, n) * inverse, BY_F32);                \
    for (int lane = 0; lane < (n); lane++) {                                                       \
        codes[((i) + lane) * stride] = is_finite ? (int8_t)rintf(values[lane]) : 0;                \
    }
    BY__STEPS(0, p->s.width, ENCODE);
#undef ENCODE
    float scale = is_finite ? largest / LARGEST_CODE : NAN;
    memcpy(page + p->s.width * BY_PAGE_TOKENS + slot * 4, &scale, sizeof scale);
}

static void put_key(const paged_plan *p, char *page, const char *key, int64_t slot)
{
    int64_t width = p->s.width;
    if (p->kind == BY__CODES_I8) {
        put_codes(p, page, key, slot, slot, BY_PAGE_TOKENS);
        return;
    }
    if (p->s.dtype == BY_F32) {
        for (int64_t d = 0; d < width; d++) {
            memcpy(page + (d * BY_PAGE_TOKENS + slot) * 4, key + d * 4, 4);
        }
        return;
    }
    int64_t pairs = p->s.dtype == BY_BF16 ? width / 2 : 0;
    for (int64_t i = 0; i < pairs; i++) {
        memcpy(page + (i * BY_PAGE_TOKENS + slot) * 4, key + i * 4, 4);
    }
    for (int64_t d = 2 * pairs; d < width; d++) {
        memcpy(page + (d * BY_PAGE_TOKENS + slot) * 2, key + d * 2, 2);
    }
}

static void put_value(const paged_plan *p, char *page, const char *value, int64_t slot)
{
    int64_t width = p->s.width;
    if (p->kind == BY__CODES_I8) {
        put_codes(p, page, value, slot, slot * width, 1);
        return;
    }
    if (p->s.dtype != BY_BF16) {
        size_t bytes = (size_t)width * by_dtype_size(p->s.dtype);
        memcpy(page + (size_t)slot * bytes, value, bytes);
        return;
    }
    char *at = page + (slot / 2 * width * 2 + slot % 2) * 2;
    for (int64_t d = 0; d < width; d++) {
        memcpy(at + d * 4, value + d * 2, 2);
    }
}

/* Writes key and value of row t to their place. */
static void fill(const by__device_call *call, const paged_plan *p, const head_view in[3], int64_t t)
{
    paged_tile x = {.call = call, .p = p, .pages = pages_of(call, p, t)};
    if (x.pages == NULL) {
        return;
    }
    int32_t position = ((const int32_t *)call->in[POSITIONS].data)[t];
    int64_t column = position / BY_PAGE_TOKENS;
    int64_t slot = position % BY_PAGE_TOKENS;
    for (x.kv = 0; x.kv < p->s.kv_heads; x.kv++) {
        put_key(p, page_at(&x, K_POOL, column), head_at(&in[1], &p->s, 0, t, x.kv), slot);
        put_value(p, page_at(&x, V_POOL, column), head_at(&in[2], &p->s, 0, t, x.kv), slot);
    }
}

#endif
