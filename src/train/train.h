/* train: the engine that runs steps (trainer.c), the loop around it (loop.c), evaluation, saving
 * and resuming. tasks/ has one file per task: what a batch is, its loss and its metrics.
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
 * Types: by_trainer (trainer.h) runs steps; by__job (loop.h) is a run with its directory, events
 * and checkpoints; by__recipe and by__layout, below, describe how graphs are built and how ranks
 * are arranged. A job owns its trainer, a trainer its store, programs and memory; communicators
 * belong to the mesh.
 *
 * Never put here: kernels, file formats, printing.
 */
#ifndef BY_TRAIN_TRAIN_H
#define BY_TRAIN_TRAIN_H

#include "banyan/comm.h"
#include "banyan/optimizer.h"
#include "banyan/train.h"
#include "exec/exec.h"

/* Inputs of a graph besides the config. */
typedef struct by__recipe {
    by_model_builder *builder; /* NULL: the model named by the config */
    void *user;
    const by_task *task; /* NULL: the task named by the config */
} by__recipe;

/* Number of examples, as the task counts them, in one sample of a batch. */
int64_t by__per_sample(const by_task *task, const by_config *config);
/* Returns true if data.documents is mask: samples have starts, and attention stays within
 * documents. */
bool by__keeps_documents(const by_config *config);
by_dtype by__compute_dtype(const by_config *config);
/* Dtype of matrices and of the optimizer's states for them. */
by_dtype by__weights_dtype(const by_config *config);
/* Dtype of the copies of weights that programs compute with; BY_F32: they use the weights
 * themselves. */
by_dtype by__copies_dtype(const by_config *config);
/* Returns true if updates are rounded stochastically. */
bool by__rounds_stochastically(const by_config *config);
/* Builds the graph of one micro-batch in `mode`, with its loss, before any pass. */
by_status by__train_forward(by_graph **out, by_model *model, const by_config *config,
                            const by__recipe *recipe, by_model_mode mode, by_error *error);
/* Builds the graph that adds one token to a sequence, with caches of `cache` positions. */
by_status by__decode_forward(by_graph **out, by_model *model, const by_config *config,
                             const by__recipe *recipe, int64_t cache, by_error *error);
/* The pass options given by a config; model (may be NULL) has the loss to differentiate. */
by_pass_options by__pass_options(const by_config *config, const by_model *model);

/* ---- adapters.c: the section lora ---- */

/* Return whether a parameter of this name belongs to an adapter, and whether any of the weights
 * does. */
bool by__is_adapter(const char *name);
bool by__has_adapters(const by_weights *weights);
/* Adds the adapters that config.lora asks for, if any, to the forward graph of a model. */
by_status by__adapters_apply(by_graph *graph, by_model *model, const by_config *config,
                             by_model_mode mode, by_error *error);
/* Sets the section from the adapters to start from (lora.from); a different setting is an error. */
by_status by__adapters_take(by_config *config, by_error *error);
/* Loads them into a trainer that has its other weights. */
by_status by__adapters_load(by_trainer *trainer, const by_config *config, const by__recipe *recipe,
                            by_error *error);
/* Makes adapter_config.json of the adapters that a config trains, freed with free(), and the prefix
 * of PEFT's parameter names relative to ours; static. */
by_status by__adapters_describe(char **out, const by_config *config, const by__recipe *recipe,
                                by_error *error);
const char *by__adapters_prefix(const by_config *config);
/* After by__groups_apply: BY_ECONFIG if that has frozen an adapter. */
by_status by__adapters_check(const by_graph *graph, const by_config *config, by_error *error);

/* Resident memory of this process in bytes; 0 if the system does not tell. */
uint64_t by__resident_bytes(void);
/* The same after memory that was freed has been returned to the system, so that what planning used
 * for a while is not counted. */
uint64_t by__train_settled_bytes(void);

/* ---- ranks_layout.c ---- */

/* A rank's place in the mesh of the job. */
typedef struct by__layout {
    int ranks;
    int rank;
    int size[BY_MESH_AXES];
    int place[BY_MESH_AXES];
    int replicas; /* data x shard: number of replicas that compute different micro-batches */
    int replica;  /* replica that this rank belongs to */
} by__layout;

/* Resolves the section `parallel` for a job of `ranks` ranks. BY_ECONFIG: the sizes of the axes do
 * not multiply to it, or a step has fewer micro-batches than replicas; the message names both
 * numbers and values that would fit. */
by_status by__layout_resolve(by__layout *out, const by_config *config, int ranks, int rank,
                             by_error *error);
/* The part of it that sets sizes and replicas of a layout of layout->ranks ranks. */
by_status by__layout_axes(by__layout *layout, const by_config *config, by_error *error);
/* Formats "pipeline 0, data 1": a number for each axis that is larger than 1, such as layout->place
 * or layout->size; truncated to `size` bytes. */
void by__layout_describe(const by__layout *layout, const int numbers[BY_MESH_AXES], char *text,
                         size_t size);
/* The layout of a process that works alone, whatever the config says, to evaluate, predict or
 * plan. */
void by__layout_alone(by__layout *out);

/* Number of ranks that compute different micro-batches; *rank: index of this one. */
size_t by__ranks_replicas(const by_trainer *trainer, size_t *rank);
/* Collective among these: gathers counts[r] 32-bit words of each rank; `mine` is this rank's place
 * in `all`. */
by_status by__ranks_gather(const by_trainer *trainer, const void *mine, void *all,
                           const size_t *counts, by_error *error);
/* Collective if a replica consists of several ranks, which compute a micro-batch together: sets
 * *flag to whether it is true on any of them. Else does nothing. */
by_status by__ranks_agree(const by_trainer *trainer, bool *flag, by_error *error);
/* Returns true if the program of the loss is collective, so that all ranks must run it; */
bool by__ranks_evaluate_together(const by_trainer *trainer);
/* a rank without a micro-batch calls this instead. */
by_status by__ranks_evaluate_nothing(by_trainer *trainer, by_error *error);

/* A slice that this rank holds of a parameter or (state >= 0) of one of its states. */
typedef struct by__trainer_held {
    by_shape whole; /* of the tensor */
    by_tensor_slice slice;
    bool is_copy; /* another rank trains it; this one has a copy */
} by__trainer_held;

/* Collective: loads those parameters that are present, checked by the caller; the others keep their
 * values. */
by_status by__trainer_load_adapter(by_trainer *trainer, const by_weights *weights, by_error *error);

/* Number of slices that this rank holds, 0 if none; the i-th; and its values, dense, in the
 * trainer's memory or in *owned, freed with free() (trainer_weights.c). */
size_t by__trainer_slices(const by_trainer *trainer, size_t parameter, int state);
void by__trainer_slice(by__trainer_held *out, const by_trainer *trainer, size_t parameter,
                       int state, size_t i);
by_status by__trainer_read_slice(const by_trainer *trainer, size_t parameter, int state, size_t i,
                                 const void **data, void **owned, by_error *error);

/* Bytes of this rank's part of a checkpoint: parameters and states. */
uint64_t by__trainer_saved_bytes(const by_trainer *trainer);
/* Returns true if another thread may read them while gradients are computed. */
bool by__trainer_saves_beside(const by_trainer *trainer);
/* Sets a function called before they are changed; NULL: none. */
void by__trainer_before_change(by_trainer *trainer, void (*call)(void *user), void *user);

/* Seconds that this rank has waited for others since the trainer was opened. */
double by__trainer_stood(const by_trainer *trainer);

/* Collective: BY_ECORRUPT on all ranks unless the replicas of the axes data and shard hold the same
 * weights, bit for bit; names the rank that differs, its host and the first tensor (replicas.c). */
by_status by__trainer_compare_replicas(by_trainer *trainer, by_error *error);

/* Collective, with train.eval_ema and no step in flight: puts the moving average in the place of
 * the weights, which are saved in the memory of the gradients, or (`back`) restores them
 * (trainer_average.c). */
by_status by__trainer_swap_average(by_trainer *trainer, bool back, by_error *error);

/* Collective: waits for an exchange that overlaps with steps and applies it, so that replicas that
 * have taken no step since it began are equal (trainer_late.c). */
by_status by__trainer_finish_exchange(by_trainer *trainer, by_error *error);
/* Returns true if exchanges may be applied late, so that ranks do not wait for each other at every
 * step. */
bool by__trainer_is_late(const by_trainer *trainer);
/* Tells the other replicas, with the next exchange that begins, whether this one wants to stop.
 * Returns true on all of them once an applied exchange carried such a wish. */
bool by__trainer_agree_to_stop(by_trainer *trainer, bool mine);

/* Bytes that a plan still has to allocate on this host: the process itself is resident already. */
uint64_t by__trainer_needed(const by_memory_report *plan, const by_comm *comm);
/* Returns true if the plan is larger than the config permits. */
bool by__trainer_above_budget(const by_memory_report *planned, const by_config *config);
/* BY_EMEMORY if the planned memory, in addition to the process and its data, is not free, counting
 * all ranks of this host, or the total exceeds memory.budget (plan_fits.c). comm NULL: this process
 * alone. */
by_status by__plan_fits(const by_memory_report *planned, const by_config *config,
                        const by_comm *comm, by_error *error);

#endif
