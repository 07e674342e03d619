/* Optimizers and learning-rate schedules. An optimizer step is a graph, so passes (sharding,
 * precision, fusion) apply to it as they do to a model. */
#ifndef BANYAN_OPTIMIZER_H
#define BANYAN_OPTIMIZER_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the learning rate of step `step` (from 0) of `steps`: linear warm-up to `lr`, then by
 * schedule: cosine to min_lr (Loshchilov and Hutter 2017), linear to min_lr, constant, or wsd
 * (warm-up, stable, linear decay to min_lr over the last `decay` steps; Hu et al. 2024). Steps may
 * be fractional, because a smaller batch of a batch warm-up is a fraction of a step. */
BY_API double by_learning_rate(const by_optimizer_config *config, double step, double steps);

/* Returns the factor on the learning rate for steps of `batch` examples, given that config.lr is
 * meant for lr_batch: by lr_scaling linear (Goyal et al. 2017) or sqrt (Krizhevsky 2014) in their
 * ratio. */
BY_API double by_learning_rate_scale(const by_optimizer_config *config, int64_t batch);

/* Layout of "hyper", the numbers of a step that an update graph reads. BY_HYPER_UPDATE: number of
 * the update modulo 2^24; BY_HYPER_AVERAGE: weight of the new parameters in their average (0: no
 * average is kept); BY_HYPER_SHARE: 1 / the number of the step's micro-batches, which the caller
 * sets if there are statistics; the others belong to the optimizer, hyper[0] being the learning
 * rate.
 * BY_MAX_STATES: maximum number of states of an optimizer. */
#define BY_HYPER_COUNT   8
#define BY_HYPER_UPDATE  (BY_HYPER_COUNT - 1)
#define BY_HYPER_AVERAGE (BY_HYPER_COUNT - 2)
#define BY_HYPER_SHARE   (BY_HYPER_COUNT - 3)
#define BY_MAX_STATES    7
/* Name of the state that holds the moving average of the weights in f32, after the optimizer's own
 * states. */
#define BY_AVERAGE_STATE "ema"

/* What one update operates on: a tensor, or a flat range of concatenated tensors. */
typedef struct by_update_unit {
    const char *name; /* of its values in the graphs below */
    const char *axes; /* logical axis names of a tensor: "vocab embed"; NULL: unknown */
    by_shape shape;
    /* by_graph_statistic: left out of the norm, and updated by the mean of its increments alone */
    bool statistic;
    bool decay;      /* weight decay applies: matrices, not vectors (norm weights, biases) */
    by_dtype copy;   /* dtype of the copy used for computing; BY_F32: there is none */
    by_dtype format; /* dtype of the parameter and its states: f32 or bf16 */
    /* Round updates to bf16 stochastically (banyan/map.h), with random bits from seed, stream and
     * the number of the update. The unit's first element is element `first` of its tensor. */
    bool stochastic;
    uint64_t seed;
    uint64_t stream;
    int64_t first;
    /* Other ranks hold the rest of the unit's tensors: norms are summed over `ranks` ranks of the
     * set of mesh axes `mesh`. 0: this rank holds everything. */
    int ranks;
    uint32_t mesh;
    /* For a tensor of which each of these ranks holds a part: its whole shape, and for each axis
     * the set of mesh axes that split it and the number of their ranks (0: not split). */
    by_shape whole;
    uint32_t axis_mesh[BY_MAX_RANK];
    int axis_ranks[BY_MAX_RANK];
    float lr_scale;    /* factor on the step's learning rate; 0: 1 */
    bool inputs_first; /* the matrix of a linear layer is [inputs, outputs] */
    bool own_decay;    /* use `weight_decay`, whatever `decay` and the config are */
    float weight_decay;
    float decay_scale; /* factor on weight decay; 0: 1 */
} by_update_unit;

/* A state that an optimizer keeps for each parameter. */
typedef struct by_optimizer_state {
    const char *name; /* "m": in checkpoints the state of parameter NAME is "m.NAME" */
    /* Sets *state to its shape, given the parameter's shape and logical axis names; returns false
     * if the parameter has no such state. NULL: the parameter's shape. */
    bool (*shape)(const by_shape *parameter, const char *axes, by_shape *state);
    by_dtype dtype; /* BY_F32 (in the format of the parameter unless `wide`), or BY_U8 for codes */
    bool wide;      /* f32 whatever the format of the parameter */
} by_optimizer_state;

/* Returns the number of states of the optimizer that `config` selects. In this and the following
 * functions `config` must be the section of a by_config. */
BY_API int by_optimizer_state_count(const by_optimizer_config *config);
/* Returns the i-th state. With config.ema the last one is BY_AVERAGE_STATE. */
BY_API by_optimizer_state by_optimizer_state_at(const by_optimizer_config *config, int i);
/* Returns whether each unit must be a single tensor in its own shape (for norms of tensors, sums
 * over rows and columns, parameter groups, muP). Otherwise a flat range is updated as its tensors
 * would be. */
BY_API bool by_optimizer_needs_tensors(const by_config *config);
/* Builds the graph that reduces the gradients "grad.UNIT" to outputs "norm" (global 2-norm) and
 * "scale" (clip factor), with an input "losses" [losses] (of all micro-batches; losses 0: no such
 * input) and a state "failed" [1], initially 0. If the norm or a loss is not finite, "failed"
 * becomes 1; until the caller resets it, "scale" is NaN, so that updates change nothing. With
 * `scaled`, the gradients are multiplied by an input "loss_factor" [1]; "norm" excludes it and
 * "scale" includes its inverse. */
BY_API by_status by_optimizer_norm_graph(by_graph *graph, const by_optimizer_config *config,
                                         const by_update_unit *units, size_t count, int64_t losses,
                                         bool scaled, by_error *error);
/* Builds the update graph: updates parameters "UNIT" and states "STATE.UNIT" in place from inputs
 * "grad.UNIT", "scale" [1] (not finite: nothing changes) and "hyper" [BY_HYPER_COUNT]. Outputs
 * "copy.UNIT" for units with a copy. Returns BY_EARG if `config` is not the section of a by_config,
 * BY_ECONFIG if the optimizer does not support the units. */
BY_API by_status by_optimizer_update_graph(by_graph *graph, const by_optimizer_config *config,
                                           const by_update_unit *units, size_t count,
                                           by_error *error);
/* Builds the graph to run after an update if config.ema is not 0: updates states "ema.UNIT" in
 * place from inputs "UNIT" (the parameters), "scale" [1] and "hyper":
 *
 *     ema = ema + w (p - ema)        w = hyper[BY_HYPER_AVERAGE] = 1 - decay
 *
 * The first update has w = 1, so the average starts with the weights after it, as in
 * torch.optim.swa_utils.AveragedModel. Nothing changes if scale is not finite.
 */
BY_API by_status by_optimizer_average_graph(by_graph *graph, const by_update_unit *units,
                                            size_t count, by_error *error);
/* Builds the graph that replaces parameters "UNIT" by inputs "ema.UNIT" (f32), rounded to nearest,
 * after saving them in "kept.UNIT" (f32); with `back`, the graph that restores them from inputs
 * "kept.UNIT" bit for bit. */
BY_API by_status by_optimizer_swap_graph(by_graph *graph, const by_update_unit *units, size_t count,
                                         bool back, by_error *error);
/* Computes "hyper" for update `step` (from 0) with learning rate `lr`; see BY_HYPER_COUNT. */
BY_API void by_optimizer_hyper(float hyper[BY_HYPER_COUNT], const by_optimizer_config *config,
                               int64_t step, double lr);

#ifdef __cplusplus
}
#endif
#endif
