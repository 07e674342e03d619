/* compress: methods that make trained weights smaller, and the model directories that they write.
 *
 * Types: a by__compress_method is a compression method: one file, and a row of method_table.c. It
 * gets a by__compress_state, which holds the model's config and weights, the method's
 * settings, and the layers whose weight is a matrix of a product (by__compress_linear; linears.c).
 *
 * A method describes the contents of the new directory: by__compress_put_tensor replaces tensors,
 * by__compress_drop removes them, and all others are copied. job.c does the rest: it writes the
 * safetensors, config.json, state.json and the manifest to a temporary directory and renames that
 * at the end, so that a method that fails or is stopped leaves nothing behind.
 *
 * Memory: tensors that were put are stored on disk, in the temporary directory, until the files are
 * written. A method therefore needs memory for one layer only.
 *
 * Who owns what: the by__compress_state owns what it opened and the temporary directory; the
 * model and the options are borrowed.
 *
 * Never put here: kernels, file formats of other programs (export), the training loop.
 */
#ifndef BY_COMPRESS_COMPRESS_H
#define BY_COMPRESS_COMPRESS_H

#include <jansson.h>

#include "banyan/compress.h"
#include "banyan/tokenizer.h"
#include "base/packing/coded.h"
#include "checkpoint/origin.h"
#include "checkpoint/storage.h"
#include "graph/graph.h"

/* A layer: a matrix that one or more products multiply by; of a parameter that is a stack of
 * matrices, such as the experts of a mixture, one of these. */
typedef struct by__compress_linear {
    char *weight; /* name of the tensor in files: "transformer.h.0.attn.c_attn.weight" */
    char *name;   /* name in graphs; of a matrix of a stack by__checkpoint_stacked_name */
    bool stacked; /* it is a matrix of a stack */
    double share; /* of the tokens that are multiplied by it */
    int64_t n, k; /* outputs, inputs */
    bool in_out;  /* the tensor is [k, n], else [n, k] */
    bool head;    /* it computes the logits */
    bool coded;   /* it was replaced by codes */
} by__compress_linear;

typedef struct by__compress_put {
    char *name;
    by_dtype dtype;
    int rank;
    int64_t shape[BY_TENSOR_MAX_RANK];
    uint64_t offset; /* in the spill file */
    uint64_t bytes;
} by__compress_put;

typedef struct by__compress_method by__compress_method;
typedef struct by__compress_calibrated by__compress_calibrated;

typedef struct by__compress_state {
    const by_compress_options *options;
    const by__compress_method *method;
    char **values; /* values of the method's settings, in order */
    const by_pretrained *model;
    const by_weights *weights;
    by_config *config;
    by__compress_linear *linears;
    size_t linear_count, linear_capacity;
    int threads;
    json_t *json;                 /* config.json of the new directory; a method may change it */
    by__checkpoint_origin origin; /* of the model */
    by_string notes;              /* for state.json: what calibration read */
    by_tokenizer *tokenizer;      /* of a GGUF file, which has it next to the weights; else NULL */
    json_t *settings;             /* its tokenizer_config.json */

    char *directory; /* the new directory, and where it is written first: */
    char *temporary;
    FILE *spill;
    uint64_t spilled;
    by__compress_put *puts;
    size_t put_count, put_capacity;
    bool *dropped;  /* [tensors of the weights] */
    char **renamed; /* [tensors of the weights]: name in the new directory; NULL: unchanged */
    size_t changed;
} by__compress_state;

/* How a layer will be stored. */
typedef struct by__compress_stored_as {
    bool coded; /* otherwise as a matrix of numbers */
    by__code_kind kind;
    int64_t group; /* inputs that share a scale; 0: one scale for each output */
} by__compress_stored_as;

typedef by_status by__compress_calibrate_fn(by__compress_state *c, by__compress_calibrated *what,
                                            void *user, by_error *error);

struct by__compress_method {
    by_compress_method shown;
    by_status (*run)(by__compress_state *c, by_error *error);
    by__compress_calibrate_fn *round; /* rounds layers: for by__compress_run_calibrated */
    /* Returns BY_EARG, before anything is computed, if the method does not support this model.
     * NULL: it supports all models or, if it calibrates, all that read tokens. */
    by_status (*takes)(by__compress_state *c, by_error *error);
    /* Predicts how a layer is stored. NULL: all tensors keep their formats. */
    by__compress_stored_as (*store)(const by__compress_state *c, const by__compress_linear *linear);
    /* Predicts the shape of a tensor; a dimension of 0 means that it is removed. NULL: shapes
     * stay. */
    void (*resize)(const by__compress_state *c, by_tensor_view *tensor);
};

/* Returns row i of the table, or NULL past the last one. */
const by__compress_method *by__compress_method_at(size_t i);
/* The method of a forecast without one, which is not in the table: the model as it is. */
extern const by__compress_method by__compress_method_none;
/* Checks that a job's method supports its model; BY_EARG says why not. */
by_status by__compress_method_check(by__compress_state *c, by_error *error);

/* ---- settings, by name (settings.c) ---- */

by_status by__compress_settings_read(char ***out, const by_compress_method *method,
                                     const char *const *settings, size_t count, by_error *error);
void by__compress_settings_free(char ***values, const by_compress_method *method);
const char *by__compress_setting_text(const by__compress_state *c, const char *name);
double by__compress_setting_number(const by__compress_state *c, const char *name);

/* ---- layers (linears.c) ---- */

/* Builds the forward graph of the model, which computes in f32. The caller closes *out. */
by_status by__compress_graph(by_graph **out, const by__compress_state *c, by_error *error);
/* Lists the layers of the model, whose weights must be open. */
by_status by__compress_linears_list(by__compress_state *c, by_error *error);
/* Reads a weight as rows of outputs, f32 [n, k]. BY_ESTATE: a value is not finite. */
by_status by__compress_linear_read(const by__compress_state *c, const by__compress_linear *linear,
                                   float *out, by_error *error);
/* Returns the name in the files of a graph's parameter: its own name, or that with the family's
 * prefix. Returns NULL if there is neither (or memory is exhausted). Freed with free(). */
char *by__compress_file_name(const by__compress_state *c, const char *name);

/* ---- calibration (calibrate.c, calibration_data.c) ---- */

#define BY__GROUP_LAYERS 8
#define BY__GROUP_GAINS  2

/* The layers that read one value. */
struct by__compress_calibrated {
    by__compress_linear *linears[BY__GROUP_LAYERS];
    /* [n, k] f32 of each layer: the original weight on entry. What the method leaves here is used
     * to calibrate the following blocks. */
    float *weights[BY__GROUP_LAYERS];
    size_t count;
    double *hessian; /* [k, k]: sum of x x^T over the rows x of the value that they multiply */
    int64_t k, rows;
    int block;
    /* Tensors of k elements of a norm, if nothing else reads x: multiplying element i of all of
     * them by c multiplies column i of x by c. */
    char *gains[BY__GROUP_GAINS];
    size_t gain_count;
};

/* Called for each block and each batch of calibration data with the residual stream before and
 * after the block, f32 [rows, width]. */
typedef by_status by__compress_block_fn(by__compress_state *c, int block, const float *before,
                                        const float *behind, int64_t rows, int64_t width,
                                        void *user, by_error *error);

/* Calibration sequences, laid out for programs of `batch` sequences. */
typedef struct by__compress_calibration_tokens {
    int64_t batch, time, rows; /* rows = batch time */
    size_t batches;
    size_t bytes, stride; /* of a batch, i32 [batch, time] */
    uint8_t *data;
} by__compress_calibration_tokens;

/* Calls fn for the layers of each block except the head, block by block. The inputs of a block are
 * computed with the weights that fn left in the blocks before it. */
by_status by__compress_calibrate(by__compress_state *c, by__compress_calibrate_fn *fn, void *user,
                                 by_error *error);
by_status by__compress_calibrate_on(by__compress_state *c,
                                    const by__compress_calibration_tokens *tokens,
                                    by__compress_calibrate_fn *fn, void *user, by_error *error);
/* Calls fn for all blocks without changing weights. */
by_status by__compress_calibrate_blocks(by__compress_state *c, by__compress_block_fn *fn,
                                        void *user, by_error *error);
/* Reads the sequences for programs of about `rows` rows. */
by_status by__compress_calibration_read(by__compress_calibration_tokens *out, by__compress_state *c,
                                        int64_t rows, by_error *error);
void by__compress_calibration_free(by__compress_calibration_tokens *tokens);

/* Computes the upper triangular U, f64 [k, k], with (H + damping mean(diag H))^-1 = U^T U. Reads
 * the upper triangle of h [k, k] and overwrites it. Inputs whose diagonal in H is zero get 1. *out
 * is freed with free(). BY_EARG: H is not positive definite. (inverse_factor.c) */
by_status by__compress_inverse_factor(double **out, double *h, int64_t k, double damping,
                                      int threads, by_error *error);

/* ---- contents of the new directory (job.c) ---- */

/* Opens a job and borrows the options. by__compress_job_close must be called even if this fails. */
by_status by__compress_job_open(by__compress_state *c, const char *directory,
                                const by_pretrained *model, const by_compress_options *options,
                                by_error *error);
/* The same without a directory: the model can be inspected, but nothing written. */
by_status by__compress_job_inspect(by__compress_state *c, const by_pretrained *model,
                                   const by_compress_options *options, by_error *error);
void by__compress_job_close(by__compress_state *c);

/* Removes a tensor of the model, which must exist. */
void by__compress_drop(by__compress_state *c, const char *name);
/* Adds a tensor; its data is copied to the disk. */
by_status by__compress_put_tensor(by__compress_state *c, const char *name, by_dtype dtype, int rank,
                                  const int64_t *shape, const void *data, by_error *error);
/* Replaces a tensor by floats, converted to its dtype (f32, bf16 or f16). */
by_status by__compress_put_f32(by__compress_state *c, const by_tensor_view *tensor,
                               const float *data, by_error *error);
/* Renames a tensor of the model that is kept. */
by_status by__compress_rename(by__compress_state *c, size_t tensor, const char *name,
                              by_error *error);
/* Refuses a model.kind that is none of `families`, whose `what` can be copied. */
by_status by__compress_check_family(const by__compress_state *c, const char *method,
                                    const char *const *families, size_t count, const char *what,
                                    by_error *error);
/* Updates config.json of the new directory after the model's sizes have changed. */
by_status by__compress_resize(by__compress_state *c, const by_model_config *to, by_error *error);
/* Reports progress to the caller. Returns BY_ESTOPPED if the caller wants the job to end. */
by_status by__compress_report(const by__compress_state *c, const char *what, size_t done,
                              size_t all, by_error *error);

/* ---- directories (output.c) ---- */

/* Writes everything and renames the directory to its final name. */
by_status by__compress_finish(by__compress_state *c, by_compressed *out, by_error *error);

/* ---- codes (codes.c) ---- */

/* Settings that several methods of codes share. */
#define BY__SETTING_GROUP                                                                          \
    {                                                                                              \
        .name = "group", .fallback = "64", .words = "32 64 128",                                   \
        .help = "inputs that share a scale"                                                        \
    }
#define BY__SETTING_SCALE(value)                                                                   \
    {                                                                                              \
        .name = "scale", .fallback = (value), .words = "largest search",                           \
        .help = "largest: clips nothing; search: of least square error"                            \
    }
#define BY__SETTING_HEAD                                                                           \
    {                                                                                              \
        .name = "head", .fallback = "8", .words = "8 16",                                          \
        .help = "bits of the matrix that makes logits; 16: it stays bf16, as others' loaders want" \
    }

/* Of methods that invert H. */
#define BY__SETTING_DAMP                                                                           \
    {                                                                                              \
        .name = "damp", .fallback = "0.01", .least = 0.0, .most = 10.0,                            \
        .help = "added to the diagonal of H, of its mean"                                          \
    }

/* How the scale of 4-bit codes is chosen. */
typedef enum by__compress_scale_rule {
    BY__SCALE_LARGEST = 0, /* so that the weight of the largest magnitude is exact, as in
                              packing.h */
    BY__SCALE_SEARCH       /* the least squared error among several scales that clip */
} by__compress_scale_rule;

/* Return the settings "group" and "scale". */
int64_t by__compress_group_setting(const by__compress_state *c);
by__compress_scale_rule by__compress_scale_setting(const by__compress_state *c);

/* Owned codes and scales of a weight. */
typedef struct by__compress_codes {
    by__coded coded; /* borrows the two below */
    uint8_t *codes;
    uint8_t *scales;
} by__compress_codes;

/* Allocates zeroed codes for [n, k]; group 0: one scale for each output. */
by_status by__compress_codes_open(by__compress_codes *out, by__code_kind kind, int64_t n, int64_t k,
                                  int64_t group, by_error *error);
void by__compress_codes_close(by__compress_codes *codes);
/* Chooses a scale for `count` weights of a group and stores it for output j and the group of input
 * i. `importance` weights the squared errors (NULL: 1). Returns the scale as it is stored. */
float by__compress_codes_scale(by__compress_codes *codes, int64_t j, int64_t i, const float *values,
                               const float *importance, int64_t count,
                               by__compress_scale_rule rule);
/* Encodes a value with a scale and returns the decoded value. */
float by__compress_codes_set(by__compress_codes *codes, int64_t j, int64_t i, float value,
                             float scale);
/* Rounds a whole weight [n, k] to nearest. */
void by__compress_codes_round(by__compress_codes *codes, const float *weight,
                              by__compress_scale_rule rule, int threads);
/* Decodes all codes to [n, k]. */
void by__compress_codes_read(const by__compress_codes *codes, float *out, int threads);
/* Allocates zeroed codes of 4 bits for a layer, in groups of the setting "group". */
by_status by__compress_codes_open_layer(by__compress_codes *out, const by__compress_state *c,
                                        const by__compress_linear *linear, by_error *error);
/* Ends the encoding of a layer, whose status it is given and returns: decodes the codes to its
 * weight [n, k], which it replaces by them, and closes them. */
by_status by__compress_codes_close_layer(by__compress_codes *codes, by__compress_state *c,
                                         by__compress_linear *linear, float *weight,
                                         by_status status, by_error *error);
/* Replaces the layer's weight by the codes. */
by_status by__compress_codes_put(by__compress_state *c, by__compress_linear *linear,
                                 const by__compress_codes *codes, by_error *error);
/* Writes quantization_config and the remaining matrices, as bf16. rows: the inputs of products are
 * rounded to 8-bit integers as well. Called after the last layer. */
by_status by__compress_codes_finish(by__compress_state *c, by__code_kind kind, int64_t group,
                                    bool rows, by_error *error);

/* ---- weights rounded to nearest (round_weights.c) ---- */

by_status by__compress_round_layer(by__compress_state *c, by__compress_linear *linear,
                                   by__code_kind kind, int64_t group, by__compress_scale_rule rule,
                                   by_error *error);
/* Encodes the head, if the setting "head" says so, and all layers that have no codes yet. */
by_status by__compress_round_rest(by__compress_state *c, by__code_kind kind, int64_t group,
                                  by_error *error);
/* Runs a method that rounds layers to 4 bits with calibration data, by its `round`. */
by_status by__compress_run_calibrated(by__compress_state *c, by_error *error);

/* ---- GPTQ (gptq.c) and AWQ (awq.c) on one layer ---- */

/* Sorts columns: natural order, or by the diagonal of H, largest first. */
by_status by__compress_gptq_order(int64_t *order, const double *hessian, int64_t k, bool natural,
                                  by_error *error);
/* Computes by__compress_inverse_factor of H in that order. */
by_status by__compress_gptq_factor(double **out, const double *hessian, const int64_t *order,
                                   int64_t k, double damping, int threads, by_error *error);
/* Encodes weight [n, k]. natural: a group's scale is chosen when the group is reached; otherwise
 * all scales are chosen beforehand. */
by_status by__compress_gptq_round(by__compress_codes *codes, const float *weight, const double *u,
                                  const int64_t *order, bool natural, by__compress_scale_rule rule,
                                  int threads, by_error *error);
/* Computes s_i = a_i^alpha / sqrt(min s max s), where a_i^2 is the diagonal of H. */
void by__compress_awq_factors(float *out, const double *hessian, int64_t k, double alpha);
/* Encodes weight [n, k] times the factors (NULL: 1). */
by_status by__compress_awq_round(by__compress_codes *codes, const float *weight,
                                 const double *hessian, const float *factors,
                                 by__compress_scale_rule rule, int threads, by_error *error);
/* Computes the sum over rows x of |(W - Q(W s) / s) x|^2, over all outputs or, if there are more,
 * over 256 of them. */
by_status by__compress_awq_error(double *out, const float *weight, int64_t n, int64_t k,
                                 int64_t group, const double *hessian, const float *factors,
                                 by__compress_scale_rule rule, int threads, by_error *error);

/* ---- pruning of weights (zero_weights.c) ---- */

typedef struct by__compress_prune_rule {
    bool pairs;      /* prune two of four neighbouring inputs of an output; a rest of k is kept */
    double sparsity; /* otherwise the share of weights to set to 0 */
} by__compress_prune_rule;

/* An element of a list to be sorted by qsort: by ascending score, then by position. */
typedef struct by__compress_ranked {
    double score;
    int64_t index;
} by__compress_ranked;
int by__compress_by_score(const void *a, const void *b);
/* Sets gone[i] for the given share of elements with the smallest scores; of equal scores, the first
 * elements. */
by_status by__compress_prune_share(bool *gone, const double *scores, int64_t count, double share,
                                   by_error *error);
/* Sets gone for the two smallest scores of every four neighbours. */
void by__compress_prune_pairs(bool *gone, const double *scores, int64_t count);
/* Prunes the smallest |w| of the whole weight [n, k]; with norms [k] of inputs, the smallest |w|
 * norm of each output (Wanda). */
by_status by__compress_prune_weight(float *weight, int64_t n, int64_t k, const double *norms,
                                    const by__compress_prune_rule *rule, by_error *error);
/* Prunes weight [n, k] by SparseGPT; u is from by__compress_inverse_factor. */
by_status by__compress_sparsegpt_prune(float *weight, int64_t n, int64_t k, const double *u,
                                       const by__compress_prune_rule *rule, int threads,
                                       by_error *error);

/* ---- removal of heads, channels and layers (remove_units.c, width.c, depth.c) ---- */

/* Removes `count` units of `size` neighbouring inputs from weight [n, k], as ZipLM does; u is from
 * by__compress_inverse_factor. gone [k / size] tells which; their columns become 0 and the others
 * compensate. */
by_status by__compress_remove_units(float *weight, bool *gone, int64_t n, int64_t k, int64_t size,
                                    int64_t count, const double *u, int threads, by_error *error);
/* Returns the number of the layer that a tensor in a file belongs to; -1: none. */
int64_t by__compress_layer_of_name(const char *name);
/* That name with another number of the layer, which it has; *out is freed with free(). */
by_status by__compress_renumber(char **out, const char *name, int64_t number, by_error *error);

/* ---- the methods ---- */

extern const by__compress_method by__compress_method_width, by__compress_method_depth,
    by__compress_method_stack, by__compress_method_widen;
extern const by__compress_method by__compress_method_magnitude, by__compress_method_wanda,
    by__compress_method_sparsegpt;
extern const by__compress_method by__compress_method_int8, by__compress_method_w8a8,
    by__compress_method_int4, by__compress_method_awq, by__compress_method_gptq,
    by__compress_method_fp8;
/* Returns how int4, awq and gptq store a layer, from their settings "group" and "head". */
by__compress_stored_as by__compress_store_int4(const by__compress_state *c,
                                               const by__compress_linear *linear);

#endif
