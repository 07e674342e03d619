/* MAP: an interpreter. The instructions are parameters, so all threads read them from the constant
 * bank at once; values are in shared memory, where a thread's four are one access of 16 bytes. */
#include "functions.cuh"

struct by__four {
    float v[BY__CUDA_MAP_EACH];
};

/* The kinds of by_map_kind. */
enum {
    BY__MAP_CONSTANT,
    BY__MAP_SCALAR,
    BY__MAP_ADD,
    BY__MAP_SUB,
    BY__MAP_MUL,
    BY__MAP_DIV,
    BY__MAP_MIN,
    BY__MAP_MAX,
    BY__MAP_LESS,
    BY__MAP_SELECT,
    BY__MAP_NEGATE,
    BY__MAP_ABS,
    BY__MAP_SIGN,
    BY__MAP_SQUARE,
    BY__MAP_SQRT,
    BY__MAP_RSQRT,
    BY__MAP_FINITE,
    BY__MAP_FUNCTION
};

#define BY__MAP_EACH_OF(expression)                                                                \
    for (int k = 0; k < BY__CUDA_MAP_EACH; k++) {                                                  \
        y[k] = (expression);                                                                       \
    }                                                                                              \
    break

/* y = op of the elements x, b, c. */
__device__ void by__map_step(int op, int function, float *y, const float *x, const float *b,
                             const float *c)
{
    switch (op) {
    case BY__MAP_ADD:
        BY__MAP_EACH_OF(x[k] + b[k]);
    case BY__MAP_SUB:
        BY__MAP_EACH_OF(x[k] - b[k]);
    case BY__MAP_MUL:
        BY__MAP_EACH_OF(x[k] * b[k]);
    case BY__MAP_DIV:
        BY__MAP_EACH_OF(x[k] / b[k]);
    case BY__MAP_MIN:
        BY__MAP_EACH_OF(x[k] < b[k] ? x[k] : b[k]);
    case BY__MAP_MAX:
        BY__MAP_EACH_OF(x[k] > b[k] ? x[k] : b[k]);
    case BY__MAP_LESS:
        BY__MAP_EACH_OF(x[k] < b[k] ? 1.0f : 0.0f);
    case BY__MAP_SELECT:
        BY__MAP_EACH_OF(x[k] != 0.0f ? b[k] : c[k]);
    case BY__MAP_NEGATE:
        BY__MAP_EACH_OF(-x[k]);
    case BY__MAP_ABS:
        BY__MAP_EACH_OF(by__magnitude(x[k]));
    case BY__MAP_SIGN:
        BY__MAP_EACH_OF(x[k] > 0.0f ? 1.0f : x[k] < 0.0f ? -1.0f : 0.0f);
    case BY__MAP_SQUARE:
        BY__MAP_EACH_OF(x[k] * x[k]);
    case BY__MAP_SQRT:
        BY__MAP_EACH_OF(by__root(x[k]));
    case BY__MAP_RSQRT:
        BY__MAP_EACH_OF(1.0f / by__root(x[k]));
    case BY__MAP_FINITE:
        BY__MAP_EACH_OF(by__is_finite(x[k]) ? 1.0f : 0.0f);
    default:
        BY__MAP_EACH_OF(by__function(function, x[k]));
    }
}

/* The value of a slot or uniform. */
__device__ by__four by__map_value(const float *slots, const float *uniforms, int operand)
{
    by__four r;
    if (operand >= BY__CUDA_MAP_UNIFORM) {
        float u = uniforms[operand - BY__CUDA_MAP_UNIFORM];
        for (int k = 0; k < BY__CUDA_MAP_EACH; k++) {
            r.v[k] = u;
        }
        return r;
    }
    by__words w = by__load16(slots + ((int64_t)operand * blockDim.x + threadIdx.x) * 4);
    for (int k = 0; k < BY__CUDA_MAP_EACH; k++) {
        r.v[k] = by__float(w.w[k]);
    }
    return r;
}

__device__ void by__map_keep(float *slots, int to, const by__four &value)
{
    by__words w;
    for (int k = 0; k < BY__CUDA_MAP_EACH; k++) {
        w.w[k] = by__bits(value.v[k]);
    }
    by__store16(slots + ((int64_t)to * blockDim.x + threadIdx.x) * 4, w);
}

__device__ uint16_t by__round_random(float x, uint32_t bits)
{
    uint32_t u = by__bits(x);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? u >> 16 | 0x40u : (u + bits) >> 16);
}

/* The half of the Philox word of element e that update word `word` rounds with. */
__device__ uint32_t by__map_random(const by__cuda_map_args &a, uint32_t count, int64_t e, int word)
{
    uint64_t element = (uint64_t)(a.first + e);
    by__random bits =
        by__philox(a.key[0], a.key[1], (uint32_t)element, (uint32_t)(element >> 32), count, 0);
    int which = word % 4;
    uint32_t u = which == 0   ? bits.w[0]
                 : which == 1 ? bits.w[1]
                 : which == 2 ? bits.w[2]
                              : bits.w[3];
    return u >> (word / 4 * 16) & 0xffffu;
}

/* Instruction n, which is read as a whole. */
__device__ by__cuda_map_code by__map_code(const by__cuda_map_args &a, int n)
{
    uint64_t w = ((const uint64_t *)(const void *)a.code)[n];
    return {(uint8_t)w,
            (uint8_t)(w >> 8),
            (uint8_t)(w >> 16),
            (uint8_t)(w >> 24),
            (uint8_t)(w >> 32),
            (uint8_t)(w >> 40),
            {0, 0}};
}

BY__KERNEL(map, 256)
{
    __shared__ float uniforms[BY__CUDA_MAP_UNIFORMS];
    float *slots = (float *)by__dynamic_shared();
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * BY__CUDA_MAP_EACH;
    for (int u = (int)threadIdx.x; u < a.uniforms; u += (int)blockDim.x) {
        uniforms[u] = a.scalar[u] == nullptr ? a.uniform[u] : *a.scalar[u];
    }
    __syncthreads();
    uint32_t count = a.step == nullptr ? 0u : (uint32_t)(int32_t)*a.step;
    for (int n = 0; n < a.codes; n++) {
        if (n == a.tiles) { /* what is uniform has been computed, by the first thread */
            __syncthreads();
            if (i >= a.count) {
                return;
            }
        }
        if (n < a.tiles && threadIdx.x != 0) {
            continue;
        }
        by__cuda_map_code code = by__map_code(a, n);
        if (code.op == BY__CUDA_MAP_LOAD) {
            by__four loaded;
            by__get_few(loaded.v, a.tensor[code.a], a.dtype[code.a], i, a.count);
            by__map_keep(slots, code.to, loaded);
            continue;
        }
        by__four x = by__map_value(slots, uniforms, code.a);
        if (code.op == BY__CUDA_MAP_STORE) {
            by__put_few(a.tensor[code.to], a.dtype[code.to], i, a.count, x.v);
            continue;
        }
        if (code.op == BY__CUDA_MAP_STORE_RANDOM) {
#pragma unroll
            for (int k = 0; k < BY__CUDA_MAP_EACH; k++) {
                if (i + k < a.count) {
                    ((uint16_t *)a.tensor[code.to])[i + k] =
                        by__round_random(x.v[k], by__map_random(a, count, i + k, code.b));
                }
            }
            continue;
        }
        by__four b = by__map_value(slots, uniforms, code.b);
        by__four c = by__map_value(slots, uniforms, code.c);
        by__four y;
        by__map_step(code.op, code.function, y.v, x.v, b.v, c.v);
        if (n < a.tiles) {
            uniforms[code.to - BY__CUDA_MAP_UNIFORM] = y.v[0];
        } else {
            by__map_keep(slots, code.to, y);
        }
    }
}
