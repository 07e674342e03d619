/* Compression: trained weights to fewer bytes, and a directory that loads like any other.
 *
 * A method is a row of one table: its name, its settings and what it does. by_compress runs one on
 * a model and writes a new directory: safetensors, config.json, the tokenizer and what else stood
 * next to the weights, state.json, which says where the weights come from and how they were made,
 * and manifest.json with the checksum of every file. It appears whole or not at all.
 *
 * Quantised weights are written as compressed-tensors does (quantization_config of config.json);
 * transformers and vLLM read them where the layers are theirs. Inference multiplies the codes as
 * they are; whatever else reads the directory (eval, a resume, a merge) gets them as f32.
 */
#ifndef BANYAN_COMPRESS_H
#define BANYAN_COMPRESS_H

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A setting of a method, "NAME=VALUE": a number from `least` to `most`, or one of some words. */
typedef struct by_compress_setting {
    const char *name; /* NULL ends a list */
    const char *fallback;
    const char *words; /* "largest search", separated by spaces; NULL: a number */
    double least, most;
    bool whole; /* only whole numbers */
    const char *help;
} by_compress_setting;

typedef struct by_compress_method {
    const char *name;
    const char *summary;
    const by_compress_setting *settings; /* may be NULL */
    bool calibrates;                     /* it looks at data */
} by_compress_method;

/* The methods in the order of the table; NULL behind the last. Static. */
BY_API const by_compress_method *by_compress_method_at(size_t i);
/* NULL: there is none of that name. */
BY_API const by_compress_method *by_compress_method_find(const char *name);

/* How far a job is. */
typedef struct by_compress_progress {
    const char *what; /* the layer, or the step of the work */
    size_t done, all;
} by_compress_progress;

typedef struct by_compress_options {
    const char *method;
    const char *const *settings; /* "NAME=VALUE" */
    size_t setting_count;
    const char *data; /* for methods that look at data: what `banyan eval --data` takes; NULL: what
                         the run was trained on */
    int64_t samples;  /* sequences of it; 0: 128 */
    uint64_t seed;    /* which sequences */
    int threads;      /* 0: the config's */
    const char *run;  /* the run's directory, for its data; NULL: there is none */
    void (*progress)(void *user, const by_compress_progress *progress); /* may be NULL */
    bool (*stop)(void *user); /* asked between layers; may be NULL */
    void *user;
} by_compress_options;

/* What was made. */
typedef struct by_compressed {
    uint64_t bytes_before; /* of all tensors */
    uint64_t bytes_after;
    size_t layers; /* that the method changed */
} by_compressed;

/* Runs a method on a model and writes `directory`. *out may be NULL. BY_EARG: there is something at
 * `directory` already, no such method or setting, or a value that the setting cannot have;
 * BY_ESTATE: a weight is not finite; BY_ESTOPPED: `stop` said so, and nothing is left. */
BY_API by_status by_compress(by_compressed *out, const char *directory, const by_pretrained *model,
                             const by_compress_options *options, by_error *error);

/* What a method will make of a model, before anything is computed. */
typedef struct by_compress_forecast {
    uint64_t bytes;       /* of all tensors in the directory */
    uint64_t memory;      /* of the weights while inference runs */
    uint64_t token_bytes; /* of them that each token of one sequence reads */
    char refused[512];    /* why the method does not take the model, and nothing else is told; "":
                             it does */
} by_compress_forecast;

/* From shapes and settings alone: options->data is not looked at. BY_EARG: no such method or
 * setting, or a value that the setting cannot have. */
BY_API by_status by_compress_forecast_make(by_compress_forecast *out, const by_pretrained *model,
                                           const by_compress_options *options, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
