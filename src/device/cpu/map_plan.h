/* map_plan: the program of a map (banyan/map.h) as instructions that run on tiles of elements.
 *
 * A tile is a few vectors. Every stored value of it has a place in memory: a tensor's own elements,
 * or BY__MAP_VECTORS vectors that stay in the first-level cache. The value computed last is also in
 * registers, the accumulator. A step that has it as an operand reads it there, and a value that
 * only the next step reads has no place at all: of AdamW's sixteen steps seven are stored, four of
 * them because they are results.
 *
 * Values that are the same for all elements (constants, scalars, and values computed from these
 * alone) are computed once by separate instructions before the first tile, and kept as a tile.
 */
#ifndef BY_DEVICE_CPU_MAP_PLAN_H
#define BY_DEVICE_CPU_MAP_PLAN_H

#include "device/cpu/cpu.h"

#define BY__MAP_VECTORS 8
#define BY__MAP_VALUES  (BY_MAP_MAX_INPUTS + BY_MAP_MAX_STEPS)

/* Places of the words of random bits: as many as a Philox block has, two of 16 bits in each. */
#define BY__MAP_RANDOM_PLACES 4

/* Places: first the tensors of the call, then tiles. */
#define BY__MAP_RESULT    BY_MAP_MAX_INPUTS /* place of the first result; inputs come before it */
#define BY__MAP_TENSORS   (BY_MAP_MAX_INPUTS + BY_MAX_OUTPUTS)
#define BY__MAP_PLACES    (BY__MAP_TENSORS + BY__MAP_VALUES + BY__MAP_RANDOM_PLACES + 2)
#define BY__MAP_NO_PLACE  (BY__MAP_PLACES - 1) /* the value is in the accumulator alone */
#define BY__MAP_MAX_CODES 256

/* Instructions on the accumulator x and the elements a and b at their places. */
#define BY__MAP_CODES(X)                                                                           \
    X(SPLAT)     /* x = step a's constant or scalar */                                             \
    X(LOAD)      /* x = a */                                                                       \
    X(LOAD_BF16) /* the same from bf16 elements */                                                 \
    X(LOAD_F16)                                                                                    \
    X(STORE)      /* a = x */                                                                      \
    X(STORE_BF16) /* the same, rounded */                                                          \
    X(STORE_F16)                                                                                   \
    X(STORE_RANDOM) /* the same, rounded stochastically to bf16: with word c of those at b */      \
    X(STREAM_BF16)  /* the same, non-temporal, for a large new tensor */                           \
    X(X_ADD)        /* x = x + a */                                                                \
    X(X_SUB)                                                                                       \
    X(X_MUL)                                                                                       \
    X(X_DIV)                                                                                       \
    X(X_MIN)                                                                                       \
    X(X_MAX)                                                                                       \
    X(X_LESS)                                                                                      \
    X(SUB_X) /* x = a - x */                                                                       \
    X(DIV_X)                                                                                       \
    X(MIN_X)                                                                                       \
    X(MAX_X)                                                                                       \
    X(LESS_X)                                                                                      \
    X(ADD_BOTH) /* x = a + b */                                                                    \
    X(SUB_BOTH)                                                                                    \
    X(MUL_BOTH)                                                                                    \
    X(DIV_BOTH)                                                                                    \
    X(X_SELECT) /* x = x != 0 ? a : b */                                                           \
    X(PICK)     /* x = c != 0 ? a : b, where c is the same for all elements */                     \
    X(X_NEGATE) /* x = -x */                                                                       \
    X(X_ABS)                                                                                       \
    X(X_SIGN)                                                                                      \
    X(X_SQUARE)                                                                                    \
    X(X_SQRT)                                                                                      \
    X(X_RSQRT)                                                                                     \
    X(X_FINITE)                                                                                    \
    X(X_FUNCTION) /* x = step a's function of x; place b is scratch for it */                      \
    X(RANDOM)     /* random words of the tile's elements, to the four places from a on */          \
    X(END)        /* end of the instructions before the first tile, and of those of a tile */

#define BY__MAP_CODE(name) BY__MAP_##name,
typedef enum by__cpu_map_code { BY__MAP_CODES(BY__MAP_CODE) BY__MAP_CODE_COUNT } by__cpu_map_code;
#undef BY__MAP_CODE

typedef struct by__cpu_map_op {
    uint8_t code;
    uint8_t a;
    uint8_t b;
    uint8_t c;
} by__cpu_map_op;

typedef struct by__cpu_map_plan {
    by_map_program program;
    by__cpu_map_op code[BY__MAP_MAX_CODES];
    int tiles; /* the first instruction that runs on every tile; earlier ones run once */
    int codes;
    int places;
    uint32_t updated; /* bit i: input i is overwritten */
} by__cpu_map_plan;

/* Compiles the map into call->state; by__cpu_map_release frees it. */
by_status by__cpu_map_prepare(by__device_call *call, const by__device_context *context,
                              by_error *error);
void by__cpu_map_release(by__device_call *call);
/* Number of elements of each tensor. */
int64_t by__cpu_map_count(const by__device_call *call);

#endif
