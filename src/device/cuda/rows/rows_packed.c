/* Products with packed weights. Where these are integers the other operand is made of integers and
 * scales first, as on CPUs, in the workspace. */
#include "base/packing/packing.h"
#include "device/cuda/launch.h"

/* The exponent of a power of two. */
static int32_t bits_of(int64_t power)
{
    int32_t bits = 0;
    while ((int64_t)1 << bits < power) {
        bits++;
    }
    return bits;
}

static by__cuda_packing describe(const by_packing *p)
{
    static const int32_t codes[BY_PACKING_KINDS] = {[BY_PACKING_INT8] = BY__CUDA_CODES_8,
                                                    [BY_PACKING_W8A8] = BY__CUDA_CODES_8,
                                                    [BY_PACKING_INT4] = BY__CUDA_CODES_4,
                                                    [BY_PACKING_FP8] = BY__CUDA_CODES_F8};
    return (by__cuda_packing){.n = p->n,
                              .k = p->k,
                              .block_bits = bits_of(by__packed_block(p)),
                              .block_bytes = (int64_t)by__packed_block_bytes(p),
                              .panel_bytes = (int64_t)by__packed_panel_bytes(p),
                              .codes = codes[p->kind],
                              .dtype = (int32_t)p->dtype};
}

static bool rounds_rows(const by_packing *p)
{
    return p->kind == BY_PACKING_INT8 || p->kind == BY_PACKING_INT4 || p->kind == BY_PACKING_W8A8;
}

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype) && by_dtype_is_float(call->out[0].dtype) &&
           call->attrs.packing.kind != BY_PACKING_NONE &&
           by__ceil_div(by__tensor_rows(&call->in[0]), BY__CUDA_TILE) <= 65535;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    bool rounds = rounds_rows(&call->attrs.packing);
    return by__cuda_reserve(call, rounds ? by__tensor_count(&call->in[0]) : 0, error);
}

/* The operand as it is multiplied. */
static by_status take_rows(by__device_tensor *out, const by__device_call *call,
                           const by__device_context *context)
{
    const by_packing *p = &call->attrs.packing;
    *out = call->in[0];
    if (!rounds_rows(p)) {
        return BY_OK;
    }
    int64_t piece = p->kind == BY_PACKING_W8A8 ? p->k : by__packed_block(p);
    by__cuda_packed_rows_args args = {.x = call->in[0].data,
                                      .y = call->work,
                                      .pieces_each = by__ceil_div(p->k, piece),
                                      .piece = piece,
                                      .k = p->k,
                                      .most = p->kind == BY_PACKING_W8A8 ? 127.0f : 32639.0f,
                                      .dtype = (int32_t)call->in[0].dtype};
    args.pieces = by__tensor_rows(&call->in[0]) * args.pieces_each;
    out->data = call->work;
    out->dtype = BY_F32;
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_packed_rows, args.pieces, false, &args);
}

static by_status start(const by__device_context *context, by__cuda_kernel kernel, int64_t rows,
                       int64_t n, const void *args)
{
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_grid grid = {
        {(unsigned)by__ceil_div(n, BY__CUDA_TILE), (unsigned)by__ceil_div(rows, BY__CUDA_TILE), 1},
        BY__CUDA_BLOCK,
        0};
    return rows == 0 || n == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    bool biased = by__cuda_present(call, 2);
    by__device_tensor a;
    BY_TRY(take_rows(&a, call, context));
    by__cuda_packed_matmul_args args = {
        .a = a.data,
        .w = call->in[1].data,
        .bias = biased ? call->in[2].data : NULL,
        .add = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .y = call->out[0].data,
        .m = by__tensor_rows(&a),
        .packing = describe(&call->attrs.packing),
        .a_dtype = (int32_t)a.dtype,
        .bias_dtype = biased ? (int32_t)call->in[2].dtype : 0,
        .dtype = (int32_t)call->out[0].dtype,
    };
    return start(context, BY__CUDA_KERNEL_packed_matmul, args.m, args.packing.n, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_PACKED_MATMUL, packed_matmul, supports, prepare, NULL, run_matmul);

static by_status run_grouped(const by__device_call *call, const by__device_context *context)
{
    const by_packing *p = &call->attrs.packing;
    by__device_tensor a;
    BY_TRY(take_rows(&a, call, context));
    by__cuda_packed_grouped_matmul_args args = {
        .a = a.data,
        .w = call->in[1].data,
        .range = call->in[2].data,
        .y = call->out[0].data,
        .rows = by__tensor_rows(&a),
        .groups = call->in[2].shape.dim[0],
        .ranges_each = call->in[2].shape.dim[0] / by__packed_matrices(p),
        .capacity = call->attrs.capacity,
        .matrix_bytes = by__packed_panels(p) * (int64_t)by__packed_panel_bytes(p),
        .packing = describe(p),
        .a_dtype = (int32_t)a.dtype,
        .dtype = (int32_t)call->out[0].dtype,
    };
    return start(context, BY__CUDA_KERNEL_packed_grouped_matmul, args.rows, args.packing.n, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_PACKED_GROUPED_MATMUL, packed_grouped_matmul, supports, prepare, NULL,
                    run_grouped);

static bool supports_embedding(const by__device_call *call)
{
    return by_dtype_is_float(call->out[0].dtype) && call->attrs.packing.kind != BY_PACKING_NONE;
}

static by_status run_embedding(const by__device_call *call, const by__device_context *context)
{
    by__cuda_packed_embedding_args args = {.ids =
                                               by__cuda_present(call, 0) ? call->in[0].data : NULL,
                                           .w = call->in[1].data,
                                           .y = call->out[0].data,
                                           .count = by__tensor_count(&call->out[0]),
                                           .packing = describe(&call->attrs.packing),
                                           .dtype = (int32_t)call->out[0].dtype};
    return by__cuda_over_each(context, BY__CUDA_KERNEL_packed_embedding, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_PACKED_EMBEDDING, packed_embedding, supports_embedding, NULL, NULL,
                    run_embedding);
