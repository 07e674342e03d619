#include <stdlib.h>
#include <string.h>

#include "banyan/pack.h"
#include "train/loop.h"

/* Passes the packer's progress on as a training event. */
typedef struct relay {
    const by_train_options *options;
} relay;

static bool relay_progress(void *user, const by_pack_progress *progress)
{
    const by_train_options *options = ((const relay *)user)->options;
    if (options->event != NULL) {
        by_train_event event = {.kind = BY_TRAIN_PREPARING, .phase = progress->phase};
        event.fraction = progress->total_bytes > 0
                             ? (double)progress->done_bytes / (double)progress->total_bytes
                             : 1.0;
        options->event(options->user, &event);
    }
    return options->stop == NULL || !options->stop(options->user);
}

static void relay_note(void *user, const char *text)
{
    const by_train_options *options = ((const relay *)user)->options;
    if (options->event != NULL) {
        by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        options->event(options->user, &event);
    }
}

static by_status pack_text(char **directory, const by_config *config,
                           const by_train_options *progress, by_error *error)
{
    relay to = {progress};
    by_pack_options options = {.inputs = (const char *const *)config->data.text.items,
                               .input_count = config->data.text.count,
                               .tokenizer_kind = config->data.tokenizer,
                               .tokenizer_vocab = (size_t)config->data.tokenizer_vocab,
                               .field = config->data.field,
                               .valid_fraction = config->data.valid_fraction,
                               .progress = progress == NULL ? NULL : relay_progress,
                               .note = progress == NULL ? NULL : relay_note,
                               .user = &to};
    return by_pack_cached(directory, &options, config->data.cache, error);
}

static by_status join(char **out, const char *directory, const char *name, by_error *error)
{
    *out = by__path_join(directory, name);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
}

static by_status copy(char **out, const char *path, by_error *error)
{
    *out = by__strdup(path);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
}

static by_status find_text(by_data_paths *paths, const by_config *config,
                           const by_train_options *progress, by_error *error)
{
    char *directory;
    BY_TRY(pack_text(&directory, config, progress, error));
    bool split = config->data.valid_fraction > 0.0;
    by_status status = split ? join(&paths->train, directory, "train", error)
                             : copy(&paths->train, directory, error);
    if (status == BY_OK && split) {
        status = join(&paths->valid, directory, "valid", error);
    }
    free(directory);
    return status;
}

static by_status find_packed(by_data_paths *paths, const by_config *config, by_error *error)
{
    BY_TRY(copy(&paths->train, config->data.train, error));
    return config->data.valid[0] == '\0' ? BY_OK : copy(&paths->valid, config->data.valid, error);
}

by_status by_data_prepare(by_data_paths *out, const by_config *config,
                          const by_train_options *progress, by_error *error)
{
    by_data_paths paths = {0};
    by_status status;
    if (config->data.train[0] != '\0') {
        status = find_packed(&paths, config, error);
    } else if (config->data.text.count > 0) {
        status = find_text(&paths, config, progress, error);
    } else {
        return by_error_set(error, BY_ECONFIG,
                            "no data: set data.text=FILE, or data.train=DIR to a directory that "
                            "`banyan pack` made");
    }
    if (status == BY_OK) {
        status = join(&paths.tokenizer, paths.train, "tokenizer.json", error);
    }
    if (status != BY_OK) {
        by_data_paths_free(&paths);
        return status;
    }
    *out = paths;
    return BY_OK;
}

static by_loader_options loader_options(const by_config *config, bool is_training)
{
    int64_t batch = is_training ? config->train.batch : config->train.micro_batch;
    return (by_loader_options){.batch = (size_t)batch, .seed = config->seed};
}

by_status by__open_loader(by_loader **out, const by_dataset *dataset, const by_config *config,
                          bool is_training, by_error *error)
{
    by_source *source;
    by_loader_options options = loader_options(config, is_training);
    BY_TRY(
        by_token_source_open(&source, dataset, (size_t)config->model.context, is_training, error));
    return by_loader_open(out, source, &options, error);
}

by_status by_data_bytes(uint64_t *out, const by_config *config, bool held_out, by_error *error)
{
    uint64_t train;
    uint64_t valid = 0;
    by_array arrays[2];
    by_loader_options options = loader_options(config, true);
    by_token_arrays(arrays, (size_t)config->model.context);
    BY_TRY(by_loader_bytes(&train, arrays, BY_ARRAY_LENGTH(arrays), &options, error));
    if (held_out) {
        options = loader_options(config, false);
        BY_TRY(by_loader_bytes(&valid, arrays, BY_ARRAY_LENGTH(arrays), &options, error));
    }
    *out = train + valid;
    return BY_OK;
}

void by_data_paths_free(by_data_paths *paths)
{
    free(paths->train);
    free(paths->valid);
    free(paths->tokenizer);
    *paths = (by_data_paths){0};
}

/* Sizes of a Hugging Face directory to start from take the place of the config's. */
static by_status adopt_model(by_config *config, by_error *error)
{
    by_weights *weights;
    const char *from = config->model.from;
    BY_TRY(by_weights_open(&weights, from, error));
    const char *json = by_weights_config(weights);
    by_status status =
        json == NULL ? by_error_set(error, BY_EFORMAT, "%s: there is no config.json", from)
                     : by_model_config_from_json(&config->model, from, json, strlen(json), error);
    by_weights_close(&weights);
    return status;
}

by_status by_config_take_model(by_config *config, by_error *error)
{
    int64_t context = config->model.context;
    if (config->model.from[0] != '\0') {
        BY_TRY(adopt_model(config, error));
        /* A shorter context than the checkpoint's is fine with rotary positions only. */
        if (context < config->model.context && by_model_is_rotary(&config->model)) {
            config->model.context = context;
        }
    }
    return by_config_resolve(config, error);
}

by_status by_config_complete(by_config *config, const by_data_paths *paths, by_error *error)
{
    by_dataset *dataset;
    BY_TRY(by_config_take_model(config, error));
    BY_TRY(by_dataset_open(&dataset, paths->train, NULL, error));
    int64_t vocab = by_dataset_vocab(dataset);
    by_dataset_close(&dataset);
    if (config->model.vocab < 0) {
        int64_t unit = config->model.pad_vocab_to;
        config->model.vocab = (vocab + unit - 1) / unit * unit;
    }
    if (config->model.vocab < vocab) {
        return by_error_set(
            error, BY_ECONFIG,
            "model.vocab %lld is less than the tokenizer's %lld; leave it out to take "
            "the tokenizer's",
            (long long)config->model.vocab, (long long)vocab);
    }
    return by_config_resolve(config, error);
}
