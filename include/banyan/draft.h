/* Drafts: tokens that are proposed for a sequence before the model has computed them.
 *
 * Speculative decoding (Leviathan et al. 2023; Chen et al. 2023): a cheap source proposes the next
 * tokens, the model computes the logits behind all of them in one step, and as many are kept as are
 * what the model's own choice would have been. The engine (banyan/engine.h) chooses the token of
 * each position as it does without drafts, from the same logits and with the random number of that
 * position, so drafts change the number of steps and nothing else: not a bit of the tokens and
 * log-probabilities, greedy or sampled.
 *
 * A source is a table of functions; by_draft_ngram and by_draft_model make those that come with the
 * library, and a program may have its own. A source is used by one engine, on the thread that
 * drives it.
 */
#ifndef BANYAN_DRAFT_H
#define BANYAN_DRAFT_H

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens that can be proposed for a sequence and step, at most. */
#define BY_DRAFT_TOKENS 15

/* A sequence for which tokens may be proposed. */
typedef struct by_draft_text {
    int32_t place;         /* 0 .. sequences - 1; no two sequences have one at a time */
    uint64_t id;           /* of the sequence: another one in the same place has another */
    const int32_t *tokens; /* [count] so far */
    int64_t count;
    by_sampling sampling; /* that chooses its tokens; the next one is at position `count` */
    int32_t most;         /* tokens to propose, at most; 0: none, the text is only shown */
    double chance;        /* that a token is right if those before it are, 0 .. 1 */
    int32_t *drafts;      /* [most] */
} by_draft_text;

typedef struct by_draft_source {
    void *user;
    /* Called when an engine is opened, before anything else: takes the memory for so many sequences
     * of up to `context` tokens below `vocab`, and says how many bytes it is. */
    by_status (*start)(void *user, int64_t sequences, int64_t context, int64_t vocab,
                       uint64_t *bytes, by_error *error);
    /* Called in every step with each sequence that decodes, and at the end of one: lowers
     * text->most to what there is to propose, and sets text->chance. Cheap. */
    void (*look)(void *user, by_draft_text *text);
    /* Writes text->drafts for some of the texts that were looked at, with text->most (1 or more) at
     * or below what `look` left. */
    by_status (*propose)(void *user, by_draft_text *texts, size_t count, by_error *error);
    void (*close)(void *user);
} by_draft_source;

/* Proposes what followed the last tokens where the same ones stood earlier in the sequence: its
 * longest such place, the last among equals (prompt look-up; Saxena 2023). The chance is measured:
 * whether the token it would have proposed was right is known for every token, proposed or not. */
BY_API by_status by_draft_ngram(by_draft_source *out, by_error *error);
typedef struct by_draft_model_options {
    const char *precision; /* as by_infer_precision knows it; NULL: precision.compute */
    int threads;           /* compute threads; 0: config.train.threads */
    by_device *device;     /* stays the caller's; NULL: the CPU */
} by_draft_model_options;

/* Proposes what another, smaller model of the same vocabulary would choose, drawn with the same
 * random numbers. It has weights, keys and values of its own, for every sequence of the engine. The
 * chance is that of its drafts so far, at first that of the texts before. `options` may be NULL.
 * config and weights (NULL: initial weights) are read when the engine is opened, and may be closed
 * afterwards; what is wrong with them, such as a smaller vocabulary, is an error then. Texts longer
 * than the model's context get no drafts where its positions are a table. BY_EARG: the model reads
 * no tokens. */
BY_API by_status by_draft_model(by_draft_source *out, const by_config *config,
                                const by_weights *weights, const by_draft_model_options *options,
                                by_error *error);
/* Closes a source; {0} is accepted. */
BY_API void by_draft_close(by_draft_source *source);

#ifdef __cplusplus
}
#endif
#endif
