/* The engine of training: by_trainer plans memory, holds weights and optimizer state, and takes
 * steps. A C program can drive it with its own model and data. */
#ifndef BANYAN_TRAINER_H
#define BANYAN_TRAINER_H

#include "banyan/checkpoint.h"
#include "banyan/comm.h"
#include "banyan/config.h"
#include "banyan/data.h"
#include "banyan/device.h"
#include "banyan/model.h"
#include "banyan/passes.h"
#include "banyan/program.h"
#include "banyan/task.h"
#include "banyan/train_events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Model, weights and optimizer state in training. Used by one thread at a time. */
typedef struct by_trainer by_trainer;

/* Builds the training graph of a resolved config after the passes up to and including `last`
 * (banyan/passes.h; NULL: all, "forward": none); close it with by_graph_close. `builder` (called
 * with `user`) makes a model of the caller's own; NULL: the one named by config.model. `model` (may
 * be NULL) receives its values. */
BY_API by_status by_train_graph(by_graph **out, by_model *model, const by_config *config,
                                by_model_builder *builder, void *user, const char *last,
                                by_error *error);

/* BY_TRAINER_FULL for training; BY_TRAINER_LOSS only for by_trainer_loss and by_trainer_evaluate,
 * without gradients and optimizer state. */
typedef enum by_trainer_mode { BY_TRAINER_FULL = 0, BY_TRAINER_LOSS } by_trainer_mode;

typedef struct by_trainer_options {
    by_trainer_mode mode;      /* default BY_TRAINER_FULL */
    by_model_builder *builder; /* a model of the caller's own;
                                  NULL: the one named by config.model */
    void *user;                /* passed to `builder` */
    const by_task *task;       /* a task of the caller's own; NULL: the one named by config.task */
    /* Must outlive the trainer. NULL: config.device is opened with
     * config.train.threads threads. */
    by_device *device;
    /* The ranks that train together, as described by config.parallel; must outlive the trainer.
     * NULL: a single rank. */
    by_comm *comm;
    /* With ranks above 0 and comm NULL: the plan of rank `rank` of a job of that many, without the
     * others, as if each had a machine like this one. It cannot be allocated. */
    int ranks;
    int rank;
    /* With such a plan: a trainer or plan of another rank of the same job, config, options and
     * model. What both compute alike, the graphs of a whole model that is cut into stages, is taken
     * from it. It may be closed before this one. NULL: there is none. */
    by_trainer *like;
    by_speeds speeds;    /* of this machine, for config.memory.budget and by_trainer_seconds */
    uint64_t data_bytes; /* that by_trainer_plan_data will add later; counted in the budget */
    /* What the libraries of the device chose in an earlier process, which by_train keeps in a run;
     * NULL: they choose. */
    const char *choices;
} by_trainer_options;

/* Plans a run: builds and compiles all programs and computes all memory, without allocating it.
 * `config` is resolved, has model.vocab, and must outlive the trainer; `options` may be NULL. With
 * config.memory.budget, the plan is the fastest that fits or, if none fits, the smallest (see
 * by_trainer_memory); this is collective if it chooses what several ranks recompute. Returns
 * BY_ECONFIG if config.parallel does not match the number of ranks, a step has fewer micro-batches
 * than ranks to compute them, or features of the config cannot be combined; BY_EARG if there is
 * nothing to train, or no such rank. */
BY_API by_status by_trainer_open(by_trainer **out, const by_config *config,
                                 const by_trainer_options *options, by_error *error);
/* Chooses train.micro_batch for a number of ranks, if by_config_resolve derived it: the largest
 * with which the rank that has most examples of a step has as few as possible. The weights depend
 * on it. Returns BY_ECONFIG if config.parallel does not match the number of ranks. */
BY_API by_status by_config_fit_ranks(by_config *config, int ranks, by_error *error);
/* by_config_fit_ranks and by_trainer_open; then, if the plan does not fit (by_plan_limit) and
 * train.micro_batch was derived, again with the largest one that fits on all ranks, if any does.
 * Collective. */
BY_API by_status by_trainer_open_fitting(by_trainer **out, by_config *config,
                                         const by_trainer_options *options, by_error *error);
BY_API void by_trainer_close(by_trainer **trainer);
/* Returns the planned memory. */
BY_API const by_memory_report *by_trainer_memory(const by_trainer *trainer);
/* Returns this process's peak resident memory in bytes; 0 if the system does not report it. */
BY_API uint64_t by_peak_resident_bytes(void);
/* Returns the size of the model. */
BY_API const by_model_size *by_trainer_size(const by_trainer *trainer);
/* Returns an estimate of the seconds per step of this rank, from the operations and bytes of its
 * graphs and the speeds of the machine, without waiting for other ranks or data. For comparing
 * plans. */
BY_API double by_trainer_seconds(const by_trainer *trainer);
/* ---- plans that do not fit ---- */

/* A change of a config, and its plan. */
typedef struct by_plan_change {
    char settings[200];  /* "train.micro_batch=2 precision.compute=bf16" */
    uint64_t bytes;      /* planned memory of a rank */
    double seconds;      /* by_trainer_seconds */
    int64_t micro_batch; /* the micro-batch size that it sets; 0: unchanged */
    int ranks;           /* ranks it needs, in which case the plan is estimated; 0: unchanged */
} by_plan_change;
/* Maximum number of changes returned by by_plan_changes. */
#define BY_PLAN_CHANGES 24

/* Returns the bytes that a rank may use: its share of the free memory of its host, or the free
 * memory of a device that has its own, plus what this process already uses; or memory.budget if
 * that is less. device NULL: config.device; comm NULL: a single rank. */
BY_API uint64_t by_plan_limit(const by_config *config, by_device *device, const by_comm *comm);
/* Finds changes of a resolved config whose plan takes at most `limit` bytes, fastest first: of
 * recomputation, micro-batch size, precision, optimizer, and offloading; single changes or, if none
 * fits, the fewest combined; followed by changes of the number of ranks. *count 0: nothing helps.
 * `options` as in by_trainer_open; may be NULL. Plans all candidates, which takes seconds. Not
 * collective. */
BY_API by_status by_plan_changes(by_plan_change out[BY_PLAN_CHANGES], size_t *count,
                                 const by_config *config, const by_trainer_options *options,
                                 uint64_t limit, by_error *error);

/* Adds memory that the caller will keep resident besides the trainer (loader, mapped data) to the
 * report. */
BY_API void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes);
/* Adds the memory from which by_train writes checkpoints (config.checkpoint) to the report. */
BY_API void by_trainer_plan_staging(by_trainer *trainer);
/* Collective. Allocates the planned memory. Returns BY_EMEMORY if it does not fit (the message
 * suggests a change), BY_ESTATE if it was allocated before or is the plan of a rank without the
 * others. */
BY_API by_status by_trainer_allocate(by_trainer *trainer, by_error *error);
/* Sets initial weights by the model's rules and config.seed, zero optimizer state and step 0.
 * Returns BY_ESTATE before by_trainer_allocate. */
BY_API by_status by_trainer_initialize(by_trainer *trainer, by_error *error);
/* Loads weights from a checkpoint or a Hugging Face directory. Every parameter must be present in
 * its shape; only adapters (config.lora) may be absent, all of them, and then keep their values. A
 * table with fewer rows than a padded vocabulary fills the first rows. Returns BY_EFORMAT if a
 * tensor is absent or does not fit, BY_ESTATE before by_trainer_allocate. */
BY_API by_status by_trainer_load_weights(by_trainer *trainer, const by_weights *weights,
                                         by_error *error);
/* Loads optimizer state ("m.NAME", "v.NAME" for AdamW; NULL for an optimizer without state) and
 * sets the number of updates done. Returns BY_ECONFIG if the states are those of another optimizer,
 * BY_EFORMAT if they are absent. */
BY_API by_status by_trainer_load_optimizer(by_trainer *trainer, const by_weights *states,
                                           int64_t step, by_error *error);

/* The part of a global batch that a rank computes: examples first + i / block * stride + i % block
 * for i < count (as in by_loader_options). */
typedef struct by_batch_part {
    size_t first;
    size_t count;
    size_t block;
    size_t stride;
} by_batch_part;

/* Returns this rank's part of each global batch. */
BY_API by_batch_part by_trainer_part(const by_trainer *trainer);
/* Opens a loader of this rank's part of each global batch of `data` or, with `training` false, of
 * the held-out data: rank r of R gets micro-batches r, r + R, ... The data must outlive it. */
BY_API by_status by_trainer_loader(by_loader **out, const by_trainer *trainer, by_task_data *data,
                                   bool training, by_error *error);

/* Copies the arrays of the graph's constant inputs (by_graph_constant_input) to the device, once
 * memory is allocated and before the first batch. Nothing may be in flight. Returns BY_EARG if one
 * is missing, of another type, or has an index that no table has. */
BY_API by_status by_trainer_set_constants(by_trainer *trainer, const by_array *arrays, size_t count,
                                          by_error *error);
/* The same with the arrays that the task has for its data; without any it does nothing. */
BY_API by_status by_trainer_set_data(by_trainer *trainer, by_task_data *data, by_error *error);

/* Adopts the batch size of the next step if it differs (config.train.batch_warmup): by_trainer_part
 * then returns this rank's part of it, and `loader` (may be NULL), opened by by_trainer_loader,
 * continues with it at its position. If this is never called, steps have train.batch examples.
 * Returns BY_ESTATE if submitted steps with another batch size are outstanding. */
BY_API by_status by_trainer_begin_step(by_trainer *trainer, by_loader *loader, by_error *error);

/* Takes one optimizer step on a global batch: forward and backward pass for each micro-batch,
 * gradients summed in a fixed tree, clipping, update. With several ranks this and the functions
 * below that take a step are collective; `batch` is the rank's part, and results equal bit for bit
 * those of one rank with the whole batch. If loss or gradient is not finite, the weights on all
 * ranks stay as before: out->skipped reports it or, depending on config.guard, the call returns
 * BY_EDIVERGED and the step does not count. Returns BY_EARG if the batch lacks an array or one has
 * the wrong shape, BY_ESTATE if submitted steps are outstanding, BY_ECORRUPT if config.guard
 * detects a hardware fault. */
BY_API by_status by_trainer_step(by_trainer *trainer, const by_batch *batch, by_step_result *out,
                                 by_error *error);
/* Maximum number of steps submitted but not collected. */
#define BY_STEPS_AHEAD 2
/* Splits a step in two, so that the host can prepare the next batch while a device computes: submit
 * a step, and later collect the results of the oldest submitted one with by_trainer_collect. The
 * batch may be reused when submit returns. Returns BY_ESTATE if BY_STEPS_AHEAD steps are
 * outstanding (as do all functions that read results), or if one is and the loss scale depends on
 * it. */
BY_API by_status by_trainer_submit(by_trainer *trainer, const by_batch *batch, by_error *error);
/* Collects the oldest submitted step. With `wait` it blocks until the step is done; otherwise *got
 * is false if it is not done or none is outstanding. On the CPU a step is done when submitted.
 * Steps submitted after one that is skipped or fails have changed nothing either and are forgotten;
 * by_trainer_updates is the last one that counts. Returns BY_EDIVERGED and BY_ECORRUPT as
 * by_trainer_step. */
BY_API by_status by_trainer_collect(by_trainer *trainer, bool wait, bool *got, by_step_result *out,
                                    by_error *error);
/* Computes only the gradients, for by_trainer_gradient and by_trainer_update, and sets *loss to the
 * mean over the batch's targets that count. */
BY_API by_status by_trainer_gradients(by_trainer *trainer, const by_batch *batch, double *loss,
                                      by_error *error);
/* Clips the gradients of by_trainer_gradients and updates the weights with learning rate `lr`. A
 * loss or norm that is not finite is handled as by by_trainer_step. */
BY_API by_status by_trainer_update(by_trainer *trainer, double lr, by_step_result *out,
                                   by_error *error);
/* Computes the sum of losses (nats for cross-entropy) of one micro-batch of train.micro_batch
 * examples, without dropout. */
BY_API by_status by_trainer_loss(by_trainer *trainer, const by_batch *batch, double *sum,
                                 by_error *error);
/* Like by_trainer_loss, and sets *values to the values of the graph's output "evaluated", *width
 * per example, if the task has one (otherwise NULL and 0). They belong to the trainer and are valid
 * until its next call. */
BY_API by_status by_trainer_evaluate(by_trainer *trainer, const by_batch *batch, double *sum,
                                     const float **values, size_t *width, by_error *error);
/* Returns the trainer's task. */
BY_API const by_task *by_trainer_task(const by_trainer *trainer);
/* Describes the device that it computes on, with the memory that is free now. */
BY_API by_status by_trainer_device(by_device_info *out, const by_trainer *trainer, by_error *error);
/* Adds the memory of loaders for its batches to the report, with `held_out` also of one over
 * held-out data. */
BY_API by_status by_trainer_plan_loaders(by_trainer *trainer, bool held_out, by_error *error);

/* A global batch of random examples, for timing: numbers in [-1, 1), weights of targets that are 1,
 * and indices that the model accepts. */
typedef struct by_random_batch by_random_batch;
/* Makes a random batch for a trainer, whose constant inputs become 0. Returns BY_EARG if an input
 * is neither i32 nor f32. */
BY_API by_status by_random_batch_open(by_random_batch **out, by_trainer *trainer, by_error *error);
BY_API void by_random_batch_close(by_random_batch **batch);
/* Returns the batch. */
BY_API const by_batch *by_random_batch_view(const by_random_batch *batch);

/* Collective; call it before saving a trainer's content. With config.sync, exchanges what ranks
 * have not exchanged yet, so that weights and optimizer states are equal on all of them and any
 * number of ranks can resume. Otherwise does nothing. */
BY_API by_status by_trainer_settle(by_trainer *trainer, by_error *error);

/* Returns the number of steps done, including outstanding and skipped ones. */
BY_API int64_t by_trainer_updates(const by_trainer *trainer);

/* Returns the number of parameters, in the order of the graph. */
BY_API size_t by_trainer_parameter_count(const by_trainer *trainer);
/* Returns a view of the f32 master of parameter i. `data` is in the trainer's memory; it is NULL if
 * that is not host memory or the values are on disk (by_trainer_read copies from anywhere). */
BY_API by_tensor_view by_trainer_parameter(const by_trainer *trainer, size_t i);
/* Returns a view of the gradient of parameter i for the last batch, named as the parameter and
 * multiplied by the loss scale, if any (precision.loss_scale). rank -1 for a frozen parameter. */
BY_API by_tensor_view by_trainer_gradient(const by_trainer *trainer, size_t i);
/* Returns the number of optimizer states; by_trainer_state_name returns the name of one ("m"). */
BY_API int by_trainer_state_count(const by_trainer *trainer);
BY_API const char *by_trainer_state_name(const by_trainer *trainer, int state);
/* Returns a view of an optimizer state of parameter i; rank -1 if the optimizer keeps none for
 * it. */
BY_API by_tensor_view by_trainer_state(const by_trainer *trainer, size_t i, int state);

/* Kinds of tensors of a trainer. */
typedef enum by_trainer_tensor {
    BY_TRAINER_PARAMETER = 0,
    BY_TRAINER_GRADIENT,
    BY_TRAINER_STATE
} by_trainer_tensor;
/* Copies a tensor of parameter i to `out` as f32, codes as integers, after all submitted work.
 * `state` selects the state for BY_TRAINER_STATE and is ignored otherwise. */
BY_API by_status by_trainer_read(const by_trainer *trainer, by_trainer_tensor what, int state,
                                 size_t i, float *out, by_error *error);
/* Describes the rank's place in the layout, "pipeline 0, data 1", by the axes of more than one
 * rank; truncated to `size` bytes. */
BY_API void by_trainer_place(const by_trainer *trainer, char *text, size_t size);
/* Returns the name of the i-th program, for profiles; NULL past the last. "gradients" (forward and
 * backward of a micro-batch), "last gradients" (the same with the exchange between ranks; with
 * several ranks), "loss", "gradient sum" (of two micro-batches; if a batch has several), "gradient
 * norm", "update". In a pipeline, for each stage (followed by its number if a rank has several):
 * "forward", "backward", "weights" (their gradients, if separate), "evaluation", "stage sum"; and
 * "gradient squares". */
BY_API const char *by_trainer_program_name(const by_trainer *trainer, size_t i);
/* Returns the program of that name, owned by the trainer, or NULL. */
BY_API by_program *by_trainer_program(const by_trainer *trainer, const char *name);
/* Returns the graph of the program of that name after all passes, or NULL. */
BY_API const by_graph *by_trainer_graph(const by_trainer *trainer, const char *name);

/* Checks whether a resolved config can train on `ranks` ranks. Returns BY_ECONFIG as
 * by_trainer_open. *unit is the number of ranks of one replica; a smaller job must use a multiple
 * of it. */
BY_API by_status by_train_check_ranks(const by_config *config, int ranks, int *unit,
                                      by_error *error);

#ifdef __cplusplus
}
#endif
#endif
