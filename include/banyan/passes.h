/* Passes: transformations of a graph. Each scaling technique is one; they compose in this order:
 * precision, gradients, rematerialize, recompute, fuse, order; then banyan/program.h plans memory
 * and runs.
 *
 * Every pass reads and writes only the graph and leaves it verified (by_graph_verify holds after it
 * when it held before). On an error the graph may be half transformed and must be closed.
 */
#ifndef BANYAN_PASSES_H
#define BANYAN_PASSES_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Mixed precision (Micikevicius et al. 2018, with bf16 and therefore without loss scaling). For a
 * forward graph: matrices (parameters and caches of rank >= 2) and activations become `compute`;
 * vectors, statistics, losses and outputs stay f32. A parameter of the result whose dtype is not
 * f32 is a compute copy: the f32 master belongs to the optimizer. compute f32 changes nothing. */
BY_API by_status by_pass_precision(by_graph *graph, by_dtype compute, by_error *error);

/* Reverse-mode differentiation. Adds the backward pass of `loss` ([1] f32), seeded with `seed` ([1]
 * f32: d objective / d loss), and makes the gradient of every parameter NAME an f32 value
 * "grad.NAME" of role gradient. BY_EARG names a parameter that the loss does not depend on, and an
 * op without a gradient. */
BY_API by_status by_pass_gradients(by_graph *graph, by_value loss, by_value seed, by_error *error);

/* Rematerialization (Briggs, Cooper and Torczon 1992, of registers): results of activations and
 * norms of at least `least_bytes` that the backward pass reads are made again just before it does,
 * from operands that it keeps for their gradients anyway. A pass over memory each, instead of
 * memory from the forward pass to there. The bits are the same. */
BY_API by_status by_pass_rematerialize(by_graph *graph, size_t least_bytes, by_error *error);

/* Recomputation by block (Chen et al. 2016): the backward pass of a block computes the block's
 * activations again from its inputs instead of keeping them. The last block is left alone: its
 * activations are needed at once. */
BY_API by_status by_pass_recompute(by_graph *graph, by_error *error);

/* Fewer and larger nodes: residual additions into matrix products and norm gradients, the
 * embedding's gradient into the tied head's, the head's loss and gradient into one. Drops nodes
 * without effect. */
BY_API by_status by_pass_fuse(by_graph *graph, by_error *error);

/* Weights [k, n] that products alone read become [n, k]: a product with few rows, as each step of
 * decoding is, reads them faster, one row of n after the other as one stream of memory. The shape
 * and the axes of such a parameter are turned, and its values must be those of the transposed
 * matrix (by_value_info.turned). For graphs that are only run forward. */
BY_API by_status by_pass_layout(by_graph *graph, by_error *error);

/* The sequence in which nodes run: a greedy schedule for little memory, taken when its peak is
 * lower than that of the present order. */
BY_API by_status by_pass_order(by_graph *graph, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
