/* Pools of channels-last images: a thread makes an element of the result from its window, or from
 * the windows that it is in, in order. */
#include "prelude.cuh"

/* Entries first .. end - 1 of an axis. */
struct by__run {
    int64_t first;
    int64_t end;
};

/* The entries, of `extent`, in the window of entry o of the pooled image. */
__device__ by__run by__window(int64_t o, int64_t size, int64_t stride, int64_t before,
                              int64_t extent)
{
    int64_t first = o * stride - before;
    int64_t end = first + size;
    return {first < 0 ? 0 : first, end < extent ? end : extent};
}

/* The entries of the pooled image, of `extent`, whose windows contain entry i. */
__device__ by__run by__windows_with(int64_t i, int64_t size, int64_t stride, int64_t before,
                                    int64_t extent)
{
    int64_t after = i + before - size + 1; /* the first window begins here */
    int64_t end = (i + before) / stride + 1;
    return {after <= 0 ? 0 : (after + stride - 1) / stride, end < extent ? end : extent};
}

/* One through the number of entries that the mean of a window counts. */
__device__ float by__share(const by__cuda_pool_args &a, by__run rows, by__run columns)
{
    int64_t inside = (rows.end - rows.first) * (columns.end - columns.first);
    return 1.0f / (float)(a.keep != 0 ? a.size_h * a.size_w : inside);
}

BY__KERNEL(pool, 256)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= a.count) {
        return;
    }
    int64_t channel = e % a.channels;
    int64_t pixel = e / a.channels;
    int64_t j = pixel % a.to_width;
    int64_t i = pixel / a.to_width % a.to_height;
    int64_t image = pixel / a.to_width / a.to_height;
    by__run rows = by__window(i, a.size_h, a.stride_h, a.before_h, a.height);
    by__run columns = by__window(j, a.size_w, a.stride_w, a.before_w, a.width);
    int64_t top = i * a.stride_h - a.before_h;
    int64_t left = j * a.stride_w - a.before_w;
    int64_t index = (rows.first - top) * a.size_w + columns.first - left;
    float value = a.mean != 0 ? 0.0f : by__float(0xff800000u);
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            int64_t at = ((image * a.height + h) * a.width + w) * a.channels + channel;
            float entry = by__get(a.x, a.dtype, at);
            if (a.mean != 0) {
                value += entry;
            } else if (entry > value || entry != entry) { /* NaN is the largest */
                value = entry;
                index = (h - top) * a.size_w + w - left;
            }
        }
    }
    if (a.mean != 0) {
        value *= by__share(a, rows, columns);
    }
    if (a.index != nullptr) {
        a.index[e] = (int32_t)index;
    } else {
        by__put(a.y, a.dtype, e, value);
    }
}

BY__KERNEL(pool_grad, 256)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= a.count) {
        return;
    }
    int64_t channel = e % a.channels;
    int64_t pixel = e / a.channels;
    int64_t column = pixel % a.to_width;
    int64_t row = pixel / a.to_width % a.to_height;
    int64_t image = pixel / a.to_width / a.to_height;
    by__run rows = by__windows_with(row, a.size_h, a.stride_h, a.before_h, a.height);
    by__run columns = by__windows_with(column, a.size_w, a.stride_w, a.before_w, a.width);
    float sum = 0.0f;
    for (int64_t h = rows.first; h < rows.end; h++) {
        int64_t down = row - (h * a.stride_h - a.before_h);
        for (int64_t w = columns.first; w < columns.end; w++) {
            int64_t at = ((image * a.height + h) * a.width + w) * a.channels + channel;
            float dy = by__get(a.x, a.dtype, at);
            if (a.mean != 0) {
                by__run high = by__window(h, a.size_h, a.stride_h, a.before_h, a.to_height);
                by__run wide = by__window(w, a.size_w, a.stride_w, a.before_w, a.to_width);
                sum = by__fma(dy, by__share(a, high, wide), sum);
            } else {
                int64_t across = column - (w * a.stride_w - a.before_w);
                sum += a.index[at] == down * a.size_w + across ? dy : 0.0f;
            }
        }
    }
    by__put(a.y, a.dtype, e, sum);
}
