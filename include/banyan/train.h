/* Complete runs: by_train is the job of `banyan train`, with data, loop, evaluation, checkpoints
 * and events; by_evaluate and by_predict use weights. The engine is by_trainer
 * (banyan/trainer.h). */
#ifndef BANYAN_TRAIN_H
#define BANYAN_TRAIN_H

#include "banyan/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Trains: packs text on first use, plans, trains, evaluates and saves. The run directory is
 * RUNS/NAME (or NAME-2, NAME-3, ... if taken) and contains config.yaml (resolved),
 * environment.json, events.jsonl, run.json and checkpoints/. `run` (may be NULL) receives its path,
 * to be freed with free(), even on failure if the directory was made.
 *
 * A resumed run continues bit for bit from its newest valid checkpoint. Newer, invalid ones are
 * reported as notes; without a valid one the call fails unless options->from_start is set. Nothing
 * of a resumed run is written before its state is restored. The process holds the lock of the run
 * directory during the call.
 *
 * Returns BY_ESTATE if another process holds the lock; BY_EMEMORY, before anything is allocated, if
 * the plan exceeds free memory, with changes that would fit; BY_EDIVERGED if training diverged;
 * BY_ECORRUPT for a detected hardware fault; BY_EPEER if another rank failed; BY_ESTOPPED if
 * stopped on request, with everything saved unless *run is NULL, which means that nothing was
 * trained yet. An events file or registry that cannot be written does not end a run.
 */
BY_API by_status by_train(const by_train_options *options, char **run, by_error *error);

/* How long the parts of a run take on this machine, in seconds. */
typedef struct by_train_times {
    double step;       /* a step with train.batch examples */
    double evaluation; /* an evaluation of train.eval_batches; 0: nothing is held out */
    double save;       /* a checkpoint, while training goes on with checkpoint.async */
    double last_save;  /* the last checkpoint, for whose end the run waits */
    double measuring;  /* what the measurement took, without reading and packing data */
} by_train_times;

/* Measures a run that by_train would do with these options: steps and evaluations of this very
 * config for about `seconds`, after a warm-up, with data, weights and memory of their own that are
 * closed again, so that a later by_train is not affected. Writes no run directory; reports
 * BY_TRAIN_PREPARING only. Collective; all ranks get the times of rank 0. Errors are those of
 * by_train. */
BY_API by_status by_train_measure(by_train_times *out, const by_train_options *options,
                                  double seconds, by_error *error);

/* The length of a run. */
typedef struct by_train_fit {
    int64_t steps;            /* train.steps */
    int64_t eval_every;       /* train.eval_every: the config's or, if it leaves it open, a share */
    int64_t checkpoint_every; /* checkpoint.every: the same */
    double seconds;           /* estimate for all steps, evaluations and checkpoints */
} by_train_fit;

/* Finds the largest number of steps, but at least one, whose run takes at most `seconds`. A pure
 * function of its arguments. If the config does not set train.eval_every, there are eight
 * evaluations, fewer if they took more than a twentieth of the time; if it does not set
 * checkpoint.every, every second evaluation saves. Returns BY_EARG unless `seconds` and times->step
 * are positive and finite. */
BY_API by_status by_train_fit_steps(by_train_fit *out, const by_config *config,
                                    const by_train_times *times, double seconds, by_error *error);

/* Finds a run directory: `path` itself if it is one, otherwise the most recently changed one in it.
 * Free *out with free(). Returns BY_ECONFIG if there is none. */
BY_API by_status by_run_find(char **out, const char *path, by_error *error);

/* Computes mean loss and metrics of weights over the held-out data, or its first `batches`
 * micro-batches (-1: all). The config must be complete (by_task_complete). `stop` (may be NULL) is
 * polled once per micro-batch; returning true stops with BY_ESTOPPED. */
BY_API by_status by_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                             by_task_data *data, int64_t batches, bool (*stop)(void *user),
                             void *user, by_error *error);
/* Receives a micro-batch of an evaluation, and `width` numbers for each example. */
typedef by_status by_evaluated(void *user, const by_batch *batch, const float *values, size_t width,
                               by_error *error);
/* Passes the micro-batches of the held-out data to `report`, in order, until it fails, with the
 * numbers of an output of the model by name, or with those that the task's metrics are made of
 * (NULL; logits, for example). The config must be complete; `stop` as in by_evaluate. Returns
 * BY_EARG if the task evaluates the loss alone, BY_ECONFIG if the model has no such output,
 * BY_ESTOPPED, and what `report` returns. */
BY_API by_status by_evaluate_each(const by_config *config, const by_weights *weights,
                                  by_task_data *data, const char *output, by_evaluated *report,
                                  bool (*stop)(void *user), void *user, by_error *error);
/* Calls `report` with the prediction for each example of data opened for prediction. The config
 * must be complete; `stop` as in by_evaluate. Returns BY_EARG if there is nothing to predict,
 * BY_ESTOPPED. */
BY_API by_status by_predict(const by_config *config, const by_weights *weights, by_task_data *data,
                            by_predicted *report, bool (*stop)(void *user), void *user,
                            by_error *error);
/* Like by_predict, of an output of the model of images, tables or nodes by name ("features";
 * banyan/model.h): reports "index" (of a node, its number), the list of its numbers under its name
 * and, for data of such ones, "file". Returns BY_ECONFIG if the model has no such output. */
BY_API by_status by_predict_output(const by_config *config, const by_weights *weights,
                                   by_task_data *data, const char *output, by_predicted *report,
                                   bool (*stop)(void *user), void *user, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
