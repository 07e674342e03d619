/* Writes the new directory: safetensors, config.json, the other files next to the weights,
 * state.json and the manifest. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "compress/compress.h"
#include "export/export.h"
#include "infer/infer.h"

/* Tensors to write, sorted by name. */
typedef struct content {
    by_tensor_view *views;
    const by__checkpoint_tensor_entry **entries;
    by__checkpoint_tensor_entry *own; /* tensors that were put */
    size_t count;
    by__map spill;
} content;

static void free_content(content *x)
{
    free(x->views);
    free(x->entries);
    free(x->own);
    by__map_close(&x->spill);
}

static by_status map_spill(by__compress_state *c, content *x, by_error *error)
{
    char *path = by__path_join(c->temporary, "spill");
    int failed = fclose(c->spill);
    c->spill = NULL;
    by_status status = path == NULL  ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                       : failed != 0 ? by__io_error(error, "write", path)
                                     : by__map_open(&x->spill, path, error);
    if (status == BY_OK) {
        status = by__remove_tree(path, error); /* the map remains valid */
    }
    free(path);
    return status;
}

static by_status collect(content *x, const by__compress_state *c, by_compressed *out,
                         by_error *error)
{
    size_t kept = by_weights_count(c->weights);
    size_t most = kept + c->put_count;
    BY_TRY(by__alloc((void **)&x->views, most, sizeof *x->views, "tensors", error));
    BY_TRY(by__alloc((void **)&x->entries, most, sizeof *x->entries, "tensors", error));
    BY_TRY(by__alloc((void **)&x->own, c->put_count, sizeof *x->own, "tensors", error));
    for (size_t i = 0; i < kept; i++) {
        size_t bytes;
        by_tensor_view *view = &x->views[x->count];
        BY_TRY(by__weights_describe(c->weights, by_weights_name(c->weights, i), view, error));
        BY_TRY(by_tensor_size(view, NULL, &bytes, error));
        const by__checkpoint_tensor_entry *entry = by__weights_entry(c->weights, i);
        out->bytes_before += entry->code_bytes > 0 ? entry->code_bytes : bytes;
        if (!c->dropped[i]) {
            view->name = c->renamed[i] != NULL ? c->renamed[i] : view->name;
            out->bytes_after += bytes;
            x->entries[x->count++] = entry;
        }
    }
    for (size_t i = 0; i < c->put_count; i++) {
        const by__compress_put *put = &c->puts[i];
        by__checkpoint_tensor_entry *entry = &x->own[i];
        by_tensor_view *view = &x->views[x->count];
        *view = (by_tensor_view){.name = put->name, .dtype = put->dtype, .rank = put->rank};
        memcpy(view->shape, put->shape, sizeof view->shape);
        *entry = (by__checkpoint_tensor_entry){.name = put->name,
                                               .type = by__checkpoint_type_name(put->dtype),
                                               .dtype = (int)put->dtype,
                                               .rank = (size_t)put->rank,
                                               .end = put->bytes,
                                               .data = x->spill.data + put->offset};
        out->bytes_after += put->bytes;
        x->entries[x->count++] = entry;
    }
    return BY_OK;
}

static by_status write_config(const by__compress_state *c, by__checkpoint_file_list *written,
                              by_error *error)
{
    char *text = by__json_dump(c->json, JSON_INDENT(2));
    by_status status = text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: config.json")
                                    : by__checkpoint_sink_put(c->temporary, "config.json", text,
                                                              strlen(text), written, error);
    free(text);
    return status;
}

/* The tokenizer and what else is next to the weights, or in their GGUF file. */
static by_status copy_files(const by__compress_state *c, by__checkpoint_file_list *written,
                            by_error *error)
{
    char **names;
    size_t count;
    const char *from = by_pretrained_directory(c->model);
    if (c->tokenizer != NULL) {
        return by__export_put_tokenizer(c->temporary, c->tokenizer, c->settings, written, error);
    }
    if (!by__path_is_dir(from)) {
        return BY_OK;
    }
    BY_TRY(by__list_dir(&names, &count, from, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *path = by__path_join(from, names[i]);
        if (path == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
        } else if (by__checkpoint_goes_along(names[i]) && strcmp(names[i], "config.json") != 0 &&
                   !by__path_is_dir(path)) {
            status = by__checkpoint_sink_copy(c->temporary, names[i], path, written, error);
        }
        free(path);
    }
    by__names_free(names, count);
    return status;
}

/* Appends what is known of the run that trained the weights, under the keys of its checkpoints.
 * Returns the number of values. */
static size_t add_origin(by_checkpoint_value *values, size_t count, const by__compress_state *c)
{
    const char *const known[][2] = {{"run", c->origin.run},
                                    {"config_hash", c->origin.config_hash},
                                    {"train_hash", c->origin.data_hash}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(known); i++) {
        if (known[i][1] != NULL) {
            values[count++] =
                (by_checkpoint_value){known[i][0], BY_VALUE_STRING, {.string = known[i][1]}};
        }
    }
    return count;
}

static by_status write_state(by__compress_state *c, by__checkpoint_file_list *written,
                             by_error *error)
{
    char hash[33];
    char *text;
    char *state = NULL;
    size_t length;
    by_string settings = {0};
    const by_compress_method *method = &c->method->shown;
    const char *directory = by_pretrained_directory(c->model);
    by__infer_pretrained_identify(hash, c->model);
    for (size_t i = 0; method->settings != NULL && method->settings[i].name != NULL; i++) {
        by_string_format(&settings, "%s%s=%s", i == 0 ? "" : " ", method->settings[i].name,
                         c->values[i]);
    }
    by__string_append(&settings, "");
    by__string_append(&c->notes, "");
    BY_TRY(by__string_release(&settings, &text, error));
    by_checkpoint_value values[8] = {
        {"compress.method", BY_VALUE_STRING, {.string = method->name}},
        {"compress.settings", BY_VALUE_STRING, {.string = text}},
        {"compress.source", BY_VALUE_STRING, {.string = directory}},
        {"compress.source_xxh3_128", BY_VALUE_STRING, {.string = hash}},
        {"compress.calibration",
         BY_VALUE_STRING,
         {.string = c->notes.data == NULL ? "" : c->notes.data}},
    };
    size_t count = add_origin(values, 5, c);
    by_status status = by__checkpoint_state_print(0, values, count, &state, &length, error);
    if (status == BY_OK) {
        status = by__checkpoint_sink_put(c->temporary, "state.json", state, length, written, error);
    }
    free(state);
    free(text);
    return status;
}

static by_status write_manifest(const by__compress_state *c,
                                const by__checkpoint_file_list *written, by_error *error)
{
    char *text;
    size_t length;
    const by__checkpoint_manifest manifest = {.files = *written};
    BY_TRY(by__checkpoint_manifest_print(&manifest, &text, &length, error));
    by_status status =
        by__checkpoint_sink_put(c->temporary, "manifest.json", text, length, NULL, error);
    free(text);
    return status;
}

by_status by__compress_finish(by__compress_state *c, by_compressed *out, by_error *error)
{
    content x = {0};
    by__checkpoint_file_list written = {0};
    by_status status = map_spill(c, &x, error);
    if (status == BY_OK) {
        status = collect(&x, c, out, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_entries_write(c->temporary, "model", x.views, x.entries, x.count, 0,
                                              &written, error);
    }
    if (status == BY_OK) {
        status = write_config(c, &written, error);
    }
    if (status == BY_OK) {
        status = copy_files(c, &written, error);
    }
    if (status == BY_OK) {
        status = write_state(c, &written, error);
    }
    if (status == BY_OK) {
        status = write_manifest(c, &written, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(c->temporary, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_publish(c->temporary, c->directory, error);
    }
    out->layers = c->changed;
    by__checkpoint_file_list_free(&written);
    free_content(&x);
    return status;
}
