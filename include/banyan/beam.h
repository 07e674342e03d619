/* Beam search: the most probable continuations of a prompt among those found when only the `beams`
 * most probable prefixes of each length are kept.
 *
 * The algorithm is that of transformers' generate() with num_beams and do_sample=False. Of the best
 * max(2, 1 + stop tokens) x beams continuations by total log-probability, the first `beams` that do
 * not end are extended. Those that end and rank among the first `beams` become hypotheses, scored
 * sum / length^length_penalty; the best `beams` hypotheses are kept. Ties go to the better beam,
 * then to the lower token id.
 *
 * Beams share the key/value pages of their common prefix and copy a shared page before writing to
 * it. All memory is allocated when the handle is opened. The result depends only on the request and
 * the weights.
 */
#ifndef BANYAN_BEAM_H
#define BANYAN_BEAM_H

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_beam by_beam;

/* Limits: number of beams, and of stop tokens per request. */
#define BY_BEAMS            64
#define BY_BEAM_STOP_TOKENS 16

typedef struct by_beam_options {
    int32_t beams;         /* 1 to BY_BEAMS */
    int64_t context;       /* maximum tokens of prompt and continuation; 0: the model's context */
    int64_t vocab;         /* only tokens below this are generated; 0: the model's vocabulary */
    int threads;           /* compute threads; 0: config.train.threads */
    const char *precision; /* compute precision (by_infer_precision); NULL:
                              config.precision.compute */
    by_device *device;     /* must outlive the handle; NULL: config.device is opened */
} by_beam_options;

/* When to stop before the length limit, once there are `beams` hypotheses. */
typedef enum by_beam_end {
    BY_BEAM_END_UNLIKELY = 0, /* when the best beam, scored at its present length, is not better
                                 than the worst hypothesis: early_stopping=False */
    BY_BEAM_END_FULL,         /* at once: early_stopping=True */
    BY_BEAM_END_NEVER /* when no beam can beat the worst hypothesis even at the maximum length:
                         early_stopping="never" */
} by_beam_end;

typedef struct by_beam_request {
    const int32_t *prompt; /* [prompt_count] token ids */
    size_t prompt_count;   /* 1 to the context */
    int64_t tokens;        /* maximum number of tokens to generate; 0: until the context is full */
    double length_penalty; /* exponent of the length; > 0 favors long texts; 0: score = sum */
    by_beam_end end;
    const int32_t *stop; /* [stop_count] tokens that end a text */
    size_t stop_count;   /* 0 to BY_BEAM_STOP_TOKENS */
} by_beam_request;

typedef struct by_hypothesis {
    const int32_t *tokens; /* [count], including the stop token */
    int64_t count;
    double log_probability; /* sum over all tokens, in nats */
    double score;           /* log_probability / count^length_penalty */
    bool stopped;           /* ended by a stop token; false: by the length limit */
} by_hypothesis;

/* Compiles the model, allocates all memory and loads the weights. `config` is resolved and has the
 * vocabulary size; `weights` NULL: random initial weights. Both may be closed afterwards. Returns
 * BY_EARG for an option out of range; otherwise errors as by_generator_open. */
BY_API by_status by_beam_open(by_beam **out, const by_config *config, const by_weights *weights,
                              const by_beam_options *options, by_error *error);
BY_API void by_beam_close(by_beam **beam);
/* Returns the bytes of memory the handle holds. */
BY_API uint64_t by_beam_bytes(const by_beam *beam);
/* Runs a search. Sets *out to 1 to `beams` hypotheses, best first, valid until the next run or
 * close. Returns BY_EARG with what is out of range, BY_ESTATE if the model yields no finite
 * logits. */
BY_API by_status by_beam_run(by_beam *beam, const by_beam_request *request,
                             const by_hypothesis **out, int32_t *count, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
