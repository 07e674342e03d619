/* trainer: the engine that runs steps. This header has what its rooms share besides its record
 * (trainer.h): the recipe of a graph, the layout of ranks, formats, memory.
 *
 * The trainer turns a config into programs: "gradients" (forward and backward of one micro-batch),
 * "gradient sum" (of two gradient sets), "gradient norm", "update", "compute copies" (of masters
 * that were newly set) and "loss" (for evaluation); multi-rank jobs add more. It owns a tensor
 * store with f32 masters, compute copies, gradient sets and optimizer states, and one arena and one
 * workspace, which the programs share because they never run at the same time. Inputs go to the
 * device through pinned staging memory (trainer_feed.c).
 *
 * Gradients and losses of the micro-batches are added in the order of the sum tree
 * (base/sum_tree.h), which depends on their number alone, however many processes share them.
 *
 * A step is submitted to the device and its results are collected later: meanwhile the host
 * prepares the next one. Whether a step is finite is decided on the device, so that a step
 * submitted after a failed one changes nothing either.
 *
 * Types: by_trainer (trainer.h) runs steps; by__job (job/job.h) is a run with its directory, events
 * and checkpoints; by__trainer_recipe and by__trainer_layout, below, describe how graphs are built
 * and how ranks are arranged. A job owns its trainer, a trainer its store, programs and memory;
 * communicators belong to the mesh.
 *
 * Never put here: kernels, file formats, printing.
 */
#ifndef BY_TRAINER_STATE_TRAIN_H
#define BY_TRAINER_STATE_TRAIN_H

#include "banyan/comm.h"
#include "banyan/optimizer.h"
#include "banyan/trainer.h"
#include "exec/exec.h"

/* Inputs of a graph besides the config. */
typedef struct by__trainer_recipe {
    by_model_builder *builder; /* NULL: the model named by the config */
    void *user;
    const by_task *task; /* NULL: the task named by the config */
} by__trainer_recipe;

/* ---- train_dtypes.c ---- */

/* Dtype that programs compute in. */
by_dtype by__trainer_compute_dtype(const by_config *config);
/* Dtype of matrices and of the optimizer's states for them. */
by_dtype by__trainer_weights_dtype(const by_config *config);
/* Dtype of the copies of weights that programs compute with; BY_F32: they use the weights
 * themselves. */
by_dtype by__trainer_copies_dtype(const by_config *config);
/* Returns true if updates are rounded stochastically. */
bool by__trainer_rounds_stochastically(const by_config *config);

/* ---- resident.c ---- */

/* Resident memory of this process in bytes; 0 if the system does not tell. */
uint64_t by__trainer_resident_bytes(void);
/* The same after memory that was freed has been returned to the system, so that what planning used
 * for a while is not counted. */
uint64_t by__trainer_settled_bytes(void);

/* ---- ranks_layout.c ---- */

/* A rank's place in the mesh of the job. */
typedef struct by__trainer_layout {
    int ranks;
    int rank;
    int size[BY_MESH_AXES];
    int place[BY_MESH_AXES];
    int replicas; /* data x shard: number of replicas that compute different micro-batches */
    int replica;  /* replica that this rank belongs to */
} by__trainer_layout;

/* Resolves the section `parallel` for a job of `ranks` ranks. BY_ECONFIG: the sizes of the axes do
 * not multiply to it, or a step has fewer micro-batches than replicas; the message names both
 * numbers and values that would fit. */
by_status by__trainer_layout_resolve(by__trainer_layout *out, const by_config *config, int ranks,
                                     int rank, by_error *error);
/* Number of ranks of the job that the options describe, and this one's. */
int by__trainer_job_ranks(const by_trainer_options *options);
int by__trainer_job_rank(const by_trainer_options *options);
/* The part of it that sets sizes and replicas of a layout of layout->ranks ranks. */
by_status by__trainer_layout_axes(by__trainer_layout *layout, const by_config *config,
                                  by_error *error);
/* Formats "pipeline 0, data 1": a number for each axis that is larger than 1, such as layout->place
 * or layout->size; truncated to `size` bytes. */
void by__trainer_layout_describe(const by__trainer_layout *layout, const int numbers[BY_MESH_AXES],
                                 char *text, size_t size);
/* The layout of a process that works alone, whatever the config says, to evaluate, predict or
 * plan. */
void by__trainer_layout_single(by__trainer_layout *out);

/* A slice that this rank holds of a parameter or (state >= 0) of one of its states. */
typedef struct by__trainer_held {
    by_shape whole; /* of the tensor */
    by_tensor_slice slice;
    bool is_copy; /* another rank trains it; this one has a copy */
} by__trainer_held;

/* ---- plan_fits.c ---- */

/* Bytes that a plan still has to allocate: on this host, where the process itself is resident
 * already, for all of its ranks; or of the device's own memory. */
uint64_t by__trainer_needed(const by_memory_report *plan, const by_device *device,
                            const by_comm *comm);
/* Returns true if the plan is larger than the config permits. */
bool by__trainer_above_budget(const by_memory_report *planned, const by_config *config);
/* BY_EMEMORY if the planned memory, in addition to the process and its data, is not free, counting
 * all ranks of this host, or the total exceeds memory.budget. comm NULL: this process
 * alone. */
by_status by__trainer_plan_fits(const by_memory_report *planned, const by_config *config,
                                const by_device *device, const by_comm *comm, by_error *error);

#endif
