/* Softmax and the losses of rows; losses of elements. */
#include "functions.cuh"

__device__ float by__row_largest(const by__team &team, const void *x, int dtype, int64_t at,
                                 int64_t columns)
{
    float largest = -BY__INFINITY;
    for (int64_t i = team.lane; i < columns; i += team.lanes) {
        largest = by__at_least(largest, by__get(x, dtype, at + i));
    }
    return by__team_largest(team, largest);
}

/* log(sum(exp(x))) of `columns` elements from `at` on. */
__device__ float by__log_sum_exp(const by__team &team, const void *x, int dtype, int64_t at,
                                 int64_t columns)
{
    float largest = by__row_largest(team, x, dtype, at, columns);
    float sum = 0.0f;
    for (int64_t i = team.lane; i < columns; i += team.lanes) {
        sum += by__exp(by__get(x, dtype, at + i) - largest);
    }
    return largest + by__log(by__team_sum(team, sum));
}

BY__KERNEL(softmax, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.columns;
    if (team.row >= a.rows) {
        return;
    }
    if (a.dy == nullptr && a.logarithm == 0) {
        float largest = by__row_largest(team, a.x, a.dtype, at, a.columns);
        float sum = 0.0f;
        for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
            sum += by__exp(by__get(a.x, a.dtype, at + i) - largest);
        }
        float inverse = 1.0f / by__team_sum(team, sum);
        for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
            by__put(a.y, a.dtype, at + i,
                    by__exp(by__get(a.x, a.dtype, at + i) - largest) * inverse);
        }
        return;
    }
    if (a.dy == nullptr) {
        float lse = by__log_sum_exp(team, a.x, a.dtype, at, a.columns);
        for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
            by__put(a.y, a.dtype, at + i, by__get(a.x, a.dtype, at + i) - lse);
        }
        return;
    }
    float sum = 0.0f;
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        float d = by__get(a.dy, a.dtype, at + i);
        sum += a.logarithm != 0 ? d : d * by__get(a.x, a.dtype, at + i);
    }
    sum = by__team_sum(team, sum);
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        float d = by__get(a.dy, a.dtype, at + i);
        float p = by__get(a.x, a.dtype, at + i);
        by__put(a.y, a.dtype, at + i,
                a.logarithm != 0 ? by__fma(-by__exp(p), sum, d) : p * (d - sum));
    }
}

BY__KERNEL(cross_entropy, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.stride;
    if (team.row >= a.rows) {
        return;
    }
    float lse = a.lse_in == nullptr ? by__log_sum_exp(team, a.x, a.dtype, at, a.columns)
                                    : a.lse_in[team.row];
    int64_t target = a.targets[team.row];
    bool counts = target >= 0 && target < a.classes;
    int64_t own = counts ? target - a.first : -1;
    bool here = own >= 0 && own < a.columns;
    float weight = a.weight == nullptr ? 1.0f : a.weight[team.row];
    if (a.lse != nullptr && team.lane == 0) {
        a.lse[team.row] = lse;
    }
    if (a.loss != nullptr) {
        float mean = 0.0f;
        if (a.smoothing != 0.0f) {
            for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
                mean += by__get(a.x, a.dtype, at + i);
            }
            mean = by__team_sum(team, mean) / (float)a.columns;
        }
        if (team.lane == 0) {
            float logit = here ? by__get(a.x, a.dtype, at + own) : 0.0f;
            float loss = lse - (1.0f - a.smoothing) * logit - a.smoothing * mean;
            a.loss[team.row] = counts ? weight * loss : 0.0f;
        }
    }
    if (a.dx == nullptr) {
        return;
    }
    float dloss = a.dloss[0] * weight;
    int64_t to = team.row * a.dx_stride;
    if (team.wide) {
        __syncthreads(); /* the target's logit has been read, which may be overwritten now */
    } else {
        __syncwarp();
    }
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        float hot = i == own ? 1.0f - a.smoothing : 0.0f;
        float p = by__exp(by__get(a.x, a.dtype, at + i) - lse);
        float slope = p - hot - a.smoothing / (float)a.columns;
        by__put(a.dx, a.dx_dtype, to + i, counts ? slope * dloss : 0.0f);
    }
    for (int64_t i = a.columns + team.lane; i < a.dx_stride; i += team.lanes) {
        by__put(a.dx, a.dx_dtype, to + i, 0.0f);
    }
}

__device__ float by__difference_weight(const by__cuda_difference_args &a, int64_t i)
{
    if (a.weight == nullptr) {
        return 1.0f;
    }
    int64_t row = i / a.columns;
    if (a.integers != 0) {
        return ((const int32_t *)a.weight)[row] >= 0 ? 1.0f : 0.0f;
    }
    return ((const float *)a.weight)[row];
}

BY__KERNEL(difference, 256)
{
    int64_t first = (int64_t)blockIdx.x * BY__CUDA_PARTIAL;
    int64_t last = first + BY__CUDA_PARTIAL < a.count ? first + BY__CUDA_PARTIAL : a.count;
    float dloss = a.dloss == nullptr ? 0.0f : a.dloss[0];
    float sum = 0.0f;
    for (int64_t i = first + threadIdx.x; i < last; i += 256) {
        float d = by__get(a.x, a.dtype, i) - a.t[i];
        float size = by__magnitude(d);
        float weight = by__difference_weight(a, i);
        if (a.dx != nullptr) {
            float slope = a.smooth == 0   ? 2.0f * d
                          : size < a.beta ? d / a.beta
                          : d > 0.0f      ? 1.0f
                          : d < 0.0f      ? -1.0f
                                          : 0.0f;
            by__put(a.dx, a.dtype, i, weight * slope * dloss);
        } else {
            float term = a.smooth == 0   ? d * d
                         : size < a.beta ? d * d / (2.0f * a.beta)
                                         : size - a.beta / 2.0f;
            sum += weight * term;
        }
    }
    if (a.dx != nullptr) {
        return;
    }
    sum = by__block_sum(sum);
    if (threadIdx.x == 0) {
        a.y[blockIdx.x] = sum;
    }
}
