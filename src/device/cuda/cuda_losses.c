/* The losses over a vocabulary, of its targets or of a teacher: their logits exist for a chunk of
 * rows at a time. */
#include <stdlib.h>

#include "device/cuda/cuda_products.h"

/* Bytes of the logits of a chunk. */
#define CHUNK_BYTES ((int64_t)64 << 20)
/* Chunks begin at multiples of this many rows, which keeps operands aligned. */
#define CHUNK_ROWS 128
/* Of the parts of the workspace. */
#define ALIGNMENT 256

/* Inputs of distillation. */
enum { HIDDEN = 3, HEAD, IDS, LOGARITHMS, DISTILL_DLOSS };
/* Of the gradient: logits that the forward pass kept. */
enum { KEPT = 5 };

typedef enum vocabulary_part { LOGITS, TEACHER, DX, FIRST_DW, DW, PARTS } vocabulary_part;

/* Products of a loss: for whole chunks, and for a shorter last one. */
typedef struct loss_plan {
    by_dtype dtype; /* of x, w, dx and the gradients of logits; logits are f32 */
    int64_t rows, columns, words, stride, chunk;
    int64_t logits_stride;   /* kept logits are packed */
    int64_t teacher_columns; /* 0: no teacher that multiplies */
    int64_t known;           /* ids of a row whose probabilities are given */
    by__cuda_product *products[2][PARTS];
    size_t teacher_at;   /* offsets in the workspace: of the teacher's logits, or of the student's
                            for known ids, */
    size_t gradients_at; /* of the gradients of logits, */
    size_t losses_at;    /* of the losses of rows, */
    size_t sums_at;      /* of partial sums of these, */
    size_t work_at;      /* and of the products' scratch memory */
} loss_plan;

static bool distils(const by__device_call *call)
{
    return call->op == BY_OP_LINEAR_DISTILL || call->op == BY_OP_LINEAR_DISTILL_GRAD ||
           call->op == BY_OP_LINEAR_DISTILL_TRAIN;
}

static bool has_gradients(const by__device_call *call)
{
    return call->op != BY_OP_LINEAR_CROSS_ENTROPY && call->op != BY_OP_LINEAR_TOKEN_LOSS &&
           call->op != BY_OP_LINEAR_CROSS_ENTROPY_PART && call->op != BY_OP_LINEAR_DISTILL;
}

/* The logits of all rows are an output, or the forward pass has kept them. */
static bool has_kept_logits(const by__device_call *call)
{
    return (call->op == BY_OP_LINEAR_CROSS_ENTROPY_PART && call->attrs.keep) ||
           (call->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD && by__cuda_present(call, KEPT));
}

static bool supports_loss(const by__device_call *call)
{
    by_dtype dtype = call->in[0].dtype;
    bool fits = by_dtype_is_float(dtype) && call->in[1].dtype == dtype;
    fits = fits && by__tensor_rows(&call->in[0]) > 0 && by__tensor_rows(&call->in[1]) > 0;
    return fits && by__tensor_columns(&call->in[0]) > 0;
}

static by_status open_products(loss_plan *v, int which, int64_t rows, bool gradients,
                               const by__device_context *context, by_error *error)
{
    by__cuda_product **out = v->products[which];
    const by__cuda_product_shape shapes[PARTS] = {
        [LOGITS] = {.m = rows,
                    .n = v->words,
                    .k = v->columns,
                    .dtype = v->dtype,
                    .trans_b = true,
                    .a_stride = v->columns,
                    .b_stride = v->columns,
                    .y_stride = v->logits_stride},
        [TEACHER] = {.m = rows,
                     .n = v->words,
                     .k = v->teacher_columns,
                     .dtype = v->dtype,
                     .trans_b = true,
                     .a_stride = v->teacher_columns,
                     .b_stride = v->teacher_columns,
                     .y_stride = v->stride},
        [DX] = {.m = rows,
                .n = v->columns,
                .k = v->words,
                .dtype = v->dtype,
                .y_dtype = v->dtype,
                .a_stride = v->stride,
                .b_stride = v->columns,
                .y_stride = v->columns},
        [FIRST_DW] = {.m = v->words,
                      .n = v->columns,
                      .k = rows,
                      .dtype = v->dtype,
                      .trans_a = true,
                      .a_stride = v->stride,
                      .b_stride = v->columns,
                      .y_stride = v->columns},
        [DW] = {.m = v->words,
                .n = v->columns,
                .k = rows,
                .dtype = v->dtype,
                .trans_a = true,
                .adds = true,
                .a_stride = v->stride,
                .b_stride = v->columns,
                .y_stride = v->columns},
    };
    for (int part = 0; part < (gradients ? PARTS : DX); part++) {
        if (part != TEACHER || v->teacher_columns > 0) {
            BY_TRY(by__cuda_product_open(&out[part], context, &shapes[part], error));
        }
    }
    return BY_OK;
}

static void close_plan(loss_plan *v)
{
    for (int part = 0; part < PARTS; part++) {
        by__cuda_product_close(v->products[0][part]);
        by__cuda_product_close(v->products[1][part]);
    }
    free(v);
}

static size_t most_work(const loss_plan *v)
{
    size_t most = 0;
    for (int i = 0; i < 2 * PARTS; i++) {
        const by__cuda_product *product = v->products[i / PARTS][i % PARTS];
        size_t bytes = product == NULL ? 0 : by__cuda_product_work(product);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void set_sizes(loss_plan *v, const by__device_call *call)
{
    v->dtype = call->in[0].dtype;
    v->rows = by__tensor_rows(&call->in[0]);
    v->columns = by__tensor_columns(&call->in[0]);
    v->words = by__tensor_rows(&call->in[1]);
    v->stride = (int64_t)by__round_up((size_t)v->words, CHUNK_ROWS);
    v->logits_stride = has_kept_logits(call) ? v->words : v->stride;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there are words, supports_loss says */
    int64_t most = CHUNK_BYTES / (v->stride * (int64_t)sizeof(float)) / CHUNK_ROWS * CHUNK_ROWS;
    most = most < CHUNK_ROWS ? CHUNK_ROWS : most;
    v->chunk = v->rows < most ? v->rows : most;
    if (distils(call) && by__cuda_present(call, HIDDEN)) {
        v->teacher_columns = by__tensor_columns(&call->in[HIDDEN]);
    } else if (distils(call)) {
        v->known = by__tensor_columns(&call->in[IDS]);
    }
}

static size_t floats(int64_t count)
{
    return by__round_up((size_t)count * sizeof(float), ALIGNMENT);
}

/* Places the parts of the workspace behind the logits. */
static void place_parts(loss_plan *v)
{
    int64_t logits = v->chunk * v->stride;
    size_t halves = v->dtype == BY_F32 ? 0 : (size_t)logits * by_dtype_size(v->dtype);
    v->teacher_at = (size_t)logits * sizeof(float);
    size_t end = v->teacher_at + (v->teacher_columns > 0 ? (size_t)logits * sizeof(float)
                                                         : floats(v->chunk * v->known));
    /* Gradients of the logits' format take their place. */
    v->gradients_at = v->dtype == BY_F32 ? 0 : end;
    v->losses_at = end + halves;
    v->sums_at = v->losses_at + floats(v->rows);
    v->work_at = v->sums_at + floats(by__cuda_sum_work(v->rows, 1));
}

static by_status prepare_loss(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    loss_plan *v;
    bool gradients = has_gradients(call);
    BY_TRY(by__alloc((void **)&v, 1, sizeof *v, "loss", error));
    set_sizes(v, call);
    by_status status = open_products(v, 0, v->chunk, gradients, context, error);
    if (status == BY_OK && v->rows % v->chunk != 0) {
        status = open_products(v, 1, v->rows % v->chunk, gradients, context, error);
    }
    if (status != BY_OK) {
        close_plan(v);
        return status;
    }
    place_parts(v);
    call->work_bytes = v->work_at + most_work(v);
    call->state = v;
    return BY_OK;
}

static void release_loss(by__device_call *call)
{
    if (call->state != NULL) {
        close_plan(call->state);
    }
}

/* Where a call's operands and results are. */
typedef struct loss_operands {
    const void *x, *w, *hidden, *head;
    const float *lse_in, *dloss, *weights, *logarithms;
    const int32_t *targets, *ids;
    const float *kept_in; /* logits of all rows */
    float *kept_out;
    float *losses;                /* of rows, where they are the result */
    float *loss, *lse, *own, *dw; /* own: the logits of targets */
    void *dx;
} loss_operands;

static const void *input(const by__device_call *call, int i)
{
    return by__cuda_present(call, i) ? call->in[i].data : NULL;
}

/* Outputs: loss, lse | losses, lse | lse and logits of targets, logits | dx, dw | loss, dx, dw. */
static loss_operands operands_of(const by__device_call *call)
{
    loss_operands o = {.x = call->in[0].data, .w = call->in[1].data, .targets = call->in[2].data};
    if (distils(call)) {
        o.hidden = input(call, HIDDEN);
        o.head = input(call, HEAD);
        o.ids = input(call, IDS);
        o.logarithms = input(call, LOGARITHMS);
    }
    switch (call->op) {
    case BY_OP_LINEAR_CROSS_ENTROPY:
        o.weights = input(call, 3);
        o.loss = call->out[0].data;
        o.lse = call->out[1].data;
        return o;
    case BY_OP_LINEAR_TOKEN_LOSS:
        o.losses = call->out[0].data;
        o.lse = call->out[1].data;
        return o;
    case BY_OP_LINEAR_CROSS_ENTROPY_PART:
        o.lse = call->out[0].data;
        o.own = o.lse + by__tensor_rows(&call->in[0]);
        o.kept_out = has_kept_logits(call) ? call->out[1].data : NULL;
        return o;
    case BY_OP_LINEAR_DISTILL:
        o.loss = call->out[0].data;
        return o;
    case BY_OP_LINEAR_CROSS_ENTROPY_GRAD:
        o.lse_in = call->in[3].data;
        o.dloss = call->in[4].data;
        o.kept_in = input(call, KEPT);
        o.weights = input(call, 6);
        break;
    case BY_OP_LINEAR_CROSS_ENTROPY_TRAIN:
        o.dloss = call->in[3].data;
        o.weights = input(call, 4);
        break;
    default:
        o.dloss = call->in[DISTILL_DLOSS].data;
        break;
    }
    bool trains =
        call->op == BY_OP_LINEAR_CROSS_ENTROPY_TRAIN || call->op == BY_OP_LINEAR_DISTILL_TRAIN;
    o.loss = trains ? call->out[0].data : NULL;
    o.dx = call->out[trains ? 1 : 0].data;
    o.dw = call->out[trains ? 2 : 1].data;
    return o;
}

static float *floats_at(const by__device_call *call, size_t offset)
{
    return (float *)(void *)((char *)call->work + offset);
}

static by_status launch_distill(const by__device_call *call, const loss_operands *o, int64_t begin,
                                int64_t rows, const by__device_context *context)
{
    const loss_plan *v = call->state;
    bool wide = v->words > BY__CUDA_WIDE;
    const by__cuda_distill_args args = {
        .x = call->work,
        .teacher = o->hidden == NULL ? NULL : floats_at(call, v->teacher_at),
        .targets = o->targets + begin,
        .ids = o->ids == NULL ? NULL : o->ids + begin * v->known,
        .logarithms = o->ids == NULL ? NULL : o->logarithms + begin * (v->known + 1),
        .dloss = o->dloss,
        .kept = floats_at(call, v->teacher_at),
        .loss = o->loss == NULL ? NULL : floats_at(call, v->losses_at) + begin,
        .dx = o->dloss == NULL ? NULL : (char *)call->work + v->gradients_at,
        .rows = rows,
        .columns = v->words,
        .stride = v->stride,
        .known = v->known,
        .temperature = call->attrs.theta,
        .share = call->attrs.p,
        .dx_dtype = (int32_t)v->dtype,
        .wide = wide};
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_distill, rows, wide, &args);
}

/* The logits of a chunk: kept ones, or those in the workspace. */
static const void *chunk_logits(const by__device_call *call, const loss_operands *o, int64_t begin)
{
    const loss_plan *v = call->state;
    const float *kept = o->kept_out == NULL ? o->kept_in : o->kept_out;
    return kept == NULL ? call->work : kept + begin * v->words;
}

static by_status launch_rows(const by__device_call *call, const loss_operands *o, int64_t begin,
                             int64_t rows, const by__device_context *context)
{
    const loss_plan *v = call->state;
    bool wide = v->words > BY__CUDA_WIDE;
    const by__cuda_cross_entropy_args args = {
        .x = chunk_logits(call, o, begin),
        .targets = o->targets + begin,
        .weight = o->weights == NULL ? NULL : o->weights + begin,
        .lse_in = o->lse_in == NULL ? NULL : o->lse_in + begin,
        .dloss = o->dloss,
        .lse = o->lse == NULL ? NULL : o->lse + begin,
        .own = o->own == NULL ? NULL : o->own + begin,
        .loss = o->losses != NULL ? o->losses + begin
                : o->loss == NULL ? NULL
                                  : floats_at(call, v->losses_at) + begin,
        .dx = o->dloss == NULL ? NULL : (char *)call->work + v->gradients_at,
        .rows = rows,
        .columns = v->words,
        .stride = v->logits_stride,
        .dx_stride = v->stride,
        .first = call->attrs.begin,
        .classes = call->attrs.rows > 0 ? call->attrs.rows : v->words,
        .dtype = BY_F32,
        .dx_dtype = (int32_t)v->dtype,
        .wide = wide};
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_cross_entropy, rows, wide, &args);
}

static by_status run_chunk(const by__device_call *call, const loss_operands *o, int64_t begin,
                           const by__device_context *context)
{
    const loss_plan *v = call->state;
    by__cuda_queue *queue = by__cuda_queue_of(context);
    int64_t rows = v->rows - begin < v->chunk ? v->rows - begin : v->chunk;
    by__cuda_product *const *products = v->products[rows < v->chunk];
    void *work = (char *)call->work + v->work_at;
    const void *gradients = (const char *)call->work + v->gradients_at;
    size_t first = (size_t)(begin * v->columns) * by_dtype_size(v->dtype);
    const void *x = (const char *)o->x + first;
    if (o->kept_in == NULL) {
        float *y = o->kept_out == NULL ? call->work : o->kept_out + begin * v->words;
        const by__cuda_product_operands logits = {.a = x, .b = o->w, .y = y};
        BY_TRY(by__cuda_product_run(products[LOGITS], &logits, work, queue));
    }
    if (o->hidden != NULL) {
        size_t at = (size_t)(begin * v->teacher_columns) * by_dtype_size(v->dtype);
        const by__cuda_product_operands teacher = {
            .a = (const char *)o->hidden + at, .b = o->head, .y = floats_at(call, v->teacher_at)};
        BY_TRY(by__cuda_product_run(products[TEACHER], &teacher, work, queue));
    }
    BY_TRY(distils(call) ? launch_distill(call, o, begin, rows, context)
                         : launch_rows(call, o, begin, rows, context));
    if (!has_gradients(call)) {
        return BY_OK;
    }
    const by__cuda_product_operands dx = {.a = gradients, .b = o->w, .y = (char *)o->dx + first};
    const by__cuda_product_operands dw = {.a = gradients, .b = x, .add = o->dw, .y = o->dw};
    BY_TRY(by__cuda_product_run(products[DX], &dx, work, queue));
    return by__cuda_product_run(products[begin == 0 ? FIRST_DW : DW], &dw, work, queue);
}

static by_status run_loss(const by__device_call *call, const by__device_context *context)
{
    const loss_plan *v = call->state;
    loss_operands o = operands_of(call);
    for (int64_t begin = 0; begin < v->rows; begin += v->chunk) {
        BY_TRY(run_chunk(call, &o, begin, context));
    }
    return o.loss == NULL ? BY_OK
                          : by__cuda_sum_into(context, o.loss, floats_at(call, v->losses_at),
                                              BY_F32, v->rows, 1, floats_at(call, v->sums_at));
}

#define LOSS(number, lower)                                                                        \
    const by__device_kernel by__cuda_##lower = {.op = number,                                      \
                                                .name = #lower " cublasLt",                        \
                                                .supports = supports_loss,                         \
                                                .prepare = prepare_loss,                           \
                                                .release = release_loss,                           \
                                                .run = run_loss}

LOSS(BY_OP_LINEAR_CROSS_ENTROPY, linear_cross_entropy);
LOSS(BY_OP_LINEAR_TOKEN_LOSS, linear_token_loss);
LOSS(BY_OP_LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad);
LOSS(BY_OP_LINEAR_CROSS_ENTROPY_TRAIN, linear_cross_entropy_train);
LOSS(BY_OP_LINEAR_CROSS_ENTROPY_PART, linear_cross_entropy_part);
LOSS(BY_OP_LINEAR_DISTILL, linear_distill);
LOSS(BY_OP_LINEAR_DISTILL_GRAD, linear_distill_grad);
LOSS(BY_OP_LINEAR_DISTILL_TRAIN, linear_distill_train);
