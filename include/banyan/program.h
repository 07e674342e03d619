/* Programs: a graph compiled for this machine, ready to run again and again.
 *
 * Compiling chooses the kernel of every node and plans every byte; running allocates nothing. The
 * caller owns all memory: it asks for the sizes, gives the arena and the workspace (which programs
 * that never run at the same time may share), and binds one buffer to each value from outside
 * (inputs, parameters, state, gradients, outputs).
 */
#ifndef BANYAN_PROGRAM_H
#define BANYAN_PROGRAM_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_program by_program;

/* Compiles `graph`, which must stay open and unchanged while the program lives. `threads` compute
 * threads are used, -1: one a core that this process may run on; the results do not depend on it.
 * BY_EDEVICE names a node that no kernel handles. */
BY_API by_status by_program_compile(by_program **out, const by_graph *graph, int threads,
                                    by_error *error);
BY_API void by_program_close(by_program **program);

/* Bytes of the arena that activations share, and of the scratch memory of the most demanding
 * kernel. */
BY_API size_t by_program_arena_bytes(const by_program *program);
BY_API size_t by_program_workspace_bytes(const by_program *program);
/* Most bytes of activations alive at once: no arena for this order of nodes could be smaller. */
BY_API size_t by_program_live_bytes(const by_program *program);
BY_API int by_program_threads(const by_program *program);

/* Gives the program its memory, 64-byte aligned, of at least the sizes above. Not owned. */
BY_API void by_program_set_memory(by_program *program, void *arena, void *workspace);
/* Binds a value from outside to a 64-byte aligned buffer of its size. Not owned. May be changed
 * between runs at no cost. BY_EARG for an activation. */
BY_API by_status by_program_bind(by_program *program, by_value value, void *data, by_error *error);
/* Runs all nodes. BY_ESTATE names a value that is not bound; BY_EARG a token id that is out of
 * range. */
BY_API by_status by_program_run(by_program *program, by_error *error);

/* Called around each node of a run, for profiles: node index, seconds of by_clock when it began and
 * ended. NULL switches it off, and then costs one comparison a node. */
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
