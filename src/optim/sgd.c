/* Stochastic gradient descent with momentum, as in PyTorch with dampening 0 (Sutskever et al.
 * 2013):
 *     m = mu m + g
 *     p = p - lr m            or, with Nesterov's momentum, p - lr (g + mu m) */
#include "optim/optim.h"

typedef struct sgd_keys {
    double momentum;
    int64_t nesterov;
} sgd_keys;

static const by__config_key keys[] = {
    {"optimizer", "momentum", BY__KEY_REAL, BY__OWN(sgd_keys, momentum), "0.9", 0, 1, BY__BELOW_MAX,
     .help = "momentum; 0: none"},
    {"optimizer", "nesterov", BY__KEY_SWITCH, BY__OWN(sgd_keys, nesterov), "false",
     .help = "Nesterov momentum"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "momentum"}};

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const sgd_keys *k = own;
    if (k->nesterov == 1 && k->momentum == 0.0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: nesterov needs a momentum above 0, for example 0.9",
                            by__config_where(config, "optimizer.nesterov", "optimizer.momentum"));
    }
    return BY_OK;
}

static int kept(const void *own)
{
    return ((const sgd_keys *)own)->momentum > 0.0 ? 1 : 0;
}

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    const sgd_keys *k = own;
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int gradient = by__optim_update_gradient(&m);
    int direction = gradient;
    if (k->momentum > 0.0) {
        int momentum = by_map_constant(&m.map, (float)k->momentum);
        int state = by_map_input(&m.map, u->state[0]);
        int next = by__map_add(&m, by__map_mul(&m, state, momentum), gradient);
        (void)by__optim_update_set(&m, state, next);
        direction =
            k->nesterov == 1 ? by__map_add(&m, by__map_mul(&m, next, momentum), gradient) : next;
    }
    return by__optim_update_end(&m, by__map_mul(&m, direction, by__optim_update_rate(&m, 0)));
}

const by__optim_row by__optim_sgd = {
    .kind = {.name = "sgd",
             .help = "Stochastic gradient descent, with momentum (Sutskever et al. 2013) and "
                     "decoupled weight decay.",
             .keys = {&key_list},
             .size = sizeof(sgd_keys),
             .resolve = resolve},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .kept = kept,
    .update = update,
};
