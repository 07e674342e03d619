/* kernels: the parameters of every kernel of kernels/, one struct each, passed by value. C and CUDA
 * C++ read it after the types of fixed width: from launch.h, or from kernels/prelude.cuh.
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

/* Copies `count` elements, rows of `inner` of them: element (o, i) of x is at o * x_stride + i, of y
 * at o * y_stride + i; elements of 1, 2 or 4 bytes. One thread an element, blocks of 256. */
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

/* CROSS_ENTROPY of rows of logits that are `stride` apart: lse[r], and loss[r], 0 without target.
 * Targets are those of `classes` classes, of which the logits are those from `first` on. Where
 * dx is given, it gets the gradients, which may be in the place of the logits, and zeros in columns
 * .. dx_stride - 1. lse_in: lse is read from there instead of computed. Rows. */
typedef struct by__cuda_cross_entropy_args {
    const void *x;
    const int32_t *targets;
    const float *weight; /* NULL: 1 */
    const float *lse_in; /* NULL: computed */
    const float *dloss;
    float *lse, *loss; /* may be NULL */
    void *dx;          /* may be NULL */
    int64_t rows, columns, stride, dx_stride, first, classes;
    float smoothing;
    int32_t dtype, dx_dtype, wide;
} by__cuda_cross_entropy_args;

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

/* ROPE: pairs (i, i + half) of each head. frequency[half] f32, made by the host. One thread a pair,
 * blocks of 256. */
typedef struct by__cuda_rope_args {
    const void *x;
    const int32_t *position; /* NULL: 0 */
    void *y;
    int64_t rows, length, heads, half, begin, turn, gap;
    float theta, factor, low, high, wave, amplitude;
    int32_t dtype, by_row, inverse;
} by__cuda_rope_args;

/* ---- attention.cu ---- */

#define BY__CUDA_QUERIES 16
#define BY__CUDA_KEYS    32

/* ATTENTION in f32. Query head h of sample b, row t: q + ((b * length + t) * q_stride + h * width),
 * likewise k and v with kv heads. Grid: ceil(length / BY__CUDA_QUERIES), heads, batch; blocks of
 * 128; dynamic shared memory: by__cuda_attention_shared(width). */
typedef struct by__cuda_attention_args {
    const void *q, *k, *v;
    const int32_t *lengths, *starts; /* may be NULL */
    void *y;
    float *lse;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride, window;
    float scale;
    int32_t dtype, bidirectional;
} by__cuda_attention_args;

/* delta[b, h, t] = dy . y. A warp for each row and head, blocks of 256. */
typedef struct by__cuda_attention_delta_args {
    const void *y, *dy;
    float *delta;
    int64_t rows, length, heads, width;
    int32_t dtype;
} by__cuda_attention_delta_args;

/* dk and dv: grid ceil(length / BY__CUDA_KEYS), kv heads, batch; dq: grid and shared memory as the
 * forward op's. Blocks of 128. */
typedef struct by__cuda_attention_grad_args {
    const void *q, *k, *v, *dy;
    const float *lse, *delta;
    const int32_t *lengths, *starts; /* may be NULL */
    void *dq, *dk, *dv;
    int64_t length, heads, kv_heads, width, q_stride, kv_stride, window;
    float scale;
    int32_t dtype, bidirectional;
} by__cuda_attention_grad_args;
typedef by__cuda_attention_grad_args by__cuda_attention_keys_grad_args;
typedef by__cuda_attention_grad_args by__cuda_attention_queries_grad_args;

#endif
