/* Kernels of collectives. Ranks exchange contiguous slices; tensors that are cut along an inner
 * axis are packed into slices before, and unpacked afterwards. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/staging.h"

/* A tensor as [outer, extent, inner] around one of its axes. */
typedef struct folded {
    int64_t outer;
    int64_t extent;
    size_t inner; /* bytes */
} folded;

static folded fold(const by__device_tensor *tensor, int64_t axis)
{
    folded f = {1, tensor->shape.dim[axis], by_dtype_size(tensor->dtype)};
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (i < axis) {
            f.outer *= tensor->shape.dim[i];
        } else if (i > axis) {
            f.inner *= (size_t)tensor->shape.dim[i];
        }
    }
    return f;
}

/* Number of entries of the axis on rank r, as by__sum_tree_block divides them. */
static int64_t part_of(int64_t extent, int64_t ranks, int64_t r)
{
    return extent / ranks + (r < extent % ranks ? 1 : 0);
}

/* Copies a tensor to its slices or (not `pack`) back. */
static void move_slices(char *slices, char *tensor, const folded *f, int64_t ranks, bool pack)
{
    int64_t first = 0;
    for (int64_t r = 0; r < ranks; r++) {
        size_t run = (size_t)part_of(f->extent, ranks, r) * f->inner;
        for (int64_t o = 0; o < f->outer; o++) {
            char *at = tensor + (size_t)(o * f->extent + first) * f->inner;
            memcpy(pack ? slices : at, pack ? at : slices, run);
            slices += run;
        }
        first += part_of(f->extent, ranks, r);
    }
}

static size_t bytes_of(const by__device_tensor *tensor)
{
    return (size_t)by__tensor_count(tensor) * by_dtype_size(tensor->dtype);
}

/* Exchanges entries of `elements` elements each; with one rank the result is a copy. */
static by_status exchange(const by__device_call *call, const by__device_context *context,
                          by__device_exchange_kind kind, const void *in, void *out, int64_t entries,
                          int64_t elements)
{
    by__device_collectives *collectives = context->collectives;
    by__device_exchange e = {.kind = kind,
                             .mesh = call->attrs.mesh,
                             .ranks = (int)call->attrs.ranks,
                             .dtype = call->in[0].dtype,
                             .in = in,
                             .out = out,
                             .entries = entries,
                             .elements = elements,
                             .call = call,
                             .what = call->what};
    if (collectives != NULL) {
        collectives->error.status = BY_OK;
        return collectives->run(collectives->user, &e, &collectives->error);
    }
    if (call->attrs.ranks != 1) {
        return BY_ESTATE;
    }
    if (out != in && kind != BY__EXCHANGE_GRADIENTS) {
        memcpy(out, in, (size_t)(entries * elements) * by_dtype_size(e.dtype));
    }
    return BY_OK;
}

static by_status run_all_reduce(const by__device_call *call, const by__device_context *context)
{
    return exchange(call, context, BY__EXCHANGE_ALL_REDUCE, call->in[0].data, call->out[0].data,
                    by__tensor_count(&call->in[0]), 1);
}

static by_status run_ring_shift(const by__device_call *call, const by__device_context *context)
{
    return exchange(call, context, BY__EXCHANGE_RING_SHIFT, call->in[0].data, call->out[0].data,
                    by__tensor_count(&call->in[0]), 1);
}

/* ---- collectives along an axis: packed unless it is the first axis ---- */

static bool is_split(const by__device_tensor *tensor, int64_t axis)
{
    return fold(tensor, axis).outer > 1;
}

static by_status prepare_all_gather(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = is_split(&call->out[0], call->attrs.axis) ? bytes_of(&call->out[0]) : 0;
    return BY_OK;
}

static by_status run_all_gather(const by__device_call *call, const by__device_context *context)
{
    folded f = fold(&call->out[0], call->attrs.axis);
    void *slices = f.outer > 1 ? call->work : call->out[0].data;
    by_status status = exchange(call, context, BY__EXCHANGE_ALL_GATHER, call->in[0].data, slices,
                                f.extent, by__tensor_count(&call->out[0]) / f.extent);
    if (status == BY_OK && f.outer > 1) {
        move_slices(slices, call->out[0].data, &f, call->attrs.ranks, false);
    }
    return status;
}

static by_status prepare_reduce_scatter(by__device_call *call, const by__device_context *context,
                                        by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = is_split(&call->in[0], call->attrs.axis) ? bytes_of(&call->in[0]) : 0;
    return BY_OK;
}

static by_status run_reduce_scatter(const by__device_call *call, const by__device_context *context)
{
    folded f = fold(&call->in[0], call->attrs.axis);
    void *slices = call->in[0].data;
    if (f.outer > 1) {
        slices = call->work;
        move_slices(slices, call->in[0].data, &f, call->attrs.ranks, true);
    }
    return exchange(call, context, BY__EXCHANGE_REDUCE_SCATTER, slices, call->out[0].data, f.extent,
                    by__tensor_count(&call->in[0]) / f.extent);
}

/* The pieces from the ranks are slices of the result along the other axis. */
static by_status prepare_all_to_all(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    size_t pack = is_split(&call->in[0], call->attrs.axis) ? bytes_of(&call->in[0]) : 0;
    size_t unpack = is_split(&call->out[0], call->attrs.to) ? bytes_of(&call->out[0]) : 0;
    BY_UNUSED(context);
    if (!by__size_add(by__round_up(pack, BY_CACHE_LINE), unpack, &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "all_to_all: the workspace overflows");
    }
    return BY_OK;
}

static by_status run_all_to_all(const by__device_call *call, const by__device_context *context)
{
    folded from = fold(&call->in[0], call->attrs.axis);
    folded to = fold(&call->out[0], call->attrs.to);
    char *work = call->work;
    void *in = call->in[0].data;
    void *out = call->out[0].data;
    if (from.outer > 1) {
        move_slices(work, in, &from, call->attrs.ranks, true);
        in = work;
        work += by__round_up(bytes_of(&call->in[0]), BY_CACHE_LINE);
    }
    if (to.outer > 1) {
        out = work;
    }
    by_status status = exchange(call, context, BY__EXCHANGE_ALL_TO_ALL, in, out, from.extent,
                                by__tensor_count(&call->in[0]) / from.extent);
    if (status == BY_OK && to.outer > 1) {
        move_slices(out, call->out[0].data, &to, call->attrs.ranks, false);
    }
    return status;
}

/* ---- gradients ---- */

static by_status run_reduce_gradients(const by__device_call *call,
                                      const by__device_context *context)
{
    *(float *)call->out[0].data = 0.0f;
    return exchange(call, context, BY__EXCHANGE_GRADIENTS, NULL, NULL, 0, 0);
}

static by_status run_gather_parameter(const by__device_call *call,
                                      const by__device_context *context)
{
    if (context->collectives == NULL) {
        memset(call->out[0].data, 0, bytes_of(&call->out[0]));
        return call->attrs.ranks == 1 ? BY_OK : BY_ESTATE;
    }
    return exchange(call, context, BY__EXCHANGE_PARAMETER, NULL, call->out[0].data, 0, 0);
}

static by_status run_replicate(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    if (call->out[0].data != call->in[0].data) {
        memcpy(call->out[0].data, call->in[0].data, bytes_of(&call->out[0]));
    }
    return BY_OK;
}

/* The same kernels serve all levels. */
#define KERNEL(op, name, prepare)                                                                  \
    const by__device_kernel by__cpu_##name##_reference = {op,      #name, NULL,                    \
                                                          prepare, NULL,  run_##name}
KERNEL(BY_OP_ALL_REDUCE, all_reduce, NULL);
KERNEL(BY_OP_ALL_GATHER, all_gather, prepare_all_gather);
KERNEL(BY_OP_REDUCE_SCATTER, reduce_scatter, prepare_reduce_scatter);
KERNEL(BY_OP_ALL_TO_ALL, all_to_all, prepare_all_to_all);
KERNEL(BY_OP_RING_SHIFT, ring_shift, NULL);
KERNEL(BY_OP_REDUCE_GRADIENTS, reduce_gradients, NULL);
KERNEL(BY_OP_GATHER_PARAMETER, gather_parameter, NULL);
KERNEL(BY_OP_REPLICATE, replicate, NULL);

const by__device_kernel *by__cpu_exchange_kernel(by_op op)
{
    static const by__device_kernel *const kernels[] = {
        &by__cpu_all_reduce_reference,       &by__cpu_all_gather_reference,
        &by__cpu_reduce_scatter_reference,   &by__cpu_all_to_all_reference,
        &by__cpu_ring_shift_reference,       &by__cpu_reduce_gradients_reference,
        &by__cpu_gather_parameter_reference,
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kernels); i++) {
        if (kernels[i]->op == op) {
            return kernels[i];
        }
    }
    return NULL;
}
