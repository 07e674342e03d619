/* MAP: tensors of activation dtypes and one shape, scalars f32. Compiled without contraction into
 * fused operations: the bits are those of the separate operations, at every level. */
#include <stdalign.h>

#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/map_plan.h"

#define VECTORS BY__MAP_VECTORS
#define TILE    (VECTORS * BY__LANES)
#define GRAIN   32768

/* Addresses of the values of a tile, by the places of the plan. */
typedef struct map_tile {
    const by__device_call *call;
    const by__cpu_map_plan *plan;
    int64_t at; /* index of the first element */
    char *place[BY__MAP_PLACES];
} map_tile;

BY__INLINE by__vf sign_of(by__vf x)
{
    by__vf negative = by__select(x < 0.0f, by__splat(-1.0f), by__zero());
    return by__select(x > 0.0f, by__splat(1.0f), negative);
}

BY__INLINE by__vf is_finite(by__vf x)
{
    by__vi size = (by__vi)x & 0x7fffffff;
    return by__select(size < 0x7f800000, by__splat(1.0f), by__zero());
}

static float splat_of(const map_tile *t, int k)
{
    const by_map_instruction *step = &t->plan->program.step[k];
    return step->kind == BY_MAP_CONSTANT
               ? step->constant
               : ((const float *)t->call->in[step->operand[0]].data)[step->operand[1]];
}

static void run_function(by_function function, float *data)
{
    by__device_tensor in = {data, BY_F32, BY_SHAPE(TILE)};
    by__device_call call = {.op = BY_OP_UNARY, .input_count = 1, .output_count = 1, .in = &in};
    call.out[0] = in;
    BY__AT_LEVEL(by__kernel_unary_range)(function)(&call, 0, TILE);
}

/* Generates the random bits of a tile's elements: word k at place `first` + k. */
static void make_random(const map_tile *t, int first)
{
    const by_map_program *map = &t->plan->program;
    float step = ((const float *)t->call->in[map->random.input].data)[map->random.index];
    uint32_t count = (uint32_t)(int32_t)step;
    for (int i = 0; i < VECTORS; i++) {
        uint64_t element = (uint64_t)(map->random.first + t->at + i * BY__LANES);
        by__vu low = by__lane_numbers() + (uint32_t)element;
        by__vu carry = (by__vu)(low < (uint32_t)element) & 1u;
        by__vu c[4] = {low, carry + (uint32_t)(element >> 32), (by__vu){0} + count, {0}};
        by__philox_lanes(c, map->random.key[0], map->random.key[1]);
        for (int k = 0; k < BY__MAP_RANDOM_PLACES; k++) {
            memcpy(t->place[first + k] + (size_t)i * sizeof c[k], &c[k], sizeof c[k]);
        }
    }
}

/* Rounds x stochastically with the lower or the upper half of each word. */
BY__INLINE void store_random(char *out, int i, by__vf x, const char *words, bool upper)
{
    by__vu u = (by__vu)x;
    by__vu bits = (by__vu)by__kernel_load(words, i * BY__LANES, BY_F32);
    by__vu sum = u + (upper ? bits >> 16 : bits & 0xffffu);
    by__vu nan = (by__vu)(x != x); /* NOLINT(misc-redundant-expression): true of NaN alone */
    by__store_halves_n((uint16_t *)(void *)out + i * BY__LANES,
                       by__upper_halves((nan & (u | 0x400000)) | (~nan & sum)), BY__LANES);
}

#define EACH(i) _Pragma("GCC unroll 16") for (int i = 0; i < VECTORS; i++)
/* Element i of the accumulator, and of the instruction's places. */
#define X x[i]
#define A by__kernel_load(a, i *BY__LANES, BY_F32)
#define B by__kernel_load(b, i *BY__LANES, BY_F32)
/* The code of one instruction ends by jumping to the next one's code: a single jump, separate for
 * each code, which lets the processor predict what follows. */
#define DO(name, ...)                                                                              \
    name : {                                                                                       \
        char *a = t->place[op->a];                                                                 \
        const char *b = t->place[op->b];                                                           \
        BY_UNUSED(a);                                                                              \
        BY_UNUSED(b);                                                                              \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    op++;                                                                                          \
    goto *codes[op->code]
#define SET(name, expression)                                                                      \
    DO(                                                                                            \
        name, EACH(i) { X = (expression); })

BY__INLINE by__vf less(by__vf a, by__vf b)
{
    return by__select(a < b, by__splat(1.0f), by__zero());
}

/* Runs instructions on a tile, until END. */
static void run_codes(const map_tile *t, const by__cpu_map_op *op)
{
#define LABEL(code) [BY__MAP_##code] = &&code,
    static const void *const codes[] = {BY__MAP_CODES(LABEL)};
#undef LABEL
    by__vf x[VECTORS] = {{0}};
    goto *codes[op->code];
    SET(SPLAT, splat_of(t, op->a) - by__zero());
    SET(LOAD, A);
    SET(LOAD_BF16, by__kernel_load(a, i * BY__LANES, BY_BF16));
    SET(LOAD_F16, by__kernel_load(a, i * BY__LANES, BY_F16));
    DO(STORE, EACH(i) by__kernel_store(a, i * BY__LANES, X, BY_F32););
    DO(STORE_BF16, EACH(i) by__kernel_store(a, i * BY__LANES, X, BY_BF16););
    DO(STORE_F16, EACH(i) by__kernel_store(a, i * BY__LANES, X, BY_F16););
    DO(STORE_RANDOM, EACH(i) store_random(a, i, X, b, op->c != 0););
    DO(STREAM_BF16, EACH(i) by__stream_bf16((uint16_t *)(void *)a + i * BY__LANES, X););
    SET(X_ADD, X + A);
    SET(X_SUB, X - A);
    SET(X_MUL, X * A);
    SET(X_DIV, X / A);
    SET(X_MIN, by__select(X < A, X, A));
    SET(X_MAX, by__select(X > A, X, A));
    SET(X_LESS, less(X, A));
    SET(SUB_X, A - X);
    SET(DIV_X, A / X);
    SET(MIN_X, by__select(A < X, A, X));
    SET(MAX_X, by__select(A > X, A, X));
    SET(LESS_X, less(A, X));
    SET(ADD_BOTH, A + B);
    SET(SUB_BOTH, A - B);
    SET(MUL_BOTH, A * B);
    SET(DIV_BOTH, A / B);
    SET(X_SELECT, by__select(X != 0.0f, A, B));
    DO(
        PICK, a = *(const float *)(const void *)t->place[op->c] != 0.0f ? a : t->place[op->b];
        if (a != NULL) {
            EACH(i)
            X = A;
        });
    SET(X_NEGATE, -X);
    SET(X_ABS, by__abs(X));
    SET(X_SIGN, sign_of(X));
    SET(X_SQUARE, X * X);
    SET(X_SQRT, by__sqrt(X));
    SET(X_RSQRT, 1.0f / by__sqrt(X));
    SET(X_FINITE, is_finite(X));
    DO(X_FUNCTION, a = t->place[op->b]; EACH(i) by__kernel_store(a, i * BY__LANES, X, BY_F32);
       run_function(t->plan->program.step[op->a].function, (float *)(void *)a); EACH(i) X = A;);
    DO(RANDOM, make_random(t, op->a););
END:
    return;
}

/* ---- tensors ---- */

/* Sets the addresses of tensors from element `at` on, and the size of their elements; size 0 where
 * the map has no tensor at a place. */
static void place_tensors(map_tile *t, int64_t at, size_t size[BY__MAP_TENSORS])
{
    const by__device_call *call = t->call;
    const by_map_program *map = &t->plan->program;
    for (int p = 0; p < BY__MAP_TENSORS; p++) {
        int r = p - BY__MAP_RESULT;
        bool is_input = p < map->inputs && (map->scalars >> p & 1u) == 0;
        bool is_result = r >= 0 && r < map->results && by__present(&call->out[r]);
        const by__device_tensor *tensor = is_input    ? &call->in[p]
                                          : is_result ? &call->out[r]
                                                      : NULL;
        size[p] = tensor == NULL ? 0 : by_dtype_size(tensor->dtype);
        t->place[p] = tensor == NULL ? NULL : (char *)tensor->data + (size_t)at * size[p];
    }
}

/* Processes the last n elements, fewer than a tile, on copies padded with zeros. */
static void run_rest(const map_tile *whole, const size_t size[BY__MAP_TENSORS], size_t n)
{
    alignas(64) char copies[BY__MAP_TENSORS][TILE * sizeof(float)];
    map_tile t = *whole;
    memset(copies, 0, sizeof copies);
    for (int p = 0; p < BY__MAP_TENSORS; p++) {
        t.place[p] = copies[p];
        if (p < BY__MAP_RESULT && size[p] > 0) {
            memcpy(copies[p], whole->place[p], n * size[p]);
        }
    }
    run_codes(&t, t.plan->code + t.plan->tiles);
    by__stream_end();
    for (int p = 0; p < BY__MAP_TENSORS; p++) {
        if (size[p] > 0 && (p >= BY__MAP_RESULT || (t.plan->updated >> p & 1u) != 0)) {
            memcpy(whole->place[p], copies[p], n * size[p]);
        }
    }
}

static void run_range(const by__device_call *call, int64_t begin, int64_t end)
{
    alignas(64) float tiles[BY__MAP_PLACES - BY__MAP_TENSORS][TILE];
    map_tile t = {.call = call, .plan = call->state};
    size_t size[BY__MAP_TENSORS];
    for (int p = BY__MAP_TENSORS; p < t.plan->places; p++) {
        t.place[p] = (char *)tiles[p - BY__MAP_TENSORS];
    }
    t.at = begin;
    place_tensors(&t, begin, size);
    run_codes(&t, t.plan->code);
    for (; begin + TILE <= end; begin += TILE) {
        run_codes(&t, t.plan->code + t.plan->tiles);
        t.at += TILE;
        for (int p = 0; p < BY__MAP_TENSORS; p++) {
            if (size[p] > 0) {
                t.place[p] += TILE * size[p];
            }
        }
    }
    if (begin < end) {
        run_rest(&t, size, (size_t)(end - begin));
    }
    by__stream_end();
}

static by_status run_map(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__cpu_map_count(call);
    by__cpu_parallel(context, call, count, GRAIN, count, run_range);
    return BY_OK;
}

BY__KERNEL(map) = {BY_OP_MAP,           BY__KERNEL_NAME("map"), NULL,
                   by__cpu_map_prepare, by__cpu_map_release,    run_map};
