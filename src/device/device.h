/* device: what computes. One interface, a backend a folder: cpu/ today. Rooms above name no
 * function of a backend.
 *
 * Memory. by_memory (public) is a range of device memory that only the device may read or write.
 * Host code fills and reads it with copies, from and to pinned memory when the copy is not to
 * block. On the CPU device memory is host memory, copies are memcpy, and by_host_memory is
 * accepted.
 *
 * Queues. A device has one in-order queue of each by__queue. Work on one queue runs in the order of
 * submission; between queues there is no order except by events:
 *
 *   by__event_record(e, q)   e stands for everything submitted to q so far
 *   by__event_order(e, q)    what is submitted to q from now on runs after what e stands for
 *   by__event_wait(e)        the host waits for it; errors of that work surface here
 *
 * An event that was never recorded stands for nothing: ordering or waiting does nothing, so the
 * first round of a double buffer needs no special case. Recording again lets the event stand for
 * the later point; orders made before keep the earlier one (as in CUDA).
 *
 * What submitted work uses belongs to the device until an event behind it was waited for: a copied
 * host buffer is not changed or read, memory is not freed, recordings and events are not closed.
 *
 * Programs. Room exec gives a device a by__command_list once (by__recording_open), built at compile
 * time; the device may record it (a CUDA graph) and replay it at every submit. A submitted program
 * is one piece of work on the compute queue: its commands for other queues begin after what the
 * compute queue holds, and what is submitted to it later begins after all of them. Addresses are
 * those in the calls at the time of submit: binding other buffers afterwards changes later submits
 * only.
 *
 * Kernels. by__call is a bound node as a kernel sees it: tensors, attributes, workspace. Its
 * `state` belongs to the kernel that prepared it and goes away with `release`. Data pointers are
 * NULL during `supports` and `prepare`, and an absent optional input or output has rank -1. Tensors
 * are dense, row-major and aligned as the device says. What else a kernel may use (device, threads,
 * queue) is in the by__context that `prepare` and `run` get. All choices fall in `prepare`: `run`
 * makes no allocation, takes no lock and makes no system call.
 *
 * The CPU. Queues run what is submitted at once, on the calling thread, so every event is done when
 * it is recorded and the interface costs one indirect call; the collective calls of a program run
 * on a thread of their own, for which the submit waits. Its kernels come in levels: `reference`
 * (plain C, one thread, double accumulation: the oracle of the tests), then `baseline`, `avx2`,
 * `avx512`: one source compiled for each. The best level that the machine has and BANYAN_ISA allows
 * (reference | baseline | avx2 | avx512 | native) is taken; a kernel that a level does not support
 * falls to the one below.
 *
 * Errors. A call that fails at once says so. Errors of submitted work surface in by__event_wait,
 * by__queue_finish, by_device_read and by_device_write, name program and node, and are given to the
 * function of by__device_on_error: the place where a rank that fails tells the others before it
 * returns (a communicator sets it, and answers by making their next collective return BY_EPEER).
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

#include "banyan/device.h"
#include "banyan/dtype.h"
#include "banyan/op.h"
#include "banyan/status.h"

#define BY__MAX_INPUTS 8

/* ---- kernels ---- */

typedef struct by__tensor {
    void *data; /* the device's address; host code never dereferences it */
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
    const char *what;  /* of a collective: how errors and other ranks know it */
} by__call;

/* ---- collectives ---- */

typedef enum by__exchange_kind {
    BY__EXCHANGE_ALL_REDUCE,     /* out = sum of the ranks' in; they may be the same */
    BY__EXCHANGE_ALL_GATHER,     /* out = all slices; in: this rank's */
    BY__EXCHANGE_REDUCE_SCATTER, /* out = this rank's slice of the sum; in: all slices */
    BY__EXCHANGE_ALL_TO_ALL,     /* out = what each rank has as this one's slice; in: all slices */
    BY__EXCHANGE_RING_SHIFT,     /* out = the in of the rank before */
    BY__EXCHANGE_GRADIENTS,      /* of bucket call->attrs.bucket, call->in */
    BY__EXCHANGE_PARAMETER       /* out = parameter number call->attrs.bucket of the graph */
} by__exchange_kind;

/* What a kernel asks of the other ranks. Slices stand behind each other in the order of ranks;
 * slice r has the entries that by__sum_tree_block(entries, ranks, r) gives, of `elements` each. */
typedef struct by__exchange {
    by__exchange_kind kind;
    uint32_t mesh; /* mesh axes (bit i: axis i) in which the ranks that take part differ */
    int ranks;
    by_dtype dtype;
    const void *in;
    void *out;
    int64_t entries;
    int64_t elements;
    const by__call *call;
    const char *what;
} by__exchange;

/* Who moves the data, for backends whose kernels do not: `run` returns when `out` is there. Called
 * on one thread at a time. */
typedef struct by__collectives {
    void *user;
    by_status (*run)(void *user, const by__exchange *exchange, by_error *error);
    by_error error; /* of a run that failed, which by__call_failed tells */
    double stood;   /* seconds that the compute queue stood still for what it runs */
} by__collectives;

/* What a kernel may use in addition to its call. */
typedef struct by__context {
    by_device *device;
    int threads; /* host threads to compute with */
    void *queue; /* the backend's handle of the queue that a call runs on; NULL on the CPU */
    by__collectives *collectives; /* NULL: groups have one rank */
} by__context;

typedef struct by__kernel {
    by_op op;
    const char *name; /* as profiles and tests show it: "layer_norm avx512", "matmul onednn" */
    /* True when dtypes and shapes are handled. NULL: every call that the op's shape rule
     * accepts. */
    bool (*supports)(const by__call *call);
    /* Sets state and work_bytes. NULL: neither is needed. */
    by_status (*prepare)(by__call *call, const by__context *context, by_error *error);
    void (*release)(by__call *call);
    /* Computes. BY_EDEVICE only when a library underneath fails. */
    by_status (*run)(const by__call *call, const by__context *context);
} by__kernel;

/* ---- queues, copies and events ---- */

typedef enum by__queue {
    BY__QUEUE_COMPUTE = 0,
    BY__QUEUE_COPY_IN,
    BY__QUEUE_COPY_OUT,
    BY__QUEUE_COLLECTIVE,
    BY__QUEUE_COUNT
} by__queue;

/* "compute", "copy-in", ... */
const char *by__queue_name(by__queue queue);
/* Asynchronous. Host pointers are in memory of by_device_pin. The bytes are those of the device
 * range. BY_EARG: the memory is none, or not a device's; ranges of different sizes or devices. */
by_status by__copy_in(by__queue queue, by_memory to, const void *from, by_error *error);
by_status by__copy_out(by__queue queue, void *to, by_memory from, by_error *error);
by_status by__copy(by__queue queue, by_memory to, by_memory from, by_error *error);
/* Sets every byte. */
by_status by__fill(by__queue queue, by_memory memory, uint8_t byte, by_error *error);
/* Waits for what was submitted to the queue so far. */
by_status by__queue_finish(by_device *device, by__queue queue, by_error *error);

typedef struct by__event by__event;

/* `timed` events say when they were reached; the others cost less. */
by_status by__event_open(by__event **out, by_device *device, bool timed, by_error *error);
/* NULL is accepted. */
void by__event_close(by__event **event);
by_status by__event_record(by__event *event, by__queue queue, by_error *error);
by_status by__event_order(by__event *event, by__queue queue, by_error *error);
by_status by__event_wait(by__event *event, by_error *error);
/* *done: whether by__event_wait would return at once. */
by_status by__event_done(bool *done, by__event *event, by_error *error);
/* Seconds between two timed events that are done. */
by_status by__event_seconds(double *seconds, by__event *from, by__event *to, by_error *error);

/* ---- programs ---- */

typedef enum by__command_kind {
    BY__COMMAND_CALL,   /* run call `index` on the queue */
    BY__COMMAND_RECORD, /* record the list's event `index` on the queue */
    BY__COMMAND_ORDER   /* what follows on the queue runs after event `index` */
} by__command_kind;

typedef struct by__command {
    by__command_kind kind;
    by__queue queue;
    size_t index;
    /* Of an order: the call whose time is that for which the queue stood still, a call that only
     * waits; SIZE_MAX: none. */
    size_t call;
} by__command;

/* A compiled program, owned by exec, which keeps it unchanged but for the addresses in its calls.
 * Commands stand in an order in which one queue alone could run them. */
typedef struct by__command_list {
    const char *name; /* of the program, for errors */
    const by__call *calls;
    const by__kernel *const *kernels; /* NULL for calls that only wait */
    size_t call_count;
    const by__command *commands;
    size_t command_count;
    size_t event_count;
} by__command_list;

/* Tells when a call ran: seconds of by__now(). */
typedef void by__call_hook(void *user, int call, double begin, double end);

typedef struct by__recording by__recording;

by_status by__recording_open(by__recording **out, by_device *device, const by__command_list *list,
                             by_error *error);
/* Nothing of it may be in flight. NULL is accepted. */
void by__recording_close(by__recording **recording);
/* Submits the program to the compute queue. rebound: addresses in the calls have changed since the
 * last submit. hook (may be NULL) is called for each call when it is done, at the latest when the
 * program was waited for. */
by_status by__recording_submit(by__recording *recording, bool rebound, by__call_hook *hook,
                               void *user, by_error *error);

/* ---- the device itself ---- */

/* The kernel for a call. BY_EDEVICE names op and dtypes when there is none. */
by_status by__device_kernel(const by__kernel **out, by_device *device, const by__call *call,
                            by_error *error);
/* What `prepare` gets. */
const by__context *by__device_context(const by_device *device);
/* Who moves data between ranks, the caller's; NULL: nobody, groups have one rank. Programs of the
 * device are not in flight. */
void by__device_set_collectives(by_device *device, by__collectives *collectives);

/* One function a device, called with every error of submitted work and every by__device_report,
 * before the call that meets it returns. NULL: none. */
typedef void by__error_fn(void *user, by_status status, const by_error *error);
void by__device_on_error(by_device *device, by__error_fn *fn, void *user);
/* Whoever fails between two collectives (a step, a loader) says so here. Returns `status`; does
 * nothing for BY_OK. `error` may be NULL. */
by_status by__device_report(by_device *device, by_status status, const by_error *error);

/* ---- backends ---- */

/* What a backend implements. Arguments were checked by the functions above, which call these. */
typedef struct by__device_ops {
    void (*close)(by_device *device);
    by_status (*describe)(by_device_info *out, const by_device *device, by_error *error);
    by_status (*alloc)(uintptr_t *out, by_device *device, size_t bytes, const char *what,
                       by_error *error);
    void (*free)(by_device *device, uintptr_t address, size_t bytes);
    by_status (*pin)(void **out, by_device *device, size_t bytes, const char *what,
                     by_error *error);
    void (*unpin)(by_device *device, void *data, size_t bytes);
    by_status (*copy_in)(by__queue queue, by_memory to, const void *from, by_error *error);
    by_status (*copy_out)(by__queue queue, void *to, by_memory from, by_error *error);
    by_status (*copy)(by__queue queue, by_memory to, by_memory from, by_error *error);
    by_status (*fill)(by__queue queue, by_memory memory, uint8_t byte, by_error *error);
    /* Of any host memory, when all queues are finished; done on return. */
    by_status (*write)(by_memory to, const void *from, by_error *error);
    by_status (*read)(void *to, by_memory from, by_error *error);
    by_status (*finish)(by_device *device, by__queue queue, by_error *error);
    by_status (*event_open)(by__event **out, by_device *device, bool timed, by_error *error);
    void (*event_close)(by__event *event);
    by_status (*event_record)(by__event *event, by__queue queue, by_error *error);
    by_status (*event_order)(by__event *event, by__queue queue, by_error *error);
    by_status (*event_wait)(by__event *event, by_error *error);
    by_status (*event_done)(bool *done, by__event *event, by_error *error);
    by_status (*event_seconds)(double *seconds, by__event *from, by__event *to, by_error *error);
    by_status (*kernel)(const by__kernel **out, by_device *device, const by__call *call,
                        by_error *error);
    by_status (*recording_open)(by__recording **out, by_device *device,
                                const by__command_list *list, by_error *error);
    void (*recording_close)(by__recording *recording);
    by_status (*submit)(by__recording *recording, bool rebound, by__call_hook *hook, void *user,
                        by_error *error);
} by__device_ops;

/* The first member of a backend's own structs. */
struct by_device {
    const by__device_ops *ops;
    by__error_fn *on_error;
    void *on_error_user;
    by__context context;
    size_t alignment;
    bool host_memory;
};

/* Fills the error of a call that failed: program, node, kernel, and for a collective what
 * context->collectives says. Returns `status`. */
by_status by__call_failed(const by__command_list *list, size_t call, const by__context *context,
                          by_status status, by_error *error);

struct by__event {
    by_device *device;
};

struct by__recording {
    by_device *device;
    const by__command_list *list;
};

/* ---- the host ---- */

/* Instruction-set levels of the host, "baseline" first, the best one last, without the reference
 * kernels; whatever BANYAN_ISA says. Static. */
const char *const *by__host_levels(size_t *count);

/* Parts of a sequence of normal values begin at multiples of it. */
#define BY__NORMAL_BLOCK 4096

/* Fills `out` with values first, first + 1, ... of the normal values of mean 0 and deviation `std`
 * from Philox under `key`, `count` of them. The bits are the same on every machine, for any number
 * of threads. */
by_status by__fill_normal(float *out, int64_t first, int64_t count, float std,
                          const uint32_t key[2], by_error *error);

#endif
