/* device: the interface to the hardware that computes. A backend is a folder: cpu/ today. Modules
 * above call no function of a backend.
 *
 * Types: by__device_kernel, the code for an op; by__device_call, a bound node as a kernel sees it;
 * by__device_event, a point in a queue; by__device_command_list, a compiled program, and
 * by__device_recording, its form on the device; by__device_collectives, which moves data between
 * ranks; by__device_choices, what libraries have chosen; by__device_ops, what a backend implements.
 * The sections below describe their contracts.
 *
 * Memory. by_memory (public) is a range of device memory that only the device may read or write.
 * Host code fills and reads it with copies, from and to pinned memory if the copy must not block.
 * On the CPU device memory is host memory, copies are memcpy, and by_host_memory is accepted.
 *
 * Errors. A call that fails immediately returns its error. Errors of submitted work surface in
 * by__device_event_wait, by__device_queue_finish, by_device_read and by_device_write, name the
 * program and, if the device knows it, the node (by__device_set_stepwise finds it), and are passed
 * to the function set by by__device_on_error. There a failing rank tells the others before it
 * returns (a communicator sets it, and makes their next collective return BY_EPEER).
 *
 * Determinism: a kernel gives the same bits for any number of threads: work is divided by shape,
 * and the order of every sum depends on shapes alone.
 *
 * Who owns what: the device owns its memory, queues and kernels; command lists belong to exec, and
 * a kernel's state to the kernel that prepared it.
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
#include "banyan/text.h"

#define BY__MAX_INPUTS 8

/* ---- kernels ----
 *
 * by__device_call is a bound node as a kernel sees it: tensors, attributes, workspace. Its `state`
 * belongs to the kernel that prepared it and is freed by `release`. Data pointers are NULL during
 * `supports` and `prepare`, and an absent optional input or output has rank -1. Tensors are dense,
 * row-major and aligned as the device requires. Everything else that a kernel may use (device,
 * threads, queue) is in the by__device_context passed to `prepare` and `run`. All decisions are
 * made in `prepare`: `run` makes no allocation, takes no lock and makes no system call. */

typedef struct by__device_tensor {
    void *data; /* the device's address; host code never dereferences it */
    by_dtype dtype;
    by_shape shape;
} by__device_tensor;

typedef struct by__device_call {
    by_op op;
    by_attrs attrs;
    /* as written in the table of op.h; CLIP_SCALE alone may exceed BY__MAX_INPUTS */
    int input_count;
    int output_count;
    /* at least BY__MAX_INPUTS entries; those from input_count on are absent */
    const by__device_tensor *in;
    by__device_tensor out[BY_MAX_OUTPUTS];
    void *work;        /* work_bytes of scratch memory, 64-byte aligned, shared by all calls */
    size_t work_bytes; /* set by prepare */
    void *state;       /* set by prepare, owned by the kernel */
    const char *what;  /* of a collective: its name in errors and for other ranks */
} by__device_call;

/* ---- for kernels ---- */

/* Whether an optional operand or result is there. */
static inline bool by__present(const by__device_tensor *tensor)
{
    return tensor->shape.rank >= 0;
}

static inline int64_t by__tensor_count(const by__device_tensor *tensor)
{
    return by_shape_count(&tensor->shape);
}

/* Views a tensor [..., C] as R rows of C columns; a scalar is one row of one column. */
static inline int64_t by__tensor_columns(const by__device_tensor *tensor)
{
    return tensor->shape.rank == 0 ? 1 : tensor->shape.dim[tensor->shape.rank - 1];
}

static inline int64_t by__tensor_rows(const by__device_tensor *tensor)
{
    int64_t columns = by__tensor_columns(tensor);
    return columns == 0 ? 0 : by__tensor_count(tensor) / columns;
}

/* The pieces of b that cover a. */
static inline int64_t by__ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b; /* NOLINT(clang-analyzer-core.DivideZero): pieces have a size */
}

/* ---- collectives ---- */

typedef enum by__device_exchange_kind {
    BY__EXCHANGE_ALL_REDUCE,     /* out = sum of the ranks' in; they may be the same */
    BY__EXCHANGE_ALL_GATHER,     /* out = all slices; in: this rank's slice */
    BY__EXCHANGE_REDUCE_SCATTER, /* out = this rank's slice of the sum; in: all slices */
    BY__EXCHANGE_ALL_TO_ALL,     /* out = every rank's slice for this one; in: all slices */
    BY__EXCHANGE_RING_SHIFT,     /* out = the `in` of the previous rank */
    BY__EXCHANGE_GRADIENTS, /* hands over the gradients call->in of bucket call->attrs.bucket */
    BY__EXCHANGE_PARAMETER  /* out = parameter number call->attrs.bucket of the graph */
} by__device_exchange_kind;

/* A collective operation that a kernel requests. Slices are contiguous in the order of ranks; slice
 * r has the number of entries that by__sum_tree_block(entries, ranks, r) gives, of `elements`
 * each. */
typedef struct by__device_exchange {
    by__device_exchange_kind kind;
    uint32_t mesh; /* mesh axes (bit i: axis i) along which the ranks of the group differ */
    int ranks;
    by_dtype dtype;
    const void *in;
    void *out;
    int64_t entries;
    int64_t elements;
    const by__device_call *call;
    const char *what;
} by__device_exchange;

/* Moves the data of collectives, for backends whose kernels do not: `run` returns when `out` is
 * complete. Called on one thread at a time. */
typedef struct by__device_collectives {
    void *user;
    by_status (*run)(void *user, const by__device_exchange *exchange, by_error *error);
    by_error error;      /* of a run that failed; by__device_call_failed includes it */
    double wait_seconds; /* seconds that the compute queue was stalled by `run` */
} by__device_collectives;

/* What a kernel may use besides its call. */
typedef struct by__device_context {
    by_device *device;
    int threads; /* host threads to compute with */
    void *queue; /* the backend's handle of the queue that a call runs on; NULL on the CPU */
    by__device_collectives *collectives; /* NULL: every group has one rank */
} by__device_context;

typedef struct by__device_kernel {
    by_op op;
    const char *name; /* shown by profiles and tests: "layer_norm avx512", "matmul onednn" */
    /* Returns true if the dtypes and shapes are supported. NULL: every call that the op's shape
     * rule accepts. */
    bool (*supports)(const by__device_call *call);
    /* Sets state and work_bytes. NULL: neither is needed. */
    by_status (*prepare)(by__device_call *call, const by__device_context *context, by_error *error);
    void (*release)(by__device_call *call);
    /* Computes. Fails with BY_EDEVICE only if an underlying library fails. */
    by_status (*run)(const by__device_call *call, const by__device_context *context);
} by__device_kernel;

/* ---- queues, copies and events ----
 *
 * A device has one in-order queue of each by__device_queue. Work on one queue runs in the order of
 * submission; between queues there is no order except by events:
 *
 *   by__device_event_record(e, q)   e marks the completion of everything submitted to q so far
 *   by__device_event_order(e, q)    work submitted to q from now on runs after that point
 *   by__device_event_wait(e)        the host waits for that point; errors of the work surface here
 *
 * For an event that was never recorded, ordering and waiting do nothing, so the first round of a
 * double buffer needs no special case. Recording again moves the event to the later point; orders
 * made before keep the earlier one (as in CUDA).
 *
 * Resources of submitted work must not be touched until an event after it was waited for: a copied
 * host buffer is not changed or read, memory is not freed, recordings and events are not closed.
 *
 * On the CPU, queues run submitted work at once on the calling thread, so every event is complete
 * when it is recorded and the interface costs one indirect call. */

typedef enum by__device_queue {
    BY__QUEUE_COMPUTE = 0,
    BY__QUEUE_COPY_IN,
    BY__QUEUE_COPY_OUT,
    BY__QUEUE_COLLECTIVE,
    BY__QUEUE_COUNT
} by__device_queue;

/* "compute", "copy-in", ... */
const char *by__device_queue_name(by__device_queue queue);
/* Asynchronous. Host pointers must be in memory of by_device_pin. The size is that of the device
 * range. BY_EARG: the memory is empty, or not a device's; ranges of different sizes or devices. */
by_status by__device_copy_in(by__device_queue queue, by_memory to, const void *from,
                             by_error *error);
by_status by__device_copy_out(by__device_queue queue, void *to, by_memory from, by_error *error);
by_status by__device_copy(by__device_queue queue, by_memory to, by_memory from, by_error *error);
/* Sets every byte. */
by_status by__device_fill(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error);
/* Waits for all work submitted to the queue so far. */
by_status by__device_queue_finish(by_device *device, by__device_queue queue, by_error *error);

typedef struct by__device_event by__device_event;

/* `timed` events record the time at which they are reached; the others cost less. */
by_status by__device_event_open(by__device_event **out, by_device *device, bool timed,
                                by_error *error);
/* NULL is accepted. */
void by__device_event_close(by__device_event **event);
by_status by__device_event_record(by__device_event *event, by__device_queue queue, by_error *error);
by_status by__device_event_order(by__device_event *event, by__device_queue queue, by_error *error);
by_status by__device_event_wait(by__device_event *event, by_error *error);
/* *done: true if by__device_event_wait would return at once. */
by_status by__device_event_done(bool *done, by__device_event *event, by_error *error);
/* Seconds between two timed events that are complete. */
by_status by__device_event_seconds(double *seconds, by__device_event *from, by__device_event *to,
                                   by_error *error);

/* ---- programs ----
 *
 * Module exec gives a device a by__device_command_list once (by__device_recording_open), built at
 * compile time; the device may record it (a CUDA graph) and replay it at every submit. A submitted
 * program is one piece of work on the compute queue: its commands for other queues begin after what
 * the compute queue already holds, and work submitted to the compute queue later begins after all
 * of them. Addresses are read from the calls at the time of submit: binding other buffers
 * afterwards changes later submits only. On the CPU, the collective calls of a program run on a
 * separate thread, for which the submit waits. */

typedef enum by__device_command_kind {
    BY__COMMAND_CALL,   /* run call `index` on the queue */
    BY__COMMAND_RECORD, /* record the list's event `index` on the queue */
    BY__COMMAND_ORDER   /* what follows on the queue runs after event `index` */
} by__device_command_kind;

typedef struct by__device_command {
    by__device_command_kind kind;
    by__device_queue queue;
    size_t index;
    /* Of an order: the call to which the stall of the queue is attributed, a call that only waits;
     * SIZE_MAX: none. */
    size_t call;
} by__device_command;

/* A compiled program. exec owns it and changes only the addresses in its calls. Commands are listed
 * in an order in which a single queue could run them. */
typedef struct by__device_command_list {
    const char *name; /* name of the program, for errors */
    const by__device_call *calls;
    const by__device_kernel *const *kernels; /* NULL for calls that only wait */
    size_t call_count;
    const by__device_command *commands;
    size_t command_count;
    size_t event_count;
} by__device_command_list;

/* Reports when a call ran, in seconds of by__now(). */
typedef void by__device_call_hook(void *user, int call, double begin, double end);

typedef struct by__device_recording by__device_recording;

by_status by__device_recording_open(by__device_recording **out, by_device *device,
                                    const by__device_command_list *list, by_error *error);
/* It must not be in flight. NULL is accepted. */
void by__device_recording_close(by__device_recording **recording);
/* Submits the program to the compute queue. rebound: addresses in the calls have changed since the
 * last submit. hook (may be NULL) is called for each call when it is done, at the latest when the
 * program was waited for. */
by_status by__device_recording_submit(by__device_recording *recording, bool rebound,
                                      by__device_call_hook *hook, void *user, by_error *error);

/* Memory that programs take besides their buffers. */
typedef struct by__device_recording_bytes {
    size_t of_device; /* an estimate of what its driver keeps */
    size_t pinned;    /* of the host, for what collectives exchange */
} by__device_recording_bytes;

by__device_recording_bytes by__device_recording_size(const by__device_recording *recording);

/* Makes the programs of a device run call by call from now on, each waited for before the next one
 * begins. A hook then finds the operands and results of its call in the device's memory, and an
 * error names the node. Nothing may be in flight. */
void by__device_set_stepwise(by_device *device, bool stepwise);

/* ---- choices (choices.c) ----
 *
 * Libraries choose algorithms by rules of their own, and bits depend on them. A device remembers
 * what was chosen for the kernels prepared so far, as a text with a line for each choice, and takes
 * choices from such a text: so a run that is resumed computes as it did before. A line says on what
 * device and library it was made, and is used there alone. */

typedef struct by__device_choices by__device_choices;

/* Kernels prepared from now on use the choices in `text` that were made on a device like this one.
 * NULL: none. BY_EFORMAT: it is no such text. */
by_status by__device_take_choices(by_device *device, const char *text, by_error *error);
/* Adds to a text, which may be empty, what it lacks of this device's choices. Nothing is added for
 * a device without any. BY_EMEMORY if the text has failed. */
by_status by__device_add_choices(by_string *text, const by_device *device, by_error *error);
/* Adds to a text what it lacks of another one. */
by_status by__device_join_choices(by_string *text, const char *other, by_error *error);
/* The device of the first choice that `text` (may be NULL or empty) has, as *length characters, if
 * none was made on a device like this one, and this one makes any; else NULL. */
const char *by__device_foreign_choices(size_t *length, const by_device *device, const char *text);
/* What this device and its libraries are in such a text; NULL: it makes no choices. */
const char *by__device_chooser(const by_device *device);

/* Products of f32 prepared from now on round their operands to 11 significant bits, where that
 * makes them faster (a GPU's tf32). Returns true if the device can. */
bool by__device_use_tf32(by_device *device, bool use);

/* ---- the device itself ---- */

/* Bytes that can be allocated now; UINT64_MAX: unknown. */
uint64_t by__device_memory_free(const by_device *device);
/* The unit of offsets in memory that is given to programs: what is placed at multiples of it has
 * the device's alignment. At least a cache line. */
size_t by__device_unit(const by_device *device);
/* Opens another handle of the same device, with queues and threads of its own, for another thread.
 * Programs of both may use the memory of either; who uses what when is the caller's to order. The
 * first handle must outlive it. */
by_status by__device_share(by_device **out, by_device *device, int threads, by_error *error);
/* Whether programs of a device can use memory of the other one. */
bool by__device_has_memory_of(const by_device *device, const by_device *other);

/* The kernel for a call. BY_EDEVICE names op and dtypes when there is none. */
by_status by__device_find_kernel(const by__device_kernel **out, by_device *device,
                                 const by__device_call *call, by_error *error);
/* The context passed to `prepare`. */
const by__device_context *by__device_context_of(const by_device *device);
/* Sets the object that moves data between ranks, owned by the caller; NULL: none, every group has
 * one rank. No program of the device may be in flight. */
void by__device_set_collectives(by_device *device, by__device_collectives *collectives);
/* Makes later allocations of host memory resident as they are written, instead of at once: for
 * buffers of the longest input, of which most inputs fill little. */
void by__device_allocate_on_use(by_device *device);

/* Called with every error of submitted work and every by__device_report, before the call that found
 * it returns. One function per device; NULL: none. */
typedef void by__device_error_fn(void *user, by_status status, const by_error *error);
void by__device_on_error(by_device *device, by__device_error_fn *fn, void *user);
/* Reports a failure outside of submitted work (a step, a loader), so that other ranks learn of it.
 * Returns `status`; does nothing for BY_OK. `error` may be NULL. */
by_status by__device_report(by_device *device, by_status status, const by_error *error);

/* ---- backends ---- */

/* What a folder of devices defines for the table in device_kinds.c. */
typedef struct by__device_kind {
    const char *name; /* "cpu" */
    /* Counts those in the machine; fails with the reason why none can be used. */
    by_status (*count)(int *out, by_error *error);
    by_status (*open)(by_device **out, int ordinal, int threads, by_error *error);
    /* The format whose products are fastest: the narrowest multiplied without conversion. */
    by_status (*fastest)(by_dtype *out, by_error *error);
} by__device_kind;

extern const by__device_kind by__device_cpu;

/* Checks a name as by_device_open does. */
by_status by__device_check(const char *name, by_error *error);
/* by__device_kind.fastest of the device with this name. */
by_status by__device_fastest(by_dtype *out, const char *name, by_error *error);

/* Functions of a backend. The functions above check the arguments and call these. */
typedef struct by__device_ops {
    void (*close)(by_device *device);
    by_status (*describe)(by_device_info *out, const by_device *device, by_error *error);
    by_status (*alloc)(uintptr_t *out, by_device *device, size_t bytes, const char *what,
                       by_error *error);
    void (*free)(by_device *device, uintptr_t address, size_t bytes);
    by_status (*pin)(void **out, by_device *device, size_t bytes, const char *what,
                     by_error *error);
    void (*unpin)(by_device *device, void *data, size_t bytes);
    by_status (*copy_in)(by__device_queue queue, by_memory to, const void *from, by_error *error);
    by_status (*copy_out)(by__device_queue queue, void *to, by_memory from, by_error *error);
    by_status (*copy)(by__device_queue queue, by_memory to, by_memory from, by_error *error);
    by_status (*fill)(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error);
    /* From and to any host memory, when all queues are idle; synchronous. */
    by_status (*write)(by_memory to, const void *from, by_error *error);
    by_status (*read)(void *to, by_memory from, by_error *error);
    by_status (*finish)(by_device *device, by__device_queue queue, by_error *error);
    by_status (*event_open)(by__device_event **out, by_device *device, bool timed, by_error *error);
    void (*event_close)(by__device_event *event);
    by_status (*event_record)(by__device_event *event, by__device_queue queue, by_error *error);
    by_status (*event_order)(by__device_event *event, by__device_queue queue, by_error *error);
    by_status (*event_wait)(by__device_event *event, by_error *error);
    by_status (*event_done)(bool *done, by__device_event *event, by_error *error);
    by_status (*event_seconds)(double *seconds, by__device_event *from, by__device_event *to,
                               by_error *error);
    by_status (*kernel)(const by__device_kernel **out, by_device *device,
                        const by__device_call *call, by_error *error);
    by_status (*recording_open)(by__device_recording **out, by_device *device,
                                const by__device_command_list *list, by_error *error);
    void (*recording_close)(by__device_recording *recording);
    /* by__device_recording_bytes.of_device; NULL: nothing. */
    size_t (*recording_bytes)(const by__device_recording *recording);
    by_status (*submit)(by__device_recording *recording, bool rebound, by__device_call_hook *hook,
                        void *user, by_error *error);
    /* Submits one call of the program to its queue. */
    by_status (*submit_call)(by__device_recording *recording, const by__device_command *command,
                             by_error *error);
    /* by__device_share. */
    by_status (*share)(by_device **out, by_device *device, int threads, by_error *error);
} by__device_ops;

/* The first member of a backend's own structs. */
struct by_device {
    const by__device_ops *ops;
    by__device_error_fn *on_error;
    void *on_error_user;
    by__device_context context;
    const by_device *first; /* the handle that this one shares memory with; NULL: none */
    /* What libraries have chosen, owned by the backend; NULL: none of its kernels asks one. */
    by__device_choices *choices;
    size_t alignment; /* a power of two, at most 256 */
    bool host_memory;
    bool panels;      /* products stream float weights faster as panels (BY_PACKING_PACKED) */
    bool names_nodes; /* errors of submitted work name their node */
    bool stepwise;    /* by__device_set_stepwise */
    bool on_use;      /* by__device_allocate_on_use was called */
    bool has_tf32;    /* by__device_use_tf32 */
    bool tf32;
};

/* For a backend whose kernels ask libraries. `chooser` names the device and the versions of what
 * chooses. */
by_status by__device_choices_open(by__device_choices **out, const char *chooser, by_error *error);
/* NULL is accepted. */
void by__device_choices_close(by__device_choices *choices);
/* Copies what was chosen for `what` to `data`; false: nothing yet, or not so many bytes. */
bool by__device_choice_get(void *data, size_t bytes, const by__device_choices *choices,
                           const char *what);
/* Remembers a choice of at most BY__CHOICE_BYTES bytes. `what` has no control characters. */
#define BY__CHOICE_BYTES 64
by_status by__device_choice_put(by__device_choices *choices, const char *what, const void *data,
                                size_t bytes, by_error *error);

/* Fills the error of a failed call: program, node, kernel, and for a collective the error in
 * context->collectives. Returns `status`. */
by_status by__device_call_failed(const by__device_command_list *list, size_t call,
                                 const by__device_context *context, by_status status,
                                 by_error *error);

struct by__device_event {
    by_device *device;
};

struct by__device_recording {
    by_device *device;
    const by__device_command_list *list;
};

/* ---- the host ---- */

/* Instruction-set levels that the host supports, from "baseline" to the best one, without the
 * reference kernels; independent of BANYAN_ISA. Static. */
const char *const *by__cpu_host_levels(size_t *count);

/* Parts of a sequence of normal values must begin at multiples of this. */
#define BY__NORMAL_BLOCK 4096

/* Fills `out` with values first, first + 1, ..., first + count - 1 of the sequence of normal values
 * with mean 0 and deviation `std` generated by Philox under `key`. The bits are the same on every
 * machine, for any number of threads. */
by_status by__cpu_fill_normal_tensor(float *out, int64_t first, int64_t count, float std,
                                     const uint32_t key[2], by_error *error);

#endif
