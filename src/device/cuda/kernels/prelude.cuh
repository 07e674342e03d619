/* prelude: what kernels are written with: types, conversions, vectors, sums over warps and blocks,
 * and the instructions for matrices and asynchronous copies. Kernels include it, the parameters
 * (device/cuda/kernels.h and layer_kernels.h) and nothing of NVIDIA's; it alone asks who compiles:
 * NVRTC, or a C++ compiler for the emulator of tests/cuda, which defines BY_EMULATED.
 *
 * Rules. Compiled without contraction of products and sums (--fmad=false): by__fma is explicit, so
 * a kernel has the same bits on every GPU and in the emulator. No functions of the library (exp,
 * tanh), whose bits are the compiler's: functions.cuh has our own. The order of a sum follows from
 * shapes. No atomics of floats. No array that is indexed by a variable: it would be in local
 * memory.
 */
#ifndef BY_DEVICE_CUDA_KERNELS_PRELUDE_CUH
#define BY_DEVICE_CUDA_KERNELS_PRELUDE_CUH

/* Four words: what a thread moves at once. */
struct by__words;

#ifdef BY_EMULATED
#include <stdint.h>
struct by__words {
    uint32_t w[4];
};
#include "cuda/emulated.h"
#else

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

struct by__words {
    uint32_t w[4];
};

/* Of at most so many threads a block; then, where the compiler would rather spill registers than
 * use them, how many blocks it has to leave room for. */
#define BY__KERNEL(name, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        by_cuda_##name(const __grid_constant__ by__cuda_##name##_args a)

/* Dynamic shared memory, of which a kernel has one piece. */
__device__ inline unsigned char *by__dynamic_shared()
{
    extern __shared__ __align__(16) unsigned char by__dynamic_memory[];
    return by__dynamic_memory;
}

/* ---- numbers ---- */

__device__ inline uint32_t by__bits(float f)
{
    return __float_as_uint(f);
}
__device__ inline float by__float(uint32_t bits)
{
    return __uint_as_float(bits);
}
__device__ inline float by__fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
__device__ inline float by__root(float x)
{
    return __fsqrt_rn(x);
}
/* The other operand if one is NaN. */
__device__ inline float by__at_least(float x, float low)
{
    return fmaxf(x, low);
}
__device__ inline float by__at_most(float x, float high)
{
    return fminf(x, high);
}
__device__ inline uint32_t by__high_product(uint32_t a, uint32_t b)
{
    return __umulhi(a, b);
}
__device__ inline float by__from_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}
__device__ inline uint16_t by__to_bf16(float f)
{
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
__device__ inline float by__from_f16(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
__device__ inline uint16_t by__to_f16(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

/* 2^x with the processor's approximation, whose bits are its own. */
__device__ inline float by__exp2_rough(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Two halves in a word. */
__device__ inline uint32_t by__pack_bf16(float low, float high)
{
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}
__device__ inline uint32_t by__pack_f16(float low, float high)
{
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}

/* ---- memory ---- */

__device__ inline by__words by__load16(const void *p)
{
    uint4 v = *(const uint4 *)p;
    return {{v.x, v.y, v.z, v.w}};
}
__device__ inline void by__store16(void *p, by__words w)
{
    *(uint4 *)p = make_uint4(w.w[0], w.w[1], w.w[2], w.w[3]);
}
__device__ inline uint32_t by__shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* Copies 16 bytes to shared memory, of which those behind the first `bytes` become zeros. */
__device__ inline void by__copy_async(void *to, const void *from, unsigned bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(by__shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void by__copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most PENDING groups of the thread's copies are under way. */
template <int PENDING> __device__ inline void by__copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ inline int by__atomic_add(int *p, int value)
{
    return atomicAdd(p, value);
}

/* ---- warps ---- */

__device__ inline uint32_t by__shuffle_bits(uint32_t value, unsigned lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}
/* d += a b for a of 16 x 16, b of 16 x 8; the fragments are those of mma.m16n8k16. */
__device__ inline void by__mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void by__mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Four 8 x 8 matrices of halves from shared memory: lane i gives the address of row i % 8 of
 * matrix i / 8. */
__device__ inline void by__ldmatrix(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(by__shared_address(p))
                 : "memory");
}
__device__ inline void by__ldmatrix_transposed(uint32_t r[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(by__shared_address(p))
                 : "memory");
}
#endif

#include "device/cuda/kernels.h"
#include "device/cuda/layer_kernels.h"

/* ---- types of elements, as by_dtype numbers them ---- */

enum { BY__F32, BY__BF16, BY__F16, BY__I32, BY__U8 };

__device__ inline float by__get(const void *p, int dtype, int64_t i)
{
    return dtype == BY__F32    ? ((const float *)p)[i]
           : dtype == BY__BF16 ? by__from_bf16(((const uint16_t *)p)[i])
                               : by__from_f16(((const uint16_t *)p)[i]);
}

__device__ inline void by__put(void *p, int dtype, int64_t i, float value)
{
    if (dtype == BY__F32) {
        ((float *)p)[i] = value;
    } else {
        ((uint16_t *)p)[i] = dtype == BY__BF16 ? by__to_bf16(value) : by__to_f16(value);
    }
}

/* Elements of a thread in kernels that go through tensors. */
#define BY__EACH 8

/* Reads elements i .. i + 7, where i is a multiple of 8 and the tensor begins at one of 16
 * bytes. */
__device__ inline void by__get8(float v[BY__EACH], const void *p, int dtype, int64_t i)
{
    if (dtype == BY__F32) {
        by__words low = by__load16((const float *)p + i);
        by__words high = by__load16((const float *)p + i + 4);
        for (int k = 0; k < 4; k++) {
            v[k] = by__float(low.w[k]);
            v[k + 4] = by__float(high.w[k]);
        }
        return;
    }
    by__words w = by__load16((const uint16_t *)p + i);
    for (int k = 0; k < 4; k++) {
        uint16_t low = (uint16_t)w.w[k];
        uint16_t high = (uint16_t)(w.w[k] >> 16);
        v[2 * k] = dtype == BY__BF16 ? by__from_bf16(low) : by__from_f16(low);
        v[2 * k + 1] = dtype == BY__BF16 ? by__from_bf16(high) : by__from_f16(high);
    }
}

__device__ inline void by__put8(void *p, int dtype, int64_t i, const float v[BY__EACH])
{
    by__words w;
    if (dtype == BY__F32) {
        for (int half = 0; half < 2; half++) {
            for (int k = 0; k < 4; k++) {
                w.w[k] = by__bits(v[4 * half + k]);
            }
            by__store16((float *)p + i + 4 * half, w);
        }
        return;
    }
    for (int k = 0; k < 4; k++) {
        uint32_t low = dtype == BY__BF16 ? by__to_bf16(v[2 * k]) : by__to_f16(v[2 * k]);
        uint32_t high = dtype == BY__BF16 ? by__to_bf16(v[2 * k + 1]) : by__to_f16(v[2 * k + 1]);
        w.w[k] = low | high << 16;
    }
    by__store16((uint16_t *)p + i, w);
}

/* The same for the elements below n; the others become 0, and are not written. */
__device__ inline void by__get_some(float v[BY__EACH], const void *p, int dtype, int64_t i,
                                    int64_t n)
{
    if (i + BY__EACH <= n) {
        by__get8(v, p, dtype, i);
        return;
    }
#pragma unroll
    for (int k = 0; k < BY__EACH; k++) {
        v[k] = i + k < n ? by__get(p, dtype, i + k) : 0.0f;
    }
}

__device__ inline void by__put_some(void *p, int dtype, int64_t i, int64_t n,
                                    const float v[BY__EACH])
{
    if (i + BY__EACH <= n) {
        by__put8(p, dtype, i, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < BY__EACH; k++) {
        if (i + k < n) {
            by__put(p, dtype, i + k, v[k]);
        }
    }
}

/* Elements i .. i + 7 of an operand that repeats. */
__device__ inline void by__get_periodic(float v[BY__EACH], const void *p, int dtype, int64_t i,
                                        int64_t count, int64_t period)
{
    if (period == count) {
        by__get_some(v, p, dtype, i, count);
        return;
    }
    int64_t at = i % period;
    if (period % BY__EACH == 0 && i + BY__EACH <= count) {
        by__get8(v, p, dtype, at);
        return;
    }
#pragma unroll
    for (int k = 0; k < BY__EACH; k++) {
        v[k] = i + k < count ? by__get(p, dtype, at) : 0.0f;
        at = at + 1 == period ? 0 : at + 1;
    }
}

/* Four elements, of which those from n on are 0 and not written: for kernels whose code for one
 * element is long. i is a multiple of 4. */
#define BY__FEW 4

__device__ inline void by__get_few(float v[BY__FEW], const void *p, int dtype, int64_t i, int64_t n)
{
    if (i + BY__FEW <= n && dtype == BY__F32) {
        by__words w = by__load16((const float *)p + i);
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            v[k] = by__float(w.w[k]);
        }
    } else if (i + BY__FEW <= n) {
        uint64_t w = *(const uint64_t *)(const void *)((const uint16_t *)p + i);
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            uint16_t h = (uint16_t)(w >> (16 * k));
            v[k] = dtype == BY__BF16 ? by__from_bf16(h) : by__from_f16(h);
        }
    } else {
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            v[k] = i + k < n ? by__get(p, dtype, i + k) : 0.0f;
        }
    }
}

__device__ inline void by__put_few(void *p, int dtype, int64_t i, int64_t n, const float v[BY__FEW])
{
    if (i + BY__FEW <= n && dtype == BY__F32) {
        by__words w;
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            w.w[k] = by__bits(v[k]);
        }
        by__store16((float *)p + i, w);
    } else if (i + BY__FEW <= n) {
        uint64_t w = 0;
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            uint16_t h = dtype == BY__BF16 ? by__to_bf16(v[k]) : by__to_f16(v[k]);
            w |= (uint64_t)h << (16 * k);
        }
        *(uint64_t *)(void *)((uint16_t *)p + i) = w;
    } else {
#pragma unroll
        for (int k = 0; k < BY__FEW; k++) {
            if (i + k < n) {
                by__put(p, dtype, i + k, v[k]);
            }
        }
    }
}

/* The first of the thread's elements, where block after block has 8 a thread. */
__device__ inline int64_t by__first_element()
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * BY__EACH;
}

/* ---- sums ---- */

__device__ inline float by__shuffle(float value, unsigned lane)
{
    return by__float(by__shuffle_bits(by__bits(value), lane));
}

__device__ inline unsigned by__lane()
{
    return threadIdx.x % 32;
}

/* Of the values of a warp's lanes, to all of them. */
__device__ inline float by__warp_sum(float v)
{
#pragma unroll
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        v += by__shuffle(v, by__lane() ^ distance);
    }
    return v;
}

__device__ inline float by__warp_largest(float v)
{
#pragma unroll
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        v = by__at_least(v, by__shuffle(v, by__lane() ^ distance));
    }
    return v;
}

/* Of a block's threads, in the order of its warps. All threads call it. */
__device__ inline float by__block_sum(float v)
{
    __shared__ float of_warp[32];
    v = by__warp_sum(v);
    if (by__lane() == 0) {
        of_warp[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float sum = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) {
        sum += of_warp[w];
    }
    __syncthreads();
    return sum;
}

__device__ inline float by__block_largest(float v)
{
    __shared__ float of_warp[32];
    v = by__warp_largest(v);
    if (by__lane() == 0) {
        of_warp[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float largest = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) {
        largest = by__at_least(largest, of_warp[w]);
    }
    __syncthreads();
    return largest;
}

/* The threads that share a row: a block if `wide`, else a warp, of which a block has eight. */
struct by__team {
    int64_t row;
    unsigned lane;
    unsigned lanes;
    bool wide;
};

__device__ inline by__team by__row_team(bool wide)
{
    return {wide ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32,
            wide ? threadIdx.x : by__lane(), wide ? blockDim.x : 32u, wide};
}

__device__ inline float by__team_sum(const by__team &team, float v)
{
    return team.wide ? by__block_sum(v) : by__warp_sum(v);
}

__device__ inline float by__team_largest(const by__team &team, float v)
{
    return team.wide ? by__block_largest(v) : by__warp_largest(v);
}

#endif
