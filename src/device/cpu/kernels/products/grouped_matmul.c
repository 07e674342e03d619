/* GROUPED_MATMUL, GROUPED_MATMUL_GRAD: one product per group, with as many rows as the group has in
 * this run. Empty groups cost nothing. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "device/cpu/panel.h"
#include "device/cpu/row_groups.h"

/* Products that are opened for all rows and run on the rows of a group. */
typedef struct grouped_products {
    by__cpu_gemm *first;
    by__cpu_gemm *few;  /* GROUPED_MATMUL: for at most BY__GEMV_ROWS rows; NULL: use `first` */
    by__cpu_gemm *next; /* GROUPED_MATMUL_GRAD: adds to a matrix; NULL: each group is one range */
} grouped_products;

static void close_products(grouped_products *p)
{
    if (p != NULL) {
        by__cpu_gemm_close(&p->first);
        by__cpu_gemm_close(&p->few);
        by__cpu_gemm_close(&p->next);
        free(p);
    }
}

static void release(by__device_call *call)
{
    close_products(call->state);
    call->state = NULL;
}

/* Opens a product and reserves its workspace. */
static by_status open_one(by__cpu_gemm **out, by__device_call *call,
                          const by__cpu_gemm_options *options, by_error *error)
{
    BY_TRY(by__cpu_gemm_open(out, options, error));
    size_t work = by__cpu_gemm_work(*out);
    call->work_bytes = work > call->work_bytes ? work : call->work_bytes;
    return BY_OK;
}

static const char *at(const by__device_tensor *tensor, int64_t element)
{
    return (const char *)tensor->data + (size_t)element * by_dtype_size(tensor->dtype);
}

static bool act(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[1].dtype == call->in[0].dtype &&
           by__tensor_is_act(&call->out[0]) && by__tensor_count(&call->in[0]) > 0 &&
           by__tensor_count(&call->out[0]) > 0;
}

/* ---- GROUPED_MATMUL ---- */

static by_status open_forward(grouped_products *p, by__device_call *call, int threads,
                              by_error *error)
{
    by__cpu_gemm_options o = {.m = call->in[0].shape.dim[0],
                              .n = call->out[0].shape.dim[1],
                              .k = call->in[0].shape.dim[1],
                              .trans_b = call->attrs.trans_b,
                              .dtype = call->in[0].dtype,
                              .out = call->out[0].dtype,
                              .partial = true,
                              .isa = BY__AT_LEVEL(BY__LEVEL),
                              .threads = threads};
    BY_TRY(open_one(&p->first, call, &o, error));
    if (o.trans_b && o.m > BY__GEMV_ROWS) {
        o.m = BY__GEMV_ROWS;
        return open_one(&p->few, call, &o, error);
    }
    return BY_OK;
}

typedef by_status opener(grouped_products *p, by__device_call *call, int threads, by_error *error);

static by_status prepare(by__device_call *call, int threads, opener *open, by_error *error)
{
    grouped_products *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "products of groups", error));
    by_status status = open(p, call, threads, error);
    if (status != BY_OK) {
        close_products(p);
        return status;
    }
    call->state = p;
    return BY_OK;
}

static by_status prepare_forward(by__device_call *call, const by__device_context *context,
                                 by_error *error)
{
    return prepare(call, context->threads, open_forward, error);
}

static by_status run_forward(const by__device_call *call, const by__device_context *context)
{
    const grouped_products *p = call->state;
    const by__device_tensor *b = &call->in[1];
    const by__device_tensor *y = &call->out[0];
    int64_t groups = call->in[2].shape.dim[0];
    int64_t ranges = groups / b->shape.dim[0];
    int64_t n = y->shape.dim[1];
    int64_t k = call->in[0].shape.dim[1];
    by__cpu_group_zero(call, context);
    for (int64_t g = 0; g < groups; g++) {
        int64_t begin;
        int64_t rows = by__cpu_group_rows(call, g, &begin);
        const by__cpu_gemm *gemm = p->few != NULL && rows <= BY__GEMV_ROWS ? p->few : p->first;
        by__cpu_gemm_operands operands = {.a = at(&call->in[0], begin * k),
                                          .b = at(b, g / ranges * n * k),
                                          .c = (void *)(uintptr_t)at(y, begin * n),
                                          .work = call->work};
        if (rows > 0) {
            by__cpu_gemm_run_part(gemm, &operands, rows, k);
        }
    }
    return BY_OK;
}

BY__KERNEL(grouped_matmul) = {
    BY_OP_GROUPED_MATMUL, BY__KERNEL_NAME("grouped_matmul"), act, prepare_forward, release,
    run_forward};

/* ---- GROUPED_MATMUL_GRAD ---- */

static bool supports_gradient(const by__device_call *call)
{
    bool adds = call->in[2].shape.dim[0] > call->attrs.rows;
    return act(call) && (!adds || call->out[0].dtype == BY_F32);
}

static by_status open_gradient(grouped_products *p, by__device_call *call, int threads,
                               by_error *error)
{
    by__cpu_gemm_options o = {.m = call->in[0].shape.dim[1],
                              .n = call->in[1].shape.dim[1],
                              .k = call->in[0].shape.dim[0],
                              .trans_a = true,
                              .dtype = call->in[0].dtype,
                              .out = call->out[0].dtype,
                              .partial = true,
                              .isa = BY__AT_LEVEL(BY__LEVEL),
                              .threads = threads};
    BY_TRY(open_one(&p->first, call, &o, error));
    if (call->in[2].shape.dim[0] > call->attrs.rows) {
        o.accumulate = true;
        return open_one(&p->next, call, &o, error);
    }
    return BY_OK;
}

static by_status prepare_gradient(by__device_call *call, const by__device_context *context,
                                  by_error *error)
{
    return prepare(call, context->threads, open_gradient, error);
}

static by_status run_gradient(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const grouped_products *p = call->state;
    int64_t m = call->in[0].shape.dim[1];
    int64_t n = call->in[1].shape.dim[1];
    int64_t ranges = call->in[2].shape.dim[0] / call->attrs.rows;
    for (int64_t e = 0; e < call->attrs.rows; e++) {
        void *y = (void *)(uintptr_t)at(&call->out[0], e * m * n);
        bool written = false;
        for (int64_t g = e * ranges; g < (e + 1) * ranges; g++) {
            int64_t begin;
            int64_t rows = by__cpu_group_rows(call, g, &begin);
            by__cpu_gemm_operands operands = {.a = at(&call->in[0], begin * m),
                                              .b = at(&call->in[1], begin * n),
                                              .c = y,
                                              .work = call->work};
            if (rows > 0) {
                by__cpu_gemm_run_part(written ? p->next : p->first, &operands, m, rows);
                written = true;
            }
        }
        if (!written) {
            memset(y, 0, (size_t)(m * n) * by_dtype_size(call->out[0].dtype));
        }
    }
    return BY_OK;
}

BY__KERNEL(grouped_matmul_grad) = {BY_OP_GROUPED_MATMUL_GRAD,
                                   BY__KERNEL_NAME("grouped_matmul_grad"),
                                   supports_gradient,
                                   prepare_gradient,
                                   release,
                                   run_gradient};
