/* SPARSE_MATMUL, EDGE_DOTS, SPARSE_MAX, SPARSE_MAX_GRAD: x and dy of activations [B, nodes, C],
 * matrices as i32 offsets and sources, weights f32. A result is made by one thread, in the order of
 * the entries of its row. */
#include "device/cpu/edges.h"
#include "device/cpu/kernels/simd.h"

static int64_t grain_of(const by__device_call *call)
{
    return by__ceil_div(8192, by__tensor_columns(&call->in[0]));
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_rows(const by__device_call *call, const by__device_context *context,
                          const by__cpu_edges *e, by__cpu_range_fn *fn)
{
    int64_t places = by__cpu_edges_places(e);
    by__cpu_parallel(context, call, places, grain_of(call),
                     places * by__tensor_columns(&call->in[0]), fn);
    return BY_OK;
}

/* ---- SPARSE_MATMUL ---- */

static by__cpu_edges matmul_edges(const by__device_call *call)
{
    return by__cpu_edges_of(call, 1, 2, 3, call->in[0].shape.dim[1]);
}

/* Vectors of a row that are added up at a time. */
#define WIDE 4

/* Columns first .. first + columns of row r, whose entries have weight `group` of those of an edge;
 * w NULL: 1. */
BY__INLINE void sum_row(const by__device_call *call, const by__cpu_edges *e, int64_t b, int64_t r,
                        int64_t group, by_dtype type)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    bool weighted = by__present(&call->in[4]);
    int64_t groups = weighted ? by__tensor_columns(&call->in[4]) : 1;
    const float *w = weighted ? (const float *)call->in[4].data + b * e->entries * groups : NULL;
    int64_t stride = by__tensor_columns(&call->in[0]);
    int64_t columns = stride / groups;
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    int64_t to = (b * e->rows + r) * stride + group * columns;
    int64_t i = 0;
    for (; i + WIDE * BY__LANES <= columns; i += WIDE * BY__LANES) {
        by__vf sum[WIDE] = {{0}};
        for (int64_t k = begin; k < end; k++) {
            int64_t source = by__cpu_edges_source(e, b, k);
            int64_t edge = w == NULL ? 0 : by__cpu_edges_number(e, b, k);
            if (source < 0 || edge < 0) {
                continue;
            }
            int64_t from = (b * e->columns + source) * stride + group * columns + i;
            by__vf factor = by__splat(w == NULL ? 1.0f : w[edge * groups + group]);
#pragma GCC unroll 4
            for (int v = 0; v < WIDE; v++) {
                by__vf value = by__kernel_load(x, from + v * BY__LANES, type);
                sum[v] = by__multiply_add(value, factor, sum[v]);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < WIDE; v++) {
            by__kernel_store(y, to + i + v * BY__LANES, sum[v], type);
        }
    }
#define STEP(at, n)                                                                                \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t source = by__cpu_edges_source(e, b, k);                                        \
            int64_t edge = w == NULL ? 0 : by__cpu_edges_number(e, b, k);                          \
            if (source >= 0 && edge >= 0) {                                                        \
                int64_t from = (b * e->columns + source) * stride + group * columns + (at);        \
                by__vf factor = by__splat(w == NULL ? 1.0f : w[edge * groups + group]);            \
                sum = by__multiply_add(by__load_n(x, from, type, n), factor, sum);                 \
            }                                                                                      \
        }                                                                                          \
        by__store_n(y, to + (at), sum, type, n);                                                   \
    } while (0)
    BY__STEPS(i, columns, STEP);
#undef STEP
}

BY__INLINE void sum_rows(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    by__cpu_edges e = matmul_edges(call);
    int64_t groups = by__present(&call->in[4]) ? by__tensor_columns(&call->in[4]) : 1;
#define ROW(b, r)                                                                                  \
    for (int64_t group = 0; group < groups; group++) {                                             \
        sum_row(call, &e, b, r, group, type);                                                      \
    }
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

BY__ACT_RANGES(sum_rows)

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = matmul_edges(call);
    return run_rows(call, context, &e, sum_rows_ranges[call->in[0].dtype]);
}

BY__KERNEL(sparse_matmul) = {
    BY_OP_SPARSE_MATMUL, BY__KERNEL_NAME("sparse_matmul"), supports, NULL, NULL, run_matmul};

/* ---- EDGE_DOTS ---- */

static by__cpu_edges dots_edges(const by__device_call *call)
{
    return by__cpu_edges_of(call, 2, 3, -1, call->in[1].shape.dim[1]);
}

BY__INLINE void dots_row(const by__device_call *call, const by__cpu_edges *e, int64_t b, int64_t r,
                         by_dtype type)
{
    int64_t groups = call->attrs.heads;
    int64_t stride = by__tensor_columns(&call->in[0]);
    int64_t columns = stride / groups;
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    float *y = (float *)call->out[0].data + b * e->entries * groups;
    for (int64_t k = by__cpu_edges_begin(e, b, r); k < end; k++) {
        int64_t source = by__cpu_edges_source(e, b, k);
        for (int64_t g = 0; g < groups; g++) {
            int64_t mine = (b * e->rows + r) * stride + g * columns;
            int64_t other = (b * e->columns + source) * stride + g * columns;
            by__vf sum = by__zero();
#define STEP(i, n)                                                                                 \
    sum += by__load_n(call->in[0].data, mine + (i), type, n) *                                     \
           by__load_n(call->in[1].data, other + (i), type, n)
            if (source >= 0) {
                BY__STEPS(0, columns, STEP);
            }
#undef STEP
            y[k * groups + g] = by__sum(sum);
        }
    }
    if (r == e->rows - 1) {
        memset(y + end * groups, 0, (size_t)((e->entries - end) * groups) * sizeof *y);
    }
}

BY__INLINE void dots(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    by__cpu_edges e = dots_edges(call);
#define ROW(b, r) dots_row(call, &e, b, r, type)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

BY__ACT_RANGES(dots)

static by_status run_dots(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = dots_edges(call);
    return run_rows(call, context, &e, dots_ranges[call->in[0].dtype]);
}

BY__KERNEL(edge_dots) = {BY_OP_EDGE_DOTS, BY__KERNEL_NAME("edge_dots"), supports, NULL, NULL,
                         run_dots};

/* ---- SPARSE_MAX ---- */

static by__cpu_edges max_edges(const by__device_call *call)
{
    return by__cpu_edges_of(call, 1, 2, -1, call->in[0].shape.dim[1]);
}

BY__INLINE void max_row(const by__device_call *call, const by__cpu_edges *e, int64_t b, int64_t r,
                        by_dtype type)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    int64_t to = (b * e->rows + r) * columns;
    int32_t *chosen = (int32_t *)call->out[1].data + to;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf high = by__zero();                                                                  \
        by__vi entry = (by__vi){0} - 1;                                                            \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t source = by__cpu_edges_source(e, b, k);                                        \
            if (source >= 0) {                                                                     \
                int64_t from = (b * e->columns + source) * columns + (i);                          \
                by__vf v = by__load_n(call->in[0].data, from, type, n);                            \
                by__vi larger = (v > high) | (entry < 0);                                          \
                high = by__select(larger, v, high);                                                \
                entry = (larger & (int32_t)k) | (~larger & entry);                                 \
            }                                                                                      \
        }                                                                                          \
        by__store_n(call->out[0].data, to + (i), high, type, n);                                   \
        memcpy(chosen + (i), &entry, (size_t)(n) * sizeof *chosen);                                \
    } while (0)
    BY__STEPS(0, columns, STEP);
#undef STEP
}

BY__INLINE void largest(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    by__cpu_edges e = max_edges(call);
#define ROW(b, r) max_row(call, &e, b, r, type)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

BY__ACT_RANGES(largest)

static by_status run_max(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = max_edges(call);
    return run_rows(call, context, &e, largest_ranges[call->in[0].dtype]);
}

BY__KERNEL(sparse_max) = {BY_OP_SPARSE_MAX, BY__KERNEL_NAME("sparse_max"), supports, NULL, NULL,
                          run_max};

static by__cpu_edges max_grad_edges(const by__device_call *call)
{
    return by__cpu_edges_of(call, 2, 3, 4, call->in[0].shape.dim[1]);
}

BY__INLINE void max_grad_row(const by__device_call *call, const by__cpu_edges *e, int64_t b,
                             int64_t r, by_dtype type)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t begin = by__cpu_edges_begin(e, b, r);
    int64_t end = by__cpu_edges_begin(e, b, r + 1);
    int64_t to = (b * e->rows + r) * columns;
    const int32_t *chosen = call->in[1].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__zero();                                                                   \
        for (int64_t k = begin; k < end; k++) {                                                    \
            int64_t target = by__cpu_edges_source(e, b, k);                                        \
            if (target >= 0) {                                                                     \
                int64_t from = (b * e->columns + target) * columns + (i);                          \
                by__vi entry = {0};                                                                \
                memcpy(&entry, chosen + from, (size_t)(n) * sizeof *chosen);                       \
                by__vf d = by__load_n(call->in[0].data, from, type, n);                            \
                by__vi own = entry == (int32_t)by__cpu_edges_number(e, b, k);                      \
                sum += by__select(own, d, by__zero());                                             \
            }                                                                                      \
        }                                                                                          \
        by__store_n(call->out[0].data, to + (i), sum, type, n);                                    \
    } while (0)
    BY__STEPS(0, columns, STEP);
#undef STEP
}

BY__INLINE void largest_grad(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    by__cpu_edges e = max_grad_edges(call);
#define ROW(b, r) max_grad_row(call, &e, b, r, type)
    BY__EDGE_ROWS(&e, begin, end, ROW);
#undef ROW
}

BY__ACT_RANGES(largest_grad)

static by_status run_max_grad(const by__device_call *call, const by__device_context *context)
{
    by__cpu_edges e = max_grad_edges(call);
    return run_rows(call, context, &e, largest_grad_ranges[call->in[0].dtype]);
}

BY__KERNEL(sparse_max_grad) = {
    BY_OP_SPARSE_MAX_GRAD, BY__KERNEL_NAME("sparse_max_grad"), supports, NULL, NULL, run_max_grad};
