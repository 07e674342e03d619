/* optim: optimizers and learning-rate schedules, as graphs. optimizers.c has the table of
 * optimizers and what they share; each optimizer is one file.
 *
 * An optimizer declares its keys (config/kind.h), the states it keeps for each parameter, and the
 * update of one unit (a tensor or a flat range of tensors) as nodes of a graph. Memory plan,
 * sharding, checkpoint and resume follow from the declared states.
 *
 * Types: by__optim_row, an optimizer's row in the table; by__optim_update, the values of one
 * unit; by__optim_update_map, an elementwise update under construction. All values belong to the
 * graph; states and their memory belong to the store.
 *
 * Adding an optimizer: its file, a row in optimizers.c, its test.
 *
 * Never put here: buffers, loops over steps, reductions between ranks. Those are programs.
 */
#ifndef BY_OPTIM_OPTIM_H
#define BY_OPTIM_OPTIM_H

#include "banyan/map.h"
#include "banyan/optimizer.h"
#include "config/kind.h"
#include "ops/ops.h"

/* The values that the update of one unit reads and writes. */
typedef struct by__optim_update {
    const by_update_unit *unit;
    by_value parameter; /* in the unit's format, updated in place */
    by_value gradient;  /* f32, before clipping: the effective gradient is `scale` times this */
    by_value state[BY_MAX_STATES]; /* updated in place; BY_NONE if the unit does not have it */
    by_value hyper;                /* f32 [BY_HYPER_COUNT] */
    /* Clip factor, f32 [1]. If it is not finite nothing may change; by__optim_update_set ensures
     * that. */
    by_value scale;
    float decay;    /* weight decay of this unit */
    float lr_scale; /* factor of its learning rate, relative to hyper[0] */
} by__optim_update;

typedef struct by__optim_row {
    by__config_kind kind; /* name and keys */
    const by_optimizer_state *states;
    int state_count;
    /* Returns how many of the states, from the first on, are kept with these keys. NULL: all. */
    int (*kept)(const void *own);
    bool needs_tensors; /* a unit is always one tensor, in its own shape */
    /* The size of a step does not depend on that of gradients, and decay is decoupled: the learning
     * rates of muP hold (by__nn_mup_apply). */
    bool is_normalised;
    /* Adds the nodes that update a unit. Returns the value of its copy (BY_NONE when unit->copy is
     * BY_F32). `own` is the struct of the kind's keys. */
    by_value (*update)(by_graph *graph, const by__optim_update *u, const void *own);
    /* Fills hyper[1] and the following, which are zero when called, for update number `step`
     * (0-based); hyper[0] is the learning rate. May be NULL. */
    void (*hyper)(float hyper[BY_HYPER_COUNT], const void *own, int64_t step);
} by__optim_row;

/* BY_ECONFIG unless precision.weights is f32. */
by_status by__optim_wants_f32(const by_config *config, by_error *error);

/* The kinds of the section `optimizer`, for by__config_kind_table. */
const by__config_kind *by__optim_kind(size_t index);

/* ---- parameters with individual rates (groups.c) ---- */

/* Returns true if parameters differ in learning rate or weight decay, so that each unit must be one
 * tensor. */
bool by__optim_groups_have_rates(const by_config *config);
/* On the forward graph of a whole model: freezes parameters as the groups say, and records the
 * orientation of matrices. BY_ECONFIG for a group that matches no parameter. */
by_status by__optim_groups_apply(by_graph *graph, const by_optimizer_config *config,
                                 by_error *error);
/* Sets lr_scale, decay_scale, own_decay, weight_decay and inputs_first of the unit for parameter
 * `name` of a graph of the whole model. */
void by__optim_groups_set_rates(by_update_unit *unit, const by_graph *graph,
                                const by_optimizer_config *config, const char *name);

/* BY_ECONFIG if the model asks for muP and the optimizer is none that its rates are for. */
by_status by__optim_check_mup(const by_config *config, by_error *error);

/* Sums of squares of a unit's gradient, one per block, as an operand of the clip factor; if other
 * ranks have parts of its tensors, the sum over all of them [1]. */
by_value by__optim_unit_squares(by_graph *graph, const by_update_unit *unit, by_value blocks);

/* ---- the moving average of the weights (average.c) ---- */

/* Weight in the average of the weights after update number `step` (0-based). */
float by__optim_average_weight(const by_optimizer_config *config, int64_t step);

/* ---- updates as maps (update_map.c) ---- */

/* A map (banyan/map.h) over tensors with a unit's shape, or a state's. Operands and results of its
 * steps are numbers returned by the functions below and those of `map`. */
typedef struct by__optim_update_map {
    by_map map;
    const by__optim_update *u;
    int finite; /* a step that is 1, or 0 if the clip factor is not finite */
    int decays; /* a step that is 1 for elements that decay, else 0; -1: all of them do */
} by__optim_update_map;

void by__optim_update_begin(by__optim_update_map *m, by_graph *graph, const by__optim_update *u);
/* The unit's gradient after clipping. */
int by__optim_update_gradient(by__optim_update_map *m);
/* hyper[i] */
int by__optim_update_hyper(by__optim_update_map *m, int i);
/* hyper[i] as a learning rate: times the unit's lr_scale. */
int by__optim_update_rate(by__optim_update_map *m, int i);
/* Replaces a tensor operand (a state) by `value`, unless the clip factor is not finite. Returns the
 * value stored. */
int by__optim_update_set(by__optim_update_map *m, int tensor, int value);
/* Ends the map with p = p (1 - lr decay) - step. Returns the unit's copy, as `update` does. */
by_value by__optim_update_end(by__optim_update_map *m, int step);

static inline int by__map_add(by__optim_update_map *m, int a, int b)
{
    return by_map_step(&m->map, BY_MAP_ADD, a, b, 0);
}

static inline int by__map_sub(by__optim_update_map *m, int a, int b)
{
    return by_map_step(&m->map, BY_MAP_SUB, a, b, 0);
}

static inline int by__map_mul(by__optim_update_map *m, int a, int b)
{
    return by_map_step(&m->map, BY_MAP_MUL, a, b, 0);
}

static inline int by__map_div(by__optim_update_map *m, int a, int b)
{
    return by_map_step(&m->map, BY_MAP_DIV, a, b, 0);
}

static inline int by__map_one(by__optim_update_map *m, by_map_kind kind, int a)
{
    return by_map_step(&m->map, kind, a, 0, 0);
}

/* Sum of the squares of an f32 tensor with the unit's shape, over all ranks that share the unit:
 * [1]. */
by_value by__optim_update_squares(by_graph *graph, const by__optim_update *u, by_value x);
/* Number of elements of the unit, over all ranks that share it. */
int64_t by__optim_update_count(const by__optim_update *u);

/* beta a + (1 - beta) b: updates a moving average a with b. */
int by__optim_map_average(by__optim_update_map *m, double beta, int a, int b);

/* ---- what Adam and its relatives share (adam.c) ---- */

/* The keys of an optimizer whose row has by__optim_adam_hyper; its own struct begins with them. */
typedef struct by__optim_moments {
    double betas[2];
    double eps;
} by__optim_moments;

/* Rows of a table of keys, with the defaults. */
#define BY__MOMENT_KEYS(of_betas, of_eps)                                                          \
    {"optimizer",                                                                                  \
     "betas",                                                                                      \
     BY__KEY_PAIR,                                                                                 \
     BY__OWN(by__optim_moments, betas),                                                            \
     of_betas,                                                                                     \
     0,                                                                                            \
     1,                                                                                            \
     BY__BELOW_MAX,                                                                                \
     .help = "decay rates of the first and second moment"},                                        \
    {                                                                                              \
        "optimizer", "eps", BY__KEY_REAL, BY__OWN(by__optim_moments, eps), of_eps, 0, 1,           \
            BY__ABOVE_MIN, .help = "epsilon: added to the root of the second moment"               \
    }

/* Fills the bias corrections of the first and second moment at update `step`, 1 - beta^(step + 1),
 * in hyper[1] and hyper[2] (Kingma and Ba 2015, section 3). */
void by__optim_adam_hyper(float hyper[BY_HYPER_COUNT], const void *own, int64_t step);
/* Attributes of AdamW's ops. */
by_attrs by__optim_adam_attrs(const by__optim_update *u, const by__optim_moments *k);
/* AdamW's step of a unit in f32 whose moments are these. Returns the unit's copy. */
by_value by__optim_adam_step(by_graph *graph, const by__optim_update *u, const by__optim_moments *k,
                             by_value first, by_value second);
/* Updates the moments, which are the first two states, with a gradient, and returns the direction:
 * the first, corrected, over the root of the second, plus epsilon. */
int by__optim_adam_direction(by__optim_update_map *m, const by__optim_moments *k, int gradient);

#endif
