#include <math.h>
#include <stdlib.h>

#include "infer/infer.h"

by_status by__infer_logit_rules_check(const by_logit_rules *r, int64_t vocab, by_error *error)
{
    if (!(r->repetition >= 0.0) || isinf(r->repetition)) {
        return by_error_set(error, BY_EARG,
                            "a repetition penalty of %g is not a number of 0 or more; 1 is none",
                            r->repetition);
    }
    if (!isfinite(r->presence) || !isfinite(r->frequency)) {
        return by_error_set(error, BY_EARG, "penalties of presence %g and frequency %g",
                            r->presence, r->frequency);
    }
    for (size_t i = 0; i < r->bias_count; i++) {
        if (r->bias_tokens[i] < 0 || r->bias_tokens[i] >= vocab || isnan(r->biases[i]) ||
            r->biases[i] == INFINITY) {
            return by_error_set(error, BY_EARG,
                                "a bias of %g on token %d: the vocabulary has %lld tokens, and a "
                                "bias is a number or -inf",
                                (double)r->biases[i], (int)r->bias_tokens[i], (long long)vocab);
        }
    }
    return BY_OK;
}

static by_status check_tokens(const int32_t *tokens, size_t count, int64_t vocab, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocab) {
            return by_error_set(error, BY_EARG, "token %d is not below the vocabulary of %lld",
                                (int)tokens[i], (long long)vocab);
        }
    }
    return BY_OK;
}

/* Penalises each distinct token of a list once; `seen` counts occurrences. */
static void penalize_repetition(float *logits, double penalty, const int32_t *tokens, size_t count,
                                int32_t *seen)
{
    for (size_t i = 0; i < count; i++) {
        float *logit = &logits[tokens[i]];
        if (seen[tokens[i]]++ == 0) {
            *logit = (float)(*logit > 0.0f ? (double)*logit / penalty : (double)*logit * penalty);
        }
    }
}

static void clear(int32_t *counts, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        counts[tokens[i]] = 0;
    }
}

by_status by_logits_adjust(float *logits, int64_t vocab, const by_logit_rules *rules,
                           const int32_t *prompt, size_t prompt_count, const int32_t *output,
                           size_t output_count, int32_t *counts, by_error *error)
{
    BY_TRY(by__infer_logit_rules_check(rules, vocab, error));
    BY_TRY(check_tokens(prompt, prompt_count, vocab, error));
    BY_TRY(check_tokens(output, output_count, vocab, error));
    if (rules->repetition != 0.0 && rules->repetition != 1.0) {
        penalize_repetition(logits, rules->repetition, prompt, prompt_count, counts);
        penalize_repetition(logits, rules->repetition, output, output_count, counts);
        clear(counts, prompt, prompt_count);
        clear(counts, output, output_count);
    }
    if (rules->presence != 0.0 || rules->frequency != 0.0) {
        for (size_t i = 0; i < output_count; i++) {
            counts[output[i]]++;
        }
        for (size_t i = 0; i < output_count; i++) {
            int32_t token = output[i];
            if (counts[token] > 0) {
                logits[token] -=
                    (float)(rules->presence + rules->frequency * (double)counts[token]);
                counts[token] = 0;
            }
        }
    }
    for (size_t i = 0; i < rules->bias_count; i++) {
        logits[rules->bias_tokens[i]] += rules->biases[i];
    }
    return BY_OK;
}
