/* Inference: from trained weights to tokens, logits, embeddings and classes.
 *
 * by_pretrained finds the weights of a run, a Hugging Face directory or a GGUF file, and their
 * config. by_generator continues one sequence with key/value caches; by_sample chooses a token from
 * logits. by_logits computes the logits of whole sequences at once, without caches. banyan/engine.h
 * serves many requests at once.
 *
 * All memory is planned and allocated when a handle is opened; feeding and choosing tokens
 * allocates nothing. A handle is used by one thread at a time; two handles share nothing.
 */
#ifndef BANYAN_INFER_H
#define BANYAN_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/checkpoint.h"
#include "banyan/config.h"
#include "banyan/device.h"
#include "banyan/model.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trained models ---- */

/* A trained model on disk. */
typedef struct by_pretrained by_pretrained;

/* Opens a run directory (config.yaml, checkpoints/step-*): its newest valid checkpoint or, with
 * `best`, the one with the lowest validation loss; or a directory with config.json and safetensors
 * weights (a checkpoint, or one saved by `transformers`); or a GGUF file (banyan/export.h). The
 * config is resolved; its model section is that of the weights' config.json. Without a run,
 * precision.compute is bf16 for a language model whose matrices are all stored so, otherwise f32.
 * Returns BY_EIO
 * if `path` is none of these, BY_EFORMAT if a file is malformed, BY_ESTATE if the run has no such
 * checkpoint, BY_EARG for `best` if `path` is not a run. */
BY_API by_status by_pretrained_open(by_pretrained **out, const char *path, bool best,
                                    by_error *error);
/* Opens the directory `checkpoint` of the run `run`, without verifying its checksums again. */
BY_API by_status by_pretrained_open_checkpoint(by_pretrained **out, const char *run,
                                               const char *checkpoint, by_error *error);
/* Opens a directory with weights derived from another model's, and takes the rest of the config
 * (data, task) from that model. */
BY_API by_status by_pretrained_open_like(by_pretrained **out, const char *path,
                                         const by_pretrained *model, by_error *error);
/* Replaces the weights of a run trained with optimizer.ema by the checkpoint's moving average of
 * them. Invalidates earlier results of by_pretrained_weights. Returns BY_EARG if the model is not a
 * run or has adapters, BY_EFORMAT if the checkpoint has no average. */
BY_API by_status by_pretrained_use_average(by_pretrained *pretrained, by_error *error);
BY_API void by_pretrained_close(by_pretrained **pretrained);
/* Adds an adapter (banyan/adapter.h) to the weights as they are read: W + scale B A, rounded once
 * to the compute format. The adapters of a checkpoint are added when it is opened. Errors as
 * by_adapter_open and by_weights_adapt. */
BY_API by_status by_pretrained_adapt(by_pretrained *pretrained, const char *directory,
                                     by_error *error);
/* Chooses the device on which what is opened with by_pretrained_config computes, by a name for
 * by_device_open, whose errors it returns. Without it, that is "auto". */
BY_API by_status by_pretrained_use_device(by_pretrained *pretrained, const char *name,
                                          by_error *error);
/* Returns the resolved config. */
BY_API const by_config *by_pretrained_config(const by_pretrained *pretrained);
/* Returns the weights. */
BY_API const by_weights *by_pretrained_weights(const by_pretrained *pretrained);
/* Opens the tokenizer beside the weights. BY_ECONFIG: the model reads images or rows of a table. */
BY_API by_status by_pretrained_tokenizer(by_tokenizer **out, const by_pretrained *model,
                                         by_error *error);
/* Returns the directory with the weights and tokenizer.json, or the path of the GGUF file with
 * both. */
BY_API const char *by_pretrained_directory(const by_pretrained *pretrained);
/* Returns one line for each newer checkpoint that was passed over as damaged; "" if there is
 * none. */
BY_API const char *by_pretrained_skipped(const by_pretrained *pretrained);

/* ---- sampling ---- */

/* How a token is chosen. The filters apply one after another, in the order of the fields. */
typedef struct by_sampling {
    double temperature; /* divides the logits; 0: always the most probable token (greedy) */
    int64_t top_k;      /* keep the k most probable tokens; 0: all */
    /* Keep the fewest most probable tokens whose probabilities sum to at least p (nucleus sampling,
     * Holtzman et al. 2020); in (0, 1], 1: all. */
    double top_p;
    /* Keep tokens with at least min_p times the probability of the most probable one (Nguyen et al.
     * 2024); in [0, 1], 0: all. */
    double min_p;
    /* Keep the fewest tokens with a total probability of typical_p whose information content is
     * closest to the entropy (locally typical sampling, Meister et al. 2022); in [0, 1], 0 and 1:
     * all. */
    double typical_p;
    uint64_t seed; /* of the random numbers */
} by_sampling;

/* Returns BY_EARG if a field is out of range, with its name and range. */
BY_API by_status by_sampling_check(const by_sampling *sampling, by_error *error);

/* Returns the bytes of scratch memory, 8-byte aligned, that by_sample needs for a vocabulary. */
BY_API size_t by_sample_scratch_bytes(int64_t vocab);
/* Draws a token from softmax(logits / temperature) after filtering; logits [vocab]. Among equal
 * logits the lower id counts as more probable. The draw is a pure function of the logits,
 * `sampling` and `position` (Philox keyed by seed and position), so equal seeds give equal text. A
 * logit of -inf is never chosen. Expected time is linear in `vocab`. Returns BY_EARG if a field of
 * `sampling` is out of range, BY_ESTATE if a logit is NaN or +inf, or all are -inf. */
BY_API by_status by_sample(int32_t *token, const by_sampling *sampling, const float *logits,
                           int64_t vocab, uint64_t position, void *scratch, by_error *error);

/* Changes to logits before sampling, as defined by OpenAI's API and Hugging Face. {0} changes
 * nothing. */
typedef struct by_logit_rules {
    /* Divides positive logits of tokens in prompt or output and multiplies negative ones (Keskar et
     * al. 2019); 0 and 1: none. */
    double repetition;
    double presence;            /* subtracted once from the logit of a token in the output */
    double frequency;           /* subtracted for each occurrence in the output */
    const int32_t *bias_tokens; /* [bias_count], borrowed; each at most once */
    const float *biases;        /* [bias_count], added to their logits; -inf forbids a token */
    size_t bias_count;
} by_logit_rules;

/* Applies rules to logits [vocab], given the tokens of prompt and output: repetition, then presence
 * and frequency, then biases. `counts` [vocab] is scratch memory that must be zero and is zero
 * again afterwards; time is proportional to the number of tokens. Returns BY_EARG if a rule or a
 * token is out of range. */
BY_API by_status by_logits_adjust(float *logits, int64_t vocab, const by_logit_rules *rules,
                                  const int32_t *prompt, size_t prompt_count, const int32_t *output,
                                  size_t output_count, int32_t *counts, by_error *error);
/* Callback that may change the logits [vocab] of the token after `tokens` before it is chosen; -inf
 * forbids a token. `tokens` are the `count` tokens of sequence `index`, the first `prompt` of which
 * were given. Returning BY_ESTOPPED means that the sequence is complete; any other error ends the
 * sequence (BY_FINISH_FAILED in the engine). */
typedef by_status by_logits_processor(void *user, int32_t index, float *logits, int64_t vocab,
                                      const int32_t *tokens, int64_t count, int64_t prompt,
                                      by_error *error);
/* Callback that does what a by_logits_processor needs for the token after `tokens`, before the
 * logits are known: about *work elementary steps of a few nanoseconds, of which it subtracts those
 * done. Returns true when nothing is left to do. */
typedef bool by_logits_preparer(void *user, int32_t index, const int32_t *tokens, int64_t count,
                                int64_t prompt, int64_t *work);

/* Computes log-probabilities in nats under softmax(logits): of `token`, and of the `most` most
 * probable tokens in descending order, ties by id, in ids and values [most]. `scratch` as for
 * by_sample. Returns BY_EARG if token or `most` is out of range, BY_ESTATE as by_sample. */
BY_API by_status by_log_probabilities(const float *logits, int64_t vocab, int32_t token,
                                      double *probability, int64_t most, int32_t *ids,
                                      double *values, void *scratch, by_error *error);

/* ---- precision ---- */

/* Parses the name of an inference precision and returns its compute format. "f32", "bf16" and
 * "fp16" apply to weights, caches and activations. "int8", "w8a8", "fp8" and "int4" compute in bf16
 * and quantize the weights of products on loading: to 8-bit integers or e4m3 with a scale per
 * output, or to 4-bit integers with a scale per 32 inputs of an output (banyan/packing.h). "w8a8"
 * also quantizes the other operand to 8-bit integers, except in the output head, for which "fp8"
 * uses 8-bit integers. Returns BY_EARG for another name. */
BY_API by_status by_infer_precision(by_dtype *compute, const char *name, by_error *error);
/* Returns the default precision: config.precision.compute or, if the weights (may be NULL) are
 * quantized, "int4", "fp8", "w8a8" or "int8" accordingly. In a config that is not resolved, "auto"
 * stands for "bf16" if all matrices are stored so, otherwise for "f32". Static, or owned by the
 * config. */
BY_API const char *by_infer_precision_of(const by_config *config, const by_weights *weights);
/* Refuses a context, in tokens, in which the model cannot continue a text: longer than its learned
 * positions, or than its family allows. Returns BY_EARG. */
BY_API by_status by_infer_check_context(const by_model_config *config, int64_t context,
                                        by_error *error);

/* ---- generation ---- */

/* One sequence with its key/value caches. */
typedef struct by_generator by_generator;

typedef struct by_generator_options {
    /* Capacity of the caches in tokens; 0: the model's context. It may be exceeded with rotary
     * positions, but not with learned ones. */
    int64_t context;
    int threads;           /* compute threads; 0: config.train.threads */
    const char *precision; /* as for by_infer_precision; NULL: config.precision.compute */
    /* Only tokens below this are generated: the tokenizer's size if the embedding is padded. 0: the
     * model's vocabulary. */
    int64_t vocab;
    /* When tokens no longer fit, empty the caches and feed the last context / 2 tokens again;
     * false: that is an error. */
    bool slide;
    /* A model of the caller's own, built with `user`; NULL: the one named by the config. */
    by_model_builder *builder;
    void *user;
    by_device *device; /* must outlive the generator; NULL: config.device is opened */
} by_generator_options;

/* Bytes of memory that a generator holds. */
typedef struct by_generator_memory_report {
    uint64_t weights;
    uint64_t caches;      /* keys and values of every layer and position */
    uint64_t activations; /* one arena shared by all programs */
    uint64_t workspace;   /* scratch memory of the most demanding kernel */
    uint64_t data;        /* tokens, positions, logits, scratch memory of sampling */
    uint64_t total;       /* sum of the above */
} by_generator_memory_report;

/* Compiles the model, allocates all memory and loads the weights. `config` is resolved and has the
 * vocabulary size; `options` may be NULL; `weights` NULL: random initial weights, for measurements.
 * Config and weights may be closed afterwards. Returns BY_EFORMAT with the tensor that is missing
 * or has another shape, BY_EARG with the option that is out of range. */
BY_API by_status by_generator_open(by_generator **out, const by_config *config,
                                   const by_weights *weights, const by_generator_options *options,
                                   by_error *error);
BY_API void by_generator_close(by_generator **generator);
/* Forgets all tokens. */
BY_API void by_generator_reset(by_generator *generator);
/* Truncates the sequence to its first `count` tokens, which stay in the caches; there are no logits
 * until the next token. Returns BY_EARG if there are fewer tokens, BY_ESTATE if the first ones have
 * left the caches. */
BY_API by_status by_generator_keep(by_generator *generator, size_t count, by_error *error);
/* Appends `count` (at least 1) tokens to the sequence, in chunks of up to 512, and computes the
 * logits of the token after the last one. If they do not fit, `slide` keeps only the last
 * context / 2 (at least 1) tokens of the sequence; without it the result is BY_ESTATE. Returns
 * BY_EARG if an id is not below the vocabulary size. After these errors the state is unchanged. */
BY_API by_status by_generator_feed(by_generator *generator, const int32_t *tokens, size_t count,
                                   by_error *error);
/* Returns f32 logits [by_generator_vocab] of the next token, valid until the next call that changes
 * the generator; NULL before the first token. */
BY_API const float *by_generator_logits(const by_generator *generator);
/* Samples a token with by_sample at the sequence's position. The token is not appended: pass it to
 * by_generator_feed to continue. Returns BY_ESTATE before the first token. */
BY_API by_status by_generator_sample(by_generator *generator, const by_sampling *sampling,
                                     int32_t *token, by_error *error);
/* Like by_generator_sample, but lets `process` (may be NULL) change a copy of the logits first. It
 * is called with sequence 0 and the given `tokens`, the first `prompt` of which were given by the
 * user. Its errors are passed on. */
BY_API by_status by_generator_sample_with(by_generator *generator, const by_sampling *sampling,
                                          by_logits_processor *process, void *user,
                                          const int32_t *tokens, int64_t count, int64_t prompt,
                                          int32_t *token, by_error *error);
/* Returns the number of tokens fed since the last reset. */
BY_API uint64_t by_generator_position(const by_generator *generator);
/* Returns the number of tokens in the caches. */
BY_API int64_t by_generator_cached(const by_generator *generator);
/* Returns the capacity of the caches in tokens. */
BY_API int64_t by_generator_context(const by_generator *generator);
/* Returns the number of logits. */
BY_API int64_t by_generator_vocab(const by_generator *generator);
/* Returns the memory that the generator holds. */
BY_API const by_generator_memory_report *by_generator_memory(const by_generator *generator);
/* Returns the minimum of floating-point operations for feeding the first `tokens` tokens of a
 * sequence: two per weight in a product and token (what follows the keys and values of the last
 * layer counts for the last token only), plus causal attention. For comparison with the machine's
 * peak. */
BY_API double by_generator_flops(const by_generator *generator, int64_t tokens);
/* Returns the minimum of bytes read to feed one more token with `cached` tokens in the caches: each
 * weight once, except tables that are only looked up, and the keys and values so far. */
BY_API double by_generator_token_bytes(const by_generator *generator, int64_t cached);

/* ---- logits of whole sequences ---- */

/* A model compiled for logits of whole sequences. */
typedef struct by_logits by_logits;

/* Compiles the model for `batch` sequences of `time` tokens and loads its weights. `precision` as
 * for by_infer_precision, NULL: config.precision.compute; threads 0: config.train.threads. Config
 * and weights may be closed afterwards. Errors as by_generator_open. */
BY_API by_status by_logits_open(by_logits **out, const by_config *config, const by_weights *weights,
                                int64_t batch, int64_t time, const char *precision, int threads,
                                by_error *error);
BY_API void by_logits_close(by_logits **logits);
/* Computes f32 logits [batch, time, vocab] from tokens [batch, time], valid until the next run.
 * Returns BY_EARG if a token is not below the vocabulary size. */
BY_API by_status by_logits_run(by_logits *logits, const int32_t *tokens, const float **out,
                               by_error *error);

/* ---- stored logits ---- */

typedef struct by_store_logits_options {
    const char *data;      /* packed directory */
    int64_t top;           /* most probable tokens to store per position, 1 to the vocabulary
                              size */
    double temperature;    /* divides the logits, (0, 1000]; must equal distill.temperature */
    int64_t context;       /* tokens per window, the student's model.context; 0: the model's */
    const char *precision; /* as for by_infer_precision; NULL: config.precision.compute */
    int threads;           /* 0: config.train.threads */
    /* May be NULL. Returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, uint64_t done, uint64_t windows);
    void *user;
} by_store_logits_options;

/* Writes a model's predictions for each token of the data to a new directory (by_logit_store of
 * banyan/data.h; distill.logits reads it), which appears complete or not at all. Returns BY_EARG if
 * an option is out of range, the directory exists or the model does not read such data; BY_ECONFIG
 * if the data was packed with another tokenizer; BY_ESTATE if a logit is NaN; BY_ESTOPPED. */
BY_API by_status by_store_logits(const char *directory, const by_pretrained *model,
                                 const by_store_logits_options *options, by_error *error);

/* ---- text embeddings ---- */

/* A model compiled for embeddings of texts. */
typedef struct by_embed by_embed;

/* How the hidden states of a text become one vector. */
typedef enum by_pooling {
    BY_POOL_LAST = 0, /* last hidden state of the last token */
    BY_POOL_MEAN,     /* mean of the last hidden states over all tokens */
    BY_POOL_FIRST     /* last hidden state of the first token: [CLS] of BERT */
} by_pooling;

typedef struct by_embed_options {
    by_pooling pooling; /* default BY_POOL_LAST */
    bool normalize;     /* divide the vector by its Euclidean norm */
    int64_t context;    /* tokens of the longest text; 0: the model's context */
    int64_t batch;      /* maximum number of texts per call; 0: 1. Memory is that of 8,192 tokens,
                              or of one text of full length */
    const char *precision; /* as for by_infer_precision; NULL: config.precision.compute */
    int threads;           /* 0: config.train.threads */
    by_device *device;     /* must outlive the handle; NULL: config.device is opened */
} by_embed_options;

/* Compiles a language model for embeddings and loads its weights. The last hidden state is the
 * output of the final norm, `last_hidden_state` of transformers. `options` may be NULL. Config and
 * weights may be closed afterwards. Errors as by_generator_open. */
BY_API by_status by_embed_open(by_embed **out, const by_config *config, const by_weights *weights,
                               const by_embed_options *options, by_error *error);
/* Returns the bytes of memory it holds besides the weights: activations, scratch memory, and tokens
 * and states of the largest batch. */
BY_API uint64_t by_embed_memory(const by_embed *embed);
BY_API void by_embed_close(by_embed **embed);
/* Computes the vector of a text of `count` tokens, f32 [by_embed_width], valid until the next run.
 * Returns BY_EARG if there are no tokens or more than the context, or one is not below the
 * vocabulary size; BY_ESTATE if an element of the vector is infinite or NaN. */
BY_API by_status by_embed_run(by_embed *embed, const int32_t *tokens, size_t count,
                              const float **out, by_error *error);
/* Tokens of one text. */
typedef struct by_embed_text {
    const int32_t *tokens;
    size_t count;
} by_embed_text;

/* Computes the vectors of 1 to `batch` texts, f32 [count, by_embed_width], long ones in several
 * runs. Errors as by_embed_run. */
BY_API by_status by_embed_run_batch(by_embed *embed, const by_embed_text *texts, size_t count,
                                    const float **out, by_error *error);
/* Returns BY_EARG with the reason if a text of `count` tokens cannot be embedded. */
BY_API by_status by_embed_check(const by_embed *embed, size_t count, by_error *error);
/* Returns the length of a vector. */
BY_API int64_t by_embed_width(const by_embed *embed);

/* ---- text classification ---- */

/* A model with the head that transformers calls ...ForSequenceClassification: a matrix
 * `score.weight` [labels, width] applied to the vector of a text (BY_POOL_LAST). */
typedef struct by_classifier by_classifier;

/* Kind of classification, from "problem_type" of config.json; if that is absent,
 * BY_PROBLEM_REGRESSION for one label and BY_PROBLEM_SINGLE otherwise, as in transformers. */
typedef enum by_problem {
    BY_PROBLEM_SINGLE = 0, /* "single_label_classification": softmax */
    BY_PROBLEM_MULTI,      /* "multi_label_classification": sigmoid of each label */
    BY_PROBLEM_REGRESSION  /* "regression": values as they are */
} by_problem;

/* Opens the model as by_embed_open does, ignoring pooling and normalize, and reads the head, which
 * stays in f32. Label names come from "id2label" of config.json, else they are LABEL_0, LABEL_1,
 * ... Returns BY_EFORMAT if there is no head, its width is not the model's, or config.json has
 * another number of labels. */
BY_API by_status by_classifier_open(by_classifier **out, const by_config *config,
                                    const by_weights *weights, const by_embed_options *options,
                                    by_error *error);
BY_API void by_classifier_close(by_classifier **classifier);
/* Computes the probabilities, or values of a regression, of 1 to `batch` texts: f32
 * [count, labels], valid until the next run. As in transformers, trailing "pad_token_id" tokens are
 * ignored. Errors as by_embed_run. */
BY_API by_status by_classifier_run(by_classifier *classifier, const by_embed_text *texts,
                                   size_t count, const float **out, by_error *error);
/* Returns BY_EARG with the reason if a text of `count` tokens cannot be classified. */
BY_API by_status by_classifier_check(const by_classifier *classifier, size_t count,
                                     by_error *error);
/* Returns the kind of classification. */
BY_API by_problem by_classifier_problem(const by_classifier *classifier);
/* Returns the number of labels. */
BY_API int64_t by_classifier_labels(const by_classifier *classifier);
/* Returns the name of label i. */
BY_API const char *by_classifier_label(const by_classifier *classifier, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
