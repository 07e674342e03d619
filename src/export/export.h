/* export: writers and readers of the formats of other programs.
 *
 * What it is for: a model on disk in the form that another runtime loads, and GGUF files as weights
 * that the rooms above load like any others.
 *
 * One file a format: a row of the table in export_table.c (by__export_row) has its name, its types
 * and the function that writes. GGUF is several: gguf_names.c maps names of tensors and metadata of
 * llama.cpp's architectures to those of the Hugging Face families, in both directions; gguf_types.c
 * converts blocks of its types; gguf_tensors.c lists what a file will hold and makes rows of it;
 * gguf_metadata.c and gguf_vocabulary.c say what the model and its tokens are; gguf_write.c lays
 * out and writes the file. gguf_model.c reads one as weights, gguf_config.c its config.json; the
 * bytes are parsed by data/formats/gguf_file.c, below both this room and the tokenizers.
 *
 * ONNX: onnx_export.c builds the graph of inference and has each op's row write its nodes,
 * onnx_writer.c receives them, onnx_examples.c adds inputs and outputs of models of images and
 * tables.
 *
 * Who owns what: sources are borrowed for a call.
 *
 * Never put here: what a model computes, how a text becomes tokens, compression: a writer stores
 * the values that there are.
 */
#ifndef BY_EXPORT_EXPORT_H
#define BY_EXPORT_EXPORT_H

#include <jansson.h>

#include "banyan/export.h"
#include "banyan/model.h"
#include "banyan/tokenizer.h"
#include "base/base.h"
#include "checkpoint/storage.h"

/* An export while it runs. */
typedef struct by__export {
    const by_export_source *source;
    const by_export_options *options;
    by_export_report report;
    json_t *config;          /* config.json of the model, as by_model_config_json writes it */
    by_tokenizer *tokenizer; /* NULL: there is none */
    json_t *settings;        /* tokenizer_config.json, or NULL */
    char *template;          /* the chat template, or NULL */
} by__export;

typedef struct by__export_row {
    by_export_format format;
    by_status (*write)(by__export *export, by_error *error);
} by__export_row;

by_status by__export_safetensors(by__export *export, by_error *error);
by_status by__export_onnx(by__export *export, by_error *error);
by_status by__export_gguf(by__export *export, by_error *error);

/* tokenizer.json and tokenizer_config.json, of a model whose GGUF file holds both; `written` as
 * by__sink_put takes it. */
by_status by__export_put_tokenizer(const char *directory, const by_tokenizer *tokenizer,
                                   const json_t *settings, by__file_list *written, by_error *error);
/* The end-of-text id: what config.json names, else the tokenizer's; -1: none. And the id in front
 * of every text; -1: none. */
int64_t by__export_eos(const by__export *export);
int64_t by__export_bos(const by__export *export);
/* The name under which the weights hold PREFIX NAME, or NAME; NULL: they do not. */
const char *by__export_find(const by_weights *weights, const char *prefix, const char *name);
/* The type that most elements of the weights have. */
by_dtype by__export_dtype(const by_weights *weights);
/* Directory and name of a file's path, both freed with free(). */
by_status by__export_place(char **directory, char **name, const char *path, by_error *error);

#endif
