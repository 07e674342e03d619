/* Programs: a graph compiled for a device, to be run repeatedly.
 *
 * Compilation selects the kernel of every node and plans all memory; running allocates nothing. The
 * caller owns all memory: it asks for the sizes, provides the arena and the workspace (which
 * programs that never run at the same time may share), and binds a buffer to each external value
 * (inputs, parameters, state, gradients, outputs). Memory is that of the device; on the CPU also
 * host memory (by_host_memory).
 */
#ifndef BANYAN_PROGRAM_H
#define BANYAN_PROGRAM_H

#include "banyan/device.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_program by_program;

/* Compiles `graph` for `device`. Both must stay open, and the graph unchanged, while the program
 * exists. `name` (copied) is used in errors: "gradients: node 12: ...". Returns BY_EDEVICE if no
 * kernel handles a node. */
BY_API by_status by_program_compile(by_program **out, const by_graph *graph, by_device *device,
                                    const char *name, by_error *error);
/* Closes a program. No run may be in progress. */
BY_API void by_program_close(by_program **program);

/* Returns the bytes of the arena shared by all activations. */
BY_API size_t by_program_arena_bytes(const by_program *program);
/* Returns the bytes of scratch memory of the most demanding kernel. */
BY_API size_t by_program_workspace_bytes(const by_program *program);
/* Returns the maximum of bytes of activations alive at once, a lower bound of the arena for this
 * order of nodes. */
BY_API size_t by_program_live_bytes(const by_program *program);
/* Returns the number of compute threads. */
BY_API int by_program_threads(const by_program *program);

/* Sets the program's memory, of at least the sizes above. Not owned. */
BY_API void by_program_set_memory(by_program *program, by_memory arena, by_memory workspace);
/* Binds an external value to memory of at least its size, aligned as the device requires; {0}
 * unbinds. Not owned. Bindings may be changed at any time at no cost and apply to later runs.
 * Returns BY_EARG for an activation, or memory that is too small, unaligned or not the device's. */
BY_API by_status by_program_bind(by_program *program, by_value value, by_memory memory,
                                 by_error *error);
/* Checks host data of an i32 input (all elements) before it is copied to the device: ids into a
 * table, targets, positions. Returns BY_EARG with the value, the element and the limit. Does
 * nothing for a value that is not an index. On the device an id out of range is silently
 * skipped. */
BY_API by_status by_program_check(const by_program *program, by_value value, const int32_t *data,
                                  by_error *error);
/* Returns the exclusive upper bound for entries of an i32 input; INT64_MAX if no node uses them as
 * indices. */
BY_API int64_t by_program_limit(const by_program *program, by_value value);
/* Runs all nodes and waits for them. Inputs bound to host memory are checked as by
 * by_program_check. Returns BY_ESTATE if a value is not bound or memory is not set, BY_EARG for an
 * index out of range, or the first error of a node. */
BY_API by_status by_program_run(by_program *program, by_error *error);
/* Like by_program_run without waiting: results are valid after a later wait (by_device_read,
 * by_device_finish), which also reports errors of nodes. */
BY_API by_status by_program_submit(by_program *program, by_error *error);

/* Called for each node of a run when it is done, at the latest when the run is waited for, by the
 * thread that runs or waits, with the node's index and the by_clock() of its beginning and end. The
 * time of a node that waits for a collective is that for which it was blocked. */
typedef void by_program_hook(void *user, int node, double begin, double end);
/* Sets the hook, for profiles. NULL removes it; a run then costs one comparison per node. */
BY_API void by_program_set_hook(by_program *program, by_program_hook *hook, void *user);
/* Returns monotonic time in seconds. */
BY_API double by_clock(void);

/* What is known about a node before it runs. Bytes count every operand once. */
typedef struct by_node_info {
    by_op op;
    const char *op_name;
    const char *kernel; /* "layer_norm avx512", ... */
    by_dtype dtype;     /* of its first floating-point operand: what a product multiplies */
    int block;          /* -1: outside blocks */
    bool backward;
    double flops;         /* floating-point operations */
    double bytes_read;    /* from memory */
    double bytes_written; /* to memory */
    double bytes_sent;    /* to other ranks */
    bool collective;      /* runs on the collective queue, concurrently with later nodes */
    bool waits;           /* waits for a collective and computes nothing */
    size_t workspace;     /* bytes of scratch memory */
    size_t live_bytes;    /* activations alive while it runs */
} by_node_info;
/* Returns the number of nodes. */
BY_API int by_program_node_count(const by_program *program);
/* Describes a node. Returns BY_EARG if there is no such node. */
BY_API by_status by_program_node(const by_program *program, int node, by_node_info *out,
                                 by_error *error);
/* Makes a text that is equal for nodes that do the same work: "matmul(bf16 [1024, 768], bf16
 * [768, 2304], f32 [2304]) : bf16 [1024, 2304]", with attributes. Free it with free(). Returns
 * BY_EARG if there is no such node. */
BY_API by_status by_program_node_signature(const by_program *program, int node, char **out,
                                           by_error *error);

#ifdef __cplusplus
}
#endif
#endif
