/* The soft Dice loss (Milletari et al. 2016) of samples of rows of logits: probabilities are made
 * again where they are needed, from two numbers of each row. */
#include "functions.cuh"

__device__ float by__dice_inverse(const by__team &team, const void *x, int dtype, int64_t at,
                                  int64_t classes, float largest)
{
    float sum = 0.0f;
    for (int64_t c = team.lane; c < classes; c += team.lanes) {
        sum += by__exp(by__get(x, dtype, at + c) - largest);
    }
    return 1.0f / by__team_sum(team, sum);
}

BY__KERNEL(dice_rows, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.classes;
    if (team.row >= a.all_rows) {
        return;
    }
    float largest = by__row_largest(team, a.logits, a.dtype, at, a.classes);
    float inverse = by__dice_inverse(team, a.logits, a.dtype, at, a.classes, largest);
    if (team.lane == 0) {
        a.largest[team.row] = largest;
        a.inverse[team.row] = inverse;
    }
}

BY__KERNEL(dice_sums, 256)
{
    int64_t sample = (int64_t)blockIdx.x / a.classes;
    int64_t c = (int64_t)blockIdx.x % a.classes;
    float own = 0.0f;
    float all = 0.0f;
    float targets = 0.0f;
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) {
        int64_t row = sample * a.rows + i;
        int64_t target = a.targets[row];
        if (target >= 0 && target < a.classes) {
            float logit = by__get(a.logits, a.dtype, row * a.classes + c);
            float p = by__exp(logit - a.largest[row]) * a.inverse[row];
            own += target == c ? p : 0.0f;
            all += p;
            targets += target == c ? 1.0f : 0.0f;
        }
    }
    own = by__block_sum(own);
    all = by__block_sum(all);
    targets = by__block_sum(targets);
    if (threadIdx.x == 0) {
        float *sums = a.sums + sample * 3 * a.classes + c;
        sums[0] = own;
        sums[a.classes] = all;
        sums[2 * a.classes] = targets;
    }
}

/* A thread has some of the pairs of sample and class. */
BY__KERNEL(dice, 256)
{
    float loss = 0.0f;
    for (int64_t i = threadIdx.x; i < a.samples * a.classes; i += blockDim.x) {
        const float *sums = a.sums + i / a.classes * 3 * a.classes;
        int64_t c = i % a.classes;
        float count = 0.0f;
        for (int64_t k = 0; k < a.classes; k++) {
            count += sums[2 * a.classes + k];
        }
        float both = sums[a.classes + c] + sums[2 * a.classes + c] + a.eps;
        loss += count / (float)a.classes * (1.0f - (2.0f * sums[c] + a.eps) / both);
    }
    loss = by__block_sum(loss);
    if (threadIdx.x == 0) {
        a.loss[0] = loss;
    }
}

/* dp of a class, but for the factor of all classes: see run_dice_grad of the reference. */
__device__ float by__dice_slope(const float *sums, int64_t classes, int64_t c, int64_t target,
                                float eps)
{
    float both = sums[classes + c] + sums[2 * classes + c] + eps;
    float dp = (2.0f * sums[c] + eps) / both / both;
    return c == target ? dp - 2.0f / both : dp;
}

BY__KERNEL(dice_grad, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.classes;
    if (team.row >= a.all_rows) {
        return;
    }
    const float *sums = a.sums + team.row / a.rows * 3 * a.classes;
    int64_t target = a.targets[team.row];
    bool counts = target >= 0 && target < a.classes;
    float count = 0.0f;
    for (int64_t c = team.lane; c < a.classes; c += team.lanes) {
        count += sums[2 * a.classes + c];
    }
    float share = a.dloss[0] * by__team_sum(team, count) / (float)a.classes;
    float largest = by__row_largest(team, a.logits, a.dtype, at, a.classes);
    float inverse = by__dice_inverse(team, a.logits, a.dtype, at, a.classes, largest);
    float mean = 0.0f;
    for (int64_t c = team.lane; c < a.classes; c += team.lanes) {
        float p = by__exp(by__get(a.logits, a.dtype, at + c) - largest) * inverse;
        mean = by__fma(p, by__dice_slope(sums, a.classes, c, target, a.eps), mean);
    }
    mean = by__team_sum(team, mean);
    for (int64_t c = team.lane; c < a.classes; c += team.lanes) {
        float p = by__exp(by__get(a.logits, a.dtype, at + c) - largest) * inverse;
        float dp = by__dice_slope(sums, a.classes, c, target, a.eps);
        by__put(a.dlogits, a.dtype, at + c, counts ? share * p * (dp - mean) : 0.0f);
    }
}
