#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/cpu/reference/reference_heads.h"

static double dot(const by__device_tensor *a, int64_t at, const by__device_tensor *b, int64_t bt,
                  int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += by__get(a, at + i) * by__get(b, bt + i);
    }
    return sum;
}

/* The first key that query t of sample b attends to, at position `place` among the keys. `operands`
 * as in rows_of, and the first keys if there are five. */
static int64_t first_key(const by__device_call *call, const problem *p, int operands, int64_t b,
                         int64_t t, int64_t place)
{
    int64_t window = call->attrs.window;
    int64_t first = window > 0 ? place - window + 1 : 0;
    if (operands > 4 && by__present(&call->in[4])) {
        int64_t start = by__id(&call->in[4], b * p->length + t);
        first = start > first ? start : first;
    }
    return first < 0 ? 0 : first > place ? place : first;
}

/* What a score gets for its distance (ALiBi). */
static double bias(const by__device_call *call, int64_t head, int64_t query, int64_t key)
{
    const by_attrs *a = &call->attrs;
    double distance = fabs((double)(query - key));
    return a->slopes == 0 ? 0.0 : -by_attention_slope(a->slopes, a->begin + head) * distance;
}

/* Converts `count` scores to probabilities; returns the logarithm of the sum of their
 * exponentials.
 */
static double softmax(double *scores, int64_t count)
{
    double highest = scores[0];
    for (int64_t i = 1; i < count; i++) {
        highest = scores[i] > highest ? scores[i] : highest;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += exp(scores[i] - highest);
    }
    double lse = highest + log(sum);
    for (int64_t i = 0; i < count; i++) {
        scores[i] = exp(scores[i] - lse);
    }
    return lse;
}

static by_status prepare_attention(by__device_call *call, const by__device_context *context,
                                   by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, call->in[0].shape.dim[1], error);
}

/* Processes one query, which attends to keys first .. end - 1; without keys the result is zero. */
static void attend(const by__device_call *call, const operand_view in[3], const problem *p,
                   int64_t b, int64_t t, int64_t head, int64_t first, int64_t end)
{
    double *scores = call->work;
    int64_t count = end - first;
    int64_t kv = head / (p->heads / p->kv_heads);
    int64_t q = place(&in[0], p, b, t, head);
    for (int64_t s = 0; s < count; s++) {
        int64_t k = place(&in[1], p, b, first + s, kv);
        scores[s] = dot(in[0].tensor, q, in[1].tensor, k, p->width) * p->scale +
                    bias(call, head, t, first + s);
    }
    double lse = count > 0 ? softmax(scores, count) : 0.0;
    by__set(&call->out[1], (b * p->heads + head) * p->length + t, lse);
    for (int64_t d = 0; d < p->width; d++) {
        double sum = 0.0;
        for (int64_t s = 0; s < count; s++) {
            sum += scores[s] * by__get(in[2].tensor, place(&in[2], p, b, first + s, kv) + d);
        }
        by__set(&call->out[0], ((b * p->length + t) * p->heads + head) * p->width + d, sum);
    }
}

static by_status run_attention(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = is_packed(call, call->input_count);
    problem p = measure(call, packed);
    operand_view in[3];
    make_views(in, call->in, packed, &p);
    for (int64_t b = 0; b < p.batch; b++) {
        int64_t rows = rows_of(call, &p, call->input_count, b);
        for (int64_t i = 0; i < p.heads * p.length; i++) {
            int64_t t = i % p.length;
            int64_t end = end_key(call, rows, t);
            int64_t first = end == 0 ? 0 : first_key(call, &p, call->input_count, b, t, t);
            attend(call, in, &p, b, t, i / p.length, first, end);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ATTENTION, attention, prepare_attention, run_attention);

static by_status prepare_attention_grad(by__device_call *call, const by__device_context *context,
                                        by_error *error)
{
    BY_UNUSED(context);
    problem p = measure(call, is_packed(call, call->input_count - 3));
    return by__reference_work(call, (2 * p.length + 1) * p.width, error);
}

/* The gradient of one query: with P its probabilities and delta = dy . y,
 *   dv[s] += P[s] dy,   ds = P[s] (dy . v[s] - delta) scale,   dq += ds k[s],   dk[s] += ds q. */
static void query_grad(const by__device_call *call, const operand_view in[3], const problem *p,
                       int64_t b, int64_t t, int64_t head, double *dq, double *dk, double *dv)
{
    const by__device_tensor *y = &call->in[call->input_count - 3];
    const by__device_tensor *lse = &call->in[call->input_count - 2];
    const by__device_tensor *dy = &call->in[call->input_count - 1];
    int64_t n = p->width;
    int64_t kv = head / (p->heads / p->kv_heads);
    int64_t row = ((b * p->length + t) * p->heads + head) * n;
    int64_t q = place(&in[0], p, b, t, head);
    double delta = dot(dy, row, y, row, n);
    double total = by__get(lse, (b * p->heads + head) * p->length + t);
    int64_t rows = rows_of(call, p, call->input_count - 3, b);
    int64_t count = end_key(call, rows, t);
    memset(dq, 0, (size_t)n * sizeof(double));
    for (int64_t s = first_key(call, p, call->input_count - 3, b, t, t); s < count; s++) {
        int64_t k = place(&in[1], p, b, s, kv);
        int64_t v = place(&in[2], p, b, s, kv);
        double score = dot(in[0].tensor, q, in[1].tensor, k, n) * p->scale + bias(call, head, t, s);
        double probability = exp(score - total);
        double ds = probability * (dot(dy, row, in[2].tensor, v, n) - delta) * p->scale;
        for (int64_t d = 0; d < n; d++) {
            dv[s * n + d] += probability * by__get(dy, row + d);
            dk[s * n + d] += ds * by__get(in[0].tensor, q + d);
            dq[d] += ds * by__get(in[1].tensor, k + d);
        }
    }
}

static by_status run_attention_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = is_packed(call, call->input_count - 3);
    problem p = measure(call, packed);
    operand_view in[3];
    operand_view out[3];
    make_views(in, call->in, packed, &p);
    make_views(out, call->out, packed, &p);
    int64_t group = p.heads / p.kv_heads;
    int64_t size = p.length * p.width;
    double *dk = call->work;
    double *dv = dk + size;
    double *dq = dv + size;
    for (int64_t b = 0; b < p.batch; b++) {
        for (int64_t kv = 0; kv < p.kv_heads; kv++) {
            memset(dk, 0, 2 * (size_t)size * sizeof(double));
            for (int64_t i = 0; i < group * p.length; i++) {
                int64_t head = kv * group + i / p.length;
                int64_t t = i % p.length;
                query_grad(call, in, &p, b, t, head, dq, dk, dv);
                for (int64_t d = 0; d < p.width; d++) {
                    by__set(out[0].tensor, place(&out[0], &p, b, t, head) + d, dq[d]);
                }
            }
            for (int64_t i = 0; i < size; i++) {
                int64_t t = i / p.width;
                int64_t d = i % p.width;
                by__set(out[1].tensor, place(&out[1], &p, b, t, kv) + d, dk[i]);
                by__set(out[2].tensor, place(&out[2], &p, b, t, kv) + d, dv[i]);
            }
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ATTENTION_GRAD, attention_grad, prepare_attention_grad,
                     run_attention_grad);

static by_status prepare_cached_attention(by__device_call *call, const by__device_context *context,
                                          by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, call->in[call->input_count - 2].shape.dim[2], error);
}

static by_status run_cached_attention(const by__device_call *call,
                                      const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = is_packed(call, call->input_count - 3);
    problem p = measure(call, packed);
    operand_view in[3];
    make_views(in, call->in, packed, &p);
    const by__device_tensor *caches = &call->in[call->input_count - 3]; /* k, then v */
    int64_t slots = caches[0].shape.dim[2];
    int64_t position = by__id(&call->in[call->input_count - 1], 0);
    assert(position >= 0 && position + p.length <= slots);
    double *scores = call->work;
    for (int64_t i = 0; i < p.batch * p.kv_heads * p.length * p.width; i++) {
        int64_t d = i % p.width;
        int64_t t = i / p.width % p.length;
        int64_t kv = i / p.width / p.length % p.kv_heads;
        int64_t b = i / p.width / p.length / p.kv_heads;
        int64_t slot = ((b * p.kv_heads + kv) * slots + position + t) * p.width + d;
        by__set(&caches[0], slot, by__get(in[1].tensor, place(&in[1], &p, b, t, kv) + d));
        by__set(&caches[1], slot, by__get(in[2].tensor, place(&in[2], &p, b, t, kv) + d));
    }
    for (int64_t i = 0; i < p.batch * p.heads * p.length; i++) {
        int64_t t = i % p.length;
        int64_t head = i / p.length % p.heads;
        int64_t b = i / p.length / p.heads;
        int64_t cache = (b * p.kv_heads + head / (p.heads / p.kv_heads)) * slots * p.width;
        int64_t q = place(&in[0], &p, b, t, head);
        int64_t first = first_key(call, &p, 3, b, t, position + t);
        int64_t count = position + t + 1 - first;
        cache += first * p.width;
        for (int64_t s = 0; s < count; s++) {
            scores[s] = dot(in[0].tensor, q, &caches[0], cache + s * p.width, p.width) * p.scale +
                        bias(call, head, position + t, first + s);
        }
        (void)softmax(scores, count);
        for (int64_t d = 0; d < p.width; d++) {
            double sum = 0.0;
            for (int64_t s = 0; s < count; s++) {
                sum += scores[s] * by__get(&caches[1], cache + s * p.width + d);
            }
            by__set(&call->out[0], ((b * p.length + t) * p.heads + head) * p.width + d, sum);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CACHED_ATTENTION, cached_attention, prepare_cached_attention,
                     run_cached_attention);

/* Operands of PAGED_ATTENTION after q, k and v. */
enum { K_POOL = 3, V_POOL, POSITIONS, SESSIONS, TABLE };

/* Offset of element 0 of the page of a session's token, for one head; -1: it has no page. */
static int64_t page_begin(const by__device_call *call, const problem *p, int64_t session,
                          int64_t position, int64_t kv)
{
    const by_shape *table = &call->in[TABLE].shape;
    int64_t column = position / BY_PAGE_TOKENS;
    if (position < 0 || session < 0 || session >= table->dim[0] || column >= table->dim[1]) {
        return -1;
    }
    int64_t page = by__id(&call->in[TABLE], session * table->dim[1] + column);
    if (page < 0 || page >= call->in[K_POOL].shape.dim[0]) {
        return -1;
    }
    return (page * p->kv_heads + kv) * BY_PAGE_TOKENS * call->in[K_POOL].shape.dim[3];
}

/* Index of element d of a token's key in its page: for each element the tokens are adjacent; bf16
 * elements are in pairs. */
static int64_t key_in_page(const by__device_call *call, const problem *p, int64_t position,
                           int64_t d)
{
    int64_t token = position % BY_PAGE_TOKENS;
    bool pairs = call->in[K_POOL].dtype == BY_BF16 && d / 2 * 2 + 1 < p->width;
    return pairs ? (d / 2 * BY_PAGE_TOKENS + token) * 2 + d % 2 : d * BY_PAGE_TOKENS + token;
}

/* Index of element d of its value: rows of tokens; in bf16 pairs of tokens are adjacent. */
static int64_t value_in_page(const by__device_call *call, const problem *p, int64_t position,
                             int64_t d)
{
    int64_t token = position % BY_PAGE_TOKENS;
    bool pairs = call->in[V_POOL].dtype == BY_BF16;
    return pairs ? (token / 2 * p->width + d) * 2 + token % 2 : token * p->width + d;
}

/* Address of a token's scale in a page of codes, which are bytes. */
static float *scale_in_page(const by__device_call *call, const problem *p, int pool, int64_t page,
                            int64_t position)
{
    char *codes = (char *)call->in[pool].data + page + p->width * BY_PAGE_TOKENS;
    return (float *)(void *)codes + position % BY_PAGE_TOKENS;
}

static double paged_element(const by__device_call *call, const problem *p, int pool, int64_t page,
                            int64_t position, int64_t d)
{
    const by__device_tensor *tensor = &call->in[pool];
    int64_t at = page + (pool == K_POOL ? key_in_page(call, p, position, d)
                                        : value_in_page(call, p, position, d));
    if (tensor->dtype == BY_U8) {
        double scale = (double)*scale_in_page(call, p, pool, page, position);
        return scale * (double)((const int8_t *)tensor->data)[at];
    }
    return by__get(tensor, at);
}

/* Stores a key or value: unchanged, or as codes relative to the largest magnitude / 127. */
static void put_row(const by__device_call *call, const problem *p, int pool, int64_t page,
                    int64_t position, const by__device_tensor *row, int64_t from)
{
    const by__device_tensor *tensor = &call->in[pool];
    float largest = 0.0f;
    for (int64_t d = 0; d < p->width; d++) {
        largest = fmaxf(largest, fabsf((float)by__get(row, from + d)));
    }
    float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int64_t d = 0; d < p->width; d++) {
        int64_t at = page + (pool == K_POOL ? key_in_page(call, p, position, d)
                                            : value_in_page(call, p, position, d));
        float value = (float)by__get(row, from + d);
        if (tensor->dtype == BY_U8) {
            ((int8_t *)tensor->data)[at] = (int8_t)rintf(value * inverse);
        } else {
            by__set(tensor, at, (double)value);
        }
    }
    if (tensor->dtype == BY_U8) {
        *scale_in_page(call, p, pool, page, position) = largest / 127.0f;
    }
}

static by_status prepare_paged_attention(by__device_call *call, const by__device_context *context,
                                         by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, call->in[TABLE].shape.dim[1] * BY_PAGE_TOKENS, error);
}

/* Processes one query of row t, which attends to keys `first` .. `last` of its session. */
static void attend_pages(const by__device_call *call, const operand_view in[3], const problem *p,
                         int64_t t, int64_t head, int64_t first, int64_t last)
{
    double *scores = call->work;
    int64_t kv = head / (p->heads / p->kv_heads);
    int64_t session = by__id(&call->in[SESSIONS], t);
    int64_t q = place(&in[0], p, 0, t, head);
    for (int64_t s = first; s <= last; s++) {
        int64_t page = page_begin(call, p, session, s, kv);
        double sum = page < 0 ? -INFINITY : 0.0;
        for (int64_t d = 0; d < p->width && page >= 0; d++) {
            sum += by__get(in[0].tensor, q + d) * paged_element(call, p, K_POOL, page, s, d);
        }
        scores[s - first] = sum * p->scale + bias(call, head, last, s);
    }
    (void)softmax(scores, last - first + 1);
    for (int64_t d = 0; d < p->width; d++) {
        double sum = 0.0;
        for (int64_t s = first; s <= last; s++) {
            int64_t page = page_begin(call, p, session, s, kv);
            sum += page < 0 ? 0.0 : scores[s - first] * paged_element(call, p, V_POOL, page, s, d);
        }
        by__set(&call->out[0], (t * p->heads + head) * p->width + d, sum);
    }
}

static by_status run_paged_attention(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool packed = !by__present(&call->in[1]);
    problem p = measure(call, packed);
    operand_view in[3];
    make_views(in, call->in, packed, &p);
    const int32_t *positions = call->in[POSITIONS].data;
    for (int64_t i = 0; i < p.length * p.kv_heads; i++) {
        int64_t kv = i % p.kv_heads;
        int64_t t = i / p.kv_heads;
        int64_t page = page_begin(call, &p, by__id(&call->in[SESSIONS], t), positions[t], kv);
        for (int k = 0; k < 2 && page >= 0; k++) {
            put_row(call, &p, K_POOL + k, page, positions[t], in[1 + k].tensor,
                    place(&in[1 + k], &p, 0, t, kv));
        }
    }
    for (int64_t i = 0; i < p.length * p.heads; i++) {
        int64_t t = i / p.heads;
        int64_t head = i % p.heads;
        int64_t last = positions[t];
        int64_t first = call->attrs.window > 0 ? last - call->attrs.window + 1 : 0;
        if (page_begin(call, &p, by__id(&call->in[SESSIONS], t), last, 0) >= 0) {
            attend_pages(call, in, &p, t, head, first < 0 ? 0 : first, last);
            continue;
        }
        for (int64_t d = 0; d < p.width; d++) {
            by__set(&call->out[0], i * p.width + d, 0.0);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PAGED_ATTENTION, paged_attention, prepare_paged_attention,
                     run_paged_attention);

static by_status run_merge(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by_shape *shape = &call->in[0].shape;
    int64_t length = shape->dim[1];
    int64_t heads = call->attrs.heads;
    int64_t width = shape->dim[2] / heads;
    for (int64_t k = 0; k < shape->dim[0] * length * heads; k++) {
        int64_t row = k / heads;
        int64_t at = (row / length * heads + k % heads) * length + row % length;
        double highest = by__get(&call->in[1], at);
        double sum = 0.0;
        for (int i = 1; i < call->input_count; i += 2) {
            double lse = by__get(&call->in[i], at);
            highest = lse > highest ? lse : highest;
        }
        for (int i = 1; i < call->input_count; i += 2) {
            sum += exp(by__get(&call->in[i], at) - highest);
        }
        by__set(&call->out[1], at, highest + log(sum));
        for (int64_t d = 0; d < width; d++) {
            double total = 0.0;
            for (int i = 0; i < call->input_count; i += 2) {
                double share = exp(by__get(&call->in[i + 1], at) - highest) / sum;
                total += share * by__get(&call->in[i], k * width + d);
            }
            by__set(&call->out[0], k * width + d, total);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ATTENTION_MERGE, attention_merge, NULL, run_merge);
