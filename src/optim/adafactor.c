/* Adafactor (Shazeer & Stern 2018, algorithms 4 and 5; transformers.Adafactor,
 * torch.optim.Adafactor). A matrix keeps the means R of its rows and C of its columns instead of
 * all second moments V; a tensor of more axes is a stack of matrices, a vector keeps V. With beta2
 * = 1 - t^beta2_decay:
 *     R = beta2 R + (1 - beta2) (mean of g^2 over columns + eps1), C likewise over rows
 *     U = g / sqrt(R C / mean(R))          or g / sqrt(V)
 *     U = U / max(1, rms(U) / clip_threshold)
 *     p = p - max(eps2, rms(p)) rate U,    rate = min(lr, 1 / sqrt(t))
 * and with beta1 the step is the moving average of what is subtracted. */
#include <math.h>

#include "optim/optim.h"

typedef struct adafactor_keys {
    double beta1;
    double beta2_decay;
    double eps[2];
    double clip_threshold;
    int64_t relative_step;
    int64_t scale_parameter;
} adafactor_keys;

static const by__config_key keys[] = {
    {"optimizer", "beta1", BY__KEY_REAL, BY__OWN(adafactor_keys, beta1), "0", 0, 1, BY__BELOW_MAX,
     .help = "decay rate of the first moment; 0: no first moment"},
    {"optimizer", "beta2_decay", BY__KEY_REAL, BY__OWN(adafactor_keys, beta2_decay), "-0.8", -1, 0,
     BY__BELOW_MAX,
     .help = "exponent d of the second moment: its decay rate at update t is 1 - t^d"},
    {"optimizer", "eps", BY__KEY_PAIR, BY__OWN(adafactor_keys, eps), "[1e-30, 1e-3]", 1e-37, 1, 0,
     .help = "epsilon 1, added to squared gradients, and epsilon 2, the smallest parameter scale "
             "(root mean square)"},
    {"optimizer", "clip_threshold", BY__KEY_REAL, BY__OWN(adafactor_keys, clip_threshold), "1", 0,
     1e9, BY__ABOVE_MIN, .help = "largest root mean square of a tensor's update"},
    {"optimizer", "relative_step", BY__KEY_SWITCH, BY__OWN(adafactor_keys, relative_step), "true",
     .help = "limit the learning rate of update t to 1 / sqrt(t)"},
    {"optimizer", "scale_parameter", BY__KEY_SWITCH, BY__OWN(adafactor_keys, scale_parameter),
     "true", .help = "scale updates by the root mean square of the parameter"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

/* Removes the last axis. */
static bool row_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    if (parameter->rank < 2) {
        return false;
    }
    *state = *parameter;
    state->rank--;
    return true;
}

/* Removes the last axis but one. */
static bool column_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    if (parameter->rank < 2) {
        return false;
    }
    *state = *parameter;
    state->rank--;
    state->dim[state->rank - 1] = parameter->dim[parameter->rank - 1];
    return true;
}

static bool vector_shape(const by_shape *parameter, const char *axes, by_shape *state)
{
    BY_UNUSED(axes);
    *state = *parameter;
    return parameter->rank < 2;
}

enum { ROWS, COLUMNS, SECOND, FIRST };
static const by_optimizer_state states[] = {
    [ROWS] = {.name = "v_row", .shape = row_shape},
    [COLUMNS] = {.name = "v_column", .shape = column_shape},
    [SECOND] = {.name = "v", .shape = vector_shape},
    [FIRST] = {.name = "m", .shape = NULL},
};

/* Indices of hyper-parameters after the learning rate. */
enum { BETA2 = 1, REST2, RATE };

static int kept(const void *own)
{
    return ((const adafactor_keys *)own)->beta1 > 0.0 ? FIRST + 1 : FIRST;
}

/* Updates a moving average with squares (of the state's shape); returns it. */
static int average(by__optim_update_map *m, by_value state, int squares, const adafactor_keys *k)
{
    int old = by_map_input(&m->map, state);
    int added = by__map_add(m, squares, by_map_constant(&m->map, (float)k->eps[0]));
    int next = by__map_add(m, by__map_mul(m, old, by__optim_update_hyper(m, BETA2)),
                           by__map_mul(m, added, by__optim_update_hyper(m, REST2)));
    return by__optim_update_set(m, old, next);
}

/* Updates R or C. results: 1 / sqrt of it, and R itself. */
static void add_factor(by_graph *graph, const by__optim_update *u, int which, by_value mean,
                       const adafactor_keys *k, by_value results[BY_MAX_OUTPUTS])
{
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int next = average(&m, u->state[which], by_map_input(&m.map, mean), k);
    int root = by__map_one(&m, BY_MAP_RSQRT, next);
    if (which == ROWS) { /* U is computed from the gradient after clipping */
        root = by__map_mul(&m, root, by_map_scalar(&m.map, u->scale, 0));
    }
    by_map_result(&m.map, root, BY_F32);
    if (which == ROWS) {
        by_map_result(&m.map, next, BY_F32);
    }
    by_map_end(&m.map, results);
}

static by_value root_of(by_graph *graph, by_value x)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    by_map_result(&map, by_map_step(&map, BY_MAP_SQRT, by_map_input(&map, x), 0, 0), BY_F32);
    by_map_end(&map, results);
    return results[0];
}

static by_value squared_gradient(by_graph *graph, const by__optim_update *u)
{
    by__optim_update_map m;
    by_value results[BY_MAX_OUTPUTS];
    by__optim_update_begin(&m, graph, u);
    by_map_result(&m.map, by__map_one(&m, BY_MAP_SQUARE, by__optim_update_gradient(&m)), BY_F32);
    by_map_end(&m.map, results);
    return results[0];
}

/* Mean of x over the axis that is its `axis`-th from the end, and the tensor's `of`-th. If ranks
 * have parts of that axis, each has a part of the sum. */
static by_value mean_over(by_graph *graph, const by__optim_update *u, by_value x, int axis, int of,
                          bool keep)
{
    const by_update_unit *unit = u->unit;
    int place = unit->shape.rank + of;
    if (unit->axis_ranks[place] <= 1) {
        return by_mean(graph, x, &axis, 1, keep);
    }
    by_value sum = by_all_reduce(graph, by_sum(graph, x, &axis, 1, keep), unit->axis_mesh[place],
                                 unit->axis_ranks[place]);
    float share = 1.0f / (float)unit->whole.dim[place];
    return by_scale(graph, sum, by_fill(graph, BY_F32, BY_SHAPE(1), share));
}

/* U of a matrix, or of a stack of them: g sqrt(mean(R)) / sqrt(R) / sqrt(C). */
static by_value matrix_direction(by_graph *graph, const by__optim_update *u,
                                 const adafactor_keys *k)
{
    by_value rows[BY_MAX_OUTPUTS];
    by_value columns[BY_MAX_OUTPUTS];
    by_shape shape = u->unit->shape;
    by_value squares = squared_gradient(graph, u);
    add_factor(graph, u, ROWS, mean_over(graph, u, squares, -1, -1, false), k, rows);
    add_factor(graph, u, COLUMNS, mean_over(graph, u, squares, -2, -2, false), k, columns);
    by_value mean = mean_over(graph, u, rows[1], -1, -2, true);
    by_value row = by_mul(graph, rows[0], root_of(graph, mean));
    shape.dim[shape.rank - 1] = 1;
    by_value scaled = by_mul(graph, u->gradient, by_reshape(graph, row, shape));
    shape = u->unit->shape;
    shape.dim[shape.rank - 2] = 1;
    return by_mul(graph, scaled, by_reshape(graph, columns[0], shape));
}

/* U of a vector: g / sqrt(V). */
static by_value vector_direction(by_graph *graph, const by__optim_update *u,
                                 const adafactor_keys *k)
{
    by__optim_update_map m;
    by_value results[BY_MAX_OUTPUTS];
    by__optim_update_begin(&m, graph, u);
    int gradient = by__optim_update_gradient(&m);
    int next = average(&m, u->state[SECOND], by__map_one(&m, BY_MAP_SQUARE, gradient), k);
    int direction = by__map_mul(&m, gradient, by__map_one(&m, BY_MAP_RSQRT, next));
    by_map_result(&m.map, direction, BY_F32);
    by_map_end(&m.map, results);
    return results[0];
}

/* Root mean square of `count` elements from the sum of their squares. */
static int root_mean(by__optim_update_map *m, by_value squares, int64_t count)
{
    int mean =
        by__map_div(m, by_map_scalar(&m->map, squares, 0), by_map_constant(&m->map, (float)count));
    return by__map_one(m, BY_MAP_SQRT, mean);
}

static int maximum(by__optim_update_map *m, int a, double least)
{
    return by_map_step(&m->map, BY_MAP_MAX, a, by_map_constant(&m->map, (float)least), 0);
}

static by_value update(by_graph *graph, const by__optim_update *u, const void *own)
{
    const adafactor_keys *k = own;
    int64_t count = by__optim_update_count(u);
    by_value direction =
        u->unit->shape.rank < 2 ? vector_direction(graph, u, k) : matrix_direction(graph, u, k);
    by_value steps = by__optim_update_squares(graph, u, direction);
    by_value weights =
        k->scale_parameter == 1 ? by__optim_update_squares(graph, u, u->parameter) : BY_NONE;
    by__optim_update_map m;
    by__optim_update_begin(&m, graph, u);
    int threshold = by_map_constant(&m.map, (float)k->clip_threshold);
    int excess = maximum(&m, by__map_div(&m, root_mean(&m, steps, count), threshold), 1.0);
    int rate = by__map_div(&m, by__optim_update_rate(&m, RATE), excess);
    if (k->scale_parameter == 1) {
        rate = by__map_mul(&m, rate, maximum(&m, root_mean(&m, weights, count), k->eps[1]));
    }
    int step = by__map_mul(&m, by_map_input(&m.map, direction), rate);
    if (k->beta1 > 0.0) {
        int first = by_map_input(&m.map, u->state[FIRST]);
        step = by__optim_update_set(&m, first, by__optim_map_average(&m, k->beta1, first, step));
    }
    return by__optim_update_end(&m, step);
}

static void hyper_values(float hyper[BY_HYPER_COUNT], const void *own, int64_t step)
{
    const adafactor_keys *k = own;
    double t = (double)step + 1.0;
    double rest = pow(t, k->beta2_decay);
    double relative = 1.0 / sqrt(t);
    hyper[BETA2] = (float)(1.0 - rest);
    hyper[REST2] = (float)rest;
    hyper[RATE] = k->relative_step == 1 && relative < (double)hyper[0] ? (float)relative : hyper[0];
}

const by__optim_row by__optim_adafactor = {
    .kind = {.name = "adafactor",
             .help = "Adafactor (Shazeer & Stern 2018): factored second moments of matrices, with "
                     "decoupled weight decay. The paper uses optimizer.lr 0.01 and schedule "
                     "constant.",
             .keys = {&key_list},
             .size = sizeof(adafactor_keys)},
    .states = states,
    .state_count = BY_ARRAY_LENGTH(states),
    .kept = kept,
    .needs_tensors = true,
    .update = update,
    .hyper = hyper_values,
};
