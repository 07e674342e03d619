/* Channels-last images in another size: a thread makes an element of the result from the entries
 * that it lies between, or of the gradient from the entries that it is part of, in order. */
#include "prelude.cuh"

/* Entries of an axis that an entry of the larger one is made of, and the share of the second. */
struct by__entry_mix {
    int64_t first;
    int64_t second;
    float share;
};

/* Places are (i + 1/2) from / to - 1/2, which is a fraction over 2 to: it is cut exactly. */
__device__ by__entry_mix by__mix_of(int64_t from, int64_t to, bool linear, int64_t i)
{
    if (!linear) {
        return {i * from / to, 0, 0.0f};
    }
    int64_t place = (2 * i + 1) * from - to;
    int64_t last = 2 * to * (from - 1);
    place = place < 0 ? 0 : place > last ? last : place;
    int64_t first = place / (2 * to);
    return {first, first + 1 < from ? first + 1 : first,
            (float)(place - first * 2 * to) / (float)(2 * to)};
}

__device__ float by__mixed(float first, float second, float share)
{
    return share > 0.0f ? by__fma(second, share, first * (1.0f - share)) : first;
}

BY__KERNEL(upsample, 256)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= a.count) {
        return;
    }
    int64_t channel = e % a.channels;
    int64_t pixel = e / a.channels;
    by__entry_mix columns = by__mix_of(a.width, a.to_width, a.linear != 0, pixel % a.to_width);
    by__entry_mix rows =
        by__mix_of(a.height, a.to_height, a.linear != 0, pixel / a.to_width % a.to_height);
    int64_t top = pixel / a.to_width / a.to_height * a.height + rows.first;
    int64_t below = top - rows.first + rows.second;
    int64_t left = columns.first * a.channels + channel;
    int64_t right = columns.second * a.channels + channel;
    int64_t line = a.width * a.channels;
    float value = by__get(a.from, a.dtype, top * line + left);
    if (columns.share > 0.0f) {
        value = by__mixed(value, by__get(a.from, a.dtype, top * line + right), columns.share);
    }
    if (rows.share > 0.0f) {
        float other = by__get(a.from, a.dtype, below * line + left);
        if (columns.share > 0.0f) {
            other = by__mixed(other, by__get(a.from, a.dtype, below * line + right), columns.share);
        }
        value = by__mixed(value, other, rows.share);
    }
    by__put(a.to, a.dtype, e, value);
}

/* Entries first .. end - 1 of the larger axis, among which are all that entry i is part of. */
struct by__reach {
    int64_t first;
    int64_t end;
};

__device__ by__reach by__reach_of(int64_t from, int64_t to, int64_t i)
{
    int64_t first = (i - 1) * to / from - 1;
    int64_t end = (i + 2) * to / from + 2;
    return {first < 0 ? 0 : first, end < to ? end : to};
}

/* The share of `entry` in entry i of the larger axis: the nearer, the larger. */
__device__ float by__share_of(int64_t from, int64_t to, bool linear, int64_t i, int64_t entry)
{
    if (!linear) {
        return entry * to <= i * from && i * from < (entry + 1) * to ? 1.0f : 0.0f;
    }
    int64_t place = (2 * i + 1) * from - to;
    int64_t last = 2 * to * (from - 1);
    place = place < 0 ? 0 : place > last ? last : place;
    int64_t way = place - 2 * to * entry;
    way = way < 0 ? -way : way;
    return way < 2 * to ? (float)(2 * to - way) / (float)(2 * to) : 0.0f;
}

BY__KERNEL(upsample_grad, 256)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= a.count) {
        return;
    }
    int64_t channel = e % a.channels;
    int64_t pixel = e / a.channels;
    int64_t column = pixel % a.width;
    int64_t row = pixel / a.width % a.height;
    int64_t image = pixel / a.width / a.height;
    by__reach rows = by__reach_of(a.height, a.to_height, row);
    by__reach columns = by__reach_of(a.width, a.to_width, column);
    float sum = 0.0f;
    for (int64_t i = rows.first; i < rows.end; i++) {
        float down = by__share_of(a.height, a.to_height, a.linear != 0, i, row);
        for (int64_t j = columns.first; j < columns.end && down > 0.0f; j++) {
            float across = by__share_of(a.width, a.to_width, a.linear != 0, j, column);
            if (across > 0.0f) {
                int64_t at = ((image * a.to_height + i) * a.to_width + j) * a.channels + channel;
                sum = by__fma(by__get(a.from, a.dtype, at), down * across, sum);
            }
        }
    }
    by__put(a.to, a.dtype, e, sum);
}
