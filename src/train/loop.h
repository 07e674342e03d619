/* A running job: what loop.c (the loop, events), job_hooks.c (what follows a step), job_guard.c
 * (steps that were not applied), job_damage.c (data that is left out), job_layers.c (records of
 * tensors), job_activations.c (of activations), job_names.c (what ranks have of things by name),
 * job_sample.c (texts), job_outcomes.c (predictions), evaluate.c, save.c and restore.c
 * (checkpoints), run_dir.c (its directory), fit.c (whether its plan fits) and, of many ranks,
 * job_ranks.c, job_cores.c, job_times.c and ranks_alike.c share. */
#ifndef BY_TRAIN_LOOP_H
#define BY_TRAIN_LOOP_H

#include "base/threads.h"
#include "checkpoint/storage.h"
#include "track/system_load.h"
#include "track/tracker.h"
#include "train/stragglers.h"
#include "train/train.h"

/* A time, and how long this rank had stood still for others by then. */
typedef struct by__moment {
    double clock;
    double stood;
} by__moment;

typedef struct by__job_times by__job_times;
typedef struct by__job_layers by__job_layers;
typedef struct by__job_activations by__job_activations;
typedef struct by__job_sample by__job_sample;
typedef struct by__saving by__saving;

/* What is predicted for an example: a class or a number, and the probability of the class. */
typedef struct by__outcome {
    double value;      /* NaN: nothing */
    double confidence; /* NaN: there is none */
} by__outcome;

/* What the last evaluation predicted, in the order of samples. */
typedef struct by__outcomes {
    bool are_classes;
    uint64_t stride; /* every so many samples, one is kept */
    size_t micro_batch;
    by__outcome *items;
    size_t count;
    size_t capacity;
} by__outcomes;

typedef struct by__job {
    const by_train_options *options;
    by_comm *comm;     /* of several ranks; NULL: this one alone */
    by_config *config; /* complete: the vocabulary is known */
    char config_hash[33];
    by_task_data *data;
    by_trainer *trainer;
    by_loader *loader;
    by_loader *valid_loader; /* NULL when nothing is held out */
    by__tracker *tracker;    /* of rank 0, like the next two; else NULL */
    char *config_text;       /* the resolved config */
    char *environment;       /* the machine as JSON */
    char *run;               /* run directory */
    int lock;                /* of the run directory, for the job's whole life; -1: not taken */
    char *checkpoints;       /* RUN/checkpoints */
    char started[24];        /* UTC */
    uint64_t sample;         /* where the loader begins */
    /* ... and where it stood behind each step under way, by turn */
    uint64_t behind[BY_STEPS_AHEAD];
    /* Of the same steps: samples that are damaged, and the first of them. */
    uint64_t damaged[BY_STEPS_AHEAD];
    uint64_t first_damaged[BY_STEPS_AHEAD];
    uint64_t damaged_samples; /* of all steps that were collected */
    char damage[33];          /* hash of what of the data is left out; "": nothing is */
    int64_t first_step;
    int64_t done_step;  /* steps whose results were collected */
    int64_t saved_step; /* of the newest checkpoint that was begun; -1: none */
    int64_t good_step;  /* of the newest that was not saved because the run was stopped; -1: none */
    int64_t rollbacks;  /* to that one */
    by__saving *saving;
    double best_loss;   /* NaN: none yet */
    double best_metric; /* of the task's first, where that decides; NaN: none yet */
    uint64_t best_step;
    double valid_loss;      /* of the last evaluation ... */
    int64_t valid_step;     /* ... which was after this step; -1: there was none */
    by__outcomes *outcomes; /* ... and predicted these; NULL: the task predicts no examples */
    /* Seconds of the steps since the last logged one, see by_step_result. */
    double disk;
    double exchange;
    double exposed;
    int64_t examples;       /* likewise */
    bool record_failing;    /* said once: run.json waits for a disk with room */
    bool index_failing;     /* the same of the registry; it is left alone until the run ends */
    bool eval_pending;      /* the evaluation of the present step is still to be done */
    bool is_stopping;       /* the ranks have agreed to stop */
    bool is_ending;         /* what is saved now is saved because the run ends early */
    bool is_torn;           /* a step has failed part-way: what it leaves is not worth saving */
    by__job_times *times;   /* of several ranks, else NULL */
    by__job_layers *layers; /* NULL: nothing is recorded of single tensors */
    by__job_activations *activations; /* NULL: nothing is recorded of them */
    by__job_sample *texts;            /* NULL: this rank continues no texts */
    by__system_past system;           /* when the machine was looked at last ... */
    int64_t system_step;              /* ... */
    double data_seconds;              /* ... and what steps have waited for data since */
    by__moment step_began;            /* {0}: no step has */
    /* This rank's own time since then, but for what is counted when the step ends and for
     * evaluations, which all ranks do together. */
    by__own_time own;
    double evaluating;
    double peaks;    /* of rank 0, that the cores of all ranks have together */
    double log_time; /* when the last logged step ended */
    int64_t log_step;
} by__job;

/* Tells the caller something worth a line. */
void by__job_note(const by__job *job, const char *format, ...) BY_PRINTF(2, 3);

/* The same about a report for the terminal. `report` must live until the event's end. */
void by__job_report(by__job *job, by_train_event *report);

/* Tells the caller that the job is alive, and in which phase. */
void by__job_progress(const by__job *job, const char *phase);
/* Whether the caller asks the job to stop. */
bool by__job_stopped(const by__job *job);

/* ---- job_hooks.c: what follows a step ---- */

/* Before the first step: the clocks of the hooks, and an evaluation that an earlier process began.
 * Collective, as are the next two. */
by_status by__job_hooks_begin(by__job *job, by_error *error);
/* What is due after the step of `result`. */
by_status by__job_hooks_run(by__job *job, const by_step_result *result, by_error *error);
/* Begins a checkpoint of the present state; `best`: it is the best so far. */
by_status by__job_checkpoint(by__job *job, bool best, by_error *error);
/* Whether a hook wants the state after this very step, so that no later one may be submitted. */
bool by__job_hooks_wait(const by__job *job, int64_t step);

/* ---- job_guard.c ---- */

/* Collective, for each step that was collected: one that was not applied is told of, and the loader
 * is behind it then. *back: the job is in the state of an earlier checkpoint. */
by_status by__job_guard(by__job *job, const by_step_result *result, bool *back, by_error *error);
/* Collective: this step ends the run. Adds to the verdict where it went wrong, and writes it as an
 * event. Returns BY_EDIVERGED. */
by_status by__job_diverged(by__job *job, int64_t step, by_error *verdict);

/* ---- job_damage.c: data that is left out ---- */

/* Collective: all ranks leave the same out. BY_ESTATE: they do not. */
by_status by__job_damage_open(by__job *job, by_error *error);
/* Events for what is left out; rank 0 alone. */
void by__job_damage_start(by__job *job);
/* A batch is submitted as the step that by_trainer_updates says, or collected. */
void by__job_damage_submitted(by__job *job, const by_batch *batch);
void by__job_damage_collected(by__job *job, int64_t step);
/* Says how many samples it were; rank 0 alone. */
void by__job_damage_end(by__job *job);
/* Says when the checkpoint that is gone on from had left other parts out. */
void by__job_damage_restore(by__job *job, const by_checkpoint *checkpoint);

/* ---- job_ranks.c ---- */

/* Whether this rank prints and writes: rank 0. */
bool by__job_leads(const by__job *job);
/* What the graphs of its model are made from. */
by__recipe by__job_recipe(const by__job *job);
/* Collective: *text of rank 0, on the others in memory of their own. */
by_status by__job_share_text(const by__job *job, char **text, const char *what, by_error *error);
/* Collective: BY_ESTATE on a rank whose text (shorter than 64 bytes) is not that of rank 0. */
by_status by__job_same(const by__job *job, const char *text, const char *what, by_error *error);
/* Collective. */
by_status by__job_open_data(by__job *job, by_error *error);

/* ---- job_cores.c ---- */

typedef struct by__rank_cores {
    int32_t host;    /* the first rank there */
    int32_t threads; /* that it computes with */
    by__cores cores;
} by__rank_cores;

/* How many times the cores of rank 0 the ranks use: at most all cores of a host that they may
 * use. Ranks that do not know their cores count as many as threads. */
double by__cores_of_ranks(const by__rank_cores *ranks, int count);
/* Collective: sets job->peaks. */
by_status by__job_cores(by__job *job, by_error *error);

/* ---- job_times.c ---- */

/* Finds out which ranks have the same work, which rank 0 compares. */
by_status by__job_times_open(by__job *job, by_error *error);
void by__job_times_close(by__job_times **times);
by__moment by__job_moment(const by__job *job);
/* Seconds since then in which this rank did not stand still for others. */
double by__job_own_since(const by__job *job, const by__moment *since);
/* Collective, once a step: whether any rank is to stop, and what each one did since the last call;
 * ranks that are slow are named. */
by_status by__job_agree(by__job *job, bool stop, by_error *error);

/* ---- job_layers.c ---- */

/* Collective: which rank records which tensors. */
by_status by__job_layers_open(by__job *job, by_error *error);
void by__job_layers_close(by__job_layers **layers);
/* Collective: norms of the step that was collected last, and histograms of what it has left. */
by_status by__job_norms(by__job *job, int64_t step, by_error *error);
by_status by__job_histograms(by__job *job, int64_t step, by_error *error);

/* ---- job_activations.c ---- */

/* Collective. */
by_status by__job_activations_open(by__job *job, by_error *error);
void by__job_activations_close(by__job_activations **activations);
/* Collective: statistics of the step that was collected last. */
by_status by__job_activations_log(by__job *job, int64_t step, by_error *error);

/* ---- job_sample.c ---- */

/* BY_ECONFIG: the task has no text, or the prompt cannot be continued. */
by_status by__job_sample_open(by__job *job, by_error *error);
void by__job_sample_close(by__job_sample **sample);
/* Continues the prompt with the weights of the moment. */
by_status by__job_sample_log(by__job *job, int64_t step, by_error *error);

/* ---- ranks_alike.c ---- */

/* Collective. BY_ECONFIG on a rank whose version or kernels are not those of rank 0. */
by_status by__job_alike(const by__job *job, by_error *error);
by_status by__ranks_compute_alike(by_comm *comm, const char *version, const char *level,
                                  by_error *error);

/* ---- saving.c: checkpoints ---- */

/* Collective: what this rank saves, and with checkpoint.async a thread for that. */
by_status by__job_saving_open(by__job *job, by_error *error);
void by__job_saving_close(by__job *job);
/* Collective: begins a checkpoint of the present state, unless there is one, and waits for its end
 * where that is not left to the thread. One that is under way is waited for first. `best`: it has
 * the best loss so far, job->best_loss. */
by_status by__job_save(by__job *job, bool best, by_error *error);
/* Whether a checkpoint has failed behind the steps' back. */
bool by__job_saving_failed(const by__job *job);
/* Tells of one that was done. In a job of one rank also of one that failed; ranks tell each other
 * first, in by__job_agree. */
by_status by__job_saving_look(by__job *job, by_error *error);
/* Waits for the one that is under way. Its status is that of all ranks. */
by_status by__job_saving_wait(by__job *job, by_error *error);

/* ---- save.c, restore.c and run_dir.c ---- */

/* What a rank holds of the parameters, then of the states of the optimizer: slices, whose values
 * by__held_read gives, with the list as `user`. */
typedef struct by__held by__held;
by_status by__held_open(by__held **out, const by_trainer *trainer, by_error *error);
void by__held_close(by__held **held);
by_status by__held_plan(by__save_plan *out, const by__held *held, const by__job *job,
                        by_error *error);
by__read_held by__held_read;
/* Completes a request with what every run keeps, and its task, and calls take(job, request). */
by_status by__job_describe(by__job *job, by__save_request *request,
                           by_status (*take)(by__job *job, const by__save_request *request,
                                             by_error *error),
                           by_error *error);
/* Collective: weights, optimizer states and guards of the checkpoint of this step. */
by_status by__job_return(by__job *job, int64_t step, by_error *error);
/* Back to the newest checkpoint that is whole; newer ones that are not are reported. Without any,
 * *restored is false where options->from_start permits it, else that is an error. */
by_status by__job_restore(bool *restored, by__job *job, by_error *error);

/* BY_ECONFIG: what it says of sinks is wrong. */
by_status by__run_dir_check(const by_config *config, by_error *error);
/* Finds the run to resume, or makes RUNS/NAME (or NAME-2, ...), and takes its lock. Writes nothing
 * else. */
by_status by__run_dir_find(by__job *job, by_error *error);
by_status by__run_dir_make(by__job *job, by_error *error);
/* The paths in a run directory that another rank has found or made. */
by_status by__run_dir_name(by__job *job, by_error *error);
/* Writes config.yaml, environment.json and run.json, and opens the tracker (events behind
 * first_step are dropped). */
by_status by__run_dir_start(by__job *job, by_error *error);
/* Writes run.json and the registry's row. Neither ends a run: what fails is reported once. */
void by__run_dir_update(by__job *job, const char *status);

/* ---- fit.c and evaluate.c ---- */

/* BY_EMEMORY when the job's plan needs more memory than is free; the message says what would fit,
 * found by planning it. */
by_status by__job_fits(const by__job *job, by_error *error);
/* The core: `planned` needs more than `available` bytes. */
by_status by__refuse_plan(const by__job *job, const by_memory_report *planned,
                          const by__host_memory *memory, by_error *error);

/* One pass of a loader over what is held out. `outcomes` (or NULL) gets what was predicted. */
by_status by__evaluate_loader(by_evaluation *out, by_trainer *trainer, by_task_data *data,
                              by_loader *loader, int64_t batches, by__outcomes *outcomes,
                              bool (*stop)(void *user), void *user, by_error *error);

/* ---- job_outcomes.c: what was predicted for what is held out ---- */

/* Of tasks that predict single examples; else *out is NULL. Up to 65,536 predictions, spread over
 * what an evaluation reads, are kept. */
by_status by__outcomes_open(by__outcomes **out, const by_config *config, const by_task_data *data,
                            by_error *error);
void by__outcomes_close(by__outcomes **outcomes);
/* Fills slots[micro_batch] with what is predicted for a micro-batch; values that are NaN: nothing
 * is. */
by_status by__outcomes_predict(by__outcomes *outcomes, by__outcome *slots, by_task_data *data,
                               const by_batch *batch, double loss, const float *values,
                               size_t width, by_error *error);
/* Keeps them; they begin at sample `first`. */
void by__outcomes_add(by__outcomes *outcomes, const by__outcome *slots, uint64_t first);
/* Adds them (NULL: none), and bits per byte at the loss of the held-out text, to the reference for
 * drift among the files that are kept. *out is that file's text, which `kept` points to, freed with
 * free(); NULL: nothing was added. `examples` are those of the training data. */
by_status by__outcomes_describe(char **out, const by__outcomes *outcomes, by_task_kept *kept,
                                uint64_t examples, double loss, by_error *error);

#endif
