/* Attention over a cache. A query's keys are cut into splits of fixed places, each a block's, so
 * the bits of a row depend on its position alone. */
#include "keys.cuh"

#define BY__LANE_PIECES 8 /* elements of a head that a lane has, 32 apart */

BY__KERNEL(cache_write, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.batch * a.length * a.kv_heads * a.width) {
        return;
    }
    int64_t d = i % a.width;
    int64_t kv = i / a.width % a.kv_heads;
    int64_t t = i / a.width / a.kv_heads % a.length;
    int64_t b = i / a.width / a.kv_heads / a.length;
    int64_t from = (b * a.length + t) * a.kv_stride + kv * a.width + d;
    int64_t to = ((b * a.kv_heads + kv) * a.slots + a.position[0] + t) * a.width + d;
    if (a.bytes == 4) {
        ((uint32_t *)a.k_cache)[to] = ((const uint32_t *)a.k)[from];
        ((uint32_t *)a.v_cache)[to] = ((const uint32_t *)a.v)[from];
    } else {
        ((uint16_t *)a.k_cache)[to] = ((const uint16_t *)a.k)[from];
        ((uint16_t *)a.v_cache)[to] = ((const uint16_t *)a.v)[from];
    }
}

/* Puts together what the four warps of a block have of a split: the largest score, the sum of
 * exponentials relative to it, and the sum of values weighted by them. */
__device__ void by__put_part(const float y[BY__LANE_PIECES], float largest, float sum,
                             int64_t width, float *part)
{
    __shared__ float of_warp[4][32 * BY__LANE_PIECES + 2];
    unsigned warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < BY__LANE_PIECES; k++) {
        of_warp[warp][by__lane() + 32 * k] = y[k];
    }
    if (by__lane() == 0) {
        of_warp[warp][32 * BY__LANE_PIECES] = largest;
        of_warp[warp][32 * BY__LANE_PIECES + 1] = sum;
    }
    __syncthreads();
    float most = -BY__INFINITY;
    for (int w = 0; w < 4; w++) {
        most = by__at_least(most, of_warp[w][32 * BY__LANE_PIECES]);
    }
    for (int64_t d = threadIdx.x; d < width + 1; d += 128) {
        int64_t at = d < width ? d : 32 * BY__LANE_PIECES + 1; /* the sum is behind the values */
        float total = 0.0f;
        for (int w = 0; w < 4; w++) {
            float m = of_warp[w][32 * BY__LANE_PIECES];
            float share = m == -BY__INFINITY ? 0.0f : by__exp(m - most);
            total = by__fma(of_warp[w][at], share, total);
        }
        part[d < width ? d + 2 : 1] = total;
    }
    if (threadIdx.x == 0) {
        part[0] = most;
    }
}

/* A warp has every fourth key of the split, and its own largest score; in the end the block's four
 * are put together in their order. */
BY__KERNEL(cached_attention, 128)
{
    int64_t t = blockIdx.x / (unsigned)a.splits;
    int64_t split = blockIdx.x % (unsigned)a.splits;
    int64_t head = blockIdx.y;
    int64_t b = blockIdx.z;
    int64_t last = a.position[0] + t;
    int64_t first = a.window > 0 && last - a.window + 1 > 0 ? last - a.window + 1 : 0;
    int64_t begin = split * BY__CUDA_SPLIT > first ? split * BY__CUDA_SPLIT : first;
    int64_t end = (split + 1) * BY__CUDA_SPLIT < last + 1 ? (split + 1) * BY__CUDA_SPLIT : last + 1;
    int64_t q_at = (b * a.length + t) * a.q_stride + head * a.width;
    int64_t cache = (b * a.kv_heads + head / (a.heads / a.kv_heads)) * a.slots * a.width;
    unsigned warp = threadIdx.x / 32;
    float slope = by__slope_of(a, head);
    float q[BY__LANE_PIECES];
    float y[BY__LANE_PIECES];
    float largest = -BY__INFINITY;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < BY__LANE_PIECES; k++) {
        int64_t d = by__lane() + 32 * k;
        q[k] = d < a.width ? by__get(a.q, a.dtype, q_at + d) * a.scale : 0.0f;
        y[k] = 0.0f;
    }
    for (int64_t s = begin + warp; s < end; s += 4) {
        float score = 0.0f;
#pragma unroll
        for (int k = 0; k < BY__LANE_PIECES; k++) {
            int64_t d = by__lane() + 32 * k;
            if (d < a.width) {
                score = by__fma(q[k], by__get(a.k_cache, a.dtype, cache + s * a.width + d), score);
            }
        }
        score = by__fma(-slope, (float)(last - s), by__warp_sum(score));
        float now = score > largest ? score : largest;
        float kept = largest == -BY__INFINITY ? 0.0f : by__exp(largest - now);
        float p = by__exp(score - now);
        sum = by__fma(sum, kept, p);
        largest = now;
#pragma unroll
        for (int k = 0; k < BY__LANE_PIECES; k++) {
            int64_t d = by__lane() + 32 * k;
            if (d < a.width) {
                float v = by__get(a.v_cache, a.dtype, cache + s * a.width + d);
                y[k] = by__fma(p, v, y[k] * kept);
            }
        }
    }
    by__put_part(y, largest, sum, a.width,
                 a.part +
                     ((((b * a.heads + head) * a.length + t) * a.splits) + split) * (a.width + 2));
}

BY__KERNEL(attention_merge, 256)
{
    int64_t k = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (k >= a.rows * a.heads) {
        return; /* a whole warp */
    }
    int64_t row = k / a.heads;
    int64_t at = (row / a.length * a.heads + k % a.heads) * a.length + row % a.length;
    float first = a.first_lse[at];
    float second = a.second_lse[at];
    float highest = by__at_least(first, second);
    first = by__exp(first - highest);
    second = by__exp(second - highest);
    float sum = first + second;
    for (int64_t d = by__lane(); d < a.width; d += 32) {
        float total = by__fma(second, a.second[k * a.width + d], first * a.first[k * a.width + d]);
        a.y[k * a.width + d] = total / sum;
    }
    __syncwarp(); /* the results may be in the place of the operands */
    if (by__lane() == 0) {
        a.lse[at] = highest + by__log(sum);
    }
}

BY__KERNEL(cached_merge, 256)
{
    int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.rows) {
        return; /* a whole warp */
    }
    const float *part = a.part + row * a.splits * (a.width + 2);
    float most = -BY__INFINITY;
    float sum = 0.0f;
    for (int64_t s = 0; s < a.splits; s++) {
        most = by__at_least(most, part[s * (a.width + 2)]);
    }
    for (int64_t s = 0; s < a.splits; s++) {
        float m = part[s * (a.width + 2)];
        sum = by__fma(part[s * (a.width + 2) + 1], m == -BY__INFINITY ? 0.0f : by__exp(m - most),
                      sum);
    }
    int64_t t = row % a.length;
    int64_t head = row / a.length % a.heads;
    int64_t b = row / a.length / a.heads;
    for (int64_t d = by__lane(); d < a.width; d += 32) {
        float total = 0.0f;
        for (int64_t s = 0; s < a.splits; s++) {
            float m = part[s * (a.width + 2)];
            float share = m == -BY__INFINITY ? 0.0f : by__exp(m - most);
            total = by__fma(part[s * (a.width + 2) + 2 + d], share, total);
        }
        by__put(a.y, a.dtype, ((b * a.length + t) * a.heads + head) * a.width + d,
                sum == 0.0f ? 0.0f : total / sum); /* without a key, 0 */
    }
}

/* ---- pages ---- */

/* Where the page of a position of a session begins in the pools, in their elements; -1: nowhere. */
__device__ __forceinline__ int64_t by__page_of(const by__cuda_paged_attention_args &a,
                                               int64_t session, int64_t position, int64_t kv)
{
    int64_t column = position / BY__CUDA_PAGE;
    if (position < 0 || session < 0 || session >= a.session_count || column >= a.columns) {
        return -1;
    }
    int64_t page = a.table[session * a.columns + column];
    return page < 0 || page >= a.pages ? -1
                                       : (page * a.kv_heads + kv) * BY__CUDA_PAGE * a.page_width;
}

/* The place in a page of element d of a token's key: tokens are neighbours, and in bf16 pairs of
 * elements. */
__device__ __forceinline__ int64_t by__key_in_page(int dtype, int64_t width, int64_t token,
                                                   int64_t d)
{
    bool pairs = dtype == BY__BF16 && d / 2 * 2 + 1 < width;
    return pairs ? (d / 2 * BY__CUDA_PAGE + token) * 2 + d % 2 : d * BY__CUDA_PAGE + token;
}

/* Of its value: elements are neighbours, and in bf16 pairs of tokens. */
__device__ __forceinline__ int64_t by__value_in_page(int dtype, int64_t width, int64_t token,
                                                     int64_t d)
{
    return dtype == BY__BF16 ? (token / 2 * width + d) * 2 + token % 2 : token * width + d;
}

/* An element of a pool, without the scale of codes. */
__device__ __forceinline__ float by__pool_element(const void *pool, int dtype, int64_t at)
{
    return dtype == BY__U8 ? (float)((const signed char *)pool)[at] : by__get(pool, dtype, at);
}

/* The scales of a page's tokens are behind its codes. */
__device__ __forceinline__ float *by__page_scales(const void *pool, int64_t page, int64_t width)
{
    return (float *)((unsigned char *)pool + page + width * BY__CUDA_PAGE);
}

/* Stores a key or a value, a warp for each: unchanged, or as codes relative to its largest
 * magnitude / 127. */
__device__ __forceinline__ void by__put_in_page(const by__cuda_paged_write_args &a, void *pool,
                                                const void *x, int64_t from, int64_t page,
                                                int64_t token, bool is_key)
{
    float largest = 0.0f;
    for (int64_t d = by__lane(); d < a.width; d += 32) {
        largest = by__at_least(largest, by__magnitude(by__get(x, a.dtype, from + d)));
    }
    largest = by__warp_largest(largest);
    float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int64_t d = by__lane(); d < a.width; d += 32) {
        int64_t at = page + (is_key ? by__key_in_page(a.pool_dtype, a.width, token, d)
                                    : by__value_in_page(a.pool_dtype, a.width, token, d));
        float value = by__get(x, a.dtype, from + d);
        if (a.pool_dtype == BY__U8) {
            float rounded = value * inverse + 12582912.0f; /* to whole numbers, ties to even */
            ((signed char *)pool)[at] = (signed char)(rounded - 12582912.0f);
        } else {
            by__put(pool, a.pool_dtype, at, value);
        }
    }
    if (a.pool_dtype == BY__U8 && by__lane() == 0) {
        by__page_scales(pool, page, a.width)[token] = largest / 127.0f;
    }
}

BY__KERNEL(paged_write, 256)
{
    unsigned row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.length * a.kv_heads) {
        return; /* a whole warp */
    }
    unsigned kv = row % (unsigned)a.kv_heads;
    unsigned t = row / (unsigned)a.kv_heads;
    int64_t page = by__page_of(a, a.sessions[t], a.positions[t], kv);
    if (page >= 0) {
        int64_t token = a.positions[t] % BY__CUDA_PAGE;
        int64_t from = t * a.kv_stride + kv * a.width;
        by__put_in_page(a, a.k_pool, a.k, from, page, token, true);
        by__put_in_page(a, a.v_pool, a.v, from, page, token, false);
    }
}

/* The score of key lane % 16 of a page, to both lanes that have it: each sums half of the width. */
__device__ float by__page_score(const by__cuda_paged_attention_args &a, int64_t page, int64_t q_at)
{
    int64_t token = by__lane() % BY__CUDA_PAGE;
    int64_t half = (a.width + 1) / 2;
    int64_t first = by__lane() < BY__CUDA_PAGE ? 0 : half;
    int64_t end = by__lane() < BY__CUDA_PAGE ? half : a.width;
    float score = 0.0f;
    for (int64_t d = first; d < end; d++) {
        int64_t at = page + by__key_in_page(a.pool_dtype, a.width, token, d);
        score = by__fma(by__get(a.q, a.dtype, q_at + d) * a.scale,
                        by__pool_element(a.k_pool, a.pool_dtype, at), score);
    }
    float other = by__shuffle(score, by__lane() ^ BY__CUDA_PAGE);
    score = by__lane() < BY__CUDA_PAGE ? score + other : other + score;
    return a.pool_dtype == BY__U8 ? score * by__page_scales(a.k_pool, page, a.width)[token] : score;
}

/* A warp has every fourth page of the split. */
BY__KERNEL(paged_attention, 128)
{
    int64_t t = blockIdx.x / (unsigned)a.splits;
    int64_t split = blockIdx.x % (unsigned)a.splits;
    int64_t head = blockIdx.y;
    int64_t kv = head / (a.heads / a.kv_heads);
    int64_t session = a.sessions[t];
    int64_t last = a.positions[t];
    int64_t first = a.window > 0 && last - a.window + 1 > 0 ? last - a.window + 1 : 0;
    int64_t begin = split * BY__CUDA_SPLIT;
    int64_t end = begin + BY__CUDA_SPLIT < last + 1 ? begin + BY__CUDA_SPLIT : last + 1;
    end = by__page_of(a, session, last, kv) < 0 ? begin : end; /* the row is none */
    float slope = by__slope_of(a, head);
    float y[BY__LANE_PIECES];
    float largest = -BY__INFINITY;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < BY__LANE_PIECES; k++) {
        y[k] = 0.0f;
    }
    for (int64_t s = begin + threadIdx.x / 32 * BY__CUDA_PAGE; s < end; s += 4 * BY__CUDA_PAGE) {
        int64_t page = by__page_of(a, session, s, kv);
        if (page < 0 || s + BY__CUDA_PAGE <= first) {
            continue; /* a whole warp */
        }
        int64_t own = s + by__lane() % BY__CUDA_PAGE;
        bool inside = own >= first && own < end;
        float score = by__page_score(a, page, t * a.q_stride + head * a.width);
        score = by__fma(-slope, (float)(last - own), score);
        float now = by__at_least(largest, by__warp_largest(inside ? score : -BY__INFINITY));
        float kept = largest == -BY__INFINITY ? 0.0f : by__exp(largest - now);
        float p = inside ? by__exp(score - now) : 0.0f;
        largest = now;
        sum = by__fma(sum, kept, by__warp_sum(by__lane() < BY__CUDA_PAGE ? p : 0.0f));
        if (a.pool_dtype == BY__U8 && inside) {
            p *= by__page_scales(a.v_pool, page, a.width)[own % BY__CUDA_PAGE];
        }
#pragma unroll
        for (int k = 0; k < BY__LANE_PIECES; k++) {
            y[k] *= kept;
        }
        for (int token = 0; token < BY__CUDA_PAGE; token++) {
            float share = by__shuffle(p, (unsigned)token);
            if (s + token < first || s + token >= end) {
                continue; /* a whole warp; what nothing has written may be NaN */
            }
#pragma unroll
            for (int k = 0; k < BY__LANE_PIECES; k++) {
                int64_t d = by__lane() + 32 * k;
                if (d < a.width) {
                    int64_t at = page + by__value_in_page(a.pool_dtype, a.width, token, d);
                    y[k] = by__fma(share, by__pool_element(a.v_pool, a.pool_dtype, at), y[k]);
                }
            }
        }
    }
    by__put_part(y, largest, sum, a.width,
                 a.part + ((head * a.length + t) * a.splits + split) * (a.width + 2));
}
