/* map_plan: where the values of a map's program are while it runs on one block of elements.
 *
 * A block's values are in slots of BY__MAP_BLOCK floats, few enough for the first-level cache: a
 * slot is used again once its value was read for the last time. What is the same for all elements
 * (constants, scalars, and what is computed from these alone) is one vector, computed once before
 * the first block.
 */
#ifndef BY_DEVICE_CPU_MAP_PLAN_H
#define BY_DEVICE_CPU_MAP_PLAN_H

#include "device/cpu/cpu.h"

#define BY__MAP_BLOCK  512 /* floats: 2 KiB */
#define BY__MAP_VALUES (BY_MAP_MAX_INPUTS + BY_MAP_MAX_STEPS)

typedef struct by__map_plan {
    by_map_program program;
    int slot[BY__MAP_VALUES]; /* uniform values have slots of their own; -1: nothing reads it */
    bool uniform[BY__MAP_VALUES];
    int work; /* steps that run on every block */
    /* The input's elements are read where they are: it is f32, and no store of the block can come
     * before their last use. */
    bool direct[BY_MAP_MAX_INPUTS];
} by__map_plan;

/* Makes call->state; by__map_release frees it. */
by_status by__map_prepare(by__call *call, const by__context *context, by_error *error);
void by__map_release(by__call *call);
/* Operands that steps of a kind read. */
int by__map_operands(by_map_kind kind);
/* Elements of each tensor. */
int64_t by__map_count(const by__call *call);

#endif
