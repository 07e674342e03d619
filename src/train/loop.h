/* A running job: what loop.c, save.c and run_dir.c share. */
#ifndef BY_TRAIN_LOOP_H
#define BY_TRAIN_LOOP_H

#include "banyan/track.h"
#include "train/train.h"

typedef struct by__job {
    const by_train_options *options;
    by_config *config; /* complete: the vocabulary is known */
    char config_hash[33];
    by_data_paths paths;
    by_trainer *trainer;
    by_dataset *train_data;
    by_dataset *valid_data; /* NULL when nothing is held out */
    by_loader *loader;
    by_loader *valid_loader;
    by_events *events;
    by_registry *registry;
    char *run;         /* run directory */
    char *checkpoints; /* RUN/checkpoints */
    char started[24];  /* UTC */
    int64_t eos;       /* id of the end-of-text token; -1: none */
    char *eos_token;   /* its text; NULL: none */
    uint64_t sample;   /* where the loader begins */
    int64_t first_step;
    int64_t saved_step; /* of the newest checkpoint; -1: none */
    double best_loss;   /* NaN: none yet */
    uint64_t best_step;
    bool eval_pending; /* the evaluation of the present step is still to be done */
    bool is_torn;      /* a step has failed part-way: what it leaves is not worth saving */
    double log_time;   /* when the last logged step ended */
    int64_t log_step;
} by__job;

/* Whether there is anything to restore: a run that was killed before its first save begins
 * again. */
by_status by__job_is_saved(bool *saved, const by__job *job, by_error *error);
/* Checkpoint of the present state, and back. */
by_status by__job_save(by__job *job, by_error *error);
by_status by__job_restore(by__job *job, by_error *error);

/* Makes RUNS/NAME (or NAME-2, ...); a resumed run's directory is job->run already. */
by_status by__run_dir_open(by__job *job, by_error *error);
/* Writes config.yaml and environment.json, opens events (behind first_step: dropped) and
 * registry. */
by_status by__run_dir_start(by__job *job, by_error *error);
/* Writes run.json and the registry's row. */
by_status by__run_dir_update(by__job *job, const char *status, by_error *error);

by_status by__open_evaluation(by_dataset **dataset, by_loader **loader, const by_config *config,
                              const char *data, by_error *error);
by_status by__evaluate_loader(by_evaluation *out, by_trainer *trainer, by_loader *loader,
                              int64_t batches, bool (*stop)(void *user), void *user,
                              by_error *error);

#endif
