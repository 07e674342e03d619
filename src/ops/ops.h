/* ops: what operations mean. One file an op family; one row of the op table an op.
 *
 * A row (row.h) holds all that other rooms ask of an op: its shape rule, its gradient as graph
 * building, its cost, its attributes, what is special about its operands. Outside this room and the
 * device room no op is named, and a test holds the tree to that.
 *
 * A gradient adds nodes with the same functions that models use. The pass that calls it casts:
 * gradients of parameters are f32, those of activations have the activation's dtype; and it refuses
 * an input without a gradient when a parameter feeds it.
 *
 * Adding an op: its line in BY_OPS and in the table of banyan/op.h, a file or a row here, a kernel
 * in the device room's reference, a case in the gradient test's and the kernel test's table.
 *
 * Never put here: kernels, buffers, devices; a special case for one model.
 */
#ifndef BY_OPS_OPS_H
#define BY_OPS_OPS_H

#include "banyan/ops.h"
#include "graph/graph.h"
#include "ops/row.h"

#define BY__OP_ROW(NAME, name) extern const by__op_row by__op_##name;
BY_OPS(BY__OP_ROW)
#undef BY__OP_ROW

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
/* Work of node n's attention; zeros when it is none. */
by_status by__node_attention(const by_graph *graph, size_t n, by__attention_cost *out,
                             by_error *error);
/* A node's operation, attributes and types without names: "add(f32 [4, 8], f32 [8]) : f32 [4, 8]".
 * Freed with free(). */
by_status by__node_signature(const by_graph *graph, size_t node, char **out, by_error *error);
/* True when a node does more than make its outputs: it is never dropped or made twice. */
bool by__node_has_effects(const by__node *node);
/* Inputs that a node with these attributes updates in place, a bit each. */
uint32_t by__op_mutates(by_op op, const by_attrs *attrs);
/* Refuses a signature: "matmul: inner sizes differ: a [4, 8], b [9, 3]". */
by_status by__op_refuse(const by__signature *s, by_error *error, const char *why);

/* ---- rows in files of their own ---- */
by_status by__onnx_attention(const by__signature *s, const by__type *out, by__onnx *onnx,
                             by_error *error);
by_status by__onnx_cached_attention(const by__signature *s, const by__type *out, by__onnx *onnx,
                                    by_error *error);

/* ---- for shape rules ---- */
int64_t by__last_dim(const by_shape *shape);
/* Product of all but the last extent. */
int64_t by__rows(const by_shape *shape);
bool by__is_act(by_dtype dtype);
bool by__type_equal(const by__type *a, const by__type *b);
/* `from` fits `to` when broadcast: aligned at the last axis, each extent equal or 1. */
bool by__broadcasts(const by_shape *from, const by_shape *to);
static inline bool by__absent(const by__type *type)
{
    return type->shape.rank < 0;
}

/* ---- for `shard` ---- */

/* Where the slice of rank `rank` begins among `extent` entries; that of rank `ranks` is the end.
 * The first slices are one entry longer where they cannot be equal. */
int64_t by__cut(int64_t extent, int ranks, int rank);
by__split by__whole(void);
by__split by__partial(void);
bool by__split_equal(by__split a, by__split b);
/* Extent of the split axis, and the whole shape, on one rank. */
int64_t by__split_extent(const by_shape *shape, by__split split, int ranks, int rank);
by_shape by__split_shape(const by_shape *shape, by__split split, int ranks, int rank);
/* Every rank has as much; the tensor is split. */
bool by__split_even(const by_shape *shape, by__split split, int ranks);
/* Sections of the tensor's elements in row-major order of which each rank has a slice. */
int64_t by__split_sections(const by_shape *shape, by__split split);
/* The split of the same elements in another shape; false when no axis of it has these slices. */
bool by__split_moved(const by_shape *from, by__split split, const by_shape *to, int ranks,
                     by__split *out);
/* The split of a tensor of shape `to` that has one number for each row of the tensor; false when
 * that is not split by rows. */
bool by__split_of_rows(const by_shape *shape, by__split split, const by_shape *to, int ranks,
                       by__split *out);
/* Sets the attributes of a node whose entries count along axis `axis` of input 0, which is split:
 * where this rank's are; an entry of the axis counts `inner`. false: they are too many runs. */
bool by__shard_places(const by__signature *s, by__sharding *sh, int axis, int64_t inner);
/* Inputs that are not in the set `split` are whole. */
bool by__shard_all_whole_but(const by__sharding *sh, int count, uint32_t split);
/* Entries of ops that work element by element, with broadcasting; and of those among them that are
 * linear in all inputs together, or in each. */
bool by__shard_elements(const by__signature *s, const by__type *out, by__sharding *sh);
bool by__shard_addends(const by__signature *s, const by__type *out, by__sharding *sh);
bool by__shard_factors(const by__signature *s, const by__type *out, by__sharding *sh);

/* Entries of attention and its gradient whose operands are split by time (attention_ranks.c). */
bool by__shard_attention_time(const by__signature *s, by__sharding *sh);
bool by__shard_attention_grad_time(const by__signature *s, const by__type *out, by__sharding *sh);

/* `fuse` of an addition: gives it to the node that makes an operand and can take it in. */
by_status by__fuse_addition(by_graph *graph, size_t n, const int *uses, by_error *error);

/* Makes node n, which gives the gradients (dx, dw) of the loss that `forward` gives, into the op
 * `train`, which gives loss, dx and dw; forward is dead then. The caller sees to the operands. */
void by__fuse_loss(by_graph *graph, size_t n, by__node *forward, by_op train);

/* Makes node n, and what feeds it alone, into a map if they are two or more element-wise nodes.
 * Nodes are given from the last one to the first, so that a tree is found by its root. */
by_status by__fuse_map(by_graph *graph, size_t n, const int *uses, by_error *error);

/* Ends a map whose node the caller makes, with these attributes and the operands map->in. */
by_status by__map_take(by_map *map, by_attrs *out, by_error *error);
/* What is wrong with a program; NULL when it is right. */
const char *by__map_wrong(const by_map_program *map);
/* "{0 = in1[0]; 1 = mul in0 0; in0 = 1}" */
void by__map_print(by__text *text, const by_map_program *map);

/* ---- internal builders, used by gradients, passes and optimizers ---- */
/* Sum over the first `lead` axes. */
by_value by__sum_rows(by_graph *graph, by_value x, int lead);
/* matmul with every option: bias and add may be BY_NONE. */
by_value by__matmul_full(by_graph *graph, by_value a, by_value b, by_value bias, by_value add,
                         bool trans_a, bool trans_b, by_dtype dtype);
by_value by__sum_squares(by_graph *graph, by_value x);
/* y: BY_NONE, or what the distance from is measured. */
by_value by__measure(by_graph *graph, by_value x, by_value y);
/* Codes of x and, in *scale, their scales; and x again, rounded, in the format `dtype`. */
by_value by__encode8(by_graph *graph, by_value x, by_value *scale);
by_value by__decode8(by_graph *graph, by_value codes, by_value scale, by_dtype dtype);
/* An axis of x, counted from its end when negative. */
int by__axis_of(const by_graph *graph, by_value x, int axis);
/* What follows reads the result of a collective, and may overwrite its operands. */
by_value by__wait(by_graph *graph, by_value started);
/* The start of a collective with these attributes over one tensor; by__wait makes its result
 * usable. */
by_value by__start_collective(by_graph *graph, by_op op, const by_attrs *attrs, by_value x);
/* The gradients of a bucket are complete: returns what by__wait waits for. in_place: they are
 * external values that whoever exchanges them may overwrite, so nothing else reads them. */
by_value by__reduce_gradients(by_graph *graph, const by_value *gradients, int count, int64_t bucket,
                              uint32_t mesh, int64_t ranks, bool in_place);
/* A parameter of which each of the ranks has a part, gathered. */
by_value by__gather_parameter(by_graph *graph, by_value parameter, int64_t number, uint32_t mesh,
                              int64_t ranks);
/* Sum over the set of axes `axes` (bit i: axis i), which stay with extent 1 when `keep`; f32 when
 * `wide`. */
by_value by__sum_axes(by_graph *graph, by_value x, uint32_t axes, bool keep, bool wide);
/* The gradient of an operand that was broadcast: `gradient` summed over the axes along which it
 * was, in the operand's shape. */
by_value by__reduce_to(by_graph *graph, by_value gradient, by_value operand);
/* True for a parameter, and for a value whose elements are those of parameters, moved. */
bool by__is_of_parameters(const by_graph *graph, by_value value);
/* What gradients of a value are summed in: f32 for parameters, whatever they compute in, else the
 * value's own. */
by_dtype by__gradient_dtype(const by_graph *graph, by_value value);
/* Norm and clip factor; in: failed, losses and loss factor (these may be BY_NONE), the squares. */
void by__clip_scale(by_graph *graph, const by_value *in, int count, float clip, by_value *norm,
                    by_value *scale);
/* Returns the copy in the format `copy`; BY_F32: there is none, BY_NONE. */
by_value by__adamw(by_graph *graph, by_value p, by_value g, by_value m, by_value v, by_value hyper,
                   by_value scale, const by_attrs *attrs, by_dtype copy);
/* The operands of ADAMW8 in its order. */
by_value by__adamw8(by_graph *graph, const by_value in[8], const by_attrs *attrs, by_dtype copy);

#endif
