/* ops: what operations mean. One file an op family; one row of the op table an op.
 *
 * A row holds the shape rule (`infer`), the gradient as graph building (`gradient`), the cost in
 * FLOPs and bytes (`cost`), and what the memory planner must know: which inputs an output may
 * overlay in place, and which inputs the op writes. The table in table.c lists the rows by by_op.
 *
 * A shape rule sees types only and says in its error which op and which shapes do not fit. A
 * gradient sees the node and the gradients of its outputs (BY_NONE where none flows) and fills
 * those of its inputs, in the input's shape and any float dtype (the pass casts: gradients of
 * parameters are f32, those of activations have the activation's dtype); BY_NONE for an input that
 * has none, which the pass refuses when a parameter feeds it. It adds nodes with the same functions
 * that models use.
 *
 * Adding an op: its enum and its line in banyan/op.h, a file or a row here, a kernel in the device
 * room's reference, a case in the gradient test's and the kernel test's table.
 *
 * Never put here: kernels, buffers, devices; a special case for one model.
 */
#ifndef BY_OPS_OPS_H
#define BY_OPS_OPS_H

#include "banyan/ops.h"
#include "graph/graph.h"

/* The types that a shape rule sees. An absent optional input has rank -1. */
typedef struct by__signature {
    by_op op;
    const by_attrs *attrs;
    const by__type *in;
    int input_count;
} by__signature;

/* Work of one run of a node. Bytes count each operand once, as a perfect cache would. */
typedef struct by__cost {
    double flops;
    double bytes_read;
    double bytes_written;
} by__cost;

typedef struct by__op_row {
    int min_inputs;
    int max_inputs; /* -1: any number */
    int outputs;
    by_status (*infer)(const by__signature *s, by__type *out, by_error *error);
    /* NULL: not differentiable. `node` is a copy that stays valid while nodes are added. */
    void (*gradient)(by_graph *graph, const by__node *node, const by_value *dout, by_value *din);
    /* Sets flops (bytes are filled in beforehand and may be changed). NULL: one FLOP an element. */
    void (*cost)(const by__signature *s, const by__type *out, by__cost *cost);
    uint32_t optional;                /* bit i: input i may be absent */
    uint32_t overlay[BY_MAX_OUTPUTS]; /* bit i: this output may use the memory of input i */
    uint32_t mutates;                 /* bit i: input i is updated in place */
} by__op_row;

const by__op_row *by__op_row_of(by_op op);

extern const by__op_row by__op_matmul, by__op_sum_rows;
extern const by__op_row by__op_add, by__op_sub, by__op_mul, by__op_scale, by__op_cast;
extern const by__op_row by__op_unary, by__op_unary_grad, by__op_swiglu, by__op_swiglu_grad;
extern const by__op_row by__op_layer_norm, by__op_layer_norm_grad;
extern const by__op_row by__op_rms_norm, by__op_rms_norm_grad;
extern const by__op_row by__op_embedding, by__op_embedding_grad;
extern const by__op_row by__op_position, by__op_position_grad, by__op_rope;
extern const by__op_row by__op_attention, by__op_attention_grad, by__op_cached_attention;
extern const by__op_row by__op_dropout;
extern const by__op_row by__op_linear_cross_entropy, by__op_linear_cross_entropy_grad;
extern const by__op_row by__op_linear_cross_entropy_train;
extern const by__op_row by__op_sum_squares, by__op_clip_scale, by__op_adamw;

/* Types of all outputs of a node with these operands. */
by_status by__op_infer(const by__signature *s, by__type out[BY_MAX_OUTPUTS], by_error *error);
/* Adds a node: checks operands, infers, appends. Returns output 0 and, if outs is not NULL, all of
 * them. BY_NONE after an error, which the graph keeps. */
by_value by__op_add_node(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                         int input_count, by_value outs[BY_MAX_OUTPUTS]);
/* Types of a node's inputs into `in` (room for node->input_count). */
void by__node_types(const by_graph *graph, const by__node *node, by__type *in);
/* Cost of node n of a graph. */
by_status by__node_cost(const by_graph *graph, size_t n, by__cost *out, by_error *error);
/* Refuses a signature: "matmul: inner sizes differ: a [4, 8], b [9, 3]". */
by_status by__op_refuse(const by__signature *s, by_error *error, const char *why);

/* ---- for shape rules ---- */
int64_t by__last_dim(const by_shape *shape);
/* Product of all but the last extent. */
int64_t by__rows(const by_shape *shape);
bool by__is_act(by_dtype dtype);
bool by__type_equal(const by__type *a, const by__type *b);
static inline bool by__absent(const by__type *type)
{
    return type->shape.rank < 0;
}

/* ---- internal builders, used by gradients, passes and optimizers ---- */
by_value by__sum_rows(by_graph *graph, by_value x);
/* matmul with every option: bias and add may be BY_NONE. */
by_value by__matmul_full(by_graph *graph, by_value a, by_value b, by_value bias, by_value add,
                         bool trans_a, bool trans_b, by_dtype dtype);
by_value by__sum_squares(by_graph *graph, by_value x);
/* norm and clip factor of the root of the sum of `count` squares. */
void by__clip_scale(by_graph *graph, const by_value *squares, int count, float clip, by_value *norm,
                    by_value *scale);
/* Returns the bf16 copy when `copy`, else BY_NONE. */
by_value by__adamw(by_graph *graph, by_value p, by_value g, by_value m, by_value v, by_value hyper,
                   by_value scale, const by_attrs *attrs, bool copy);

#endif
