/* Codes as in banyan/packing.h, computed in f32, as they are stored: values have the same bits at
 * every level. */
#include <math.h>

#include "base/packing/packing.h"
#include "device/cpu/reference.h"

static int64_t place(const by__device_call *call, int64_t j, int64_t i)
{
    const by_packing *p = &call->attrs.packing;
    return call->attrs.trans_b ? j * p->k + i : i * p->n + j;
}

static void round_group(const by__device_call *call, int64_t j, int64_t first, int64_t end)
{
    bool wide = call->attrs.packing.kind == BY_PACKING_INT8;
    float extreme = 0.0f;
    bool finite = true;
    for (int64_t i = first; i < end; i++) {
        float w = (float)by__get(&call->in[0], place(call, j, i));
        finite = finite && isfinite(w);
        extreme = fabsf(w) > fabsf(extreme) ? w : extreme;
    }
    float scale =
        wide ? fabsf(extreme) / 127.0f
             : by__f16_to_f32(by__f32_to_f16(fmaxf(fminf(extreme / -8.0f, 65504.0f), -65504.0f)));
    for (int64_t i = first; i < end; i++) {
        float w = (float)by__get(&call->in[0], place(call, j, i));
        float code = scale == 0.0f ? 0.0f : rintf(w / scale);
        code = fmaxf(fminf(code, wide ? 127.0f : 7.0f), wide ? -127.0f : -8.0f);
        by__set(&call->out[0], place(call, j, i), finite ? (double)(code * scale) : NAN);
    }
}

static by_status run_fake_quantize(const by__device_call *call, const by__device_context *context)
{
    const by_packing *p = &call->attrs.packing;
    int64_t group = p->kind == BY_PACKING_INT8 ? p->k : p->group;
    BY_UNUSED(context);
    for (int64_t j = 0; j < by__packed_matrices(p) * p->n; j++) {
        for (int64_t i = 0; i < p->k; i += group) {
            round_group(call, j, i, by__min_i64(i + group, p->k));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_FAKE_QUANTIZE, fake_quantize, NULL, run_fake_quantize);
