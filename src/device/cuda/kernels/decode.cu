/* Attention over a cache. A query's keys are cut into splits of fixed places, each a block's, so
 * the bits of a row depend on its position alone. */
#include "functions.cuh"

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

/* A warp has every fourth key of the split, and its own largest score; in the end the block's four
 * are put together in their order. */
BY__KERNEL(cached_attention, 128)
{
    __shared__ float of_warp[4][32 * BY__LANE_PIECES + 2];
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
        score = by__warp_sum(score);
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
    float *part =
        a.part + ((((b * a.heads + head) * a.length + t) * a.splits) + split) * (a.width + 2);
    for (int64_t d = threadIdx.x; d < a.width + 1; d += 128) {
        int64_t at = d < a.width ? d : 32 * BY__LANE_PIECES + 1; /* the sum is behind the values */
        float total = 0.0f;
        for (int w = 0; w < 4; w++) {
            float m = of_warp[w][32 * BY__LANE_PIECES];
            float share = m == -BY__INFINITY ? 0.0f : by__exp(m - most);
            total = by__fma(of_warp[w][at], share, total);
        }
        part[d < a.width ? d + 2 : 1] = total;
    }
    if (threadIdx.x == 0) {
        part[0] = most;
    }
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
        by__put(a.y, a.dtype, ((b * a.length + t) * a.heads + head) * a.width + d, total / sum);
    }
}
