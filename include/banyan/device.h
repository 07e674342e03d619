/* Devices: where programs run and where their memory is.
 *
 * A device has memory of its own. The host holds by_memory, which names a range of device memory
 * and cannot be dereferenced; data is moved by copies. On the CPU device a copy is a memcpy, and
 * host memory may be used directly (by_host_memory).
 *
 * A device, and everything opened on it, is used by one thread at a time. Close everything opened
 * on a device before the device.
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

/* A range of device memory, passed by value; {0} is none. The address is an integer meaningful to
 * the device only, so that host code cannot dereference it. */
typedef struct by_memory {
    by_device *device; /* NULL: host memory, see by_host_memory */
    uintptr_t address;
    size_t bytes;
} by_memory;

/* Host memory that a device can copy from and to asynchronously. */
typedef struct by_pinned {
    by_device *device;
    void *data;
    size_t bytes;
} by_pinned;

/* Properties of a device. */
typedef struct by_device_info {
    char kind[16];         /* as in the names of by_device_open: "cpu" */
    char name[64];         /* "cpu avx512" */
    char level[16];        /* instruction-set level of its kernels, limited by BANYAN_ISA */
    char version[128];     /* what results and speed depend on besides the hardware */
    int threads;           /* host threads that compute; 0 if the host does not compute */
    bool host_memory;      /* its memory is host memory: by_host_memory is accepted */
    size_t alignment;      /* required of all addresses given to a program, in bytes */
    uint64_t memory_total; /* bytes this process could use at most; 0: unknown */
    /* Bytes that can be allocated now without swapping or being killed; UINT64_MAX: unknown. */
    uint64_t memory_free;
} by_device_info;

/* Opens a device by its name: that of a kind ("cpu"), with the number of one of several devices of
 * that kind ("cpu:0", the default), or "auto": the best kind that this machine has. `threads`
 * compute threads on the host (-1: one per core available to the process); results do not depend on
 * their number. Returns BY_EARG for a kind that this build does not have, with those that it has,
 * or a device that this machine does not have, or if BANYAN_ISA is not an instruction-set level. */
BY_API by_status by_device_open(by_device **out, const char *name, int threads, by_error *error);
/* Writes the name of the device that would be opened: "cpu" for "auto". Errors as
 * by_device_open. */
#define BY_DEVICE_NAME 32
BY_API by_status by_device_resolve(char out[BY_DEVICE_NAME], const char *name, by_error *error);
BY_API void by_device_close(by_device **device);
/* Gets properties and current memory figures. On the CPU the latter respect the limits of the
 * process's control groups (versions 1 and 2) as well as those of the system. */
BY_API by_status by_device_describe(by_device_info *out, const by_device *device, by_error *error);

/* Allocates zeroed memory. `what` names it in errors ("the gradients"). bytes 0 yields {0}. Returns
 * BY_EMEMORY if it does not fit. */
BY_API by_status by_device_alloc(by_memory *out, by_device *device, size_t bytes, const char *what,
                                 by_error *error);
/* Frees memory and sets it to {0}; {0} is accepted. No submitted work may still use it. */
BY_API void by_device_free(by_memory *memory);
/* Allocates zeroed host memory for asynchronous copies, with the rules of by_device_alloc. */
BY_API by_status by_device_pin(by_pinned *out, by_device *device, size_t bytes, const char *what,
                               by_error *error);
/* Frees pinned memory, with the rules of by_device_free. */
BY_API void by_device_unpin(by_pinned *pinned);

/* Returns bytes [offset, offset + bytes) of `memory`; {0}, which programs reject, if they are not
 * all inside. */
BY_API by_memory by_memory_at(by_memory memory, size_t offset, size_t bytes);
/* Wraps host memory for programs on a device with `host_memory` set (the CPU). It must be 64-byte
 * aligned and stay valid while it is used. */
BY_API by_memory by_host_memory(void *data, size_t bytes);

/* Copies to.bytes from host memory to the device, after all submitted work; blocks until it is
 * done. Returns BY_EARG if `to` is not device memory, or the first error of submitted work. */
BY_API by_status by_device_write(by_memory to, const void *from, by_error *error);
/* Copies from.bytes from the device to host memory, in the same way. */
BY_API by_status by_device_read(void *to, by_memory from, by_error *error);
/* Waits for all submitted work and returns its first error. */
BY_API by_status by_device_finish(by_device *device, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
