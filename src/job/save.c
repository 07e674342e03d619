/* The content of a job's checkpoints: slices of tensors, and the values and files saved with
 * them. */
#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "job/job.h"
#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"
#include "trainer/state/guard.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

/* The origin in the trainer of a slice to save. */
typedef struct slice_source {
    size_t parameter;
    int state;    /* -1: the parameter itself */
    size_t slice; /* index of the trainer's slice, */
    size_t first; /* and the first element in it */
    int part;     /* of a weight in codes (coded_slices.c); 0: it is none */
} slice_source;

struct by__job_held {
    const by_trainer *trainer;
    by__checkpoint_held_slice *slices;
    size_t slice_capacity;
    slice_source *sources;
    size_t source_capacity;
    size_t count;
};

/* `prefix`: "m." for a state. */
static by_status add_slice(by__job_held *h, const by__checkpoint_held_slice *slice,
                           const slice_source *from, const char *prefix, const char *name,
                           by_error *error)
{
    BY_TRY(by__reserve((void **)&h->slices, &h->slice_capacity, h->count + 1, sizeof *h->slices,
                       error));
    BY_TRY(by__reserve((void **)&h->sources, &h->source_capacity, h->count + 1, sizeof *h->sources,
                       error));
    by__checkpoint_held_slice *out = &h->slices[h->count];
    *out = *slice;
    int length = snprintf(out->name, sizeof out->name, "%s%s", prefix, name);
    if (length < 0 || (size_t)length >= sizeof out->name) {
        return by_error_set(error, BY_EARG, "tensor '%.200s...': its name is too long", name);
    }
    h->sources[h->count++] = *from;
    return BY_OK;
}

/* For a tensor that files hold in parts, one for each index of the first axis: the intersection of
 * a slice with part i. Returns false if it is empty. `view` is the part. */
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

/* Adds a parameter, or its average, that files hold in parts. */
static by_status add_stacked(by__job_held *h, const by__checkpoint_held_slice *whole,
                             slice_source from, const char *prefix, const char *name,
                             by_error *error)
{
    for (int64_t i = 0; i < whole->shape[0]; i++) {
        by_tensor_view view = {.name = name, .dtype = whole->dtype, .rank = whole->rank};
        by__checkpoint_held_slice part = *whole;
        char part_name[512];
        size_t elements;
        memcpy(view.shape, whole->shape, sizeof view.shape);
        (void)by__checkpoint_stacked_part(&view, part_name, sizeof part_name, i);
        if (!slice_of_part(&part.slice, &whole->slice, &view, i)) {
            continue;
        }
        part.rank = view.rank;
        memset(part.shape, 0, sizeof part.shape);
        memcpy(part.shape, view.shape, (size_t)view.rank * sizeof part.shape[0]);
        BY_TRY(by__checkpoint_slice_check(&view, &part.slice, &elements, error));
        BY_TRY(add_slice(h, &part, &from, prefix, part_name, error));
        from.first += elements;
    }
    return BY_OK;
}

static by_status add_codes(by__job_held *h, size_t parameter, by_error *error)
{
    by_error why = {0};
    by__checkpoint_held_slice s;
    for (int part = 1; by__trainer_codes_slice(&s, h->trainer, parameter, part, &why); part++) {
        const slice_source from = {.parameter = parameter, .state = -1, .part = part};
        char name[sizeof s.name];
        memcpy(name, s.name, sizeof name);
        BY_TRY(add_slice(h, &s, &from, "", name, error));
    }
    return why.status == BY_OK ? BY_OK : by_error_set(error, why.status, "%s", why.message);
}

/* Adds this rank's slices of a parameter (state -1) or of a state of it. */
static by_status add_held(by__job_held *h, size_t parameter, int state, by_error *error)
{
    char prefix[64] = "";
    const char *name = by_trainer_parameter(h->trainer, parameter).name;
    if (by__trainer_codes_has(h->trainer, parameter)) {
        return state < 0 ? add_codes(h, parameter, error) : BY_OK;
    }
    if (state >= 0) {
        (void)snprintf(prefix, sizeof prefix, "%s.", by_trainer_state_name(h->trainer, state));
    }
    by_dtype dtype = state < 0 ? by_trainer_parameter(h->trainer, parameter).dtype
                               : by_trainer_state(h->trainer, parameter, state).dtype;
    for (size_t i = 0; i < by__trainer_slices(h->trainer, parameter, state); i++) {
        by__trainer_held has;
        by__checkpoint_held_slice s = {.dtype = dtype, .optimizer = state >= 0};
        const slice_source from = {.parameter = parameter, .state = state, .slice = i};
        by__trainer_slice_at(&has, h->trainer, parameter, state, i);
        s.is_copy = has.is_copy;
        s.slice = has.slice;
        s.rank = has.whole.rank;
        memcpy(s.shape, has.whole.dim, (size_t)s.rank * sizeof s.shape[0]);
        /* The average is stored like the weights, which it can replace. */
        bool as_weights =
            state < 0 || strcmp(by_trainer_state_name(h->trainer, state), BY_AVERAGE_STATE) == 0;
        BY_TRY(as_weights && by__checkpoint_name_is_stacked(name)
                   ? add_stacked(h, &s, from, prefix, name, error)
                   : add_slice(h, &s, &from, prefix, name, error));
    }
    return BY_OK;
}

static by_status list_held(by__job_held *h, by_error *error)
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

/* Refuses values that are not finite: the checkpoint would be the newest valid one, but useless. */
static by_status check_finite(const by__job_held *h, size_t i, const void *values, by_error *error)
{
    const by__checkpoint_held_slice *s = &h->slices[i];
    int64_t count = s->slice.flat ? s->slice.shape[0] : 1;
    for (int k = 0; k < s->rank && !s->slice.flat; k++) {
        count *= s->slice.shape[k];
    }
    return by__trainer_all_finite(s->dtype, values, (size_t)count)
               ? BY_OK
               : by_error_set(error, BY_EDIVERGED,
                              "'%s' is not finite after step %lld: no checkpoint is written; "
                              "resume from an earlier one with a lower optimizer.lr",
                              s->name, (long long)by_trainer_updates(h->trainer));
}

by_status by__job_held_read(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const by__job_held *h = user;
    const slice_source *from = &h->sources[i];
    BY_TRY(by__trainer_read_slice(h->trainer, from->parameter, from->state, from->slice, data,
                                  owned, error));
    if (from->part > 0) {
        void *panels = *owned;
        *owned = NULL;
        by_status made =
            by__trainer_codes_read(h->trainer, from->parameter, from->part, *data, owned, error);
        free(panels);
        *data = *owned;
        BY_TRY(made);
    }
    if (from->first > 0) { /* part of a stacked parameter */
        *data = (const char *)*data + from->first * by_dtype_size(h->slices[i].dtype);
    }
    by_status status = check_finite(h, i, *data, error);
    if (status != BY_OK) {
        free(*owned);
        *owned = NULL;
    }
    return status;
}

by_status by__job_held_open(by__job_held **out, const by_trainer *trainer, by_error *error)
{
    by__job_held *h;
    BY_TRY(by__alloc((void **)&h, 1, sizeof *h, "a checkpoint", error));
    h->trainer = trainer;
    by_status status = list_held(h, error);
    if (status != BY_OK) {
        by__job_held_close(&h);
        return status;
    }
    *out = h;
    return BY_OK;
}

void by__job_held_close(by__job_held **held)
{
    if (*held != NULL) {
        free((*held)->sources);
        free((*held)->slices);
        free(*held);
        *held = NULL;
    }
}

by_status by__job_held_plan(by__checkpoint_save_plan *out, const by__job_held *h,
                            const by__job *job, by_error *error)
{
    return by__checkpoint_save_plan_make(out, job->comm, h->slices, h->count,
                                         job->config->parallel.writers, error);
}

/* ---- values and files saved with the tensors ---- */

/* How by__job_describe passes on a request. */
typedef by_status taker(by__job *job, const by__checkpoint_save_request *request, by_error *error);

#define GUARD_VALUES 7

/* Adds values of the guards, if there are any to keep. Returns their number. */
static size_t describe_guard(const by__job *job, by_checkpoint_value *values, by_string *losses)
{
    const by__trainer_guard *guard = by__trainer_guard_of(job->trainer);
    const struct {
        const char *key;
        int64_t value;
        bool kept;
    } counts[] = {
        {"skipped", guard->skipped, guard->skipped > 0},
        {"skipped_in_row", guard->in_row, guard->skipped > 0},
        {"rollbacks", job->saved.rollbacks, job->saved.rollbacks > 0},
        {"rollback_step", job->saved.good_step < 0 ? 0 : job->saved.good_step,
         job->saved.is_ending && strcmp(job->config->guard.spike, "rollback") == 0},
        {"loss_scale_steps", guard->loss_scale.steps,
         by__trainer_scales_loss_dynamically(job->config)},
    };
    size_t count = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(counts); i++) {
        if (counts[i].kept) {
            values[count++] = (by_checkpoint_value){
                .key = counts[i].key, .kind = BY_VALUE_U64, .as.u64 = (uint64_t)counts[i].value};
        }
    }
    if (by__trainer_scales_loss_dynamically(job->config)) {
        values[count++] = (by_checkpoint_value){
            .key = "loss_scale", .kind = BY_VALUE_F64, .as.f64 = guard->loss_scale.scale};
    }
    if (guard->count > 0 && by__trainer_window_print(losses, guard) == BY_OK) {
        values[count++] = (by_checkpoint_value){
            .key = "losses", .kind = BY_VALUE_STRING, .as.string = losses->data};
    }
    return count;
}

/* Adds what every run keeps, before what its task keeps. */
static by_status describe(by__job *job, by__checkpoint_save_request *request,
                          const by_task_kept *kept, const char *json, const char *adapter,
                          taker *take, by_error *error)
{
    by_string losses = {0};
    by_checkpoint_value values[12 + GUARD_VALUES + BY_TASK_FILES] = {
        {.key = "sample", .kind = BY_VALUE_U64, .as.u64 = by_loader_position(job->loader)},
        {.key = "seed", .kind = BY_VALUE_U64, .as.u64 = job->config->seed},
        {.key = "best_loss", .kind = BY_VALUE_F64, .as.f64 = job->best.loss},
        {.key = "best_step", .kind = BY_VALUE_U64, .as.u64 = job->best.step},
        {.key = "eval_pending", .kind = BY_VALUE_U64, .as.u64 = job->valid.is_pending},
        {.key = "config_hash", .kind = BY_VALUE_STRING, .as.string = job->config_hash},
        {.key = "optimizer", .kind = BY_VALUE_STRING, .as.string = job->config->optimizer.kind},
    };
    by_checkpoint_file files[3 + BY_TASK_FILES] = {
        {.name = "config.json", .data = json, .size = strlen(json)},
    };
    size_t value_count = 7;
    if (job->data->task->best_by_metric) {
        values[value_count++] = (by_checkpoint_value){
            .key = "best_metric", .kind = BY_VALUE_F64, .as.f64 = job->best.metric};
    }
    value_count += describe_guard(job, values + value_count, &losses);
    if (job->skipped.hash[0] != '\0') {
        values[value_count++] = (by_checkpoint_value){
            .key = "damage", .kind = BY_VALUE_STRING, .as.string = job->skipped.hash};
    }
    if (job->skipped.samples > 0) {
        values[value_count++] = (by_checkpoint_value){
            .key = "damaged_samples", .kind = BY_VALUE_U64, .as.u64 = job->skipped.samples};
    }
    if (job->valid.step == by_trainer_updates(job->trainer)) {
        values[value_count++] = (by_checkpoint_value){
            .key = "valid_loss", .kind = BY_VALUE_F64, .as.f64 = job->valid.loss};
    }
    if (by__trainer_teacher_hash(job->trainer)[0] != '\0') {
        values[value_count++] =
            (by_checkpoint_value){.key = "teacher_hash",
                                  .kind = BY_VALUE_STRING,
                                  .as.string = by__trainer_teacher_hash(job->trainer)};
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
    if (adapter != NULL) { /* the adapters a second time, in PEFT's format */
        files[request->file_count++] = (by_checkpoint_file){
            .name = BY_ADAPTER_CONFIG, .data = adapter, .size = strlen(adapter)};
        files[request->file_count++] = (by_checkpoint_file){
            .name = BY_ADAPTER_WEIGHTS, .trained_under = by__trainer_adapters_prefix(job->config)};
    }
    by_status status = losses.failed ? by_error_set(error, BY_EMEMORY, "out of memory: losses")
                                     : take(job, request, error);
    by_string_free(&losses);
    return status;
}

by_status by__job_describe(by__job *job, by__checkpoint_save_request *request, taker *take,
                           by_error *error)
{
    const by_task *task = job->data->task;
    by_task_kept kept = {.eos = -1};
    char *json = NULL;
    char *adapter = NULL;
    char *reference = NULL;
    if (!by__job_leads(job)) {
        return take(job, request, error);
    }
    if (task->keep != NULL) {
        BY_TRY(task->keep(job->data, job->config, &kept, error));
    }
    if (job->valid.step == by_trainer_updates(job->trainer)) {
        BY_TRY(by__job_outcomes_describe(&reference, job->valid.outcomes, job->data, &kept,
                                         job->data->train_examples, job->valid.loss, error));
    }
    by_status status = by_model_config_json(&json, &job->config->model, kept.eos, error);
    if (status == BY_OK && kept.origin_config != NULL) {
        status = by_model_config_keep_ids(&json, kept.origin_config, error);
    }
    if (status == BY_OK && kept.labels != NULL) {
        status = by_model_config_label(&json, kept.labels, kept.label_count, error);
    }
    if (status == BY_OK) {
        status = by__trainer_codes_describe(&json, job->trainer, error);
    }
    if (status == BY_OK && job->config->lora.rank > 0) {
        by__trainer_recipe recipe = by__job_recipe(job);
        status = by__trainer_adapters_describe(&adapter, job->config, &recipe, error);
    }
    if (status == BY_OK) {
        status = describe(job, request, &kept, json, adapter, take, error);
    }
    free(reference);
    free(adapter);
    free(json);
    return status;
}
