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
/* Arithmetic with NumPy's broadcasting: shapes are aligned at the last axis, and an extent of 1 or
 * an axis that is missing repeats. y has a's dtype; b has it too or is f32. */
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
 * start may be BY_NONE (0), or i32 [B, T]: the position of each row. RoFormer (Su et al. 2021),
 * halves as in GPT-NeoX and Llama. */
BY_API by_value by_rope(by_graph *graph, by_value x, by_value start, int64_t heads,
                        const by_rotation *rotation);
/* Causal attention of packed qkv [B, T, (heads + 2 kv_heads) D] or of separate q, k, v. */
BY_API by_value by_attention_packed(by_graph *graph, by_value qkv, int64_t heads, int64_t kv_heads);
BY_API by_value by_attention(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                             int64_t kv_heads);
/* Which keys a query reads. BY_ATTENTION_CAUSAL: those up to its own place. */
typedef struct by_attention_mask {
    bool bidirectional; /* all keys; then there is no lower limit */
    int64_t window;     /* the last `window` keys, its own among them; 0: no limit (Beltagy et al.
                           2020; Jiang et al. 2023) */
    by_value starts;    /* i32 [B, T] or BY_NONE: the first key that query t of sample b may read,
                           such as the first token of its document; its own at the latest */
    by_value lengths;   /* i32 [B] or BY_NONE: of sample b only the first lengths[b] positions
                           exist; the others are not read, their results are zero, and they have no
                           gradient */
} by_attention_mask;
#define BY_ATTENTION_CAUSAL ((by_attention_mask){.starts = BY_NONE, .lengths = BY_NONE})
/* Attention with a choice of the mask. Packed: k and v are BY_NONE. */
BY_API by_value by_attention_masked(by_graph *graph, by_value q, by_value k, by_value v,
                                    int64_t heads, int64_t kv_heads, const by_attention_mask *mask);
/* Causal attention with caches [B, kv_heads, S, D] that are written at `position` and read up to
 * it, from `window` - 1 places before it on (0: from the first). For packed qkv, k and v are
 * BY_NONE. */
BY_API by_value by_attention_cached(by_graph *graph, by_value q, by_value k, by_value v,
                                    by_value k_cache, by_value v_cache, by_value position,
                                    int64_t heads, int64_t kv_heads, int64_t window);
/* Which rows of which sequences a run of PAGED_ATTENTION has. */
typedef struct by_paged_rows {
    by_value positions; /* i32 [T] or [1, T] */
    by_value sessions;  /* i32 [T] */
    by_value table;     /* i32 [sessions, pages of one] */
} by_paged_rows;
/* Causal attention of rows of many sequences, whose keys and values are in pages of pools
 * [pages, kv_heads, BY_PAGE_TOKENS, D]. In a page, keys of a head are [D][BY_PAGE_TOKENS] and
 * values [BY_PAGE_TOKENS][D]; of bf16, neighbours along the first of these axes are pairs:
 * [D / 2][BY_PAGE_TOKENS][2] (behind them a last element of its own if D is odd) and
 * [BY_PAGE_TOKENS / 2][D][2]. Pools of u8, [pages, kv_heads, BY_PAGE_TOKENS, D + BY_PAGE_SCALE],
 * hold signed codes of 8 bits as f32 would be held, and behind them, for each of the tokens, the
 * f32 that they are multiples of: its largest magnitude in the head / 127. q is [1, T, heads D];
 * for packed qkv, k and v are BY_NONE.
 * Each row reads the last `window` keys up to its own; 0: all. Not differentiable. */
BY_API by_value by_attention_paged(by_graph *graph, by_value q, by_value k, by_value v,
                                   by_value k_pool, by_value v_pool, const by_paged_rows *rows,
                                   int64_t heads, int64_t kv_heads, int64_t window);
/* Identity when p is 0. `stream` tells this mask from the others of the graph. */
BY_API by_value by_dropout(by_graph *graph, by_value x, by_value rng, float p, uint32_t stream);
/* ---- moving elements: any dtype; axes count from 0, or from the end when negative ---- */

/* A constant tensor of `shape` (one axis or more), f32, bf16 or f16, known when the graph is
 * built. */
BY_API by_value by_fill(by_graph *graph, by_dtype dtype, by_shape shape, float value);
/* The same elements in the same order; one extent may be -1 and follows from the others. A view:
 * the memory planner gives it the memory of x unless x is an output of its own. */
BY_API by_value by_reshape(by_graph *graph, by_value x, by_shape shape);
/* Axis i of the result is axis order[i] of x; `order` has one entry for each axis of x. */
BY_API by_value by_permute(by_graph *graph, by_value x, const int *order);
/* Exchanges two axes. */
BY_API by_value by_transpose(by_graph *graph, by_value x, int a, int b);
/* Two to eight tensors behind each other along an axis; they may differ in its extent alone. */
BY_API by_value by_concat(by_graph *graph, const by_value *parts, int count, int axis);
/* Entries begin .. begin + extent - 1 of an axis. */
BY_API by_value by_slice(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent);
/* The opposite: x becomes the entries from `begin` on of an axis of `extent` entries, the others
 * are zero. */
BY_API by_value by_pad(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent);
/* x broadcast to `shape`, as by_add would. */
BY_API by_value by_expand(by_graph *graph, by_value x, by_shape shape);
/* images [B, C, H, W] cut into squares: [B, (H / size) (W / size), C size size], patches row by
 * row, the elements of a patch in the order of a convolution's weight [out, C, size, size]. A
 * convolution with stride `size` is by_linear of this with its weight reshaped to two axes
 * (Dosovitskiy et al. 2021). H and W must be multiples of `size`. */
BY_API by_value by_patches(by_graph *graph, by_value images, int64_t size);

/* ---- sums ---- */

/* Sum and mean over `count` different axes, which are dropped or, with `keep`, stay with extent 1.
 * f32, bf16 or f16, like x; summed in f32. */
BY_API by_value by_sum(by_graph *graph, by_value x, const int *axes, int count, bool keep);
BY_API by_value by_mean(by_graph *graph, by_value x, const int *axes, int count, bool keep);
/* exp(x) / sum(exp(x)) over the last axis, and its logarithm x - log(sum(exp(x))). */
BY_API by_value by_softmax(by_graph *graph, by_value x);
BY_API by_value by_log_softmax(by_graph *graph, by_value x);

/* ---- rows by groups, such as tokens by experts; slots, members and ranges are those of op.h
 * ---- */

/* The router of a mixture of experts (Shazeer et al. 2017, as Mixtral computes it): of each row of
 * logits f32 [..., E] the `chosen` largest. *weight f32 [..., chosen] is the softmax over them,
 * *index i32 [..., chosen] says which they are, *mass f32 [E] is the sum over rows of the softmax
 * over all. Gradients flow through weight and mass. */
BY_API void by_router(by_graph *graph, by_value logits, int64_t chosen, by_value *weight,
                      by_value *index, by_value *mass);
/* Puts the entries of ids i32 [...] into groups. capacity 0: all have room. */
BY_API void by_group(by_graph *graph, by_value ids, int64_t groups, int64_t capacity,
                     by_value *slot, by_value *member, by_value *range);
/* Number of entries of each group, f32 [groups]. */
BY_API by_value by_count_ids(by_graph *graph, by_value ids, int64_t groups);
/* Rows of x [..., C] in the order of groups, [S, C], and back: of grouped rows [S, C] the sums over
 * each row of slots. weight f32 like slot, or BY_NONE: 1. */
BY_API by_value by_scatter_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                                by_value weight);
BY_API by_value by_gather_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                               by_value weight);
/* The rows of each range of a [R, K] times that group's matrix of b [E, K, N], or [E, N, K] when
 * trans_b. `chosen`: groups that an example is in, by which FLOPs of an example are counted. */
BY_API by_value by_grouped_matmul(by_graph *graph, by_value a, by_value b, by_value range,
                                  bool trans_b, int64_t chosen);

/* ---- weights ---- */

/* The weight of a product, f32 [k, n] or, with out_in, [n, k], as the codes of a packing (INT8 or
 * INT4, of these sizes) have it; the gradient goes straight through (Bengio et al. 2013). */
BY_API by_value by_fake_quantize(by_graph *graph, by_value weight, const by_packing *packing,
                                 bool out_in);

/* ---- losses: f32 [1], sums that the caller divides by the number of examples ---- */

/* Sum over rows of the cross-entropy of softmax(logits [..., C]) with targets i32 [...]; rows with
 * a negative target do not count. `smoothing` in [0, 1) is the share of the target that goes to
 * all classes alike (Szegedy et al. 2016), as in torch.nn.CrossEntropyLoss. */
BY_API by_value by_cross_entropy(by_graph *graph, by_value logits, by_value targets,
                                 float smoothing);
/* Sum over elements of (x - targets)^2. x is f32, bf16 or f16 [..., C], targets f32 of its shape;
 * weights [...], one a row, are BY_NONE, f32 that multiply its terms, or i32 such as targets of
 * another loss: rows where they are negative do not count. */
BY_API by_value by_squared_error(by_graph *graph, by_value x, by_value targets, by_value weights);
/* The same of torch.nn.SmoothL1Loss (Huber 1964, divided by beta): with d = |x - target|,
 * d^2 / (2 beta) where d < beta, else d - beta / 2. */
BY_API by_value by_smooth_l1(by_graph *graph, by_value x, by_value targets, by_value weights,
                             float beta);
/* Sum over the rows with target >= 0 of the cross-entropy of softmax(x w^T): loss [1] f32. */
BY_API by_value by_linear_cross_entropy(by_graph *graph, by_value x, by_value weight,
                                        by_value targets);
/* What a student learns from: the values that say what its teacher thinks of each row. Either the
 * teacher's hidden state [..., D] and head [V, D], in the student's dtype; or ids i32 [..., k],
 * distinct, of some tokens and, f32 [..., k + 1], the logarithms of their probabilities at the
 * temperature of the loss and, last, of that of all other tokens together. The others are
 * BY_NONE. */
typedef struct by_teacher {
    by_value hidden;
    by_value head;
    by_value ids;
    by_value logarithms;
} by_teacher;
/* Sum over the rows with target >= 0 of (1 - weight) CE + weight temperature^2 KL(teacher ||
 * student) of softmax(x w^T) (Hinton, Vinyals and Dean 2015): loss [1] f32. Temperature > 0, weight
 * in [0, 1]. Where the teacher says the probabilities of some tokens alone, all others are one
 * event to both models: by the log-sum inequality their divergence is at most that over all
 * tokens, and is that where there are no others or the models agree on how they divide. */
BY_API by_value by_linear_distill(by_graph *graph, by_value x, by_value weight, by_value targets,
                                  const by_teacher *teacher, float temperature, float share);

/* ---- what ranks do together ----
 *
 * `mesh` is a set of mesh axes (bit i: axis i of by_mesh_axis, never empty) and `ranks` the product
 * of their sizes: the ranks that differ in these axes alone take part, and all of them must run the
 * collectives of a graph in one order. With one rank each of these is the identity and adds
 * nothing. The result is ready to use: each adds the start of the collective and the wait for it,
 * and by_pass_overlap moves them apart, so that the nodes between them hide it.
 *
 * An axis is cut over the ranks into neighbouring entries in the order of ranks, extent / ranks for
 * each, the first extent % ranks ranks having one more; none may be left without. */

/* The sum of the ranks' x (f32, bf16 or i32), like x; added as the tree whose leaves are the ranks.
 * Its gradient is the result's gradient as it is: what follows is the same on every rank (g of
 * Shoeybi et al. 2019, Megatron-LM, section 3). */
BY_API by_value by_all_reduce(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);
/* x itself, which every rank has; its gradient is the sum of the ranks' gradients (f of
 * Megatron-LM): for operands of work that is split over the ranks. */
BY_API by_value by_replicate(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);
/* All `extent` entries of an axis, of which x has this rank's. Its gradient is the reduce-scatter
 * of the result's: the ranks use the entries for different work. */
BY_API by_value by_all_gather(by_graph *graph, by_value x, int axis, int64_t extent, uint32_t mesh,
                              int64_t ranks);
/* The entries of rank `rank` (its place in the group) of an axis of the sum of the ranks' x. Its
 * gradient is the all-gather of the result's. */
BY_API by_value by_reduce_scatter(by_graph *graph, by_value x, int axis, uint32_t mesh,
                                  int64_t ranks, int64_t rank);
/* x [..., E of `axis`, ..., F of `to`, ...] -> [..., E / ranks, ..., F ranks, ...]: entries of
 * `axis` go to the ranks, and what comes from each rank stands behind each other along `to`. ranks
 * divides E, and F is the same on every rank. The gradient is the way back. */
BY_API by_value by_all_to_all(by_graph *graph, by_value x, int axis, int to, uint32_t mesh,
                              int64_t ranks);
/* The x of the rank before this one, around a ring of the ranks. Its gradient takes ranks - 1
 * steps. */
BY_API by_value by_ring_shift(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);

#ifdef __cplusplus
}
#endif
#endif
