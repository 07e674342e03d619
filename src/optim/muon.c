/* Muon (Jordan 2024, "Muon: an optimizer for hidden layers in neural networks"; torch.optim.Muon):
 * the momentum of a hidden layer's matrix is replaced by approximately the nearest semi-orthogonal
 * matrix, by five Newton-Schulz iterations.
 *     m = mu m + (1 - mu) g                  d = m, or with Nesterov's momentum mu m + (1 - mu) g
 *     X = d / |d|                            X = a X + (b A + c A^2) X with A = X X^T, 5 times
 *     p = p (1 - lr decay) - lr scale X
 * scale is 0.2 sqrt(max(rows, columns)), which gives steps of the size of AdamW's (Moonlight: Liu
 * et al. 2025), or Jordan's sqrt(max(1, outputs / inputs)). Embeddings, head, vectors and tensors
 * of other than two axes take AdamW's step at the same learning rate. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"

typedef struct muon_keys {
    by__optim_moments adam;
    double momentum;
    int64_t nesterov;
    char *scale;
} muon_keys;

static const by__config_key keys[] = {
    {"optimizer", "momentum", BY__KEY_REAL, BY__OWN(muon_keys, momentum), "0.95", 0, 1,
     BY__BELOW_MAX, .help = "decay rate of the momentum"},
    {"optimizer", "nesterov", BY__KEY_SWITCH, BY__OWN(muon_keys, nesterov), "true",
     .help = "Nesterov momentum"},
    {"optimizer", "scale", BY__KEY_TEXT, BY__OWN(muon_keys, scale), "rms",
     .choices = "rms|original",
     .help = "scale of the update of a matrix: rms: 0.2 sqrt(max(rows, columns)), for which lr and "
             "weight_decay of adamw apply; original: sqrt(max(1, outputs / inputs)), with lr near "
             "0.02"},
    {"optimizer", "betas", BY__KEY_PAIR, BY__OWN(muon_keys, adam.betas), "[0.9, 0.99]", 0, 1,
     BY__BELOW_MAX, .help = "decay rates of the moments, for parameters that are updated by AdamW"},
    {"optimizer", "eps", BY__KEY_REAL, BY__OWN(muon_keys, adam.eps), "1e-8", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon: added to the root of their second moment"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

/* Returns true for a matrix between activations, which is neither an embedding table nor the
 * head. */
static bool is_hidden(const by_shape *shape, const char *axes)
{
    return shape->rank == 2 &&
           (axes == NULL || (strncmp(axes, "vocab", 5) != 0 && strncmp(axes, "token", 5) != 0 &&
                             strncmp(axes, "position", 8) != 0 && strncmp(axes, "class", 5) != 0));
}

static bool hidden_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    *state = *parameter;
    return is_hidden(parameter, axes);
}

static bool other_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    *state = *parameter;
    return !is_hidden(parameter, axes);
}

enum { MOMENTUM, FIRST, SECOND };
static const by_optimizer_state states[] = {
    [MOMENTUM] = {.name = "momentum", .shape = hidden_shape},
    [FIRST] = {.name = "m", .shape = other_shape},
    [SECOND] = {.name = "v", .shape = other_shape},
};

/* Updates the momentum and computes d. */
static by_value add_direction(by_graph *graph, const by__optim_update *u, const muon_keys *k)
{
    by__optim_update_map m;
    by_value results[BY_MAX_OUTPUTS];
    by__optim_update_begin(&m, graph, u);
    int gradient = by__optim_update_gradient(&m);
    int state = by_map_input(&m.map, u->state[MOMENTUM]);
    int next =
        by__optim_update_set(&m, state, by__optim_map_average(&m, k->momentum, state, gradient));
    int direction =
        k->nesterov == 1 ? by__optim_map_average(&m, k->momentum, next, gradient) : next;
    by_map_result(&m.map, direction, BY_F32);
    by_map_end(&m.map, results);
    return results[0];
}

/* d / max(|d|, 1e-7) */
static by_value normalize(by_graph *graph, const by__optim_update *u, by_value direction,
                          by_dtype dtype)
{
    by__optim_update_map m;
    by_value results[BY_MAX_OUTPUTS];
    by_value squares = by__optim_update_squares(graph, u, direction);
    by__optim_update_begin(&m, graph, u);
    int norm = by__map_one(&m, BY_MAP_SQRT, by_map_scalar(&m.map, squares, 0));
    norm = by_map_step(&m.map, BY_MAP_MAX, norm, by_map_constant(&m.map, 1e-7f), 0);
    by_map_result(&m.map, by__map_div(&m, by_map_input(&m.map, direction), norm), dtype);
    by_map_end(&m.map, results);
    return results[0];
}

/* x p + y q */
static by_value mix(by_graph *graph, by_value p, float x, by_value q, float y, by_dtype dtype)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int left = by_map_step(&map, BY_MAP_MUL, by_map_input(&map, p), by_map_constant(&map, x), 0);
    int right = by_map_step(&map, BY_MAP_MUL, by_map_input(&map, q), by_map_constant(&map, y), 0);
    by_map_result(&map, by_map_step(&map, BY_MAP_ADD, left, right, 0), dtype);
    by_map_end(&map, results);
    return results[0];
}

/* Newton-Schulz iterations whose polynomial brings singular values near 1, on the smaller of X X^T
 * and X^T X. */
static by_value orthogonalize(by_graph *graph, by_value x, bool tall, by_dtype dtype)
{
    for (int i = 0; i < 5; i++) {
        by_value a = by_matmul(graph, x, x, tall, !tall);
        by_value b = mix(graph, a, -4.7750f, by_matmul(graph, a, a, false, false), 2.0315f, dtype);
        by_value y =
            tall ? by_matmul(graph, x, b, false, false) : by_matmul(graph, b, x, false, false);
        x = mix(graph, x, 3.4445f, y, 1.0f, dtype);
    }
    return x;
}

static by_value update_hidden(by_graph *graph, const by__optim_update *u, const muon_keys *k)
{
    double rows = (double)u->unit->shape.dim[0];
    double columns = (double)u->unit->shape.dim[1];
    by_dtype dtype = u->unit->copy; /* products in the dtype of the model's */
    by_value x = normalize(graph, u, add_direction(graph, u, k), dtype);
    x = orthogonalize(graph, x, rows > columns, dtype);
    double outputs = u->unit->inputs_first ? columns : rows;
    double inputs = u->unit->inputs_first ? rows : columns;
    double scale = strcmp(k->scale, "rms") == 0 ? 0.2 * sqrt(fmax(rows, columns))
                                                : sqrt(fmax(1.0, outputs / inputs));
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int rate = by__map_mul(&m, by__optim_update_rate(&m, 0), by_map_constant(&m.map, (float)scale));
    return by__optim_update_end(&m, by__map_mul(&m, by_map_input(&m.map, x), rate));
}

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    const muon_keys *k = own;
    if (u->state[MOMENTUM] != BY_NONE) {
        return update_hidden(graph, u, k);
    }
    return by__optim_adam_step(graph, u, &k->adam, u->state[FIRST], u->state[SECOND]);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    if (config->parallel.tensor != 1 || config->parallel.expert != 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: muon needs whole matrices: set parallel.tensor and "
                            "parallel.expert to 1, or use adamw",
                            by__config_where(config, "optimizer.kind", "parallel.tensor"));
    }
    return by__optim_wants_f32(config, error);
}

const by__optim_row by__optim_muon = {
    .kind = {.name = "muon",
             .help =
                 "Muon (Jordan 2024): orthogonalized updates for the matrices of hidden layers, "
                 "AdamW for the rest. 4 bytes of state per parameter of the former; the cost "
                 "of its matrix products grows with rows + columns.",
             .keys = {&key_list},
             .size = sizeof(muon_keys),
             .resolve = resolve},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .needs_tensors = true,
    .update = update,
    .hyper = by__optim_adam_hyper,
};
