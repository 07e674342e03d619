/* The table of rows. */
#include "device/cuda/launch.h"

#define BY__CUDA_ROW(name) extern const by__device_kernel by__cuda_row_##name;
#include "device/cuda/rows.inc"
#undef BY__CUDA_ROW

static const by__device_kernel *const rows[] = {
#define BY__CUDA_ROW(name) &by__cuda_row_##name,
#include "device/cuda/rows.inc"
#undef BY__CUDA_ROW
};

const by__device_kernel *by__cuda_row(const by__device_call *call)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i]->op == call->op && (rows[i]->supports == NULL || rows[i]->supports(call))) {
            return rows[i];
        }
    }
    return NULL;
}
