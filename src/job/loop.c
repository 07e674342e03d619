/* by_train: opens data, trainer and run directory, restores a checkpoint if there is one, runs the
 * steps, and ends the run. loop.h lists the files that it uses. */
#include "job/job.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export/export.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

/* ---- opening ---- */

/* Completes the config of a resumed run. It does not need the directory that its weights originally
 * came from: its config has the sizes, its checkpoints the rest. */
static by_status complete_resumed(by__job *job, by_error *error)
{
    by_config *c = job->config;
    char none[] = "";
    char *from = c->model.from;
    char *adapters = c->lora.from;
    c->model.from = none;
    c->lora.from = none;
    by_status status = by_task_complete(job->data, c, error);
    c->model.from = from;
    c->lora.from = adapters;
    return status;
}

/* Completes the config from its data and weights. */
static by_status complete_config(by__job *job, by_error *error)
{
    return job->options->resume != NULL ? complete_resumed(job, error)
                                        : by_task_complete(job->data, job->config, error);
}

/* Plans the loaders; only the data are allocated so far. */
static by_status plan_data(by__job *job, by_error *error)
{
    BY_TRY(by_trainer_plan_loaders(job->trainer, job->data->valid_examples > 0, error));
    by_trainer_plan_data(job->trainer, job->data->bytes);
    by_trainer_plan_staging(job->trainer);
    /* Sources are opened before anything large is allocated, so their temporary memory fits into
     * what the trainer allocates later. */
    const by_memory_report *memory = by_trainer_memory(job->trainer);
    uint64_t rest = memory->total - memory->process;
    if (job->data->opening_bytes > rest) {
        by_trainer_plan_data(job->trainer, job->data->opening_bytes - rest);
    }
    by_train_event event = {.kind = BY_TRAIN_PLANNED,
                            .memory = by_trainer_memory(job->trainer),
                            .size = by_trainer_size(job->trainer),
                            .train_examples = job->data->train_examples,
                            .valid_examples = job->data->valid_examples,
                            .held_out = job->data->held_out,
                            .text = job->data->summary};
    by__job_send(job, &event);
    return by__job_fits(job, error);
}

static by_status open_loaders(by__job *job, by_error *error)
{
    BY_TRY(by_trainer_loader(&job->loader, job->trainer, job->data, true, error));
    if (job->data->valid_examples == 0) {
        return BY_OK;
    }
    BY_TRY(by_trainer_loader(&job->valid_loader, job->trainer, job->data, false, error));
    return by__job_outcomes_open(&job->valid.outcomes, job->config, job->data, error);
}

/* Steps cannot be taken back: a run that is past its end would be said to be complete. */
static by_status check_steps(const by__job *job, by_error *error)
{
    long long done = (long long)job->at.first_step;
    long long steps = (long long)job->config->train.steps;
    if (done <= steps) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s is at step %lld, past train.steps %lld; to continue, give more: --set "
                        "train.steps=%lld; for a shorter run, start a new one",
                        job->dir.path, done, steps, 2 * done);
}

/* ---- parameters that the weights to start from do not give (model.new) ---- */

static by_status name_them(const by__job *job, by_string *names, by_error *error)
{
    by_weights *weights;
    BY_TRY(by_weights_open(&weights, job->config->model.from, error));
    by_status status = by__export_new_parameters(names, job->config, weights, error);
    by_weights_close(&weights);
    return status;
}

/* Notes which parameters of a new run model.new leaves as they begin. */
static by_status note_new_parameters(const by__job *job, by_error *error)
{
    const by_model_config *model = &job->config->model;
    by_string names = {0};
    if (model->new_parameters.count == 0 || job->options->resume != NULL) {
        return BY_OK;
    }
    if (model->from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "model.new is %s, and without weights to start from all parameters are "
                            "new: set model.from",
                            model->new_parameters.items[0]);
    }
    by_status status = name_them(job, &names, error);
    if (status == BY_OK && by__job_leads(job)) {
        by__job_note(job, "these parameters are new, and not those of model.from=%.200s: %s",
                     model->from, names.data);
    }
    by_string_free(&names);
    return status;
}

/* ---- the weights at the start ---- */

static bool stop_references(void *user)
{
    return by__job_stopped(user);
}

/* Compares the data with the weights at the start, if the task does; loaders have the values. */
static by_status find_references(by__job *job, by_error *error)
{
    const by__job_reference_user user = {.begins = true,
                                         .leads = by__job_leads(job),
                                         .recipe = by__job_recipe(job),
                                         .stop = stop_references,
                                         .user = job};
    if (!by__job_has_references(job->data, job->config)) {
        return BY_OK;
    }
    by_loader_close(&job->loader);
    by_loader_close(&job->valid_loader);
    by__job_outcomes_close(&job->valid.outcomes);
    BY_TRY(by__job_references(job->trainer, job->data, &user, error));
    return open_loaders(job, error);
}

static by_status start_weights(by__job *job, by_error *error)
{
    const char *from = job->config->model.from;
    bool restored = false;
    BY_TRY(find_references(job, error));
    if (job->options->resume != NULL) {
        BY_TRY(by__job_restore(&restored, job, error));
    }
    if (restored) {
        job->at.first_step = by_trainer_updates(job->trainer);
        job->saved.step = job->at.first_step;
        BY_TRY(check_steps(job, error));
        return by_loader_seek(job->loader, job->at.sample, error);
    }
    BY_TRY(by_trainer_initialize(job->trainer, error));
    if (from[0] == '\0') {
        return BY_OK;
    }
    by_weights *weights;
    BY_TRY(by_weights_open(&weights, from, error));
    by_status status =
        by__trainer_start_from(job->trainer, weights, job->data->known_tokens, error);
    by_weights_close(&weights);
    const by__trainer_recipe recipe = by__job_recipe(job);
    return status == BY_OK ? by__trainer_adapters_load(job->trainer, job->config, &recipe, error)
                           : status;
}

/* Checks that all ranks are at the same step with the same config. */
static by_status compare_ranks(const by__job *job, by_error *error)
{
    char step[32];
    (void)snprintf(step, sizeof step, "%lld", (long long)job->at.first_step);
    BY_TRY(by__job_same(job, job->config_hash, "the hash of the config", error));
    return by__job_same(job, step, "the first step", error);
}

/* Sets the run directory on all ranks; rank 0 has found or created it. */
static by_status share_run(by__job *job, by_error *error)
{
    BY_TRY(by__job_share_text(job, &job->dir.path, "the run directory", error));
    return by__job_leads(job) ? BY_OK : by__job_run_dir_name(job, error);
}

static void track_start(by__job *job)
{
    const by_step_forecast *forecast = &job->forecast.step;
    by_train_event event = {.kind = BY_TRAIN_STARTED,
                            .forecast = forecast->seconds > 0.0 ? forecast : NULL,
                            .memory = by_trainer_memory(job->trainer),
                            .size = by_trainer_size(job->trainer),
                            .train_examples = job->data->train_examples,
                            .valid_examples = job->data->valid_examples};
    by__track_begin(job->tracker, BY__EVENT_BEGIN, "run", (uint64_t)job->at.first_step);
    by__track_text(job->tracker, "config", job->dir.config_text);
    by__track_text(job->tracker, "config_hash", job->config_hash);
    by__track_text(job->tracker, "environment", job->dir.environment);
    by__job_report(job, &event);
    by__track_end(job->tracker);
    by__job_damage_start(job);
}

by_status by__job_prepare(by__job *job, by_error *error)
{
    const by_trainer_options *own = job->options->trainer;
    by_comm *comm = own == NULL ? NULL : own->comm;
    by__trainer_layout layout;
    /* On all ranks, before they wait for each other. */
    BY_TRY(by__job_run_dir_check(job->options->config, error));
    int ranks = comm == NULL ? 1 : by_comm_size(comm);
    BY_TRY(by_config_copy(&job->config, job->options->config, error));
    BY_TRY(by_config_fit_ranks(job->config, ranks, error));
    BY_TRY(by__trainer_layout_resolve(&layout, job->config, ranks,
                                      comm == NULL ? 0 : by_comm_rank(comm), error));
    job->comm = layout.ranks > 1 ? comm : NULL;
    bool leads = by__job_leads(job);
    BY_TRY(by__job_alike(job, error));
    if (job->options->resume != NULL) {
        BY_TRY(leads ? by__job_run_dir_find(job, error) : BY_OK);
        BY_TRY(share_run(job, error));
        BY_TRY(by__job_choices_read(job, error));
    }
    const by_lora_config *lora = &job->config->lora;
    if (lora->rank > 0 && job->config->model.from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "lora.rank is %lld, and adapters change weights that are trained "
                            "already: set model.from",
                            (long long)lora->rank);
    }
    if (lora->from[0] != '\0' && job->config->model.from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "lora.from is %s, and its adapters change weights that are trained "
                            "already: set model.from",
                            lora->from);
    }
    BY_TRY(by__job_open_data(job, error));
    BY_TRY(by__job_damage_open(job, error));
    BY_TRY(complete_config(job, error));
    BY_TRY(by__job_same_data(job, error));
    by_trainer_options options = own == NULL ? (by_trainer_options){0} : *own;
    options.data_bytes = job->data->bytes;
    options.choices = job->dir.choices == NULL ? options.choices : job->dir.choices;
    BY_TRY(by_trainer_open_fitting(&job->trainer, job->config, &options, error));
    BY_TRY(note_new_parameters(job, error));
    BY_TRY(by_config_hash(job->config, job->config_hash, error));
    BY_TRY(by__job_rollouts_open(job, error));
    BY_TRY(plan_data(job, error));
    BY_TRY(open_loaders(job, error));
    BY_TRY(by_trainer_allocate(job->trainer, error));
    return by_trainer_set_data(job->trainer, job->data, error);
}

static by_status open_job(by__job *job, by_error *error)
{
    BY_TRY(by__job_prepare(job, error));
    bool leads = by__job_leads(job);
    if (job->options->resume == NULL) {
        BY_TRY(leads ? by__job_run_dir_make(job, error) : BY_OK);
        BY_TRY(share_run(job, error));
    }
    BY_TRY(by__job_saving_open(job, error));
    BY_TRY(start_weights(job, error));
    BY_TRY(compare_ranks(job, error));
    BY_TRY(by__job_cores(job, error));
    BY_TRY(by__job_times_open(job, error));
    BY_TRY(by__job_layers_open(job, error));
    BY_TRY(by__job_activations_open(job, error));
    BY_TRY(by__job_sample_open(job, error));
    job->at.done_step = by_trainer_updates(job->trainer);
    if (leads) {
        by__job_forecast_open(job);
        BY_TRY(by__job_run_dir_start(job, error));
        track_start(job);
    }
    BY_TRY(by__job_choices_keep(job, error));
    if (leads && job->config->track.system_every > 0) {
        (void)by_device_meter_open(&job->meter, job->config->device, NULL);
    }
    return BY_OK;
}

void by__job_release(by__job *job)
{
    by__job_saving_close(job);
    by__track_tracker_close(&job->tracker);
    by_device_meter_close(&job->meter);
    by__job_meter_close(&job->energy);
    by__job_times_close(&job->timing.times);
    by__job_layers_close(&job->layers);
    by__job_activations_close(&job->activations);
    by__job_sample_close(&job->texts);
    by__job_rollouts_close(job);
    by_loader_close(&job->loader);
    by_loader_close(&job->valid_loader);
    by__job_outcomes_close(&job->valid.outcomes);
    by_task_close(&job->data);
    by_trainer_close(&job->trainer);
    by_config_close(&job->config);
    by__track_run_unlock(&job->dir.lock);
    if (job->dir.handle >= 0) {
        (void)close(job->dir.handle);
    }
    free(job->dir.config_text);
    free(job->dir.environment);
    free(job->dir.checkpoints);
    free(job->dir.choices);
    free(job->dir.path);
}

/* ---- the loop ---- */

static int64_t steps_ahead(const by__job *job)
{
    return by_trainer_updates(job->trainer) - job->at.done_step;
}

/* The examples of a micro-batch, as the task counts them. */
static double micro_batch_examples(const by__job *job)
{
    return (double)job->config->train.micro_batch *
           (double)by__trainer_per_sample(by_trainer_task(job->trainer), job->config);
}

/* Collects the oldest step in flight, if it is done or `wait`, and runs its hooks. */
static by_status collect_step(by__job *job, bool wait, by_error *error)
{
    by_step_result result;
    bool got;
    bool back;
    job->saved.state_incomplete = steps_ahead(job) > 0;
    by_status status = by_trainer_collect(job->trainer, wait, &got, &result, error);
    if (status != BY_OK || !got) {
        return status == BY_EDIVERGED ? by__job_diverged(job, job->at.done_step + 1, error)
                                      : status;
    }
    job->at.done_step = result.step;
    by__job_forecast_step(job);
    job->log.examples += result.examples;
    by__job_noise_add(&job->log.noise, &result, micro_batch_examples(job));
    job->log.exchange += result.exchange;
    job->log.exposed += result.exposed;
    job->log.disk += result.disk;
    by__job_damage_collected(job, result.step);
    job->saved.state_incomplete = steps_ahead(job) > 0;
    status = by__job_guard(job, &result, &back, error);
    if (status == BY_EDIVERGED) {
        return by__job_diverged(job, result.step, error);
    }
    if (status != BY_OK || back) {
        return status;
    }
    BY_TRY(by__job_saving_poll(job, error));
    by__job_meter_update(&job->energy, false);
    return by__job_hooks_run(job, &result, error);
}

static by_status stopped(const by__job *job, by_error *error)
{
    return by_error_set(error, BY_ESTOPPED, "stopped at step %lld of %lld",
                        (long long)job->at.done_step, (long long)job->config->train.steps);
}

static by_status submit_step(by__job *job, by_error *error)
{
    by_batch batch;
    by__job_moment began = by__job_moment_now(job);
    BY_TRY(by_trainer_begin_step(job->trainer, job->loader, error));
    by_status status = by__job_next_batch(job, &batch, error);
    double waited = by__job_own_since(job, &began);
    job->timing.own.part[BY__OWN_DATA] += (float)waited;
    job->log.data_seconds += waited;
    if (status != BY_OK) {
        /* The steps in flight are worth saving. */
        by_error ignored;
        while (steps_ahead(job) > 0 && collect_step(job, true, &ignored) == BY_OK) {
        }
        return status == BY_ESTOPPED ? stopped(job, error) : status;
    }
    job->saved.state_incomplete = true;
    BY_TRY(by_trainer_submit(job->trainer, &batch, error));
    job->at.loader_position[by_trainer_updates(job->trainer) % BY_STEPS_AHEAD] =
        by_loader_position(job->loader);
    by__job_damage_submitted(job, &batch);
    return BY_OK;
}

/* Returns true if the batch size changes: steps of one size are collected before those of another
 * begin. */
static bool batch_changes(const by__job *job, int64_t step)
{
    return by_config_batch(job->config, step) != by_config_batch(job->config, step - 1);
}

/* Called equally often on all ranks, since they submit the same steps. */
static by_status agree_to_stop(by__job *job, by_error *error)
{
    if (by__trainer_is_late(job->trainer)) {
        job->is_stopping = by__trainer_agree_to_stop(job->trainer, by__job_stopped(job));
        return BY_OK;
    }
    return by__job_agree(job, by__job_stopped(job), error);
}

static void warn_of_formats(const by__job *job)
{
    if (job->config->precision.tf32 != 0 && !job->trainer->device->has_tf32 && by__job_leads(job)) {
        by__job_note(job, "precision.tf32: products on this device are those of f32; GPUs have "
                          "tf32");
    }
    /* Products of fp16 use f32 kernels, on every processor. */
    if (by__trainer_compute_dtype(job->config) == BY_F16 && job->trainer->device->host_memory &&
        by__job_leads(job)) {
        by__job_note(job, "precision.compute fp16 is slow on this device, whose matrix products "
                          "convert it to f32; bf16 needs the same memory and is faster");
    }
}

/* A run that is resumed after its last step ends at once: says how to continue it. */
static void note_complete(const by__job *job)
{
    long long done = (long long)job->at.done_step;
    long long steps = (long long)job->config->train.steps;
    if (job->options->resume != NULL && done >= steps) {
        by__job_note(job,
                     "%s: step %lld of train.steps %lld is done, so there is nothing left to "
                     "train; to continue, give more steps: --set train.steps=%lld",
                     job->dir.path, done, steps, 2 * done);
    }
}

/* Results are read while the next step is in flight, so a device never waits for the host; on the
 * CPU a step is done when it was submitted. */
static by_status run_steps(by__job *job, by_error *error)
{
    int64_t last = job->config->train.steps;
    warn_of_formats(job);
    note_complete(job);
    BY_TRY(by__job_hooks_begin(job, error));
    while (job->at.done_step < last) {
        int64_t submitted = by_trainer_updates(job->trainer);
        bool hold =
            submitted == last ||
            (steps_ahead(job) > 0 && (job->rollouts != NULL || by__job_hooks_wait(job, submitted) ||
                                      batch_changes(job, submitted)));
        by__job_progress(job, "step");
        if (!hold && !job->is_stopping) {
            BY_TRY(agree_to_stop(job, error));
        }
        if (job->is_stopping && steps_ahead(job) == 0) {
            return stopped(job, error);
        }
        hold = hold || job->is_stopping;
        if (!hold) {
            BY_TRY(submit_step(job, error));
        }
        bool wait = hold || steps_ahead(job) == BY_STEPS_AHEAD ||
                    by__trainer_scales_loss_dynamically(job->config);
        BY_TRY(collect_step(job, wait, error));
    }
    return BY_OK;
}

/* However the loop ended (a request, unreadable data), saves the state if possible: with several
 * ranks only if all of them end in this way, i.e. at a request to stop. A failure while saving does
 * not hide the reason for the end. */
static by_status finish(by__job *job, by_status status, by_error *error)
{
    const char *word = status == BY_OK ? "done" : status == BY_ESTOPPED ? "stopped" : "failed";
    bool together = job->comm == NULL || status == BY_ESTOPPED;
    by_error saving = {0};
    by_status saved = by__job_saving_wait(job, &saving);
    if (status == BY_OK && saved != BY_OK) {
        status = by_error_set(error, saved, "%s", saving.message);
        word = "failed";
        together = job->comm == NULL;
    }
    if (status != BY_OK && !job->saved.state_incomplete && together) {
        job->saved.is_ending = true;
        saved = by__job_checkpoint(job, false, &saving);
        saved = saved == BY_OK ? by__job_saving_wait(job, &saving) : saved;
        if (saved != BY_OK && status == BY_ESTOPPED) {
            if (by__job_leads(job)) {
                by__job_run_dir_update(job, "failed");
            }
            return by_error_set(error, saving.status, "stopped, but the state was not saved: %s",
                                saving.message);
        }
    }
    if (!by__job_leads(job)) {
        return status;
    }
    by__job_run_dir_update(job, word);
    by__job_damage_end(job);
    by_error late = {0};
    by__job_forecast_end(job);
    by__job_energy_track(job);
    by__track_begin(job->tracker, BY__EVENT_END, "run", (uint64_t)job->at.done_step);
    by__track_text(job->tracker, "status", word);
    if (job->skipped.samples > 0) {
        by__track_integer(job->tracker, "damaged_samples", (int64_t)job->skipped.samples);
    }
    by__track_end(job->tracker);
    by__job_energy_note(job);
    if (by__track_tracker_flush(job->tracker, &late) != BY_OK) {
        if (status == BY_OK) {
            return by_error_set(error, late.status, "everything is saved, but not all events: %s",
                                late.message);
        }
        by__job_note(job, "%s", late.message);
    }
    return status;
}

/* Waits until rank 0 has written everything; a failure of one rank ends all. */
static by_status end_together(const by__job *job, bool began, by_status status, by_error *error)
{
    if (job->comm == NULL) {
        return status;
    }
    if (status != BY_OK && !(began && status == BY_ESTOPPED)) {
        return by_comm_fail(job->comm, status, error);
    }
    by_error late = {0};
    if (by_comm_barrier(job->comm, "the end of the run", &late) != BY_OK) {
        return by_error_set(error, late.status, "%s", late.message);
    }
    return status;
}

by__job by__job_of(const by_train_options *options)
{
    return (by__job){.options = options,
                     .dir = {.lock = -1, .handle = -1},
                     .saved = {.step = -1, .good_step = -1},
                     .best = {.loss = (double)NAN, .metric = (double)NAN},
                     .valid = {.step = -1}};
}

by_status by_train(const by_train_options *options, char **run, by_error *error)
{
    if (run != NULL) {
        *run = NULL;
    }
    by__job job = by__job_of(options);
    by_status status = open_job(&job, error);
    bool began = status == BY_OK;
    if (began) {
        status = finish(&job, run_steps(&job, error), error);
    }
    status = end_together(&job, began, status, error);
    if (run != NULL && (began || status != BY_ESTOPPED)) { /* stopped before there was a run */
        *run = job.dir.path;
        job.dir.path = NULL;
    }
    by__job_release(&job);
    return status;
}
