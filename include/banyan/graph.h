/* Graphs: the common form of models, their gradients and optimizer steps.
 *
 * A graph has values (typed tensors of static shape) and nodes (operations) in an order in which
 * they can run. Values come from outside (inputs, parameters, state) or from nodes. Build a graph
 * with the functions here and the operations of banyan/ops.h, transform it with the passes of
 * banyan/passes.h, and compile it with banyan/program.h.
 *
 * Building needs no error check after each call: the first error is stored in the graph, later
 * calls return BY_NONE and do nothing, and by_graph_check reports the error, with the operation's
 * name and the shapes involved.
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
/* No value. */
#define BY_NONE ((by_value)-1)

/* Role of a value. All but activations keep their memory between runs and are bound to a buffer by
 * the caller. */
typedef enum by_role {
    BY_ROLE_ACTIVATION = 0, /* lives within one run; placed by the memory planner */
    BY_ROLE_INPUT,          /* written by the caller before a run */
    BY_ROLE_PARAMETER,      /* trained weight */
    BY_ROLE_STATE,          /* optimizer moments, key/value caches */
    BY_ROLE_GRADIENT,       /* gradient of a parameter; always f32 */
    BY_ROLE_OUTPUT          /* read by the caller after a run */
} by_role;

/* Distribution of initial values. */
typedef enum by_init_kind {
    BY_INIT_ZERO = 0,
    BY_INIT_ONE,
    BY_INIT_CONSTANT,
    BY_INIT_NORMAL,
    BY_INIT_UNIFORM,
    BY_INIT_POWERS,
    BY_INIT_COSINES,
    BY_INIT_SINES
} by_init_kind;

/* Initial values of a parameter: zeros, ones, all equal to `std`, normal with mean 0 and standard
 * deviation `std`, or uniform in [-std, std]. Random values come from Philox, keyed by the run's
 * seed and the parameter's name. Of a matrix [n, T], powers are (t / T)^i in row i and column t,
 * and cosines and sines are those of 2 pi i t / std. */
typedef struct by_init {
    by_init_kind kind;
    float std;
} by_init;

/* Properties of a value. Strings belong to the graph. */
typedef struct by_value_info {
    const char *name; /* "" for most activations */
    const char *axes; /* logical axis names separated by spaces, outermost first:
                         "vocab embed"; or "" */
    by_dtype dtype;
    by_shape shape;
    by_role role;
    by_init init;
    bool frozen;    /* a parameter that is not trained */
    bool statistic; /* a parameter made by by_graph_statistic */
    int producer;   /* index of the node that computes it; -1: external value */
    int block;      /* block (layer) that it belongs to; -1: outside blocks */
    /* A weight that by_pass_layout has transposed: shape and axes are those of the result. */
    bool transposed;
} by_value_info;

/* Makes an empty graph. */
BY_API by_status by_graph_open(by_graph **out, by_error *error);
BY_API void by_graph_close(by_graph **graph);

/* These three declare external values. Names are copied and must be unique in the graph; buffers,
 * checkpoints and gradients ("grad.NAME") are found by them. Parameters are f32; a precision pass
 * may add a narrower copy for computing. A parameter with a '*' in its name is stored in weight
 * files as one tensor per index of its first axis, with the index in place of the '*'. */
BY_API by_value by_graph_input(by_graph *graph, const char *name, by_dtype dtype, by_shape shape);
/* An input that is the same for all batches of a run, such as the features of all nodes of a
 * network of which a batch has some. It has no axis of examples, a trainer copies it to the device
 * once (by_trainer_set_constants), and every rank has all of it. */
BY_API by_value by_graph_constant_input(by_graph *graph, const char *name, by_dtype dtype,
                                        by_shape shape);
BY_API by_value by_graph_parameter(by_graph *graph, const char *name, const char *axes,
                                   by_shape shape, by_init init);
BY_API by_value by_graph_state(by_graph *graph, const char *name, by_dtype dtype, by_shape shape);
/* Marks a parameter as not trained: it gets neither gradient nor optimizer state and is not
 * updated; checkpoints contain it. Stores BY_EARG in the graph if the value is not a parameter. */
BY_API void by_graph_freeze(by_graph *graph, by_value parameter);
/* Declares a statistic: a parameter that training updates without a derivative, such as the running
 * mean of a batch norm (Ioffe and Szegedy 2015). It is a vector, computed with as f32. */
BY_API by_value by_graph_statistic(by_graph *graph, const char *name, const char *axes,
                                   by_shape shape, by_init init);
/* In a graph for training: publishes what one micro-batch adds to a statistic, a node's result of
 * its shape in f32, as output "increment.NAME". by_pass_gradients makes it the gradient of the
 * statistic, which is summed over a step's micro-batches as others are, but belongs neither to
 * their norm nor to the scale of the loss; the update adds the mean over the micro-batches. Stores
 * BY_EARG in the graph if the value is not a statistic, or the increment has another type. */
BY_API void by_graph_increment(by_graph *graph, by_value statistic, by_value increment);
/* Makes the result of a node an output with this name. Stores BY_EARG in the graph if the value is
 * not the result of a node or the name is taken. */
BY_API void by_graph_output(by_graph *graph, by_value value, const char *name);
/* Assigns nodes added from now on to block `block` (a layer index; -1: none). Recomputation and
 * profiles work by block. */
BY_API void by_graph_set_block(by_graph *graph, int block);

/* Returns the first error of building, or BY_OK. */
BY_API by_status by_graph_check(const by_graph *graph, by_error *error);
/* Checks every invariant of a complete graph: operands defined before use, shapes and dtypes as
 * inferred by the op table, unique names, values in range, and in-place updates only of external
 * values that nothing else reads but what computes the update. */
BY_API by_status by_graph_verify(const by_graph *graph, by_error *error);
/* Prints external values and nodes, one per line: "%12 = matmul(%3, wte.weight) trans_b : bf16
 * [4, 64, 384]  # block 0". Free the text with free(). */
BY_API by_status by_graph_print(const by_graph *graph, char **out, by_error *error);

/* Returns the number of values; they are numbered from 0. */
BY_API int by_graph_value_count(const by_graph *graph);
/* Returns the number of nodes. */
BY_API int by_graph_node_count(const by_graph *graph);
/* Gets the properties of a value. Returns BY_EARG if there is no such value. */
BY_API by_status by_graph_value(const by_graph *graph, by_value value, by_value_info *out,
                                by_error *error);
/* Returns the value with this name, or BY_NONE. */
BY_API by_value by_graph_find(const by_graph *graph, const char *name);

#ifdef __cplusplus
}
#endif
#endif
