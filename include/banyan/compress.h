/* Compression: reduces the size of trained weights and writes a directory that loads like any
 * model.
 *
 * A method is a row of one table, with its name, settings and implementation. by_compress applies
 * one to a model and writes a new directory: safetensors, config.json, the tokenizer and the other
 * files next to the weights, state.json with the origin of the weights and the settings, and
 * manifest.json with the checksum of every file. The directory appears complete or not at all.
 *
 * Quantized weights use the format of compressed-tensors (quantization_config in config.json),
 * which transformers and vLLM read for layers they know. Inference computes with the codes;
 * everything else that reads the directory (eval, resume, merge) gets f32.
 */
#ifndef BANYAN_COMPRESS_H
#define BANYAN_COMPRESS_H

#include "banyan/device.h"
#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A setting of a method, given as "NAME=VALUE": a number in [least, most], or one of several
 * words. */
typedef struct by_compress_setting {
    const char *name;     /* NULL ends a list */
    const char *fallback; /* default value, as text */
    const char *words;    /* permitted words, separated by spaces; NULL: a number */
    double least, most;   /* least and greatest value of a number */
    bool whole;           /* integers only */
    const char *help;     /* one line for the user */
} by_compress_setting;

/* Description of a method. */
typedef struct by_compress_method {
    const char *name;
    const char *summary;                 /* one line for the user */
    const by_compress_setting *settings; /* ends with a row whose name is NULL; may be NULL */
    bool calibrates;                     /* it needs calibration data */
} by_compress_method;

/* Returns the i-th method of the table; NULL past the end. Static storage. */
BY_API const by_compress_method *by_compress_method_at(size_t i);
/* Returns the method with this name, or NULL. */
BY_API const by_compress_method *by_compress_method_find(const char *name);

/* How far a job has come: `done` of `all` units. */
typedef struct by_compress_progress {
    const char *what; /* the current layer or phase */
    size_t done, all;
} by_compress_progress;

typedef struct by_compress_options {
    const char *method;          /* name of a method */
    const char *const *settings; /* [setting_count], each "NAME=VALUE" */
    size_t setting_count;
    /* For methods that calibrate: text as `banyan eval --data` accepts it. NULL: the data the run
     * was trained on. */
    const char *data;
    int64_t samples;   /* calibration sequences; 0: 128 */
    uint64_t seed;     /* selects the calibration sequences */
    int threads;       /* compute threads; 0: as the model's config says */
    by_device *device; /* of calibration, must outlive the call; NULL: config.device is opened */
    const char *run;   /* run directory, to find its data; NULL: none */
    /* May be NULL. */
    void (*progress)(void *user, const by_compress_progress *progress);
    /* Polled between layers; may be NULL. Returning true stops with BY_ESTOPPED. */
    bool (*stop)(void *user);
    void *user;
} by_compress_options;

/* Result of a compression. */
typedef struct by_compressed {
    uint64_t bytes_before; /* of all tensors as they are stored */
    uint64_t bytes_after;  /* of all tensors */
    size_t layers;         /* number of layers that the method changed */
} by_compressed;

/* Checks, without computing anything, what by_compress checks before its work: the method, its
 * settings, the model and the name of the new directory. Returns BY_EARG if `directory` exists or
 * its parent does not, for an unknown method or setting or an invalid value, or if the method does
 * not support the model. */
BY_API by_status by_compress_check(const char *directory, const by_pretrained *model,
                                   const by_compress_options *options, by_error *error);
/* Applies a method to a model and writes `directory`; `out` may be NULL. Returns BY_EARG as
 * by_compress_check does; BY_ESTATE if a weight is not finite; BY_ESTOPPED, in which case nothing
 * is left behind. */
BY_API by_status by_compress(by_compressed *out, const char *directory, const by_pretrained *model,
                             const by_compress_options *options, by_error *error);

/* What a method would make of a model, computed in advance. */
typedef struct by_compress_forecast {
    uint64_t bytes;       /* of all tensors in the directory */
    uint64_t memory;      /* of the weights during inference */
    uint64_t token_bytes; /* bytes of weights read for each token of a single sequence */
    /* Why the method does not support the model; the other fields are then 0. "": it does. */
    char refused[512];
} by_compress_forecast;

/* Computes a forecast from shapes and settings alone, without calibration data; options->method
 * NULL: of the model as it is. Memory and bytes per token are those of inference in the default
 * precision (by_infer_precision_of). Returns BY_EARG for an unknown method or setting or an invalid
 * value. */
BY_API by_status by_compress_forecast_make(by_compress_forecast *out, const by_pretrained *model,
                                           const by_compress_options *options, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
