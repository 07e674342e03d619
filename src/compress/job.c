#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "base/json.h"
#include "base/threads.h"
#include "compress/compress.h"
#include "data/tokenizer/gguf_tokenizer.h"

by_status by__job_look(by__compression *c, const by_pretrained *model,
                       const by_compress_options *options, by_error *error)
{
    size_t row = 0;
    c->options = options;
    c->model = model;
    c->weights = by_pretrained_weights(model);
    while (options->method != NULL && by__method_at(row) != NULL &&
           strcmp(by__method_at(row)->shown.name, options->method) != 0) {
        row++;
    }
    c->method = options->method == NULL ? &by__method_none : by__method_at(row);
    if (c->method == NULL) {
        by__text names = {0};
        for (size_t i = 0; by__method_at(i) != NULL; i++) {
            by__text_format(&names, "%s%s", i == 0 ? "" : ", ", by__method_at(i)->shown.name);
        }
        (void)by_error_set(error, BY_EARG, "unknown method '%s'; available are %s", options->method,
                           names.failed ? "" : names.data);
        by__text_free(&names);
        return BY_EARG;
    }
    BY_TRY(by__settings_read(&c->values, &c->method->shown, options->settings,
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
    BY_TRY(by__origin_read(&c->origin, c->weights, error));
    BY_TRY(by__origin_put(c->json, &c->origin, error));
    return by__linears_list(c, error);
}

/* Sets the name of the new directory, and checks that it is free and has a parent. */
static by_status name_directory(by__compression *c, const char *directory, by_error *error)
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

static by_status open_directory(by__compression *c, by_error *error)
{
    by__text text = {0};
    by__text_format(&text, "%s.tmp-%ld", c->directory, (long)getpid());
    BY_TRY(by__text_take(&text, &c->temporary, error));
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
static by_status open_vocabulary(by__compression *c, by_error *error)
{
    bool there;
    const char *path = by_pretrained_directory(c->model);
    if (!by__gguf_is_file(path)) {
        return BY_OK;
    }
    BY_TRY(by__gguf_vocabulary_exists(&there, path, error));
    if (!there) {
        return BY_OK;
    }
    BY_TRY(by__gguf_settings_open(&c->settings, path, error));
    return by__tokenizer_open_gguf(&c->tokenizer, path, error);
}

/* Everything that may be refused before the work. */
static by_status prepare(by__compression *c, const char *directory, const by_pretrained *model,
                         const by_compress_options *options, by_error *error)
{
    if (options->method == NULL) {
        return by_error_set(error, BY_EARG, "no method is named");
    }
    BY_TRY(by__job_look(c, model, options, error));
    BY_TRY(by__method_takes(c, error));
    BY_TRY(name_directory(c, directory, error));
    return open_vocabulary(c, error);
}

by_status by__job_open(by__compression *c, const char *directory, const by_pretrained *model,
                       const by_compress_options *options, by_error *error)
{
    BY_TRY(prepare(c, directory, model, options, error));
    return open_directory(c, error);
}

by_status by_compress_check(const char *directory, const by_pretrained *model,
                            const by_compress_options *options, by_error *error)
{
    by__compression c = {0};
    by_status status = prepare(&c, directory, model, options, error);
    by__job_close(&c);
    return status;
}

void by__job_close(by__compression *c)
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
        by__settings_free(&c->values, &c->method->shown);
    }
    free(c->linears);
    free(c->puts);
    free(c->dropped);
    free(c->renamed);
    free(c->temporary);
    free(c->directory);
    by__text_free(&c->notes);
    by__origin_free(&c->origin);
    json_decref(c->json);
    json_decref(c->settings);
    by_tokenizer_close(&c->tokenizer);
    by_config_close(&c->config);
}

by_status by_compress(by_compressed *out, const char *directory, const by_pretrained *model,
                      const by_compress_options *options, by_error *error)
{
    by__compression c = {0};
    by_compressed made = {0};
    by_status status = by__job_open(&c, directory, model, options, error);
    if (status == BY_OK) {
        status = c.method->run(&c, error);
    }
    if (status == BY_OK) {
        status = by__compress_finish(&c, &made, error);
    }
    by__job_close(&c);
    if (status == BY_OK && out != NULL) {
        *out = made;
    }
    return status;
}

void by__compress_drop(by__compression *c, const char *name)
{
    for (size_t i = 0; i < by_weights_count(c->weights); i++) {
        if (strcmp(by_weights_name(c->weights, i), name) == 0) {
            c->dropped[i] = true;
        }
    }
}

by_status by__compress_put(by__compression *c, const char *name, by_dtype dtype, int rank,
                           const int64_t *shape, const void *data, by_error *error)
{
    by_tensor_view view = {.name = name, .dtype = dtype, .rank = rank};
    size_t bytes;
    memcpy(view.shape, shape, (size_t)rank * sizeof *shape);
    BY_TRY(by_tensor_size(&view, NULL, &bytes, error));
    BY_TRY(
        by__reserve((void **)&c->puts, &c->put_capacity, c->put_count + 1, sizeof *c->puts, error));
    by__put *put = &c->puts[c->put_count];
    *put = (by__put){.name = by__strdup(name),
                     .dtype = dtype,
                     .rank = rank,
                     .offset = c->spilled,
                     .bytes = bytes};
    memcpy(put->shape, view.shape, sizeof put->shape);
    if (put->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: tensors");
    }
    c->put_count++;
    if (bytes > 0 && fwrite(data, bytes, 1, c->spill) != 1) {
        return by_error_set(error, BY_EIO, "cannot write to %s: %s", c->temporary, strerror(errno));
    }
    c->spilled += bytes;
    return BY_OK;
}

by_status by__compress_put_f32(by__compression *c, const by_tensor_view *tensor, const float *data,
                               by_error *error)
{
    size_t count;
    uint16_t *narrow;
    const by_tensor_view *t = tensor;
    BY_TRY(by_tensor_size(t, &count, NULL, error));
    if (t->dtype != BY_BF16 && t->dtype != BY_F16) {
        return by__compress_put(c, t->name, BY_F32, t->rank, t->shape, data, error);
    }
    BY_TRY(by__alloc((void **)&narrow, count, sizeof *narrow, "a tensor", error));
    for (size_t i = 0; i < count; i++) {
        narrow[i] = t->dtype == BY_BF16 ? by__f32_to_bf16(data[i]) : by__f32_to_f16(data[i]);
    }
    by_status status = by__compress_put(c, t->name, t->dtype, t->rank, t->shape, narrow, error);
    free(narrow);
    return status;
}

by_status by__compress_rename(by__compression *c, size_t tensor, const char *name, by_error *error)
{
    free(c->renamed[tensor]);
    c->renamed[tensor] = by__strdup(name);
    return c->renamed[tensor] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: tensors")
                                      : BY_OK;
}

static by_status read_sizes(json_t **out, const by_model_config *config, by_error *error)
{
    char *text;
    BY_TRY(by_model_config_json(&text, config, -1, error));
    *out = by__json_read(text, 0, NULL);
    free(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: config.json") : BY_OK;
}

/* Everything else in the model's own config.json, such as ids of special tokens, is kept. */
by_status by__compress_resize(by__compression *c, const by_model_config *to, by_error *error)
{
    json_t *was = NULL;
    json_t *now = NULL;
    const char *key;
    json_t *value;
    BY_TRY(read_sizes(&was, &c->config->model, error));
    by_status status = read_sizes(&now, to, error);
    json_object_foreach(now, key, value)
    {
        if (json_object_get(c->json, key) == NULL ||
            !json_equal(value, json_object_get(was, key))) {
            (void)json_object_set(c->json, key, value);
        }
    }
    json_decref(was);
    json_decref(now);
    return status;
}

by_status by__compress_report(const by__compression *c, const char *what, size_t done, size_t all,
                              by_error *error)
{
    const by_compress_progress progress = {what, done, all};
    if (c->options->progress != NULL) {
        c->options->progress(c->options->user, &progress);
    }
    return c->options->stop != NULL && c->options->stop(c->options->user)
               ? by_error_set(error, BY_ESTOPPED, "interrupted; nothing was written")
               : BY_OK;
}
