/* Quotients and products are f32, as in the definition: codes and scales have the same bits at
 * every level. */
#include <math.h>

#include "device/cpu/reference.h"

static int64_t columns_of(const by__device_tensor *tensor)
{
    return tensor->shape.dim[tensor->shape.rank - 1];
}

static void encode_block(const by__device_call *call, int64_t first, int64_t count, int64_t block)
{
    float largest = 0.0f;
    for (int64_t i = first; i < first + count; i++) {
        float magnitude = fabsf((float)by__get(&call->in[0], i));
        largest = magnitude > largest || isnan(magnitude) ? magnitude : largest;
        if (isnan(largest)) {
            break;
        }
    }
    bool zero = largest < BY__MIN_CODED;
    float times = zero ? 0.0f : 127.0f / largest;
    by__set(&call->out[1], block, zero ? 0.0 : (double)(largest / 127.0f));
    for (int64_t i = first; i < first + count; i++) {
        float scaled = (float)by__get(&call->in[0], i) * times;
        by__set(&call->out[0], i, 128.0 + (isfinite(scaled) ? nearbyint((double)scaled) : 0.0));
    }
}

static by_status run_encode8(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t columns = columns_of(&call->in[0]);
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t block = 0;
    for (int64_t row = 0; row < count; row += columns) {
        for (int64_t i = 0; i < columns; i += BY_ROW_CODE_BLOCK) {
            encode_block(call, row + i, by__min_i64(BY_ROW_CODE_BLOCK, columns - i), block++);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ENCODE8, encode8, NULL, run_encode8);

static by_status run_decode8(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t columns = columns_of(&call->in[0]);
    int64_t blocks = by__ceil_div(columns, BY_ROW_CODE_BLOCK);
    int64_t count = by__tensor_count(&call->in[0]);
    for (int64_t i = 0; i < count; i++) {
        int64_t block = i / columns * blocks + i % columns / BY_ROW_CODE_BLOCK;
        float scale = (float)by__get(&call->in[1], block);
        by__set(&call->out[0], i, (double)((float)(by__get(&call->in[0], i) - 128.0) * scale));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_DECODE8, decode8, NULL, run_decode8);
