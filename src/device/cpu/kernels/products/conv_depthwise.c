/* CONV, CONV_TRANSPOSED and CONV_WEIGHT_GRAD where each channel is a group: sums over the window,
 * channel by channel, in vectors of channels. A tile of pixels is computed at once, from rows that
 * are still in the caches; one that reaches over the edge of the image reads a copy of what it
 * needs, with zeros around, so that it costs no more than one inside. Work is divided by rows, and
 * the sums of weights are those of fixed pieces of rows, added in order: the bits do not depend on
 * the number of threads.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/half.h"
#include "device/cpu/conv_plan.h"
#include "device/cpu/kernels/simd.h"

/* Pixels of a tile, and taps, whose sums are in registers together. */
#define PIXELS 8
#define TAPS   7
/* Vectors that a tile reads and that are copied, at most. */
#define WINDOW 128
/* Pieces of rows for the sums of weights, at most. */
#define PIECES 64

typedef struct depthwise_state {
    by__cpu_conv_plan plan;
    int64_t rows;  /* of all classes and images */
    int64_t piece; /* CONV_WEIGHT_GRAD: rows of a piece */
    int64_t pieces;
} depthwise_state;

static bool one_to_one(const by__device_call *call, const by__device_tensor *w)
{
    return call->attrs.groups > 1 && w->shape.dim[1] == 1 &&
           w->shape.dim[0] == call->attrs.groups && by__tensor_is_act(&call->in[0]) &&
           by__tensor_is_act(&call->in[1]) && by__tensor_is_act(&call->out[0]) &&
           by__tensor_count(&call->in[0]) > 0 && by__tensor_count(&call->in[1]) > 0 &&
           by__tensor_count(&call->out[0]) > 0;
}

static bool supports(const by__device_call *call)
{
    return one_to_one(call, &call->in[1]) &&
           (!by__present(&call->in[2]) || by__tensor_is_act(&call->in[2]));
}

static bool supports_weight_grad(const by__device_call *call)
{
    return one_to_one(call, &call->out[0]);
}

static void release(by__device_call *call)
{
    depthwise_state *s = call->state;
    by__cpu_conv_plan_close(&s->plan);
    free(s);
    call->state = NULL;
}

static by_status prepare_as(by__device_call *call, const by__device_tensor *w,
                            const by__device_tensor *y, bool transposed, by_error *error)
{
    depthwise_state *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a convolution", error));
    by_status status =
        by__cpu_conv_plan_open(&s->plan, &call->in[0], w, y, &call->attrs, transposed, error);
    if (status != BY_OK) {
        free(s);
        return status;
    }
    for (int64_t c = 0; c < s->plan.class_count; c++) {
        s->rows += s->plan.images * s->plan.classes[c].grid[0];
    }
    s->piece = by__ceil_div(s->rows, PIECES);
    s->pieces = by__ceil_div(s->rows, s->piece);
    call->state = s;
    return BY_OK;
}

/* ---- CONV, CONV_TRANSPOSED ---- */

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    BY_TRY(prepare_as(call, &call->in[1], &call->out[0], call->op == BY_OP_CONV_TRANSPOSED, error));
    call->work_bytes = (size_t)by__tensor_count(&call->in[1]) * sizeof(float);
    return BY_OK;
}

/* A row of pixels of a class. */
typedef struct depthwise_row {
    const by__cpu_conv_plan *plan;
    const by__cpu_conv_class *class;
    const by__device_call *call;
    int64_t image, i;
    int64_t low[2], high[2]; /* bounds of the offsets of the class's taps, and of 0 */
} depthwise_row;

static depthwise_row row_of(const by__cpu_conv_plan *plan, const by__cpu_conv_class *class,
                            const by__device_call *call, int64_t number)
{
    depthwise_row r = {.plan = plan,
                       .class = class,
                       .call = call,
                       .image = number / class->grid[0],
                       .i = number % class->grid[0]};
    for (int64_t t = class->first_tap; t < class->first_tap + class->taps; t++) {
        for (int d = 0; d < 2; d++) {
            int64_t offset = plan->tap[t].offset[d];
            r.low[d] = offset < r.low[d] ? offset : r.low[d];
            r.high[d] = offset > r.high[d] ? offset : r.high[d];
        }
    }
    return r;
}

/* Where a tile's operand lies: the image, or a copy of what the tile reads. */
typedef struct depthwise_operand {
    const void *x;
    by_dtype dtype;
    int64_t at;          /* element of the first pixel at offset 0, 0 */
    int64_t row, column; /* elements from one to the next */
    int n;               /* channels to read */
} depthwise_operand;

/* Adds to the sums of PIXELS pixels all taps whose rows are within the image, for n channels from c
 * on. */
BY__INLINE void add_taps(const depthwise_row *r, by__vf sums[PIXELS], const depthwise_operand *o,
                         int64_t c, int n)
{
    const by__cpu_conv_plan *plan = r->plan;
    const float *weights = r->call->work;
    int64_t step = plan->step[1] * o->column;
    for (int64_t t = r->class->first_tap; t < r->class->first_tap + r->class->taps; t++) {
        const int64_t *offset = plan->tap[t].offset;
        int64_t row = r->i * plan->step[0] + offset[0];
        if (row < 0 || row >= plan->source[0]) {
            continue;
        }
        by__vf weight = by__load_n(weights, t * plan->target_channels + c, BY_F32, n);
        int64_t at = o->at + offset[0] * o->row + offset[1] * o->column;
        _Pragma("GCC unroll 8") for (int p = 0; p < PIXELS; p++)
        {
            by__vf x = by__load_n(o->x, at, o->dtype, o->n);
            sums[p] = by__multiply_add(x, weight, sums[p]);
            at += step;
        }
    }
}

BY__INLINE void finish_pixel(const depthwise_row *r, by__vf sum, int64_t j, int64_t c, int n)
{
    const by__cpu_conv_plan *plan = r->plan;
    const by__device_tensor *y = &r->call->out[0];
    int64_t row = r->image * plan->target[0] + r->class->origin[0] + r->i * plan->spacing[0];
    int64_t column = r->class->origin[1] + j * plan->spacing[1];
    int64_t at = (row * plan->target[1] + column) * plan->target_channels + c;
    if (by__present(&r->call->in[2])) {
        sum += by__load_n(r->call->in[2].data, c, r->call->in[2].dtype, n);
    }
    if (by__present(&r->call->in[3])) {
        sum += by__load_n(r->call->in[3].data, at, y->dtype, n);
    }
    if (y->dtype == BY_F32) {
        by__store_n(y->data, at, sum, BY_F32, n);
    } else if (y->dtype == BY_BF16) {
        by__store_n(y->data, at, sum, BY_BF16, n);
    } else {
        by__store_n(y->data, at, sum, BY_F16, n);
    }
}

BY__INLINE void compute_tile(const depthwise_row *r, const depthwise_operand *o, int64_t j,
                             int64_t pixels, int64_t c, int n)
{
    by__vf sums[PIXELS];
    _Pragma("GCC unroll 8") for (int p = 0; p < PIXELS; p++)
    {
        sums[p] = by__zero();
    }
    add_taps(r, sums, o, c, n);
    _Pragma("GCC unroll 8") for (int p = 0; p < PIXELS; p++)
    {
        if (p < pixels) {
            finish_pixel(r, sums[p], j + p, c, n);
        }
    }
}

/* The element of the operand that pixel j reads at offset 0, 0. */
static int64_t place_of(const depthwise_row *r, int64_t j, int64_t c)
{
    const by__cpu_conv_plan *plan = r->plan;
    int64_t row = r->image * plan->source[0] + r->i * plan->step[0];
    return (row * plan->source[1] + j * plan->step[1]) * plan->source_channels + c;
}

/* A tile whose taps are all inside of the image's rows. */
BY__INLINE void compute_inside(const depthwise_row *r, int64_t j, int64_t c, int n, by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    const depthwise_operand o = {.x = r->call->in[0].data,
                                 .dtype = dtype,
                                 .at = place_of(r, j, c),
                                 .row = plan->source[1] * plan->source_channels,
                                 .column = plan->source_channels,
                                 .n = n};
    compute_tile(r, &o, j, PIXELS, c, n);
}

/* Columns of the operand that a tile reads. */
static int64_t window_columns(const depthwise_row *r)
{
    return r->high[1] - r->low[1] + (PIXELS - 1) * r->plan->step[1] + 1;
}

/* A tile of `pixels` pixels, whose operand is copied, with zeros outside of the image. */
BY__INLINE void compute_copied(const depthwise_row *r, int64_t j, int64_t pixels, int64_t c, int n,
                               by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    by__vf window[WINDOW];
    int64_t columns = window_columns(r);
    int64_t first = j * plan->step[1] + r->low[1];
    for (int64_t a = r->low[0]; a <= r->high[0]; a++) {
        int64_t row = r->i * plan->step[0] + a;
        if (row < 0 || row >= plan->source[0]) {
            continue; /* no tap is added there */
        }
        int64_t at = (r->image * plan->source[0] + row) * plan->source[1];
        by__vf *to = window + (a - r->low[0]) * columns;
        for (int64_t b = 0; b < columns; b++) {
            int64_t column = first + b;
            bool within = column >= 0 && column < plan->source[1];
            to[b] = within ? by__load_n(r->call->in[0].data,
                                        (at + column) * plan->source_channels + c, dtype, n)
                           : by__zero();
        }
    }
    const depthwise_operand o = {.x = window,
                                 .dtype = BY_F32,
                                 .at = (-r->low[0] * columns - r->low[1]) * BY__LANES,
                                 .row = columns * BY__LANES,
                                 .column = BY__LANES,
                                 .n = BY__LANES};
    compute_tile(r, &o, j, pixels, c, n);
}

/* A pixel of a window that is too large to be copied. */
BY__INLINE void compute_pixel(const depthwise_row *r, int64_t j, int64_t c, int n, by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    const float *weights = r->call->work;
    int64_t place = place_of(r, j, c);
    by__vf sum = by__zero();
    for (int64_t t = r->class->first_tap; t < r->class->first_tap + r->class->taps; t++) {
        const int64_t *offset = plan->tap[t].offset;
        int64_t row = r->i * plan->step[0] + offset[0];
        int64_t column = j * plan->step[1] + offset[1];
        if (row >= 0 && row < plan->source[0] && column >= 0 && column < plan->source[1]) {
            by__vf weight = by__load_n(weights, t * plan->target_channels + c, BY_F32, n);
            int64_t at = place + (offset[0] * plan->source[1] + offset[1]) * plan->source_channels;
            sum = by__multiply_add(by__load_n(r->call->in[0].data, at, dtype, n), weight, sum);
        }
    }
    finish_pixel(r, sum, j, c, n);
}

/* The pixels begin .. end of a class's row whose taps are all inside the image's row. */
static void inside_of(const depthwise_row *r, int64_t *begin, int64_t *end)
{
    const by__cpu_conv_plan *plan = r->plan;
    int64_t room = plan->source[1] - r->high[1];
    int64_t last = room <= 0 ? 0 : (room - 1) / plan->step[1] + 1;
    *begin = by__min_i64(by__ceil_div(-r->low[1], plan->step[1]), r->class->grid[1]);
    *end = by__min_i64(last, r->class->grid[1]);
    *end = *end < *begin ? *begin : *end;
}

BY__INLINE void compute_channels(const depthwise_row *r, int64_t c, int n, by_dtype dtype)
{
    int64_t begin;
    int64_t end;
    int64_t width = r->class->grid[1];
    bool fits = (r->high[0] - r->low[0] + 1) * window_columns(r) <= WINDOW;
    inside_of(r, &begin, &end);
    for (int64_t j = 0; j < width;) {
        if (j >= begin && j + PIXELS <= end) {
            compute_inside(r, j, c, n, dtype);
            j += PIXELS;
        } else if (fits) {
            compute_copied(r, j, width - j, c, n, dtype);
            j += PIXELS;
        } else {
            compute_pixel(r, j, c, n, dtype);
            j++;
        }
    }
}

BY__INLINE void compute_row(const depthwise_row *r, by_dtype dtype)
{
    int64_t channels = r->plan->target_channels;
    int64_t c = 0;
    for (; c + BY__LANES <= channels; c += BY__LANES) {
        compute_channels(r, c, BY__LANES, dtype);
    }
    if (c < channels) {
        compute_channels(r, c, (int)(channels - c), dtype);
    }
}

/* Weights as f32 [taps, channels], with the taps in the order of the plan. */
static void rearrange_tap(const by__cpu_conv_plan *plan, const by__device_call *call, int64_t t)
{
    float *to = (float *)call->work + t * plan->target_channels;
    const by__device_tensor *w = &call->in[1];
    for (int64_t c = 0; c < plan->target_channels; c++) {
        int64_t at = c * plan->taps + plan->tap[t].weight;
        to[c] = w->dtype == BY_F32    ? ((const float *)w->data)[at]
                : w->dtype == BY_BF16 ? by__bf16_to_f32(((const uint16_t *)w->data)[at])
                                      : by__f16_to_f32(((const uint16_t *)w->data)[at]);
    }
}

static void compute_number(const depthwise_state *s, const by__device_call *call, int64_t number)
{
    const by__cpu_conv_class *class = s->plan.classes;
    while (number >= s->plan.images * class->grid[0]) {
        number -= s->plan.images * class->grid[0];
        class ++;
    }
    const depthwise_row r = row_of(&s->plan, class, call, number);
    if (call->in[0].dtype == BY_F32) {
        compute_row(&r, BY_F32);
    } else if (call->in[0].dtype == BY_BF16) {
        compute_row(&r, BY_BF16);
    } else {
        compute_row(&r, BY_F16);
    }
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const depthwise_state *s = call->state;
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < s->plan.taps; t++) {
            rearrange_tap(&s->plan, call, t);
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < s->rows; row++) {
            compute_number(s, call, row);
        }
    }
    return BY_OK;
}

BY__KERNEL(conv_depthwise) = {
    BY_OP_CONV, BY__KERNEL_NAME("conv_depthwise"), supports, prepare, release, run};
BY__KERNEL(conv_depthwise_transposed) = {BY_OP_CONV_TRANSPOSED,
                                         BY__KERNEL_NAME("conv_depthwise_transposed"),
                                         supports,
                                         prepare,
                                         release,
                                         run};

/* ---- CONV_WEIGHT_GRAD ---- */

static by_status prepare_weight_grad(by__device_call *call, const by__device_context *context,
                                     by_error *error)
{
    BY_UNUSED(context);
    BY_TRY(prepare_as(call, &call->out[0], &call->in[1], false, error));
    const depthwise_state *s = call->state;
    call->work_bytes = (size_t)s->pieces * (size_t)by__tensor_count(&call->out[0]) * sizeof(float);
    return BY_OK;
}

/* What a row of pixels adds to the sums of `taps` taps from t on, which are in one row of the
 * window, for vectors of channels from c on. */
typedef struct weight_row {
    const by__device_call *call;
    float *sums; /* [taps, channels] */
    int64_t t, c;
    int64_t channels;
    int64_t x, dy;         /* pixels of the image and of the result with which their rows begin */
    int64_t width;         /* of the image */
    int64_t pixels, step;  /* of the result's row, and how far they are apart in the image */
    int64_t offset, apart; /* columns from a pixel to its first tap, and between taps */
} weight_row;

/* Adds the products of pixel j. `edge`: some tap may be outside of the image's row. `taps` and
 * `vectors` are constants. */
BY__INLINE void add_pixel(const weight_row *w, by__vf *sums, int64_t j, int taps, int vectors,
                          int n, bool edge, by_dtype dtype)
{
    int64_t column = j * w->step + w->offset;
    int64_t at = (w->x + column) * w->channels + w->c;
    int64_t from = (w->dy + j) * w->channels + w->c;
    by__vf dy[2];
    _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
    {
        dy[v] = by__load_n(w->call->in[1].data, from + v * BY__LANES, dtype, n);
    }
    _Pragma("GCC unroll 8") for (int q = 0; q < taps; q++)
    {
        if (!edge || (column >= 0 && column < w->width)) {
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
            {
                by__vf x = by__load_n(w->call->in[0].data, at + v * BY__LANES, dtype, n);
                sums[q * vectors + v] = by__multiply_add(x, dy[v], sums[q * vectors + v]);
            }
        }
        column += w->apart;
        at += w->apart * w->channels;
    }
}

BY__INLINE void add_weights(const weight_row *w, int taps, int vectors, int n, by_dtype dtype)
{
    by__vf sums[TAPS + 1];
    int64_t room = w->width - w->offset - (taps - 1) * w->apart;
    int64_t begin = w->offset >= 0 ? 0 : by__ceil_div(-w->offset, w->step);
    int64_t end = room <= 0 ? 0 : by__min_i64(by__ceil_div(room, w->step), w->pixels);
    begin = by__min_i64(begin, w->pixels);
    _Pragma("GCC unroll 8") for (int q = 0; q < taps; q++)
    {
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
        {
            int64_t at = (w->t + q) * w->channels + w->c + v * BY__LANES;
            sums[q * vectors + v] = by__load_n(w->sums, at, BY_F32, n);
        }
    }
    int64_t j = 0;
    for (; j < begin; j++) {
        add_pixel(w, sums, j, taps, vectors, n, true, dtype);
    }
    for (; j < end; j++) {
        add_pixel(w, sums, j, taps, vectors, n, false, dtype);
    }
    for (; j < w->pixels; j++) {
        add_pixel(w, sums, j, taps, vectors, n, true, dtype);
    }
    _Pragma("GCC unroll 8") for (int q = 0; q < taps; q++)
    {
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
        {
            int64_t at = (w->t + q) * w->channels + w->c + v * BY__LANES;
            by__store_n(w->sums, at, sums[q * vectors + v], BY_F32, n);
        }
    }
}

/* As many taps from w->t on as have a copy of the code, of `left` in their row of the window;
 * returns how many. */
BY__INLINE int add_some(const weight_row *w, int64_t left, by_dtype dtype)
{
    if (left >= TAPS) {
        add_weights(w, TAPS, 1, BY__LANES, dtype);
        return TAPS;
    }
    if (left >= 5) {
        add_weights(w, 5, 1, BY__LANES, dtype);
        return 5;
    }
    if (left >= 3) {
        add_weights(w, 3, 1, BY__LANES, dtype);
        return 3;
    }
    add_weights(w, 1, 1, BY__LANES, dtype);
    return 1;
}

/* Adds what row `number` of the result gives, for all taps and channels. */
BY__INLINE void add_row(const by__cpu_conv_plan *plan, const by__device_call *call, float *sums,
                        int64_t number, by_dtype dtype)
{
    int64_t columns = call->out[0].shape.dim[3]; /* of the window */
    int64_t channels = plan->source_channels;
    int64_t image = number / plan->target[0];
    int64_t i = number % plan->target[0];
    weight_row w = {.call = call,
                    .sums = sums,
                    .channels = channels,
                    .dy = number * plan->target[1],
                    .width = plan->source[1],
                    .pixels = plan->target[1],
                    .step = plan->step[1],
                    .apart = columns > 1 ? plan->tap[1].offset[1] - plan->tap[0].offset[1] : 0};
    for (w.c = 0; w.c < channels;) {
        bool two = columns == 3 && w.c + 2 * BY__LANES <= channels;
        int n = (int)by__min_i64(BY__LANES, channels - w.c);
        for (w.t = 0; w.t < plan->taps;) {
            int64_t row = i * plan->step[0] + plan->tap[w.t].offset[0];
            int64_t left = columns - w.t % columns;
            w.x = (image * plan->source[0] + row) * plan->source[1];
            w.offset = plan->tap[w.t].offset[1];
            if (row < 0 || row >= plan->source[0]) {
                w.t += left;
            } else if (two) {
                add_weights(&w, 3, 2, BY__LANES, dtype);
                w.t += 3;
            } else if (n == BY__LANES) {
                w.t += add_some(&w, left, dtype);
            } else {
                add_weights(&w, 1, 1, n, dtype);
                w.t++;
            }
        }
        w.c += two ? 2 * BY__LANES : n;
    }
}

static void add_piece(const depthwise_state *s, const by__device_call *call, int64_t piece)
{
    const by__cpu_conv_plan *plan = &s->plan;
    int64_t count = by__tensor_count(&call->out[0]);
    float *sums = (float *)call->work + piece * count;
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int64_t i = piece * s->piece; i < by__min_i64((piece + 1) * s->piece, s->rows); i++) {
        if (call->in[0].dtype == BY_F32) {
            add_row(plan, call, sums, i, BY_F32);
        } else if (call->in[0].dtype == BY_BF16) {
            add_row(plan, call, sums, i, BY_BF16);
        } else {
            add_row(plan, call, sums, i, BY_F16);
        }
    }
}

/* Adds the sums of all pieces for tap t, in order. */
static void finish_tap(const depthwise_state *s, const by__device_call *call, int64_t t)
{
    const by__cpu_conv_plan *plan = &s->plan;
    const by__device_tensor *dw = &call->out[0];
    int64_t count = by__tensor_count(dw);
    for (int64_t c = 0; c < plan->source_channels; c++) {
        const float *sums = (const float *)call->work + t * plan->source_channels + c;
        float sum = 0.0f;
        for (int64_t piece = 0; piece < s->pieces; piece++) {
            sum += sums[piece * count];
        }
        int64_t at = c * plan->taps + plan->tap[t].weight;
        if (dw->dtype == BY_F32) {
            ((float *)dw->data)[at] = sum;
        } else {
            ((uint16_t *)dw->data)[at] =
                dw->dtype == BY_BF16 ? by__f32_to_bf16(sum) : by__f32_to_f16(sum);
        }
    }
}

static by_status run_weight_grad(const by__device_call *call, const by__device_context *context)
{
    const depthwise_state *s = call->state;
#pragma omp parallel num_threads(context->threads) if (context->threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s->pieces; piece++) {
            add_piece(s, call, piece);
        }
#pragma omp for schedule(static)
        for (int64_t t = 0; t < s->plan.taps; t++) {
            finish_tap(s, call, t);
        }
    }
    return BY_OK;
}

BY__KERNEL(conv_depthwise_weight_grad) = {BY_OP_CONV_WEIGHT_GRAD,
                                          BY__KERNEL_NAME("conv_depthwise_weight_grad"),
                                          supports_weight_grad,
                                          prepare_weight_grad,
                                          release,
                                          run_weight_grad};
