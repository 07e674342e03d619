/* Muon (Jordan 2024, "Muon: an optimizer for hidden layers in neural networks"; torch.optim.Muon):
 * the momentum of a hidden layer's matrix is replaced by approximately the nearest semi-orthogonal
 * matrix, by five Newton-Schulz iterations.
 *     m = mu m + (1 - mu) g                  d = m, or with Nesterov's momentum mu m + (1 - mu) g
 *     X = d / |d|                            X = a X + (b A + c A^2) X with A = X X^T, 5 times
 *     p = p (1 - lr decay) - lr scale X
 * Optionally the rows of X, or its columns where they are more, are divided by the root of a moving
 * average of their mean squares, and X keeps its norm (NorMuon: Li et al. 2025, for the axis along
 * which the norms of a semi-orthogonal matrix differ); and decay spares the elements whose
 * magnitude the step increases (Chen et al. 2025). scale is 0.2 sqrt(max(rows, columns)), which
 * gives steps of the size of AdamW's (Moonlight: Liu et al. 2025), or Jordan's
 * sqrt(max(1, outputs / inputs)). Embeddings, head, vectors and tensors of other than two axes take
 * AdamW's step at the same learning rate. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"

typedef struct muon_keys {
    by__optim_moments adam;
    double momentum;
    double variance;
    int64_t cautious;
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
    {"optimizer", "variance", BY__KEY_REAL, BY__OWN(muon_keys, variance), "0", 0, 1, BY__BELOW_MAX,
     .later = true,
     .help = "decay rate of the mean square of the rows of an update, or of its columns where they "
             "are more, by whose root they are divided (NorMuon: Li et al. 2025); 0: they are not"},
    {"optimizer", "cautious", BY__KEY_SWITCH, BY__OWN(muon_keys, cautious), "false", .later = true,
     .help = "weight decay only of the elements of a matrix that the step also brings nearer to 0 "
             "(Chen et al. 2025)"},
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

/* A number for each row, or for each column where they are more. */
static bool variance_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    *state = BY_SHAPE(0);
    if (parameter->rank == 2) {
        bool tall = parameter->dim[0] >= parameter->dim[1];
        *state = BY_SHAPE(parameter->dim[tall ? 0 : 1]);
    }
    return is_hidden(parameter, axes);
}

enum { MOMENTUM, FIRST, SECOND, VARIANCE };
static const by_optimizer_state states[] = {
    [MOMENTUM] = {.name = "momentum", .shape = hidden_shape},
    [FIRST] = {.name = "m", .shape = other_shape},
    [SECOND] = {.name = "v", .shape = other_shape},
    [VARIANCE] = {.name = "variance", .shape = variance_shape},
};

static int kept(const void *own)
{
    return ((const muon_keys *)own)->variance > 0.0 ? VARIANCE + 1 : VARIANCE;
}

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

/* Newton-Schulz iterations that bring singular values near 1, on the smaller of X X^T and X^T X. */
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

/* The mean of the squares of x along the axis that is not `axis`: f32 [extent of axis]. */
static by_value mean_squares(by_graph *graph, by_value x, int axis)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    int other = 1 - axis;
    by_map_begin(&map, graph);
    by_map_result(&map, by_map_step(&map, BY_MAP_SQUARE, by_map_input(&map, x), 0, 0), BY_F32);
    by_map_end(&map, results);
    return by_mean(graph, results[0], &other, 1, false);
}

/* Divides the rows or columns of x by the roots of their average squares; x keeps its norm. */
static by_value reduce_variance(by_graph *graph, const by__optim_update *u, by_value x,
                                const muon_keys *k)
{
    static const int all = 0;
    by_shape shape = u->unit->shape;
    int axis = shape.dim[0] >= shape.dim[1] ? 0 : 1;
    by_value mean = mean_squares(graph, x, axis);
    by__optim_update_map m;
    by_value parts[BY_MAX_OUTPUTS];
    by__optim_update_begin(&m, graph, u);
    int state = by_map_input(&m.map, u->state[VARIANCE]);
    int now = by_map_input(&m.map, mean);
    int next = by__optim_update_set(&m, state, by__optim_map_average(&m, k->variance, state, now));
    next = by_map_step(&m.map, BY_MAP_MAX, next, by_map_constant(&m.map, 1e-10f), 0);
    int root = by__map_one(&m, BY_MAP_RSQRT, next);
    by_map_result(&m.map, root, BY_F32);
    by_map_result(&m.map, by__map_mul(&m, now, by__map_mul(&m, root, root)), BY_F32);
    by_map_end(&m.map, parts);
    by_value before = by_sum(graph, mean, &all, 1, true);
    by_value after = by_sum(graph, parts[1], &all, 1, true);
    by__optim_update_begin(&m, graph, u);
    int least = by_map_constant(&m.map, 1e-20f);
    int norm =
        by__map_div(&m, by_map_scalar(&m.map, before, 0),
                    by_map_step(&m.map, BY_MAP_MAX, by_map_scalar(&m.map, after, 0), least, 0));
    root = by__map_mul(&m, by_map_input(&m.map, parts[0]), by__map_one(&m, BY_MAP_SQRT, norm));
    by_map_result(&m.map, root, BY_F32);
    by_map_end(&m.map, parts);
    shape.dim[1 - axis] = 1;
    return by_mul(graph, x, by_reshape(graph, parts[0], shape));
}

static by_value update_hidden(by_graph *graph, const by__optim_update *u, const muon_keys *k)
{
    double rows = (double)u->unit->shape.dim[0];
    double columns = (double)u->unit->shape.dim[1];
    by_dtype dtype = u->unit->copy; /* products in the dtype of the model's */
    by_value x = normalize(graph, u, add_direction(graph, u, k), dtype);
    x = orthogonalize(graph, x, rows > columns, dtype);
    x = k->variance > 0.0 ? reduce_variance(graph, u, x, k) : x;
    double outputs = u->unit->inputs_first ? columns : rows;
    double inputs = u->unit->inputs_first ? rows : columns;
    double scale = strcmp(k->scale, "rms") == 0 ? 0.2 * sqrt(fmax(rows, columns))
                                                : sqrt(fmax(1.0, outputs / inputs));
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int rate = by__map_mul(&m, by__optim_update_rate(&m, 0), by_map_constant(&m.map, (float)scale));
    int step = by__map_mul(&m, by_map_input(&m.map, x), rate);
    if (k->cautious == 1 && u->decay != 0.0f) {
        int shrinks = by__map_mul(&m, step, by_map_input(&m.map, u->parameter));
        m.decays = by_map_step(&m.map, BY_MAP_LESS, by_map_constant(&m.map, 0.0f), shrinks, 0);
    }
    return by__optim_update_end(&m, step);
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
    .kept = kept,
    .needs_tensors = true,
    .update = update,
    .hyper = by__optim_adam_hyper,
};
