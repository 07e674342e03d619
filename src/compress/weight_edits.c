/* What a method says of the new weights: tensors that it replaces, removes and names anew. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/json.h"
#include "compress/compress.h"

void by__compress_drop(by__compress_state *c, const char *name)
{
    for (size_t i = 0; i < by_weights_count(c->weights); i++) {
        if (strcmp(by_weights_name(c->weights, i), name) == 0) {
            c->dropped[i] = true;
        }
    }
}

by_status by__compress_put_tensor(by__compress_state *c, const char *name, by_dtype dtype, int rank,
                                  const int64_t *shape, const void *data, by_error *error)
{
    by_tensor_view view = {.name = name, .dtype = dtype, .rank = rank};
    size_t bytes;
    memcpy(view.shape, shape, (size_t)rank * sizeof *shape);
    BY_TRY(by_tensor_size(&view, NULL, &bytes, error));
    BY_TRY(
        by__reserve((void **)&c->puts, &c->put_capacity, c->put_count + 1, sizeof *c->puts, error));
    by__compress_put *put = &c->puts[c->put_count];
    *put = (by__compress_put){.name = by__strdup(name),
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

by_status by__compress_put_f32(by__compress_state *c, const by_tensor_view *tensor,
                               const float *data, by_error *error)
{
    size_t count;
    uint16_t *narrow;
    const by_tensor_view *t = tensor;
    BY_TRY(by_tensor_size(t, &count, NULL, error));
    if (t->dtype != BY_BF16 && t->dtype != BY_F16) {
        return by__compress_put_tensor(c, t->name, BY_F32, t->rank, t->shape, data, error);
    }
    BY_TRY(by__alloc((void **)&narrow, count, sizeof *narrow, "a tensor", error));
    for (size_t i = 0; i < count; i++) {
        narrow[i] = t->dtype == BY_BF16 ? by__f32_to_bf16(data[i]) : by__f32_to_f16(data[i]);
    }
    by_status status =
        by__compress_put_tensor(c, t->name, t->dtype, t->rank, t->shape, narrow, error);
    free(narrow);
    return status;
}

by_status by__compress_rename(by__compress_state *c, size_t tensor, const char *name,
                              by_error *error)
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

by_status by__compress_check_family(const by__compress_state *c, const char *method,
                                    const char *const *families, size_t count, const char *what,
                                    by_error *error)
{
    const char *kind = c->config->model.kind;
    by_string list = {0};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(kind, families[i]) == 0) {
            by_string_free(&list);
            return BY_OK;
        }
        by_string_format(&list, "%s%s", i == 0 ? "" : ", ", families[i]);
    }
    by_status status =
        by_error_set(error, BY_EARG, "%s: model.kind %s is none of %s, whose %s can be copied",
                     method, kind, list.failed ? "its families" : list.data, what);
    by_string_free(&list);
    return status;
}

/* Everything else in the model's own config.json, such as ids of special tokens, is kept. */
by_status by__compress_resize(by__compress_state *c, const by_model_config *to, by_error *error)
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

by_status by__compress_report(const by__compress_state *c, const char *what, size_t done,
                              size_t all, by_error *error)
{
    const by_compress_progress progress = {what, done, all};
    if (c->options->progress != NULL) {
        c->options->progress(c->options->user, &progress);
    }
    return c->options->stop != NULL && c->options->stop(c->options->user)
               ? by_error_set(error, BY_ESTOPPED, "interrupted; nothing was written")
               : BY_OK;
}
