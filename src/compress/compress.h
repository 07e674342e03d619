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
#include "banyan/tokenizer.h"
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
    json_t *json;            /* config.json of the new directory; a method may change it */
    by__text notes;          /* for state.json: what calibration read */
    by_tokenizer *tokenizer; /* of a GGUF file, which has it next to the weights; else NULL */
    json_t *settings;        /* its tokenizer_config.json */

    char *directory; /* to write, and where it is written: */
    char *temporary;
    FILE *spill;
    uint64_t spilled;
    by__put *puts;
    size_t put_count, put_capacity;
    bool *dropped;  /* of each tensor of the weights */
    char **renamed; /* of each: its name in the new directory; NULL: the one it has */
    size_t changed;
} by__compression;

/* How a layer will be stored. */
typedef struct by__stored_as {
    bool coded; /* else it stays a matrix of numbers */
    by__code_kind kind;
    int64_t group; /* 0: a scale for each output */
} by__stored_as;

struct by__method {
    by_compress_method shown;
    by_status (*run)(by__compression *c, by_error *error);
    /* BY_EARG: says why the method is not for this model, before anything is computed. NULL: it is
     * for all, or, where it calibrates, for all that read tokens. */
    by_status (*takes)(by__compression *c, by_error *error);
    /* For plans, before anything is computed; NULL: all tensors stay as they are. */
    by__stored_as (*store)(const by__compression *c, const by__linear *linear);
    /* For plans: the shape that a tensor will have; a dimension of 0: it goes away. NULL: the one
     * that it has. */
    void (*resize)(const by__compression *c, by_tensor_view *tensor);
};

/* The rows of the table; NULL behind the last. */
const by__method *by__method_at(size_t i);
/* Whether the method of a job is for its model; BY_EARG says why it is not. */
by_status by__method_takes(by__compression *c, by_error *error);

/* ---- settings, by name (settings.c) ---- */

by_status by__settings_read(char ***out, const by_compress_method *method,
                            const char *const *settings, size_t count, by_error *error);
void by__settings_free(char ***values, const by_compress_method *method);
const char *by__setting_text(const by__compression *c, const char *name);
double by__setting_number(const by__compression *c, const char *name);

/* ---- layers (linears.c) ---- */

/* The forward graph of the model, which computes in f32; the caller closes *out. */
by_status by__compress_graph(by_graph **out, const by__compression *c, by_error *error);
/* Of the model whose weights are open. */
by_status by__linears_list(by__compression *c, by_error *error);
/* The weight as rows of outputs, f32 [n, k]. BY_ESTATE: one of its values is not finite. */
by_status by__linear_read(const by__compression *c, const by__linear *linear, float *out,
                          by_error *error);
/* The tensor of a graph's parameter in the files: under its own name or with the family's in front;
 * NULL: in neither (or no memory). Freed with free(). */
char *by__file_name(const by__compression *c, const char *name);

/* ---- what layers read (calibrate.c, calibration_data.c) ---- */

#define BY__GROUP_LAYERS 8
#define BY__GROUP_GAINS  2

/* Layers that read the same value. */
typedef struct by__calibrated {
    by__linear *linears[BY__GROUP_LAYERS];
    /* Of each, f32 [n, k]: as the model has it; what the method makes of it is what the blocks
     * behind it are calibrated with. */
    float *weights[BY__GROUP_LAYERS];
    size_t count;
    double *hessian; /* [k, k]: sum of x x^T over the rows x of the value */
    int64_t k, rows;
    int block;
    /* Tensors of k elements, of a norm: x is c times as large in column i when element i of all of
     * them is, and nothing else reads x. */
    char *gains[BY__GROUP_GAINS];
    size_t gain_count;
} by__calibrated;

typedef by_status by__calibrate_fn(by__compression *c, by__calibrated *what, void *user,
                                   by_error *error);

/* Called for each block and each batch of calibration data with the residual stream before and
 * behind the block, f32 [rows, width]. */
typedef by_status by__block_fn(by__compression *c, int block, const float *before,
                               const float *behind, int64_t rows, int64_t width, void *user,
                               by_error *error);

/* Sequences for programs of `batch` sequences. */
typedef struct by__calibration_tokens {
    int64_t batch, time, rows; /* rows = batch time */
    size_t batches;
    size_t bytes, stride; /* of a batch, i32 [batch, time] */
    uint8_t *data;
} by__calibration_tokens;

/* Calls fn for the layers of each block but the head, block by block: what they read was computed
 * with the weights that fn made of the blocks before. */
by_status by__calibrate(by__compression *c, by__calibrate_fn *fn, void *user, by_error *error);
by_status by__calibrate_on(by__compression *c, const by__calibration_tokens *tokens,
                           by__calibrate_fn *fn, void *user, by_error *error);
/* Calls fn for all blocks; no weight changes. */
by_status by__calibrate_blocks(by__compression *c, by__block_fn *fn, void *user, by_error *error);
/* Programs get about `rows` rows. */
by_status by__calibration_read(by__calibration_tokens *out, by__compression *c, int64_t rows,
                               by_error *error);
void by__calibration_free(by__calibration_tokens *tokens);

/* U, f64 [k, k], upper triangular, with (H + damping mean(diag H))^-1 = U^T U. h [k, k] is
 * overwritten; its upper triangle is read. An input whose H is zero gets 1. *out is freed with
 * free(). BY_EARG: H is not positive definite. (inverse_factor.c) */
by_status by__inverse_factor(double **out, double *h, int64_t k, double damping, int threads,
                             by_error *error);

/* ---- what the directory is to hold (job.c) ---- */

/* Opens a job, whose options are borrowed. Closed with by__job_close, also when this fails. */
by_status by__job_open(by__compression *c, const char *directory, const by_pretrained *model,
                       const by_compress_options *options, by_error *error);
/* The same without a directory: it can look at the model, and write nothing. */
by_status by__job_look(by__compression *c, const by_pretrained *model,
                       const by_compress_options *options, by_error *error);
void by__job_close(by__compression *c);

/* Takes a tensor of the model away; one that is not there is an invariant's failure. */
void by__compress_drop(by__compression *c, const char *name);
/* Adds a tensor; data is copied to the disk. */
by_status by__compress_put(by__compression *c, const char *name, by_dtype dtype, int rank,
                           const int64_t *shape, const void *data, by_error *error);
/* The same of floats, in the dtype (f32, bf16 or f16) of the tensor whose place they take. */
by_status by__compress_put_f32(by__compression *c, const by_tensor_view *tensor, const float *data,
                               by_error *error);
/* Gives a tensor of the model that stays another name. */
by_status by__compress_rename(by__compression *c, size_t tensor, const char *name, by_error *error);
/* What config.json of the new directory says where the model's sizes have changed. */
by_status by__compress_resize(by__compression *c, const by_model_config *to, by_error *error);
/* Tells who started the job, and BY_ESTOPPED when that one wants it to end. */
by_status by__compress_report(const by__compression *c, const char *what, size_t done, size_t all,
                              by_error *error);

/* ---- directories (output.c) ---- */

/* Writes everything and gives the directory its name. */
by_status by__compress_finish(by__compression *c, by_compressed *out, by_error *error);

/* ---- codes (codes.c) ---- */

/* Settings that several methods of codes have. */
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

/* How a scale of 4 bits is chosen. */
typedef enum by__scale_rule {
    BY__SCALE_LARGEST = 0, /* the weight of the largest magnitude is exact, as packing.h has it */
    BY__SCALE_SEARCH       /* the least square error among some that clip */
} by__scale_rule;

/* What the settings "group" and "scale" say. */
int64_t by__group_setting(const by__compression *c);
by__scale_rule by__scale_setting(const by__compression *c);

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
/* What they stand for, [n, k]. */
void by__codes_read(const by__codes *codes, float *out, int threads);
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
/* The matrix that makes the logits, as the setting "head" says, and what else has no codes yet. */
by_status by__round_rest(by__compression *c, by__code_kind kind, int64_t group, by_error *error);

/* ---- GPTQ (gptq.c) and AWQ (awq.c) on one layer ---- */

/* The order of columns: their own, or the largest of H's diagonal first. */
by_status by__gptq_order(int64_t *order, const double *hessian, int64_t k, bool natural,
                         by_error *error);
/* by__inverse_factor of H in that order. */
by_status by__gptq_factor(double **out, const double *hessian, const int64_t *order, int64_t k,
                          double damping, int threads, by_error *error);
/* Codes of weight [n, k]. natural: a scale is chosen when its group is reached, else all before. */
by_status by__gptq_round(by__codes *codes, const float *weight, const double *u,
                         const int64_t *order, bool natural, by__scale_rule rule, int threads,
                         by_error *error);
/* s_i = a_i^alpha, a_i^2 the diagonal of H, over sqrt(min s max s). */
void by__awq_factors(float *out, const double *hessian, int64_t k, double alpha);
/* Codes of weight [n, k] times the factors (NULL: 1). */
by_status by__awq_round(by__codes *codes, const float *weight, const double *hessian,
                        const float *factors, by__scale_rule rule, int threads, by_error *error);
/* sum over the rows x of |(W - Q(W s) / s) x|^2, over all outputs or, of more than 256, by 256. */
by_status by__awq_error(double *out, const float *weight, int64_t n, int64_t k, int64_t group,
                        const double *hessian, const float *factors, by__scale_rule rule,
                        int threads, by_error *error);

/* ---- weights that become 0 (zero_weights.c) ---- */

typedef struct by__prune_rule {
    bool pairs;      /* two of four neighbouring inputs of an output; what is left of k stays */
    double sparsity; /* else the share that becomes 0 */
} by__prune_rule;

/* gone[i]: element i is among the share of `count` with the smallest scores; of equal ones the
 * first. */
by_status by__prune_share(bool *gone, const double *scores, int64_t count, double share,
                          by_error *error);
/* Of every four neighbours the two with the smallest scores. */
void by__prune_pairs(bool *gone, const double *scores, int64_t count);
/* Of weight [n, k] the smallest |w|, in all of it; with norms [k] of inputs the smallest |w| norm
 * of each output (Wanda). */
by_status by__prune_weight(float *weight, int64_t n, int64_t k, const double *norms,
                           const by__prune_rule *rule, by_error *error);
/* SparseGPT of weight [n, k]; u: by__inverse_factor. */
by_status by__sparsegpt_prune(float *weight, int64_t n, int64_t k, const double *u,
                              const by__prune_rule *rule, int threads, by_error *error);

/* ---- heads, channels and layers that are taken out (remove_units.c, width.c, depth.c) ---- */

/* Takes `count` units of `size` neighbouring inputs out of weight [n, k], as ZipLM does. u:
 * by__inverse_factor. gone [k / size]: which; their columns become 0, the others make up for
 * them. */
by_status by__remove_units(float *weight, bool *gone, int64_t n, int64_t k, int64_t size,
                           int64_t count, const double *u, int threads, by_error *error);
/* The number of the layer that a tensor in a file is of; -1: of none. */
int64_t by__layer_of_name(const char *name);

/* ---- the methods ---- */

extern const by__method by__method_width, by__method_depth;
extern const by__method by__method_magnitude, by__method_wanda, by__method_sparsegpt;
extern const by__method by__method_int8, by__method_w8a8, by__method_int4, by__method_awq,
    by__method_gptq, by__method_fp8;
/* What int4, awq and gptq store, by their settings "group" and "head". */
by__stored_as by__store_int4(const by__compression *c, const by__linear *linear);

#endif
