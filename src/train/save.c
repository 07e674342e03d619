#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/guards/guard.h"
#include "train/loop.h"

/* A slice to save: where it is in the trainer. */
typedef struct source {
    size_t parameter;
    int state;    /* -1: the parameter itself */
    size_t slice; /* which of those that the trainer holds ... */
    size_t first; /* ... and from which element of it on */
} source;

struct by__held {
    const by_trainer *trainer;
    by__held_slice *slices;
    size_t slice_capacity;
    source *sources;
    size_t source_capacity;
    size_t count;
};

/* `prefix`: "m." of a state. */
static by_status add_slice(by__held *h, const by__held_slice *slice, const source *from,
                           const char *prefix, const char *name, by_error *error)
{
    BY_TRY(by__reserve((void **)&h->slices, &h->slice_capacity, h->count + 1, sizeof *h->slices,
                       error));
    BY_TRY(by__reserve((void **)&h->sources, &h->source_capacity, h->count + 1, sizeof *h->sources,
                       error));
    by__held_slice *out = &h->slices[h->count];
    *out = *slice;
    int length = snprintf(out->name, sizeof out->name, "%s%s", prefix, name);
    if (length < 0 || (size_t)length >= sizeof out->name) {
        return by_error_set(error, BY_EARG, "tensor '%.200s...': its name is too long", name);
    }
    h->sources[h->count++] = *from;
    return BY_OK;
}

/* What a slice of a tensor that files hold in parts, one for each index of the first axis, has of
 * part i: false where it is nothing. `view` is the part. */
static bool slice_of_part(by_tensor_slice *out, const by_tensor_slice *slice,
                          const by_tensor_view *view, int64_t i)
{
    size_t elements = 0;
    *out = (by_tensor_slice){.flat = slice->flat};
    if (slice->flat) {
        (void)by_tensor_size(view, &elements, NULL, NULL);
        int64_t begin = i * (int64_t)elements;
        int64_t first = slice->offset[0] - begin;
        int64_t end = first + slice->shape[0];
        out->offset[0] = first < 0 ? 0 : first;
        out->shape[0] = (end < (int64_t)elements ? end : (int64_t)elements) - out->offset[0];
        return out->shape[0] > 0;
    }
    for (int k = 0; k < view->rank; k++) {
        out->offset[k] = slice->offset[k + 1];
        out->shape[k] = slice->shape[k + 1];
    }
    return i >= slice->offset[0] && i < slice->offset[0] + slice->shape[0];
}

/* A parameter that files hold in parts. */
static by_status add_stacked(by__held *h, const by__held_slice *whole, source from,
                             const char *name, by_error *error)
{
    for (int64_t i = 0; i < whole->shape[0]; i++) {
        by_tensor_view view = {.name = name, .dtype = whole->dtype, .rank = whole->rank};
        by__held_slice part = *whole;
        char part_name[512];
        size_t elements;
        memcpy(view.shape, whole->shape, sizeof view.shape);
        (void)by__stacked_part(&view, part_name, sizeof part_name, i);
        if (!slice_of_part(&part.slice, &whole->slice, &view, i)) {
            continue;
        }
        part.rank = view.rank;
        memset(part.shape, 0, sizeof part.shape);
        memcpy(part.shape, view.shape, (size_t)view.rank * sizeof part.shape[0]);
        BY_TRY(by__slice_check(&view, &part.slice, &elements, error));
        BY_TRY(add_slice(h, &part, &from, "", part_name, error));
        from.first += elements;
    }
    return BY_OK;
}

/* Adds what there is of a parameter (state -1) or of a state of it. */
static by_status add_held(by__held *h, size_t parameter, int state, by_error *error)
{
    char prefix[64] = "";
    const char *name = by_trainer_parameter(h->trainer, parameter).name;
    if (state >= 0) {
        (void)snprintf(prefix, sizeof prefix, "%s.", by_trainer_state_name(h->trainer, state));
    }
    by_dtype dtype = state < 0 ? by_trainer_parameter(h->trainer, parameter).dtype
                               : by_trainer_state(h->trainer, parameter, state).dtype;
    for (size_t i = 0; i < by__trainer_slices(h->trainer, parameter, state); i++) {
        by__trainer_held has;
        by__held_slice s = {.dtype = dtype, .optimizer = state >= 0};
        const source from = {.parameter = parameter, .state = state, .slice = i};
        by__trainer_slice(&has, h->trainer, parameter, state, i);
        s.is_copy = has.is_copy;
        s.slice = has.slice;
        s.rank = has.whole.rank;
        memcpy(s.shape, has.whole.dim, (size_t)s.rank * sizeof s.shape[0]);
        BY_TRY(state < 0 && by__name_is_stacked(name)
                   ? add_stacked(h, &s, from, name, error)
                   : add_slice(h, &s, &from, prefix, name, error));
    }
    return BY_OK;
}

static by_status list_held(by__held *h, by_error *error)
{
    size_t parameters = by_trainer_parameter_count(h->trainer);
    for (size_t i = 0; i < parameters; i++) {
        BY_TRY(add_held(h, i, -1, error));
    }
    for (size_t i = 0; i < parameters; i++) {
        for (int k = 0; k < by_trainer_state_count(h->trainer); k++) {
            BY_TRY(add_held(h, i, k, error));
        }
    }
    return BY_OK;
}

/* A checkpoint with values that are not finite would be the newest valid one and good for
 * nothing. */
static by_status check_finite(const by__held *h, size_t i, const void *values, by_error *error)
{
    const by__held_slice *s = &h->slices[i];
    int64_t count = s->slice.flat ? s->slice.shape[0] : 1;
    for (int k = 0; k < s->rank && !s->slice.flat; k++) {
        count *= s->slice.shape[k];
    }
    return by__all_finite(s->dtype, values, (size_t)count)
               ? BY_OK
               : by_error_set(error, BY_EDIVERGED,
                              "'%s' is not finite after step %lld: no checkpoint is written; go on "
                              "from an earlier one with a lower optimizer.lr",
                              s->name, (long long)by_trainer_updates(h->trainer));
}

by_status by__held_read(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const by__held *h = user;
    const source *from = &h->sources[i];
    BY_TRY(by__trainer_read_slice(h->trainer, from->parameter, from->state, from->slice, data,
                                  owned, error));
    if (from->first > 0) { /* of a stacked parameter */
        *data = (const char *)*data + from->first * by_dtype_size(h->slices[i].dtype);
    }
    by_status status = check_finite(h, i, *data, error);
    if (status != BY_OK) {
        free(*owned);
        *owned = NULL;
    }
    return status;
}

by_status by__held_open(by__held **out, const by_trainer *trainer, by_error *error)
{
    by__held *h;
    BY_TRY(by__alloc((void **)&h, 1, sizeof *h, "a checkpoint", error));
    h->trainer = trainer;
    by_status status = list_held(h, error);
    if (status != BY_OK) {
        by__held_close(&h);
        return status;
    }
    *out = h;
    return BY_OK;
}

void by__held_close(by__held **held)
{
    if (*held != NULL) {
        free((*held)->sources);
        free((*held)->slices);
        free(*held);
        *held = NULL;
    }
}

by_status by__held_plan(by__save_plan *out, const by__held *h, const by__job *job, by_error *error)
{
    return by__save_plan_make(out, job->comm, h->slices, h->count, job->config->parallel.writers,
                              error);
}

/* ---- what is saved with them ---- */

/* How by__job_describe hands on a request. */
typedef by_status taker(by__job *job, const by__save_request *request, by_error *error);

#define GUARD_VALUES 7

/* Of the guards, where there is anything to keep. Returns how many values it is. */
static size_t describe_guard(const by__job *job, by_checkpoint_value *values, by__text *losses)
{
    const by__guard *guard = by__trainer_guard(job->trainer);
    const struct {
        const char *key;
        int64_t value;
        bool kept;
    } counts[] = {
        {"skipped", guard->skipped, guard->skipped > 0},
        {"skipped_in_row", guard->in_row, guard->skipped > 0},
        {"rollbacks", job->rollbacks, job->rollbacks > 0},
        {"rollback_step", job->good_step < 0 ? 0 : job->good_step,
         job->is_ending && strcmp(job->config->guard.spike, "rollback") == 0},
        {"loss_scale_steps", guard->loss_scale.steps, by__scales_loss_dynamically(job->config)},
    };
    size_t count = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(counts); i++) {
        if (counts[i].kept) {
            values[count++] = (by_checkpoint_value){
                .key = counts[i].key, .kind = BY_VALUE_U64, .as.u64 = (uint64_t)counts[i].value};
        }
    }
    if (by__scales_loss_dynamically(job->config)) {
        values[count++] = (by_checkpoint_value){
            .key = "loss_scale", .kind = BY_VALUE_F64, .as.f64 = guard->loss_scale.scale};
    }
    if (guard->count > 0 && by__window_print(losses, guard) == BY_OK) {
        values[count++] = (by_checkpoint_value){
            .key = "losses", .kind = BY_VALUE_STRING, .as.string = losses->data};
    }
    return count;
}

/* What every run keeps, in front of what its task does. */
static by_status describe(by__job *job, by__save_request *request, const by_task_kept *kept,
                          const char *json, taker *take, by_error *error)
{
    by__text losses = {0};
    by_checkpoint_value values[9 + GUARD_VALUES + BY_TASK_FILES] = {
        {.key = "sample", .kind = BY_VALUE_U64, .as.u64 = by_loader_position(job->loader)},
        {.key = "seed", .kind = BY_VALUE_U64, .as.u64 = job->config->seed},
        {.key = "best_loss", .kind = BY_VALUE_F64, .as.f64 = job->best_loss},
        {.key = "best_step", .kind = BY_VALUE_U64, .as.u64 = job->best_step},
        {.key = "eval_pending", .kind = BY_VALUE_U64, .as.u64 = job->eval_pending},
        {.key = "config_hash", .kind = BY_VALUE_STRING, .as.string = job->config_hash},
        {.key = "optimizer", .kind = BY_VALUE_STRING, .as.string = job->config->optimizer.kind},
    };
    by_checkpoint_file files[1 + BY_TASK_FILES] = {
        {.name = "config.json", .data = json, .size = strlen(json)},
    };
    size_t value_count = 7;
    if (job->data->task->best_by_metric) {
        values[value_count++] = (by_checkpoint_value){
            .key = "best_metric", .kind = BY_VALUE_F64, .as.f64 = job->best_metric};
    }
    value_count += describe_guard(job, values + value_count, &losses);
    if (job->valid_step == by_trainer_updates(job->trainer)) {
        values[value_count++] = (by_checkpoint_value){
            .key = "valid_loss", .kind = BY_VALUE_F64, .as.f64 = job->valid_loss};
    }
    for (size_t i = 0; i < kept->value_count; i++) {
        values[value_count++] = kept->values[i];
    }
    for (size_t i = 0; i < kept->file_count; i++) {
        files[1 + i] = kept->files[i];
    }
    request->values = values;
    request->value_count = value_count;
    request->files = files;
    request->file_count = 1 + kept->file_count;
    by_status status = losses.failed ? by_error_set(error, BY_EMEMORY, "out of memory: losses")
                                     : take(job, request, error);
    by__text_free(&losses);
    return status;
}

by_status by__job_describe(by__job *job, by__save_request *request, taker *take, by_error *error)
{
    const by_task *task = job->data->task;
    by_task_kept kept = {.eos = -1};
    char *json = NULL;
    if (!by__job_leads(job)) {
        return take(job, request, error);
    }
    if (task->keep != NULL) {
        BY_TRY(task->keep(job->data, job->config, &kept, error));
    }
    by_status status = by_model_config_json(&json, &job->config->model, kept.eos, error);
    if (status == BY_OK && kept.labels != NULL) {
        status = by_model_config_label(&json, kept.labels, kept.label_count, error);
    }
    if (status == BY_OK) {
        status = describe(job, request, &kept, json, take, error);
    }
    free(json);
    return status;
}

/* The numbers that are saved with the tensors. */
static by_status restore_values(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    uint64_t seed;
    uint64_t pending;
    BY_TRY(by_checkpoint_value_u64(checkpoint, "sample", &job->sample, error));
    BY_TRY(by_checkpoint_value_f64(checkpoint, "best_loss", &job->best_loss, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "best_step", &job->best_step, error));
    if (job->data->task->best_by_metric) {
        BY_TRY(by_checkpoint_value_f64(checkpoint, "best_metric", &job->best_metric, error));
    }
    BY_TRY(by_checkpoint_value_u64(checkpoint, "eval_pending", &pending, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "seed", &seed, error));
    job->eval_pending = pending != 0;
    if (seed != job->config->seed) {
        return by_error_set(error, BY_ECONFIG,
                            "the checkpoint was trained with seed %llu, not %llu",
                            (unsigned long long)seed, (unsigned long long)job->config->seed);
    }
    return BY_OK;
}

/* A value that a checkpoint has if it is not 0. */
static int64_t count_of(const by_checkpoint *checkpoint, const char *key)
{
    uint64_t value;
    bool has = by_checkpoint_value_u64(checkpoint, key, &value, NULL) == BY_OK;
    return has && value <= INT64_MAX ? (int64_t)value : 0;
}

/* A checkpoint without these values is of a run that had no dynamic scale of the loss. */
static by_status restore_loss_scale(by__guard *guard, const by__job *job,
                                    const by_checkpoint *checkpoint, by_error *error)
{
    const by_precision_config *p = &job->config->precision;
    double scale;
    uint64_t steps;
    if (!by__scales_loss_dynamically(job->config) ||
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
    guard->loss_scale = (by__loss_scale){.scale = scale, .steps = (int64_t)steps};
    return BY_OK;
}

/* Behind the optimizer's state. */
static by_status restore_guard(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const char *losses;
    int64_t step = (int64_t)by_checkpoint_step(checkpoint);
    by__guard guard = {.skipped = count_of(checkpoint, "skipped"),
                       .in_row = count_of(checkpoint, "skipped_in_row"),
                       .loss_scale = by__loss_scale_first(job->config)};
    if (guard.skipped > step || guard.in_row > guard.skipped) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %lld of %lld steps were skipped, the last %lld in a row",
                            by_checkpoint_path(checkpoint), (long long)guard.skipped,
                            (long long)step, (long long)guard.in_row);
    }
    BY_TRY(restore_loss_scale(&guard, job, checkpoint, error));
    if (by_checkpoint_value_string(checkpoint, "losses", &losses, NULL) == BY_OK) {
        by_status status = by__window_parse(&guard, losses, error);
        if (status != BY_OK) {
            return by_error_prefix(error, status, "%s", by_checkpoint_path(checkpoint));
        }
    }
    by__trainer_set_guard(job->trainer, &guard);
    return BY_OK;
}

/* Where a job that goes on would go back to. */
static void restore_rollback(by__job *job, const by_checkpoint *checkpoint)
{
    uint64_t step;
    job->rollbacks = count_of(checkpoint, "rollbacks");
    job->good_step = (int64_t)by_checkpoint_step(checkpoint);
    if (by_checkpoint_value_u64(checkpoint, "rollback_step", &step, NULL) == BY_OK) {
        job->good_step = step == 0 ? -1 : (int64_t)step;
    }
}

/* Two optimizers may keep states of equal names and shapes that mean different things. Checkpoints
 * from before this value was kept do not say. */
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

/* The lines of section `model` in a printed config; "" when it has none. */
static const char *model_lines(const char *printed)
{
    static const char section[] = "\nmodel:\n";
    const char *begin = strstr(printed, section);
    return begin == NULL ? "" : begin + strlen(section);
}

/* Compares "  key: value" lines up to the end of the section. */
static by_status compare_lines(const char *path, const char *then, const char *now, by_error *error)
{
    while (now[0] == ' ' && then[0] == ' ') {
        size_t then_length = strcspn(then, "\n");
        size_t now_length = strcspn(now, "\n");
        if (then_length != now_length || memcmp(then, now, now_length) != 0) {
            size_t key = strcspn(now, ":");
            size_t then_key = strcspn(then, ":");
            return by_error_set(error, BY_ECONFIG,
                                "%s was trained with model.%.*s%.*s, not%.*s; leave it as it was, "
                                "or start a new run",
                                path, (int)then_key - 2, then + 2,
                                (int)(then_length - then_key - 1), then + then_key + 1,
                                (int)(now_length - key - 1), now + key + 1);
        }
        then += then_length + 1;
        now += now_length + 1;
    }
    return BY_OK;
}

/* The printed config of a model that a config.json describes; keys that it does not hold have their
 * defaults. Freed with free(). */
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

/* BY_ECONFIG when the checkpoint's model is not the config's. Both are compared as config.json
 * describes them, so that every key that makes a model counts, whatever the family, and no
 * other. */
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
        status = print_described(&now, job->run, present, error);
    }
    if (status == BY_OK) {
        status = compare_lines(path, model_lines(then), model_lines(now), error);
    }
    free(then);
    free(now);
    free(present);
    return status;
}

/* Whether there is any directory that is named like a checkpoint, and the newest one's step. */
static by_status find_newest(bool *found, uint64_t *newest, const by__job *job, by_error *error)
{
    uint64_t *steps;
    size_t count;
    *found = false;
    *newest = 0;
    if (!by__path_exists(job->checkpoints)) {
        return BY_OK;
    }
    BY_TRY(by__root_steps(&steps, &count, job->checkpoints, error));
    *found = count > 0;
    *newest = count > 0 ? steps[0] : 0;
    free(steps);
    return BY_OK;
}

/* The newest checkpoint that is whole, on all ranks; rank 0 looks for it and says what was passed
 * over. *path is "" where there is none and the run may begin again. */
static by_status find_checkpoint(char **path, by__job *job, by_error *error)
{
    by_error reason = {0};
    bool found;
    uint64_t newest;
    uint64_t step = 0;
    char *skipped = NULL;
    BY_TRY(find_newest(&found, &newest, job, error));
    by_status status = found ? by_checkpoint_latest(job->checkpoints, path, &skipped, &reason)
                             : by_error_set(&reason, BY_ESTATE,
                                            "%s was ended before its first checkpoint", job->run);
    if (status == BY_ESTATE && job->options->from_start) {
        by__job_note(job, "%s; beginning again at step 0", reason.message);
        *path = by__strdup("");
        return *path != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status != BY_OK) {
        return by_error_set(error, status, "%s%s", reason.message,
                            status == BY_ESTATE ? "; --from-start begins again at step 0" : "");
    }
    if (skipped[0] != '\0' && by__step_of_name(strrchr(*path, '/') + 1, &step)) {
        by__job_note(job,
                     "not a whole checkpoint: %sgoing on from step %llu: the %llu steps behind it "
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
    BY_TRY(check_optimizer(job, checkpoint, error));
    BY_TRY(restore_values(job, checkpoint, error));
    BY_TRY(restore_tensors(job, checkpoint, error));
    BY_TRY(restore_guard(job, checkpoint, error));
    restore_rollback(job, checkpoint);
    /* A crash between writing the best checkpoint and marking it. */
    if (by__job_leads(job) && job->best_step == by_checkpoint_step(checkpoint) &&
        isfinite(job->best_loss)) {
        return by_checkpoint_mark_best(job->checkpoints, job->best_step, job->best_loss, error);
    }
    return BY_OK;
}

by_status by__job_return(by__job *job, int64_t step, by_error *error)
{
    by_checkpoint *checkpoint;
    char *path;
    BY_TRY(by__job_saving_wait(job, error));
    BY_TRY(by__step_path(&path, job->checkpoints, (uint64_t)step, error));
    by_status status = by_checkpoint_open(&checkpoint, path, true, error);
    free(path);
    BY_TRY(status);
    job->is_torn = true; /* a failure in between leaves nothing to save */
    status = restore_tensors(job, checkpoint, error);
    if (status == BY_OK) {
        status = restore_guard(job, checkpoint, error);
    }
    job->is_torn = status != BY_OK;
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
        status = by_checkpoint_open(&checkpoint, path, false, error); /* verified just now */
    }
    if (*restored && status == BY_OK) {
        status = restore_from(job, checkpoint, error);
        by_checkpoint_close(&checkpoint);
    }
    free(path);
    *restored = *restored && status == BY_OK;
    return status;
}
