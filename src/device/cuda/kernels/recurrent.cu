/* Recurrent networks: a block goes through the steps of a sample, its threads through the sums of
 * a step, each in the order of the states. What the inputs give all steps is a product made before.
 */
#include "tile.cuh"

BY__KERNEL(recurrent_inputs, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.x * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.y * BY__CUDA_TILE;
    by__add_products(
        sum, tile, a.inner,
        [&](int64_t r, int64_t k) {
            return row + r < a.rows ? by__get(a.x, a.dtype, (row + r) * a.inner + k) : 0.0f;
        },
        [&](int64_t k, int64_t c) {
            return column + c < a.sums ? by__get(a.w, a.dtype, (column + c) * a.inner + k) : 0.0f;
        });
    int64_t j = column + by__lane();
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int64_t i = row + threadIdx.x / 32 * 4 + r;
        if (i < a.rows && j < a.sums) {
            a.y[i * a.stride + j] = sum[r] + a.b[j];
        }
    }
}

/* sums = u state + a. */
__device__ inline void by__sum_states(float *sums, const by__cuda_recurrent_args &a,
                                      const float *state, int64_t count)
{
    for (int64_t i = threadIdx.x; i < count; i += BY__CUDA_BLOCK) {
        float sum = a.a[i];
        for (int64_t k = 0; k < a.width; k++) {
            sum = by__fma(by__get(a.u, a.dtype, k * count + i), state[k], sum);
        }
        sums[i] = sum;
    }
}

/* Both layers: STEP(j, t, gates, sums, before) computes unit j of step t and returns its state. */
template <int SUMS, class STEP>
__device__ __forceinline__ void by__recurrent(const by__cuda_recurrent_args &a, STEP step)
{
    int64_t count = SUMS * a.width;
    float *state = a.state + blockIdx.x * (a.width + count);
    float *sums = state + a.width;
    for (int64_t j = threadIdx.x; j < a.width; j += BY__CUDA_BLOCK) {
        state[j] = 0.0f;
    }
    __syncthreads();
    for (int64_t t = 0; t < a.steps; t++) {
        int64_t at = blockIdx.x * a.steps + t;
        by__sum_states(sums, a, state, count);
        __syncthreads();
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < a.width; j += BY__CUDA_BLOCK) {
            float y = step(j, t, a.gates + at * 4 * a.width + j, sums + j, state[j]);
            state[j] = y;
            by__put(a.y, a.dtype, at * a.width + j, y);
        }
        __syncthreads();
    }
}

BY__KERNEL(lstm, 256, 2)
{
    by__recurrent<4>(a, [&](int64_t j, int64_t t, float *gates, const float *sums, float) {
        float *cell = a.cells + (blockIdx.x * a.steps + t) * a.width + j;
        float i = by__sigmoid(gates[0] + sums[0]);
        float f = by__sigmoid(gates[a.width] + sums[a.width]);
        float g = by__tanh(gates[2 * a.width] + sums[2 * a.width]);
        float o = by__sigmoid(gates[3 * a.width] + sums[3 * a.width]);
        float c = by__fma(f, t == 0 ? 0.0f : cell[-a.width], i * g);
        gates[0] = i;
        gates[a.width] = f;
        gates[2 * a.width] = g;
        gates[3 * a.width] = o;
        *cell = c;
        return o * by__tanh(c);
    });
}

BY__KERNEL(gru, 256)
{
    by__recurrent<3>(a, [&](int64_t, int64_t, float *gates, const float *sums, float before) {
        float q = sums[2 * a.width];
        float r = by__sigmoid(gates[0] + sums[0]);
        float z = by__sigmoid(gates[a.width] + sums[a.width]);
        float n = by__tanh(by__fma(r, q, gates[2 * a.width]));
        gates[0] = r;
        gates[a.width] = z;
        gates[2 * a.width] = n;
        gates[3 * a.width] = q;
        return by__fma(z, before, (1.0f - z) * n);
    });
}

/* Both gradients, from the last step to the first: STEP(j, t, at, dy, carried, sums) has of unit j
 * the gradient of its state without what is carried, and writes those of its SUMS sums. A later
 * step gives the states before it the sum over all its sums, of which a thread adds up those of one
 * gate. */
template <int SUMS, class STEP>
__device__ __forceinline__ void by__recurrent_grad(const by__cuda_recurrent_grad_args &a, STEP step)
{
    int64_t count = SUMS * a.width;
    float *sums = a.state + blockIdx.x * (2 * count + a.width);
    float *parts = sums + count;
    float *carried = parts + count;
    for (int64_t i = threadIdx.x; i < count; i += BY__CUDA_BLOCK) {
        parts[i] = 0.0f;
    }
    for (int64_t j = threadIdx.x; j < a.width; j += BY__CUDA_BLOCK) {
        carried[j] = 0.0f;
    }
    __syncthreads();
    for (int64_t t = a.steps - 1; t >= 0; t--) {
        int64_t at = blockIdx.x * a.steps + t;
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < a.width; j += BY__CUDA_BLOCK) {
            float dy = parts[j];
#pragma unroll
            for (int g = 1; g < SUMS; g++) {
                dy += parts[g * a.width + j];
            }
            dy += by__get(a.dy, a.dtype, at * a.width + j);
            step(j, t, at, dy, carried + j, sums + j);
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count; i += BY__CUDA_BLOCK) {
            int64_t gate = (uint32_t)i / (uint32_t)a.width * a.width;
            float sum = 0.0f;
            for (int64_t j = 0; j < a.width; j++) {
                float u = by__get(a.u, a.dtype, (gate + j) * a.width + i - gate);
                sum = by__fma(u, sums[gate + j], sum);
            }
            parts[i] = sum;
        }
        __syncthreads();
    }
}

BY__KERNEL(lstm_grad, 256)
{
    by__recurrent_grad<4>(
        a, [&](int64_t j, int64_t t, int64_t at, float dy, float *carried, float *sums) {
            const float *gates = a.gates + at * 4 * a.width + j;
            const float *cell = a.cells + at * a.width + j;
            float i = gates[0];
            float f = gates[a.width];
            float g = gates[2 * a.width];
            float o = gates[3 * a.width];
            float c = by__tanh(cell[0]);
            float before = t == 0 ? 0.0f : cell[-a.width];
            float dc = by__fma(dy * o, by__fma(-c, c, 1.0f), *carried);
            *carried = dc * f;
            sums[0] = dc * g * i * (1.0f - i);
            sums[a.width] = dc * before * f * (1.0f - f);
            sums[2 * a.width] = dc * i * by__fma(-g, g, 1.0f);
            sums[3 * a.width] = dy * c * o * (1.0f - o);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                by__put(a.dz, a.dtype, (at * 4 + k) * a.width + j, sums[k * a.width]);
            }
        });
}

BY__KERNEL(gru_grad, 256)
{
    by__recurrent_grad<3>(
        a, [&](int64_t j, int64_t t, int64_t at, float dy, float *carried, float *sums) {
            const float *gates = a.gates + at * 4 * a.width + j;
            float r = gates[0];
            float z = gates[a.width];
            float n = gates[2 * a.width];
            float before = t == 0 ? 0.0f : by__get(a.y, a.dtype, (at - 1) * a.width + j);
            dy += *carried;
            *carried = dy * z;
            float dn = dy * (1.0f - z) * by__fma(-n, n, 1.0f);
            sums[0] = dn * gates[3 * a.width] * r * (1.0f - r);
            sums[a.width] = dy * (before - n) * z * (1.0f - z);
            sums[2 * a.width] = dn * r;
#pragma unroll
            for (int k = 0; k < 3; k++) {
                int64_t to = (at * 3 + k) * a.width + j;
                by__put(a.dz, a.dtype, to, k == 2 ? dn : sums[k * a.width]);
                by__put(a.dq, a.dtype, to, sums[k * a.width]);
            }
        });
}
