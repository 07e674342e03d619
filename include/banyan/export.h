/* Export of trained weights to the formats of other programs:
 *
 *   safetensors  a Hugging Face directory: model.safetensors (or shards with an index),
 *                config.json, tokenizer.json and the other files next to the weights
 *   gguf         one file for llama.cpp (GGUF version 3): weights, tokenizer, chat template
 *   onnx         a graph (opset 18) and a separate file of weights, in f32
 *
 * Tensors are read, converted and written a few rows at a time, whatever the size of the model. The
 * output records the origin of the weights that state.json or config.json next to them states: name
 * of the run, hash of its config, hash of its training data. It appears under its name only when it
 * is complete. by_pretrained_open (banyan/infer.h) reads GGUF files back. docs/export.md lists
 * types, architectures and limits.
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

/* What to export. All members are borrowed. */
typedef struct by_export_source {
    const by_config *config;   /* resolved */
    const by_weights *weights; /* of its model */
    const char *directory;     /* with tokenizer.json and related files, or a GGUF file */
} by_export_source;

typedef struct by_export_options {
    const char *format; /* name of a format (by_export_format_at) */
    const char *dtype;  /* of matrices, one of the format's dtypes; NULL: that of the weights */
    const char *output; /* file or directory to create */
    bool without_cache; /* onnx: takes whole sequences, without past keys and values */
    const char *yields; /* onnx: output of the model, by name; NULL: that of the config */
} by_export_options;

/* A format. */
typedef struct by_export_format {
    const char *name;
    const char *dtypes;  /* names separated by spaces */
    const char *ending;  /* of the file name; "" for a directory */
    const char *summary; /* one line for the user */
} by_export_format;

/* Returns the i-th format; NULL past the last. Static storage. */
BY_API const by_export_format *by_export_format_at(size_t i);

/* What was written. */
typedef struct by_export_report {
    size_t tensors;
    uint64_t bytes; /* of the files with weights */
    /* Matrices whose rows are not a multiple of the dtype's block, stored in a wider dtype
     * instead. */
    size_t widened;
} by_export_report;

/* Writes the model; `report` may be NULL. Returns BY_EARG for an unknown format or dtype, an output
 * that exists, or a weight too large for the dtype; BY_EFORMAT or BY_ECONFIG if the format, or the
 * program that reads it, cannot represent the model (the message says why); BY_EIO. */
BY_API by_status by_export(by_export_report *report, const by_export_source *source,
                           const by_export_options *options, by_error *error);

/* Returns whether a file begins with the GGUF magic number. */
BY_API bool by_gguf_is_file(const char *path);
/* Summarizes a GGUF file: architecture, sizes, tensors of each type, tokenizer and origin, one per
 * line or as a JSON object. Free it with free(). Checks the whole file; returns BY_EFORMAT if it is
 * malformed. */
BY_API by_status by_gguf_summary(char **out, const char *path, bool json, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
