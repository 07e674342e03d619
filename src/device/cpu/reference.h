/* reference: the definition of every op in plain C. One thread, sums in double, elements of any
 * dtype read and written one at a time: slow, and short enough to verify by reading. The oracle of
 * the kernel tests, and a level of its own (BANYAN_ISA=reference).
 *
 * Never put here: anything that makes it faster.
 */
#ifndef BY_DEVICE_CPU_REFERENCE_H
#define BY_DEVICE_CPU_REFERENCE_H

#include "base/half.h"
#include "device/cpu/cpu.h"

#define BY__REFERENCE_KERNEL(op, name, prepare, run)                                               \
    const by__device_kernel by__cpu_##name##_reference = {                                         \
        op, #name " reference", NULL, prepare, NULL, run,                                          \
    }

static inline double by__get(const by__device_tensor *tensor, int64_t i)
{
    switch (tensor->dtype) {
    case BY_F32:
        return (double)((const float *)tensor->data)[i];
    case BY_BF16:
        return (double)by__bf16_to_f32(((const uint16_t *)tensor->data)[i]);
    case BY_F16:
        return (double)by__f16_to_f32(((const uint16_t *)tensor->data)[i]);
    case BY_I32:
        return (double)((const int32_t *)tensor->data)[i];
    default:
        return (double)((const uint8_t *)tensor->data)[i];
    }
}

static inline void by__set(const by__device_tensor *tensor, int64_t i, double value)
{
    switch (tensor->dtype) {
    case BY_F32:
        ((float *)tensor->data)[i] = (float)value;
        break;
    case BY_BF16:
        ((uint16_t *)tensor->data)[i] = by__f32_to_bf16((float)value);
        break;
    case BY_F16:
        ((uint16_t *)tensor->data)[i] = by__f32_to_f16((float)value);
        break;
    case BY_I32:
        ((int32_t *)tensor->data)[i] = (int32_t)value;
        break;
    default:
        ((uint8_t *)tensor->data)[i] = (uint8_t)value;
    }
}

/* f(x) of UNARY. */
double by__cpu_reference_function(by_function function, double x);

static inline int32_t by__id(const by__device_tensor *tensor, int64_t i)
{
    return ((const int32_t *)tensor->data)[i];
}

/* Rows *begin .. *end - 1 of range g of GROUPED_MATMUL and the like; empty if they are out of the
 * operands' bounds. */
void by__cpu_reference_range(const by__device_call *call, int64_t g, int64_t *begin, int64_t *end);

/* Requests `count` doubles of workspace. */
static inline by_status by__reference_work(by__device_call *call, int64_t count, by_error *error)
{
    if (!by__size_mul((size_t)count, sizeof(double), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY,
                            "%s: the workspace of the reference kernel overflows",
                            by_op_name(call->op));
    }
    return BY_OK;
}

#endif
