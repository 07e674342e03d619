/* FILL, RESHAPE, CONCAT, SLICE, PAD, PERMUTE, EXPAND: elements of 1, 2 or 4 bytes are copied
 * unchanged. Work is divided along the elements of the result. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define GRAIN 16384

static size_t element_bytes(const by__device_call *call)
{
    return by_dtype_size(call->out[0].dtype);
}

/* Copies n elements. Short runs, such as the rows of small patches, are not worth a call of
 * memcpy. */
BY__INLINE void copy_run(char *to, const char *from, int64_t n, size_t size)
{
    if (size == 4 && n <= 64) {
#define STEP(i, k) by__store_n(to, i, by__load_n(from, i, BY_F32, k), BY_F32, k)
        BY__STEPS(0, n, STEP);
#undef STEP
    } else {
        memcpy(to, from, (size_t)n * size);
    }
}

static bool supports_element(const by__device_call *call)
{
    return element_bytes(call) > 0 && by__tensor_count(&call->out[0]) > 0;
}

/* ---- FILL ---- */

BY__INLINE void fill(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    void *y = call->out[0].data;
    by__vf value = by__splat(call->attrs.value);
#define STEP(i, n) by__store_n(y, i, value, type, n)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__ACT_RANGES(fill)

static bool supports_fill(const by__device_call *call)
{
    return by__tensor_is_act(&call->out[0]);
}

static by_status run_fill(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->out[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, fill_ranges[call->out[0].dtype]);
    return BY_OK;
}

BY__KERNEL(fill) = {BY_OP_FILL, BY__KERNEL_NAME("fill"), supports_fill, NULL, NULL, run_fill};

/* ---- RESHAPE: nothing to do if the memory plan made it a view ---- */

static void reshape_range(const by__device_call *call, int64_t begin, int64_t end)
{
    size_t size = element_bytes(call);
    memcpy((char *)call->out[0].data + (size_t)begin * size,
           (const char *)call->in[0].data + (size_t)begin * size, (size_t)(end - begin) * size);
}

static by_status run_reshape(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->out[0]);
    if (call->out[0].data != call->in[0].data) {
        by__cpu_parallel(context, call, count, GRAIN, count, reshape_range);
    }
    return BY_OK;
}

BY__KERNEL(reshape) = {BY_OP_RESHAPE, BY__KERNEL_NAME("reshape"), supports_element, NULL, NULL,
                       run_reshape};

/* ---- CONCAT, SLICE, PAD: copies of contiguous runs ---- */

/* Number of elements in one entry of a tensor's axis `axis`: the product of the following axes. */
static int64_t inner_count(const by_shape *shape, int64_t axis)
{
    int64_t inner = 1;
    for (int64_t i = axis + 1; i < shape->rank; i++) {
        inner *= shape->dim[i];
    }
    return inner;
}

/* Finds the source of elements from `at` on in one row of the result: returns how many of them, at
 * most `most`, are contiguous at *from; NULL for zeros. */
static int64_t piece_at(const by__device_call *call, int64_t row, int64_t at, int64_t most,
                        const char **from)
{
    const by_attrs *a = &call->attrs;
    size_t size = element_bytes(call);
    int64_t inner = inner_count(&call->out[0].shape, a->axis);
    const by__device_tensor *x = &call->in[0];
    int64_t x_row = x->shape.dim[a->axis] * inner;
    int64_t begin = a->begin * inner;
    *from = NULL;
    if (call->op == BY_OP_SLICE) {
        *from = (const char *)x->data + (size_t)(row * x_row + begin + at) * size;
        return most;
    }
    if (call->op == BY_OP_PAD) {
        if (at < begin) {
            return by__min_i64(most, begin - at);
        }
        if (at >= begin + x_row) {
            return most;
        }
        *from = (const char *)x->data + (size_t)(row * x_row + at - begin) * size;
        return by__min_i64(most, begin + x_row - at);
    }
    while (at >= x_row) {
        at -= x_row;
        x++;
        x_row = x->shape.dim[a->axis] * inner;
    }
    *from = (const char *)x->data + (size_t)(row * x_row + at) * size;
    return by__min_i64(most, x_row - at);
}

static void move_range(const by__device_call *call, int64_t begin, int64_t end)
{
    size_t size = element_bytes(call);
    char *y = call->out[0].data;
    int64_t length = call->out[0].shape.dim[call->attrs.axis] *
                     inner_count(&call->out[0].shape, call->attrs.axis);
    int64_t row = begin / length;
    int64_t at = begin % length;
    while (begin < end) {
        const char *from;
        int64_t n = piece_at(call, row, at, by__min_i64(end - begin, length - at), &from);
        if (from == NULL) {
            memset(y + (size_t)begin * size, 0, (size_t)n * size);
        } else {
            copy_run(y + (size_t)begin * size, from, n, size);
        }
        begin += n;
        at += n;
        row += at == length;
        at = at == length ? 0 : at;
    }
}

static by_status run_move(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->out[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, move_range);
    return BY_OK;
}

BY__KERNEL(concat) = {BY_OP_CONCAT, BY__KERNEL_NAME("concat"), supports_element, NULL, NULL,
                      run_move};
BY__KERNEL(slice) = {BY_OP_SLICE, BY__KERNEL_NAME("slice"), supports_element, NULL, NULL, run_move};
BY__KERNEL(pad) = {BY_OP_PAD, BY__KERNEL_NAME("pad"), supports_element, NULL, NULL, run_move};

/* ---- PERMUTE, EXPAND: the result's axes with the operand's strides ---- */

/* Axes without those of extent 1; axes that are adjacent in both tensors are merged. */
typedef struct strided {
    int rank; /* at least 1 */
    int64_t dim[BY_MAX_RANK];
    int64_t stride[BY_MAX_RANK]; /* of the operand, in elements; 0 along an axis that repeats */
} strided;

static int64_t operand_stride(const by__device_call *call, int axis)
{
    const by_shape *x = &call->in[0].shape;
    if (call->op == BY_OP_PERMUTE) {
        return inner_count(x, call->attrs.order[axis]);
    }
    axis -= call->out[0].shape.rank - x->rank;
    return axis < 0 || x->dim[axis] == 1 ? 0 : inner_count(x, axis);
}

static strided measure(const by__device_call *call)
{
    const by_shape *y = &call->out[0].shape;
    strided s = {0};
    for (int axis = 0; axis < y->rank; axis++) {
        int64_t extent = y->dim[axis];
        int64_t stride = operand_stride(call, axis);
        if (extent == 1) {
            continue;
        }
        if (s.rank > 0 && s.stride[s.rank - 1] == extent * stride) {
            s.dim[s.rank - 1] *= extent;
            s.stride[s.rank - 1] = stride;
        } else {
            s.dim[s.rank] = extent;
            s.stride[s.rank++] = stride;
        }
    }
    if (s.rank == 0) {
        s = (strided){.rank = 1, .dim = {1}, .stride = {1}};
    }
    return s;
}

/* Offset of the operand's element for index `i` over the axes before `rank`, without axis
 * `skip`. */
static int64_t place_of(const strided *s, int rank, int skip, int64_t i)
{
    int64_t place = 0;
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (axis != skip) {
            place += i % s->dim[axis] * s->stride[axis];
            i /= s->dim[axis];
        }
    }
    return place;
}

/* Fills with one element. */
static void repeat(char *y, const char *x, int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(y + (size_t)i * size, x, size);
    }
}

/* Copies rows of the last axis, which are contiguous in the operand, or one repeated element. */
static void rows_range(const by__device_call *call, int64_t begin, int64_t end)
{
    strided s = measure(call);
    size_t size = element_bytes(call);
    int64_t length = s.dim[s.rank - 1];
    char *y = (char *)call->out[0].data + (size_t)(begin * length) * size;
    int64_t at[BY_MAX_RANK] = {0};
    int64_t rest = begin;
    for (int axis = s.rank - 2; axis >= 0; axis--) {
        at[axis] = rest % s.dim[axis];
        rest /= s.dim[axis];
    }
    int64_t place = place_of(&s, s.rank - 1, -1, begin);
    for (int64_t row = begin; row < end; row++) {
        const char *x = (const char *)call->in[0].data + (size_t)place * size;
        if (s.stride[s.rank - 1] == 1) {
            copy_run(y, x, length, size);
        } else {
            repeat(y, x, length, size);
        }
        y += (size_t)length * size;
        for (int axis = s.rank - 2; axis >= 0; axis--) {
            place += s.stride[axis];
            if (++at[axis] < s.dim[axis]) {
                break;
            }
            place -= s.dim[axis] * s.stride[axis];
            at[axis] = 0;
        }
    }
}

/* Transposes a block of up to BY__LANES columns of x, as long as one vector of the result's
 * elements: y[j][i] = x[i][j]. rows and columns are those of x, and constants for whole blocks. */
BY__INLINE void transpose_words(char *y, int64_t y_stride, const char *x, int64_t x_stride,
                                int rows, int columns)
{
    by__vu block[BY__LANES];
#pragma GCC unroll 16
    for (int i = 0; i < BY__LANES; i++) {
        int64_t row = i < rows ? i : rows - 1;
        block[i] = (by__vu)by__load_n(x, row * x_stride, BY_F32, columns);
    }
    by__transpose(block);
#pragma GCC unroll 16
    for (int j = 0; j < columns; j++) {
        by__store_n(y, j * y_stride, (by__vf)block[j], BY_F32, rows);
    }
}

/* The same for 2-byte elements: two neighbouring rows are combined into one of pairs, so that words
 * are transposed. */
BY__INLINE void transpose_halves(char *y, int64_t y_stride, const char *x, int64_t x_stride,
                                 int rows, int columns)
{
    const uint16_t *from = (const uint16_t *)(const void *)x;
    uint16_t *to = (uint16_t *)(void *)y;
    by__vu block[BY__LANES];
#pragma GCC unroll 16
    for (int i = 0; i < BY__LANES; i++) {
        int64_t first = 2 * i < rows ? 2 * i : rows - 1;
        int64_t second = 2 * i + 1 < rows ? 2 * i + 1 : rows - 1;
        block[i] = by__pairs(by__load_halves_n(from + first * x_stride, columns),
                             by__load_halves_n(from + second * x_stride, columns));
    }
    by__transpose(block);
#pragma GCC unroll 16
    for (int j = 0; j < columns; j++) {
        memcpy(to + j * y_stride, &block[j], (size_t)rows * sizeof *to);
    }
}

/* Bytes of rows and columns of x that are transposed together: four cache lines of each row read
 * and each column written; every one of these needs a TLB entry. */
#define TILE_BYTES 256

BY__INLINE void transpose_tile(char *y, int64_t y_stride, const char *x, int64_t x_stride,
                               int64_t rows, int64_t columns, size_t size)
{
    const int length = (int)(BY__LANES * sizeof(float) / size);
    for (int64_t j = 0; j < columns; j += BY__LANES) {
        int wide = (int)by__min_i64(BY__LANES, columns - j);
        for (int64_t i = 0; i < rows; i += length) {
            int high = (int)by__min_i64(length, rows - i);
            char *to = y + (j * y_stride + i) * (int64_t)size;
            const char *from = x + (i * x_stride + j) * (int64_t)size;
            bool whole = wide == BY__LANES && high == length;
            if (size == 4 && whole) {
                transpose_words(to, y_stride, from, x_stride, BY__LANES, BY__LANES);
            } else if (size == 4) {
                transpose_words(to, y_stride, from, x_stride, high, wide);
            } else if (whole) {
                transpose_halves(to, y_stride, from, x_stride, 2 * BY__LANES, BY__LANES);
            } else {
                transpose_halves(to, y_stride, from, x_stride, high, wide);
            }
        }
    }
}

/* The axis of the result along which the operand is contiguous; -1 if there is none. */
static int contiguous_axis(const strided *s)
{
    for (int axis = s->rank - 1; axis >= 0; axis--) {
        if (s->stride[axis] == 1) {
            return axis;
        }
    }
    return -1;
}

/* Transposes tiles of the last axis of the result and its axis `across`, in which the operand is
 * contiguous. */
static void tiles_range(const by__device_call *call, int64_t begin, int64_t end)
{
    strided s = measure(call);
    size_t size = element_bytes(call);
    int across = contiguous_axis(&s);
    int64_t rows = s.dim[s.rank - 1];
    int64_t columns = s.dim[across];
    int64_t x_stride = s.stride[s.rank - 1];
    strided y = s; /* the same axes with the result's strides */
    for (int axis = s.rank - 1, step = 1; axis >= 0; axis--) {
        y.stride[axis] = axis == s.rank - 1 ? step : y.stride[axis + 1] * s.dim[axis + 1];
    }
    int64_t side = TILE_BYTES / (int64_t)size;
    int64_t down = by__ceil_div(rows, side);
    int64_t tiles = down * by__ceil_div(columns, side);
    for (int64_t task = begin; task < end; task++) {
        int64_t i = task % down * side;
        int64_t j = task % tiles / down * side;
        int64_t x_place = place_of(&s, s.rank - 1, across, task / tiles) + i * x_stride + j;
        int64_t y_place = place_of(&y, s.rank - 1, across, task / tiles) + j * y.stride[across] + i;
        char *to = (char *)call->out[0].data + (size_t)y_place * size;
        const char *from = (const char *)call->in[0].data + (size_t)x_place * size;
        int64_t high = by__min_i64(side, rows - i);
        int64_t wide = by__min_i64(side, columns - j);
        if (size == 4) {
            transpose_tile(to, y.stride[across], from, x_stride, high, wide, 4);
        } else {
            transpose_tile(to, y.stride[across], from, x_stride, high, wide, 2);
        }
    }
}

static bool supports_strided(const by__device_call *call)
{
    strided s = measure(call);
    int64_t last = s.stride[s.rank - 1];
    return supports_element(call) &&
           (last <= 1 || (element_bytes(call) >= 2 && contiguous_axis(&s) >= 0));
}

static by_status run_strided(const by__device_call *call, const by__device_context *context)
{
    strided s = measure(call);
    int64_t count = by__tensor_count(&call->out[0]);
    int64_t length = s.dim[s.rank - 1];
    if (s.stride[s.rank - 1] <= 1) {
        by__cpu_parallel(context, call, count / length, by__ceil_div(GRAIN, length), count,
                         rows_range);
        return BY_OK;
    }
    int64_t columns = s.dim[contiguous_axis(&s)];
    int64_t side = TILE_BYTES / (int64_t)element_bytes(call);
    int64_t tiles = by__ceil_div(length, side) * by__ceil_div(columns, side);
    int64_t grain = by__ceil_div(GRAIN, by__min_i64(length, side) * by__min_i64(columns, side));
    by__cpu_parallel(context, call, count / length / columns * tiles, grain, count, tiles_range);
    return BY_OK;
}

BY__KERNEL(permute) = {BY_OP_PERMUTE, BY__KERNEL_NAME("permute"), supports_strided, NULL, NULL,
                       run_strided};
BY__KERNEL(expand) = {BY_OP_EXPAND, BY__KERNEL_NAME("expand"), supports_strided, NULL, NULL,
                      run_strided};
