#include "device/cpu/map_plan.h"

#include <stdlib.h>

int by__map_operands(by_map_kind kind)
{
    switch (kind) {
    case BY_MAP_CONSTANT:
    case BY_MAP_SCALAR:
        return 0;
    case BY_MAP_SELECT:
        return 3;
    case BY_MAP_ADD:
    case BY_MAP_SUB:
    case BY_MAP_MUL:
    case BY_MAP_DIV:
    case BY_MAP_MIN:
    case BY_MAP_MAX:
    case BY_MAP_LESS:
        return 2;
    default:
        return 1;
    }
}

int64_t by__map_count(const by__call *call)
{
    uint32_t scalars = call->attrs.map->scalars;
    int tensor = 0;
    while ((scalars >> tensor & 1u) != 0) {
        tensor++;
    }
    return by__tensor_count(&call->in[tensor]);
}

/* The last step that reads each value; `steps` when it is stored, -1 when nothing reads it. */
static void find_last_reads(const by_map_program *map, int last[BY__MAP_VALUES])
{
    for (int v = 0; v < BY__MAP_VALUES; v++) {
        last[v] = -1;
    }
    for (int i = 0; i < map->results; i++) {
        last[map->result[i].value] = map->steps;
    }
    for (int i = 0; i < map->updates; i++) {
        last[map->update[i].value] = map->steps;
    }
    for (int k = map->steps - 1; k >= 0; k--) {
        const by_map_instruction *step = &map->step[k];
        bool is_read = last[BY_MAP_MAX_INPUTS + k] >= 0;
        for (int i = 0; is_read && i < by__map_operands(step->kind); i++) {
            int *at = &last[step->operand[i]];
            *at = *at < k ? k : *at;
        }
    }
}

static void find_uniform(by__map_plan *plan)
{
    const by_map_program *map = &plan->program;
    for (int k = 0; k < map->steps; k++) {
        bool uniform = true;
        for (int i = 0; i < by__map_operands(map->step[k].kind); i++) {
            uniform = uniform && plan->uniform[map->step[k].operand[i]];
        }
        plan->uniform[BY_MAP_MAX_INPUTS + k] = uniform;
    }
}

/* Tensors keep their slots; each step takes one that is free. */
static void place(by__map_plan *plan, const int last[BY__MAP_VALUES])
{
    const by_map_program *map = &plan->program;
    bool taken[BY__MAP_VALUES] = {false};
    int kept = 0;
    int uniform = 0;
    for (int v = 0; v < BY__MAP_VALUES; v++) {
        int *next = plan->uniform[v] ? &uniform : &kept;
        bool stays = v < BY_MAP_MAX_INPUTS || plan->uniform[v];
        plan->slot[v] = stays && last[v] >= 0 ? (*next)++ : -1;
    }
    for (int s = 0; s < kept; s++) {
        taken[s] = true;
    }
    for (int k = 0; k < map->steps; k++) {
        int value = BY_MAP_MAX_INPUTS + k;
        if (plan->uniform[value] || last[value] < 0) {
            continue;
        }
        for (int i = 0; i < by__map_operands(map->step[k].kind); i++) {
            int operand = map->step[k].operand[i];
            bool is_step = operand >= BY_MAP_MAX_INPUTS && !plan->uniform[operand];
            if (is_step && last[operand] == k) {
                taken[plan->slot[operand]] = false;
            }
        }
        int slot = kept;
        while (taken[slot]) {
            slot++;
        }
        plan->slot[value] = slot;
        taken[slot] = true;
        plan->work++;
    }
}

by_status by__map_prepare(by__call *call, const by__context *context, by_error *error)
{
    BY_UNUSED(context);
    by__map_plan *plan;
    int last[BY__MAP_VALUES];
    BY_TRY(by__alloc((void **)&plan, 1, sizeof *plan, "map", error));
    plan->program = *call->attrs.map;
    find_last_reads(&plan->program, last);
    find_uniform(plan);
    place(plan, last);
    for (int i = 0; i < plan->program.inputs; i++) {
        plan->direct[i] = call->in[i].dtype == BY_F32 && last[i] < plan->program.steps;
    }
    call->state = plan;
    return BY_OK;
}

void by__map_release(by__call *call)
{
    free(call->state);
    call->state = NULL;
}
