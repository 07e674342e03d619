#include <math.h>

#include "base/packing/packing.h"
#include "device/cpu/reference.h"

/* Largest integers to which elements of x are quantized for integer weights. */
#define LARGEST      32639.0f
#define LARGEST_BYTE 127.0f
/* Blocks whose largest magnitude is smaller are quantized to zeros, because its inverse would not
 * be finite. */
#define SMALLEST 0x1p-100f

static by_status prepare_packed_matmul(by__device_call *call, const by__device_context *context,
                                       by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_count(&call->in[0]), error);
}

/* The operand as it is multiplied: for integer weights quantized in blocks with a scale, for W8A8
 * in rows with one. */
static void unpack_rows(const by__device_call *call)
{
    const by_packing *packing = &call->attrs.packing;
    double *out = call->work;
    bool as_is = packing->kind == BY_PACKING_PACKED || packing->kind == BY_PACKING_FP8;
    bool whole = as_is || packing->kind == BY_PACKING_W8A8;
    float most = packing->kind == BY_PACKING_W8A8 ? LARGEST_BYTE : LARGEST;
    for (int64_t at = 0, next, count = by__tensor_count(&call->in[0]); at < count; at = next) {
        int64_t end = (at / packing->k + 1) * packing->k;
        next = whole ? end : by__min_i64(end, at + by__packed_block(packing));
        float largest = 0.0f;
        for (int64_t i = at; i < next; i++) {
            out[i] = by__get(&call->in[0], i);
            largest = fmaxf(largest, fabsf((float)out[i]));
        }
        for (int64_t i = at; !as_is && i < next; i++) {
            float inverse = largest >= SMALLEST ? most / largest : 0.0f;
            out[i] = (double)rintf((float)out[i] * inverse) * (double)(largest / most);
        }
    }
}

/* Sum of element `at` of the product of the rows that take_rows made with a packed matrix. */
static double product_at(const by__device_call *call, const void *matrix, int64_t at)
{
    const by_packing *packing = &call->attrs.packing;
    const double *x = (const double *)call->work + at / packing->n * packing->k;
    double sum = 0.0;
    for (int64_t i = 0; i < packing->k; i++) {
        sum += x[i] * (double)by__packed_at(packing, matrix, at % packing->n, i);
    }
    return sum;
}

static by_status run_packed_matmul(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *y = &call->out[0];
    bool biased = call->input_count > 2 && by__present(&call->in[2]);
    bool added = call->input_count > 3 && by__present(&call->in[3]);
    unpack_rows(call);
    for (int64_t at = 0, count = by__tensor_count(y); at < count; at++) {
        double bias = biased ? by__get(&call->in[2], at % call->attrs.packing.n) : 0.0;
        double sum = bias + product_at(call, call->in[1].data, at);
        by__set(y, at, sum + (added ? by__get(&call->in[3], at) : 0.0));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PACKED_MATMUL, packed_matmul, prepare_packed_matmul, run_packed_matmul);

static by_status run_packed_grouped_matmul(const by__device_call *call,
                                           const by__device_context *context)
{
    BY_UNUSED(context);
    const by_packing *packing = &call->attrs.packing;
    const by__device_tensor *y = &call->out[0];
    int64_t groups = call->in[2].shape.dim[0];
    int64_t ranges = groups / packing->stack;
    size_t matrix_bytes = (size_t)by__packed_panels(packing) * by__packed_panel_bytes(packing);
    unpack_rows(call);
    for (int64_t i = 0; i < by__tensor_count(y); i++) {
        by__set(y, i, 0.0);
    }
    for (int64_t g = 0; g < groups; g++) {
        const char *matrix = (const char *)call->in[1].data + (size_t)(g / ranges) * matrix_bytes;
        int64_t begin;
        int64_t end;
        by__cpu_reference_range(call, g, &begin, &end);
        for (int64_t at = begin * packing->n; at < end * packing->n; at++) {
            by__set(y, at, product_at(call, matrix, at));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PACKED_GROUPED_MATMUL, packed_grouped_matmul, prepare_packed_matmul,
                     run_packed_grouped_matmul);

static by_status run_packed_embedding(const by__device_call *call,
                                      const by__device_context *context)
{
    BY_UNUSED(context);
    const by_packing *packing = &call->attrs.packing;
    for (int64_t at = 0, count = by__tensor_count(&call->out[0]); at < count; at++) {
        bool all = !by__present(&call->in[0]);
        int64_t id = all ? at / packing->k : by__id(&call->in[0], at / packing->k);
        bool found = id >= 0 && id < packing->n;
        by__set(&call->out[0], at,
                found ? (double)by__packed_at(packing, call->in[1].data, id, at % packing->k)
                      : 0.0);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PACKED_EMBEDDING, packed_embedding, NULL, run_packed_embedding);
