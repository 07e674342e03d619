/* MATMUL: y = op(a) op(b) + bias + add, fused into one product (gemm.h). */
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "device/cpu/panel.h"

static by__cpu_gemm_options product(const by__device_call *call)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    bool trans_a = call->attrs.trans_a;
    bool trans_b = call->attrs.trans_b;
    return (by__cpu_gemm_options){
        .m = trans_a ? by__tensor_columns(a) : by__tensor_rows(a),
        .n = trans_b ? by__tensor_rows(b) : by__tensor_columns(b),
        .k = trans_a ? by__tensor_rows(a) : by__tensor_columns(a),
        .trans_a = trans_a,
        .trans_b = trans_b,
        .dtype = a->dtype,
        .out = call->out[0].dtype,
        .bias = by__present(&call->in[2]),
        .bias_dtype = call->in[2].dtype,
        .add = by__present(&call->in[3]),
        .isa = BY__AT_LEVEL(BY__LEVEL),
    };
}

static bool supports(const by__device_call *call)
{
    by__cpu_gemm_options o = product(call);
    return o.m > 0 && o.n > 0 && o.k > 0 && by__tensor_is_act(&call->in[0]) &&
           call->in[1].dtype == o.dtype && by__tensor_is_act(&call->out[0]) &&
           (!o.bias || by__tensor_is_act(&call->in[2]));
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    by__cpu_gemm_options options = product(call);
    options.threads = context->threads;
    by__cpu_gemm *gemm = NULL;
    BY_TRY(by__cpu_gemm_open(&gemm, &options, error));
    call->state = gemm;
    call->work_bytes = by__cpu_gemm_work(gemm);
    return BY_OK;
}

static void release(by__device_call *call)
{
    by__cpu_gemm *gemm = call->state;
    by__cpu_gemm_close(&gemm);
    call->state = NULL;
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    by__cpu_gemm_operands operands = {
        .a = call->in[0].data,
        .b = call->in[1].data,
        .bias = call->in[2].data,
        .add = call->in[3].data,
        .c = call->out[0].data,
        .work = call->work,
    };
    by__cpu_gemm_run(call->state, &operands);
    return BY_OK;
}

BY__KERNEL(matmul) = {BY_OP_MATMUL, BY__KERNEL_NAME("matmul"), supports, prepare, release,
                      run_matmul};
