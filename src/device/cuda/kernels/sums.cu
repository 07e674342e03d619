/* Sums over elements and rows. Which elements a partial sum has, and the order in which they are
 * added, follow from shapes. */
#include "functions.cuh"

/* A warp's lane has 8 neighbouring columns, or every 32nd one where rows do not begin at multiples
 * of 16 bytes; the warps of a block take its rows in turn. */
__device__ void by__column_sums(float sum[BY__EACH], const void *x, int dtype, int64_t first,
                                int64_t last, int64_t columns, int64_t column)
{
    bool vectors = columns % BY__EACH == 0;
    for (int k = 0; k < BY__EACH; k++) {
        sum[k] = 0.0f;
    }
    for (int64_t row = first + threadIdx.x / 32; row < last; row += blockDim.x / 32) {
        float v[BY__EACH];
        if (vectors && column + by__lane() * BY__EACH < columns) {
            by__get8(v, x, dtype, row * columns + column + by__lane() * BY__EACH);
            for (int k = 0; k < BY__EACH; k++) {
                sum[k] += v[k];
            }
        } else if (!vectors) {
#pragma unroll
            for (int k = 0; k < BY__EACH; k++) {
                int64_t at = column + 32 * k + by__lane();
                sum[k] += at < columns ? by__get(x, dtype, row * columns + at) : 0.0f;
            }
        }
    }
}

/* Adds up the warps' sums of a block's 256 columns, and writes them to row `to` of y. */
__device__ void by__put_column_sums(const float sum[BY__EACH], float *y, int64_t columns,
                                    int64_t column, int64_t to)
{
    __shared__ float of_warp[8][BY__EACH * 32];
    bool vectors = columns % BY__EACH == 0;
    for (int k = 0; k < BY__EACH; k++) {
        unsigned at = vectors ? by__lane() * BY__EACH + (unsigned)k : 32 * (unsigned)k + by__lane();
        of_warp[threadIdx.x / 32][at] = sum[k];
    }
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < 8; w++) {
        total += of_warp[w][threadIdx.x];
    }
    if (column + threadIdx.x < columns) {
        y[to * columns + column + threadIdx.x] = total;
    }
    __syncthreads();
}

BY__KERNEL(sum_rows, 256)
{
    float sum[BY__EACH];
    int64_t column = (int64_t)blockIdx.y * 256;
    int64_t first = (int64_t)blockIdx.x * BY__CUDA_SUM_ROWS;
    int64_t last = first + BY__CUDA_SUM_ROWS < a.rows ? first + BY__CUDA_SUM_ROWS : a.rows;
    by__column_sums(sum, a.x, a.dtype, first, last, a.columns, column);
    by__put_column_sums(sum, a.y, a.columns, column, blockIdx.x);
}

BY__KERNEL(sum_squares, 256)
{
    int64_t first = (int64_t)blockIdx.x * a.block;
    int64_t last = first + a.block < a.count ? first + a.block : a.count;
    float sum = 0.0f;
    for (int64_t i = first + threadIdx.x * BY__EACH; i < last; i += 256 * BY__EACH) {
        float v[BY__EACH];
        by__get_some(v, a.x, BY__F32, i, last);
        for (int k = 0; k < BY__EACH; k++) {
            sum += v[k] * v[k];
        }
    }
    sum = by__block_sum(sum);
    if (threadIdx.x == 0) {
        a.y[blockIdx.x] = sum;
    }
}

BY__KERNEL(total, 256)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < a.count; i += 256) {
        sum += a.x[i];
    }
    sum = by__block_sum(sum);
    if (threadIdx.x == 0) {
        a.y[0] = sum;
    }
}

__device__ int64_t by__place(int64_t i, int rank, const int64_t *extent, const int64_t *stride)
{
    int64_t place = 0;
    for (int axis = rank - 1; axis >= 0; axis--) {
        place += i % extent[axis] * stride[axis];
        i /= extent[axis];
    }
    return place;
}

BY__KERNEL(sum, 256)
{
    int64_t result = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (result >= a.results) {
        return; /* a whole warp */
    }
    int64_t base = by__place(result, a.kept, a.kept_extent, a.kept_stride);
    float sum = 0.0f;
    for (int64_t j = by__lane(); j < a.terms; j += 32) {
        sum +=
            by__get(a.x, a.dtype, base + by__place(j, a.summed, a.summed_extent, a.summed_stride));
    }
    sum = by__warp_sum(sum);
    if (by__lane() == 0) {
        by__put(a.y, a.to, result, sum / a.divisor);
    }
}

BY__KERNEL(measure, 256)
{
    int64_t first = (int64_t)blockIdx.x * a.block;
    int64_t last = first + a.block < a.count ? first + a.block : a.count;
    float sum = 0.0f;
    float squares = 0.0f;
    float zeros = 0.0f;
    float largest = 0.0f;
    float apart = 0.0f;
    float infinite = 0.0f;
    for (int64_t i = first + threadIdx.x; i < last; i += 256) {
        float v = by__get(a.x, a.dtype, i);
        float d = a.other == nullptr ? 0.0f : v - by__get(a.other, a.dtype, i);
        sum += v;
        squares += v * v;
        zeros += v == 0.0f ? 1.0f : 0.0f;
        largest = by__at_least(largest, by__magnitude(v));
        apart += d * d;
        infinite += by__is_finite(v) ? 0.0f : 1.0f;
    }
    sum = by__block_sum(sum);
    squares = by__block_sum(squares);
    zeros = by__block_sum(zeros);
    largest = by__block_largest(largest);
    apart = by__block_sum(apart);
    infinite = by__block_sum(infinite);
    if (threadIdx.x == 0) {
        float *y = a.y + (int64_t)blockIdx.x * 6;
        y[0] = sum;
        y[1] = squares;
        y[2] = zeros;
        y[3] = largest;
        y[4] = apart;
        y[5] = infinite;
    }
}
