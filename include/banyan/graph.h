/* Graphs: a model, its gradients, its optimizer step, all in one form.
 *
 * A graph is a list of values (typed, statically shaped tensors) and a list of nodes (operations)
 * in an order in which they can run. Values come from the outside (inputs, parameters, state) or
 * from nodes. Build one with the functions here and the operations of banyan/ops.h, let the passes
 * of banyan/passes.h transform it, and compile it with banyan/program.h.
 *
 * Building is written without error checks at every line: the first error is kept in the graph,
 * each later call returns BY_NONE and does nothing, and by_graph_check reports it with the op's
 * name and both shapes.
 */
#ifndef BANYAN_GRAPH_H
#define BANYAN_GRAPH_H

#include "banyan/dtype.h"
#include "banyan/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_graph by_graph;

/* Index of a value in its graph. */
typedef int32_t by_value;
#define BY_NONE ((by_value)-1)

/* What a value is to the world outside the graph. All but activations keep their memory between
 * runs and are bound to a buffer by the caller. */
typedef enum by_role {
    BY_ROLE_ACTIVATION = 0, /* lives inside one run, placed by the memory planner */
    BY_ROLE_INPUT,          /* written by the caller before a run */
    BY_ROLE_PARAMETER,      /* trained weight */
    BY_ROLE_STATE,          /* optimizer moments, key/value caches */
    BY_ROLE_GRADIENT,       /* gradient of a parameter, always f32 */
    BY_ROLE_OUTPUT          /* read by the caller after a run */
} by_role;

typedef enum by_init_kind {
    BY_INIT_ZERO = 0,
    BY_INIT_ONE,
    BY_INIT_NORMAL,
    BY_INIT_UNIFORM
} by_init_kind;

/* How a parameter starts: zeros, ones, normal with mean 0 and the standard deviation `std`, or
 * uniform between -std and std, drawn from Philox keyed by the run's seed and the parameter's
 * name. */
typedef struct by_init {
    by_init_kind kind;
    float std;
} by_init;

/* What is known of a value. Strings belong to the graph. */
typedef struct by_value_info {
    const char *name; /* "" for most activations */
    /* logical axis names, space separated, outermost first: "vocab embed"; or "" */
    const char *axes;
    by_dtype dtype;
    by_shape shape;
    by_role role;
    by_init init;
    bool frozen;  /* a parameter that is not trained */
    int producer; /* index of the node that makes it, -1 for an external value */
    int block;    /* block (layer) that it belongs to, -1 outside blocks */
    /* a weight that by_pass_layout has transposed: shape and axes are those of the result */
    bool transposed;
} by_value_info;

BY_API by_status by_graph_open(by_graph **out, by_error *error);
BY_API void by_graph_close(by_graph **graph);

/* Declares external values. Names are copied, must be unique in the graph, and are how buffers,
 * checkpoints and gradients ("grad.NAME") find them. A parameter is f32 until a precision pass
 * makes its compute copy narrower. Weight files hold a parameter whose name has a '*' as one tensor
 * for each index of its first axis, under the name with the index in the place of the '*'. */
BY_API by_value by_graph_input(by_graph *graph, const char *name, by_dtype dtype, by_shape shape);
BY_API by_value by_graph_parameter(by_graph *graph, const char *name, const char *axes,
                                   by_shape shape, by_init init);
BY_API by_value by_graph_state(by_graph *graph, const char *name, by_dtype dtype, by_shape shape);
/* A parameter that is not trained: it gets no gradient and no optimizer state, and updates leave it
 * alone; checkpoints hold it as every other. BY_EARG is kept in the graph for another value. */
BY_API void by_graph_freeze(by_graph *graph, by_value parameter);
/* Makes the result of a node an output that the caller reads under `name`. */
BY_API void by_graph_output(by_graph *graph, by_value value, const char *name);
/* Nodes added from now on belong to block `block` (a layer index; -1: none). Recomputation and
 * profiles work by block. */
BY_API void by_graph_set_block(by_graph *graph, int block);

/* The first error of building, or BY_OK. */
BY_API by_status by_graph_check(const by_graph *graph, by_error *error);
/* Checks every invariant of a finished graph: operands defined before use, shapes and dtypes as the
 * op table infers them, names unique, values in range, in-place updates only of external values
 * that nothing else reads but what feeds the update. */
BY_API by_status by_graph_verify(const by_graph *graph, by_error *error);
/* One line a node: "%12 = matmul(%3, wte.weight) trans_b : bf16 [4, 64, 384]  # block 0". Freed by
 * free(). */
BY_API by_status by_graph_print(const by_graph *graph, char **out, by_error *error);

BY_API int by_graph_value_count(const by_graph *graph);
BY_API int by_graph_node_count(const by_graph *graph);
/* BY_EARG when there is no such value. */
BY_API by_status by_graph_value(const by_graph *graph, by_value value, by_value_info *out,
                                by_error *error);
/* The value of that name; BY_NONE when there is none. */
BY_API by_value by_graph_find(const by_graph *graph, const char *name);

#ifdef __cplusplus
}
#endif
#endif
