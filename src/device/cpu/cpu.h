/* cpu: the CPU device: its kernels, how they are registered, and helpers that they share.
 *
 * A kernel is one `const by__device_kernel` object named by__kernel_NAME[_LEVEL] and one line in
 * table.inc:
 *
 *   BY__REFERENCE(name)  by__cpu_NAME_reference, in reference_*.c: plain C, one thread, double
 *                        accumulation, every dtype and shape.
 *   BY__LEVELS(name)     by__kernel_NAME_baseline, _avx2, _avx512, from one source in kernels/
 *                        that is compiled once a level; written there as
 *                            BY__KERNEL(add) = {BY_OP_ADD, BY__KERNEL_NAME("add"), supports, ...};
 *
 * At each level the first line whose op and `supports` accept the call is used, so a specialised
 * kernel must be listed before the general one. Several kernels may share an op.
 *
 * In place. The executor may place output 0 in the memory of an input: same address, dtype and
 * shape, never a part of it. Every kernel of the op, at every level, must be correct for these
 * inputs; no other input may be overwritten:
 *
 *   ADD, SUB, MUL                           a, or b of a's shape
 *   SCALE, UNARY, DROPOUT, ROPE, POSITION   x
 *   UNARY_GRAD                              x, dy
 *   LAYER_NORM, RMS_NORM                    x
 *   BATCH_NORM, AFFINE                      x, add
 *   BATCH_NORM_GRAD                         x, dy
 *   SWIGLU                                  gate, up
 *   LAYER_NORM_GRAD, RMS_NORM_GRAD          x, dy, add
 *   EMBEDDING_GRAD                          base
 *   LSTM_GRAD                               gates
 *   MAP                                     any tensor that it does not update
 *   ALL_REDUCE                              x
 *
 * SWIGLU_GRAD's two outputs may be any two of gate, up and dy.
 *
 * Ids and targets out of range access no memory: they give an embedding row of zeros, no gradient,
 * no loss.
 *
 * Levels. `reference` (plain C, one thread, double accumulation: the oracle of the tests) is
 * followed by `baseline`, `avx2` and `avx512`. The best level that the machine has and BANYAN_ISA
 * allows (reference | baseline | avx2 | avx512 | native) is used; a call that no kernel of a level
 * supports falls back to the level below.
 *
 * Never put here: anything that a kernel does not need, allocation in `run`, state outside
 * by__device_call.
 */
#ifndef BY_DEVICE_CPU_CPU_H
#define BY_DEVICE_CPU_CPU_H

#include "base/base.h"
#include "device/device.h"

#define BY__JOIN_(a, b) a##_##b
#define BY__JOIN(a, b)  BY__JOIN_(a, b)
#define BY__TEXT_(a)    #a
#define BY__TEXT(a)     BY__TEXT_(a)
/* Names in kernels/: BY_ISA is the level that the file is compiled for. */
#define BY__AT_LEVEL(name)    BY__JOIN(name, BY_ISA)
#define BY__KERNEL(name)      const by__device_kernel BY__AT_LEVEL(by__kernel_##name)
#define BY__KERNEL_NAME(name) name " " BY__TEXT(BY_ISA)

/* The index in the whole axis of entry i of a slice. */
static inline int64_t by__place_of(const by_attrs *attrs, int64_t i)
{
    return attrs->begin + i + (i >= attrs->turn ? attrs->gap : 0);
}

static inline bool by__tensor_is_act(const by__device_tensor *tensor)
{
    return by_dtype_is_float(tensor->dtype);
}

/* The activation dtypes: BY_F32, BY_BF16, BY_F16. */
#define BY__ACTS 3

static inline int64_t by__min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Reserves `bytes` of a workspace of which *used bytes are taken; returns their offset. */
static inline size_t by__work_reserve(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += by__round_up(bytes, BY_CACHE_LINE);
    return offset;
}

/* Instruction-set levels. */
typedef enum by__cpu_isa {
    BY__ISA_REFERENCE = 0,
    BY__ISA_BASELINE,
    BY__ISA_AVX2,
    BY__ISA_AVX512,
    BY__ISA_COUNT
} by__cpu_isa;

/* Highest level of this machine, capped by the environment variable BANYAN_ISA. An unknown value of
 * the variable is an error. */
by_status by__cpu_isa_read(by__cpu_isa *out, by_error *error);
/* Highest level of this machine, whatever the environment says. */
by__cpu_isa by__cpu_best_isa(void);
const char *by__cpu_isa_name(by__cpu_isa isa);
/* The kernel for a call at `isa` or the nearest level below it. BY_EDEVICE names op and dtypes when
 * there is none. */
by_status by__cpu_kernel(const by__device_kernel **out, const by__device_call *call,
                         by__cpu_isa isa, by_error *error);
/* The kernel at exactly this level, NULL if that level has none: for the kernel tests. */
const by__device_kernel *by__cpu_kernel_at(const by__device_call *call, by__cpu_isa isa);

/* by__cpu_fill_normal_tensor at a given level. */
void by__cpu_fill_normal(float *out, int64_t first, int64_t count, float std, const uint32_t key[2],
                         by__cpu_isa isa);

/* Computes items [begin, end) in the kernel's own unit: elements, rows or columns. */
typedef void by__cpu_range_fn(const by__device_call *call, int64_t begin, int64_t end);

/* Defines NAME_ranges[dtype] for the activation dtypes: calls `work` (call, begin, end, dtype),
 * compiled once for each dtype so that it is a constant in the loops; the second form has one more
 * operand before it. */
#define BY__ACT_RANGE(name, what)                                                                  \
    static void name(const by__device_call *call, int64_t begin, int64_t end)                      \
    {                                                                                              \
        what;                                                                                      \
    }
#define BY__ACT_TABLE(name)                                                                        \
    static by__cpu_range_fn *const name##_ranges[BY__ACTS] = {                                     \
        [BY_F32] = name##_f32, [BY_BF16] = name##_bf16, [BY_F16] = name##_f16};
#define BY__ACT_RANGES(work)                                                                       \
    BY__ACT_RANGE(work##_f32, work(call, begin, end, BY_F32))                                      \
    BY__ACT_RANGE(work##_bf16, work(call, begin, end, BY_BF16))                                    \
    BY__ACT_RANGE(work##_f16, work(call, begin, end, BY_F16))                                      \
    BY__ACT_TABLE(work)
#define BY__ACT_RANGES_OF(name, work, operand)                                                     \
    BY__ACT_RANGE(name##_f32, work(call, begin, end, operand, BY_F32))                             \
    BY__ACT_RANGE(name##_bf16, work(call, begin, end, operand, BY_BF16))                           \
    BY__ACT_RANGE(name##_f16, work(call, begin, end, operand, BY_F16))                             \
    BY__ACT_TABLE(name)

/* ENCODE8 stores blocks with smaller magnitudes as zeros, because quotients by them could
 * overflow. */
#define BY__MIN_CODED 0x1p-118f

/* Calls fn for [0, grain), [grain, 2 grain), ... up to count, on the threads of the context, each
 * on a run of neighbouring ranges. A call that touches few `elements` stays on the calling thread,
 * where it is faster. The ranges depend on count and grain alone, so begin / grain can index
 * partial sums.
 */
void by__cpu_parallel(const by__device_context *context, const by__device_call *call, int64_t count,
                      int64_t grain, int64_t elements, by__cpu_range_fn *fn);

/* Block `block` of by__cpu_fill_normal: writes `count` values to `out`. kernels/normal_simd.c. */
typedef void by__cpu_fill_normal_fn(float *out, int64_t count, float std, const uint32_t key[2],
                                    int64_t block);
by__cpu_fill_normal_fn by__kernel_fill_normal_block_baseline;
by__cpu_fill_normal_fn by__kernel_fill_normal_block_avx2;
by__cpu_fill_normal_fn by__kernel_fill_normal_block_avx512;

/* Returns true if each row has its own position. */
static inline bool by__rope_is_by_row(const by__device_call *call)
{
    return call->input_count > 1 && by__present(&call->in[1]) && by__tensor_count(&call->in[1]) > 1;
}

/* The position of row t: an index within its sample, or among all rows if each has its own. */
static inline int64_t by__rope_position(const by__device_call *call, int64_t t)
{
    const int32_t *position = call->in[1].data;
    bool given = call->input_count > 1 && by__present(&call->in[1]);
    if (by__rope_is_by_row(call)) {
        return position[t];
    }
    return (given ? position[0] : 0) + by__place_of(&call->attrs, t);
}

/* The f32 range function of UNARY, which MAP also runs on its blocks. kernels/unary_simd.c. */
by__cpu_range_fn *by__kernel_unary_range_baseline(by_function function);
by__cpu_range_fn *by__kernel_unary_range_avx2(by_function function);
by__cpu_range_fn *by__kernel_unary_range_avx512(by_function function);

/* Dropout. The bits of element `place` of a sample are word (place % 64) / 16 of the Philox block
 * with the counter below. Sixteen neighbours thus come from sixteen blocks, and any vector width
 * can generate them without a shuffle. An element is kept if its 24 upper bits are at least the
 * threshold.
 */
typedef struct by__cpu_dropout {
    uint32_t key[2];
    uint32_t step;
    uint32_t first_sample;
    uint32_t threshold; /* ceil(p * 2^24) */
    float scale;        /* 1 / (1 - p) */
} by__cpu_dropout;

by__cpu_dropout by__cpu_dropout_setup(const by__device_call *call);
static inline void by__dropout_counter(uint32_t counter[4], const by__cpu_dropout *dropout,
                                       uint32_t sample, int64_t place)
{
    uint64_t block = (uint64_t)place / 64 * 16 + (uint64_t)place % 16;
    counter[0] = (uint32_t)block;
    counter[1] = (uint32_t)(block >> 32);
    counter[2] = dropout->first_sample + sample;
    counter[3] = dropout->step;
}

#endif
