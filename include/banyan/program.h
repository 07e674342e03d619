/* Programs: a graph compiled for a device, ready to run again and again.
 *
 * Compiling chooses the kernel of every node and plans every byte; running allocates nothing. The
 * caller owns all memory: it asks for the sizes, gives the arena and the workspace (which programs
 * that never run at the same time may share), and binds one buffer to each external value (inputs,
 * parameters, state, gradients, outputs). Memory is the device's; on the CPU also the host's
 * (by_host_memory).
 */
#ifndef BANYAN_PROGRAM_H
#define BANYAN_PROGRAM_H

#include "banyan/device.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_program by_program;

/* Compiles `graph` for `device`; both must stay open, and the graph unchanged, while the program
 * lives. `name` (copied) stands in errors of running it: "gradients: node 12: ...". BY_EDEVICE
 * names a node that no kernel handles. */
BY_API by_status by_program_compile(by_program **out, const by_graph *graph, by_device *device,
                                    const char *name, by_error *error);
/* Nothing of it may be in flight. */
BY_API void by_program_close(by_program **program);

/* Bytes of the arena that activations share, and of the scratch memory of the most demanding
 * kernel. */
BY_API size_t by_program_arena_bytes(const by_program *program);
BY_API size_t by_program_workspace_bytes(const by_program *program);
/* Most bytes of activations alive at once: no arena for this order of nodes could be smaller. */
BY_API size_t by_program_live_bytes(const by_program *program);
BY_API int by_program_threads(const by_program *program);

/* Gives the program its memory, of at least the sizes above. Not owned. */
BY_API void by_program_set_memory(by_program *program, by_memory arena, by_memory workspace);
/* Binds an external value to memory of at least its size, aligned as the device says. Not owned.
 * May be changed at no cost at any time; it holds for later runs. {0} unbinds. BY_EARG for an
 * activation, memory that is too small, not aligned or not the device's. */
BY_API by_status by_program_bind(by_program *program, by_value value, by_memory memory,
                                 by_error *error);
/* Checks the host's data of an i32 input (all of its elements) before it is copied to the device:
 * ids into a table, targets, positions. BY_EARG names the value, the element and the limit. Does
 * nothing for a value that is no index. On the device an id out of range reads and writes nothing,
 * and nobody is told. */
BY_API by_status by_program_check(const by_program *program, by_value value, const int32_t *data,
                                  by_error *error);
/* What the entries of an i32 input must be below; INT64_MAX where no node uses them as indices. */
BY_API int64_t by_program_limit(const by_program *program, by_value value);
/* Runs all nodes and waits for them. BY_ESTATE names a value that is not bound. Inputs that are
 * bound to host memory are checked as above. */
BY_API by_status by_program_run(by_program *program, by_error *error);
/* The same without waiting: the results are there when something behind it was waited for
 * (by_device_read, by_device_finish), and errors of nodes surface there. */
BY_API by_status by_program_submit(by_program *program, by_error *error);

/* Called for each node of a run, for profiles, when it is done or at the latest when the run was
 * waited for, by the thread that runs or waits: node index, seconds of by_clock when it began and
 * ended. The time of a node that waits for a collective is that for which it stood still. NULL
 * switches it off, and then costs one comparison a node. */
typedef void by_program_hook(void *user, int node, double begin, double end);
BY_API void by_program_set_hook(by_program *program, by_program_hook *hook, void *user);
/* Monotonic seconds. */
BY_API double by_clock(void);

/* What is known of a node before it runs. Bytes count every operand once. */
typedef struct by_node_info {
    by_op op;
    const char *op_name;
    const char *kernel; /* "layer_norm avx512", ... */
    by_dtype dtype;     /* of its first floating-point operand: what a product multiplies */
    int block;          /* -1 outside blocks */
    bool backward;
    double flops;
    double bytes_read;
    double bytes_written;
    double bytes_sent; /* to other ranks */
    bool collective;   /* runs on the collective queue, at the same time as nodes behind it */
    bool waits;        /* for a collective, and computes nothing */
    size_t workspace;
    size_t live_bytes; /* activations alive while it runs */
} by_node_info;
BY_API int by_program_node_count(const by_program *program);
BY_API by_status by_program_node(const by_program *program, int node, by_node_info *out,
                                 by_error *error);
/* What decides a node's work, equal for nodes that do the same: "matmul(bf16 [1024, 768], bf16
 * [768, 2304], f32 [2304]) : bf16 [1024, 2304]", with attributes. Freed with free(). */
BY_API by_status by_program_node_signature(const by_program *program, int node, char **out,
                                           by_error *error);

#ifdef __cplusplus
}
#endif
#endif
