/* emulated: CUDA C++ as C++ for the host, included by prelude.cuh in the place of what NVIDIA's
 * compiler has built in. Each device function is of its file: the plain and the checked build of a
 * kernel share none. */
#ifndef BY_TESTS_CUDA_EMULATED_H
#define BY_TESTS_CUDA_EMULATED_H

#include <stdint.h>
#include <string.h>

#include "cuda/emulated_calls.h"
extern "C" {
#include "cuda/emulator.h"
}

#define __global__
#define __device__      static
#define __forceinline__ inline
#define __shared__      static __attribute__((section("by_shared")))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict

/* Not seen by the checks: what they would look at is the emulator's own. */
#define EMULATED static inline __attribute__((no_sanitize("thread"), unused))
EMULATED emulator_index emulated_thread_index()
{
    return emulator_now->index;
}
EMULATED emulator_index emulated_block_index()
{
    return emulator_here.block;
}
EMULATED emulator_index emulated_block_count()
{
    return emulator_here.blocks;
}
EMULATED emulator_index emulated_thread_count()
{
    return emulator_here.threads;
}
#define threadIdx (emulated_thread_index())
#define blockIdx  (emulated_block_index())
#define gridDim   (emulated_block_count())
#define blockDim  (emulated_thread_count())

#define BY__KERNEL_SYMBOL_(prefix, name) prefix##name
#define BY__KERNEL_SYMBOL(prefix, name)  BY__KERNEL_SYMBOL_(prefix, name)
#define BY__KERNEL(name, ...)                                                                      \
    extern "C" void BY__KERNEL_SYMBOL(BY_EMULATED, name)(const by__cuda_##name##_args a)

EMULATED unsigned char *by__dynamic_shared()
{
    return emulator_here.shared;
}

#define __syncthreads() by_emulated_sync_block()
#define __syncwarp()    by_emulated_sync_warp()

/* ---- numbers ---- */

EMULATED uint32_t by__bits(float f)
{
    return by_emulated_bits(f);
}
EMULATED float by__float(uint32_t bits)
{
    return by_emulated_float(bits);
}
EMULATED float by__fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
EMULATED float by__root(float x)
{
    return __builtin_sqrtf(x);
}
EMULATED float by__at_least(float x, float low)
{
    return __builtin_fmaxf(x, low);
}
EMULATED float by__at_most(float x, float high)
{
    return __builtin_fminf(x, high);
}
EMULATED uint32_t by__high_product(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
EMULATED float by__from_bf16(uint16_t h)
{
    return by_emulated_from_bf16(h);
}
EMULATED uint16_t by__to_bf16(float f)
{
    return by_emulated_to_bf16(f);
}
EMULATED float by__from_f16(uint16_t h)
{
    return by_emulated_from_f16(h);
}
EMULATED uint16_t by__to_f16(float f)
{
    return by_emulated_to_f16(f);
}

EMULATED float by__exp2_rough(float x)
{
    return __builtin_exp2f(x);
}
EMULATED uint32_t by__pack_bf16(float low, float high)
{
    return by_emulated_to_bf16(low) | (uint32_t)by_emulated_to_bf16(high) << 16;
}
EMULATED uint32_t by__pack_f16(float low, float high)
{
    return by_emulated_to_f16(low) | (uint32_t)by_emulated_to_f16(high) << 16;
}

/* ---- memory: the compiler sees an access of 16 bytes only in that of a vector ---- */

typedef uint32_t emulated_vector __attribute__((vector_size(16)));

static inline by__words by__load16(const void *p)
{
    emulated_vector v = *(const emulated_vector *)p;
    return {{v[0], v[1], v[2], v[3]}};
}
static inline void by__store16(void *p, by__words w)
{
    *(emulated_vector *)p = (emulated_vector){w.w[0], w.w[1], w.w[2], w.w[3]};
}
EMULATED void by__copy_async(void *to, const void *from, unsigned bytes)
{
    by_emulated_copy_async(to, from, bytes);
}
EMULATED void by__copy_commit()
{
    by_emulated_copy_commit();
}
template <int PENDING> EMULATED void by__copy_wait()
{
    by_emulated_copy_wait(PENDING);
}
EMULATED int by__atomic_add(int *p, int value)
{
    return by_emulated_atomic_add(p, value);
}
EMULATED float atomicAdd(float *p, float value)
{
    by_emulated_atomic_float();
    return *p += value;
}

/* ---- warps ---- */

#define by__shuffle_bits(value, lane) by_emulated_shuffle(value, lane)
#define by__mma_bf16(d, a, b)         by_emulated_mma(d, a, b, 1)
#define by__mma_f16(d, a, b)          by_emulated_mma(d, a, b, 0)
#define by__ldmatrix(r, p)                                                                         \
    do {                                                                                           \
        by__words row_ = by__load16(p);                                                            \
        by_emulated_ldmatrix(r, row_.w, 0);                                                        \
    } while (0)
#define by__ldmatrix_transposed(r, p)                                                              \
    do {                                                                                           \
        by__words row_ = by__load16(p);                                                            \
        by_emulated_ldmatrix(r, row_.w, 1);                                                        \
    } while (0)

#endif
