/* AdamW whose moments are 8-bit codes (Dettmers et al. 2022, "8-bit optimizers via block-wise
 * quantization"; bitsandbytes' AdamW8bit): blocks of BY_CODE_BLOCK elements of a tensor, each
 * moment one of 256 numbers times the largest magnitude of its block. Tensors of less than SMALL
 * elements keep f32 moments. Blocks are counted from the beginning of a tensor, so that they do not
 * depend on how ranks divide it. */
#include "optim/optim.h"

/* bitsandbytes' min_8bit_size. */
#define SMALL 4096

static const by__config_key keys[] = {BY__MOMENT_KEYS("[0.9, 0.99]", "1e-8")};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static bool small_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    *state = *parameter;
    return by_shape_count(parameter) < SMALL;
}

static bool code_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    *state = *parameter;
    return by_shape_count(parameter) >= SMALL;
}

static bool scale_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    int64_t count = by_shape_count(parameter);
    *state = BY_SHAPE((count + BY_CODE_BLOCK - 1) / BY_CODE_BLOCK);
    return count >= SMALL;
}

enum { FIRST, SECOND, FIRST_CODES, SECOND_CODES, FIRST_SCALE, SECOND_SCALE };
static const by_optimizer_state states[] = {
    [FIRST] = {.name = "m", .shape = small_shape},
    [SECOND] = {.name = "v", .shape = small_shape},
    [FIRST_CODES] = {.name = "m_code", .shape = code_shape, .dtype = BY_U8},
    [SECOND_CODES] = {.name = "v_code", .shape = code_shape, .dtype = BY_U8},
    [FIRST_SCALE] = {.name = "m_scale", .shape = scale_shape},
    [SECOND_SCALE] = {.name = "v_scale", .shape = scale_shape},
};

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    if (u->state[FIRST] != BY_NONE) {
        return by__optim_adam_step(graph, u, own, u->state[FIRST], u->state[SECOND]);
    }
    by_attrs attrs = by__optim_adam_attrs(u, own);
    const by_value in[8] = {u->parameter,
                            u->gradient,
                            u->state[FIRST_CODES],
                            u->state[SECOND_CODES],
                            u->state[FIRST_SCALE],
                            u->state[SECOND_SCALE],
                            u->hyper,
                            u->scale};
    return by__op_build_adamw8(graph, in, &attrs, u->unit->copy);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    if (config->parallel.tensor != 1 || config->parallel.expert != 1 || config->sync.every > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: adamw8bit needs whole tensors on each rank: set parallel.tensor, "
                            "parallel.expert and sync.every to 1, or use adamw",
                            by__config_where(config, "optimizer.kind", "parallel.tensor"));
    }
    return by__optim_wants_f32(config, error);
}

const by__optim_row by__optim_adamw8bit = {
    .kind = {.name = "adamw8bit",
             .help = "AdamW with 8-bit moments in blocks of 256 (Dettmers et al. 2022): 2 bytes of "
                     "state per parameter instead of 8. Tensors of less than 4,096 elements have "
                     "f32 moments.",
             .keys = {&key_list},
             .size = sizeof(by__optim_moments),
             .resolve = resolve},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .needs_tensors = true,
    .is_normalised = true,
    .update = update,
    .hyper = by__optim_adam_hyper,
};
