/* What stands between a model's logits and the draw of a token: penalties and biases, and a form
 * that the text is held to. One for each request; its by_logit_process_run is a by_logits_processor
 * for by_engine_submit and by_generator_sample_with. */
#ifndef BANYAN_LOGIT_PROCESS_H
#define BANYAN_LOGIT_PROCESS_H

#include "banyan/constraint.h"
#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_logit_process by_logit_process;

typedef struct by_logit_process_options {
    int64_t vocab;        /* tokens that have logits */
    int32_t n;            /* sequences that follow the prompt; 0: 1 */
    by_logit_rules rules; /* biases are copied */
    /* What the text behind the prompt is held to, and the tokens of the vocabulary; both outlive
     * the process. NULL: nothing. */
    const by_constraint *constraint;
    const by_token_list *list;
    const int32_t *ends; /* tokens that end a text, allowed where it may end; copied, 16 at most */
    size_t end_count;
    /* Tokens behind the prompt before which none of `stops` is chosen, unless nothing else may
     * follow; copied, 32 at most. They are those of by_request.stop. */
    int64_t min_tokens;
    const int32_t *stops;
    size_t stop_count;
} by_logit_process_options;

/* All memory is taken here. BY_EARG: a rule is out of range; BY_EFORMAT: no token begins a text of
 * the form. */
BY_API by_status by_logit_process_open(by_logit_process **out,
                                       const by_logit_process_options *options, by_error *error);
BY_API void by_logit_process_close(by_logit_process **process);
/* A by_logits_processor whose `user` is the process. BY_ESTOPPED: the text is complete, nothing can
 * follow and there is no token that ends it. BY_EFORMAT: no token of the vocabulary can follow. */
BY_API by_status by_logit_process_run(void *process, int32_t index, float *logits, int64_t vocab,
                                      const int32_t *tokens, int64_t count, int64_t prompt,
                                      by_error *error);

#ifdef __cplusplus
}
#endif
#endif
