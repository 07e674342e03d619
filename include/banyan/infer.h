/* Inference: trained weights to tokens.
 *
 * by_pretrained finds the weights of a run or of a Hugging Face directory and what they are.
 * by_generator continues a sequence with key/value caches; by_sample chooses a token from logits.
 * by_logits computes the logits of whole sequences at once, without caches.
 *
 * All memory is planned and taken when a handle is opened: taking in tokens and choosing one
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

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trained models on disk ---- */

typedef struct by_pretrained by_pretrained;

/* Opens a run directory (config.yaml, checkpoints/step-*): its newest valid checkpoint, or the one
 * with the lowest validation loss when `best`; a directory with config.json and safetensors
 * weights (one checkpoint, or what `transformers` saved), or a GGUF file (banyan/export.h).
 * The config is resolved; its model section is what the weights' config.json says. BY_EIO,
 * BY_EFORMAT: a file is missing or wrong; BY_ESTATE: the run has no such checkpoint. */
BY_API by_status by_pretrained_open(by_pretrained **out, const char *path, bool best,
                                    by_error *error);
/* Opens one checkpoint of a run, a directory: its checksums are not looked at again. */
BY_API by_status by_pretrained_open_checkpoint(by_pretrained **out, const char *run,
                                               const char *checkpoint, by_error *error);
/* Opens a directory with weights that were made from another model's: the rest of the config, what
 * data and task are, is that model's. */
BY_API by_status by_pretrained_open_like(by_pretrained **out, const char *path,
                                         const by_pretrained *model, by_error *error);
/* Of a run that was trained with optimizer.ema: the weights become the checkpoint's moving average
 * of them. BY_EARG, BY_EFORMAT: there is none. Pointers got from by_pretrained_weights before are
 * no longer valid. */
BY_API by_status by_pretrained_take_average(by_pretrained *pretrained, by_error *error);
BY_API void by_pretrained_close(by_pretrained **pretrained);
/* Adds an adapter (banyan/adapter.h) to the weights, as they are read: W + scale B A, rounded once,
 * to the format that is computed in. A checkpoint that has adapters has them added when it is
 * opened. */
BY_API by_status by_pretrained_adapt(by_pretrained *pretrained, const char *directory,
                                     by_error *error);
/* All owned by the handle. The directory is where the weights and tokenizer.json are, or the GGUF
 * file that has both. */
BY_API const by_config *by_pretrained_config(const by_pretrained *pretrained);
BY_API const by_weights *by_pretrained_weights(const by_pretrained *pretrained);
BY_API const char *by_pretrained_directory(const by_pretrained *pretrained);
/* One line for each newer checkpoint that was passed over because it is broken; "" for none. */
BY_API const char *by_pretrained_skipped(const by_pretrained *pretrained);

/* ---- choosing a token ---- */

typedef struct by_sampling {
    double temperature; /* logits are divided by it; 0: the most probable token (greedy) */
    int64_t top_k;      /* only the k most probable tokens; 0: all */
    double top_p;       /* of those, the fewest whose probabilities sum to at least p (nucleus
                           sampling, Holtzman et al. 2020); in (0, 1], 1: all */
    double min_p;       /* of those, the tokens of at least min_p times the probability of the most
                           probable one (Nguyen et al. 2024); 0: all */
    double typical_p;   /* of those, the fewest of probability typical_p together whose information
                           is nearest to the entropy (Meister et al. 2022); 0 and 1: all */
    uint64_t seed;
} by_sampling;

/* BY_EARG where a field is out of range; the message names it and what it may be. */
BY_API by_status by_sampling_check(const by_sampling *sampling, by_error *error);

/* Bytes of scratch memory that by_sample needs for a vocabulary, on an 8-byte boundary. */
BY_API size_t by_sample_scratch_bytes(int64_t vocab);
/* Draws a token from softmax(logits / temperature), cut by top_k, top_p, min_p and typical_p one
 * after another. Among equal logits the lower id counts as more probable. The draw is a pure
 * function of the logits, `sampling` and `position` (Philox keyed by seed and position), so equal
 * seeds give equal text. A logit of -inf is never chosen. Expected time is linear in `vocab`.
 * BY_EARG: a field of `sampling` is out of range; BY_ESTATE: a logit is nan or +inf, or all are
 * -inf. */
BY_API by_status by_sample(int32_t *token, const by_sampling *sampling, const float *logits,
                           int64_t vocab, uint64_t position, void *scratch, by_error *error);

/* What changes logits before a token is drawn, as OpenAI's API and Hugging Face define it. {0}
 * changes nothing. */
typedef struct by_logit_rules {
    double repetition; /* the logit of a token that is in the prompt or the output is divided by it
                          when positive, else multiplied with it (Keskar et al. 2019); 0, 1: none */
    double presence;   /* taken away once from a token that is in the output */
    double frequency;  /* the same as often as it is there */
    const int32_t *bias_tokens; /* [bias_count], borrowed; each at most once */
    const float *biases;        /* added to their logits; -inf forbids a token */
    size_t bias_count;
} by_logit_rules;

/* Changes logits [vocab] by the rules, for a sequence of prompt and output tokens: repetition, then
 * presence and frequency, then biases. `counts` [vocab] is scratch memory of zeros, and is zeros
 * again afterwards, so the time is that of the tokens. BY_EARG: a rule or a token is out of
 * range. */
BY_API by_status by_logits_adjust(float *logits, int64_t vocab, const by_logit_rules *rules,
                                  const int32_t *prompt, size_t prompt_count, const int32_t *output,
                                  size_t output_count, int32_t *counts, by_error *error);
/* What is called with the logits [vocab] of the token that follows `tokens` (`count` of sequence
 * `index`, of which the first `prompt` were given) before it is chosen, to change them; -inf
 * forbids a token. BY_ESTOPPED: the sequence is complete. Any other error is one of the sequence:
 * the engine ends it (BY_FINISH_FAILED). */
typedef by_status by_logits_processor(void *user, int32_t index, float *logits, int64_t vocab,
                                      const int32_t *tokens, int64_t count, int64_t prompt,
                                      by_error *error);

/* Log-probabilities under softmax(logits), whatever the sampling: of `token`, and of the `most`
 * most probable tokens in falling order (equal ones by id) in ids and values [most]. `scratch` as
 * for by_sample. most is at most the vocabulary. */
BY_API by_status by_log_probabilities(const float *logits, int64_t vocab, int32_t token,
                                      double *probability, int64_t most, int32_t *ids,
                                      double *values, void *scratch, by_error *error);

/* ---- precision ---- */

/* What a precision of inference computes in. "f32", "bf16" and "fp16" are that of weights, caches
 * and activations. With "int8", "w8a8", "fp8" and "int4" these are bf16, and the weights of
 * products are rounded when they are loaded: to integers of 8 bits or e4m3 with a scale for each
 * output, of 4 bits with a scale for each 32 inputs of an output. With "w8a8" what they are
 * multiplied with becomes integers of 8 bits, too, but for the product that makes logits, which
 * with "fp8" has integers of 8 bits. BY_EARG: another name. */
BY_API by_status by_infer_precision(by_dtype *compute, const char *name, by_error *error);
/* The precision of inference where none is named: precision.compute, or, of weights that a file has
 * in codes, "int4", "fp8", "w8a8" or "int8". weights may be NULL. Static, or owned by the config.
 */
BY_API const char *by_infer_precision_of(const by_config *config, const by_weights *weights);

/* ---- generation ---- */

typedef struct by_generator by_generator;

typedef struct by_generator_options {
    /* tokens that the caches hold; 0: the model's context. More than that is possible where
     * positions are rotary, not where they are a table */
    int64_t context;
    int threads;           /* compute threads; 0: config.train.threads */
    const char *precision; /* as by_infer_precision knows it; NULL: precision.compute */
    /* ids below it are tokens: the tokenizer's size where the model's table is padded; 0: the
     * model's */
    int64_t vocab;
    /* true: when tokens no longer fit, the caches are emptied and the last context / 2 tokens are
     * taken in again; false: that is an error */
    bool slide;
    /* a model of the caller's own; NULL: the one that the config names */
    by_model_builder *builder;
    void *user;
    by_device *device; /* stays the caller's; NULL: the CPU */
} by_generator_options;

/* Bytes that a generator holds. Their sum is `total`. */
typedef struct by_generator_memory_report {
    uint64_t weights;
    uint64_t caches;      /* keys and values of every layer and position */
    uint64_t activations; /* one arena for all programs */
    uint64_t workspace;   /* scratch memory of the most demanding kernel */
    uint64_t data;        /* tokens, positions, logits, scratch memory of sampling */
    uint64_t total;
} by_generator_memory_report;

/* Compiles a model, takes its memory and loads the weights. config: resolved, vocab known.
 * `options` may be NULL. weights NULL: initial weights by the model's rules and config.seed, to
 * measure with. config and weights may be closed afterwards. BY_EFORMAT names a tensor that is
 * missing or has another shape; BY_EARG an option that is out of range. */
BY_API by_status by_generator_open(by_generator **out, const by_config *config,
                                   const by_weights *weights, const by_generator_options *options,
                                   by_error *error);
BY_API void by_generator_close(by_generator **generator);
/* Forgets all tokens. */
BY_API void by_generator_reset(by_generator *generator);
/* Forgets all but the first `count` tokens of the sequence: what follows replaces them, without
 * taking the first ones in again. 0 is by_generator_reset; the logits are gone until the next
 * token. BY_EARG: fewer tokens are there; BY_ESTATE: the first ones have left the caches. */
BY_API by_status by_generator_keep(by_generator *generator, size_t count, by_error *error);
/* Takes in the next `count` (at least 1) tokens of the sequence; the logits are then those of the
 * token that follows the last one. All but the last run through in chunks of up to 512. When they
 * do not fit and `slide` is on, only the last context / 2 (at least 1) tokens of the sequence so
 * far stay; with `slide` off this is BY_ESTATE. BY_EARG: an id is not below the vocabulary. After
 * these errors the state is as it was before. */
BY_API by_status by_generator_feed(by_generator *generator, const int32_t *tokens, size_t count,
                                   by_error *error);
/* [by_generator_vocab] f32 logits of the next token, valid until the next call that changes the
 * generator; NULL before the first token. */
BY_API const float *by_generator_logits(const by_generator *generator);
/* by_sample of the logits at the sequence's position. The token is not taken in: pass it to
 * by_generator_feed to go on. BY_ESTATE before the first token. */
BY_API by_status by_generator_sample(by_generator *generator, const by_sampling *sampling,
                                     int32_t *token, by_error *error);
/* The same of the logits as `process` (NULL: none) leaves them, called with sequence 0 and the
 * `count` tokens of the sequence, of which the first `prompt` were given. Its errors are passed
 * on. */
BY_API by_status by_generator_sample_with(by_generator *generator, const by_sampling *sampling,
                                          by_logits_processor *process, void *user,
                                          const int32_t *tokens, int64_t count, int64_t prompt,
                                          int32_t *token, by_error *error);
/* Tokens taken in since the last reset; those of them that are in the caches now; the most that
 * fit. */
BY_API uint64_t by_generator_position(const by_generator *generator);
BY_API int64_t by_generator_cached(const by_generator *generator);
BY_API int64_t by_generator_context(const by_generator *generator);
BY_API int64_t by_generator_vocab(const by_generator *generator);
BY_API const by_generator_memory_report *by_generator_memory(const by_generator *generator);
/* The least work that a model leaves, for shares of the machine's peaks. FLOPs of taking in the
 * first `tokens` tokens of a sequence: two for each weight in a product and token (what follows the
 * keys and values of the last layer counts for the last token alone), and causal attention. */
BY_API double by_generator_flops(const by_generator *generator, int64_t tokens);
/* Bytes that taking in one token more must read when `cached` are in the caches: each weight that
 * is not only looked up, once, and the keys and values so far. */
BY_API double by_generator_token_bytes(const by_generator *generator, int64_t cached);

/* ---- logits of whole sequences ---- */

typedef struct by_logits by_logits;

/* Compiles a model for batches of `batch` sequences of `time` tokens and loads its weights.
 * precision: as by_infer_precision knows it, NULL: precision.compute; threads 0:
 * config.train.threads. config and weights may be closed afterwards. */
BY_API by_status by_logits_open(by_logits **out, const by_config *config, const by_weights *weights,
                                int64_t batch, int64_t time, const char *precision, int threads,
                                by_error *error);
BY_API void by_logits_close(by_logits **logits);
/* tokens [batch, time] to logits [batch, time, vocab] f32, which stay valid until the next run. */
BY_API by_status by_logits_run(by_logits *logits, const int32_t *tokens, const float **out,
                               by_error *error);

/* ---- logits for students ---- */

typedef struct by_store_logits_options {
    const char *data;      /* packed directory */
    int64_t top;           /* the most probable tokens of each position, 1 to the vocabulary */
    double temperature;    /* above 0, up to 1000: logits are divided by it; distill.temperature */
    int64_t context;       /* tokens of a window, the student's model.context; 0: the model's */
    const char *precision; /* as by_infer_precision knows it; NULL: precision.compute */
    int threads;           /* 0: config.train.threads */
    bool (*progress)(void *user, uint64_t done, uint64_t windows); /* may be NULL; false: stop */
    void *user;
} by_store_logits_options;

/* Writes a directory, which does not exist, with what a model says of each token of the data
 * (by_logit_store of banyan/data.h; distill.logits reads it). It is there whole or not at all.
 * BY_EARG: an option is out of range, or the model does not read such data; BY_ESTATE: a logit is
 * not a number; BY_ESTOPPED. */
BY_API by_status by_store_logits(const char *directory, const by_pretrained *model,
                                 const by_store_logits_options *options, by_error *error);

/* ---- embeddings of texts ---- */

typedef struct by_embed by_embed;

typedef enum by_pooling {
    BY_POOL_LAST = 0, /* the last hidden state of the last token */
    BY_POOL_MEAN      /* the mean over all tokens of the last hidden states */
} by_pooling;

typedef struct by_embed_options {
    by_pooling pooling;
    bool normalize;        /* divided by its Euclidean norm */
    int64_t context;       /* tokens of the longest text; 0: the model's context */
    int64_t batch;         /* texts that run together, at most; 0: 1 */
    const char *precision; /* NULL: precision.compute */
    int threads;           /* 0: config.train.threads */
} by_embed_options;

/* Compiles a model of tokens that gives a vector for a text, and loads its weights. The last hidden
 * state is the one behind the last norm, `last_hidden_state` of transformers. `options` may be
 * NULL. config and weights may be closed afterwards. Errors as those of by_generator_open. */
BY_API by_status by_embed_open(by_embed **out, const by_config *config, const by_weights *weights,
                               const by_embed_options *options, by_error *error);
/* Bytes that it holds besides weights: activations, scratch memory, tokens and states of the
 * largest batch. */
BY_API uint64_t by_embed_memory(const by_embed *embed);
BY_API void by_embed_close(by_embed **embed);
/* The vector of `count` tokens, f32 [by_embed_width], valid until the next run. BY_EARG: there are
 * no tokens or more than the context, or one is not below the vocabulary. */
BY_API by_status by_embed_run(by_embed *embed, const int32_t *tokens, size_t count,
                              const float **out, by_error *error);
typedef struct by_embed_text {
    const int32_t *tokens;
    size_t count;
} by_embed_text;

/* The vectors of up to `batch` texts, f32 [count, by_embed_width], computed together. Errors as
 * those of by_embed_run. */
BY_API by_status by_embed_run_batch(by_embed *embed, const by_embed_text *texts, size_t count,
                                    const float **out, by_error *error);
/* Whether a text of so many tokens has a vector; BY_EARG says why not. */
BY_API by_status by_embed_check(const by_embed *embed, size_t count, by_error *error);
BY_API int64_t by_embed_width(const by_embed *embed);

/* ---- classes of texts ---- */

/* A model with the head that transformers calls ...ForSequenceClassification: the matrix
 * `score.weight` [labels, width], multiplied by the vector of a text (BY_POOL_LAST). */
typedef struct by_classifier by_classifier;

/* "problem_type" of config.json. A file without it means BY_PROBLEM_REGRESSION for one label, else
 * BY_PROBLEM_SINGLE, as transformers trains such a model. */
typedef enum by_problem {
    BY_PROBLEM_SINGLE = 0, /* "single_label_classification": softmax */
    BY_PROBLEM_MULTI,      /* "multi_label_classification": sigmoid of each label */
    BY_PROBLEM_REGRESSION  /* "regression": the values as they are */
} by_problem;

/* Opens the body as by_embed_open does, whose options apply but for pooling and normalize, and
 * reads the head, which is kept in f32. Names of labels are those of "id2label" of config.json, or
 * LABEL_0, LABEL_1, ... BY_EFORMAT: there is no head, its matrix has another width than the model,
 * or config.json has other labels than its rows. */
BY_API by_status by_classifier_open(by_classifier **out, const by_config *config,
                                    const by_weights *weights, const by_embed_options *options,
                                    by_error *error);
BY_API void by_classifier_close(by_classifier **classifier);
/* Probabilities, or values of a regression, of up to `batch` texts, f32 [count, labels], valid
 * until the next run. As in transformers, "pad_token_id" of config.json at the end of a text is not
 * looked at. Errors as those of by_embed_run. */
BY_API by_status by_classifier_run(by_classifier *classifier, const by_embed_text *texts,
                                   size_t count, const float **out, by_error *error);
/* Whether a text of so many tokens can be run; BY_EARG says why not. */
BY_API by_status by_classifier_check(const by_classifier *classifier, size_t count,
                                     by_error *error);
BY_API by_problem by_classifier_problem(const by_classifier *classifier);
BY_API int64_t by_classifier_labels(const by_classifier *classifier);
/* The name of label i, below by_classifier_labels; owned by the classifier. */
BY_API const char *by_classifier_label(const by_classifier *classifier, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
