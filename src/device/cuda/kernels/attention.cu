/* Attention in f32, for every width of heads up to 256: tiles of queries and keys in shared memory.
 * A query's keys are taken in ascending order, so its bits depend on nothing else. */
#include "keys.cuh"

/* Loads rows first .. first + count - 1 of a head, as far as they are in [low, high); others become
 * zeros. Row t is `stride` elements behind row t - 1. */
__device__ void by__load_rows(float *to, int row, const void *x, int dtype, int64_t at,
                              int64_t stride, int64_t width, int64_t first, int count, int64_t low,
                              int64_t high)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < count * (int)width; i += (int)blockDim.x) {
        int r = i / (int)width;
        int d = i % (int)width;
        int64_t t = first + r;
        to[r * row + d] = t >= low && t < high ? by__get(x, dtype, at + t * stride + d) : 0.0f;
    }
}

__device__ __forceinline__ float by__dot(const float *x, const float *y, int width)
{
    float sum = 0.0f;
#pragma unroll 4
    for (int d = 0; d < width; d++) {
        sum = by__fma(x[d], y[d], sum);
    }
    return sum;
}

BY__KERNEL(attention, 128)
{
    const int width = (int)a.width;
    const int row = BY__CUDA_ROW_OF(width);
    float *q = (float *)by__dynamic_shared();
    float *y = q + BY__CUDA_QUERIES * row;
    float *k = y + BY__CUDA_QUERIES * row;
    float *v = k + BY__CUDA_KEYS * row;
    float *scores = v + BY__CUDA_KEYS * row; /* [QUERIES][KEYS + 1] */
    float *largest = scores + BY__CUDA_QUERIES * (BY__CUDA_KEYS + 1);
    float *sum = largest + BY__CUDA_QUERIES;
    int *first = (int *)(sum + BY__CUDA_QUERIES);
    int *end = first + BY__CUDA_QUERIES;
    int64_t t0 = (int64_t)blockIdx.x * BY__CUDA_QUERIES;
    int64_t head = blockIdx.y;
    int64_t b = blockIdx.z;
    int64_t rows = by__sample_rows(a.lengths, a.length, b);
    int64_t kv = head / (a.heads / a.kv_heads);
    int64_t kv_at = b * a.length * a.kv_stride + kv * a.width;
    by__load_rows(q, row, a.q, a.dtype, b * a.length * a.q_stride + head * a.width, a.q_stride,
                  a.width, t0, BY__CUDA_QUERIES, 0, rows);
    for (int i = (int)threadIdx.x; i < BY__CUDA_QUERIES * width; i += 128) {
        y[i / width * row + i % width] = 0.0f;
    }
    if (threadIdx.x < BY__CUDA_QUERIES) {
        by__key_limits(a, b, t0 + threadIdx.x, rows, &first[threadIdx.x], &end[threadIdx.x]);
        largest[threadIdx.x] = -BY__INFINITY;
        sum[threadIdx.x] = 0.0f;
    }
    __syncthreads();
    float slope = by__slope_of(a, head);
    int low = first[0];
    int high = end[0];
    for (int i = 1; i < BY__CUDA_QUERIES; i++) {
        low = end[i] > 0 && first[i] < low ? first[i] : low;
        high = end[i] > high ? end[i] : high;
    }
    for (int key = low / BY__CUDA_KEYS * BY__CUDA_KEYS; key < high; key += BY__CUDA_KEYS) {
        by__load_rows(k, row, a.k, a.dtype, kv_at, a.kv_stride, a.width, key, BY__CUDA_KEYS, low,
                      high);
        by__load_rows(v, row, a.v, a.dtype, kv_at, a.kv_stride, a.width, key, BY__CUDA_KEYS, low,
                      high);
        __syncthreads();
        /* A warp has every fourth query, a lane one key of each. */
        for (int i = (int)threadIdx.x / 32; i < BY__CUDA_QUERIES; i += 4) {
            int s = key + (int)by__lane();
            bool reads = s >= first[i] && s < end[i];
            float score = by__dot(q + i * row, k + by__lane() * row, width) * a.scale;
            score = by__fma(-slope, by__magnitude((float)(t0 + i - s)), score);
            float before = largest[i];
            float now = by__at_least(before, by__warp_largest(reads ? score : -BY__INFINITY));
            float p = reads ? by__exp(score - now) : 0.0f;
            float kept = before == -BY__INFINITY ? 0.0f : by__exp(before - now);
            float added = by__warp_sum(p);
            scores[i * (BY__CUDA_KEYS + 1) + by__lane()] = p;
            __syncwarp();
            if (by__lane() == 0) {
                largest[i] = now;
                sum[i] = by__fma(sum[i], kept, added);
                scores[i * (BY__CUDA_KEYS + 1) + BY__CUDA_KEYS] = kept;
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < BY__CUDA_QUERIES * width; i += 128) {
            int r = i / width;
            int d = i % width;
            const float *p = scores + r * (BY__CUDA_KEYS + 1);
            float total = y[r * row + d] * p[BY__CUDA_KEYS];
            for (int s = 0; s < BY__CUDA_KEYS; s++) {
                total = by__fma(p[s], v[s * row + d], total);
            }
            y[r * row + d] = total;
        }
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < BY__CUDA_QUERIES * width; i += 128) {
        int r = i / width;
        int d = i % width;
        int64_t t = t0 + r;
        if (t < a.length) {
            float value = end[r] > 0 ? y[r * row + d] / sum[r] : 0.0f;
            by__put(a.y, a.dtype, ((b * a.length + t) * a.heads + head) * a.width + d, value);
        }
    }
    if (threadIdx.x < BY__CUDA_QUERIES && t0 + threadIdx.x < a.length) {
        float lse = largest[threadIdx.x] + by__log(sum[threadIdx.x]);
        a.lse[(b * a.heads + head) * a.length + t0 + threadIdx.x] =
            end[threadIdx.x] > 0 ? lse : 0.0f;
    }
}

BY__KERNEL(attention_delta, 256)
{
    int64_t i = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (i >= a.rows * a.heads) {
        return; /* a whole warp */
    }
    float sum = 0.0f;
    for (int64_t d = by__lane(); d < a.width; d += 32) {
        sum = by__fma(by__get(a.y, a.dtype, i * a.width + d),
                      by__get(a.dy, a.dtype, i * a.width + d), sum);
    }
    sum = by__warp_sum(sum);
    if (by__lane() == 0) {
        int64_t row = i / a.heads;
        int64_t head = i % a.heads;
        a.delta[(row / a.length * a.heads + head) * a.length + row % a.length] = sum;
    }
}

/* Of a tile: queries and gradients of their results, and what is known of each query. */
struct by__gradient_tile {
    float *q, *dy, *lse, *delta;
    int *first;
    float slope;
};

__device__ void by__load_queries(const by__gradient_tile &tile, int row,
                                 const by__cuda_attention_grad_args &a, int64_t b, int64_t head,
                                 int64_t t0, int64_t rows)
{
    by__load_rows(tile.q, row, a.q, a.dtype, b * a.length * a.q_stride + head * a.width, a.q_stride,
                  a.width, t0, BY__CUDA_GRADIENT, 0, rows);
    by__load_rows(tile.dy, row, a.dy, a.dtype, (b * a.length * a.heads + head) * a.width,
                  a.heads * a.width, a.width, t0, BY__CUDA_GRADIENT, 0, rows);
    if (threadIdx.x < BY__CUDA_GRADIENT) {
        int64_t t = t0 + threadIdx.x;
        int64_t at = (b * a.heads + head) * a.length + t;
        int end;
        by__key_limits(a, b, t, rows, &tile.first[threadIdx.x], &end);
        tile.lse[threadIdx.x] = t < rows ? a.lse[at] : 0.0f;
        tile.delta[threadIdx.x] = t < rows ? a.delta[at] : 0.0f;
    }
}

/* The probability of key s for query i of the tile, and the gradient of its score times scale. */
__device__ __forceinline__ float by__score_gradient(const by__gradient_tile &tile, int row,
                                                    const by__cuda_attention_grad_args &a,
                                                    const float *k, const float *v, int64_t t0,
                                                    int64_t key, int64_t rows, int i, int s,
                                                    float *probability)
{
    int64_t t = t0 + i;
    int64_t at = key + s;
    bool reads = t < rows && at < rows && at >= tile.first[i] && at <= t + a.behind;
    float score = by__dot(tile.q + i * row, k + s * row, (int)a.width) * a.scale;
    score = by__fma(-tile.slope, by__magnitude((float)(t - at)), score);
    float p = reads ? by__exp(score - tile.lse[i]) : 0.0f;
    float d = by__dot(tile.dy + i * row, v + s * row, (int)a.width);
    *probability = p;
    return p * (d - tile.delta[i]) * a.scale;
}

BY__KERNEL(attention_keys_grad, 256)
{
    const int width = (int)a.width;
    const int row = BY__CUDA_ROW_OF(width);
    const int n = BY__CUDA_GRADIENT;
    float *k = (float *)by__dynamic_shared();
    float *v = k + n * row;
    float *dk = v + n * row;
    float *dv = dk + n * row;
    float *p = dv + 3 * n * row; /* behind q and dy: [n][n + 1] */
    float *ds = p + n * (n + 1);
    by__gradient_tile tile = {dv + n * row,
                              dv + 2 * n * row,
                              ds + n * (n + 1),
                              ds + n * (n + 1) + n,
                              (int *)(ds + n * (n + 1) + 2 * n),
                              0.0f};
    int64_t key = (int64_t)blockIdx.x * n;
    int64_t kv = blockIdx.y;
    int64_t b = blockIdx.z;
    int64_t rows = by__sample_rows(a.lengths, a.length, b);
    int64_t at = b * a.length * a.kv_stride + kv * a.width;
    int64_t group = a.heads / a.kv_heads;
    int64_t begin = key > a.behind ? (key - a.behind) / n * n : 0;
    int64_t end = a.window > 0 && key + n - 1 + a.window < rows ? key + n - 1 + a.window : rows;
    by__load_rows(k, row, a.k, a.dtype, at, a.kv_stride, a.width, key, n, 0, rows);
    by__load_rows(v, row, a.v, a.dtype, at, a.kv_stride, a.width, key, n, 0, rows);
    for (int i = (int)threadIdx.x; i < n * width; i += 256) {
        dk[i / width * row + i % width] = 0.0f;
        dv[i / width * row + i % width] = 0.0f;
    }
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        tile.slope = by__slope_of(a, head);
        for (int64_t t0 = begin; t0 < end; t0 += n) {
            by__load_queries(tile, row, a, b, head, t0, rows);
            __syncthreads();
            int i = (int)threadIdx.x / n;
            int s = (int)threadIdx.x % n;
            float probability;
            ds[i * (n + 1) + s] =
                by__score_gradient(tile, row, a, k, v, t0, key, rows, i, s, &probability);
            p[i * (n + 1) + s] = probability;
            __syncthreads();
#pragma unroll 1
            for (int e = (int)threadIdx.x; e < n * width; e += 256) {
                int r = e / width;
                int d = e % width;
                float of_k = dk[r * row + d];
                float of_v = dv[r * row + d];
#pragma unroll 4
                for (int t = 0; t < n; t++) {
                    of_k = by__fma(ds[t * (n + 1) + r], tile.q[t * row + d], of_k);
                    of_v = by__fma(p[t * (n + 1) + r], tile.dy[t * row + d], of_v);
                }
                dk[r * row + d] = of_k;
                dv[r * row + d] = of_v;
            }
            __syncthreads();
        }
    }
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < n * width; e += 256) {
        int64_t t = key + e / width;
        if (t < a.length) {
            int64_t to = at + t * a.kv_stride + e % width;
            by__put(a.dk, a.dtype, to, dk[e / width * row + e % width]);
            by__put(a.dv, a.dtype, to, dv[e / width * row + e % width]);
        }
    }
}

BY__KERNEL(attention_queries_grad, 256)
{
    const int width = (int)a.width;
    const int row = BY__CUDA_ROW_OF(width);
    const int n = BY__CUDA_GRADIENT;
    float *k = (float *)by__dynamic_shared();
    float *v = k + n * row;
    float *dq = v + n * row;
    float *ds = dq + 3 * n * row; /* behind q and dy */
    by__gradient_tile tile = {dq + n * row,
                              dq + 2 * n * row,
                              ds + n * (n + 1),
                              ds + n * (n + 1) + n,
                              (int *)(ds + n * (n + 1) + 2 * n),
                              by__slope_of(a, blockIdx.y)};
    int64_t t0 = (int64_t)blockIdx.x * n;
    int64_t head = blockIdx.y;
    int64_t b = blockIdx.z;
    int64_t rows = by__sample_rows(a.lengths, a.length, b);
    int64_t kv = head / (a.heads / a.kv_heads);
    int64_t at = b * a.length * a.kv_stride + kv * a.width;
    by__load_queries(tile, row, a, b, head, t0, rows);
    for (int i = (int)threadIdx.x; i < n * width; i += 256) {
        dq[i / width * row + i % width] = 0.0f;
    }
    __syncthreads();
    int low = tile.first[0];
    for (int i = 1; i < n; i++) {
        low = t0 + i < rows && tile.first[i] < low ? tile.first[i] : low;
    }
    int64_t high = t0 >= rows ? 0 : t0 + n + a.behind > rows ? rows : t0 + n + a.behind;
    for (int64_t key = low / n * n; key < high; key += n) {
        by__load_rows(k, row, a.k, a.dtype, at, a.kv_stride, a.width, key, n, low, high);
        by__load_rows(v, row, a.v, a.dtype, at, a.kv_stride, a.width, key, n, low, high);
        __syncthreads();
        int i = (int)threadIdx.x / n;
        int s = (int)threadIdx.x % n;
        float probability;
        ds[i * (n + 1) + s] =
            by__score_gradient(tile, row, a, k, v, t0, key, rows, i, s, &probability);
        __syncthreads();
        for (int e = (int)threadIdx.x; e < n * width; e += 256) {
            int r = e / width;
            int d = e % width;
            float total = dq[r * row + d];
            for (int j = 0; j < n; j++) {
                total = by__fma(ds[r * (n + 1) + j], k[j * row + d], total);
            }
            dq[r * row + d] = total;
        }
        __syncthreads();
    }
    for (int e = (int)threadIdx.x; e < n * width; e += 256) {
        int64_t t = t0 + e / width;
        if (t < a.length) {
            by__put(a.dq, a.dtype,
                    b * a.length * a.q_stride + head * a.width + t * a.q_stride + e % width,
                    dq[e / width * row + e % width]);
        }
    }
}
