/* LAMB (You et al. 2020, "Large batch optimization for deep learning", algorithm 2) with phi(x) =
 * x:
 *     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *     r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay p
 *     p = p - lr |p| / |r| r               for each tensor; |p| / |r| is 1 where one of them is
 * 0 */

#include "optim/optim.h"

static const by__config_key keys[] = {BY__MOMENT_KEYS("[0.9, 0.999]", "1e-6")};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static const by_optimizer_state states[] = {{.name = "m"}, {.name = "v"}};

/* Updates the moments and computes r. */
static by_value add_direction(by_graph *graph, const by__optim_update *u,
                              const by__optim_moments *k)
{
    by__optim_update_map m;
    by_value results[BY_MAX_OUTPUTS];
    by__optim_update_begin(&m, graph, u);
    int direction = by__optim_adam_direction(&m, k, by__optim_update_gradient(&m));
    if (u->decay != 0.0f) {
        int decay =
            by__map_mul(&m, by_map_input(&m.map, u->parameter), by_map_constant(&m.map, u->decay));
        direction = by__map_add(&m, direction, decay);
    }
    by_map_result(&m.map, direction, BY_F32);
    by_map_end(&m.map, results);
    return results[0];
}

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    by__optim_update without_decay = *u; /* the direction includes it */
    by__optim_update_map m;
    by_value direction = add_direction(graph, u, own);
    by_value weights = by__optim_update_squares(graph, u, u->parameter);
    by_value steps = by__optim_update_squares(graph, u, direction);
    without_decay.decay = 0.0f;
    by__optim_update_begin(&m, graph, &without_decay);
    int zero = by_map_constant(&m.map, 0.0f);
    int weight = by__map_one(&m, BY_MAP_SQRT, by_map_scalar(&m.map, weights, 0));
    int step = by__map_one(&m, BY_MAP_SQRT, by_map_scalar(&m.map, steps, 0));
    int both = by__map_mul(&m, by_map_step(&m.map, BY_MAP_LESS, zero, weight, 0),
                           by_map_step(&m.map, BY_MAP_LESS, zero, step, 0));
    int ratio = by_map_step(&m.map, BY_MAP_SELECT, both, by__map_div(&m, weight, step),
                            by_map_constant(&m.map, 1.0f));
    int rate = by__map_mul(&m, by__optim_update_rate(&m, 0), ratio);
    return by__optim_update_end(&m, by__map_mul(&m, by_map_input(&m.map, direction), rate));
}

const by__optim_row by__optim_lamb = {
    .kind = {.name = "lamb",
             .help =
                 "LAMB (You et al. 2020): Adam with decoupled weight decay, and updates scaled to "
                 "the norm of each tensor.",
             .keys = {&key_list},
             .size = sizeof(by__optim_moments)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .needs_tensors = true,
    .update = update,
    .hyper = by__optim_adam_hyper,
};
