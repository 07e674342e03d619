/* standin: libraries in place of NVIDIA's, for tests without a GPU.
 *
 * libcuda.so.1 here does what the driver may do at its worst:
 *
 *   - Device memory cannot be read or written by the host (mprotect) but while work runs.
 *   - Nothing runs when it is submitted. What a wait needs runs then, and nothing else; of what may
 *     run next, a seed chooses.
 *   - Work that uses the same memory without an order between it is a fault whatever order it ran
 *     in (vector clocks; of copies, fills and products, whose ranges are known, and with
 *     BANYAN_STANDIN_CHECK of what kernels touch as well). So are memory that is freed while work
 *     may use it, or twice, events that were closed, and pinned memory that the host changes before
 *     a copy from it or to it ran. Every later wait fails with the first fault.
 *   - New memory is full of 0xff, and so is pinned memory that a copy will fill.
 *
 * Kernels run on the emulator, from the same sources as on a GPU. The environment says what the
 * machine has, read by cuInit:
 *
 *   BANYAN_STANDIN_SEED        order of work
 *   BANYAN_STANDIN_VERSION     of CUDA that the driver knows, 12090
 *   BANYAN_STANDIN_CAPABILITY  compute capability, 90
 *   BANYAN_STANDIN_DEVICES     number of GPUs, 1
 *   BANYAN_STANDIN_MEMORY      bytes of device memory, 8 GiB
 *   BANYAN_STANDIN_CHECK       1: kernels run checked (emulator.h), which takes long
 *   BANYAN_STANDIN_LIBRARY     version of cublasLt, 120901
 *   BANYAN_STANDIN_ALGORITHM   which algorithm cublasLt chooses, 1 or 2: another order of sums
 *   BANYAN_STANDIN_WRONG       format of products that lack the end of each sum: f32, tf32, bf16,
 *                              fp16
 *   BANYAN_STANDIN_FAIL        NAME:N=RESULT: the Nth call of a function returns RESULT
 */
#ifndef BY_TESTS_CUDA_STANDIN_H
#define BY_TESTS_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#include "device/cuda/cuda_driver.h"

#define STANDIN_API __attribute__((visibility("default")))

#define STANDIN_PROTOTYPE(member, symbol, parameters) STANDIN_API int symbol parameters;
BY__CUDA_DRIVER(STANDIN_PROTOTYPE)
#undef STANDIN_PROTOTYPE

/* Memory that work uses. */
typedef struct standin_range {
    const void *data;
    size_t bytes;
    bool write;
} standin_range;

/* Submits work of another library to a stream: run(data) runs when the stream gets to it, with
 * device memory accessible, and returns false if it failed. `data` is freed then. */
STANDIN_API int standin_submit(by__cuda_stream stream, const char *name,
                               const standin_range *ranges, size_t count, bool (*run)(void *data),
                               void *data);
/* Work has written this memory. */
STANDIN_API void standin_written(const void *data, size_t bytes);
/* Keeps a fault, unless there was one before. */
STANDIN_API void standin_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The first fault; "" when there was none. */
STANDIN_API const char *standin_first_fault(void);
/* The number in a variable of the environment. */
STANDIN_API long standin_number_of(const char *name, long otherwise);
/* Returns true if the call of this function must fail now (BANYAN_STANDIN_FAIL). */
STANDIN_API bool standin_fails(const char *function, int *result);

#endif
