/* device: what runs a node. One interface, a backend a folder: cpu/ today.
 *
 * A program (room exec) asks a device at compile time for the kernel of each node, lets the kernel
 * prepare itself (primitives, workspace size), and then runs the calls one after another. All
 * choices fall at compile time: `run` makes no allocation, takes no lock and makes no system call.
 *
 * by__call is a bound node as a kernel sees it: tensors, attributes, workspace. Its `state` belongs
 * to the kernel that prepared it and goes away with `release`. Tensor data pointers are NULL during
 * `supports` and `prepare`, and an absent optional input or output has rank -1. Tensors are dense,
 * row-major and 64-byte aligned.
 *
 * CPU kernels come in levels: `reference` (plain C, one thread, double accumulation: the oracle of
 * the tests), then `baseline`, `avx2`, `avx512`: one source compiled for each. The best level that
 * the machine has and BANYAN_ISA allows (reference | baseline | avx2 | avx512 | native) is taken; a
 * kernel that a level does not support falls to the one below.
 *
 * Determinism: a kernel gives the same bits for any `threads`: work is cut by shape, and every sum
 * has an order that depends on shapes alone.
 *
 * Never put here: knowledge of graphs, models or training; allocation in `run`.
 */
#ifndef BY_DEVICE_DEVICE_H
#define BY_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/op.h"
#include "banyan/status.h"

#define BY__MAX_INPUTS 8

typedef struct by__tensor {
    void *data;
    by_dtype dtype;
    by_shape shape;
} by__tensor;

typedef struct by__call {
    by_op op;
    by_attrs attrs;
    /* as written in the table of op.h; CLIP_SCALE alone may exceed BY__MAX_INPUTS */
    int input_count;
    int output_count;
    const by__tensor *in; /* at least BY__MAX_INPUTS entries; absent ones behind input_count */
    by__tensor out[BY_MAX_OUTPUTS];
    void *work;        /* work_bytes of scratch memory, 64-byte aligned, shared by all calls */
    size_t work_bytes; /* set by prepare */
    void *state;       /* set by prepare, owned by the kernel */
    int threads;       /* compute threads, fixed at compile time */
} by__call;

typedef struct by__kernel {
    by_op op;
    const char *name; /* as profiles and tests show it: "layer_norm avx512", "matmul onednn" */
    /* True when dtypes and shapes are handled. NULL: every call that the op's shape rule
     * accepts. */
    bool (*supports)(const by__call *call);
    /* Sets state and work_bytes. NULL: neither is needed. */
    by_status (*prepare)(by__call *call, by_error *error);
    void (*release)(by__call *call);
    /* Computes. BY_EDEVICE only when a library underneath fails. */
    by_status (*run)(const by__call *call);
} by__kernel;

typedef enum by__isa {
    BY__ISA_REFERENCE = 0,
    BY__ISA_BASELINE,
    BY__ISA_AVX2,
    BY__ISA_AVX512,
    BY__ISA_COUNT
} by__isa;

/* ---- the CPU device (cpu/cpu.c) ---- */

/* Highest level of this machine, capped by the environment variable BANYAN_ISA. An unknown value of
 * the variable is an error. */
by_status by__cpu_isa(by__isa *out, by_error *error);
/* Highest level of this machine, whatever the environment says. */
by__isa by__cpu_best_isa(void);
const char *by__isa_name(by__isa isa);
/* The kernel for a call at `isa` or the nearest level below it. BY_EDEVICE names op and dtypes when
 * there is none. */
by_status by__cpu_kernel(const by__kernel **out, const by__call *call, by__isa isa,
                         by_error *error);
/* The kernel at exactly this level, NULL if that level has none: for the kernel tests. */
const by__kernel *by__cpu_kernel_at(const by__call *call, by__isa isa);

/* Fills `out` with `count` normal values of mean 0 and deviation `std` from Philox under `key`. The
 * bits are the same at every level and on every machine, for any number of threads. */
void by__cpu_fill_normal(float *out, int64_t count, float std, const uint32_t key[2], by__isa isa);

#endif
