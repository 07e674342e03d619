/* Attention in linear time: sums over the keys of chunks of tokens, then over the chunks before
 * each, and in a block 32 tokens of a head that read these and the keys of their own chunk. All
 * products are in f32, in tiles, in the order of the tokens. */
#include "keys.cuh"
#include "tile.cuh"

/* Keeps the quotient finite when all features underflow. */
#define BY__LEAST 1e-6f

/* f(x) = elu(x) + 1. */
__device__ inline float by__feature(float x)
{
    return x > 0.0f ? x + 1.0f : by__exp(x);
}

/* Its derivative from its value. */
__device__ inline float by__feature_slope(float feature)
{
    return by__at_most(feature, 1.0f);
}

/* A head of a sample: where its entries begin, and its first matrix. */
struct by__linear_head {
    const by__cuda_linear_attention_args &a;
    int64_t rows, q_first, kv_first, y_first, given_first, matrix;
};

/* Query heads of a key head. */
__device__ inline uint32_t by__group_of(const by__cuda_linear_attention_args &a)
{
    return (uint32_t)a.heads / (uint32_t)a.kv_heads;
}

__device__ inline by__linear_head by__linear_head_of(const by__cuda_linear_attention_args &a,
                                                     int64_t b, int64_t head)
{
    int64_t kv = (uint32_t)head / by__group_of(a);
    return {a,
            by__sample_rows(a.lengths, a.length, b),
            b * a.length * a.q_stride + head * a.width,
            b * a.length * a.kv_stride + kv * a.width,
            (b * a.length * a.heads + head) * a.width,
            (b * a.heads + head) * a.length,
            (b * a.kv_heads + kv) * a.chunks};
}

/* Entries of its tensors, 0 from `rows` on: features of q and k, (v, 1), dy, and (g, e). */
__device__ inline float by__query_at(const by__linear_head &h, int64_t t, int64_t d)
{
    return t < h.rows && d < h.a.width
               ? by__feature(by__get(h.a.q, h.a.dtype, h.q_first + t * h.a.q_stride + d))
               : 0.0f;
}

__device__ inline float by__key_at(const by__linear_head &h, int64_t s, int64_t d)
{
    return s < h.rows && d < h.a.width
               ? by__feature(by__get(h.a.k, h.a.dtype, h.kv_first + s * h.a.kv_stride + d))
               : 0.0f;
}

__device__ inline float by__value_at(const by__linear_head &h, int64_t s, int64_t d)
{
    return s >= h.rows || d > h.a.width ? 0.0f
           : d == h.a.width             ? 1.0f
                            : by__get(h.a.v, h.a.dtype, h.kv_first + s * h.a.kv_stride + d);
}

__device__ inline float by__dy_at(const by__linear_head &h, int64_t t, int64_t d)
{
    return t < h.rows && d < h.a.width
               ? by__get(h.a.dy, h.a.dtype, h.y_first + t * h.a.heads * h.a.width + d)
               : 0.0f;
}

__device__ inline float *by__given_at(const by__linear_head &h, int64_t t)
{
    return h.a.given + (h.given_first + t) * 2;
}

__device__ inline float by__gradient_at(const by__linear_head &h, int64_t t, int64_t d)
{
    return t >= h.rows || d > h.a.width ? 0.0f
           : d == h.a.width             ? by__given_at(h, t)[1]
                                        : by__dy_at(h, t, d) * by__given_at(h, t)[0];
}

/* The matrix that the tokens of the chunk of t read. */
__device__ inline const float *by__matrix_of(const by__linear_head &h, const float *states,
                                             int64_t t)
{
    int64_t chunk = h.a.causal != 0 ? t / BY__CUDA_CHUNK : 0;
    return states + (h.matrix + chunk) * h.a.width * (h.a.width + 1);
}

/* Which tile of the sums of which chunk a block makes. */
struct by__linear_tile {
    int64_t chunk, row, column;
};

__device__ inline by__linear_tile by__linear_tile_of(const by__cuda_linear_attention_args &a)
{
    unsigned down = ((unsigned)a.width + BY__CUDA_TILE - 1) / BY__CUDA_TILE;
    unsigned across = (unsigned)a.width / BY__CUDA_TILE + 1;
    unsigned at = blockIdx.x % (down * across);
    return {blockIdx.x / (down * across), at / across * BY__CUDA_TILE, at % across * BY__CUDA_TILE};
}

__device__ __forceinline__ void by__put_states(const by__cuda_linear_attention_args &a,
                                               float *states, const by__linear_tile &at,
                                               const float sum[4])
{
    int64_t matrix = ((int64_t)blockIdx.z * a.kv_heads + blockIdx.y) * a.chunks + at.chunk;
    by__put_tile(sum, states, BY__F32, matrix * a.width * (a.width + 1), a.width, a.width + 1,
                 at.row, at.column);
}

BY__KERNEL(linear_states, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    by__linear_head h = by__linear_head_of(a, blockIdx.z, blockIdx.y * by__group_of(a));
    by__linear_tile at = by__linear_tile_of(a);
    int64_t first = at.chunk * BY__CUDA_CHUNK;
    by__add_products(
        sum, tile, BY__CUDA_CHUNK,
        [&](int64_t r, int64_t k) { return by__key_at(h, first + k, at.row + r); },
        [&](int64_t k, int64_t c) { return by__value_at(h, first + k, at.column + c); });
    by__put_states(a, a.states, at, sum);
}

BY__KERNEL(linear_back_states, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    by__linear_tile at = by__linear_tile_of(a);
    int64_t first = at.chunk * BY__CUDA_CHUNK;
    uint32_t group = by__group_of(a);
    for (uint32_t head = blockIdx.y * group; head < (blockIdx.y + 1) * group; head++) {
        by__linear_head h = by__linear_head_of(a, blockIdx.z, head);
        by__add_products(
            sum, tile, BY__CUDA_CHUNK,
            [&](int64_t r, int64_t k) { return by__query_at(h, first + k, at.row + r); },
            [&](int64_t k, int64_t c) { return by__gradient_at(h, first + k, at.column + c); });
    }
    by__put_states(a, a.back, at, sum);
}

BY__KERNEL(linear_prefix, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    int64_t matrix = i / a.size;
    float *first = a.states + matrix * a.chunks * a.size + (i - matrix * a.size);
    float sum = 0.0f;
    for (int64_t n = 0; n < a.chunks; n++) {
        float *p = first + (a.turned != 0 ? a.chunks - 1 - n : n) * a.size;
        float own = *p;
        if (a.causal != 0) {
            *p = sum;
        }
        sum += own;
    }
    if (a.causal == 0) {
        *first = sum;
    }
}

/* w(t, s) of a block's tokens and those of their chunk. */
struct by__linear_weights {
    float w[BY__CUDA_TILE][BY__CUDA_CHUNK + 1];
};

/* Fills the weights of tokens t0 .. t0 + 31, and the thread's four totals of what they read. */
__device__ __forceinline__ void by__weigh(by__linear_weights &weights, float total[4],
                                          by__tile &tile, const by__linear_head &h, int64_t t0)
{
    int64_t first = t0 / BY__CUDA_CHUNK * BY__CUDA_CHUNK;
    int64_t row = threadIdx.x / 32 * 4;
    const float *state = by__matrix_of(h, h.a.states, t0);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        total[r] = 0.0f;
    }
    for (int j = 0; j < BY__CUDA_CHUNK; j += BY__CUDA_TILE) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (h.a.causal != 0 && first + j <= t0) {
            by__add_products(
                sum, tile, h.a.width,
                [&](int64_t r, int64_t k) { return by__query_at(h, t0 + r, k); },
                [&](int64_t k, int64_t c) { return by__key_at(h, first + j + c, k); });
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float w = first + j + by__lane() <= t0 + row + r ? sum[r] : 0.0f;
            weights.w[row + r][j + by__lane()] = w;
            total[r] += w;
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        for (int64_t d = by__lane(); d < h.a.width; d += 32) {
            total[r] = by__fma(by__query_at(h, t0 + row + r, d),
                               state[d * (h.a.width + 1) + h.a.width], total[r]);
        }
        total[r] = by__warp_sum(total[r]) + BY__LEAST;
    }
    __syncthreads();
}

/* Adds what the block's tokens read of columns column .. column + 31. */
__device__ __forceinline__ void by__read_values(float sum[4], by__tile &tile,
                                                const by__linear_head &h,
                                                const by__linear_weights &weights, int64_t t0,
                                                int64_t column)
{
    int64_t first = t0 / BY__CUDA_CHUNK * BY__CUDA_CHUNK;
    const float *state = by__matrix_of(h, h.a.states, t0);
    by__add_products(
        sum, tile, h.a.width, [&](int64_t r, int64_t k) { return by__query_at(h, t0 + r, k); },
        [&](int64_t k, int64_t c) {
            return column + c < h.a.width ? state[k * (h.a.width + 1) + column + c] : 0.0f;
        });
    if (h.a.causal != 0) {
        by__add_products(
            sum, tile, BY__CUDA_CHUNK, [&](int64_t r, int64_t k) { return weights.w[r][k]; },
            [&](int64_t k, int64_t c) {
                return column + c < h.a.width ? by__value_at(h, first + k, column + c) : 0.0f;
            });
    }
}

BY__KERNEL(linear_attention, 256)
{
    __shared__ by__tile tile;
    __shared__ by__linear_weights weights;
    by__linear_head h = by__linear_head_of(a, blockIdx.z, blockIdx.y);
    int64_t t0 = (int64_t)blockIdx.x * BY__CUDA_TILE;
    float total[4];
    by__weigh(weights, total, tile, h, t0);
    for (int64_t column = 0; column < a.width; column += BY__CUDA_TILE) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        by__read_values(sum, tile, h, weights, t0, column);
        int64_t d = column + by__lane();
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int64_t t = t0 + threadIdx.x / 32 * 4 + r;
            if (t < a.length && d < a.width) {
                by__put(a.y, a.dtype, h.y_first + t * a.heads * a.width + d, sum[r] / total[r]);
            }
        }
    }
}

/* Writes the tile's part of a gradient of a query or key, times the derivative of its feature. */
template <class FEATURE>
__device__ __forceinline__ void by__put_slopes(void *to, int dtype, int64_t first, int64_t stride,
                                               const by__linear_head &h, int64_t t0, int64_t column,
                                               const float sum[4], FEATURE feature)
{
    int64_t d = column + by__lane();
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int64_t t = t0 + threadIdx.x / 32 * 4 + r;
        if (t < h.a.length && d < h.a.width) {
            by__put(to, dtype, first + t * stride + d, sum[r] * by__feature_slope(feature(t, d)));
        }
    }
}

BY__KERNEL(linear_queries_grad, 256, 2)
{
    __shared__ by__tile tile;
    __shared__ by__linear_weights weights;
    __shared__ float sums[2][BY__CUDA_TILE]; /* of weights, and dy with what they make */
    by__linear_head h = by__linear_head_of(a, blockIdx.z, blockIdx.y);
    int64_t t0 = (int64_t)blockIdx.x * BY__CUDA_TILE;
    int64_t first = t0 / BY__CUDA_CHUNK * BY__CUDA_CHUNK;
    int64_t row = threadIdx.x / 32 * 4;
    float total[4];
    float dot[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    by__weigh(weights, total, tile, h, t0);
    for (int64_t column = 0; column < a.width; column += BY__CUDA_TILE) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        by__read_values(sum, tile, h, weights, t0, column);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            dot[r] = by__fma(by__dy_at(h, t0 + row + r, column + by__lane()), sum[r], dot[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        dot[r] = by__warp_sum(dot[r]);
        if (by__lane() == 0) {
            sums[0][row + r] = total[r];
            sums[1][row + r] = dot[r];
        }
    }
    __syncthreads();
    if (threadIdx.x < BY__CUDA_TILE && t0 + threadIdx.x < a.length) {
        float inverse = 1.0f / sums[0][threadIdx.x];
        float *given = by__given_at(h, t0 + threadIdx.x);
        given[0] = inverse;
        given[1] = -(sums[1][threadIdx.x] * inverse) * inverse;
    }
    __syncthreads(); /* what is given is read by the whole block */
    for (int j = 0; j < BY__CUDA_CHUNK; j += BY__CUDA_TILE) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (a.causal != 0 && first + j <= t0) {
            by__add_products(
                sum, tile, a.width + 1,
                [&](int64_t r, int64_t k) { return by__gradient_at(h, t0 + r, k); },
                [&](int64_t k, int64_t c) { return by__value_at(h, first + j + c, k); });
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            weights.w[row + r][j + by__lane()] =
                first + j + by__lane() <= t0 + row + r ? sum[r] : 0.0f;
        }
    }
    __syncthreads();
    const float *state = by__matrix_of(h, a.states, t0);
    for (int64_t column = 0; column < a.width; column += BY__CUDA_TILE) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        by__add_products(
            sum, tile, a.width + 1,
            [&](int64_t r, int64_t k) { return by__gradient_at(h, t0 + r, k); },
            [&](int64_t k, int64_t c) {
                return column + c < a.width ? state[(column + c) * (a.width + 1) + k] : 0.0f;
            });
        if (a.causal != 0) {
            by__add_products(
                sum, tile, BY__CUDA_CHUNK, [&](int64_t r, int64_t k) { return weights.w[r][k]; },
                [&](int64_t k, int64_t c) { return by__key_at(h, first + k, column + c); });
        }
        by__put_slopes(a.dq, a.dtype, h.q_first, a.q_stride, h, t0, column, sum,
                       [&](int64_t t, int64_t d) { return by__query_at(h, t, d); });
    }
}

/* Of a block's 32 keys: gradients of their features and values, 4 of each thread for each 32
 * columns. */
struct by__linear_keys {
    float *db, *dv;
};

/* Where the thread's row r of columns `column` .. is. */
__device__ inline int64_t by__own_place(int64_t column, int r)
{
    return column * BY__CUDA_TILE + r * BY__CUDA_BLOCK + threadIdx.x;
}

/* What queries of later chunks, or without `causal` all, give to the keys. */
__device__ __forceinline__ void by__begin_keys(const by__linear_keys &keys, by__tile &tile,
                                               const by__linear_head &h, int64_t s0)
{
    const by__cuda_linear_attention_args &a = h.a;
    const float *back = by__matrix_of(h, a.back, s0);
    for (int64_t column = 0; column < a.width; column += BY__CUDA_TILE) {
        float of_b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float of_v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        by__add_products(
            of_b, tile, a.width + 1,
            [&](int64_t r, int64_t k) { return by__value_at(h, s0 + r, k); },
            [&](int64_t k, int64_t c) {
                return column + c < a.width ? back[(column + c) * (a.width + 1) + k] : 0.0f;
            });
        by__add_products(
            of_v, tile, a.width, [&](int64_t r, int64_t k) { return by__key_at(h, s0 + r, k); },
            [&](int64_t k, int64_t c) {
                return column + c < a.width ? back[k * (a.width + 1) + column + c] : 0.0f;
            });
#pragma unroll
        for (int r = 0; r < 4; r++) {
            keys.db[by__own_place(column, r)] = of_b[r];
            keys.dv[by__own_place(column, r)] = of_v[r];
        }
    }
}

/* The weights of a tile of keys and one of queries, and their gradients. */
struct by__linear_pairs {
    float w[BY__CUDA_TILE][BY__CUDA_TILE + 1];
    float dw[BY__CUDA_TILE][BY__CUDA_TILE + 1];
};

/* Adds what queries t0 .. t0 + 31 of a head give to the keys of their chunk. */
__device__ __forceinline__ void by__add_queries(const by__linear_keys &keys, by__tile &tile,
                                                by__linear_pairs &pairs, const by__linear_head &h,
                                                int64_t s0, int64_t t0)
{
    int64_t width = h.a.width;
    int64_t row = threadIdx.x / 32 * 4;
    float w[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float dw[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    by__add_products(
        w, tile, width, [&](int64_t r, int64_t k) { return by__key_at(h, s0 + r, k); },
        [&](int64_t k, int64_t c) { return by__query_at(h, t0 + c, k); });
    by__add_products(
        dw, tile, width + 1, [&](int64_t r, int64_t k) { return by__value_at(h, s0 + r, k); },
        [&](int64_t k, int64_t c) { return by__gradient_at(h, t0 + c, k); });
#pragma unroll
    for (int r = 0; r < 4; r++) {
        bool reads = s0 + row + r <= t0 + by__lane();
        pairs.w[row + r][by__lane()] = reads ? w[r] : 0.0f;
        pairs.dw[row + r][by__lane()] = reads ? dw[r] : 0.0f;
    }
    __syncthreads();
    for (int64_t column = 0; column < width; column += BY__CUDA_TILE) {
        float of_b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float of_v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        by__add_products(
            of_b, tile, BY__CUDA_TILE, [&](int64_t r, int64_t k) { return pairs.dw[r][k]; },
            [&](int64_t k, int64_t c) { return by__query_at(h, t0 + k, column + c); });
        by__add_products(
            of_v, tile, BY__CUDA_TILE, [&](int64_t r, int64_t k) { return pairs.w[r][k]; },
            [&](int64_t k, int64_t c) {
                return column + c < width ? by__gradient_at(h, t0 + k, column + c) : 0.0f;
            });
#pragma unroll
        for (int r = 0; r < 4; r++) {
            keys.db[by__own_place(column, r)] += of_b[r];
            keys.dv[by__own_place(column, r)] += of_v[r];
        }
    }
}

BY__KERNEL(linear_keys_grad, 256, 2)
{
    __shared__ by__tile tile;
    __shared__ by__linear_pairs pairs;
    int64_t s0 = (int64_t)blockIdx.x * BY__CUDA_TILE;
    int64_t chunk_end = (s0 / BY__CUDA_CHUNK + 1) * BY__CUDA_CHUNK;
    uint32_t group = by__group_of(a);
    by__linear_keys keys;
    keys.db = (float *)by__dynamic_shared();
    keys.dv = keys.db + BY__CUDA_LINEAR_SHARED(a.width) / 8;
    by__linear_head first = by__linear_head_of(a, blockIdx.z, blockIdx.y * group);
    by__begin_keys(keys, tile, first, s0);
    for (int64_t head = blockIdx.y * group; a.causal != 0 && head < (blockIdx.y + 1) * group;
         head++) {
        by__linear_head h = by__linear_head_of(a, blockIdx.z, head);
        for (int64_t t0 = s0; t0 < chunk_end && t0 < h.rows; t0 += BY__CUDA_TILE) {
            by__add_queries(keys, tile, pairs, h, s0, t0);
        }
    }
    for (int64_t column = 0; column < a.width; column += BY__CUDA_TILE) {
        float of_b[4];
        int64_t d = column + by__lane();
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int64_t t = s0 + threadIdx.x / 32 * 4 + r;
            of_b[r] = keys.db[by__own_place(column, r)];
            if (t < a.length && d < a.width) {
                by__put(a.dv, a.dtype, first.kv_first + t * a.kv_stride + d,
                        keys.dv[by__own_place(column, r)]);
            }
        }
        by__put_slopes(a.dk, a.dtype, first.kv_first, a.kv_stride, first, s0, column, of_b,
                       [&](int64_t s, int64_t k) { return by__key_at(first, s, k); });
    }
}
