/* Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2):
 *     p = p - lr (sign(beta1 m + (1 - beta1) g) + decay p)
 *     m = beta2 m + (1 - beta2) g */
#include "optim/optim.h"

typedef struct lion_keys {
    double betas[2];
} lion_keys;

static const by__config_key keys[] = {
    {"optimizer", "betas", BY__KEY_PAIR, BY__OWN(lion_keys, betas), "[0.9, 0.99]", 0, 1,
     BY__BELOW_MAX,
     .help = "interpolation of momentum and gradient for the update, and decay rate of the "
             "momentum"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "m"}};

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    const lion_keys *k = own;
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int gradient = by__optim_update_gradient(&m);
    int momentum = by_map_input(&m.map, u->state[0]);
    int mix = by__optim_map_average(&m, k->betas[0], momentum, gradient);
    int direction = by__map_one(&m, BY_MAP_SIGN, mix);
    (void)by__optim_update_set(&m, momentum,
                               by__optim_map_average(&m, k->betas[1], momentum, gradient));
    return by__optim_update_end(&m, by__map_mul(&m, direction, by__optim_update_rate(&m, 0)));
}

const by__optim_row by__optim_lion = {
    .kind = {.name = "lion",
             .help =
                 "Lion (Chen et al. 2023): sign of an interpolated momentum, with decoupled weight "
                 "decay. Needs a 3 to 10 times lower lr than adamw, and a higher weight_decay.",
             .keys = {&key_list},
             .size = sizeof(lion_keys)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .is_normalised = true,
    .update = update,
};
