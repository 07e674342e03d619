/* The table of formats, and the source of an export. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "export/export.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

#define MAX_TEXT ((size_t)64 << 20)

static const by__export_row rows[] = {
    {{"safetensors", "f32 bf16 f16", "", "a directory in Hugging Face form"},
     by__export_safetensors},
    {{"gguf", "f32 bf16 f16 q8_0 q4_0 q4_k", ".gguf", "a file for llama.cpp"}, by__export_gguf},
    {{"onnx", "f32", ".onnx", "a graph for ONNX Runtime"}, by__export_onnx},
};

const by_export_format *by_export_format_at(size_t i)
{
    return i < BY_ARRAY_LENGTH(rows) ? &rows[i].format : NULL;
}

static const by__export_row *find_row(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (strcmp(rows[i].format.name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Returns true if the space-separated list `names` contains the word. */
static bool has_word(const char *names, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(names, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static by_status check_options(const by__export_row **row, const by_export_options *options,
                               by_error *error)
{
    by_string all = {0};
    char *names = NULL;
    *row = find_row(options->format);
    if (*row == NULL) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
            by_string_format(&all, "%s%s", i == 0 ? "" : ", ", rows[i].format.name);
        }
        BY_TRY(by__string_release(&all, &names, error));
        (void)by_error_set(error, BY_EARG, "there is no format '%.60s': one of %s", options->format,
                           names);
        free(names);
        return BY_EARG;
    }
    if (options->dtype != NULL && !has_word((*row)->format.dtypes, options->dtype)) {
        return by_error_set(error, BY_EARG, "%s has no dtype '%.60s': one of %s", options->format,
                            options->dtype, (*row)->format.dtypes);
    }
    return BY_OK;
}

/* Reads a JSON object from the source's directory; NULL if the file does not exist. Only its texts
 * and switches are read, and integers may be too large for json_t ("model_max_length"). */
static by_status read_json(json_t **out, const char *directory, const char *name, by_error *error)
{
    BY_TRY(by__json_file(out, directory, name, MAX_TEXT,
                         JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, error));
    return *out == NULL || json_is_object(*out)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s/%s: not an object", directory, name);
}

/* Reads the chat template from chat_template.jinja, or from tokenizer_config.json, where it is a
 * string or a list of named strings. */
static by_status read_template(by__export *e, by_error *error)
{
    size_t length;
    char *path = by__path_join(e->source->directory, "chat_template.jinja");
    by_status status =
        path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
    if (status == BY_OK && by__path_exists(path)) {
        status = by__file_read_text(&e->template, &length, path, MAX_TEXT, error);
    }
    free(path);
    BY_TRY(status);
    const json_t *said = json_object_get(e->settings, "chat_template");
    for (size_t i = 0; json_is_array(said) && i < json_array_size(said); i++) {
        const json_t *item = json_array_get(said, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            said = json_object_get(item, "template");
        }
    }
    if (e->template == NULL && json_is_string(said)) {
        e->template = by__strdup(json_string_value(said));
        return e->template == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: template")
                                   : BY_OK;
    }
    return BY_OK;
}

static by_status read_tokenizer(by__export *e, by_error *error)
{
    const char *directory = e->source->directory;
    if (strcmp(by_model_reads(&e->source->config->model), "tokens") != 0) {
        return BY_OK;
    }
    bool there;
    BY_TRY(by__tokenizer_model_has(&there, directory, error));
    BY_TRY(there ? by_tokenizer_open(&e->tokenizer, directory, error) : BY_OK);
    BY_TRY(by__path_is_dir(directory)
               ? read_json(&e->settings, directory, "tokenizer_config.json", error)
               : by__tokenizer_gguf_settings_open(&e->settings, directory, error));
    return read_template(e, error);
}

static by_status open_source(by__export *e, by_error *error)
{
    char *text;
    json_error_t problem;
    BY_TRY(by__checkpoint_origin_read(&e->origin, e->source->weights, error));
    BY_TRY(read_tokenizer(e, error));
    BY_TRY(by_model_config_json(&text, &e->source->config->model, by__export_eos(e), error));
    e->config = by__json_read(text, 0, &problem);
    free(text);
    return e->config != NULL ? BY_OK
                             : by_error_set(error, BY_EFORMAT, "config.json: %s", problem.text);
}

/* Refuses a model that ends in outputs of texts for formats of models that write texts. */
static by_status check_head(const by__export_row *row, const by__export *export, by_error *error)
{
    return row == &rows[0] || !by__export_rates_texts(export)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "--format %s is for models that continue texts, and this one ends in "
                              "outputs of texts (score.weight): use --format safetensors, or an "
                              "encoder",
                              row->format.name);
}

by_status by_export(by_export_report *report, const by_export_source *source,
                    const by_export_options *options, by_error *error)
{
    by__export export = {.source = source, .options = options};
    const by__export_row *row;
    BY_TRY(check_options(&row, options, error));
    BY_TRY(check_head(row, &export, error));
    BY_TRY(by__export_refuse_existing(&export, "", error));
    by_status status = open_source(&export, error);
    if (status == BY_OK) {
        status = row->write(&export, error);
    }
    if (status == BY_OK && report != NULL) {
        *report = export.report;
    }
    json_decref(export.config);
    json_decref(export.settings);
    by_tokenizer_close(&export.tokenizer);
    by__checkpoint_origin_free(&export.origin);
    free(export.template);
    return status;
}
