/* Softmax and the losses of rows; losses of elements. */
#include "functions.cuh"

/* What the team's threads have written is there for the others. */
__device__ void by__team_sync(const by__team &team)
{
    if (team.wide) {
        __syncthreads();
    } else {
        __syncwarp();
    }
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
    float weight = a.weight == nullptr ? 1.0f : a.weight[team.row];
    bool counts = target >= 0 && target < a.classes && weight != 0.0f;
    int64_t own = counts ? target - a.first : -1;
    bool here = own >= 0 && own < a.columns;
    if (a.lse != nullptr && team.lane == 0) {
        a.lse[team.row] = lse;
    }
    if (a.own != nullptr && team.lane == 0) {
        a.own[team.row] = here ? by__get(a.x, a.dtype, at + own) : 0.0f;
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
    by__team_sync(team); /* the target's logit has been read, which may be overwritten now */
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

BY__KERNEL(combine_losses, 256)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) {
        return;
    }
    float largest = -BY__INFINITY;
    float sum = 0.0f;
    float own = 0.0f;
    for (int64_t i = 0; i < a.slices; i++) {
        largest = by__at_least(largest, a.parts[2 * i * a.rows + row]);
    }
    for (int64_t i = 0; i < a.slices; i++) {
        sum += by__exp(a.parts[2 * i * a.rows + row] - largest);
        own += a.parts[(2 * i + 1) * a.rows + row];
    }
    float lse = largest + by__log(sum);
    int64_t target = a.targets[row];
    float weight = a.weight == nullptr ? 1.0f : a.weight[row];
    bool counts = target >= 0 && target < a.classes && weight != 0.0f;
    a.lse[row] = lse;
    a.loss[row] = counts ? weight * (lse - own) : 0.0f;
}

/* ---- distillation ---- */

/* A student's row: logits z, log-softmax z - lse, and softened by a temperature, z / t - all. */
struct by__student {
    float lse, all, cold; /* cold: 1 / t */
    int64_t own;          /* the target */
};

__device__ by__student by__student_of(const by__team &team, const by__cuda_distill_args &a,
                                      const float *x, int64_t target)
{
    by__student s = {0.0f, 0.0f, 1.0f / a.temperature, target};
    float largest = by__row_largest(team, x, BY__F32, 0, a.columns);
    float sum = 0.0f;
    float soft = 0.0f;
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        sum += by__exp(x[i] - largest);
        soft += by__exp((x[i] - largest) * s.cold);
    }
    s.lse = largest + by__log(by__team_sum(team, sum));
    s.all = by__fma(largest, s.cold, by__log(by__team_sum(team, soft)));
    return s;
}

/* The gradient of a row's loss by logit i, which is z; surplus: the probability that the softened
 * student gives to i beyond the teacher's. */
__device__ float by__distill_slope(const by__cuda_distill_args &a, const by__student &s, int64_t i,
                                   float z, float surplus)
{
    float hard = by__exp(z - s.lse) - (i == s.own ? 1.0f : 0.0f);
    return a.share * a.temperature * surplus + (1.0f - a.share) * hard;
}

/* The divergence from a teacher's logits; with gradients, these too. */
__device__ float by__distill_live(const by__team &team, const by__cuda_distill_args &a,
                                  const by__student &s, float *x, float dloss)
{
    const float *t = a.teacher + team.row * a.stride;
    float largest = by__row_largest(team, t, BY__F32, 0, a.columns);
    float sum = 0.0f;
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        sum += by__exp((t[i] - largest) * s.cold);
    }
    float all = by__fma(largest, s.cold, by__log(by__team_sum(team, sum)));
    float divergence = 0.0f;
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        float z = x[i];
        float theirs = by__fma(t[i], s.cold, -all);
        float ours = by__fma(z, s.cold, -s.all);
        float q = by__exp(theirs);
        divergence += q * (theirs - ours);
        if (a.dx != nullptr) {
            float slope = by__distill_slope(a, s, i, z, by__exp(ours) - q);
            by__put(a.dx, a.dx_dtype, team.row * a.stride + i, slope * dloss);
        }
    }
    return by__team_sum(team, divergence);
}

/* The same for given probabilities of some tokens. The student's logits of these are kept apart, so
 * that what is left in the row are the tokens that count as one event. */
__device__ float by__distill_given(const by__team &team, const by__cuda_distill_args &a,
                                   const by__student &s, float *x, float dloss)
{
    const int32_t *ids = a.ids + team.row * a.known;
    const float *logarithms = a.logarithms + team.row * (a.known + 1);
    float *kept = a.kept + team.row * a.known;
    float mass = 0.0f; /* of the given probabilities */
    float divergence = 0.0f;
    for (int64_t i = team.lane; i < a.known; i += team.lanes) {
        float q = by__exp(logarithms[i]);
        kept[i] = x[ids[i]];
        mass += q;
        divergence += q > 0.0f ? q * (logarithms[i] - by__fma(kept[i], s.cold, -s.all)) : 0.0f;
    }
    mass = by__team_sum(team, mass);
    divergence = by__team_sum(team, divergence);
    by__team_sync(team);
    for (int64_t i = team.lane; i < a.known; i += team.lanes) {
        x[ids[i]] = -BY__INFINITY;
    }
    by__team_sync(team);
    bool others = a.known < a.columns;
    float rest = others ? by__exp(logarithms[a.known]) : 0.0f;
    float largest = by__row_largest(team, x, BY__F32, 0, a.columns);
    float sum = 0.0f;
    for (int64_t i = team.lane; i < a.columns && rest > 0.0f; i += team.lanes) {
        sum += by__exp((x[i] - largest) * s.cold);
    }
    /* The logarithm of the sum of what the softened student gives to them, over exp(-all). */
    float left = by__fma(largest, s.cold, by__log(by__team_sum(team, sum)));
    mass += rest;
    divergence += rest > 0.0f ? rest * (logarithms[a.known] - (left - s.all)) : 0.0f;
    if (a.dx == nullptr) {
        return divergence;
    }
    int64_t to = team.row * a.stride;
    for (int64_t i = team.lane; i < a.columns; i += team.lanes) {
        float z = x[i];
        float q = rest > 0.0f ? rest * by__exp(by__fma(z, s.cold, -left)) : 0.0f;
        float surplus = mass * by__exp(by__fma(z, s.cold, -s.all)) - q;
        by__put(a.dx, a.dx_dtype, to + i, by__distill_slope(a, s, i, z, surplus) * dloss);
    }
    by__team_sync(team);
    for (int64_t i = team.lane; i < a.known; i += team.lanes) {
        float z = kept[i];
        float surplus = mass * by__exp(by__fma(z, s.cold, -s.all)) - by__exp(logarithms[i]);
        by__put(a.dx, a.dx_dtype, to + ids[i], by__distill_slope(a, s, ids[i], z, surplus) * dloss);
    }
    return divergence;
}

BY__KERNEL(distill, 256)
{
    by__team team = by__row_team(a.wide != 0);
    if (team.row >= a.rows) {
        return;
    }
    float *x = a.x + team.row * a.stride;
    int64_t to = team.row * a.stride;
    int64_t target = a.targets[team.row];
    bool counts = target >= 0 && target < a.columns;
    float loss = 0.0f;
    if (counts) {
        by__student s = by__student_of(team, a, x, target);
        float hard = s.lse - x[target];
        float dloss = a.dloss == nullptr ? 0.0f : a.dloss[0];
        by__team_sync(team); /* the target's logit has been read, which may be overwritten now */
        float divergence = a.teacher != nullptr ? by__distill_live(team, a, s, x, dloss)
                                                : by__distill_given(team, a, s, x, dloss);
        loss = (1.0f - a.share) * hard + a.share * a.temperature * a.temperature * divergence;
    }
    if (a.loss != nullptr && team.lane == 0) {
        a.loss[team.row] = loss;
    }
    if (a.dx == nullptr) {
        return;
    }
    for (int64_t i = (counts ? a.columns : 0) + team.lane; i < a.stride; i += team.lanes) {
        by__put(a.dx, a.dx_dtype, to + i, 0.0f);
    }
}

/* ---- losses of elements ---- */

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
