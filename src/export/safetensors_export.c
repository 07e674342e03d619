/* Writes a directory in Hugging Face format, in a chosen dtype. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "base/json.h"
#include "export/export.h"

/* Elements converted at a time. */
#define CHUNK ((size_t)1024)
/* Of JSON. */
#define MAX_FILE ((size_t)16 << 20)

/* A tensor converted to another dtype as it is read. */
typedef struct converted {
    by__checkpoint_computed computed;
    const by__checkpoint_tensor_entry *from;
    by_tensor_view view; /* of from */
    by_dtype dtype;
    atomic_bool lost; /* a finite value became infinite; set while reading */
} converted;

static float element(const void *data, by_dtype dtype, size_t i)
{
    uint16_t half;
    float value;
    if (dtype == BY_F32) {
        memcpy(&value, (const uint8_t *)data + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const uint8_t *)data + i * sizeof half, sizeof half);
    return dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
}

static void convert(const by__checkpoint_computed *self, uint64_t first, size_t count, void *out)
{
    converted *c = (converted *)(uintptr_t)self;
    float in[CHUNK];
    uint8_t *to = out;
    while (count > 0) {
        size_t n = count < CHUNK ? count : CHUNK;
        by_tensor_slice slice = {.flat = true, .offset = {(int64_t)first}, .shape = {(int64_t)n}};
        by__checkpoint_entry_read(c->from, &c->view, &slice, in);
        for (size_t i = 0; i < n; i++) {
            float value = element(in, c->view.dtype, i);
            uint16_t half = c->dtype == BY_BF16 ? by__f32_to_bf16(value) : by__f32_to_f16(value);
            if (c->dtype == BY_F32) {
                memcpy(to + i * sizeof value, &value, sizeof value);
            } else {
                float back = c->dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
                if (isfinite(value) && !isfinite(back)) {
                    atomic_store(&c->lost, true);
                }
                memcpy(to + i * sizeof half, &half, sizeof half);
            }
        }
        first += n;
        count -= n;
        to += n * by_dtype_size(c->dtype);
    }
}

static bool is_float(int dtype)
{
    return dtype == BY_F32 || dtype == BY_BF16 || dtype == BY_F16;
}

/* Opens weights of the wanted dtype on top of the given ones. *made and *entries must live as long
 * as they do, and be freed with free(). */
static by_status convert_all(by_weights **out, converted **made,
                             by__checkpoint_tensor_entry **entries, const by_weights *weights,
                             by_dtype dtype, by_error *error)
{
    size_t count = by_weights_count(weights);
    BY_TRY(by__alloc((void **)made, count, sizeof **made, "tensor list", error));
    BY_TRY(by__alloc((void **)entries, count, sizeof **entries, "tensor list", error));
    for (size_t i = 0; i < count; i++) {
        const by__checkpoint_tensor_entry *from = by__weights_entry(weights, i);
        by__checkpoint_tensor_entry *entry = &(*entries)[i];
        *entry = *from;
        if (!is_float(from->dtype) || from->dtype == (int)dtype) {
            continue;
        }
        converted *c = &(*made)[i];
        size_t elements;
        c->computed.read = convert;
        c->from = from;
        c->dtype = dtype;
        BY_TRY(by__weights_describe(weights, from->name, &c->view, error));
        BY_TRY(by_tensor_size(&c->view, &elements, NULL, error));
        *entry = (by__checkpoint_tensor_entry){.name = from->name,
                                               .type = by__checkpoint_type_name(dtype),
                                               .dtype = (int)dtype,
                                               .rank = from->rank,
                                               .end = elements * by_dtype_size(dtype),
                                               .file = from->file,
                                               .computed = &c->computed};
        memcpy(entry->shape, from->shape, sizeof entry->shape);
    }
    return by__weights_of(out, by_weights_path(weights), NULL, *entries, count, error);
}

/* Reports values that overflowed; called after all tensors were read. */
static by_status check_values(const converted *made, size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (atomic_load(&made[i].lost)) {
            return by_error_set(error, BY_EARG,
                                "tensor '%s' has a value that %s cannot hold: it is too large; "
                                "f32%s",
                                made[i].from->name, made[i].dtype == BY_F16 ? "f16" : "bf16",
                                made[i].dtype == BY_F16 ? " and bf16 have it" : " has it");
        }
    }
    return BY_OK;
}

/* Writes the existing config.json with changed dtype and origin. */
static by_status write_config(const by__export *e, const char *directory, by_dtype dtype,
                              by_error *error)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    const char *name = names[dtype == BY_F32 ? 0 : dtype == BY_BF16 ? 1 : 2];
    const char *own = by_weights_config(e->source->weights);
    json_t *root = own == NULL ? NULL : by__json_read(own, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        root = json_deep_copy(e->config);
    }
    if (by_weights_in_codes(e->source->weights)) { /* the export stores their values */
        (void)json_object_del(root, "quantization_config");
    }
    const char *key = json_object_get(root, "dtype") != NULL ? "dtype" : "torch_dtype";
    (void)json_object_set_new(root, key, json_string(name));
    by_status status = by__checkpoint_origin_put(root, &e->origin, error);
    char *text = status == BY_OK ? by__json_dump(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (status == BY_OK) {
        status = text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: config.json")
                              : by__checkpoint_sink_put(directory, "config.json", text,
                                                        strlen(text), NULL, error);
    }
    free(text);
    return status;
}

by_status by__export_put_tokenizer(const char *directory, const by_tokenizer *tokenizer,
                                   const json_t *settings, by__checkpoint_file_list *written,
                                   by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by_tokenizer_to_json(tokenizer, &text, &length, error));
    by_status status =
        by__checkpoint_sink_put(directory, "tokenizer.json", text, length, written, error);
    free(text);
    BY_TRY(status);
    text = by__json_dump(settings, JSON_INDENT(2));
    status = text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: tokenizer_config.json")
                          : by__checkpoint_sink_put(directory, "tokenizer_config.json", text,
                                                    strlen(text), written, error);
    free(text);
    return status;
}

/* Returns true if eos_token_id, a number or a list, has the id. */
static bool names_end(const json_t *value, int32_t id)
{
    bool has = json_is_integer(value) && json_integer_value(value) == id;
    for (size_t i = 0; i < json_array_size(value) && !has; i++) {
        const json_t *item = json_array_get(value, i);
        has = json_is_integer(item) && json_integer_value(item) == id;
    }
    return has;
}

/* Sets the ids that end a text. With this file, transformers takes no ids from config.json, so the
 * others of it are repeated. */
static void set_ends(json_t *root, const json_t *config, const int32_t *ids, size_t count)
{
    static const char *const others[] = {"bos_token_id", "pad_token_id"};
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_integer(ids[i]));
    }
    (void)json_object_set_new(root, "eos_token_id", list);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        json_t *value = json_object_get(config, others[i]);
        if (json_is_integer(value) && json_object_get(root, others[i]) == NULL) {
            (void)json_object_set(root, others[i], value);
        }
    }
}

/* Writes generation_config.json of a model with a chat template: what ends an answer may be another
 * token than the end of text, which config.json names, and a runtime that looks for that alone
 * writes until its limit. A file that names all ends stays as it is. */
static by_status write_ends(const by__export *e, const char *directory, by_error *error)
{
    static const char name[] = "generation_config.json";
    int32_t ids[BY_END_TOKENS];
    size_t count;
    json_t *config;
    json_t *root = NULL;
    if (e->tokenizer == NULL || e->template == NULL || by__export_rates_texts(e) ||
        by_model_is_encoder(&e->source->config->model)) {
        return BY_OK;
    }
    BY_TRY(by_end_tokens(ids, &count, e->source->directory, e->tokenizer, error));
    BY_TRY(
        by__json_file(&config, directory, "config.json", MAX_FILE, JSON_REJECT_DUPLICATES, error));
    by_status status =
        by__json_file(&root, directory, name, MAX_FILE, JSON_REJECT_DUPLICATES, error);
    size_t known = 0;
    while (known < count && names_end(json_object_get(root, "eos_token_id"), ids[known])) {
        known++;
    }
    if (status == BY_OK && known < count) {
        root = root != NULL ? root : json_object();
        set_ends(root, config, ids, count);
        char *text = by__json_dump(root, JSON_INDENT(2));
        status = text == NULL
                     ? by_error_set(error, BY_EMEMORY, "out of memory: %s", name)
                     : by__checkpoint_sink_put(directory, name, text, strlen(text), NULL, error);
        free(text);
    }
    json_decref(root);
    json_decref(config);
    return status;
}

/* Copies the other files next to the weights, or writes them from a GGUF file. */
static by_status write_rest(const by__export *e, const char *directory, by_dtype dtype,
                            by_error *error)
{
    if (by__path_is_dir(e->source->directory)) {
        BY_TRY(by__checkpoint_copy_along(directory, e->source->directory, error));
    } else if (e->tokenizer != NULL) {
        BY_TRY(by__export_put_tokenizer(directory, e->tokenizer, e->settings, NULL, error));
    }
    BY_TRY(write_config(e, directory, dtype, error));
    return write_ends(e, directory, error);
}

static by_status write_directory(by__export *e, const by_weights *weights, const converted *made,
                                 by_dtype dtype, const char *temporary, const char *directory,
                                 by_error *error)
{
    if (mkdir(temporary, 0777) != 0) {
        return by_error_set(error, BY_EIO, "cannot create directory %s: %s", temporary,
                            strerror(errno));
    }
    by_status status = by__checkpoint_weights_copy(temporary, weights, 0, error);
    if (status == BY_OK) {
        status = check_values(made, by_weights_count(weights), error);
    }
    if (status == BY_OK) {
        status = write_rest(e, temporary, dtype, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(temporary, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_publish(temporary, directory, error);
    }
    if (status != BY_OK) {
        (void)by__remove_tree(temporary, NULL);
    }
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const by__checkpoint_tensor_entry *entry = by__weights_entry(weights, i);
        e->report.bytes += entry->end - entry->begin;
    }
    e->report.tensors = by_weights_count(weights);
    return status;
}

by_status by__export_safetensors(by__export *e, by_error *error)
{
    const char *name = e->options->dtype;
    by_dtype dtype = by__export_dtype(e->source->weights);
    by_weights *weights = NULL;
    converted *made = NULL;
    by__checkpoint_tensor_entry *entries = NULL;
    char *temporary = NULL;
    by_string text = {0};
    size_t length = strlen(e->options->output);
    if (name != NULL) {
        dtype = strcmp(name, "f32") == 0 ? BY_F32 : strcmp(name, "bf16") == 0 ? BY_BF16 : BY_F16;
    }
    while (length > 1 && e->options->output[length - 1] == '/') {
        length--;
    }
    char *directory = by__strndup(e->options->output, length);
    by_string_add(&text, e->options->output, length);
    by_string_format(&text, ".tmp-%ld", (long)getpid());
    by_status status = by__string_release(&text, &temporary, error);
    if (status == BY_OK && directory == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK) {
        status = convert_all(&weights, &made, &entries, e->source->weights, dtype, error);
    }
    if (status == BY_OK) {
        status = write_directory(e, weights, made, dtype, temporary, directory, error);
    }
    by_weights_close(&weights);
    free(made);
    free(entries);
    free(temporary);
    free(directory);
    return status;
}
