/* Beam search: the most probable texts that follow a prompt, as far as a search that keeps the
 * `beams` best beginnings of each length finds them.
 *
 * The rules are those of transformers' generate() with num_beams and do_sample=False: of the best
 * max(2, 1 + stop tokens) x beams continuations by the sum of log-probabilities, the first `beams`
 * that do not end go on; what ends among the first `beams` is a hypothesis, with the score
 * sum / length^length_penalty, and the `beams` best hypotheses are kept. Among equal sums the
 * continuation of the better beam goes first, then the lower token.
 *
 * Beams share the pages of keys and values of what they have in common; one that writes into a page
 * that others use takes a copy first. All memory is taken when the handle is opened. A handle is
 * used by one thread at a time. The result is a function of the request and the weights: the rows
 * of a step do not depend on each other.
 */
#ifndef BANYAN_BEAM_H
#define BANYAN_BEAM_H

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_beam by_beam;

/* Beams, at most, and tokens that end a text. */
#define BY_BEAMS            64
#define BY_BEAM_STOP_TOKENS 16

typedef struct by_beam_options {
    int32_t beams;         /* 1 .. BY_BEAMS */
    int64_t context;       /* most tokens of a prompt with what follows; 0: the model's context */
    int64_t vocab;         /* ids below it are tokens; 0: the model's */
    int threads;           /* compute threads; 0: config.train.threads */
    const char *precision; /* as by_infer_precision knows it; NULL: precision.compute */
    by_device *device;     /* stays the caller's; NULL: the CPU */
} by_beam_options;

/* When the search ends, besides at the length and where no beam is left. */
typedef enum by_beam_end {
    BY_BEAM_END_UNLIKELY = 0, /* `beams` hypotheses are there, and the best beam, if it ended with
                                 this length, were no better than the worst of them */
    BY_BEAM_END_FULL,         /* `beams` hypotheses are there: early_stopping=True */
    BY_BEAM_END_NEVER /* no beam can become better than the worst of `beams` hypotheses, also
                                 with the most tokens: early_stopping="never" */
} by_beam_end;

typedef struct by_beam_request {
    const int32_t *prompt;
    size_t prompt_count; /* 1 .. context */
    int64_t tokens;      /* to generate at most; 0: until the context is full */
    double
        length_penalty; /* above 0 it favours long texts; 0: the sum of log-probabilities counts */
    by_beam_end end;
    const int32_t *stop; /* tokens that end a text */
    size_t stop_count;   /* at most BY_BEAM_STOP_TOKENS */
} by_beam_request;

typedef struct by_hypothesis {
    const int32_t *tokens; /* [count], the stop token with them */
    int64_t count;
    double log_probability; /* of all of them */
    double score;
    bool stopped; /* by a stop token; else by the length */
} by_hypothesis;

/* Compiles a model, takes its memory and loads the weights. config: resolved, vocab known. weights
 * NULL: initial ones. Both may be closed afterwards. Errors as those of by_generator_open. */
BY_API by_status by_beam_open(by_beam **out, const by_config *config, const by_weights *weights,
                              const by_beam_options *options, by_error *error);
BY_API void by_beam_close(by_beam **beam);
/* Bytes that it holds. */
BY_API uint64_t by_beam_bytes(const by_beam *beam);
/* Searches. *out: 1 to `beams` hypotheses, the best first, valid until the next run. BY_EARG names
 * what is out of range; BY_ESTATE: the weights give no usable logits. */
BY_API by_status by_beam_run(by_beam *beam, const by_beam_request *request,
                             const by_hypothesis **out, int32_t *count, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
