/* Shared by the kernels of ADD, SUB and MUL: the operation, the dtypes that they accept, and one
 * range function for each operation and pair of dtypes, so that loops are compiled for known
 * types. */
#ifndef BY_DEVICE_CPU_KERNELS_BINARY_H
#define BY_DEVICE_CPU_KERNELS_BINARY_H

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

BY__INLINE by__vf by__binary_value(by_op op, by__vf p, by__vf q)
{
    return op == BY_OP_ADD ? p + q : op == BY_OP_SUB ? p - q : p * q;
}

/* The first operand is an activation dtype, the second the same or f32. */
static inline bool by__binary_accepts_types(const by__device_call *call)
{
    by_dtype b = call->in[1].dtype;
    return by__tensor_is_act(&call->in[0]) && (b == call->in[0].dtype || b == BY_F32);
}

/* Defines range_of(call), which returns `work` (call, begin, end, op, type_a, type_b) instantiated
 * for the call's operation and dtypes. */
#define BY__BINARY_RANGE(name, work, op, type_a, type_b)                                           \
    static void name(const by__device_call *call, int64_t begin, int64_t end)                      \
    {                                                                                              \
        work(call, begin, end, op, type_a, type_b);                                                \
    }
#define BY__BINARY_OP_RANGES(name, work, op)                                                       \
    BY__BINARY_RANGE(name##_f32, work, op, BY_F32, BY_F32)                                         \
    BY__BINARY_RANGE(name##_bf16, work, op, BY_BF16, BY_BF16)                                      \
    BY__BINARY_RANGE(name##_f16, work, op, BY_F16, BY_F16)                                         \
    BY__BINARY_RANGE(name##_bf16_f32, work, op, BY_BF16, BY_F32)                                   \
    BY__BINARY_RANGE(name##_f16_f32, work, op, BY_F16, BY_F32)
#define BY__BINARY_OP_ROW(name)                                                                    \
    {                                                                                              \
        {name##_f32, name##_bf16, name##_f16},                                                     \
        {                                                                                          \
            name##_f32, name##_bf16_f32, name##_f16_f32                                            \
        }                                                                                          \
    }
#define BY__BINARY_RANGES(work)                                                                    \
    BY__BINARY_OP_RANGES(add, work, BY_OP_ADD)                                                     \
    BY__BINARY_OP_RANGES(sub, work, BY_OP_SUB)                                                     \
    BY__BINARY_OP_RANGES(mul, work, BY_OP_MUL)                                                     \
    static by__cpu_range_fn *range_of(const by__device_call *call)                                 \
    {                                                                                              \
        static by__cpu_range_fn *const ranges[3][2][BY__ACTS] = {                                  \
            BY__BINARY_OP_ROW(add), BY__BINARY_OP_ROW(sub), BY__BINARY_OP_ROW(mul)};               \
        by_dtype type = call->in[0].dtype;                                                         \
        return ranges[call->op - BY_OP_ADD][call->in[1].dtype != type][type];                      \
    }

#endif
