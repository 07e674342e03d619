/* ADAMW8: p, g f32, m and v as 8-bit codes with a scale for each block of BY_CODE_BLOCK elements
 * (dynamic_codes.h). A block's moments are decoded, updated and encoded again while they are in the
 * first-level cache: 14 bytes per element pass through memory instead of ADAMW's 28. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/dynamic_codes.h"
#include "device/cpu/kernels/simd.h"

#define GRAIN 64 /* blocks */

typedef uint8_t by__vb __attribute__((vector_size(BY__LANES)));

/* Conversion of magnitudes in [0, 1] to code numbers: in part d, from threshold[d] on, the number
 * is x slope[d] + offset[d], rounded down, and at most limit[d]. The parts are zero, the decades,
 * and one. Each threshold is halfway between the last number of a part and the first of the
 * next. */
#define PARTS (BY__DECADES + 2)
typedef struct encoder {
    float threshold[PARTS];
    float slope[PARTS];
    float offset[PARTS];
    float limit[PARTS];
} encoder;

static void make_encoder(encoder *e, bool sign)
{
    double top = 1e-6;
    int items = sign ? 1 : 2;
    int first = 1;
    *e = (encoder){0};
    for (int d = 1; d <= BY__DECADES; d++) {
        double slope = (double)items / (0.9 * top);
        e->slope[d] = (float)slope;
        e->offset[d] = (float)((double)first - 0.1 * top * slope);
        e->limit[d] = (float)(first + items - 1);
        first += items;
        items *= 2;
        top *= 10.0;
    }
    e->offset[PARTS - 1] = (float)first;
    e->limit[PARTS - 1] = (float)first;
    for (int d = 1; d < PARTS; d++) {
        int k = (int)e->limit[d - 1];
        e->threshold[d] =
            (float)((by__dynamic_magnitude(sign, k) + by__dynamic_magnitude(sign, k + 1)) / 2.0);
    }
}

/* Code numbers of magnitudes, which are at most 1. */
BY__INLINE by__vi encode(const encoder *e, by__vf x)
{
    by__vf slope = by__zero();
    by__vf offset = by__zero();
    by__vf limit = by__zero();
#pragma GCC unroll 8
    for (int d = 1; d < PARTS; d++) {
        by__vi in = x >= e->threshold[d];
        slope = by__select(in, by__splat(e->slope[d]), slope);
        offset = by__select(in, by__splat(e->offset[d]), offset);
        limit = by__select(in, by__splat(e->limit[d]), limit);
    }
    by__vf number = x * slope + offset;
    return __builtin_convertvector(by__select(number > limit, limit, number), by__vi);
}

/* Encodes a block of values with largest magnitude `scale`. */
BY__INLINE void encode_block(uint8_t *codes, int count, const float *values, float scale,
                             const encoder *e, bool sign)
{
    uint8_t made[BY_CODE_BLOCK];
    for (int i = 0; i < BY_CODE_BLOCK; i += BY__LANES) {
        by__vf x = by__load_n(values, i, BY_F32, BY__LANES);
        by__vi number = encode(e, scale > 0.0f ? by__abs(x) / scale : by__zero());
        if (sign) {
            by__vi most = number > BY__CODE_ZERO; /* -1 has no code */
            by__vi below = BY__CODE_ZERO - ((most & BY__CODE_ZERO) | (~most & number));
            by__vi negative = x < by__zero();
            number = (negative & below) | (~negative & (BY__CODE_ZERO + number));
        }
        by__vb bytes = __builtin_convertvector(number, by__vb);
        memcpy(made + i, &bytes, sizeof bytes);
    }
    memcpy(codes, made, (size_t)count);
}

/* Constants of all blocks. */
typedef struct adamw8_constants {
    encoder first;
    encoder second;
    float first_values[BY__CODES];
    float second_values[BY__CODES];
    float scale;
    float beta1;
    float beta2;
    float rest1;
    float rest2;
    float keep;
    float step;
    float correction;
    float eps;
} adamw8_constants;

static void make_numbers(adamw8_constants *n, const by__device_call *call)
{
    const float *hyper = call->in[6].data;
    double rate =
        (double)hyper[0] * (call->attrs.lr_scale == 0.0f ? 1.0 : (double)call->attrs.lr_scale);
    make_encoder(&n->first, true);
    make_encoder(&n->second, false);
    by__dynamic_values(n->first_values, true);
    by__dynamic_values(n->second_values, false);
    n->scale = *(const float *)call->in[7].data;
    n->beta1 = call->attrs.beta1;
    n->beta2 = call->attrs.beta2;
    n->rest1 = (float)(1.0 - (double)n->beta1);
    n->rest2 = (float)(1.0 - (double)n->beta2);
    n->keep = (float)(1.0 - rate * (double)call->attrs.decay);
    n->step = (float)(rate / (double)hyper[1]);
    n->correction = (float)(1.0 / sqrt((double)hyper[2]));
    n->eps = call->attrs.eps;
}

static void decode_block(float *out, const uint8_t *codes, int count, const float *values,
                         float scale)
{
    for (int i = 0; i < count; i++) {
        out[i] = values[codes[i]] * scale;
    }
    for (int i = count; i < BY_CODE_BLOCK; i++) {
        out[i] = 0.0f;
    }
}

BY__INLINE void update_block(const by__device_call *call, const adamw8_constants *c, int64_t block,
                             by_dtype dtype)
{
    int64_t begin = block * BY_CODE_BLOCK;
    int count = (int)by__min_i64(BY_CODE_BLOCK, by__tensor_count(&call->in[0]) - begin);
    float *p = (float *)call->in[0].data + begin;
    const float *g = (const float *)call->in[1].data + begin;
    uint8_t *first_codes = (uint8_t *)call->in[2].data + begin;
    uint8_t *second_codes = (uint8_t *)call->in[3].data + begin;
    float *first_scale = (float *)call->in[4].data + block;
    float *second_scale = (float *)call->in[5].data + block;
    uint16_t *copy = dtype != BY_F32 ? (uint16_t *)call->out[0].data + begin : NULL;
    float m[BY_CODE_BLOCK];
    float v[BY_CODE_BLOCK];
    by__vf first_most = by__zero();
    by__vf second_most = by__zero();
    decode_block(m, first_codes, count, c->first_values, *first_scale);
    decode_block(v, second_codes, count, c->second_values, *second_scale);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf gradient = by__load_n(g, i, BY_F32, n) * c->scale;                                  \
        by__vf first = by__load_n(m, i, BY_F32, n) * c->beta1 + gradient * c->rest1;               \
        by__vf second = by__load_n(v, i, BY_F32, n) * c->beta2 + gradient * gradient * c->rest2;   \
        by__vf root = by__sqrt(second) * c->correction + c->eps;                                   \
        by__vf x = by__load_n(p, i, BY_F32, n) * c->keep - c->step * (first / root);               \
        by__store_n(p, i, x, BY_F32, n);                                                           \
        by__store_n(m, i, first, BY_F32, n);                                                       \
        by__store_n(v, i, second, BY_F32, n);                                                      \
        first_most = by__larger(by__abs(first), first_most);                                       \
        second_most = by__larger(second, second_most);                                             \
        if (dtype != BY_F32) {                                                                     \
            by__store_n(copy, i, x, dtype, n);                                                     \
        }                                                                                          \
    } while (0)
    BY__STEPS(0, count, STEP);
#undef STEP
    *first_scale = by__max(first_most);
    *second_scale = by__max(second_most);
    encode_block(first_codes, count, m, *first_scale, &c->first, true);
    encode_block(second_codes, count, v, *second_scale, &c->second, false);
}

BY__INLINE void update(const by__device_call *call, int64_t begin, int64_t end, by_dtype dtype)
{
    adamw8_constants c;
    make_numbers(&c, call);
    for (int64_t block = begin; block < end; block++) {
        update_block(call, &c, block, dtype);
    }
}

BY__ACT_RANGES(update)

static by_dtype copy_dtype(const by__device_call *call)
{
    bool copied = call->output_count > 0 && by__present(&call->out[0]);
    return copied ? call->out[0].dtype : BY_F32;
}

static by_status run_adamw8(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t blocks = by__ceil_div(count, BY_CODE_BLOCK);
    if (!isfinite(*(const float *)call->in[7].data)) {
        return BY_OK; /* the step has failed: nothing is changed */
    }
    by__cpu_parallel(context, call, blocks, GRAIN, count, update_ranges[copy_dtype(call)]);
    return BY_OK;
}

static bool supports_adamw8(const by__device_call *call)
{
    return by_dtype_is_float(copy_dtype(call));
}

BY__KERNEL(adamw8) = {BY_OP_ADAMW8, BY__KERNEL_NAME("adamw8"), supports_adamw8, NULL, NULL,
                      run_adamw8};
