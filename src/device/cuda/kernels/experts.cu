/* Mixtures of experts: the choice, the order of entries by expert, and moves of rows. */
#include "functions.cuh"

#define BY__LANE_EXPERTS (BY__CUDA_MOST_EXPERTS / 32)

/* Expert e is before f: its logit is larger, or equal with a smaller number; NaN is less than any
 * number. -1: none. */
__device__ bool by__is_before(float x, int e, float y, int f)
{
    if (e < 0 || f < 0) {
        return e >= 0;
    }
    bool x_nan = x != x;
    bool y_nan = y != y;
    if (x_nan || y_nan) {
        return x_nan == y_nan ? e < f : y_nan;
    }
    return x > y || (x == y && e < f);
}

BY__KERNEL(router, 256)
{
    int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.rows) {
        return; /* a whole warp */
    }
    float logit[BY__LANE_EXPERTS];
    bool taken[BY__LANE_EXPERTS];
#pragma unroll
    for (int k = 0; k < BY__LANE_EXPERTS; k++) {
        int64_t e = by__lane() + 32 * k;
        taken[k] = e >= a.experts;
        logit[k] = taken[k] ? 0.0f : a.logits[row * a.experts + e];
    }
    float highest = 0.0f;
    float sum = 0.0f;
    for (int64_t j = 0; j < a.chosen; j++) {
        float best = 0.0f;
        int which = -1;
#pragma unroll
        for (int k = 0; k < BY__LANE_EXPERTS; k++) {
            int e = (int)by__lane() + 32 * k;
            if (!taken[k] && by__is_before(logit[k], e, best, which)) {
                best = logit[k];
                which = e;
            }
        }
#pragma unroll
        for (unsigned distance = 16; distance > 0; distance /= 2) {
            float other = by__shuffle(best, by__lane() ^ distance);
            int its = (int)by__shuffle_bits((uint32_t)which, by__lane() ^ distance);
            if (by__is_before(other, its, best, which)) {
                best = other;
                which = its;
            }
        }
        highest = j == 0 ? best : highest;
        float weight = by__exp(best - highest);
        sum += weight;
#pragma unroll
        for (int k = 0; k < BY__LANE_EXPERTS; k++) {
            taken[k] = taken[k] || (int)by__lane() + 32 * k == which;
        }
        if (by__lane() == 0) {
            a.index[row * a.chosen + j] = which;
            a.weight[row * a.chosen + j] = weight;
        }
    }
    if (by__lane() == 0) {
        for (int64_t j = 0; j < a.chosen; j++) {
            a.weight[row * a.chosen + j] /= sum;
        }
    }
    float all = 0.0f;
#pragma unroll
    for (int k = 0; k < BY__LANE_EXPERTS; k++) {
        all += by__lane() + 32 * k < a.experts ? by__exp(logit[k] - highest) : 0.0f;
    }
    all = by__warp_sum(all);
#pragma unroll
    for (int k = 0; k < BY__LANE_EXPERTS; k++) {
        int64_t e = by__lane() + 32 * k;
        if (e < a.experts) {
            a.softmax[row * a.experts + e] = by__exp(logit[k] - highest) / all;
        }
    }
}

/* With w the softmax of some logits and d the gradients of w: that of a logit is w (d - sum w d).
 * First over all experts, by dmass; then over those chosen, by dweight, which lane 0 adds. */
BY__KERNEL(router_grad, 256)
{
    int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.rows) {
        return; /* a whole warp */
    }
    const float *logits = a.logits + row * a.experts;
    float *dlogits = a.dlogits + row * a.experts;
    float highest = -BY__INFINITY;
    float all = 0.0f;
    float mean = 0.0f;
    for (int64_t e = by__lane(); e < a.experts; e += 32) {
        highest = by__at_least(highest, logits[e]);
    }
    highest = by__warp_largest(highest);
    for (int64_t e = by__lane(); e < a.experts && a.dmass != nullptr; e += 32) {
        float w = by__exp(logits[e] - highest);
        all += w;
        mean = by__fma(w, a.dmass[e], mean);
    }
    all = by__warp_sum(all);
    mean = by__warp_sum(mean);
    for (int64_t e = by__lane(); e < a.experts; e += 32) {
        float w = a.dmass == nullptr ? 0.0f : by__exp(logits[e] - highest) / all;
        dlogits[e] = a.dmass == nullptr ? 0.0f : w * (a.dmass[e] - mean / all);
    }
    __syncwarp();
    if (by__lane() != 0 || a.dweight == nullptr) {
        return;
    }
    const int32_t *index = a.index + row * a.chosen;
    const float *d = a.dweight + row * a.chosen;
    float high = -BY__INFINITY;
    float total = 0.0f;
    float product = 0.0f;
    for (int64_t j = 0; j < a.chosen; j++) {
        bool there = index[j] >= 0 && index[j] < a.experts;
        high = there ? by__at_least(high, logits[index[j]]) : high;
    }
    for (int64_t j = 0; j < a.chosen; j++) {
        if (index[j] >= 0 && index[j] < a.experts) {
            float w = by__exp(logits[index[j]] - high);
            total += w;
            product = by__fma(w, d[j], product);
        }
    }
    for (int64_t j = 0; j < a.chosen; j++) {
        if (index[j] >= 0 && index[j] < a.experts) {
            float w = by__exp(logits[index[j]] - high) / total;
            dlogits[index[j]] += w * (d[j] - product / total);
        }
    }
}

/* ---- GROUP: a block has the entries of one range, in their order ---- */

BY__KERNEL(group_count, 256)
{
    int64_t blocks = a.blocks;
    int64_t each = a.entries / blocks;
    int64_t group = blockIdx.x / (unsigned)blocks;
    int64_t begin = blockIdx.x % (unsigned)blocks * each;
    float found = 0.0f; /* below 2^24: exact */
    for (int64_t i = begin + threadIdx.x; i < begin + each; i += 256) {
        found += a.ids[i] == group ? 1.0f : 0.0f;
    }
    found = by__block_sum(found);
    if (threadIdx.x == 0) {
        if (a.y != nullptr) {
            a.y[blockIdx.x] = found;
        } else {
            a.count[blockIdx.x] = (int32_t)found;
        }
    }
}

BY__KERNEL(group_begin, 256)
{
    if (threadIdx.x != 0) {
        return;
    }
    int64_t begin = 0;
    for (int64_t g = 0; g < a.ranges; g++) {
        int64_t count = a.count[g];
        int64_t from = a.capacity > 0 ? g * a.capacity : begin;
        int64_t kept = a.capacity > 0 && count > a.capacity ? a.capacity : count;
        a.range[2 * g] = (int32_t)from;
        a.range[2 * g + 1] = (int32_t)(from + kept);
        begin += count;
    }
}

BY__KERNEL(group_place, 256)
{
    __shared__ int of_warp[8];
    int64_t blocks = a.blocks;
    int64_t each = a.entries / blocks;
    int64_t group = blockIdx.x / (unsigned)blocks;
    int64_t begin = blockIdx.x % (unsigned)blocks * each;
    int place = a.range[2 * blockIdx.x];
    int end = a.range[2 * blockIdx.x + 1];
    for (int64_t at = begin; at < begin + each; at += 256) {
        int64_t i = at + threadIdx.x;
        int found = i < begin + each && a.ids[i] == group ? 1 : 0;
        int before = found;
#pragma unroll
        for (unsigned distance = 1; distance < 32; distance *= 2) { /* a sum over lower lanes */
            unsigned from = by__lane() < distance ? by__lane() : by__lane() - distance;
            int other = (int)by__shuffle_bits((uint32_t)before, from);
            before += by__lane() < distance ? 0 : other;
        }
        if (by__lane() == 31) {
            of_warp[threadIdx.x / 32] = before;
        }
        __syncthreads();
        int to = place + before - found;
        for (unsigned w = 0; w < 8; w++) {
            to += w < threadIdx.x / 32 ? of_warp[w] : 0;
            place += of_warp[w];
        }
        __syncthreads();
        if (found != 0 && to < end) {
            a.slot[i] = to;
            a.member[to] = (int32_t)i;
        }
    }
}

/* ---- rows ---- */

BY__KERNEL(scatter_rows, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.columns) {
        return;
    }
    int64_t entry = a.member[i / a.columns];
    bool real = entry >= 0 && entry < a.entries;
    float value = 0.0f;
    if (real) {
        float weight = a.weight == nullptr ? 1.0f : a.weight[entry];
        value = weight * by__get(a.x, a.dtype, entry / a.chosen * a.columns + i % a.columns);
    }
    by__put(a.y, a.dtype, i, value);
}

BY__KERNEL(gather_rows, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.columns) {
        return;
    }
    int64_t row = i / a.columns;
    float sum = 0.0f;
    for (int64_t j = row * a.chosen; j < (row + 1) * a.chosen; j++) {
        int64_t slot = a.slot[j];
        if (slot >= 0 && slot < a.slots) {
            float weight = a.weight == nullptr ? 1.0f : a.weight[j];
            sum = by__fma(weight, by__get(a.x, a.dtype, slot * a.columns + i % a.columns), sum);
        }
    }
    by__put(a.y, a.dtype, i, sum);
}

BY__KERNEL(row_dots, 256)
{
    int64_t j = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (j >= a.entries) {
        return; /* a whole warp */
    }
    int64_t slot = a.slot[j];
    float sum = 0.0f;
    if (slot >= 0 && slot < a.slots) {
        for (int64_t i = by__lane(); i < a.columns; i += 32) {
            sum = by__fma(by__get(a.a, a.dtype, j / a.chosen * a.columns + i),
                          by__get(a.b, a.dtype, slot * a.columns + i), sum);
        }
    }
    sum = by__warp_sum(sum);
    if (by__lane() == 0) {
        a.y[j] = sum;
    }
}
