/* Products in f32 for what the library of products does not take. */
#include "tile.cuh"

BY__KERNEL(matmul, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    by__add_products(
        sum, tile, a.k,
        [&](int64_t r, int64_t k) {
            return row + r < a.m ? by__get(a.a, a.a_dtype, (row + r) * a.a_row + k * a.a_column)
                                 : 0.0f;
        },
        [&](int64_t k, int64_t c) {
            return column + c < a.n
                       ? by__get(a.b, a.b_dtype, k * a.b_row + (column + c) * a.b_column)
                       : 0.0f;
        });
    by__put_tile(sum, a.y, a.dtype, 0, a.m, a.n, row, column, a.bias, a.bias_dtype, a.add);
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
        by__add_products(
            sum, tile, a.k,
            [&](int64_t r, int64_t k) {
                return row + r >= begin && row + r < end
                           ? by__get(a.a, a.dtype, (row + r) * a.k + k)
                           : 0.0f;
            },
            [&](int64_t k, int64_t c) {
                int64_t at = a.trans_b != 0 ? (column + c) * a.k + k : k * a.n + column + c;
                return column + c < a.n ? by__get(a.b, a.b_dtype, matrix + at) : 0.0f;
            });
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
