/* Operations as functions: each adds a node to a graph and returns its (first) result.
 *
 * The table in banyan/op.h defines shapes, dtypes and meaning. For wrong operands the graph stores
 * an error with the operation's name and the shapes (see by_graph_check), and the function returns
 * BY_NONE.
 */
#ifndef BANYAN_OPS_H
#define BANYAN_OPS_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = op(a) op(b): multiplies the last axis of a (its rows with trans_a) with the rows of b (its
 * last axis with trans_b). y has a's dtype. */
BY_API by_value by_matmul(by_graph *graph, by_value a, by_value b, bool trans_a, bool trans_b);
/* y = x W + bias, where W is [out, in] with `out_in`, as in torch.nn.Linear, otherwise [in, out].
 * `bias` may be BY_NONE. */
BY_API by_value by_linear(by_graph *graph, by_value x, by_value weight, by_value bias, bool out_in);
/* A window of size x size with this stride, and `padding` rows and columns of padding on each
 * side. */
BY_API by_window by_window_square(int64_t size, int64_t stride, int64_t padding);
/* Convolution of images x [B, H, W, C], channels last, with weights [O, C / groups, h, w] as
 * torch.nn.Conv2d has them; [B, H', W', O]. The window's size is that of the weights. A
 * one-dimensional convolution has H = h = 1. `bias` [O] may be BY_NONE. */
BY_API by_value by_conv(by_graph *graph, by_value x, by_value weight, by_value bias,
                        const by_window *window, int64_t groups);
/* Transposed convolution of x [B, H, W, O] with weights [O, C / groups, h, w], as
 * torch.nn.ConvTranspose2d has them; [B, H', W', C]. Its output_padding makes window->after as much
 * smaller. */
BY_API by_value by_conv_transposed(by_graph *graph, by_value x, by_value weight, by_value bias,
                                   const by_window *window, int64_t groups);
/* Arithmetic with NumPy's broadcasting: shapes are aligned at the last axis, and an absent axis or
 * one of extent 1 repeats. The result has a's dtype; b has the same dtype or is f32. */
BY_API by_value by_add(by_graph *graph, by_value a, by_value b);
BY_API by_value by_sub(by_graph *graph, by_value a, by_value b);
BY_API by_value by_mul(by_graph *graph, by_value a, by_value b);
/* x times `factor`, f32 [1]. */
BY_API by_value by_scale(by_graph *graph, by_value x, by_value factor);
/* x converted to another dtype, rounded to nearest even. */
BY_API by_value by_cast(by_graph *graph, by_value x, by_dtype dtype);
/* f(x) element by element. */
BY_API by_value by_unary(by_graph *graph, by_value x, by_function function);
/* silu(gate) * up (Shazeer 2020). */
BY_API by_value by_swiglu(by_graph *graph, by_value gate, by_value up);
/* Layer norm over the last axis (Ba et al. 2016); weight and bias are f32 [C]. */
BY_API by_value by_layer_norm(by_graph *graph, by_value x, by_value weight, by_value bias,
                              float eps);
/* RMS norm over the last axis (Zhang and Sennrich 2019); weight is f32 [C]. */
BY_API by_value by_rms_norm(by_graph *graph, by_value x, by_value weight, float eps);
/* What follows a norm of channels in the same pass over memory. */
typedef struct by_norm_end {
    by_value add; /* is added: like x, or BY_NONE */
    bool rectify; /* the larger of the sum and 0 (ReLU) */
    float limit;  /* with rectify, the smaller of that and this (ReLU6); 0: no limit */
} by_norm_end;
/* Nothing follows. */
#define BY_NORM_END_NONE ((by_norm_end){BY_NONE, false, 0.0f})
/* Batch norm of x [..., C] with its own mean and variance over all N rows (Ioffe and Szegedy 2015);
 * weight and bias are f32 [C]. *mean and *variance (divisor N - 1), f32 [C], are for running
 * statistics; they have no gradient. N must be 2 or more. end: NULL: nothing. */
BY_API by_value by_batch_norm(by_graph *graph, by_value x, by_value weight, by_value bias,
                              float eps, const by_norm_end *end, by_value *mean,
                              by_value *variance);
/* The same with a given mean and variance, f32 [C]. */
BY_API by_value by_batch_norm_fixed(by_graph *graph, by_value x, by_value mean, by_value variance,
                                    by_value weight, by_value bias, float eps,
                                    const by_norm_end *end);
/* x [..., C] times scale plus shift, both f32 [C]. end: NULL: nothing. */
BY_API by_value by_affine(by_graph *graph, by_value x, by_value scale, by_value shift,
                          const by_norm_end *end);
/* Group norm of x [B, ..., C] (Wu and He 2018), as torch.nn.GroupNorm: the channels of a sample in
 * `groups` groups; weight and bias are f32 [C]. */
BY_API by_value by_group_norm(by_graph *graph, by_value x, by_value weight, by_value bias,
                              int64_t groups, float eps);
/* The weights of a recurrent layer of H states on C channels, as torch.nn.LSTM and torch.nn.GRU
 * have them: input [G H, C], hidden [G H, H], and biases f32 [G H], with G gates: 4 (LSTM: input,
 * forget, cell, output) or 3 (GRU: reset, update, new). */
typedef struct by_recurrent_weights {
    by_value input;
    by_value hidden;
    by_value input_bias;
    by_value hidden_bias;
} by_recurrent_weights;
/* The states [B, T, H] after each step of x [B, T, C], from states of zeros: long short-term memory
 * (Hochreiter and Schmidhuber 1997), and gated recurrent units (Cho et al. 2014). */
BY_API by_value by_lstm(by_graph *graph, by_value x, const by_recurrent_weights *weights);
BY_API by_value by_gru(by_graph *graph, by_value x, const by_recurrent_weights *weights);
/* Images x [B, H, W, C] in another size: the nearest entry, or bilinear interpolation with the
 * pixels' centers at 1/2, 3/2, ..., as torch.nn.Upsample. */
BY_API by_value by_upsample(by_graph *graph, by_value x, int64_t height, int64_t width,
                            bool bilinear);
/* The largest entry of each window of x [B, H, W, C], as torch.nn.MaxPool2d, and the mean, in
 * which padding counts as zeros if `padded`, as torch.nn.AvgPool2d. */
BY_API by_value by_max_pool(by_graph *graph, by_value x, const by_window *window);
BY_API by_value by_average_pool(by_graph *graph, by_value x, const by_window *window, bool padded);
/* The same of height x width windows that cover x [B, H, W, C], as torch.nn.AdaptiveMaxPool2d and
 * torch.nn.AdaptiveAvgPool2d: row i of the windows has rows floor(i H / height) to
 * ceil((i + 1) H / height) - 1 of x, and columns likewise. They overlap where height does not
 * divide H, or is larger; height and width are at most 4096. Unless both divide their side, columns
 * are pooled before rows, and their mean is rounded to the dtype of x. */
BY_API by_value by_adaptive_max_pool(by_graph *graph, by_value x, int64_t height, int64_t width);
BY_API by_value by_adaptive_average_pool(by_graph *graph, by_value x, int64_t height,
                                         int64_t width);
/* Rows `ids` i32 [...] of table [V, C]: [..., C]. */
BY_API by_value by_embedding(by_graph *graph, by_value ids, by_value table);
/* x [B, T, C] + table[t]: learned positions. */
BY_API by_value by_position(by_graph *graph, by_value x, by_value table);
/* Rotary positions (RoFormer, Su et al. 2021), with halves as in GPT-NeoX and Llama: rotates the
 * halves of each head of x [B, T, heads * D] by the angle of position start + t. `start` is i32
 * [1], or BY_NONE for 0, or i32 [B, T] for the position of each row. */
BY_API by_value by_rope(by_graph *graph, by_value x, by_value start, int64_t heads,
                        const by_rotation *rotation);
/* Causal attention of packed qkv [B, T, (heads + 2 kv_heads) D], or of separate q, k and v. The
 * result is [B, T, heads D]. */
BY_API by_value by_attention_packed(by_graph *graph, by_value qkv, int64_t heads, int64_t kv_heads);
BY_API by_value by_attention(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                             int64_t kv_heads);
/* Which keys a query attends to. */
typedef struct by_attention_mask {
    bool bidirectional; /* also later keys */
    /* The last `window` keys including its own, and, if bidirectional, as many behind it; 0: no
     * limit (Beltagy et al. 2020; Jiang et al. 2023). */
    int64_t window;
    /* Scores fall with the distance, by slopes of the heads (ALiBi, Press et al. 2022). */
    bool slopes;
    /* i32 [B, T] or BY_NONE: first key that query t of sample b may attend to, such as the first
     * token of its document; at most its own. Not if bidirectional. */
    by_value starts;
    /* i32 [B] or BY_NONE: only the first lengths[b] positions of sample b exist. The others are not
     * read, their results are zero and they have no gradient. */
    by_value lengths;
} by_attention_mask;
/* All keys up to the query's own position. */
#define BY_ATTENTION_CAUSAL ((by_attention_mask){.starts = BY_NONE, .lengths = BY_NONE})
/* Attention with a mask. For packed qkv pass it as q, with k and v BY_NONE. */
BY_API by_value by_attention_masked(by_graph *graph, by_value q, by_value k, by_value v,
                                    int64_t heads, int64_t kv_heads, const by_attention_mask *mask);
/* Linear attention (Katharopoulos et al. 2020), causal or over all keys. Operands as those of
 * by_attention_masked; `lengths` may be BY_NONE. */
BY_API by_value by_linear_attention(by_graph *graph, by_value q, by_value k, by_value v,
                                    int64_t heads, int64_t kv_heads, bool bidirectional,
                                    by_value lengths);
/* Which tokens of which texts the rows of by_linear_attention_carried are. */
typedef struct by_carried_rows {
    /* i32 [1], position of the first row of each sample; with sessions i32 [T] or [1, T]: of each
     * row in its text, -1: it is none. */
    by_value positions;
    by_value sessions; /* i32 [T]: the text of each row, or BY_NONE: the sample */
} by_carried_rows;
/* Causal linear attention that continues texts: `sums` f32 [texts, kv_heads, D, BY_SUM_COLUMNS(D)]
 * is what it keeps of the tokens of each text so far, and is updated; a row at position 0 begins a
 * text. Rows of one text follow each other in order. q is [B, T, heads D], with sessions B = 1; for
 * packed qkv, k and v are BY_NONE. Not differentiable. */
BY_API by_value by_linear_attention_carried(by_graph *graph, by_value q, by_value k, by_value v,
                                            by_value sums, const by_carried_rows *rows,
                                            int64_t heads, int64_t kv_heads);
/* Causal attention with caches [B, kv_heads, S, D]: writes the new keys and values at `position`,
 * i32 [1], and attends to all positions so far, as far as window and slopes of the mask say, whose
 * other fields are not used. For packed qkv pass it as q, with k and v BY_NONE. */
BY_API by_value by_attention_cached(by_graph *graph, by_value q, by_value k, by_value v,
                                    by_value k_cache, by_value v_cache, by_value position,
                                    int64_t heads, int64_t kv_heads, const by_attention_mask *mask);
/* Which rows of which sequences a step of by_attention_paged processes. */
typedef struct by_paged_rows {
    by_value positions; /* i32 [T] or [1, T]: position of each row in its sequence */
    by_value sessions;  /* i32 [T]: row of the table for each row */
    by_value table;     /* i32 [sessions, pages per session]: page numbers */
} by_paged_rows;
/* Causal attention of rows of many sequences, whose keys and values are in pages of pools
 * [pages, kv_heads, BY_PAGE_TOKENS, D] (PagedAttention, Kwon et al. 2023). q is [1, T, heads D];
 * for packed qkv, k and v are BY_NONE. Each row attends to the keys up to its own, as far as window
 * and slopes of the mask say. Not differentiable.
 *
 * Within a page, the keys of a head are stored as [D][BY_PAGE_TOKENS] and its values as
 * [BY_PAGE_TOKENS][D]; in bf16, neighbors along the first of these axes are paired:
 * [D / 2][BY_PAGE_TOKENS][2] (followed by the last row alone if D is odd) and
 * [BY_PAGE_TOKENS / 2][D][2]. Pools of u8, [pages, kv_heads, BY_PAGE_TOKENS, D + BY_PAGE_SCALE],
 * hold signed 8-bit codes in the layout of f32, followed by an f32 scale for each token: its
 * largest magnitude in the head / 127.
 */
BY_API by_value by_attention_paged(by_graph *graph, by_value q, by_value k, by_value v,
                                   by_value k_pool, by_value v_pool, const by_paged_rows *rows,
                                   int64_t heads, int64_t kv_heads, const by_attention_mask *mask);
/* Dropout (Srivastava et al. 2014) with probability p; the identity if p is 0. `rng` is i32 [4],
 * see banyan/op.h. `stream` distinguishes this mask from others in the graph. */
BY_API by_value by_dropout(by_graph *graph, by_value x, by_value rng, float p, uint32_t stream);

/* ---- rearranging elements: any dtype; axes count from 0, or from the end if negative ---- */

/* A constant tensor of `shape` (at least one axis), f32, bf16 or f16. */
BY_API by_value by_fill(by_graph *graph, by_dtype dtype, by_shape shape, float value);
/* The same elements in the same order; one extent may be -1 and is derived from the others. A view:
 * it shares the memory of x unless x is itself an output. */
BY_API by_value by_reshape(by_graph *graph, by_value x, by_shape shape);
/* Permutes axes: axis i of the result is axis order[i] of x; `order` has one entry for each axis of
 * x. */
BY_API by_value by_permute(by_graph *graph, by_value x, const int *order);
/* Exchanges two axes. */
BY_API by_value by_transpose(by_graph *graph, by_value x, int a, int b);
/* Concatenates two to eight tensors along an axis; they may differ only in its extent. */
BY_API by_value by_concat(by_graph *graph, const by_value *parts, int count, int axis);
/* Entries begin to begin + extent - 1 of an axis. */
BY_API by_value by_slice(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent);
/* The inverse of by_slice: an axis of `extent` entries with x from `begin` on and zeros
 * elsewhere. */
BY_API by_value by_pad(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent);
/* x broadcast to `shape`, as by by_add. */
BY_API by_value by_expand(by_graph *graph, by_value x, by_shape shape);
/* Cuts images [B, C, H, W] into square patches: [B, (H / size) (W / size), C size size], patches
 * row by row, the elements of a patch in the order of a convolution's weight [out, C, size, size].
 * A convolution with stride `size` is by_linear of this and its weight reshaped to two axes
 * (Dosovitskiy et al. 2021). H and W must be multiples of `size`. */
BY_API by_value by_patches(by_graph *graph, by_value images, int64_t size);

/* ---- sums ---- */

/* Sum and mean over `count` distinct axes, which are dropped or, with `keep`, kept with extent 1.
 * f32, bf16 or f16, like x; accumulated in f32. */
BY_API by_value by_sum(by_graph *graph, by_value x, const int *axes, int count, bool keep);
BY_API by_value by_mean(by_graph *graph, by_value x, const int *axes, int count, bool keep);
/* exp(x) / sum(exp(x)) over the last axis, and its logarithm x - log(sum(exp(x))). */
BY_API by_value by_softmax(by_graph *graph, by_value x);
BY_API by_value by_log_softmax(by_graph *graph, by_value x);

/* ---- rows in groups, such as tokens by expert; op.h defines slot, member and range ---- */

/* Router of a mixture of experts (Shazeer et al. 2017, as in Mixtral): selects the `chosen` largest
 * logits of each row of f32 [..., E]. *weight f32 [..., chosen] is the softmax over them, *index
 * i32 [..., chosen] their experts, *mass f32 [E] the sum over rows of the softmax over all logits.
 * Gradients flow through weight and mass. */
BY_API void by_router(by_graph *graph, by_value logits, int64_t chosen, by_value *weight,
                      by_value *index, by_value *mass);
/* Sorts the entries of ids i32 [...] into groups of at most `capacity` entries; 0: no limit. */
BY_API void by_group(by_graph *graph, by_value ids, int64_t groups, int64_t capacity,
                     by_value *slot, by_value *member, by_value *range);
/* Number of entries of each group, f32 [groups]. */
BY_API by_value by_count_ids(by_graph *graph, by_value ids, int64_t groups);
/* Moves rows of x [..., C] into the order of groups, [S, C], and back: the latter sums, for each
 * row, the grouped rows [S, C] in its slots. `weight` is f32 like slot; BY_NONE: 1. */
BY_API by_value by_scatter_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                                by_value weight);
BY_API by_value by_gather_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                               by_value weight);
/* Multiplies the rows of each range of a [R, K] with that group's matrix of b [E, K, N], or
 * [E, N, K] with trans_b. `chosen` is the number of groups that an example is in, for counting its
 * FLOPs. */
BY_API by_value by_grouped_matmul(by_graph *graph, by_value a, by_value b, by_value range,
                                  bool trans_b, int64_t chosen);

/* ---- edges of graphs, as a sparse matrix in rows; op.h has the operands ---- */

/* B matrices [N, M], a row for each node that edges end in, i32: row n has the entries offsets[n]
 * .. offsets[n + 1] - 1. The same matrices transposed, for gradients. */
typedef struct by_edges {
    by_value offsets;      /* [B, N + 1] */
    by_value sources;      /* [B, E] the column of each entry; -1: none */
    by_value back_offsets; /* [B, M + 1] */
    by_value back_sources; /* [B, E] the row of each entry of the transposed matrices */
    by_value back_edges;   /* [B, E] which entry that is in the order of `sources` */
} by_edges;

/* The sum of the rows of x [B, M, C] that edges come from, [B, N, C]. weight: of each edge, or of
 * each of H groups of columns, f32 [B, E, H]; BY_NONE: 1. */
BY_API by_value by_sparse_matmul(by_graph *graph, by_value x, by_value weight,
                                 const by_edges *edges);
/* Their largest entry column by column; 0 where no edge ends. */
BY_API by_value by_sparse_max(by_graph *graph, by_value x, const by_edges *edges);
/* Weights of the edges that end in a node, f32 [B, E, H], whose sum is 1: the softmax of
 * leaky_relu(source + target) with this slope, from f32 [B, M, H] of the nodes that edges come from
 * and [B, N, H] of those that they end in (Velickovic et al. 2018). */
BY_API by_value by_edge_attention(by_graph *graph, by_value source, by_value target,
                                  const by_edges *edges, float slope);

/* ---- weights ---- */

/* The weight of a product, f32 [k, n] or, with out_in, [n, k], rounded to the values of a packing's
 * codes (INT8 or INT4, of these sizes), with a straight-through gradient (Bengio et al. 2013). */
BY_API by_value by_fake_quantize(by_graph *graph, by_value weight, const by_packing *packing,
                                 bool out_in);

/* ---- losses: f32 [1], sums that the caller divides by the number of examples ---- */

/* Sum over rows of the cross-entropy of softmax(logits [..., C]) with targets i32 [...]; rows with
 * a negative target do not count. `smoothing` in [0, 1) is the share of the target spread over all
 * classes (Szegedy et al. 2016), as in torch.nn.CrossEntropyLoss. */
BY_API by_value by_cross_entropy(by_graph *graph, by_value logits, by_value targets,
                                 float smoothing);
/* The same with each row's term multiplied by its weight, f32 [...]. */
BY_API by_value by_weighted_cross_entropy(by_graph *graph, by_value logits, by_value targets,
                                          by_value weights, float smoothing);
/* The soft Dice loss of a segmentation, logits [B, ..., C] with targets i32 [B, ...], negative
 * where there is none (Milletari et al. 2016): of each sample the mean over the classes of 1 -
 * Dice, times its number of targets. `smooth` is added to both sides of the quotient. */
BY_API by_value by_dice(by_graph *graph, by_value logits, by_value targets, float smooth);
/* Sum over elements of (x - targets)^2. x is f32, bf16 or f16 [..., C], targets f32 of the same
 * shape. `weights` [...], one per row: f32 factors, or i32 such as targets of another loss, where
 * rows with a negative value do not count, or BY_NONE. */
BY_API by_value by_squared_error(by_graph *graph, by_value x, by_value targets, by_value weights);
/* Like by_squared_error with the loss of torch.nn.SmoothL1Loss (Huber 1964, divided by beta): for
 * d = |x - target|, d^2 / (2 beta) if d < beta, else d - beta / 2. */
BY_API by_value by_smooth_l1(by_graph *graph, by_value x, by_value targets, by_value weights,
                             float beta);
/* The negative log-likelihood of targets, f32 like a, under a distribution with parameters a and b,
 * f32, bf16 or f16 of one shape: the sum over elements of -weight log p(target). Normal: mean a and
 * deviation |b|; negative binomial: mean |a| and dispersion |b|, so that the variance is |a| +
 * |b| a^2. Magnitudes below 1e-5 count as that. `weights` f32 like a, or BY_NONE. */
BY_API by_value by_likelihood(by_graph *graph, by_value a, by_value b, by_value targets,
                              by_value weights, by_density density);
/* Sum over rows with target >= 0 of the cross-entropy of softmax(x w^T), without storing the
 * logits. x is [..., C], weight [V, C], targets i32 [...]. */
BY_API by_value by_linear_cross_entropy(by_graph *graph, by_value x, by_value weight,
                                        by_value targets);
/* The same with each row's term multiplied by its weight, f32 [...]; rows of weight 0 do not
 * count, whatever their logits. */
BY_API by_value by_weighted_linear_cross_entropy(by_graph *graph, by_value x, by_value weight,
                                                 by_value targets, by_value weights);
/* The same row by row, f32 like targets: the cross-entropy of each row with target >= 0, and 0 for
 * the others. */
BY_API by_value by_linear_token_loss(by_graph *graph, by_value x, by_value weight,
                                     by_value targets);
/* The predictions of a teacher for each row: either its hidden state [..., D] and head [V, D] in
 * the student's dtype; or ids i32 [..., k] of k distinct tokens and f32 [..., k + 1], their
 * log-probabilities at the loss's temperature and, last, that of all other tokens together. Unused
 * members are BY_NONE. */
typedef struct by_teacher {
    by_value hidden;
    by_value head;
    by_value ids;
    by_value logarithms;
} by_teacher;
/* Sum over rows with target >= 0 of (1 - share) CE + share temperature^2 KL(teacher || student) of
 * softmax(x w^T) (Hinton, Vinyals and Dean 2015). temperature > 0, share in [0, 1]. If the teacher
 * gives only the probabilities of some tokens, all others count as one event in both models: by the
 * log-sum inequality this divergence is at most that over all tokens, with equality if there are no
 * others or the models agree on their relative probabilities. */
BY_API by_value by_linear_distill(by_graph *graph, by_value x, by_value weight, by_value targets,
                                  const by_teacher *teacher, float temperature, float share);

/* ---- collectives of ranks ----
 *
 * `mesh` is a set of mesh axes (bit i: axis i of by_mesh_axis, never empty), `ranks` the product of
 * their sizes: the ranks that differ only in these axes take part, and all must run the collectives
 * of a graph in the same order. With one rank each function returns x and adds nothing. The result
 * is ready to use: each function adds the start of the collective and the wait for it, which
 * by_pass_overlap moves apart so that computation hides the communication.
 *
 * An axis is divided among the ranks into contiguous pieces in rank order: extent / ranks entries
 * each, the first extent % ranks ranks one more; no piece may be empty. */

/* Sum of the ranks' x (f32, bf16, f16 or i32) in the order of the sum tree whose leaves are the
 * ranks. Its gradient is passed through unchanged, because what follows is the same on every rank
 * (g of Megatron-LM, Shoeybi et al. 2019, section 3). */
BY_API by_value by_all_reduce(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);
/* x, which is the same on every rank. Its gradient is the sum of the ranks' gradients (f of
 * Megatron-LM). For operands of work that is divided among the ranks. */
BY_API by_value by_replicate(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);
/* All `extent` entries of an axis, of which x holds this rank's. Its gradient is a reduce-scatter,
 * because the ranks use the entries for different work. */
BY_API by_value by_all_gather(by_graph *graph, by_value x, int axis, int64_t extent, uint32_t mesh,
                              int64_t ranks);
/* This rank's entries of an axis of the sum of the ranks' x; `rank` is its position in the group.
 * Its gradient is an all-gather. */
BY_API by_value by_reduce_scatter(by_graph *graph, by_value x, int axis, uint32_t mesh,
                                  int64_t ranks, int64_t rank);
/* x [..., E of `axis`, ..., F of `to`, ...] becomes [..., E / ranks, ..., F ranks, ...]: entries of
 * `axis` are distributed over the ranks, and those received are concatenated along `to` in rank
 * order. ranks divides E, and F is the same on every rank. The gradient is the inverse exchange. */
BY_API by_value by_all_to_all(by_graph *graph, by_value x, int axis, int to, uint32_t mesh,
                              int64_t ranks);
/* The x of the previous rank in a ring. Its gradient takes ranks - 1 steps. */
BY_API by_value by_ring_shift(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks);

#ifdef __cplusplus
}
#endif
#endif
