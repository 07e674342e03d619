/* export: writers and readers of other programs' model formats.
 *
 * What it is for: writing a model as files that another runtime can load, and reading GGUF files as
 * weights that the modules above load like any others.
 *
 * Types: by__export is the state of an export; by__export_row is a format, with its name, its
 * dtypes and the function that writes it. Each format has one file and a row of the table in
 * export_table.c.
 *
 * GGUF takes several files. gguf_names.c maps names of tensors and metadata between llama.cpp's
 * architectures and the Hugging Face families, in both directions; gguf_types.c encodes and decodes
 * blocks; gguf_tensors.c lists the tensors of a file and makes their rows; gguf_metadata.c and
 * gguf_vocabulary.c describe the model and its tokens; gguf_write.c lays out and writes the file.
 * gguf_model.c reads a file as weights, gguf_config.c derives its config.json. The bytes are parsed
 * by formats/gguf_file.c, which is below both this module and the tokenizers.
 *
 * ONNX: onnx_export.c builds the inference graph and calls each op's row to write its nodes,
 * onnx_writer.c receives them, onnx_examples.c adds the inputs and outputs of models for images and
 * tables.
 *
 * Who owns what: sources are borrowed for the duration of a call.
 *
 * Never put here: what a model computes, how text becomes tokens, compression: a writer stores the
 * values that it is given.
 */
#ifndef BY_EXPORT_EXPORT_H
#define BY_EXPORT_EXPORT_H

#include <jansson.h>

#include "banyan/export.h"
#include "banyan/model.h"
#include "banyan/tokenizer.h"
#include "base/base.h"
#include "checkpoint/origin.h"
#include "checkpoint/storage.h"

/* The state of a running export. */
typedef struct by__export {
    const by_export_source *source;
    const by_export_options *options;
    by_export_report report;
    by__checkpoint_origin origin; /* of the weights; the file records it */
    json_t *config;          /* config.json of the model, in the format of by_model_config_json */
    by_tokenizer *tokenizer; /* NULL: the model has none */
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
 * by__checkpoint_sink_put takes it. */
by_status by__export_put_tokenizer(const char *directory, const by_tokenizer *tokenizer,
                                   const json_t *settings, by__checkpoint_file_list *written,
                                   by_error *error);
/* The token behind an answer: the one that the chat template writes, which need not be the end of
 * text, else the one that a GGUF source names; -1: none. A template beyond what is supported says
 * nothing. */
by_status by__export_eot(int64_t *out, const by__export *export, by_error *error);
/* The end-of-text id: what config.json names, else the tokenizer's; -1: none. And the id in front
 * of every text; -1: none. */
int64_t by__export_eos(const by__export *export);
int64_t by__export_bos(const by__export *export);
/* Returns PREFIX NAME or NAME, whichever the weights contain, or NULL. */
const char *by__export_find(const by_weights *weights, const char *prefix, const char *name);
/* Returns true if the model ends in outputs of texts (score.weight), as classes or a reward,
 * instead of tokens. */
bool by__export_rates_texts(const by__export *export);
/* Returns the dtype that most elements of the weights have. */
by_dtype by__export_dtype(const by_weights *weights);
/* Returns BY_EARG if the output, with `end` appended to its name, exists. */
by_status by__export_refuse_existing(const by__export *export, const char *end, by_error *error);
/* Checks that files have a tensor of the right shape for every parameter of a resolved config, but
 * for the head and those that match a pattern of `anew` (NULL: none). BY_EFORMAT names the tensor
 * that is missing, or both shapes and the keys of config.json that disagree. */
by_status by__export_check_shapes(const by_config *config, const by_weights *weights,
                                  const by_string_list *anew, by_error *error);
/* Appends the names of the parameters that begin anew (model.new) because the weights lack them or
 * have them in another shape: "a, b". BY_ECONFIG if a pattern matches none of these. */
by_status by__export_new_parameters(by_string *names, const by_config *config,
                                    const by_weights *weights, by_error *error);
/* Splits a file's path into directory and name, both freed with free(). */
by_status by__export_place(char **directory, char **name, const char *path, by_error *error);

#endif
