/* kernels: the parameters of every kernel of kernels/, one struct each, passed by value. C and CUDA
 * C++ read it after the types of fixed width: from launch.h, or from kernels/prelude.cuh. Those of
 * layers other than attention and products are in layer_kernels.h, which follows it.
 *
 * A comment says what a kernel computes and which grid it takes: "elements": one thread for
 * each 8 elements, in blocks of 256; "rows": a block of 256 for each row if `wide`, else for each 8
 * rows; "R rows" of C columns are a tensor [..., C]. dtypes are by_dtype's numbers. Tensors begin
 * at multiples of 16 bytes. Where a count is 0 nothing is launched.
 *
 * Never put here: an #include, a pointer to a struct, a type whose size the host's compiler could
 * see otherwise.
 */
#ifndef BY_DEVICE_CUDA_KERNELS_H
#define BY_DEVICE_CUDA_KERNELS_H

#define BY__CUDA_BLOCK    256  /* threads, where a comment says nothing else */
#define BY__CUDA_RANK     6    /* BY_MAX_RANK */
#define BY__CUDA_PARTIAL  8192 /* elements of a partial sum of a loss */
#define BY__CUDA_SUM_ROWS 128  /* rows of a partial sum over rows */

/* ---- elementwise.cu ---- */

/* y = value. Elements. */
typedef struct by__cuda_fill_args {
    void *y;
    int64_t count;
    int32_t dtype;
    float value;
} by__cuda_fill_args;

/* y = x, rounded to y's dtype. Elements. */
typedef struct by__cuda_cast_args {
    const void *x;
    void *y;
    int64_t count;
    int32_t from, to;
} by__cuda_cast_args;

/* y = x + offset of ids; negative ones become -1. One thread an element, blocks of 256. */
typedef struct by__cuda_offset_ids_args {
    const int32_t *x;
    int32_t *y;
    int64_t count;
    int64_t offset;
} by__cuda_offset_ids_args;

enum { BY__CUDA_ADD, BY__CUDA_SUB, BY__CUDA_MUL };

/* y[i] = a[i % a_period] op b[i % b_period]. Elements. */
typedef struct by__cuda_binary_args {
    const void *a, *b;
    void *y;
    int64_t count, a_period, b_period;
    int32_t op, dtype, b_dtype; /* of a and y; of b */
} by__cuda_binary_args;

/* The same for any broadcast: i is taken apart by the extents of y, and a stride is 0 where an
 * operand is repeated. One thread an element, blocks of 256. */
typedef struct by__cuda_broadcast_args {
    const void *a, *b;
    void *y;
    int64_t count;
    int64_t extent[BY__CUDA_RANK], a_stride[BY__CUDA_RANK], b_stride[BY__CUDA_RANK];
    int32_t op, dtype, b_dtype, rank;
} by__cuda_broadcast_args;

/* y = x * s[0]. Elements. */
typedef struct by__cuda_scale_args {
    const void *x;
    const float *s;
    void *y;
    int64_t count;
    int32_t dtype;
} by__cuda_scale_args;

/* y = f(x), or y = f'(x) dy where dy is given. Elements. */
typedef struct by__cuda_unary_args {
    const void *x, *dy;
    void *y;
    int64_t count;
    int32_t function, dtype;
} by__cuda_unary_args;

/* y = silu(gate) up, or where dy is given dgate and dup. Elements. */
typedef struct by__cuda_swiglu_args {
    const void *gate, *up, *dy;
    void *y, *dgate, *dup;
    int64_t count;
    int32_t dtype;
} by__cuda_swiglu_args;

/* DROPOUT of samples of `size` elements. Elements, if size is a multiple of 8 (a thread's elements
 * are then of one sample); else one thread an element (each = 1), blocks of 256. */
typedef struct by__cuda_dropout_args {
    const void *x;
    const int32_t *rng;
    void *y;
    int64_t count, size, begin, turn, gap;
    uint32_t stream, first_sample, threshold;
    float scale;
    int32_t dtype, each;
} by__cuda_dropout_args;

/* y[i] = x[the sum of i's indices times strides]; elements of 1, 2 or 4 bytes. One thread an
 * element, blocks of 256. */
typedef struct by__cuda_gather_args {
    const void *x;
    void *y;
    int64_t count;
    int64_t extent[BY__CUDA_RANK], stride[BY__CUDA_RANK];
    int32_t rank, bytes;
} by__cuda_gather_args;

/* Copies `count` elements, rows of `inner` of them: element (o, i) of x is at o * x_stride + i, of
 * y at o * y_stride + i; elements of 1, 2 or 4 bytes. One thread an element, blocks of 256. */
typedef struct by__cuda_move_args {
    const void *x; /* NULL: zeros */
    void *y;
    int64_t count, inner, x_stride, y_stride;
    int32_t bytes;
} by__cuda_move_args;

/* ---- map.cu ---- */

#define BY__CUDA_MAP_CODES    96
#define BY__CUDA_MAP_TENSORS  11
#define BY__CUDA_MAP_UNIFORMS 64
#define BY__CUDA_MAP_UNIFORM  128 /* operands from here on are uniforms */
#define BY__CUDA_MAP_EACH     4   /* elements of a thread */

/* op: a by_map_kind, or one of these. */
enum { BY__CUDA_MAP_LOAD = 64, BY__CUDA_MAP_STORE, BY__CUDA_MAP_STORE_RANDOM };

/* An instruction: slot `to` = op of the slots or uniforms a, b, c. A load reads tensor a into `to`,
 * a store writes slot or uniform a to tensor `to`, a random one with word b. */
typedef struct by__cuda_map_code {
    uint8_t op, to, a, b, c, function, unused[2];
} by__cuda_map_code;

/* MAP. Slots hold BY__CUDA_MAP_EACH elements of each thread in dynamic shared memory: bytes =
 * slots * threads * 16; blocks of 256, 128, 64 or 32 threads, the most for which that is at most
 * 48 KB. Uniforms are the same for all elements: the first are constants, then scalars read from
 * tensors, then those that codes before `tiles` make of them. */
typedef struct by__cuda_map_args {
    void *tensor[BY__CUDA_MAP_TENSORS];
    const float *scalar[BY__CUDA_MAP_UNIFORMS]; /* NULL: uniform[i] is the constant */
    float uniform[BY__CUDA_MAP_UNIFORMS];
    by__cuda_map_code code[BY__CUDA_MAP_CODES];
    int64_t count;
    int64_t first; /* index of element 0 in its tensor, for random bits */
    const float *step;
    uint32_t key[2];
    int32_t tiles, codes, uniforms;
    int32_t dtype[BY__CUDA_MAP_TENSORS];
} by__cuda_map_args;

/* ---- sums.cu ---- */

/* Sums over BY__CUDA_SUM_ROWS rows each of x [rows, columns]: y [ceil(rows / that), columns]; f32
 * partial sums become a total by the same kernel. Grid: ceil(rows / that), ceil(columns / 256). */
typedef struct by__cuda_sum_rows_args {
    const void *x;
    float *y;
    int64_t rows, columns;
    int32_t dtype;
} by__cuda_sum_rows_args;

/* y[b] = the sum of squares of elements b * block .. of x. A block for each. */
typedef struct by__cuda_sum_squares_args {
    const float *x;
    float *y;
    int64_t count, block;
} by__cuda_sum_squares_args;

/* y[0] = the sum of x. One block. */
typedef struct by__cuda_total_args {
    const float *x;
    float *y;
    int64_t count;
} by__cuda_total_args;

/* SUM: result r is the sum of x at the place of r (its index by kept_extent and kept_stride) plus
 * that of each j below `terms` (by summed_*), divided by `divisor`. A warp for each result, blocks
 * of 256. */
typedef struct by__cuda_sum_args {
    const void *x;
    void *y;
    int64_t results, terms;
    int64_t kept_extent[BY__CUDA_RANK], kept_stride[BY__CUDA_RANK];
    int64_t summed_extent[BY__CUDA_RANK], summed_stride[BY__CUDA_RANK];
    float divisor;
    int32_t kept, summed, dtype, to;
} by__cuda_sum_args;

/* MEASURE of blocks of `block` elements. A block for each. */
typedef struct by__cuda_measure_args {
    const void *x, *other;
    float *y;
    int64_t count, block;
    int32_t dtype;
} by__cuda_measure_args;

/* ---- update.cu ---- */

#define BY__CUDA_CLIP_PARTS 96

/* CLIP_SCALE; parts are the squares. More than BY__CUDA_CLIP_PARTS are summed by calls without
 * outputs before, into y of their own (`total`). One block. */
typedef struct by__cuda_clip_scale_args {
    const float *part[BY__CUDA_CLIP_PARTS];
    int64_t count[BY__CUDA_CLIP_PARTS];
    float *failed;
    const float *losses, *factor;
    float *norm, *scale;
    int64_t loss_count;
    int32_t parts;
    float clip;
} by__cuda_clip_scale_args;

/* ADAMW. Elements. */
typedef struct by__cuda_adamw_args {
    float *p, *m, *v;
    const float *g, *hyper, *scale;
    void *copy; /* NULL: none */
    int64_t count;
    float beta1, beta2, rest1, rest2, eps, decay, lr_scale;
    int32_t copy_dtype;
} by__cuda_adamw_args;

/* ---- rows.cu ---- */

/* SOFTMAX (y), or of `y` and dy the gradient dx. Rows. */
typedef struct by__cuda_softmax_args {
    const void *x, *dy;
    void *y;
    int64_t rows, columns;
    int32_t dtype, logarithm, wide;
} by__cuda_softmax_args;

/* CROSS_ENTROPY of rows of logits that are `stride` apart: lse[r], and loss[r], 0 without target;
 * own[r], the logit of the target, 0 if it is not among these.
 * Targets are those of `classes` classes, of which the logits are those from `first` on. Where
 * dx is given, it gets the gradients, which may be in the place of the logits, and zeros in columns
 * .. dx_stride - 1. lse_in: lse is read from there instead of computed. Rows. */
typedef struct by__cuda_cross_entropy_args {
    const void *x;
    const int32_t *targets;
    const float *weight; /* NULL: 1 */
    const float *lse_in; /* NULL: computed */
    const float *dloss;
    float *lse, *loss, *own; /* may be NULL */
    void *dx;                /* may be NULL */
    int64_t rows, columns, stride, dx_stride, first, classes;
    float smoothing;
    int32_t dtype, dx_dtype, wide;
} by__cuda_cross_entropy_args;

/* CROSS_ENTROPY_COMBINE: parts [2 slices, rows]. lse[r], and loss[r], 0 without target. One thread
 * a row, blocks of 256. */
typedef struct by__cuda_combine_losses_args {
    const float *parts;
    const int32_t *targets;
    const float *weight; /* NULL: 1 */
    float *lse, *loss;
    int64_t rows, slices, classes;
} by__cuda_combine_losses_args;

/* LINEAR_DISTILL of rows of the student's logits x, `stride` apart: loss[r], 0 without target. The
 * teacher has logits of the same kind, or `known` ids of a row with the logarithms of their
 * probabilities and, last, that of all others; kept: `known` floats a row of scratch memory. Where
 * dloss is given, dx gets the gradients, which may be in the place of x, and zeros in columns ..
 * stride - 1. x is overwritten. Rows. */
typedef struct by__cuda_distill_args {
    float *x;
    const float *teacher; /* NULL: ids and logarithms */
    const int32_t *targets, *ids;
    const float *logarithms, *dloss;
    float *kept, *loss; /* loss may be NULL */
    void *dx;           /* may be NULL */
    int64_t rows, columns, stride, known;
    float temperature, share;
    int32_t dx_dtype, wide;
} by__cuda_distill_args;

/* The sum of w (x - t)^2, or of SMOOTH_L1's, of each BY__CUDA_PARTIAL elements: y[block]; or
 * where dloss is given dx. weight: [R] f32, or integers that count where they are not negative. A
 * block for each part. */
typedef struct by__cuda_difference_args {
    const void *x;
    const float *t, *dloss;
    const void *weight; /* NULL: 1 */
    float *y;
    void *dx;
    int64_t count, columns;
    float beta;
    int32_t dtype, smooth, integers;
} by__cuda_difference_args;

/* ---- norm.cu ---- */

/* LAYER_NORM, or without b RMS_NORM: y, mean, rstd. Rows. */
typedef struct by__cuda_norm_args {
    const void *x;
    const float *w, *b;
    void *y;
    float *mean, *rstd;
    int64_t rows, columns;
    float eps;
    int32_t dtype, wide;
} by__cuda_norm_args;

/* dx of the norms (+ add). Rows. */
typedef struct by__cuda_norm_grad_args {
    const void *x, *dy, *add;
    const float *w, *mean, *rstd; /* mean NULL: RMS_NORM */
    void *dx;
    int64_t rows, columns;
    int32_t dtype, wide;
} by__cuda_norm_grad_args;

/* Partial sums of dw and db over BY__CUDA_SUM_ROWS rows each: dw and db [ceil(rows / that),
 * columns], which sum_rows adds up. Grid: ceil(rows / that), ceil(columns / 256). */
typedef struct by__cuda_norm_weights_args {
    const void *x, *dy;
    const float *mean, *rstd; /* mean NULL: RMS_NORM */
    float *dw, *db;           /* db NULL: RMS_NORM */
    int64_t rows, columns;
    int32_t dtype;
} by__cuda_norm_weights_args;

/* ---- tables.cu ---- */

/* EMBEDDING; ids outside the table give zeros. One thread an element of y, blocks of 256. */
typedef struct by__cuda_embedding_args {
    const int32_t *ids;
    const void *table;
    void *y;
    int64_t count, columns, rows; /* ids; of the table */
    int32_t dtype;
} by__cuda_embedding_args;

#define BY__CUDA_EMBEDDING_ROWS 16

/* EMBEDDING_GRAD: a block for each BY__CUDA_EMBEDDING_ROWS rows of the table finds their ids in the
 * order of the entries, and adds these rows of dy one after another. base NULL: zeros. */
typedef struct by__cuda_embedding_grad_args {
    const int32_t *ids;
    const void *dy;
    const float *base;
    float *y;
    int64_t count, columns, rows;
    int32_t dtype;
} by__cuda_embedding_grad_args;

/* POSITION: y = x + table at place begin + t (+ gap from t = turn on). Elements if columns is a
 * multiple of 8, else (each = 1) one thread an element, blocks of 256. */
typedef struct by__cuda_position_args {
    const void *x, *table;
    void *y;
    int64_t count, length, columns, begin, turn, gap;
    int32_t dtype, table_dtype, each;
} by__cuda_position_args;

/* POSITION_GRAD: dtable [rows, columns], zeros where no t leads. One thread an element of it,
 * blocks of 256. */
typedef struct by__cuda_position_grad_args {
    const void *dy;
    float *y;
    int64_t samples, length, columns, rows, begin, turn, gap;
    int32_t dtype;
} by__cuda_position_grad_args;

#define BY__CUDA_MOST_PAIRS 128

/* ROPE: pairs (i, i + half) of each head rotate by position * frequency[i], half at most
 * BY__CUDA_MOST_PAIRS. One thread for each pair i of a row, blocks of 256. */
typedef struct by__cuda_rope_args {
    const void *x;
    const int32_t *position; /* NULL: 0 */
    void *y;
    int64_t rows, length, heads, half, begin, turn, gap;
    float frequency[BY__CUDA_MOST_PAIRS];
    float amplitude;
    int32_t dtype, by_row, inverse;
} by__cuda_rope_args;

/* ---- attention.cu ---- */

#define BY__CUDA_QUERIES       16
#define BY__CUDA_KEYS          32
#define BY__CUDA_GRADIENT      16  /* queries and keys of a tile of the gradient's kernels */
#define BY__CUDA_MOST_WIDTH    256 /* of a head */
#define BY__CUDA_MOST_SLOPES   128 /* heads, of attention whose scores fall with the distance */
#define BY__CUDA_ROW_OF(width) ((width) | 1) /* floats between rows: odd, for the banks */

/* Bytes of dynamic shared memory. */
#define BY__CUDA_ATTENTION_SHARED(width)                                                           \
    (4 * ((2 * BY__CUDA_QUERIES + 2 * BY__CUDA_KEYS) * BY__CUDA_ROW_OF(width) +                    \
          BY__CUDA_QUERIES * (BY__CUDA_KEYS + 5)))
#define BY__CUDA_KEYS_GRAD_SHARED(width)                                                           \
    (4 * BY__CUDA_GRADIENT * (6 * BY__CUDA_ROW_OF(width) + 2 * (BY__CUDA_GRADIENT + 1) + 3))
#define BY__CUDA_QUERIES_GRAD_SHARED(width)                                                        \
    (4 * BY__CUDA_GRADIENT * (5 * BY__CUDA_ROW_OF(width) + BY__CUDA_GRADIENT + 1 + 3))

/* ATTENTION in f32. Query head h of sample b, row t: q + ((b * length + t) * q_stride + h * width),
 * likewise k and v with kv heads. A query has the keys from the largest of 0, t - window + 1
 * (window 0: none) and starts[b, t] on, but always its own, and `behind` more; with `sloped` a
 * score falls by slope[h] from token to token. Grid: ceil(length / BY__CUDA_QUERIES), heads, batch;
 * blocks of 128; shared memory as above. */
typedef struct by__cuda_attention_args {
    const void *q, *k, *v;
    const int32_t *lengths, *starts; /* may be NULL */
    void *y;
    float *lse;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride, window, behind;
    float scale;
    int32_t dtype, sloped;
    float slope[BY__CUDA_MOST_SLOPES];
} by__cuda_attention_args;

/* ATTENTION_MERGE of f32 results y [samples, length, heads * width] and lse [samples, heads,
 * length]. A warp for each row and head, blocks of 256. */
typedef struct by__cuda_attention_merge_args {
    const float *first, *first_lse, *second, *second_lse;
    float *y, *lse;
    int64_t rows, length, heads, width; /* rows: samples * length */
} by__cuda_attention_merge_args;

/* The same with tensor cores, for bf16 or f16 and heads of 64 or 128: grid ceil(length / 64),
 * heads, batch; blocks of 128. */
#define BY__CUDA_MMA_TILE                    64
#define BY__CUDA_ATTENTION_MMA_SHARED(width) (2 * 5 * BY__CUDA_MMA_TILE * ((width) + 8) + 8 * 64)
typedef by__cuda_attention_args by__cuda_attention_bf16_64_args;
typedef by__cuda_attention_args by__cuda_attention_bf16_128_args;
typedef by__cuda_attention_args by__cuda_attention_f16_64_args;
typedef by__cuda_attention_args by__cuda_attention_f16_128_args;

/* delta[b, h, t] = dy . y. A warp for each row and head, blocks of 256. */
typedef struct by__cuda_attention_delta_args {
    const void *y, *dy;
    float *delta;
    int64_t rows, length, heads, width;
    int32_t dtype;
} by__cuda_attention_delta_args;

/* dk and dv: grid ceil(length / BY__CUDA_GRADIENT), kv heads, batch; dq: the same with query heads.
 * Blocks of 256; shared memory as above. */
typedef struct by__cuda_attention_grad_args {
    const void *q, *k, *v, *dy;
    const float *lse, *delta;
    const int32_t *lengths, *starts; /* may be NULL */
    void *dq, *dk, *dv;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride, window, behind;
    float scale;
    int32_t dtype, sloped;
    float slope[BY__CUDA_MOST_SLOPES];
} by__cuda_attention_grad_args;
typedef by__cuda_attention_grad_args by__cuda_attention_keys_grad_args;
typedef by__cuda_attention_grad_args by__cuda_attention_queries_grad_args;

/* The same with tensor cores, for bf16 or f16 and heads of 64 or 128: tiles of BY__CUDA_MMA_TILE;
 * blocks of 128. */
#define BY__CUDA_GRAD_MMA_SHARED(width) (2 * 4 * BY__CUDA_MMA_TILE * ((width) + 8) + 12 * 64)
typedef by__cuda_attention_grad_args by__cuda_keys_grad_bf16_64_args;
typedef by__cuda_attention_grad_args by__cuda_keys_grad_bf16_128_args;
typedef by__cuda_attention_grad_args by__cuda_keys_grad_f16_64_args;
typedef by__cuda_attention_grad_args by__cuda_keys_grad_f16_128_args;
typedef by__cuda_attention_grad_args by__cuda_queries_grad_bf16_64_args;
typedef by__cuda_attention_grad_args by__cuda_queries_grad_bf16_128_args;
typedef by__cuda_attention_grad_args by__cuda_queries_grad_f16_64_args;
typedef by__cuda_attention_grad_args by__cuda_queries_grad_f16_128_args;

/* ---- decode.cu ---- */

#define BY__CUDA_SPLIT 256 /* keys of a partial result */

/* Copies keys and values of new tokens to places position[0] .. of the caches [batch, kv heads,
 * slots, width]. One thread an element of k, blocks of 256. */
typedef struct by__cuda_cache_write_args {
    const void *k, *v;
    void *k_cache, *v_cache;
    const int32_t *position;
    int64_t batch, length, kv_heads, width, kv_stride, slots;
    int32_t bytes;
} by__cuda_cache_write_args;

/* CACHED_ATTENTION over the keys of each split: the largest score, the sum of exponentials relative
 * to it, and the sum of values weighted by them: part [batch, heads, length, splits, width + 2].
 * Grid: length * splits, heads, batch; blocks of 128. */
typedef struct by__cuda_cached_attention_args {
    const void *q, *k_cache, *v_cache;
    const int32_t *position;
    float *part;
    int64_t length, heads, kv_heads, width, q_stride, slots, splits, window;
    float scale;
    int32_t dtype, sloped;
    float slope[BY__CUDA_MOST_SLOPES];
} by__cuda_cached_attention_args;

#define BY__CUDA_PAGE 16 /* tokens of a page */

/* PAGED_ATTENTION: what it says of keys and values, q [length, heads, width], k and v [length,
 * kv_heads, width] with their strides from token to token; pools [pages, kv_heads, 16, page_width].
 * Writes the keys and values of all tokens: a warp for each (t * kv_heads + kv), blocks of 256.
 * Then makes the parts of CACHED_ATTENTION. Grid: length * splits, heads; blocks of 128. */
typedef struct by__cuda_paged_write_args {
    const void *q, *k, *v;
    void *k_pool, *v_pool;
    const int32_t *positions, *sessions, *table;
    float *part;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride;
    int64_t pages, session_count, columns, page_width, splits, window;
    float scale;
    int32_t dtype, pool_dtype, sloped;
    float slope[BY__CUDA_MOST_SLOPES];
} by__cuda_paged_write_args;
typedef by__cuda_paged_write_args by__cuda_paged_attention_args;

/* The whole of the parts. A warp for each row ((b * heads + h) * length + t), blocks of 256. */
typedef struct by__cuda_cached_merge_args {
    const float *part;
    void *y;
    int64_t rows, length, heads, width, splits;
    int32_t dtype;
} by__cuda_cached_merge_args;

/* ---- matmul.cu ---- */

#define BY__CUDA_TILE 32

/* y [m, n] = a b + bias + add, sums in f32 in the order of k: element (i, j) of a matrix is at
 * i * row + j * column. For what the library of products does not take. Grid: ceil(n / 32),
 * ceil(m / 32); blocks of 256. */
typedef struct by__cuda_matmul_args {
    const void *a, *b, *bias, *add; /* bias and add may be NULL; add has y's dtype */
    void *y;
    int64_t m, n, k, a_row, a_column, b_row, b_column;
    int32_t a_dtype, b_dtype, bias_dtype, dtype;
} by__cuda_matmul_args;

/* GROUPED_MATMUL: b of group g is at g / ranges_each * k * n. Grid: ceil(n / 32), ceil(rows / 32);
 * blocks of 256. */
typedef struct by__cuda_grouped_matmul_args {
    const void *a, *b;
    const int32_t *range;
    void *y;
    int64_t rows, n, k, groups, ranges_each, capacity;
    int32_t dtype, b_dtype, y_dtype, trans_b;
} by__cuda_grouped_matmul_args;

/* GROUPED_MATMUL_GRAD. Grid: ceil(n / 32), ceil(m / 32), matrices; blocks of 256. */
typedef struct by__cuda_grouped_grad_args {
    const void *a, *b;
    const int32_t *range;
    void *y;
    int64_t rows, m, n, ranges_each, capacity;
    int32_t dtype, y_dtype;
} by__cuda_grouped_grad_args;

/* ---- packed.cu ---- */

enum { BY__CUDA_CODES_NONE, BY__CUDA_CODES_8, BY__CUDA_CODES_4, BY__CUDA_CODES_F8 };

/* A packed matrix of k inputs and n outputs: elements of `dtype` without codes; with codes of 8 or
 * 4 bits in blocks of 2^block_bits inputs. */
typedef struct by__cuda_packing {
    int64_t n, k, block_bytes, panel_bytes;
    int32_t codes, dtype, block_bits;
} by__cuda_packing;

/* y = x in whole numbers up to `most`, with a scale for each piece of a row of k elements, that is
 * multiplied again. A warp for each piece, blocks of 256. */
typedef struct by__cuda_packed_rows_args {
    const void *x;
    float *y;
    int64_t pieces, pieces_each, piece, k;
    float most;
    int32_t dtype;
} by__cuda_packed_rows_args;

/* y [m, n] = a w + bias + add. Grid: ceil(n / 32), ceil(m / 32); blocks of 256. */
typedef struct by__cuda_packed_matmul_args {
    const void *a, *w, *bias, *add; /* bias and add may be NULL; add has y's dtype */
    void *y;
    int64_t m;
    by__cuda_packing packing;
    int32_t a_dtype, bias_dtype, dtype;
} by__cuda_packed_matmul_args;

/* PACKED_GROUPED_MATMUL, as GROUPED_MATMUL. */
typedef struct by__cuda_packed_grouped_matmul_args {
    const void *a, *w;
    const int32_t *range;
    void *y;
    int64_t rows, groups, ranges_each, capacity, matrix_bytes;
    by__cuda_packing packing;
    int32_t a_dtype, dtype;
} by__cuda_packed_grouped_matmul_args;

/* PACKED_EMBEDDING. One thread an element of y, blocks of 256. */
typedef struct by__cuda_packed_embedding_args {
    const int32_t *ids;
    const void *w;
    void *y;
    int64_t count;
    by__cuda_packing packing;
    int32_t dtype;
} by__cuda_packed_embedding_args;

/* ---- experts.cu ---- */

#define BY__CUDA_MOST_EXPERTS 256

/* ROUTER: weight, index, and the softmax of each row, whose sum over rows is the mass. A warp for
 * each row, blocks of 256. */
typedef struct by__cuda_router_args {
    const float *logits;
    float *weight, *softmax;
    int32_t *index;
    int64_t rows, experts, chosen;
} by__cuda_router_args;

/* ROUTER_GRAD; dweight, dmass may be NULL. A warp for each row, blocks of 256. */
typedef struct by__cuda_router_grad_args {
    const float *logits, *dweight, *dmass;
    const int32_t *index;
    float *dlogits;
    int64_t rows, experts, chosen;
} by__cuda_router_grad_args;

/* How many entries each range of GROUP has, group g's entries of block b in range g * blocks + b;
 * into `count`, or as f32 into `y`. A block for each range. */
typedef struct by__cuda_group_count_args {
    const int32_t *ids;
    int32_t *count;
    float *y;
    int64_t entries, blocks;
} by__cuda_group_count_args;

/* Begin and end of each range from its count. One block. */
typedef struct by__cuda_group_begin_args {
    const int32_t *count;
    int32_t *range;
    int64_t ranges, capacity;
} by__cuda_group_begin_args;

/* Places of the entries of each range, in their order; slot and member are -1 before. A block for
 * each range. */
typedef struct by__cuda_group_place_args {
    const int32_t *ids, *range;
    int32_t *slot, *member;
    int64_t entries, blocks;
} by__cuda_group_place_args;

/* SCATTER_ROWS. One thread an element of y, blocks of 256. */
typedef struct by__cuda_scatter_rows_args {
    const void *x;
    const int32_t *member;
    const float *weight; /* may be NULL */
    void *y;
    int64_t rows, columns, chosen, entries;
    int32_t dtype;
} by__cuda_scatter_rows_args;

/* GATHER_ROWS. One thread an element of y, blocks of 256. */
typedef struct by__cuda_gather_rows_args {
    const void *x;
    const int32_t *slot;
    const float *weight; /* may be NULL */
    void *y;
    int64_t rows, columns, chosen, slots;
    int32_t dtype;
} by__cuda_gather_rows_args;

/* ROW_DOTS. A warp for each entry, blocks of 256. */
typedef struct by__cuda_row_dots_args {
    const void *a, *b;
    const int32_t *slot;
    float *y;
    int64_t entries, columns, chosen, slots;
    int32_t dtype;
} by__cuda_row_dots_args;

/* ---- codes.cu ---- */

/* ADAMW8; values of the codes, ascending. A block for each 256 elements. */
typedef struct by__cuda_adamw8_args {
    float *p;
    const float *g;
    uint8_t *m, *v;
    float *m_scale, *v_scale;
    const float *hyper, *scale;
    void *copy; /* NULL: none */
    int64_t count;
    float beta1, beta2, rest1, rest2, eps, decay, lr_scale;
    int32_t copy_dtype;
    float first_values[256], second_values[256];
} by__cuda_adamw8_args;

/* ENCODE8 in pieces of 128 columns. A warp for each piece, blocks of 256. */
typedef struct by__cuda_encode8_args {
    const void *x;
    uint8_t *codes;
    float *scale;
    int64_t pieces, pieces_each, columns;
    float least;
    int32_t dtype;
} by__cuda_encode8_args;

/* DECODE8. One thread an element, blocks of 256. */
typedef struct by__cuda_decode8_args {
    const uint8_t *codes;
    const float *scale;
    void *y;
    int64_t count, columns, pieces_each;
    int32_t dtype;
} by__cuda_decode8_args;

/* FAKE_QUANTIZE: groups of `group` of the k inputs of an output share a scale. ..._rows: input i of
 * output j is at j * k + i; a warp for each group, blocks of 256. ..._columns: at i * outputs + j;
 * grid ceil(outputs / 32), groups of an output; blocks of 256. */
typedef struct by__cuda_fake_quantize_rows_args {
    const float *w;
    void *y;
    int64_t outputs, k, group, groups;
    int32_t wide, dtype; /* codes of 8 bits, else of 4 */
} by__cuda_fake_quantize_rows_args;
typedef by__cuda_fake_quantize_rows_args by__cuda_fake_quantize_columns_args;

/* ---- instructions.cu ---- */

#define BY__CUDA_INSTRUCTION_RESULTS 12

/* Instructions for matrices, asynchronous copies and conversions. A block of 32 with bf16, and one
 * with f16: of each 24 rows of 16 halves (a, then 8 of b), fragments of a [32][2][4], sums [32][4],
 * and for each of 32 numbers the results of conversions and arithmetic. */
typedef struct by__cuda_instructions_args {
    const uint16_t *halves;
    const float *numbers;
    uint32_t *fragments;
    float *sums;
    uint32_t *results;
} by__cuda_instructions_args;

#endif
