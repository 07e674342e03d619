/* 8-bit codes: the moments of AdamW, and activations that are kept. */
#include "functions.cuh"

/* The code whose value is next to x, of ascending values. */
__device__ int by__nearest_code(const float *values, float x)
{
    int low = 0;
    int high = 255;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (values[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return by__magnitude(values[high] - x) < by__magnitude(values[low] - x) ? high : low;
}

/* A block has the elements of one scale, a thread one of them. */
BY__KERNEL(adamw8, 256)
{
    __shared__ float first_values[256];
    __shared__ float second_values[256];
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    bool there = i < a.count;
    float scale = a.scale[0];
    if (!by__is_finite(scale)) {
        return; /* all threads: a step that has failed changes nothing */
    }
    first_values[threadIdx.x] = a.first_values[threadIdx.x];
    second_values[threadIdx.x] = a.second_values[threadIdx.x];
    float m_scale = a.m_scale[blockIdx.x];
    float v_scale = a.v_scale[blockIdx.x];
    __syncthreads();
    float rate = a.hyper[0] * (a.lr_scale == 0.0f ? 1.0f : a.lr_scale);
    float keep = 1.0f - rate * a.decay;
    float step = rate / a.hyper[1];
    float correction = 1.0f / by__root(a.hyper[2]);
    float m = 0.0f;
    float v = 0.0f;
    if (there) {
        float gradient = a.g[i] * scale;
        m = by__fma(first_values[a.m[i]] * m_scale, a.beta1, gradient * a.rest1);
        v = by__fma(second_values[a.v[i]] * v_scale, a.beta2, gradient * gradient * a.rest2);
        float root = by__fma(by__root(v), correction, a.eps);
        float p = by__fma(-step, m / root, a.p[i] * keep);
        a.p[i] = p;
        if (a.copy != nullptr) {
            by__put(a.copy, a.copy_dtype, i, p);
        }
    }
    float m_most = by__block_largest(by__magnitude(m));
    float v_most = by__block_largest(by__magnitude(v));
    if (there) {
        a.m[i] = (uint8_t)by__nearest_code(first_values, m_most > 0.0f ? m / m_most : 0.0f);
        a.v[i] = (uint8_t)by__nearest_code(second_values, v_most > 0.0f ? v / v_most : 0.0f);
    }
    if (threadIdx.x == 0) {
        a.m_scale[blockIdx.x] = m_most;
        a.v_scale[blockIdx.x] = v_most;
    }
}

/* A warp has the elements of one scale, a lane every 32nd of them. */
BY__KERNEL(encode8, 256)
{
    int64_t piece = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (piece >= a.pieces) {
        return; /* a whole warp */
    }
    int64_t row = piece / a.pieces_each;
    int64_t first = piece % a.pieces_each * 128;
    float v[4];
    float largest = 0.0f;
    float strange = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t column = first + by__lane() + 32 * k;
        v[k] = column < a.columns ? by__get(a.x, a.dtype, row * a.columns + column) : 0.0f;
        largest = by__at_least(largest, by__magnitude(v[k]));
        strange += v[k] != v[k] ? 1.0f : 0.0f;
    }
    largest = by__warp_largest(largest);
    largest = by__warp_sum(strange) > 0.0f ? BY__NAN : largest;
    bool zero = largest < a.least;
    float times = zero ? 0.0f : 127.0f / largest;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t column = first + by__lane() + 32 * k;
        float scaled = v[k] * times;
        float nearest = by__is_finite(scaled) ? (scaled + 12582912.0f) - 12582912.0f : 0.0f;
        if (column < a.columns) {
            a.codes[row * a.columns + column] = (uint8_t)(int)(128.0f + nearest);
        }
    }
    if (by__lane() == 0) {
        a.scale[piece] = zero ? 0.0f : largest / 127.0f;
    }
}

BY__KERNEL(decode8, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) {
        int64_t piece = i / a.columns * a.pieces_each + i % a.columns / 128;
        by__put(a.y, a.dtype, i, ((float)a.codes[i] - 128.0f) * a.scale[piece]);
    }
}

/* ---- weights as their codes will be ---- */

/* Of groups of weights, the one of the largest magnitude, of several the first. */
struct by__extreme {
    float value;
    uint32_t at;
    float strange; /* above 0: a weight is not finite */
};

__device__ by__extreme by__extreme_of(by__extreme one, by__extreme other)
{
    float ours = by__magnitude(one.value);
    float theirs = by__magnitude(other.value);
    bool takes = theirs > ours || (theirs == ours && other.at < one.at);
    return {takes ? other.value : one.value, takes ? other.at : one.at,
            one.strange + other.strange};
}

__device__ by__extreme by__with_weight(by__extreme e, float w, int64_t i)
{
    return by__extreme_of(
        e, {by__is_finite(w) ? w : 0.0f, (uint32_t)i, by__is_finite(w) ? 0.0f : 1.0f});
}

/* What a code is multiplied by: of 4 bits, the extreme's is -8 and the scale an f16. */
__device__ float by__code_scale(float extreme, bool wide)
{
    return wide ? by__magnitude(extreme) / 127.0f
                : by__from_f16(by__to_f16(by__within(extreme / -8.0f, 65504.0f)));
}

__device__ float by__as_code(float w, const by__extreme &e, bool wide)
{
    float scale = by__code_scale(e.value, wide);
    float code = scale == 0.0f ? 0.0f : w / scale;
    code = by__at_most(by__at_least(code, wide ? -127.0f : -8.0f), wide ? 127.0f : 7.0f);
    code = (code + 12582912.0f) - 12582912.0f; /* to nearest, ties to even */
    return e.strange > 0.0f ? BY__NAN : code * scale;
}

BY__KERNEL(fake_quantize_rows, 256)
{
    int64_t piece = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (piece >= a.outputs * a.groups) {
        return; /* a whole warp */
    }
    int64_t begin = piece % a.groups * a.group;
    int64_t first = piece / a.groups * a.k + begin;
    int64_t count = a.k - begin < a.group ? a.k - begin : a.group;
    by__extreme e = {0.0f, 0xffffffffu, 0.0f};
    for (int64_t i = by__lane(); i < count; i += 32) {
        e = by__with_weight(e, a.w[first + i], i);
    }
#pragma unroll
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        unsigned lane = by__lane() ^ distance;
        float value = by__shuffle(e.value, lane);
        uint32_t at = by__shuffle_bits(e.at, lane);
        e = by__extreme_of(e, {value, at, by__shuffle(e.strange, lane)});
    }
    for (int64_t i = by__lane(); i < count; i += 32) {
        by__put(a.y, a.dtype, first + i, by__as_code(a.w[first + i], e, a.wide != 0));
    }
}

/* A lane has an output; the eight warps share its inputs. */
BY__KERNEL(fake_quantize_columns, 256)
{
    __shared__ float values[8][32];
    __shared__ uint32_t places[8][32];
    __shared__ float strange[8][32];
    unsigned lane = by__lane();
    unsigned warp = threadIdx.x / 32;
    int64_t j = (int64_t)blockIdx.x * 32 + lane;
    int64_t begin = (int64_t)blockIdx.y * a.group;
    int64_t end = begin + a.group < a.k ? begin + a.group : a.k;
    by__extreme e = {0.0f, 0xffffffffu, 0.0f};
    for (int64_t i = begin + warp; i < end && j < a.outputs; i += 8) {
        e = by__with_weight(e, a.w[i * a.outputs + j], i - begin);
    }
    values[warp][lane] = e.value;
    places[warp][lane] = e.at;
    strange[warp][lane] = e.strange;
    __syncthreads();
    e = {values[0][lane], places[0][lane], strange[0][lane]};
    for (unsigned w = 1; w < 8; w++) {
        e = by__extreme_of(e, {values[w][lane], places[w][lane], strange[w][lane]});
    }
    for (int64_t i = begin + warp; i < end && j < a.outputs; i += 8) {
        by__put(a.y, a.dtype, i * a.outputs + j,
                by__as_code(a.w[i * a.outputs + j], e, a.wide != 0));
    }
}
