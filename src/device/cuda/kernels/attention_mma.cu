/* Attention with tensor cores (after Dao, "FlashAttention-2", arXiv 2307.08691): a block has 64
 * queries of a head, a warp 16 of them, and goes through tiles of 64 keys in ascending order, of
 * which the next is copied while one is used. Probabilities are rounded before the second product;
 * exponentials are the processor's. */
#include "keys.cuh"

#define BY__TILE   BY__CUDA_MMA_TILE
#define BY__LOG2_E 1.44269504088896341f
#define BY__LN_2   0.693147180559945309f

/* Copies rows first .. first + 63 of a head, as far as they are in [0, rows); others become
 * zeros. */
template <int WIDTH>
__device__ void by__copy_rows(uint16_t *to, const uint16_t *x, int64_t stride, int64_t first,
                              int64_t rows)
{
    const int pieces = WIDTH / 8;
#pragma unroll
    for (int n = 0; n < BY__TILE * pieces / 128; n++) {
        int i = n * 128 + (int)threadIdx.x;
        int r = i / pieces;
        int d = i % pieces * 8;
        bool there = first + r < rows;
        by__copy_async(to + r * (WIDTH + 8) + d, x + (there ? first + r : 0) * stride + d,
                       there ? 16u : 0u);
    }
}

template <bool F16> __device__ void by__mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (F16) {
        by__mma_f16(d, a, b);
    } else {
        by__mma_bf16(d, a, b);
    }
}

template <bool F16> __device__ uint32_t by__pack(float low, float high)
{
    return F16 ? by__pack_f16(low, high) : by__pack_bf16(low, high);
}

/* Of the four lanes that have a row of a fragment. */
__device__ float by__quad_largest(float v)
{
    v = by__at_least(v, by__shuffle(v, by__lane() ^ 1));
    return by__at_least(v, by__shuffle(v, by__lane() ^ 2));
}

__device__ float by__quad_sum(float v)
{
    v += by__shuffle(v, by__lane() ^ 1);
    return v + by__shuffle(v, by__lane() ^ 2);
}

/* Scores of the warp's 16 queries with 64 keys: s[j] of keys 8 j .. 8 j + 7. */
template <int WIDTH, bool F16>
__device__ void by__scores(float s[8][4], const uint32_t q[WIDTH / 16][4], const uint16_t *k)
{
    unsigned m = by__lane() / 8;
    unsigned r = by__lane() % 8;
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[j][c] = 0.0f;
        }
    }
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t b[4];
            by__ldmatrix(b, k + (8 * j + m / 2 * 8 + r) * (WIDTH + 8) + 16 * d + m % 2 * 8);
            by__mma<F16>(s[j], q[d], b);
            by__mma<F16>(s[j + 1], q[d], b + 2);
        }
    }
}

/* Takes from scores, which are not yet multiplied by the scale, what the distance of their tokens
 * costs: those of rows `row` and row + 8, and columns `column` + 8 j and the next. */
template <int COUNT>
__device__ void by__take_distances(float s[COUNT][4], float slope, int row, int column)
{
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int distance = row + c / 2 * 8 - column - 8 * j - c % 2;
            s[j][c] = by__fma(-slope, by__magnitude((float)distance), s[j][c]);
        }
    }
}

/* y += p v for the probabilities of 8 COUNT keys. */
template <int WIDTH, bool F16, int COUNT>
__device__ void by__add_values(float y[WIDTH / 8][4], const float p[COUNT][4], const uint16_t *v)
{
    unsigned m = by__lane() / 8;
    unsigned r = by__lane() % 8;
#pragma unroll
    for (int j = 0; j < COUNT; j += 2) {
        uint32_t a[4] = {by__pack<F16>(p[j][0], p[j][1]), by__pack<F16>(p[j][2], p[j][3]),
                         by__pack<F16>(p[j + 1][0], p[j + 1][1]),
                         by__pack<F16>(p[j + 1][2], p[j + 1][3])};
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d += 2) {
            uint32_t b[4];
            by__ldmatrix_transposed(b,
                                    v + (8 * j + m % 2 * 8 + r) * (WIDTH + 8) + 8 * d + m / 2 * 8);
            by__mma<F16>(y[d], a, b);
            by__mma<F16>(y[d + 1], a, b + 2);
        }
    }
}

template <int WIDTH, bool F16> __device__ void by__attention_mma(const by__cuda_attention_args &a)
{
    const int row = WIDTH + 8;
    uint16_t *q_tile = (uint16_t *)by__dynamic_shared();
    uint16_t *k_tile = q_tile + BY__TILE * row;     /* two */
    uint16_t *v_tile = k_tile + 2 * BY__TILE * row; /* two */
    int *first = (int *)(v_tile + 2 * BY__TILE * row);
    int *end = first + BY__TILE;
    int64_t t0 = (int64_t)blockIdx.x * BY__TILE;
    int64_t head = blockIdx.y;
    int64_t b = blockIdx.z;
    int64_t rows = by__sample_rows(a.lengths, a.length, b);
    int64_t kv = head / (a.heads / a.kv_heads);
    const uint16_t *q_rows = (const uint16_t *)a.q + b * a.length * a.q_stride + head * WIDTH;
    const uint16_t *k_rows = (const uint16_t *)a.k + b * a.length * a.kv_stride + kv * WIDTH;
    const uint16_t *v_rows = (const uint16_t *)a.v + b * a.length * a.kv_stride + kv * WIDTH;
    by__copy_rows<WIDTH>(q_tile, q_rows, a.q_stride, t0, rows);
    if (threadIdx.x < BY__TILE) {
        by__key_limits(a, b, t0 + threadIdx.x, rows, &first[threadIdx.x], &end[threadIdx.x]);
    }
    __syncthreads();
    int low = 0x7fffffff;
    int high = 0;
    for (int i = 0; i < BY__TILE; i++) {
        low = end[i] > 0 && first[i] < low ? first[i] : low;
        high = end[i] > high ? end[i] : high;
    }
    int tiles_begin = high == 0 ? 0 : low / BY__TILE;
    int tiles_end = (high + BY__TILE - 1) / BY__TILE;
    if (tiles_begin < tiles_end) {
        by__copy_rows<WIDTH>(k_tile, k_rows, a.kv_stride, (int64_t)tiles_begin * BY__TILE, rows);
        by__copy_rows<WIDTH>(v_tile, v_rows, a.kv_stride, (int64_t)tiles_begin * BY__TILE, rows);
    }
    by__copy_commit();
    unsigned own = threadIdx.x / 32 * 16 + by__lane() / 4; /* the lane's rows: this, and + 8 */
    int from[2] = {first[own], first[own + 8]};
    int to[2] = {end[own], end[own + 8]};
    float y[WIDTH / 8][4];
    float largest[2] = {-BY__INFINITY, -BY__INFINITY};
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            y[d][c] = 0.0f;
        }
    }
    uint32_t q[WIDTH / 16][4];
    float scale = a.scale * BY__LOG2_E;
    for (int tile = tiles_begin; tile < tiles_end; tile++) {
        int stage = (tile - tiles_begin) % 2;
        int64_t next = (int64_t)(tile + 1) * BY__TILE;
        if (tile + 1 < tiles_end) {
            by__copy_rows<WIDTH>(k_tile + (stage ^ 1) * BY__TILE * row, k_rows, a.kv_stride, next,
                                 rows);
            by__copy_rows<WIDTH>(v_tile + (stage ^ 1) * BY__TILE * row, v_rows, a.kv_stride, next,
                                 rows);
        }
        by__copy_commit();
        by__copy_wait<1>();
        __syncthreads();
        if (tile == tiles_begin) {
#pragma unroll
            for (int d = 0; d < WIDTH / 16; d++) {
                by__ldmatrix(q[d], q_tile + (threadIdx.x / 32 * 16 + by__lane() % 16) * row +
                                       16 * d + by__lane() / 16 * 8);
            }
        }
        float s[8][4];
        by__scores<WIDTH, F16>(s, q, k_tile + stage * BY__TILE * row);
        int key = tile * BY__TILE + (int)(by__lane() % 4) * 2;
        if (a.sloped != 0) {
            by__take_distances<8>(s, a.slope[head] / a.scale, (int)(t0 + own), key);
        }
        float now[2] = {largest[0], largest[1]};
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int at = key + 8 * j + c % 2;
                bool reads = at >= from[c / 2] && at < to[c / 2];
                s[j][c] = reads ? s[j][c] * scale : -BY__INFINITY;
                now[c / 2] = by__at_least(now[c / 2], s[j][c]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            now[h] = by__quad_largest(now[h]);
            /* Of a row without a key so far, nothing is kept. */
            float kept = largest[h] == -BY__INFINITY ? 0.0f : by__exp2_rough(largest[h] - now[h]);
            float base = now[h] == -BY__INFINITY ? 0.0f : now[h];
            float part = 0.0f;
#pragma unroll
            for (int j = 0; j < 8; j++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float p = by__exp2_rough(s[j][2 * h + c] - base);
                    s[j][2 * h + c] = p;
                    part += p;
                }
            }
            sum[h] = by__fma(sum[h], kept, part);
            largest[h] = now[h];
#pragma unroll
            for (int d = 0; d < WIDTH / 8; d++) {
                y[d][2 * h] *= kept;
                y[d][2 * h + 1] *= kept;
            }
        }
        by__add_values<WIDTH, F16, 8>(y, s, v_tile + stage * BY__TILE * row);
        __syncthreads();
    }
    by__copy_wait<0>();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t t = t0 + own + 8 * h;
        float total = by__quad_sum(sum[h]);
        float inverse = to[h] > 0 ? 1.0f / total : 0.0f;
        if (t >= a.length) {
            continue;
        }
        uint32_t *out =
            (uint32_t *)((uint16_t *)a.y + ((b * a.length + t) * a.heads + head) * WIDTH) +
            by__lane() % 4;
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d++) {
            out[4 * d] = by__pack<F16>(y[d][2 * h] * inverse, y[d][2 * h + 1] * inverse);
        }
        if (by__lane() % 4 == 0) {
            float lse = (largest[h] * BY__LN_2) + by__log(total);
            a.lse[(b * a.heads + head) * a.length + t] = to[h] > 0 ? lse : 0.0f;
        }
    }
}

/* ---- gradients: the tiles of queries come in ascending order for each key, those of keys for each
 * query ---- */

/* The warp's 16 rows of a tile times 8 COUNT rows of another: s[j] of rows 8 j .. 8 j + 7. */
template <int WIDTH, bool F16, int COUNT>
__device__ void by__products(float s[COUNT][4], const uint16_t *rows, const uint16_t *columns)
{
    unsigned m = by__lane() / 8;
    unsigned r = by__lane() % 8;
    const uint16_t *own = rows + (threadIdx.x / 32 * 16 + by__lane() % 16) * (WIDTH + 8);
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[j][c] = 0.0f;
        }
    }
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++) {
        uint32_t x[4];
        by__ldmatrix(x, own + 16 * d + by__lane() / 16 * 8);
#pragma unroll
        for (int j = 0; j < COUNT; j += 2) {
            uint32_t b[4];
            by__ldmatrix(b, columns + (8 * j + m / 2 * 8 + r) * (WIDTH + 8) + 16 * d + m % 2 * 8);
            by__mma<F16>(s[j], x, b);
            by__mma<F16>(s[j + 1], x, b + 2);
        }
    }
}

/* Writes the warp's 16 rows of a gradient. */
template <int WIDTH, bool F16>
__device__ void by__put_rows(void *to, int64_t stride, int64_t first, int64_t length,
                             const float y[WIDTH / 8][4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t t = first + threadIdx.x / 32 * 16 + by__lane() / 4 + 8 * h;
        if (t < length) {
            uint32_t *out = (uint32_t *)((uint16_t *)to + t * stride) + by__lane() % 4;
#pragma unroll
            for (int d = 0; d < WIDTH / 8; d++) {
                out[4 * d] = by__pack<F16>(y[d][2 * h], y[d][2 * h + 1]);
            }
        }
    }
}

template <int WIDTH> __device__ void by__clear(float y[WIDTH / 8][4])
{
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            y[d][c] = 0.0f;
        }
    }
}

/* Of a block: two tiles that stay, two that change, and what is known of each query. */
struct by__gradient_tiles {
    uint16_t *k, *v, *q, *dy;
    float *lse, *delta;
    int *first;
};

template <int WIDTH> __device__ by__gradient_tiles by__tiles_of()
{
    uint16_t *k = (uint16_t *)by__dynamic_shared();
    const int tile = BY__TILE * (WIDTH + 8);
    float *lse = (float *)(k + 4 * tile);
    return {
        k, k + tile, k + 2 * tile, k + 3 * tile, lse, lse + BY__TILE, (int *)(lse + 2 * BY__TILE)};
}

/* Loads 64 queries: q, dy, and the logarithms in base 2. */
template <int WIDTH>
__device__ void by__copy_queries(const by__gradient_tiles &tiles,
                                 const by__cuda_attention_grad_args &a, int64_t b, int64_t head,
                                 int t0, int rows)
{
    by__copy_rows<WIDTH>(tiles.q, (const uint16_t *)a.q + b * a.length * a.q_stride + head * WIDTH,
                         a.q_stride, t0, rows);
    by__copy_rows<WIDTH>(tiles.dy, (const uint16_t *)a.dy + (b * a.length * a.heads + head) * WIDTH,
                         a.heads * WIDTH, t0, rows);
    if (threadIdx.x < BY__TILE) {
        int64_t t = t0 + threadIdx.x;
        int64_t at = (b * a.heads + head) * a.length + t;
        int end;
        by__key_limits(a, b, t, rows, &tiles.first[threadIdx.x], &end);
        tiles.lse[threadIdx.x] = t < rows ? a.lse[at] * BY__LOG2_E : 0.0f;
        tiles.delta[threadIdx.x] = t < rows ? a.delta[at] : 0.0f;
    }
}

/* Of a score: its probability, and in `d`, which is dy . v, the gradient of the score. i: the query
 * of the tile. */
__device__ float by__probability(const by__gradient_tiles &tiles,
                                 const by__cuda_attention_grad_args &a, int t0, int i, int key,
                                 int rows, float score, float *d)
{
    int t = t0 + i;
    bool reads = t < rows && key < rows && key >= tiles.first[i] && key <= t + (int)a.behind;
    float p = reads ? by__exp2_rough(score * (a.scale * BY__LOG2_E) - tiles.lse[i]) : 0.0f;
    *d = reads ? p * (*d - tiles.delta[i]) * a.scale : 0.0f;
    return p;
}

template <int WIDTH, bool F16>
__device__ void by__keys_grad_mma(const by__cuda_attention_grad_args &a)
{
    by__gradient_tiles tiles = by__tiles_of<WIDTH>();
    int key = (int)blockIdx.x * BY__TILE;
    int64_t kv = blockIdx.y;
    int64_t b = blockIdx.z;
    int rows = (int)by__sample_rows(a.lengths, a.length, b);
    int64_t at = b * a.length * a.kv_stride + kv * WIDTH;
    int64_t group = a.heads / a.kv_heads;
    int begin = key > a.behind ? (key - (int)a.behind) / BY__TILE * BY__TILE : 0;
    int end = a.window > 0 && key + BY__TILE - 1 + a.window < rows
                  ? key + BY__TILE - 1 + (int)a.window
                  : rows;
    const int COUNT = WIDTH == 128 ? 4 : 8; /* what registers have room for */
    float dk[WIDTH / 8][4];
    float dv[WIDTH / 8][4];
    by__clear<WIDTH>(dk);
    by__clear<WIDTH>(dv);
    by__copy_rows<WIDTH>(tiles.k, (const uint16_t *)a.k + at, a.kv_stride, key, rows);
    by__copy_rows<WIDTH>(tiles.v, (const uint16_t *)a.v + at, a.kv_stride, key, rows);
    by__copy_commit();
    for (int head = (int)(kv * group); head < (int)((kv + 1) * group); head++) {
        for (int t0 = begin; t0 < end; t0 += BY__TILE) {
            by__copy_queries<WIDTH>(tiles, a, b, head, t0, rows);
            by__copy_commit();
            by__copy_wait<0>();
            __syncthreads();
            int own = key + (int)(threadIdx.x / 32 * 16 + by__lane() / 4);
#pragma unroll 1
            for (int half = 0; half < 64 / (8 * COUNT); half++) {
                float s[COUNT][4];
                float d[COUNT][4];
                const uint16_t *q = tiles.q + half * 8 * COUNT * (WIDTH + 8);
                const uint16_t *dy = tiles.dy + half * 8 * COUNT * (WIDTH + 8);
                by__products<WIDTH, F16, COUNT>(s, tiles.k, q); /* of keys by queries */
                by__products<WIDTH, F16, COUNT>(d, tiles.v, dy);
                if (a.sloped != 0) {
                    by__take_distances<COUNT>(s, a.slope[head] / a.scale, own,
                                              t0 + half * 8 * COUNT + (int)(by__lane() % 4) * 2);
                }
#pragma unroll
                for (int j = 0; j < COUNT; j++) {
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        int i = 8 * (half * COUNT + j) + (int)(by__lane() % 4) * 2 + c % 2;
                        s[j][c] = by__probability(tiles, a, t0, i, own + c / 2 * 8, rows, s[j][c],
                                                  &d[j][c]);
                    }
                }
                by__add_values<WIDTH, F16, COUNT>(dv, s, dy);
                by__add_values<WIDTH, F16, COUNT>(dk, d, q);
            }
            __syncthreads();
        }
    }
    by__copy_wait<0>();
    by__put_rows<WIDTH, F16>((uint16_t *)a.dk + at, a.kv_stride, key, a.length, dk);
    by__put_rows<WIDTH, F16>((uint16_t *)a.dv + at, a.kv_stride, key, a.length, dv);
}

template <int WIDTH, bool F16>
__device__ void by__queries_grad_mma(const by__cuda_attention_grad_args &a)
{
    by__gradient_tiles tiles = by__tiles_of<WIDTH>();
    int t0 = (int)blockIdx.x * BY__TILE;
    int64_t head = blockIdx.y;
    int64_t b = blockIdx.z;
    int rows = (int)by__sample_rows(a.lengths, a.length, b);
    int64_t kv = head / (a.heads / a.kv_heads);
    int64_t at = b * a.length * a.kv_stride + kv * WIDTH;
    float dq[WIDTH / 8][4];
    by__clear<WIDTH>(dq);
    by__copy_queries<WIDTH>(tiles, a, b, head, t0, rows);
    by__copy_commit();
    __syncthreads();
    int low = tiles.first[0];
    for (int i = 1; i < BY__TILE; i++) {
        low = t0 + i < rows && tiles.first[i] < low ? tiles.first[i] : low;
    }
    int high = t0 >= rows                             ? 0
               : t0 + BY__TILE + (int)a.behind > rows ? rows
                                                      : t0 + BY__TILE + (int)a.behind;
    for (int key = low / BY__TILE * BY__TILE; key < high; key += BY__TILE) {
        float s[8][4];
        float d[8][4];
        by__copy_rows<WIDTH>(tiles.k, (const uint16_t *)a.k + at, a.kv_stride, key, rows);
        by__copy_rows<WIDTH>(tiles.v, (const uint16_t *)a.v + at, a.kv_stride, key, rows);
        by__copy_commit();
        by__copy_wait<0>();
        __syncthreads();
        by__products<WIDTH, F16, 8>(s, tiles.q, tiles.k);
        by__products<WIDTH, F16, 8>(d, tiles.dy, tiles.v);
        int own = (int)threadIdx.x / 32 * 16 + (int)by__lane() / 4;
        if (a.sloped != 0) {
            by__take_distances<8>(s, a.slope[head] / a.scale, t0 + own,
                                  key + (int)(by__lane() % 4) * 2);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int to = key + 8 * j + (int)(by__lane() % 4) * 2 + c % 2;
                by__probability(tiles, a, t0, own + c / 2 * 8, to, rows, s[j][c], &d[j][c]);
            }
        }
        by__add_values<WIDTH, F16, 8>(dq, d, tiles.k);
        __syncthreads();
    }
    by__copy_wait<0>();
    by__put_rows<WIDTH, F16>((uint16_t *)a.dq + b * a.length * a.q_stride + head * WIDTH,
                             a.q_stride, t0, a.length, dq);
}

BY__KERNEL(attention_bf16_64, 128)
{
    by__attention_mma<64, false>(a);
}

BY__KERNEL(attention_bf16_128, 128)
{
    by__attention_mma<128, false>(a);
}

BY__KERNEL(attention_f16_64, 128)
{
    by__attention_mma<64, true>(a);
}

BY__KERNEL(attention_f16_128, 128)
{
    by__attention_mma<128, true>(a);
}

BY__KERNEL(keys_grad_bf16_64, 128)
{
    by__keys_grad_mma<64, false>(a);
}

BY__KERNEL(queries_grad_bf16_64, 128)
{
    by__queries_grad_mma<64, false>(a);
}

BY__KERNEL(keys_grad_bf16_128, 128)
{
    by__keys_grad_mma<128, false>(a);
}

BY__KERNEL(queries_grad_bf16_128, 128)
{
    by__queries_grad_mma<128, false>(a);
}

BY__KERNEL(keys_grad_f16_64, 128)
{
    by__keys_grad_mma<64, true>(a);
}

BY__KERNEL(queries_grad_f16_64, 128)
{
    by__queries_grad_mma<64, true>(a);
}

BY__KERNEL(keys_grad_f16_128, 128)
{
    by__keys_grad_mma<128, true>(a);
}

BY__KERNEL(queries_grad_f16_128, 128)
{
    by__queries_grad_mma<128, true>(a);
}
