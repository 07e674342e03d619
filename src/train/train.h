/* train: the engine that takes steps (trainer.c), the loop around it (loop.c), evaluation, saving
 * and resuming.
 *
 * The trainer turns a config into four programs: gradients (forward and backward of one
 * micro-batch), the gradient norm, the update, and the loss for evaluation. It owns a tensor store
 * with f32 masters, compute copies, gradient sets and optimizer states, and one arena and one
 * workspace that the programs share because they never run at the same time. Inputs go to the device
 * through pinned staging memory (trainer_feed.c).
 *
 * Gradients and losses of the micro-batches are added in the order of the sum tree
 * (base/sum_tree.h), which depends on their number alone, however many processes share them.
 *
 * A step is submitted to the device and its results are collected later: the host prepares the next
 * one meanwhile. Whether a step was finite is decided on the device, so that a step that was
 * submitted behind one that failed changes nothing either.
 *
 * Never put here: kernels, file formats, printing.
 */
#ifndef BY_TRAIN_TRAIN_H
#define BY_TRAIN_TRAIN_H

#include "banyan/optimizer.h"
#include "banyan/train.h"
#include "exec/exec.h"

/* Builds the model of a config, or the caller's own. */
by_status by__build_model(by_model *out, by_graph *graph, const by_config *config,
                          by_model_builder *builder, void *user, const by_model_request *request,
                          by_error *error);
by_dtype by__compute_dtype(const by_config *config);
/* The graph of one micro-batch in `mode`, before any pass. */
by_status by__train_forward(by_graph **out, by_model *model, const by_config *config,
                            by_model_builder *builder, void *user, by_model_mode mode,
                            by_error *error);
/* What a config tells the passes; model (may be NULL) has the loss to differentiate. */
by_pass_options by__pass_options(const by_config *config, const by_model *model);
/* Bytes that this process has in memory now, and at its peak; 0 where the system does not say. */
uint64_t by__resident_bytes(void);
uint64_t by__peak_resident_bytes(void);

/* BY_EMEMORY when what is planned beside the process and its data is not free (fit.c). */
by_status by__plan_fits(const by_memory_report *planned, by_error *error);

#endif
