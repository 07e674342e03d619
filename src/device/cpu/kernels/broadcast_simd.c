/* ADD, SUB, MUL where either operand repeats along any axes. binary_simd.c has the common case: the
 * second operand repeats over leading axes. Dtypes: activations, and b f32 or like a. */
#include "device/cpu/kernels/binary.h"

#define GRAIN 16384
/* Rows of at most this many elements are too short to be loops of their own: where the second
 * operand is the same for many of them, they are one row in which it is periodic. */
#define MOST_PERIOD 64

/* The result's axes without those of extent 1, with the strides of both operands (0 along an axis
 * that repeats). Axes that are adjacent in both are merged. */
typedef struct broadcast_layout {
    int rank; /* at least 1 */
    int64_t dim[BY_MAX_RANK];
    int64_t stride[2][BY_MAX_RANK];
    int64_t period; /* elements of the last axis after which the second operand repeats; 0: none */
} broadcast_layout;

/* Strides of an operand along the axes of the result. */
static void find_strides(int64_t stride[BY_MAX_RANK], const by_shape *y, const by_shape *x)
{
    int64_t step = 1;
    for (int axis = y->rank - 1; axis >= 0; axis--) {
        int at = axis - (y->rank - x->rank);
        int64_t extent = at < 0 ? 1 : x->dim[at];
        stride[axis] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

/* Makes one axis of the last two, if the second operand repeats along the first of them alone. */
static void merge_short_rows(broadcast_layout *l)
{
    int last = l->rank - 1;
    if (last < 1 || l->dim[last] > MOST_PERIOD || l->stride[0][last] != 1 ||
        l->stride[1][last] != 1 || l->stride[0][last - 1] != l->dim[last] ||
        l->stride[1][last - 1] != 0) {
        return;
    }
    l->period = l->dim[last];
    l->dim[last - 1] *= l->period;
    l->stride[0][last - 1] = 1;
    l->stride[1][last - 1] = 1;
    l->rank--;
}

static broadcast_layout measure(const by__device_call *call)
{
    const by_shape *y = &call->out[0].shape;
    int64_t strides[2][BY_MAX_RANK];
    broadcast_layout l = {0};
    find_strides(strides[0], y, &call->in[0].shape);
    find_strides(strides[1], y, &call->in[1].shape);
    for (int axis = 0; axis < y->rank; axis++) {
        int64_t extent = y->dim[axis];
        int last = l.rank - 1;
        if (extent == 1) {
            continue;
        }
        if (l.rank > 0 && l.stride[0][last] == extent * strides[0][axis] &&
            l.stride[1][last] == extent * strides[1][axis]) {
            l.dim[last] *= extent;
        } else {
            last = l.rank++;
            l.dim[last] = extent;
        }
        l.stride[0][last] = strides[0][axis];
        l.stride[1][last] = strides[1][axis];
    }
    if (l.rank == 0) {
        l = (broadcast_layout){.rank = 1, .dim = {1}};
    }
    merge_short_rows(&l);
    return l;
}

/* Computes n elements of a row; an operand that repeats along it is one element. */
BY__INLINE void binary_row(void *y, int64_t at, const void *a, int64_t a_at, const void *b,
                           int64_t b_at, int64_t length, bool a_one, bool b_one, by_op op,
                           by_dtype type_a, by_dtype type_b)
{
    by__vf one_a = by__splat(by__load_n(a, a_at, type_a, 1)[0]);
    by__vf one_b = by__splat(by__load_n(b, b_at, type_b, 1)[0]);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf p = a_one ? one_a : by__load_n(a, a_at + (i), type_a, n);                           \
        by__vf q = b_one ? one_b : by__load_n(b, b_at + (i), type_b, n);                           \
        by__vf z = by__binary_value(op, p, q);                                                     \
        by__store_n(y, at + (i), z, type_a, n);                                                    \
    } while (0)
    BY__STEPS(0, length, STEP);
#undef STEP
}

/* Computes n elements of a row along which b repeats after `period`. */
BY__INLINE void periodic_row(void *y, int64_t at, const void *a, int64_t a_at, const void *b,
                             int64_t b_at, int64_t length, int64_t period, by_op op,
                             by_dtype type_a, by_dtype type_b)
{
    char repeated[(MOST_PERIOD + BY__LANES) * sizeof(float)];
    size_t size = type_b == BY_F32 ? sizeof(float) : sizeof(uint16_t);
    const char *from = (const char *)b + (size_t)b_at * size;
    int64_t offset = 0;
    for (int64_t i = 0; i < period + BY__LANES; i++) {
        memcpy(repeated + (size_t)i * size, from + (size_t)(i % period) * size, size);
    }
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf p = by__load_n(a, a_at + (i), type_a, n);                                           \
        by__vf q = by__load_n(repeated, offset, type_b, n);                                        \
        by__store_n(y, at + (i), by__binary_value(op, p, q), type_a, n);                           \
        for (offset += BY__LANES; offset >= period;) {                                             \
            offset -= period;                                                                      \
        }                                                                                          \
    } while (0)
    BY__STEPS(0, length, STEP);
#undef STEP
}

BY__INLINE void broadcast(const by__device_call *call, int64_t begin, int64_t end, by_op op,
                          by_dtype type_a, by_dtype type_b)
{
    broadcast_layout l = measure(call);
    int last = l.rank - 1;
    int64_t at[BY_MAX_RANK] = {0};
    int64_t place[2] = {0, 0};
    int64_t rest = begin;
    for (int axis = last - 1; axis >= 0; axis--) {
        at[axis] = rest % l.dim[axis];
        rest /= l.dim[axis];
        place[0] += at[axis] * l.stride[0][axis];
        place[1] += at[axis] * l.stride[1][axis];
    }
    for (int64_t row = begin; row < end; row++) {
        const void *a = call->in[0].data;
        const void *b = call->in[1].data;
        void *y = call->out[0].data;
        int64_t to = row * l.dim[last];
        if (l.period > 0) {
            periodic_row(y, to, a, place[0], b, place[1], l.dim[last], l.period, op, type_a,
                         type_b);
        } else if (l.stride[0][last] != 0 && l.stride[1][last] != 0) {
            binary_row(y, to, a, place[0], b, place[1], l.dim[last], false, false, op, type_a,
                       type_b);
        } else if (l.stride[0][last] != 0) {
            binary_row(y, to, a, place[0], b, place[1], l.dim[last], false, true, op, type_a,
                       type_b);
        } else {
            binary_row(y, to, a, place[0], b, place[1], l.dim[last], true, l.stride[1][last] == 0,
                       op, type_a, type_b);
        }
        for (int axis = last - 1; axis >= 0; axis--) {
            place[0] += l.stride[0][axis];
            place[1] += l.stride[1][axis];
            if (++at[axis] < l.dim[axis]) {
                break;
            }
            place[0] -= l.dim[axis] * l.stride[0][axis];
            place[1] -= l.dim[axis] * l.stride[1][axis];
            at[axis] = 0;
        }
    }
}

BY__BINARY_RANGES(broadcast)

static bool supports(const by__device_call *call)
{
    return by__binary_accepts_types(call);
}

static by_status run_broadcast(const by__device_call *call, const by__device_context *context)
{
    broadcast_layout l = measure(call);
    int64_t count = by__tensor_count(&call->out[0]);
    int64_t length = l.dim[l.rank - 1];
    by__cpu_parallel(context, call, count / length, by__ceil_div(GRAIN, length), count,
                     range_of(call));
    return BY_OK;
}

BY__KERNEL(broadcast_add) = {BY_OP_ADD,    BY__KERNEL_NAME("broadcast_add"), supports, NULL, NULL,
                             run_broadcast};
BY__KERNEL(broadcast_sub) = {BY_OP_SUB,    BY__KERNEL_NAME("broadcast_sub"), supports, NULL, NULL,
                             run_broadcast};
BY__KERNEL(broadcast_mul) = {BY_OP_MUL,    BY__KERNEL_NAME("broadcast_mul"), supports, NULL, NULL,
                             run_broadcast};
