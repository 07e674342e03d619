/* EMBEDDING, EMBEDDING_GRAD, POSITION, POSITION_GRAD. Tables [V, C]; ids i32; dtypes:
 * activations. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

static int64_t row_grain(int64_t columns)
{
    return by__ceil_div(8192, columns);
}

static void gather(const by__device_call *call, int64_t begin, int64_t end)
{
    const int32_t *ids = call->in[0].data;
    int64_t rows = by__tensor_rows(&call->in[1]);
    size_t bytes = (size_t)by__tensor_columns(&call->in[1]) * by_dtype_size(call->in[1].dtype);
    for (int64_t k = begin; k < end; k++) {
        char *to = (char *)call->out[0].data + (size_t)k * bytes;
        if (ids[k] >= 0 && ids[k] < rows) {
            memcpy(to, (const char *)call->in[1].data + (size_t)ids[k] * bytes, bytes);
        } else {
            memset(to, 0, bytes);
        }
    }
}

static bool supports_embedding(const by__device_call *call)
{
    return call->in[1].dtype == call->out[0].dtype;
}

static by_status run_embedding(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_count(&call->in[0]),
                     row_grain(by__tensor_columns(&call->in[1])), by__tensor_count(&call->out[0]),
                     gather);
    return BY_OK;
}

BY__KERNEL(embedding) = {
    BY_OP_EMBEDDING, BY__KERNEL_NAME("embedding"), supports_embedding, NULL, NULL, run_embedding};

/* Adds the rows of dy to the table in the order of the ids; each range of columns is one thread's,
 * so the order of a sum does not depend on the division. */
BY__INLINE void scatter(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const int32_t *ids = call->in[0].data;
    const void *dy = call->in[1].data;
    float *table = call->out[0].data;
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t columns = by__tensor_columns(&call->out[0]);
    int64_t rows = by__tensor_rows(&call->out[0]);
    for (int64_t k = 0; k < count; k++) {
        if (ids[k] < 0 || ids[k] >= rows) {
            continue;
        }
        float *row = table + ids[k] * columns;
#define STEP(i, n)                                                                                 \
    by__store_n(row, i,                                                                            \
                by__load_n(row, i, BY_F32, n) + by__load_n(dy, k * columns + (i), type, n),        \
                BY_F32, n)
        BY__STEPS(begin, end, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(scatter)

static bool based(const by__device_call *call)
{
    return call->input_count > 2 && by__present(&call->in[2]);
}

static void start_table(const by__device_call *call, int64_t begin, int64_t end)
{
    float *table = call->out[0].data;
    size_t bytes = (size_t)(end - begin) * sizeof(float);
    if (based(call)) {
        memcpy(table + begin, (const float *)call->in[2].data + begin, bytes);
    } else {
        memset(table + begin, 0, bytes);
    }
}

static bool supports_embedding_grad(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[1]);
}

static by_status run_embedding_grad(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *dy = &call->in[1];
    int64_t size = by__tensor_count(&call->out[0]);
    int64_t columns = by__tensor_columns(dy);
    if (!based(call) || call->in[2].data != call->out[0].data) {
        by__cpu_parallel(context, call, size, 65536, size, start_table);
    }
    /* Whole cache lines, and as wide as the number of threads allows. */
    int64_t grain = by__ceil_div(by__ceil_div(columns, context->threads), 16) * 16;
    by__cpu_parallel(context, call, columns, grain, by__tensor_count(dy),
                     scatter_ranges[dy->dtype]);
    return BY_OK;
}

BY__KERNEL(embedding_grad) = {
    BY_OP_EMBEDDING_GRAD, BY__KERNEL_NAME("embedding_grad"), supports_embedding_grad, NULL, NULL,
    run_embedding_grad};

/* x [B, T, C] flattened to rows; row r gets row r % T of the table. */
BY__INLINE void position(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *x = call->in[0].data;
    const void *table = call->in[1].data;
    void *y = call->out[0].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t length = call->in[0].shape.dim[call->in[0].shape.rank - 2];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        int64_t from = by__place_of(&call->attrs, row % length) * columns;
#define STEP(i, n)                                                                                 \
    by__store_n(y, at + (i),                                                                       \
                by__load_n(x, at + (i), type, n) + by__load_n(table, from + (i), type, n), type,   \
                n)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(position)

static bool supports_position(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[1].dtype == call->in[0].dtype;
}

static by_status run_position(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    by__cpu_parallel(context, call, by__tensor_rows(x), row_grain(by__tensor_columns(x)),
                     by__tensor_count(x), position_ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(position) = {BY_OP_POSITION, BY__KERNEL_NAME("position"), supports_position, NULL, NULL,
                        run_position};

/* Elements begin .. end of the table's gradient: sums over B of dy, taken as [B, T * C], from
 * element `from` on. */
BY__INLINE void position_sums(const by__device_call *call, int64_t begin, int64_t end, int64_t from,
                              by_dtype type)
{
    const by__device_tensor *dy = &call->in[0];
    float *dtable = call->out[0].data;
    int64_t size = dy->shape.dim[dy->shape.rank - 2] * by__tensor_columns(dy);
    int64_t samples = size == 0 ? 0 : by__tensor_count(dy) / size;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t sample = 0; sample < samples; sample++) {                                     \
            sum += by__load_n(dy->data, sample * size + (i)-begin + from, type, n);                \
        }                                                                                          \
        by__store_n(dtable, i, sum, BY_F32, n);                                                    \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

/* The rows of the table that dy refers to are one range, or two; the others are zero. */
BY__INLINE void position_grad(const by__device_call *call, int64_t begin, int64_t end,
                              by_dtype type)
{
    const by__device_tensor *dy = &call->in[0];
    float *dtable = call->out[0].data;
    int64_t columns = by__tensor_columns(dy);
    int64_t size = dy->shape.dim[dy->shape.rank - 2] * columns;
    int64_t turn = by__min_i64(size, call->attrs.turn * columns);
    int64_t at = begin;
    for (int64_t run = turn > 0 ? 0 : 1; run < 2; run++) {
        int64_t from = run == 0 ? 0 : turn;
        int64_t first = (call->attrs.begin + (run == 0 ? 0 : call->attrs.gap)) * columns + from;
        int64_t start = by__min_i64(end, first > at ? first : at);
        int64_t stop = by__min_i64(end, first + (run == 0 ? turn : size - turn));
        if (start < stop) {
            memset(dtable + at, 0, (size_t)(start - at) * sizeof(float));
            position_sums(call, start, stop, from + start - first, type);
            at = stop;
        }
    }
    memset(dtable + at, 0, (size_t)(end - at) * sizeof(float));
}

BY__ACT_RANGES(position_grad)

static bool supports_position_grad(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_position_grad(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_count(&call->out[0]), 8192,
                     by__tensor_count(&call->in[0]), position_grad_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(position_grad) = {
    BY_OP_POSITION_GRAD, BY__KERNEL_NAME("position_grad"), supports_position_grad, NULL, NULL,
    run_position_grad};
