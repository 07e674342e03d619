/* packed_kernels: the functions of the kernels PACKED_MATMUL and PACKED_GROUPED_MATMUL, from one
 * product. A file that multiplies by packed weights defines the product and then includes this:
 *
 *   PACKED_PLAN    the name of a struct: how a product is divided. `tiles`, which is set before:
 *                  AMX tiles may be used
 *   plan_product   size_t (PACKED_PLAN *out, const by__device_call *product, int threads): fills
 *                  it, returns the bytes of the workspace
 *   accepts        bool (const by__device_call *product): dtypes and packing are supported
 *   multiply       void (const PACKED_PLAN *p, const by__device_call *product)
 *
 * The product of a group is a PACKED_MATMUL whose number of rows is known when it runs, so it is
 * planned then.
 *
 * Never put here: arithmetic.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_PACKED_KERNELS_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_PACKED_KERNELS_H

#include <stdlib.h>

#include "device/cpu/panel.h"
#include "device/cpu/row_groups.h"

static bool supports(const by__device_call *call)
{
    return accepts(call) && (!by__present(&call->in[2]) || by__tensor_is_act(&call->in[2]));
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    PACKED_PLAN *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a product", error));
    p->tiles = by__cpu_panel_tiles(BY__AT_LEVEL(BY__LEVEL));
    call->work_bytes = plan_product(p, call, context->threads);
    call->state = p;
    return BY_OK;
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    multiply(call->state, call);
    return BY_OK;
}

/* The state of a call with groups is a plan of which `tiles` alone is set. */
static size_t plan_group(PACKED_PLAN *p, const by__device_call *product, int threads)
{
    *p = (PACKED_PLAN){.tiles = ((const PACKED_PLAN *)product->state)->tiles};
    return plan_product(p, product, threads);
}

static size_t group_work(const by__device_call *product, int threads)
{
    PACKED_PLAN p;
    return plan_group(&p, product, threads);
}

static void multiply_group(const by__device_call *product, int threads)
{
    PACKED_PLAN p;
    (void)plan_group(&p, product, threads);
    multiply(&p, product);
}

static by_status prepare_groups(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    PACKED_PLAN *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a product", error));
    p->tiles = by__cpu_panel_tiles(BY__AT_LEVEL(BY__LEVEL));
    call->state = p;
    by__cpu_packed_groups_prepare(call, context->threads, group_work);
    return BY_OK;
}

static by_status run_groups(const by__device_call *call, const by__device_context *context)
{
    by__cpu_packed_groups_run(call, context, multiply_group);
    return BY_OK;
}

#endif
