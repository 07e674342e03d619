/* Operations as functions: each adds a node to a graph and returns its (first) result.
 *
 * Shapes and meaning are in the table of banyan/op.h. On a wrong shape or dtype the graph keeps an
 * error that names the op and the shapes (see by_graph_check) and BY_NONE comes back.
 */
#ifndef BANYAN_OPS_H
#define BANYAN_OPS_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = op(a) op(b): the last axis of a (or its rows when trans_a) against b's rows (its last axis
 * when trans_b). y has a's dtype. */
BY_API by_value by_matmul(by_graph *graph, by_value a, by_value b, bool trans_a, bool trans_b);
/* y = x W + bias. `out_in`: W is [out, in] as in torch.nn.Linear, else [in, out]. bias may be
 * BY_NONE. */
BY_API by_value by_linear(by_graph *graph, by_value x, by_value weight, by_value bias, bool out_in);
BY_API by_value by_add(by_graph *graph, by_value a, by_value b);
BY_API by_value by_sub(by_graph *graph, by_value a, by_value b);
BY_API by_value by_mul(by_graph *graph, by_value a, by_value b);
BY_API by_value by_scale(by_graph *graph, by_value x, by_value factor);
BY_API by_value by_cast(by_graph *graph, by_value x, by_dtype dtype);
BY_API by_value by_unary(by_graph *graph, by_value x, by_function function);
BY_API by_value by_swiglu(by_graph *graph, by_value gate, by_value up);
BY_API by_value by_layer_norm(by_graph *graph, by_value x, by_value weight, by_value bias,
                              float eps);
BY_API by_value by_rms_norm(by_graph *graph, by_value x, by_value weight, float eps);
BY_API by_value by_embedding(by_graph *graph, by_value ids, by_value table);
/* x [B, T, C] + table[t]: learned positions. */
BY_API by_value by_position(by_graph *graph, by_value x, by_value table);
/* Rotates the halves of each head of x [B, T, heads * D] by the angle of position `start` + t;
 * start may be BY_NONE (0). RoFormer (Su et al. 2021), halves as in GPT-NeoX and Llama. */
BY_API by_value by_rope(by_graph *graph, by_value x, by_value start, int64_t heads, float theta);
/* Causal attention of packed qkv [B, T, (heads + 2 kv_heads) D] or of separate q, k, v. */
BY_API by_value by_attention_packed(by_graph *graph, by_value qkv, int64_t heads, int64_t kv_heads);
BY_API by_value by_attention(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                             int64_t kv_heads);
/* The same with caches [B, kv_heads, S, D] that are written at `position` and read up to it. For
 * packed qkv, k and v are BY_NONE. */
BY_API by_value by_attention_cached(by_graph *graph, by_value q, by_value k, by_value v,
                                    by_value k_cache, by_value v_cache, by_value position,
                                    int64_t heads, int64_t kv_heads);
/* Identity when p is 0. `stream` tells this mask from the others of the graph. */
BY_API by_value by_dropout(by_graph *graph, by_value x, by_value rng, float p, uint32_t stream);
/* Sum over the rows with target >= 0 of the cross-entropy of softmax(x w^T): loss [1] f32. */
BY_API by_value by_linear_cross_entropy(by_graph *graph, by_value x, by_value weight,
                                        by_value targets);

#ifdef __cplusplus
}
#endif
#endif
