/* The table of optimizers, and the graphs of norm and update that they share. */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "optim/optim.h"

/* One row per optimizer: by__optim_NAME of NAME.c. */
#define OPTIMIZERS(ROW)                                                                            \
    ROW(adamw)                                                                                     \
    ROW(adam)                                                                                      \
    ROW(adamw8bit)                                                                                 \
    ROW(muon)                                                                                      \
    ROW(sgd)                                                                                       \
    ROW(lion)                                                                                      \
    ROW(lamb)                                                                                      \
    ROW(adafactor)

#define DECLARE(name) extern const by__optim_row by__optim_##name;
#define ADDRESS(name) &by__optim_##name,
OPTIMIZERS(DECLARE)
static const by__optim_row *const optimizers[] = {OPTIMIZERS(ADDRESS)};

const by__config_kind *by__optim_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(optimizers) ? &optimizers[index]->kind : NULL;
}

static const by__optim_row *find(const by_optimizer_config *config)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(optimizers); i++) {
        const by__config_kind *kind = &optimizers[i]->kind;
        if (strcmp(config->kind, kind->name) == 0 &&
            (kind->size == 0 || by__config_kind_own(config->own, kind) != NULL)) {
            return optimizers[i];
        }
    }
    return NULL;
}

/* Number of states that an optimizer keeps with the keys of a config. */
static int count_states(const by__optim_row *optimizer, const by_optimizer_config *config)
{
    return optimizer->kept == NULL
               ? optimizer->state_count
               : optimizer->kept(by__config_kind_own(config->own, &optimizer->kind));
}

int by_optimizer_state_count(const by_optimizer_config *config)
{
    const by__optim_row *optimizer = find(config);
    return optimizer == NULL ? 0 : count_states(optimizer, config) + (config->ema != 0.0);
}

by_optimizer_state by_optimizer_state_at(const by_optimizer_config *config, int i)
{
    const by__optim_row *optimizer = find(config);
    return i == count_states(optimizer, config)
               ? (by_optimizer_state){.name = BY_AVERAGE_STATE, .wide = true}
               : optimizer->states[i];
}

by_status by__optim_check_mup(const by_config *config, by_error *error)
{
    const by__optim_row *optimizer = find(&config->optimizer);
    if (!by__nn_has_mup(&config->model) || (optimizer != NULL && optimizer->is_normalised)) {
        return BY_OK;
    }
    by_string names = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(optimizers); i++) {
        if (optimizers[i]->is_normalised) {
            by_string_format(&names, "%s%s", names.length == 0 ? "" : ", ",
                             optimizers[i]->kind.name);
        }
    }
    by_status status =
        by_error_set(error, BY_ECONFIG,
                     "%s: the learning rates of model.parameterisation mup are for %s, not for %s",
                     by__config_where(config, "model.parameterisation", "optimizer.kind"),
                     names.failed ? "AdamW" : names.data, config->optimizer.kind);
    by_string_free(&names);
    return status;
}

bool by_optimizer_needs_tensors(const by_config *config)
{
    const by__optim_row *optimizer = find(&config->optimizer);
    return optimizer != NULL && (optimizer->needs_tensors || by__optim_groups_have_rates(config));
}

/* Adds the value "PREFIX.UNIT", or "UNIT" without a prefix. */
static by_value named(by_graph *graph, by_role role, const char *prefix, const by_update_unit *unit,
                      by_dtype dtype, const by_shape *shape)
{
    char name[300];
    (void)snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", unit->name);
    return by__graph_add_value(graph, role, name, NULL, (by__graph_type){dtype, *shape});
}

/* Sums of squares of a unit's gradient, one per block. */
static by_value squares_of(by_graph *graph, const by_update_unit *unit)
{
    return by__op_build_sum_squares(
        graph, named(graph, BY_ROLE_INPUT, "grad", unit, BY_F32, &unit->shape));
}

by_value by__optim_unit_squares(by_graph *graph, const by_update_unit *unit, by_value blocks)
{
    static const int axis = 0;
    if (unit->ranks <= 1) {
        return blocks;
    }
    by_value mine = by_sum(graph, blocks, &axis, 1, true);
    return by_all_reduce(graph, mine, unit->mesh, unit->ranks);
}

by_status by__optim_wants_f32(const by_config *config, by_error *error)
{
    return strcmp(config->precision.weights, "f32") == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: %s needs f32 weights: set precision.weights: f32, or use adamw",
                              by__config_where(config, "precision.weights", "optimizer.kind"),
                              config->optimizer.kind);
}

by_status by_optimizer_norm_graph(by_graph *graph, const by_optimizer_config *config,
                                  const by_update_unit *units, size_t count, int64_t losses,
                                  bool scaled, by_error *error)
{
    by_value *in;
    by_value norm;
    by_value scale;
    BY_TRY(by__alloc((void **)&in, count + 3, sizeof *in, "gradient norm", error));
    in[0] = by_graph_state(graph, "failed", BY_F32, BY_SHAPE(1));
    in[1] = losses > 0 ? by_graph_input(graph, "losses", BY_F32, BY_SHAPE(losses)) : BY_NONE;
    in[2] = scaled ? by_graph_input(graph, "loss_factor", BY_F32, BY_SHAPE(1)) : BY_NONE;
    int operands = 3;
    for (size_t i = 0; i < count; i++) {
        if (!units[i].statistic) {
            in[operands++] = by__optim_unit_squares(graph, &units[i], squares_of(graph, &units[i]));
        }
    }
    by__op_build_clip_scale(graph, in, operands, (float)config->clip, &norm, &scale);
    by_graph_output(graph, norm, "norm");
    by_graph_output(graph, scale, "scale");
    free(in);
    return by_graph_check(graph, error);
}

/* The gradient of a sparse matrix whose zeros are kept: 0 where the weight is 0. If weight, moment
 * and gradient are 0, so are the next ones, with every element-wise update. */
static by_value without_zeros(by_graph *graph, const by__optim_update *u)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int weight = by_map_input(&map, u->parameter);
    int gradient = by_map_input(&map, u->gradient);
    int none = by_map_constant(&map, 0.0f);
    by_map_result(&map, by_map_step(&map, BY_MAP_SELECT, weight, gradient, none), BY_F32);
    by_map_end(&map, results);
    return results[0];
}

/* A statistic grows by the mean of its increments, of which the gradient set has the sum, unless
 * the step is skipped. */
static void update_statistic(by_graph *graph, by__optim_update *u)
{
    by__optim_update_map m;
    u->decay = 0.0f;
    by__optim_update_begin(&m, graph, u);
    int sum = by_map_input(&m.map, u->gradient);
    int mean = by__map_mul(&m, sum, by__optim_update_hyper(&m, BY_HYPER_SHARE));
    (void)by__optim_update_end(&m, by__map_one(&m, BY_MAP_NEGATE, mean));
}

static void update_unit(by_graph *graph, const by__optim_row *optimizer,
                        const by_optimizer_config *config, by__optim_update *u)
{
    const by_update_unit *unit = u->unit;
    const void *own = by__config_kind_own(config->own, &optimizer->kind);
    u->parameter = named(graph, BY_ROLE_PARAMETER, "", unit, unit->format, &unit->shape);
    u->gradient = named(graph, BY_ROLE_INPUT, "grad", unit, BY_F32, &unit->shape);
    if (unit->statistic) {
        update_statistic(graph, u);
        return;
    }
    u->decay = unit->own_decay ? unit->weight_decay
               : unit->decay   ? (float)config->weight_decay
                               : 0.0f;
    u->decay *= unit->decay_scale == 0.0f ? 1.0f : unit->decay_scale;
    u->lr_scale = unit->lr_scale == 0.0f ? 1.0f : unit->lr_scale;
    int states = count_states(optimizer, config);
    for (int i = 0; i < BY_MAX_STATES; i++) {
        u->state[i] = BY_NONE;
    }
    for (int i = 0; i < states; i++) {
        const by_optimizer_state *state = &optimizer->states[i];
        by_shape shape = unit->shape;
        bool has = state->shape == NULL || state->shape(&unit->shape, unit->axes, &shape);
        u->state[i] = has ? named(graph, BY_ROLE_STATE, state->name, unit,
                                  state->dtype == BY_F32 ? unit->format : state->dtype, &shape)
                          : BY_NONE;
    }
    if (config->keep_zeros != 0 && unit->decay) {
        u->gradient = without_zeros(graph, u);
    }
    by_value copy = optimizer->update(graph, u, own);
    if (unit->copy != BY_F32) {
        char name[300];
        (void)snprintf(name, sizeof name, "copy.%s", unit->name);
        by_graph_output(graph, copy, name);
    }
}

by_status by_optimizer_update_graph(by_graph *graph, const by_optimizer_config *config,
                                    const by_update_unit *units, size_t count, by_error *error)
{
    const by__optim_row *optimizer = find(config);
    if (optimizer == NULL) {
        return by_error_set(error, BY_EARG,
                            "optimizer.kind '%s': wanted is the optimizer section of a config that "
                            "by_config_open, by_config_parse or by_config_default made",
                            config->kind);
    }
    by__optim_update u = {.hyper = by_graph_input(graph, "hyper", BY_F32, BY_SHAPE(BY_HYPER_COUNT)),
                          .scale = by_graph_input(graph, "scale", BY_F32, BY_SHAPE(1))};
    graph->phase = BY__UPDATE;
    for (size_t i = 0; i < count; i++) {
        u.unit = &units[i];
        update_unit(graph, optimizer, config, &u);
    }
    return by_graph_check(graph, error);
}

void by_optimizer_hyper(float hyper[BY_HYPER_COUNT], const by_optimizer_config *config,
                        int64_t step, double lr)
{
    const by__optim_row *optimizer = find(config);
    memset(hyper, 0, BY_HYPER_COUNT * sizeof *hyper);
    hyper[0] = (float)lr;
    hyper[BY_HYPER_UPDATE] = (float)(step % (1 << 24));
    hyper[BY_HYPER_AVERAGE] = by__optim_average_weight(config, step);
    if (optimizer != NULL && optimizer->hyper != NULL) {
        optimizer->hyper(hyper, by__config_kind_own(config->own, &optimizer->kind), step);
    }
}
