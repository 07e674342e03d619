/* Training. by_trainer is the engine: it plans, holds weights and optimizer state, and takes steps;
 * a C program can drive it with its own model and data. by_train is the whole job of `banyan
 * train`: data, loop, evaluation, checkpoints, events.
 */
#ifndef BANYAN_TRAIN_H
#define BANYAN_TRAIN_H

#include "banyan/checkpoint.h"
#include "banyan/comm.h"
#include "banyan/config.h"
#include "banyan/data.h"
#include "banyan/device.h"
#include "banyan/model.h"
#include "banyan/passes.h"
#include "banyan/program.h"
#include "banyan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_trainer by_trainer;

/* Planned bytes by what they are for. The sum of those in memory is the run's peak. */
typedef struct by_memory_report {
    uint64_t parameters;  /* f32 masters and bf16 compute copies */
    uint64_t gradients;   /* f32; one set more for each level of the accumulation tree in use */
    uint64_t optimizer;   /* the optimizer's state; where that is on disk, what it passes through */
    uint64_t activations; /* the arena */
    uint64_t workspace;   /* scratch memory of the most demanding kernel */
    uint64_t data;        /* inputs of a micro-batch, loader buffers, mapped shards */
    uint64_t staging;     /* what checkpoints are written from while steps go on */
    /* resident before anything of the run was allocated: code and libraries */
    uint64_t process;
    uint64_t total;
    uint64_t on_disk; /* with config.offload: of the scratch file, and in no sum above */
    /* gradients and optimizer state that this rank would have if nothing were frozen: in no sum */
    uint64_t spared;
} by_memory_report;

/* FLOPs of training on one example, as the task counts them. Of tokens by both conventions: 6 N +
 * 6 L C T, which counts the causal half of attention, and 6 N + 12 L C T (Chowdhery et al. 2022,
 * appendix B), which counts all of it; N counts parameters that take part in matrix products. Of
 * other examples: three times those of the products and of attention in the forward pass. What is
 * not computed because parameters are frozen does not count: gradients of their own, and of what is
 * before all that is trained. */
typedef struct by_model_size {
    int64_t parameters;
    int64_t in_products;
    int64_t trained; /* of the model's parameters, those that are not frozen */
    int64_t frozen;  /* of this rank's parameters, those that are not trained */
    double flops_per_example;
    double flops_per_example_full;
} by_model_size;

/* The training graph of a resolved config after the passes up to and with the one named `last`
 * (banyan/passes.h; NULL: all, "forward": none); closed by the caller. builder NULL: the model that
 * config.model names. `model` (may be NULL) receives its values. */
BY_API by_status by_train_graph(by_graph **out, by_model *model, const by_config *config,
                                by_model_builder *builder, void *user, const char *last,
                                by_error *error);

/* What a trainer is for: training, or only by_trainer_loss (no gradients, no optimizer state). */
typedef enum by_trainer_mode { BY_TRAINER_FULL = 0, BY_TRAINER_LOSS } by_trainer_mode;

typedef struct by_trainer_options {
    by_trainer_mode mode;
    by_model_builder *builder; /* a model of the caller's own; NULL: the one config.model names */
    void *user;                /* given to builder */
    const by_task *task;       /* a task of the caller's own; NULL: the one config.task names */
    by_device *device; /* stays the caller's; NULL: the CPU with config.train.threads threads */
    /* The ranks that train together, as config.parallel says; stays the caller's and outlives the
     * trainer. NULL: this one alone. */
    by_comm *comm;
    /* This machine's, for what config.memory.budget trades and for by_trainer_seconds. */
    by_speeds speeds;
    uint64_t data_bytes; /* that by_trainer_plan_data is going to add: they count for the budget */
} by_trainer_options;

/* Plans a run: builds and compiles all programs and adds up every byte, and allocates none of it.
 * config: resolved, with model.vocab known; kept by pointer, must outlive the trainer. options may
 * be NULL. Collective where config.memory.budget chooses what several ranks compute again.
 * BY_ECONFIG: config.parallel does not make the number of ranks, or a step has fewer micro-batches
 * than ranks to compute them. With config.memory.budget the plan is the fastest that fits, or,
 * where none does, the one that takes the least: by_trainer_memory tells. */
BY_API by_status by_trainer_open(by_trainer **out, const by_config *config,
                                 const by_trainer_options *options, by_error *error);
BY_API void by_trainer_close(by_trainer **trainer);
BY_API const by_memory_report *by_trainer_memory(const by_trainer *trainer);
/* Draws what a step has in memory while each of its nodes runs, by what it is for, to a name in
 * .svg or .png, written atomically. Of a plan: nothing has to be allocated. BY_EARG: another name,
 * a stage of a pipeline, a trainer for losses only. */
BY_API by_status by_trainer_draw_memory(const by_trainer *trainer, const char *path,
                                        by_error *error);
/* Bytes that this process had in memory at its peak; 0 where the system does not say. */
BY_API uint64_t by_peak_resident_bytes(void);
BY_API const by_model_size *by_trainer_size(const by_trainer *trainer);
/* Seconds that a step of this rank takes as its graphs' operations and bytes and the machine's
 * speeds tell, without what it waits for: other ranks, data. To compare plans with. */
BY_API double by_trainer_seconds(const by_trainer *trainer);
/* ---- plans that do not fit ---- */

/* A change of a config, and what its plan is then. */
typedef struct by_plan_change {
    char settings[200];  /* "train.micro_batch=2 precision.compute=bf16" */
    uint64_t bytes;      /* planned, all in all; of one rank */
    double seconds;      /* by_trainer_seconds */
    int64_t micro_batch; /* the one that it sets; 0: none */
    int ranks;           /* that it needs, and then reckoned, not planned; 0: as many as now */
} by_plan_change;
#define BY_PLAN_CHANGES 24

/* Bytes that a rank may take: those that are free on its host for each of the ranks there and those
 * that this process has, or memory.budget where that is less. comm NULL: this rank alone. */
BY_API uint64_t by_plan_limit(const by_config *config, const by_comm *comm);
/* Changes of a resolved config whose plan has at most `limit` bytes, the fastest first: of what is
 * computed again, the micro-batch, the precision, the optimizer, what is on disk; single ones, or
 * where none fits the fewest together; then, behind them, the number of ranks. *count 0: nothing
 * helps. options: of by_trainer_open; may be NULL. Plans all of them: seconds. No collective. */
BY_API by_status by_plan_changes(by_plan_change out[BY_PLAN_CHANGES], size_t *count,
                                 const by_config *config, const by_trainer_options *options,
                                 uint64_t limit, by_error *error);

/* Adds what the caller will keep resident next to the trainer (loader, mapped data) to the
 * report. */
BY_API void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes);
/* Adds the memory that by_train writes checkpoints from (config.checkpoint). */
BY_API void by_trainer_plan_staging(by_trainer *trainer);
/* Collective. Allocates what was planned. */
BY_API by_status by_trainer_allocate(by_trainer *trainer, by_error *error);
/* Initial weights by the model's rules and config.seed; zeroed optimizer state; step 0. */
BY_API by_status by_trainer_initialize(by_trainer *trainer, by_error *error);
/* Weights from a checkpoint or a Hugging Face directory. Every parameter must be there in its
 * shape; only adapters (config.lora) may be missing, all of them, and keep their values. A table
 * with fewer rows than a padded vocabulary fills the first rows. */
BY_API by_status by_trainer_load_weights(by_trainer *trainer, const by_weights *weights,
                                         by_error *error);
/* Optimizer state ("m.NAME", "v.NAME" for AdamW; NULL for an optimizer that keeps none) and the
 * number of updates done. BY_ECONFIG: the states are those of another optimizer. */
BY_API by_status by_trainer_load_optimizer(by_trainer *trainer, const by_weights *states,
                                           int64_t step, by_error *error);

/* Why a step was not applied (config.guard). It counts as a step all the same. */
typedef enum by_skip {
    BY_SKIP_NONE = 0,  /* it was */
    BY_SKIP_NONFINITE, /* its loss or its gradient is not finite */
    BY_SKIP_SPIKE,     /* its loss is far above those before (guard.spike) */
    BY_SKIP_OVERFLOW   /* its gradient times the scale of the loss is not; the scale backs off */
} by_skip;

typedef struct by_step_result {
    int64_t step; /* steps done with this one */
    double loss;  /* mean over the batch's targets that count */
    double norm;  /* global gradient norm before clipping */
    double lr;
    int64_t examples; /* of the batch, as the task counts them: tokens, images */
    /* Seconds that this rank spent in exchanges with others, waiting for them included; 0 on one
     * rank. Exposed: those for which its computation stood still. */
    double exchange;
    double exposed;
    double disk;     /* seconds that the update stood still for what is on disk (config.offload) */
    by_skip skipped; /* weights and optimizer state are as before the step */
    double zscore;   /* robust z-score of the loss, with guard.spike; 0 where it has none yet */
    double loss_scale; /* that the step was computed with (config.precision); 1: none */
} by_step_result;

/* What a rank computes of a global batch: the examples first + i / block * stride + i % block, i
 * below count (the options of by_loader_open). */
typedef struct by_batch_part {
    size_t first;
    size_t count;
    size_t block;
    size_t stride;
} by_batch_part;

BY_API by_batch_part by_trainer_part(const by_trainer *trainer);
/* The loader of this rank's part of each global batch of `data`, or (training false) of what is
 * held out: micro-batches in turn, rank r of R has r, r + R, ... */
BY_API by_status by_trainer_loader(by_loader **out, const by_trainer *trainer, by_task_data *data,
                                   bool training, by_error *error);

/* Where the next step has another batch than the last one (config.train.batch_warmup): the trainer
 * takes it, by_trainer_part is this rank's part of it, and `loader` (may be NULL), which
 * by_trainer_loader opened, goes on with it at its position. Until this is called, steps have
 * train.batch examples. BY_ESTATE: steps of the other batch are under way. */
BY_API by_status by_trainer_begin_step(by_trainer *trainer, by_loader *loader, by_error *error);

/* One optimizer step on a global batch of config.train.batch examples: forward and backward for
 * each micro-batch, gradients summed in the fixed tree, clip, update. On several ranks this and the
 * calls below that take a step are collective: `batch` is the rank's part, results and bits are
 * those of one rank with the whole batch. When loss or gradient is not finite, weights are then as
 * before the step, on all ranks: out->skipped says so, or (config.guard) the call fails with
 * BY_EDIVERGED and the step does not count. */
BY_API by_status by_trainer_step(by_trainer *trainer, const by_batch *batch, by_step_result *out,
                                 by_error *error);
/* Steps that may be submitted before the oldest one is collected. */
#define BY_STEPS_AHEAD 2
/* The same in two halves, so that the host can prepare the next batch while a device computes:
 * submit a step, collect the results of the oldest one that was submitted. At most BY_STEPS_AHEAD
 * steps may be under way; a batch may be reused once its submit has returned. wait: until the step
 * is done; else *got is false when it is not (or none is under way). On the CPU a step is done when
 * it was submitted. The steps that were submitted behind one that is skipped or fails have changed
 * nothing either, and are forgotten: by_trainer_updates is the last one that counts. BY_EDIVERGED
 * as for by_trainer_step; BY_ESTATE, here and in all that reads results, when BY_STEPS_AHEAD steps
 * are under way. */
BY_API by_status by_trainer_submit(by_trainer *trainer, const by_batch *batch, by_error *error);
BY_API by_status by_trainer_collect(by_trainer *trainer, bool wait, bool *got, by_step_result *out,
                                    by_error *error);
/* Forward and backward only: gradients are left for by_trainer_gradient and by_trainer_update.
 * *loss: mean over the batch's valid targets. */
BY_API by_status by_trainer_gradients(by_trainer *trainer, const by_batch *batch, double *loss,
                                      by_error *error);
/* The other half: clips the gradients of by_trainer_gradients and updates the weights at this
 * learning rate. A loss or norm that is not finite is treated as by by_trainer_step. */
BY_API by_status by_trainer_update(by_trainer *trainer, double lr, by_step_result *out,
                                   by_error *error);
/* Sum of losses (nats for cross-entropy) of one micro-batch of train.micro_batch examples, without
 * dropout. */
BY_API by_status by_trainer_loss(by_trainer *trainer, const by_batch *batch, double *sum,
                                 by_error *error);
/* The same, and the values of the graph's output "evaluated" where the task has one, `width` for
 * each example; else NULL and 0. They are the trainer's, valid until its next call. */
BY_API by_status by_trainer_evaluate(by_trainer *trainer, const by_batch *batch, double *sum,
                                     const float **values, size_t *width, by_error *error);
/* What the trainer is trained to do. */
BY_API const by_task *by_trainer_task(const by_trainer *trainer);
/* Adds to the report what the loaders of such batches allocate: of a pass over what is held out
 * too, where `held_out`. */
BY_API by_status by_trainer_plan_loaders(by_trainer *trainer, bool held_out, by_error *error);

/* A global batch of random examples, for timing: numbers in [-1, 1), indices that the model
 * accepts. */
typedef struct by_random_batch by_random_batch;
BY_API by_status by_random_batch_open(by_random_batch **out, const by_trainer *trainer,
                                      by_error *error);
BY_API void by_random_batch_close(by_random_batch **batch);
BY_API const by_batch *by_random_batch_view(const by_random_batch *batch);

/* Collective, before what a trainer holds is saved: with config.sync, exchanges what ranks have not
 * yet exchanged, so that weights and optimizer states are the same on all of them and any number
 * of ranks can go on from there. Else it does nothing. */
BY_API by_status by_trainer_settle(by_trainer *trainer, by_error *error);

/* Steps done so far, those under way and those that were skipped included. */
BY_API int64_t by_trainer_updates(const by_trainer *trainer);

/* Parameters in the order of the graph: f32 masters. A view's data is in the trainer's memory, and
 * NULL where the device's memory is not the host's or the values are on disk; by_trainer_read
 * copies from anywhere. */
BY_API size_t by_trainer_parameter_count(const by_trainer *trainer);
BY_API by_tensor_view by_trainer_parameter(const by_trainer *trainer, size_t i);
/* Gradient of the last batch, times the scale of the loss where there is one
 * (precision.loss_scale); named as the parameter; rank -1 for a frozen one. */
BY_API by_tensor_view by_trainer_gradient(const by_trainer *trainer, size_t i);
/* States of the optimizer: their number, their names ("m"), and that of a parameter; rank -1 where
 * the optimizer keeps none for it. */
BY_API int by_trainer_state_count(const by_trainer *trainer);
BY_API const char *by_trainer_state_name(const by_trainer *trainer, int state);
BY_API by_tensor_view by_trainer_state(const by_trainer *trainer, size_t i, int state);

typedef enum by_trainer_tensor {
    BY_TRAINER_PARAMETER = 0,
    BY_TRAINER_GRADIENT,
    BY_TRAINER_STATE
} by_trainer_tensor;
/* Copies the values of such a tensor of parameter i (state: which; else not read) into out, codes
 * as whole numbers, once everything that was submitted is done. */
BY_API by_status by_trainer_read(const by_trainer *trainer, by_trainer_tensor what, int state,
                                 size_t i, float *out, by_error *error);
/* A rank's place in the layout: "pipeline 0, data 1", of the axes that are larger than 1; cut at
 * `size` bytes. */
BY_API void by_trainer_place(const by_trainer *trainer, char *text, size_t size);
/* The trainer's programs, for profiles. Name of the i-th, NULL behind the last: "gradients"
 * (forward and backward of a micro-batch), "last gradients" (the same, and the exchange between
 * ranks; only on several ranks), "loss", "gradient sum" (of two micro-batches; only where a
 * batch is several), "gradient norm", "update". In a pipeline, of each stage, whose number follows
 * where a rank has several: "forward", "backward", "weights" (their gradients, where they are
 * apart), "evaluation", "stage sum"; and "gradient squares". */
BY_API const char *by_trainer_program_name(const by_trainer *trainer, size_t i);
/* The program of that name, owned by the trainer; NULL when there is none. */
BY_API by_program *by_trainer_program(const by_trainer *trainer, const char *name);
/* The graph of the program of that name, behind all passes, as it runs; NULL when there is none. */
BY_API const by_graph *by_trainer_graph(const by_trainer *trainer, const char *name);

/* ---- the whole job ---- */

typedef enum by_train_event_kind {
    BY_TRAIN_PREPARING = 0, /* reading and packing text: `phase`, `fraction` */
    BY_TRAIN_PLANNED,       /* sizes, memory and data are known; nothing large is allocated yet */
    BY_TRAIN_STARTED,       /* run directory, plan and data are known; nothing is trained yet */
    BY_TRAIN_STEPPED,       /* a step that is logged */
    BY_TRAIN_EVALUATED,     /* `evaluation` */
    BY_TRAIN_SAVED,         /* the checkpoint of `step` is on disk: `path`, `save_...` */
    BY_TRAIN_SAMPLED,       /* what the model has made of track.sample_prompt: `text` */
    BY_TRAIN_NOTE           /* something worth a line: `text` */
} by_train_event_kind;

/* What happened. Fields that do not belong to the kind are zero. Valid during the call only. */
typedef struct by_train_event {
    by_train_event_kind kind;
    const char *run; /* run directory */
    const char *path;
    const char *text;
    const char *phase;
    double fraction;
    int64_t step; /* steps done; of a checkpoint: before it was saved */
    int64_t steps;
    int64_t first_step; /* steps done before this process began */
    by_step_result result;
    const by_task *task;
    double examples_per_s; /* since the last logged step */
    /* model FLOPs (by_model_size) of that rate by the measured peak of the cores that the ranks
     * have: those that share some have the peak of these */
    double mfu;
    double step_seconds; /* mean since the last logged step ... */
    double exchange;     /* ... and of it what by_step_result has under these names, on this rank */
    double exposed;
    double disk;
    int ranks;
    double seconds_left;
    uint64_t resident_bytes;
    const by_evaluation *evaluation;
    bool best;
    double save_stalled; /* seconds that steps stood still for a checkpoint ... */
    double save_seconds; /* ... and that it took */
    const by_memory_report *memory;
    const by_model_size *size;
    uint64_t train_examples; /* as the task counts them */
    uint64_t valid_examples;
} by_train_event;

typedef struct by_train_options {
    const by_config *config;           /* resolved; model.vocab may be -1 (the tokenizer's) */
    const by_trainer_options *trainer; /* a model, task or device of the caller's own; or NULL */
    const char *resume;                /* run directory to go on with; NULL: a new run */
    bool from_start; /* a resumed run without a whole checkpoint begins again at step 0 */
    /* this rank's matrix-product peak at the compute precision; 0: unknown */
    double peak_gflops;
    void (*event)(void *user, const by_train_event *event); /* may be NULL */
    /* asked once a step; true: save and return BY_ESTOPPED. May be NULL */
    bool (*stop)(void *user);
    /* the run got on: steps done, and what it does now ("step", "evaluation", "save"). May be
     * NULL */
    void (*progress)(void *user, int64_t step, const char *phase);
    void *user;
} by_train_options;

/* Trains: packs text on first use, plans, trains, evaluates, saves. The run directory is RUNS/NAME
 * (or NAME-2, NAME-3 ... when it is taken) and holds config.yaml (resolved), environment.json,
 * events.jsonl, run.json and checkpoints/. `run` (may be NULL) receives its path, freed with
 * free(), also when the call fails after the directory was made. A resumed run continues bit for
 * bit from its newest valid checkpoint; newer ones that are not valid are reported as notes, and
 * without any the call fails unless options->from_start permits to begin again. The process holds
 * the lock of the run directory for the whole call; BY_ESTATE names who else does. Nothing of a
 * resumed run is written before its state is restored. BY_EMEMORY, before anything is allocated:
 * the plan needs more than is free; the message says what would fit. Neither the events file nor
 * the registry ends a run when it cannot be written. BY_ESTOPPED: stopped on request; saved, unless
 * `run` is NULL, which means that nothing was trained yet. */
BY_API by_status by_train(const by_train_options *options, char **run, by_error *error);

/* Whether a resolved config trains on so many ranks; BY_ECONFIG as for by_trainer_open. *unit: the
 * ranks of one replica, of which a smaller job has a multiple. */
BY_API by_status by_train_check_ranks(const by_config *config, int ranks, int *unit,
                                      by_error *error);

/* The run directory that `path` means: `path` itself if it is one, else the most recently changed
 * run directory below it. Freed with free(). BY_EIO when there is none. */
BY_API by_status by_run_find(char **out, const char *path, by_error *error);

/* With model.from: takes kind, sizes and vocabulary from its config.json. With rotary positions a
 * shorter model.context counts; where the config does not give it, the checkpoint's, but 1024 at
 * most. Else only resolves. */
BY_API by_status by_config_take_model(by_config *config, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
