/* AdamW (Kingma & Ba 2015; decoupled decay of Loshchilov & Hutter 2019). */
#include "optim/optim.h"

typedef struct adamw_keys {
    double betas[2];
    double eps;
} adamw_keys;

static const by__config_key keys[] = {
    {"optimizer", "betas", BY__KEY_PAIR, BY__OWN(adamw_keys, betas), "[0.9, 0.99]", 0, 1,
     BY__BELOW_MAX, .help = "decay rates of the first and second moment"},
    {"optimizer", "eps", BY__KEY_REAL, BY__OWN(adamw_keys, eps), "1e-8", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon: added to the root of the second moment"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "m"}, {.name = "v"}};

/* The update of parameters and states that are stored in bf16. */
static by_value update_narrow(by_graph *graph, const by__optim_update *u, const adamw_keys *k)
{
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int gradient = by__optim_update_gradient(&m);
    int first = by_map_input(&m.map, u->state[0]);
    int second = by_map_input(&m.map, u->state[1]);
    int square = by__map_one(&m, BY_MAP_SQUARE, gradient);
    first =
        by__optim_update_set(&m, first, by__optim_map_average(&m, k->betas[0], first, gradient));
    second =
        by__optim_update_set(&m, second, by__optim_map_average(&m, k->betas[1], second, square));
    first = by__map_div(&m, first, by__optim_update_hyper(&m, 1));
    second = by__map_div(&m, second, by__optim_update_hyper(&m, 2));
    int root = by__map_add(&m, by__map_one(&m, BY_MAP_SQRT, second),
                           by_map_constant(&m.map, (float)k->eps));
    int direction = by__map_div(&m, first, root);
    return by__optim_update_end(&m, by__map_mul(&m, direction, by__optim_update_rate(&m, 0)));
}

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    const adamw_keys *k = own;
    if (u->unit->format != BY_F32) {
        return update_narrow(graph, u, k);
    }
    by_attrs attrs = {.beta1 = (float)k->betas[0],
                      .beta2 = (float)k->betas[1],
                      .eps = (float)k->eps,
                      .decay = u->decay,
                      .lr_scale = u->lr_scale == 1.0f ? 0.0f : u->lr_scale};
    return by__op_build_adamw(graph, u->parameter, u->gradient, u->state[0], u->state[1], u->hyper,
                              u->scale, &attrs, u->unit->copy);
}

static void hyper_values(float hyper[BY_HYPER_COUNT], const void *own, int64_t step)
{
    by__optim_adam_corrections(hyper, ((const adamw_keys *)own)->betas, step);
}

const by__optim_row by__optim_adamw = {
    .kind = {.name = "adamw",
             .help = "Adam with decoupled weight decay (Loshchilov & Hutter 2019).",
             .keys = {&key_list},
             .size = sizeof(adamw_keys)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .update = update,
    .hyper = hyper_values,
};
