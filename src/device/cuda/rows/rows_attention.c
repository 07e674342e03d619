/* Attention and its gradient. */
#include <math.h>

#include "device/cuda/launch.h"
#include "device/cuda/rows/heads.h"

static bool supports(const by__device_call *call, int operands)
{
    by__cuda_heads s = by__cuda_heads_of(call, operands);
    return by_dtype_is_float(call->in[0].dtype) && s.width <= BY__CUDA_MOST_WIDTH &&
           s.batch <= 65535 && s.heads <= (call->attrs.slopes > 0 ? BY__CUDA_MOST_SLOPES : 65535);
}

/* Keys behind its own that a query may read. */
static int64_t keys_behind(const by__device_call *call, const by__cuda_heads *s)
{
    const by_attrs *a = &call->attrs;
    return !a->bidirectional ? 0 : a->window > 0 ? a->window - 1 : s->length;
}

static void fill_slopes(float *slope, const by__device_call *call)
{
    const by_attrs *a = &call->attrs;
    for (int64_t h = 0; h < a->heads && a->slopes > 0; h++) {
        slope[h] = (float)by_attention_slope(a->slopes, a->begin + h);
    }
}

static bool supports_attention(const by__device_call *call)
{
    return supports(call, call->input_count);
}

static bool supports_attention_grad(const by__device_call *call)
{
    return supports(call, call->input_count - 3);
}

static by_status start(const by__device_context *context, by__cuda_kernel kernel, int64_t tiles,
                       int64_t heads, int64_t batch, unsigned block, int64_t shared,
                       const void *args)
{
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_grid grid = {
        {(unsigned)tiles, (unsigned)heads, (unsigned)batch}, block, (unsigned)shared};
    return tiles == 0 || batch == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

/* The kernel with tensor cores for these heads of those of one kind, bf16 and f16 of 64 and 128,
 * that begin at `first`; BY__CUDA_KERNELS: none. */
static by__cuda_kernel mma_kernel(const by__device_call *call, const by__cuda_heads *s,
                                  by__cuda_kernel first)
{
    bool bf16 = call->in[0].dtype == BY_BF16;
    bool aligned = s->q_stride % 8 == 0 && s->kv_stride % 8 == 0; /* rows begin at 16 bytes */
    if (call->in[0].dtype == BY_F32 || !aligned || (s->width != 64 && s->width != 128)) {
        return BY__CUDA_KERNELS;
    }
    return (by__cuda_kernel)((int)first + (bf16 ? 0 : 2) + (s->width == 64 ? 0 : 1));
}

static by_status run_attention(const by__device_call *call, const by__device_context *context)
{
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count);
    void *part[3];
    by__cuda_heads_parts(part, call->in, &s);
    by__cuda_attention_args args = {
        .q = part[0],
        .k = part[1],
        .v = part[2],
        .lengths = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .starts = by__cuda_present(call, 4) ? call->in[4].data : NULL,
        .y = call->out[0].data,
        .lse = call->out[1].data,
        .length = s.length,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .width = s.width,
        .q_stride = s.q_stride,
        .kv_stride = s.kv_stride,
        .window = call->attrs.window,
        .scale = (float)(1.0 / sqrt((double)s.width)),
        .behind = keys_behind(call, &s),
        .dtype = (int32_t)call->in[0].dtype,
        .sloped = call->attrs.slopes > 0,
    };
    fill_slopes(args.slope, call);
    by__cuda_kernel kernel = mma_kernel(call, &s, BY__CUDA_KERNEL_attention_bf16_64);
    if (kernel != BY__CUDA_KERNELS) {
        return start(context, kernel, by__ceil_div(s.length, BY__CUDA_MMA_TILE), s.heads, s.batch,
                     128, BY__CUDA_ATTENTION_MMA_SHARED(s.width), &args);
    }
    return start(context, BY__CUDA_KERNEL_attention, by__ceil_div(s.length, BY__CUDA_QUERIES),
                 s.heads, s.batch, 128, BY__CUDA_ATTENTION_SHARED(s.width), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ATTENTION, attention, supports_attention, NULL, NULL, run_attention);

static by_status prepare_attention_grad(by__device_call *call, const by__device_context *context,
                                        by_error *error)
{
    BY_UNUSED(context);
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count - 3);
    return by__cuda_reserve(call, s.batch * s.heads * s.length, error);
}

static by_status run_attention_grad(const by__device_call *call, const by__device_context *context)
{
    int operands = call->input_count - 3;
    by__cuda_heads s = by__cuda_heads_of(call, operands);
    void *part[3];
    void *gradient[3];
    by__cuda_heads_parts(part, call->in, &s);
    by__cuda_heads_parts(gradient, call->out, &s);
    by__cuda_attention_delta_args delta = {
        .y = call->in[operands].data,
        .dy = call->in[operands + 2].data,
        .delta = call->work,
        .rows = s.batch * s.length,
        .length = s.length,
        .heads = s.heads,
        .width = s.width,
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_attention_grad_args args = {
        .q = part[0],
        .k = part[1],
        .v = part[2],
        .dy = delta.dy,
        .lse = call->in[operands + 1].data,
        .delta = delta.delta,
        .lengths = operands > 3 && by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .starts = operands > 4 && by__cuda_present(call, 4) ? call->in[4].data : NULL,
        .dq = gradient[0],
        .dk = gradient[1],
        .dv = gradient[2],
        .length = s.length,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .width = s.width,
        .q_stride = s.q_stride,
        .kv_stride = s.kv_stride,
        .window = call->attrs.window,
        .scale = (float)(1.0 / sqrt((double)s.width)),
        .behind = keys_behind(call, &s),
        .dtype = delta.dtype,
        .sloped = call->attrs.slopes > 0,
    };
    fill_slopes(args.slope, call);
    int64_t tiles = by__ceil_div(s.length, BY__CUDA_GRADIENT);
    by__cuda_kernel keys = mma_kernel(call, &s, BY__CUDA_KERNEL_keys_grad_bf16_64);
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_attention_delta, delta.rows * s.heads, false,
                              &delta));
    if (keys != BY__CUDA_KERNELS) {
        by__cuda_kernel queries = mma_kernel(call, &s, BY__CUDA_KERNEL_queries_grad_bf16_64);
        tiles = by__ceil_div(s.length, BY__CUDA_MMA_TILE);
        BY_TRY(start(context, keys, tiles, s.kv_heads, s.batch, 128,
                     BY__CUDA_GRAD_MMA_SHARED(s.width), &args));
        return start(context, queries, tiles, s.heads, s.batch, 128,
                     BY__CUDA_GRAD_MMA_SHARED(s.width), &args);
    }
    BY_TRY(start(context, BY__CUDA_KERNEL_attention_keys_grad, tiles, s.kv_heads, s.batch, 256,
                 BY__CUDA_KEYS_GRAD_SHARED(s.width), &args));
    return start(context, BY__CUDA_KERNEL_attention_queries_grad, tiles, s.heads, s.batch, 256,
                 BY__CUDA_QUERIES_GRAD_SHARED(s.width), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ATTENTION_GRAD, attention_grad, supports_attention_grad,
                    prepare_attention_grad, NULL, run_attention_grad);

/* ---- CACHED_ATTENTION ---- */

static int64_t splits_of(const by__device_call *call)
{
    return by__ceil_div(call->in[call->input_count - 2].shape.dim[2], BY__CUDA_SPLIT);
}

static bool supports_cached(const by__device_call *call)
{
    return supports(call, call->input_count - 3) &&
           call->in[call->input_count - 2].dtype == call->in[0].dtype;
}

static by_status prepare_cached(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    BY_UNUSED(context);
    by__cuda_heads s = by__cuda_heads_of(call, call->input_count - 3);
    return by__cuda_reserve(call, s.batch * s.heads * s.length * splits_of(call) * (s.width + 2),
                            error);
}

static by_status run_cached(const by__device_call *call, const by__device_context *context)
{
    int operands = call->input_count - 3;
    by__cuda_heads s = by__cuda_heads_of(call, operands);
    void *part[3];
    by__cuda_heads_parts(part, call->in, &s);
    int64_t slots = call->in[operands].shape.dim[2];
    by__cuda_cache_write_args write = {
        .k = part[1],
        .v = part[2],
        .k_cache = call->in[operands].data,
        .v_cache = call->in[operands + 1].data,
        .position = call->in[operands + 2].data,
        .batch = s.batch,
        .length = s.length,
        .kv_heads = s.kv_heads,
        .width = s.width,
        .kv_stride = s.kv_stride,
        .slots = slots,
        .bytes = (int32_t)by_dtype_size(call->in[0].dtype),
    };
    by__cuda_cached_attention_args args = {
        .q = part[0],
        .k_cache = write.k_cache,
        .v_cache = write.v_cache,
        .position = write.position,
        .part = call->work,
        .length = s.length,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .width = s.width,
        .q_stride = s.q_stride,
        .slots = slots,
        .splits = splits_of(call),
        .window = call->attrs.window,
        .scale = (float)(1.0 / sqrt((double)s.width)),
        .dtype = (int32_t)call->in[0].dtype,
        .sloped = call->attrs.slopes > 0,
    };
    by__cuda_cached_merge_args merge = {
        .part = args.part,
        .y = call->out[0].data,
        .rows = s.batch * s.heads * s.length,
        .length = s.length,
        .heads = s.heads,
        .width = s.width,
        .splits = args.splits,
        .dtype = args.dtype,
    };
    fill_slopes(args.slope, call);
    BY_TRY(by__cuda_over_each(context, BY__CUDA_KERNEL_cache_write,
                              s.batch * s.length * s.kv_heads * s.width, &write));
    BY_TRY(start(context, BY__CUDA_KERNEL_cached_attention, s.length * args.splits, s.heads,
                 s.batch, 128, 0, &args));
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_cached_merge, merge.rows, false, &merge);
}

BY__CUDA_ROW_KERNEL(BY_OP_CACHED_ATTENTION, cached_attention, supports_cached, prepare_cached, NULL,
                    run_cached);

/* ---- PAGED_ATTENTION ---- */

enum { K_POOL = 3, V_POOL, POSITIONS, SESSIONS, TABLE, PAGED_OPERANDS };

_Static_assert(BY__CUDA_PAGE == BY_PAGE_TOKENS && BY__CUDA_SPLIT % BY__CUDA_PAGE == 0,
               "a split consists of pages");

static bool supports_paged(const by__device_call *call)
{
    by_dtype pool = call->in[K_POOL].dtype;
    return supports(call, K_POOL) && (pool == call->in[0].dtype || pool == BY_U8);
}

static int64_t paged_splits(const by__device_call *call)
{
    return by__ceil_div(call->in[TABLE].shape.dim[1] * BY__CUDA_PAGE, BY__CUDA_SPLIT);
}

static by_status prepare_paged(by__device_call *call, const by__device_context *context,
                               by_error *error)
{
    BY_UNUSED(context);
    by__cuda_heads s = by__cuda_heads_of(call, K_POOL);
    return by__cuda_reserve(call, s.heads * s.length * paged_splits(call) * (s.width + 2), error);
}

static by_status run_paged(const by__device_call *call, const by__device_context *context)
{
    by__cuda_heads s = by__cuda_heads_of(call, K_POOL);
    const by_shape *pool = &call->in[K_POOL].shape;
    void *part[3];
    by__cuda_heads_parts(part, call->in, &s);
    by__cuda_paged_attention_args args = {
        .q = part[0],
        .k = part[1],
        .v = part[2],
        .k_pool = call->in[K_POOL].data,
        .v_pool = call->in[V_POOL].data,
        .positions = call->in[POSITIONS].data,
        .sessions = call->in[SESSIONS].data,
        .table = call->in[TABLE].data,
        .part = call->work,
        .length = s.length,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .width = s.width,
        .q_stride = s.q_stride,
        .kv_stride = s.kv_stride,
        .pages = pool->dim[0],
        .session_count = call->in[TABLE].shape.dim[0],
        .columns = call->in[TABLE].shape.dim[1],
        .page_width = pool->dim[3],
        .splits = paged_splits(call),
        .window = call->attrs.window,
        .scale = (float)(1.0 / sqrt((double)s.width)),
        .dtype = (int32_t)call->in[0].dtype,
        .pool_dtype = (int32_t)call->in[K_POOL].dtype,
        .sloped = call->attrs.slopes > 0,
    };
    by__cuda_cached_merge_args merge = {
        .part = args.part,
        .y = call->out[0].data,
        .rows = s.heads * s.length,
        .length = s.length,
        .heads = s.heads,
        .width = s.width,
        .splits = args.splits,
        .dtype = args.dtype,
    };
    fill_slopes(args.slope, call);
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_paged_write, s.length * s.kv_heads, false,
                              &args));
    BY_TRY(start(context, BY__CUDA_KERNEL_paged_attention, s.length * args.splits, s.heads, 1, 128,
                 0, &args));
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_cached_merge, merge.rows, false, &merge);
}

BY__CUDA_ROW_KERNEL(BY_OP_PAGED_ATTENTION, paged_attention, supports_paged, prepare_paged, NULL,
                    run_paged);

/* ---- ATTENTION_MERGE ---- */

static by_status run_attention_merge(const by__device_call *call, const by__device_context *context)
{
    const by_shape *shape = &call->in[0].shape;
    int64_t heads = call->attrs.heads;
    by__cuda_attention_merge_args args = {
        .first = call->in[0].data,
        .first_lse = call->in[1].data,
        .second = call->in[2].data,
        .second_lse = call->in[3].data,
        .y = call->out[0].data,
        .lse = call->out[1].data,
        .rows = shape->dim[0] * shape->dim[1],
        .length = shape->dim[1],
        .heads = heads,
        .width = shape->dim[2] / heads,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_attention_merge, args.rows * heads, false,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ATTENTION_MERGE, attention_merge, NULL, NULL, NULL, run_attention_merge);
