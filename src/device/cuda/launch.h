/* launch: how a row of the device's table (rows/) starts kernels. A row knows an op: which calls it
 * takes, how much workspace they need, and which kernels with which parameters compute them. It
 * knows no driver: the queue that it launches on is the device's, or the emulator of the tests. A
 * row never reads or writes the data of a call, which is the device's memory. */
#ifndef BY_DEVICE_CUDA_LAUNCH_H
#define BY_DEVICE_CUDA_LAUNCH_H

#include <stdint.h>

#include "base/base.h"
#include "device/device.h"

#include "device/cuda/kernels.h"
#include "device/cuda/layer_kernels.h"

typedef enum by__cuda_kernel {
#define BY__CUDA_KERNEL(name) BY__CUDA_KERNEL_##name,
#include "device/cuda/kernels.inc"
#undef BY__CUDA_KERNEL
    BY__CUDA_KERNELS
} by__cuda_kernel;

typedef struct by__cuda_grid {
    unsigned grid[3];
    unsigned block;
    unsigned shared; /* bytes of dynamic shared memory */
} by__cuda_grid;

/* Of a queue that launches; the first member of a backend's own. The data of args is copied. */
typedef struct by__cuda_queue by__cuda_queue;
struct by__cuda_queue {
    by_status (*launch)(by__cuda_queue *queue, by__cuda_kernel kernel, const by__cuda_grid *grid,
                        const void *args);
    by_status (*copy)(by__cuda_queue *queue, void *to, const void *from, size_t bytes);
    by_status (*fill)(by__cuda_queue *queue, void *to, uint8_t byte, size_t bytes);
};

/* "by_cuda_fill", and the size of the parameters. */
const char *by__cuda_kernel_symbol(by__cuda_kernel kernel);
size_t by__cuda_kernel_bytes(by__cuda_kernel kernel);
/* The most dynamic shared memory that a launch asks for. */
unsigned by__cuda_kernel_shared(by__cuda_kernel kernel);

/* The first row of rows.inc for a call, or NULL. */
const by__device_kernel *by__cuda_row(const by__device_call *call);

/* ---- for rows ---- */

static inline by__cuda_queue *by__cuda_queue_of(const by__device_context *context)
{
    return context->queue;
}

static inline bool by__cuda_present(const by__device_call *call, int input)
{
    return input < call->input_count && by__present(&call->in[input]);
}

/* Rows longer than this are a block's, others a warp's. */
#define BY__CUDA_WIDE 1024

/* The grids that kernels.h names. */
by_status by__cuda_over_elements(const by__device_context *context, by__cuda_kernel kernel,
                                 int64_t count, const void *args);
/* One thread an element. */
by_status by__cuda_over_each(const by__device_context *context, by__cuda_kernel kernel,
                             int64_t count, const void *args);
by_status by__cuda_over_rows(const by__device_context *context, by__cuda_kernel kernel,
                             int64_t rows, bool wide, const void *args);
by_status by__cuda_over_blocks(const by__device_context *context, by__cuda_kernel kernel,
                               int64_t blocks, const void *args);
by_status by__cuda_over_columns(const by__device_context *context, by__cuda_kernel kernel,
                                int64_t rows, int64_t columns, const void *args);
/* Sums f32 rows [rows, columns] into y [columns], by way of the workspace `part` of
 * by__cuda_sum_work floats. */
by_status by__cuda_sum_into(const by__device_context *context, float *y, const void *x,
                            by_dtype dtype, int64_t rows, int64_t columns, float *part);
int64_t by__cuda_sum_work(int64_t rows, int64_t columns);
/* Reserves a workspace of so many f32. */
by_status by__cuda_reserve(by__device_call *call, int64_t floats, by_error *error);

#define BY__CUDA_ROW_KERNEL(op, name, supports, prepare, release, run)                             \
    const by__device_kernel by__cuda_row_##name = {op,      #name " cuda", supports,               \
                                                   prepare, release,       run}

#endif
