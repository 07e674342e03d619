/* MAP: makes the interpreter's program. Values that differ between elements are in slots of shared
 * memory, as few at a time as are still needed; the others, uniforms, are computed once a block. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/launch.h"

_Static_assert(BY_MAP_CONSTANT == 0 && BY_MAP_FUNCTION == 17 && BY_MAP_KINDS == 18, "map.cu");
_Static_assert(BY__CUDA_MAP_TENSORS == BY_MAP_MAX_INPUTS + BY_MAX_OUTPUTS &&
                   BY__CUDA_MAP_UNIFORMS == BY_MAP_MAX_STEPS,
               "kernels.h");

#define VALUES     (BY_MAP_MAX_INPUTS + BY_MAP_MAX_STEPS)
#define AT_END     BY_MAP_MAX_STEPS
#define MOST_SLOTS 96
#define SHARED     (48 << 10)

/* Where a uniform comes from that is a scalar of a tensor. */
typedef struct map_scalar {
    int input; /* -1: it is not */
    int index;
} map_scalar;

typedef struct map_interpreter {
    by__cuda_map_args args; /* without addresses */
    map_scalar scalar[BY__CUDA_MAP_UNIFORMS];
    unsigned block;
    unsigned shared;
} map_interpreter;

typedef struct map_maker {
    const by__device_call *call;
    const by_map_program *map;
    map_interpreter *state;
    int last[VALUES];    /* step that reads a value last, AT_END, or -1 */
    int operand[VALUES]; /* slot or uniform of a value, or -1 */
    bool uniform[VALUES];
    bool taken[MOST_SLOTS];
    int slots;
} map_maker;

static void note_read(map_maker *m, int value, int step)
{
    m->last[value] = m->last[value] < step ? step : m->last[value];
}

static void find_reads(map_maker *m)
{
    const by_map_program *map = m->map;
    for (int v = 0; v < VALUES; v++) {
        m->last[v] = -1;
        m->operand[v] = -1;
    }
    for (int r = 0; r < map->results; r++) {
        if (m->call->out[r].shape.rank >= 0) {
            note_read(m, map->result[r].value, AT_END);
        }
    }
    for (int u = 0; u < map->updates; u++) {
        note_read(m, map->update[u].value, AT_END);
    }
    for (int k = map->steps - 1; k >= 0; k--) {
        bool live = m->last[BY_MAP_MAX_INPUTS + k] >= 0;
        for (int i = 0; live && i < by_map_operands(map->step[k].kind); i++) {
            note_read(m, map->step[k].operand[i], k);
        }
    }
    for (int k = 0; k < map->steps; k++) {
        bool uniform = true;
        for (int i = 0; i < by_map_operands(map->step[k].kind); i++) {
            uniform = uniform && m->uniform[map->step[k].operand[i]];
        }
        m->uniform[BY_MAP_MAX_INPUTS + k] = uniform;
    }
}

static void emit(map_maker *m, int op, int to, int a, int b, int c, int function)
{
    by__cuda_map_args *args = &m->state->args;
    assert(args->codes < BY__CUDA_MAP_CODES);
    args->code[args->codes++] = (by__cuda_map_code){
        (uint8_t)op, (uint8_t)to, (uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)function, {0, 0}};
}

static int free_slot(map_maker *m)
{
    int slot = 0;
    while (m->taken[slot]) {
        slot++;
    }
    m->taken[slot] = true;
    m->slots = slot >= m->slots ? slot + 1 : m->slots;
    return slot;
}

/* The operand of a value; an input is loaded when it is needed first. */
static int operand_of(map_maker *m, int value)
{
    if (m->operand[value] < 0) {
        assert(value < BY_MAP_MAX_INPUTS);
        m->operand[value] = free_slot(m);
        emit(m, BY__CUDA_MAP_LOAD, m->operand[value], value, 0, 0, 0);
    }
    return m->operand[value];
}

static void compute(map_maker *m, int k)
{
    const by_map_instruction *step = &m->map->step[k];
    int count = by_map_operands(step->kind);
    int operand[3] = {0};
    for (int i = 0; i < count; i++) {
        operand[i] = operand_of(m, step->operand[i]);
    }
    for (int i = count; i < 3; i++) {
        operand[i] = operand[0];
    }
    for (int i = 0; i < count; i++) {
        int value = step->operand[i];
        if (m->last[value] == k && !m->uniform[value]) {
            m->taken[m->operand[value]] = false;
        }
    }
    int value = BY_MAP_MAX_INPUTS + k;
    if (m->uniform[value]) {
        m->operand[value] = BY__CUDA_MAP_UNIFORM + m->state->args.uniforms++;
    } else {
        m->operand[value] = free_slot(m);
    }
    emit(m, (int)step->kind, m->operand[value], operand[0], operand[1], operand[2],
         (int)step->function);
}

static void make_uniforms(map_maker *m)
{
    by__cuda_map_args *args = &m->state->args;
    for (int k = 0; k < m->map->steps; k++) {
        const by_map_instruction *step = &m->map->step[k];
        int value = BY_MAP_MAX_INPUTS + k;
        bool given = step->kind == BY_MAP_CONSTANT || step->kind == BY_MAP_SCALAR;
        if (m->last[value] < 0 || !m->uniform[value]) {
            continue;
        }
        if (!given) {
            compute(m, k);
            continue;
        }
        if (step->kind == BY_MAP_SCALAR) {
            m->state->scalar[args->uniforms] = (map_scalar){step->operand[0], step->operand[1]};
        } else {
            args->uniform[args->uniforms] = step->constant;
        }
        m->operand[value] = BY__CUDA_MAP_UNIFORM + args->uniforms++;
    }
    args->tiles = args->codes;
}

static void store(map_maker *m, int value, int to, int word)
{
    bool random = word > 0 && m->state->args.dtype[to] == BY_BF16;
    emit(m, random ? BY__CUDA_MAP_STORE_RANDOM : BY__CUDA_MAP_STORE, to, operand_of(m, value),
         random ? word - 1 : 0, 0, 0);
}

/* All stores come after all loads: a new tensor may be in the memory of an input. */
static void make_elements(map_maker *m)
{
    const by_map_program *map = m->map;
    for (int k = 0; k < map->steps; k++) {
        if (m->last[BY_MAP_MAX_INPUTS + k] >= 0 && !m->uniform[BY_MAP_MAX_INPUTS + k]) {
            compute(m, k);
        }
    }
    for (int r = 0; r < map->results; r++) {
        if (m->call->out[r].shape.rank >= 0) {
            (void)operand_of(m, map->result[r].value);
        }
    }
    for (int u = 0; u < map->updates; u++) {
        (void)operand_of(m, map->update[u].value);
    }
    for (int r = 0; r < map->results; r++) {
        if (m->call->out[r].shape.rank >= 0) {
            store(m, map->result[r].value, BY_MAP_MAX_INPUTS + r, 0);
        }
    }
    for (int u = 0; u < map->updates; u++) {
        store(m, map->update[u].value, map->update[u].input, map->update[u].word);
    }
}

static by_status prepare_map(by__device_call *call, const by__device_context *context,
                             by_error *error)
{
    BY_UNUSED(context);
    map_interpreter *state;
    BY_TRY(by__alloc((void **)&state, 1, sizeof *state, "map", error));
    map_maker m = {.call = call, .map = call->attrs.map, .state = state};
    int tensor = 0;
    while ((m.map->scalars >> tensor & 1u) != 0) {
        tensor++;
    }
    for (int i = 0; i < BY__CUDA_MAP_TENSORS; i++) {
        int r = i - BY_MAP_MAX_INPUTS;
        state->args.dtype[i] = (int32_t)(r >= 0              ? call->out[r].dtype
                                         : i < m.map->inputs ? call->in[i].dtype
                                                             : BY_F32);
    }
    for (int u = 0; u < BY__CUDA_MAP_UNIFORMS; u++) {
        state->scalar[u].input = -1;
    }
    state->args.count = by__tensor_count(&call->in[tensor]);
    state->args.first = m.map->random.first;
    memcpy(state->args.key, m.map->random.key, sizeof state->args.key);
    find_reads(&m);
    make_uniforms(&m);
    make_elements(&m);
    state->block = BY__CUDA_BLOCK;
    while ((unsigned)m.slots * state->block * 16 > SHARED) {
        state->block /= 2;
    }
    state->shared = (unsigned)m.slots * state->block * 16;
    call->state = state;
    return BY_OK;
}

static void release_map(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

static bool updates_randomly(const by_map_program *map)
{
    for (int u = 0; u < map->updates; u++) {
        if (map->update[u].word > 0) {
            return true;
        }
    }
    return false;
}

static by_status run_map(const by__device_call *call, const by__device_context *context)
{
    const map_interpreter *state = call->state;
    const by_map_program *map = call->attrs.map;
    by__cuda_map_args args = state->args;
    for (int i = 0; i < map->inputs; i++) {
        args.tensor[i] = call->in[i].data;
    }
    for (int r = 0; r < map->results; r++) {
        args.tensor[BY_MAP_MAX_INPUTS + r] = call->out[r].data;
    }
    for (int u = 0; u < args.uniforms; u++) {
        map_scalar scalar = state->scalar[u];
        args.scalar[u] =
            scalar.input < 0 ? NULL : (const float *)call->in[scalar.input].data + scalar.index;
    }
    if (updates_randomly(map)) {
        args.step = (const float *)call->in[map->random.input].data + map->random.index;
    }
    int64_t each = (int64_t)state->block * BY__CUDA_MAP_EACH;
    by__cuda_grid grid = {
        {(unsigned)by__ceil_div(args.count, each), 1, 1}, state->block, state->shared};
    by__cuda_queue *queue = by__cuda_queue_of(context);
    return args.count == 0 ? BY_OK : queue->launch(queue, BY__CUDA_KERNEL_map, &grid, &args);
}

static bool supports_map(const by__device_call *call)
{
    const by_map_program *map = call->attrs.map;
    for (int i = 0; i < map->inputs; i++) {
        bool scalar = (map->scalars >> i & 1u) != 0;
        if (!(scalar ? call->in[i].dtype == BY_F32 : by_dtype_is_float(call->in[i].dtype))) {
            return false;
        }
    }
    return true;
}

BY__CUDA_ROW_KERNEL(BY_OP_MAP, map, supports_map, prepare_map, release_map, run_map);
