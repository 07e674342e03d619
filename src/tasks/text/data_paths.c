/* Locates the packed directories of a config, packing text on first use, verifies them, and checks
 * that their tokenizers agree. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "config/kind.h"
#include "data/corpus/token_manifest.h"
#include "tasks/tasks.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/language.h"
#include "text/tokenizer/vocabulary.h"

static bool relay_progress(void *user, const by_pack_progress *progress)
{
    const by_train_options *options = ((const by__task_relay *)user)->options;
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
    const by_train_options *options = ((const by__task_relay *)user)->options;
    if (options->event != NULL) {
        by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        options->event(options->user, &event);
    }
}

void by__task_relay_packing(by_pack_options *options, by__task_relay *relay)
{
    if (relay->options != NULL) {
        options->progress = relay_progress;
        options->note = relay_note;
        options->user = relay;
    }
}

static by_pack_dedup dedup_of(const by_config *config)
{
    const char *dedup = config->data.dedup; /* NULL for conversations */
    return dedup == NULL                 ? BY_PACK_DEDUP_NONE
           : strcmp(dedup, "near") == 0  ? BY_PACK_DEDUP_NEAR
           : strcmp(dedup, "exact") == 0 ? BY_PACK_DEDUP_EXACT
                                         : BY_PACK_DEDUP_NONE;
}

/* own: conversations are rendered with the template beside the tokenizer, whatever the config
 * names. */
static by_status pack_text(char **directory, const by_config *config, const char *tokenizer,
                           bool own, const by_train_options *progress, by_error *error)
{
    by__task_relay to = {progress};
    by_pack_options options = {.inputs = (const char *const *)config->data.text.items,
                               .input_count = config->data.text.count,
                               .tokenizer_kind = tokenizer,
                               .tokenizer_vocab = (size_t)config->data.tokenizer_vocab,
                               .field = config->data.field,
                               .dedup = dedup_of(config),
                               .skip_corrupt = strcmp(config->data.corrupt, "skip") == 0,
                               .corrupt_budget = config->data.corrupt_budget,
                               .valid_fraction = config->data.valid_fraction,
                               .remote = {.cache = config->data.remote_cache,
                                          .bytes = (uint64_t)config->data.remote_cache_size}};
    by__task_relay_packing(&options, &to);
    if (!by__task_is_chat(config)) {
        return by_pack_cached(directory, &options, config->data.cache, error);
    }
    by__task_chat_pack chat;
    BY_TRY(by__task_chat_pack_open(&chat, config, tokenizer,
                                   progress != NULL && progress->resume != NULL, own, error));
    by__task_chat_pack_use(&chat, &options);
    by_status status = by_pack_cached(directory, &options, config->data.cache, error);
    by__task_chat_pack_close(&chat);
    return status;
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

/* DIRECTORY/tokenizer.json; NULL if there is none. */
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

/* The tokenizer in the newest checkpoint of a run that has one; NULL: none has. */
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
        if (by__checkpoint_step_of_name(names[i - 1], &step)) {
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

/* The tokenizer of a run or of a model's directory, in any form that data.tokenizer accepts; NULL:
 * there is none. */
static by_status find_model_tokenizer(char **out, const char *model, by_error *error)
{
    bool there = false;
    *out = NULL;
    if (by__path_is_dir(model)) {
        BY_TRY(find_tokenizer(out, model, error));
    }
    if (*out == NULL && by__path_is_dir(model)) {
        BY_TRY(find_saved_tokenizer(out, model, error));
    }
    if (*out == NULL && by__path_exists(model)) {
        BY_TRY(by__tokenizer_model_has(&there, model, error));
    }
    return there ? copy(out, model, error) : BY_OK;
}

/* Chooses the tokenizer of data.text, as a path or a kind. An existing run has its own, whatever
 * its origin was: *saved. A tokenizer made from the text would not suit weights to start from, or a
 * teacher, so it is replaced by theirs. */
static by_status choose_tokenizer(char **out, bool *saved, const by_config *config, const char *run,
                                  by_error *error)
{
    const by_data_config *data = &config->data;
    const char *from = config->model.from;
    bool from_text = strcmp(data->tokenizer, "char") == 0 || strcmp(data->tokenizer, "bpe") == 0;
    *out = NULL;
    /* Those who evaluate a run leave model.from out, and conversations are never without it. */
    if (run != NULL && (!from_text || from[0] != '\0' || by__task_is_chat(config))) {
        BY_TRY(find_saved_tokenizer(out, run, error));
    }
    *saved = *out != NULL;
    if (*out == NULL && from_text) {
        BY_TRY(find_model_tokenizer(out, from, error));
    }
    if (*out == NULL && from_text && from[0] == '\0') {
        BY_TRY(find_model_tokenizer(out, config->distill.teacher, error));
    }
    return *out == NULL ? copy(out, data->tokenizer, error) : BY_OK;
}

/* Finds the newest checkpoint of a run, or a directory itself, if it holds tokenizer.json; *out
 * stays NULL otherwise. */
static by_status find_origin_in(char **out, const char *directory, by_error *error)
{
    if (*out != NULL || !by__path_is_dir(directory)) {
        return BY_OK;
    }
    BY_TRY(find_tokenizer(out, directory, error));
    if (*out == NULL) {
        BY_TRY(find_saved_tokenizer(out, directory, error));
    }
    if (*out != NULL) {
        *strrchr(*out, '/') = '\0';
    }
    return BY_OK;
}

static by_status find_origin(by__task_data_paths *paths, const by_config *config, const char *run,
                             by_error *error)
{
    const by_data_config *data = &config->data;
    bool makes_one = strcmp(data->tokenizer, "char") == 0 || strcmp(data->tokenizer, "bpe") == 0;
    if (run != NULL) {
        BY_TRY(find_origin_in(&paths->origin, run, error));
    }
    BY_TRY(find_origin_in(&paths->origin, config->model.from, error));
    return makes_one || data->text.count == 0
               ? BY_OK
               : find_origin_in(&paths->origin, data->tokenizer, error);
}

/* Tells that the tokens of weights to start from are unknown. */
static void note_unknown(const by_config *config, const char *tokenizer,
                         const by_train_options *progress)
{
    char text[512];
    by__task_relay to = {progress};
    if (progress == NULL || config->model.from[0] == '\0' ||
        strcmp(tokenizer, config->data.tokenizer) != 0 ||
        (strcmp(tokenizer, "bpe") != 0 && strcmp(tokenizer, "char") != 0)) {
        return;
    }
    (void)snprintf(
        text, sizeof text,
        "model.from=%.200s has no tokenizer.json, so the text gets a tokenizer of its own "
        "(%s); if the model was trained with another one, set data.tokenizer to it",
        config->model.from, tokenizer);
    relay_note(&to, text);
}

/* Returns true if a checkpoint has a template of conversations beside its tokenizer. */
static bool has_template(const char *tokenizer)
{
    const char *slash = strrchr(tokenizer, '/');
    char *directory = slash == NULL ? NULL : by__strndup(tokenizer, (size_t)(slash - tokenizer));
    char *file = directory == NULL ? NULL : by__path_join(directory, BY__TEMPLATE_FILE);
    bool has = file != NULL && by__path_exists(file);
    free(directory);
    free(file);
    return has;
}

static by_status find_text(by__task_data_paths *paths, const by_config *config,
                           const by_train_options *progress, by_error *error)
{
    char *directory;
    char *tokenizer;
    bool saved;
    BY_TRY(choose_tokenizer(&tokenizer, &saved, config, progress == NULL ? NULL : progress->resume,
                            error));
    note_unknown(config, tokenizer, progress);
    by_status status =
        pack_text(&directory, config, tokenizer, saved && has_template(tokenizer), progress, error);
    paths->chosen = tokenizer;
    BY_TRY(status);
    bool split = config->data.valid_fraction > 0.0;
    status = by__alloc((void **)&paths->train, 1, sizeof *paths->train, "paths", error);
    if (status == BY_OK) {
        status = split ? join(&paths->train[0], directory, "train", error)
                       : copy(&paths->train[0], directory, error);
    }
    paths->train_count = status == BY_OK;
    if (status == BY_OK && split) {
        status = by__alloc((void **)&paths->valid, 1, sizeof *paths->valid, "paths", error);
    }
    if (status == BY_OK && split) {
        status = join(&paths->valid[0], directory, "valid", error);
        paths->valid_count = status == BY_OK;
    }
    free(directory);
    return status;
}

/* True for letters, digits, dots, dashes and underscores. */
static bool is_name(const char *text, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return length > 0 && length <= 32 && strspn(text, letters) >= length;
}

/* Parses NAME=DIR, entry `index` of data.valid_sets; earlier names are known. */
static by_status find_valid_set(by__task_data_paths *paths, const by_config *config, size_t index,
                                by_error *error)
{
    const char *entry = config->data.valid_sets.items[index];
    size_t length = strcspn(entry, "=");
    const char *where = by__config_where(config, "data.valid_sets", "data.valid_sets");
    if (entry[length] == '\0' || entry[length + 1] == '\0' || !is_name(entry, length)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.valid_sets: '%s' is not NAME=DIR with a name of up to 32 "
                            "letters, digits and ._-, such as web=packed/web/valid",
                            where, entry);
    }
    for (size_t i = 0; i < index; i++) {
        if (strlen(paths->names[i]) == length && strncmp(paths->names[i], entry, length) == 0) {
            return by_error_set(error, BY_ECONFIG, "%s: data.valid_sets: two are named '%s'", where,
                                paths->names[i]);
        }
    }
    BY_TRY(copy(&paths->valid[index], entry + length + 1, error));
    paths->valid_count++;
    paths->names[index] = by__strndup(entry, length);
    return paths->names[index] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name")
                                       : BY_OK;
}

/* Finds the held-out data, unless they are a part of data.text. */
static by_status find_valid(by__task_data_paths *paths, const by_config *config, by_error *error)
{
    size_t count = config->data.valid_sets.count;
    bool single = config->data.valid[0] != '\0' && config->data.text.count == 0;
    if (count > 0 && (single || paths->valid_count > 0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.valid_sets and data.%s both give held-out data; leave one "
                            "out, or clear it (%s)",
                            by__config_where(config, "data.valid_sets", "data.valid"),
                            single ? "valid" : "valid_fraction",
                            single ? "--set data.valid=" : "--set data.valid_fraction=0");
    }
    if (count > BY_TASK_PARTS) {
        return by_error_set(
            error, BY_ECONFIG, "%s: data.valid_sets has %zu entries; the most is %d",
            by__config_where(config, "data.valid_sets", "data.valid_sets"), count, BY_TASK_PARTS);
    }
    if (count == 0 && !single) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&paths->valid, count + single, sizeof *paths->valid, "paths", error));
    if (single) {
        BY_TRY(copy(&paths->valid[0], config->data.valid, error));
        paths->valid_count = 1;
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&paths->names, count, sizeof *paths->names, "paths", error));
    for (size_t i = 0; i < count; i++) {
        BY_TRY(find_valid_set(paths, config, i, error));
    }
    return BY_OK;
}

/* Finds the packed directories that the config names. */
static by_status find_packed(by__task_data_paths *paths, const by_config *config, by_error *error)
{
    by__task_data_mix mix;
    BY_TRY(by__task_data_mix_parse(&mix, config, error));
    size_t count = mix.count == 0 ? 1 : mix.count;
    by_status status =
        by__alloc((void **)&paths->train, count, sizeof *paths->train, "paths", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status =
            copy(&paths->train[i], mix.count == 0 ? config->data.train : mix.directories[i], error);
        paths->train_count += status == BY_OK;
    }
    by__task_data_mix_free(&mix);
    return status;
}

static bool relay_verifying(void *user, uint64_t done, uint64_t total)
{
    by_pack_progress progress = {"verifying", done, total, 0};
    return relay_progress(user, &progress);
}

/* Returns true if damaged data are skipped. */
static bool skips_damage(const by_config *config)
{
    return strcmp(config->data.corrupt, "skip") == 0;
}

by_status by__task_verify_data(const char *directory, const by_config *config,
                               const by_train_options *progress, by_error *error)
{
    by__task_relay to = {progress};
    by_data_verify_options options = {.skip = skips_damage(config),
                                      .progress = progress == NULL ? NULL : relay_verifying,
                                      .user = &to};
    return by_data_verify(directory, &options, error);
}

by_status by__task_open_packed(by_dataset **out, const char *directory, const by_config *config,
                               const by_train_options *progress, by_error *error)
{
    by__task_relay to = {progress};
    by_dataset_options options = {.skip = skips_damage(config),
                                  .progress = progress == NULL ? NULL : relay_verifying,
                                  .user = &to};
    return by_dataset_open(out, directory, &options, error);
}

static by_status read_tokenizer_hash(char out[33], const char *directory, by_error *error)
{
    by__data_token_manifest manifest;
    BY_TRY(by__data_token_manifest_read(&manifest, directory, error));
    memcpy(out, manifest.tokenizer_hash, 33);
    by__data_token_manifest_free(&manifest);
    return BY_OK;
}

/* `way`: what names a tokenizer, "data.tokenizer=". */
static by_status require_same(const char *data, const char *model, const char *way, by_error *error)
{
    bool same;
    char hash[33];
    char own[9];
    BY_TRY(read_tokenizer_hash(hash, data, error));
    BY_TRY(by__tokenizer_model_has_same(&same, own, model, hash, error));
    return same ? BY_OK
                : by_error_set(error, BY_ECONFIG,
                               "%s was packed with another tokenizer (%.8s) than that of the "
                               "model, %s (%s): %s%s",
                               data, hash, model, own, way, model);
}

by_status by__task_same_tokenizer(const char *data, const char *model, by_error *error)
{
    return require_same(data, model, "pack it with --tokenizer ", error);
}

/* Checks that `path`, the value of `key`, has the same tokenizer as the training data. */
static by_status check_tokenizer(const by__task_data_paths *paths, const char *path,
                                 const char *key, by_error *error)
{
    char train[33];
    char other[33];
    BY_TRY(read_tokenizer_hash(train, paths->train[0], error));
    BY_TRY(read_tokenizer_hash(other, path, error));
    return strcmp(train, other) == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s (%s) was packed with another tokenizer (%.8s) than %s (%s, "
                              "%.8s): pack both with one",
                              path, key, other, paths->train[0],
                              paths->train_count > 1 ? "data.mix" : "data.train", train);
}

/* Refuses data of another tokenizer than that of the weights to start from. */
static by_status check_origin(by__task_data_paths *paths, const by_config *config, by_error *error)
{
    char *path = NULL;
    bool same = false;
    bool of_text = paths->chosen != NULL;
    const char *from = config->model.from;
    if (from[0] == '\0' || !by__path_is_dir(from)) {
        return BY_OK;
    }
    BY_TRY(find_saved_tokenizer(&path, from, error)); /* of a run */
    if (path != NULL) {
        *strrchr(path, '/') = '\0';
    }
    by_status status = BY_OK;
    if (by__task_is_chat(config)) { /* whose template may have added tokens */
        status = by__task_chat_fits(paths->train[0], config, path == NULL ? from : path, &same,
                                    &paths->known_tokens, error);
    }
    if (status == BY_OK && !same) {
        status = require_same(paths->train[0], path == NULL ? from : path,
                              of_text ? "set data.tokenizer=" : "pack it with --tokenizer ", error);
    }
    free(path);
    return status;
}

/* Checks that all training data, valid and the weights to start from have the same tokenizer. */
static by_status check_tokenizers(by__task_data_paths *paths, const by_config *config,
                                  bool is_resumed, by_error *error)
{
    for (size_t i = 1; i < paths->train_count; i++) {
        BY_TRY(check_tokenizer(paths, paths->train[i], "data.mix", error));
    }
    for (size_t i = 0; i < paths->valid_count; i++) {
        BY_TRY(check_tokenizer(paths, paths->valid[i],
                               paths->names == NULL ? "data.valid" : "data.valid_sets", error));
    }
    return is_resumed ? BY_OK : check_origin(paths, config, error);
}

by_status by__task_data_prepare(by__task_data_paths *out, const by_config *config,
                                const by_train_options *progress, by_error *error)
{
    by__task_data_paths paths = {0};
    by_status status;
    if (config->data.train[0] != '\0' || config->data.mix.count > 0) {
        status = find_packed(&paths, config, error);
    } else if (config->data.text.count > 0) {
        status = find_text(&paths, config, progress, error);
    } else {
        return by_error_set(
            error, BY_ECONFIG,
            "no data: set data.text=FILE, or data.train=DIR (or data.mix=DIR=WEIGHT...) "
            "to directories that `banyan pack` made");
    }
    if (status == BY_OK) {
        status = find_valid(&paths, config, error);
    }
    if (status == BY_OK) {
        status = join(&paths.tokenizer, paths.train[0], "tokenizer.json", error);
    }
    if (status == BY_OK) {
        status = find_origin(&paths, config, progress == NULL ? NULL : progress->resume, error);
    }
    for (size_t i = 0; i < paths.train_count && status == BY_OK; i++) {
        status = by__task_verify_data(paths.train[i], config, progress, error);
    }
    for (size_t i = 0; i < paths.valid_count && status == BY_OK; i++) {
        status = by__task_verify_data(paths.valid[i], config, progress, error);
    }
    if (status == BY_OK) {
        status =
            check_tokenizers(&paths, config, progress != NULL && progress->resume != NULL, error);
    }
    if (status != BY_OK) {
        by__task_data_paths_free(&paths);
        return status;
    }
    *out = paths;
    return BY_OK;
}

void by__task_data_paths_free(by__task_data_paths *paths)
{
    for (size_t i = 0; i < paths->train_count; i++) {
        free(paths->train[i]);
    }
    free(paths->train);
    for (size_t i = 0; i < paths->valid_count; i++) {
        free(paths->valid[i]);
        free(paths->names == NULL ? NULL : paths->names[i]);
    }
    free(paths->valid);
    free(paths->names);
    free(paths->chosen);
    free(paths->tokenizer);
    free(paths->origin);
    *paths = (by__task_data_paths){0};
}

by_status by__task_model_tokenizer(char **tokenizer, char **origin, const by_config *config,
                                   const char *run, by_error *error)
{
    const by_data_config *data = &config->data;
    bool saved;
    BY_TRY(choose_tokenizer(tokenizer, &saved, config, run, error));
    if (strcmp(*tokenizer, "char") == 0 || strcmp(*tokenizer, "bpe") == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: no tokenizer: set model.from to a model that has one, or "
                            "data.tokenizer to its path",
                            by__config_where(config, "data.tokenizer", "model.from"));
    }
    *origin = NULL;
    if (run != NULL) {
        BY_TRY(find_origin_in(origin, run, error));
    }
    BY_TRY(find_origin_in(origin, config->model.from, error));
    return find_origin_in(origin, data->tokenizer, error);
}
