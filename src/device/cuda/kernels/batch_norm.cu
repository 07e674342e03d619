/* Batch norm, its gradient, and affine maps of channels. A lane has one column: neighbours read
 * neighbouring elements. The warps of a block take the rows of a range in turn; how rows are cut
 * into ranges follows from the shape, and ranges are added in a fixed order. Variances are sums of
 * squares of what is left of a range without its mean, merged (Chan, Golub and LeVeque 1979), so
 * that a mean far from zero costs no digits. */
#include "prelude.cuh"

#define BY__WARPS 8

/* The sum of the warps' values for a column, to all of them. All threads call it. */
__device__ float by__over_warps(float v)
{
    __shared__ float of_warp[BY__WARPS][32];
    of_warp[threadIdx.x / 32][by__lane()] = v;
    __syncthreads();
    float sum = of_warp[0][by__lane()];
    for (int w = 1; w < BY__WARPS; w++) {
        sum += of_warp[w][by__lane()];
    }
    __syncthreads();
    return sum;
}

__device__ int64_t by__range_end(int64_t range, int64_t each, int64_t rows)
{
    int64_t end = (range + 1) * each;
    return end < rows ? end : rows;
}

BY__KERNEL(batch_moments, 256)
{
    int64_t column = (int64_t)blockIdx.y * 32 + by__lane();
    int64_t first = (int64_t)blockIdx.x * a.each;
    int64_t end = by__range_end(blockIdx.x, a.each, a.rows);
    bool inside = column < a.columns;
    float sum = 0.0f;
    for (int64_t row = first + threadIdx.x / 32; row < end && inside; row += BY__WARPS) {
        sum += by__get(a.x, a.dtype, row * a.columns + column);
    }
    float mean = by__over_warps(sum) / (float)(end - first);
    float squares = 0.0f;
    for (int64_t row = first + threadIdx.x / 32; row < end && inside; row += BY__WARPS) {
        float d = by__get(a.x, a.dtype, row * a.columns + column) - mean;
        squares = by__fma(d, d, squares);
    }
    squares = by__over_warps(squares);
    if (inside && threadIdx.x < 32) {
        a.means[(int64_t)blockIdx.x * a.columns + column] = mean;
        a.squares[(int64_t)blockIdx.x * a.columns + column] = squares;
    }
}

struct by__moments {
    float rows;
    float mean;
    float squares;
};

__device__ by__moments by__merged(by__moments m, by__moments other)
{
    float rows = m.rows + other.rows;
    float share = other.rows / rows;
    float d = other.mean - m.mean;
    return {rows, by__fma(d, share, m.mean),
            m.squares + by__fma(d * d, m.rows * share, other.squares)};
}

/* Warp w merges ranges w, w + 8, ..., and the first warp what the others have. */
BY__KERNEL(batch_merge, 256)
{
    __shared__ float of_warp[BY__WARPS][3][32];
    int64_t column = (int64_t)blockIdx.x * 32 + by__lane();
    int64_t ranges = (a.rows + a.each - 1) / a.each;
    by__moments m = {0.0f, 0.0f, 0.0f};
    for (int64_t range = threadIdx.x / 32; range < ranges && column < a.columns;
         range += BY__WARPS) {
        int64_t at = range * a.columns + column;
        float rows = (float)(by__range_end(range, a.each, a.rows) - range * a.each);
        m = by__merged(m, {rows, a.means[at], a.squares[at]});
    }
    of_warp[threadIdx.x / 32][0][by__lane()] = m.rows;
    of_warp[threadIdx.x / 32][1][by__lane()] = m.mean;
    of_warp[threadIdx.x / 32][2][by__lane()] = m.squares;
    __syncthreads();
    if (threadIdx.x >= 32 || column >= a.columns) {
        return;
    }
    for (int w = 1; w < BY__WARPS && w < ranges; w++) {
        m = by__merged(
            m, {of_warp[w][0][by__lane()], of_warp[w][1][by__lane()], of_warp[w][2][by__lane()]});
    }
    float variance = m.squares / (float)a.rows;
    a.mean[column] = m.mean;
    a.variance[column] = variance;
    a.scale[column] = a.w[column] / by__root(variance + a.eps);
}

/* NaN stays NaN. */
__device__ float by__between(float v, float least, float most)
{
    v = v < least ? least : v;
    return v > most ? most : v;
}

BY__KERNEL(affine, 256)
{
    int64_t i = by__first_element();
    float v[BY__EACH];
    float other[BY__EACH];
    float scale[BY__EACH];
    if (i >= a.count) {
        return;
    }
    by__get_some(v, a.x, a.dtype, i, a.count);
    if (a.mean != nullptr) {
        by__get_periodic(other, a.mean, BY__F32, i, a.count, a.columns);
        for (int k = 0; k < BY__EACH; k++) {
            v[k] -= other[k];
        }
    }
    by__get_periodic(scale, a.scale, BY__F32, i, a.count, a.columns);
    by__get_periodic(other, a.shift, BY__F32, i, a.count, a.columns);
    for (int k = 0; k < BY__EACH; k++) {
        v[k] = by__fma(v[k], scale[k], other[k]);
    }
    if (a.add != nullptr) {
        by__get_some(other, a.add, a.dtype, i, a.count);
        for (int k = 0; k < BY__EACH; k++) {
            v[k] += other[k];
        }
    }
    for (int k = 0; k < BY__EACH; k++) {
        v[k] = by__between(v[k], a.least, a.most);
    }
    by__put_some(a.y, a.dtype, i, a.count, v);
}

/* dy if the rectifier lets it through, as the forward pass computed its operand. */
__device__ float by__passed(float dy, float centered, float scale, float b, float most)
{
    float z = by__fma(centered, scale, b);
    return z > 0.0f && z < most ? dy : 0.0f;
}

BY__KERNEL(batch_sums, 256)
{
    int64_t column = (int64_t)blockIdx.y * 32 + by__lane();
    int64_t end = by__range_end(blockIdx.x, a.each, a.rows);
    int64_t first = (int64_t)blockIdx.x * a.each + threadIdx.x / 32;
    bool inside = column < a.columns;
    float mean = inside ? a.mean[column] : 0.0f;
    float scale = inside ? a.w[column] / by__root(a.variance[column] + a.eps) : 0.0f;
    float b = inside ? a.b[column] : 0.0f;
    float plain = 0.0f;
    float scaled = 0.0f;
    for (int64_t row = first; row < end && inside; row += BY__WARPS) {
        int64_t at = row * a.columns + column;
        float centered = by__get(a.x, a.dtype, at) - mean;
        float g = by__get(a.dy, a.dtype, at);
        g = a.rectify != 0 ? by__passed(g, centered, scale, b, a.most) : g;
        plain += g;
        scaled = by__fma(g, centered, scaled);
    }
    plain = by__over_warps(plain);
    scaled = by__over_warps(scaled);
    if (inside && threadIdx.x < 32) {
        a.plain[(int64_t)blockIdx.x * a.columns + column] = plain;
        a.scaled[(int64_t)blockIdx.x * a.columns + column] = scaled;
    }
}

BY__KERNEL(batch_slopes, 256)
{
    int64_t column = (int64_t)blockIdx.x * 32 + by__lane();
    int64_t ranges = (a.rows + a.each - 1) / a.each;
    bool inside = column < a.columns;
    float plain = 0.0f;
    float scaled = 0.0f;
    for (int64_t range = threadIdx.x / 32; range < ranges && inside; range += BY__WARPS) {
        plain += a.plain[range * a.columns + column];
        scaled += a.scaled[range * a.columns + column];
    }
    plain = by__over_warps(plain);
    scaled = by__over_warps(scaled);
    if (!inside || threadIdx.x >= 32) {
        return;
    }
    float root = by__root(a.variance[column] + a.eps);
    float rstd = 1.0f / root;
    float dw = scaled * rstd;
    a.dw[column] = dw;
    a.db[column] = plain;
    a.scale[column] = a.w[column] / root;
    a.offset[column] = plain / (float)a.rows;
    a.slope[column] = dw * rstd / (float)a.rows;
}

BY__KERNEL(batch_norm_grad, 256)
{
    int64_t i = by__first_element();
    float x[BY__EACH];
    float g[BY__EACH];
    float scale[BY__EACH];
    float v[BY__EACH];
    if (i >= a.count) {
        return;
    }
    by__get_some(x, a.x, a.dtype, i, a.count);
    by__get_some(g, a.dy, a.dtype, i, a.count);
    by__get_periodic(scale, a.scale, BY__F32, i, a.count, a.columns);
    by__get_periodic(v, a.mean, BY__F32, i, a.count, a.columns);
    for (int k = 0; k < BY__EACH; k++) {
        x[k] -= v[k];
    }
    if (a.rectify != 0) {
        by__get_periodic(v, a.b, BY__F32, i, a.count, a.columns);
        for (int k = 0; k < BY__EACH; k++) {
            g[k] = by__passed(g[k], x[k], scale[k], v[k], a.most);
        }
    }
    by__get_periodic(v, a.offset, BY__F32, i, a.count, a.columns);
    for (int k = 0; k < BY__EACH; k++) {
        g[k] -= v[k];
    }
    by__get_periodic(v, a.slope, BY__F32, i, a.count, a.columns);
    for (int k = 0; k < BY__EACH; k++) {
        g[k] = by__fma(-x[k], v[k], g[k]) * scale[k];
    }
    by__put_some(a.dx, a.dtype, i, a.count, g);
}
