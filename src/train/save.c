#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "train/loop.h"
#include "train/trainer.h"

/* A tensor to save: which it is in the trainer, and where in it. */
typedef struct source {
    by_trainer_tensor what;
    int state;
    size_t parameter;
    size_t first; /* element; a tensor that files hold in parts is several sources */
} source;

/* Parameters, then the states of the optimizer, as views and where their values come from. */
typedef struct views {
    by_tensor_view *views;
    source *sources;
    char (*names)[220]; /* of the states, and of parts of parameters */
    int *owners;        /* of a pipeline: its rank that writes the tensor; else NULL */
    size_t model_count;
    size_t count;
} views;

/* Tensors that files hold for a parameter. */
static size_t parts_of(const by_tensor_view *parameter)
{
    return by__name_is_stacked(parameter->name) ? (size_t)parameter->shape[0] : 1;
}

/* Of the whole model. */
static size_t parameter_count(const by_trainer *trainer)
{
    return trainer->pipe != NULL ? by__pipe_whole_count(trainer->pipe)
                                 : by_trainer_parameter_count(trainer);
}

/* Parameter i of the model (state -1), or a state of it, which is parameter *here of this trainer.
 * Which rank of a pipeline has it. */
static int view_tensor(by_tensor_view *view, size_t *here, const by_trainer *trainer, size_t i,
                       int state)
{
    if (trainer->pipe != NULL) {
        return by__pipe_whole(trainer, i, state, view, here);
    }
    *view = state < 0 ? by_trainer_parameter(trainer, i) : by_trainer_state(trainer, i, state);
    *here = i;
    return 0;
}

static void add_view(views *v, const source *from, int owner)
{
    if (v->owners != NULL) {
        v->owners[v->count] = owner;
    }
    v->sources[v->count++] = *from;
}

static by_status alloc_views(views *out, const by_trainer *trainer, by_error *error)
{
    size_t parameters = parameter_count(trainer);
    for (size_t i = 0; i < parameters; i++) {
        by_tensor_view view;
        size_t here;
        (void)view_tensor(&view, &here, trainer, i, -1);
        out->model_count += parts_of(&view);
    }
    size_t most = out->model_count + parameters * (size_t)by_trainer_state_count(trainer);
    BY_TRY(by__alloc((void **)&out->views, most, sizeof *out->views, "checkpoint", error));
    BY_TRY(by__alloc((void **)&out->sources, most, sizeof *out->sources, "checkpoint", error));
    if (trainer->pipe != NULL) {
        BY_TRY(by__alloc((void **)&out->owners, most, sizeof *out->owners, "checkpoint", error));
    }
    return by__alloc((void **)&out->names, most, sizeof *out->names, "checkpoint", error);
}

static void add_parameter(views *v, const by_trainer *trainer, size_t i)
{
    by_tensor_view whole;
    size_t here;
    int owner = view_tensor(&whole, &here, trainer, i, -1);
    size_t parts = parts_of(&whole);
    for (size_t part = 0; part < parts; part++) {
        by_tensor_view *view = &v->views[v->count];
        size_t first = 0;
        *view = whole;
        if (by__name_is_stacked(whole.name)) {
            first = by__stacked_part(view, v->names[v->count], sizeof v->names[0], (int64_t)part);
        }
        add_view(v, &(source){BY_TRAINER_PARAMETER, 0, here, first}, owner);
    }
}

static void add_states(views *v, const by_trainer *trainer, size_t i)
{
    for (int k = 0; k < by_trainer_state_count(trainer); k++) {
        by_tensor_view *view = &v->views[v->count];
        char *name = v->names[v->count];
        size_t here;
        int owner = view_tensor(view, &here, trainer, i, k);
        if (view->rank >= 0) {
            (void)snprintf(name, sizeof v->names[0], "%s.%s", by_trainer_state_name(trainer, k),
                           view->name);
            view->name = name;
            add_view(v, &(source){BY_TRAINER_STATE, k, here, 0}, owner);
        }
    }
}

static by_status open_views(views *out, const by_trainer *trainer, by_error *error)
{
    size_t parameters = parameter_count(trainer);
    by_status status = alloc_views(out, trainer, error);
    for (size_t i = 0; i < parameters && status == BY_OK; i++) {
        add_parameter(out, trainer, i);
    }
    for (size_t i = 0; i < parameters && status == BY_OK; i++) {
        add_states(out, trainer, i);
    }
    return status;
}

static void close_views(views *v)
{
    free(v->views);
    free(v->sources);
    free(v->names);
    free(v->owners);
}

/* Adds one part, a whole tensor. Values that the host cannot read where they are come through a
 * copy. */
static by_status add_part(by_checkpoint_writer *writer, const by_trainer *trainer, const views *v,
                          size_t part, size_t tensor, by_error *error)
{
    const by_tensor_view *view = &v->views[tensor];
    const source *from = &v->sources[tensor];
    by_tensor_view all =
        from->what == BY_TRAINER_PARAMETER ? by_trainer_parameter(trainer, from->parameter) : *view;
    size_t bytes;
    float *copy;
    if (view->data != NULL) {
        return by_checkpoint_add_part(writer, part, view->data, error);
    }
    BY_TRY(by_tensor_size(&all, NULL, &bytes, error));
    BY_TRY(by__alloc_aligned((void **)&copy, bytes, "a copy of the weights", error));
    by_status status =
        by_trainer_read(trainer, from->what, from->state, from->parameter, copy, error);
    if (status == BY_OK) {
        status = by_checkpoint_add_part(writer, part, copy + from->first, error);
    }
    free(copy);
    return status;
}

/* Writes this rank's parts one after the other in the order of its files. */
static by_status add_parts(by_checkpoint_writer *writer, const by_trainer *trainer, const views *v,
                           const by_checkpoint_layout *layout, by_error *error)
{
    size_t count = layout->writers == 1 ? v->count : layout->part_count;
    for (size_t i = 0; i < count && writer != NULL; i++) {
        size_t part = by_checkpoint_order(writer, i);
        size_t tensor = layout->writers == 1 ? part : layout->parts[part].tensor;
        BY_TRY(add_part(writer, trainer, v, part, tensor, error));
    }
    return BY_OK;
}

/* How many ranks write. What is small is faster written by one than divided. */
static by_status count_writers(int *writers, const by__job *job, const views *v, by_error *error)
{
    const size_t worth_a_writer = (size_t)64 << 20;
    int64_t wanted = job->config->parallel.writers;
    int64_t ranks = job->comm == NULL ? 1 : by_comm_size(job->comm);
    size_t total = 0;
    if (v->owners != NULL) { /* one rank of each stage */
        *writers = (int)job->config->parallel.pipeline;
        return BY_OK;
    }
    for (size_t i = 0; i < v->count; i++) {
        size_t bytes;
        BY_TRY(by_tensor_size(&v->views[i], NULL, &bytes, error));
        total += bytes; /* all of it is in memory, divided or not */
    }
    if (wanted < 0) {
        wanted = 1 + (int64_t)(total / worth_a_writer);
    }
    *writers = (int)(wanted < ranks ? wanted : ranks);
    return BY_OK;
}

/* The parts of writer `writer`: of a pipeline, what its stages train; replicas hold the same and
 * divide the tensors among them. */
static by_status list_parts(by_checkpoint_part *parts, by_checkpoint_layout *layout, const views *v,
                            int writer, by_error *error)
{
    layout->parts = parts;
    if (v->owners == NULL) {
        return by__checkpoint_divide(parts, &layout->part_count, v->views, v->count,
                                     layout->writers, writer, error);
    }
    for (size_t i = 0; i < v->count; i++) {
        if (v->owners[i] == writer) {
            parts[layout->part_count++] = (by_checkpoint_part){i, by_tensor_whole(&v->views[i])};
        }
    }
    return BY_OK;
}

static by_status write_checkpoint(const by__job *job, const views *v,
                                  const by_checkpoint_value *values, size_t value_count,
                                  const by_checkpoint_file *files, size_t file_count,
                                  by_error *error)
{
    by_checkpoint_writer *writer;
    by_checkpoint_part *parts = NULL;
    int ranks = job->comm == NULL ? 1 : by_comm_size(job->comm);
    int rank = job->comm == NULL ? 0 : by_comm_rank(job->comm);
    uint64_t step = (uint64_t)by_trainer_updates(job->trainer);
    by_checkpoint_layout layout = {.model = v->views,
                                   .model_count = v->model_count,
                                   .optimizer = v->views + v->model_count,
                                   .optimizer_count = v->count - v->model_count};
    BY_TRY(count_writers(&layout.writers, job, v, error));
    int own = by__checkpoint_writer_of(rank, ranks, layout.writers);
    if (layout.writers > 1) {
        BY_TRY(by__alloc((void **)&parts, v->count, sizeof *parts, "checkpoint", error));
        by_status listed = list_parts(parts, &layout, v, own, error);
        if (listed != BY_OK) {
            free(parts);
            return listed;
        }
    }
    by_status status = by__checkpoint_begin_together(&writer, job->comm, own, job->checkpoints,
                                                     step, &layout, error);
    if (status == BY_OK) {
        status = add_parts(writer, job->trainer, v, &layout, error);
        status = by__checkpoint_commit_together(&writer, job->comm, status, values, value_count,
                                                files, file_count, error);
    }
    free(parts);
    return status;
}

/* What every run keeps, in front of what its task does. */
static by_status write_state(const by__job *job, const views *v, const by_task_kept *kept,
                             const char *json, by_error *error)
{
    by_checkpoint_value values[8 + BY_TASK_FILES] = {
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
    for (size_t i = 0; i < kept->value_count; i++) {
        values[value_count++] = kept->values[i];
    }
    for (size_t i = 0; i < kept->file_count; i++) {
        files[1 + i] = kept->files[i];
    }
    return write_checkpoint(job, v, values, value_count, files, 1 + kept->file_count, error);
}

by_status by__job_save(by__job *job, by_error *error)
{
    const by_task *task = job->data->task;
    by_task_kept kept = {.eos = -1};
    views v = {0};
    char *json = NULL;
    if (task->keep != NULL && by__job_leads(job)) {
        BY_TRY(task->keep(job->data, job->config, &kept, error));
    }
    by_status status = open_views(&v, job->trainer, error);
    if (!by__job_leads(job)) { /* values and files are rank 0's */
        status = status == BY_OK ? write_checkpoint(job, &v, NULL, 0, NULL, 0, error) : status;
        close_views(&v);
        return status;
    }
    if (status == BY_OK) {
        status = by_model_config_json(&json, &job->config->model, kept.eos, error);
    }
    if (status == BY_OK && kept.labels != NULL) {
        status = by_model_config_label(&json, kept.labels, kept.label_count, error);
    }
    if (status == BY_OK) {
        status = write_state(job, &v, &kept, json, error);
    }
    free(json);
    close_views(&v);
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
    char **names = NULL;
    size_t count = 0;
    uint64_t step;
    *found = false;
    *newest = 0;
    if (!by__path_exists(job->checkpoints)) {
        return BY_OK;
    }
    BY_TRY(by__list_dir(&names, &count, job->checkpoints, error));
    for (size_t i = 0; i < count; i++) {
        if (by__step_of_name(names[i], &step)) {
            *newest = !*found || step > *newest ? step : *newest;
            *found = true;
        }
    }
    by__names_free(names, count);
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
    /* A crash between writing the best checkpoint and marking it. */
    if (by__job_leads(job) && job->best_step == by_checkpoint_step(checkpoint) &&
        isfinite(job->best_loss)) {
        return by_checkpoint_mark_best(job->checkpoints, job->best_step, job->best_loss, error);
    }
    return BY_OK;
}

by_status by__job_restore(bool *restored, by__job *job, by_error *error)
{
    by_checkpoint *checkpoint = NULL;
    char *path = NULL;
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
