/* Optimizers and learning-rate schedules. An optimizer step is a graph, so that passes (sharding,
 * precision, fusion) apply to it as they do to the model. */
#ifndef BANYAN_OPTIMIZER_H
#define BANYAN_OPTIMIZER_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rate of step `step` (0-based) of `steps`: linear warm-up to `lr`, then by schedule:
 * cosine to min_lr (Loshchilov & Hutter 2017), linear to min_lr, constant, or wsd (warm-up, stable,
 * linear decay to min_lr over the last `decay` steps; Hu et al. 2024). */
BY_API double by_learning_rate(const by_optimizer_config *config, int64_t step, int64_t steps);

/* The parameters of a model in two flat buckets: matrices (rank >= 2), which decay and may have
 * bf16 compute copies, and vectors (norm weights, biases), which do neither. */
typedef struct by_buckets {
    int64_t matrices; /* elements, with padding between parameters */
    int64_t vectors;
    bool copies; /* the update also writes "copy.matrices", bf16 */
} by_buckets;

/* Builds the graph that reduces gradients "grad.matrices" and "grad.vectors" to outputs "norm"
 * (global 2-norm) and "scale" (clip factor). */
BY_API by_status by_optimizer_norm_graph(by_graph *graph, const by_optimizer_config *config,
                                         const by_buckets *buckets, by_error *error);
/* Builds the update: parameters "matrices", "vectors" and states "m.*", "v.*" in place, from inputs
 * "grad.*", "scale" [1] and "hyper" [4] (by_optimizer_hyper fills it). `config` is the section of a
 * by_config, whose kind chooses the update; BY_EARG otherwise. */
BY_API by_status by_optimizer_update_graph(by_graph *graph, const by_optimizer_config *config,
                                           const by_buckets *buckets, by_error *error);
/* The step's numbers for "hyper": learning rate and bias corrections of update number `step`
 * (0-based). */
BY_API void by_optimizer_hyper(float hyper[4], const by_optimizer_config *config, int64_t step,
                               double lr);

#ifdef __cplusplus
}
#endif
#endif
