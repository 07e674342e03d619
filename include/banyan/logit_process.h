/* The rules of one request between a model's logits and the choice of a token: penalties, biases,
 * and a form that the text must have. by_logit_process_run is a by_logits_processor for
 * by_engine_submit and by_generator_sample_with, and by_logit_process_prepare a by_logits_preparer
 * for the former. */
#ifndef BANYAN_LOGIT_PROCESS_H
#define BANYAN_LOGIT_PROCESS_H

#include "banyan/constraint.h"
#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_logit_process by_logit_process;

typedef struct by_logit_process_options {
    int64_t vocab;        /* number of logits */
    int32_t n;            /* continuations of the prompt; 0: 1 */
    by_logit_rules rules; /* biases are copied */
    /* Form of the text after the prompt, and the tokens of the vocabulary. Both must outlive the
     * process. NULL: none. */
    const by_constraint *constraint;
    const by_token_list *list;
    const int32_t *ends; /* [end_count] tokens that end a text, permitted where it may end;
                            copied */
    size_t end_count;    /* 0 to 16 */
    /* Number of tokens after the prompt before which none of `stops` is chosen, unless nothing else
     * may follow. */
    int64_t min_tokens;
    const int32_t *stops; /* [stop_count], those of by_request.stop; copied */
    size_t stop_count;    /* 0 to 32 */
} by_logit_process_options;

/* Makes a process and allocates all of its memory. Returns BY_EARG if an option or rule is out of
 * range, BY_EFORMAT if no token can begin a text of the form. */
BY_API by_status by_logit_process_open(by_logit_process **out,
                                       const by_logit_process_options *options, by_error *error);
BY_API void by_logit_process_close(by_logit_process **process);
/* A by_logits_processor; `process` is the by_logit_process. Returns BY_ESTOPPED if the text is
 * complete, nothing can follow and there is no token to end it; BY_EFORMAT if no token of the
 * vocabulary can follow; BY_EARG if the arguments do not match the options. */
BY_API by_status by_logit_process_run(void *process, int32_t index, float *logits, int64_t vocab,
                                      const int32_t *tokens, int64_t count, int64_t prompt,
                                      by_error *error);
/* A by_logits_preparer; `process` is the by_logit_process. */
BY_API bool by_logit_process_prepare(void *process, int32_t index, const int32_t *tokens,
                                     int64_t count, int64_t prompt, int64_t *work);

#ifdef __cplusplus
}
#endif
#endif
