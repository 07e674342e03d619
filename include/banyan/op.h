/* Operations: the vocabulary of graphs, implemented by kernels.
 *
 * Notation: [..., C] is a tensor whose leading axes are flattened to R rows. B is the batch size, T
 * the sequence length, H query heads, K key/value heads, D head width, V vocabulary size. "act" is
 * f32, bf16 or f16. "x?" is an optional input, BY_NONE if absent (NULL data in kernels). "x*" is
 * updated in place, see below.
 *
 *   op                inputs                                outputs
 *   MATMUL            a, b, bias?[N], add?                  y = op(a) op(b) + bias + add
 *     a and b are flattened to 2-D [rows, last]; trans_a / trans_b transpose them. y is
 *     [lead(a)..., N], or [M, N] with trans_a. bias f32 or act; add has y's shape and dtype.
 *     y's dtype is attrs.dtype.
 *   CONV              x [B, H, W, C],                       y [B, H', W', O] of dtype attrs.dtype
 *                     w [O, C / groups, h, w], bias? [O],
 *                     add? like y
 *     y[b, i, j, o] = bias[o] + add + sum over r, s, c of w[o, c, r, s] x[b, i', j', c'], where
 *     (i', j') is entry (r, s) of the window (attrs.sliding) at (i, j), and c' is c in the group of
 *     o: channels and outputs are divided into attrs.groups equal groups. x is zero outside.
 *   CONV_TRANSPOSED   x [B, H, W, O],                       y [B, H', W', C] of dtype attrs.dtype
 *                     w [O, C / groups, h, w], bias? [C],
 *                     add? like y
 *     The transposed linear map of CONV with the same attributes, from its results to its operand,
 *     plus bias and add: H' = (H - 1) stride - before - after + dilation (h - 1) + 1. With a
 *     larger `after` in CONV, rows of its operand that no window reaches are left out.
 *   CONV_WEIGHT_GRAD  x [B, H, W, C], dy [B, H', W', O]     dw [O, C / groups, h, w] of dtype
 *                                                           attrs.dtype, with h and w of the window
 *   SUM_ROWS          x [..., C]                            y [C] f32: sum over attrs.lead leading
 *                                                           axes (0: all but the last)
 *   ADD, SUB, MUL     a, b (broadcast: aligned at the last  y: the broadcast shape, a's dtype
 *                     axis, extents equal or 1; b of a's
 *                     dtype or f32)
 *   SCALE             x, s [1] f32                          y = x * s, like x
 *   CAST              x                                     y, dtype attrs.dtype
 *   UNARY             x                                     y = f(x), f = attrs.function
 *   UNARY_GRAD        x, dy                                 dx = dy * f'(x)
 *   SWIGLU            gate, up                              y = silu(gate) * up (Shazeer 2020)
 *   SWIGLU_GRAD       gate, up, dy                          dgate, dup
 *   LAYER_NORM        x [..., C], w [C] f32, b [C] f32      y like x, mean [R] f32, rstd [R] f32
 *   LAYER_NORM_GRAD   x, w, mean, rstd, dy, add?            dx (+ add), dw [C] f32, db [C] f32
 *   RMS_NORM          x [..., C], w [C] f32                 y like x, rstd [R] f32
 *   RMS_NORM_GRAD     x, w, rstd, dy, add?                  dx (+ add), dw [C] f32
 *   BATCH_NORM        x [..., C], w [C] f32, b [C] f32,     y like x, mean [C] f32, variance [C]
 *                     add? like x                           f32 (divisor R)
 *     Each column is normalized with its mean and variance over the R rows, at least 2, then
 *     multiplied by w; b and add are added. With attrs.rectify, y is at least 0 and, if attrs.clip
 *     is not 0, at most that.
 *   BATCH_NORM_GRAD   x, w, b, mean, variance, dy           dx, dw [C] f32, db [C] f32
 *     Of BATCH_NORM without add.
 *   AFFINE            x [..., C], scale [C] f32, shift [C]  y = x scale + shift + add, with
 *                     f32, add? like x                      attrs.rectify as above
 *   GROUP_NORM        x [B, ..., C], w [C] f32, b [C] f32   y like x, mean [B, G] f32, rstd [B, G]
 *                                                           f32
 *     The channels of each sample are divided into G = attrs.groups equal groups of neighbours;
 *     each is normalized with its mean and variance over all its elements, then multiplied by w; b
 *     is added.
 *   GROUP_NORM_GRAD   x, w, mean, rstd, dy                  dx, dw [C] f32, db [C] f32
 *   LSTM              x [B, T, C], w [4 H, C], u [4 H, H],  y [B, T, H] like x, gates [B, T, 4 H]
 *                     b [4 H] f32, a [4 H] f32              f32, cells [B, T, H] f32
 *     A layer of long short-term memory (Hochreiter and Schmidhuber 1997) from states of zeros, as
 *     torch.nn.LSTM: with z = w x_t + b + u y_(t-1) + a in quarters i, f, g, o of H, gates are
 *     sigmoid(i), sigmoid(f), tanh(g) and sigmoid(o); c_t = f c_(t-1) + i g, y_t = o tanh(c_t).
 *     y_(t-1) is not rounded.
 *   LSTM_GRAD         gates, cells, u, dy                   dz [B, T, 4 H] like dy
 *   GRU               x [B, T, C], w [3 H, C], u [3 H, H],  y [B, T, H] like x, gates [B, T, 4 H]
 *                     b [3 H] f32, a [3 H] f32              f32
 *     A layer of gated recurrent units (Cho et al. 2014), as torch.nn.GRU: with v = w x_t + b and
 *     q = u y_(t-1) + a in thirds, gates are r = sigmoid(v_1 + q_1), z = sigmoid(v_2 + q_2),
 *     n = tanh(v_3 + r q_3), and q_3; y_t = (1 - z) n + z y_(t-1).
 *   GRU_GRAD          gates, y, u, dy                       dv, dq [B, T, 3 H] like dy
 *   POOL              x [B, H, W, C]                        y [B, H', W', C]: the largest entry of
 *                                                           each window
 *     or, with attrs.mean, the mean, in which padding counts as zeros with attrs.keep. Windows
 *     (attrs.sliding) are not dilated, and each contains a part of x.
 *   POOL_GRAD         x?, dy [B, H', W', C]                 dx of attrs.shape
 *     x for the largest entry, of several equal ones the first; not for the mean.
 *   UPSAMPLE          x [B, H, W, C]                        y [B, H', W', C] = attrs.shape
 *     y[i, j] is x[i', j'] with i' = floor(i H / H'), or, with attrs.linear, bilinear interpolation
 *     at i' = (i + 1/2) H / H' - 1/2, not below 0 and not above H - 1; j' likewise.
 *   UPSAMPLE_GRAD     dy [B, H', W', C]                     dx of attrs.shape
 *   OFFSET_IDS        ids i32 (any shape)                   ids - attrs.begin, negative ids as -1
 *     Converts ids of a table of attrs.rows rows to those of the slice of it that begins at row
 *     attrs.begin. Ids outside the slice are out of its range, and EMBEDDING and EMBEDDING_GRAD
 *     skip them.
 *   EMBEDDING         ids i32 [...], table [V, C]           y [..., C] like table
 *   EMBEDDING_GRAD    ids, dy [..., C], base? [V, C] f32    dtable [V, C] f32 = base + scattered dy
 *   POSITION          x [B, T, C], table [T', C], T <= T'   y = x + table[attrs.begin + t],
 *                                                           like x
 *     Here, in the next two and for the elements of a sample in DROPOUT, t is increased by
 *     attrs.gap from entry attrs.turn of x on.
 *   POSITION_GRAD     dy [B, T, C]                          dtable [T', C] f32 (T' = attrs.rows):
 *                                                           zero except for the T rows
 *   ROPE              x [B, T, H*D], position i32 [1] or    y: rotate-half rotary embedding (Su et
 *                     i32 [B, T]?                           al. 2021) at position + attrs.begin + t
 *     With position [B, T], at each row's own position. Angles are by_rotation_of(attrs), heads
 *     attrs.heads; attrs.inverse rotates backward, which is the gradient.
 *   ATTENTION         qkv [B, T, (H + 2K) * D] (packed),    y [B, T, H*D], lse [B, H, T] f32
 *                     or q [B, T, H*D], k, v [B, T, K*D];   scale 1/sqrt(D); query head h uses
 *                     lengths? i32 [B] (fourth operand),    key/value head h / (H / K)
 *                     starts? i32 [B, T] (fifth)
 *     Causal, or over all keys with attrs.bidirectional. Only the first lengths[b] rows (in 0 .. T)
 *     of sample b exist: later keys are not read, and y, lse and all gradients are zero there.
 *     Causal attention may have a lower limit: query t reads keys from the maximum of 0,
 *     t - attrs.window + 1 (window 0: no limit) and starts[b, t] on, but always its own. With
 *     attrs.bidirectional a window has two sides: keys up to t + attrs.window - 1. Blocks of keys
 *     that no query of a tile reads cost nothing.
 *     With attrs.slopes (ALiBi, Press et al. 2022), head h adds -m |t - s| to the score of query t
 *     and key s, where m is by_attention_slope of head attrs.begin + h of attrs.slopes heads; so in
 *     the next ops of attention.
 *   ATTENTION_GRAD    (qkv | q, k, v[, lengths[, starts]]), dqkv | dq, dk, dv
 *                     y, lse, dy
 *   ATTENTION_MERGE   y_0, lse_0, y_1, lse_1 f32            y, lse
 *     Attention over the union of two sets of keys from its results for each; H = attrs.heads.
 *   LINEAR_ATTENTION  qkv, or q, k, v; lengths?, as for     y [B, T, H*D]
 *                     ATTENTION                             y[t] = sum of w(t, s) v[s] over keys s
 *                                                           / (sum of w(t, s) + 1e-6)
 *     with w(t, s) = f(q[t]) . f(k[s]), f(x) = elu(x) + 1 (Katharopoulos et al. 2020). Causal, or
 *     over all keys with attrs.bidirectional; lengths as there.
 *   LINEAR_ATTENTION_GRAD  (qkv | q, k, v[, lengths]), dy   dqkv | dq, dk, dv
 *   CARRIED_LINEAR_ATTENTION  (qkv | q, k, v), sums* f32    y [B, T, H*D]: causal LINEAR_ATTENTION
 *                     [S, K, D, C], positions i32 [1] or    whose sums over keys continue those of
 *                     i32 [T], sessions i32 [T]?            earlier runs
 *     sums[s, h] is the sum of f(k) (v, 1)^T over the tokens of session s so far, its columns from
 *     D + 1 on zeros; C = BY_SUM_COLUMNS(D). A row at position 0 starts from zeros. Without
 *     sessions, sample b is session b (S = B), and its rows are at positions[0] and on. With
 *     sessions B = 1: row t is the token at positions[t] of session sessions[t], whose rows follow
 *     each other in order; at position -1 it is none, and y is zero. The bits of a row do not
 *     depend on rows of other sessions, nor on how the tokens are divided among runs.
 *   CACHED_ATTENTION  (qkv | q, k, v), k_cache*, v_cache*   y [B, T, H*D]
 *                     [B, K, S, D], position i32 [1]
 *     Writes k and v of the T new tokens into the caches at position .. position + T - 1, then
 *     attends over all positions so far, or the last attrs.window.
 *   PAGED_ATTENTION   (qkv | q, k, v) with B = 1,           y [1, T, H*D]
 *                     k_pool*, v_pool* [pages, K, P, D],
 *                     positions i32 [T], sessions i32 [T],
 *                     table i32 [sessions, pages of one]
 *     P = BY_PAGE_TOKENS. Row t is the token at positions[t] of session sessions[t], whose token at
 *     position p is in page table[session][p / P], slot p % P. First the keys and values of all
 *     rows are written to their pages; then each row attends to its session's keys up to its own,
 *     or the last attrs.window of them (0: all), in the order of positions. The bits of a row
 *     depend on nothing else. A row with a negative position writes and reads nothing, and its y is
 *     zero.
 *   DROPOUT           x [B, ...], rng i32 [4]               y = mask * x / (1 - p), p = attrs.p
 *     rng = {seed low, seed high, step, index of the first sample}. The mask of an element is a
 *     function of (seed, attrs.stream, step, sample, position in the sample) only; the gradient is
 *     the same op on dy. attrs.rows is the index of x's first sample if x has some of the samples,
 *     attrs.begin the position of its first element if it is a slice of each.
 *   LINEAR_CROSS_ENTROPY        x [..., C], w [V, C], targets i32 [...]   loss [1] f32, lse [R] f32
 *                               (, weights f32 [...])
 *     Sum over rows with target >= 0 of logsumexp(x w^T) - (x w^T)[target], times the row's weight;
 *     rows of weight 0 do not count. Logits exist only for a chunk of rows at a time.
 *   LINEAR_CROSS_ENTROPY_GRAD   x, w, targets, lse, dloss [1] f32         dx like x, dw [V, C] f32
 *                               (, logits? [R, V] f32: x w^T, to avoid recomputing it, weights)
 *   LINEAR_CROSS_ENTROPY_TRAIN  x, w, targets, dloss [1] f32          loss, dx, dw in one pass
 *                               (, weights)
 *     With attrs.rows (GRAD only), targets refer to a vocabulary of attrs.rows entries, of which w
 *     is the slice that begins at attrs.begin.
 *   LINEAR_TOKEN_LOSS           x [..., C], w [V, C], targets i32 [...]   losses f32 like targets,
 *                                                                         lse [R] f32
 *     The terms of the sum of LINEAR_CROSS_ENTROPY: for each row with target >= 0 its own loss, for
 *     others 0.
 *   LINEAR_CROSS_ENTROPY_PART   x, w, targets                parts [2, R] f32, logits [R, V] f32
 *     For each row, logsumexp(x w^T) over the slice w, and the logit of the target, 0 if it is not
 *     in the slice; attrs.begin and attrs.rows as above. logits only with attrs.keep.
 *   CROSS_ENTROPY_COMBINE       parts [2 n, R] f32, targets i32           loss [1] f32, lse [R] f32
 *                               (, weights)
 *     As LINEAR_CROSS_ENTROPY, from the concatenated parts of n slices that make up the whole
 *     vocabulary of attrs.rows entries.
 *   LINEAR_DISTILL    x [..., C], w [V, C], targets i32     loss [1] f32
 *                     [...], and from the teacher either
 *                     x'? [..., D], w'? [V, D], or
 *                     ids? i32 [..., k],
 *                     logarithms? f32 [..., k + 1]
 *     Sum over rows with target >= 0 of (1 - a) CE + a T^2 KL(q || p) (Hinton et al. 2015), with
 *     a = attrs.p and T = attrs.theta: CE = logsumexp(z) - z[target] for z = x w^T, and
 *     p = softmax(z / T). q is softmax(z' / T) for z' = x' w'^T, or given by its logarithms for k
 *     tokens and, last, for all others together, which then count as one event in p as well. Logits
 *     exist only for a chunk of rows at a time. There is no gradient for the teacher.
 *   LINEAR_DISTILL_GRAD   as above, dloss [1] f32           dx like x, dw [V, C] f32
 *   LINEAR_DISTILL_TRAIN  as above, dloss [1] f32           loss, dx, dw in one pass
 *   ROUTER            logits f32 [..., E]                   weight f32 [..., k], index i32
 *                                                           [..., k], mass f32 [E]
 *     Of a mixture of experts: the k = attrs.chosen largest logits of each row in descending order,
 *     ties by index. weight is the softmax over these, mass the sum over rows of the softmax over
 *     all.
 *   ROUTER_GRAD       logits, index, dweight?, dmass?       dlogits
 *   GROUP             ids i32 [...]                         slot i32 like ids, member i32 [S],
 *                                                           range i32 [G blocks, 2]
 *     Sorts entries i = 0, 1, ... of ids by their group ids[i] in [0, G), G = attrs.rows, keeping
 *     the order within a group: group g has rows range[g][0] .. range[g][1] - 1 of S, entry i is in
 *     row slot[i], and row s has entry member[s]. attrs.capacity 0: groups follow each other, and S
 *     is the number of entries. Otherwise group g begins at row g * capacity; entries for which it
 *     has no room get slot -1, rows without an entry member -1. attrs.blocks (0: 1; more only with
 *     a capacity): the entries are cut into that many equal contiguous blocks, and each group has a
 *     range and `capacity` rows for each block.
 *   COUNT_IDS         ids i32 [...]                         y f32 [attrs.rows]: count of each id
 *   SCATTER_ROWS      x [..., C], slot i32 [..., k],        y [S, C] like x: row s is the row of x
 *                     member i32 [S], weight? f32 [..., k]  that entry member[s] belongs to, times
 *                                                           its weight; zeros for -1
 *   GATHER_ROWS       x [S, C], slot i32 [..., k],          y [..., C] like x: the sum of the rows
 *                     member i32 [S], weight? f32 [..., k]  in the k slots, times their weights
 *     slot and member are those of GROUP; slot is needed for the gradient of SCATTER_ROWS, member
 *     for that of GATHER_ROWS.
 *   ROW_DOTS          a [..., C], b [S, C],                 y f32 [..., k]: dot products of a's row
 *                     slot i32 [..., k]                     with row slot of b
 *   SPARSE_MATMUL     x [B, M, C], offsets i32 [B, N + 1],  y [B, N, C] like x: row n is the sum
 *                     sources i32 [B, E], edges? i32        over entries k = offsets[n] ..
 *                     [B, E], w? f32 [B, E, H],             offsets[n + 1] - 1 of
 *                     back_offsets i32 [B, M + 1],          x[sources[k]] w[edges[k]]
 *                     back_sources i32 [B, E],
 *                     back_edges? i32 [B, E]
 *     The product of a sparse matrix in rows (CSR) with x: a sum over the edges that end in node n.
 *     An entry is edge edges[k], or edge k without edges; w has a weight for each of H equal groups
 *     of neighbouring columns, 1 if it is absent. Sources out of range, and entries from offsets[N]
 *     on, add nothing. The operands named back_ are the transposed matrix in the same form, which
 *     the gradient reads: sums have the order of the entries, on any number of threads. With w,
 *     edges or back_edges is absent: the edges of w are in the order of that matrix's entries.
 *   EDGE_DOTS         a [B, N, C], b [B, M, C] like a,      y f32 [B, E, H]: for entry k of row n
 *                     offsets i32 [B, N + 1],               the dot products of a[n] and
 *                     sources i32 [B, E]                    b[sources[k]] in each of attrs.heads
 *                                                           groups of columns; else 0
 *   EDGE_SUM          v f32 [B, E, H], offsets i32          y f32 [B, N, H]: row n is the sum of
 *                     [B, N + 1], edges? i32 [B, E]         entries of v that are edges[k], or k
 *   EDGE_ATTENTION    s f32 [B, M, H], d f32 [B, N, H],     y f32 [B, E, H]: the softmax over the
 *                     offsets i32 [B, N + 1],               entries k of row n of
 *                     sources i32 [B, E],                   l(s[sources[k]] + d[n]); l(z) = z if
 *                     back_offsets i32 [B, M + 1],          z > 0, else attrs.value z; else 0
 *                     back_edges i32 [B, E]
 *   EDGE_ATTENTION_GRAD   s, d, offsets, sources, y, dy     de f32 [B, E, H], dd like d
 *     de is the gradient of the sum s + d at each entry.
 *   SPARSE_MAX        x [B, M, C], offsets i32 [B, N + 1],  y [B, N, C] like x: the largest
 *                     sources i32 [B, E],                   x[sources[k]] of the entries of row n,
 *                     back_offsets i32 [B, M + 1],          column by column, 0 without entries;
 *                     back_sources i32 [B, E],              entry i32 [B, N, C]: which one it is,
 *                     back_edges i32 [B, E]                 the first of equal ones, or -1
 *   SPARSE_MAX_GRAD   dy, entry, back_offsets,              dx [B, M, C] like dy
 *                     back_sources, back_edges
 *   GROUPED_MATMUL    a [R, K], b [E, K, N] or [E, N, K]    y [R, N]: rows range[g][0] ..
 *                     with attrs.trans_b,                   range[g][1] - 1 of a times matrix
 *                     range i32 [G, 2]                      g E / G of b; zeros in other rows
 *     Ranges do not overlap. With attrs.capacity, range g is the first range[g][1] - range[g][0]
 *     rows from g * capacity on, whatever range[g][0] is. y's dtype is attrs.dtype. attrs.chosen:
 *     matrices that an example meets, for counting its FLOPs.
 *   GROUPED_MATMUL_GRAD   a [R, M], b [R, N],               y [E, M, N]: a^T b over the rows of the
 *                     range i32 [G, 2]                      ranges of each of E = attrs.rows
 *     y is f32 if G > E.
 *   CROSS_ENTROPY     logits [..., C], targets i32 [...],    loss [1] f32, lse [R] f32
 *                     w? f32 [R]
 *     Sum over rows with target in [0, C) of w (lse - (1 - e) logits[target] - e mean(logits)),
 *     with e = attrs.smoothing (label smoothing, Szegedy et al. 2016); computed in f32.
 *   CROSS_ENTROPY_GRAD  logits, targets, lse, dloss [1] f32, w?  dlogits like logits
 *   DICE              logits [B, ..., C], targets i32       loss [1] f32, sums [B, 3, C] f32
 *                     [B, ...]
 *     With p = softmax(logits), over the n rows of a sample whose target is in [0, C): sums are,
 *     for each class, that of p over the rows of the class, that of p over all rows, and the number
 *     of rows of the class. The loss is the sum over samples of n times the mean over classes of
 *     1 - (2 sums[0] + e) / (sums[1] + sums[2] + e), e = attrs.eps (Milletari et al. 2016).
 *   DICE_GRAD         logits, targets, sums, dloss [1] f32  dlogits like logits
 *   SQUARED_ERROR     x [..., C], t f32 like x, w? f32 [R]      loss [1] f32 = sum of w (x - t)^2
 *   SMOOTH_L1         x, t, w?                              loss [1] f32 = sum of w l(x - t)
 *     l(d) = d^2 / (2 beta) if |d| < beta, else |d| - beta / 2; beta = attrs.beta, 0 gives |d|.
 *   SQUARED_ERROR_GRAD, SMOOTH_L1_GRAD
 *                     x, t, w?, dloss [1] f32               dx like x
 *   LIKELIHOOD        a, b like a, t f32 like a, w? f32     loss [1] f32: minus the sum of
 *                     like a                                w log p(t)
 *     attrs.density says which distribution p is: the normal one of mean a and deviation |b|, or
 *     the negative binomial one of mean |a| and variance |a| + |b| a^2, where t below 0 counts as 0
 *     and factorials of t as gamma functions. Magnitudes below 1e-5 count as that.
 *   LIKELIHOOD_GRAD   a, b, t, w?, dloss [1] f32            da, db like a
 *   FILL              none                                  y attrs.shape, attrs.dtype: attrs.value
 *   RESHAPE           x                                     y attrs.shape, as many elements
 *   PERMUTE           x                                     y: axis i is x's axis attrs.order[i]
 *   CONCAT            two to eight tensors that differ      y: concatenated along attrs.axis
 *                     only in the extent of attrs.axis
 *   SLICE             x                                     y: attrs.rows entries of attrs.axis
 *                                                           from attrs.begin on
 *   PAD               x                                     y: x at attrs.begin in attrs.rows
 *                                                           entries of attrs.axis, zeros elsewhere
 *   EXPAND            x (broadcast to attrs.shape)          y attrs.shape
 *   SUM               x                                     y: x summed over the set of axes
 *     attrs.axes (bit i: axis i), which are dropped, or kept with extent 1 with attrs.keep; divided
 *     by the number of terms with attrs.mean; f32 with attrs.wide, else like x.
 *   SOFTMAX           x [..., C]                            y like x: softmax over the last axis,
 *                                                           its logarithm with attrs.logarithm
 *   SOFTMAX_GRAD      y, dy                                 dx like y
 *   SUM_SQUARES       x f32 (any shape)                     y [ceil(elements / BY_SUM_BLOCK)] f32
 *     The sum of squares of each BY_SUM_BLOCK consecutive elements. A process that holds a part of
 *     x starting at a block boundary gets the same sums for its blocks as one that holds all of x.
 *   MEASURE           x, y? like x                          m [blocks, BY_MEASURES] f32
 *     For each BY_SUM_BLOCK consecutive elements of x: the sum, the sum of squares, the number of
 *     zeros, the largest magnitude, the sum of squares of x - y (0 without y), and the number of
 *     infinities and NaNs; see BY_MEASURE_SUM.
 *   ENCODE8           x [..., C] act                        codes u8 like x, scale f32 [R, blocks]
 *     Quantizes blocks of BY_ROW_CODE_BLOCK consecutive elements of a row (the last one may be
 *     shorter): scale is the largest magnitude / 127, codes are 128 + x / scale rounded to nearest,
 *     ties to even. A block whose largest magnitude is below 2^-118 has scale 0; one with an
 *     element that is not finite has a scale that is not.
 *   FAKE_QUANTIZE     w f32 [k, n], or with trans_b         y like w, dtype attrs.dtype
 *                     [n, k] or a stack [E, n, k]
 *     w rounded to the values of the codes of attrs.packing (INT8 or INT4, banyan/packing.h; 8-bit
 *     codes in [-127, 127]); a group with a weight that is not finite becomes NaN. Its gradient is
 *     that of y (straight-through).
 *   DECODE8           codes u8 [..., C],                    y like codes, dtype attrs.dtype:
 *                     scale f32 [R, blocks]                 (codes - 128) scale
 *   CLIP_SCALE        failed* [1], losses? [n],             norm [1], scale [1] =
 *                     factor? [1], squares [k]              min(1, attrs.clip / (norm + 1e-6)),
 *                     (any number of them)                  or 1 if attrs.clip is 0
 *     norm is the square root of the sum of all squares. Both outputs are divided by factor, by
 *     which the loss was multiplied, norm before clipping. If norm or a loss is not finite, failed
 *     becomes 1; while failed is not 0, scale is NaN, and an update with a scale that is not finite
 *     changes nothing.
 *   ADAMW             p* f32, g f32, m* f32, v* f32,        copy? bf16 or f16: p rounded, if the
 *                     hyper f32 [3..], scale f32 [1]        output exists
 *     hyper = {lr, 1 - beta1^t, 1 - beta2^t, ...}; g is multiplied by scale first; attrs.beta1,
 *     beta2, eps, decay (decoupled: p -= lr * decay * p before the update; Loshchilov and Hutter
 *     2019), lr_scale (if not 0, lr is lr_scale * hyper[0]).
 *   ADAMW8            p* f32, g f32, m* u8, v* u8,          copy? as ADAMW
 *                     scale of m* f32 [blocks], scale of
 *                     v* f32 [blocks], hyper, scale
 *     ADAMW with 8-bit moments: per block of BY_CODE_BLOCK consecutive elements, each moment is a
 *     code for a number in [-1, 1] times the largest magnitude of its block (Dettmers et al. 2022).
 *     The update uses the moments before they are rounded.
 * !
 *   PACKED_MATMUL     a [..., k], w u8, bias?[n], add?      y [..., n] = a w + bias + add
 *     w is a weight of k inputs and n outputs, packed as attrs.packing (banyan/packing.h), a of
 *     that packing's dtype; otherwise as MATMUL. A row of y has the same bits regardless of other
 *     rows. With INT8 and INT4, each block of a row of a (128 inputs, or a group) is multiplied as
 *     integers of magnitude up to 32639 times a scale.
 *   PACKED_GROUPED_MATMUL   a [R, k], w u8,                 y [R, n]: as GROUPED_MATMUL, with a
 *                     range i32 [G, 2]                      stack of packed matrices
 *   PACKED_EMBEDDING  ids? i32 [...], w u8                  y [..., k] attrs.dtype: for each id (no
 *                                                           ids: each output) its inputs in w
 * !
 *   MAP               up to 8: act of one shape, some *, and    up to 3: act of that shape
 *                     f32 of any shape, read as scalars
 *     attrs.map computes element by element in f32: banyan/map.h.
 *
 * Collectives are run, in the same order, by all attrs.ranks ranks that differ only in the mesh
 * axes of the set attrs.mesh (bit i: axis i of by_mesh_axis). An axis of E entries is divided among
 * the ranks into contiguous pieces in rank order: E / ranks entries each, the first E % ranks ranks
 * one more. A collective starts at its node. Its result may be read, and its operands overwritten,
 * only after the WAIT for it.
 *
 *   ALL_REDUCE        x act or i32                          y like x: the sum of the ranks' x
 *   ALL_GATHER        x: this rank's entries of attrs.axis  y: all attrs.rows entries of the axis
 *   REDUCE_SCATTER    x act or i32                          y: this rank's entries of attrs.axis
 *                                                           (attrs.rows of them) of the sum of the
 *                                                           ranks' x
 *   ALL_TO_ALL        x                                     y: each rank's part of this rank's
 *     entries of attrs.axis, concatenated along attrs.to in rank order. Both axes are divided
 *     equally.
 *   RING_SHIFT        x                                     y: the x of the previous rank; the
 *                                                           first gets that of the last
 *   REDUCE_GRADIENTS  any number of f32, * with             done [1] f32, without meaning
 *                     attrs.in_place
 *     Signals that the gradients of bucket attrs.bucket are complete: whoever runs the graph
 *     exchanges attrs.rows entries of them; 0: all.
 *   GATHER_PARAMETER  none                                  y attrs.shape, attrs.dtype
 *     The graph's parameter number attrs.bucket, of which each rank holds a part: whoever runs the
 *     graph gathers it. Zeros if nobody does.
 *   WAIT              y: a collective's result; operands    z = y
 *                     of it
 *     Operands after the first are not read; they keep their memory until here.
 *   REPLICATE         x, the same on all ranks              y = x; the gradient is the sum of the
 *                                                           ranks' gradients
 *
 * Inputs marked * must be graph inputs, parameters or state. Another node may read such a value
 * only if its result feeds the update, as a norm of the parameter does; it then reads the old value
 * whatever the order of the nodes.
 */
#ifndef BANYAN_OP_H
#define BANYAN_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/packing.h"
#include "banyan/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maximum number of results of a node. */
#define BY_MAX_OUTPUTS 3
/* Tokens in a page of keys and values. */
#define BY_PAGE_TOKENS 16
/* Bytes of a token's scale per head in a pool of 8-bit codes. */
#define BY_PAGE_SCALE 4
/* Columns of the sums of linear attention over heads of `width`. */
#define BY_SUM_COLUMNS(width) (((width) + 16) / 16 * 16)
/* Elements of a partial sum; sums that ranks share are divided at multiples of it. */
#define BY_SUM_BLOCK 16384
/* Elements that share a scale in ADAMW8. */
#define BY_CODE_BLOCK 256
/* Elements of a row that share a scale in ENCODE8. */
#define BY_ROW_CODE_BLOCK 128

/* Columns of what MEASURE makes. */
enum {
    BY_MEASURE_SUM,
    BY_MEASURE_SQUARES,
    BY_MEASURE_ZEROS,
    BY_MEASURE_LARGEST,
    BY_MEASURE_APART,
    BY_MEASURE_NONFINITE,
    BY_MEASURES
};

/* All operations in the order of their numbers: X(NAME, name). Their rows in src/ops are named
 * by__op_NAME. */
#define BY_OPS(X)                                                                                  \
    X(MATMUL, matmul)                                                                              \
    X(SUM_ROWS, sum_rows)                                                                          \
    X(ADD, add)                                                                                    \
    X(SUB, sub)                                                                                    \
    X(MUL, mul)                                                                                    \
    X(SCALE, scale)                                                                                \
    X(CAST, cast)                                                                                  \
    X(UNARY, unary)                                                                                \
    X(UNARY_GRAD, unary_grad)                                                                      \
    X(SWIGLU, swiglu)                                                                              \
    X(SWIGLU_GRAD, swiglu_grad)                                                                    \
    X(LAYER_NORM, layer_norm)                                                                      \
    X(LAYER_NORM_GRAD, layer_norm_grad)                                                            \
    X(RMS_NORM, rms_norm)                                                                          \
    X(RMS_NORM_GRAD, rms_norm_grad)                                                                \
    X(OFFSET_IDS, offset_ids)                                                                      \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(POSITION, position)                                                                          \
    X(POSITION_GRAD, position_grad)                                                                \
    X(ROPE, rope)                                                                                  \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_MERGE, attention_merge)                                                            \
    X(LINEAR_ATTENTION, linear_attention)                                                          \
    X(LINEAR_ATTENTION_GRAD, linear_attention_grad)                                                \
    X(CARRIED_LINEAR_ATTENTION, carried_linear_attention)                                          \
    X(CACHED_ATTENTION, cached_attention)                                                          \
    X(DROPOUT, dropout)                                                                            \
    X(LINEAR_TOKEN_LOSS, linear_token_loss)                                                        \
    X(LINEAR_CROSS_ENTROPY, linear_cross_entropy)                                                  \
    X(LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad)                                        \
    X(LINEAR_CROSS_ENTROPY_TRAIN, linear_cross_entropy_train)                                      \
    X(LINEAR_CROSS_ENTROPY_PART, linear_cross_entropy_part)                                        \
    X(CROSS_ENTROPY_COMBINE, cross_entropy_combine)                                                \
    X(LINEAR_DISTILL, linear_distill)                                                              \
    X(LINEAR_DISTILL_GRAD, linear_distill_grad)                                                    \
    X(LINEAR_DISTILL_TRAIN, linear_distill_train)                                                  \
    X(SUM_SQUARES, sum_squares)                                                                    \
    X(CLIP_SCALE, clip_scale)                                                                      \
    X(ADAMW, adamw)                                                                                \
    X(ADAMW8, adamw8)                                                                              \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad)                                                      \
    X(SQUARED_ERROR, squared_error)                                                                \
    X(SQUARED_ERROR_GRAD, squared_error_grad)                                                      \
    X(SMOOTH_L1, smooth_l1)                                                                        \
    X(SMOOTH_L1_GRAD, smooth_l1_grad)                                                              \
    X(LIKELIHOOD, likelihood)                                                                      \
    X(LIKELIHOOD_GRAD, likelihood_grad)                                                            \
    X(FILL, fill)                                                                                  \
    X(RESHAPE, reshape)                                                                            \
    X(PERMUTE, permute)                                                                            \
    X(CONCAT, concat)                                                                              \
    X(SLICE, slice)                                                                                \
    X(PAD, pad)                                                                                    \
    X(EXPAND, expand)                                                                              \
    X(SUM, sum)                                                                                    \
    X(SOFTMAX, softmax)                                                                            \
    X(SOFTMAX_GRAD, softmax_grad)                                                                  \
    X(MAP, map)                                                                                    \
    X(ALL_REDUCE, all_reduce)                                                                      \
    X(ALL_GATHER, all_gather)                                                                      \
    X(REDUCE_SCATTER, reduce_scatter)                                                              \
    X(ALL_TO_ALL, all_to_all)                                                                      \
    X(RING_SHIFT, ring_shift)                                                                      \
    X(REDUCE_GRADIENTS, reduce_gradients)                                                          \
    X(GATHER_PARAMETER, gather_parameter)                                                          \
    X(WAIT, wait)                                                                                  \
    X(REPLICATE, replicate)                                                                        \
    X(ROUTER, router)                                                                              \
    X(ROUTER_GRAD, router_grad)                                                                    \
    X(GROUP, group)                                                                                \
    X(COUNT_IDS, count_ids)                                                                        \
    X(SCATTER_ROWS, scatter_rows)                                                                  \
    X(GATHER_ROWS, gather_rows)                                                                    \
    X(ROW_DOTS, row_dots)                                                                          \
    X(GROUPED_MATMUL, grouped_matmul)                                                              \
    X(GROUPED_MATMUL_GRAD, grouped_matmul_grad)                                                    \
    X(MEASURE, measure)                                                                            \
    X(ENCODE8, encode8)                                                                            \
    X(DECODE8, decode8)                                                                            \
    X(FAKE_QUANTIZE, fake_quantize)                                                                \
    X(PAGED_ATTENTION, paged_attention)                                                            \
    X(PACKED_MATMUL, packed_matmul)                                                                \
    X(PACKED_GROUPED_MATMUL, packed_grouped_matmul)                                                \
    X(PACKED_EMBEDDING, packed_embedding)                                                          \
    X(CONV, conv)                                                                                  \
    X(CONV_TRANSPOSED, conv_transposed)                                                            \
    X(CONV_WEIGHT_GRAD, conv_weight_grad)                                                          \
    X(BATCH_NORM, batch_norm)                                                                      \
    X(BATCH_NORM_GRAD, batch_norm_grad)                                                            \
    X(AFFINE, affine)                                                                              \
    X(POOL, pool)                                                                                  \
    X(POOL_GRAD, pool_grad)                                                                        \
    X(GROUP_NORM, group_norm)                                                                      \
    X(GROUP_NORM_GRAD, group_norm_grad)                                                            \
    X(UPSAMPLE, upsample)                                                                          \
    X(UPSAMPLE_GRAD, upsample_grad)                                                                \
    X(DICE, dice)                                                                                  \
    X(DICE_GRAD, dice_grad)                                                                        \
    X(LSTM, lstm)                                                                                  \
    X(LSTM_GRAD, lstm_grad)                                                                        \
    X(GRU, gru)                                                                                    \
    X(GRU_GRAD, gru_grad)                                                                          \
    X(SPARSE_MATMUL, sparse_matmul)                                                                \
    X(EDGE_DOTS, edge_dots)                                                                        \
    X(EDGE_SUM, edge_sum)                                                                          \
    X(EDGE_ATTENTION, edge_attention)                                                              \
    X(EDGE_ATTENTION_GRAD, edge_attention_grad)                                                    \
    X(SPARSE_MAX, sparse_max)                                                                      \
    X(SPARSE_MAX_GRAD, sparse_max_grad)

#define BY_OP_NUMBER(NAME, name) BY_OP_##NAME,
typedef enum by_op { BY_OPS(BY_OP_NUMBER) BY_OP_COUNT } by_op;
#undef BY_OP_NUMBER

/* Functions of UNARY and of maps. */
typedef enum by_function {
    /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's approximation (Hendrycks and Gimpel
     * 2016). */
    BY_FN_GELU = 0,
    BY_FN_SILU, /* x * sigmoid(x) */
    BY_FN_RELU,
    BY_FN_TANH,
    BY_FN_SIGMOID,
    BY_FN_NEGATE,   /* -x */
    BY_FN_GELU_ERF, /* 0.5 x (1 + erf(x / sqrt(2))): the exact form, as in ViT and BERT */
    BY_FN_SOFTPLUS, /* log(1 + exp(x)) */
    BY_FN_ELU,      /* x, or exp(x) - 1 below 0 (Clevert et al. 2015) */
    BY_FN_LOG_ABS,  /* log(|x|), of magnitudes below 2^-126 log(2^-126), with slope 0 */
    BY_FN_COUNT
} by_function;

/* Distributions of LIKELIHOOD. */
typedef enum by_density {
    BY_DENSITY_NORMAL = 0,
    BY_DENSITY_NEGATIVE_BINOMIAL,
    BY_DENSITY_COUNT
} by_density;

/* ---- programs of MAP, built by banyan/map.h ---- */

/* Maximum number of operands of a map. */
#define BY_MAP_MAX_INPUTS 8
/* Maximum number of steps of a map, including constants and scalars. */
#define BY_MAP_MAX_STEPS 64

/* What a step computes from its operands a, b and c. Each result is rounded to f32. */
typedef enum by_map_kind {
    BY_MAP_CONSTANT = 0,
    BY_MAP_SCALAR, /* an element of an input, the same for all elements of the result */
    BY_MAP_ADD,    /* a + b */
    BY_MAP_SUB,
    BY_MAP_MUL,
    BY_MAP_DIV,
    BY_MAP_MIN,    /* a < b ? a : b, hence b if one is NaN */
    BY_MAP_MAX,    /* a > b ? a : b */
    BY_MAP_LESS,   /* a < b ? 1 : 0 */
    BY_MAP_SELECT, /* a != 0 ? b : c */
    BY_MAP_NEGATE, /* -a */
    BY_MAP_ABS,
    BY_MAP_SIGN, /* 1, -1, or 0 if a is 0 or NaN */
    BY_MAP_SQUARE,
    BY_MAP_SQRT,
    BY_MAP_RSQRT,    /* 1 / sqrt(a), rounded twice */
    BY_MAP_FINITE,   /* 1, or 0 if a is infinite or NaN */
    BY_MAP_FUNCTION, /* a by_function of a */
    BY_MAP_KINDS
} by_map_kind;

/* One step. Operands are numbers of values: i < BY_MAP_MAX_INPUTS is input i, BY_MAP_MAX_INPUTS + k
 * is step k. */
typedef struct by_map_instruction {
    by_map_kind kind;
    int operand[3];       /* BY_MAP_SCALAR: the input and the index of its element */
    by_function function; /* BY_MAP_FUNCTION only */
    float constant;       /* BY_MAP_CONSTANT only */
} by_map_instruction;

/* A complete program, made by banyan/map.h. It belongs to the graph of its node and does not
 * change. */
typedef struct by_map_program {
    int inputs;       /* number of operands */
    int steps;        /* number of steps */
    int results;      /* number of new tensors */
    int updates;      /* number of operands updated in place */
    uint32_t scalars; /* bit i: input i is read by BY_MAP_SCALAR alone */
    by_map_instruction step[BY_MAP_MAX_STEPS];
    struct {
        int value;
        by_dtype dtype;       /* act */
    } result[BY_MAX_OUTPUTS]; /* new tensors, by_map_result */
    struct {
        int input;
        int value;
        int word;                /* 0: round to nearest; n: stochastically, with word n - 1 */
    } update[BY_MAP_MAX_INPUTS]; /* inputs that a value replaces */
    struct {
        int input; /* its element `index`, f32, is the number of the step */
        int index;
        uint32_t key[2];
        int64_t first; /* index of the map's first element in its tensor */
    } random;
} by_map_program;

/* Windows that slide over images, in height (index 0) and width (1). The window at (i, j) has
 * size[0] x size[1] entries; entry (r, s) is the pixel in row i stride[0] + r dilation[0] -
 * before[0], and in the column likewise. There are windows at as many i as fit into the image
 * with before[0] rows of padding above and after[0] below it. */
typedef struct by_window {
    int64_t size[2];     /* not read where the weights of a convolution have it */
    int64_t stride[2];   /* 1 or more, as dilation */
    int64_t dilation[2]; /* distance between neighbours in a window */
    int64_t before[2];   /* padding: rows above the image, columns to the left of it */
    int64_t after[2];    /* below, and to the right; negative: as many are left out */
} by_window;

/* Attributes of a node. An op reads the fields named in the table above and ignores the others. */
typedef struct by_attrs {
    bool trans_a;           /* MATMUL: transpose a */
    bool trans_b;           /* MATMUL, GROUPED_MATMUL, FAKE_QUANTIZE: transpose b or w */
    bool inverse;           /* ROPE: rotate backward */
    bool keep;              /* SUM: keep axes; LINEAR_CROSS_ENTROPY_PART: output logits; POOL:
                             * padding counts */
    bool mean;              /* SUM: divide by the number of terms; POOL: the mean */
    bool wide;              /* SUM: the result is f32 */
    bool logarithm;         /* SOFTMAX: the logarithm */
    bool bidirectional;     /* ATTENTION: over all keys */
    bool rectify;           /* BATCH_NORM, AFFINE: the result is at least 0 */
    bool linear;            /* UPSAMPLE: interpolates between neighbours */
    bool in_place;          /* REDUCE_GRADIENTS: updates its operands */
    by_dtype dtype;         /* of the result */
    by_function function;   /* UNARY */
    int64_t heads;          /* attention, ROPE: query heads; EDGE_DOTS: groups of columns */
    int64_t kv_heads;       /* attention: key/value heads */
    int64_t rows;           /* entries of an axis, table or vocabulary */
    int64_t lead;           /* SUM_ROWS: number of leading axes */
    int64_t begin;          /* first entry, position, row or head */
    int64_t turn;           /* positions: entry of x from which gap applies */
    int64_t gap;            /* positions: added from entry turn on */
    int64_t chosen;         /* mixture of experts: experts per token */
    int64_t capacity;       /* GROUP, grouped products: rows per group; 0: no limit */
    int64_t blocks;         /* GROUP: blocks of entries; 0: 1 */
    int64_t window;         /* attention: number of last keys; 0: all */
    int64_t slopes;         /* attention: heads that share ALiBi's slopes; 0: no slopes */
    int64_t groups;         /* convolutions, GROUP_NORM: of channels */
    by_window sliding;      /* convolutions, POOL: the window */
    by_shape shape;         /* FILL, RESHAPE, EXPAND, GATHER_PARAMETER, POOL_GRAD, UPSAMPLE */
    by_packing packing;     /* ops with packed weights, FAKE_QUANTIZE */
    int64_t axis;           /* operated on */
    int64_t density;        /* LIKELIHOOD: a by_density */
    int order[BY_MAX_RANK]; /* PERMUTE */
    uint32_t axes;          /* SUM: bit i: axis i */
    uint32_t stream;        /* DROPOUT: identifies the mask */
    uint32_t mesh;          /* collectives: set of mesh axes */
    int64_t ranks;          /* collectives: number of ranks */
    int64_t to;             /* ALL_TO_ALL: axis to concatenate along */
    int64_t bucket;         /* REDUCE_GRADIENTS: bucket; GATHER_PARAMETER: parameter */
    float eps;              /* norms, ADAMW, DICE */
    float p;                /* DROPOUT: probability; LINEAR_DISTILL: share of the teacher */
    float theta;            /* ROPE, see by_rotation; LINEAR_DISTILL: temperature */
    float factor;           /* ROPE, as the next four: see by_rotation */
    float low;
    float high;
    float wave;
    float amplitude;
    float clip;                /* CLIP_SCALE: bound of the norm; BATCH_NORM: upper bound; 0: none */
    float beta1;               /* ADAMW: decay rate of the first moment */
    float beta2;               /* ADAMW: decay rate of the second moment */
    float decay;               /* ADAMW: weight decay */
    float lr_scale;            /* ADAMW: factor on the learning rate; 0: 1 */
    float value;               /* FILL; EDGE_ATTENTION: slope below 0 */
    float beta;                /* SMOOTH_L1 */
    float smoothing;           /* CROSS_ENTROPY: label smoothing */
    const by_map_program *map; /* MAP: the program */
} by_attrs;

/* Angles of rotary positions. Pair i of a head of width D rotates by f(i) = theta^(-2 i / D)
 * radians per position. If factor is not 0, the frequency becomes f (r + (1 - r) / factor), where r
 * falls from 1 for fast rotations to 0 for slow ones:
 *
 *     wave 0:  r = 1 - clamp((i - low) / (high - low), 0, 1)     (YaRN, Peng et al. 2023; with low
 *              -1 and high 0 all are divided equally: Chen et al. 2023)
 *     else:    r = clamp((wave f / 2 pi - low) / (high - low), 0, 1)  (Llama 3, Dubey et al. 2024)
 *
 * Cosines and sines are multiplied by amplitude; 0: 1.
 */
typedef struct by_rotation {
    float theta;
    float factor;
    float low;
    float high;
    float wave; /* context length of the original training, in positions */
    float amplitude;
} by_rotation;
/* Returns the rotation described by the attributes of a ROPE. */
BY_API by_rotation by_rotation_of(const by_attrs *attrs);
/* Returns the radians per position by which pair i of a head of `width` rotates, computed in f32 as
 * in Hugging Face transformers; the angle is the f32 product of the position and this. */
BY_API float by_rotation_frequency(const by_rotation *rotation, int64_t i, int64_t width);

/* Returns ALiBi's slope of a head (Press et al. 2022): with n heads, a power of two,
 * 2^(-8 (head + 1) / n); with others those of the next smaller power of two, then every second one
 * of twice that. */
BY_API double by_attention_slope(int64_t heads, int64_t head);

/* Returns "matmul", "layer_norm_grad", ...; "?" for an invalid value. */
BY_API const char *by_op_name(by_op op);
/* Returns "gelu", "silu", ...; "?" for an invalid value. */
BY_API const char *by_function_name(by_function function);
/* Returns how many values a step of a map reads: 0 to 3. */
BY_API int by_map_operands(by_map_kind kind);

#ifdef __cplusplus
}
#endif
#endif
