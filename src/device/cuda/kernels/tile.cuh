/* tile: products in f32, one tile of 32 x 32 a block. A thread has four rows of one column; sums
 * are in the order of k. */
#ifndef BY_DEVICE_CUDA_KERNELS_TILE_CUH
#define BY_DEVICE_CUDA_KERNELS_TILE_CUH

#include "functions.cuh"

struct by__tile {
    float a[BY__CUDA_TILE][BY__CUDA_TILE + 1];
    float b[BY__CUDA_TILE][BY__CUDA_TILE + 1];
};

/* Adds the tile's products: sum[r] of row 4 w + r, where w is the warp, and the lane's column. */
__device__ inline void by__add_tile(float sum[4], const by__tile &tile)
{
    for (int k = 0; k < BY__CUDA_TILE; k++) {
        float b = tile.b[k][by__lane()];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            sum[r] = by__fma(tile.a[threadIdx.x / 32 * 4 + r][k], b, sum[r]);
        }
    }
}

/* Stores the thread's sums of the tile at (row, column) of the matrix y [m, n] that begins at
 * element `first`, plus bias [n] and add [m, n] where these are there. */
__device__ inline void by__put_tile(const float sum[4], void *y, int dtype, int64_t first,
                                    int64_t m, int64_t n, int64_t row, int64_t column,
                                    const void *bias = nullptr, int bias_dtype = 0,
                                    const void *add = nullptr)
{
    int64_t j = column + by__lane();
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int64_t i = row + threadIdx.x / 32 * 4 + r;
        if (i < m && j < n) {
            float value = sum[r];
            value += bias == nullptr ? 0.0f : by__get(bias, bias_dtype, j);
            value += add == nullptr ? 0.0f : by__get(add, dtype, first + i * n + j);
            by__put(y, dtype, first + i * n + j, value);
        }
    }
}

/* Adds the products of k steps: a_at(r, k) of row r of the tile, b_at(k, c) of its column c. */
template <class A, class B>
__device__ inline void by__add_products(float sum[4], by__tile &tile, int64_t k, A a_at, B b_at)
{
    for (int64_t first = 0; first < k; first += BY__CUDA_TILE) {
        for (int i = (int)threadIdx.x; i < BY__CUDA_TILE * BY__CUDA_TILE; i += 256) {
            int r = i / BY__CUDA_TILE;
            int c = i % BY__CUDA_TILE;
            tile.a[r][c] = first + c < k ? a_at(r, first + c) : 0.0f;
            tile.b[r][c] = first + r < k ? b_at(first + r, c) : 0.0f;
        }
        __syncthreads();
        by__add_tile(sum, tile);
        __syncthreads();
    }
}

/* Rows of range g; none if they are out of bounds. */
__device__ inline void by__range_of(const int32_t *range, int64_t g, int64_t capacity, int64_t rows,
                                    int64_t *begin, int64_t *end)
{
    int64_t from = range[2 * g];
    int64_t to = range[2 * g + 1];
    if (capacity > 0) {
        to += g * capacity - from;
        from = g * capacity;
    }
    bool wrong = from < 0 || to < from || to > rows || (capacity > 0 && to - from > capacity);
    *begin = wrong ? 0 : from;
    *end = wrong ? 0 : to;
}

#endif
