/* Optimizers and learning-rate schedules. An optimizer step is a graph, so that passes (sharding,
 * precision, fusion) apply to it as they do to the model. */
#ifndef BANYAN_OPTIMIZER_H
#define BANYAN_OPTIMIZER_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rate of step `step` (0-based) of `steps`, which need not be whole numbers: where batches
 * grow, a smaller one is a part of a step. Linear warm-up to `lr`, then by schedule:
 * cosine to min_lr (Loshchilov & Hutter 2017), linear to min_lr, constant, or wsd (warm-up, stable,
 * linear decay to min_lr over the last `decay` steps; Hu et al. 2024). */
BY_API double by_learning_rate(const by_optimizer_config *config, double step, double steps);

/* What the learning rate of steps of `batch` examples is multiplied by: config.lr is for steps of
 * lr_batch, and lr_scaling says how it grows (linear: Goyal et al. 2017; sqrt: Krizhevsky 2014). */
BY_API double by_learning_rate_scale(const by_optimizer_config *config, int64_t batch);

/* Numbers of a step that an update graph reads from its input "hyper". The last one is the number
 * of the update modulo 2^24, the one before it what the new weights count in their average (0: none
 * is kept), the rest is the optimizer's own. */
#define BY_HYPER_COUNT   8
#define BY_HYPER_UPDATE  (BY_HYPER_COUNT - 1)
#define BY_HYPER_AVERAGE (BY_HYPER_COUNT - 2)
#define BY_MAX_STATES    7
/* The state that is the moving average of the weights, in f32; behind the optimizer's own. */
#define BY_AVERAGE_STATE "ema"

/* What one update works on: a tensor, or a flat range of tensors one after another, for which the
 * elements' places in their tensors are unknown. */
typedef struct by_update_unit {
    const char *name; /* of its values in the graphs below */
    const char *axes; /* of a tensor, their logical names: "vocab embed"; NULL: unknown */
    by_shape shape;
    bool decay;      /* weight decay applies: matrices, not vectors (norm weights, biases) */
    by_dtype copy;   /* format of the copy that programs compute with; BY_F32: there is none */
    by_dtype format; /* of the parameter and its states: f32 or bf16 */
    /* Updates of bf16 are rounded stochastically (banyan/map.h), by random bits of seed, stream and
     * the number of the update; the unit's first element is number `first` of its tensor. */
    bool stochastic;
    uint64_t seed;
    uint64_t stream;
    int64_t first;
    /* Other ranks have the rest of the unit's tensors: norms are summed over `ranks` ranks of the
     * set of mesh axes `mesh`. 0: this one has all. */
    int ranks;
    uint32_t mesh;
    /* Of a tensor of which each of these ranks has a part: the whole, and of each of its axes the
     * set of mesh axes, and their ranks, that split it (0: none). */
    by_shape whole;
    uint32_t axis_mesh[BY_MAX_RANK];
    int axis_ranks[BY_MAX_RANK];
    float lr_scale;    /* its learning rate is that of the step times this; 0: 1 */
    bool inputs_first; /* a matrix of a linear layer that is [inputs, outputs] */
    bool own_decay;    /* `weight_decay` applies, whatever `decay` and the config say */
    float weight_decay;
} by_update_unit;

/* A state that an optimizer keeps for each parameter; f32: in the format of the parameter. */
typedef struct by_optimizer_state {
    const char *name; /* "m": in checkpoints the state of parameter NAME is "m.NAME" */
    /* Its shape from the parameter's, whose axes have these logical names; false: that parameter
     * has none. NULL: the same shape. */
    bool (*shape)(const by_shape *parameter, const char *axes, by_shape *state);
    by_dtype dtype; /* BY_F32, or BY_U8 for codes */
    bool wide;      /* f32 whatever the format of the parameter */
} by_optimizer_state;

/* `config` is the section of a by_config in all of these; its kind chooses the optimizer. */

/* Number of states, and the i-th. With config.ema the last one is BY_AVERAGE_STATE, which no
 * optimizer knows. */
BY_API int by_optimizer_state_count(const by_optimizer_config *config);
BY_API by_optimizer_state by_optimizer_state_at(const by_optimizer_config *config, int i);
/* True when each unit must be one tensor in its own shape (norms of tensors, sums over rows and
 * columns, parameters with rates of their own); else a flat range is updated as its tensors would
 * be. */
BY_API bool by_optimizer_needs_tensors(const by_optimizer_config *config);
/* Builds the graph that reduces the gradients "grad.UNIT" to outputs "norm" (global 2-norm) and
 * "scale" (clip factor), from the input "losses" [losses] (of all micro-batches) and the state
 * "failed" [1], which is 0 before the first step. When the norm or a loss is not finite, "failed"
 * becomes 1 and "scale" NaN, from then on until the caller sets it back: updates change nothing.
 * losses 0: there is no such input. scaled: the gradients are `loss_factor` times what they should
 * be, an input [1]; norm is of what they should be, and "scale" has the factor's inverse in it. */
BY_API by_status by_optimizer_norm_graph(by_graph *graph, const by_optimizer_config *config,
                                         const by_update_unit *units, size_t count, int64_t losses,
                                         bool scaled, by_error *error);
/* Builds the update: parameters "UNIT" and states "STATE.UNIT" in place, from inputs "grad.UNIT",
 * "scale" [1] (not finite: nothing is changed) and "hyper" [BY_HYPER_COUNT]; outputs "copy.UNIT"
 * where a unit has a copy. BY_EARG when `config` is no section of a by_config. */
BY_API by_status by_optimizer_update_graph(by_graph *graph, const by_optimizer_config *config,
                                           const by_update_unit *units, size_t count,
                                           by_error *error);
/* Builds what follows an update where config.ema is not 0: states "ema.UNIT" in place, from inputs
 * "UNIT" (the parameters), "scale" [1] and "hyper":
 *     ema = ema + w (p - ema)        w = hyper[BY_HYPER_AVERAGE] = 1 - decay
 * The first update of all has w = 1, so that the average begins with the weights behind it, as that
 * of torch.optim.swa_utils.AveragedModel does. scale not finite: nothing is changed. */
BY_API by_status by_optimizer_average_graph(by_graph *graph, const by_update_unit *units,
                                            size_t count, by_error *error);
/* Builds what puts the averages in the place of the parameters: parameters "UNIT" in place from
 * inputs "ema.UNIT" (f32), rounded to nearest, after "kept.UNIT" (f32) has got what was there; and
 * with `back` what brings them back from the inputs "kept.UNIT", bit for bit. */
BY_API by_status by_optimizer_swap_graph(by_graph *graph, const by_update_unit *units, size_t count,
                                         bool back, by_error *error);
/* The numbers of update number `step` (0-based) for "hyper": hyper[0] is the learning rate, the
 * last one the update's number, the rest is the optimizer's own (AdamW: bias corrections). */
BY_API void by_optimizer_hyper(float hyper[BY_HYPER_COUNT], const by_optimizer_config *config,
                               int64_t step, double lr);

#ifdef __cplusplus
}
#endif
#endif
