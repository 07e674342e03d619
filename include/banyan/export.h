/* Exports: trained weights in the forms that other programs run.
 *
 * safetensors  a directory in Hugging Face form: model.safetensors (or shards with an index),
 *              config.json, tokenizer.json and what else is next to the weights
 * gguf         one file for llama.cpp (GGUF version 3): weights, tokenizer, chat template
 * onnx         a graph (opset 18) and, next to it, a file of weights, in f32
 *
 * Tensors are read, converted and written some rows at a time, whatever the size of the model. What
 * is written appears under its name when it is whole, and what was there before stays until then.
 * GGUF files are read back as weights by by_pretrained_open (banyan/infer.h). docs/export.md has
 * the tables of types, architectures and limits.
 */
#ifndef BANYAN_EXPORT_H
#define BANYAN_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/checkpoint.h"
#include "banyan/config.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is exported. All is borrowed. */
typedef struct by_export_source {
    const by_config *config;   /* resolved */
    const by_weights *weights; /* of its model */
    const char *directory;     /* with tokenizer.json and its relatives, or a GGUF file */
    /* What the file says of where it comes from; NULL: nothing. */
    const char *run;         /* name of the run */
    const char *config_hash; /* by_config_hash of its config */
    const char *data_hash;   /* of the data that it was trained on */
} by_export_source;

typedef struct by_export_options {
    const char *format; /* a name of by_export_format_at */
    const char *dtype;  /* of matrices, one of the format's dtypes; NULL: that of the weights */
    const char *output; /* file or directory that is made */
    bool without_cache; /* onnx: the whole sequence at once, without past keys and values */
} by_export_options;

/* A format. `dtypes`: names with spaces between them. */
typedef struct by_export_format {
    const char *name;
    const char *dtypes;
    const char *ending; /* of a file's name, "" for a directory */
    const char *summary;
} by_export_format;

/* The i-th format, static; NULL behind the last. */
BY_API const by_export_format *by_export_format_at(size_t i);

/* What was written. */
typedef struct by_export_report {
    size_t tensors;
    uint64_t bytes; /* of the files with weights */
    /* Of matrices whose rows do not fit the blocks of the dtype, which got a wider one. */
    size_t widened;
} by_export_report;

/* Writes the model. *report may be NULL. BY_EARG: an unknown format or dtype, or something is at
 * the directory's name already, or a weight is too large for the dtype; BY_EFORMAT, BY_ECONFIG: the
 * format or the program that reads it cannot hold the model (the message says what of it);
 * BY_EIO. */
BY_API by_status by_export(by_export_report *report, const by_export_source *source,
                           const by_export_options *options, by_error *error);

/* Whether a file begins as GGUF files do. */
BY_API bool by_gguf_is_file(const char *path);
/* What a GGUF file holds: architecture, sizes, tensors of each type, tokenizer, origin; a line
 * each, or one JSON object. The whole file is checked. Freed with free(). */
BY_API by_status by_gguf_summary(char **out, const char *path, bool json, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
