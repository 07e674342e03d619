/* cuda: NVIDIA's GPUs behind the device interface.
 *
 * A device is a context of the driver, one stream for each queue, the module with the kernels of
 * its architecture, and the library for products. Work is launched on streams in the order of
 * submission; events of the driver order the streams. Memory is the device's: the host reaches it
 * by copies alone. A row (rows.inc, cuda_products.c) maps a call to launches on the by__cuda_queue
 * that its context names.
 *
 * A program that is submitted again with the same addresses is replayed as a graph of the driver
 * (cuda_programs.c): the same launches, with less work for the host.
 *
 * Errors of work surface where the host waits. The driver does not say which work failed, and
 * nothing runs after it; with CUDA_LAUNCH_BLOCKING=1 programs run call by call, and the error names
 * the node.
 *
 * Bits: grids and partial sums follow shapes, never the number of multiprocessors, so a GPU gives
 * the same bits from run to run.
 *
 * Never put here: knowledge of graphs, models or training; another library's headers.
 */
#ifndef BY_DEVICE_CUDA_CUDA_H
#define BY_DEVICE_CUDA_CUDA_H

#include "base/base.h"
#include "device/cuda/cuda_driver.h"
#include "device/cuda/images.h"
#include "device/cuda/launch.h"
#include "device/device.h"

#define BY__CUDA_MOST_MODULES 32

typedef struct by__cuda_products by__cuda_products;
typedef struct by__cuda_device by__cuda_device;

/* A queue of a device: what rows launch on. */
typedef struct by__cuda_stream_queue {
    by__cuda_queue base;
    by__cuda_device *device;
    by__cuda_stream stream;
} by__cuda_stream_queue;

/* What was submitted since the host last waited for everything, for errors. */
typedef struct by__cuda_submitted {
    char first[64]; /* names of programs */
    char last[64];
    size_t programs;
} by__cuda_submitted;

struct by__cuda_device {
    by_device base;
    by__cuda_driver driver;
    int ordinal;
    int device; /* the driver's number */
    int capability;
    char name[64];
    by__cuda_context context;
    by__cuda_module modules[BY__CUDA_MOST_MODULES];
    int module_count;
    by__cuda_function functions[BY__CUDA_KERNELS];
    by__cuda_stream_queue queues[BY__QUEUE_COUNT];
    by__cuda_products *products;
    by__cuda_submitted submitted;
    by_error failure; /* of a launch that failed at once */
};

typedef struct by__cuda_device_event {
    by__device_event base;
    by__cuda_event event;
    bool timed;
} by__cuda_device_event;

/* Makes the device's context that of the calling thread. */
by_status by__cuda_use(const by__cuda_device *device, by_error *error);
/* by__cuda_driver_failed for work that was submitted: names its programs. */
by_status by__cuda_work_failed(const by__cuda_device *device, int result, by_error *error);
/* Keeps the first failure of a launch in device->failure, for a kernel's `run`. */
by_status by__cuda_launch_failed(by__cuda_device *device, int result, const char *what);

/* ---- modules (cuda_modules.c) ---- */

/* Loads the kernels for the device's architecture, all of them, so that a launch loads nothing: a
 * worker's sandbox refuses what loading needs, and the first step takes no longer than others. */
by_status by__cuda_modules_load(by__cuda_device *device, by_error *error);
void by__cuda_modules_unload(by__cuda_device *device);
/* The image as the driver takes it, with the zero behind it that ends PTX. Freed with free(). */
by_status by__cuda_image_decompress(char **out, const by__cuda_image *image, by_error *error);
/* Compiles a family of kernels, its source, for the device's architecture, or finds it in the
 * cache. Freed with free(). (cuda_nvrtc.c) */
by_status by__cuda_nvrtc_image(char **out, const by__cuda_device *device,
                               const by__cuda_image *source, by_error *error);

/* ---- products (cuda_products.c) ---- */

by_status by__cuda_products_open(by__cuda_products **out, const by__cuda_driver *driver,
                                 by_error *error);
/* NULL is accepted. */
void by__cuda_products_close(by__cuda_products *products);
/* "cublasLt 12.9.1" */
void by__cuda_products_version(char *out, size_t size, const by__cuda_products *products);
/* Multiplies known numbers in every format. BY_EDEVICE: the results are wrong.
 * (cuda_self_test.c) */
by_status by__cuda_products_test(by__cuda_device *device, by_error *error);
/* The kernels that call a library: products, and a copy (cuda_matmul.c, cuda_losses.c,
 * cuda_moves.c). */
extern const by__device_kernel by__cuda_matmul;
extern const by__device_kernel by__cuda_linear_cross_entropy;
extern const by__device_kernel by__cuda_linear_cross_entropy_grad;
extern const by__device_kernel by__cuda_linear_cross_entropy_train;
extern const by__device_kernel by__cuda_linear_cross_entropy_part;
extern const by__device_kernel by__cuda_linear_token_loss;
extern const by__device_kernel by__cuda_linear_distill;
extern const by__device_kernel by__cuda_linear_distill_grad;
extern const by__device_kernel by__cuda_linear_distill_train;
extern const by__device_kernel by__cuda_reshape;
extern const by__device_kernel by__cuda_replicate;

/* ---- programs (cuda_programs.c) ---- */

by_status by__cuda_recording_open(by__device_recording **out, by_device *device,
                                  const by__device_command_list *list, by_error *error);
void by__cuda_recording_close(by__device_recording *recording);
size_t by__cuda_recording_bytes(const by__device_recording *recording);
by_status by__cuda_submit(by__device_recording *recording, bool rebound, by__device_call_hook *hook,
                          void *user, by_error *error);
by_status by__cuda_submit_call(by__device_recording *recording, const by__device_command *command,
                               by_error *error);

#endif
