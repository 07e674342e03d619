/* 8-bit codes. */
#include "base/packing/packing.h"
#include "device/cpu/dynamic_codes.h"
#include "device/cuda/launch.h"

_Static_assert(BY_CODE_BLOCK == 256 && BY_ROW_CODE_BLOCK == 128, "codes.cu");

static by_status run_adamw8(const by__device_call *call, const by__device_context *context)
{
    const by_attrs *attrs = &call->attrs;
    bool copied = call->output_count > 0 && call->out[0].shape.rank >= 0;
    by__cuda_adamw8_args args = {
        .p = call->in[0].data,
        .g = call->in[1].data,
        .m = call->in[2].data,
        .v = call->in[3].data,
        .m_scale = call->in[4].data,
        .v_scale = call->in[5].data,
        .hyper = call->in[6].data,
        .scale = call->in[7].data,
        .copy = copied ? call->out[0].data : NULL,
        .count = by__tensor_count(&call->in[0]),
        .beta1 = attrs->beta1,
        .beta2 = attrs->beta2,
        .rest1 = (float)(1.0 - (double)attrs->beta1),
        .rest2 = (float)(1.0 - (double)attrs->beta2),
        .eps = attrs->eps,
        .decay = attrs->decay,
        .lr_scale = attrs->lr_scale,
        .copy_dtype = copied ? (int32_t)call->out[0].dtype : 0,
    };
    by__dynamic_values(args.first_values, true);
    by__dynamic_values(args.second_values, false);
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_adamw8,
                                by__ceil_div(args.count, BY_CODE_BLOCK), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ADAMW8, adamw8, NULL, NULL, NULL, run_adamw8);

/* Blocks of smaller magnitudes are zeros, as on the CPU: quotients by them could overflow. */
#define LEAST_CODED 0x1p-118f

static bool supports_encode8(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static by_status run_encode8(const by__device_call *call, const by__device_context *context)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t each = by__ceil_div(columns, BY_ROW_CODE_BLOCK);
    by__cuda_encode8_args args = {
        .x = call->in[0].data,
        .codes = call->out[0].data,
        .scale = call->out[1].data,
        .pieces = by__tensor_rows(&call->in[0]) * each,
        .pieces_each = each,
        .columns = columns,
        .least = LEAST_CODED,
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_encode8, args.pieces, false, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ENCODE8, encode8, supports_encode8, NULL, NULL, run_encode8);

static by_status run_decode8(const by__device_call *call, const by__device_context *context)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    by__cuda_decode8_args args = {
        .codes = call->in[0].data,
        .scale = call->in[1].data,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .columns = columns,
        .pieces_each = by__ceil_div(columns, BY_ROW_CODE_BLOCK),
        .dtype = (int32_t)call->out[0].dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_decode8, args.count, &args);
}

static bool supports_decode8(const by__device_call *call)
{
    return by_dtype_is_float(call->out[0].dtype);
}

BY__CUDA_ROW_KERNEL(BY_OP_DECODE8, decode8, supports_decode8, NULL, NULL, run_decode8);

/* ---- FAKE_QUANTIZE ---- */

static by__cuda_fake_quantize_rows_args fake_of(const by__device_call *call)
{
    const by_packing *p = &call->attrs.packing;
    int64_t group = p->kind == BY_PACKING_INT8 ? p->k : p->group;
    return (by__cuda_fake_quantize_rows_args){
        .w = call->in[0].data,
        .y = call->out[0].data,
        .outputs = by__packed_matrices(p) * p->n,
        .k = p->k,
        .group = group,
        .groups = p->k > 0 ? by__ceil_div(p->k, group) : 0,
        .wide = p->kind == BY_PACKING_INT8,
        .dtype = (int32_t)call->out[0].dtype,
    };
}

static bool supports_fake_quantize(const by__device_call *call)
{
    return fake_of(call).groups <= 65535;
}

static by_status run_fake_quantize(const by__device_call *call, const by__device_context *context)
{
    const by__cuda_fake_quantize_rows_args args = fake_of(call);
    by__cuda_queue *queue = by__cuda_queue_of(context);
    if (call->attrs.trans_b) {
        return by__cuda_over_rows(context, BY__CUDA_KERNEL_fake_quantize_rows,
                                  args.outputs * args.groups, false, &args);
    }
    by__cuda_grid grid = {
        {(unsigned)by__ceil_div(args.outputs, 32), (unsigned)args.groups, 1}, BY__CUDA_BLOCK, 0};
    return args.outputs == 0 || args.groups == 0
               ? BY_OK
               : queue->launch(queue, BY__CUDA_KERNEL_fake_quantize_columns, &grid, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_FAKE_QUANTIZE, fake_quantize, supports_fake_quantize, NULL, NULL,
                    run_fake_quantize);
