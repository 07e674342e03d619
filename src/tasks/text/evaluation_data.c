/* Data to evaluate a model on: a packed directory, or text that is packed temporarily. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "tasks/tasks.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/language.h"

#define COPY_BYTES ((size_t)1 << 16)

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: path");
}

static by_status make_temporary(char **out, by_error *error)
{
    char *path = by__path_join(by__temporary_dir(), "banyan-evaluate-XXXXXX");
    if (path == NULL) {
        return no_memory(error);
    }
    if (mkdtemp(path) == NULL) {
        by_status status = by__io_error(error, "create directory", path);
        free(path);
        return status;
    }
    *out = path;
    return BY_OK;
}

static by_status copy_all(int to, int from, const char *path, const by_train_options *progress,
                          by_error *error)
{
    char block[COPY_BYTES];
    for (;;) {
        if (progress != NULL && progress->stop != NULL && progress->stop(progress->user)) {
            return by_error_set(error, BY_ESTOPPED, "stopped while reading %s", path);
        }
        ssize_t n = read(from, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n == 0 ? BY_OK : by__io_error(error, "read", path);
        }
        for (ssize_t done = 0; done < n;) {
            ssize_t wrote = write(to, block + done, (size_t)(n - done));
            if (wrote < 0 && errno != EINTR) {
                return by__io_error(error, "copy", path);
            }
            done += wrote > 0 ? wrote : 0;
        }
    }
}

/* Copies a pipe to a file, because packing reads its text more than once. */
static by_status spool(const char *path, const char *file, const by_train_options *progress,
                       by_error *error)
{
    bool is_input = strcmp(path, "-") == 0;
    int from = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) {
        return by__io_error(error, "open", path);
    }
    by_status status = BY_OK;
    int to = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0) {
        status = by__io_error(error, "create", file);
    } else {
        status = copy_all(to, from, is_input ? "standard input" : path, progress, error);
        (void)close(to);
    }
    if (!is_input) {
        (void)close(from);
    }
    return status;
}

static by_status pack(const char *text, const char *output, const char *tokenizer,
                      const by_config *config, const by_train_options *progress, by_error *error)
{
    by__task_relay relay = {progress};
    by_pack_options options = {.inputs = &text,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = tokenizer,
                               .field = config->data.field,
                               .remote = {.cache = config->data.remote_cache,
                                          .bytes = (uint64_t)config->data.remote_cache_size}};
    by__task_relay_packing(&options, &relay);
    if (!by__task_is_chat(config)) {
        return by_pack(&options, NULL, error);
    }
    by__task_chat_pack chat;
    BY_TRY(by__task_chat_pack_open(&chat, config, tokenizer, true, true, error));
    by__task_chat_pack_use(&chat, &options);
    options.skip_corrupt = strcmp(config->data.corrupt, "skip") == 0;
    options.corrupt_budget = config->data.corrupt_budget;
    by_status status = by_pack(&options, NULL, error);
    by__task_chat_pack_close(&chat);
    return status;
}

static by_status pack_text(by__task_evaluation_data *data, const char *path,
                           const char *model_directory, const by_config *config,
                           const by_train_options *progress, by_error *error)
{
    struct stat info;
    bool is_stream = strcmp(path, "-") == 0 ||
                     (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
    bool is_directory = by__path_is_dir(model_directory);
    char *tokenizer = is_directory ? by__path_join(model_directory, "tokenizer.json")
                                   : by__strdup(model_directory); /* a GGUF file */
    char *text = NULL;
    by_status status = tokenizer == NULL ? no_memory(error) : BY_OK;
    if (status == BY_OK && !by__path_exists(tokenizer)) {
        status = by_error_set(error, BY_EARG,
                              "%s has no tokenizer.json to tokenize %s: name a packed directory",
                              model_directory, path);
    }
    if (status == BY_OK) {
        status = make_temporary(&data->temporary, error);
    }
    if (status == BY_OK) {
        data->directory = by__path_join(data->temporary, "packed");
        text = by__path_join(data->temporary, "text.txt");
        status = data->directory == NULL || text == NULL ? no_memory(error) : BY_OK;
    }
    if (status == BY_OK && is_stream) {
        status = spool(path, text, progress, error);
    }
    if (status == BY_OK) {
        status = pack(is_stream ? text : path, data->directory, tokenizer, config, progress, error);
    }
    free(text);
    free(tokenizer);
    return status;
}

by_status by__task_evaluation_data_open(by__task_evaluation_data *out, const char *path,
                                        const char *model_directory, const by_config *config,
                                        const by_train_options *progress, by_error *error)
{
    by__task_evaluation_data data = {0};
    by_status status;
    char *manifest = by__path_join(path, "manifest.json");
    if (manifest == NULL) {
        return no_memory(error);
    }
    if (by__path_exists(manifest)) {
        data.directory = by__strdup(path);
        status = data.directory == NULL ? no_memory(error)
                                        : by__task_verify_data(path, config, progress, error);
        if (status == BY_OK) {
            status = by__task_same_tokenizer(path, model_directory, error);
        }
    } else {
        status = pack_text(&data, path, model_directory, config, progress, error);
    }
    free(manifest);
    if (status != BY_OK) {
        by__task_evaluation_data_close(&data);
        return status;
    }
    *out = data;
    return BY_OK;
}

void by__task_evaluation_data_close(by__task_evaluation_data *data)
{
    if (data->temporary != NULL) {
        (void)by__remove_tree(data->temporary, NULL);
    }
    free(data->temporary);
    free(data->directory);
    *data = (by__task_evaluation_data){0};
}
