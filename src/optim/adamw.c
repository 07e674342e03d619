/* AdamW (Kingma & Ba 2015; decoupled decay of Loshchilov & Hutter 2019). */
#include "optim/optim.h"

static const by__config_key keys[] = {BY__MOMENT_KEYS("[0.9, 0.99]", "1e-8")};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "m"}, {.name = "v"}};

/* One op for f32; parameters and states that are stored in bf16 are rounded by a map. */
static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    by__optim_update_map m;
    if (u->unit->format == BY_F32) {
        return by__optim_adam_step(graph, u, own, u->state[0], u->state[1]);
    }
    by__optim_update_begin(&m, graph, u);
    int direction = by__optim_adam_direction(&m, own, by__optim_update_gradient(&m));
    return by__optim_update_end(&m, by__map_mul(&m, direction, by__optim_update_rate(&m, 0)));
}

const by__optim_row by__optim_adamw = {
    .kind = {.name = "adamw",
             .help = "Adam with decoupled weight decay (Loshchilov & Hutter 2019).",
             .keys = {&key_list},
             .size = sizeof(by__optim_moments)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .is_normalised = true,
    .update = update,
    .hyper = by__optim_adam_hyper,
};
