/* Recurrent networks and their gradients. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[2].dtype);
}

/* Sums of a step. */
static int64_t sums_of(const by__device_call *call)
{
    return call->in[2].shape.dim[0];
}

static int64_t width_of(const by__device_call *call)
{
    return call->in[2].shape.dim[1];
}

/* The workspace: scratch memory of each sample, and the transposed matrix of the states. */
static int64_t scratch_of(const by__device_call *call)
{
    return call->in[0].shape.dim[0] * (width_of(call) + sums_of(call));
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, scratch_of(call) + width_of(call) * sums_of(call), error);
}

static by_status multiply_inputs(const by__device_call *call, const by__device_context *context)
{
    const by_shape *x = &call->in[0].shape;
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_recurrent_inputs_args args = {
        .x = call->in[0].data,
        .w = call->in[1].data,
        .b = call->in[3].data,
        .y = call->out[1].data,
        .rows = x->dim[0] * x->dim[1],
        .inner = x->dim[2],
        .sums = sums_of(call),
        .stride = 4 * width_of(call),
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_grid grid = {{(unsigned)by__ceil_div(args.rows, BY__CUDA_TILE),
                           (unsigned)by__ceil_div(args.sums, BY__CUDA_TILE), 1},
                          BY__CUDA_BLOCK,
                          0};
    return args.rows == 0 ? BY_OK
                          : queue->launch(queue, BY__CUDA_KERNEL_recurrent_inputs, &grid, &args);
}

static by_status run_layer(const by__device_call *call, const by__device_context *context,
                           by__cuda_kernel kernel)
{
    float *state = call->work;
    by__cuda_gather_args turn = {
        .x = call->in[2].data,
        .y = state + scratch_of(call),
        .count = width_of(call) * sums_of(call),
        .extent = {width_of(call), sums_of(call)},
        .stride = {1, width_of(call)},
        .rank = 2,
        .bytes = (int32_t)by_dtype_size(call->in[2].dtype),
    };
    by__cuda_recurrent_args args = {
        .u = turn.y,
        .a = call->in[4].data,
        .y = call->out[0].data,
        .gates = call->out[1].data,
        .cells = call->output_count > 2 ? call->out[2].data : NULL,
        .state = state,
        .steps = call->in[0].shape.dim[1],
        .width = width_of(call),
        .dtype = (int32_t)call->in[2].dtype,
    };
    BY_TRY(multiply_inputs(call, context));
    BY_TRY(by__cuda_over_each(context, BY__CUDA_KERNEL_gather, turn.count, &turn));
    return by__cuda_over_blocks(context, kernel, call->in[0].shape.dim[0], &args);
}

static by_status run_lstm(const by__device_call *call, const by__device_context *context)
{
    return run_layer(call, context, BY__CUDA_KERNEL_lstm);
}

BY__CUDA_ROW_KERNEL(BY_OP_LSTM, lstm, supports, prepare, NULL, run_lstm);

static by_status run_gru(const by__device_call *call, const by__device_context *context)
{
    return run_layer(call, context, BY__CUDA_KERNEL_gru);
}

BY__CUDA_ROW_KERNEL(BY_OP_GRU, gru, supports, prepare, NULL, run_gru);

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, call->in[3].shape.dim[0] * (2 * sums_of(call) + width_of(call)),
                            error);
}

static by_status run_grad(const by__device_call *call, const by__device_context *context,
                          by__cuda_kernel kernel)
{
    bool lstm = kernel == BY__CUDA_KERNEL_lstm_grad;
    by__cuda_recurrent_grad_args args = {
        .gates = call->in[0].data,
        .cells = lstm ? call->in[1].data : NULL,
        .u = call->in[2].data,
        .y = lstm ? NULL : call->in[1].data,
        .dy = call->in[3].data,
        .dz = call->out[0].data,
        .dq = lstm ? NULL : call->out[1].data,
        .state = call->work,
        .steps = call->in[3].shape.dim[1],
        .width = width_of(call),
        .dtype = (int32_t)call->in[3].dtype,
    };
    return by__cuda_over_blocks(context, kernel, call->in[3].shape.dim[0], &args);
}

static by_status run_lstm_grad(const by__device_call *call, const by__device_context *context)
{
    return run_grad(call, context, BY__CUDA_KERNEL_lstm_grad);
}

BY__CUDA_ROW_KERNEL(BY_OP_LSTM_GRAD, lstm_grad, supports, prepare_grad, NULL, run_lstm_grad);

static by_status run_gru_grad(const by__device_call *call, const by__device_context *context)
{
    return run_grad(call, context, BY__CUDA_KERNEL_gru_grad);
}

BY__CUDA_ROW_KERNEL(BY_OP_GRU_GRAD, gru_grad, supports, prepare_grad, NULL, run_gru_grad);
