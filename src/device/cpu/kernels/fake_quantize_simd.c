/* FAKE_QUANTIZE: w f32, [n, k], a stack of these, or [k, n]; y activations, laid out like w. For
 * [n, k] a group is contiguous and divided among the lanes; for [k, n] the lanes are outputs. 4-bit
 * codes need the sign of the weight with the largest magnitude, the first one of equal ones. */
#include <math.h>

#include "base/packing/packing.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define COLUMNS 64 /* outputs per range of [k, n], a multiple of the lanes */
#define ROWS    8  /* outputs per range of [n, k] */

static float scale_of(float extreme, bool wide)
{
    if (wide) {
        return fabsf(extreme) / 127.0f;
    }
    float scale = extreme / -8.0f;
    scale = scale > 65504.0f ? 65504.0f : scale < -65504.0f ? -65504.0f : scale;
    return isnan(scale) ? scale : by__f16_to_f32(by__f32_to_f16(scale));
}

BY__INLINE by__vf rounded(by__vf w, by__vf scale, bool wide)
{
    by__vf code =
        by__at_most(wide ? 127.0f : 7.0f, by__at_least(wide ? -127.0f : -8.0f, w / scale));
    by__vf y = __builtin_convertvector(by__round(code), by__vf) * scale;
    return by__select(scale != 0.0f, y, by__zero());
}

/* Updates the maximum: NaN and infinity win and stay. */
BY__INLINE by__vf further(by__vf extreme, by__vf w)
{
    by__vi bits = (by__vi)by__abs(w);
    by__vi most = (by__vi)by__abs(extreme);
    return by__select(bits > most, w, extreme);
}

static float spoiled(float extreme)
{
    return isfinite(extreme) ? extreme : NAN;
}

/* Processes inputs [first, end) of one output. */
BY__INLINE void round_run(const by__device_call *call, int64_t first, int64_t end, bool wide,
                          by_dtype type)
{
    const float *w = call->in[0].data;
    by__vf extremes = by__zero();
#define TAKE(i, n) extremes = further(extremes, by__load_n(w, (i), BY_F32, (n)))
    BY__STEPS(first, end, TAKE);
#undef TAKE
    float largest = 0.0f;
    for (int lane = 0; lane < BY__LANES; lane++) {
        float here = spoiled(extremes[lane]);
        largest = isnan(here) || isnan(largest) ? NAN : fmaxf(largest, fabsf(here));
    }
    float extreme = largest;
    for (int64_t i = first; i < end && !wide && largest > 0.0f; i++) {
        if (fabsf(w[i]) == largest) {
            extreme = w[i];
            break;
        }
    }
    by__vf scale = by__splat(scale_of(extreme, wide));
#define ROUND(i, n)                                                                                \
    by__store_n(call->out[0].data, (i), rounded(by__load_n(w, (i), BY_F32, (n)), scale, wide),     \
                type, (n))
    BY__STEPS(first, end, ROUND);
#undef ROUND
}

BY__INLINE void over_rows(const by__device_call *call, int64_t begin, int64_t end, bool wide,
                          by_dtype type)
{
    const by_packing *p = &call->attrs.packing;
    int64_t group = wide ? p->k : p->group;
    for (int64_t j = begin; j < end; j++) {
        for (int64_t i = 0; i < p->k; i += group) {
            round_run(call, j * p->k + i, j * p->k + by__min_i64(i + group, p->k), wide, type);
        }
    }
}

/* Processes `count` neighbouring outputs from j on. */
BY__INLINE void round_lanes(const by__device_call *call, int64_t j, int count, bool wide,
                            by_dtype type)
{
    const by_packing *p = &call->attrs.packing;
    const float *w = call->in[0].data;
    int64_t group = wide ? p->k : p->group;
    for (int64_t first = 0; first < p->k; first += group) {
        int64_t end = by__min_i64(first + group, p->k);
        by__vf scale = by__zero();
        for (int64_t i = first; i < end; i++) {
            scale = further(scale, by__load_n(w, i * p->n + j, BY_F32, count));
        }
        for (int lane = 0; lane < BY__LANES; lane++) {
            scale[lane] = scale_of(spoiled(scale[lane]), wide);
        }
        for (int64_t i = first; i < end; i++) {
            by__vf y = rounded(by__load_n(w, i * p->n + j, BY_F32, count), scale, wide);
            by__store_n(call->out[0].data, i * p->n + j, y, type, count);
        }
    }
}

BY__INLINE void over_columns(const by__device_call *call, int64_t begin, int64_t end, bool wide,
                             by_dtype type)
{
#define LANES(j, n) round_lanes(call, (j), (n), wide, type)
    BY__STEPS(begin, end, LANES);
#undef LANES
}

BY__ACT_RANGES_OF(rows4, over_rows, false)
BY__ACT_RANGES_OF(rows8, over_rows, true)
BY__ACT_RANGES_OF(columns4, over_columns, false)
BY__ACT_RANGES_OF(columns8, over_columns, true)

static by_status run_fake_quantize(const by__device_call *call, const by__device_context *context)
{
    const by_packing *p = &call->attrs.packing;
    by_dtype type = call->out[0].dtype;
    bool wide = p->kind == BY_PACKING_INT8;
    if (call->attrs.trans_b) {
        int64_t rows = by__packed_matrices(p) * p->n;
        by__cpu_parallel(context, call, rows, ROWS, rows * p->k,
                         wide ? rows8_ranges[type] : rows4_ranges[type]);
    } else {
        by__cpu_parallel(context, call, p->n, COLUMNS, p->n * p->k,
                         wide ? columns8_ranges[type] : columns4_ranges[type]);
    }
    return BY_OK;
}

BY__KERNEL(fake_quantize) = {
    BY_OP_FAKE_QUANTIZE, BY__KERNEL_NAME("fake_quantize"), NULL, NULL, NULL, run_fake_quantize};
