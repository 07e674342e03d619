/* Internal record of a running job, shared by loop.c (the loop, events), job_hooks.c (actions after
 * a step), job_guard.c (steps that were not applied), job_damage.c (skipped data), job_layers.c
 * (statistics of tensors), job_activations.c (of activations), job_names.c (exchange by name
 * between ranks), job_sample.c (sampled texts), job_rollouts.c (completions to learn from),
 * job_outcomes.c (predictions), evaluate.c, time_budget.c (steps that fit into a time), save.c and
 * restore.c (checkpoints), run_dir.c (the run directory), job_choices.c (what libraries chose),
 * job_fits.c (memory check of the plan) and, for several ranks, job_ranks.c, job_cores.c,
 * job_times.c and ranks_alike.c.
 *
 * Types: by__job, everything that one call of by_train keeps, in records of which each names the
 * file that writes it; by__job_outcomes, predictions of the last evaluation. The job owns all of
 * its members unless their comment says otherwise.
 *
 * Never put here: the computation of a step (trainer.h), formats of checkpoints, printing. */
#ifndef BY_JOB_JOB_H
#define BY_JOB_JOB_H

#include "banyan/device_meter.h"
#include "banyan/train.h"
#include "base/threads.h"
#include "checkpoint/storage.h"
#include "job/stragglers.h"
#include "track/system_load.h"
#include "track/tracker.h"
#include "trainer/state/guard.h"
#include "trainer/state/train.h"

/* A point in time, and how long this rank had waited for others until then. */
typedef struct by__job_moment {
    double clock;
    double wait_seconds;
} by__job_moment;

typedef struct by__job_times by__job_times;
typedef struct by__job_layers by__job_layers;
typedef struct by__job_activations by__job_activations;
typedef struct by__job_sample by__job_sample;
typedef struct by__job_saving by__job_saving;

/* Predictions of the last evaluation, in the order of samples. One is `numbers` doubles: the class,
 * or the value of each output (NaN: no prediction), and last its confidence (NaN: there is
 * none). */
typedef struct by__job_outcomes {
    bool are_classes;
    uint64_t stride; /* one of this many samples is kept */
    size_t micro_batch;
    size_t numbers;
    double *items;
    size_t count;
    size_t capacity;
} by__job_outcomes;

/* The run directory, on rank 0 (run_dir.c). */
typedef struct by__job_dir {
    char *config_text;   /* the resolved config */
    char *environment;   /* description of the machine as JSON */
    char *path;          /* of the run directory */
    int lock;            /* of the run directory, held for the job's whole life; -1: none */
    int handle;          /* the run directory itself; -1: not this rank */
    char *checkpoints;   /* RUN/checkpoints */
    char *choices;       /* of a run that is resumed, see job_choices.c; NULL: none */
    char started[24];    /* UTC */
    bool record_failing; /* reported once: run.json waits for space on the disk */
    bool index_failing; /* the same for the registry, which is then left alone until the run ends */
} by__job_dir;

/* Where the job is in its data and steps (loop.c). */
typedef struct by__job_position {
    uint64_t sample; /* first sample of the loader */
    /* ... and its position after each step in flight, as a ring */
    uint64_t loader_position[BY_STEPS_AHEAD];
    int64_t first_step;
    int64_t done_step; /* number of collected steps */
} by__job_position;

/* Damaged data that is skipped (job_damage.c). */
typedef struct by__job_skipped {
    /* Of each step in flight: number of damaged samples, and the first of them. */
    uint64_t counts[BY_STEPS_AHEAD];
    uint64_t first[BY_STEPS_AHEAD];
    uint64_t samples; /* of all collected steps */
    char hash[33];    /* of the list of skipped data; "": nothing is skipped */
} by__job_skipped;

/* The interval of checkpoints that is measured (save_interval.c). */
typedef struct by__job_interval {
    int64_t step;   /* that it counts from */
    int64_t next;   /* when the next save is due; the same on all ranks */
    double began;   /* by__now() after `step` */
    double stalled; /* seconds for which the last save stopped the run ... */
    double written; /* ... and after which it was on disk; 0: there was none */
} by__job_interval;

/* Checkpoints (saving.c, save.c, restore.c). */
typedef struct by__job_saved {
    by__job_saving *saving;
    by__job_interval interval;
    int64_t step;          /* of the newest checkpoint that was begun; -1: none */
    int64_t good_step;     /* of the newest checkpoint not caused by a stop; -1: none */
    int64_t rollbacks;     /* number of rollbacks to that one */
    bool is_ending;        /* the current save is caused by an early end of the run */
    bool state_incomplete; /* a step failed half-way: its state must not be saved */
} by__job_saved;

/* The best evaluation so far, and the last one (job_hooks.c). */
typedef struct by__job_best {
    double loss;   /* NaN: none yet */
    double metric; /* of the task's first metric, if that decides; NaN: none yet */
    uint64_t step;
} by__job_best;

typedef struct by__job_valid {
    double loss;
    int64_t step;               /* which it was after; -1: there was none */
    bool is_pending;            /* that of the current step is still to be done */
    by__job_outcomes *outcomes; /* its predictions; NULL: the task does not predict examples */
} by__job_valid;

/* Moving averages of both parts of the gradient noise scale, from step 0 of this process
 * (job_noise.c). */
typedef struct by__job_noise {
    double mean;   /* |G|^2 */
    double spread; /* tr(S) */
} by__job_noise;

/* Sums over the steps since the last logged one, in seconds, see by_step_result (job_hooks.c). */
typedef struct by__job_log {
    double disk;
    double exchange;
    double exposed;
    int64_t examples;
    by__track_system_past system; /* system counters when they were last read, */
    int64_t system_step;          /* after this step, */
    double data_seconds;          /* and how long steps have waited for data since */
    double time;                  /* end of the last logged step */
    by__job_noise noise;
    by_rollout_report rollouts; /* sums of the steps */
    int64_t step;
} by__job_log;

/* What this host and its device draw (job_energy.c). */
typedef struct by__job_meter {
    double began; /* 0: it has not */
    double read;  /* when the counters were read last */
    by__track_energy processors;
    by_device_meter *device; /* NULL: it has none */
    double device_joules;
    bool metered; /* the device has told its watts */
} by__job_meter;

/* What a job has used. NAN: unknown. */
typedef struct by__job_use {
    double seconds;
    double kwh;
    double kg_co2;
    double money;
    bool measured; /* the energy; false: by rated watts */
} by__job_use;

/* Times of ranks (job_times.c, job_cores.c). */
typedef struct by__job_timing {
    by__job_times *times;      /* with several ranks, else NULL */
    by__job_moment step_began; /* {0}: no step has begun */
    /* This rank's own time since then, except what is added at the end of the step, and
     * evaluations, which all ranks do together. */
    by__job_own_time own;
    double evaluating;
    double peaks; /* of rank 0: ratio of the cores of all ranks to its own */
} by__job_timing;

/* A predicted step, and measured ones (job_forecast.c). */
#define BY__FORECAST_STEPS 255
typedef struct by__job_forecast {
    by_step_forecast step;               /* seconds 0: there is no prediction */
    double measured[BY__FORECAST_STEPS]; /* the last steps but the first, without evaluations */
    size_t count;                        /* that were measured */
    double time;                         /* end of the last step; 0: there was none */
    uint64_t resident;                   /* most bytes at a logged step */
} by__job_forecast;

typedef struct by__job {
    const by_train_options *options;
    by_comm *comm;     /* of several ranks; NULL: a single one */
    by_config *config; /* completed: the vocabulary is known */
    char config_hash[33];
    by_task_data *data;
    by_trainer *trainer;
    by_loader *loader;
    by_loader *valid_loader;    /* NULL if nothing is held out */
    by__track_tracker *tracker; /* on rank 0 only; else NULL */
    by_device_meter *meter;     /* of the device, where it has one, for the event system */
    by__job_dir dir;
    by__job_position at;
    by__job_skipped skipped;
    by__job_saved saved;
    by__job_best best;
    by__job_valid valid;
    by__job_log log;
    by__job_timing timing;
    by__job_forecast forecast;
    by__job_meter energy;             /* on rank 0 */
    bool is_stopping;                 /* the ranks have agreed to stop */
    bool is_trial;                    /* it is only measured, and reports nothing */
    by__job_layers *layers;           /* NULL: tensors are not recorded */
    by__job_activations *activations; /* NULL: activations are not recorded */
    by__job_sample *texts;            /* NULL: this rank samples no texts */
    by_rollouts *rollouts;            /* NULL: batches are those of the loader */
} by__job;

/* ---- loop.c ---- */

/* A job of which nothing was opened. */
by__job by__job_of(const by_train_options *options);
/* Collective. Opens the data, completes the config, and opens trainer and loaders with all their
 * memory; the weights are not set yet, and nothing is written. Also after a failure the job must be
 * closed. */
by_status by__job_prepare(by__job *job, by_error *error);
void by__job_release(by__job *job);

/* Sends the caller a note of one line. */
void by__job_note(const by__job *job, const char *format, ...) BY_PRINTF(2, 3);

/* Sends an event to the caller only. */
void by__job_send(const by__job *job, by_train_event *event);
/* Sends the caller a report for the terminal. `report` must live until the event is handled. */
void by__job_report(by__job *job, by_train_event *report);

/* Tells the caller that the job is alive, and in which phase. */
void by__job_progress(const by__job *job, const char *phase);
/* Returns true if the caller asks the job to stop. */
bool by__job_stopped(const by__job *job);

/* ---- job_energy.c ---- */

/* Begins to read the counters of the processors and the meter of a device, as for
 * by_device_meter_open. */
void by__job_meter_open(by__job_meter *out, const char *device);
/* Reads them if a second has passed, or `now`. Nothing if the meter was not opened. */
void by__job_meter_update(by__job_meter *meter, bool now);
/* Joules from the beginning to the last reading; below 0: nothing here counts them. */
double by__job_meter_joules(const by__job_meter *meter);
void by__job_meter_close(by__job_meter *meter);

/* The others are for rank 0. */
by__job_use by__job_used(const by__job *job);
/* Writes the event of what was used. */
void by__job_energy_track(by__job *job);
/* Sends a note of it if there is more to say than the time. */
void by__job_energy_note(const by__job *job);

/* ---- job_hooks.c: actions after a step ---- */

/* Before the first step: starts the clocks of the hooks, and completes an evaluation that an
 * earlier process began. Collective, as are the next two. */
by_status by__job_hooks_begin(by__job *job, by_error *error);
/* Runs what is due after the step of `result`. */
by_status by__job_hooks_run(by__job *job, const by_step_result *result, by_error *error);
/* Begins a checkpoint of the current state; `best`: it is the best so far. */
by_status by__job_checkpoint(by__job *job, bool best, by_error *error);
/* Returns true if a hook needs the state after exactly this step, so that no later one may be
 * submitted. */
bool by__job_hooks_wait(const by__job *job, int64_t step);

/* ---- save_interval.c: checkpoint.every auto ---- */

/* Before the first step. */
void by__job_interval_begin(by__job *job);
bool by__job_interval_is_due(const by__job *job, int64_t step);
/* Collective: a save has begun after the last step; sets when the next one is due. */
by_status by__job_interval_saved(by__job *job, by_error *error);

/* ---- job_noise.c: the gradient noise scale ---- */

/* After each collected step; small: the examples of a micro-batch, as the task counts them. */
void by__job_noise_add(by__job_noise *noise, const by_step_result *result, double small);
/* In such examples; 0: not known. */
double by__job_noise_scale(const by__job_noise *noise);

/* ---- job_guard.c ---- */

/* Collective, for each collected step: reports a step that was not applied, and moves the loader
 * past it. *back: the job has returned to the state of an earlier checkpoint. */
by_status by__job_guard(by__job *job, const by_step_result *result, bool *back, by_error *error);
/* Collective: this step ends the run. Adds the origin of the failure to the verdict, and writes it
 * as an event. Returns BY_EDIVERGED. */
by_status by__job_diverged(by__job *job, int64_t step, by_error *verdict);

/* ---- job_damage.c: skipped data ---- */

/* Collective: checks that all ranks skip the same data. BY_ESTATE: they do not. */
by_status by__job_damage_open(by__job *job, by_error *error);
/* Writes events for skipped data; on rank 0 only. */
void by__job_damage_start(by__job *job);
/* A batch was submitted as the step that by_trainer_updates returns, or was collected. */
void by__job_damage_submitted(by__job *job, const by_batch *batch);
void by__job_damage_collected(by__job *job, int64_t step);
/* Reports the number of damaged samples; on rank 0 only. */
void by__job_damage_end(by__job *job);
/* Reports if the checkpoint being resumed skipped other parts. */
void by__job_damage_restore(by__job *job, const by_checkpoint *checkpoint);

/* ---- job_ranks.c ---- */

/* Returns true if this rank prints and writes: rank 0. */
bool by__job_leads(const by__job *job);
/* The recipe of the model's graphs. */
by__trainer_recipe by__job_recipe(const by__job *job);
/* Collective: sets *text to that of rank 0, on other ranks in newly allocated memory. */
by_status by__job_share_text(const by__job *job, char **text, const char *what, by_error *error);
/* The same of rank `root`; the text of other ranks, if any, is not freed. */
by_status by__job_share_text_of(const by__job *job, int root, char **text, const char *what,
                                by_error *error);
/* Collective: BY_ESTATE on a rank whose text (shorter than 64 bytes) differs from that of rank
 * 0. */
by_status by__job_same(const by__job *job, const char *text, const char *what, by_error *error);
/* Collective. */
by_status by__job_open_data(by__job *job, by_error *error);
/* Collective: writes what other ranks hold of the data into a batch of a loader (by_task.fetch). */
by_status by__job_fetch_batch(by_task_data *data, const by_batch *batch, by_error *error);

/* ---- job_cores.c ---- */

typedef struct by__job_rank_cores {
    int32_t host;    /* the first rank on the host */
    int32_t threads; /* number of compute threads */
    by__cores cores;
} by__job_rank_cores;

/* Ratio of the cores that all ranks use to those of rank 0: per host, at most its available cores.
 * Ranks with unknown cores count as many as they have threads. */
double by__job_cores_of_ranks(const by__job_rank_cores *ranks, int count);
/* Collective: sets job->timing.peaks. */
by_status by__job_cores(by__job *job, by_error *error);

/* ---- job_times.c ---- */

/* Determines which ranks have the same work and are compared by rank 0. */
by_status by__job_times_open(by__job *job, by_error *error);
void by__job_times_close(by__job_times **times);
by__job_moment by__job_moment_now(const by__job *job);
/* Seconds since then in which this rank did not wait for others. */
double by__job_own_since(const by__job *job, const by__job_moment *since);
/* Collective, once per step: agrees on whether to stop, and exchanges the time of each rank since
 * the last call; reports slow ranks. */
by_status by__job_agree(by__job *job, bool stop, by_error *error);

/* ---- job_layers.c ---- */

/* Collective: determines which rank records which tensors. */
by_status by__job_layers_open(by__job *job, by_error *error);
void by__job_layers_close(by__job_layers **layers);
/* Collective: records norms of the last collected step, and histograms of the state it has left. */
by_status by__job_norms(by__job *job, int64_t step, by_error *error);
by_status by__job_histograms(by__job *job, int64_t step, by_error *error);

/* ---- job_activations.c ---- */

/* Collective. */
by_status by__job_activations_open(by__job *job, by_error *error);
void by__job_activations_close(by__job_activations **activations);
/* Collective: records statistics of the last collected step. */
by_status by__job_activations_log(by__job *job, int64_t step, by_error *error);

/* ---- job_sample.c ---- */

/* BY_ECONFIG: the task is not about text, or the prompt cannot be continued. */
by_status by__job_sample_open(by__job *job, by_error *error);
void by__job_sample_close(by__job_sample **sample);
/* Continues the prompt with the current weights. */
by_status by__job_sample_log(by__job *job, int64_t step, by_error *error);

/* ---- job_forecast.c: what steps were predicted to take, and take ---- */

/* Predicts a step, on rank 0, if the caller can. */
void by__job_forecast_open(by__job *job);
/* A step has ended. */
void by__job_forecast_step(by__job *job);
/* Logs and reports prediction and measurement at the end of a run, and lets the caller learn from
 * them. */
void by__job_forecast_end(by__job *job);

/* ---- job_rollouts.c: batches that the weights make themselves ---- */

/* Collective, before memory is planned. BY_EARG: nothing can make what the task needs. */
by_status by__job_rollouts_open(by__job *job, by_error *error);
void by__job_rollouts_close(by__job *job);
/* Collective: the next batch to train on, valid until the next call. */
by_status by__job_next_batch(by__job *job, by_batch *batch, by_error *error);
/* Means of the steps since the last call; false: there are none. */
bool by__job_rollouts_report(by__job *job, by_rollout_report *out);

/* ---- ranks_alike.c ---- */

/* Collective. BY_ECONFIG on a rank whose build, kernels or config differ from those of rank 0. */
by_status by__job_alike(const by__job *job, by_error *error);
/* The same for its training data, once they are open. */
by_status by__job_same_data(const by__job *job, by_error *error);
by_status by__job_ranks_compute_alike(by_comm *comm, const char *version, const char *hash,
                                      const char *level, by_error *error);

/* ---- saving.c: checkpoints ---- */

/* Collective: plans what this rank saves and, with checkpoint.async, starts the saver's thread. */
by_status by__job_saving_open(by__job *job, by_error *error);
void by__job_saving_close(by__job *job);
/* Collective: begins a checkpoint of the current state, unless there is one, and waits for its end
 * unless the thread does it. Waits first for a save in progress. `best`: it has the best loss so
 * far, job->best.loss. */
by_status by__job_save(by__job *job, bool best, by_error *error);
/* Returns true if a save in the background has failed. */
bool by__job_saving_failed(const by__job *job);
/* Reports a completed save. In a job of one rank also a failed one; several ranks first agree on
 * it, in by__job_agree. */
by_status by__job_saving_poll(by__job *job, by_error *error);
/* Waits for the save in progress. All ranks return the same status. */
by_status by__job_saving_wait(by__job *job, by_error *error);

/* ---- save.c, restore.c and run_dir.c ---- */

/* A rank's slices of the parameters, then of the states of the optimizer. by__job_held_read reads
 * their values, with the list as `user`. */
typedef struct by__job_held by__job_held;
by_status by__job_held_open(by__job_held **out, const by_trainer *trainer, by_error *error);
void by__job_held_close(by__job_held **held);
by_status by__job_held_plan(by__checkpoint_save_plan *out, const by__job_held *held,
                            const by__job *job, by_error *error);
by__checkpoint_read_held by__job_held_read;
/* Completes a request with the files and values of every run and of its task, and calls take(job,
 * request). */
by_status by__job_describe(by__job *job, by__checkpoint_save_request *request,
                           by_status (*take)(by__job *job,
                                             const by__checkpoint_save_request *request,
                                             by_error *error),
                           by_error *error);
/* Collective: loads weights, optimizer states and guards from the checkpoint of this step. */
by_status by__job_return(by__job *job, int64_t step, by_error *error);
/* Restores the newest valid checkpoint; newer ones that are not valid are reported. If there is
 * none, *restored is false if options->from_start permits that, else it is an error. */
by_status by__job_restore(bool *restored, by__job *job, by_error *error);

/* BY_ECONFIG: the settings of sinks are invalid. */
by_status by__job_run_dir_check(const by_config *config, by_error *error);
/* Finds the run to resume, or creates RUNS/NAME (or NAME-2, ...), and locks it. Writes nothing
 * else. */
by_status by__job_run_dir_find(by__job *job, by_error *error);
by_status by__job_run_dir_make(by__job *job, by_error *error);
/* Sets the paths of a run directory that another rank has found or created. */
by_status by__job_run_dir_name(by__job *job, by_error *error);
/* BY_EIO: the run directory was moved, removed or replaced since it was locked. On rank 0 only. */
by_status by__job_run_dir_check_exists(const by__job *job, by_error *error);
/* Writes config.yaml (config_history.h), environment.json and run.json, and opens the tracker
 * (events after first_step are dropped). */
by_status by__job_run_dir_start(by__job *job, by_error *error);
/* Writes run.json and the registry's row. A failure does not end the run, and is reported once. */
void by__job_run_dir_update(by__job *job, const char *status);

/* ---- job_choices.c: what the device's libraries have chosen, kept in RUN/choices.txt ---- */

/* Collective: reads what the run that is resumed has kept. */
by_status by__job_choices_read(by__job *job, by_error *error);
/* Collective: keeps what was chosen for all ranks, once all programs are compiled. */
by_status by__job_choices_keep(by__job *job, by_error *error);

/* ---- job_fits.c and evaluate.c ---- */

/* BY_EMEMORY if the job's plan needs more memory than is free; the message names settings that
 * would fit, found by planning with them. */
by_status by__job_fits(const by__job *job, by_error *error);

/* Examples that predictions are computed of together at least, unless a caller says otherwise. From
 * here on, the bits of an example do not depend on how many there are. */
#define BY__JOB_PREDICTED 5

/* Evaluates one pass of a loader over the held-out data. `outcomes` (or NULL) receives
 * predictions. */
by_status by__job_evaluate_loader(by_evaluation *out, by_trainer *trainer, by_task_data *data,
                                  by_loader *loader, int64_t batches, by__job_outcomes *outcomes,
                                  bool (*stop)(void *user), void *user, by_error *error);

/* ---- job_outcomes.c: predictions for held-out data ---- */

/* For tasks that predict single examples; else *out is NULL. Keeps up to 65,536 predictions, spread
 * over the evaluation. */
by_status by__job_outcomes_open(by__job_outcomes **out, const by_config *config,
                                const by_task_data *data, by_error *error);
void by__job_outcomes_close(by__job_outcomes **outcomes);
/* Fills slots[micro_batch][numbers] with the predictions for a micro-batch; NaN: none. */
by_status by__job_outcomes_predict(by__job_outcomes *outcomes, double *slots, by_task_data *data,
                                   const by_batch *batch, double loss, const float *values,
                                   size_t width, by_error *error);
/* Keeps predictions that begin at sample `first`. */
void by__job_outcomes_add(by__job_outcomes *outcomes, const double *slots, uint64_t first);
/* Adds them (NULL: none) for each output of the data, and bits per byte at the loss of the held-out
 * text, to the drift reference among the kept files. *out is that file's new text, which `kept`
 * then points to, freed with free(); NULL: nothing was added. `examples` is the number in the
 * training data. */
by_status by__job_outcomes_describe(char **out, const by__job_outcomes *outcomes,
                                    const by_task_data *data, by_task_kept *kept, uint64_t examples,
                                    double loss, by_error *error);

/* ---- job_references.c ---- */

/* For whom values are computed. */
typedef struct by__job_reference_user {
    bool begins; /* the trainer has adapters, or takes steps: what model.from lacks gets its initial
                    values */
    bool leads;  /* this rank writes the file */
    by__trainer_recipe recipe;
    bool (*stop)(void *user); /* NULL: nothing stops it */
    void *user;
} by__job_reference_user;

/* Returns true if the data are compared with the weights at the start. */
bool by__job_has_references(const by_task_data *data, const by_config *config);
/* Collective: gives the data what these weights make of their samples, from data.cache or from a
 * pass over them, after which the trainer has these weights. Sources that are open have no values:
 * open them afterwards. BY_ESTOPPED. */
by_status by__job_references(by_trainer *trainer, by_task_data *data,
                             const by__job_reference_user *user, by_error *error);

/* ---- evaluate.c ---- */

/* Returns true if the program of the loss is collective, so that all ranks must run it; */
bool by__job_ranks_evaluate_together(const by_trainer *trainer);
/* a rank without a micro-batch calls this instead. */
by_status by__job_ranks_evaluate_nothing(by_trainer *trainer, by_error *error);

/* ---- guard_find.c ---- */

/* Returns true if by__job_guard_find can work: it needs all ranks in the same step. */
bool by__job_guard_can_find(const by_trainer *trainer);
/* Collective: computes the gradients of step `step` again on its batch, and finds the first node,
 * in the order of micro-batches and of the graph, whose result is not finite; if an operand from
 * outside the graph (a parameter, the batch) is not finite, that operand. */
by_status by__job_guard_find(by_trainer *trainer, const by_batch *batch, int64_t step,
                             by__trainer_found *out, by_error *error);

/* ---- replicas.c ---- */

/* Collective: BY_ECORRUPT on all ranks unless the replicas of the axes data and shard hold the same
 * weights, bit for bit; names the rank that differs, its host and the first tensor (replicas.c). */
by_status by__job_trainer_compare_replicas(by_trainer *trainer, by_error *error);

#endif
