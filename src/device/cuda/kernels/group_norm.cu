/* Group norm and its gradient. A block has a group of a sample: its threads take the entries of the
 * group in turn, row after row, and sums are added in a fixed order. */
#include "prelude.cuh"

/* An entry of a group, which has `width` channels of each row; those that a thread takes are
 * `rows_on` rows and `on` channels apart. */
struct by__group_entry {
    int64_t row;
    int64_t channel;
    int64_t rows_on;
    int64_t on;
    int64_t width;
    int64_t first; /* of the group */
};

__device__ by__group_entry by__group_first(int64_t rows, int64_t columns, int64_t groups)
{
    int64_t width = columns / groups;
    int64_t sample = (int64_t)blockIdx.x / groups;
    int64_t rows_on = blockDim.x / width;
    int64_t row = threadIdx.x / width;
    return {row,     threadIdx.x - row * width,
            rows_on, blockDim.x - rows_on * width,
            width,   sample * rows * columns + ((int64_t)blockIdx.x - sample * groups) * width};
}

__device__ void by__group_next(by__group_entry &e)
{
    e.row += e.rows_on;
    e.channel += e.on;
    if (e.channel >= e.width) {
        e.channel -= e.width;
        e.row++;
    }
}

__device__ int64_t by__group_place(const by__group_entry &e, int64_t columns)
{
    return e.first + e.row * columns + e.channel;
}

BY__KERNEL(group_moments, 256)
{
    by__group_entry first = by__group_first(a.rows, a.columns, a.groups);
    float count = (float)(a.rows * first.width);
    float sum = 0.0f;
    for (by__group_entry e = first; e.row < a.rows; by__group_next(e)) {
        sum += by__get(a.x, a.dtype, by__group_place(e, a.columns));
    }
    float mean = by__block_sum(sum) / count;
    float squares = 0.0f;
    for (by__group_entry e = first; e.row < a.rows; by__group_next(e)) {
        float d = by__get(a.x, a.dtype, by__group_place(e, a.columns)) - mean;
        squares = by__fma(d, d, squares);
    }
    squares = by__block_sum(squares);
    if (threadIdx.x == 0) {
        a.mean[blockIdx.x] = mean;
        a.rstd[blockIdx.x] = 1.0f / by__root(squares / count + a.eps);
    }
}

/* The channel of an element, and the group of a sample that it is in: of neighbours one after
 * another. */
struct by__grouped_place {
    int64_t channel;
    int64_t row;
    int64_t sample;
};

__device__ by__grouped_place by__grouped_place_of(int64_t i, int64_t rows, int64_t columns)
{
    return {i % columns, i / columns % rows, i / columns / rows};
}

__device__ void by__grouped_next(by__grouped_place &p, int64_t rows, int64_t columns)
{
    if (++p.channel == columns) {
        p.channel = 0;
        if (++p.row == rows) {
            p.row = 0;
            p.sample++;
        }
    }
}

BY__KERNEL(group_norm, 256)
{
    int64_t i = by__first_element();
    float v[BY__EACH];
    if (i >= a.count) {
        return;
    }
    by__grouped_place p = by__grouped_place_of(i, a.rows, a.columns);
    int64_t width = a.columns / a.groups;
    by__get_some(v, a.x, a.dtype, i, a.count);
    for (int k = 0; k < BY__EACH; k++) {
        if (i + k >= a.count) {
            continue;
        }
        int64_t group = p.sample * a.groups + p.channel / width;
        v[k] = by__fma((v[k] - a.mean[group]) * a.rstd[group], a.w[p.channel], a.b[p.channel]);
        by__grouped_next(p, a.rows, a.columns);
    }
    by__put_some(a.y, a.dtype, i, a.count, v);
}

BY__KERNEL(group_sums, 256)
{
    by__group_entry first = by__group_first(a.rows, a.columns, a.groups);
    int64_t channels = (int64_t)blockIdx.x % a.groups * first.width; /* in front of the group */
    float count = (float)(a.rows * first.width);
    float mean = a.mean[blockIdx.x];
    float rstd = a.rstd[blockIdx.x];
    float plain = 0.0f;
    float scaled = 0.0f;
    for (by__group_entry e = first; e.row < a.rows; by__group_next(e)) {
        int64_t at = by__group_place(e, a.columns);
        float d = by__get(a.dy, a.dtype, at) * a.w[channels + e.channel];
        plain += d;
        scaled = by__fma(d, (by__get(a.x, a.dtype, at) - mean) * rstd, scaled);
    }
    plain = by__block_sum(plain);
    scaled = by__block_sum(scaled);
    if (threadIdx.x == 0) {
        a.plain[blockIdx.x] = plain / count;
        a.scaled[blockIdx.x] = scaled / count;
    }
}

/* A thread has one column of its block's rows: neighbours read neighbouring elements. */
BY__KERNEL(group_weights, 256)
{
    int64_t column = (int64_t)blockIdx.y * 256 + threadIdx.x;
    int64_t first = (int64_t)blockIdx.x * BY__CUDA_SUM_ROWS;
    int64_t last = first + BY__CUDA_SUM_ROWS < a.all_rows ? first + BY__CUDA_SUM_ROWS : a.all_rows;
    float dw = 0.0f;
    float db = 0.0f;
    if (column >= a.columns) {
        return;
    }
    int64_t sample = first / a.rows;
    int64_t group = sample * a.groups + column / (a.columns / a.groups);
    int64_t end = (sample + 1) * a.rows;
    for (int64_t row = first; row < last; row++) {
        if (row == end) {
            end += a.rows;
            group += a.groups;
        }
        float x = by__get(a.x, a.dtype, row * a.columns + column);
        float dy = by__get(a.dy, a.dtype, row * a.columns + column);
        dw = by__fma(dy, (x - a.mean[group]) * a.rstd[group], dw);
        db += dy;
    }
    a.dw[(int64_t)blockIdx.x * a.columns + column] = dw;
    a.db[(int64_t)blockIdx.x * a.columns + column] = db;
}

BY__KERNEL(group_norm_grad, 256)
{
    int64_t i = by__first_element();
    float x[BY__EACH];
    float g[BY__EACH];
    if (i >= a.count) {
        return;
    }
    by__grouped_place p = by__grouped_place_of(i, a.rows, a.columns);
    int64_t width = a.columns / a.groups;
    by__get_some(x, a.x, a.dtype, i, a.count);
    by__get_some(g, a.dy, a.dtype, i, a.count);
    for (int k = 0; k < BY__EACH; k++) {
        if (i + k >= a.count) {
            continue;
        }
        int64_t group = p.sample * a.groups + p.channel / width;
        float normal = (x[k] - a.mean[group]) * a.rstd[group];
        float d = g[k] * a.w[p.channel] - a.plain[group];
        g[k] = a.rstd[group] * by__fma(-normal, a.scaled[group], d);
        by__grouped_next(p, a.rows, a.columns);
    }
    by__put_some(a.dx, a.dtype, i, a.count, g);
}
