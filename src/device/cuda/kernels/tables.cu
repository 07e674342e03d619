/* Embeddings, positions and rotations. */
#include "functions.cuh"

BY__KERNEL(embedding, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count * a.columns) {
        return;
    }
    int64_t id = a.ids[i / a.columns];
    bool there = id >= 0 && id < a.rows;
    int64_t from = id * a.columns + i % a.columns;
    if (a.dtype == BY__F32) {
        ((float *)a.y)[i] = there ? ((const float *)a.table)[from] : 0.0f;
    } else {
        ((uint16_t *)a.y)[i] = there ? ((const uint16_t *)a.table)[from] : (uint16_t)0;
    }
}

/* The block's ids are found 256 at a time: each warp counts those of its lanes, so that a list in
 * shared memory has them in order. A thread adds to its own columns. */
BY__KERNEL(embedding_grad, 256)
{
    __shared__ int entries[256];
    __shared__ int rows[256];
    __shared__ int of_warp[8];
    int64_t first = (int64_t)blockIdx.x * BY__CUDA_EMBEDDING_ROWS;
    int64_t last =
        first + BY__CUDA_EMBEDDING_ROWS < a.rows ? first + BY__CUDA_EMBEDDING_ROWS : a.rows;
    for (int64_t i = first * a.columns + threadIdx.x; i < last * a.columns; i += 256) {
        a.y[i] = a.base == nullptr ? 0.0f : a.base[i];
    }
    __syncthreads();
    for (int64_t begin = 0; begin < a.count; begin += 256) {
        int64_t entry = begin + threadIdx.x;
        int64_t id = entry < a.count ? a.ids[entry] : -1;
        int found = id >= first && id < last ? 1 : 0;
        int before = found;
#pragma unroll
        for (unsigned distance = 1; distance < 32; distance *= 2) { /* a sum over lower lanes */
            int other = (int)by__shuffle_bits((uint32_t)before,
                                              by__lane() - (by__lane() < distance ? 0 : distance));
            before += by__lane() < distance ? 0 : other;
        }
        if (by__lane() == 31) {
            of_warp[threadIdx.x / 32] = before;
        }
        __syncthreads();
        int place = before - found;
        int all = 0;
        for (unsigned w = 0; w < 8; w++) {
            place += w < threadIdx.x / 32 ? of_warp[w] : 0;
            all += of_warp[w];
        }
        if (found != 0) {
            entries[place] = (int)threadIdx.x;
            rows[place] = (int)(id - first);
        }
        __syncthreads();
        for (int64_t column = threadIdx.x; column < a.columns; column += 256) {
            for (int n = 0; n < all; n++) {
                a.y[(first + rows[n]) * a.columns + column] +=
                    by__get(a.dy, a.dtype, (begin + entries[n]) * a.columns + column);
            }
        }
        __syncthreads();
    }
}

BY__KERNEL(position, 256)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * a.each;
    if (i >= a.count) {
        return;
    }
    int64_t t = i / a.columns % a.length;
    int64_t place = a.begin + t + (t >= a.turn ? a.gap : 0);
    int64_t from = place * a.columns + i % a.columns;
    if (a.each == 1) {
        by__put(a.y, a.dtype, i, by__get(a.x, a.dtype, i) + by__get(a.table, a.table_dtype, from));
        return;
    }
    float x[BY__EACH];
    float v[BY__EACH];
    by__get8(x, a.x, a.dtype, i);
    by__get8(v, a.table, a.table_dtype, from);
    for (int k = 0; k < BY__EACH; k++) {
        x[k] += v[k];
    }
    by__put8(a.y, a.dtype, i, x);
}

BY__KERNEL(position_grad, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.columns) {
        return;
    }
    int64_t place = i / a.columns - a.begin;
    int64_t late = place - a.gap;
    int64_t t = place >= 0 && place < a.length && place < a.turn ? place
                : late >= a.turn && late < a.length && late >= 0 ? late
                                                                 : -1;
    float sum = 0.0f;
    for (int64_t sample = 0; t >= 0 && sample < a.samples; sample++) {
        sum += by__get(a.dy, a.dtype, (sample * a.length + t) * a.columns + i % a.columns);
    }
    a.y[i] = sum;
}

BY__KERNEL(rope, 256)
{
    __shared__ float frequency[BY__CUDA_MOST_PAIRS];
    if (threadIdx.x < a.half) {
        frequency[threadIdx.x] = a.frequency[threadIdx.x];
    }
    __syncthreads();
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t row = thread / a.half;
    int64_t i = thread % a.half;
    if (row >= a.rows) {
        return;
    }
    int64_t t = row % a.length;
    int64_t position = a.by_row != 0 ? a.position[row]
                                     : (a.position == nullptr ? 0 : a.position[0]) + a.begin + t +
                                           (t >= a.turn ? a.gap : 0);
    float c;
    float s;
    by__cos_sin((float)position * frequency[i], &c, &s);
    c *= a.amplitude;
    s *= a.inverse != 0 ? -a.amplitude : a.amplitude;
    int64_t at = row * a.heads * 2 * a.half + i;
    for (int64_t head = 0; head < a.heads; head++, at += 2 * a.half) {
        float low = by__get(a.x, a.dtype, at);
        float high = by__get(a.x, a.dtype, at + a.half);
        by__put(a.y, a.dtype, at, by__fma(low, c, -(high * s)));
        by__put(a.y, a.dtype, at + a.half, by__fma(high, c, low * s));
    }
}
