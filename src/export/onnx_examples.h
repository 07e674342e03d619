/* Inputs and outputs of ONNX models for images, tables and series: raw pixels, numbers and category
 * ids as in the user's data, and logits or values. What was learned from the training data
 * (preprocessor_config.json, encoding.json, series.json) becomes nodes. */
#ifndef BY_EXPORT_ONNX_EXAMPLES_H
#define BY_EXPORT_ONNX_EXAMPLES_H

#include "banyan/table.h"
#include "data/loader/pixel_scales.h"
#include "data/series/series_set.h"
#include "export/export.h"
#include "export/onnx_writer.h"
#include "nn/series.h"

typedef struct by__export_onnx_examples {
    char *text;                     /* text of the file */
    const char *key;                /* metadata key that the text is stored under */
    by__loader_pixel_scales scales; /* of images */
    by_encoding *encoding;          /* of tables, else NULL */
    by__series_scales *series;      /* of series, else NULL; */
    by__nn_series_kind forecasts;   /* what is forecast of them */
    bool noisy;                     /* images are those that a diffusion denoises, in its scale */
    char *labels;                   /* names of classes, "id2label" of config.json; NULL: none */
} by__export_onnx_examples;

/* Reads the files next to the weights; zeros for a model of tokens. by__export_onnx_examples_close
 * must be called even if this fails. */
by_status by__export_onnx_examples_open(by__export_onnx_examples *x, const by__export *export,
                                        by_error *error);
void by__export_onnx_examples_close(by__export_onnx_examples *x);
/* Adds the input and the nodes that convert it to what the model reads. *name, the result's name,
 * is owned by the input or the writer. */
by_status by__export_onnx_examples_input(const by__export_onnx_examples *x,
                                         by__export_onnx_writer *writer,
                                         const by__graph_value *input, const char **name,
                                         by_error *error);
/* Adds the output: the model's result with this name and type. named: which output of the model it
 * is, which is then written as it is; "": the main one. */
by_status by__export_onnx_examples_output(const by__export_onnx_examples *x,
                                          by__export_onnx_writer *writer, const char *name,
                                          const by__graph_value *result, const char *named,
                                          by_error *error);

#endif
