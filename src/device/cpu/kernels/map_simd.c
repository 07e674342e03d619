/* MAP: tensors act of one shape, scalars f32. Compiled without contraction into fused operations:
 * the bits are those of the separate operations, at every level. */
#include <stdalign.h>

#include "device/cpu/kernels/simd.h"
#include "device/cpu/map_plan.h"

#define BLOCK BY__MAP_BLOCK
#define GRAIN (64 * BLOCK)
/* Elements from which a new bf16 tensor is written past the caches, which do not hold it anyway. */
#define STREAMED (1 << 20)

/* One block: where each value is. A uniform value is one vector, read again and again. */
typedef struct block {
    const by__call *call;
    const by__map_plan *plan;
    const float *value[BY__MAP_VALUES];
    float (*slots)[BLOCK];
    float (*uniform)[BY__LANES];
} block;

/* Operands are read at i, i + their stride, ...: 0 for a uniform one. */
#define EACH(expression)                                                                           \
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i += BY__LANES, a += a_stride)                  \
    {                                                                                              \
        by__vf x = by__load(a, 0, BY_F32);                                                         \
        by__store(z, i, expression, BY_F32);                                                       \
    }                                                                                              \
    break
#define EACH_PAIR(expression)                                                                      \
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i += BY__LANES, a += a_stride, b += b_stride)   \
    {                                                                                              \
        by__vf x = by__load(a, 0, BY_F32);                                                         \
        by__vf y = by__load(b, 0, BY_F32);                                                         \
        by__store(z, i, expression, BY_F32);                                                       \
    }                                                                                              \
    break

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

static float *place_of(const block *t, int value)
{
    int slot = t->plan->slot[value];
    return t->plan->uniform[value] ? t->uniform[slot] : t->slots[slot];
}

static int stride_of(const block *t, int value)
{
    return t->plan->uniform[value] ? 0 : BY__LANES;
}

static float scalar_of(const by__call *call, const by_map_instruction *step)
{
    return ((const float *)call->in[step->operand[0]].data)[step->operand[1]];
}

static void run_function(by_function function, const float *a, float *z, int n)
{
    by__tensor in = {(void *)(uintptr_t)a, BY_F32, BY_SHAPE(n)};
    by__call call = {.op = BY_OP_UNARY, .input_count = 1, .output_count = 1, .in = &in};
    call.out[0] = (by__tensor){z, BY_F32, BY_SHAPE(n)};
    BY__AT_LEVEL(by__unary_range)(function)(&call, 0, n);
}

/* Step k on the first n elements, a multiple of BY__LANES. z may be a, b or c. */
static void run_step(const block *t, int k, int n)
{
    const by_map_instruction *step = &t->plan->program.step[k];
    int operands = by__map_operands(step->kind);
    const float *a = t->value[operands > 0 ? step->operand[0] : 0];
    const float *b = t->value[operands > 1 ? step->operand[1] : 0];
    const float *c = t->value[operands > 2 ? step->operand[2] : 0];
    int a_stride = operands > 0 ? stride_of(t, step->operand[0]) : 0;
    int b_stride = operands > 1 ? stride_of(t, step->operand[1]) : 0;
    int c_stride = operands > 2 ? stride_of(t, step->operand[2]) : 0;
    float *z = place_of(t, BY_MAP_MAX_INPUTS + k);
    switch (step->kind) {
    case BY_MAP_CONSTANT:
        by__store(z, 0, by__splat(step->constant), BY_F32);
        break;
    case BY_MAP_SCALAR:
        by__store(z, 0, by__splat(scalar_of(t->call, step)), BY_F32);
        break;
    case BY_MAP_ADD:
        EACH_PAIR(x + y);
    case BY_MAP_SUB:
        EACH_PAIR(x - y);
    case BY_MAP_MUL:
        EACH_PAIR(x * y);
    case BY_MAP_DIV:
        EACH_PAIR(x / y);
    case BY_MAP_MIN:
        EACH_PAIR(by__select(x < y, x, y));
    case BY_MAP_MAX:
        EACH_PAIR(by__select(x > y, x, y));
    case BY_MAP_LESS:
        EACH_PAIR(by__select(x < y, by__splat(1.0f), by__zero()));
    case BY_MAP_SELECT:
        EACH_PAIR(by__select(x != 0.0f, y, by__load(c, i / BY__LANES * c_stride, BY_F32)));
    case BY_MAP_NEGATE:
        EACH(-x);
    case BY_MAP_ABS:
        EACH(by__abs(x));
    case BY_MAP_SIGN:
        EACH(sign_of(x));
    case BY_MAP_SQUARE:
        EACH(x * x);
    case BY_MAP_SQRT:
        EACH(by__sqrt(x));
    case BY_MAP_RSQRT:
        EACH(1.0f / by__sqrt(x));
    case BY_MAP_FINITE:
        EACH(is_finite(x));
    default:
        run_function(step->function, a, z, n);
    }
}

/* Fetches part `part` of `parts` of the elements at .. at + BLOCK of each tensor. A block is read
 * tensor by tensor, a stretch too short for the processor to see what comes next; and a burst would
 * wait for the first of it. */
static void fetch(const block *t, int64_t at, int part, int parts)
{
    const by_map_program *map = &t->plan->program;
    for (int i = 0; i < map->inputs; i++) {
        if (t->plan->slot[i] < 0) {
            continue;
        }
        int64_t bytes = BLOCK * (t->call->in[i].dtype == BY_F32 ? 4 : 2);
        const char *data = (const char *)t->call->in[i].data + at * (bytes / BLOCK);
        for (int64_t line = bytes * part / parts & ~(int64_t)63; line < bytes * (part + 1) / parts;
             line += 64) {
            __builtin_prefetch(data + line);
        }
    }
}

/* Steps whose values are the same for all elements. */
static void run_uniform(const block *t)
{
    const by__map_plan *plan = t->plan;
    for (int k = 0; k < plan->program.steps; k++) {
        int value = BY_MAP_MAX_INPUTS + k;
        if (plan->uniform[value] && plan->slot[value] >= 0) {
            run_step(t, k, BY__LANES);
        }
    }
}

/* The other steps on n elements; meanwhile the elements from `next` on are fetched. */
static void run_steps(const block *t, int n, int64_t next)
{
    const by__map_plan *plan = t->plan;
    for (int k = 0, done = 0; k < plan->program.steps; k++) {
        int value = BY_MAP_MAX_INPUTS + k;
        if (!plan->uniform[value] && plan->slot[value] >= 0) {
            run_step(t, k, n);
            if (next >= 0) {
                fetch(t, next, done++, plan->work);
            }
        }
    }
}

BY__INLINE void widen(float *slot, const void *data, int64_t at, int n, by_dtype type)
{
#define STEP(i, m) by__store(slot, i, by__load_n(data, at + (i), type, m), BY_F32)
    BY__STEPS(0, n, STEP);
#undef STEP
}

/* Elements at .. at + n of each tensor. A block that is not full is copied, so that steps may run
 * on whole vectors; the lanes behind n are zeros. */
static void load_inputs(block *t, int64_t at, int n)
{
    const by__map_plan *plan = t->plan;
    for (int i = 0; i < plan->program.inputs; i++) {
        const by__tensor *in = &t->call->in[i];
        if (plan->slot[i] < 0) {
            continue;
        }
        float *slot = t->slots[plan->slot[i]];
        if (plan->direct[i] && n == BLOCK) {
            t->value[i] = (const float *)in->data + at;
            continue;
        }
        t->value[i] = slot;
        if (in->dtype == BY_F32) {
            widen(slot, in->data, at, n, BY_F32);
        } else {
            widen(slot, in->data, at, n, BY_BF16);
        }
    }
}

static void store(const by__tensor *tensor, int64_t at, const float *value, int stride, int n,
                  bool past)
{
    void *data = tensor->data;
    if (tensor->dtype == BY_F32) {
#define STEP(i, m)                                                                                 \
    by__store_n(data, at + (i), by__load(value, (i) / BY__LANES * stride, BY_F32), BY_F32, m)
        BY__STEPS(0, n, STEP);
#undef STEP
    } else if (past && n == BLOCK) {
        for (int i = 0; i < BLOCK; i += BY__LANES) {
            by__stream_bf16((uint16_t *)data + at + i,
                            by__load(value, (i) / BY__LANES * stride, BY_F32));
        }
    } else {
#define STEP(i, m)                                                                                 \
    by__store_n(data, at + (i), by__load(value, (i) / BY__LANES * stride, BY_F32), BY_BF16, m)
        BY__STEPS(0, n, STEP);
#undef STEP
    }
}

static void store_results(const block *t, int64_t at, int n, bool past)
{
    const by_map_program *map = &t->plan->program;
    for (int i = 0; i < map->updates; i++) {
        store(&t->call->in[map->update[i].input], at, t->value[map->update[i].value],
              stride_of(t, map->update[i].value), n, false);
    }
    for (int i = 0; i < map->results; i++) {
        if (by__present(&t->call->out[i])) {
            store(&t->call->out[i], at, t->value[map->result[i].value],
                  stride_of(t, map->result[i].value), n, past);
        }
    }
}

static void run_range(const by__call *call, int64_t begin, int64_t end)
{
    alignas(64) float slots[BY__MAP_VALUES][BLOCK];
    alignas(64) float uniform[BY__MAP_VALUES][BY__LANES];
    block t = {.call = call, .plan = call->state, .slots = slots, .uniform = uniform};
    bool past = by__map_count(call) >= STREAMED;
    for (int v = 0; v < BY__MAP_VALUES; v++) {
        t.value[v] = t.plan->slot[v] < 0 ? NULL : place_of(&t, v);
    }
    run_uniform(&t);
    for (int64_t at = begin; at < end; at += BLOCK) {
        int n = (int)by__min_i64(BLOCK, end - at);
        load_inputs(&t, at, n);
        run_steps(&t, (n + BY__LANES - 1) / BY__LANES * BY__LANES,
                  at + 2 * BLOCK <= end ? at + BLOCK : -1);
        store_results(&t, at, n, past);
    }
    by__stream_end();
}

static by_status run_map(const by__call *call, const by__context *context)
{
    int64_t count = by__map_count(call);
    by__parallel(context, call, count, GRAIN, count, run_range);
    return BY_OK;
}

BY__KERNEL(map) = {BY_OP_MAP,       BY__KERNEL_NAME("map"), NULL,
                   by__map_prepare, by__map_release,        run_map};
