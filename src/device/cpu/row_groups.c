#include "device/cpu/row_groups.h"

#include <string.h>

#include "base/packing/packing.h"

int64_t by__cpu_group_rows(const by__device_call *call, int64_t g, int64_t *begin)
{
    const int32_t *range = (const int32_t *)call->in[2].data + 2 * g;
    int64_t capacity = call->attrs.capacity;
    int64_t all = call->in[0].shape.dim[0];
    int64_t rows = (int64_t)range[1] - range[0];
    *begin = capacity > 0 ? g * capacity : range[0];
    bool fits = *begin >= 0 && rows > 0 && rows <= all - *begin;
    return fits && (capacity == 0 || rows <= capacity) ? rows : 0;
}

static void zero_rows(const by__device_call *call, int64_t begin, int64_t end)
{
    const by__device_tensor *y = &call->out[0];
    size_t row_bytes = (size_t)y->shape.dim[1] * by_dtype_size(y->dtype);
    memset((char *)y->data + (size_t)begin * row_bytes, 0, (size_t)(end - begin) * row_bytes);
}

void by__cpu_group_zero(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *y = &call->out[0];
    int64_t covered = 0;
    int64_t begin;
    for (int64_t g = 0; g < call->in[2].shape.dim[0]; g++) {
        covered += by__cpu_group_rows(call, g, &begin);
    }
    if (covered < y->shape.dim[0]) {
        by__cpu_parallel(context, call, y->shape.dim[0], by__ceil_div(16384, y->shape.dim[1]),
                         by__tensor_count(y), zero_rows);
    }
}

/* ---- products with packed weights ---- */

/* The product of one group. */
typedef struct group_product {
    by__device_call call;
    by__device_tensor in[BY__MAX_INPUTS];
} group_product;

static void open_product(group_product *p, const by__device_call *call)
{
    p->call = *call;
    p->call.op = BY_OP_PACKED_MATMUL;
    p->call.attrs.packing.stack = 0;
    p->call.in = p->in;
    p->call.input_count = 2;
    p->in[0] = call->in[0];
    p->in[1] = call->in[1];
    for (int i = 2; i < BY__MAX_INPUTS; i++) {
        p->in[i] = (by__device_tensor){.shape = {.rank = -1}};
    }
}

/* Rows [begin, begin + rows) of a tensor. */
static by__device_tensor rows_of(const by__device_tensor *tensor, int64_t begin, int64_t rows)
{
    by__device_tensor part = *tensor;
    size_t row_bytes = (size_t)tensor->shape.dim[1] * by_dtype_size(tensor->dtype);
    part.shape.dim[0] = rows;
    part.data = tensor->data == NULL ? NULL : (char *)tensor->data + (size_t)begin * row_bytes;
    return part;
}

void by__cpu_packed_groups_prepare(by__device_call *call, int threads, by__cpu_packed_work *work)
{
    group_product p;
    open_product(&p, call);
    for (int64_t rows = 1; rows <= call->in[0].shape.dim[0]; rows++) {
        p.in[0].shape.dim[0] = p.call.out[0].shape.dim[0] = rows;
        size_t bytes = work(&p.call, threads);
        call->work_bytes = bytes > call->work_bytes ? bytes : call->work_bytes;
    }
}

void by__cpu_packed_groups_run(const by__device_call *call, const by__device_context *context,
                               by__cpu_packed_product *product)
{
    group_product p;
    const by__device_tensor *w = &call->in[1];
    int64_t groups = call->in[2].shape.dim[0];
    int64_t ranges = groups / by__packed_matrices(&call->attrs.packing);
    int64_t panels = by__packed_panels(&call->attrs.packing);
    open_product(&p, call);
    by__cpu_group_zero(call, context);
    for (int64_t g = 0; g < groups; g++) {
        int64_t begin;
        int64_t rows = by__cpu_group_rows(call, g, &begin);
        if (rows > 0) {
            p.in[0] = rows_of(&call->in[0], begin, rows);
            p.in[1] = rows_of(w, g / ranges * panels, panels);
            p.call.out[0] = rows_of(&call->out[0], begin, rows);
            product(&p.call, context->threads);
        }
    }
}
