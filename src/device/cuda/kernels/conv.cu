/* Convolutions, plain: a thread sums what an element of the result reads, a team what a weight's
 * gradient does. */
#include "prelude.cuh"

/* Adds the sum over the channels of a group: x from `at` on, weights from `from` on, `step`
 * apart. */
__device__ float by__conv_channels(const by__cuda_conv_args &a, float sum, int64_t at, int64_t from,
                                   int64_t step)
{
    for (int64_t c = 0; c < a.inner; c++) {
        sum = by__fma(by__get(a.x, a.dtype, at + c), by__get(a.w, a.dtype, from + c * step), sum);
    }
    return sum;
}

/* The row or column of x that entry r of the window reads for row i of y, or -1. */
__device__ int64_t by__conv_source(const by__cuda_conv_args &a, int d, int64_t i, int64_t r)
{
    int64_t stride = d == 0 ? a.stride_h : a.stride_w;
    int64_t before = d == 0 ? a.before_h : a.before_w;
    int64_t offset = r * (d == 0 ? a.dilation_h : a.dilation_w);
    int64_t extent = d == 0 ? a.height : a.width;
    int64_t at = a.transposed != 0 ? i + before - offset : i * stride + offset - before;
    if (a.transposed != 0) {
        at = at >= 0 && at % stride == 0 ? at / stride : -1;
    }
    return at < extent ? at : -1;
}

BY__KERNEL(conv, 256)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= a.count) {
        return;
    }
    int64_t channel = e % (a.groups * a.outer);
    int64_t pixel = e / (a.groups * a.outer);
    int64_t j = pixel % a.to_width;
    int64_t i = pixel / a.to_width % a.to_height;
    int64_t image = pixel / a.to_width / a.to_height;
    int64_t group = channel / a.outer;
    int64_t taps = a.size_h * a.size_w;
    /* Weights are [O, channels / groups, taps], and x has the O channels if transposed. */
    int64_t first = a.transposed != 0 ? (group * a.inner * a.outer + channel % a.outer) * taps
                                      : channel * a.inner * taps;
    int64_t step = a.transposed != 0 ? a.outer * taps : taps;
    float sum = 0.0f;
    for (int64_t r = 0; r < a.size_h; r++) {
        int64_t row = by__conv_source(a, 0, i, r);
        for (int64_t s = 0; s < a.size_w && row >= 0; s++) {
            int64_t column = by__conv_source(a, 1, j, s);
            if (column >= 0) {
                int64_t at = ((image * a.height + row) * a.width + column) * a.groups * a.inner;
                sum =
                    by__conv_channels(a, sum, at + group * a.inner, first + r * a.size_w + s, step);
            }
        }
    }
    if (a.bias != nullptr) {
        sum += by__get(a.bias, a.bias_dtype, channel);
    }
    if (a.add != nullptr) {
        sum += by__get(a.add, a.to, e);
    }
    by__put(a.y, a.to, e, sum);
}

BY__KERNEL(conv_weight_grad, 256)
{
    by__team team = by__row_team(a.wide != 0);
    if (team.row >= a.rows) {
        return;
    }
    int64_t s = team.row % a.size_w;
    int64_t r = team.row / a.size_w % a.size_h;
    int64_t c = team.row / a.size_w / a.size_h % a.inner;
    int64_t o = team.row / a.size_w / a.size_h / a.inner;
    int64_t channel = o / a.outer * a.inner + c;
    int64_t channels = a.groups * a.inner;
    float sum = 0.0f;
    for (int64_t p = team.lane; p < a.pixels; p += team.lanes) {
        int64_t j = p % a.to_width;
        int64_t i = p / a.to_width % a.to_height;
        int64_t image = p / a.to_width / a.to_height;
        int64_t row = i * a.stride_h + r * a.dilation_h - a.before_h;
        int64_t column = j * a.stride_w + s * a.dilation_w - a.before_w;
        if (row >= 0 && row < a.height && column >= 0 && column < a.width) {
            int64_t at = (image * a.height + row) * a.width + column;
            sum = by__fma(by__get(a.x, a.dtype, at * channels + channel),
                          by__get(a.dy, a.dtype, p * a.groups * a.outer + o), sum);
        }
    }
    sum = by__team_sum(team, sum);
    if (team.lane == 0) {
        by__put(a.dw, a.to, team.row, sum);
    }
}
