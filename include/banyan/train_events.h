/* What training reports: the plan of its memory, the size of the model, the result of a step, the
 * events of a run; and the options of a run, which say to whom. Types only. */
#ifndef BANYAN_TRAIN_EVENTS_H
#define BANYAN_TRAIN_EVENTS_H

#include "banyan/config.h"
#include "banyan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Planned bytes by purpose. `total` is the run's peak in memory. */
typedef struct by_memory_report {
    uint64_t parameters;  /* f32 masters and narrower copies for computing */
    uint64_t gradients;   /* f32; one set, and one more per level of the accumulation tree in use */
    uint64_t optimizer;   /* optimizer state; if that is on disk, the buffer it passes through */
    uint64_t activations; /* one arena */
    uint64_t workspace;   /* scratch memory of the most demanding kernel; what a GPU's driver keeps
                             of programs */
    uint64_t data;        /* inputs of a micro-batch, loader buffers, mapped shards, pinned copies
                             of what ranks with GPUs exchange */
    uint64_t staging;     /* buffer from which checkpoints are written while training continues */
    uint64_t process;     /* resident before the run allocated anything: code and libraries */
    uint64_t total;       /* sum of the above */
    uint64_t on_disk;     /* scratch file of config.offload; not in the total */
    uint64_t spared;      /* gradients and optimizer state saved by frozen parameters;
                             not in the total */
    uint64_t coded;       /* bytes of frozen weights saved by their codes (lora.base); part of no
                             other */
} by_memory_report;

/* Size of a model, and FLOPs of training on one example (as the task counts examples). For tokens
 * by both conventions: 6 N + 6 L C T, which counts the causal half of attention, and 6 N + 12 L C T
 * (Chowdhery et al. 2022, appendix B), which counts all of it; N counts parameters in matrix
 * products, L layers, C width, T context. For other examples, three times the products and
 * attention of the forward pass. Gradients that are not computed because parameters are frozen do
 * not count: their own, and those of everything before the first trained parameter. */
typedef struct by_model_size {
    int64_t parameters;            /* of the model */
    int64_t in_products;           /* parameters in matrix products of one example */
    int64_t trained;               /* parameters of the model that are not frozen */
    int64_t frozen;                /* parameters of this rank that are frozen */
    double flops_per_example;      /* causal half of attention */
    double flops_per_example_full; /* all of attention */
} by_model_size;

/* Why a step was not applied (config.guard). It still counts as a step. */
typedef enum by_skip {
    BY_SKIP_NONE = 0,  /* it was applied */
    BY_SKIP_NONFINITE, /* its loss or gradient is not finite */
    BY_SKIP_SPIKE,     /* its loss is far above earlier ones (guard.spike) */
    BY_SKIP_OVERFLOW   /* its gradient overflowed with loss scaling; the scale is reduced */
} by_skip;

/* Result of a step. */
typedef struct by_step_result {
    int64_t step; /* steps done, including this one */
    double loss;  /* mean over the batch's targets that count */
    double norm;  /* global gradient norm before clipping */
    /* The same of the mean over one micro-batch alone, with track.noise_every where a rank has
     * several; 0: not measured. */
    double micro_norm;
    double lr;        /* learning rate */
    int64_t examples; /* in the batch, as the task counts them: tokens, images */
    /* Seconds this rank spent in exchanges with others, including waiting for them; 0 on a single
     * rank. */
    double exchange;
    double exposed;    /* the part of it during which its computation was blocked */
    double disk;       /* seconds the update was blocked by the disk (config.offload) */
    by_skip skipped;   /* if set, weights and optimizer state are as before the step */
    double zscore;     /* robust z-score of the loss, with guard.spike; 0 if there is none yet */
    double loss_scale; /* used for the step (config.precision); 1: none */
} by_step_result;

/* Completions that the model wrote for its own training (by_task.rolls_out), of all ranks. */
typedef struct by_rollout_report {
    int64_t steps;       /* that they are of */
    int64_t completions; /* number of them */
    int64_t group;       /* completions of each prompt */
    double reward;       /* mean */
    double pass;    /* share of the prompts of which a completion passes: pass@k with k = group */
    double flat;    /* share of the prompts whose completions got one reward: nothing is learned */
    double tokens;  /* mean of a completion */
    double cut;     /* share of the completions that were ended by their length */
    double kl;      /* mean divergence of a token from the weights at the start; 0: not measured */
    double seconds; /* mean of a step for them, on this rank */
} by_rollout_report;

/* What a step is predicted to take on this machine. */
typedef struct by_step_forecast {
    double planned; /* seconds, by the figures of the machine alone */
    double seconds; /* the same, corrected by runs that were measured */
    double low;     /* an 80 % interval of it */
    double high;
    size_t runs; /* that correct it */
    /* When it was made (by_clock), seconds of processors that this process had used until then, and
     * those that its threads had waited for one: what is learned leaves out what others took. */
    double began;
    double used;
    double waited;
} by_step_forecast;

/* What an event reports. */
typedef enum by_train_event_kind {
    BY_TRAIN_PREPARING = 0, /* reading and packing text: `phase`, `fraction` */
    BY_TRAIN_PLANNED,       /* sizes, memory and data are known; nothing large is allocated yet;
                               `text` is by_task_data.summary */
    BY_TRAIN_STARTED,       /* the run directory exists; training is about to begin */
    BY_TRAIN_STEPPED,       /* a step that is logged */
    BY_TRAIN_EVALUATED,     /* `evaluation` */
    BY_TRAIN_SAVED,         /* the checkpoint of `step` is on disk: `path`, `save_...` */
    BY_TRAIN_SAMPLED,       /* the model's continuation of track.sample_prompt: `text` */
    BY_TRAIN_COMPARED,      /* after the last step, if a few were measured: `forecast` beside
                               `step_seconds`, and `memory` beside `resident_bytes` */
    BY_TRAIN_NOTE           /* a remark for the user: `text` */
} by_train_event_kind;

/* An event. Fields that do not apply to its kind are zero. Valid during the call only. */
typedef struct by_train_event {
    by_train_event_kind kind;
    const char *run;         /* run directory */
    const by_config *config; /* completed */
    const char *path;
    const char *text;
    const char *phase;
    double fraction;
    int64_t step;       /* steps done; for a checkpoint: when it was taken */
    int64_t steps;      /* steps planned */
    int64_t first_step; /* steps done before this process started */
    by_step_result result;
    const by_task *task;
    double examples_per_s; /* since the last logged step */
    /* Model FLOPs (by_model_size) per second divided by the measured peak of the cores used; ranks
     * that share cores have the peak of these. */
    double mfu;
    const by_step_forecast *forecast; /* with BY_TRAIN_STARTED, too; NULL: there is none */
    /* Mean since the last logged step; with BY_TRAIN_COMPARED, the median of all but the first. */
    double step_seconds;
    double exchange; /* this rank's by_step_result.exchange in a step */
    double exposed;  /* the same of by_step_result.exposed */
    double disk;     /* the same of by_step_result.disk */
    int ranks;
    double seconds_left;               /* estimate */
    uint64_t resident_bytes;           /* now; with BY_TRAIN_COMPARED, at the peak, 0: not known */
    const by_rollout_report *rollouts; /* with BY_TRAIN_STEPPED: since the last one; or NULL */
    const by_evaluation *evaluation;
    bool best;           /* the best evaluation so far */
    double save_stalled; /* seconds that training was blocked by a checkpoint ... */
    double save_seconds; /* ... of those it took */
    const by_memory_report *memory;
    const by_model_size *size;
    uint64_t train_examples; /* as the task counts them */
    uint64_t valid_examples; /* as the task counts them */
    const char *held_out;    /* as in by_task_data */
} by_train_event;

struct by_trainer;
struct by_comm;
/* What completes prompts with the weights of a trainer, between its steps. */
typedef struct by_rollouts by_rollouts;
typedef struct by_rollout_request {
    struct by_trainer *trainer; /* planned; allocated before the first batch */
    by_task_data *data;
    const by_config *config; /* completed */
    struct by_comm *comm;    /* of all ranks; NULL: a single one */
} by_rollout_request;

/* Makes the batches of tasks with by_task.rolls_out; by_reinforce_maker (banyan/reinforce.h) is
 * one. What it makes is a function of config, data, seed, weights and the batch of the loader, so
 * that runs are the same on any number of ranks, and after a crash. */
typedef struct by_rollout_maker {
    /* Collective; what the request names must outlive it. Sets *bytes to the memory that it holds
     * from then on. */
    by_status (*open)(by_rollouts **out, uint64_t *bytes, const by_rollout_request *request,
                      by_error *error);
    /* Collective: replaces a batch of the loader by what the graph reads, valid until the next
     * call, and sets *report to what there is to say of it. Calls `alive` now and then. */
    by_status (*make)(by_rollouts *rollouts, by_batch *batch, by_rollout_report *report,
                      void (*alive)(void *user), void *user, by_error *error);
    void (*close)(by_rollouts **rollouts);
} by_rollout_maker;

/* Predicts steps, and learns from those that were measured; by_layout_forecaster (banyan/layout.h)
 * is one. Both are called on rank 0, with a trainer of which the plan was made. */
typedef struct by_forecaster {
    by_status (*predict)(by_step_forecast *out, struct by_trainer *trainer, const by_config *config,
                         by_error *error);
    by_status (*learn)(const by_step_forecast *forecast, const struct by_trainer *trainer,
                       const by_config *config, double measured, by_error *error);
} by_forecaster;

/* What is known of the devices that train, for the end of the log: of one each. NAN: unknown. */
typedef struct by_train_rates {
    double watts; /* rated, where nothing is measured */
    double price_per_hour;
    double grams_per_kwh; /* of CO2 equivalent */
    double pue;           /* energy of the site / energy of its computers */
} by_train_rates;

typedef struct by_train_options {
    const by_config *config; /* resolved; model.vocab may be -1 (the tokenizer's) */
    const struct by_trainer_options
        *trainer;       /* a model, task, device or communicator of the caller's
                                          own; or NULL */
    const char *resume; /* run directory to continue; NULL: a new run */
    bool from_start;    /* restart a resumed run without a valid checkpoint at step 0 */
    double peak_gflops; /* this rank's peak for matrix products in the compute format; 0: unknown */
    const by_rollout_maker *rollouts; /* for tasks that need it; NULL: they are refused */
    const by_forecaster *forecaster;  /* NULL: steps are not predicted */
    const by_train_rates *rates;      /* NULL: unknown */
    /* May be NULL. */
    void (*event)(void *user, const by_train_event *event);
    /* Polled once per step, and by threads that wait for remote data, one at a time; may be NULL.
     * Returning true saves and stops with BY_ESTOPPED. */
    bool (*stop)(void *user);
    /* Reports progress: steps done and the current activity ("step", "evaluation", "save"); may be
     * NULL. */
    void (*progress)(void *user, int64_t step, const char *phase);
    void *user;
} by_train_options;

#ifdef __cplusplus
}
#endif
#endif
