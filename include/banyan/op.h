/* Operations: the vocabulary that graphs are written in and kernels implement.
 *
 * Notation: [..., C] is a tensor whose leading axes are flattened to R rows. B batch, T sequence
 * length, H query heads, K key/value heads, D head width, V vocabulary. "act" is f32, bf16 or f16.
 * An optional input that is absent has value BY_NONE (in kernels: data NULL).
 *
 *   op                inputs                                outputs
 *   MATMUL            a, b, bias?[N], add?                  y = op(a) op(b) + bias + add
 *     a and b are flattened to 2-D [rows, last]; trans_a / trans_b transpose them. y is
 *     [lead(a)..., N], or [M, N] when trans_a. bias f32 or act; add has y's shape and dtype.
 *     y's dtype is attrs.dtype.
 *   SUM_ROWS          x [..., C]                            y [C] f32: sum over attrs.lead leading
 *                                                           axes (0: all but the last)
 *   ADD, SUB, MUL     a, b (broadcast: aligned at the last  y: the broadcast shape, a's dtype
 *                     axis, extents equal or 1; b of a's
 *                     dtype or f32)
 *   SCALE             x, s [1] f32                          y = x * s, like x
 *   CAST              x                                     y, dtype attrs.dtype
 *   UNARY             x                                     y = f(x), f = attrs.function
 *   UNARY_GRAD        x, dy                                 dx = dy * f'(x)
 *   SWIGLU            gate, up                              y = silu(gate) * up
 *   SWIGLU_GRAD       gate, up, dy                          dgate, dup
 *   LAYER_NORM        x [..., C], w [C] f32, b [C] f32      y like x, mean [R] f32, rstd [R] f32
 *   LAYER_NORM_GRAD   x, w, mean, rstd, dy, add?            dx (+ add), dw [C] f32, db [C] f32
 *   RMS_NORM          x [..., C], w [C] f32                 y like x, rstd [R] f32
 *   RMS_NORM_GRAD     x, w, rstd, dy, add?                  dx (+ add), dw [C] f32
 *   OFFSET_IDS        ids i32 (any shape)                   ids - attrs.begin, negative ids as -1:
 *     the ids of a table of attrs.rows rows as those of the slice of it that begins at row
 *     attrs.begin. What is not in the slice is out of its range, which EMBEDDING and EMBEDDING_GRAD
 *     leave out.
 *   EMBEDDING         ids i32 [...], table [V, C]           y [..., C] like table
 *   EMBEDDING_GRAD    ids, dy [..., C], base? [V, C] f32    dtable [V, C] f32 = base + scattered dy
 *   POSITION          x [B, T, C], table [T', C], T <= T'   y = x + table[attrs.begin + t],
 *                                                           like x
 *     Here and in the next two, and for elements of a sample in DROPOUT: from entry attrs.turn of x
 *     on, t is attrs.gap more.
 *   POSITION_GRAD     dy [B, T, C]                          dtable [T', C] f32 (T' = attrs.rows):
 *                                                           zero but for the T rows
 *   ROPE              x [B, T, H*D], position i32 [1] or    y: rotate-half rotary embedding at
 *                     i32 [B, T]?                           positions position + attrs.begin + t,
 *     or, of [B, T], at each row's own; angles by_rotation_of(attrs), heads attrs.heads;
 *     attrs.inverse turns back (that is its gradient)
 *   ATTENTION         qkv [B, T, (H + 2K) * D] (packed),    y [B, T, H*D], lse [B, H, T] f32
 *                     or q [B, T, H*D], k, v [B, T, K*D];   scale 1/sqrt(D); query head h reads key
 *                     lengths? i32 [B] (fourth operand),    head h / (H / K)
 *                     starts? i32 [B, T] (fifth)
 *     causal, or with attrs.bidirectional each query reads all keys. Of sample b only the first
 *     lengths[b] rows (within 0 .. T) exist: keys behind them are not read, and y, lse and all
 *     gradients are zero there. Causal attention may have a lower limit: query t reads the keys
 *     from the largest of 0, t - attrs.window + 1 (0: no window) and starts[b, t] on, but always
 *     its own. Blocks of keys that no query of a tile reads cost nothing.
 *   ATTENTION_GRAD    (qkv | q, k, v[, lengths[, starts]]), dqkv | dq, dk, dv
 *                     y, lse, dy
 *   ATTENTION_MERGE   y_0, lse_0, y_1, lse_1 f32            y, lse
 *     of attention over two sets of keys, from its results for each; H = attrs.heads.
 *   CACHED_ATTENTION  (qkv | q, k, v), k_cache*, v_cache*   y [B, T, H*D]; writes k and v of the T
 *                     [B, K, S, D], position i32 [1]        new tokens into the caches at position
 *                                                           .. position + T, then attends over
 *                                                           all, or the last attrs.window
 *   PAGED_ATTENTION   (qkv | q, k, v) with B = 1,           y [1, T, H*D]
 *                     k_pool*, v_pool* [pages, K, P, D],
 *                     positions i32 [T], sessions i32 [T],
 *                     table i32 [sessions, pages of one]
 *     P = BY_PAGE_TOKENS. Row t is the token at positions[t] of session sessions[t], whose token at
 *     position p is in page table[session][p / P], place p % P. First the keys and values of all
 *     rows are written into their pages, then each row attends to its session's keys up to its own,
 *     of them the last attrs.window (0: all), in the order of positions: a row's bits depend on
 *     nothing else. A row with a negative position writes and reads nothing, and its y is zero.
 *   DROPOUT           x [B, ...], rng i32 [4]               y = mask * x / (1 - p); p = attrs.p.
 *     rng = {seed low, seed high, step, index of the first sample}. The mask of an element is a
 *     function of (seed, attrs.stream, step, sample, place in the sample) alone; the gradient is
 *     the same op on dy. attrs.rows is the number of x's first sample when x has some of the
 *     samples, attrs.begin the place of its first element when it is a slice of all.
 *   LINEAR_CROSS_ENTROPY        x [..., C], w [V, C], targets i32 [...]   loss [1] f32, lse [R] f32
 *     sum over rows with target >= 0 of logsumexp(x w^T) - (x w^T)[target]; the logits exist only
 *     for a chunk of rows at a time.
 *   LINEAR_CROSS_ENTROPY_GRAD   x, w, targets, lse, dloss [1] f32         dx like x, dw [V, C] f32
 *                               (, logits [R, V] f32: x w^T, not computed again)
 *   LINEAR_CROSS_ENTROPY_TRAIN  x, w, targets, dloss [1] f32          loss, dx, dw in one pass
 *     With attrs.rows the targets are those of a vocabulary of so many entries, of which w is the
 *     slice that begins at attrs.begin (GRAD alone).
 *   LINEAR_CROSS_ENTROPY_PART   x, w, targets                parts [2, R] f32, logits [R, V] f32
 *     the row's logsumexp(x w^T) over the slice w, and the logit of its target, 0 when that is not
 *     in the slice; attrs.begin and attrs.rows as above. With attrs.keep also the logits.
 *   CROSS_ENTROPY_COMBINE       parts [2 n, R] f32, targets i32           loss [1] f32, lse [R] f32
 *     of the parts of n slices that are the whole vocabulary (attrs.rows entries), one behind the
 *     other; as LINEAR_CROSS_ENTROPY.
 *   LINEAR_DISTILL    x [..., C], w [V, C], targets i32     loss [1] f32
 *                     [...], and of the teacher either
 *                     x' [..., D], w' [V, D] or
 *                     ids i32 [..., k], logits f32 [..., k]
 *     sum over rows with target >= 0 of (1 - a) CE + a T^2 KL(q || p) (Hinton et al. 2015), with
 *     a = attrs.p and T = attrs.theta: CE = logsumexp(z) - z[target] of z = x w^T, p = softmax(z /
 *     T), and q = softmax(z' / T) of z' = x' w'^T, or of the k stored logits, 0 elsewhere. Logits
 *     exist only for a chunk of rows at a time. The teacher has no gradient.
 *   LINEAR_DISTILL_GRAD   as above, dloss [1] f32           dx like x, dw [V, C] f32
 *   LINEAR_DISTILL_TRAIN  as above, dloss [1] f32           loss, dx, dw in one pass
 *   ROUTER            logits f32 [..., E]                   weight f32 [..., k], index i32
 *                                                           [..., k], mass f32 [E]
 *     of a mixture of experts: the k = attrs.chosen largest logits of each row, the largest first,
 *     of equal ones the first; weight is the softmax over these, mass the sum over rows of the
 *     softmax over all.
 *   ROUTER_GRAD       logits, index, dweight?, dmass?       dlogits
 *   GROUP             ids i32 [...]                         slot i32 like ids, member i32 [S],
 *     entries i = 0, 1, ... of ids by their group ids[i]  range i32 [G blocks, 2]
 *     in [0, G), G = attrs.rows, each group's in their order: group g has the rows range[g][0] ..
 *     range[g][1] - 1 of S, entry i is in row slot[i], row s has entry member[s]. attrs.capacity 0:
 *     groups follow each other and S is the number of entries; else group g begins at row
 *     g * capacity, and entries that it has no room for are in none (slot -1), as rows without an
 *     entry have member -1. attrs.blocks (0: 1; more only with a capacity): the entries are cut
 *     into as many equal, neighbouring blocks, and each group has a range and `capacity` rows for
 *     each of them.
 *   COUNT_IDS         ids i32 [...]                         y f32 [attrs.rows]: entries of each id
 *   SCATTER_ROWS      x [..., C], slot i32 [..., k],        y [S, C] like x: row s is the row of x
 *                     member i32 [S], weight? f32 [..., k]  that entry member[s] belongs to, by its
 *                                                           weight; zeros for -1
 *   GATHER_ROWS       x [S, C], slot i32 [..., k],          y [..., C] like x: the sum over the k
 *                     member i32 [S], weight? f32 [..., k]  slots of their rows by their weights
 *     slot and member are those of GROUP; the first makes SCATTER_ROWS' gradient and the second
 *     GATHER_ROWS'.
 *   ROW_DOTS          a [..., C], b [S, C],                 y f32 [..., k]: the products of a's row
 *                     slot i32 [..., k]                     with row slot of b
 *   GROUPED_MATMUL    a [R, K], b [E, K, N] or [E, N, K]    y [R, N]: rows range[g][0] ..
 *                     when attrs.trans_b,                   range[g][1] - 1 of a by matrix g E / G
 *                     range i32 [G, 2]                      of b; zeros in rows of no range
 *     ranges do not overlap. With attrs.capacity, range g has the first range[g][1] - range[g][0]
 *     of the rows from g * capacity on, wherever it says that they are. y's dtype is attrs.dtype.
 *     attrs.chosen: matrices that an example meets, for the count of its FLOPs.
 *   GROUPED_MATMUL_GRAD   a [R, M], b [R, N],               y [E, M, N]: a^T b over the rows of the
 *                     range i32 [G, 2]                      ranges of each of E = attrs.rows
 *     y is f32 where G is more than E.
 *   CROSS_ENTROPY     logits [..., C], targets i32 [...]     loss [1] f32, lse [R] f32
 *     sum over rows with target in [0, C) of lse - (1 - e) logits[target] - e mean(logits), with
 *     e = attrs.smoothing (label smoothing: Szegedy et al. 2016); computed in f32.
 *   CROSS_ENTROPY_GRAD  logits, targets, lse, dloss [1] f32     dlogits like logits
 *   SQUARED_ERROR     x [..., C], t f32 like x, w? f32 [R]      loss [1] f32 = sum of w (x - t)^2
 *   SMOOTH_L1         x, t, w?                              loss [1] f32 = sum of w l(x - t):
 *     l(d) = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; beta = attrs.beta, 0 gives |d|.
 *   SQUARED_ERROR_GRAD, SMOOTH_L1_GRAD
 *                     x, t, w?, dloss [1] f32               dx like x
 *   FILL              none                                  y attrs.shape, attrs.dtype: attrs.value
 *   RESHAPE           x                                     y attrs.shape, of as many elements
 *   PERMUTE           x                                     y: axis i is x's axis attrs.order[i]
 *   CONCAT            two to eight tensors that differ in   y: behind each other along attrs.axis
 *                     the extent of attrs.axis alone
 *   SLICE             x                                     y: attrs.rows entries of attrs.axis
 *                                                           from attrs.begin on
 *   PAD               x                                     y: x from attrs.begin on in attrs.rows
 *                                                           entries of attrs.axis, zeros around
 *   EXPAND            x (broadcast to attrs.shape)          y attrs.shape
 *   SUM               x                                     y: x summed over the set of axes
 *     attrs.axes (bit i: axis i), which are dropped, or stay with extent 1 when attrs.keep; divided
 *     by the number of terms when attrs.mean; f32 when attrs.wide, else like x.
 *   SOFTMAX           x [..., C]                            y like x: softmax over the last axis,
 *                                                           its logarithm when attrs.logarithm
 *   SOFTMAX_GRAD      y, dy                                 dx like y
 *   SUM_SQUARES       x f32 (any shape)                     y [ceil(elements / BY_SUM_BLOCK)] f32:
 *     the sum of squares of each BY_SUM_BLOCK neighbouring elements. A process that holds a part of
 *     x which begins at such a boundary has the same numbers for its blocks as one that holds all.
 *   MEASURE           x, y? like x                          m [blocks, BY_MEASURES] f32: of each
 *     BY_SUM_BLOCK neighbouring elements of x the sum, the sum of squares, how many are 0, the
 *     largest magnitude, the sum of squares of x - y (0 without y), and how many are infinite or
 *     NaN; see BY_MEASURE_SUM.
 *   ENCODE8           x [..., C] act                        codes u8 like x, scale f32 [R, blocks]
 *     blocks of BY_ROW_CODE_BLOCK neighbouring elements of a row, the last one shorter: scale is
 *     the largest magnitude / 127, and codes are 128 + x / scale, rounded to nearest, ties to even.
 *     A block whose largest magnitude is below 2^-118 has scale 0, one with an element that is not
 *     finite a scale that is not.
 *   FAKE_QUANTIZE     w f32 [k, n], or [n, k] with trans_b  y like w, dtype attrs.dtype: what the
 *     codes of attrs.packing (int8 or int4) stand for that banyan/packing.h finds for w, of 8 bits
 *     in [-127, 127]; a group with a weight that is not finite becomes NaN. Its gradient is that of
 *     y (straight through).
 *   DECODE8           codes u8 [..., C],                    y like codes, dtype attrs.dtype:
 *                     scale f32 [R, blocks]                 (codes - 128) scale
 *   CLIP_SCALE        failed* [1], losses? [n],             norm [1], scale [1] =
 *                     factor? [1], squares [k]              min(1, attrs.clip / (norm + 1e-6));
 *                     (any number of them)                  1 when attrs.clip is 0
 *     norm: the root of the sum of all squares. Both are divided by factor, which the loss was
 *     multiplied by, norm before it is clipped. When it or a loss is not finite, failed becomes 1;
 *     while failed is not 0, scale is NaN, and an update whose scale is not finite changes
 *     nothing.
 *   ADAMW             p* f32, g f32, m* f32, v* f32,        copy? bf16 or f16: p rounded, when the
 *                     hyper f32 [3..], scale f32 [1]        output exists
 *     hyper = {lr, 1 - beta1^t, 1 - beta2^t, ...}; g is multiplied by scale first; attrs beta1,
 *     beta2, eps, decay (decoupled: p -= lr * decay * p before the update; Loshchilov & Hutter
 *     2019), lr_scale (not 0: lr is so many times hyper[0]).
 *   ADAMW8            p* f32, g f32, m* u8, v* u8,          copy? likewise
 *                     scale of m* f32 [blocks], scale of
 *                     v* f32 [blocks], hyper, scale
 *     ADAMW with moments in 8 bits: blocks of BY_CODE_BLOCK neighbouring elements, each moment a
 *     code for a number from -1 to 1 times the largest magnitude of its block (Dettmers et al.
 *     2022). The update uses the moments before they are rounded.
 *
 *   PACKED_MATMUL     a [..., k], w u8, bias?[n], add?      y [..., n] = a w + bias + add
 *     w is a weight of k inputs and n outputs as attrs.packing says (banyan/packing.h), a of its
 *     dtype; the rest as MATMUL. A row of y has the same bits whatever other rows there are. With
 *     weights of INT8 and INT4, each block of a row of a (128 inputs, or a group) is multiplied as
 *     integers of up to 32639 times a scale.
 *   PACKED_EMBEDDING  ids i32 [...], w u8                   y [..., k] attrs.dtype: of each id the
 *                                                           inputs of that output of w
 *
 *   MAP               up to 8: act of one shape, some *, and    up to 3: act of that shape
 *                     f32 of any shape, read as scalars
 *     attrs.map computes element by element in f32: banyan/map.h.
 *
 * Collectives: run by all attrs.ranks ranks that differ in the set of mesh axes attrs.mesh alone
 * (bit i: axis i of by_mesh_axis), in one order. Of an axis of E entries that is cut over the ranks
 * each has neighbouring entries in the order of ranks, E / ranks of them, the first E % ranks one
 * more. A collective starts at its node; its result may be read, and its operands written, behind
 * the WAIT for it.
 *
 *   ALL_REDUCE        x act or i32                          y like x: the sum of the ranks' x
 *   ALL_GATHER        x: this rank's entries of attrs.axis  y: all attrs.rows entries of the axis
 *   REDUCE_SCATTER    x act or i32                          y: of the sum of the ranks' x, this
 *                                                           rank's entries of attrs.axis, of which
 *                                                           there are attrs.rows
 *   ALL_TO_ALL        x                                     y: what each rank had of this rank's
 *     entries of attrs.axis, behind each other along attrs.to in the order of ranks. Both axes are
 *     cut equally.
 *   RING_SHIFT        x                                     y: the x of the rank before, the last
 *                                                           one's on the first
 *   REDUCE_GRADIENTS  any number of f32, * with             done [1] f32, no number
 *                     attrs.in_place
 *     the gradients of bucket attrs.bucket are complete: whoever runs the graph exchanges them.
 *   GATHER_PARAMETER  none                                  y attrs.shape, attrs.dtype
 *     the graph's parameter number attrs.bucket, of which each rank has a part: whoever runs the
 *     graph gathers it. Zeros where there is nobody.
 *   WAIT              y: a collective's result; operands    z = y
 *                     of it
 *     operands behind the first are not read; they keep their memory until here.
 *   REPLICATE         x, the same on all ranks              y = x. Its gradient is the sum of the
 *                                                           ranks' gradients
 *
 * Inputs marked * are updated in place; they must be graph inputs, parameters or state. Another
 * node may read such a value only when its result feeds the update, as a norm of the parameter
 * does: it then reads the old value in every order of the nodes.
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

#define BY_MAX_OUTPUTS 3
/* Tokens of a page of keys and values. */
#define BY_PAGE_TOKENS 16
/* Of a pool of codes: bytes of a token's scale in a head. */
#define BY_PAGE_SCALE 4
/* Elements of a partial sum: sums that ranks share are cut at multiples of it. */
#define BY_SUM_BLOCK 16384
/* Elements of ADAMW8 that share a scale. */
#define BY_CODE_BLOCK 256
/* Elements of a row of ENCODE8 that share a scale. */
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

/* All operations, in the order of their numbers: X(NAME, name). The row of an op in src/ops is
 * by__op_name. */
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
    X(CACHED_ATTENTION, cached_attention)                                                          \
    X(DROPOUT, dropout)                                                                            \
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
    X(PACKED_EMBEDDING, packed_embedding)

#define BY_OP_NUMBER(NAME, name) BY_OP_##NAME,
typedef enum by_op { BY_OPS(BY_OP_NUMBER) BY_OP_COUNT } by_op;
#undef BY_OP_NUMBER

typedef enum by_function {
    BY_FN_GELU = 0, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's */
    BY_FN_SILU,     /* x * sigmoid(x) */
    BY_FN_RELU,
    BY_FN_TANH,
    BY_FN_SIGMOID,
    BY_FN_NEGATE,   /* -x */
    BY_FN_GELU_ERF, /* 0.5 x (1 + erf(x / sqrt(2))): the exact form, ViT's and BERT's */
    BY_FN_COUNT
} by_function;

/* ---- the programs of MAP (banyan/map.h builds them) ---- */

#define BY_MAP_MAX_INPUTS 8
/* Constants and scalars that are read count as steps. */
#define BY_MAP_MAX_STEPS 64

/* What a step computes of its operands a, b and c. Each result is rounded to f32. */
typedef enum by_map_kind {
    BY_MAP_CONSTANT = 0,
    BY_MAP_SCALAR, /* an element of an input, the same for all elements of the result */
    BY_MAP_ADD,    /* a + b */
    BY_MAP_SUB,
    BY_MAP_MUL,
    BY_MAP_DIV,
    BY_MAP_MIN,    /* a < b ? a : b, so b where one is NaN */
    BY_MAP_MAX,    /* a > b ? a : b */
    BY_MAP_LESS,   /* a < b ? 1 : 0 */
    BY_MAP_SELECT, /* a != 0 ? b : c */
    BY_MAP_NEGATE, /* -a */
    BY_MAP_ABS,
    BY_MAP_SIGN, /* 1, -1, or 0 where a is 0 or NaN */
    BY_MAP_SQUARE,
    BY_MAP_SQRT,
    BY_MAP_RSQRT,  /* 1 / sqrt(a), rounded twice */
    BY_MAP_FINITE, /* 1, or 0 where a is infinite or NaN */
    BY_MAP_FUNCTION,
    BY_MAP_KINDS
} by_map_kind;

/* One step. Operands are values: i below BY_MAP_MAX_INPUTS is input i, BY_MAP_MAX_INPUTS + k is
 * step k. */
typedef struct by_map_instruction {
    by_map_kind kind;
    int operand[3];       /* of BY_MAP_SCALAR: the input, and the index of its element */
    by_function function; /* of BY_MAP_FUNCTION */
    float constant;       /* of BY_MAP_CONSTANT */
} by_map_instruction;

/* A whole program. It does not change once a node has it, and belongs to the node's graph. */
typedef struct by_map_program {
    int inputs;
    int steps;
    int results;
    int updates;
    uint32_t scalars; /* bit i: input i is read by BY_MAP_SCALAR alone */
    by_map_instruction step[BY_MAP_MAX_STEPS];
    struct {
        int value;
        by_dtype dtype;       /* act */
    } result[BY_MAX_OUTPUTS]; /* new tensors */
    struct {
        int input;
        int value;
        int word; /* 0: rounded to nearest; else by random bits (by_map_update_random) */
    } update[BY_MAP_MAX_INPUTS]; /* inputs whose place a value takes */
    struct {
        int input; /* element `index` of it, f32, is the number of the step */
        int index;
        uint32_t key[2];
        int64_t first; /* element that the map's first one is of its tensor */
    } random;
} by_map_program;

/* Attributes of a node. An op reads the fields that the table above names and ignores the rest. */
typedef struct by_attrs {
    bool trans_a;
    bool trans_b;
    bool inverse;
    bool keep;
    bool mean;
    bool wide;
    bool logarithm;
    bool bidirectional;
    bool in_place;
    by_dtype dtype;
    by_function function;
    int64_t heads;
    int64_t kv_heads;
    int64_t rows;
    int64_t lead;
    int64_t begin;
    int64_t turn;
    int64_t gap;
    int64_t chosen;
    int64_t capacity;
    int64_t blocks;
    int64_t window;
    by_shape shape;
    by_packing packing;
    int64_t axis;
    int order[BY_MAX_RANK];
    uint32_t axes;
    uint32_t stream;
    uint32_t mesh;
    int64_t ranks;
    int64_t to;
    int64_t bucket;
    float eps;
    float p;
    float theta;
    float factor;
    float low;
    float high;
    float wave;
    float amplitude;
    float clip;
    float beta1;
    float beta2;
    float decay;
    float lr_scale;
    float value;
    float beta;
    float smoothing;
    const by_map_program *map;
} by_attrs;

/* Angles of rotary positions. Pair i of a head of width D turns by f(i) = theta^(-2 i / D) a
 * position. With a factor other than 0 the frequency is f (r + (1 - r) / factor), where r falls
 * from 1 for what turns fast to 0:
 *
 *     wave 0:  r = 1 - clamp((i - low) / (high - low), 0, 1)     (YaRN: Peng et al. 2023; low -1
 *              and high 0 divide all alike: Chen et al. 2023)
 *     else:    r = clamp((wave f / 2 pi - low) / (high - low), 0, 1)  (Llama 3: Dubey et al. 2024)
 *
 * Cosines and sines are multiplied by amplitude; 0: 1. */
typedef struct by_rotation {
    float theta;
    float factor;
    float low;
    float high;
    float wave; /* positions of the context that the model was first trained on */
    float amplitude;
} by_rotation;
/* Of the attributes of a ROPE. */
BY_API by_rotation by_rotation_of(const by_attrs *attrs);
/* Radians by which pair i of a head of `width` turns a position, all in f32, as Hugging Face
 * computes them; the angle is the f32 product of a position and this. */
BY_API float by_rotation_frequency(const by_rotation *rotation, int64_t i, int64_t width);

/* "matmul", "layer_norm_grad", ...; "?" for an invalid value. */
BY_API const char *by_op_name(by_op op);
BY_API const char *by_function_name(by_function function);
/* "sub", "select", ...; "?" for an invalid value. */
BY_API const char *by_map_kind_name(by_map_kind kind);

#ifdef __cplusplus
}
#endif
#endif
