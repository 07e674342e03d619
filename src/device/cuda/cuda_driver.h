/* cuda_driver: NVIDIA's driver API, opened at run time.
 *
 * Building, linking and starting need no file of CUDA. The functions in use are declared here, with
 * types of our own that have the layout of NVIDIA's; a test compares them with the real headers
 * where those are installed. by__cuda_driver_open finds the library, resolves every function and
 * initializes it; its errors say what is missing, which version is there, which is needed and what
 * package brings it.
 *
 * Never put here: anything that needs a device; that is cuda.h.
 */
#ifndef BY_DEVICE_CUDA_CUDA_DRIVER_H
#define BY_DEVICE_CUDA_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

/* What the least driver supports: CUDA 12.0, which came with driver 525. */
#define BY__CUDA_LEAST_VERSION 12000
#define BY__CUDA_LEAST_DRIVER  525
/* What the least GPU can compute: matrix products of bf16. */
#define BY__CUDA_LEAST_CAPABILITY 80
/* Shared memory that any block may have. */
#define BY__CUDA_SHARED_BYTES (48 << 10)

/* Results of the driver's functions. */
enum {
    BY__CUDA_SUCCESS = 0,
    BY__CUDA_OUT_OF_MEMORY = 2,
    BY__CUDA_STUB_LIBRARY = 34,
    BY__CUDA_DEVICE_UNAVAILABLE = 46,
    BY__CUDA_NO_DEVICE = 100,
    BY__CUDA_NO_BINARY_FOR_GPU = 209,
    BY__CUDA_UNSUPPORTED_PTX_VERSION = 222,
    BY__CUDA_NOT_FOUND = 500,
    BY__CUDA_NOT_READY = 600,
    BY__CUDA_SYSTEM_NOT_READY = 802,
    BY__CUDA_SYSTEM_DRIVER_MISMATCH = 803
};

/* Properties of a device, and flags. */
enum {
    BY__CUDA_MULTIPROCESSORS = 16,
    BY__CUDA_CAPABILITY_MAJOR = 75,
    BY__CUDA_CAPABILITY_MINOR = 76,
    BY__CUDA_SHARED_OPTIN = 97, /* bytes of a block, when a kernel asks for them */
    BY__CUDA_FUNCTION_SHARED_BYTES = 8,
    BY__CUDA_STREAM_NON_BLOCKING = 1,
    BY__CUDA_EVENT_UNTIMED = 2,
    BY__CUDA_HOST_PORTABLE = 1,
    BY__CUDA_CAPTURE_THREAD = 1 /* calls of other threads may do anything meanwhile */
};

typedef void *by__cuda_context; /* and of a stream, an event, a module, a kernel */
typedef void *by__cuda_stream;
typedef void *by__cuda_event;
typedef void *by__cuda_module;
typedef void *by__cuda_function;
typedef void *by__cuda_graph;
typedef void *by__cuda_graph_exec;
typedef uint64_t by__cuda_address;

/* X(member, symbol, parameters): all return a result. */
#define BY__CUDA_DRIVER(X)                                                                         \
    X(init, cuInit, (unsigned flags))                                                              \
    X(version, cuDriverGetVersion, (int *version))                                                 \
    X(error_name, cuGetErrorName, (int result, const char **name))                                 \
    X(error_text, cuGetErrorString, (int result, const char **text))                               \
    X(count, cuDeviceGetCount, (int *count))                                                       \
    X(get, cuDeviceGet, (int *device, int ordinal))                                                \
    X(name, cuDeviceGetName, (char *name, int bytes, int device))                                  \
    X(place, cuDeviceGetPCIBusId, (char *pci, int bytes, int device))                              \
    X(property, cuDeviceGetAttribute, (int *value, int property, int device))                      \
    X(retain, cuDevicePrimaryCtxRetain, (by__cuda_context * context, int device))                  \
    X(release, cuDevicePrimaryCtxRelease_v2, (int device))                                         \
    X(use, cuCtxSetCurrent, (by__cuda_context context))                                            \
    X(memory, cuMemGetInfo_v2, (size_t * left, size_t * total))                                    \
    X(alloc, cuMemAlloc_v2, (by__cuda_address * address, size_t bytes))                            \
    X(free, cuMemFree_v2, (by__cuda_address address))                                              \
    X(pin, cuMemHostAlloc, (void **data, size_t bytes, unsigned flags))                            \
    X(unpin, cuMemFreeHost, (void *data))                                                          \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (by__cuda_address to, const void *from, size_t bytes, by__cuda_stream stream))               \
    X(copy_out, cuMemcpyDtoHAsync_v2,                                                              \
      (void *to, by__cuda_address from, size_t bytes, by__cuda_stream stream))                     \
    X(copy, cuMemcpyDtoDAsync_v2,                                                                  \
      (by__cuda_address to, by__cuda_address from, size_t bytes, by__cuda_stream stream))          \
    X(fill, cuMemsetD8Async,                                                                       \
      (by__cuda_address to, unsigned char byte, size_t bytes, by__cuda_stream stream))             \
    X(stream_open, cuStreamCreate, (by__cuda_stream * stream, unsigned flags))                     \
    X(stream_close, cuStreamDestroy_v2, (by__cuda_stream stream))                                  \
    X(stream_finish, cuStreamSynchronize, (by__cuda_stream stream))                                \
    X(stream_order, cuStreamWaitEvent,                                                             \
      (by__cuda_stream stream, by__cuda_event event, unsigned flags))                              \
    X(capture_begin, cuStreamBeginCapture_v2, (by__cuda_stream stream, int mode))                  \
    X(capture_end, cuStreamEndCapture, (by__cuda_stream stream, by__cuda_graph * graph))           \
    X(graph_close, cuGraphDestroy, (by__cuda_graph graph))                                         \
    X(exec_open, cuGraphInstantiateWithFlags,                                                      \
      (by__cuda_graph_exec * exec, by__cuda_graph graph, unsigned long long flags))                \
    X(exec_close, cuGraphExecDestroy, (by__cuda_graph_exec exec))                                  \
    X(exec_launch, cuGraphLaunch, (by__cuda_graph_exec exec, by__cuda_stream stream))              \
    X(event_open, cuEventCreate, (by__cuda_event * event, unsigned flags))                         \
    X(event_close, cuEventDestroy_v2, (by__cuda_event event))                                      \
    X(event_record, cuEventRecord, (by__cuda_event event, by__cuda_stream stream))                 \
    X(event_wait, cuEventSynchronize, (by__cuda_event event))                                      \
    X(event_query, cuEventQuery, (by__cuda_event event))                                           \
    X(event_elapsed, cuEventElapsedTime,                                                           \
      (float *milliseconds, by__cuda_event from, by__cuda_event to))                               \
    X(module_open, cuModuleLoadData, (by__cuda_module * module, const void *image))                \
    X(module_close, cuModuleUnload, (by__cuda_module module))                                      \
    X(module_function, cuModuleGetFunction,                                                        \
      (by__cuda_function * function, by__cuda_module module, const char *name))                    \
    X(function_set, cuFuncSetAttribute, (by__cuda_function function, int property, int value))     \
    X(launch, cuLaunchKernel,                                                                      \
      (by__cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,              \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       by__cuda_stream stream, void **parameters, void **extra))

/* The driver of this process. A table of constants; the library stays loaded. */
typedef struct by__cuda_driver {
#define BY__CUDA_MEMBER(member, symbol, parameters) int(*member) parameters;
    BY__CUDA_DRIVER(BY__CUDA_MEMBER)
#undef BY__CUDA_MEMBER
    int supports; /* the newest CUDA that it knows: 12040 for 12.4 */
} by__cuda_driver;

/* Opens the driver and initializes it. BY_EDEVICE says why it cannot be used. */
by_status by__cuda_driver_open(by__cuda_driver *out, by_error *error);
/* Fails if device `ordinal` cannot be used: it is too old. */
by_status by__cuda_driver_check(const by__cuda_driver *driver, int ordinal, by_error *error);
/* The compute capability, major and minor in two digits: 90. */
int by__cuda_driver_capability(const by__cuda_driver *driver, int device);
/* Fails with BY_EDEVICE and the result's name and text, or BY_EMEMORY; BY_OK for success. */
by_status by__cuda_driver_failed(const by__cuda_driver *driver, int result, const char *what,
                                 by_error *error);

/* A table of a library's functions. */
typedef struct by__cuda_symbol {
    const char *name;
    size_t offset; /* in the table, of the pointer */
} by__cuda_symbol;

/* Opens the first of the libraries (names, ends with NULL) that is found: in the folder that the
 * environment variable BANYAN_CUDA_PATH names, and there alone if it is set; where the loader
 * looks; where containers have drivers; and, unless it is the driver, in toolkits below /usr/local
 * and in Python packages. Returns NULL if there is none. It stays loaded. (cuda_search.c) */
void *by__cuda_search(const char *const *names, bool driver);
/* Sets the pointers of a table; returns the first symbol that the library lacks, or NULL. */
const char *by__cuda_resolve(void *table, void *library, const by__cuda_symbol *symbols,
                             size_t count);

#endif
