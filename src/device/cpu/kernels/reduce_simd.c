/* SUM: x activations, summed in f32 over any set of axes. Adjacent axes are merged, so what remains
 * are rows of contiguous elements that are either summed to one value or kept (as lanes). The rows
 * of a sum are divided into pieces by the shape; the pieces' sums go to the workspace and are added
 * in order. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define GRAIN 16384
/* A row that is summed is divided into parts of this many elements. */
#define PART 4096
/* Least rows per piece, and most pieces per sum. */
#define PIECE_ROWS 16
#define MAX_PIECES 64

typedef struct axis_set {
    int rank;
    int64_t dim[BY_MAX_RANK];
    int64_t stride[BY_MAX_RANK]; /* in elements of x */
    int64_t count;
} axis_set;

typedef struct reduce_plan {
    axis_set kept, summed; /* without the last axis */
    int64_t length;        /* length of a row: the last axis */
    bool lanes;            /* rows are kept */
    int64_t parts;         /* parts of a summed row */
    int64_t rows;          /* rows per sum, counting parts */
    int64_t pieces, piece; /* number of pieces, and rows of a piece */
    float factor;
} reduce_plan;

static void add_axis(axis_set *set, int64_t dim, int64_t stride)
{
    set->dim[set->rank] = dim;
    set->stride[set->rank++] = stride;
    set->count *= dim;
}

static reduce_plan measure(const by__device_call *call)
{
    const by_shape *x = &call->in[0].shape;
    int64_t dim[BY_MAX_RANK];
    bool summed[BY_MAX_RANK];
    int rank = 0;
    reduce_plan p = {.kept.count = 1, .summed.count = 1, .length = 1, .lanes = true, .parts = 1};
    for (int axis = 0; axis < x->rank; axis++) {
        bool sum = (call->attrs.axes >> axis & 1u) != 0;
        if (x->dim[axis] == 1) {
            continue;
        }
        if (rank > 0 && summed[rank - 1] == sum) {
            dim[rank - 1] *= x->dim[axis];
        } else {
            dim[rank] = x->dim[axis];
            summed[rank++] = sum;
        }
    }
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (axis == rank - 1) {
            p.length = dim[axis];
            p.lanes = !summed[axis];
        } else {
            add_axis(summed[axis] ? &p.summed : &p.kept, dim[axis], stride);
        }
        stride *= dim[axis];
    }
    p.parts = p.lanes ? 1 : by__ceil_div(p.length, PART);
    p.rows = p.summed.count * p.parts;
    p.pieces = by__min_i64(MAX_PIECES, by__ceil_div(p.rows, PIECE_ROWS));
    p.piece = by__ceil_div(p.rows, p.pieces);
    p.pieces = by__ceil_div(p.rows, p.piece);
    int64_t terms = p.summed.count * (p.lanes ? 1 : p.length);
    p.factor = call->attrs.mean ? 1.0f / (float)terms : 1.0f;
    return p;
}

/* The axes are listed from last to first. */
static int64_t place_of(const axis_set *set, int64_t i)
{
    int64_t place = 0;
    for (int axis = 0; axis + 1 < set->rank; axis++) {
        place += i % set->dim[axis] * set->stride[axis];
        i /= set->dim[axis];
    }
    return set->rank == 0 ? 0 : place + i * set->stride[set->rank - 1];
}

/* The sum of rows begin .. end that are no longer than a vector, in the order of sum_lanes. */
BY__INLINE by__vf sum_short(const void *x, const reduce_plan *p, int64_t base, int64_t begin,
                            int64_t end, by_dtype type)
{
    int n = (int)p->length;
    by__vf sum = by__zero();
    int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
        by__vf part[4];
        for (int k = 0; k < 4; k++) {
            part[k] = by__load_n(x, base + place_of(&p->summed, row + k), type, n);
        }
        sum += (part[0] + part[1]) + (part[2] + part[3]);
    }
    for (; row < end; row++) {
        sum += by__load_n(x, base + place_of(&p->summed, row), type, n);
    }
    return sum;
}

/* Sums rows begin .. end of one result into `sums`, column by column. */
BY__INLINE void sum_lanes(float *sums, const void *x, const reduce_plan *p, int64_t base,
                          int64_t begin, int64_t end, by_dtype type)
{
    int64_t row = begin;
    if (p->length <= BY__LANES) {
        by__store_n(sums, 0, sum_short(x, p, base, begin, end, type), BY_F32, (int)p->length);
        return;
    }
    memset(sums, 0, (size_t)p->length * sizeof(float));
    for (; row + 4 <= end; row += 4) {
        int64_t at[4];
        for (int k = 0; k < 4; k++) {
            at[k] = base + place_of(&p->summed, row + k);
        }
#define STEP(i, n)                                                                                 \
    by__store_n(sums, i,                                                                           \
                by__load_n(sums, i, BY_F32, n) +                                                   \
                    ((by__load_n(x, at[0] + (i), type, n) + by__load_n(x, at[1] + (i), type, n)) + \
                     (by__load_n(x, at[2] + (i), type, n) + by__load_n(x, at[3] + (i), type, n))), \
                BY_F32, n)
        BY__STEPS(0, p->length, STEP);
#undef STEP
    }
    for (; row < end; row++) {
        int64_t at = base + place_of(&p->summed, row);
#define STEP(i, n)                                                                                 \
    by__store_n(sums, i, by__load_n(sums, i, BY_F32, n) + by__load_n(x, at + (i), type, n),        \
                BY_F32, n)
        BY__STEPS(0, p->length, STEP);
#undef STEP
    }
}

BY__INLINE float sum_rows(const void *x, const reduce_plan *p, int64_t base, int64_t begin,
                          int64_t end, by_dtype type)
{
    float total = 0.0f;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = base + place_of(&p->summed, row / p->parts);
        int64_t from = row % p->parts * PART;
        int64_t to = by__min_i64(p->length, from + PART);
        by__vf sum[4] = {{0}};
        int64_t i = from;
        for (; i + 4 * BY__LANES <= to; i += 4 * BY__LANES) {
            for (int k = 0; k < 4; k++) {
                sum[k] += by__kernel_load(x, at + i + k * BY__LANES, type);
            }
        }
#define STEP(j, n) sum[0] += by__load_n(x, at + (j), type, n)
        BY__STEPS(i, to, STEP);
#undef STEP
        total += by__sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    return total;
}

static int64_t result_length(const reduce_plan *p)
{
    return p->lanes ? p->length : 1;
}

/* Computes pieces of all results into their places in the workspace. */
BY__INLINE void piece(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    reduce_plan p = measure(call);
    for (int64_t task = begin; task < end; task++) {
        int64_t base = place_of(&p.kept, task / p.pieces);
        int64_t first = task % p.pieces * p.piece;
        int64_t last = by__min_i64(p.rows, first + p.piece);
        float *sums = (float *)call->work + task * result_length(&p);
        if (p.lanes) {
            sum_lanes(sums, call->in[0].data, &p, base, first, last, type);
        } else {
            *sums = sum_rows(call->in[0].data, &p, base, first, last, type);
        }
    }
}

BY__ACT_RANGES(piece)

/* Computes results begin .. end from their pieces. */
static void finish(const by__device_call *call, int64_t begin, int64_t end)
{
    reduce_plan p = measure(call);
    const float *work = call->work;
    int64_t length = result_length(&p);
    by_dtype type = call->out[0].dtype;
    for (int64_t result = begin; result < end; result++) {
        const float *from = work + result * p.pieces * length;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf sum = by__load_n(from, i, BY_F32, n);                                               \
        for (int64_t k = 1; k < p.pieces; k++) {                                                   \
            sum += by__load_n(from, k * length + (i), BY_F32, n);                                  \
        }                                                                                          \
        by__store_n(call->out[0].data, result *length + (i), sum * p.factor, type, n);             \
    } while (0)
        BY__STEPS(0, length, STEP);
#undef STEP
    }
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    reduce_plan p = measure(call);
    size_t count = (size_t)(p.kept.count * result_length(&p));
    if (!by__size_mul(count, (size_t)p.pieces * sizeof(float), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "sum: the workspace overflows");
    }
    return BY_OK;
}

static by_status run_reduce(const by__device_call *call, const by__device_context *context)
{
    reduce_plan p = measure(call);
    int64_t count = by__tensor_count(&call->in[0]);
    int64_t row = p.lanes ? p.length : by__min_i64(p.length, PART);
    int64_t results = p.kept.count;
    by__cpu_parallel(context, call, results * p.pieces, by__ceil_div(GRAIN, p.piece * row), count,
                     piece_ranges[call->in[0].dtype]);
    by__cpu_parallel(context, call, results, by__ceil_div(GRAIN, p.pieces * result_length(&p)),
                     results * p.pieces * result_length(&p), finish);
    return BY_OK;
}

BY__KERNEL(sum) = {BY_OP_SUM, BY__KERNEL_NAME("sum"), supports, prepare, NULL, run_reduce};
