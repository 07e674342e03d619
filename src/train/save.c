#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"
#include "checkpoint/storage.h"
#include "train/loop.h"

/* All parameters and moments as views, names owned by `names`. */
typedef struct views {
    by_tensor_view *model;
    by_tensor_view *moments;
    char (*names)[220];
    size_t count;
} views;

static by_status open_views(views *out, const by_trainer *trainer, by_error *error)
{
    size_t count = by_trainer_parameter_count(trainer);
    views v = {.count = count};
    by_status status = by__alloc((void **)&v.model, count, sizeof *v.model, "checkpoint", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&v.moments, 2 * count, sizeof *v.moments, "checkpoint", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&v.names, 2 * count, sizeof *v.names, "checkpoint", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        v.model[i] = by_trainer_parameter(trainer, i);
        for (int k = 0; k < 2; k++) {
            size_t slot = 2 * i + (size_t)k;
            v.moments[slot] = by_trainer_moment(trainer, i, k);
            (void)snprintf(v.names[slot], sizeof v.names[slot], "%s.%s", k == 0 ? "m" : "v",
                           v.moments[slot].name);
            v.moments[slot].name = v.names[slot];
        }
    }
    *out = v;
    return status;
}

static void close_views(views *v)
{
    free(v->model);
    free(v->moments);
    free(v->names);
}

/* tokenizer_config.json: without it transformers takes the family's tokenizer class, which adds
 * tokens of its own. */
static by_status tokenizer_config(char **out, const by__job *job, by_error *error)
{
    by__text text = {0};
    by__text_add(&text, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    if (job->eos_token != NULL) {
        by__text_add(&text, "  \"eos_token\": ");
        by__text_json(&text, job->eos_token, strlen(job->eos_token));
        by__text_add(&text, ",\n");
    }
    by__text_format(&text, "  \"model_max_length\": %lld\n}\n",
                    (long long)job->config->model.context);
    return by__text_take(&text, out, error);
}

by_status by__job_save(by__job *job, by_error *error)
{
    const by_config *config = job->config;
    int64_t step = by_trainer_updates(job->trainer);
    views v;
    char *json = NULL;
    char *tokenizer = NULL;
    by_status status = open_views(&v, job->trainer, error);
    if (status == BY_OK) {
        status = by_model_config_json(&json, &config->model, job->eos, error);
    }
    if (status == BY_OK) {
        status = tokenizer_config(&tokenizer, job, error);
    }
    if (status == BY_OK) {
        by_checkpoint_value values[] = {
            {.key = "sample", .kind = BY_VALUE_U64, .as.u64 = by_loader_position(job->loader)},
            {.key = "seed", .kind = BY_VALUE_U64, .as.u64 = config->seed},
            {.key = "best_loss", .kind = BY_VALUE_F64, .as.f64 = job->best_loss},
            {.key = "best_step", .kind = BY_VALUE_U64, .as.u64 = job->best_step},
            {.key = "eval_pending", .kind = BY_VALUE_U64, .as.u64 = job->eval_pending},
            {.key = "config_hash", .kind = BY_VALUE_STRING, .as.string = job->config_hash},
            {.key = "tokenizer_hash",
             .kind = BY_VALUE_STRING,
             .as.string = by_dataset_tokenizer_hash(job->train_data)},
            {.key = "train_tokens",
             .kind = BY_VALUE_U64,
             .as.u64 = by_dataset_tokens(job->train_data)},
        };
        by_checkpoint_file files[] = {
            {.name = "config.json", .data = json, .size = strlen(json)},
            {.name = "tokenizer.json", .path = job->paths.tokenizer},
            {.name = "tokenizer_config.json", .data = tokenizer, .size = strlen(tokenizer)},
        };
        by_checkpoint_content content = {.model = v.model,
                                         .model_count = v.count,
                                         .optimizer = v.moments,
                                         .optimizer_count = 2 * v.count,
                                         .values = values,
                                         .value_count = BY_ARRAY_LENGTH(values),
                                         .files = files,
                                         .file_count = BY_ARRAY_LENGTH(files)};
        status = by_checkpoint_write(job->checkpoints, (uint64_t)step, &content, error);
    }
    free(json);
    free(tokenizer);
    close_views(&v);
    return status;
}

/* Refuses to go on with other data than the checkpoint was trained on. */
static by_status check_data(const by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const char *tokenizer;
    uint64_t tokens;
    BY_TRY(by_checkpoint_value_string(checkpoint, "tokenizer_hash", &tokenizer, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "train_tokens", &tokens, error));
    if (strcmp(tokenizer, by_dataset_tokenizer_hash(job->train_data)) != 0 ||
        tokens != by_dataset_tokens(job->train_data)) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s was trained on other data (%llu tokens, tokenizer %.8s) than there is "
            "now (%llu tokens, tokenizer %.8s); start a new run with model.from=%s",
            by_checkpoint_path(checkpoint), (unsigned long long)tokens, tokenizer,
            (unsigned long long)by_dataset_tokens(job->train_data),
            by_dataset_tokenizer_hash(job->train_data), by_checkpoint_path(checkpoint));
    }
    return BY_OK;
}

/* The numbers beside the tensors. */
static by_status restore_values(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    uint64_t seed;
    uint64_t pending;
    BY_TRY(by_checkpoint_value_u64(checkpoint, "sample", &job->sample, error));
    BY_TRY(by_checkpoint_value_f64(checkpoint, "best_loss", &job->best_loss, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "best_step", &job->best_step, error));
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

static by_status restore_tensors(by__job *job, const by_checkpoint *checkpoint, by_error *error)
{
    const by_weights *moments = by_checkpoint_optimizer(checkpoint);
    BY_TRY(by_trainer_load_weights(job->trainer, by_checkpoint_model(checkpoint), error));
    if (moments == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s has no optimizer state to resume from",
                            by_checkpoint_path(checkpoint));
    }
    return by_trainer_load_optimizer(job->trainer, moments, (int64_t)by_checkpoint_step(checkpoint),
                                     error);
}

by_status by__job_is_saved(bool *saved, const by__job *job, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    uint64_t step;
    *saved = false;
    if (!by__path_exists(job->checkpoints)) {
        return BY_OK;
    }
    BY_TRY(by__list_dir(&names, &count, job->checkpoints, error));
    for (size_t i = 0; i < count; i++) {
        *saved = *saved || by__step_of_name(names[i], &step);
    }
    by__names_free(names, count);
    return BY_OK;
}

by_status by__job_restore(by__job *job, by_error *error)
{
    by_checkpoint *checkpoint;
    BY_TRY(by_checkpoint_open(&checkpoint, job->checkpoints, true, error));
    by_status status = check_data(job, checkpoint, error);
    if (status == BY_OK) {
        status = restore_values(job, checkpoint, error);
    }
    if (status == BY_OK) {
        status = restore_tensors(job, checkpoint, error);
    }
    /* A crash between writing the best checkpoint and marking it. */
    if (status == BY_OK && job->best_step == by_checkpoint_step(checkpoint)) {
        status = by_checkpoint_mark_best(job->checkpoints, job->best_step, job->best_loss, error);
    }
    by_checkpoint_close(&checkpoint);
    return status;
}
