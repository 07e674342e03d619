#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/threads.h"
#include "compress/compress.h"
#include "text/tokenizer/gguf_tokenizer.h"

by_status by__compress_job_inspect(by__compress_state *c, const by_pretrained *model,
                                   const by_compress_options *options, by_error *error)
{
    size_t row = 0;
    c->options = options;
    c->model = model;
    c->weights = by_pretrained_weights(model);
    while (options->method != NULL && by__compress_method_at(row) != NULL &&
           strcmp(by__compress_method_at(row)->shown.name, options->method) != 0) {
        row++;
    }
    c->method = options->method == NULL ? &by__compress_method_none : by__compress_method_at(row);
    if (c->method == NULL) {
        by_string names = {0};
        for (size_t i = 0; by__compress_method_at(i) != NULL; i++) {
            by_string_format(&names, "%s%s", i == 0 ? "" : ", ",
                             by__compress_method_at(i)->shown.name);
        }
        (void)by_error_set(error, BY_EARG, "unknown method '%s'; available are %s", options->method,
                           names.failed ? "" : names.data);
        by_string_free(&names);
        return BY_EARG;
    }
    BY_TRY(by__compress_settings_read(&c->values, &c->method->shown, options->settings,
                                      options->setting_count, error));
    BY_TRY(by_config_copy(&c->config, by_pretrained_config(model), error));
    c->config->model.from[0] = '\0';
    BY_TRY(by_config_resolve(c->config, error));
    c->threads =
        by__thread_count(options->threads == 0 ? (int)c->config->train.threads : options->threads);
    BY_TRY(by__alloc((void **)&c->dropped, by_weights_count(c->weights), sizeof *c->dropped,
                     "tensors", error));
    BY_TRY(by__alloc((void **)&c->renamed, by_weights_count(c->weights), sizeof *c->renamed,
                     "tensors", error));
    c->json = by_weights_config(c->weights) == NULL
                  ? NULL
                  : by__json_read(by_weights_config(c->weights), JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(c->json)) {
        return by_error_set(error, BY_EFORMAT, "%s: config.json is not a JSON object",
                            by_pretrained_directory(model));
    }
    /* It describes the codes of the original; the new directory gets its own, or none. */
    (void)json_object_del(c->json, "quantization_config");
    BY_TRY(by__checkpoint_origin_read(&c->origin, c->weights, error));
    BY_TRY(by__checkpoint_origin_put(c->json, &c->origin, error));
    return by__compress_linears_list(c, error);
}

/* Sets the name of the new directory, and checks that it is free and has a parent. */
static by_status name_directory(by__compress_state *c, const char *directory, by_error *error)
{
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') {
        length--;
    }
    c->directory = by__strndup(directory, length);
    while (length > 0 && directory[length - 1] != '/') {
        length--;
    }
    char *parent = length == 0 ? by__strdup(".") : by__strndup(directory, length);
    by_status status = BY_OK;
    if (c->directory == NULL || parent == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
    } else if (c->directory[0] == '\0') {
        status = by_error_set(error, BY_EARG, "the name of the new directory is empty");
    } else if (by__path_exists(c->directory)) {
        status = by_error_set(error, BY_EARG, "%s already exists; name a new directory", directory);
    } else if (!by__path_is_dir(parent)) {
        status = by_error_set(error, BY_EARG, "%s: there is no directory %s; make it first",
                              directory, parent);
    }
    free(parent);
    return status;
}

static by_status open_directory(by__compress_state *c, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "%s.tmp-%ld", c->directory, (long)getpid());
    BY_TRY(by__string_release(&text, &c->temporary, error));
    if (mkdir(c->temporary, 0777) != 0) {
        by_status status = by_error_set(error, BY_EIO, "cannot create directory %s: %s",
                                        c->temporary, strerror(errno));
        free(c->temporary);
        c->temporary = NULL;
        return status;
    }
    char *spill = by__path_join(c->temporary, "spill");
    c->spill = spill == NULL ? NULL : fopen(spill, "w+b");
    by_status status = c->spill == NULL
                           ? by_error_set(error, BY_EIO, "cannot create a file in %s: %s",
                                          c->temporary, strerror(errno))
                           : BY_OK;
    free(spill);
    return status;
}

/* What is in a GGUF file besides the weights: read before the work, for it may be refused. */
static by_status open_vocabulary(by__compress_state *c, by_error *error)
{
    bool there;
    const char *path = by_pretrained_directory(c->model);
    if (!by__format_gguf_is_file(path)) {
        return BY_OK;
    }
    BY_TRY(by__tokenizer_gguf_vocabulary_exists(&there, path, error));
    if (!there) {
        return BY_OK;
    }
    BY_TRY(by__tokenizer_gguf_settings_open(&c->settings, path, error));
    return by__tokenizer_open_gguf(&c->tokenizer, path, error);
}

/* Everything that may be refused before the work. */
static by_status prepare(by__compress_state *c, const char *directory, const by_pretrained *model,
                         const by_compress_options *options, by_error *error)
{
    if (options->method == NULL) {
        return by_error_set(error, BY_EARG, "no method is named");
    }
    BY_TRY(by__compress_job_inspect(c, model, options, error));
    BY_TRY(by__compress_method_check(c, error));
    BY_TRY(name_directory(c, directory, error));
    return open_vocabulary(c, error);
}

by_status by__compress_job_open(by__compress_state *c, const char *directory,
                                const by_pretrained *model, const by_compress_options *options,
                                by_error *error)
{
    BY_TRY(prepare(c, directory, model, options, error));
    return open_directory(c, error);
}

by_status by_compress_check(const char *directory, const by_pretrained *model,
                            const by_compress_options *options, by_error *error)
{
    by__compress_state c = {0};
    by_status status = prepare(&c, directory, model, options, error);
    by__compress_job_close(&c);
    return status;
}

void by__compress_job_close(by__compress_state *c)
{
    if (c->spill != NULL) {
        (void)fclose(c->spill);
    }
    if (c->temporary != NULL) {
        (void)by__remove_tree(c->temporary, NULL); /* empty after success */
    }
    for (size_t i = 0; i < c->linear_count; i++) {
        free(c->linears[i].weight);
        free(c->linears[i].name);
    }
    for (size_t i = 0; i < c->put_count; i++) {
        free(c->puts[i].name);
    }
    for (size_t i = 0; c->renamed != NULL && i < by_weights_count(c->weights); i++) {
        free(c->renamed[i]);
    }
    if (c->method != NULL) {
        by__compress_settings_free(&c->values, &c->method->shown);
    }
    free(c->linears);
    free(c->puts);
    free(c->dropped);
    free(c->renamed);
    free(c->temporary);
    free(c->directory);
    by_string_free(&c->notes);
    by__checkpoint_origin_free(&c->origin);
    json_decref(c->json);
    json_decref(c->settings);
    by_tokenizer_close(&c->tokenizer);
    by_config_close(&c->config);
}

by_status by_compress(by_compressed *out, const char *directory, const by_pretrained *model,
                      const by_compress_options *options, by_error *error)
{
    by__compress_state c = {0};
    by_compressed made = {0};
    by_status status = by__compress_job_open(&c, directory, model, options, error);
    if (status == BY_OK) {
        status = c.method->run(&c, error);
    }
    if (status == BY_OK) {
        status = by__compress_finish(&c, &made, error);
    }
    by__compress_job_close(&c);
    if (status == BY_OK && out != NULL) {
        *out = made;
    }
    return status;
}
