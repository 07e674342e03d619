/* Drafts for speculative decoding: tokens proposed for a sequence before the model has computed
 * them.
 *
 * Speculative decoding (Leviathan et al. 2023; Chen et al. 2023) lets a cheap source propose the
 * next tokens; the model computes the logits after all of them in one step, and those that match
 * the model's own choice are kept. The engine (banyan/engine.h) chooses the token at each position
 * as it does without drafts, from the same logits and with the random number of that position.
 * Drafts therefore change the number of steps but not a bit of tokens and log-probabilities, greedy
 * or sampled.
 *
 * A source is a table of functions: by_draft_ngram and by_draft_model make the built-in ones, and a
 * program may supply its own. It is used by one engine, on the thread that drives the engine.
 */
#ifndef BANYAN_DRAFT_H
#define BANYAN_DRAFT_H

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maximum number of tokens proposed for a sequence in one step. */
#define BY_DRAFT_TOKENS 15

/* A sequence for which tokens may be proposed. */
typedef struct by_draft_text {
    int32_t place;         /* slot of the sequence, 0 to sequences - 1; unique while it lives */
    uint64_t id;           /* identifies the sequence:
                              a later one in the same place has another id */
    const int32_t *tokens; /* [count] prompt and text so far */
    int64_t count;
    by_sampling sampling; /* how its tokens are chosen; the next one is at position `count` */
    int32_t most;         /* maximum number of tokens to propose; 0: none, just observe the text */
    /* Estimated probability, 0 to 1, that a draft is right if those before it are. */
    double chance;
    int32_t *drafts; /* [most] output of `propose` */
} by_draft_text;

/* A source of drafts. */
typedef struct by_draft_source {
    void *user; /* passed to every function */
    /* Called when an engine is opened, before anything else. Allocates memory for `sequences`
     * sequences of up to `context` tokens below `vocab`, and sets *bytes to its size. */
    by_status (*start)(void *user, int64_t sequences, int64_t context, int64_t vocab,
                       uint64_t *bytes, by_error *error);
    /* Called in every step for each sequence that decodes, and when one ends. Lowers text->most to
     * the number of tokens it can propose and sets text->chance. Must be cheap. */
    void (*observe)(void *user, by_draft_text *text);
    /* Writes text->drafts for some of the texts passed to `observe` before; text->most is at least
     * 1 and at most what `observe` left. */
    by_status (*propose)(void *user, by_draft_text *texts, size_t count, by_error *error);
    /* Frees the source. */
    void (*close)(void *user);
} by_draft_source;

/* Makes a source that proposes what followed the longest earlier occurrence of the last tokens in
 * the sequence, the most recent one among equals (prompt lookup, Saxena 2023). `chance` is measured
 * on all tokens, whether proposed or not. */
BY_API by_status by_draft_ngram(by_draft_source *out, by_error *error);
typedef struct by_draft_model_options {
    const char *precision; /* compute precision (by_infer_precision); NULL:
                              config.precision.compute */
    int threads;           /* compute threads; 0: config.train.threads */
    by_device *device;     /* must outlive the engine; NULL: config.device is opened */
} by_draft_model_options;

/* Makes a source that proposes what a smaller model with the same vocabulary would choose, drawn
 * with the same random numbers. It has its own weights and its own keys and values for every
 * sequence of the engine. `chance` is the fraction of its drafts accepted so far in the sequence,
 * initially that of earlier sequences. `options` may be NULL; `weights` NULL: random initial
 * weights. `config` and `weights` are read when the engine is opened, which reports their errors,
 * such as a smaller vocabulary; they may be closed afterwards. Texts beyond the model's context get
 * no drafts if its positions are learned. Returns BY_EARG if the model does not read tokens. */
BY_API by_status by_draft_model(by_draft_source *out, const by_config *config,
                                const by_weights *weights, const by_draft_model_options *options,
                                by_error *error);
/* Closes a source and sets it to {0}; {0} is accepted. */
BY_API void by_draft_close(by_draft_source *source);

#ifdef __cplusplus
}
#endif
#endif
