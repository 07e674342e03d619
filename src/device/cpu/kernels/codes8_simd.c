/* ENCODE8: x [R, C] activations; codes [R, C] u8, scale [R, blocks] f32. DECODE8 is the reverse.
 * Memory-bound: a block is in the first-level cache when it is read the second time. The largest
 * magnitude is found by comparing bits, in which NaN is the largest. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define GRAIN 64 /* rows */

typedef uint8_t by__vb __attribute__((vector_size(BY__LANES)));

static int64_t columns_of(const by__device_call *call)
{
    return call->in[0].shape.dim[call->in[0].shape.rank - 1];
}

BY__INLINE float largest_of(const void *x, int64_t first, int64_t count, by_dtype type)
{
    by__vi most = {0};
#define TAKE(i, n)                                                                                 \
    do {                                                                                           \
        by__vi bits = (by__vi)by__abs(by__load_n(x, i, type, n));                                  \
        by__vi more = bits > most;                                                                 \
        most = (more & bits) | (~more & most);                                                     \
    } while (0)
    BY__STEPS(first, first + count, TAKE);
#undef TAKE
    int32_t all = 0;
    for (int lane = 0; lane < BY__LANES; lane++) {
        all = most[lane] > all ? most[lane] : all;
    }
    float largest;
    memcpy(&largest, &all, sizeof largest);
    return largest;
}

BY__INLINE void encode_block(uint8_t *codes, const void *x, int64_t first, int64_t count,
                             float times, by_dtype type)
{
#define ENCODE(i, n)                                                                               \
    do {                                                                                           \
        by__vf scaled = by__load_n(x, i, type, n) * times;                                         \
        by__vf same = scaled; /* inf - inf and nan - nan are nan */                                \
        by__vi finite = scaled - same == by__zero();                                               \
        by__vb bytes = __builtin_convertvector(128 + (finite & by__round(scaled)), by__vb);        \
        memcpy(codes + (i), &bytes, (size_t)(n));                                                  \
    } while (0)
    BY__STEPS(first, first + count, ENCODE);
#undef ENCODE
}

BY__INLINE void encode(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    int64_t columns = columns_of(call);
    float *scale = (float *)call->out[1].data + begin * by__ceil_div(columns, BY_ROW_CODE_BLOCK);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t i = 0; i < columns; i += BY_ROW_CODE_BLOCK) {
            int64_t count = by__min_i64(BY_ROW_CODE_BLOCK, columns - i);
            int64_t first = row * columns + i;
            float largest = largest_of(call->in[0].data, first, count, type);
            bool zero = largest < BY__MIN_CODED;
            *scale++ = zero ? 0.0f : largest / 127.0f;
            encode_block(call->out[0].data, call->in[0].data, first, count,
                         zero ? 0.0f : 127.0f / largest, type);
        }
    }
}

BY__INLINE void decode(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    int64_t columns = columns_of(call);
    const uint8_t *codes = call->in[0].data;
    void *y = call->out[0].data;
    const float *scale =
        (const float *)call->in[1].data + begin * by__ceil_div(columns, BY_ROW_CODE_BLOCK);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t i = 0; i < columns; i += BY_ROW_CODE_BLOCK, scale++) {
            int64_t first = row * columns + i;
            int64_t last = row * columns + by__min_i64(i + BY_ROW_CODE_BLOCK, columns);
            float times = *scale;
#define DECODE(at, n)                                                                              \
    do {                                                                                           \
        by__vb bytes = {0};                                                                        \
        memcpy(&bytes, codes + (at), (size_t)(n));                                                 \
        by__vi number = __builtin_convertvector(bytes, by__vi) - 128;                              \
        by__store_n(y, at, __builtin_convertvector(number, by__vf) * times, type, n);              \
    } while (0)
            BY__STEPS(first, last, DECODE);
#undef DECODE
        }
    }
}

BY__ACT_RANGES(encode)
BY__ACT_RANGES(decode)

static by_status run_encode8(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count / columns_of(call), GRAIN, count,
                     encode_ranges[call->in[0].dtype]);
    return BY_OK;
}

static by_status run_decode8(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count / columns_of(call), GRAIN, count,
                     decode_ranges[call->out[0].dtype]);
    return BY_OK;
}

BY__KERNEL(encode8) = {BY_OP_ENCODE8, BY__KERNEL_NAME("encode8"), NULL, NULL, NULL, run_encode8};
BY__KERNEL(decode8) = {BY_OP_DECODE8, BY__KERNEL_NAME("decode8"), NULL, NULL, NULL, run_decode8};
