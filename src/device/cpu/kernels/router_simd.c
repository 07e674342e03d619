/* ROUTER, ROUTER_GRAD: rows of [R, E] logits, f32, each processed by one thread. Sums over rows
 * consist of blocks of rows determined by the shape, added in order. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

#define BLOCK_ROWS 128

static float exp_of(float x)
{
    return by__exp_of_negative(by__splat(x))[0];
}

static bool is_chosen(const int32_t *index, int64_t count, int64_t expert)
{
    for (int64_t j = 0; j < count; j++) {
        if (index[j] == expert) {
            return true;
        }
    }
    return false;
}

/* Indices of the `chosen` largest elements of x, the first of equal ones; NaN is less than any
 * number. */
static void choose(int32_t *index, const float *x, int64_t experts, int64_t chosen)
{
    for (int64_t j = 0; j < chosen; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++) {
            bool higher = best < 0 || x[e] > x[best] || (isnan(x[best]) && !isnan(x[e]));
            if (higher && !is_chosen(index, j, e)) {
                best = e;
            }
        }
        index[j] = (int32_t)best;
    }
}

/* Exponentials relative to `high`; returns their sum. */
BY__INLINE float exps(float *out, const float *x, int64_t count, float high)
{
    by__vf sum = by__zero();
    by__vu lanes = by__lane_numbers();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vi real = (by__vi)lanes < (int32_t)(n);                                                \
        by__vf e = by__exp_of_negative(by__load_n(x, i, BY_F32, n) - high);                        \
        sum += by__select(real, e, by__zero());                                                    \
        by__store_n(out, i, e, BY_F32, n);                                                         \
    } while (0)
    BY__STEPS(0, count, STEP);
#undef STEP
    return by__sum(sum);
}

/* A block's mass, followed by a buffer for a row's exponentials, in the workspace. */
static float *block_work(const by__device_call *call, int64_t begin)
{
    return (float *)call->work + begin / BLOCK_ROWS * 2 * by__tensor_columns(&call->in[0]);
}

static void route(const by__device_call *call, int64_t begin, int64_t end)
{
    int64_t experts = by__tensor_columns(&call->in[0]);
    int64_t chosen = call->attrs.chosen;
    float *mass = block_work(call, begin);
    float *e = mass + experts;
    memset(mass, 0, (size_t)experts * sizeof *mass);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0].data + row * experts;
        float *weight = (float *)call->out[0].data + row * chosen;
        int32_t *index = (int32_t *)call->out[1].data + row * chosen;
        float sum = 0.0f;
        choose(index, x, experts, chosen);
        float factor = 1.0f / exps(e, x, experts, x[index[0]]);
#define STEP(i, n)                                                                                 \
    by__store_n(mass, i, by__load_n(mass, i, BY_F32, n) + by__load_n(e, i, BY_F32, n) * factor,    \
                BY_F32, n)
        BY__STEPS(0, experts, STEP);
#undef STEP
        for (int64_t j = 0; j < chosen; j++) {
            sum += e[index[j]];
        }
        for (int64_t j = 0; j < chosen; j++) {
            weight[j] = e[index[j]] / sum;
        }
    }
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    size_t blocks = (size_t)by__ceil_div(by__tensor_rows(&call->in[0]), BLOCK_ROWS);
    size_t floats = 2 * (size_t)by__tensor_columns(&call->in[0]);
    if (!by__size_mul(blocks, floats, &floats) ||
        !by__size_mul(floats, sizeof(float), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "the workspace of the router overflows");
    }
    return BY_OK;
}

static by_status run_router(const by__device_call *call, const by__device_context *context)
{
    int64_t experts = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[0]);
    float *mass = call->out[2].data;
    by__cpu_parallel(context, call, rows, BLOCK_ROWS, 8 * by__tensor_count(&call->in[0]), route);
    memset(mass, 0, (size_t)experts * sizeof *mass);
    for (int64_t row = 0; row < rows; row += BLOCK_ROWS) {
        const float *block = block_work(call, row);
        for (int64_t e = 0; e < experts; e++) {
            mass[e] += block[e];
        }
    }
    return BY_OK;
}

static bool supports(const by__device_call *call)
{
    return call->in[0].dtype == BY_F32;
}

BY__KERNEL(router) = {BY_OP_ROUTER, BY__KERNEL_NAME("router"), supports, prepare, NULL, run_router};

/* Gradient of the softmax over all experts, given dmass, the same for every row. */
static void grad_of_mass(const by__device_call *call, const float *x, float *dx, float *e)
{
    int64_t experts = by__tensor_columns(&call->in[0]);
    const float *dmass = call->in[3].data;
    float high = -INFINITY;
    for (int64_t i = 0; i < experts; i++) {
        high = x[i] > high ? x[i] : high;
    }
    float factor = 1.0f / exps(e, x, experts, high);
    by__vf dots = by__zero();
#define STEP(i, n) dots += by__load_n(e, i, BY_F32, n) * by__load_n(dmass, i, BY_F32, n)
    BY__STEPS(0, experts, STEP);
#undef STEP
    float mean = by__sum(dots) * factor;
#define STEP(i, n)                                                                                 \
    by__store_n(dx, i,                                                                             \
                by__load_n(e, i, BY_F32, n) * factor * (by__load_n(dmass, i, BY_F32, n) - mean),   \
                BY_F32, n)
    BY__STEPS(0, experts, STEP);
#undef STEP
}

/* Adds the gradient of the softmax over the chosen experts. */
static void grad_of_weights(const float *x, float *dx, const int32_t *index, const float *dweight,
                            int64_t experts, int64_t chosen)
{
    float high = -INFINITY;
    float sum = 0.0f;
    float dot = 0.0f;
    for (int64_t j = 0; j < chosen; j++) {
        bool real = index[j] >= 0 && index[j] < experts;
        high = real && x[index[j]] > high ? x[index[j]] : high;
    }
    for (int64_t j = 0; j < chosen; j++) {
        if (index[j] >= 0 && index[j] < experts) {
            float e = exp_of(x[index[j]] - high);
            sum += e;
            dot += e * dweight[j];
        }
    }
    for (int64_t j = 0; j < chosen; j++) {
        if (index[j] >= 0 && index[j] < experts) {
            dx[index[j]] += exp_of(x[index[j]] - high) / sum * (dweight[j] - dot / sum);
        }
    }
}

static void route_grad(const by__device_call *call, int64_t begin, int64_t end)
{
    int64_t experts = by__tensor_columns(&call->in[0]);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    float *e = block_work(call, begin);
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0].data + row * experts;
        float *dx = (float *)call->out[0].data + row * experts;
        if (by__present(&call->in[3])) {
            grad_of_mass(call, x, dx, e);
        } else {
            memset(dx, 0, (size_t)experts * sizeof *dx);
        }
        if (by__present(&call->in[2])) {
            grad_of_weights(x, dx, (const int32_t *)call->in[1].data + row * chosen,
                            (const float *)call->in[2].data + row * chosen, experts, chosen);
        }
    }
}

static by_status run_router_grad(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_rows(&call->in[0]), BLOCK_ROWS,
                     8 * by__tensor_count(&call->in[0]), route_grad);
    return BY_OK;
}

BY__KERNEL(router_grad) = {
    BY_OP_ROUTER_GRAD, BY__KERNEL_NAME("router_grad"), supports, prepare, NULL, run_router_grad};
