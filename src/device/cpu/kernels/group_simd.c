/* SCATTER_ROWS, GATHER_ROWS, ROW_DOTS: rows of C elements, activations, selected by i32 slots and
 * members. Each row of a result is computed by one thread, with sums in the order of the slots. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

static int64_t grain_of(const by__device_call *call)
{
    return by__ceil_div(8192, by__tensor_columns(&call->in[0]));
}

static const float *weights_of(const by__device_call *call)
{
    return call->input_count > 3 && by__present(&call->in[3]) ? call->in[3].data : NULL;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].dtype == call->out[0].dtype;
}

BY__INLINE void scatter(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const int32_t *member = call->in[2].data;
    const float *weight = weights_of(call);
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    int64_t entries = by__tensor_count(&call->in[1]);
    size_t bytes = (size_t)columns * by_dtype_size(type);
    for (int64_t s = begin; s < end; s++) {
        char *to = (char *)call->out[0].data + (size_t)s * bytes;
        int64_t entry = member[s];
        if (entry < 0 || entry >= entries) {
            memset(to, 0, bytes);
            continue;
        }
        const char *from = (const char *)call->in[0].data + (size_t)(entry / chosen) * bytes;
        if (weight == NULL) {
            memcpy(to, from, bytes);
            continue;
        }
        float factor = weight[entry];
#define STEP(i, n) by__store_n(to, i, by__load_n(from, i, type, n) * factor, type, n)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(scatter)

static by_status run_scatter(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_rows(&call->out[0]), grain_of(call),
                     by__tensor_count(&call->out[0]), scatter_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(scatter_rows) = {
    BY_OP_SCATTER_ROWS, BY__KERNEL_NAME("scatter_rows"), supports, NULL, NULL, run_scatter};

BY__INLINE void gather(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const int32_t *slot = call->in[1].data;
    const float *weight = weights_of(call);
    const void *x = call->in[0].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    for (int64_t row = begin; row < end; row++) {
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t j = row * chosen; j < (row + 1) * chosen; j++) {                              \
            if (slot[j] >= 0 && slot[j] < rows) {                                                  \
                float factor = weight == NULL ? 1.0f : weight[j];                                  \
                sum += by__load_n(x, slot[j] * columns + (i), type, n) * factor;                   \
            }                                                                                      \
        }                                                                                          \
        by__store_n(call->out[0].data, row *columns + (i), sum, type, n);                          \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

BY__ACT_RANGES(gather)

static by_status run_gather(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_rows(&call->out[0]), grain_of(call),
                     by__tensor_count(&call->in[1]) * by__tensor_columns(&call->in[0]),
                     gather_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(gather_rows) = {BY_OP_GATHER_ROWS, BY__KERNEL_NAME("gather_rows"), supports, NULL, NULL,
                           run_gather};

BY__INLINE void dots(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *a = call->in[0].data;
    const void *b = call->in[1].data;
    const int32_t *slot = call->in[2].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[1]);
    int64_t chosen = by__tensor_columns(&call->in[2]);
    for (int64_t j = begin; j < end; j++) {
        by__vf sum = by__zero();
        int64_t mine = j / chosen * columns;
        int64_t other = (int64_t)slot[j] * columns;
        if (slot[j] >= 0 && slot[j] < rows) {
#define STEP(i, n) sum += by__load_n(a, mine + (i), type, n) * by__load_n(b, other + (i), type, n)
            BY__STEPS(0, columns, STEP);
#undef STEP
        }
        ((float *)call->out[0].data)[j] = by__sum(sum);
    }
}

BY__ACT_RANGES(dots)

static bool supports_dots(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].dtype == call->in[1].dtype;
}

static by_status run_dots(const by__device_call *call, const by__device_context *context)
{
    int64_t entries = by__tensor_count(&call->in[2]);
    by__cpu_parallel(context, call, entries, grain_of(call),
                     entries * by__tensor_columns(&call->in[0]), dots_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(row_dots) = {BY_OP_ROW_DOTS, BY__KERNEL_NAME("row_dots"), supports_dots, NULL, NULL,
                        run_dots};
