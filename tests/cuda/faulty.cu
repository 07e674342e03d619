/* Kernels with a fault each, and correct ones beside them: what the emulator must find and what it
 * must not. `fault` chooses. */
#include "functions.cuh"

#include "cuda/faulty.h"

#define FAULTY(name) extern "C" void BY__KERNEL_SYMBOL(BY_EMULATED, name)(const void *args)
#define ARGS()       const faulty_args a = faulty_args_of(args)

/* Not looked at: a launch copies its parameters. */
EMULATED faulty_args faulty_args_of(const void *args)
{
    return *(const faulty_args *)args;
}

/* A sum over a block by way of shared memory. */
FAULTY(faulty_sum)
{
    ARGS();
    __shared__ float of_warp[8];
    int t = (int)threadIdx.x;
    float v = a.fault == FAULT_BOUND && t == 255 ? a.x[blockIdx.x * 256 + 4096]
                                                 : a.x[blockIdx.x * 256 + threadIdx.x];
    v = by__warp_sum(v);
    if (t % 32 == 0 && !(a.fault == FAULT_UNWRITTEN && t == 96)) {
        of_warp[t / 32] = v;
    }
    if (a.fault == FAULT_DIVERGENT && t >= 40) {
        return;
    }
    if (a.fault == FAULT_TWO_BARRIERS) { /* at the same time, but not at the same place */
        if (t < 128) {
            v = by__block_sum(v);
        } else {
            __syncthreads();
            v += 1.0f;
            __syncthreads();
        }
        a.y[blockIdx.x * 256 + t] = v;
    } else if (a.fault != FAULT_NO_BARRIER) {
        __syncthreads();
    }
    float sum = 0.0f;
    for (int w = 0; w < 8; w++) {
        sum += of_warp[w];
    }
    if (a.fault != FAULT_REUSED) {
        __syncthreads();
    }
    if (t % 32 == 0) {
        of_warp[t / 32] = sum; /* used again */
    }
    __syncthreads();
    if (a.fault == FAULT_ALL_WRITE || t == 0) {
        a.y[blockIdx.x] = of_warp[0] + (a.fault == FAULT_ALL_WRITE ? (float)t : 0.0f);
    }
}

/* Blocks that hand values to each other, which only launches may. */
FAULTY(faulty_blocks)
{
    ARGS();
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (a.fault == FAULT_OTHER_BLOCK) {
        a.y[i] = a.x[i];
        __syncthreads();
        int64_t n = (int64_t)gridDim.x * 256;
        a.z[i] = a.y[(i + 256) % n];
    } else if (a.fault == FAULT_BLOCKS_WRITE) {
        a.z[threadIdx.x] = a.x[i];
    } else if (a.fault == FAULT_ATOMIC) {
        atomicAdd(&a.z[0], a.x[i]);
    } else if (a.fault == FAULT_MISALIGNED) {
        if (threadIdx.x == 0 && blockIdx.x == 0) {
            by__store16(a.z, by__load16(a.x + 1));
        }
    } else if (a.fault == FAULT_HOST) {
        a.z[i] = a.host[threadIdx.x % 4];
    } else if (a.fault == FAULT_PAST_END) {
        a.z[i + 1] = a.x[i];
    } else {
        a.z[i] = a.x[i];
    }
}

/* Neighbouring halves in a word are no race. */
FAULTY(faulty_halves)
{
    ARGS();
    uint16_t *y = (uint16_t *)a.y;
    y[threadIdx.x] = by__to_bf16(a.x[threadIdx.x]);
    __syncthreads();
    a.z[threadIdx.x] = by__from_bf16(y[255 - threadIdx.x]);
}

/* Lanes of a warp. */
FAULTY(faulty_lanes)
{
    ARGS();
    __shared__ float of_lane[256];
    unsigned t = threadIdx.x;
    of_lane[t] = a.x[t];
    if (a.fault != FAULT_NO_WARP_BARRIER) {
        __syncwarp();
    }
    float v = of_lane[t ^ (a.fault == FAULT_OTHER_WARP ? 32u : 1u)];
    if (a.fault == FAULT_SHUFFLE_LANE) {
        v = by__shuffle(v, by__lane() + 1);
    } else if (a.fault == FAULT_HALF_SHUFFLES) {
        if (by__lane() < 16) {
            v = by__shuffle(v, 0);
        }
    } else {
        v = by__shuffle(v, by__lane() ^ 1);
    }
    a.z[t] = v;
}

/* A pipeline of copies to two places in shared memory. */
FAULTY(faulty_copies)
{
    ARGS();
    __shared__ __align__(16) float tile[2][1024];
    unsigned t = threadIdx.x;
    float sum = 0.0f;
    int stages = 4;
    by__copy_async(&tile[0][4 * t], a.x + 4 * t, 16);
    by__copy_commit();
    for (int s = 0; s < stages; s++) {
        int ahead = a.fault == FAULT_SAME_STAGE ? s % 2 : (s + 1) % 2;
        if (s + 1 < stages) {
            by__copy_async(&tile[ahead][4 * t], a.x + 1024 * (s + 1) + 4 * t,
                           a.fault == FAULT_SHORT_COPY ? 8 : 16);
        }
        by__copy_commit();
        if (a.fault == FAULT_WAIT_COUNT) {
            by__copy_wait<2>();
        } else if (a.fault == FAULT_BARRIER_BEFORE_WAIT) {
            __syncthreads();
            by__copy_wait<1>();
        } else {
            by__copy_wait<1>();
        }
        if (a.fault != FAULT_BARRIER_BEFORE_WAIT) {
            __syncthreads();
        }
        sum += tile[s % 2][(4 * t + 37) % 1024];
        if (a.fault != FAULT_NO_BARRIER_BEHIND) {
            __syncthreads();
        }
    }
    if (a.fault == FAULT_NEVER_WAITED) {
        by__copy_async(&tile[0][4 * t], a.x, 16);
    }
    a.z[t] = sum;
}

/* y [16][8] = A [16][16] B [16][8] in bf16, fragments by ldmatrix. */
FAULTY(faulty_product)
{
    ARGS();
    __shared__ __align__(16) uint16_t x[16][24];
    __shared__ __align__(16) uint16_t w[16][16];
    unsigned lane = by__lane();
    for (unsigned i = lane; i < 256; i += 32) {
        x[i / 16][i % 16] = by__to_bf16(a.x[i]);
        w[i / 16][i % 16] = i % 16 < 8 ? by__to_bf16(a.x[256 + i / 16 * 8 + i % 16]) : (uint16_t)0;
    }
    if (a.fault != FAULT_NO_WARP_BARRIER) {
        __syncwarp();
    }
    uint32_t of_x[4];
    uint32_t of_w[4];
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    unsigned edge = a.fault == FAULT_TILE_EDGE ? 8 : 0; /* into the padding */
    by__ldmatrix(of_x, &x[lane % 16][lane / 16 * 8 + edge]);
    by__ldmatrix_transposed(of_w, &w[lane % 16][lane / 16 * 8]);
    by__mma_bf16(d, of_x, of_w);
    for (unsigned c = 0; c < 4; c++) {
        a.z[(lane / 4 + c / 2 * 8) * 8 + lane % 4 * 2 + c % 2] = d[c];
    }
}

/* Numbers of things, which integers may count in any order. */
FAULTY(faulty_counts)
{
    ARGS();
    int *count = (int *)a.z;
    by__atomic_add(&count[threadIdx.x % 4], 1);
    if (a.fault == FAULT_PLAIN_COUNT && threadIdx.x == 7) {
        count[1] = 5;
    }
}
