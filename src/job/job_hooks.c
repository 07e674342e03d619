/* Actions after a step: log lines, evaluations, checkpoints, statistics of tensors and of the
 * machine. Each is a row of the table of hooks, with a condition and an action. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/guard.h"
#include "trainer/step/trainer_step.h"

/* ---- log lines, checkpoints, evaluations ---- */

/* Seconds for the following steps, whose batches may be larger. */
static double seconds_left(const by__job *job, int64_t step, double examples_per_s)
{
    const by_config *c = job->config;
    uint64_t samples = by_config_samples(c, c->train.steps) - by_config_samples(c, step);
    return (double)samples * (double)by__trainer_per_sample(by_trainer_task(job->trainer), c) /
           examples_per_s;
}

static void track_rollouts(by__track_tracker *tracker, const by_rollout_report *r)
{
    if (r == NULL) {
        return;
    }
    by__track_number(tracker, "reward", r->reward);
    by__track_number(tracker, "pass_at_k", r->pass);
    by__track_number(tracker, "flat_groups", r->flat);
    by__track_number(tracker, "completion_tokens", r->tokens);
    by__track_number(tracker, "cut_completions", r->cut);
    by__track_number(tracker, "kl", r->kl);
    by__track_number(tracker, "rollout_seconds", r->seconds);
}

static void log_step(by__job *job, const by_step_result *result)
{
    char rate[64];
    int64_t step = result->step;
    double now = by_clock();
    double seconds = now - job->log.time;
    int64_t steps = step - job->log.step;
    by_train_event event = {.kind = BY_TRAIN_STEPPED,
                            .result = *result,
                            .exchange = job->log.exchange / (double)steps,
                            .exposed = job->log.exposed / (double)steps,
                            .disk = job->log.disk / (double)steps,
                            .ranks = job->comm == NULL ? 1 : by_comm_size(job->comm)};
    by_rollout_report rollouts;
    event.rollouts = by__job_rollouts_report(job, &rollouts) ? &rollouts : NULL;
    event.step_seconds = seconds / (double)steps;
    event.examples_per_s = (double)job->log.examples / seconds;
    event.seconds_left = seconds_left(job, step, event.examples_per_s);
    event.resident_bytes = by__trainer_resident_bytes();
    job->forecast.resident = event.resident_bytes > job->forecast.resident ? event.resident_bytes
                                                                           : job->forecast.resident;
    if (job->options->peak_gflops > 0.0) {
        event.mfu = event.examples_per_s * by_trainer_size(job->trainer)->flops_per_example /
                    (1e9 * job->options->peak_gflops * job->timing.peaks);
    }
    job->log.time = now;
    job->log.step = step;
    job->log.examples = 0;
    job->log.exchange = 0.0;
    job->log.exposed = 0.0;
    job->log.disk = 0.0;
    if (!by__job_leads(job)) {
        return;
    }
    by__track_tracker *tracker = job->tracker;
    by__track_begin(tracker, BY__EVENT_STEP, "train", (uint64_t)step);
    by__track_number(tracker, "loss", result->loss);
    by__track_number(tracker, "lr", result->lr);
    by__track_number(tracker, "norm", result->norm);
    if (by__trainer_scales_loss_dynamically(job->config)) {
        by__track_number(tracker, "loss_scale", result->loss_scale);
    }
    if (by__job_noise_scale(&job->log.noise) > 0.0) {
        by__track_number(tracker, "noise_scale", by__job_noise_scale(&job->log.noise));
    }
    (void)snprintf(rate, sizeof rate, "%s_per_s", by_trainer_task(job->trainer)->examples);
    by__track_number(tracker, rate, event.examples_per_s);
    track_rollouts(tracker, event.rollouts);
    if (event.ranks > 1) {
        by__track_number(tracker, "exchange_seconds", event.exchange);
        by__track_number(tracker, "exposed_seconds", event.exposed);
    }
    if (by_trainer_memory(job->trainer)->on_disk > 0) {
        by__track_number(tracker, "disk_seconds", event.disk);
    }
    if (event.mfu <= 1.0) { /* a peak that is exceeded was not measured well */
        by__track_number(tracker, "mfu", event.mfu);
    }
    by__job_report(job, &event);
    by__track_end(tracker);
}

/* Evaluation and saving are not training time: excludes them from the rate in log lines. */
static void restart_clock(by__job *job, double began)
{
    double spent = by_clock() - began;
    job->log.time += spent;
    job->forecast.time += job->forecast.time > 0.0 ? spent : 0.0;
}

by_status by__job_checkpoint(by__job *job, bool best, by_error *error)
{
    double began = by_clock();
    by__job_moment moment = by__job_moment_now(job);
    by__job_progress(job, "save");
    if (!job->saved.is_ending) {
        job->saved.good_step = by_trainer_updates(job->trainer);
        job->saved.rollbacks = 0;
    }
    by_status status = by__job_save(job, best, error);
    job->timing.own.part[BY__OWN_SAVING] += (float)by__job_own_since(job, &moment);
    restart_clock(job, began);
    return status;
}

/* Returns true if these weights are better than the best so far: by the task's first metric, if it
 * says so and there is one output, else by the loss. */
static bool is_best(const by__job *job, const by_evaluation *e)
{
    const by_task *task = e->task;
    if (!isfinite(e->loss)) {
        return false;
    }
    if (!task->best_by_metric || e->output_metric_count > 0) {
        return isnan(job->best.loss) || e->loss < job->best.loss;
    }
    double value = e->metrics[0];
    return isfinite(value) && (isnan(job->best.metric) ||
                               (task->metrics[0].higher_is_better ? value > job->best.metric
                                                                  : value < job->best.metric));
}

static void log_evaluation(by__job *job, const by_evaluation *e, bool best)
{
    if (!by__job_leads(job)) {
        return;
    }
    by__track_tracker *tracker = job->tracker;
    by__track_begin(tracker, BY__EVENT_EVALUATION, "eval",
                    (uint64_t)by_trainer_updates(job->trainer));
    by__track_number(tracker, "valid_loss", e->loss);
    for (size_t i = 0; i < e->part_count; i++) {
        by__track_number(tracker, e->parts[i].part->key, e->parts[i].loss);
        if (!isnan(e->parts[i].metric)) {
            by__track_number(tracker, e->parts[i].part->metric_key, e->parts[i].metric);
        }
    }
    for (size_t i = 0; i < e->task->metric_count; i++) {
        if (!isnan(e->metrics[i])) {
            by__track_number(tracker, e->task->metrics[i].name, e->metrics[i]);
        }
    }
    for (size_t i = 0; i < e->output_metric_count; i++) {
        if (!isnan(e->output_metrics[i].value)) {
            by__track_number(tracker, e->output_metrics[i].name, e->output_metrics[i].value);
        }
    }
    by_train_event event = {.kind = BY_TRAIN_EVALUATED, .evaluation = e, .best = best};
    by__job_report(job, &event);
    by__track_end(tracker);
}

/* Called between batches. */
static bool stop_evaluation(void *user)
{
    const by__job *job = user;
    by__job_progress(job, "evaluation");
    return by__job_stopped(job);
}

/* Evaluates the weights or, swapped in temporarily, their average. */
static by_status evaluate_weights(by__job *job, by_evaluation *out, by_error *error)
{
    bool average = job->config->train.eval_ema != 0;
    by_error late = {0};
    if (average) {
        job->saved.state_incomplete = true;
        BY_TRY(by__trainer_swap_average(job->trainer, false, error));
    }
    by_status status = by__job_evaluate_loader(out, job->trainer, job->data, job->valid_loader,
                                               job->config->train.eval_batches, job->valid.outcomes,
                                               stop_evaluation, job, error);
    /* A request to stop reaches all ranks; after another failure the other ranks do not take part
     * in the swap. */
    if (average && (status == BY_OK || status == BY_ESTOPPED || job->comm == NULL)) {
        by_status back = by__trainer_swap_average(job->trainer, true, &late);
        job->saved.state_incomplete = back != BY_OK;
        return back != BY_OK ? by_error_set(error, back, "%s", late.message) : status;
    }
    return status;
}

static by_status evaluate(by__job *job, by_error *error)
{
    double began = by_clock();
    by_evaluation result;
    by__job_moment moment = by__job_moment_now(job);
    int64_t step = by_trainer_updates(job->trainer);
    if (job->valid_loader == NULL) {
        return BY_OK;
    }
    job->valid.is_pending =
        true; /* until it is done: a run that is stopped here evaluates on resume */
    BY_TRY(evaluate_weights(job, &result, error));
    job->valid.is_pending = false;
    job->valid.loss = result.loss;
    job->valid.step = step;
    bool best = is_best(job, &result);
    log_evaluation(job, &result, best);
    restart_clock(job, began);
    job->timing.evaluating += by__job_own_since(job, &moment);
    if (best) {
        job->best.loss = result.loss;
        job->best.metric = result.metrics[0];
        job->best.step = (uint64_t)step;
        BY_TRY(by__job_checkpoint(job, true, error));
    }
    return BY_OK;
}

/* ---- the table ---- */

typedef struct hook {
    const char *name;
    bool (*is_due)(const by__job *job, int64_t step);
    by_status (*run)(by__job *job, const by_step_result *result, by_error *error);
    bool
        /* needs the state after exactly this step: no later one may be submitted before */
        after_step;
} hook;

static bool divides(int64_t interval, int64_t step)
{
    return interval > 0 && step % interval == 0;
}

static bool every(const by__job *job, int64_t step, int64_t interval)
{
    return step == job->config->train.steps || divides(interval, step);
}

static bool log_is_due(const by__job *job, int64_t step)
{
    return step == 1 || every(job, step, job->config->train.log_every);
}

static by_status run_log(by__job *job, const by_step_result *result, by_error *error)
{
    BY_UNUSED(error);
    log_step(job, result);
    return BY_OK;
}

static bool comparison_is_due(const by__job *job, int64_t step)
{
    int64_t interval = job->config->parallel.replica_hash_every;
    return job->comm != NULL && interval > 0 && every(job, step, interval);
}

static by_status run_comparison(by__job *job, const by_step_result *result, by_error *error)
{
    BY_UNUSED(result);
    return by__job_trainer_compare_replicas(job->trainer, error);
}

static bool evaluation_is_due(const by__job *job, int64_t step)
{
    return every(job, step, job->config->train.eval_every);
}

static by_status run_evaluation(by__job *job, const by_step_result *result, by_error *error)
{
    BY_UNUSED(result);
    BY_TRY(by__trainer_finish_exchange(job->trainer, error));
    return evaluate(job, error);
}

static bool norms_are_due(const by__job *job, int64_t step)
{
    return divides(job->config->track.norms_every, step);
}

static by_status run_norms(by__job *job, const by_step_result *result, by_error *error)
{
    return by__job_norms(job, result->step, error);
}

static bool histograms_are_due(const by__job *job, int64_t step)
{
    return divides(job->config->track.histograms_every, step);
}

static by_status run_histograms(by__job *job, const by_step_result *result, by_error *error)
{
    return by__job_histograms(job, result->step, error);
}

static bool activations_are_due(const by__job *job, int64_t step)
{
    return divides(job->config->track.activations_every, step);
}

static by_status run_activations(by__job *job, const by_step_result *result, by_error *error)
{
    return by__job_activations_log(job, result->step, error);
}

static bool system_is_due(const by__job *job, int64_t step)
{
    return divides(job->config->track.system_every, step);
}

/* What the GPU of rank 0 tells. */
static void record_gpu(const by__job *job)
{
    by_device_usage usage;
    if (job->meter == NULL || by_device_meter_read(&usage, job->meter, NULL) != BY_OK) {
        return;
    }
    const struct {
        const char *key;
        double value;
    } values[] = {{"gpu_busy_share", usage.busy},
                  {"gpu_memory_bytes", (double)usage.memory_used},
                  {"gpu_temperature_celsius", usage.celsius},
                  {"gpu_watts", usage.watts}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
        if (values[i].value >= 0.0) {
            by__track_number(job->tracker, values[i].key, values[i].value);
        }
    }
}

/* Statistics of rank 0's machine; unavailable ones are omitted. */
static by_status run_system(by__job *job, const by_step_result *result, by_error *error)
{
    by__track_system_load load;
    BY_UNUSED(error);
    if (!by__job_leads(job)) {
        return BY_OK;
    }
    by__track_system_read(&load, &job->log.system, job->dir.path, "");
    const struct {
        const char *key;
        double value;
    } values[] = {{"cpu_cores", load.cpu_cores},
                  {"cpu_share", load.cpu_share},
                  {"temperature_celsius", load.temperature},
                  {"resident_bytes", load.resident},
                  {"available_bytes", load.available},
                  {"disk_free_bytes", load.disk_free},
                  {"disk_written_bytes", load.written},
                  {"data_wait_seconds",
                   job->log.data_seconds / (double)(result->step - job->log.system_step)}};
    by__track_begin(job->tracker, BY__EVENT_SYSTEM, "system", (uint64_t)result->step);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
        if (isfinite(values[i].value)) {
            by__track_number(job->tracker, values[i].key, values[i].value);
        }
    }
    record_gpu(job);
    by__track_end(job->tracker);
    job->log.system_step = result->step;
    job->log.data_seconds = 0.0;
    return BY_OK;
}

static bool sample_is_due(const by__job *job, int64_t step)
{
    return divides(job->config->track.sample_every, step);
}

/* Like an evaluation this is not training time. */
static by_status run_sample(by__job *job, const by_step_result *result, by_error *error)
{
    double began = by_clock();
    by__job_moment moment = by__job_moment_now(job);
    by__job_progress(job, "sample");
    BY_TRY(by__job_sample_log(job, result->step, error));
    restart_clock(job, began);
    job->timing.evaluating += by__job_own_since(job, &moment);
    return BY_OK;
}

static bool save_is_due(const by__job *job, int64_t step)
{
    return every(job, step, job->config->checkpoint.every) || by__job_interval_is_due(job, step);
}

static by_status run_save(by__job *job, const by_step_result *result, by_error *error)
{
    BY_UNUSED(result);
    BY_TRY(by__job_checkpoint(job, false, error));
    return by__job_interval_saved(job, error);
}

/* In order of execution. */
static const hook hooks[] = {
    {"log", log_is_due, run_log, false},
    {"system", system_is_due, run_system, false},
    {"norms", norms_are_due, run_norms, true},
    {"activations", activations_are_due, run_activations, false},
    {"histograms", histograms_are_due, run_histograms, true},
    {"compare replicas", comparison_is_due, run_comparison, true},
    {"evaluate", evaluation_is_due, run_evaluation, true},
    {"sample", sample_is_due, run_sample, true},
    {"save", save_is_due, run_save, true},
};

bool by__job_hooks_wait(const by__job *job, int64_t step)
{
    bool wanted = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(hooks); i++) {
        wanted = wanted || (hooks[i].after_step && hooks[i].is_due(job, step));
    }
    return wanted;
}

by_status by__job_hooks_run(by__job *job, const by_step_result *result, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(hooks); i++) {
        if (hooks[i].is_due(job, result->step)) {
            BY_TRY(hooks[i].run(job, result, error));
        }
    }
    return BY_OK;
}

by_status by__job_hooks_begin(by__job *job, by_error *error)
{
    job->log.time = by_clock();
    job->log.step = job->at.done_step;
    job->log.system_step = job->at.done_step;
    by__job_interval_begin(job);
    if (by__job_leads(job)) {
        by__job_meter_open(&job->energy, job->config->device);
    }
    if (job->config->track.system_every > 0 && by__job_leads(job)) {
        by__track_system_load before; /* start of the interval for rates */
        by__track_system_read(&before, &job->log.system, job->dir.path, "");
    }
    if (!job->valid.is_pending) {
        return BY_OK;
    }
    BY_TRY(evaluate(job, error));
    if (job->at.done_step > 0 && sample_is_due(job, job->at.done_step)) {
        const by_step_result result = {.step = job->at.done_step};
        BY_TRY(run_sample(job, &result, error));
    }
    if (job->at.done_step > 0 && save_is_due(job, job->at.done_step)) {
        /* A checkpoint written because the run was stopped counts as the one that is due. */
        job->saved.good_step = job->at.done_step;
        job->saved.rollbacks = 0;
    }
    return BY_OK;
}
