#include "device/cpu/map_plan.h"

#include <assert.h>
#include <stdlib.h>

/* Number of elements from which a new bf16 tensor is stored bypassing the caches, which could not
 * hold it anyway. */
#define STREAMED (1 << 20)
/* Index for reads by the stores after the last step. */
#define AT_END         (BY_MAP_MAX_STEPS)
#define STEP_OF(value) ((value)-BY_MAP_MAX_INPUTS)

int64_t by__cpu_map_count(const by__device_call *call)
{
    uint32_t scalars = call->attrs.map->scalars;
    int tensor = 0;
    while ((scalars >> tensor & 1u) != 0) {
        tensor++;
    }
    return by__tensor_count(&call->in[tensor]);
}

typedef struct map_builder {
    const by__device_call *call;
    by__cpu_map_plan *plan;
    bool live[BY_MAP_MAX_STEPS];
    bool uniform[BY__MAP_VALUES];
    int last[BY__MAP_VALUES];       /* last step that reads the value, AT_END, or -1 */
    int reads[BY__MAP_VALUES];      /* how often it is an operand or stored after the last step */
    bool copied[BY_MAP_MAX_INPUTS]; /* copied at the start of a tile into a tile of its own */
    int place[BY__MAP_VALUES];      /* -1: none yet, or released */
    bool taken[BY__MAP_PLACES];
    int random; /* the first of the places of random bits */
    int held;   /* the value in the accumulator, or -1 */
} map_builder;

static void emit(map_builder *b, by__cpu_map_code code, int a, int second, int third)
{
    by__cpu_map_plan *plan = b->plan;
    assert(plan->codes < BY__MAP_MAX_CODES);
    plan->code[plan->codes++] =
        (by__cpu_map_op){(uint8_t)code, (uint8_t)a, (uint8_t)second, (uint8_t)third};
}

/* ---- liveness ---- */

static void note_read(map_builder *b, int value, int step)
{
    b->reads[value]++;
    b->last[value] = b->last[value] < step ? step : b->last[value];
}

static void find_reads(map_builder *b)
{
    const by_map_program *map = &b->plan->program;
    for (int v = 0; v < BY__MAP_VALUES; v++) {
        b->last[v] = -1;
    }
    for (int r = 0; r < map->results; r++) {
        if (by__present(&b->call->out[r])) {
            note_read(b, map->result[r].value, AT_END);
        }
    }
    for (int u = 0; u < map->updates; u++) {
        note_read(b, map->update[u].value, AT_END);
        b->plan->updated |= 1u << map->update[u].input;
    }
    for (int k = map->steps - 1; k >= 0; k--) {
        b->live[k] = b->last[BY_MAP_MAX_INPUTS + k] >= 0;
        for (int i = 0; b->live[k] && i < by_map_operands(map->step[k].kind); i++) {
            note_read(b, map->step[k].operand[i], k);
        }
    }
    for (int k = 0; k < map->steps; k++) {
        bool uniform = true;
        for (int i = 0; i < by_map_operands(map->step[k].kind); i++) {
            uniform = uniform && b->uniform[map->step[k].operand[i]];
        }
        b->uniform[BY_MAP_MAX_INPUTS + k] = uniform;
    }
}

/* Inputs that are narrower are widened first; those that are stored unchanged are read before a
 * store replaces them. */
static void find_copies(map_builder *b)
{
    for (int i = 0; i < b->plan->program.inputs; i++) {
        b->copied[i] = b->last[i] >= 0 && (b->last[i] == AT_END || b->call->in[i].dtype != BY_F32);
    }
}

/* ---- places ---- */

static int free_tile(map_builder *b)
{
    int place = BY__MAP_TENSORS;
    while (b->taken[place]) {
        place++;
    }
    b->taken[place] = true;
    b->plan->places = place >= b->plan->places ? place + 1 : b->plan->places;
    return place;
}

static void keep(map_builder *b, int value)
{
    b->place[value] = free_tile(b);
    emit(b, BY__MAP_STORE, b->place[value], 0, 0);
}

/* Frees the tiles of operands that step k is the last to read. */
static void release_operands(map_builder *b, int k)
{
    const by_map_instruction *step = &b->plan->program.step[k];
    for (int i = 0; i < by_map_operands(step->kind); i++) {
        int value = step->operand[i];
        if (b->last[value] == k && !b->uniform[value] && b->place[value] >= BY__MAP_TENSORS) {
            b->taken[b->place[value]] = false;
            b->place[value] = -1;
        }
    }
}

/* ---- steps ---- */

/* Returns true if a step can take operand i from the accumulator. */
static bool reads_held(const map_builder *b, const by_map_instruction *step, int i)
{
    bool picks = step->kind == BY_MAP_SELECT && b->uniform[step->operand[0]];
    return step->kind != BY_MAP_SELECT || (picks ? i > 0 : i == 0);
}

/* Index of step k's operand in the accumulator, or -1. */
static int held_operand(const map_builder *b, int k)
{
    const by_map_instruction *step = &b->plan->program.step[k];
    for (int i = 0; i < by_map_operands(step->kind); i++) {
        if (step->operand[i] == b->held && reads_held(b, step, i)) {
            return i;
        }
    }
    return -1;
}

/* The first live step after k that runs on tiles if k does, or AT_END. */
static int next_step(const map_builder *b, int k)
{
    const by_map_program *map = &b->plan->program;
    bool uniform = b->uniform[BY_MAP_MAX_INPUTS + k];
    do {
        k++;
    } while (k < map->steps && (!b->live[k] || b->uniform[BY_MAP_MAX_INPUTS + k] != uniform));
    return k < map->steps ? k : AT_END;
}

/* Returns true if step k's value can stay in the accumulator alone: the next step is its only
 * reader, and can take it from there. */
static bool stays_held(const map_builder *b, int k)
{
    const by_map_program *map = &b->plan->program;
    int value = BY_MAP_MAX_INPUTS + k;
    int next = next_step(b, k);
    if (next == AT_END || b->reads[value] != 1 || b->last[value] != next) {
        return false;
    }
    const by_map_instruction *step = &map->step[next];
    int i = 0;
    while (step->operand[i] != value) {
        i++;
    }
    return reads_held(b, step, i);
}

/* Codes of a kind with two operands: for the first in the accumulator, the second, none; 0: no such
 * code. */
static const uint8_t pair_codes[BY_MAP_KINDS][3] = {
    [BY_MAP_ADD] = {BY__MAP_X_ADD, BY__MAP_X_ADD, BY__MAP_ADD_BOTH},
    [BY_MAP_SUB] = {BY__MAP_X_SUB, BY__MAP_SUB_X, BY__MAP_SUB_BOTH},
    [BY_MAP_MUL] = {BY__MAP_X_MUL, BY__MAP_X_MUL, BY__MAP_MUL_BOTH},
    [BY_MAP_DIV] = {BY__MAP_X_DIV, BY__MAP_DIV_X, BY__MAP_DIV_BOTH},
    [BY_MAP_MIN] = {BY__MAP_X_MIN, BY__MAP_MIN_X, 0},
    [BY_MAP_MAX] = {BY__MAP_X_MAX, BY__MAP_MAX_X, 0},
    [BY_MAP_LESS] = {BY__MAP_X_LESS, BY__MAP_LESS_X, 0},
};

static const uint8_t single_codes[BY_MAP_KINDS] = {
    [BY_MAP_NEGATE] = BY__MAP_X_NEGATE, [BY_MAP_ABS] = BY__MAP_X_ABS,
    [BY_MAP_SIGN] = BY__MAP_X_SIGN,     [BY_MAP_SQUARE] = BY__MAP_X_SQUARE,
    [BY_MAP_SQRT] = BY__MAP_X_SQRT,     [BY_MAP_RSQRT] = BY__MAP_X_RSQRT,
    [BY_MAP_FINITE] = BY__MAP_X_FINITE,
};

static void compute_pair(map_builder *b, by_map_kind kind, int held, int first, int second)
{
    const uint8_t *codes = pair_codes[kind];
    if (held >= 0) {
        emit(b, codes[held], held == 0 ? second : first, 0, 0);
    } else if (codes[2] != 0) {
        emit(b, codes[2], first, second, 0);
    } else {
        emit(b, BY__MAP_LOAD, first, 0, 0);
        emit(b, codes[0], second, 0, 0);
    }
}

static void compute_single(map_builder *b, int k, int held, int operand)
{
    by_map_kind kind = b->plan->program.step[k].kind;
    if (kind == BY_MAP_SQUARE && held < 0) {
        emit(b, BY__MAP_MUL_BOTH, operand, operand, 0);
        return;
    }
    if (held < 0) {
        emit(b, BY__MAP_LOAD, operand, 0, 0);
    }
    if (kind == BY_MAP_FUNCTION) {
        int work = free_tile(b);
        emit(b, BY__MAP_X_FUNCTION, k, work, 0);
        b->taken[work] = false;
    } else {
        emit(b, single_codes[kind], 0, 0, 0);
    }
}

/* Leaves the value of step k in the accumulator. */
static void compute(map_builder *b, int k)
{
    const by_map_instruction *step = &b->plan->program.step[k];
    int operands = by_map_operands(step->kind);
    int held = held_operand(b, k);
    int at[3] = {0};
    for (int i = 0; i < operands; i++) {
        at[i] = i == held ? BY__MAP_NO_PLACE : b->place[step->operand[i]];
    }
    if (operands == 0) {
        emit(b, BY__MAP_SPLAT, k, 0, 0);
    } else if (operands == 1) {
        compute_single(b, k, held, at[0]);
    } else if (operands == 2) {
        compute_pair(b, step->kind, held, at[0], at[1]);
    } else if (b->uniform[step->operand[0]]) {
        emit(b, BY__MAP_PICK, at[1], at[2], at[0]);
    } else {
        if (held < 0) {
            emit(b, BY__MAP_LOAD, at[0], 0, 0);
        }
        emit(b, BY__MAP_X_SELECT, at[1], at[2], 0);
    }
    b->held = BY_MAP_MAX_INPUTS + k;
}

/* ---- loads and stores ---- */

static by__cpu_map_code load_code(by_dtype dtype)
{
    return dtype == BY_F32 ? BY__MAP_LOAD : dtype == BY_F16 ? BY__MAP_LOAD_F16 : BY__MAP_LOAD_BF16;
}

static by__cpu_map_code store_code(const map_builder *b, by_dtype dtype, bool is_new)
{
    bool streamed = is_new && by__cpu_map_count(b->call) >= STREAMED;
    return dtype == BY_F32   ? BY__MAP_STORE
           : dtype == BY_F16 ? BY__MAP_STORE_F16
           : streamed        ? BY__MAP_STREAM_BF16
                             : BY__MAP_STORE_BF16;
}

/* Stores the accumulator in the place of the operand of update u. */
static void emit_update(map_builder *b, int u)
{
    const by_map_program *map = &b->plan->program;
    int input = map->update[u].input;
    int word = map->update[u].word - 1;
    by_dtype dtype = b->call->in[input].dtype;
    if (word >= 0 && dtype == BY_BF16) {
        emit(b, BY__MAP_STORE_RANDOM, input, b->random + word % BY__MAP_RANDOM_PLACES,
             word / BY__MAP_RANDOM_PLACES);
    } else {
        emit(b, store_code(b, dtype, false), input, 0, 0);
    }
}

/* Returns true if step k's value can replace input i: nothing reads the input from there any
 * more. */
static bool may_replace(const map_builder *b, int i, int k)
{
    return b->copied[i] || b->last[i] <= k;
}

/* Checks that results can be written: a new tensor may share the memory of any input. */
static bool may_write_results(const map_builder *b, int k)
{
    for (int i = 0; i < b->plan->program.inputs; i++) {
        if (!may_replace(b, i, k)) {
            return false;
        }
    }
    return true;
}

/* Stores the accumulator, step k's value, in the tensors that it belongs to, and counts off their
 * readers. An f32 tensor that it replaces becomes its place. */
static void store_at_once(map_builder *b, int k)
{
    const by_map_program *map = &b->plan->program;
    int value = BY_MAP_MAX_INPUTS + k;
    for (int u = 0; u < map->updates; u++) {
        int input = map->update[u].input;
        if (map->update[u].value == value && may_replace(b, input, k)) {
            emit_update(b, u);
            b->reads[value]--;
            b->place[value] = b->call->in[input].dtype == BY_F32 ? input : b->place[value];
        }
    }
    for (int r = 0; r < map->results && may_write_results(b, k); r++) {
        if (map->result[r].value == value && by__present(&b->call->out[r])) {
            emit(b, store_code(b, map->result[r].dtype, true), BY__MAP_RESULT + r, 0, 0);
            b->reads[value]--;
        }
    }
}

/* Stores the values that could not be stored when they were computed. */
static void store_at_end(map_builder *b)
{
    const by_map_program *map = &b->plan->program;
    for (int u = 0; u < map->updates; u++) {
        int value = map->update[u].value;
        int input = map->update[u].input;
        int k = STEP_OF(value);
        if (k < 0 || b->uniform[value] || !may_replace(b, input, k)) {
            emit(b, BY__MAP_LOAD, b->place[value], 0, 0);
            emit_update(b, u);
        }
    }
    for (int r = 0; r < map->results; r++) {
        int value = map->result[r].value;
        int k = STEP_OF(value);
        bool is_due = k < 0 || b->uniform[value] || !may_write_results(b, k);
        if (is_due && by__present(&b->call->out[r])) {
            emit(b, BY__MAP_LOAD, b->place[value], 0, 0);
            emit(b, store_code(b, map->result[r].dtype, true), BY__MAP_RESULT + r, 0, 0);
        }
    }
}

/* ---- the whole ---- */

static void build_uniform(map_builder *b)
{
    const by_map_program *map = &b->plan->program;
    b->held = -1;
    for (int k = 0; k < map->steps; k++) {
        int value = BY_MAP_MAX_INPUTS + k;
        if (b->live[k] && b->uniform[value]) {
            compute(b, k);
            keep(b, value);
        }
    }
    emit(b, BY__MAP_END, 0, 0, 0);
    b->plan->tiles = b->plan->codes;
}

/* Generates the random bits of a tile, if an update needs them. */
static void build_random(map_builder *b)
{
    const by_map_program *map = &b->plan->program;
    bool is_random = false;
    for (int u = 0; u < map->updates; u++) {
        is_random = is_random ||
                    (map->update[u].word > 0 && b->call->in[map->update[u].input].dtype == BY_BF16);
    }
    if (is_random) { /* the tiles in use are the first ones, so these are adjacent */
        b->random = free_tile(b);
        for (int i = 1; i < BY__MAP_RANDOM_PLACES; i++) {
            (void)free_tile(b);
        }
        emit(b, BY__MAP_RANDOM, b->random, 0, 0);
    }
}

static void build_tiles(map_builder *b)
{
    const by_map_program *map = &b->plan->program;
    b->held = -1;
    build_random(b);
    for (int i = 0; i < map->inputs; i++) {
        b->place[i] = i;
        if (b->copied[i]) {
            emit(b, load_code(b->call->in[i].dtype), i, 0, 0);
            keep(b, i);
        }
    }
    for (int k = 0; k < map->steps; k++) {
        int value = BY_MAP_MAX_INPUTS + k;
        if (!b->live[k] || b->uniform[value]) {
            continue;
        }
        compute(b, k);
        release_operands(b, k);
        store_at_once(b, k);
        if (b->reads[value] > 0 && b->place[value] < 0 && !stays_held(b, k)) {
            keep(b, value);
        }
    }
    store_at_end(b);
    emit(b, BY__MAP_END, 0, 0, 0);
}

by_status by__cpu_map_prepare(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    by__cpu_map_plan *plan;
    map_builder b = {.call = call};
    BY_TRY(by__alloc((void **)&plan, 1, sizeof *plan, "map", error));
    plan->program = *call->attrs.map;
    plan->places = BY__MAP_TENSORS;
    b.plan = plan;
    for (int v = 0; v < BY__MAP_VALUES; v++) {
        b.place[v] = -1;
    }
    find_reads(&b);
    find_copies(&b);
    build_uniform(&b);
    build_tiles(&b);
    call->state = plan;
    return BY_OK;
}

void by__cpu_map_release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}
