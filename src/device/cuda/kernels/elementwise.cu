/* Kernels whose results depend on one element of each operand, and those that move elements. */
#include "functions.cuh"

BY__KERNEL(fill, 256)
{
    int64_t i = by__first_element();
    float v[BY__EACH];
    for (int k = 0; k < BY__EACH; k++) {
        v[k] = a.value;
    }
    if (i < a.count) {
        by__put_some(a.y, a.dtype, i, a.count, v);
    }
}

BY__KERNEL(cast, 256)
{
    int64_t i = by__first_element();
    float v[BY__EACH];
    if (i < a.count) {
        by__get_some(v, a.x, a.from, i, a.count);
        by__put_some(a.y, a.to, i, a.count, v);
    }
}

BY__KERNEL(offset_ids, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) {
        int32_t id = a.x[i];
        a.y[i] = id < 0 ? -1 : (int32_t)(id - a.offset);
    }
}

__device__ float by__combine(int op, float x, float y)
{
    return op == BY__CUDA_ADD ? x + y : op == BY__CUDA_SUB ? x - y : x * y;
}

BY__KERNEL(binary, 256)
{
    int64_t i = by__first_element();
    float x[BY__EACH];
    float y[BY__EACH];
    if (i >= a.count) {
        return;
    }
    by__get_periodic(x, a.a, a.dtype, i, a.count, a.a_period);
    by__get_periodic(y, a.b, a.b_dtype, i, a.count, a.b_period);
    for (int k = 0; k < BY__EACH; k++) {
        x[k] = by__combine(a.op, x[k], y[k]);
    }
    by__put_some(a.y, a.dtype, i, a.count, x);
}

BY__KERNEL(broadcast, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t rest = i;
    int64_t from_a = 0;
    int64_t from_b = 0;
    if (i >= a.count) {
        return;
    }
    for (int axis = a.rank - 1; axis >= 0; axis--) {
        int64_t at = rest % a.extent[axis];
        rest /= a.extent[axis];
        from_a += at * a.a_stride[axis];
        from_b += at * a.b_stride[axis];
    }
    by__put(a.y, a.dtype, i,
            by__combine(a.op, by__get(a.a, a.dtype, from_a), by__get(a.b, a.b_dtype, from_b)));
}

BY__KERNEL(scale, 256)
{
    int64_t i = by__first_element();
    float v[BY__EACH];
    if (i >= a.count) {
        return;
    }
    float s = a.s[0];
    by__get_some(v, a.x, a.dtype, i, a.count);
    for (int k = 0; k < BY__EACH; k++) {
        v[k] *= s;
    }
    by__put_some(a.y, a.dtype, i, a.count, v);
}

BY__KERNEL(unary, 256)
{
    int64_t first = by__first_element();
#pragma unroll 1
    for (int64_t i = first; i < first + BY__EACH && i < a.count; i += BY__FEW) {
        float v[BY__FEW];
        by__get_few(v, a.x, a.dtype, i, a.count);
        if (a.dy == nullptr) {
            for (int k = 0; k < BY__FEW; k++) {
                v[k] = by__function(a.function, v[k]);
            }
        } else {
            float d[BY__FEW];
            by__get_few(d, a.dy, a.dtype, i, a.count);
            for (int k = 0; k < BY__FEW; k++) {
                v[k] = d[k] * by__derivative(a.function, v[k]);
            }
        }
        by__put_few(a.y, a.dtype, i, a.count, v);
    }
}

BY__KERNEL(swiglu, 256)
{
    int64_t first = by__first_element();
#pragma unroll 1
    for (int64_t i = first; i < first + BY__EACH && i < a.count; i += BY__FEW) {
        float gate[BY__FEW];
        float up[BY__FEW];
        by__get_few(gate, a.gate, a.dtype, i, a.count);
        by__get_few(up, a.up, a.dtype, i, a.count);
        if (a.dy == nullptr) {
            for (int k = 0; k < BY__FEW; k++) {
                gate[k] = by__function(BY__SILU, gate[k]) * up[k];
            }
            by__put_few(a.y, a.dtype, i, a.count, gate);
            continue;
        }
        float dy[BY__FEW];
        by__get_few(dy, a.dy, a.dtype, i, a.count);
        for (int k = 0; k < BY__FEW; k++) {
            up[k] = dy[k] * up[k] * by__derivative(BY__SILU, gate[k]);
            gate[k] = dy[k] * by__function(BY__SILU, gate[k]);
        }
        by__put_few(a.dgate, a.dtype, i, a.count, up);
        by__put_few(a.dup, a.dtype, i, a.count, gate);
    }
}

/* The key of a stream of random bits, as by__philox_key makes it. */
__device__ uint64_t by__mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

BY__KERNEL(dropout, 256)
{
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t i = thread * a.each;
    float v[BY__EACH];
    if (i >= a.count) {
        return;
    }
    uint64_t seed = (uint64_t)(uint32_t)a.rng[1] << 32 | (uint32_t)a.rng[0];
    uint64_t key =
        by__mix(by__mix(seed + 0x9E3779B97F4A7C15ull) ^ (a.stream + 0xD1B54A32D192ED03ull));
    uint32_t sample = (uint32_t)a.rng[3] + a.first_sample + (uint32_t)(i / a.size);
    int64_t t = i % a.size;
    if (a.each == BY__EACH) {
        by__get8(v, a.x, a.dtype, i);
    } else {
        v[0] = by__get(a.x, a.dtype, i);
    }
#pragma unroll
    for (int k = 0; k < BY__EACH; k++) {
        if (k < a.each) {
            int64_t place = a.begin + t + k + (t + k >= a.turn ? a.gap : 0);
            uint64_t block = (uint64_t)place / 64 * 16 + (uint64_t)place % 16;
            by__random bits = by__philox((uint32_t)key, (uint32_t)(key >> 32), (uint32_t)block,
                                         (uint32_t)(block >> 32), sample, (uint32_t)a.rng[2]);
            int word = (int)(place % 64 / 16);
            uint32_t u = word == 0   ? bits.w[0]
                         : word == 1 ? bits.w[1]
                         : word == 2 ? bits.w[2]
                                     : bits.w[3];
            v[k] = u >> 8 >= a.threshold ? v[k] * a.scale : 0.0f;
        }
    }
    if (a.each == BY__EACH) {
        by__put8(a.y, a.dtype, i, v);
    } else {
        by__put(a.y, a.dtype, i, v[0]);
    }
}

__device__ void by__copy_element(void *y, int64_t to, const void *x, int64_t from, int bytes)
{
    if (bytes == 4) {
        ((uint32_t *)y)[to] = x == nullptr ? 0u : ((const uint32_t *)x)[from];
    } else if (bytes == 2) {
        ((uint16_t *)y)[to] = x == nullptr ? (uint16_t)0 : ((const uint16_t *)x)[from];
    } else {
        ((uint8_t *)y)[to] = x == nullptr ? (uint8_t)0 : ((const uint8_t *)x)[from];
    }
}

BY__KERNEL(gather, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t rest = i;
    int64_t from = 0;
    if (i >= a.count) {
        return;
    }
    for (int axis = a.rank - 1; axis >= 0; axis--) {
        from += rest % a.extent[axis] * a.stride[axis];
        rest /= a.extent[axis];
    }
    by__copy_element(a.y, i, a.x, from, a.bytes);
}

BY__KERNEL(move, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) {
        int64_t outer = i / a.inner;
        int64_t at = i % a.inner;
        by__copy_element(a.y, outer * a.y_stride + at, a.x, outer * a.x_stride + at, a.bytes);
    }
}
