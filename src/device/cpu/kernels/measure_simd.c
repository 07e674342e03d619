/* MEASURE: x activations, optional y like x; m [blocks][BY_MEASURES] f32. Memory-bound: a block is
 * read as four streams at once, as in SUM_SQUARES. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

typedef struct measures {
    by__vf sum;
    by__vf squares;
    by__vi zeros; /* negated count */
    by__vf largest;
    by__vf apart;
    by__vi nonfinite; /* negated count */
} measures;

BY__INLINE void take(measures *m, const by__device_call *call, int64_t at, int n, by_dtype type,
                     bool has_y)
{
    by__vf x = by__load_n(call->in[0].data, at, type, n);
    by__vf magnitude = by__abs(x);
    m->sum += x;
    m->squares += x * x;
    m->zeros += x == by__zero();
    by__vf same = x; /* inf - inf and nan - nan are nan */
    m->nonfinite += x - same != by__zero();
    m->largest = by__select(magnitude > m->largest, magnitude, m->largest);
    if (has_y) {
        by__vf d = x - by__load_n(call->in[1].data, at, type, n);
        m->apart += d * d;
    }
}

BY__INLINE void measure_block(const by__device_call *call, int64_t begin, int64_t end, bool has_y,
                              by_dtype type)
{
    const int64_t quarter = BY_SUM_BLOCK / 4;
    measures m[4];
    int64_t i = begin;
    int filled = 0; /* lanes after the end, which are 0 */
    memset(m, 0, sizeof m);
    if (end - begin == BY_SUM_BLOCK) {
        for (; i < begin + quarter; i += BY__LANES) {
            for (int k = 0; k < 4; k++) {
                take(&m[k], call, i + k * quarter, BY__LANES, type, has_y);
            }
        }
        i = end;
    }
    for (; i < end; i += BY__LANES) {
        int n = end - i < BY__LANES ? (int)(end - i) : BY__LANES;
        take(&m[0], call, i, n, type, has_y);
        filled = BY__LANES - n;
    }
    float *out = (float *)call->out[0].data + begin / BY_SUM_BLOCK * BY_MEASURES;
    float zeros = (float)-filled;
    float nonfinite = 0.0f;
    float largest = 0.0f;
    for (int k = 0; k < 4; k++) {
        for (int lane = 0; lane < BY__LANES; lane++) {
            zeros -= (float)m[k].zeros[lane];
            nonfinite -= (float)m[k].nonfinite[lane];
            largest = m[k].largest[lane] > largest ? m[k].largest[lane] : largest;
        }
    }
    out[BY_MEASURE_SUM] = by__sum((m[0].sum + m[1].sum) + (m[2].sum + m[3].sum));
    out[BY_MEASURE_SQUARES] =
        by__sum((m[0].squares + m[1].squares) + (m[2].squares + m[3].squares));
    out[BY_MEASURE_ZEROS] = zeros;
    out[BY_MEASURE_LARGEST] = largest;
    out[BY_MEASURE_NONFINITE] = nonfinite;
    out[BY_MEASURE_APART] = by__sum((m[0].apart + m[1].apart) + (m[2].apart + m[3].apart));
}

BY__ACT_RANGES_OF(measure, measure_block, false)
BY__ACT_RANGES_OF(apart, measure_block, true)

static bool supports_measure(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_measure(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by_dtype type = call->in[0].dtype;
    bool has_y = call->input_count > 1 && by__present(&call->in[1]);
    by__cpu_parallel(context, call, count, BY_SUM_BLOCK, count,
                     has_y ? apart_ranges[type] : measure_ranges[type]);
    return BY_OK;
}

BY__KERNEL(measure) = {BY_OP_MEASURE, BY__KERNEL_NAME("measure"), supports_measure, NULL, NULL,
                       run_measure};
