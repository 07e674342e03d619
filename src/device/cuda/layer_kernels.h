/* layer_kernels: the parameters of the kernels of whole layers: convolutions and norms of images,
 * losses of pixels, recurrent networks, attention in linear time, and graphs. kernels.h, which is
 * read before, says what the words of the comments mean.
 *
 * Never put here: an #include, a pointer to a struct, a type whose size the host's compiler could
 * see otherwise.
 */
#ifndef BY_DEVICE_CUDA_LAYER_KERNELS_H
#define BY_DEVICE_CUDA_LAYER_KERNELS_H

/* ---- conv.cu ---- */

/* CONV, or CONV_TRANSPOSED with `transposed`: x [images, height, width, groups inner], w, y
 * [images, to_height, to_width, groups outer]. One thread an element of y, blocks of 256. */
typedef struct by__cuda_conv_args {
    const void *x, *w, *bias, *add;
    void *y;
    int64_t count, height, width, to_height, to_width, groups, inner, outer;
    int64_t size_h, size_w, stride_h, stride_w, dilation_h, dilation_w, before_h, before_w;
    int32_t dtype, bias_dtype, to, transposed;
} by__cuda_conv_args;

/* CONV_WEIGHT_GRAD: x and dy as x and y of the convolution. Rows: elements of dw; wide: many
 * pixels. */
typedef struct by__cuda_conv_weight_grad_args {
    const void *x, *dy;
    void *dw;
    int64_t rows, pixels, height, width, to_height, to_width, groups, inner, outer;
    int64_t size_h, size_w, stride_h, stride_w, dilation_h, dilation_w, before_h, before_w;
    int32_t dtype, to, wide;
} by__cuda_conv_weight_grad_args;

/* ---- batch_norm.cu: x [rows, columns], in ranges of `each` rows ---- */

/* Ranges of rows: grid of their number, ceil(columns / 32). */
#define BY__CUDA_RANGE_COLUMNS 32

/* The means of ranges, and the sums of squares of what is left: [ranges, columns] each. Ranges. */
typedef struct by__cuda_batch_moments_args {
    const void *x;
    float *means, *squares;
    int64_t rows, columns, each;
    int32_t dtype;
} by__cuda_batch_moments_args;

/* The mean and variance of all rows, and scale = w / sqrt(variance + eps). A block for each 32
 * columns. */
typedef struct by__cuda_batch_merge_args {
    const float *means, *squares, *w;
    float *mean, *variance, *scale;
    int64_t rows, columns, each;
    float eps;
} by__cuda_batch_merge_args;

/* y = (x - mean) scale + shift + add, at least `least` and at most `most`. Elements. */
typedef struct by__cuda_affine_args {
    const void *x, *add; /* add may be NULL */
    const float *mean;   /* may be NULL */
    const float *scale, *shift;
    void *y;
    int64_t count, columns;
    float least, most;
    int32_t dtype;
} by__cuda_affine_args;

/* With g the part of dy that the rectifier, if there is one, lets through: the sums over ranges of
 * g, and of g (x - mean). Ranges. */
typedef struct by__cuda_batch_sums_args {
    const void *x, *dy;
    const float *w, *b, *mean, *variance;
    float *plain, *scaled;
    int64_t rows, columns, each;
    float eps, most;
    int32_t dtype, rectify;
} by__cuda_batch_sums_args;

/* From these dw, db, and the vectors of the next kernel. A block for each 32 columns. */
typedef struct by__cuda_batch_slopes_args {
    const float *plain, *scaled, *w, *variance;
    float *dw, *db, *scale, *offset, *slope;
    int64_t rows, columns, each;
    float eps;
} by__cuda_batch_slopes_args;

/* dx = (g - offset - (x - mean) slope) scale. Elements. */
typedef struct by__cuda_batch_norm_grad_args {
    const void *x, *dy;
    const float *b, *mean, *scale, *offset, *slope;
    void *dx;
    int64_t count, columns;
    float most;
    int32_t dtype, rectify;
} by__cuda_batch_norm_grad_args;

/* ---- pool.cu ---- */

/* POOL: x [images, height, width, channels], y [images, to_height, to_width, channels]; y, or
 * which entry of its window, counted from the window's corner, is the largest. One thread an
 * element of y, blocks of 256. POOL_GRAD: x and y are dy and dx of the pool. One thread an element
 * of dx, blocks of 256. */
typedef struct by__cuda_pool_args {
    const void *x;
    void *y;        /* POOL: may be NULL */
    int32_t *index; /* POOL: may be NULL */
    int64_t count, height, width, to_height, to_width, channels;
    int64_t size_h, size_w, stride_h, stride_w, before_h, before_w;
    int32_t dtype, mean, keep;
} by__cuda_pool_args;
typedef by__cuda_pool_args by__cuda_pool_grad_args;

/* ---- upsample.cu ---- */

/* UPSAMPLE: x [images, height, width, channels], y [images, to_height, to_width, channels]. One
 * thread an element of y, blocks of 256. UPSAMPLE_GRAD: x is dx and y is dy of the same sizes. One
 * thread an element of dx, blocks of 256. */
typedef struct by__cuda_upsample_args {
    const void *from;
    void *to;
    int64_t count, height, width, to_height, to_width, channels;
    int32_t dtype, linear;
} by__cuda_upsample_args;
typedef by__cuda_upsample_args by__cuda_upsample_grad_args;

/* ---- group_norm.cu: x [samples, rows, columns], groups of `width` columns ---- */

/* mean and rstd [samples, groups]. A block for each group of a sample. */
typedef struct by__cuda_group_moments_args {
    const void *x;
    float *mean, *rstd;
    int64_t rows, columns, groups;
    float eps;
    int32_t dtype;
} by__cuda_group_moments_args;

/* y = (x - mean) rstd w + b. Elements. */
typedef struct by__cuda_group_norm_args {
    const void *x;
    const float *w, *b, *mean, *rstd;
    void *y;
    int64_t count, rows, columns, groups;
    int32_t dtype;
} by__cuda_group_norm_args;

/* With n the normal entries and g = w dy: the means of g, and of g n, [samples, groups] each. A
 * block for each group of a sample. */
typedef struct by__cuda_group_sums_args {
    const void *x, *dy;
    const float *w, *mean, *rstd;
    float *plain, *scaled;
    int64_t rows, columns, groups;
    int32_t dtype;
} by__cuda_group_sums_args;

/* Partial sums of dw and db over BY__CUDA_SUM_ROWS of the `all_rows` rows of all samples, as
 * norm_weights makes them. Grid: ceil(all_rows / that), ceil(columns / 256). */
typedef struct by__cuda_group_weights_args {
    const void *x, *dy;
    const float *mean, *rstd;
    float *dw, *db;
    int64_t all_rows, rows, columns, groups;
    int32_t dtype;
} by__cuda_group_weights_args;

/* dx = rstd (g - plain - n scaled). Elements. */
typedef struct by__cuda_group_norm_grad_args {
    const void *x, *dy;
    const float *w, *mean, *rstd, *plain, *scaled;
    void *dx;
    int64_t count, rows, columns, groups;
    int32_t dtype;
} by__cuda_group_norm_grad_args;

/* ---- dice.cu: logits [samples, rows, classes] ---- */

/* The largest logit of each row, and one through the sum of the exponentials of what the others are
 * below it. Rows, samples * rows of them. */
typedef struct by__cuda_dice_rows_args {
    const void *logits;
    float *largest, *inverse;
    int64_t all_rows, classes;
    int32_t dtype, wide;
} by__cuda_dice_rows_args;

/* sums [samples, 3, classes]: of the probabilities p of targets, of all p, of targets. A block for
 * each class of a sample. */
typedef struct by__cuda_dice_sums_args {
    const void *logits;
    const int32_t *targets;
    const float *largest, *inverse;
    float *sums;
    int64_t rows, classes;
    int32_t dtype;
} by__cuda_dice_sums_args;

/* The loss from the sums. One block. */
typedef struct by__cuda_dice_args {
    const float *sums;
    float *loss;
    int64_t samples, classes;
    float eps;
} by__cuda_dice_args;

/* DICE_GRAD. Rows, samples * rows of them. */
typedef struct by__cuda_dice_grad_args {
    const void *logits;
    const int32_t *targets;
    const float *sums, *dloss;
    void *dlogits;
    int64_t all_rows, rows, classes;
    float eps;
    int32_t dtype, wide;
} by__cuda_dice_grad_args;

/* ---- linear_attention.cu ---- */

#define BY__CUDA_CHUNK 64 /* tokens that share a state: two tiles */
/* Bytes of dynamic shared memory of linear_keys_grad. */
#define BY__CUDA_LINEAR_SHARED(width)                                                              \
    (4 * 2 * BY__CUDA_TILE * (((width) + BY__CUDA_TILE - 1) / BY__CUDA_TILE * BY__CUDA_TILE))

/* LINEAR_ATTENTION and its gradient, of heads as in attention. With a and b the features of queries
 * and keys, v' = (v, 1) and g' = (g, e) the gradients of the sums (sum of w v, sum of w):
 *   linear_states       states [batch, kv_heads, chunks, width, width + 1]: the sums of b v'^T over
 *                       the keys of each chunk
 *   linear_prefix       of such matrices the sums of all chunks before each, or with `turned` of
 *                       all behind; without `causal` the sum of all, in the place of the first
 *   linear_attention    y
 *   linear_queries_grad given [batch, heads, length, 2]: what g is divided by, inverted, and e; dq
 *   linear_back_states  back, like states: the sums of a g'^T over the queries of each chunk
 *   linear_keys_grad    dk and dv
 * Grids: chunks times the tiles of a matrix, kv heads, batch for sums; one thread for each of
 * `count` elements of the matrices of a chunk, blocks of 256; ceil(length / 32), heads (of k and v
 * for their gradient), batch. */
typedef struct by__cuda_linear_attention_args {
    const void *q, *k, *v, *dy;
    const int32_t *lengths; /* may be NULL */
    float *states, *back, *given;
    void *y, *dq, *dk, *dv;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride, chunks;
    int32_t dtype, causal;
} by__cuda_linear_attention_args;
typedef by__cuda_linear_attention_args by__cuda_linear_states_args;
typedef by__cuda_linear_attention_args by__cuda_linear_back_states_args;
typedef by__cuda_linear_attention_args by__cuda_linear_queries_grad_args;
typedef by__cuda_linear_attention_args by__cuda_linear_keys_grad_args;
typedef struct by__cuda_linear_prefix_args {
    float *states;
    int64_t count, size, chunks; /* size: elements of a matrix */
    int32_t causal, turned;
} by__cuda_linear_prefix_args;

/* ---- edges.cu ---- */

/* Matrices [rows, columns] of a batch in rows (CSR): row r of matrix b has entries offsets[b, r] ..
 * offsets[b, r + 1] - 1, of which entry k is in column sources[b, k], and is edge numbers[b, k], or
 * edge k where numbers is NULL. Other entries, columns and edges than there are count as none. */
typedef struct by__cuda_edges {
    const int32_t *offsets, *sources, *numbers;
    int64_t rows, columns, entries;
} by__cuda_edges;

/* SPARSE_MATMUL: y of `count` elements; w [batch, entries, groups] or NULL. One thread an element,
 * blocks of 256. */
typedef struct by__cuda_sparse_matmul_args {
    const void *x;
    const float *w;
    void *y;
    by__cuda_edges edges;
    int64_t count, width, groups; /* width: columns of x and y */
    int32_t dtype;
} by__cuda_sparse_matmul_args;

/* EDGE_DOTS of heads of `width` columns: y of `count` numbers. `lanes` threads each, a power of two
 * up to 32, in blocks of 256. */
typedef struct by__cuda_edge_dots_args {
    const void *a, *b;
    float *y;
    by__cuda_edges edges;
    int64_t count, heads, width;
    int32_t dtype, lanes;
} by__cuda_edge_dots_args;

/* EDGE_SUM. One thread an element of y, blocks of 256. */
typedef struct by__cuda_edge_sum_args {
    const float *v;
    float *y;
    by__cuda_edges edges; /* without sources */
    int64_t count, heads;
} by__cuda_edge_sum_args;

/* EDGE_ATTENTION: y, of which entries of no row are left alone. EDGE_ATTENTION_GRAD: of y and dy
 * the gradient de in the same way, and dd. One thread for each of `count` heads of a row, blocks of
 * 256. */
typedef struct by__cuda_edge_attention_args {
    const float *s, *d, *dy;
    float *y, *de, *dd;
    by__cuda_edges edges;
    int64_t count, heads;
    float slope;
} by__cuda_edge_attention_args;
typedef by__cuda_edge_attention_args by__cuda_edge_attention_grad_args;

/* SPARSE_MAX: x to y and entry. SPARSE_MAX_GRAD: x and entry are dy and its entries, y is dx. One
 * thread an element of y, blocks of 256. */
typedef struct by__cuda_sparse_max_args {
    const void *x;
    void *y;
    int32_t *entry;
    by__cuda_edges edges;
    int64_t count, width;
    int32_t dtype;
} by__cuda_sparse_max_args;
typedef by__cuda_sparse_max_args by__cuda_sparse_max_grad_args;

/* ---- recurrent.cu: states of `width` units, `steps` of each sample ---- */

/* What a layer's inputs give the sums of all steps: y [rows, stride], of which the first `sums`
 * columns become x [rows, inner] w^T + b. Grid: ceil(rows / 32), ceil(sums / 32); blocks of 256. */
typedef struct by__cuda_recurrent_inputs_args {
    const void *x, *w;
    const float *b;
    float *y;
    int64_t rows, inner, sums, stride;
    int32_t dtype;
} by__cuda_recurrent_inputs_args;

/* LSTM, GRU: `gates` [samples, steps, 4 width] has in its first columns what the inputs give.
 * u [width, sums] is the transposed matrix of the states, `state` [samples, width + sums] scratch
 * memory. A block for each sample. */
typedef struct by__cuda_recurrent_args {
    const void *u;
    const float *a;
    void *y;
    float *gates, *cells, *state; /* cells: LSTM */
    int64_t steps, width;
    int32_t dtype;
} by__cuda_recurrent_args;
typedef by__cuda_recurrent_args by__cuda_lstm_args;
typedef by__cuda_recurrent_args by__cuda_gru_args;

/* LSTM_GRAD: dz; GRU_GRAD: dv in its place, and dq. u [sums, width]. `state` [samples, 2 sums +
 * width]. A block for each sample. */
typedef struct by__cuda_recurrent_grad_args {
    const float *gates, *cells; /* cells: LSTM */
    const void *u, *y, *dy;     /* y: GRU */
    void *dz, *dq;              /* dq: GRU */
    float *state;
    int64_t steps, width;
    int32_t dtype;
} by__cuda_recurrent_grad_args;
typedef by__cuda_recurrent_grad_args by__cuda_lstm_grad_args;
typedef by__cuda_recurrent_grad_args by__cuda_gru_grad_args;

#endif
