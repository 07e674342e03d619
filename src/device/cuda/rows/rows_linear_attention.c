/* Linear attention and its gradient. */
#include "device/cuda/launch.h"
#include "device/cuda/rows/heads.h"

static bool supports(const by__device_call *call, int operands)
{
    by__cuda_heads s = by__cuda_heads_of(call, operands);
    return by_dtype_is_float(call->in[0].dtype) && s.width <= BY__CUDA_MOST_WIDTH &&
           s.batch <= 65535 && s.heads <= 65535;
}

static bool supports_attention(const by__device_call *call)
{
    return supports(call, call->input_count);
}

static bool supports_grad(const by__device_call *call)
{
    return supports(call, call->input_count - 1);
}

static int64_t chunks_of(const by__cuda_heads *s)
{
    return by__ceil_div(s->length, BY__CUDA_CHUNK);
}

/* Elements of the sums of all chunks. */
static int64_t states_of(const by__cuda_heads *s)
{
    return s->batch * s->kv_heads * chunks_of(s) * s->width * (s->width + 1);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count);
    return by__cuda_reserve(call, states_of(&s), error);
}

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count - 1);
    return by__cuda_reserve(call, 2 * states_of(&s) + 2 * s.batch * s.heads * s.length, error);
}

static by__cuda_linear_attention_args args_of(const by__device_call *call, int operands,
                                              const by__cuda_heads *s)
{
    void *part[3];
    by__cuda_heads_parts(part, call->in, s);
    return (by__cuda_linear_attention_args){
        .q = part[0],
        .k = part[1],
        .v = part[2],
        .lengths = operands > 3 && by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .states = call->work,
        .length = s->length,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .width = s->width,
        .q_stride = s->q_stride,
        .kv_stride = s->kv_stride,
        .chunks = chunks_of(s),
        .dtype = (int32_t)call->in[0].dtype,
        .causal = !call->attrs.bidirectional,
    };
}

static by_status start(const by__device_context *context, by__cuda_kernel kernel, int64_t blocks,
                       int64_t heads, int64_t batch, unsigned shared, const void *args)
{
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_grid grid = {
        {(unsigned)blocks, (unsigned)heads, (unsigned)batch}, BY__CUDA_BLOCK, shared};
    return blocks == 0 || batch == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

/* The sums of each chunk by a kernel, then those of the chunks before or behind. */
static by_status sum_chunks(const by__device_context *context, by__cuda_kernel kernel,
                            const by__cuda_heads *s, const by__cuda_linear_attention_args *args,
                            float *states, bool turned)
{
    int64_t tiles = by__ceil_div(s->width, BY__CUDA_TILE) * (s->width / BY__CUDA_TILE + 1);
    int64_t size = s->width * (s->width + 1);
    by__cuda_linear_prefix_args prefix = {
        .states = states,
        .count = s->batch * s->kv_heads * size,
        .size = size,
        .chunks = args->chunks,
        .causal = args->causal,
        .turned = turned,
    };
    BY_TRY(start(context, kernel, args->chunks * tiles, s->kv_heads, s->batch, 0, args));
    return args->chunks == 0
               ? BY_OK
               : by__cuda_over_each(context, BY__CUDA_KERNEL_linear_prefix, prefix.count, &prefix);
}

static by_status run_attention(const by__device_call *call, const by__device_context *context)
{
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count);
    by__cuda_linear_attention_args args = args_of(call, call->input_count, &s);
    args.y = call->out[0].data;
    BY_TRY(sum_chunks(context, BY__CUDA_KERNEL_linear_states, &s, &args, args.states, false));
    return start(context, BY__CUDA_KERNEL_linear_attention, by__ceil_div(s.length, BY__CUDA_TILE),
                 s.heads, s.batch, 0, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_LINEAR_ATTENTION, linear_attention, supports_attention, prepare, NULL,
                    run_attention);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    int operands = call->input_count - 1;
    by__cuda_heads s = by__cuda_heads_of(call, operands);
    by__cuda_linear_attention_args args = args_of(call, operands, &s);
    int64_t tiles = by__ceil_div(s.length, BY__CUDA_TILE);
    void *gradient[3];
    by__cuda_heads_parts(gradient, call->out, &s);
    args.dy = call->in[operands].data;
    args.dq = gradient[0];
    args.dk = gradient[1];
    args.dv = gradient[2];
    args.back = args.states + states_of(&s);
    args.given = args.back + states_of(&s);
    BY_TRY(sum_chunks(context, BY__CUDA_KERNEL_linear_states, &s, &args, args.states, false));
    BY_TRY(start(context, BY__CUDA_KERNEL_linear_queries_grad, tiles, s.heads, s.batch, 0, &args));
    BY_TRY(sum_chunks(context, BY__CUDA_KERNEL_linear_back_states, &s, &args, args.back, true));
    return start(context, BY__CUDA_KERNEL_linear_keys_grad, tiles, s.kv_heads, s.batch,
                 (unsigned)BY__CUDA_LINEAR_SHARED(s.width), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_LINEAR_ATTENTION_GRAD, linear_attention_grad, supports_grad, prepare_grad,
                    NULL, run_grad);
