/* Devices: where programs run and where their memory is.
 *
 * A device has memory of its own. The host hands around by_memory, which names a range of it and
 * cannot be dereferenced; data goes in and out by copies. On the CPU device a copy is a memcpy, and
 * plain host memory may be used as it is (by_host_memory).
 *
 * One thread at a time uses a device and what was opened on it. Everything that was opened on a
 * device is closed before the device.
 */
#ifndef BANYAN_DEVICE_H
#define BANYAN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_device by_device;

/* A range of a device's memory, passed by value; {0} is none. The address means something to the
 * device only: it is an integer, so that host code does not dereference it. */
typedef struct by_memory {
    by_device *device; /* NULL: memory of the host, see by_host_memory */
    uintptr_t address;
    size_t bytes;
} by_memory;

/* Host memory that a device copies from and to while the host goes on. */
typedef struct by_pinned {
    by_device *device;
    void *data;
    size_t bytes;
} by_pinned;

/* Plain data. */
typedef struct by_device_info {
    char kind[16];         /* what by_device_open takes: "cpu" */
    char name[64];         /* "cpu avx512" */
    char level[16];        /* instruction-set level of its kernels, capped by BANYAN_ISA */
    char version[128];     /* what results and speed depend on apart from the hardware */
    int threads;           /* host threads that compute; 0 when the host does not compute */
    bool host_memory;      /* its memory is the host's: by_host_memory is accepted */
    size_t alignment;      /* of every address that a program is given, in bytes */
    uint64_t memory_total; /* bytes that this process could use at most; 0: unknown */
    uint64_t memory_free;  /* bytes that can be taken now without swapping or being killed;
                              UINT64_MAX: unknown */
} by_device_info;

/* Opens a device. kind: "cpu". `threads` compute threads are used, -1: one a core that this process
 * may run on; results do not depend on it. BY_EARG names an unknown kind, and a value of BANYAN_ISA
 * that is no instruction-set level. */
BY_API by_status by_device_open(by_device **out, const char *kind, int threads, by_error *error);
BY_API void by_device_close(by_device **device);
/* Memory figures are those of now. On the CPU they respect the limits of the process's control
 * groups (version 1 and 2) as well as what the system has. */
BY_API by_status by_device_describe(by_device_info *out, const by_device *device, by_error *error);

/* Zeroed memory. `what` names it in errors ("the gradients"). bytes 0 gives {0}. BY_EMEMORY. */
BY_API by_status by_device_alloc(by_memory *out, by_device *device, size_t bytes, const char *what,
                                 by_error *error);
/* Nothing that was submitted may still use it. Sets {0}; {0} is accepted. */
BY_API void by_device_free(by_memory *memory);
/* Zeroed host memory for copies that do not block; the same rules. */
BY_API by_status by_device_pin(by_pinned *out, by_device *device, size_t bytes, const char *what,
                               by_error *error);
BY_API void by_device_unpin(by_pinned *pinned);

/* Bytes [offset, offset + bytes) of `memory`; {0}, which no program accepts, when they are not all
 * inside. */
BY_API by_memory by_memory_at(by_memory memory, size_t offset, size_t bytes);
/* Memory of the host as memory for programs of a device whose info says host_memory (the CPU). The
 * caller keeps it alive; 64-byte aligned. */
BY_API by_memory by_host_memory(void *data, size_t bytes);

/* Copies to.bytes from the host and from.bytes to the host, behind everything that was submitted;
 * done on return, so any host memory will do. BY_EDEVICE is the first error of submitted work. */
BY_API by_status by_device_write(by_memory to, const void *from, by_error *error);
BY_API by_status by_device_read(void *to, by_memory from, by_error *error);
/* Waits for everything that was submitted, and returns its first error. */
BY_API by_status by_device_finish(by_device *device, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
