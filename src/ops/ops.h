/* ops: the semantics of operations. One file an op family; one row of the op table an op.
 *
 * What it is for: a row (by__op_row in row.h) holds everything that other modules need to know
 * about an op: its shape rule, its gradient as graph building, its cost, its attributes, the
 * properties of its operands. No module but this one and the device module names an op; a test
 * checks that.
 *
 * Types: by__op_signature is a node as a shape rule sees it, by__op_cost its work, by__graph_split
 * how a tensor is spread over ranks, by__op_sharding how a node runs on them.
 *
 * Gradients add nodes with the same functions that models use. The pass that calls them adds the
 * casts (gradients of parameters are f32, those of activations have the activation's dtype) and
 * reports an error if a parameter feeds an input that has no gradient.
 *
 * Who owns what: rows are constants; nodes, and the memory that attributes point to, belong to the
 * graph.
 *
 * Adding an op: its line in BY_OPS and in the table of banyan/op.h, a file or a row here, a kernel
 * in the device module's reference, a case in the tables of the gradient test and the kernel test.
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

/* The same as by__op_row_of, of the table that the graph was opened with: gradients and builders,
 * which rows name, do not name all rows. */
static inline const by__op_row *by__op_row_in(const by_graph *graph, by_op op)
{
    return (unsigned)op < BY_OP_COUNT ? graph->rows[op] : NULL;
}
/* Infers the types of all outputs of a node with these operands. row: NULL for an unknown op. */
by_status by__op_row_infer(const by__op_row *row, const by__op_signature *s,
                           by__graph_type out[BY_MAX_OUTPUTS], by_error *error);
/* The same for the row of s->op. */
by_status by__op_infer(const by__op_signature *s, by__graph_type out[BY_MAX_OUTPUTS],
                       by_error *error);
/* Checks operands, infers output types and appends a node. Returns output 0 and, if outs is not
 * NULL, stores all outputs there. Returns BY_NONE after an error, which the graph keeps. */
by_value by__op_add_node(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                         int input_count, by_value outs[BY_MAX_OUTPUTS]);
/* Stores the types of a node's inputs in `in` (room for node->input_count). */
void by__op_node_types(const by_graph *graph, const by__graph_node *node, by__graph_type *in);
/* Describes the node that reads operand i of a node, a parameter, in packed form; *can is false if
 * there is none for it. */
by_status by__op_node_pack(by__op_packed_reader *out, bool *can, const by_graph *graph,
                           const by__graph_node *node, int i, by_error *error);
/* Finds the operand that is the weight of a product, a parameter, and describes the node that would
 * read it in packed form. *operand is -1 if there is none. (packed_op.c) */
by_status by__op_node_weight(by__op_packed_reader *out, int *operand, const by_graph *graph,
                             const by__graph_node *node, by_error *error);
/* Computes the cost of node n of a graph. */
by_status by__op_node_cost(const by_graph *graph, size_t n, by__op_cost *out, by_error *error);
/* Computes the work of node n's attention; zeros if it is not attention. */
by_status by__op_node_attention(const by_graph *graph, size_t n, by__op_attention_cost *out,
                                by_error *error);
/* Formats a node's operation, attributes and types without names: "add(f32 [4, 8], f32 [8]) : f32
 * [4, 8]". Freed with free(). */
by_status by__op_node_signature(const by_graph *graph, size_t node, char **out, by_error *error);
/* Returns true if a node has effects besides its outputs: it must not be dropped or duplicated. */
bool by__op_node_has_effects(const by__graph_node *node);
/* Returns the mask of inputs that a node with these attributes updates in place. */
uint32_t by__op_mutates(by_op op, const by_attrs *attrs);
/* Returns true if a node updates value v in place as what it keeps of each sequence (row.h:
 * carries); BY_NONE: any value. */
bool by__op_carries(const by_graph *graph, by_value v);
/* Refuses a signature: "matmul: inner sizes differ: a [4, 8], b [9, 3]". */
by_status by__op_refuse(const by__op_signature *s, by_error *error, const char *why);

/* ---- parts of rows in separate files ---- */
by_status by__op_onnx_attention(const by__op_signature *s, const by__graph_type *out,
                                by__op_onnx *onnx, by_error *error);
by_status by__op_onnx_cached_attention(const by__op_signature *s, const by__graph_type *out,
                                       by__op_onnx *onnx, by_error *error);
/* Of one matrix, whose offsets and sources are i64 of any extents (edges/edge_onnx.c). */
by_status by__op_onnx_sparse_matmul(const by__op_signature *s, const by__graph_type *out,
                                    by__op_onnx *onnx, by_error *error);
by_status by__op_onnx_sparse_max(const by__op_signature *s, const by__graph_type *out,
                                 by__op_onnx *onnx, by_error *error);
by_status by__op_onnx_edge_attention(const by__op_signature *s, const by__graph_type *out,
                                     by__op_onnx *onnx, by_error *error);
by_status by__op_onnx_map(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                          by_error *error);
/* The cost of a gather: it reads as many bytes as it looks up, not the whole table. */
void by__op_cost_embedding(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost);

/* ---- for shape rules ---- */
int64_t by__op_last_dim(const by_shape *shape);
/* Returns the product of all extents but the last. */
int64_t by__op_rows(const by_shape *shape);
bool by__op_is_act(by_dtype dtype);
/* Returns true for one f32. */
bool by__op_is_scalar(const by__graph_type *type);
bool by__op_type_equal(const by__graph_type *a, const by__graph_type *b);
/* Returns the bytes of a tensor; 0 for an absent one. */
double by__op_type_bytes(const by__graph_type *type);
/* Returns true if `from` broadcasts to `to`: aligned at the last axis, each extent equal or 1. */
bool by__op_broadcasts(const by_shape *from, const by_shape *to);
static inline bool by__absent(const by__graph_type *type)
{
    return type->shape.rank < 0;
}

/* ---- for `shard` ---- */

/* Returns where the slice of rank `rank` begins among `extent` entries (for rank == ranks, the
 * end). When the slices cannot be equal, the first ones are one entry longer. */
int64_t by__op_cut(int64_t extent, int ranks, int rank);
by__graph_split by__op_whole(void);
by__graph_split by__op_partial(void);
bool by__op_split_equal(by__graph_split a, by__graph_split b);
/* Returns the shape of one rank's tensor. */
by_shape by__op_split_shape(const by_shape *shape, by__graph_split split, int ranks, int rank);
/* Returns true if the tensor is split and every rank's part has the same size. */
bool by__op_split_even(const by_shape *shape, by__graph_split split, int ranks);
/* Finds the split of the same elements in another shape. Returns false if no axis of that shape has
 * these slices. */
bool by__op_split_moved(const by_shape *from, by__graph_split split, const by_shape *to, int ranks,
                        by__graph_split *out);
/* Finds the split of a tensor of shape `to` that has one number for each row of the split tensor.
 * Returns false if that is not split by rows. */
bool by__op_split_of_rows(const by_shape *shape, by__graph_split split, const by_shape *to,
                          int ranks, by__graph_split *out);
/* Sets the attributes of a node whose entries count along axis `axis` of input 0, which is split,
 * to the positions of this rank's entries; an entry of the axis counts as `inner`. Returns false if
 * they form too many runs. */
bool by__op_shard_places(const by__op_signature *s, by__op_sharding *sh, int axis, int64_t inner);
/* Returns true if all inputs outside the set `split` are whole. */
bool by__op_shard_all_whole_but(const by__op_sharding *sh, int count, uint32_t split);
/* `shard` entries of element-wise ops with broadcasting; of those that are linear in all inputs
 * together; and of those that are linear in each. */
bool by__op_shard_elements(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh);
bool by__op_shard_addends(const by__op_signature *s, const by__graph_type *out,
                          by__op_sharding *sh);
bool by__op_shard_factors(const by__op_signature *s, const by__graph_type *out,
                          by__op_sharding *sh);

/* Sizes of attention, derived from its operands. */
typedef struct by__op_heads {
    int64_t batch;
    int64_t time;
    int64_t width; /* of a head */
    by_dtype dtype;
    bool packed;
} by__op_heads;
/* Derives the sizes from `count` operands starting at in[0]: one is packed qkv, three are q, k, v,
 * a fourth is the lengths, a fifth the first keys. Returns false if they do not fit. */
bool by__op_read_heads(const by__op_signature *s, int count, by__op_heads *out);
/* Splits samples or heads: q by query heads, k and v by key heads, so that each group of query
 * heads stays with its key head. Packed heads of equal number are three sections of one axis. */
bool by__op_split_heads(const by__op_signature *s, int operands, by__op_sharding *sh,
                        by__graph_split *y, by__graph_split *lse);
/* Attributes that say how far a query attends. */
#define BY__OP_REACH                                                                               \
    BY__ATTR_AS("window", window, INT, BY__ATTR_SPARE),                                            \
        BY__ATTR_AS("slopes", slopes, INT, BY__ATTR_SPARE),                                        \
        BY__ATTR_AS("from head", begin, INT, BY__ATTR_SPARE)
/* `shard` entries of attention and its gradient with operands split by time (attention_ranks.c). */
bool by__op_shard_attention_time(const by__op_signature *s, by__op_sharding *sh);
bool by__op_shard_attention_grad_time(const by__op_signature *s, const by__graph_type *out,
                                      by__op_sharding *sh);

/* `fuse` entry of an addition: merges it into the node that makes one of its operands, if that node
 * can add an operand to its result. */
by_status by__op_fuse_addition(by_graph *graph, size_t n, const int *uses, by_error *error);

/* Replaces node n, the gradient (dx, dw) of the loss that `forward` computes, by the op `train`,
 * which computes loss, dx and dw, and marks forward dead. The caller sets the operands. */
void by__op_fuse_loss(by_graph *graph, size_t n, by__graph_node *forward, by_op train);

/* Merges node n and the nodes that feed only it into a map, if they are at least two element-wise
 * nodes. Must be called from the last node to the first, so that a tree is found by its root. */
by_status by__op_fuse_map(by_graph *graph, size_t n, const int *uses, by_error *error);

/* Finishes a map whose node the caller adds, with these attributes and the operands map->in. */
by_status by__op_map_finish(by_map *map, by_attrs *out, by_error *error);
/* Returns NULL, or a message that says what is wrong with a program. */
const char *by__op_map_wrong(const by_map_program *map);
/* Prints a program: "{0 = in1[0]; 1 = mul in0 0; in0 = 1}". */
void by__op_map_print(by_string *text, const by_map_program *map);

/* ---- internal builders, used by gradients, passes and optimizers ---- */
/* Sums over the first `lead` axes. */
by_value by__op_build_sum_rows(by_graph *graph, by_value x, int lead);
/* Adds a matmul with every option; bias and add may be BY_NONE. */
by_value by__op_matmul_full(by_graph *graph, by_value a, by_value b, by_value bias, by_value add,
                            bool trans_a, bool trans_b, by_dtype dtype);
by_value by__op_build_sum_squares(by_graph *graph, by_value x);
/* Adds a node of measurements of x; y is BY_NONE, or what the distance is measured from. */
by_value by__op_build_measure(by_graph *graph, by_value x, by_value y);
/* Encode x as 8-bit codes with scales (*scale), and decode it, rounded, to the format `dtype`. */
by_value by__op_build_encode8(by_graph *graph, by_value x, by_value *scale);
by_value by__op_build_decode8(by_graph *graph, by_value codes, by_value scale, by_dtype dtype);
/* Resolves an axis of x; negative ones count from the end. */
int by__op_axis_of(const by_graph *graph, by_value x, int axis);
/* Adds the node that waits for a collective: it makes the result readable and its operands
 * reusable. */
by_value by__op_build_wait(by_graph *graph, by_value started);
/* Starts a collective with these attributes over one tensor; its result is usable after
 * by__op_build_wait. */
by_value by__op_start_collective(by_graph *graph, by_op op, const by_attrs *attrs, by_value x);
/* Hands over a bucket of complete gradients and returns what by__op_build_wait waits for. in_place:
 * they are external values that the exchange may overwrite, so nothing else may read them. entries:
 * of the gradients that are in the bucket; 0: all. */
by_value by__op_build_reduce_gradients(by_graph *graph, const by_value *gradients, int count,
                                       int64_t bucket, int64_t entries, uint32_t mesh,
                                       int64_t ranks, bool in_place);
/* Gathers a parameter of which each rank has a part. */
by_value by__op_build_gather_parameter(by_graph *graph, by_value parameter, int64_t number,
                                       uint32_t mesh, int64_t ranks);
/* Sums over the set of axes `axes` (bit i: axis i), which stay with extent 1 if `keep`; in f32 if
 * `wide`. */
by_value by__op_sum_axes(by_graph *graph, by_value x, uint32_t axes, bool keep, bool wide);
/* Reduces the gradient of a broadcast operand: sums it over the broadcast axes to the operand's
 * shape. */
by_value by__op_reduce_to(by_graph *graph, by_value gradient, by_value operand);
/* Returns the dtype in which gradients of a value are summed: f32 for parameters, else its own. */
by_dtype by__op_gradient_dtype(const by_graph *graph, by_value value);
/* Computes norm and clip factor. in: failed, losses and loss factor (each may be BY_NONE), then the
 * sums of squares. */
void by__op_build_clip_scale(by_graph *graph, const by_value *in, int count, float clip,
                             by_value *norm, by_value *scale);
/* Returns the copy in the format `copy`, or BY_NONE if `copy` is BY_F32, since there is none
 * then. */
by_value by__op_build_adamw(by_graph *graph, by_value p, by_value g, by_value m, by_value v,
                            by_value hyper, by_value scale, const by_attrs *attrs, by_dtype copy);
/* Adds an ADAMW8 node with its operands in order. */
by_value by__op_build_adamw8(by_graph *graph, const by_value in[8], const by_attrs *attrs,
                             by_dtype copy);

#endif
