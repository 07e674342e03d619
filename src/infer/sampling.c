#include <math.h>

#include "infer/infer.h"

/* "sampling" as a Philox stream. */
#define STREAM UINT64_C(0x73616d706c696e67)

typedef struct candidate {
    float weight; /* a logit, later exp((logit - largest) / temperature) */
    int32_t id;
} candidate;

size_t by_sample_scratch_bytes(int64_t vocab)
{
    return vocab < 1 ? 0 : (size_t)vocab * sizeof(candidate);
}

static by_status check(const by_sampling *s, by_error *error)
{
    if (!(s->temperature >= 0.0) || isinf(s->temperature)) {
        return by_error_set(error, BY_EARG, "temperature %g is not a number of 0 or more",
                            s->temperature);
    }
    if (s->top_k < 0) {
        return by_error_set(error, BY_EARG, "top_k %lld is negative; 0 keeps all tokens",
                            (long long)s->top_k);
    }
    if (!(s->top_p > 0.0 && s->top_p <= 1.0)) {
        return by_error_set(error, BY_EARG, "top_p %g is not in (0, 1]; 1 keeps all tokens", s->top_p);
    }
    return BY_OK;
}

/* Place of the largest logit, the first among equals. */
static by_status find_largest(int64_t *out, const float *logits, int64_t vocab, by_error *error)
{
    int64_t best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) {
            return by_error_set(error, BY_ESTATE,
                                "the logit of token %lld is %g: the model's weights are not usable",
                                (long long)i, (double)logits[i]);
        }
        best = logits[i] > logits[best] ? i : best;
    }
    if (logits[best] == -INFINITY) {
        return by_error_set(error, BY_ESTATE, "all %lld logits are -inf: no token can follow",
                            (long long)vocab);
    }
    *out = best;
    return BY_OK;
}

static bool precedes(const candidate *a, const candidate *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->id < b->id);
}

static void swap(candidate *a, candidate *b)
{
    candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* What keep_top counts: tokens, or their weights. */
static double measure(const candidate *c, bool by_weight)
{
    return by_weight ? (double)c->weight : 1.0;
}

/* Moves the shortest prefix of the order "weight falling, id rising" whose measure reaches `target` (> 0)
 * to the front, in any order, and returns its length. Quickselect (Hoare 1961), where the measure of the
 * part before the pivot says on which side the prefix ends: expected linear time, no sort. */
static int64_t keep_top(candidate *c, int64_t count, double target, bool by_weight)
{
    int64_t first = 0;
    int64_t last = count;
    uint32_t state = 1; /* of a linear congruential generator: any fixed pivots are right */
    while (last - first > 1) {
        state = state * 1664525u + 1013904223u;
        int64_t pivot = first + (int64_t)(state >> 1) % (last - first);
        int64_t middle = first;
        double before = 0.0;
        swap(&c[pivot], &c[last - 1]);
        for (int64_t i = first; i < last - 1; i++) {
            if (precedes(&c[i], &c[last - 1])) {
                before += measure(&c[i], by_weight);
                swap(&c[i], &c[middle++]);
            }
        }
        swap(&c[middle], &c[last - 1]);
        if (before >= target) {
            last = middle;
        } else if (before + measure(&c[middle], by_weight) >= target) {
            return middle + 1;
        } else {
            target -= before + measure(&c[middle], by_weight);
            first = middle + 1;
        }
    }
    return last;
}

/* Turns logits into weights relative to the largest; returns their sum. */
static double weigh(candidate *c, int64_t count, float largest, double temperature)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        c[i].weight = expf((float)(((double)c[i].weight - (double)largest) / temperature));
        sum += (double)c[i].weight;
    }
    return sum;
}

/* Uniform in [0, 1) with 53 bits. */
static double uniform(uint64_t seed, uint64_t position)
{
    uint32_t key[2];
    uint32_t bits[4];
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    by__philox_key(key, seed, STREAM);
    by__philox(bits, key, counter);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

by_status by_sample(int32_t *token, const by_sampling *sampling, const float *logits, int64_t vocab,
                    uint64_t position, void *scratch, by_error *error)
{
    int64_t best = 0;
    candidate *c = scratch;
    if (vocab < 1 || vocab > INT32_MAX) {
        return by_error_set(error, BY_EARG, "cannot choose among %lld tokens", (long long)vocab);
    }
    BY_TRY(check(sampling, error));
    BY_TRY(find_largest(&best, logits, vocab, error));
    if (sampling->temperature == 0.0 || sampling->top_k == 1) {
        *token = (int32_t)best;
        return BY_OK;
    }
    for (int64_t i = 0; i < vocab; i++) {
        c[i] = (candidate){logits[i], (int32_t)i};
    }
    int64_t count = vocab;
    if (sampling->top_k > 0 && sampling->top_k < vocab) {
        count = keep_top(c, count, (double)sampling->top_k, false);
    }
    double sum = weigh(c, count, logits[best], sampling->temperature);
    if (sampling->top_p < 1.0) {
        count = keep_top(c, count, sampling->top_p * sum, true);
        sum = 0.0;
        for (int64_t i = 0; i < count; i++) {
            sum += (double)c[i].weight;
        }
    }
    double threshold = uniform(sampling->seed, position) * sum;
    double passed = 0.0;
    int32_t chosen = (int32_t)best;
    for (int64_t i = 0; i < count; i++) {
        if (c[i].weight > 0.0f) {
            passed += (double)c[i].weight;
            chosen = c[i].id; /* the last one with weight when rounding leaves the threshold unmet */
            if (passed > threshold) {
                break;
            }
        }
    }
    *token = chosen;
    return BY_OK;
}
