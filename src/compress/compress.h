/* compress: methods that make trained weights smaller, and the directories that they write.
 *
 * A method is a by__method: one file, and one row of method_table.c. It is called with a
 * by__compression, which has the model's config and weights, the settings, and the list of the
 * layers whose weight is a matrix of a product (linears.c), and says what the new directory is to
 * hold: by__compress_put puts tensors in the place of others, by__compress_drop takes them away,
 * and what it says nothing about is copied. job.c does the rest: it opens and closes, writes the
 * safetensors, config.json, state.json and the manifest into a temporary directory, and gives that
 * its name at the end, so that a method that fails or is stopped leaves nothing.
 *
 * Memory: tensors that were put are on the disk, in the temporary directory, until they are written
 * in their place, so that a method needs memory for one layer.
 *
 * Never put here: kernels, formats of other programs' files (export), the trainer's loop.
 */
#ifndef BY_COMPRESS_COMPRESS_H
#define BY_COMPRESS_COMPRESS_H

#include <jansson.h>

#include "banyan/compress.h"
#include "base/coded.h"
#include "checkpoint/storage.h"
#include "graph/graph.h"

/* A layer: a weight of two axes that one product or more multiplies. */
typedef struct by__linear {
    char *weight; /* name of the tensor in files: "transformer.h.0.attn.c_attn.weight" */
    char *name;   /* in graphs */
    int64_t n, k; /* outputs, inputs */
    bool in_out;  /* the tensor is [k, n], else [n, k] */
    bool head;    /* it makes the logits */
    bool coded;   /* codes were put in its place */
} by__linear;

typedef struct by__put {
    char *name;
    by_dtype dtype;
    int rank;
    int64_t shape[BY_TENSOR_MAX_RANK];
    uint64_t offset; /* in the spill file */
    uint64_t bytes;
} by__put;

typedef struct by__method by__method;

typedef struct by__compression {
    const by_compress_options *options;
    const by__method *method;
    char **values; /* of the method's settings, in their order */
    const by_pretrained *model;
    const by_weights *weights;
    by_config *config;
    by__linear *linears;
    size_t linear_count;
    int threads;
    json_t *json;   /* config.json of the new directory; a method may change it */
    by__text notes; /* for state.json: what calibration read */

    char *directory; /* to write, and where it is written: */
    char *temporary;
    FILE *spill;
    uint64_t spilled;
    by__put *puts;
    size_t put_count, put_capacity;
    bool *dropped; /* of each tensor of the weights */
    size_t changed;
} by__compression;

struct by__method {
    by_compress_method shown;
    by_status (*run)(by__compression *c, by_error *error);
};

/* The rows of the table; NULL behind the last. */
const by__method *by__method_at(size_t i);

/* ---- settings, by name (settings.c) ---- */

by_status by__settings_read(char ***out, const by_compress_method *method,
                            const char *const *settings, size_t count, by_error *error);
void by__settings_free(char ***values, const by_compress_method *method);
const char *by__setting_text(const by__compression *c, const char *name);
double by__setting_number(const by__compression *c, const char *name);

/* ---- layers (linears.c) ---- */

/* Of the model whose weights are open; one that computes in f32. */
by_status by__linears_list(by__compression *c, by_error *error);
/* The weight as rows of outputs, f32 [n, k]. */
by_status by__linear_read(const by__compression *c, const by__linear *linear, float *out,
                          by_error *error);

/* ---- what the directory is to hold (job.c) ---- */

/* Takes a tensor of the model away; one that is not there is an invariant's failure. */
void by__compress_drop(by__compression *c, const char *name);
/* Adds a tensor; data is copied to the disk. */
by_status by__compress_put(by__compression *c, const char *name, by_dtype dtype, int rank,
                           const int64_t *shape, const void *data, by_error *error);
/* Tells who started the job, and BY_ESTOPPED when that one wants it to end. */
by_status by__compress_report(const by__compression *c, const char *what, size_t done, size_t all,
                              by_error *error);

/* ---- directories (output.c) ---- */

/* Writes everything and gives the directory its name. */
by_status by__compress_finish(by__compression *c, by_compressed *out, by_error *error);

/* ---- codes (codes.c) ---- */

/* How a scale of 4 bits is chosen. */
typedef enum by__scale_rule {
    BY__SCALE_LARGEST = 0, /* the weight of the largest magnitude is exact, as packing.h has it */
    BY__SCALE_SEARCH       /* the least square error among some that clip */
} by__scale_rule;

/* Codes of a weight and what they stand for. Owned. */
typedef struct by__codes {
    by__coded coded; /* borrows the two below */
    uint8_t *codes;
    uint8_t *scales;
} by__codes;

/* Room for codes of [n, k]; group 0: a scale for each output. Zeroed. */
by_status by__codes_open(by__codes *out, by__code_kind kind, int64_t n, int64_t k, int64_t group,
                         by_error *error);
void by__codes_close(by__codes *codes);
/* Chooses a scale for `count` weights of a group and stores it, for output j and the group that
 * input i is in. weights of squares: `importance` of each (NULL: 1). Returns it as it is stored. */
float by__codes_scale(by__codes *codes, int64_t j, int64_t i, const float *values,
                      const float *importance, int64_t count, by__scale_rule rule);
/* Codes a value with a scale; returns what it stands for. */
float by__codes_set(by__codes *codes, int64_t j, int64_t i, float value, float scale);
/* Rounds all of a weight [n, k] to nearest. */
void by__codes_round(by__codes *codes, const float *weight, by__scale_rule rule, int threads);
/* Puts the codes in the place of the layer's weight. */
by_status by__codes_put(by__compression *c, by__linear *linear, const by__codes *codes,
                        by_error *error);
/* Writes quantization_config and the matrices that stay as they are, as bf16. rows: what the codes
 * are multiplied with becomes integers of 8 bits. Call it behind the last layer. */
by_status by__codes_finish(by__compression *c, by__code_kind kind, int64_t group, bool rows,
                           by_error *error);

/* ---- weights rounded to nearest (round_weights.c) ---- */

by_status by__round_layer(by__compression *c, by__linear *linear, by__code_kind kind, int64_t group,
                          by__scale_rule rule, by_error *error);
/* The matrix that makes the logits, as the setting "head" says. */
by_status by__round_head(by__compression *c, by_error *error);

/* ---- the methods ---- */

extern const by__method by__method_int8, by__method_int4;

#endif
