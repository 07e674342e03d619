/* CONV, CONV_TRANSPOSED and CONV_WEIGHT_GRAD where each channel is a group: sums over the window,
 * channel by channel, in vectors of channels. Memory bounds them, not arithmetic, so each row of
 * pixels is computed at once, from rows that are still in the caches. Work is divided by rows, and
 * the sums of weights are those of fixed pieces of rows, added in order: the bits do not depend on
 * the number of threads.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/half.h"
#include "device/cpu/conv_plan.h"
#include "device/cpu/kernels/simd.h"

/* Pixels, and taps, whose sums are in registers together. */
#define PIXELS 8
#define TAPS   4
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
} depthwise_row;

/* Adds to the sums of `pixels` (a constant) pixels from j on what tap t reads, for n channels
 * from c on. `inside`: no pixel is outside of the image's row. */
BY__INLINE void add_tap(const depthwise_row *r, by__vf sums[PIXELS], const by__cpu_conv_tap *tap,
                        by__vf weight, int64_t j, int pixels, bool inside, int64_t c, int n,
                        by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    int64_t channels = plan->source_channels;
    int64_t row = r->image * plan->source[0] + r->i * plan->step[0] + tap->offset[0];
    int64_t column = j * plan->step[1] + tap->offset[1];
    int64_t at = (row * plan->source[1] + column) * channels + c;
    _Pragma("GCC unroll 8") for (int p = 0; p < pixels; p++)
    {
        int64_t here = column + p * plan->step[1];
        if (inside || (here >= 0 && here < plan->source[1])) {
            by__vf x = n == BY__LANES ? by__kernel_load(r->call->in[0].data, at, dtype)
                                      : by__load_n(r->call->in[0].data, at, dtype, n);
            sums[p] = by__multiply_add(x, weight, sums[p]);
        }
        at += plan->step[1] * channels;
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

BY__INLINE void compute_pixels(const depthwise_row *r, int64_t j, int pixels, bool inside,
                               int64_t c, int n, by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    const float *weights = r->call->work;
    by__vf sums[PIXELS];
    _Pragma("GCC unroll 8") for (int p = 0; p < pixels; p++)
    {
        sums[p] = by__zero();
    }
    for (int64_t t = r->class->first_tap; t < r->class->first_tap + r->class->taps; t++) {
        int64_t row = r->i * plan->step[0] + plan->tap[t].offset[0];
        if (row >= 0 && row < plan->source[0]) {
            by__vf weight = by__load_n(weights, t * plan->target_channels + c, BY_F32, n);
            add_tap(r, sums, &plan->tap[t], weight, j, pixels, inside, c, n, dtype);
        }
    }
    _Pragma("GCC unroll 8") for (int p = 0; p < pixels; p++)
    {
        finish_pixel(r, sums[p], j + p, c, n);
    }
}

/* The pixels begin .. end of a class's row whose taps are all inside the image's row. */
static void inside_of(const by__cpu_conv_plan *plan, const by__cpu_conv_class *class,
                      int64_t *begin, int64_t *end)
{
    int64_t least = 0;
    int64_t most = 0;
    for (int64_t t = class->first_tap; t < class->first_tap + class->taps; t++) {
        int64_t offset = plan->tap[t].offset[1];
        least = offset < least ? offset : least;
        most = offset > most ? offset : most;
    }
    int64_t room = plan->source[1] - most;
    int64_t last = room <= 0 ? 0 : (room - 1) / plan->step[1] + 1;
    *begin = by__min_i64(by__ceil_div(-least, plan->step[1]), class->grid[1]);
    *end = by__min_i64(last, class->grid[1]);
    *end = *end < *begin ? *begin : *end;
}

BY__INLINE void compute_channels(const depthwise_row *r, int64_t c, int n, by_dtype dtype)
{
    int64_t begin;
    int64_t end;
    inside_of(r->plan, r->class, &begin, &end);
    int64_t j = 0;
    while (j < r->class->grid[1]) {
        if (j >= begin && j + PIXELS <= end) {
            compute_pixels(r, j, PIXELS, true, c, n, dtype);
            j += PIXELS;
        } else {
            compute_pixels(r, j, 1, false, c, n, dtype);
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
    depthwise_row r = {&s->plan, class, call, number / class->grid[0], number % class->grid[0]};
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

/* Adds the sums over a row of pixels for `taps` (a constant) taps from t on, which are in one
 * row of the window, and n channels from c on. */
BY__INLINE void add_weights(const depthwise_row *r, float *sums, int64_t t, int taps, int64_t c,
                            int n, by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    int64_t channels = plan->source_channels;
    const by__cpu_conv_tap *tap = &plan->tap[t];
    int64_t row = r->i * plan->step[0] + tap->offset[0];
    if (row < 0 || row >= plan->source[0]) {
        return;
    }
    const void *x = r->call->in[0].data;
    int64_t at = (r->image * plan->source[0] + row) * plan->source[1];
    int64_t dy_at = (r->image * plan->target[0] + r->i) * plan->target[1];
    by__vf sum[TAPS];
    _Pragma("GCC unroll 4") for (int q = 0; q < taps; q++)
    {
        sum[q] = by__load_n(sums, (t + q) * channels + c, BY_F32, n);
    }
    for (int64_t j = 0; j < plan->target[1]; j++) {
        by__vf dy = by__load_n(r->call->in[1].data, (dy_at + j) * channels + c, dtype, n);
        _Pragma("GCC unroll 4") for (int q = 0; q < taps; q++)
        {
            int64_t column = j * plan->step[1] + tap[q].offset[1];
            if (column >= 0 && column < plan->source[1]) {
                by__vf v = by__load_n(x, (at + column) * channels + c, dtype, n);
                sum[q] = by__multiply_add(v, dy, sum[q]);
            }
        }
    }
    _Pragma("GCC unroll 4") for (int q = 0; q < taps; q++)
    {
        by__store_n(sums, (t + q) * channels + c, sum[q], BY_F32, n);
    }
}

BY__INLINE void add_row(const depthwise_row *r, float *sums, int64_t width, by_dtype dtype)
{
    const by__cpu_conv_plan *plan = r->plan;
    for (int64_t c = 0; c < plan->source_channels; c += BY__LANES) {
        int n = (int)by__min_i64(BY__LANES, plan->source_channels - c);
        for (int64_t t = 0; t < plan->taps;) {
            int64_t left = width - t % width;
            if (left >= TAPS) {
                add_weights(r, sums, t, TAPS, c, n, dtype);
                t += TAPS;
            } else if (left == 3) {
                add_weights(r, sums, t, 3, c, n, dtype);
                t += 3;
            } else {
                add_weights(r, sums, t, 1, c, n, dtype);
                t++;
            }
        }
    }
}

static void add_piece(const depthwise_state *s, const by__device_call *call, int64_t piece)
{
    const by__cpu_conv_plan *plan = &s->plan;
    int64_t count = by__tensor_count(&call->out[0]);
    float *sums = (float *)call->work + piece * count;
    int64_t height = plan->target[0];
    int64_t width = call->out[0].shape.dim[3];
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int64_t i = piece * s->piece; i < by__min_i64((piece + 1) * s->piece, s->rows); i++) {
        depthwise_row r = {plan, plan->classes, call, i / height, i % height};
        if (call->in[0].dtype == BY_F32) {
            add_row(&r, sums, width, BY_F32);
        } else if (call->in[0].dtype == BY_BF16) {
            add_row(&r, sums, width, BY_BF16);
        } else {
            add_row(&r, sums, width, BY_F16);
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
