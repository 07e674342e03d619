/* train: the engine that takes steps (trainer.c), the loop around it (loop.c), evaluation, saving
 * and resuming. In tasks/, one file a task: what a batch is, its loss and its metrics.
 *
 * The trainer turns a config into programs: "gradients" (forward and backward of one micro-batch),
 * "gradient sum" (of two gradient sets), "gradient norm", "update", "compute copies" (of masters
 * that were set anew) and "loss" (for evaluation); ranks add some of their own. It owns a tensor
 * store with f32 masters, compute copies, gradient sets and optimizer states, and one arena and one
 * workspace that the programs share because they never run at the same time. Inputs go to the
 * device through pinned staging memory (trainer_feed.c).
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

#include "banyan/comm.h"
#include "banyan/optimizer.h"
#include "banyan/train.h"
#include "exec/exec.h"

/* What a graph is made from in addition to a config. */
typedef struct by__recipe {
    by_model_builder *builder; /* NULL: the model that the config names */
    void *user;
    const by_task *task; /* NULL: the one that the config names */
} by__recipe;

/* Examples, as the task counts them, of one sample of a batch. */
int64_t by__per_sample(const by_task *task, const by_config *config);
/* data.documents is mask: samples have starts, and the model's attention keeps to them. */
bool by__keeps_documents(const by_config *config);
by_dtype by__compute_dtype(const by_config *config);
/* Of matrices and the optimizer's state of them. */
by_dtype by__weights_dtype(const by_config *config);
/* Of the copies of weights that programs compute with; BY_F32: they compute with the weights. */
by_dtype by__copies_dtype(const by_config *config);
/* Whether updates are rounded stochastically. */
bool by__rounds_stochastically(const by_config *config);
/* The graph of one micro-batch in `mode`, with its loss, before any pass. */
by_status by__train_forward(by_graph **out, by_model *model, const by_config *config,
                            const by__recipe *recipe, by_model_mode mode, by_error *error);
/* The graph that adds one token to a sequence, with caches of so many positions. */
by_status by__decode_forward(by_graph **out, by_model *model, const by_config *config,
                             const by__recipe *recipe, int64_t cache, by_error *error);
/* What a config tells the passes; model (may be NULL) has the loss to differentiate. */
by_pass_options by__pass_options(const by_config *config, const by_model *model);

/* ---- adapters.c: the section lora ---- */

/* Whether a parameter of this name is one of an adapter, and whether some of the weights are. */
bool by__is_adapter(const char *name);
bool by__has_adapters(const by_weights *weights);
/* alpha / rank, or alpha / sqrt(rank). */
float by__adapters_scale(const by_lora_config *lora);
/* Gives the forward graph of a model the adapters that config.lora asks for, if it asks. */
by_status by__adapters_apply(by_graph *graph, by_model *model, const by_config *config,
                             by_model_mode mode, by_error *error);
/* Adapters to start from (lora.from) say what the section is, which must not say otherwise. */
by_status by__adapters_take(by_config *config, by_error *error);
/* Loads them into a trainer whose other weights are there. */
by_status by__adapters_load(by_trainer *trainer, const by_config *config, const by__recipe *recipe,
                            by_error *error);
/* adapter_config.json of what a config trains, freed with free(), and what PEFT's names of
 * parameters have in front of ours; static. */
by_status by__adapters_describe(char **out, const by_config *config, const by__recipe *recipe,
                                by_error *error);
const char *by__adapters_prefix(const by_config *config);
/* Behind by__groups_apply: BY_ECONFIG where that has frozen an adapter. */
by_status by__adapters_check(const by_graph *graph, const by_config *config, by_error *error);

/* Bytes that this process has in memory now; 0 where the system does not say. */
uint64_t by__resident_bytes(void);

/* ---- ranks_layout.c ---- */

/* A rank's place in the mesh of the job. */
typedef struct by__layout {
    int ranks;
    int rank;
    int size[BY_MESH_AXES];
    int place[BY_MESH_AXES];
    int replicas; /* data x shard: how many compute micro-batches of their own */
    int replica;  /* which of them this rank belongs to */
} by__layout;

/* The layout that the section `parallel` gives a job of so many ranks. BY_ECONFIG: the axes do not
 * make them, or a step has fewer micro-batches than replicas; names both numbers and what would
 * do. */
by_status by__layout_resolve(by__layout *out, const by_config *config, int ranks, int rank,
                             by_error *error);
/* "pipeline 0, data 1": a number for each axis that is larger than 1, such as layout->place, or
 * layout->size; cut at `size` bytes. */
void by__layout_describe(const by__layout *layout, const int numbers[BY_MESH_AXES], char *text,
                         size_t size);
/* Of a process that works alone, whatever the config says: it evaluates, predicts, plans. */
void by__layout_alone(by__layout *out);

/* How many ranks compute micro-batches of their own; *rank: which of them this is. */
size_t by__ranks_replicas(const by_trainer *trainer, size_t *rank);
/* Collective among these: counts[r] 32-bit words of each, `mine` being this rank's place in
 * `all`. */
by_status by__ranks_gather(const by_trainer *trainer, const void *mine, void *all,
                           const size_t *counts, by_error *error);
/* Where a replica is of several ranks, which compute a micro-batch together or not at all: *flag is
 * whether one of all ranks says so. Collective there; else nothing. */
by_status by__ranks_agree(const by_trainer *trainer, bool *flag, by_error *error);
/* Whether the program of the loss is collective, so that all ranks run it or none does ... */
bool by__ranks_evaluate_together(const by_trainer *trainer);
/* ... a rank that has no micro-batch this. */
by_status by__ranks_evaluate_nothing(by_trainer *trainer, by_error *error);

/* A slice that this rank holds of a parameter, or (state >= 0) of a state of it. */
typedef struct by__trainer_held {
    by_shape whole; /* of the tensor */
    by_tensor_slice slice;
    bool is_copy; /* another rank trains it, and this one has its values */
} by__trainer_held;

/* Collective: loads what there is of the parameters, which is checked by the caller; the others
 * keep their values. */
by_status by__trainer_load_adapter(by_trainer *trainer, const by_weights *weights, by_error *error);

/* How many slices this rank holds: 0 where there is nothing; the i-th; and its values, dense, whose
 * memory is the trainer's or *owned, freed with free() (trainer_weights.c). */
size_t by__trainer_slices(const by_trainer *trainer, size_t parameter, int state);
void by__trainer_slice(by__trainer_held *out, const by_trainer *trainer, size_t parameter,
                       int state, size_t i);
by_status by__trainer_read_slice(const by_trainer *trainer, size_t parameter, int state, size_t i,
                                 const void **data, void **owned, by_error *error);

/* Bytes that this rank holds of what a checkpoint has: parameters and states. */
uint64_t by__trainer_saved_bytes(const by_trainer *trainer);
/* Whether another thread may read them while gradients are computed. */
bool by__trainer_saves_beside(const by_trainer *trainer);
/* Has `call(user)` called before anything changes these; NULL: nobody. */
void by__trainer_before_change(by_trainer *trainer, void (*call)(void *user), void *user);

/* Seconds for which this rank has stood still for others since the trainer was opened. */
double by__trainer_stood(const by_trainer *trainer);

/* Collective: BY_ECORRUPT on all ranks unless the replicas of the axes data and shard hold the
 * same weights, bit for bit; names the rank that differs, its host and the first tensor
 * (replicas.c). */
by_status by__trainer_compare_replicas(by_trainer *trainer, by_error *error);

/* Collective, with train.eval_ema and no step under way: the moving average takes the place of the
 * weights, which are kept where the gradients were, or (`back`) they are as before
 * (trainer_average.c). */
by_status by__trainer_swap_average(by_trainer *trainer, bool back, by_error *error);

/* Collective: waits for an exchange that runs while steps are taken and applies it, so that
 * replicas that have taken no step since it began are equal (trainer_late.c). */
by_status by__trainer_finish_exchange(by_trainer *trainer, by_error *error);
/* Whether exchanges may be late, so that ranks do not wait for each other at every step. */
bool by__trainer_is_late(const by_trainer *trainer);
/* Tells the other replicas, with the next exchange that begins, whether this one wishes to stop.
 * True on all of them when one of those that were applied has said so. */
bool by__trainer_agree_to_stop(by_trainer *trainer, bool mine);

/* BY_EMEMORY when what is planned in addition to the process and its data is not free, for all
 * ranks of this host, or all of it more than memory.budget (fit.c). comm NULL: this one alone. */
by_status by__plan_fits(const by_memory_report *planned, const by_config *config,
                        const by_comm *comm, by_error *error);

#endif
