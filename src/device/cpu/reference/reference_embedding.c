#include <string.h>

#include "device/cpu/reference.h"

static by_status run_offset_ids(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t k = 0, count = by__tensor_count(&call->in[0]); k < count; k++) {
        int64_t id = by__id(&call->in[0], k);
        by__set(&call->out[0], k, id < 0 ? -1.0 : (double)(id - call->attrs.begin));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_OFFSET_IDS, offset_ids, NULL, run_offset_ids);

static by_status run_embedding(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *table = &call->in[1];
    int64_t columns = by__tensor_columns(table);
    int64_t rows = by__tensor_rows(table);
    for (int64_t k = 0, count = by__tensor_count(&call->in[0]); k < count; k++) {
        int64_t id = by__id(&call->in[0], k);
        for (int64_t i = 0; i < columns; i++) {
            double value = id >= 0 && id < rows ? by__get(table, id * columns + i) : 0.0;
            by__set(&call->out[0], k * columns + i, value);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EMBEDDING, embedding, NULL, run_embedding);

static by_status prepare_embedding_grad(by__device_call *call, const by__device_context *context,
                                        by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_rows(&call->out[0]), error);
}

/* Computes one column of the table at a time, in double. */
static by_status run_embedding_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *ids = &call->in[0];
    const by__device_tensor *dy = &call->in[1];
    bool based = call->input_count > 2 && by__present(&call->in[2]);
    int64_t columns = by__tensor_columns(&call->out[0]);
    int64_t rows = by__tensor_rows(&call->out[0]);
    double *sum = call->work;
    for (int64_t i = 0; i < columns; i++) {
        for (int64_t row = 0; row < rows; row++) {
            sum[row] = based ? by__get(&call->in[2], row * columns + i) : 0.0;
        }
        for (int64_t k = 0, count = by__tensor_count(ids); k < count; k++) {
            int64_t id = by__id(ids, k);
            if (id >= 0 && id < rows) {
                sum[id] += by__get(dy, k * columns + i);
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            by__set(&call->out[0], row * columns + i, sum[row]);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EMBEDDING_GRAD, embedding_grad, prepare_embedding_grad,
                     run_embedding_grad);

static by_status run_position(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    int64_t length = x->shape.dim[x->shape.rank - 2];
    for (int64_t i = 0, count = by__tensor_count(x); i < count; i++) {
        int64_t t = by__place_of(&call->attrs, i / columns % length);
        by__set(&call->out[0], i, by__get(x, i) + by__get(&call->in[1], t * columns + i % columns));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_POSITION, position, NULL, run_position);

static by_status run_position_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *dy = &call->in[0];
    int64_t size = dy->shape.dim[dy->shape.rank - 2] * by__tensor_columns(dy);
    int64_t samples = size == 0 ? 0 : by__tensor_count(dy) / size;
    int64_t columns = by__tensor_columns(dy);
    for (int64_t i = 0, count = by__tensor_count(&call->out[0]); i < count; i++) {
        by__set(&call->out[0], i, 0.0);
    }
    for (int64_t i = 0; i < size; i++) {
        int64_t at = by__place_of(&call->attrs, i / columns) * columns + i % columns;
        double sum = 0.0;
        for (int64_t sample = 0; sample < samples; sample++) {
            sum += by__get(dy, sample * size + i);
        }
        by__set(&call->out[0], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_POSITION_GRAD, position_grad, NULL, run_position_grad);
