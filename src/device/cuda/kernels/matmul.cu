/* Products in f32, one tile of 32 x 32 a block, for what the library of products does not take. A
 * thread has four rows of one column; sums are in the order of k. */
#include "functions.cuh"

struct by__tile {
    float a[BY__CUDA_TILE][BY__CUDA_TILE + 1];
    float b[BY__CUDA_TILE][BY__CUDA_TILE + 1];
};

/* Adds the tile's products: sum[r] of row 4 w + r, where w is the warp, and the lane's column. */
__device__ void by__add_tile(float sum[4], const by__tile &tile)
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
__device__ void by__put_tile(const float sum[4], void *y, int dtype, int64_t first, int64_t m,
                             int64_t n, int64_t row, int64_t column, const void *bias = nullptr,
                             int bias_dtype = 0, const void *add = nullptr)
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

BY__KERNEL(matmul, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    for (int64_t k = 0; k < a.k; k += BY__CUDA_TILE) {
        for (int i = (int)threadIdx.x; i < BY__CUDA_TILE * BY__CUDA_TILE; i += 256) {
            int64_t r = i / BY__CUDA_TILE;
            int64_t c = i % BY__CUDA_TILE;
            bool in_a = row + r < a.m && k + c < a.k;
            bool in_b = k + r < a.k && column + c < a.n;
            tile.a[r][c] =
                in_a ? by__get(a.a, a.a_dtype, (row + r) * a.a_row + (k + c) * a.a_column) : 0.0f;
            tile.b[r][c] =
                in_b ? by__get(a.b, a.b_dtype, (k + r) * a.b_row + (column + c) * a.b_column)
                     : 0.0f;
        }
        __syncthreads();
        by__add_tile(sum, tile);
        __syncthreads();
    }
    by__put_tile(sum, a.y, a.dtype, 0, a.m, a.n, row, column, a.bias, a.bias_dtype, a.add);
}

/* Rows of range g; none if they are out of bounds. */
__device__ void by__range_of(const int32_t *range, int64_t g, int64_t capacity, int64_t rows,
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

BY__KERNEL(grouped_matmul, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    for (int64_t g = 0; g < a.groups; g++) {
        int64_t begin;
        int64_t end;
        by__range_of(a.range, g, a.capacity, a.rows, &begin, &end);
        if (begin >= row + BY__CUDA_TILE || end <= row) {
            continue; /* none of the tile's rows */
        }
        int64_t matrix = g / a.ranges_each * a.k * a.n;
        for (int64_t k = 0; k < a.k; k += BY__CUDA_TILE) {
            for (int i = (int)threadIdx.x; i < BY__CUDA_TILE * BY__CUDA_TILE; i += 256) {
                int64_t r = i / BY__CUDA_TILE;
                int64_t c = i % BY__CUDA_TILE;
                bool in_a = row + r >= begin && row + r < end && k + c < a.k;
                bool in_b = k + r < a.k && column + c < a.n;
                int64_t at =
                    a.trans_b != 0 ? (column + c) * a.k + k + r : (k + r) * a.n + column + c;
                tile.a[r][c] = in_a ? by__get(a.a, a.dtype, (row + r) * a.k + k + c) : 0.0f;
                tile.b[r][c] = in_b ? by__get(a.b, a.b_dtype, matrix + at) : 0.0f;
            }
            __syncthreads();
            by__add_tile(sum, tile);
            __syncthreads();
        }
    }
    by__put_tile(sum, a.y, a.y_dtype, 0, a.rows, a.n, row, column);
}

BY__KERNEL(grouped_grad, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    int64_t matrix = blockIdx.z;
    for (int64_t g = matrix * a.ranges_each; g < (matrix + 1) * a.ranges_each; g++) {
        int64_t begin;
        int64_t end;
        by__range_of(a.range, g, a.capacity, a.rows, &begin, &end);
        for (int64_t k = begin; k < end; k += BY__CUDA_TILE) {
            for (int i = (int)threadIdx.x; i < BY__CUDA_TILE * BY__CUDA_TILE; i += 256) {
                int64_t r = i / BY__CUDA_TILE; /* of the operands' rows */
                int64_t c = i % BY__CUDA_TILE;
                bool in_a = k + r < end && row + c < a.m;
                bool in_b = k + r < end && column + c < a.n;
                tile.a[c][r] = in_a ? by__get(a.a, a.dtype, (k + r) * a.m + row + c) : 0.0f;
                tile.b[r][c] = in_b ? by__get(a.b, a.dtype, (k + r) * a.n + column + c) : 0.0f;
            }
            __syncthreads();
            by__add_tile(sum, tile);
            __syncthreads();
        }
    }
    by__put_tile(sum, a.y, a.y_dtype, matrix * a.m * a.n, a.m, a.n, row, column);
}
