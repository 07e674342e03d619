/* What the kernels of ADD, SUB and MUL share: the operation, the types that they take, and one
 * range function for each operation and pair of types, so that loops are compiled for known
 * types. */
#ifndef BY_DEVICE_CPU_KERNELS_BINARY_H
#define BY_DEVICE_CPU_KERNELS_BINARY_H

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

BY__INLINE by__vf by__binary_value(by_op op, by__vf p, by__vf q)
{
    return op == BY_OP_ADD ? p + q : op == BY_OP_SUB ? p - q : p * q;
}

/* The first operand is f32 or bf16, the second like it or f32. */
static inline bool by__binary_takes_types(const by__call *call)
{
    by_dtype b = call->in[1].dtype;
    return by__tensor_is_act(&call->in[0]) && (b == call->in[0].dtype || b == BY_F32);
}

#define BY__BINARY_RANGE(name, work, op, type_a, type_b)                                           \
    static void name(const by__call *call, int64_t begin, int64_t end)                             \
    {                                                                                              \
        work(call, begin, end, op, type_a, type_b);                                                \
    }

/* Defines range_of(call): `work` (call, begin, end, op, type_a, type_b) for the call's operation
 * and types. */
#define BY__BINARY_RANGES(work)                                                                    \
    BY__BINARY_RANGE(add_f32, work, BY_OP_ADD, BY_F32, BY_F32)                                     \
    BY__BINARY_RANGE(add_bf16, work, BY_OP_ADD, BY_BF16, BY_BF16)                                  \
    BY__BINARY_RANGE(add_mixed, work, BY_OP_ADD, BY_BF16, BY_F32)                                  \
    BY__BINARY_RANGE(sub_f32, work, BY_OP_SUB, BY_F32, BY_F32)                                     \
    BY__BINARY_RANGE(sub_bf16, work, BY_OP_SUB, BY_BF16, BY_BF16)                                  \
    BY__BINARY_RANGE(sub_mixed, work, BY_OP_SUB, BY_BF16, BY_F32)                                  \
    BY__BINARY_RANGE(mul_f32, work, BY_OP_MUL, BY_F32, BY_F32)                                     \
    BY__BINARY_RANGE(mul_bf16, work, BY_OP_MUL, BY_BF16, BY_BF16)                                  \
    BY__BINARY_RANGE(mul_mixed, work, BY_OP_MUL, BY_BF16, BY_F32)                                  \
    static by__range_fn *range_of(const by__call *call)                                            \
    {                                                                                              \
        static by__range_fn *const ranges[3][3] = {{add_f32, add_bf16, add_mixed},                 \
                                                   {sub_f32, sub_bf16, sub_mixed},                 \
                                                   {mul_f32, mul_bf16, mul_mixed}};                \
        int kind = call->in[0].dtype == BY_F32 ? 0 : call->in[1].dtype == BY_BF16 ? 1 : 2;         \
        return ranges[call->op - BY_OP_ADD][kind];                                                 \
    }

#endif
