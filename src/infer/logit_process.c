#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/logit_process.h"
#include "infer/constraint/constraint.h"
#include "infer/infer.h"

#define MAX_ENDS  16
#define MAX_STOPS 32

/* The state of one of n sequences. */
typedef struct constrained_sequence {
    by_constraint_state *state; /* NULL: no constraint */
    int64_t accepted;           /* output tokens that the constraint has consumed */
} constrained_sequence;

struct by_logit_process {
    int64_t vocab;
    by_logit_rules rules;
    int32_t *bias_tokens;
    float *biases;
    int32_t *counts; /* [vocab] zeros */
    int32_t ends[MAX_ENDS];
    size_t end_count;
    int32_t stops[MAX_STOPS];
    size_t stop_count;
    int64_t min_tokens;
    constrained_sequence *places; /* [n] */
    int32_t n;
};

static by_status copy_biases(by_logit_process *p, const by_logit_rules *rules, by_error *error)
{
    size_t count = rules->bias_count;
    BY_TRY(by__alloc((void **)&p->bias_tokens, count, sizeof *p->bias_tokens, "biases", error));
    BY_TRY(by__alloc((void **)&p->biases, count, sizeof *p->biases, "biases", error));
    if (count > 0) {
        memcpy(p->bias_tokens, rules->bias_tokens, count * sizeof *p->bias_tokens);
        memcpy(p->biases, rules->biases, count * sizeof *p->biases);
    }
    p->rules.bias_tokens = p->bias_tokens;
    p->rules.biases = p->biases;
    return BY_OK;
}

static by_status set_up(by_logit_process *p, const by_logit_process_options *o, by_error *error)
{
    BY_TRY(copy_biases(p, &o->rules, error));
    BY_TRY(by__alloc((void **)&p->counts, (size_t)p->vocab, sizeof *p->counts, "penalties", error));
    BY_TRY(by__alloc((void **)&p->places, (size_t)p->n, sizeof *p->places, "sequences", error));
    for (int32_t i = 0; i < p->n && o->constraint != NULL; i++) {
        BY_TRY(by_constraint_state_open(&p->places[i].state, o->constraint, o->list, error));
        (void)by_constraint_state_allowed(p->places[i].state); /* for the first token */
    }
    if (o->constraint != NULL && !by__constraint_state_goes_on(p->places[0].state) &&
        !by_constraint_state_can_end(p->places[0].state)) {
        return by_error_set(error, BY_EFORMAT,
                            "no token of the vocabulary begins a text of the form");
    }
    for (size_t i = 0; i < p->stop_count; i++) {
        if (p->stops[i] < 0 || p->stops[i] >= p->vocab) {
            return by_error_set(error, BY_EARG, "stop token %d; the vocabulary has %lld tokens",
                                (int)p->stops[i], (long long)p->vocab);
        }
    }
    return by__infer_logit_rules_check(&p->rules, p->vocab, error);
}

by_status by_logit_process_open(by_logit_process **out, const by_logit_process_options *options,
                                by_error *error)
{
    by_logit_process *p;
    if (options->vocab < 1 || options->n < 0 || options->end_count > MAX_ENDS ||
        options->stop_count > MAX_STOPS || (options->constraint != NULL && options->list == NULL)) {
        return by_error_set(error, BY_EARG,
                            "a vocabulary of %lld, %d sequences, %zu end tokens (%d at most) and "
                            "%zu stop tokens (%d at most)",
                            (long long)options->vocab, (int)options->n, options->end_count,
                            MAX_ENDS, options->stop_count, MAX_STOPS);
    }
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the rules of a request", error));
    p->vocab = options->vocab;
    p->n = options->n == 0 ? 1 : options->n;
    p->rules = options->rules;
    p->end_count = options->end_count;
    if (options->end_count > 0) {
        memcpy(p->ends, options->ends, options->end_count * sizeof *p->ends);
    }
    p->min_tokens = options->min_tokens;
    p->stop_count = options->stop_count;
    if (options->stop_count > 0) {
        memcpy(p->stops, options->stops, options->stop_count * sizeof *p->stops);
    }
    by_status status = set_up(p, options, error);
    if (status != BY_OK) {
        by_logit_process_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by_logit_process_close(by_logit_process **process)
{
    by_logit_process *p = *process;
    if (p != NULL) {
        for (int32_t i = 0; i < p->n && p->places != NULL; i++) {
            by_constraint_state_close(&p->places[i].state);
        }
        free(p->places);
        free(p->counts);
        free(p->bias_tokens);
        free(p->biases);
        free(p);
        *process = NULL;
    }
}

/* Lets the constraint consume the tokens chosen since the last call. */
static by_status catch_up(constrained_sequence *at, const int32_t *output, int64_t count,
                          by_error *error)
{
    for (; at->accepted < count; at->accepted++) {
        BY_TRY(by_constraint_state_accept(at->state, (uint32_t)output[at->accepted], error));
    }
    return BY_OK;
}

/* Applies the constraint: keeps only the logits of tokens that may follow. */
static by_status apply_constraint(by_logit_process *p, constrained_sequence *at, float *logits,
                                  int64_t vocab, const int32_t *output, int64_t count,
                                  by_error *error)
{
    BY_TRY(catch_up(at, output, count, error));
    if (p->end_count == 0 && by_constraint_state_is_complete(at->state)) {
        return by_error_set(error, BY_ESTOPPED, "the text is complete");
    }
    return by_constraint_state_mask(at->state, logits, vocab, p->ends, p->end_count, error);
}

/* Suppresses stop tokens, unless nothing else may follow. */
static void suppress_stops(const by_logit_process *p, float *logits)
{
    float kept[MAX_STOPS];
    float largest = -INFINITY;
    for (size_t i = 0; i < p->stop_count; i++) {
        kept[i] = logits[p->stops[i]];
    }
    for (size_t i = 0; i < p->stop_count; i++) {
        logits[p->stops[i]] = -INFINITY;
    }
    for (int64_t i = 0; i < p->vocab; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (size_t i = 0; i < p->stop_count && largest == -INFINITY; i++) {
        logits[p->stops[i]] = kept[i];
    }
}

by_status by_logit_process_run(void *process, int32_t index, float *logits, int64_t vocab,
                               const int32_t *tokens, int64_t count, int64_t prompt,
                               by_error *error)
{
    by_logit_process *p = process;
    if (vocab != p->vocab || index < 0 || index >= p->n || prompt > count) {
        return by_error_set(error, BY_EARG, "sequence %d of %d, %lld logits for %lld", (int)index,
                            (int)p->n, (long long)vocab, (long long)p->vocab);
    }
    BY_TRY(by_logits_adjust(logits, vocab, &p->rules, tokens, (size_t)prompt, tokens + prompt,
                            (size_t)(count - prompt), p->counts, error));
    constrained_sequence *at = &p->places[index];
    if (at->state != NULL) {
        BY_TRY(apply_constraint(p, at, logits, vocab, tokens + prompt, count - prompt, error));
    }
    if (count - prompt < p->min_tokens) {
        suppress_stops(p, logits);
    }
    return BY_OK;
}

bool by_logit_process_prepare(void *process, int32_t index, const int32_t *tokens, int64_t count,
                              int64_t prompt, int64_t *work)
{
    by_logit_process *p = process;
    by_error ignored = {0};
    if (index < 0 || index >= p->n || prompt > count || p->places[index].state == NULL ||
        catch_up(&p->places[index], tokens + prompt, count - prompt, &ignored) != BY_OK) {
        return true; /* by_logit_process_run reports what is wrong */
    }
    return by_constraint_state_prepare(p->places[index].state, work);
}
