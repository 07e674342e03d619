#include "base/packing.h"
#include "device/cpu/reference.h"

static by_status run_packed_matmul(const by__call *call, const by__context *context)
{
    BY_UNUSED(context);
    const by_packing *packing = &call->attrs.packing;
    const by__tensor *y = &call->out[0];
    bool biased = call->input_count > 2 && by__present(&call->in[2]);
    bool added = call->input_count > 3 && by__present(&call->in[3]);
    for (int64_t at = 0, count = by__tensor_count(y); at < count; at++) {
        int64_t row = at / packing->n;
        int64_t column = at % packing->n;
        double sum = biased ? by__get(&call->in[2], column) : 0.0;
        for (int64_t i = 0; i < packing->k; i++) {
            sum += by__get(&call->in[0], row * packing->k + i) *
                   (double)by__packed_at(packing, call->in[1].data, column, i);
        }
        by__set(y, at, sum + (added ? by__get(&call->in[3], at) : 0.0));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PACKED_MATMUL, packed_matmul, NULL, run_packed_matmul);

static by_status run_packed_embedding(const by__call *call, const by__context *context)
{
    BY_UNUSED(context);
    const by_packing *packing = &call->attrs.packing;
    for (int64_t at = 0, count = by__tensor_count(&call->out[0]); at < count; at++) {
        int64_t id = by__id(&call->in[0], at / packing->k);
        bool found = id >= 0 && id < packing->n;
        by__set(&call->out[0], at,
                found ? (double)by__packed_at(packing, call->in[1].data, id, at % packing->k)
                      : 0.0);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PACKED_EMBEDDING, packed_embedding, NULL, run_packed_embedding);
