#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"

static void send(const by__job *job, by_train_event *event)
{
    if (job->options->event != NULL) {
        event->run = job->run;
        event->steps = job->config->train.steps;
        event->first_step = job->first_step;
        event->step = by_trainer_updates(job->trainer);
        job->options->event(job->options->user, event);
    }
}

static bool stopped(const by__job *job)
{
    return job->options->stop != NULL && job->options->stop(job->options->user);
}

/* ---- opening ---- */

/* A copy of the caller's config that this job may complete. */
static by_status copy_config(by_config **out, const by_config *config, by_error *error)
{
    char *text;
    BY_TRY(by_config_print(config, &text, error));
    by_status status = by_config_parse(out, "config", text, strlen(text), NULL, 0, error);
    free(text);
    return status;
}

/* The end-of-text token, which the checkpoint's config.json and tokenizer_config.json name. */
static by_status find_eos(by__job *job, by_error *error)
{
    by_tokenizer *tokenizer;
    const char *bytes;
    size_t length;
    BY_TRY(by_tokenizer_open(&tokenizer, job->paths.tokenizer, error));
    by_status status = BY_OK;
    job->eos = by_tokenizer_eos(tokenizer);
    if (job->eos >= 0) {
        status = by_tokenizer_token_bytes(tokenizer, (uint32_t)job->eos, &bytes, &length, error);
        if (status == BY_OK && (job->eos_token = by__strndup(bytes, length)) == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: token");
        }
    }
    by_tokenizer_close(&tokenizer);
    return status;
}

static by_status open_data(by__job *job, by_error *error)
{
    const by_config *c = job->config;
    uint64_t bytes;
    uint64_t valid_bytes = 0;
    by_array arrays[2];
    by_loader_options options = {
        .batch = (size_t)c->train.batch, .seed = c->seed, .start = job->sample};
    by_source *source;
    by_token_arrays(arrays, (size_t)c->model.context);
    BY_TRY(by_loader_bytes(&bytes, arrays, 2, &options, error));
    BY_TRY(by_dataset_open(&job->train_data, job->paths.train, NULL, error));
    BY_TRY(by_token_source_open(&source, job->train_data, (size_t)c->model.context, true, error));
    BY_TRY(by_loader_open(&job->loader, source, &options, error));
    if (job->paths.valid != NULL) {
        BY_TRY(
            by__open_evaluation(&job->valid_data, &job->valid_loader, c, job->paths.valid, error));
        options.batch = (size_t)c->train.micro_batch;
        BY_TRY(by_loader_bytes(&valid_bytes, arrays, 2, &options, error));
    }
    by_trainer_plan_data(job->trainer, bytes + valid_bytes);
    return find_eos(job, error);
}

static by_status start_weights(by__job *job, by_error *error)
{
    const char *from = job->config->model.from;
    bool saved = false;
    if (job->options->resume != NULL) {
        BY_TRY(by__job_is_saved(&saved, job, error));
    }
    if (saved) {
        BY_TRY(by__job_restore(job, error));
        job->first_step = by_trainer_updates(job->trainer);
        job->saved_step = job->first_step;
        return by_loader_seek(job->loader, job->sample, error);
    }
    BY_TRY(by_trainer_initialize(job->trainer, error));
    if (from[0] == '\0') {
        return BY_OK;
    }
    by_weights *weights;
    BY_TRY(by_weights_open(&weights, from, error));
    by_status status = by_trainer_load_weights(job->trainer, weights, error);
    by_weights_close(&weights);
    return status;
}

static by_status open_job(by__job *job, by_error *error)
{
    BY_TRY(copy_config(&job->config, job->options->config, error));
    BY_TRY(by_data_prepare(&job->paths, job->config, job->options, error));
    BY_TRY(by_config_complete(job->config, &job->paths, error));
    BY_TRY(by_config_hash(job->config, job->config_hash, error));
    BY_TRY(by_trainer_open(&job->trainer, job->config, BY_TRAINER_FULL, NULL, NULL, error));
    BY_TRY(open_data(job, error));
    BY_TRY(by_trainer_allocate(job->trainer, error));
    if (job->options->resume != NULL) {
        BY_TRY(by_run_find(&job->run, job->options->resume, error));
    }
    BY_TRY(by__run_dir_open(job, error));
    BY_TRY(start_weights(job, error));
    BY_TRY(by__run_dir_start(job, error));
    by_train_event event = {.kind = BY_TRAIN_STARTED,
                            .memory = by_trainer_memory(job->trainer),
                            .size = by_trainer_size(job->trainer),
                            .train_tokens = by_dataset_tokens(job->train_data),
                            .valid_tokens =
                                job->valid_data == NULL ? 0 : by_dataset_tokens(job->valid_data)};
    send(job, &event);
    return BY_OK;
}

static void close_job(by__job *job)
{
    by_events_close(&job->events);
    by_registry_close(&job->registry);
    by_loader_close(&job->loader);
    by_loader_close(&job->valid_loader);
    by_dataset_close(&job->train_data);
    by_dataset_close(&job->valid_data);
    by_trainer_close(&job->trainer);
    by_data_paths_free(&job->paths);
    by_config_close(&job->config);
    free(job->eos_token);
    free(job->checkpoints);
    free(job->run);
}

/* ---- the loop ---- */

static by_status log_step(by__job *job, const by_step_result *result, by_error *error)
{
    int64_t step = by_trainer_updates(job->trainer);
    double now = by_clock();
    double seconds = now - job->log_time;
    int64_t steps = step - job->log_step;
    by_train_event event = {.kind = BY_TRAIN_STEPPED, .result = *result};
    event.step_seconds = seconds / (double)steps;
    event.tokens_per_s = (double)(steps * result->tokens) / seconds;
    event.seconds_left = event.step_seconds * (double)(job->config->train.steps - step);
    event.resident_bytes = by__peak_resident_bytes();
    if (job->options->peak_gflops > 0.0) {
        event.mfu = event.tokens_per_s * by_trainer_size(job->trainer)->flops_per_token /
                    (1e9 * job->options->peak_gflops);
    }
    job->log_time = now;
    job->log_step = step;
    by_events_begin(job->events, "train", (uint64_t)step);
    by_events_number(job->events, "loss", result->loss);
    by_events_number(job->events, "lr", result->lr);
    by_events_number(job->events, "norm", result->norm);
    by_events_number(job->events, "tokens_per_s", event.tokens_per_s);
    by_events_number(job->events, "mfu", event.mfu);
    BY_TRY(by_events_end(job->events, error));
    send(job, &event);
    return BY_OK;
}

/* Evaluation and saving are not training time: the clock of the log line skips them. */
static void restart_clock(by__job *job, double began)
{
    job->log_time += by_clock() - began;
}

static by_status save(by__job *job, by_error *error)
{
    double began = by_clock();
    int64_t step = by_trainer_updates(job->trainer);
    if (job->saved_step == step) {
        return BY_OK;
    }
    BY_TRY(by__job_save(job, error));
    job->saved_step = step;
    BY_TRY(by_checkpoint_prune(job->checkpoints, (size_t)job->config->checkpoint.keep, error));
    BY_TRY(by__run_dir_update(job, "running", error));
    by_train_event event = {.kind = BY_TRAIN_SAVED, .path = job->checkpoints};
    send(job, &event);
    restart_clock(job, began);
    return BY_OK;
}

static by_status evaluate(by__job *job, by_error *error)
{
    double began = by_clock();
    by_evaluation result;
    int64_t step = by_trainer_updates(job->trainer);
    if (job->valid_loader == NULL) {
        return BY_OK;
    }
    job->eval_pending = true; /* until it is done: a run that is stopped here evaluates on resume */
    BY_TRY(by__evaluate_loader(&result, job->trainer, job->valid_loader,
                               job->config->train.eval_batches, job->options->stop,
                               job->options->user, error));
    job->eval_pending = false;
    bool best = isnan(job->best_loss) || result.loss < job->best_loss;
    by_events_begin(job->events, "eval", (uint64_t)step);
    by_events_number(job->events, "valid_loss", result.loss);
    BY_TRY(by_events_end(job->events, error));
    by_train_event event = {.kind = BY_TRAIN_EVALUATED, .valid_loss = result.loss, .best = best};
    send(job, &event);
    restart_clock(job, began);
    if (best) {
        job->best_loss = result.loss;
        job->best_step = (uint64_t)step;
        BY_TRY(save(job, error));
        BY_TRY(by_checkpoint_mark_best(job->checkpoints, (uint64_t)step, result.loss, error));
    }
    return BY_OK;
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

static by_status run_steps(by__job *job, by_error *error)
{
    const by_config *c = job->config;
    int64_t last = c->train.steps;
    job->log_time = by_clock();
    job->log_step = by_trainer_updates(job->trainer);
    if (job->eval_pending) {
        BY_TRY(evaluate(job, error));
    }
    while (by_trainer_updates(job->trainer) < last) {
        by_batch batch;
        by_step_result result;
        if (stopped(job)) {
            return by_error_set(error, BY_ESTOPPED, "stopped at step %lld of %lld",
                                (long long)by_trainer_updates(job->trainer), (long long)last);
        }
        BY_TRY(by_loader_next(job->loader, &batch, error));
        job->is_torn = true;
        BY_TRY(by_trainer_step(job->trainer, &batch, &result, error));
        job->is_torn = false;
        int64_t step = by_trainer_updates(job->trainer);
        if (due(step, c->train.log_every, last) || step == 1) {
            BY_TRY(log_step(job, &result, error));
        }
        if (due(step, c->train.eval_every, last)) {
            BY_TRY(evaluate(job, error));
        }
        if (due(step, c->checkpoint.every, last)) {
            BY_TRY(save(job, error));
        }
    }
    return BY_OK;
}

/* Whatever ends the loop (a request, data that cannot be read), what was learned is kept if it can
 * be. A failure while saving does not hide why the loop ended. */
static by_status finish(by__job *job, by_status status, by_error *error)
{
    const char *word = status == BY_OK ? "done" : status == BY_ESTOPPED ? "stopped" : "failed";
    if (status != BY_OK && !job->is_torn) {
        by_error saving = {0};
        if (save(job, &saving) != BY_OK && status == BY_ESTOPPED) {
            (void)by__run_dir_update(job, "failed", NULL);
            return by_error_set(error, saving.status, "stopped, but the state was not saved: %s",
                                saving.message);
        }
    }
    by_status updated = by__run_dir_update(job, word, status == BY_OK ? error : NULL);
    return status == BY_OK ? updated : status;
}

by_status by_train(const by_train_options *options, char **run, by_error *error)
{
    by__job job = {.options = options, .best_loss = (double)NAN, .saved_step = -1, .eos = -1};
    by_status status = open_job(&job, error);
    if (status == BY_OK) {
        status = finish(&job, run_steps(&job, error), error);
    }
    if (run != NULL) {
        *run = job.run;
        job.run = NULL;
    }
    close_job(&job);
    return status;
}
