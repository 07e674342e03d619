#include <stdlib.h>
#include <string.h>

#include "banyan/pack.h"
#include "banyan/tokenizer.h"
#include "checkpoint/storage.h"
#include "train/loop.h"

static bool relay_progress(void *user, const by_pack_progress *progress)
{
    const by_train_options *options = ((const by__relay *)user)->options;
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
    const by_train_options *options = ((const by__relay *)user)->options;
    if (options->event != NULL) {
        by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        options->event(options->user, &event);
    }
}

void by__relay_packing(by_pack_options *options, by__relay *relay)
{
    if (relay->options != NULL) {
        options->progress = relay_progress;
        options->note = relay_note;
        options->user = relay;
    }
}

static by_status pack_text(char **directory, const by_config *config, const char *tokenizer,
                           const by_train_options *progress, by_error *error)
{
    by__relay to = {progress};
    by_pack_options options = {.inputs = (const char *const *)config->data.text.items,
                               .input_count = config->data.text.count,
                               .tokenizer_kind = tokenizer,
                               .tokenizer_vocab = (size_t)config->data.tokenizer_vocab,
                               .field = config->data.field,
                               .valid_fraction = config->data.valid_fraction};
    by__relay_packing(&options, &to);
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

/* DIRECTORY/tokenizer.json; NULL where there is none. */
static by_status find_tokenizer(char **out, const char *directory, by_error *error)
{
    char *path;
    BY_TRY(join(&path, directory, "tokenizer.json", error));
    if (!by__path_exists(path)) {
        free(path);
        path = NULL;
    }
    *out = path;
    return BY_OK;
}

/* The tokenizer in the newest checkpoint of a run that has one; NULL where none has. */
static by_status find_saved_tokenizer(char **out, const char *run, by_error *error)
{
    char *root;
    char **names = NULL;
    size_t count = 0;
    BY_TRY(join(&root, run, "checkpoints", error));
    by_status status = BY_OK;
    *out = NULL;
    if (by__path_is_dir(root)) {
        status = by__list_dir(&names, &count, root, error);
    }
    for (size_t i = count; i > 0 && status == BY_OK && *out == NULL; i--) {
        uint64_t step;
        char *directory;
        if (by__step_of_name(names[i - 1], &step)) {
            status = join(&directory, root, names[i - 1], error);
            if (status == BY_OK) {
                status = find_tokenizer(out, directory, error);
                free(directory);
            }
        }
    }
    by__names_free(names, count);
    free(root);
    return status;
}

/* What makes the tokens of data.text, as a path or a kind. A run that exists has its own, wherever
 * it once came from; weights to start from bring theirs, unless the config names one. */
static by_status choose_tokenizer(char **out, const by_config *config, const char *run,
                                  by_error *error)
{
    const by_data_config *data = &config->data;
    const char *from = config->model.from;
    bool from_text = strcmp(data->tokenizer, "char") == 0 || strcmp(data->tokenizer, "bpe") == 0;
    *out = NULL;
    if (run != NULL && (!from_text || from[0] != '\0')) {
        BY_TRY(find_saved_tokenizer(out, run, error));
    }
    if (*out == NULL && from[0] != '\0' && strcmp(data->tokenizer, "char") == 0 &&
        by__path_is_dir(from)) {
        BY_TRY(find_tokenizer(out, from, error));
    }
    return *out == NULL ? copy(out, data->tokenizer, error) : BY_OK;
}

static by_status find_text(by_data_paths *paths, const by_config *config,
                           const by_train_options *progress, by_error *error)
{
    char *directory;
    char *tokenizer;
    BY_TRY(choose_tokenizer(&tokenizer, config, progress == NULL ? NULL : progress->resume, error));
    by_status status = pack_text(&directory, config, tokenizer, progress, error);
    free(tokenizer);
    BY_TRY(status);
    bool split = config->data.valid_fraction > 0.0;
    status = split ? join(&paths->train, directory, "train", error)
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

static bool relay_verifying(void *user, uint64_t done, uint64_t total)
{
    by_pack_progress progress = {"verifying", done, total, 0};
    return relay_progress(user, &progress);
}

by_status by__verify_data(const char *directory, const by_train_options *progress, by_error *error)
{
    by__relay to = {progress};
    by_data_verify_options options = {.progress = progress == NULL ? NULL : relay_verifying,
                                      .user = &to};
    return by_data_verify(directory, &options, error);
}

static by_status read_tokenizer_hash(char out[33], const char *directory, by_error *error)
{
    by_dataset *dataset;
    BY_TRY(by_dataset_open(&dataset, directory, NULL, error));
    memcpy(out, by_dataset_tokenizer_hash(dataset), 33);
    by_dataset_close(&dataset);
    return BY_OK;
}

by_status by__same_tokenizer(const char *data, const char *model, by_error *error)
{
    char hash[33];
    char *path;
    by_tokenizer *tokenizer;
    BY_TRY(find_tokenizer(&path, model, error));
    if (path == NULL) { /* weights alone: nothing says what their tokens are */
        return BY_OK;
    }
    by_status status = read_tokenizer_hash(hash, data, error);
    if (status == BY_OK) {
        status = by_tokenizer_open(&tokenizer, path, error);
    }
    if (status == BY_OK) {
        if (strcmp(hash, by_tokenizer_hash(tokenizer)) != 0) {
            status = by_error_set(error, BY_ECONFIG,
                                  "%s was packed with another tokenizer (%.8s) than that of the "
                                  "model, %s (%.8s): pack it with --tokenizer %s",
                                  data, hash, path, by_tokenizer_hash(tokenizer), path);
        }
        by_tokenizer_close(&tokenizer);
    }
    free(path);
    return status;
}

/* Train, valid and the weights to start from mean the same by a token. */
static by_status check_tokenizers(const by_data_paths *paths, const by_config *config,
                                  bool is_resumed, by_error *error)
{
    char train[33];
    char valid[33];
    if (paths->valid != NULL) {
        BY_TRY(read_tokenizer_hash(train, paths->train, error));
        BY_TRY(read_tokenizer_hash(valid, paths->valid, error));
        if (strcmp(train, valid) != 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s (data.valid) was packed with another tokenizer (%.8s) than %s "
                                "(data.train, %.8s): pack both with one",
                                paths->valid, valid, paths->train, train);
        }
    }
    return config->model.from[0] == '\0' || is_resumed || !by__path_is_dir(config->model.from)
               ? BY_OK
               : by__same_tokenizer(paths->train, config->model.from, error);
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
    if (status == BY_OK) {
        status = by__verify_data(paths.train, progress, error);
    }
    if (status == BY_OK && paths.valid != NULL) {
        status = by__verify_data(paths.valid, progress, error);
    }
    if (status == BY_OK) {
        status =
            check_tokenizers(&paths, config, progress != NULL && progress->resume != NULL, error);
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

/* A key that the config gives, and that the weights to start from decide otherwise. What equals
 * the default counts as not given. */
static by_status given_otherwise(const by_config *config, const char *key, const char *given,
                                 const char *theirs, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "model.%s is %s, but the weights of model.from=%s have %s: leave model.%s "
                        "out",
                        key, given, config->model.from, theirs, key);
}

/* `plain`: what the section would be without the keys that the config gives; `theirs`: what the
 * weights say. */
static by_status check_overridden(const by_config *config, const by_model_config *plain,
                                  const by_model_config *theirs, by_error *error)
{
    const by_model_config *m = &config->model;
    const struct {
        const char *key;
        int64_t given, plain, theirs;
    } numbers[] = {
        {"layers", m->layers, plain->layers, theirs->layers},
        {"heads", m->heads, plain->heads, theirs->heads},
        {"width", m->width, plain->width, theirs->width},
        {"vocab", m->vocab, plain->vocab, theirs->vocab},
        /* A shorter context than the checkpoint's is fine with rotary positions. */
        {"context",
         by_model_is_rotary(theirs) && m->context < theirs->context ? theirs->context : m->context,
         plain->context, theirs->context},
    };
    if (strcmp(m->kind, theirs->kind) != 0 && strcmp(m->kind, plain->kind) != 0) {
        return given_otherwise(config, "kind", m->kind, theirs->kind, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        char text[2][24];
        if (numbers[i].given != numbers[i].theirs && numbers[i].given != numbers[i].plain) {
            (void)snprintf(text[0], sizeof text[0], "%lld", (long long)numbers[i].given);
            (void)snprintf(text[1], sizeof text[1], "%lld", (long long)numbers[i].theirs);
            return given_otherwise(config, numbers[i].key, text[0], text[1], error);
        }
    }
    return BY_OK;
}

/* Refuses what the config gives and the weights' config.json says otherwise. */
static by_status check_given(const by_config *config, const char *json, by_error *error)
{
    by_config *plain = NULL;
    by_config *theirs = NULL;
    by_status status = by_config_default(&plain, error);
    if (status == BY_OK) {
        status = by_config_default(&theirs, error);
    }
    if (status == BY_OK) {
        status = by_model_config_from_json(&theirs->model, config->model.from, json, strlen(json),
                                           error);
    }
    if (status == BY_OK) {
        status = check_overridden(config, &plain->model, &theirs->model, error);
    }
    by_config_close(&plain);
    by_config_close(&theirs);
    return status;
}

/* Sizes of a Hugging Face directory to start from are the config's. */
static by_status adopt_model(by_config *config, by_error *error)
{
    by_weights *weights;
    const char *from = config->model.from;
    BY_TRY(by_weights_open(&weights, from, error));
    const char *json = by_weights_config(weights);
    by_status status = json == NULL
                           ? by_error_set(error, BY_EFORMAT, "%s: there is no config.json", from)
                           : check_given(config, json, error);
    if (status == BY_OK) {
        status = by_model_config_from_json(&config->model, from, json, strlen(json), error);
    }
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
