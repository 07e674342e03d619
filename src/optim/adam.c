/* Adam (Kingma and Ba 2015), and the hyper-parameters and steps that its relatives share. Adam's
 * own weight decay is an L2 term of the gradient, as in torch.optim.Adam. */
#include <math.h>

#include "optim/optim.h"

void by__optim_adam_hyper(float hyper[BY_HYPER_COUNT], const void *own, int64_t step)
{
    const double *betas = ((const by__optim_moments *)own)->betas;
    for (int i = 0; i < 2; i++) {
        hyper[i + 1] = (float)(1.0 - pow(betas[i], (double)step + 1.0));
    }
}

by_attrs by__optim_adam_attrs(const by__optim_update *u, const by__optim_moments *k)
{
    return (by_attrs){.beta1 = (float)k->betas[0],
                      .beta2 = (float)k->betas[1],
                      .eps = (float)k->eps,
                      .decay = u->decay,
                      .lr_scale = u->lr_scale == 1.0f ? 0.0f : u->lr_scale};
}

by_value by__optim_adam_step(by_graph *graph, const by__optim_update *u, const by__optim_moments *k,
                             by_value first, by_value second)
{
    by_attrs attrs = by__optim_adam_attrs(u, k);
    return by__op_build_adamw(graph, u->parameter, u->gradient, first, second, u->hyper, u->scale,
                              &attrs, u->unit->copy);
}

int by__optim_adam_direction(by__optim_update_map *m, const by__optim_moments *k, int gradient)
{
    int first = by_map_input(&m->map, m->u->state[0]);
    int second = by_map_input(&m->map, m->u->state[1]);
    int square = by__map_one(m, BY_MAP_SQUARE, gradient);
    first = by__optim_update_set(m, first, by__optim_map_average(m, k->betas[0], first, gradient));
    second = by__optim_update_set(m, second, by__optim_map_average(m, k->betas[1], second, square));
    first = by__map_div(m, first, by__optim_update_hyper(m, 1));
    second = by__map_div(m, second, by__optim_update_hyper(m, 2));
    int root = by__map_add(m, by__map_one(m, BY_MAP_SQRT, second),
                           by_map_constant(&m->map, (float)k->eps));
    return by__map_div(m, first, root);
}

static const by__config_key keys[] = {BY__MOMENT_KEYS("[0.9, 0.999]", "1e-8")};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "m"}, {.name = "v"}};

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    by__optim_update_map m;
    by__optim_update undecayed = *u;
    undecayed.decay = 0.0f;
    by__optim_update_begin(&m, graph, &undecayed);
    int gradient = by__optim_update_gradient(&m);
    if (u->decay != 0.0f) {
        int parameter = by_map_input(&m.map, u->parameter);
        int decay = by__map_mul(&m, parameter, by_map_constant(&m.map, u->decay));
        gradient = by__map_add(&m, gradient, decay);
    }
    int direction = by__optim_adam_direction(&m, own, gradient);
    return by__optim_update_end(&m, by__map_mul(&m, direction, by__optim_update_rate(&m, 0)));
}

const by__optim_row by__optim_adam = {
    .kind = {.name = "adam",
             .help =
                 "Adam (Kingma & Ba 2015), whose weight decay is an L2 term of the gradient, as "
                 "in torch.optim.Adam: a weight_decay like 5e-4.",
             .keys = {&key_list},
             .size = sizeof(by__optim_moments)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .update = update,
    .hyper = by__optim_adam_hyper,
};
