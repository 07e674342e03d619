/* Restoring a checkpoint, when a run is resumed or goes back. save.c is the counterpart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "checkpoint/weights/adapter.h"
#include "job/job.h"
#include "tasks/teacher.h"
#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"
#include "trainer/state/guard.h"
#include "trainer/state/trainer.h"

/* Refuses a teacher other than the checkpoint's. */
static by_status check_teacher(const by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const char *now = by__trainer_teacher_hash(job->trainer);
    const char *then;
    if (now[0] == '\0' ||
        by_checkpoint_value_string(checkpoint, "teacher_hash", &then, NULL) != BY_OK ||
        strcmp(then, now) == 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s was trained with other teacher weights (%.8s) than %s has now (%.8s): "
                        "name the checkpoint with these weights, not its run",
                        by_checkpoint_path(checkpoint), then, by__task_teacher_key(job->config),
                        now);
}

/* Restores the numbers that are saved with the tensors. */
static by_status restore_values(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    uint64_t seed;
    uint64_t pending;
    BY_TRY(check_teacher(job, checkpoint, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "sample", &job->at.sample, error));
    BY_TRY(by_checkpoint_value_f64(checkpoint, "best_loss", &job->best.loss, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "best_step", &job->best.step, error));
    if (job->data->task->best_by_metric) {
        BY_TRY(by_checkpoint_value_f64(checkpoint, "best_metric", &job->best.metric, error));
    }
    BY_TRY(by_checkpoint_value_u64(checkpoint, "eval_pending", &pending, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "seed", &seed, error));
    job->valid.is_pending = pending != 0;
    if (seed != job->config->seed) {
        return by_error_set(error, BY_ECONFIG,
                            "the checkpoint was trained with seed %llu, not %llu",
                            (unsigned long long)seed, (unsigned long long)job->config->seed);
    }
    return BY_OK;
}

/* A value that a checkpoint only has if it is not 0. */
static int64_t count_of(const by_checkpoint *checkpoint, const char *key)
{
    uint64_t value;
    bool has = by_checkpoint_value_u64(checkpoint, key, &value, NULL) == BY_OK;
    return has && value <= INT64_MAX ? (int64_t)value : 0;
}

/* A checkpoint without these values is from a run without a dynamic loss scale. */
static by_status restore_loss_scale(by__trainer_guard *guard, const by__job *job,
                                    const by_checkpoint *checkpoint, by_error *error)
{
    const by_precision_config *p = &job->config->precision;
    double scale;
    uint64_t steps;
    if (!by__trainer_scales_loss_dynamically(job->config) ||
        by_checkpoint_value_f64(checkpoint, "loss_scale", &scale, NULL) != BY_OK) {
        return BY_OK;
    }
    BY_TRY(by_checkpoint_value_u64(checkpoint, "loss_scale_steps", &steps, error));
    if (!(scale >= p->min_loss_scale && scale <= p->max_loss_scale) ||
        steps > by_checkpoint_step(checkpoint)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the loss scale is %g after %llu steps, which precision.* allows "
                            "from %g to %g",
                            by_checkpoint_path(checkpoint), scale, (unsigned long long)steps,
                            p->min_loss_scale, p->max_loss_scale);
    }
    guard->loss_scale = (by__trainer_loss_scale){.scale = scale, .steps = (int64_t)steps};
    return BY_OK;
}

/* Called after the optimizer's state was restored. */
static by_status restore_guard(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const char *losses;
    int64_t step = (int64_t)by_checkpoint_step(checkpoint);
    by__trainer_guard guard = {.skipped = count_of(checkpoint, "skipped"),
                               .in_row = count_of(checkpoint, "skipped_in_row"),
                               .loss_scale = by__trainer_loss_scale_first(job->config)};
    if (guard.skipped > step || guard.in_row > guard.skipped) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %lld of %lld steps were skipped, the last %lld in a row",
                            by_checkpoint_path(checkpoint), (long long)guard.skipped,
                            (long long)step, (long long)guard.in_row);
    }
    BY_TRY(restore_loss_scale(&guard, job, checkpoint, error));
    if (by_checkpoint_value_string(checkpoint, "losses", &losses, NULL) == BY_OK) {
        by_status status = by__trainer_window_parse(&guard, losses, error);
        if (status != BY_OK) {
            return by_error_prefix(error, status, "%s", by_checkpoint_path(checkpoint));
        }
    }
    by__trainer_set_guard(job->trainer, &guard);
    return BY_OK;
}

/* Determines the checkpoint that the job would go back to. */
static void restore_rollback(by__job *job, const by_checkpoint *checkpoint)
{
    uint64_t step;
    job->saved.rollbacks = count_of(checkpoint, "rollbacks");
    job->saved.good_step = (int64_t)by_checkpoint_step(checkpoint);
    if (by_checkpoint_value_u64(checkpoint, "rollback_step", &step, NULL) == BY_OK) {
        job->saved.good_step = step == 0 ? -1 : (int64_t)step;
    }
}

/* Two optimizers may keep states of equal names and shapes with different meanings. Older
 * checkpoints lack this value. */
static by_status check_optimizer(const by__job *job, const by_checkpoint *checkpoint,
                                 by_error *error)
{
    const char *kind = job->config->optimizer.kind;
    const char *then;
    if (by_checkpoint_value_string(checkpoint, "optimizer", &then, NULL) == BY_OK &&
        strcmp(then, kind) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was trained with optimizer.kind %s, not %s; leave it as it was, or "
                            "start a new run with model.from",
                            by_checkpoint_path(checkpoint), then, kind);
    }
    return BY_OK;
}

/* Adapters of another rank have other shapes. */
static by_status check_adapters(const by__job *job, const by_checkpoint *checkpoint,
                                by_error *error)
{
    by_adapter *adapter;
    const char *path = by_checkpoint_path(checkpoint);
    long long now = (long long)job->config->lora.rank;
    long long then = 0;
    if (by__checkpoint_adapter_is_in(path)) {
        BY_TRY(by_adapter_open(&adapter, path, error));
        then = (long long)by_adapter_describe(adapter)->rank;
        by_adapter_close(&adapter);
    }
    return then == now
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s was trained with lora.rank %lld, not %lld; leave it as it was, "
                              "or start a new run",
                              path, then, now);
}

static by_status restore_tensors(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const by_weights *states = by_checkpoint_optimizer(checkpoint);
    BY_TRY(by_trainer_load_weights(job->trainer, by_checkpoint_model(checkpoint), error));
    if (states == NULL && by_trainer_state_count(job->trainer) > 0) {
        return by_error_set(error, BY_EFORMAT, "%s has no optimizer state to resume from",
                            by_checkpoint_path(checkpoint));
    }
    return by_trainer_load_optimizer(job->trainer, states, (int64_t)by_checkpoint_step(checkpoint),
                                     error);
}

/* The lines of a section in a printed config; "" if it has none. */
static const char *section_lines(const char *printed, const char *section)
{
    char name[32];
    (void)snprintf(name, sizeof name, "\n%s:\n", section);
    const char *begin = strstr(printed, name);
    return begin == NULL ? "" : begin + strlen(name);
}

/* Compares " key: value" lines to the end of the section. */
static by_status compare_lines(const char *path, const char *section, const char *then,
                               const char *now, by_error *error)
{
    while (now[0] == ' ' && then[0] == ' ') {
        size_t then_length = strcspn(then, "\n");
        size_t now_length = strcspn(now, "\n");
        if (then_length != now_length || memcmp(then, now, now_length) != 0) {
            size_t key = strcspn(now, ":");
            size_t then_key = strcspn(then, ":");
            return by_error_set(error, BY_ECONFIG,
                                "%s was trained with %s.%.*s%.*s, not%.*s; leave it as it was, "
                                "or start a new run",
                                path, section, (int)then_key - 2, then + 2,
                                (int)(then_length - then_key - 1), then + then_key + 1,
                                (int)(now_length - key - 1), now + key + 1);
        }
        then += then_length + 1;
        now += now_length + 1;
    }
    return BY_OK;
}

/* Compares the printed configs of two models. */
static by_status compare_models(const char *path, const char *then, const char *now,
                                by_error *error)
{
    static const char *const sections[] = {"model",    "attention", "values", "residual",
                                           "position", "norm",      "mlp",    "activation"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sections); i++) {
        BY_TRY(compare_lines(path, sections[i], section_lines(then, sections[i]),
                             section_lines(now, sections[i]), error));
    }
    return BY_OK;
}

/* The printed config of the model in a config.json; keys that it lacks have their defaults. Freed
 * with free(). */
static by_status print_described(char **out, const char *path, const char *json, by_error *error)
{
    by_config *config;
    BY_TRY(by_config_default(&config, error));
    by_status status = by_model_config_from_json(&config->model, path, json, strlen(json), error);
    if (status == BY_OK) {
        status = by_config_resolve(config, error);
    }
    if (status == BY_OK) {
        status = by_config_print(config, out, error);
    }
    by_config_close(&config);
    return status;
}

/* BY_ECONFIG if the checkpoint's model is not the config's. Both are compared as config.json
 * describes them, so that exactly the keys that determine a model count, whatever the family. */
static by_status check_model(const by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    char *then = NULL;
    char *now = NULL;
    char *present = NULL;
    const char *path = by_checkpoint_path(checkpoint);
    const char *json = by_weights_config(by_checkpoint_model(checkpoint));
    if (json == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s has no config.json", path);
    }
    by_status status = by_model_config_json(&present, &job->config->model, -1, error);
    if (status == BY_OK) {
        status = print_described(&then, path, json, error);
    }
    if (status == BY_OK) {
        status = print_described(&now, job->dir.path, present, error);
    }
    if (status == BY_OK) {
        status = compare_models(path, then, now, error);
    }
    free(then);
    free(now);
    free(present);
    return status;
}

/* Finds whether any directory is named like a checkpoint, and the newest one's step. */
static by_status find_newest(bool *found, uint64_t *newest, const by__job *job, by_error *error)
{
    uint64_t *steps;
    size_t count;
    *found = false;
    *newest = 0;
    if (!by__path_exists(job->dir.checkpoints)) {
        return BY_OK;
    }
    BY_TRY(by__checkpoint_root_steps(&steps, &count, job->dir.checkpoints, error));
    *found = count > 0;
    *newest = count > 0 ? steps[0] : 0;
    free(steps);
    return BY_OK;
}

/* Finds the newest valid checkpoint, on all ranks; rank 0 searches and reports what was skipped.
 * *path is "" if there is none and the run may start over. */
static by_status find_checkpoint(char **path, by__job *job, by_error *error)
{
    by_error reason = {0};
    bool found;
    uint64_t newest;
    uint64_t step = 0;
    char *skipped = NULL;
    BY_TRY(find_newest(&found, &newest, job, error));
    by_status status = found ? by_checkpoint_latest(job->dir.checkpoints, path, &skipped, &reason)
                             : by_error_set(&reason, BY_ESTATE,
                                            "%s ended before its first checkpoint", job->dir.path);
    if (status == BY_ESTATE && job->options->from_start) {
        by__job_note(job, "%s; starting again at step 0", reason.message);
        *path = by__strdup("");
        return *path != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status != BY_OK) {
        return by_error_set(error, status, "%s%s", reason.message,
                            status == BY_ESTATE ? "; start again at step 0 with --from-start" : "");
    }
    if (skipped[0] != '\0' && by__checkpoint_step_of_name(strrchr(*path, '/') + 1, &step)) {
        by__job_note(job,
                     "not a valid checkpoint: %sresuming from step %llu; the %llu steps after it "
                     "are trained again",
                     skipped, (unsigned long long)step, (unsigned long long)(newest - step));
    }
    free(skipped);
    return BY_OK;
}

static by_status restore_from(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const by_task *task = job->data->task;
    if (task->check != NULL) {
        BY_TRY(task->check(job->data, checkpoint, error));
    }
    BY_TRY(check_model(job, checkpoint, error));
    BY_TRY(check_adapters(job, checkpoint, error));
    BY_TRY(check_optimizer(job, checkpoint, error));
    BY_TRY(restore_values(job, checkpoint, error));
    BY_TRY(restore_tensors(job, checkpoint, error));
    BY_TRY(restore_guard(job, checkpoint, error));
    restore_rollback(job, checkpoint);
    by__job_damage_restore(job, checkpoint);
    /* Repairs a crash between writing the best checkpoint and marking it. */
    if (by__job_leads(job) && job->best.step == by_checkpoint_step(checkpoint) &&
        isfinite(job->best.loss)) {
        return by_checkpoint_mark_best(job->dir.checkpoints, job->best.step, job->best.loss, error);
    }
    return BY_OK;
}

by_status by__job_return(by__job *job, int64_t step, by_error *error)
{
    by_checkpoint *checkpoint;
    char *path;
    BY_TRY(by__job_saving_wait(job, error));
    BY_TRY(by__checkpoint_step_path(&path, job->dir.checkpoints, (uint64_t)step, error));
    by_status status = by_checkpoint_open(&checkpoint, path, true, error);
    free(path);
    BY_TRY(status);
    job->saved.state_incomplete = true; /* after a failure half-way there is nothing to save */
    status = restore_tensors(job, checkpoint, error);
    if (status == BY_OK) {
        status = restore_guard(job, checkpoint, error);
    }
    job->saved.state_incomplete = status != BY_OK;
    by_checkpoint_close(&checkpoint);
    return status;
}

by_status by__job_restore(bool *restored, by__job *job, by_error *error)
{
    by_checkpoint *checkpoint = NULL;
    char *path = NULL;
    BY_TRY(by__job_saving_wait(job, error));
    by_status status = by__job_leads(job) ? find_checkpoint(&path, job, error) : BY_OK;
    if (status == BY_OK) {
        status = by__job_share_text(job, &path, "the newest checkpoint", error);
    }
    *restored = status == BY_OK && path[0] != '\0';
    if (*restored) {
        status = by_checkpoint_open(&checkpoint, path, false, error); /* just verified */
    }
    if (*restored && status == BY_OK) {
        status = restore_from(job, checkpoint, error);
        by_checkpoint_close(&checkpoint);
    }
    free(path);
    *restored = *restored && status == BY_OK;
    return status;
}
